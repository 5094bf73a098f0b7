"""The explanation that is shown, and what-if: the graph and the lists change what the model is asked; and saving."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from dash import ctx, html, no_update, set_props

from cf2.errors import CF2Error
from cf2.options import Key
from cf2.report import charts, words
from cf2.report import pictures as svg
from cf2.report.scene import OKABE_ITO
from cf2.results.explanation import Explanation
from cf2.units.edits import EDGE_KINDS, edit_of
from cf2.web import canvas
from cf2.web.navigation import Given, callback, search_ids, wanted_state
from cf2.web.whatif import Edit, WhatIf, absent, checked_edits, describe_edit, unit_mask

MAX_LISTED_UNITS = 90  # beside the picture (Dash draws over 100 in another way); a node's id brings up others
# What goes on from what was removed and edited before; anything else begins anew.
CONTINUING = ("cytoscape", "units", "near", "add-edge", "change-feature", "edited")


# -- the explanation


@callback(
    "cytoscape.elements cytoscape.layout prediction.children verdict.children types.children caption.children "
    "shown.data without.children answer-count.children answers.hidden answer-previous.disabled "
    "answer-next.disabled",
    "key.data method.value answer-number.data scheme.data",
)
def show(whatif: WhatIf, given: Given) -> Any:
    text, method, scheme = given["key.data"], given["method.value"], given["scheme.data"]
    key = whatif.key(text)
    if method not in whatif.explanations(key):
        return (no_update,) * 12  # the method belongs to another instance and is about to change
    answers = whatif.answers(key, method) or [method]
    number = min(max(given["answer-number.data"] or 0, 0), len(answers) - 1)
    e = whatif.explanation(key, answers[number])
    drawn = canvas.scene_of(whatif, e)
    return (
        canvas.elements(whatif, e, drawn, (), scheme),
        {"name": "preset", "fit": True, "padding": 24, "instance": f"{text} {answers[number]} {scheme}"},
        words.describe_prediction(e, whatif.class_names),
        verdict(whatif, e),
        [html.Span(name, className=f"key type type{OKABE_ITO.index(colour)}") for colour, name in drawn.legend],
        drawn.caption,
        {"key": text, "method": answers[number]},
        "Make the edits" if words.adds_or_changes(e) else "Remove the explanation",
        f"Answer {number + 1} of {len(answers)}",
        len(answers) < 2,
        number == 0,
        number + 1 >= len(answers),
    )


@callback("comparison.children", "key.data made.data")
def compare(whatif: WhatIf, given: Given) -> Any:
    return comparison(whatif, whatif.key(given["key.data"]))


def verdict(whatif: WhatIf, e: Explanation) -> list[Any]:
    """The verdicts on an explanation in words, and what to try next."""
    sentences = words.verdict_sentences(e, whatif.class_names, whatif.atoms)
    items = [html.Li([html.B(f"{sentence.head}: "), sentence.text], className=sentence.tone) for sentence in sentences]
    step = words.next_step(e)
    advice = [html.P([html.B("Try next: "), step], className="next")] if step else []
    return [html.Ul(items, className="verdicts"), *advice]


def comparison(whatif: WhatIf, key: Key) -> list[Any]:
    """Every method's picture of one instance, side by side."""
    sections = []
    for name, e in whatif.explanations(key).items():
        size = words.count_units(e)
        label = f"{words.describe_target(e)}, explained by {name}: {size}"
        picture = svg.picture(canvas.scene_of(whatif, e), label, molecule=whatif.is_molecule)
        parts = [html.H3(f"{name}: {size}"), canvas.image(picture, svg.STYLE, label), verdict(whatif, e)[0]]
        sections.append(html.Section(parts))
    return sections


# -- what the user removes, adds and changes


@callback("tail.value head.value node.value", "cytoscape.tapNode", "tail.value head.value", at_start=False)
def tap(whatif: WhatIf, given: Given) -> Any:
    if not given["cytoscape.tapNode"] or whatif.read_only:
        return (no_update,) * 3
    node = given["cytoscape.tapNode"]["data"]["node"]
    # The first click begins an edge, the second one ends it.
    first = given["tail.value"] is None or given["head.value"] is not None
    return (node, None, node) if first else (no_update, node, node)


