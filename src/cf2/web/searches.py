"""The buttons that search: explain with other settings, one more explanation, and the smallest edit to a class.

Python cannot end a thread from outside. So a search asks before every run of the model whether to go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, get_args

from dash import Output, set_props

from cf2.errors import CF2Error, require
from cf2.options import Edit as EditSort
from cf2.report.words import (
    atom_names,
    class_names,
    count_nouns,
    count_units,
    describe_target,
    key_id,
    verdict_sentences,
)
from cf2.results.explanation import Explanation
from cf2.web.navigation import Given, callback
from cf2.web.whatif import GoOn, WhatIf, checked_index, checked_number, first_answer

MAX_SECONDS = 300.0  # of one search

log = logging.getLogger("cf2.web")


class Stopped(CF2Error):
    """A search that is not done: another one is running, the time is over, or it is not wanted any more."""


class Searches:
    """Does one search at a time.

    Parameters
    ----------
    seconds : float
        How long each may take.
    """

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < float("inf")
        require(good, "Expected a time limit of more than 0 seconds", got=repr(seconds))
        self.seconds = float(seconds)
        self._running, self._cancelled, self._closed = threading.Lock(), threading.Event(), False
        self._started, self._runs = 0.0, 0

    def run(self, work: Callable[[GoOn], Any]) -> Any:
        """What `work` returns. It gets a function to call now and then, which raises `Stopped` when it is to end."""
        if not self._running.acquire(blocking=False):
            raise Stopped("Busy: another search is running", do="Try again when it has ended.")
        try:
            self._cancelled.clear()
            self._started, self._runs = time.monotonic(), 0
            return work(self._check)
        finally:
            self._running.release()

    def cancel(self) -> None:
        """Have the search that is running end before the next run of the model."""
        self._cancelled.set()

    def close(self) -> None:
        """The same for ever: nothing can be searched for afterwards."""
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


def callbacks(app: Any, whatif: WhatIf, searches: Searches) -> None:
    """Have the buttons "Explain", "Another explanation", "Find" and "Cancel" do what they say."""

    @callback(app, "ticked.data", "ticking.n_intervals", "find-cancel.disabled", prevent_initial_call=True)
    def tick(given: Given) -> Any:
        if said := searches.progress():
            set_props("again-busy" if given["find-cancel.disabled"] else "find-busy", {"children": said})

    @callback(app, "cancelled.data", "cancel.n_clicks find-cancel.n_clicks", prevent_initial_call=True)
    def cancel(given: Given) -> Any:
        searches.cancel()

    @_search(app, whatif, searches, "again", "alpha.value lambda.value")
    def again(e: Explanation, given: Given) -> tuple[Callable[[GoOn], str], Callable[[Explanation], str]]:
        lam = given["lambda.value"]
        alpha, lam = checked_number("α", given["alpha.value"]), None if lam in (None, "") else checked_number("λ", lam)
        return (
            lambda go_on: whatif.again(e, alpha, lam, go_on),
            lambda made: f"{count_nouns(made.size, 'unit')} in {made.seconds:.1f} s",
        )

    @_search(app, whatif, searches, "another")
    def another(e: Explanation, given: Given) -> tuple[Callable[[GoOn], str], Callable[[Explanation], str]]:
        method = first_answer(given["shown.data"]["method"])
        return lambda go_on: whatif.another(e, method, go_on), lambda made: f"another one, {count_units(made)}"

    @_search(app, whatif, searches, "find", "aim.value sorts.value valid.value")
    def find(e: Explanation, given: Given) -> tuple[Callable[[GoOn], str], Callable[[Explanation], str]]:
        aim, sorts = given["aim.value"], get_args(EditSort)
        target = None if aim in (None, "") else checked_index("a class", aim, len(e.probabilities))
        edits = tuple(sort for sort in sorts if sort in (given["sorts.value"] or ()))
        require(bool(edits), f"Expected some of {', '.join(sorts)}", got="none")

        def describe(made: Explanation) -> str:
            first = verdict_sentences(made, class_names(whatif.context), atom_names(whatif.context))[0]
            return f"{first.head}: {first.text}"

        return lambda go_on: whatif.smallest_edit(e, target, edits, bool(given["valid.value"]), go_on), describe


def _search(app: Any, whatif: WhatIf, searches: Searches, button: str, state: str = "") -> Callable[..., Any]:
    """Have a button search: the function says how, and how what was found is described."""
    buttons, cancel, busy = ("find",), "find-cancel", "find-busy"
    if button != "find":
        buttons, cancel, busy = ("again", "another"), "cancel", "again-busy"  # type: ignore[assignment]
    running = _running(buttons, cancel, busy, f"Explaining; at most {searches.seconds:g} s.")

    def decorate(prepare: Callable[[Explanation, Given], tuple[Any, Any]]) -> None:
        @callback(
            app,
            f"{button}-note.children",
            f"{button}.n_clicks",
            f"shown.data {state}",
            running=running,
            prevent_initial_call=True,
        )
        def search(given: Given) -> str:
            e = whatif.shown(given["shown.data"])
            try:
                work, describe = prepare(e, given)
                name = searches.run(work)
            except CF2Error as error:
                return str(error)
            except Exception as error:
                log.error("Failed to explain again", exc_info=error)
                return f"It failed, and the log says why: {error}"
            if not name:
                return f"{describe_target(e)}: no other explanation was found."
            # Were this an output, Dash would hold back all that depends on it, and so every what-if, until then.
            set_props("made", {"data": {"key": key_id(e.key), "method": name}})
            return f"{describe_target(e)}: {describe(whatif.explanation(e.key, name))}"

    return decorate


def _running(buttons: Sequence[str], cancel: str, busy: str, text: str) -> list[Any]:
    """What buttons show while one of them works."""
    return [
        *((Output(name, "disabled"), True, False) for name in buttons),
        (Output(cancel, "disabled"), False, True),
        (Output("ticking", "disabled"), False, True),
        (Output(busy, "children"), text, ""),
    ]
