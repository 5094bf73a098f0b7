"""The graph as cytoscape draws it, on a light page and on a dark one; and pictures beside it and in files."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from dash import html
from markupsafe import Markup

from cf2.report import pictures as svg
from cf2.report.molecules import plain_drawing
from cf2.report.scene import EXPLANATION, TARGET, TRUTH, Scene, scene
from cf2.report.words import describe_target, key_id
from cf2.results.explanation import Explanation
from cf2.units.edits import ADD, CHANGE
from cf2.web.whatif import Edit, WhatIf, absent, describe_edit

PIXELS_PER_EDGE = 62.0
MAX_NAMED_NODES = 40  # of more nodes, only those that matter have their ids
# Of texts, what surrounds them, nodes, edges, what is behind all, and what is behind chosen texts.
COLOURS = ("text", "halo", "node", "edge", "back", "soft")
LIGHT = dict(zip(COLOURS, ("#1c2330", "#ffffff", "#9aa1ac", "#8a8f98", "#fbfcfe", "#ffd3b5")))
DARK = dict(zip(COLOURS, ("#e6e9ef", "#181d26", "#77808f", "#7d8694", "#181d26", "#8a4a1f")))
SCHEMES: dict[str | None, dict[str, str]] = {"light": LIGHT, "dark": DARK, None: LIGHT}  # None: not known yet
MARKS = {"explanation": EXPLANATION, "target": TARGET, "truth": TRUTH, "new": ADD.colour, "other": CHANGE.colour}
BRIGHTER = {"#0072B2": "#56B4E9", "#008C66": "#4FD3A5", "#737373": "#AAB2C0"}  # colours of elements on a dark page
PICTURE_COLOUR = "svg:root{color:#1c2330}@media(prefers-color-scheme:dark){svg:root{color:#e6e9ef}}"
XMLNS = 'xmlns="http://www.w3.org/2000/svg"'


@cache
def _styles(scheme: str | None) -> dict[str, dict[str, Any]]:
    """The looks of nodes and edges by their selectors: assets/graph.json in the colours of a scheme.

    A molecule's drawing lies over the marks of bonds, and under what covers those that are removed: it cannot be
    changed. Straight edges end where their nodes begin, so that the letters of atoms stay free.
    """
    text = (Path(__file__).parent / "assets" / "graph.json").read_text(encoding="utf-8")
    styles: dict[str, dict[str, Any]] = json.loads(Template(text).substitute(SCHEMES[scheme] | MARKS))
    return styles


def stylesheet(e: Explanation, removed: np.ndarray, scheme: str | None = None) -> list[dict[str, Any]]:
    """The styles with the removed edges and nodes faded, and the edges that could be added, too."""
    key, nodes, additions = key_id(e.key), e.units.where("nodes"), absent(e)
    gone = [f"#k{key}u{unit}" for unit in np.flatnonzero(removed & ~additions).tolist()]
    gone += [f"#k{key}n{node}" for node in e.units.ids[nodes[removed[nodes]], 0].tolist()]
    waiting = [f"#k{key}u{unit}" for unit in np.flatnonzero(e.selected & additions & ~removed).tolist()]
    covered = [f".{kind}{name}" for name in gone for kind in ("bond", "atom")]
    own = {"WAITING": waiting, "GONE": gone, "COVERED": covered}
    styles = ((", ".join(own.get(name, [name])), style) for name, style in _styles(scheme).items())
    return [{"selector": selector, "style": style} for selector, style in styles if selector]


def scene_of(whatif: WhatIf, e: Explanation) -> Scene:
    """What is drawn of an explanation; those of other methods have the same places."""
    return scene(e, whatif.context_of(e), list(whatif.explanations(e.key).values()))


def elements(
    whatif: WhatIf, e: Explanation, shown: Scene, edits: Sequence[Edit] = (), scheme: str | None = None
) -> list[dict[str, Any]]:
    """The drawn part of the graph for cytoscape, with what the user has added and changed.

    Ids are different for every instance: cytoscape takes an edge with a known id for the edge it knows.
    """
    key, drawing = key_id(e.key), plain_drawing(shown) if whatif.is_molecule else None
    points = shown.points * [PIXELS_PER_EDGE, -PIXELS_PER_EDGE] if drawing is None else drawing.places
    is_drawn = np.isfinite(points).all(1)  # not a hydrogen that is written at its neighbour
    parts = [] if drawing is None else [_drawing_element(drawing, f"k{key}drawing", scheme)]
    atoms = whatif.atoms
    changes = {edit[1]: edit for edit in edits if edit[0] == "change"}
    for node in np.flatnonzero(is_drawn).tolist():
        part = _node_element(f"k{key}n", shown, node, drawing is not None, changes.get(int(shown.nodes[node])), atoms)
        parts.append(part | {"position": dict(zip("xy", points[node].tolist()))})
    for (a, b), unit, chosen, true in zip(shown.edges.tolist(), shown.units.tolist(), shown.chosen, shown.true):
        if is_drawn[a] and is_drawn[b]:
            classes = {"chosen": chosen, "true": true, "arrow": e.directed, "bond": drawing is not None}
            parts.append(_edge_element(key, shown.nodes[a], shown.nodes[b], unit, classes))
    return parts + _new_edges(e, dict(zip(shown.nodes[is_drawn].tolist(), points[is_drawn].tolist())), edits)


def _node_element(
    prefix: str, shown: Scene, node: int, is_atom: bool, change: Edit | None, atoms: Sequence[str] | None
) -> dict[str, Any]:
    """A node of the scene; `change` is what the user has changed of it."""
    own = int(shown.nodes[node])
    classes = {
        "inside": shown.inside[node],
        "marked": shown.marked[node],
        "target": node in shown.targets,
        "changed": node in shown.changed or change is not None,
    }
    matters = any(classes.values())
    classes |= {"named": shown.labels and not is_atom, "atom": shown.labels and is_atom, "typed": len(shown.kinds)}
    name = shown.labels[node] if shown.labels else str(own)
    data: dict[str, Any] = {"id": f"{prefix}{own}", "node": own}
    if shown.labels or matters or len(shown.nodes) <= MAX_NAMED_NODES:
        data["label"] = name if shown.labels else shown.text(node)
    if len(shown.kinds):
        data["colour"] = shown.colour(node)
    if node in shown.changed:
        text = shown.changed[node]
        data["label"] = text if shown.labels and text.startswith(f"{name} → ") else f"{own}: {text}"
    if change is not None:
        _, _, column, value = change
        element = atoms[column] if atoms and column < len(atoms) else None
        data["label"] = f"{name} → {element}" if element else f"{name}: feature {column} = {value:.4g}"
    return {"data": data, "classes": _joined(classes), "grabbable": False}


def _edge_element(key: str, tail: int, head: int, unit: int, classes: dict[str, Any], name: str = "") -> dict[str, Any]:
    """An edge; that of a unit can be clicked."""
    data: dict[str, Any] = {"source": f"k{key}n{tail}", "target": f"k{key}n{head}"}
    data |= {"id": f"k{key}u{unit}", "unit": unit} if unit >= 0 else {"id": name} if name else {}
    return {"data": data, "classes": _joined(classes)}


def _joined(classes: dict[str, Any]) -> str:
    return " ".join(name for name, holds in classes.items() if holds)


def _drawing_element(drawing: Any, name: str, scheme: str | None) -> dict[str, Any]:
    """A chemist's drawing as one large node behind all others, in which nothing can run."""
    width, height = drawing.size
    sizes = f'width="{2 * width}" height="{2 * height}" viewBox="0 0 {width} {height}"'
    inner = drawing.text
    for plain, bright in BRIGHTER.items() if scheme == "dark" else ():
        inner = inner.replace(plain, bright)
    image = _data_url(f'<svg {XMLNS} {sizes} color="{SCHEMES[scheme]["text"]}">{inner}</svg>')
    data = {"id": name, "image": image, "width": width, "height": height}
    return {"data": data, "position": {"x": width / 2, "y": height / 2}, "classes": "drawing", "selectable": False}


