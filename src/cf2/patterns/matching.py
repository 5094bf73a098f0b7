"""Where a pattern occurs, in many graphs at once.

Partial occurrences are rows of a table, one column per node of the pattern. A step joins the table with the edges of
all graphs: it adds a column, or drops the rows that lack an edge. So there is no loop over graphs or occurrences.
An occurrence needs the pattern's edges to be there; further edges between its nodes do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cf2.patterns.labelled import GraphRow, LabelledGraphs
from cf2.patterns.pattern import Label, Pattern

# -- matching --------------------------------------------------------------------------------------------


ROWS = 1_000_000  # rows of a table that are worked on at once
PER_GRAPH = 100_000  # rows that one graph may take, before it is left undecided
TRIED = 256  # rows per graph that a search for a single occurrence goes on with


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Every occurrence of a pattern, one of each set of leaves that are alike.

    `undecided` are graphs with too many to be listed; they have no rows here.
    """

    graph: np.ndarray  # [M], the graph of each
    nodes: np.ndarray  # [M, nodes of the pattern]
    undecided: np.ndarray  # [G] bool
    graphs: LabelledGraphs
    pattern: Pattern

    @property
    def contained(self) -> np.ndarray:
        """Which graphs contain the pattern [G], none of the undecided ones."""
        found = np.zeros(len(self.graphs), bool)
        found[self.graph] = True
        return found

    def edges(self) -> np.ndarray:
        """The edges of every occurrence [M, edges of the pattern]."""
        edge = self.graphs.adjacency[3]
        columns = []
        for (a, b), label in zip(self.pattern.edges, self.pattern.edge_labels):
            place = _place(self.graphs, self.nodes[:, a], self.nodes[:, b], label, self.pattern.directed)
            columns.append(edge[place])
        return np.stack(columns, 1) if columns else np.zeros((len(self.graph), 0), np.int64)

    def union(self) -> np.ndarray:
        """Which edges of the graphs are in any occurrence [E]."""
        found = np.zeros(len(self.graphs.edges), bool)
        found[self.edges().reshape(-1)] = True
        return found


class Step(NamedTuple):
    """One join: an edge of the pattern from a node that has a column to one that gets it, or has one as well."""

    edge: int
    known: int
    new: int
    closes: bool
    after: int  # a leaf that is like the new one and must have a smaller id, or -1


def occurrences(pattern: Pattern, graphs: LabelledGraphs, rows: np.ndarray | None = None) -> Occurrences:
    """Every occurrence of a pattern in the graphs, or in those whose `rows` [G, bool] are given."""
    none = np.zeros(0, np.int64), np.zeros((0, len(pattern.labels)), np.int64)
    undecided = np.zeros(len(graphs), bool)
    possible = _possible(pattern, graphs)
    possible = possible if rows is None or possible is None else possible & rows
    if possible is None or not possible.any() or pattern.directed != graphs.directed:
        return Occurrences(*none, undecided, graphs, pattern)
    first, steps = _plan(pattern, graphs)
    start = np.flatnonzero(possible[graphs.graph_of] & _fits(pattern, graphs, first, np.arange(len(graphs.label))))
    table = np.full((len(start), len(pattern.labels)), -1, np.int64)
    table[:, first] = start
    spent = np.zeros(len(graphs), np.int64)
    parts = list(_joined(pattern, graphs, steps, table, spent, undecided))
    nodes = np.concatenate([none[1], *parts])
    graph = graphs.graph_of[nodes[:, first]]
    good = ~undecided[graph]
    order = np.argsort(graph[good], kind="stable")
    return Occurrences(graph[good][order], nodes[good][order], undecided, graphs, pattern)


class Containing(NamedTuple):
    """Which graphs contain a pattern, and of which that is not known."""

    contained: np.ndarray  # [G] bool
    undecided: np.ndarray  # [G] bool


