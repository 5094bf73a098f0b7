"""What the page consists of; the callbacks in `app` fill it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from cf2.report import charts, svg
from cf2.report.scene import EXPLANATION, NEW, OTHER, TARGET, TRUTH, Scene, is_molecule, scene
from cf2.report.sentences import (
    class_names,
    count_units,
    describe_said,
    describe_target,
    key_id,
    short_said,
    verdict_sentences,
)
from cf2.report.unit_words import ADDED, adds_or_changes, atom_names, describe_unit
from cf2.results.explanation import Explanation
from cf2.spec import Key
from cf2.web.changes import absent
from cf2.web.listing import FILTERS, SORTS
from cf2.web.trial import Edit
from cf2.web.whatif import Answer, WhatIf

SCALE = 62.0  # pixels per edge
LISTED = 90  # units in the list beside the picture (Dash draws over 100 in another way); a node's id brings up others

DASHES = {"line-style": "dashed", "line-dash-pattern": [9, 5]}
STYLESHEET: list[dict[str, Any]] = [
    {"selector": "node", "style": {"background-color": "#9aa1ac", "width": 16, "height": 16}},
    {
        "selector": "node[label]",
        "style": {
            "label": "data(label)",
            "font-size": 11,
            "color": "#1c2330",
            "text-outline-color": "#ffffff",
            "text-outline-width": 2,
            "text-valign": "top",
            "text-margin-y": -2,
        },
    },
    {
        "selector": ".atom",
        "style": {
            "text-valign": "center",
            "text-margin-y": 0,
            "font-size": 14,
            "text-outline-width": 0,
            "background-color": "#fbfcfe",
        },
    },
    {"selector": ".inside", "style": {"background-color": EXPLANATION}},
    {"selector": ".atom.inside", "style": {"background-color": "#ffd3b5"}},
    {"selector": ".marked", "style": {"background-color": "#F0E442", "border-width": 1, "border-color": "#5c5600"}},
    {"selector": ".target", "style": {"border-width": 4, "border-color": TARGET, "width": 22, "height": 22}},
    {"selector": ".typed", "style": {"background-color": "data(colour)"}},
    {"selector": "edge", "style": {"line-color": "#8a8f98", "width": 1.6, "curve-style": "haystack"}},
    {
        "selector": ".arrow",
        "style": {"curve-style": "bezier", "target-arrow-shape": "triangle", "target-arrow-color": "#8a8f98"},
    },
    {"selector": ".true", "style": {"underlay-color": TRUTH, "underlay-opacity": 0.35, "underlay-padding": 6}},
    {"selector": ".added", "style": {"line-color": NEW, "target-arrow-color": NEW, "width": 5, **DASHES}},
    {"selector": ".changed", "style": {"border-width": 3, "border-color": OTHER, "border-style": "dashed"}},
    {"selector": ".chosen", "style": {"line-color": EXPLANATION, "target-arrow-color": EXPLANATION, "width": 5}},
]
GONE = {"line-style": "dashed", "line-dash-pattern": [3, 6], "opacity": 0.35, "line-color": "#8a8f98"}
WAITING = {"opacity": 0.4, "width": 3}


def elements(
    e: Explanation, shown: Scene, edits: Sequence[Edit] = (), atoms: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The drawn part of the graph for cytoscape, with what the user has added and changed.

    Ids are different for every instance: cytoscape takes an edge with a known id for the edge it knows.
    """
    key = key_id(e.key)
    changed = {edit[1]: edit for edit in edits if edit[0] == "change"}
    made: list[dict[str, Any]] = []
    for node, (x, y) in enumerate((shown.points * [SCALE, -SCALE]).tolist()):
        facts = (("inside", shown.inside[node]), ("marked", shown.marked[node]), ("target", node in shown.targets))
        kinds = [name for name, holds in facts if holds]
        own = int(shown.nodes[node])
        kinds += ["changed"] if node in shown.changed or own in changed else []
        data: dict[str, Any] = {"id": f"k{key}n{own}", "label": shown.text(node), "node": own}
        if shown.labels:
            data["label"] = shown.labels[node]
            kinds.append("atom")
        elif len(shown.nodes) > 40 and not kinds:
            del data["label"]
        if len(shown.kinds):
            data["colour"] = shown.colour(node)
            kinds.append("typed")
        if node in shown.changed:
            text = shown.changed[node]
            data["label"] = text if shown.labels and text.startswith(f"{shown.labels[node]} → ") else f"{own}: {text}"
        if own in changed:
            data["label"] = _changed_label(shown.labels[node] if shown.labels else str(own), changed[own], atoms)
        made.append({"data": data, "position": {"x": x, "y": y}, "classes": " ".join(kinds), "grabbable": False})
    for (a, b), unit, chosen, true in zip(shown.edges.tolist(), shown.units.tolist(), shown.chosen, shown.true):
        kinds = [name for name, holds in (("chosen", chosen), ("true", true), ("arrow", e.directed)) if holds]
        data = {"source": f"k{key}n{shown.nodes[a]}", "target": f"k{key}n{shown.nodes[b]}"}
        data |= {"id": f"k{key}u{unit}", "unit": unit} if unit >= 0 else {}
        made.append({"data": data, "classes": " ".join(kinds)})
    return made + _new_edges(e, shown, edits)