def _new_edges(e: Explanation, points: dict[int, list[float]], edits: Sequence[Edit]) -> list[dict[str, Any]]:
    """The edges that the explanation would add, which can be clicked, and those that the user has added.

    An end that is not drawn gets a place beside the other one.
    """
    key, rows = key_id(e.key), e.units.where(ADD.unit_kind)
    units = {tuple(e.units.ids[row].tolist()): row for row in rows[e.selected[rows]].tolist()}
    own = {edit[1:]: -1 for edit in edits if edit[0] == "add" and edit[1:] not in units}
    parts: list[dict[str, Any]] = []
    for (tail, head), unit in (units | own).items():
        for end, other in ((tail, head), (head, tail)):
            if end not in points:
                points[end] = _free_point(points, other)
                data = {"id": f"k{key}n{end}", "label": str(end), "node": end}
                position = dict(zip("xy", points[end]))
                parts.append({"data": data, "position": position, "classes": "", "grabbable": False})
        classes = {"added": True, "arrow": e.directed}
        parts.append(_edge_element(key, tail, head, unit, classes, f"k{key}a{tail}-{head}"))
    return parts


def _free_point(points: dict[int, list[float]], beside: int) -> list[float]:
    """A place beside a node, as far from all others as can be."""
    taken = np.array([*points.values(), [0.0, 0.0]])
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    circle = 0.8 * PIXELS_PER_EDGE * np.stack([np.cos(angles), np.sin(angles)], 1)
    around = np.array(points.get(beside, [0.0, 0.0])) + circle
    room = np.linalg.norm(around[:, None] - taken[None], axis=2).min(1)
    return [float(part) for part in around[np.argsort(-room, kind="stable")[0]]]


