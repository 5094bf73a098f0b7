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
from cf2.patterns.summary import BY_CLASS, FoundPattern, Patterns
from cf2.report import environment
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
WORDS = {  # by the kind of summary: its title, its first sentence, and what all of a class do
    "patterns": (
        "What the model looks for",
        "Found in {found_on} explanations and tested on other predictions (held_out={held_out:g}, seed={seed}).",
        "patterns cover",
    ),
    "rules": (
        "What would have to change",
        "Edits that explanations share, tried on other predictions, in a few places of each graph.",
        "rules change",
    ),
}


def summary_parts(found: Patterns | EditRules, drawn: frozenset[Any] = frozenset()) -> dict[str, Any]:
    """What the templates show of patterns or edit rules; instances that are `drawn` on the page are links."""
    title, start, together = WORDS[found.list_name]
    sections = []
    for prediction in found.classes():
        facts = {fact: found.about.get(fact, {}).get(prediction) for fact in BY_CLASS}
        facts["tested"] = count_nouns(facts["tested"] or 0, "prediction")
        facts["jointly"] = {name: e for name, e in (facts["jointly"] or {}).items() if e}
        facts["name"] = ("Away from " if isinstance(found, EditRules) else "") + found.name(prediction)
        sections.append({**facts, "rows": [_row(row, found.context, drawn) for row in found.of(prediction)]})
    return {
        "id": found.list_name,
        "title": title,
        "start": start.format(**found.about),
        "notes": found.about.get("notes", ()),
        "together": together,
        "sections": sections,
    }


def _row(row: FoundPattern | TriedRule, context: Mapping[str, Any], drawn: frozenset[Any]) -> dict[str, Any]:
    """The picture, the shares as bars, and the instances whose answers it is found in, the first ones by name."""
    bars = [(name, tip, e) for field, name, tip in MEANINGS if (e := getattr(row, field, None)) is not None]
    links = [{"id": key_id(key), "text": str(key), "linked": key in drawn} for key in row.keys[:MAX_LINKS]]
    support = f"{row.support} of {count_nouns(row.answers, 'answer')}"
    shown = {"bars": bars, "keys": links, "more": len(row.keys) - len(links), "support": support}
    if isinstance(row, TriedRule):
        title, scenes = row.rule.text, [_piece_scene(piece, context) for piece in row.rule.pieces]
        picture = Markup("").join(svg.picture(scene, f"edit rule {title}") for scene in scenes)
        return shown | {"text": title, "picture": picture, "smarts": None, "contained": None}
    shown |= {"text": row.pattern.text, "smarts": row.pattern.smarts, "undecided": row.undecided}
    shown |= {"support": f"in {support}", "contained": count_nouns(row.contained, "tested graph")}
    return shown | {"picture": svg.picture(pattern_scene(row.pattern, context), f"pattern {row.pattern.text}")}


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
        plain.with_edges(~added),
        molecule=False,  # the signs of its edges are drawn on a graph
        added=plain.edges[added],
        lost=np.zeros(len(plain.nodes), dtype=bool),
        changed={n: label.replace(ARROW, " → ") for n, label in enumerate(piece.labels) if label and ARROW in label},
        edited=True,
    )


def patterns_html(patterns: Patterns) -> str:
    """The patterns as an HTML fragment for a notebook."""
    if not len(patterns):
        return "<p>No patterns.</p>"
    parts = {"summary": summary_parts(patterns), "style": svg.STYLE}
    return str(environment().get_template("patterns.html").render(**parts))
