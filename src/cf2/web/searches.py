"""The buttons that search: explain with other settings, one more explanation, and the smallest edit to a class.

Python cannot end a thread from outside. So a search asks before every run of the model whether to go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, get_args

from dash import Output, ctx, set_props
from flask import current_app

from cf2.errors import CF2Error, require
from cf2.options import Edit as EditSort
from cf2.report import words
from cf2.results.explanation import Explanation
from cf2.web.navigation import Given, callback
from cf2.web.whatif import VISITOR, GoOn, WhatIf, first_answer

MAX_SECONDS = 300.0  # of one search

log = logging.getLogger("cf2.web")


class Stopped(CF2Error):
    """A search that is not done: another one is running, the time is over, or it is not wanted any more."""


class Searches:
    """Does one search at a time, each for so many seconds at most."""

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < float("inf")
        require(good, "Expected a time limit of more than 0 seconds", got=repr(seconds))
        self.seconds = float(seconds)
        self._running, self._cancelled, self._closed = threading.Lock(), threading.Event(), False
        self._started, self._runs, self._owner = 0.0, 0, ""

    def run(self, search: Callable[[GoOn], Any]) -> Any:
        """What `search` returns. It gets a function to call now and then, which raises `Stopped` when it is to end."""
        if not self._running.acquire(blocking=False):
            raise Stopped("Busy: another search is running", do="Try again when it has ended.")
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
            raise Stopped("Cancelled")
        if time.monotonic() - self._started > self.seconds:
            raise Stopped(f"Stopped after {self.seconds:g} seconds, the limit for one explanation")


def _again(whatif: WhatIf, e: Explanation, given: Given, go_on: GoOn) -> str:
    lam = given["lambda.value"]
    return whatif.again(e, given["alpha.value"], None if lam == "" else lam, go_on)


def _another(whatif: WhatIf, e: Explanation, given: Given, go_on: GoOn) -> str:
    return whatif.another(e, first_answer(given["shown.data"]["method"]), go_on)


def _smallest_edit(whatif: WhatIf, e: Explanation, given: Given, go_on: GoOn) -> str:
    sorts = get_args(EditSort)
    edits = tuple(sort for sort in sorts if sort in (given["sorts.value"] or ()))
    require(bool(edits), f"Expected some of {', '.join(sorts)}", got="none")
    return whatif.smallest_edit(e, given["aim.value"], edits, bool(given["valid.value"]), go_on)


def _first_verdict(whatif: WhatIf, made: Explanation) -> str:
    first = words.verdict_sentences(made, whatif.class_names, whatif.atoms)[0]
    return f"{first.head}: {first.text}"


# What each button searches for, which gives the name of what was found; and how that is described.
BUTTONS: dict[str, tuple[Callable[[WhatIf, Explanation, Given, GoOn], str], Callable[[WhatIf, Explanation], str]]] = {
    "again": (_again, lambda _, made: f"{words.count_nouns(made.size, 'unit')} in {made.seconds:.1f} s"),
    "another": (_another, lambda _, made: f"another one, {words.count_units(made)}"),
    "find": (_smallest_edit, _first_verdict),
}


@callback(
    "search-note.children",
    "again.n_clicks another.n_clicks find.n_clicks",
    "shown.data alpha.value lambda.value aim.value sorts.value valid.value",
    at_start=False,
    running=[
        *((Output(button, "disabled"), True, False) for button in BUTTONS),
        *((Output(name, "disabled"), False, True) for name in ("cancel", "ticking")),
        (Output("search-progress", "children"), "Explaining …", ""),
    ],
)
def search(whatif: WhatIf, given: Given) -> str:
    e, (find, describe) = whatif.shown(given["shown.data"]), BUTTONS[str(ctx.triggered_id)]
    try:
        name = current_app.extensions["cf2"].run(lambda go_on: find(whatif, e, given, go_on))
    except CF2Error as error:
        return str(error)
    except Exception as error:
        log.error("Failed to explain again", exc_info=error)
        return f"It failed, and the log says why: {error}"
    target = words.describe_target(e)
    if not name:
        return f"{target}: no other explanation was found."
    # Were this an output, Dash would hold back all that depends on it, and so every what-if, until then.
    set_props("made", {"data": {"key": words.key_id(e.key), "method": name}})
    return f"{target}: {describe(whatif, whatif.explanation(e.key, name))}"


@callback("ticked.data", "ticking.n_intervals", at_start=False)
def tick(whatif: WhatIf, given: Given) -> None:
    if said := current_app.extensions["cf2"].progress():
        set_props("search-progress", {"children": said})


@callback("cancelled.data", "cancel.n_clicks", at_start=False)
def cancel(whatif: WhatIf, given: Given) -> None:
    current_app.extensions["cf2"].cancel()
