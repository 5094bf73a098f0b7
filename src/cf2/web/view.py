"""What the page consists of; the callbacks in `app` fill it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from cf2.explanation import Explanation
from cf2.report import charts, svg
from cf2.report.scene import EXPLANATION, TARGET, TRUTH, Scene, is_molecule, scene
from cf2.report.words import class_name, class_names, round_probability, says, sentences, subject, units
from cf2.web.listing import FILTERS, SORTS
from cf2.web.whatif import Answer, WhatIf

SCALE = 62.0  # pixels an edge
LISTED = 90  # edges or feature entries in the list beside the picture; a node's id brings up others

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
    {
        "selector": ".marked",
        "style": {"background-color": "#F0E442", "border-width": 1, "border-color": "#5c5600"},
    },
    {"selector": ".target", "style": {"border-width": 4, "border-color": TARGET, "width": 22, "height": 22}},
    {"selector": "edge", "style": {"line-color": "#8a8f98", "width": 1.6, "curve-style": "haystack"}},
    {
        "selector": ".arrow",
        "style": {"curve-style": "bezier", "target-arrow-shape": "triangle", "target-arrow-color": "#8a8f98"},
    },
    {
        "selector": ".true",
        "style": {"underlay-color": TRUTH, "underlay-opacity": 0.35, "underlay-padding": 6},
    },
    {
        "selector": ".chosen",
        "style": {"line-color": EXPLANATION, "target-arrow-color": EXPLANATION, "width": 5},
    },
]
GONE = {"line-style": "dashed", "line-dash-pattern": [3, 6], "opacity": 0.35, "line-color": "#8a8f98"}


def elements(e: Explanation, shown: Scene) -> list[dict[str, Any]]:
    """The drawn part of the graph for cytoscape.

    Ids are different for every instance: cytoscape takes an edge with a known id for the edge it knows.
    """
    inside = set(shown.edges[shown.chosen].reshape(-1).tolist())
    made: list[dict[str, Any]] = []
    for node, (x, y) in enumerate((shown.points * [SCALE, -SCALE]).tolist()):
        kinds = ["inside"] if node in inside else []
        kinds += ["marked"] if shown.marked[node] else []
        kinds += ["target"] if node == shown.target else []
        data = {"id": f"k{e.key}n{shown.nodes[node]}", "label": str(int(shown.nodes[node]))}
        if shown.labels:
            data["label"] = shown.labels[node]
            kinds.append("atom")
        elif len(shown.nodes) > 40 and not kinds:
            del data["label"]
        made.append({"data": data, "position": {"x": x, "y": y}, "classes": " ".join(kinds), "grabbable": False})
    for (a, b), unit, chosen, true in zip(shown.edges.tolist(), shown.units.tolist(), shown.chosen, shown.true):
        kinds = [name for name, holds in (("chosen", chosen), ("true", true), ("arrow", e.directed)) if holds]
        data = {"source": f"k{e.key}n{shown.nodes[a]}", "target": f"k{e.key}n{shown.nodes[b]}"}
        data |= {"id": f"k{e.key}u{unit}", "unit": unit} if unit >= 0 else {}
        made.append({"data": data, "classes": " ".join(kinds)})
    return made


def stylesheet(e: Explanation, removed: np.ndarray) -> list[dict[str, Any]]:
    """The styles with the removed edges faded."""
    gone = ", ".join(f"#k{e.key}u{unit}" for unit in np.flatnonzero(removed).tolist())
    return [*STYLESHEET, {"selector": gone, "style": GONE}] if gone else STYLESHEET


def listed(e: Explanation, near: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The edge and feature units that the lists offer: the explanation first, then by score.

    With `near`, only those at that node.
    """
    order = np.lexsort((-e.scores, ~e.selected))
    if near is not None:
        at = np.concatenate([(e.unit_edges == near).any(1), e.unit_features[:, 0] == near])
        order = order[at[order]]
    edges = order[order < len(e.unit_edges)][:LISTED]
    return edges, order[order >= len(e.unit_edges)][:LISTED]


