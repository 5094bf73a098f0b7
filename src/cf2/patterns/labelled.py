"""Graphs with labels, many side by side: what patterns are looked for in, and where their labels come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import remove_self_loops, to_undirected

from cf2.errors import CF2Error, require
from cf2.graphs.graph import Graph, Instance
from cf2.graphs.targets import GraphTargets
from cf2.methods.contract import Problem
from cf2.models.predictor import Predictor
from cf2.models.receptive_field import instance_chunks
from cf2.options import Key
from cf2.patterns.pattern import AND, BOND_ORDERS, IN_CHAIN, IN_RING, Label, Pattern, covers
from cf2.results.explanation import Explanation
from cf2.results.names import entry
from cf2.runs.session import KEYS_AT_ONCE, Session
from cf2.sets.tests import Criterion
from cf2.units.kinds import InstanceUnits
from cf2.units.molecules import read_smiles
from cf2.units.packs import pack

MAX_DISTINCT_ROWS = 16  # distinct rows of features that are labels of their own
MAX_BINNED_COLUMNS = 2  # columns of any numbers that are binned
MAX_SORTED_COLUMNS = 64  # columns, of which more than `MAX_DISTINCT_ROWS` may vary
MAX_LABEL_COLUMNS = 256  # wider features of nodes give no labels
MAX_EDGE_COLUMNS = 2_000_000  # edge columns of all graphs that are looked at
MANY_NEIGHBOURS = 5  # a node with at least so many is labelled "d5+"
NO_LABELS = (
    "Node features are not one-hot and have many values, so nodes are labelled by their number of neighbours. For "
    "other labels, pass `labels`, or graphs with `smiles`."
)
BOND_NAMES = {order: name for name, order in BOND_ORDERS.items()}


class LabelledGraphs:
    """Graphs side by side, in their order; node ids run over all of them."""

    def __init__(self, graphs: Sequence[Pattern], directed: bool = False, keys: Sequence[Key] = ()) -> None:
        self.graphs, self.directed, self.keys = graphs, directed, keys
        self.ptr = _pointer(len(graph.labels) for graph in graphs)  # [G + 1], the nodes of each graph
        self.edge_ptr = _pointer(graph.size for graph in graphs)  # [G + 1]
        self.names, self.label = _numbered([label or "" for graph in graphs for label in graph.labels])  # label: [N]
        self.edge_names, self.edge_label = _numbered([name or "" for graph in graphs for name in graph.edge_labels])
        self.mark = np.array([mark for graph in graphs for mark in graph.marks], dtype=np.int64)  # [N]
        edges = np.array([pair for graph in graphs for pair in graph.edges], dtype=np.int64).reshape(-1, 2)
        self.edges = edges + np.repeat(self.ptr[:-1], np.diff(self.edge_ptr))[:, None]  # [E, 2]
        self._codes_of: dict[Label, np.ndarray] = {}

    def take(self, rows: np.ndarray) -> LabelledGraphs:
        """Some of the graphs."""
        some = rows.tolist()
        return LabelledGraphs([self.graphs[row] for row in some], self.directed, [self.keys[row] for row in some])

    def __len__(self) -> int:
        return len(self.graphs)

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
        pointer = _pointer(np.bincount(source, minlength=len(self.label)))
        return pointer, other[order], kinds[order], edge[order]

    @cached_property
    def codes(self) -> np.ndarray:
        """The code of every entry of the adjacency, ascending."""
        pointer, other, kind, _ = self.adjacency
        return self.code(np.repeat(np.arange(len(self.label)), np.diff(pointer)), other, kind)

    def code(self, source: np.ndarray, other: np.ndarray, kind: np.ndarray | int) -> np.ndarray:
        """One number for a node, its neighbour and the kind of the edge between them."""
        return np.asarray((source * len(self.label) + other) * 3 * len(self.edge_names) + kind)

    @cached_property
    def label_counts(self) -> np.ndarray:
        """How many nodes of each label every graph has [G, labels]."""
        counts = np.zeros((len(self), len(self.names)), np.int64)
        np.add.at(counts, (self.graph_of, self.label), 1)
        return counts

    def codes_of(self, label: Label) -> np.ndarray:
        """Which of the labels of nodes a label of a pattern covers [labels, bool]."""
        if label not in self._codes_of:
            self._codes_of[label] = np.array([covers(label, name) for name in self.names], dtype=bool)
        return self._codes_of[label]

    def edge_sets(self, rows: np.ndarray, chosen: np.ndarray) -> list[np.ndarray]:
        """A set of edges [bool] per row, from one flag per edge of all graphs."""
        return [chosen[self.edge_ptr[row] : self.edge_ptr[row + 1]] for row in rows]


def _pointer(counts: Iterable[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.fromiter(counts, np.int64))]).astype(np.int64)


def _numbered(labels: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct labels in order, and the position of each label among them."""
    names, position = np.unique(np.array(labels, dtype=object), return_inverse=True)
    return tuple(names.tolist()), position


