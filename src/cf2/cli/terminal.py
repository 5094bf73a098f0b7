"""What every command shares: progress and hints on stderr, tables or JSON alone on stdout."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from cf2.errors import CF2Error, os_reason, own_line
from cf2.runs.progress import bar as progress_bar

out = Console()
err = Console(stderr=True)


def tell(text: str, *, error: bool = False) -> None:
    """A line for the reader, if there is anything to say, on stderr, so that stdout stays what was asked for."""
    if text:
        err.print(f"{'[bold red]Error:[/] ' if error else ''}{escape(text)}", highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A line on stdout that is no table, if there is anything to say."""
    if text:
        out.print(escape(text), highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """JSON on stdout and nothing else; numbers that JSON does not have become null."""
    print(json.dumps(_clean(value), indent=2, ensure_ascii=False))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A plain table: words to the left, numbers to the right."""
    shown = Table(title=title, title_justify="left", header_style="bold", title_style="bold")
    for position, name in enumerate(columns):
        numbers = position and all(_numeric(str(row[position])) for row in rows)
        shown.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(escape(str(cell)) for cell in row))
    return shown


def _numeric(text: str) -> bool:
    return text == "–" or text.replace(".", "").replace(",", "").replace("-", "").isdigit()


@contextmanager
def bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; none if that is not a terminal. The function it gives takes steps forward."""
    with _bar(label, total) as update:
        yield lambda steps: update(advance=steps)


@contextmanager
def named_bar(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar whose label and total change: the function takes (label, done, total)."""
    with _bar(label, None) as update:
        yield lambda text, done, total: update(description=text, completed=done, total=total)


def _bar(label: str, total: int | None) -> AbstractContextManager[Callable[..., None]]:
    if err.is_terminal:
        return progress_bar(label, total, console=err, transient=True)
    return nullcontext(lambda **_: None)


def percent(value: float | None) -> str:
    """0.7207 -> 72.1; nothing where there is no number."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.1f}"


def cell(value: Any) -> str:
    """A value of any kind in a cell of a table."""
    if isinstance(value, bool):
        return "yes" if value else "–"
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


COMPARED = ("method", "found", "PN", "PS", "F_NS", "PNS", "size", "F1", "runs", "sec.")


def compared(row: dict[str, Any]) -> list[str]:
    """One method's row of a comparison, under `COMPARED`; of PN, PS and F_NS what its question asks for."""
    from cf2.results.explanations import SHARES, SHARES_ASKED

    asked = SHARES_ASKED.get(row.get("question", "why"), SHARES)
    shares = [percent(row.get(name) if name in asked else None) for name in SHARES]
    cost = [f"{row['evaluations']:.0f}", f"{row['seconds']:.3f}"]
    label, found = row.get("label", row["method"]), percent(row.get("found"))
    return [label, found, *shares, percent(row.get("pns")), f"{row['size']:.2f}", percent(row.get("f1")), *cost]


def comparison_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """The rows of a comparison as a table, without PNS and F1 where no row has them."""
    cells = [compared(row) for row in rows]
    shown = [at for at, name in enumerate(COMPARED) if name not in ("PNS", "F1") or any(c[at] != "–" for c in cells)]
    return table(title, [COMPARED[at] for at in shown], [[row[at] for at in shown] for row in cells])


def remarks(rows: Sequence[dict[str, Any]], max_units: int | None) -> None:
    """What a table does not show of its rows: stability, other statuses than found, and predictions that stay."""
    from cf2.results.explanation import STATUSES

    for row in rows:
        if "stability" in row:
            say(f"{row['label']}: mean Jaccard overlap over seeds {row['stability']:.3f}")
        if large := row.get("refused"):
            named = ", ".join(map(str, large[:6])) + (", …" if len(large) > 6 else "")
            tell(
                f"{row['label']}: {len(large)} of {row['n']} were not explained because they have more units than "
                f"--max-units {max_units}: {named}. Add --reduce gradient to explain them as well."
            )
        if row.get("default"):
            more = "more --edits, other --candidates or another --target"
            ask = more if row["question"] == "counterfactual" else "--question counterfactual --edits remove,add"
            number = row.get("default_class")
            kept = "stay the same without any unit" if number is None else f"are of the default class, {number}"
            say(
                f"{row['label']}: {row['default']} of {row['n']} predictions {kept}. Features may decide them: add "
                f"--units auto. To find what would have to change, use {ask}."
            )
        for status, number in row.get("statuses", {}).items():
            if status not in ("found", "refused"):
                say(f"{row['label']}: {number} of {row['n']} {status}. {STATUSES[status]}")


GO_ON = "Run the same command with --resume to continue."
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


@dataclass
class _Command:
    """What is known of the command that runs, beside its options."""

    debug: bool = False
    kept: Callable[[], str] = lambda: ""
    terminated: bool = False


_now = _Command()


class _Stopped(SystemExit):
    """Ctrl-C or SIGTERM inside of a command."""


def show_tracebacks(wanted: bool) -> None:
    """From here on, an error of this command is shown with its traceback, if that is wanted."""
    _now.debug = _now.debug or wanted


Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        callback=show_tracebacks,
        expose_value=False,
        help="Show the full traceback of an error (also with CF2_DEBUG=1).",
    ),
]


class Commands(TyperGroup):
    """Commands that take `--debug` as the group does, and that say when they are stopped what is kept."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        debug = next(option for option in self.params if option.name == "debug")
        for command in self.commands.values():
            command.params.append(debug)

    def invoke(self, ctx: Any) -> Any:
        """As typer's own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # which typer would turn into an exit code without a word
            raise _Stopped from None
        except Exception as error:  # a usage error of click, which typer has at different places by version
            if "unexpected extra argument" in getattr(error, "message", ""):
                error.message += ". Separate several ids by commas, as in --nodes 3,17."  # type: ignore[attr-defined]
            raise


def if_stopped(kept: str | Callable[[], str]) -> None:
    """What Ctrl-C and SIGTERM say of this command: what is kept, and how to go on."""
    _now.kept = kept if callable(kept) else lambda: kept


def kept_in(path: Path) -> str:
    """How much of the run in a directory there is, and how to go on."""
    from cf2.runs.store import Store

    with suppress(CF2Error):
        counts = Store.open(path).finished()
        done, asked = sum(row.finished for row in counts), sum(row.asked for row in counts)
        return f"{done:,} of {asked:,} are finished and stored in {path}. {GO_ON}"
    return f"Nothing has finished yet. {GO_ON}"


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
    whole = "" if _now.debug else " Add --debug to see the full traceback."
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
    return f"This is a bug in cf2: {what}.{whole} Please report it with the traceback."


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: workers end, locks are released, and it says what is kept."""

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
