"""Patterns and edit rules as pictures with their numbers: sections of the report and the page, and for notebooks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup

from cf2.patterns.edit_rules import ADD, ARROW, REMOVE, EditRules, TriedRule
from cf2.patterns.pattern import AND, BOND_ORDERS, Pattern, element
from cf2.patterns.summary import FoundPattern, Patterns
from cf2.report import charts
from cf2.report import pictures as svg
from cf2.report import scene as layout
from cf2.report.scene import Scene, is_molecule
from cf2.report.words import count_nouns, key_id

MAX_LINKS = 12  # instances that are named per pattern
MEANINGS = (
    ("coverage", "coverage", "share of the predictions of the class whose graph contains the pattern"),
    ("precision", "precision", "share of the graphs with the pattern that are predicted as the class"),
    ("necessity", "necessary", "share that leaves the class when every occurrence is removed"),
    ("chance", "… by chance", "the same when equally many random other edges are removed"),
    ("sufficiency", "sufficient", "share that keeps the class when only the occurrences are kept"),
    ("sufficiency_one", "… one alone", "the same with a single occurrence, the best of those tried"),
    ("turned", "changed", "share of other predictions of the class that one application of the rule changes"),
)


def pattern_sections(patterns: Patterns, drawn: frozenset[Any] = frozenset()) -> list[dict[str, Any]]:
    """One section per class, ready for the template; instances that are `drawn` on the page are links."""
    sections = []
    for prediction in patterns.classes():
        rows = []
        for row in patterns.of(prediction):
            own = {"text": row.pattern.text, "smarts": row.pattern.smarts, "undecided": row.undecided}
            own["picture"] = svg.picture(pattern_scene(row.pattern, patterns.context), f"pattern {row.pattern.text}")
            own["support"] = f"in {row.support} of {count_nouns(row.answers, 'answer')}"
            own["contained"] = count_nouns(row.contained, "tested graph")
            rows.append({**own, **_numbers(row, drawn)})
        section = _section(patterns.name(prediction), patterns.about, prediction, rows)
        jointly = patterns.about.get("jointly", {}).get(prediction) or {}
        section["empty"] = patterns.about.get("empty", {}).get(prediction)
        sections.append({**section, "jointly": {name: e for name, e in jointly.items() if e}})
    return sections


def edit_rule_sections(edit_rules: EditRules, drawn: frozenset[Any] = frozenset()) -> list[dict[str, Any]]:
    """One section per class that the rules lead away from, in the form of `pattern_sections`."""
    sections = []
    for prediction in edit_rules.classes():
        rows = []
        for row in edit_rules.of(prediction):
            scenes = [_piece_scene(piece, edit_rules.context) for piece in row.rule.pieces]
            picture = Markup("").join(svg.picture(scene, f"edit rule {row.rule.text}") for scene in scenes)
            support = f"{row.support} of {count_nouns(row.answers, 'answer')}"
            rows.append({"picture": picture, "text": row.rule.text, "support": support, **_numbers(row, drawn)})
        sections.append(_section(f"Away from {edit_rules.name(prediction)}", edit_rules.about, prediction, rows))
    return sections


def _section(name: str, about: Mapping[str, Any], prediction: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    tested, together = (about.get(fact, {}).get(prediction) for fact in ("tested", "together"))
    return {"name": name, "tested": count_nouns(tested or 0, "prediction"), "together": together, "rows": rows}


def _numbers(row: FoundPattern | TriedRule, drawn: frozenset[Any]) -> dict[str, Any]:
    """The shares as bars, and the instances whose answers it is found in, the first ones by name."""
    bars = [(name, tip, e) for field, name, tip in MEANINGS if (e := getattr(row, field, None)) is not None]
    links = [{"id": key_id(key), "text": str(key), "linked": key in drawn} for key in row.keys[:MAX_LINKS]]
    return {"bars": bars, "keys": links, "more": len(row.keys) - len(links)}


def pattern_scene(pattern: Pattern, context: Mapping[str, Any]) -> Scene:
    """The pattern as a picture's content; of atoms, placed and joined as chemists draw them."""
    edges = np.array(pattern.edges, dtype=np.int64).reshape(-1, 2)
    count = len(pattern.labels)
    labels = tuple("*" if label is None else label for label in pattern.labels)
    points, orders, formal = None, np.zeros(0), list[tuple[int, int]]()
    molecule = is_molecule(context) and all(map(element, pattern.labels))
    if molecule:
        from cf2.report.molecules import coordinates

        orders = np.array([BOND_ORDERS.get(name or "", 1.0) for name in pattern.edge_labels])
        hydrogens = [[int(word[1:]) for word in label.split(AND) if re.fullmatch(r"H\d", word)] for label in labels]
        formal = [(0, sum(of_atom)) for of_atom in hydrogens]
        labels = tuple(map(element, labels))
        points = coordinates(labels, edges, orders)
    if points is None:
        centre = pattern.marks.index(1) if 1 in pattern.marks else layout.busiest(edges, count)
        points = layout.positions(edges, count, centre)
    return Scene(
        nodes=np.arange(count),
        texts=tuple(map(str, range(count))),
        molecule=molecule,
        points=points,
        edges=edges,
        chosen=np.ones(len(edges), bool),
        true=np.zeros(len(edges), bool),
        targets=tuple(node for node, mark in enumerate(pattern.marks) if mark),
        units=np.full(len(edges), -1),
        inside=np.ones(count, bool),
        marked=np.zeros(count, np.int64),
        labels=labels if any(labels) else (),
        bonds=orders,
        formal=tuple(formal),
        directed=pattern.directed,
    )


def _piece_scene(piece: Pattern, context: Mapping[str, Any]) -> Scene:
    """One piece of an edit rule as a picture's content: what is removed is struck, what is added dashed."""
    before = tuple((label or "*").split(ARROW)[0] for label in piece.labels)
    bonds = tuple((name or "").lstrip(REMOVE + ADD) for name in piece.edge_labels)
    plain = pattern_scene(replace(piece, labels=before, edge_labels=bonds), context)
    added = np.array([(name or "").startswith(ADD) for name in piece.edge_labels], dtype=bool)
    return replace(
        plain,
        molecule=False,  # the signs of its edges are drawn on a graph
        edges=plain.edges[~added],
        chosen=plain.chosen[~added],
        true=plain.true[~added],
        units=plain.units[~added],
        bonds=plain.bonds[~added] if len(plain.bonds) else plain.bonds,
        added=plain.edges[added],
        lost=np.zeros(len(plain.nodes), dtype=bool),
        changed={n: label.replace(ARROW, " → ") for n, label in enumerate(piece.labels) if label and ARROW in label},
        edited=True,
    )


def patterns_html(patterns: Patterns) -> str:
    """The patterns as an HTML fragment for a notebook."""
    from cf2.report import environment

    page = environment().get_template("patterns.html")
    style = Markup(svg.STYLE + charts.STYLE)
    parts = {"sections": pattern_sections(patterns), "about": patterns.about, "style": style}
    return str(page.render(**parts)) if len(patterns) else "<p>No patterns.</p>"
