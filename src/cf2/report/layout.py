"""Where the nodes of a graph go: the same place in every picture of the same instance.

Positions depend on the graph and the target alone, never on the explanation, so that two pictures can
be laid side by side. They are networkx's Kamada-Kawai layout from a fixed start.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import shortest_path

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


def positions(edges: np.ndarray, count: int, centre: int) -> np.ndarray:
    """A point for every node; about one unit along every edge; the centre at the origin.

    Parameters
    ----------
    edges : ndarray of int, shape [edges, 2]
        Local ids below `count`.
    count, centre : int
        How many nodes there are, and the one in the middle.

    Returns
    -------
    ndarray, shape [count, 2]
    """
    if count <= LARGE:
        return _turn(_kamada_kawai(edges, count, centre), centre)
    base = nearest(edges, count, centre)
    local = np.full(count, -1)
    local[base] = np.arange(len(base))
    inner = local[edges[(local[edges] >= 0).all(1)]]
    middle = int(local[centre])
    return _attach(edges, count, base, _turn(_kamada_kawai(inner, len(base), middle), middle))


def busiest(edges: np.ndarray, count: int) -> int:
    """The node with the most edges, the first of several."""
    return int(np.bincount(edges.reshape(-1), minlength=count).argmax())


def _matrix(edges: np.ndarray, count: int) -> coo_matrix:
    ones = np.ones(len(edges))
    return coo_matrix((ones, (edges[:, 0], edges[:, 1])), shape=(count, count)).tocsr()


def _kamada_kawai(edges: np.ndarray, count: int, centre: int) -> np.ndarray:
    """Networkx's layout from rings around the centre: 30 ms for 70 nodes, 90 ms for 120."""
    import networkx as nx

    if count == 1:
        return np.zeros((1, 2))
    wanted = shortest_path(_matrix(edges, count), directed=False, unweighted=True)
    finite = wanted[np.isfinite(wanted)]
    # Parts that do not touch are drawn a little further apart than the widest part is wide.
    wanted[~np.isfinite(wanted)] = min(finite.max(initial=0.0), 4.0) + 1.5
    golden = np.arange(count) * (np.pi * (3 - np.sqrt(5)))
    radius = np.minimum(hops(edges, count, centre), wanted.max()) + 0.3
    start = radius[:, None] * np.stack([np.cos(golden), np.sin(golden)], 1)
    distances = {node: dict(enumerate(row)) for node, row in enumerate(wanted.tolist())}
    found = nx.kamada_kawai_layout(nx.empty_graph(count), dist=distances, pos=dict(enumerate(start)))
    points = np.array([found[node] for node in range(count)])
    # networkx scales what it returns to the unit square.
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    return np.asarray(points * (wanted.sum() / gaps.sum()))


def _turn(points: np.ndarray, centre: int) -> np.ndarray:
    """Turned so that the long side lies flat, and moved so that the centre is the origin."""
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
