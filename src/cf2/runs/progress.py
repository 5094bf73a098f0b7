"""Whom a call tells how far it is: the user's function, a bar in a terminal, a line in a notebook, or the log."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from cf2.errors import require

Tell = Callable[[int], None]
LATER = 2.0  # seconds after which a bar appears that nobody asked for

log = logging.getLogger("cf2")


@contextmanager
def told(given: Any, total: int) -> Iterator[Tell | None]:
    """Whom to tell of keys that are done.

    `given` is the user's function; True for a bar, False for none; None for a bar if somebody sits there and it takes
    more than two seconds.
    """
    good = given is None or isinstance(given, bool) or callable(given)
    require(good, "Expected `progress` to be a function, True or False", got=repr(given)[:80])
    if given is False or (given is None and not interactive()):
        yield None
    elif callable(given):
        yield given
    else:
        with (_line if in_notebook() else _bar)(total, 0.0 if given else LATER) as tell:
            yield tell


def interactive() -> bool:
    """Whether somebody sits at a prompt or a notebook, and not a script or a test."""
    return hasattr(sys, "ps1") or in_notebook()


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which draws no bars of a terminal."""
    known = sys.modules.get("IPython")
    shell = known.get_ipython() if known is not None else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _bar(total: int, later: float) -> Iterator[Tell]:
    """A bar on stderr, which appears after some seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("explained"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    task = bar.add_task("explained", total=total)
    waiting = threading.Timer(later, bar.start)
    waiting.daemon = True
    if later:
        waiting.start()
    else:
        bar.start()
    try:
        yield lambda done: bar.advance(task, done)
    finally:
        waiting.cancel()
        bar.stop()


@contextmanager
def _line(total: int, later: float, out: TextIO | None = None) -> Iterator[Tell]:
    """A line of text that writes over itself, as a notebook shows it without any extension."""
    started, done, shown = time.perf_counter(), 0, False
    stream = out or sys.stderr

    def tell(more: int) -> None:
        nonlocal done, shown
        done += more
        seconds = time.perf_counter() - started
        if seconds >= later:
            left = seconds / max(done, 1) * (total - done)
            print(f"\rexplained {done:,} of {total:,}, about {left:.0f} s left ", end="", file=stream, flush=True)
            shown = True

    yield tell
    if shown:
        print(f"\rexplained {done:,} in {time.perf_counter() - started:.1f} s{' ' * 24}", file=stream, flush=True)


@contextmanager
def heard(verbose: Any) -> Iterator[None]:
    """With `verbose`, what the library logs is on stderr for as long as this lasts."""
    require(isinstance(verbose, bool), "Expected `verbose` to be True or False", got=repr(verbose)[:80])
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
