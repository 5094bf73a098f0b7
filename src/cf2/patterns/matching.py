"""Where a pattern occurs, in many graphs at once, and how similar it is to them.

Partial occurrences are rows of a table, one column per node of the pattern. A step joins the table with the edges of
all graphs: it adds a column, or drops the rows that lack an edge. So there is no loop over graphs or occurrences, which
is about a hundred times faster than networkx's matcher on molecules. An occurrence needs the pattern's edges to be
there; further edges between its nodes do not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cf2.patterns.labelled import LabelledGraphs
from cf2.patterns.pattern import Label, Pattern

MAX_TABLE_ROWS = 1_000_000  # rows of a table of several graphs
MAX_ROWS_PER_GRAPH = 100_000  # rows that one graph may take in a step, before it is left undecided
MAX_ROWS_TRIED = 1_000  # the same for a search for a single occurrence, which goes on with the first ones
COLOUR_ROUNDS = 3


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
        inside = np.zeros(len(self.graphs), bool)
        inside[self.graph] = True
        return inside

    def edges(self) -> np.ndarray:
        """The edges of every occurrence [M, edges of the pattern]."""
        positions = [_edge_positions(self.pattern, self.graphs, n, self.nodes) for n in range(self.pattern.size)]
        return self.graphs.adjacency[3][np.array(positions, np.int64).reshape(self.pattern.size, len(self.graph)).T]

    def union(self) -> np.ndarray:
        """Which edges of the graphs are in any occurrence [E]."""
        inside = np.zeros(len(self.graphs.edges), bool)
        inside[self.edges().reshape(-1)] = True
        return inside


class Step(NamedTuple):
    """One join: an edge of the pattern from a node that has a column to one that gets it, or has one as well."""

    edge: int
    old: int
    new: int
    closes: bool
    after: int  # a leaf that is like the new one and must have a smaller id, or -1


def occurrences(pattern: Pattern, graphs: LabelledGraphs, rows: np.ndarray | None = None) -> Occurrences:
    """Every occurrence of a pattern in the graphs, or in those whose `rows` [G, bool] are given."""
    nodes, undecided = _tables(pattern, graphs, rows, MAX_ROWS_PER_GRAPH)
    graph = graphs.graph_of[nodes[:, 0]]
    decided = ~undecided[graph]
    return Occurrences(graph[decided], nodes[decided], undecided, graphs, pattern)


def containing(
    pattern: Pattern, graphs: LabelledGraphs, rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Which graphs contain a pattern at all [G, bool], or which of `rows` do; and of which that is not known [G, bool].

    Of every graph the first partial occurrences are followed. If none of them becomes a whole one and there were more,
    the graph is undecided; so each graph is decided by itself, whatever stands beside it.
    """
    nodes, cut_short = _tables(pattern, graphs, rows, MAX_ROWS_TRIED)
    found = np.zeros(len(graphs), bool)
    found[graphs.graph_of[nodes[:, 0]]] = True
    return found, cut_short & ~found