@callback(
    "removed.data units.options units.value unlisted.children cytoscape.stylesheet answer.children edits.data "
    "edited.options edited.value edit-note.children address.data",
    "shown.data cytoscape.tapEdge units.value only.n_clicks without.n_clicks restore.n_clicks near.value "
    "add-edge.n_clicks change-feature.n_clicks edited.value restored.data wanted.data",
    "removed.data edits.data tail.value head.value node.value column.value value.value scheme.data",
)
def change(whatif: WhatIf, given: Given) -> Any:
    shown, scheme, before = given["shown.data"], given["scheme.data"], given["edits.data"] or []
    if shown is None:
        return (no_update,) * 11
    e, cause = whatif.shown(shown), ctx.triggered_id
    listed = listed_units(e, search_ids(given["near.value"]))
    removed, edits, note = _changes(whatif, e, cause, given, listed)
    fresh = cause in ("shown", "wanted", None)
    if edits if fresh else [list(edit) for edit in edits] != before:
        # The elements belong to the callback that shows an instance; here, edits are put in.
        set_props("cytoscape", {"elements": canvas.elements(whatif, e, canvas.scene_of(whatif, e), edits, scheme)})
    refill = fresh or cause == "near" or whatif.read_only
    left = e.num_units - len(listed)
    described = [describe_edit(edit, whatif.graph(e.key), whatif.atoms, e.directed) for edit in edits]
    return (
        np.flatnonzero(removed).tolist(),
        unit_options(e, listed, whatif.atoms, disabled=whatif.read_only) if refill else no_update,
        listed[(~removed ^ absent(e))[listed]].tolist(),
        f"{left:,} more are not listed; give a node's id to see those at it." if left else "",
        canvas.stylesheet(e, removed, scheme),
        _answer(whatif, e, removed, edits),
        [list(edit) for edit in edits],
        [{"label": text, "value": number} for number, text in enumerate(described)],  # boxes that take it back
        list(range(len(edits))),
        note,
        whatif.address_of(e, shown["method"], removed, edits),
    )


def _changes(
    whatif: WhatIf, e: Explanation, cause: str | None, given: Given, listed: np.ndarray
) -> tuple[np.ndarray, list[Edit], str]:
    """Which units are removed [units, bool], the edits, and what is wrong with what was typed, if anything."""
    if whatif.read_only:
        return e.selected & False, [], ""
    for asking in {"restored", "wanted"} & set(ctx.triggered_prop_ids.values()):
        state, shown = wanted_state(whatif, given[f"{asking}.data"]), given["shown.data"]
        if state is not None and (state.key, state.method) == (shown["key"], shown["method"]):
            return state.removed, state.edits, ""
    return removed_units(e, cause, given, listed), *_edits(whatif, e, cause, given)


def removed_units(e: Explanation, cause: str | None, given: Given, listed: np.ndarray) -> np.ndarray:
    """Which units are removed (or, of edits, made) after what the user did: a click, a button, or a checkbox."""
    if cause == "without":
        return e.selected
    if cause == "only":
        return np.asarray(~e.selected & ~absent(e))
    if cause not in CONTINUING:
        return e.selected & False
    removed = unit_mask(given["removed.data"], e.num_units)
    if cause == "cytoscape":
        unit = ((given["cytoscape.tapEdge"] or {}).get("data") or {}).get("unit")
        removed ^= unit_mask([] if unit is None else [unit], e.num_units)
    elif cause == "units":
        removed[listed] = ~np.isin(listed, given["units.value"]) ^ absent(e)[listed]
    return removed


def _edits(whatif: WhatIf, e: Explanation, cause: str | None, given: Given) -> tuple[list[Edit], str]:
    """What is added and changed after what the user did, and what is wrong with what was typed, if anything."""
    graph = whatif.graph(e.key)
    edits = checked_edits(given["edits.data"], graph, e.directed) if cause in CONTINUING else []
    if cause == "edited":
        return [edits[number] for number in sorted(given["edited.value"])], ""
    typed = {"add-edge": ("add", "tail", "head"), "change-feature": ("change", "node", "column", "value")}
    if cause not in typed:
        return edits, ""
    sort, *fields = typed[cause]
    try:
        return checked_edits([*edits, (sort, *(given[f"{field}.value"] for field in fields))], graph, e.directed), ""
    except CF2Error as error:
        return edits, str(error)


def listed_units(e: Explanation, near: tuple[int, ...] = ()) -> np.ndarray:
    """The units that have a checkbox: the explanation first, then by score; every kind gets the same room.

    With `near`, only those at a node of these ids.
    """
    at = np.isin(e.units.ids[:, 0], near)
    edges = np.concatenate([e.units.where(name) for name in EDGE_KINDS])
    at[edges] |= np.isin(e.units.ids[edges, 1], near)
    order = np.lexsort((-e.scores, ~e.selected))
    order = order[at[order]] if near else order
    room = MAX_LISTED_UNITS // max(1, len(e.units.names))
    kinds = [order[e.units.kind[order] == kind][:room] for kind in range(len(e.units.names))]
    return order[np.isin(order, np.concatenate([order[:0], *kinds]))]


