"""Where the nodes of a graph go: the same place in every picture of the same instance.

Positions depend on the graph and the target alone, never on the explanation, so that two pictures can
be laid side by side. They minimise the stress Σ (|p_i - p_j| - d_ij)² / d_ij² over graph distances d, from a
fixed start.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import shortest_path

STEPS = 120
NEAR = 70  # a graph of more nodes than `LARGE` is laid out for this many around the target
LARGE = 120


def hops(edges: np.ndarray, count: int, source: int) -> np.ndarray:
    """How far every node is from `source`, as whole steps; `count` where there is no path."""
    found = shortest_path(_matrix(edges, count), directed=False, unweighted=True, indices=source)
    return np.where(np.isfinite(found), found, count).astype(np.int64)


def nearest(edges: np.ndarray, count: int, source: int, wanted: int = NEAR) -> np.ndarray:
    """The `wanted` nodes around `source`: nearer ones first, and of two as near the one with the lower id."""
    away = hops(edges, count, source)
    return np.sort(np.lexsort((np.arange(count), away))[:wanted])


def positions(edges: np.ndarray, count: int, target: int) -> np.ndarray:
    """A point [count, 2] for every local node; about one unit along every edge; the target at the origin.

    `edges` is [e, 2]; `target` is -1 for a whole graph, whose centre is then its busiest node.
    """
    if count == 0:
        return np.zeros((0, 2))
    centre = target if target >= 0 else busiest(edges, count)
    if count <= LARGE:
        return _turn(_stress(_distances(edges, count), hops(edges, count, centre)), centre)
    base = nearest(edges, count, centre)
    local = np.full(count, -1)
    local[base] = np.arange(len(base))
    inner = edges[(local[edges] >= 0).all(1)]
    middle = int(local[centre])
    away = hops(local[inner], len(base), middle)
    placed = _turn(_stress(_distances(local[inner], len(base)), away), middle)
    return _attach(edges, count, base, placed)


def busiest(edges: np.ndarray, count: int) -> int:
    """The node with the most edges, the first of several."""
    return int(np.bincount(edges.reshape(-1), minlength=count).argmax())


def _matrix(edges: np.ndarray, count: int) -> coo_matrix:
    ones = np.ones(len(edges))
    return coo_matrix((ones, (edges[:, 0], edges[:, 1])), shape=(count, count)).tocsr()


def _distances(edges: np.ndarray, count: int) -> np.ndarray:
    found = shortest_path(_matrix(edges, count), directed=False, unweighted=True)
    finite = found[np.isfinite(found)]
    # Parts that do not touch are drawn a little further apart than the widest part is wide.
    return np.asarray(np.where(np.isfinite(found), found, min(finite.max(initial=0.0), 4.0) + 1.5))


def _stress(distances: np.ndarray, rings: np.ndarray) -> np.ndarray:
    """Stress majorisation from a start on rings around the centre."""
    count = len(distances)
    if count == 1:
        return np.zeros((1, 2))
    golden = np.arange(count) * (np.pi * (3 - np.sqrt(5)))
    radius = np.minimum(rings, distances.max()) + 0.3
    points: np.ndarray = radius[:, None] * np.stack([np.cos(golden), np.sin(golden)], 1)
    weight = 1.0 / np.maximum(distances, 1e-9) ** 2
    np.fill_diagonal(weight, 0.0)
    laplacian = np.diag(weight.sum(1)) - weight
    inverse = np.linalg.pinv(laplacian)
    pull = weight * distances
    for _ in range(STEPS):
        gap = points[:, None] - points[None]
        length = np.sqrt((gap**2).sum(2))
        ratio = np.where(length > 1e-9, pull / np.maximum(length, 1e-9), 0.0)
        points = inverse @ (ratio.sum(1)[:, None] * points - ratio @ points)
    return points


def _turn(points: np.ndarray, centre: int) -> np.ndarray:
    """Turned so that the long side lies flat, and moved so that the centre is the origin."""
    if len(points) < 2:
        return np.asarray(points - points[centre])
    middle = points - points.mean(0)
    _, axes = np.linalg.eigh(middle.T @ middle)
    turned = middle @ axes[:, ::-1]
    sign = np.where(turned[np.abs(turned).argmax(0), [0, 1]] < 0, -1.0, 1.0)
    return np.asarray((turned - turned[centre]) * sign)


def _attach(edges: np.ndarray, count: int, base: np.ndarray, placed: np.ndarray) -> np.ndarray:
    """Places for the nodes beyond the base: each one step outward from its nearest placed neighbour."""
    points = np.zeros((count, 2))
    points[base] = placed
    known = np.zeros(count, dtype=bool)
    known[base] = True
    both = np.concatenate([edges, edges[:, ::-1]])
    while True:
        reach = both[known[both[:, 0]] & ~known[both[:, 1]]]
        if not len(reach):
            break
        node, first = np.unique(reach[:, 1], return_index=True)
        parent = reach[first, 0]
        outward = np.arctan2(points[parent, 1], points[parent, 0]) + ((node * 0.618) % 1.0 - 0.5) * 2.0
        points[node] = points[parent] + np.stack([np.cos(outward), np.sin(outward)], 1)
        known[node] = True
    rest = np.flatnonzero(~known)
    radius = np.abs(points).max(initial=1.0) + 1.0
    angle = rest * 2.399963
    points[rest] = radius * np.stack([np.cos(angle), np.sin(angle)], 1)
    return points