def node_labels(x: np.ndarray, names: Sequence[str] = (), prefix: str = "x") -> list[str]:
    """A label per row [n, d] of features.

    One-hot rows are called by their column, or by its name; a few distinct rows by their values; up to two columns of
    numbers by the third of the values that they lie in. Features that are constant, or too many for that, give no
    label.

    >>> node_labels(np.array([[0.0, 1.0], [1.0, 0.0]]), ["C", "N"])
    ['N', 'C']
    >>> node_labels(np.ones((2, 3)))
    ['', '']
    """
    if not len(x):
        return []
    x = np.asarray(x, dtype=float).reshape(len(x), -1)
    none = [""] * len(x)
    varying = np.flatnonzero(np.ptp(x, axis=0) > 0)
    if x.shape[1] > 1 and _is_one_hot(x):
        columns = [str(names[column]) if column < len(names) else f"{prefix}{column}" for column in range(x.shape[1])]
        return [columns[column] for column in x.nonzero()[1].tolist()]
    if not len(varying) or (x.shape[1] > MAX_SORTED_COLUMNS and len(varying) > MAX_DISTINCT_ROWS):
        return none  # wide features need not be sorted
    distinct, row_of = np.unique(x[:, varying], axis=0, return_inverse=True)
    if len(distinct) <= MAX_DISTINCT_ROWS:
        texts = [_values(row, varying, prefix) for row in distinct]
        return [texts[row] for row in row_of.reshape(-1).tolist()]
    if len(varying) > MAX_BINNED_COLUMNS:
        return none
    thirds = np.array(["low", "middle", "high"])
    parts = []
    for column in varying:
        edges = np.quantile(x[:, column], [1 / 3, 2 / 3])
        parts.append([f"{prefix}{column} {third}" for third in thirds[np.searchsorted(edges, x[:, column])]])
    return [", ".join(part) for part in zip(*parts)]


def _is_one_hot(x: np.ndarray) -> bool:
    return bool(np.isin(x, (0.0, 1.0)).all() and (x.sum(1) == 1).all())


def _values(row: np.ndarray, columns: np.ndarray, prefix: str) -> str:
    shown = [f"{prefix}{column}={value:g}" for column, value in zip(columns.tolist(), row.tolist())]
    return " ".join(shown if len(shown) <= 3 else [name for name, value in zip(shown, row) if value][:4] or ["0"])


def explained_graphs(found: Iterable[Explanation]) -> Collected:
    """The graphs of explanations, from their own tables of units and what their context knows of them."""
    by_key = {e.key: e for e in found if len(e.units.of("edges"))}
    graphs = [_explained_graph(e) for e in by_key.values()]
    classes = np.array([e.prediction for e in by_key.values()])
    notes = ["No model was run, so necessity and sufficiency were not tested. Pass the model and the data."]
    if len(set(classes.tolist())) == 1:
        notes.append("All explained predictions are of one class, so nothing was generalised and precision is trivial.")
    pairs = [e.units.of("edges") for e in by_key.values()]
    return Collected(LabelledGraphs(graphs, graphs[0].directed, list(by_key)), classes, pairs, notes=tuple(notes))


def _explained_graph(e: Explanation) -> Pattern:
    pairs = e.units.of("edges")
    given = list((entry(e.context.get("graphs"), e.key) or {}).get("labels") or ())
    targets = () if e.task == "graph" else e.key if isinstance(e.key, tuple) else (e.key,)
    nodes = np.unique(np.concatenate([pairs.reshape(-1), np.array(targets, dtype=np.int64), np.arange(len(given))]))
    labels = tuple(str(given[node]) if node < len(given) else "" for node in nodes.tolist())
    marks = _marks(len(nodes), np.searchsorted(nodes, targets))
    return Pattern(labels, marks, _pairs(np.searchsorted(nodes, pairs)), ("",) * len(pairs), e.directed)


def _marks(count: int, targets: Sequence[int] | np.ndarray) -> tuple[int, ...]:
    marks = np.zeros(count, np.int64)
    marks[np.asarray(targets, dtype=np.int64)] = np.arange(1, len(targets) + 1)
    return tuple(marks.tolist())


def _pairs(edges: np.ndarray) -> tuple[tuple[int, int], ...]:
    return tuple(map(tuple, edges.tolist()))


def instance_outputs(predictor: Predictor, instances: Sequence[Instance]) -> Tensor:
    """What the model gives for graphs that are not packed yet [R, C]."""
    takes = predictor.adapter.takes
    return torch.cat([predictor.predict(pack(part, takes=takes)) for part in instance_chunks(predictor, instances)])