def options(e: Explanation, near: int | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One checkbox an edge, and one a feature entry."""
    edges, entries = listed(e, near)
    arrow, offset = "→" if e.directed else "–", len(e.unit_edges)
    first = [(unit, f"{e.unit_edges[unit][0]}{arrow}{e.unit_edges[unit][1]}") for unit in edges]
    ids = e.unit_features
    second = [(unit, f"node {ids[unit - offset][0]}, feature {ids[unit - offset][1]}") for unit in entries]
    return _boxes(e, first), _boxes(e, second)


def _boxes(e: Explanation, named: list[tuple[int, str]]) -> list[dict[str, Any]]:
    return [{"label": text + (" ●" if e.selected[unit] else ""), "value": int(unit)} for unit, text in named]


def image(markup: Markup, style: str, label: str) -> Any:
    """An SVG as an image, in which nothing can run."""
    from dash import html

    colour = "svg{color:#1c2330}@media(prefers-color-scheme:dark){svg{color:#e6e9ef}}"
    text = str(markup).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    text = text.replace(">", f"><style>{style}{colour}</style>", 1)
    data = base64.b64encode(text.encode()).decode()
    return html.Img(src=f"data:image/svg+xml;base64,{data}", alt=label, className="picture")


def answer(e: Explanation, found: Answer, removed: np.ndarray, names: Sequence[str] | None) -> Any:
    """What the model says now, in words, bars and a small table."""
    from dash import html

    said = [class_name(number, names) for number in range(len(e.probabilities))]
    rows = (("whole graph", e.probabilities), ("what is left", found.left), ("removed part", found.removed))
    picture = charts.bars([(title, values.tolist()) for title, values in rows], said, start=88, span=104)
    count = int(removed.sum())
    change = "changed" if found.changed else "unchanged"
    now = f"The model now says {says(found.left, names)}: {change}."
    head = ("", "units", "sufficient", "necessary")
    body = (
        ("left", len(removed) - count, *found.left_verdict),
        ("removed", count, *found.removed_verdict),
    )
    return [
        html.P(now, id="now", className=f"now {change}", **_facts(e, found)),
        image(picture, charts.STYLE, f"Probabilities. {now}"),
        html.Table(
            [
                html.Thead(html.Tr([html.Th(text, scope="col") for text in head])),
                html.Tbody([html.Tr([html.Th(row[0], scope="row"), *map(_cell, row[1:])]) for row in body]),
            ],
            className="verdict",
        ),
    ]


def _facts(e: Explanation, found: Answer) -> dict[str, str]:
    """What a script that watches the page may want to know of the sentence."""
    numbers = ",".join(f"{value:.6f}" for value in found.left.tolist())
    return {"data-probabilities": numbers, "data-instance": f"{e.key} {e.method}"}


def _cell(value: object) -> Any:
    from dash import html

    if isinstance(value, bool):
        return html.Td("yes" if value else "no", className="yes" if value else "no")
    return html.Td(str(value))


def comparison(asked: WhatIf, key: int) -> list[Any]:
    """Every method's picture of one instance, side by side."""
    from dash import html

    made, names = [], class_names(asked.context)
    every = asked.explanations(key)
    others = [e for _, e in every]
    for name, e in every:
        shown = scene(e, asked.context_of(e), others)
        label = f"{subject(e)}, explained by {name}: {units(e)}"
        drawn = svg.picture(shown, label, molecule=is_molecule(asked.context))
        words = [html.Li([html.B(f"{s.head}: "), s.text], className=s.tone) for s in sentences(e, names)]
        made.append(html.Section([html.H3(f"{name}: {units(e)}"), image(drawn, svg.STYLE, label), html.Ul(words)]))
    return made


def entry(e: Explanation, names: Sequence[str] | None, current: bool) -> Any:
    """One line of the list of instances: a button."""
    from dash import html

    tests = (("S", e.sufficient, "sufficient"), ("N", e.necessary, "necessary"))
    marks = [html.Span(f"{text}{'✓' if good else '✗'}", className="yes" if good else "no") for text, good, _ in tests]
    spoken = ", ".join(f"{'' if good else 'not '}{word}" for _, good, word in tests)
    said = class_name(e.prediction, names)
    wrong = e.label is not None and e.label != e.prediction
    sure = round_probability(float(e.probabilities[e.prediction]))
    label = f"{subject(e)}: {said} {sure}{', misclassified' if wrong else ''}, {spoken}, size {e.size}"
    return html.Li(
        html.Button(
            [
                html.Span(subject(e)),
                html.Span(said, className="said"),
                *marks,
                html.Span(e.size, className="size"),
            ],
            id={"type": "pick", "key": e.key},
            className="entry" + (" current" if current else "") + (" wrong" if wrong else ""),
            **{"aria-label": label, "aria-current": "true" if current else "false"},
        )
    )


def choices(table: dict[str, tuple[str, Any]]) -> list[dict[str, str]]:
    """A registry as the options of a choice."""
    return [{"label": text, "value": name} for name, (text, _) in table.items()]


FILTER_CHOICES, SORT_CHOICES = choices(FILTERS), choices(SORTS)
