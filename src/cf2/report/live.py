"""What the page and the notebook's widget show of an explanation without some of its units, and the widget itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup

from cf2.errors import CF2Error, extra, require
from cf2.report import charts, environment
from cf2.report.pictures import STYLE, picture
from cf2.report.plots import margin
from cf2.report.scene import scene
from cf2.report.words import (
    count_nouns,
    describe_prediction,
    describe_said,
    describe_target,
    describe_unit,
    key_id,
    verdict_sentences,
)
from cf2.results.explanation import Explanation
from cf2.units.edits import EDGE_KINDS, edit_of, is_candidate

if TYPE_CHECKING:
    from cf2.results.explanations import Explanations

LIVE: Any = environment().get_template("live.html").module
MAX_LISTED_UNITS = 90  # that have a checkbox; a node's id brings up others


class Said(NamedTuple):
    """What the model says of a state."""

    rows: Mapping[str, np.ndarray]  # what was asked, in a few words, and the values; the second row is of the state
    changed: bool | None  # whether that is another answer; None: the model was not asked
    parts: Sequence[dict[str, Any]] = ()


def absent(e: Explanation) -> np.ndarray:
    """Which units [units, bool] are edits that add or change: not in the graph before they are made."""
    return np.isin(e.units.kind, [kind for kind, name in enumerate(e.units.names) if is_candidate(name)])


def verdicts_html(e: Explanation, step: str = "") -> Markup:
    """The verdicts on an explanation in words, and what to try next."""
    advice = Markup('<p class="cf2-next"><b>Try next:</b> {}</p>').format(step) if step else Markup("")
    return Markup(LIVE.verdicts(verdict_sentences(e))) + advice


def answer_html(e: Explanation, said: Said) -> Markup:
    """What the model says now, in a sentence and as bars."""
    now = list(said.rows.values())[1]
    text = f"The model predicted {describe_said(e, e.probabilities)}."
    if said.changed is not None:
        text = f"The model now predicts {describe_said(e, now)}: {'changed' if said.changed else 'unchanged'}."
    shown = {
        "text": text,
        "changed": bool(said.changed),
        "instance": f"{key_id(e.key)} {e.method}",
        "probabilities": ",".join(f"{value:.6f}" for value in now.tolist()),
        "bars": charts.said(e, tuple(said.rows.items()), start=88, span=104),
        "parts": said.parts,
    }
    return Markup(LIVE.answer(shown))


def part(where: str, count: int, sufficient: bool, necessary: bool) -> dict[str, Any]:
    """One part of the graph and the two verdicts on it, as sentences."""
    one = ("is", "it keeps", "it does not keep", "it")
    are, they_keep, they_lose, them = one if count == 1 else ("are", "they keep", "they do not keep", "them")
    return {
        "where": where,
        "count": count,
        "counted": f"{count_nouns(count, 'unit')} {are} {where}." if count else f"Nothing is {where}.",
        "alone": f"Alone, {they_keep if sufficient else they_lose} the prediction",
        "sufficient": sufficient,
        "without": f"Without {them}, the prediction {'changes' if necessary else 'stays the same'}",
        "necessary": necessary,
    }


def units_html(e: Explanation, rows: np.ndarray, gone: np.ndarray, *, disabled: bool = False) -> Markup:
    """A checkbox per unit, checked while what it stands for is in the graph."""
    there = ~gone ^ absent(e)
    texts = [f"{edit_of(e.units.names[e.units.kind[unit]]).prefix}{describe_unit(e, unit)}" for unit in rows]
    return Markup(LIVE.units(zip(rows.tolist(), texts, there[rows], e.selected[rows]), disabled))


def listed_units(e: Explanation, near: Sequence[int] = ()) -> np.ndarray:
    """The units that have a checkbox: the explanation first, then by score; every kind gets the same room.

    With `near`, only those at a node of these ids.
    """
    order = np.lexsort((-e.scores, ~e.selected))
    if near:
        pairs = np.isin(e.units.kind, [kind for kind, name in enumerate(e.units.names) if name in EDGE_KINDS])
        at = np.isin(e.units.ids[:, 0], near) | (pairs & np.isin(e.units.ids[:, 1], near))
        order = order[at[order]]
    room = MAX_LISTED_UNITS // max(1, len(e.units.names))
    kinds = [order[e.units.kind[order] == kind][:room] for kind in range(len(e.units.names))]
    return order[np.isin(order, np.concatenate([order[:0], *kinds]))]


# -- the widget


def answer(e: Explanation, model: Any, data: Any, removed: list[int]) -> Said:
    """What the model says once these units are taken away, by plain code on the whole graph."""
    from cf2.runs.check import outputs_at

    good = all(isinstance(row, int) and 0 <= row < e.num_units for row in removed)
    require(good, f"Expected units below {e.num_units}", got=repr(removed)[:80])
    state = np.ones((1, e.num_units), dtype=bool)
    state[0, removed] = False
    (values,) = outputs_at(e, model, data, state)
    return Said({"as it is": e.probabilities, "what is left": values}, not margin(e, values) > 0)


def widget_html(e: Explanation, said: Said, removed: list[int], number: int, count: int) -> str:
    """What the widget shows of an explanation, which has this number of so many."""
    gone = np.isin(np.arange(e.num_units), removed)
    parts = {
        "title": describe_prediction(e),
        "picture": picture(scene(e), describe_target(e), gone=gone) if e.task != "input" else "",
        "verdicts": verdicts_html(e),
        "answer": answer_html(e, said),
        "units": units_html(e, listed_units(e), gone),
        "number": number,
        "count": count,
    }
    return str(environment().get_template("widget.html").render(**parts, style=STYLE))


def widget(found: Explanations, model: Any, data: Any) -> Any:
    """The widget of many explanations, as `Explanations.widget` describes it."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise CF2Error("Expected anywidget for a widget", got="no such package", do=extra("notebook")) from error
    require(len(found) > 0, "Expected at least one explanation to show", got="none")

    class ExplanationWidget(anywidget.AnyWidget):  # type: ignore[misc]
        """The explanation at `index`, without the units in `removed`, and what the model says then."""

        _esm = environment().get_template("widget.js").render()
        index = traitlets.Int(0).tag(sync=True)
        count = traitlets.Int(len(found)).tag(sync=True)
        removed = traitlets.List(traitlets.Int()).tag(sync=True)
        html = traitlets.Unicode().tag(sync=True)

        @traitlets.observe("index")  # type: ignore[untyped-decorator]
        def _turn(self, change: Any = None) -> None:
            self.index, self.removed = self.index % len(found), []
            self._ask()

        @traitlets.observe("removed")  # type: ignore[untyped-decorator]
        def _ask(self, change: Any = None) -> None:
            e, removed = found[self.index], list(self.removed)
            self.html = widget_html(e, answer(e, model, data, removed), removed, self.index + 1, len(found))

    shown = ExplanationWidget()
    shown._turn()
    return shown
