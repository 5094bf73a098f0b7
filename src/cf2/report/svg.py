"""Pictures as inline SVG: small, sharp, and coloured by the page's own light or dark style."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from cf2.report.scene import EXPLANATION, TARGET, TRUTH, Scene

WIDTH, HEIGHT, MARGIN = 420, 320, 22
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
.cf2-text {{ font: 600 11px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central;
  fill: currentColor; }}
.cf2-small {{ font: 9px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central;
  fill: currentColor; fill-opacity: .85; }}
"""


def picture(scene: Scene, title: str, *, molecule: bool = False) -> Markup:
    """The scene as one SVG element that says to a screen reader what it shows."""
    body, height = None, _height(scene)
    if molecule:
        from cf2.report.molecules import drawing

        body = drawing(scene, WIDTH, height)
    inner = Markup(body) if body is not None else _graph(scene, height)
    return Markup('<svg class="cf2-graph" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height, title, inner
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
        _lines("cf2-chosen", at, scene.edges[scene.chosen]),
    ]
    if scene.directed:
        parts.append(_arrows(at, scene, radius))
    parts += [_node(scene, at, node, radius) for node in range(count)]
    ring = Markup('<circle class="cf2-target" cx="{}" cy="{}" r="{}"/>')
    parts += [ring.format(*_short(*at[target]), radius + 4) for target in scene.targets]
    parts += _labels(scene, at, radius) + _legend(scene)
    return Markup("").join(parts)


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
    if scene.labels and len(scene.nodes) <= 60:
        put = Markup('<text class="cf2-text" x="{}" y="{}">{}</text>')
        return [put.format(*_short(x, y), label[:6]) for (x, y), label in zip(at, scene.labels)]
    if len(scene.special) > 24:
        return []
    put = Markup('<text class="cf2-small" x="{}" y="{}">{}</text>')
    reach = np.full((len(at), 1), radius + 8)
    reach[list(scene.targets)] += 5  # outside of the ring
    spots = at + scene.outward * [1, -1] * reach
    return [put.format(*_short(*spots[n]), scene.text(n)) for n in scene.special]


def _lines(kind: str, at: np.ndarray, edges: np.ndarray) -> Markup:
    if not len(edges):
        return Markup("")
    ends = np.concatenate([at[edges[:, 0]], at[edges[:, 1]]], 1).tolist()
    path = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for a, b, c, d in ends)
    return Markup('<path class="{}" d="{}"/>').format(kind, path)


def _arrows(at: np.ndarray, scene: Scene, radius: float) -> Markup:
    parts = []
    for kind, edges in (("cf2-edge", scene.edges[~scene.chosen]), ("cf2-chosen", scene.edges[scene.chosen])):
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
