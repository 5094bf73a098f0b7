"""What the page and the widget show of an explanation without some of its units: the same fragments of HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from cf2.report import charts, environment
from cf2.report import pictures as svg
from cf2.report.scene import Scene, is_molecule
from cf2.report.words import (
    atom_names,
    class_names,
    count_nouns,
    describe_said,
    describe_target,
    describe_unit,
    key_id,
    verdict_sentences,
)
from cf2.results.explanation import Explanation
from cf2.units.edits import EDGE_KINDS, edit_of, is_candidate

MAX_LISTED_UNITS = 90  # that have a checkbox; a node's id brings up others


class Said(NamedTuple):
    """What the model says of a state."""

    rows: Mapping[str, np.ndarray]  # what was asked, in a few words, and the values; the second row is of the state
    changed: bool | None  # whether that is another answer; None: the model was not asked
    parts: Sequence[dict[str, Any]] = ()


def absent(e: Explanation) -> np.ndarray:
    """Which units [units, bool] are edits that add or change: not in the graph before they are made."""
    return np.isin(e.units.kind, [kind for kind, name in enumerate(e.units.names) if is_candidate(name)])


def picture_html(drawn: Scene, e: Explanation, context: Mapping[str, Any], gone: np.ndarray) -> Markup:
    """The picture, whose edges and nodes can be clicked."""
    return svg.picture(drawn, describe_target(e), molecule=is_molecule(context), gone=gone)


def verdicts_html(e: Explanation, context: Mapping[str, Any], step: str = "") -> str:
    """The verdicts on an explanation in words, and what to try next."""
    sentences = verdict_sentences(e, class_names(context), atom_names(context))
    advice = Markup('<p class="cf2-next"><b>Try next:</b> {}</p>').format(step) if step else ""
    return f"{_live().verdicts(sentences)}{advice}"


def answer_html(e: Explanation, said: Said, context: Mapping[str, Any]) -> str:
    """What the model says now, in a sentence and as bars."""
    names = class_names(context)
    now = list(said.rows.values())[1]
    text = f"The model predicted {describe_said(e, e.probabilities, names)}."
    if said.changed is not None:
        change = "changed" if said.changed else "unchanged"
        text = f"The model now predicts {describe_said(e, now, names)}: {change}."
    shown = {
        "text": text,
        "changed": bool(said.changed),
        "instance": f"{key_id(e.key)} {e.method}",
        "probabilities": ",".join(f"{value:.6f}" for value in now.tolist()),
        "bars": charts.said(e, tuple(said.rows.items()), names, start=88, span=104),
        "parts": said.parts,
    }
    return str(_live().answer(shown))


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


def units_html(
    e: Explanation, rows: np.ndarray, gone: np.ndarray, context: Mapping[str, Any], *, disabled: bool = False
) -> str:
    """A checkbox per unit, checked while what it stands for is in the graph."""
    there, atoms = ~gone ^ absent(e), atom_names(context)
    boxes = [
        (unit, f"{edit_of(e.units.names[e.units.kind[unit]]).prefix}{describe_unit(e, unit, atoms)}", there[unit],
         bool(e.selected[unit])) for unit in rows.tolist()
    ]  # fmt: skip
    return str(_live().units(boxes, disabled))


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


def _live() -> Any:
    return environment().get_template("live.html").module
