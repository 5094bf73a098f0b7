"""A prototype: the graph that a model likes best, made from nothing by what the data shows a graph may be made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import shortest_path
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import require, require_number
from cf2.graphs.data import graphs_of
from cf2.graphs.graph import Extras, Instance
from cf2.graphs.targets import targets_for
from cf2.models.adapters import module_of
from cf2.models.predictor import Predictor
from cf2.options import Key, Output, Spec
from cf2.patterns.labelled import LabelledGraphs, instance_outputs, node_labels
from cf2.patterns.matching import containing, distances
from cf2.patterns.pattern import Label, Pattern
from cf2.runs.session import Request, Session
from cf2.sets.tests import PredictedClass

MAX_RING_SIZE = 8  # larger rings are not looked for in real graphs, and may be made
MAX_KINDS = 64  # kinds of nodes, and of edges, that a graph is made of: the most frequent ones
EQUAL_SCORES = 1e-6  # scores closer than this are equal
MAX_PATIENCE = 4  # edges that may be added without a wider margin

OTHER = "other"  # the label of what is rarer, and never made


@dataclass(frozen=True, eq=False)
class GrowthRules:
    """What was seen in real graphs, and nothing else is made. Kinds of nodes and of edges go by their labels."""

    x: Tensor  # [kinds, d]
    extras: Extras  # of nodes and edges by kind
    labels: Sequence[str]  # of the kinds of nodes
    edge_labels: Sequence[str]
    degree: Mapping[Label, int]  # the most neighbours by kind
    joins: Sequence[tuple[str, str, str]]  # kind of tail, kind of head, kind of edge, in the order of the kinds
    rings: frozenset[int]  # the sizes of rings that there are, up to `MAX_RING_SIZE`
    directed: bool

    def steps(self, graph: Pattern, most: int) -> Iterator[Pattern]:
        """Every graph with one edge more: to a new node, while there are fewer than `most`, or between two."""
        labels, colours, new = graph.labels, graph.colours, len(graph.labels)
        degree = Counter(end for pair in graph.edges for end in pair)
        free = [node for node, label in enumerate(labels) if degree[node] < self.degree[label]]
        different = {colours[node]: node for node in reversed(free)}  # one of those that are alike
        for node in sorted(different.values()) if new < most else ():
            for tail, head, name in self.joins:
                if tail == labels[node]:
                    yield _grown(graph, (node, new), name, head)
                if self.directed and head == labels[node]:
                    yield _grown(graph, (new, node), name, tail)
        joined = coo_matrix((np.ones(graph.size), np.array(graph.edges).reshape(-1, 2).T), shape=(new, new))
        hops = shortest_path(joined.tocsr(), directed=False, unweighted=True)
        pairs: dict[tuple[int, int, int], tuple[int, int]] = {}
        for a, b in permutations(free, 2):
            ring = int(hops[a, b]) + 1
            if ring > 2 and (a < b or self.directed) and (ring > MAX_RING_SIZE or ring in self.rings):
                pairs.setdefault((colours[a], colours[b], ring), (a, b))
        for a, b in pairs.values():
            for tail, head, name in self.joins:
                if (tail, head) == (labels[a], labels[b]):
                    yield _grown(graph, (a, b), name)

    def instance(self, graph: Pattern, key: int) -> Instance:
        """The graph as the model gets it."""
        nodes = torch.tensor([self.labels.index(str(label)) for label in graph.labels])
        ends = torch.tensor(graph.edges, dtype=torch.long).reshape(-1, 2).t()
        kinds = torch.tensor([self.edge_labels.index(str(name)) for name in graph.edge_labels], dtype=torch.long)
        if not self.directed:
            ends, kinds = torch.cat([ends, ends.flip(0)], 1), kinds.repeat(2)
        chosen = {"node": nodes, "edge": kinds}
        extras: Extras = {n: (k, rows[chosen[k]] if k in chosen else rows) for n, (k, rows) in self.extras.items()}
        return Instance(key, self.x[nodes], ends, (), torch.arange(len(nodes)), self.directed, extras)


def _grown(graph: Pattern, pair: tuple[int, int], name: str, label: str | None = None) -> Pattern:
    """A graph with one edge more, and a new node of that label at its end."""
    labels = graph.labels if label is None else (*graph.labels, label)
    edges, edge_labels = (*graph.edges, pair), (*graph.edge_labels, name)
    return Pattern(labels, (0,) * len(labels), edges, edge_labels, graph.directed).canonical()


def growth_rules(
    instances: Sequence[Instance], takes: Callable[[str], bool], names: Sequence[str] = ()
) -> tuple[GrowthRules, LabelledGraphs]:
    """The rules of real graphs, and these graphs with the kinds of their nodes and edges as labels."""
    directed = instances[0].directed
    extras: Extras = {name: value for name, value in instances[0].extras.items() if takes(name)}
    of_nodes, of_edges = ([name for name, (kind, _) in extras.items() if kind == wanted] for wanted in ("node", "edge"))
    x, node_kinds = _kinds([torch.cat([i.x for i in instances]), *(_stacked(instances, name) for name in of_nodes)])
    plain = torch.zeros(sum(i.edge_index.size(1) for i in instances), 1)
    edge_rows, edge_kinds = _kinds([plain, *(_stacked(instances, name) for name in of_edges)])
    extras |= {name: ("node", rows) for name, rows in zip(of_nodes, x[1:])}
    extras |= {name: ("edge", rows) for name, rows in zip(of_edges, edge_rows[1:])}
    labels = node_labels(x[0].float().numpy(), names)
    if len(set(labels)) < len(labels):
        labels = [f"kind {number}" for number in range(len(labels))]
    edge_labels = [f"kind {number}" for number in range(len(edge_rows[0]))] if len(edge_rows[0]) > 1 else [""]
    graphs, joins = [], set[tuple[int, int, int]]()
    degree = Counter[Label]()
    starts = np.cumsum([0, *(len(i.x) for i in instances)]), np.cumsum([0, *(i.edge_index.size(1) for i in instances)])
    for instance, start, edge_start in zip(instances, *starts):
        ends, kinds = instance.edge_index.numpy(), node_kinds[start : start + len(instance.x)]
        once = np.flatnonzero(ends[0] != ends[1] if directed else ends[0] < ends[1])
        pairs, first = np.unique(ends[:, once].T, axis=0, return_index=True)
        own = tuple([*labels, OTHER][kind] for kind in kinds)
        edges = tuple(map(tuple, pairs.reshape(-1, 2).tolist()))
        own_edges = tuple([*edge_labels, OTHER][kind] for kind in edge_kinds[edge_start + once[first]])
        graphs.append(Pattern(own, (0,) * len(own), edges, own_edges, directed))
        for label, count in zip(own, np.bincount(pairs.reshape(-1), minlength=len(own)).tolist()):
            degree[label] = max(degree[label], count)
        loops = ends[0] == ends[1]
        columns = np.stack([*kinds[ends], edge_kinds[edge_start : edge_start + ends.shape[1]]], 1)[~loops]
        joins |= set(map(tuple, columns.tolist()))
    real = LabelledGraphs(graphs, directed, [instance.key for instance in instances])
    allowed = [(labels[a], labels[b], edge_labels[kind]) for a, b, kind in sorted(joins) if min(a, b, kind) >= 0]
    return GrowthRules(x[0], extras, labels, edge_labels, degree, allowed, _rings(graphs), directed), real


def _rings(graphs: Sequence[Pattern]) -> frozenset[int]:
    """The sizes of rings that graphs have, whatever the direction and the kinds of their edges."""
    plain = []
    for graph in graphs:
        pairs = tuple({(min(pair), max(pair)) for pair in graph.edges})
        plain.append(replace(graph, edges=pairs, edge_labels=("",) * len(pairs), directed=False))
    sizes = range(3, MAX_RING_SIZE + 1)
    rings = (Pattern.make([None] * size, [(n, (n + 1) % size) for n in range(size)]) for size in sizes)
    real = LabelledGraphs(plain)
    return frozenset(ring.size for ring in rings if containing(ring, real)[0].any())


def _stacked(instances: Sequence[Instance], name: str) -> Tensor:
    """An attribute of all graphs, end to end."""
    given = [instance.extras.get(name) for instance in instances]
    require(None not in given, f"Expected every graph to have a `{name}`", got="some without")
    return torch.cat([value[1] for value in given if value is not None])


def _kinds(tensors: Sequence[Tensor]) -> tuple[list[Tensor], np.ndarray]:
    """The most frequent distinct rows of tensors side by side, of each tensor; and the kind of every row, else -1."""
    wide = np.concatenate([tensor.reshape(len(tensor), -1).double().numpy() for tensor in tensors], 1)
    _, first, row_of, count = np.unique(wide, axis=0, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(-count, kind="stable")[:MAX_KINDS]
    kind = np.full(len(count), -1)
    kind[order] = np.arange(len(order))
    chosen = torch.from_numpy(first[order])
    return [tensor[chosen] for tensor in tensors], kind[row_of.reshape(-1)]


@dataclass(frozen=True, eq=False)
class Prototype:
    """A generated graph, its prediction, and its similarity to real graphs.

    Attributes
    ----------
    graph : Data
        Features and edges, ready for the model.
    pattern : Pattern
        The same with labels.
    target : int
        The class for which it was built.
    probabilities : ndarray, shape [classes]
        The output of the model.
    margin : float
        Difference between the probabilities of the class and of the next one.
    margins : tuple of float
        The widest margin found with each number of edges, from none on.
    evaluations : int
        Number of graphs on which the model was run.
    nearest, distance : key, float
        The most similar real graph, and 1 less the share of neighbourhoods up to 3 hops that both have
        (Weisfeiler–Leman colours, counted as often as they occur): 0 for graphs that these do not tell apart, 1 for
        graphs that share none.
    contained, compared : int
        Number of real graphs that contain it, and number of real graphs compared.
    """

    graph: Data
    pattern: Pattern
    target: int
    probabilities: np.ndarray
    margin: float
    margins: tuple[float, ...]
    evaluations: int
    nearest: Key
    distance: float
    contained: int
    compared: int

    def __repr__(self) -> str:
        return (
            f"Prototype of class {self.target}: {self.pattern.text if self.pattern.size else 'a single node'}\n"
            f"  {len(self.pattern.labels)} nodes and {self.pattern.size} edges; probability "
            f"{self.probabilities[self.target]:.3f}, margin {self.margin:.3f}\n"
            f"  contained in {self.contained:,} of {self.compared:,} real graphs; the most similar one is "
            f"{self.nearest}, at a distance of {self.distance:.2f} (0: alike, 1: nothing in common)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        names = ("target", "margin", "evaluations", "distance", "contained", "compared")
        row: dict[str, Any] = {name: getattr(self, name) for name in names}
        row |= {"probabilities": self.probabilities.tolist(), "margins": list(self.margins), "nearest": self.nearest}
        return row | {"pattern": self.pattern.to_dict()}


def prototype(
    model: torch.nn.Module,
    data: Data | Iterable[Data],
    target: int,
    *,
    nodes: int = 20,
    width: int = 8,
    labels: Sequence[str] = (),
    most: int = 2000,
    output: Output = "auto",
    device: str | torch.device | None = None,
) -> Prototype:
    """Build a graph that a graph classifier assigns to a class with the widest margin.

    Nothing is random: the same call returns the same graph.

    Parameters
    ----------
    model : torch.nn.Module
        A graph classifier; it is not modified.
    data : Data, or a list, data set, Batch or DataLoader of Data
        Real graphs. The prototype has only kinds of nodes and edges, joined kinds and numbers of neighbours that occur
        in them.
    target : int
        The class.
    nodes : int
        Maximum number of nodes.
    width : int
        Number of graphs that are grown in parallel.
    labels : sequence of str
        Names of the columns of one-hot features, such as elements.
    most : int
        Maximum number of real graphs to read, from the first one on.
    output, device
        As in `cf2.explain`.

    Returns
    -------
    Prototype
    """
    require_number("nodes", nodes, 1, integer=True)
    require_number("width", width, 1, integer=True)
    require_number("most", most, 1, integer=True)
    spec = Spec(output=output, level="graph", device=None if device is None else str(device))
    targets = targets_for(graphs_of(data, "graph", positions=True), "graph", spec)
    with Session(Request(module_of(model), targets, spec), fitting=True) as session:
        predictor = session.predictor
        next(iter(session.problems(list(range(min(64, len(targets)))))))  # what the model is, by real graphs
        classes = predictor.findings.columns if predictor.findings is not None else 0
        require_number("target", target, 0, max(classes, 2) - 1, integer=True)
        instances = [targets.instance(key) for key in range(min(most, len(targets)))]
        rules, real = growth_rules(instances, predictor.adapter.takes, labels)
        return _best(predictor, rules, real, target, nodes, width)


def _best(
    predictor: Predictor, rules: GrowthRules, real: LabelledGraphs, target: int, nodes: int, width: int
) -> Prototype:
    """The best graph of a beam search that adds one edge at a time, beside the real ones."""
    front = [Pattern((label,), (0,), (), (), rules.directed) for label in rules.labels]
    best, best_slack, probabilities = front[0], -np.inf, torch.zeros(0)
    margins: list[float] = []
    waited, evaluations = 0, 0
    while front and waited <= MAX_PATIENCE:
        outputs = instance_outputs(predictor, [rules.instance(graph, key) for key, graph in enumerate(front)])
        columns = outputs.size(1)
        require(target < columns, f"Expected `target` to be a class from 0 to {columns - 1}", got=target)
        criterion = PredictedClass(torch.full((len(outputs),), target, device=outputs.device))
        slack = criterion.slack(outputs).tolist()
        margins.append(max(criterion.margin(outputs).tolist()))
        evaluations += len(front)
        # Equal ones by what they are, so that the order in which they were made does not matter.
        ranked = sorted(range(len(front)), key=lambda row: (-round(slack[row] / EQUAL_SCORES), repr(front[row])))
        waited += 1
        if slack[ranked[0]] > best_slack + EQUAL_SCORES:
            best, best_slack, probabilities, waited = front[ranked[0]], slack[ranked[0]], outputs[ranked[0]], 0
        front = list(dict.fromkeys(more for row in ranked[:width] for more in rules.steps(front[row], nodes)))
    instance, said = rules.instance(best, 0), probabilities.float().cpu().numpy()
    far = distances(best, real)
    nearest = int(far.argmin())
    extras: dict[str, Any] = {name: value for name, (_, value) in instance.extras.items()}
    return Prototype(
        graph=Data(x=instance.x, edge_index=instance.edge_index, **extras),
        pattern=best,
        target=target,
        probabilities=said,
        margin=float(said[target] - np.delete(said, target).max()),
        margins=tuple(margins),
        evaluations=evaluations,
        nearest=real.keys[nearest],
        distance=float(far[nearest]),
        contained=int(containing(best, real)[0].sum()),
        compared=len(real),
    )