def unit_options(
    e: Explanation, units: np.ndarray, atoms: Sequence[str] | None = None, *, disabled: bool = False
) -> list[dict[str, Any]]:
    """One checkbox per unit, checked while what it stands for is in the graph."""
    options = []
    for unit in units.tolist():
        start = edit_of(e.units.names[e.units.kind[unit]]).prefix
        mark = " ●" if e.selected[unit] else ""
        label = f"{start}{words.describe_unit(e, unit, atoms)}{mark}"
        options.append({"label": label, "value": unit, "disabled": disabled})
    return options


# -- what the model says


def _answer(whatif: WhatIf, e: Explanation, removed: np.ndarray, edits: Sequence[Edit]) -> list[Any]:
    """What the model says now, or said when the explanation was made; after edits, there are no parts to be judged."""
    names, parts = whatif.class_names, []
    rows = {"whole graph": e.probabilities}
    changed = False
    if edits or words.adds_or_changes(e):
        said, changed = (e.probabilities_without, False) if whatif.read_only else whatif.ask_edited(e, removed, edits)
        rows = {"as it is": e.probabilities, "after the edits": said}
    elif whatif.read_only:
        rows |= {"only this": e.probabilities_only, "all but this": e.probabilities_without}
        parts = [_part("in the explanation", e.size, e.sufficient, e.necessary)]
    else:
        answer, gone = whatif.ask(e, removed), int(removed.sum())
        rows |= {"what is left": answer.left, "removed part": answer.removed}
        changed = answer.changed
        left = _part("left", len(removed) - gone, *answer.left_verdict)
        parts = [left, _part("removed", gone, *answer.removed_verdict)]
    change, now = "changed" if changed else "unchanged", list(rows.values())[1]
    text = f"The model now says {words.describe_said(e, now, names)}: {change}."
    if whatif.read_only:
        text = f"The model said {words.describe_said(e, e.probabilities, names)}."
    # What a script that watches the page may want to know.
    facts = {"data-probabilities": ",".join(f"{value:.6f}" for value in now.tolist())}
    facts["data-instance"] = f"{words.key_id(e.key)} {e.method}"
    bars = charts.said(e, tuple(rows.items()), names, start=88, span=104)
    return [
        html.P(text, id="now", className=f"now {change}", **facts),
        canvas.image(bars, charts.STYLE, f"Probabilities. {text}"),
        html.Div(parts, className="parts"),
    ]


def _part(where: str, count: int, sufficient: bool, necessary: bool) -> Any:
    """One part of the graph and the two verdicts on it, as a sentence."""
    facts = {"data-part": where, "data-count": str(count)}
    if not count:
        return html.P([html.B(f"Nothing is {where}.")], **facts)
    are, they_keep, them = ("is", "it keeps", "it") if count == 1 else ("are", "they keep", "them")
    sentences = [
        html.B(f"{words.count_nouns(count, 'unit')} {are} {where}. "),
        f"Alone, {they_keep} the answer: " if sufficient else "Alone, not the same answer: ",
        _verdict_word("sufficient", sufficient),
        f"Without {them}, {'another answer' if necessary else 'the answer stays'}: ",
        _verdict_word("necessary", necessary),
    ]
    return html.P(sentences, **facts)


def _verdict_word(word: str, holds: bool) -> Any:
    return html.Span(f"{'' if holds else 'not '}{word}. ", className="yes" if holds else "no")


# -- saving


@callback("cytoscape.generateImage", "png.n_clicks", "shown.data scheme.data", at_start=False)
def png(whatif: WhatIf, given: Given) -> Any:
    e = whatif.shown(given["shown.data"])
    options = {"bg": canvas.SCHEMES[given["scheme.data"]]["back"], "scale": 2, "full": True}
    return {"type": "png", "action": "download", "filename": f"{e.task}-{words.key_id(e.key)}", "options": options}


@callback("download.data", "svg.n_clicks json.n_clicks", "shown.data removed.data edits.data", at_start=False)
def download(whatif: WhatIf, given: Given) -> Any:
    e, kind = whatif.shown(given["shown.data"]), ctx.triggered_id
    edits = [] if whatif.read_only else checked_edits(given["edits.data"], whatif.graph(e.key), e.directed)
    removed = unit_mask(given["removed.data"] or [], e.num_units)
    if kind == "svg":
        content, mime = canvas.svg_file(whatif, e, removed, edits), "image/svg+xml"
    else:
        content, mime = json.dumps(whatif.to_dict(e, removed, edits), indent=1), "application/json"
    name = f"{e.task}-{words.key_id(e.key)}.{kind}"
    return {"content": content, "filename": name, "type": mime, "base64": False}
