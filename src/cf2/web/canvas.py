"""The graph as cytoscape draws it: nodes, edges and their looks, on a light page and on a dark one."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from cf2.report.molecules import plain_drawing
from cf2.report.scene import EXPLANATION, TARGET, TRUTH, Scene
from cf2.report.words import key_id
from cf2.results.explanation import Explanation
from cf2.units.edits import ADD, CHANGE
from cf2.web.whatif import Edit, absent

SCALE = 62.0  # pixels per edge
NAMED = 40  # nodes of which all have their ids; of more, those that matter
DASHES = {"line-style": "dashed", "line-dash-pattern": [9, 5]}
# The colours of the page: of texts, what surrounds them, nodes, edges, and what is behind all.
LIGHT = {"text": "#1c2330", "halo": "#ffffff", "node": "#9aa1ac", "edge": "#8a8f98", "back": "#fbfcfe"}
DARK = {"text": "#e6e9ef", "halo": "#181d26", "node": "#77808f", "edge": "#7d8694", "back": "#181d26"}
SCHEMES = {"light": LIGHT, "dark": DARK}
BRIGHTER = {"#0072B2": "#56B4E9", "#008C66": "#4FD3A5", "#737373": "#AAB2C0"}  # colours of elements on a dark page
LAYERS = {"z-index-compare": "manual"}  # a molecule's drawing lies over the marks of bonds, and under what covers them


def colours(scheme: object) -> dict[str, str]:
    """The colours of a scheme that the browser names; light for any that is not known."""
    return SCHEMES.get(scheme, LIGHT) if isinstance(scheme, str) else LIGHT


@lru_cache(maxsize=2)
def _styles(dark: bool) -> tuple[dict[str, Any], ...]:
    c = DARK if dark else LIGHT
    atom = {"background-opacity": 0, "width": 26, "height": 26, "text-opacity": 0, "z-index": 3, **LAYERS}
    looks: dict[str, dict[str, Any]] = {
        "node": {"background-color": c["node"], "width": 16, "height": 16},
        "node[label]": {
            "label": "data(label)",
            "font-size": 11,
            "color": c["text"],
            "text-outline-color": c["halo"],
            "text-outline-width": 2,
            "text-valign": "top",
            "text-margin-y": -2,
        },
        ".named": {"text-valign": "center", "text-margin-y": 0, "font-size": 14, "background-color": c["back"]},
        ".inside": {"background-color": EXPLANATION},
        ".named.inside": {"background-color": "#8a4a1f" if dark else "#ffd3b5", "text-outline-width": 0},
        ".marked": {"background-color": "#F0E442", "border-width": 1, "border-color": "#5c5600"},
        ".typed": {"background-color": "data(colour)"},
        ".typed.inside": {"border-width": 3, "border-color": EXPLANATION},
        ".target": {"border-width": 4, "border-color": TARGET, "width": 22, "height": 22},
        "edge": {"line-color": c["edge"], "width": 1.6, "curve-style": "haystack"},
        ".arrow": {"curve-style": "bezier", "target-arrow-shape": "triangle", "target-arrow-color": c["edge"]},
        ".true": {"underlay-color": TRUTH, "underlay-opacity": 0.35, "underlay-padding": 6},
        ".added": {"line-color": ADD.colour, "target-arrow-color": ADD.colour, "width": 5, **DASHES},
        ".changed": {"border-width": 3, "border-color": CHANGE.colour, "border-style": "dashed"},
        ".chosen": {"line-color": EXPLANATION, "target-arrow-color": EXPLANATION, "width": 5},
        ".drawing": {
            "shape": "rectangle",
            "background-opacity": 0,
            "background-image": "data(image)",
            "background-width": "100%",
            "background-height": "100%",
            "width": "data(width)",
            "height": "data(height)",
            "events": "no",
            "z-index": 1,
            **LAYERS,
        },
        ".atom": atom,
        ".atom.marked": {"background-opacity": 0.5},
        ".atom.changed": {"text-opacity": 1, "text-valign": "bottom", "text-margin-y": 2, "font-size": 13},
        ".bond": {"line-opacity": 0, "width": 10, "z-index": 0, **LAYERS},
        ".bond.chosen": {"line-opacity": 0.62, "width": 14, "line-cap": "round"},
    }
    return tuple({"selector": selector, "style": style} for selector, style in looks.items())


def stylesheet(e: Explanation, removed: np.ndarray, scheme: object = "light") -> list[dict[str, Any]]:
    """The styles with the removed edges and nodes faded, and the edges that could be added, too.

    The drawing of a molecule cannot be changed, so what is removed of one is covered.
    """
    c = colours(scheme)
    key, nodes, extra = key_id(e.key), e.units.where("nodes"), absent(e)
    taken = [f"#k{key}u{unit}" for unit in np.flatnonzero(removed & ~extra).tolist()]
    taken += [f"#k{key}n{node}" for node in e.units.ids[nodes[removed[nodes]], 0].tolist()]
    waiting = [f"#k{key}u{unit}" for unit in np.flatnonzero(e.selected & extra & ~removed).tolist()]
    faded = {"line-style": "dashed", "line-dash-pattern": [3, 6], "opacity": 0.35, "line-color": c["edge"]}
    # Straight edges end where their nodes begin, so that the letters of atoms stay free.
    covered = {"line-color": c["edge"], "width": 2, "line-opacity": 1, "z-index": 2, "curve-style": "straight"}
    covered |= {"underlay-color": c["back"], "underlay-opacity": 0.9, "underlay-padding": 6, "line-cap": "butt"}
    covered |= {"opacity": 1, "background-color": c["back"], "background-opacity": 0.8}
    looks = (
        (waiting, {"opacity": 0.4, "width": 3}),
        (taken, faded),
        ([f".{kind}{one}" for one in taken for kind in ("bond", "atom")], covered),
    )
    styles = [{"selector": ", ".join(which), "style": style} for which, style in looks if which]
    return [*_styles(c is DARK), *styles]


def elements(
    e: Explanation,
    shown: Scene,
    edits: Sequence[Edit] = (),
    atoms: Sequence[str] | None = None,
    scheme: object = "light",
    molecule: bool = False,
) -> list[dict[str, Any]]:
    """The drawn part of the graph for cytoscape, with what the user has added and changed.

    Ids are different for every instance: cytoscape takes an edge with a known id for the edge it knows.
    """
    key, drawing = key_id(e.key), plain_drawing(shown) if molecule else None
    places = shown.points * [SCALE, -SCALE] if drawing is None else drawing.places
    changed = {edit[1]: edit for edit in edits if edit[0] == "change"}
    made = [] if drawing is None else [_drawing(drawing, f"k{key}drawing", scheme)]
    there = np.isfinite(places).all(1)
    for node in np.flatnonzero(there).tolist():
        x, y = places[node].tolist()
        facts = (("inside", shown.inside[node]), ("marked", shown.marked[node]), ("target", node in shown.targets))
        kinds = [name for name, holds in facts if holds]
        own = int(shown.nodes[node])
        kinds += ["changed"] if node in shown.changed or own in changed else []
        data: dict[str, Any] = {"id": f"k{key}n{own}", "label": shown.text(node), "node": own}
        if shown.labels:
            data["label"] = shown.labels[node]
            kinds.append("named" if drawing is None else "atom")
        elif len(shown.nodes) > NAMED and not kinds:
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
        if not (there[a] and there[b]):
            continue  # a hydrogen that is written at its neighbour
        looks = {"chosen": chosen, "true": true, "arrow": e.directed, "bond": drawing is not None}
        kinds = [name for name, holds in looks.items() if holds]
        data = {"source": f"k{key}n{shown.nodes[a]}", "target": f"k{key}n{shown.nodes[b]}"}
        data |= {"id": f"k{key}u{unit}", "unit": unit} if unit >= 0 else {}
        made.append({"data": data, "classes": " ".join(kinds)})
    spots = dict(zip(shown.nodes[there].tolist(), places[there].tolist()))
    return made + _new_edges(e, spots, edits)


def _drawing(drawing: Any, name: str, scheme: object) -> dict[str, Any]:
    """A chemist's drawing as one large node behind all others, in which nothing can run."""
    width, height = drawing.size
    sizes = f'width="{2 * width}" height="{2 * height}" viewBox="0 0 {width} {height}"'
    inside = drawing.text
    for plain, bright in BRIGHTER.items() if scheme == "dark" else ():
        inside = inside.replace(plain, bright)
    text = f'<svg xmlns="http://www.w3.org/2000/svg" {sizes} color="{colours(scheme)["text"]}">{inside}</svg>'
    image = f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}"
    data = {"id": name, "image": image, "width": width, "height": height}
    return {"data": data, "position": {"x": width / 2, "y": height / 2}, "classes": "drawing", "selectable": False}


def _changed_label(label: str, edit: Edit, atoms: Sequence[str] | None) -> str:
    _, _, column, value = edit
    is_element = atoms is not None and column < len(atoms)
    return f"{label} → {atoms[column]}" if is_element and atoms else f"{label}: feature {column} = {value:.4g}"


def _new_edges(e: Explanation, spots: dict[int, list[float]], edits: Sequence[Edit]) -> list[dict[str, Any]]:
    """The edges that the explanation would add, which can be clicked, and those that the user has added.

    An end that is not drawn gets a place beside the other one.
    """
    key, rows = key_id(e.key), e.units.where(ADD.unit_kind)
    units = {tuple(e.units.ids[row].tolist()): row for row in rows[e.selected[rows]].tolist()}
    pairs = list(units.items())
    pairs += [((int(edit[1]), int(edit[2])), -1) for edit in edits if edit[0] == "add" and edit[1:] not in units]
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