def _changed_label(label: str, edit: Edit, atoms: Sequence[str] | None) -> str:
    _, _, column, value = edit
    is_element = atoms is not None and column < len(atoms)
    return f"{label} → {atoms[column]}" if is_element and atoms else f"{label}: feature {column} = {value:.4g}"


def _new_edges(e: Explanation, shown: Scene, edits: Sequence[Edit]) -> list[dict[str, Any]]:
    """The edges that the explanation would add, which can be clicked, and those that the user has added.

    An end that is not drawn gets a place beside the other one.
    """
    key, rows = key_id(e.key), e.units.where(ADDED)
    units = {tuple(e.units.ids[row].tolist()): row for row in rows[e.selected[rows]].tolist()}
    pairs = list(units.items())
    pairs += [((int(edit[1]), int(edit[2])), -1) for edit in edits if edit[0] == "add" and edit[1:] not in units]
    spots = dict(zip(shown.nodes.tolist(), (shown.points * [SCALE, -SCALE]).tolist()))
    made: list[dict[str, Any]] = []
    for (tail, head), unit in pairs:
        for end, other in ((tail, head), (head, tail)):
            if end not in spots:
                spots[end] = _free_place(spots, other)
                where = dict(zip("xy", spots[end]))
                label = {"id": f"k{key}n{end}", "label": str(end), "node": end}
                made.append({"data": label, "position": where, "classes": "", "grabbable": False})
        data: dict[str, Any] = {"source": f"k{key}n{tail}", "target": f"k{key}n{head}"}
        data |= {"id": f"k{key}u{unit}", "unit": unit} if unit >= 0 else {"id": f"k{key}a{tail}-{head}"}
        made.append({"data": data, "classes": " ".join(["added", *(["arrow"] if e.directed else [])])})
    return made


def _free_place(spots: dict[int, list[float]], beside: int) -> list[float]:
    """A place beside a node, as far from all others as can be."""
    taken = np.array([*spots.values(), [0.0, 0.0]])
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    around = np.array(spots.get(beside, [0.0, 0.0])) + 0.8 * SCALE * np.stack([np.cos(angles), np.sin(angles)], 1)
    room = np.linalg.norm(around[:, None] - taken[None], axis=2).min(1)
    return [float(part) for part in around[np.argsort(-room, kind="stable")[0]]]