def _tables(
    pattern: Pattern, graphs: LabelledGraphs, rows: np.ndarray | None, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """The occurrences [M, nodes of the pattern] in the order of the graphs, and in which graphs some may lack [G]."""
    cut_short = np.zeros(len(graphs), bool)
    nothing = np.zeros((0, len(pattern.labels)), np.int64)
    possible = np.ones(len(graphs), bool) if rows is None else rows.copy()
    for label, count in Counter(pattern.labels).items():
        possible &= graphs.label_counts[:, graphs.codes_of(label)].sum(1) >= count
    if pattern.directed != graphs.directed or not possible.any():
        return nothing, cut_short
    first, steps = _plan(pattern, graphs)
    start = np.flatnonzero(possible[graphs.graph_of])
    start = start[_fits(pattern, graphs, first, start)]
    table = np.full((len(start), len(pattern.labels)), -1, np.int64)
    table[:, first] = start
    return np.concatenate([nothing, *_joined(pattern, graphs, first, steps, table, most, cut_short)]), cut_short


def _joined(
    pattern: Pattern,
    graphs: LabelledGraphs,
    first: int,
    steps: list[Step],
    table: np.ndarray,
    most: int,
    cut_short: np.ndarray,
) -> Iterator[np.ndarray]:
    """The table after all steps, in parts; of a graph that would take more than `most` rows, its first ones."""
    pointer = graphs.adjacency[0]
    for number, step in enumerate(steps):
        if not step.closes and len(table):
            graph, old = graphs.graph_of[table[:, first]], table[:, step.old]
            ways = pointer[old + 1] - pointer[old]
            before = np.cumsum(ways) - ways
            before -= before[np.searchsorted(graph, graph)]  # rows that come before, of the same graph
            cut_short[graph[before >= most]] = True
            table, ways, graph = (values[before < most] for values in (table, ways, graph))
            if ways.sum() > MAX_TABLE_ROWS and graph[0] < graph[-1]:
                middle = max(graph[len(graph) // 2], graph[0] + 1)
                for part in np.split(table, [np.searchsorted(graph, middle)]):
                    yield from _joined(pattern, graphs, first, steps[number:], part, most, cut_short)
                return
        table = _stepped(pattern, graphs, step, table)
    yield table


def _stepped(pattern: Pattern, graphs: LabelledGraphs, step: Step, table: np.ndarray) -> np.ndarray:
    """The table after one step: the rows that have the edge, or one row per way to add the node."""
    if step.closes:
        closed: np.ndarray = table[_edge_positions(pattern, graphs, step.edge, table) >= 0]
        return closed
    pointer, other, kinds, _ = graphs.adjacency
    old = table[:, step.old]
    count = pointer[old + 1] - pointer[old]
    row = np.repeat(np.arange(len(table)), count)
    position = np.arange(len(row)) + np.repeat(pointer[old] - np.cumsum(count) + count, count)
    direction = (1 if pattern.edges[step.edge][0] == step.old else 2) if pattern.directed else 0
    label = pattern.edge_labels[step.edge]
    good = kinds[position] % 3 == direction
    if label is not None:
        code = graphs.edge_names.index(label) if label in graphs.edge_names else -1
        good &= kinds[position] // 3 == code
    good[good] = _fits(pattern, graphs, step.new, other[position[good]])
    row, node = row[good], other[position[good]]
    fresh = (table[row] != node[:, None]).all(1)
    if step.after >= 0:
        fresh &= table[row, step.after] < node
    if label is None and len(node):  # two edges of different labels between the same nodes are one way to go
        fresh[1:] &= (row[1:] != row[:-1]) | (node[1:] != node[:-1])
    extended: np.ndarray = table[row[fresh]]
    extended[:, step.new] = node[fresh]
    return extended


def _fits(pattern: Pattern, graphs: LabelledGraphs, node: int, candidates: np.ndarray) -> np.ndarray:
    """Which nodes of the graphs a node of the pattern may stand for."""
    good: np.ndarray = graphs.codes_of(pattern.labels[node])[graphs.label[candidates]]
    mark = pattern.marks[node]
    return good & (graphs.mark[candidates] == mark) if mark else good


def _edge_positions(pattern: Pattern, graphs: LabelledGraphs, edge: int, table: np.ndarray) -> np.ndarray:
    """Per row of a table the position in the adjacency of an edge of the pattern, -1 where there is none."""
    a, b = pattern.edges[edge]
    label = pattern.edge_labels[edge]
    found = np.full(len(table), -1)
    for number, name in enumerate(graphs.edge_names):
        if label in (None, name):  # of edges of several labels between the same two nodes, the first one
            wanted = graphs.code(table[:, a], table[:, b], 3 * number + int(pattern.directed))
            position = np.minimum(np.searchsorted(graphs.codes, wanted), len(graphs.codes) - 1)
            found = np.where((found < 0) & (graphs.codes[position] == wanted), position, found)
    return found


def _plan(pattern: Pattern, graphs: LabelledGraphs) -> tuple[int, list[Step]]:
    """Where to begin, and in which order to join: rare nodes first, edges that close a ring as soon as they can."""
    totals = graphs.label_counts.sum(0)
    marked = {role: int((graphs.mark == role).sum()) for role in set(pattern.marks) if role}
    frequency = [
        min(int(totals[graphs.codes_of(label)].sum()), marked.get(mark, len(graphs.label)))
        for label, mark in zip(pattern.labels, pattern.marks)
    ]
    first = min(range(len(frequency)), key=lambda node: (frequency[node], -len(pattern.neighbours[node]), node))
    placed, steps = [first], list[Step]()
    used: set[int] = set()
    while len(used) < len(pattern.edges):
        options = [
            (other not in placed, frequency[other], number, node, other)
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


def _twin_before(pattern: Pattern, edge: int, parent: int, node: int, placed: list[int]) -> int:
    """The last placed leaf of the same node that this one could be exchanged with, or -1."""

    def kind(number: int, leaf: int) -> tuple[int, Label, Label, int, bool]:
        outward = pattern.directed and pattern.edges[number][0] == leaf
        degree = len(pattern.neighbours[leaf])
        return degree, pattern.labels[leaf], pattern.edge_labels[number], pattern.marks[leaf], outward

    own = kind(edge, node)
    twins = [
        leaf
        for number, leaf in pattern.neighbours[parent]
        if leaf in placed and leaf != node and kind(number, leaf) == own
    ]
    return max(twins, key=placed.index) if twins and own[0] == 1 and len(placed) > 1 else -1


def distances(pattern: Pattern, graphs: LabelledGraphs) -> np.ndarray:
    """For every graph [G], 1 less the share of Weisfeiler–Leman colours that it has in common with a pattern.

    With c_G(k) the number of nodes of G that have colour k after up to three rounds, that is
    1 - Σ_k min(c_P(k), c_G(k)) / Σ_k max(c_P(k), c_G(k)).
    """
    own = _colours(pattern)
    found = []
    for theirs in map(_colours, graphs.graphs):
        common = (own & theirs).total()
        found.append(1 - common / (own.total() + theirs.total() - common))
    return np.array(found)


def _colours(graph: Pattern) -> Counter[int]:
    """How often each Weisfeiler–Leman colour, as a hash, occurs among the nodes of a graph in all rounds."""
    colours, near = [hash(label) for label in graph.labels], graph.neighbours_by_kind
    count = Counter(colours)
    for _ in range(COLOUR_ROUNDS):
        around = [sorted((kind, colours[other]) for kind, other in pairs) for pairs in near]
        colours = [hash((colour, *pairs)) for colour, pairs in zip(colours, around)]
        count.update(colours)
    return count