# -- pictures


def _data_url(text: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}"


def image(markup: Markup, style: str, label: str, name: str = "picture") -> Any:
    """An SVG as an image, in which nothing can run."""
    text = str(markup).replace("<svg ", f"<svg {XMLNS} ", 1)
    text = text.replace(">", f"><style>{style}{PICTURE_COLOUR}</style>", 1)
    pair = " pair" if 'class="cf2-graph cf2-pair"' in text else ""
    return html.Img(src=_data_url(text), alt=label, className=name + pair)


def svg_file(whatif: WhatIf, e: Explanation, removed: np.ndarray, edits: Sequence[Edit] = ()) -> str:
    """The explanation as one SVG file; after a change, what is removed, added and changed instead."""
    drawn = scene_of(whatif, e)
    if removed.any() or edits:
        now = replace(e, selected=removed, question="counterfactual")
        others = list(whatif.explanations(e.key).values())
        drawn = _with_edits(whatif, e, scene(now, whatif.context_of(e), others), edits)
    text = str(svg.picture(drawn, describe_target(e), molecule=whatif.is_molecule))
    text = text.replace("<svg ", f'<svg {XMLNS} color="{LIGHT["text"]}" ', 1)
    return text.replace(">", f"><style>{svg.STYLE}</style>", 1)


def _with_edits(whatif: WhatIf, e: Explanation, drawn: Scene, edits: Sequence[Edit]) -> Scene:
    """The scene with what the user has added and changed, as far as its nodes are drawn."""
    local = {node: position for position, node in enumerate(drawn.nodes.tolist())}
    pairs, changed = [], dict(drawn.changed)
    for edit in edits:
        if edit[0] == "add" and edit[1] in local and edit[2] in local:
            pairs.append([local[edit[1]], local[edit[2]]])
        elif edit[0] == "change" and edit[1] in local:
            text = describe_edit(edit, whatif.graph(e.key), whatif.atoms, e.directed)
            changed[local[edit[1]]] = text.split(" ", 2)[2]  # without 'node 3,' or 'atom 3:'
    added = np.concatenate([drawn.added, np.array(pairs, dtype=np.int64).reshape(-1, 2)])
    return replace(drawn, edited=True, added=added, changed=changed)
