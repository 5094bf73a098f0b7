"""How a command ends: honest exit codes, an error as one sentence, a traceback where one is asked for, and, when it is
stopped, what is kept and how to go on."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from cf2.cli.terminal import err, tell
from cf2.errors import CF2Error, os_reason, own_line

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM

Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error; so does CF2_DEBUG=1.")]


@dataclass
class _Command:
    """What is known of the command that runs, beside its options."""

    debug: bool = False
    kept: Callable[[], str] = lambda: ""
    terminated: bool = False


_now = _Command()


class _Stopped(SystemExit):
    """Ctrl-C or SIGTERM inside of a command."""


class Commands(typer.Typer):
    """An app each of whose commands takes `--debug` and says, when it is stopped, what is kept."""

    def command(  # type: ignore[override]
        self, *given: Any, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """As typer's own."""
        register = super().command(*given, **options)
        return lambda function: register(_stoppable(function))


def _stoppable(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function, eval_str=True)
    debug = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)

    @functools.wraps(function)
    def called(debug: bool = False, **given: Any) -> Any:
        show_tracebacks(debug)
        try:
            return function(**given)
        except KeyboardInterrupt:  # which typer would turn into an exit code without a word
            raise _Stopped from None

    called.__signature__ = signature.replace(parameters=[*signature.parameters.values(), debug])  # type: ignore[attr-defined]
    called.__annotations__ = {**{p.name: p.annotation for p in signature.parameters.values()}, "debug": Debug}
    return called


def show_tracebacks(wanted: bool) -> None:
    """From here on, an error of this command is shown with its traceback, if that is wanted."""
    _now.debug = _now.debug or wanted


def if_stopped(kept: str | Callable[[], str]) -> None:
    """What Ctrl-C and SIGTERM say of this command: what is kept, and how to go on."""
    _now.kept = kept if callable(kept) else lambda: kept


def kept_in(path: Path) -> str:
    """How much of the run in a directory there is, and how to go on."""
    from cf2.runs.directory import open_run

    with suppress(CF2Error):
        counts = open_run(path).finished()
        done, asked = sum(one.finished for one in counts), sum(one.asked for one in counts)
        return f"{done:,} of {asked:,} are finished and kept in {path}. {go_on()}"
    return f"Nothing was finished yet. {go_on()}"


def go_on() -> str:
    """How a command that was stopped goes on."""
    return "The same command with --resume goes on from there."


def guarded(command: Callable[[], Any]) -> None:
    """Run a command: 0 if it worked, 1 if it failed, 2 for bad usage, never a traceback that nobody asked for."""
    global _now
    from rich.logging import RichHandler

    _now = _Command(debug=os.environ.get("CF2_DEBUG", "") not in ("", "0"))
    handlers = [RichHandler(console=err, show_path=False, show_time=False)]
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=handlers)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread a process; more cores mean more workers
    with suppress(AttributeError):  # a name of a file that is no text is written as it is escaped
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with _terminable():
        try:
            command()
        except KeyboardInterrupt:
            _stop()
        except SystemExit as end:  # typer makes 130 of Ctrl-C, and Ray 15 of SIGTERM
            _now.terminated = _now.terminated or end.code == signal.SIGTERM
            if isinstance(end, _Stopped) or end.code in (INTERRUPTED, signal.SIGTERM):
                _stop()
            raise
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except Exception as error:
            if _now.debug:
                traceback.print_exception(error)
            tell(sentence(error), error=True)
            raise SystemExit(1) from None


def sentence(error: Exception) -> str:
    """An error in words: what the user can mend, or that it is ours."""
    what = f"{type(error).__name__}: {error}".rstrip(".: ").partition("\n")[0]
    whole = "" if _now.debug else " Add --debug to see the whole traceback."
    if isinstance(error, CF2Error):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        place = "read or write" if error.filename is None else f"use {str(error.filename)!r}"
        return f"Expected to {place}, but got: {os_reason(error)}."
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"Expected enough memory, but got none ({what}). Explain fewer at once, or limit --max-units.{whole}"
    line = own_line(error)
    if line is not None:
        return f"Expected your own code to run without an error, but got {what} ({line}).{whole}"
    return f"This is a fault in cf2, and not in what you gave it: {what}.{whole} Please report it with that."


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: workers end, locks are released, and it says what is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(*_: Any) -> NoReturn:
        _now.terminated = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        if before is not None:  # None: it was not set from Python
            signal.signal(signal.SIGTERM, before)


def _stop() -> NoReturn:
    tell(f"Stopped. {_now.kept()}".rstrip())
    raise SystemExit(TERMINATED if _now.terminated else INTERRUPTED) from None
