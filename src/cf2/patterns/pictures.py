"""Patterns and edit rules as pictures with their numbers: sections of the report and the page, and for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup

from cf2.options import Key
from cf2.patterns.edit_rules import ADD, ARROW, EditRules, TriedRule
from cf2.patterns.pattern import ELEMENTS, Pattern
from cf2.patterns.summary import FoundPattern, Patterns
from cf2.report import charts
from cf2.report import pictures as svg
from cf2.report import scene as layout
from cf2.report.scene import Scene, is_molecule
from cf2.report.words import count_nouns, key_id

LINKS = 12  # instances that are named per pattern
MEANINGS = (
    ("coverage", "coverage", "of the predictions of the class, the share whose graph contains the pattern"),
    ("precision", "precision", "of the graphs that contain the pattern, the share that gets the class"),
    ("necessity", "necessary", "share that leaves the class when every occurrence is removed"),
    ("chance", "… by chance", "the same when as many other edges are removed, drawn at random"),
    ("sufficiency", "sufficient", "share that keeps the class when only the occurrences are kept"),
    ("sufficiency_one", "… one alone", "the same with a single occurrence, the best of those tried"),
)
EFFECTS = (("turned", "turned", "of other predictions of the class, the share that some one application turns"),)


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


def rule_scene(piece: Pattern, molecule: bool) -> Scene:
    """One piece of an edit rule as a picture's content: what is removed is struck, what is added dashed."""
    before = tuple((label or "*").split(ARROW)[0] for label in piece.labels)
    plain = pattern_scene(replace(piece, labels=before), molecule)
    added = np.array([(name or "").startswith(ADD) for name in piece.edge_labels], dtype=bool)
    changed = {n: label.replace(ARROW, " → ") for n, label in enumerate(piece.labels) if label and ARROW in label}
    stays = ~added
    return replace(
        plain,
        edges=plain.edges[stays],
        chosen=plain.chosen[stays],
        true=plain.true[stays],
        units=plain.units[stays],
        added=plain.edges[added],
        lost=np.zeros(len(plain.nodes), dtype=bool),
        changed=changed,
        edited=True,
    )


def rule_sections(rules: EditRules, drawn: frozenset[Any] = frozenset()) -> list[dict[str, Any]]:
    """One section per class that the rules lead away from, in the form of `pattern_sections`."""
    sections = []
    for prediction in sorted({one.prediction for one in rules}):
        mine = [one for one in rules if one.prediction == prediction]
        sections.append(
            {
                "name": f"Away from {rules.name(prediction)}",
                "tested": count_nouns(rules.about.get("tested", {}).get(prediction, 0), "prediction"),
                "together": rules.about.get("together", {}).get(prediction),
                "rows": [_rule_row(one, rules.context, drawn) for one in mine],
            }
        )
    return sections


def _rule_row(one: TriedRule, context: Mapping[str, Any], drawn: frozenset[Any]) -> dict[str, Any]:
    pieces = Markup("")
    for piece in one.rule.pieces:
        plain = [(label or "*").split(ARROW)[0] for label in piece.labels]
        molecule = is_molecule(context) and all(label in ELEMENTS for label in plain)
        pieces += svg.picture(rule_scene(piece, molecule), f"edit rule {one.rule.text}")
    return {
        "picture": pieces,
        "text": one.rule.text,
        "support": f"{one.support} of {count_nouns(one.answers, 'answer')}",
        "bars": [(name, tip, e) for field, name, tip in EFFECTS if (e := getattr(one, field)) is not None],
        **_links(one.keys, drawn),
    }


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
                "jointly": {name: e for name, e in (about.get("jointly", {}).get(prediction) or {}).items() if e},
                "rows": [_row(one, patterns.context, drawn) for one in patterns.of(prediction)],
            }
        )
    return sections


def _row(one: FoundPattern, context: dict[str, Any], drawn: frozenset[Any]) -> dict[str, Any]:
    return {
        "picture": picture(one, context),
        "text": one.pattern.text,
        "smarts": one.pattern.smarts,
        "support": f"in {one.support} of {count_nouns(one.answers, 'answer')}",
        "contained": count_nouns(one.contained, "tested graph"),
        "undecided": one.undecided,
        "bars": [(name, tip, e) for field, name, tip in MEANINGS if (e := getattr(one, field)) is not None],
        **_links(one.keys, drawn),
    }


def _links(keys: Sequence[Key], drawn: frozenset[Any]) -> dict[str, Any]:
    """The instances that share something, the first ones by name."""
    shown = [{"id": key_id(key), "text": str(key), "linked": key in drawn} for key in keys[:LINKS]]
    return {"keys": shown, "more": len(keys) - len(shown)}


def patterns_html(patterns: Patterns) -> str:
    """The patterns as an HTML fragment for a notebook."""
    from cf2.report.html import environment

    page = environment().get_template("patterns.html")
    style = Markup(svg.STYLE + charts.STYLE)
    parts = {"sections": pattern_sections(patterns), "about": patterns.about, "style": style}
    return str(page.render(**parts)) if len(patterns) else "<p>No patterns.</p>"