def stylesheet(e: Explanation, removed: np.ndarray) -> list[dict[str, Any]]:
    """The styles with the removed edges and nodes faded, and the edges that could be added, too."""
    key, nodes, extra = key_id(e.key), e.units.where("nodes"), absent(e)
    lost = e.units.ids[nodes[removed[nodes]], 0].tolist()
    taken = np.flatnonzero(removed & ~extra).tolist()
    gone = ", ".join([f"#k{key}u{unit}" for unit in taken] + [f"#k{key}n{node}" for node in lost])
    waiting = ", ".join(f"#k{key}u{unit}" for unit in np.flatnonzero(e.selected & extra & ~removed).tolist())
    styles = [{"selector": which, "style": style} for which, style in ((gone, GONE), (waiting, WAITING)) if which]
    return [*STYLESHEET, *styles] if styles else STYLESHEET


def listed(e: Explanation, near: tuple[int, ...] = ()) -> np.ndarray:
    """The units that have a checkbox: the explanation first, then by score; every kind gets the same room.

    With `near`, only those at a node of these ids.
    """
    at = np.isin(e.units.ids[:, 0], near)
    edges = np.concatenate([e.units.where("edges"), e.units.where(ADDED)])
    at[edges] |= np.isin(e.units.ids[edges, 1], near)
    order = np.lexsort((-e.scores, ~e.selected))
    order = order[at[order]] if near else order
    room = LISTED // max(1, len(e.units.names))
    kinds = [order[e.units.kind[order] == kind][:room] for kind in range(len(e.units.names))]
    return order[np.isin(order, np.concatenate([order[:0], *kinds]))]


def options(
    e: Explanation, units: np.ndarray, atoms: Sequence[str] | None = None, *, disabled: bool = False
) -> list[dict[str, Any]]:
    """One checkbox per unit, checked while what it stands for is in the graph."""
    marks, starts = {True: " ●", False: ""}, {ADDED: "add "}
    return [
        {
            "label": starts.get(e.units.names[e.units.kind[u]], "")
            + describe_unit(e, u, atoms)
            + marks[bool(e.selected[u])],
            "value": u,
            "disabled": disabled,
        }
        for u in units.tolist()
    ]


def image(markup: Markup, style: str, label: str) -> Any:
    """An SVG as an image, in which nothing can run."""
    from dash import html

    colour = "svg{color:#1c2330}@media(prefers-color-scheme:dark){svg{color:#e6e9ef}}"
    text = str(markup).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    text = text.replace(">", f"><style>{style}{colour}</style>", 1)
    data = base64.b64encode(text.encode()).decode()
    kind = "picture pair" if 'class="cf2-graph cf2-pair"' in text else "picture"
    return html.Img(src=f"data:image/svg+xml;base64,{data}", alt=label, className=kind)


def answer(e: Explanation, found: Answer, removed: np.ndarray, names: Sequence[str] | None) -> list[Any]:
    """What the model says now, in words, bars and a small table."""
    count = int(removed.sum())
    change = "changed" if found.changed else "unchanged"
    now = f"The model now says {describe_said(e, found.left, names)}: {change}."
    rows = (("whole graph", e.probabilities), ("what is left", found.left), ("removed part", found.removed))
    body = (("left", len(removed) - count, *found.left_verdict), ("removed", count, *found.removed_verdict))
    return _said(e, now, change, rows, body, names)


def edited_answer(e: Explanation, said: np.ndarray, changed: bool, names: Sequence[str] | None) -> list[Any]:
    """What the model says after edits: what is added and changed is no part that could be judged by itself."""
    change = "changed" if changed else "unchanged"
    now = f"The model now says {describe_said(e, said, names)}: {change}."
    return _said(e, now, change, (("as it is", e.probabilities), ("after the edits", said)), (), names)


def stored(e: Explanation, names: Sequence[str] | None) -> list[Any]:
    """What the model said when the explanation was made, in the same form."""
    now = f"The model said {describe_said(e, e.probabilities, names)}."
    if adds_or_changes(e):
        rows = (("as it is", e.probabilities), ("after the edits", e.probabilities_without))
        return _said(e, now, "unchanged", rows, (), names)
    only, without = ("only this", e.probabilities_only), ("all but this", e.probabilities_without)
    body = (("explanation", e.size, e.sufficient, e.necessary),)
    return _said(e, now, "unchanged", (("whole graph", e.probabilities), only, without), body, names)


