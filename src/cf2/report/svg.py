"""Pictures as inline SVG: small, sharp, and coloured by the page's own light or dark style."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from cf2.report.scene import EXPLANATION, NEW, OTHER, TARGET, TRUTH, Scene, before_and_after

WIDTH, HEIGHT, MARGIN = 420, 320, 22
BELOW = 34  # room for a word below a picture
EDGE = 56.0  # how long an edge of a small graph is

STYLE = f"""
.cf2-graph {{ width: 100%; height: auto; max-width: {WIDTH}px; display: block; color: inherit; }}
.cf2-edge {{ stroke: #8a8f98; stroke-width: 1.1; stroke-opacity: .55; fill: none; }}
.cf2-true {{ stroke: {TRUTH}; stroke-width: 9; stroke-opacity: .42; stroke-linecap: round; fill: none; }}
.cf2-chosen {{ stroke: {EXPLANATION}; stroke-width: 3.4; stroke-linecap: round; fill: none; }}
.cf2-molecule.cf2-true {{ stroke-width: 19; stroke-opacity: .35; }}
.cf2-bond {{ stroke: {EXPLANATION}; stroke-width: 10; stroke-opacity: .62; stroke-linecap: round;
  fill: none; }}
.cf2-node {{ fill: #9aa1ac; stroke: none; }}
.cf2-in {{ fill: {EXPLANATION}; }}
.cf2-marked {{ fill: #F0E442; stroke: #5c5600; stroke-width: 1; }}
.cf2-target {{ fill: none; stroke: {TARGET}; stroke-width: 2.6; }}
.cf2-pair {{ max-width: {2 * WIDTH}px; }}
.cf2-removed {{ stroke: {EXPLANATION}; stroke-width: 1.8; stroke-dasharray: 3 3; fill: none; }}
.cf2-cross {{ stroke: {EXPLANATION}; stroke-width: 2.4; stroke-linecap: round; fill: none; }}
.cf2-added {{ stroke: {NEW}; stroke-width: 3.4; stroke-dasharray: 8 5; fill: none; }}
.cf2-molecule.cf2-added {{ stroke-width: 8; stroke-opacity: .6; stroke-dasharray: 7 4; }}
.cf2-changed {{ fill: none; stroke: {OTHER}; stroke-width: 2.6; stroke-dasharray: 4 2; }}
.cf2-text {{ font: 600 11px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central;
  fill: currentColor; }}
.cf2-small {{ font: 9px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central;
  fill: currentColor; fill-opacity: .85; }}
.cf2-larger {{ font-size: 15px; }}
.cf2-word {{ font-size: 22px; }}
"""


def picture(scene: Scene, title: str, *, molecule: bool = False) -> Markup:
    """The scene as one SVG element that says to a screen reader what it shows.

    An edited molecule is drawn before and after, side by side.
    """
    height = _height(scene)
    drawn = [_molecule(one, height) for one in before_and_after(scene) if molecule]
    if not drawn or None in drawn:
        return _element("cf2-graph", WIDTH, height, title, _graph(scene, height))
    if len(drawn) == 1:
        return _element("cf2-graph", WIDTH, height, title, Markup(drawn[0]))
    return _element("cf2-graph cf2-pair", 2 * WIDTH, height + BELOW, title, _side_by_side(drawn, height + BELOW / 2))


def _element(kind: str, width: int, height: int, title: str, inner: Markup) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        kind, width, height, title, inner
    )


def _molecule(scene: Scene, height: int) -> str | None:
    """A molecule as chemists draw it; what is added, taken away or changed is marked. None where it is none."""
    from cf2.report.molecules import drawing

    made = drawing(scene, WIDTH, height)
    if made is None:
        return None
    text, at = made
    put = Markup('<text class="cf2-small cf2-larger" x="{}" y="{}">{}</text>')
    words = [put.format(*_short(*(at[atom] + [0, 20])), change[:40]) for atom, change in scene.changed.items()]
    added = _lines("cf2-molecule cf2-added", at, scene.added)
    return str(Markup("").join([added, Markup(text), _struck(scene, at, 6.0), *words]))


def _side_by_side(drawn: Sequence[str | None], below: float) -> Markup:
    """Drawings in a row, with a word below each."""
    part = Markup('<g transform="translate({} 0)">{}<text class="cf2-small cf2-word" x="{}" y="{}">{}</text></g>')
    words = ("before", "after")
    return Markup("").join(
        part.format(WIDTH * place, Markup(text), WIDTH / 2, below, words[place]) for place, text in enumerate(drawn)
    )


def _height(scene: Scene) -> int:
    """As high as the graph is when it fills the width, within bounds."""
    if not len(scene.points):
        return 110
    span = np.maximum(np.ptp(scene.points, axis=0), 1e-9)
    scale = min((WIDTH - 2 * MARGIN) / span[0], EDGE)
    return int(np.clip(span[1] * scale + 2 * MARGIN + 16, 110, HEIGHT))


def fit(points: np.ndarray, width: float, height: float, margin: float) -> np.ndarray:
    """Points scaled by one factor, at most so that an edge is `EDGE` long, and centred in a box."""
    if not len(points):
        return points
    low, high = points.min(0), points.max(0)
    span = np.maximum(high - low, 1e-9)
    scale = min((width - 2 * margin) / span[0], (height - 2 * margin) / span[1], EDGE)
    return np.asarray((points - (low + high) / 2) * scale + np.array([width, height]) / 2)


def _graph(scene: Scene, height: int) -> Markup:
    at = fit(scene.points * [1, -1], WIDTH, height, MARGIN)
    count = len(scene.nodes)
    radius = 7.0 if count <= 25 else 5.0 if count <= 60 else 3.6
    parts = [
        _lines("cf2-true", at, scene.edges[scene.true]),
        _lines("cf2-edge", at, scene.edges[~scene.chosen]),
        _lines("cf2-removed" if scene.edited else "cf2-chosen", at, scene.edges[scene.chosen]),
        _lines("cf2-added", at, scene.added),
    ]
    if scene.directed:
        parts.append(_arrows(at, scene, radius))
    parts += [_node(scene, at, node, radius) for node in range(count)]
    ring = Markup('<circle class="cf2-target" cx="{}" cy="{}" r="{}"/>')
    parts += [ring.format(*_short(*at[target]), radius + 4) for target in scene.targets]
    ring = Markup('<circle class="cf2-changed" cx="{}" cy="{}" r="{}"/>')
    outer = {node: 8 if node in scene.targets else 4 for node in scene.changed}
    parts += [ring.format(*_short(*at[node]), radius + more) for node, more in outer.items()]
    parts.append(_struck(scene, at, 4.5))
    parts += _labels(scene, at, radius) + _legend(scene)
    return Markup("").join(parts)


def _struck(scene: Scene, at: np.ndarray, reach: float) -> Markup:
    """A cross on everything that a counterfactual takes away, which is seen without colours, too."""
    if not scene.edited:
        return Markup("")
    ends = scene.edges[scene.chosen]
    spots = [*((at[ends[:, 0]] + at[ends[:, 1]]) / 2).tolist(), *at[np.flatnonzero(scene.lost)].tolist()]
    path = "".join(
        f"M{x - reach:.1f} {y - reach:.1f}L{x + reach:.1f} {y + reach:.1f}"
        f"M{x - reach:.1f} {y + reach:.1f}L{x + reach:.1f} {y - reach:.1f}"
        for x, y in spots
    )
    return Markup('<path class="cf2-cross" d="{}"/>').format(path) if path else Markup("")


def _node(scene: Scene, at: np.ndarray, node: int, radius: float) -> Markup:
    kind = "cf2-node cf2-marked" if scene.marked[node] else "cf2-node cf2-in" if scene.inside[node] else "cf2-node"
    x, y = _short(*at[node])
    if scene.labels and scene.labels[node] and len(scene.nodes) <= 60:
        return Markup("")  # the label stands in the node's place
    colour = scene.colour(node)
    if colour:
        wide = 2 if scene.inside[node] or scene.marked[node] else 0
        put = Markup('<circle style="fill:{};stroke:{};stroke-width:{}" cx="{}" cy="{}" r="{}"/>')
        return put.format(colour, EXPLANATION, wide, x, y, radius)
    return Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(kind, x, y, radius)


def _legend(scene: Scene) -> list[Markup]:
    """The types and their colours, below each other in a corner."""
    put = Markup(
        '<circle style="fill:{}" cx="8" cy="{}" r="4"/>'
        '<text class="cf2-small" style="text-anchor:start" x="16" y="{}">{}</text>'
    )
    return [put.format(colour, 10 + 13 * n, 10 + 13 * n, name) for n, (colour, name) in enumerate(scene.legend)]


def _labels(scene: Scene, at: np.ndarray, radius: float) -> list[Markup]:
    """Labels instead of nodes where they have any; else the ids of the nodes that matter."""
    put = Markup('<text class="cf2-small" x="{}" y="{}">{}</text>')
    below = [put.format(*_short(*(at[n] + [0, radius + 15])), text[:40]) for n, text in scene.changed.items()]
    if scene.labels and len(scene.nodes) <= 60:
        few = len(scene.nodes) <= 25 and max(map(len, scene.labels)) <= 2
        name = Markup('<text class="{}" x="{}" y="{}">{}</text>')
        kind = "cf2-text cf2-larger" if few else "cf2-text"
        return [name.format(kind, *_short(x, y), label[:6]) for (x, y), label in zip(at, scene.labels)] + below
    if len(scene.special) > 24:
        return below
    reach = np.full((len(at), 1), radius + 8)
    reach[[*scene.targets, *scene.changed]] += 5  # outside of the ring
    spots = at + scene.outward * [1, -1] * reach
    return [put.format(*_short(*spots[n]), scene.text(n)) for n in scene.special] + below


def _lines(kind: str, at: np.ndarray, edges: np.ndarray) -> Markup:
    if not len(edges):
        return Markup("")
    ends = np.concatenate([at[edges[:, 0]], at[edges[:, 1]]], 1).tolist()
    path = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for a, b, c, d in ends)
    return Markup('<path class="{}" d="{}"/>').format(kind, path)


def _arrows(at: np.ndarray, scene: Scene, radius: float) -> Markup:
    parts = []
    chosen = "cf2-removed" if scene.edited else "cf2-chosen"
    sorts = (("cf2-edge", scene.edges[~scene.chosen]), (chosen, scene.edges[scene.chosen]), ("cf2-added", scene.added))
    for kind, edges in sorts:
        path = []
        for a, b in edges.tolist():
            way = at[b] - at[a]
            way = way / max(float(np.hypot(*way)), 1e-9)
            tip, side = at[b] - way * (radius + 1), np.array([-way[1], way[0]])
            left, right = tip - way * 7 + side * 3.5, tip - way * 7 - side * 3.5
            path.append(f"M{left[0]:.1f} {left[1]:.1f}L{tip[0]:.1f} {tip[1]:.1f}L{right[0]:.1f} {right[1]:.1f}")
        if path:
            parts.append(Markup('<path class="{}" d="{}"/>').format(kind, "".join(path)))
    return Markup("").join(parts)


def _short(x: float, y: float) -> tuple[str, str]:
    return f"{x:.1f}", f"{y:.1f}"
