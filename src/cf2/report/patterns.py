"""Patterns as pictures with their numbers: a section of the report for every class, and the short form of notebooks."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from cf2.report import charts, layout, svg
from cf2.report.scene import Scene, is_molecule
from cf2.report.sentences import key_id
from cf2.report.unit_words import count_nouns
from cf2.results.pattern import ELEMENTS, Pattern
from cf2.results.patterns import FoundPattern, Patterns

LINKS = 12  # instances that are named per pattern
MEANINGS = (
    ("coverage", "coverage", "of the predictions of the class, the share whose graph contains the pattern"),
    ("precision", "precision", "of the graphs that contain the pattern, the share that gets the class"),
    ("necessity", "necessary", "share that leaves the class when every occurrence is removed"),
    ("chance", "… by chance", "the same when as many other edges are removed, drawn at random"),
    ("sufficiency", "sufficient", "share that keeps the class when only the occurrences are kept"),
    ("sufficiency_one", "… one alone", "the same with a single occurrence, the best of those tried"),
)


def pattern_scene(pattern: Pattern, molecule: bool) -> Scene:
    """The pattern as a picture's content."""
    edges = np.array(pattern.edges, dtype=np.int64).reshape(-1, 2)
    count = len(pattern.labels)
    labels = tuple("*" if label is None else label for label in pattern.labels)
    points = None
    if molecule and all(label in ELEMENTS for label in labels):
        from cf2.report.molecules import coordinates

        points = coordinates(labels, edges, np.zeros(0))
    if points is None:
        centre = pattern.marks.index(1) if 1 in pattern.marks else layout.busiest(edges, count)
        points = layout.positions(edges, count, centre)
    everything = np.ones(len(edges), bool)
    return Scene(
        nodes=np.arange(count),
        points=points,
        edges=edges,
        chosen=everything,
        true=~everything,
        targets=tuple(node for node, mark in enumerate(pattern.marks) if mark),
        units=np.full(len(edges), -1),
        inside=np.ones(count, bool),
        marked=np.zeros(count, np.int64),
        labels=labels if any(labels) else (),
        directed=pattern.directed,
    )


def picture(one: FoundPattern, context: dict[str, Any]) -> Markup:
    """One pattern as SVG; chemists' drawing where all of its labels are elements."""
    molecule = is_molecule(context) and all(label in ELEMENTS for label in one.pattern.labels)
    return svg.picture(pattern_scene(one.pattern, molecule), f"pattern {one.pattern.text}", molecule=molecule)


def pattern_sections(patterns: Patterns, drawn: frozenset[Any] = frozenset()) -> list[dict[str, Any]]:
    """One section per class, ready for the template; instances that are `drawn` on the page are links."""
    about = patterns.about
    sections = []
    for prediction in patterns.classes():
        together, empty = (about.get(name, {}).get(prediction) for name in ("together", "empty"))
        sections.append(
            {
                "name": patterns.name(prediction),
                "tested": count_nouns(about.get("tested", {}).get(prediction, 0), "prediction"),
                "together": together,
                "empty": empty,
                "rows": [_row(one, patterns.context, drawn) for one in patterns.of(prediction)],
            }
        )
    return sections


def _row(one: FoundPattern, context: dict[str, Any], drawn: frozenset[Any]) -> dict[str, Any]:
    shown = [{"id": key_id(key), "text": str(key), "linked": key in drawn} for key in one.keys[:LINKS]]
    return {
        "picture": picture(one, context),
        "text": one.pattern.text,
        "smarts": one.pattern.smarts,
        "support": f"in {one.support} of {count_nouns(one.answers, 'answer')}",
        "contained": count_nouns(one.contained, "tested graph"),
        "undecided": one.undecided,
        "bars": [(name, tip, e) for field, name, tip in MEANINGS if (e := getattr(one, field)) is not None],
        "keys": shown,
        "more": len(one.keys) - len(shown),
    }


def patterns_html(patterns: Patterns) -> str:
    """The patterns as an HTML fragment for a notebook."""
    from cf2.report.html import environment

    page = environment().get_template("patterns.html")
    style = Markup(svg.STYLE + charts.STYLE)
    parts = {"sections": pattern_sections(patterns), "about": patterns.about, "style": style}
    return str(page.render(**parts)) if len(patterns) else "<p>No patterns.</p>"
