"""How far graphs are from counterfactual graphs, and how many of them lie near one: GCFExplainer's coverage.

Kosan et al. (Global Counterfactual Explainer for Graph Neural Networks, WSDM 2023, section 2) define for graphs G and C
the normalised edit distance d(G, C) = GED(G, C) / (|V_G| + |V_C| + |E_G| + |E_C|), and the coverage of a set ℂ of
counterfactual graphs at cost θ as the share of the input graphs G with min over C in ℂ of d(G, C) ≤ θ. An edit inserts,
removes or relabels a node, or inserts or removes an edge; each costs 1. They estimate GED by a neural network. Here it
is bounded from both sides: an assignment of nodes gives a lower bound (the branch bound of Blumenthal and Gamper), and
what that assignment really costs is an upper one. So a graph is surely covered, surely not, or neither is known.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np

from cf2.patterns.labelled import LabelledGraphs


class Bounds(NamedTuple):
    """Between what an edit distance lies."""

    low: float
    high: float


HINT = 0.2  # what a neighbourhood that differs costs in the second assignment, which only gives upper bounds
SWAPS = 60  # exchanges of two nodes of an assignment


def ged_bounds(one: LabelledGraphs, a: int, other: LabelledGraphs, b: int, enough: float = 0.0) -> Bounds:
    """Bounds of the edit distance between graph `a` of one collection and `b` of another; labels by their names.

    The upper one is only looked for as long as it is not `enough`.
    """
    first, second = _matrix(one, a), _matrix(other, b)
    if len(first[0]) > len(second[0]):
        first, second = second, first
    (names, near), (others, far) = first, second
    from scipy.optimize import linear_sum_assignment

    missing = len(others) - len(names)
    cost = (names[:, None] != others[None]) + 0.5 * np.abs(near.sum(1)[:, None] - far.sum(1)[None])
    cost = np.concatenate([cost, np.repeat((1 + 0.5 * far.sum(1))[None], missing, 0)])
    rows, columns = linear_sum_assignment(cost)
    low = float(np.ceil(cost[rows, columns].sum() - 1e-9))
    # Nodes of one label and degree are many, so the second assignment looks at what is around them, too.
    hints = _around(names, near)[:, None] != _around(others, far)[None]
    cost[: len(names)] += HINT * hints.sum(2)
    place = linear_sum_assignment(cost)[1]
    padded, label = np.zeros_like(far), np.concatenate([names, np.full(missing, "\0")])
    padded[: len(near), : len(near)] = near
    return Bounds(low, _improved(padded, far, label, others, place, max(low, enough)))


def _cost(near: np.ndarray, far: np.ndarray, label: np.ndarray, others: np.ndarray, place: np.ndarray) -> float:
    """What it takes to turn one graph into the other when node i becomes node place[i]."""
    return float((label != others[place]).sum() + (near != far[np.ix_(place, place)]).sum() / 2)


def _improved(
    near: np.ndarray, far: np.ndarray, label: np.ndarray, others: np.ndarray, place: np.ndarray, enough: float
) -> float:
    """The cost of an assignment after two nodes were exchanged, the best two each time, while that made it cheaper."""
    best = _cost(near, far, label, others, place)
    mine = near.astype(float)
    for _ in range(SWAPS):
        if best <= enough:
            break
        theirs = far[np.ix_(place, place)].astype(float)
        shared = mine @ theirs
        own = np.diag(shared)
        edges = shared + shared.T - own[:, None] - own[None] + 2 * mine * theirs  # edges that then coincide, too
        differ = (label[:, None] != others[place][None]).astype(float)
        kept = np.diag(differ)
        change = differ + differ.T - kept[:, None] - kept[None] - 2 * edges
        i, j = np.unravel_index(np.argmin(change), change.shape)
        if change[i, j] >= 0:
            break
        place = place.copy()
        place[i], place[j] = place[j], place[i]
        best = _cost(near, far, label, others, place)
    return best


def _around(names: np.ndarray, joined: np.ndarray) -> np.ndarray:
    """What lies one, two and three hops around each node, as a number each [n, 3]."""
    now = np.array([zlib.crc32(str(name).encode()) for name in names], np.uint64)
    found = []
    for _ in range(3):
        mixed = (now ^ (now >> np.uint64(13))) * np.uint64(0x9E3779B97F4A7C15)
        now = now * np.uint64(1_000_003) + (joined.astype(np.uint64) * (mixed ^ (mixed >> np.uint64(29)))).sum(1)
        found.append(now)
    return np.stack(found, 1)


def _matrix(graphs: LabelledGraphs, row: int) -> tuple[np.ndarray, np.ndarray]:
    """The names of the nodes of a graph, and which of them are joined, in either direction."""
    start, end = graphs.ptr[row : row + 2]
    names = np.array(graphs.names)[graphs.label[start:end]]
    joined = np.zeros((end - start, end - start), np.int8)
    tail, head = (graphs.edges[graphs.edge_ptr[row] : graphs.edge_ptr[row + 1]] - start).T
    joined[tail, head] = joined[head, tail] = 1
    return names, joined


class Covered(NamedTuple):
    """Which graphs [G] lie within θ of one of the chosen counterfactual graphs: surely, and possibly."""

    chosen: tuple[int, ...]
    surely: np.ndarray
    possibly: np.ndarray


def cover(graphs: LabelledGraphs, counterfactuals: LabelledGraphs, theta: float, count: int) -> Covered:
    """At most `count` counterfactual graphs, chosen greedily so that most graphs surely lie within θ of one."""
    surely = np.zeros((len(graphs), len(counterfactuals)), bool)
    possibly = np.zeros_like(surely)
    total = _sizes(graphs)[:, None] + _sizes(counterfactuals)[None]
    for row, column in zip(*np.nonzero(_quick(graphs, counterfactuals) <= theta * total + 1e-9)):
        allowed = theta * total[row, column] + 1e-9
        bounds = ged_bounds(graphs, row, counterfactuals, column, np.floor(allowed))
        surely[row, column], possibly[row, column] = bounds.high <= allowed, bounds.low <= allowed
    chosen: list[int] = []
    covered = np.zeros(len(graphs), bool)
    while len(chosen) < count:
        gain = (surely & ~covered[:, None]).sum(0)
        if not len(gain) or not gain.max():
            break
        chosen.append(int(np.flatnonzero(gain == gain.max())[0]))
        covered |= surely[:, chosen[-1]]
    return Covered(tuple(chosen), covered, np.asarray(possibly[:, chosen].any(1)))


def _sizes(graphs: LabelledGraphs) -> np.ndarray:
    return np.asarray(np.diff(graphs.ptr) + np.diff(graphs.edge_ptr))


def _quick(graphs: LabelledGraphs, others: LabelledGraphs) -> np.ndarray:
    """A lower bound of the edit distance of every pair [G, C]: labels that differ, and numbers of edges."""
    names = sorted({*graphs.names, *others.names})

    def counts(given: LabelledGraphs) -> np.ndarray:
        found = np.zeros((len(given), len(names)), np.int64)
        found[:, [names.index(name) for name in given.names]] = given.label_counts[:, : len(given.names)]
        return found

    mine, theirs = counts(graphs), counts(others)
    common = np.stack([np.minimum(mine, row).sum(1) for row in theirs], 1)
    most = np.maximum(np.diff(graphs.ptr)[:, None], np.diff(others.ptr)[None])
    edges = np.abs(np.diff(graphs.edge_ptr)[:, None] - np.diff(others.edge_ptr)[None])
    return np.asarray(most - common + edges)
