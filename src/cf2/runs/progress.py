"""Whom a call tells how far it is: the user's function, a bar in a terminal, a line in a notebook, or the log."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from cf2.errors import require, shown

if TYPE_CHECKING:  # it imports torch, for which `cf2 --help` does not wait
    from cf2.results.explanation import Explanation

Progress = Callable[[int], None]  # is told of every n keys that are done
SPEAKS_AFTER = 5.0  # seconds without a finished key
STILL = (
    "Still searching among up to {units:,} units per instance. "
    "effort='quick', or max_units=2000 with reduce='gradient', takes less time. "
    "Ctrl-C stops it and returns the best sets so far."
)
LATER = 2.0  # seconds after which a bar appears that nobody asked for
EVERY = 1.0  # seconds after which a line in a notebook is written anew

log = logging.getLogger("cf2")


@contextmanager
def told(given: Any, total: int, now: Callable[[], str] = str) -> Iterator[Progress | None]:
    """Whom to tell of keys that are done; a bar or a line also shows what `now` says of those that are not.

    `given` is the user's function; True for a bar, False for none; None for a bar if somebody sits there and it takes
    more than two seconds.
    """
    good = given is None or isinstance(given, bool) or callable(given)
    require(good, "Expected `progress` to be a function, True or False", got=shown(given, 80))
    later = 0.0 if given else LATER
    if given is False or (given is None and not (hasattr(sys, "ps1") or in_notebook())):
        yield None
    elif callable(given):
        yield given
    elif in_notebook():
        with _line(total, later, now) as tell:
            yield tell
    else:
        with bar("explained", total, later=later, now=now) as update:
            yield lambda done: update(advance=done)


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which draws no bars of a terminal."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython() if ipython is not None else None, "kernel")


@contextmanager
def bar(
    label: str,
    total: int | None,
    *,
    later: float = 0.0,
    console: Any = None,
    transient: bool = False,
    now: Callable[[], str] = str,
) -> Iterator[Callable[..., None]]:
    """A bar on stderr that appears after some seconds; it gives `rich.progress.Progress.update` of its only task.

    Each time that it is drawn, it shows what `now` says.
    """
    from rich import progress as rich
    from rich.console import Console
    from rich.text import Text

    class Now(rich.ProgressColumn):
        def render(self, task: rich.Task) -> Text:
            return Text(now())

    numbers = (rich.MofNCompleteColumn(), rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), *numbers, Now())
    shown = rich.Progress(*columns, console=console or Console(stderr=True), transient=transient)
    task = shown.add_task(label, total=total)
    waiting = threading.Timer(later, shown.start)
    waiting.daemon = True
    (waiting if later else shown).start()
    try:
        yield partial(shown.update, task)
    finally:
        waiting.cancel()
        shown.stop()


@contextmanager
def _line(total: int, later: float, now: Callable[[], str]) -> Iterator[Progress]:
    """A line of text that writes over itself, as a notebook shows it without any extension."""
    started, done, shown, ended = time.perf_counter(), 0, False, threading.Event()

    def tell(more: int) -> None:
        nonlocal done, shown
        done += more
        seconds = time.perf_counter() - started
        if seconds >= later:
            left = f", about {seconds / done * (total - done):.0f} s left" if done else ""
            text = f"explained {done:,} of {total:,}{left} {now()}"
            print(f"\r{text:<90}", end="", file=sys.stderr, flush=True)
            shown = True

    def repeat() -> None:
        while not ended.wait(EVERY):
            tell(0)

    writing = threading.Thread(target=repeat, daemon=True)
    writing.start()
    try:
        yield tell
    finally:
        ended.set()
        writing.join()
    if shown:
        print(f"\rexplained {done:,} in {time.perf_counter() - started:.1f} s{' ' * 60}", file=sys.stderr, flush=True)


@contextmanager
def still_working(session: Any, quiet: bool = False) -> Iterator[None]:
    """After five seconds without a finished key, say to whoever sits there how large the work is and what ends it."""

    done = threading.Event()

    def speak() -> None:
        while not done.wait(SPEAKS_AFTER) and not session.finished:
            if session.largest:  # else the model is still being measured
                print(f"{STILL.format(units=session.largest)} {session.answers.so_far()}", file=sys.stderr, flush=True)
                return

    if not quiet and (hasattr(sys, "ps1") or in_notebook()):
        threading.Thread(target=speak, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def say_interrupted(finished: Sequence[Explanation], asked: int) -> str:
    """Say on stderr how many keys are explained of those that were asked for, and return the sentence."""
    said = f"Interrupted: {len({e.key for e in finished}):,} of {asked:,} are explained."
    print(said, file=sys.stderr)
    return said


@contextmanager
def heard(verbose: Any) -> Iterator[None]:
    """With `verbose`, what the library logs is on stderr for as long as this lasts."""
    require(isinstance(verbose, bool), "Expected `verbose` to be True or False", got=shown(verbose, 80))
    if not verbose:
        yield
        return
    handler, before, passed = logging.StreamHandler(), log.level, log.propagate
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(min(before or logging.INFO, logging.INFO))
    log.propagate = False  # a handler of the caller's would say it again
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        log.propagate = passed
