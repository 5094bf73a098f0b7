"""How alike graphs are by the neighbourhoods of their nodes: Weisfeiler and Leman's colours, all graphs at once."""

from __future__ import annotations

import numpy as np

from cf2.results.labelled import GraphRow, LabelledGraphs
from cf2.results.pattern import Pattern

ROUNDS = 3


def distances(pattern: Pattern, graphs: LabelledGraphs) -> np.ndarray:
    """For every graph [G], 1 less the share of colours that it has in common with a pattern.

    With c_G(k) the number of nodes of G that have colour k after up to three rounds, that is
    1 - Σ_k min(c_P(k), c_G(k)) / Σ_k max(c_P(k), c_G(k)).
    """
    row = GraphRow(
        0,
        [label or "" for label in pattern.labels],
        np.zeros(len(pattern.labels), np.int64),
        np.array(pattern.edges, np.int64).reshape(-1, 2),
        [label or "" for label in pattern.edge_labels],
    )
    one = LabelledGraphs.join([row], pattern.directed)
    known = sorted({*one.names, *graphs.names}), sorted({*one.edge_names, *graphs.edge_names})
    mine, theirs = colours(one, *known), colours(graphs, *known)
    distinct, count = np.unique(mine, return_counts=True)
    place = np.minimum(np.searchsorted(distinct, theirs), len(distinct) - 1)
    hit = distinct[place] == theirs
    owner = np.repeat(graphs.graph_of, ROUNDS + 1).reshape(-1, ROUNDS + 1)
    counts = np.zeros((len(graphs), len(distinct)), np.int64)
    np.add.at(counts, (owner[hit], place[hit]), 1)
    common = np.minimum(counts, count).sum(1)
    total = len(mine.reshape(-1)) + (ROUNDS + 1) * np.diff(graphs.ptr) - common
    return np.asarray(1 - common / total)


def colours(graphs: LabelledGraphs, names: list[str], edge_names: list[str]) -> np.ndarray:
    """A colour per node and round [N, rounds + 1] as a 64-bit hash; labels by their place in the lists."""
    labels = np.array([names.index(name) for name in graphs.names], np.uint64)
    kinds = np.array([edge_names.index(name) for name in graphs.edge_names], np.uint64)
    pointer, other, kind, _ = graphs.adjacency
    source = np.repeat(np.arange(len(graphs.label)), np.diff(pointer))
    edge = kinds[kind // 3] * np.uint64(3) + (kind % 3).astype(np.uint64)
    now = _mixed(labels[graphs.label] + np.uint64(1))
    found = [now]
    for _ in range(ROUNDS):
        around = np.zeros(len(now), np.uint64)
        np.add.at(around, source, _mixed(now[other] * np.uint64(31) + edge))
        now = _mixed(now * np.uint64(1_000_003) + around)
        found.append(now)
    return np.stack(found, 1)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Bits spread over 64 (splitmix64's finaliser), so that sums of different neighbours differ."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))
