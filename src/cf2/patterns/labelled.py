"""Labels of nodes and edges from their features: what makes two of them the same in a pattern.

>>> node_labels(np.array([[0.0, 1.0], [1.0, 0.0]]), ["C", "N"])
['N', 'C']
>>> node_labels(np.ones((2, 3)))
['', '']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cf2.options import Key
from cf2.patterns.pattern import Pattern
from cf2.results.explanation import Explanation
from cf2.results.names import entry

# -- labels ----------------------------------------------------------------------------------------------


FEW = 16  # distinct rows of features that are labels of their own
BINNED = 2  # columns of any numbers that are binned


def node_labels(x: np.ndarray, names: Sequence[str] = (), prefix: str = "x") -> list[str]:
    """A label per row [n, d] of features.

    One-hot rows are called by their column, or by its name; a few distinct rows by their values; up to two columns of
    numbers by the third of the values that they lie in. Features that are constant, or too many for that, give no
    label.
    """
    x = np.asarray(x, dtype=float).reshape(len(x), -1)
    if not len(x) or not x.shape[1]:
        return [""] * len(x)
    if x.shape[1] > 1 and bool(np.isin(x, (0.0, 1.0)).all()) and bool((x.sum(1) == 1).all()):
        known = [str(names[column]) if column < len(names) else f"{prefix}{column}" for column in range(x.shape[1])]
        return [known[column] for column in x.nonzero()[1].tolist()]
    varying = np.flatnonzero(np.ptp(x, axis=0) > 0)
    if not len(varying):
        return [""] * len(x)
    if x.shape[1] > 64 and len(varying) > FEW:  # wide features: no need to sort them
        return [""] * len(x)
    distinct, place = np.unique(x[:, varying], axis=0, return_inverse=True)
    if len(distinct) <= FEW:
        return [_values(distinct[row], varying, prefix) for row in place.reshape(-1).tolist()]
    if len(varying) > BINNED:
        return [""] * len(x)
    words = np.array(["low", "middle", "high"])
    parts = []
    for column in varying:
        edges = np.quantile(x[:, column], [1 / 3, 2 / 3])
        parts.append([f"{prefix}{column} {word}" for word in words[np.searchsorted(edges, x[:, column])]])
    return [", ".join(part) for part in zip(*parts)]


def _values(row: np.ndarray, columns: np.ndarray, prefix: str) -> str:
    shown = [f"{prefix}{column}={value:g}" for column, value in zip(columns.tolist(), row.tolist())]
    return " ".join(shown if len(shown) <= 3 else [name for name, value in zip(shown, row) if value][:4] or ["0"])


# -- labelled --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GraphRow:
    """One graph before it stands beside others: nodes from 0 on, each edge once."""

    key: Key
    labels: Sequence[str]  # [n]
    marks: np.ndarray  # [n], 1 for the node that is explained
    edges: np.ndarray  # [e, 2]
    edge_labels: Sequence[str]  # [e], or none


@dataclass(frozen=True, eq=False)
class LabelledGraphs:
    """Graphs side by side; node ids run over all of them.

    `unit` is what each edge is called by whoever made the graphs: its place among the units of a pack, for one.
    """

    keys: tuple[Key, ...]
    ptr: np.ndarray  # [G + 1], the nodes of each graph
    label: np.ndarray  # [N], places in `names`
    names: tuple[str, ...]
    mark: np.ndarray  # [N]
    edges: np.ndarray  # [E, 2]
    edge_label: np.ndarray  # [E], places in `edge_names`
    edge_names: tuple[str, ...]
    edge_ptr: np.ndarray  # [G + 1]
    directed: bool = False

    @staticmethod
    def join(rows: Sequence[GraphRow], directed: bool = False) -> LabelledGraphs:
        """The graphs side by side, in their order."""
        ptr = _pointer([len(row.labels) for row in rows])
        edge_ptr = _pointer([len(row.edges) for row in rows])
        names = sorted({name for row in rows for name in row.labels})
        edge_names = sorted({name for row in rows for name in row.edge_labels} | {""})
        place, edge_place = ({name: at for at, name in enumerate(known)} for known in (names, edge_names))
        pairs = [row.edges.reshape(-1, 2) + start for row, start in zip(rows, ptr)]
        said = [edge_place[name] for row in rows for name in (row.edge_labels or [""] * len(row.edges))]
        none = np.zeros((0, 2), np.int64)
        return LabelledGraphs(
            keys=tuple(row.key for row in rows),
            ptr=ptr,
            label=np.array([place[name] for row in rows for name in row.labels], dtype=np.int64),
            names=tuple(names),
            mark=np.concatenate([np.zeros(0, np.int64), *(row.marks for row in rows)]),
            edges=np.concatenate([none, *pairs]),
            edge_label=np.array(said, dtype=np.int64),
            edge_names=tuple(edge_names),
            edge_ptr=edge_ptr,
            directed=directed,
        )

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def graph_of(self) -> np.ndarray:
        """The graph of every node [N]."""
        return np.repeat(np.arange(len(self)), np.diff(self.ptr))

    @cached_property
    def adjacency(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Compressed rows (pointer, neighbour, kind, edge): every edge from both of its ends.

        The kind is three times the edge's label, and 0 for an undirected edge, 1 out of the node, 2 into it.
        """
        tail, head = self.edges.T
        kind = 3 * self.edge_label
        source, other = np.concatenate([tail, head]), np.concatenate([head, tail])
        kinds = np.concatenate([kind + self.directed, kind + 2 * self.directed])
        order = np.lexsort((kinds, other, source))
        edge = np.concatenate([np.arange(len(tail))] * 2)
        pointer = np.zeros(len(self.label) + 1, np.int64)
        np.cumsum(np.bincount(source, minlength=len(self.label)), out=pointer[1:])
        return pointer, other[order], kinds[order], edge[order]

    @cached_property
    def pair_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Sorted codes of (node, neighbour, direction), and the place of each in the adjacency."""
        pointer, other, kind, _ = self.adjacency
        source = np.repeat(np.arange(len(self.label)), np.diff(pointer))
        codes = self.pair_code(source, other, kind % 3)
        order = np.argsort(codes, kind="stable")
        return codes[order], order

    def pair_code(self, source: np.ndarray, other: np.ndarray, way: np.ndarray | int) -> np.ndarray:
        """One number for a node, its neighbour and the direction of the edge between them."""
        code: np.ndarray = (source * len(self.label) + other) * 3 + way
        return code

    @cached_property
    def label_counts(self) -> np.ndarray:
        """How many nodes of each label every graph has [G, labels]."""
        counts = np.zeros((len(self), max(len(self.names), 1)), np.int64)
        np.add.at(counts, (self.graph_of, self.label), 1)
        return counts

    @cached_property
    def pair_counts(self) -> np.ndarray:
        """How many edges between each two labels every graph has [G, labels, labels], in both orders."""
        many = max(len(self.names), 1)
        counts = np.zeros((len(self), many, many), np.int64)
        owner = np.repeat(np.arange(len(self)), np.diff(self.edge_ptr))
        a, b = self.label[self.edges].T
        np.add.at(counts, (owner, a, b), 1)
        np.add.at(counts, (owner[a != b], b[a != b], a[a != b]), 1)
        return counts

    def take(self, rows: np.ndarray) -> LabelledGraphs:
        """Some of the graphs."""
        nodes, ptr = _spans(self.ptr, rows)
        edges, edge_ptr = _spans(self.edge_ptr, rows)
        moved = self.edges[edges] + np.repeat(ptr[:-1] - self.ptr[rows], np.diff(edge_ptr))[:, None]
        return LabelledGraphs(
            tuple(self.keys[row] for row in rows.tolist()),
            ptr,
            self.label[nodes],
            self.names,
            self.mark[nodes],
            moved,
            self.edge_label[edges],
            self.edge_names,
            edge_ptr,
            self.directed,
        )

    def pieces(self, row: int, chosen: np.ndarray) -> list[Pattern]:
        """The connected pieces that some edges [bool, of one graph] are, as patterns."""
        start = int(self.edge_ptr[row])
        numbers = start + np.flatnonzero(chosen)
        pairs = self.edges[numbers].tolist()
        root: dict[int, int] = {}

        def find(node: int) -> int:
            root.setdefault(node, node)
            while root[node] != node:
                node = root[node]
            return node

        for a, b in pairs:
            root[find(a)] = find(b)
        groups: dict[int, list[int]] = {}
        for place, (a, _) in enumerate(pairs):
            groups.setdefault(find(a), []).append(place)
        return [self._piece([pairs[p] for p in places], numbers[places]) for places in groups.values()]

    def _piece(self, pairs: Sequence[Sequence[int]], numbers: np.ndarray) -> Pattern:
        nodes = sorted({node for pair in pairs for node in pair})
        place = {node: at for at, node in enumerate(nodes)}
        return Pattern.make(
            [self.names[self.label[node]] for node in nodes],
            [(place[a], place[b]) for a, b in pairs],
            [self.edge_names[name] for name in self.edge_label[numbers]],
            [int(self.mark[node]) for node in nodes],
            directed=self.directed,
        )


def explained_graph(e: Explanation, context: Mapping[str, Any]) -> GraphRow:
    """The graph of one explanation, from its own table of units and what the context knows of it."""
    pairs = e.units.of("edges")
    graph = entry(context.get("graphs"), e.key)
    given = list((graph or {}).get("labels") or ())
    targets = () if e.task == "graph" else e.key if isinstance(e.key, tuple) else (e.key,)
    nodes = np.unique(np.concatenate([pairs.reshape(-1), np.array(targets, dtype=np.int64), np.arange(len(given))]))
    marks = np.zeros(len(nodes), np.int64)
    marks[np.searchsorted(nodes, targets)] = np.arange(1, len(targets) + 1)
    labels = [str(given[node]) if node < len(given) else "" for node in nodes.tolist()]
    return GraphRow(e.key, labels, marks, np.searchsorted(nodes, pairs), ())


def _pointer(counts: Iterable[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.fromiter(counts, np.int64))]).astype(np.int64)


def _spans(ptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of some spans, end to end, and their new pointer."""
    count = np.diff(ptr)[rows]
    new = _pointer(count)
    return np.arange(new[-1]) + np.repeat(ptr[rows] - new[:-1], count), new