@dataclass(frozen=True, eq=False)
class Collected:
    """Graphs that patterns are looked for in."""

    graphs: LabelledGraphs
    classes: np.ndarray  # [G], what the model says of each
    pairs: Sequence[np.ndarray]  # [G], the edges of each [e, 2] in the user's ids
    problems: Sequence[Problem] = ()  # the same packed for the model; none, if it is not run
    notes: tuple[str, ...] = ()  # what to say of them

    @property
    def instances(self) -> list[Instance]:
        """The same as the model gets them [G]."""
        return [instance for problem in self.problems for instance in problem.instances]


def collected(
    session: Session, keys: Sequence[Key], context: Mapping[str, Any], labels: str | Sequence[str], detailed: bool
) -> Collected:
    """The keys as packed problems, and as labelled graphs, whose edges are their units; not all, if they are large.

    Where labels are `detailed`, those of atoms say more than the element.
    """
    problems, columns = [], 0
    for start in range(0, len(keys), KEYS_AT_ONCE):
        for problem in session.problems(keys[start : start + KEYS_AT_ONCE]):
            problems.append(problem)
            columns += int(problem.pack.edge_index.size(1))
        if columns > MAX_EDGE_COLUMNS:
            break
    instances = [instance for problem in problems for instance in problem.instances]
    tables = [table for problem in problems for table in problem.tables]
    notes = []
    if len(instances) < len(keys):
        notes.append(f"The graphs are large, so only {len(instances):,} of {len(keys):,} were used.")
    molecules = None
    if labels == "auto" and isinstance(session.request.targets, GraphTargets):
        molecules = _molecules(session.request.targets, instances, tables, context.get("smiles"), detailed)
    if molecules is None:
        atoms: Sequence[str] = context.get("atoms") or ()
        names, note = _names(session, problems[0].criterion, instances, atoms, labels)
        edge_names = _edge_names(instances, tables, session.predictor.adapter.takes, labels, bool(atoms))
        notes += filter(None, [note])
    else:
        names, edge_names = molecules
    graphs = []
    for instance, table, of_nodes, of_edges in zip(instances, tables, names, edge_names):
        ids = instance.node_ids.numpy()
        order = np.argsort(ids)
        local = order[np.searchsorted(ids, table.ids.numpy(), sorter=order)]
        marks = _marks(len(ids), instance.targets)
        graphs.append(Pattern(tuple(of_nodes), marks, _pairs(local), tuple(of_edges), instance.directed))
    said = torch.cat([problem.criterion.said(problem.outputs).cpu() for problem in problems]).numpy()
    labelled = LabelledGraphs(graphs, instances[0].directed, [instance.key for instance in instances])
    return Collected(labelled, said, [table.ids.numpy() for table in tables], problems, tuple(notes))


def _molecules(
    targets: GraphTargets, instances: Sequence[Instance], tables: Sequence[InstanceUnits], smiles: Any, detailed: bool
) -> tuple[list[list[str]], list[list[str]]] | None:
    """The labels of the atoms and the orders of the bonds of every instance, where all have a SMILES."""
    labels, orders = [], []
    for instance, table in zip(instances, tables) if smiles else ():
        assert isinstance(instance.key, int)
        text = entry(smiles, instance.key) or getattr(targets.graphs[instance.key], "smiles", None)
        try:
            molecule = read_smiles(text, len(instance.node_ids), instance.edge_index.numpy(), "a graph", aromatic=True)
        except CF2Error:
            return None
        bonds = {frozenset((u, v)): order for u, v, order in molecule["bonds"]}
        atoms = _atom_labels(molecule) if detailed else molecule["labels"]
        labels.append([atoms[node] for node in instance.node_ids.tolist()])
        orders.append([_bond_name(bonds.get(frozenset(pair), 1.0)) for pair in table.ids.tolist()])
    return (labels, orders) if labels else None


def _atom_labels(molecule: Mapping[str, Any]) -> list[str]:
    """Of every atom the element, how many hydrogens it has, and whether it lies on a ring."""
    elements, graph = molecule["labels"], nx.Graph((u, v) for u, v, _ in molecule["bonds"])
    graph.add_nodes_from(range(len(elements)))
    bridges = {frozenset(pair) for pair in nx.bridges(graph)}
    on_ring = {atom for pair in graph.edges if frozenset(pair) not in bridges for atom in pair}
    labels = []
    for atom, symbol in enumerate(elements):
        hydrogens = molecule["formal"][atom][1] + sum(elements[other] == "H" for other in graph[atom])
        labels.append(AND.join((symbol, f"H{hydrogens}", IN_RING if atom in on_ring else IN_CHAIN)))
    return labels