def containing(pattern: Pattern, graphs: LabelledGraphs, rows: np.ndarray | None = None) -> Containing:
    """Which graphs contain a pattern at all, or which of those whose `rows` [G, bool] are given.

    Of every graph the first few partial occurrences are followed. If none of them becomes a whole one and there were
    more, the graph is undecided; so each graph is decided by itself, whatever stands beside it.
    """
    found, undecided = np.zeros(len(graphs), bool), np.zeros(len(graphs), bool)
    possible = _possible(pattern, graphs)
    if possible is None or pattern.directed != graphs.directed:
        return Containing(found, undecided)
    candidates = np.flatnonzero(possible if rows is None else possible & rows)
    if not len(candidates):
        return Containing(found, undecided)
    first, steps = _plan(pattern, graphs)
    start = np.flatnonzero(_fits(pattern, graphs, first, np.arange(len(graphs.label))))
    for part in np.array_split(candidates, -(-len(candidates) * TRIED // ROWS) * 4):
        wanted = np.zeros(len(graphs), bool)
        wanted[part] = True
        mine = start[wanted[graphs.graph_of[start]]]
        table = np.full((len(mine), len(pattern.labels)), -1, np.int64)
        table[:, first] = mine
        for step in steps:
            table, more = _first_rows(table, graphs.graph_of[table[:, first]])
            undecided[more] = True
            table = _stepped(pattern, graphs, step, table)
        found[graphs.graph_of[table[:, first]]] = True
    return Containing(found, undecided & ~found)


def _first_rows(table: np.ndarray, graph: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of every graph, whose rows are next to each other; and the graphs that have more."""
    begins = np.concatenate([[True], graph[1:] != graph[:-1]]) if len(graph) else np.zeros(0, bool)
    number = np.arange(len(graph)) - np.maximum.accumulate(np.where(begins, np.arange(len(graph)), 0))
    return table[number < TRIED], np.unique(graph[number >= TRIED])


def _stepped(pattern: Pattern, graphs: LabelledGraphs, step: Step, table: np.ndarray) -> np.ndarray:
    """The table after one step."""
    if step.closes:
        a, b = pattern.edges[step.edge]
        place = _place(graphs, table[:, a], table[:, b], pattern.edge_labels[step.edge], pattern.directed)
        closed: np.ndarray = table[place >= 0]
        return closed
    pointer = graphs.adjacency[0]
    known = table[:, step.known]
    return _extended(pattern, graphs, step, table, pointer[known + 1] - pointer[known])


def _joined(
    pattern: Pattern,
    graphs: LabelledGraphs,
    steps: list[Step],
    table: np.ndarray,
    spent: np.ndarray,
    undecided: np.ndarray,
) -> Iterator[np.ndarray]:
    """The table after all steps, in parts; a table that would grow too large is worked on in two halves."""
    first = next(column for column in range(table.shape[1]) if len(table) == 0 or table[0, column] >= 0)
    pointer = graphs.adjacency[0]
    for number, step in enumerate(steps):
        table = table[~undecided[graphs.graph_of[table[:, first]]]]
        if not len(table):
            return
        known = table[:, step.known]
        if not step.closes and len(table) > 1 and (pointer[known + 1] - pointer[known]).sum() > ROWS:
            for half in np.array_split(table, 2):
                yield from _joined(pattern, graphs, steps[number:], half, spent, undecided)
            return
        table = _stepped(pattern, graphs, step, table)
        if not step.closes:
            spent += np.bincount(graphs.graph_of[table[:, first]], minlength=len(spent))
            undecided |= spent > PER_GRAPH
    yield table[~undecided[graphs.graph_of[table[:, first]]]]


def _extended(pattern: Pattern, graphs: LabelledGraphs, step: Step, table: np.ndarray, count: np.ndarray) -> np.ndarray:
    """One row per way to take the step."""
    pointer, other, kinds, _ = graphs.adjacency
    known = table[:, step.known]
    row = np.repeat(np.arange(len(table)), count)
    place = np.arange(len(row)) + np.repeat(pointer[known] - np.cumsum(count) + count, count)
    way = (1 if pattern.edges[step.edge][0] == step.known else 2) if pattern.directed else 0
    label = pattern.edge_labels[step.edge]
    good = kinds[place] % 3 == way
    if label is not None:
        good &= kinds[place] // 3 == (graphs.edge_names.index(label) if label in graphs.edge_names else -1)
    good[good] = _fits(pattern, graphs, step.new, other[place[good]])
    row, node = row[good], other[place[good]]
    fresh = (table[row] != node[:, None]).all(1)
    if step.after >= 0:
        fresh &= table[row, step.after] < node
    if label is None and len(node):  # two edges of different labels between the same nodes are one way to go
        fresh[1:] &= (row[1:] != row[:-1]) | (node[1:] != node[:-1])
    found: np.ndarray = table[row[fresh]]
    found[:, step.new] = node[fresh]
    return found


def _fits(pattern: Pattern, graphs: LabelledGraphs, node: int, candidates: np.ndarray) -> np.ndarray:
    """Which nodes of the graphs a node of the pattern may stand for."""
    label, mark = pattern.labels[node], pattern.marks[node]
    good = np.ones(len(candidates), bool) if label is None else graphs.label[candidates] == _code(graphs, label)
    return good & (graphs.mark[candidates] == mark) if mark else good


def _code(graphs: LabelledGraphs, label: Label) -> int:
    return graphs.names.index(label) if label in graphs.names else -1


def _place(graphs: LabelledGraphs, a: np.ndarray, b: np.ndarray, label: Label, directed: bool) -> np.ndarray:
    """The place in the adjacency of an edge from a to b with that label, -1 where there is none."""
    codes, order = graphs.pair_codes
    kinds = graphs.adjacency[2]
    wanted = graphs.pair_code(a, b, int(directed))
    if not len(codes):
        return np.full(len(a), -1)
    place = np.searchsorted(codes, wanted)
    found = np.full(len(a), -1)
    number = -1 if label is None else graphs.edge_names.index(label) if label in graphs.edge_names else -2
    for further in range(len(graphs.edge_names)):  # edges of several labels may join the same two nodes
        at = np.minimum(place + further, len(codes) - 1)
        hit = (place + further < len(codes)) & (codes[at] == wanted) & (found < 0)
        if number != -1:
            hit &= kinds[order[at]] // 3 == number
        found = np.where(hit, order[at], found)
    return found


def _possible(pattern: Pattern, graphs: LabelledGraphs) -> np.ndarray | None:
    """Graphs that have enough nodes of every label and edges between every two; None: no graph has a label."""
    good = np.ones(len(graphs), bool)
    labels = [label for label in pattern.labels if label is not None]
    if any(label not in graphs.names for label in labels):
        return None
    for label in set(labels):
        good &= graphs.label_counts[:, graphs.names.index(label)] >= labels.count(label)
    pairs: dict[tuple[str, str], int] = {}
    for a, b in pattern.edges:
        ends = pattern.labels[a], pattern.labels[b]
        if ends[0] is not None and ends[1] is not None:
            pair = (min(ends[0], ends[1]), max(ends[0], ends[1]))
            pairs[pair] = pairs.get(pair, 0) + 1
    if len(graphs.names) ** 2 * len(graphs) < 20_000_000:
        for (one, other), count in pairs.items():
            good &= graphs.pair_counts[:, graphs.names.index(one), graphs.names.index(other)] >= count
    return good


def _plan(pattern: Pattern, graphs: LabelledGraphs) -> tuple[int, list[Step]]:
    """Where to begin, and in which order to join: rare nodes first, edges that close a ring as soon as they can."""
    totals = graphs.label_counts.sum(0)
    marked = {role: int((graphs.mark == role).sum()) for role in set(pattern.marks) if role}

    def frequency(node: int) -> int:
        label = pattern.labels[node]
        count = len(graphs.label) if label is None else int(totals[graphs.names.index(label)])
        return min(count, marked.get(pattern.marks[node], count))

    first = min(range(len(pattern.labels)), key=lambda node: (frequency(node), -len(pattern.neighbours[node]), node))
    placed, steps = [first], list[Step]()
    used: set[int] = set()
    while len(used) < len(pattern.edges):
        options = [
            (other not in placed, frequency(other), number, node, other)
            for node in placed
            for number, other in pattern.neighbours[node]
            if number not in used
        ]
        grows, _, number, node, other = min(options)
        used.add(number)
        steps.append(Step(number, node, other, not grows, _twin_before(pattern, number, node, other, placed)))
        if grows:
            placed.append(other)
    return first, steps


def _twin_before(pattern: Pattern, number: int, parent: int, node: int, placed: list[int]) -> int:
    """The last placed leaf of the same node that this one could be exchanged with, or -1."""

    def kind(edge: int, leaf: int) -> tuple[Label, Label, int, bool]:
        return pattern.labels[leaf], pattern.edge_labels[edge], pattern.marks[leaf], pattern.edges[edge][0] == leaf

    def is_leaf(leaf: int) -> bool:
        return len(pattern.neighbours[leaf]) == 1

    way = kind(number, node)
    like = [
        leaf
        for edge, leaf in pattern.neighbours[parent]
        if leaf in placed
        and leaf != node
        and is_leaf(leaf)
        and kind(edge, leaf)[:3] == way[:3]
        and (not pattern.directed or kind(edge, leaf)[3] == way[3])
    ]
    return max(like, key=placed.index) if like and is_leaf(node) and len(placed) > 1 else -1


# -- similarity ------------------------------------------------------------------------------------------


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
