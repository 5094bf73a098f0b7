"""The buttons that search: explain with other settings, one more explanation, and the smallest edit to a class.

Python cannot end a thread from outside. So a search asks before every run of the model whether to go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, get_args

from cf2.errors import CF2Error, require
from cf2.options import Edit as EditSort
from cf2.report import words
from cf2.results.explanation import Explanation
from cf2.web.whatif import VISITOR, GoOn, WhatIf, first_answer

MAX_SECONDS = 300.0  # of one search


class Searches:
    """Does one search at a time, each for so many seconds at most."""

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < float("inf")
        require(good, "Expected a time limit of more than 0 seconds", got=repr(seconds))
        self.seconds = float(seconds)
        self._running, self._cancelled, self._closed = threading.Lock(), threading.Event(), False
        self._started, self._runs, self._owner = 0.0, 0, ""

    def run(self, search: Callable[[GoOn], Any]) -> Any:
        """What `search` returns. It gets a function to call now and then, which raises an error when it is to end."""
        if not self._running.acquire(blocking=False):
            raise CF2Error("Busy: another search is running", do="Try again when it has ended.")
        try:
            self._cancelled.clear()
            self._started, self._runs, self._owner = time.monotonic(), 0, VISITOR.get()
            return search(self._check)
        finally:
            self._running.release()

    def cancel(self) -> None:
        """Have the visitor's own search end before the next run of the model."""
        if self._owner == VISITOR.get():
            self._cancelled.set()

    def close(self) -> None:
        """The same for every later search, too."""
        self._closed = True

    def progress(self) -> str:
        """How far the search has come, in words; empty where there is none."""
        if not self._running.locked():
            return ""
        spent = time.monotonic() - self._started
        return f"Explaining: {self._runs:,} runs of the model, {spent:.0f} s of at most {self.seconds:g} s."

    def _check(self) -> None:
        self._runs += 1
        if self._cancelled.is_set() or self._closed:
            raise CF2Error("Cancelled")
        if time.monotonic() - self._started > self.seconds:
            raise CF2Error(f"Stopped after {self.seconds:g} seconds, the limit for one explanation")


def find(whatif: WhatIf, searches: Searches, e: Explanation, given: Mapping[str, Any]) -> tuple[str, str]:
    """Do one of the three searches: the name of what was found, '' for nothing, and what to say of it."""

    def search(go_on: GoOn) -> str:
        if given["what"] == "again":
            return whatif.again(e, given["alpha"], given["lambda"], go_on)
        if given["what"] == "another":
            return whatif.another(e, first_answer(given["method"]), go_on)
        edits = tuple(sort for sort in get_args(EditSort) if sort in given["sorts"])
        require(bool(edits), f"Expected some of {', '.join(get_args(EditSort))}", got="none")
        return whatif.smallest_edit(e, given["aim"], edits, bool(given["valid"]), go_on)

    name = searches.run(search)
    if not name:
        return "", "no other explanation was found."
    new = whatif.explanation(e.key, name)
    if given["what"] == "find":
        first = words.verdict_sentences(new)[0]
        return name, f"{first.head}: {first.text}"
    return name, f"{words.count_units(new)} in {new.seconds:.1f} s"
