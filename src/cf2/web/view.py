"""What the page consists of; the callbacks in `app` fill it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from cf2.options import Key
from cf2.report import charts
from cf2.report import pictures as svg
from cf2.report.scene import OKABE_ITO, Scene, is_molecule, scene
from cf2.report.words import (
    adds_or_changes,
    atom_names,
    class_names,
    count_nouns,
    count_units,
    describe_said,
    describe_target,
    describe_unit,
    key_id,
    next_step,
    short_said,
    verdict_sentences,
)
from cf2.results.explanation import Explanation
from cf2.units.edits import EDGE_KINDS, edit_of
from cf2.web.listing import FILTERS, SORTS
from cf2.web.whatif import Answer, WhatIf

LISTED = 90  # units in the list beside the picture (Dash draws over 100 in another way); a node's id brings up others


def listed(e: Explanation, near: tuple[int, ...] = ()) -> np.ndarray:
    """The units that have a checkbox: the explanation first, then by score; every kind gets the same room.

    With `near`, only those at a node of these ids.
    """
    at = np.isin(e.units.ids[:, 0], near)
    edges = np.concatenate([e.units.where(name) for name in EDGE_KINDS])
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
    marks = {True: " ●", False: ""}
    return [
        {
            "label": edit_of(e.units.names[e.units.kind[u]]).prefix
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

    colour = "svg:root{color:#1c2330}@media(prefers-color-scheme:dark){svg:root{color:#e6e9ef}}"
    text = str(markup).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    text = text.replace(">", f"><style>{style}{colour}</style>", 1)
    data = base64.b64encode(text.encode()).decode()
    kind = "picture pair" if 'class="cf2-graph cf2-pair"' in text else "picture"
    return html.Img(src=f"data:image/svg+xml;base64,{data}", alt=label, className=kind)


def verdict(e: Explanation, names: Sequence[str] | None, atoms: Sequence[str] | None) -> list[Any]:
    """The verdicts on an explanation in words, and what to try next."""
    from dash import html

    said = verdict_sentences(e, names, atoms)
    words = [html.Li([html.B(f"{s.head}: "), s.text], className=s.tone) for s in said]
    step = next_step(e)
    advice = [html.P([html.B("Try next: "), step], className="next")] if step else []
    return [html.Ul(words, className="verdicts"), *advice]


def types(drawn: Scene) -> list[Any]:
    """What the colours of a typed graph mean."""
    from dash import html

    places = {colour: number for number, colour in enumerate(OKABE_ITO)}
    return [html.Span(name, className=f"key type type{places[colour]}") for colour, name in drawn.legend]


def answer(e: Explanation, found: Answer, removed: np.ndarray, names: Sequence[str] | None) -> list[Any]:
    """What the model says now, in words and bars, and what follows for the two parts."""
    count = int(removed.sum())
    change = "changed" if found.changed else "unchanged"
    now = f"The model now says {describe_said(e, found.left, names)}: {change}."
    rows = (("whole graph", e.probabilities), ("what is left", found.left), ("removed part", found.removed))
    parts = (("left", len(removed) - count, *found.left_verdict), ("removed", count, *found.removed_verdict))
    return _said(e, now, change, rows, [_part(*part) for part in parts], names)


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
    part = _part("in the explanation", e.size, e.sufficient, e.necessary)
    return _said(e, now, "unchanged", (("whole graph", e.probabilities), only, without), [part], names)


def _part(where: str, count: int, sufficient: bool, necessary: bool) -> Any:
    """One part of the graph and the two verdicts on it, as a sentence."""
    from dash import html

    facts = {"data-part": where, "data-count": str(count), "data-sufficient": str(sufficient).lower()}
    facts["data-necessary"] = str(necessary).lower()
    if not count:
        return html.P([html.B(f"Nothing is {where}.")], **facts)
    one = count == 1
    alone = (
        f"Alone, {'it keeps' if one else 'they keep'} the answer: " if sufficient else "Alone, not the same answer: "
    )
    gone = f"Without {'it' if one else 'them'}, "
    gone += "another answer: " if necessary else "the answer stays: "
    return html.P(
        [
            html.B(f"{count_nouns(count, 'unit')} {'is' if one else 'are'} {where}. "),
            alone,
            _word("sufficient", sufficient),
            gone,
            _word("necessary", necessary),
        ],
        **facts,
    )


def _word(word: str, holds: bool) -> Any:
    from dash import html

    return html.Span(f"{'' if holds else 'not '}{word}. ", className="yes" if holds else "no")


def _said(e: Explanation, now: str, change: str, rows: Any, parts: Any, names: Sequence[str] | None) -> list[Any]:
    """A sentence, the probabilities in `rows` as bars, and what holds for the `parts`."""
    from dash import html

    picture = charts.said(e, rows, names, start=88, span=104)
    sentence = html.P(now, id="now", className=f"now {change}", **_facts(e, rows[1][1]))
    shown = image(picture, charts.STYLE, f"Probabilities. {now}")
    return [sentence, shown, html.Div(list(parts), className="parts")]


def _facts(e: Explanation, left: np.ndarray) -> dict[str, str]:
    """What a script that watches the page may want to know of the sentence."""
    numbers = ",".join(f"{value:.6f}" for value in left.tolist())
    return {"data-probabilities": numbers, "data-instance": f"{key_id(e.key)} {e.method}"}


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
        words = verdict(e, names, atom_names(asked.context))[0]
        made.append(html.Section([html.H3(f"{name}: {size}"), image(drawn, svg.STYLE, label), words]))
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
                html.Span(describe_target(e), className="name"),
                html.Span(said, className="said"),
                html.Span(marks, className="marks"),
                html.Span(e.size, className="size"),
            ],
            className="entry" + (" current" if current else "") + (" wrong" if wrong else ""),
            **{"data-pick": key_id(e.key), "aria-label": label, "aria-current": "true" if current else "false"},
        )
    )


def choices(table: dict[str, tuple[str, Any]]) -> list[dict[str, str]]:
    """A registry as the options of a choice."""
    return [{"label": text, "value": name} for name, (text, _) in table.items()]


FILTER_CHOICES, SORT_CHOICES = choices(FILTERS), choices(SORTS)