def _bond_name(order: float) -> str:
    return BOND_NAMES.get(order, f"order {order:g}")


def _names(
    session: Session,
    criterion: Criterion,
    instances: Sequence[Instance],
    atoms: Sequence[str],
    labels: str | Sequence[str],
) -> tuple[list[list[str]], str]:
    """The labels of the nodes of every instance, and what to say of them."""
    counts = [len(instance.node_ids) for instance in instances]
    flat, note = [""] * sum(counts), ""
    if labels == "class":
        flat = _classes(session.field.reach.full, criterion, instances)
    elif labels not in ("none", "degree") and instances[0].x.size(1) <= MAX_LABEL_COLUMNS:
        x = torch.cat([instance.x for instance in instances]).float().numpy()
        if not isinstance(labels, str):
            require(
                len(labels) <= x.shape[1] and _is_one_hot(x[:, : len(labels)]),
                "Expected as many names in `labels` as there are one-hot columns of features",
                got=f"{len(labels)} names for {x.shape[1]} columns",
                do='Pass labels="auto", "degree" or "none" for other features.',
            )
        flat = node_labels(x, atoms if isinstance(labels, str) else labels)
    if labels == "degree" or (labels == "auto" and not any(flat)):
        flat = _degrees(session.request.targets.graph, instances)
        if labels == "auto" and any(bool((i.x != instances[0].x[0]).any()) for i in instances):
            note = NO_LABELS
    types = [instance.extras.get("node_type", ("", torch.zeros(0))) for instance in instances]
    if labels != "none" and all(kind == "node" for kind, _ in types):
        numbers = torch.cat([values.reshape(-1) for _, values in types]).tolist()
        flat = [f"type {number} {label}".rstrip() for number, label in zip(numbers, flat)]
    return _split(flat, counts), note


def _classes(full: Tensor | None, criterion: Criterion, instances: Sequence[Instance]) -> list[str]:
    """What the model says of each node; nothing of what is explained, which would give the answer away."""
    if full is None:
        expected = 'Expected a graph of which every node has a class for labels="class"'
        raise CF2Error(expected, got="graphs, or one that is too large")
    said = criterion.said(full).numpy()
    return [
        "" if place in instance.targets else f"class {said[node]}"
        for instance in instances
        for place, node in enumerate(instance.node_ids.tolist())
    ]


def _degrees(whole: Graph | None, instances: Sequence[Instance]) -> list[str]:
    """How many neighbours each node has, in the whole graph where the instances are parts of one."""
    if whole is not None:
        counts = _neighbour_counts(whole.edge_index, whole.num_nodes)
        parts = [counts[instance.node_ids] for instance in instances]
    else:
        parts = [_neighbour_counts(instance.edge_index, len(instance.node_ids)) for instance in instances]
    return [f"d{n}" if n < MANY_NEIGHBOURS else f"d{MANY_NEIGHBOURS}+" for n in torch.cat(parts).tolist()]


def _neighbour_counts(edge_index: Tensor, count: int) -> Tensor:
    neighbours: Tensor = to_undirected(remove_self_loops(edge_index)[0], num_nodes=count)  # each pair once each way
    return neighbours[0].bincount(minlength=count)


def _edge_names(
    instances: Sequence[Instance],
    tables: Sequence[InstanceUnits],
    takes: Any,
    labels: str | Sequence[str],
    molecules: bool,
) -> list[list[str]]:
    """The labels of the edges of every instance: of what the model is given of them; bonds by their names."""
    counts = [table.count for table in tables]
    flat = [""] * sum(counts)
    for name in ("edge_type", "edge_attr"):
        given = all(instance.extras.get(name, ("",))[0] == "edge" for instance in instances)
        if labels == "none" or not given or not takes(name):
            continue
        bonds = name == "edge_attr" and molecules and all("bond" in instance.extras for instance in instances)
        parts = []
        for instance, table in zip(instances, tables):
            units, first = np.unique(table.edges[0].numpy(), return_index=True)  # the first column of each unit
            columns = np.zeros(table.count, np.int64)
            columns[units[units >= 0]] = first[units >= 0]
            parts.append(instance.extras["bond" if bonds else name][1][columns].reshape(table.count, -1))
        values = torch.cat(parts).float().numpy()
        if bonds:
            said = [_bond_name(order) for order in values[:, 0].tolist()]
        else:
            said = node_labels(values, prefix="e" if name == "edge_attr" else "type ")
        flat = [" ".join(filter(None, both)) for both in zip(flat, said)]
    return _split(flat, counts)


def _split(flat: list[str], counts: Sequence[int]) -> list[list[str]]:
    return [flat[start:end] for start, end in pairwise(_pointer(counts).tolist())]