def _said(e: Explanation, now: str, change: str, rows: Any, body: Any, names: Sequence[str] | None) -> list[Any]:
    """A sentence, the probabilities in `rows` as bars, and the verdicts in `body` as a table."""
    from dash import html

    picture = charts.said(e, rows, names, start=88, span=104)
    head = ("", "units", "sufficient", "necessary")
    sentence = html.P(now, id="now", className=f"now {change}", **_facts(e, rows[1][1]))
    shown = image(picture, charts.STYLE, f"Probabilities. {now}")
    if not body:
        return [sentence, shown]
    return [
        sentence,
        shown,
        html.Table(
            [
                html.Thead(html.Tr([html.Th(text, scope="col") for text in head])),
                html.Tbody([html.Tr([html.Th(row[0], scope="row"), *map(_cell, row[1:])]) for row in body]),
            ],
            className="verdict",
        ),
    ]


def _facts(e: Explanation, left: np.ndarray) -> dict[str, str]:
    """What a script that watches the page may want to know of the sentence."""
    numbers = ",".join(f"{value:.6f}" for value in left.tolist())
    return {"data-probabilities": numbers, "data-instance": f"{key_id(e.key)} {e.method}"}


def _cell(value: object) -> Any:
    from dash import html

    if isinstance(value, bool):
        return html.Td("yes" if value else "no", className="yes" if value else "no")
    return html.Td(str(value))


def comparison(asked: WhatIf, key: Key) -> list[Any]:
    """Every method's picture of one instance, side by side."""
    from dash import html

    made, names = [], class_names(asked.context)
    every = asked.explanations(key)
    for name, e in every.items():
        shown = scene(e, asked.context_of(e), list(every.values()))
        size = count_units(e)
        label = f"{describe_target(e)}, explained by {name}: {size}"
        drawn = svg.picture(shown, label, molecule=is_molecule(asked.context))
        said = verdict_sentences(e, names, atom_names(asked.context))
        words = [html.Li([html.B(f"{s.head}: "), s.text], className=s.tone) for s in said]
        made.append(html.Section([html.H3(f"{name}: {size}"), image(drawn, svg.STYLE, label), html.Ul(words)]))
    return made


def entry(e: Explanation, names: Sequence[str] | None, current: bool) -> Any:
    """One line of the list of instances: a button."""
    from dash import html

    tests = [("S", e.sufficient, "sufficient"), ("N", e.necessary, "necessary")]
    if adds_or_changes(e):
        tests = [("E", e.necessary, "changed by edits")]
    marks = [html.Span(f"{text}{'✓' if good else '✗'}", className="yes" if good else "no") for text, good, _ in tests]
    spoken = ", ".join(f"{'' if good else 'not '}{word}" for _, good, word in tests)
    said = short_said(e, names)
    wrong = e.label is not None and e.label != e.prediction
    sure = describe_said(e, e.probabilities, names)
    label = f"{describe_target(e)}: {sure}{', misclassified' if wrong else ''}, {spoken}, size {e.size}"
    return html.Li(
        html.Button(
            [
                html.Span(describe_target(e)),
                html.Span(said, className="said"),
                *marks,
                html.Span(e.size, className="size"),
            ],
            id={"type": "pick", "key": key_id(e.key)},
            className="entry" + (" current" if current else "") + (" wrong" if wrong else ""),
            **{"aria-label": label, "aria-current": "true" if current else "false"},
        )
    )


def choices(table: dict[str, tuple[str, Any]]) -> list[dict[str, str]]:
    """A registry as the options of a choice."""
    return [{"label": text, "value": name} for name, (text, _) in table.items()]


FILTER_CHOICES, SORT_CHOICES = choices(FILTERS), choices(SORTS)
