"""A data set: graphs with labels and known explanations, its split, and which of its instances are explained."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from cf2.errors import require, require_number
from cf2.options import EdgeType, Key
from cf2.storage import fingerprint

EXPLAINED = 200  # the first so many test instances, where no class is singled out

Edges = Tensor | dict[EdgeType, Tensor]  # bool per column of `edge_index`, or of that of each edge type
TASKS = {"node": "classifies nodes", "graph": "is about whole graphs", "pair": "is about pairs of nodes"}
OUTPUTS = {"classes": "auto", "logit": "logits", "regression": "regression"}  # each as a Spec calls it


@dataclass(frozen=True)
class Dataset:
    """Graphs with labels and, where it is planted or known, the true explanation of each.

    Parameters
    ----------
    name : str
        The name by which `load` knows it.
    task : {"node", "graph", "pair"}
        What an instance is.
    graphs : list of Data or HeteroData
        Each with `x` [nodes, num_features], `edge_index` [2, edges] and `y`. A node task has one graph, with `y`
        [nodes] and, where the truth is known, `motif` [nodes] and `edge_motif` [edges], both -1 outside of motifs.
        A graph task has `y` [1] on each graph and, where the truth is known, `truth` [edges], bool. A pair task has
        one graph, which holds the edges that messages take and none of the edges that are predicted.
    num_classes, num_features, num_edge_features : int
        How many classes, columns of `x` and columns of `edge_attr` (0: none) there are; a typed graph may have other
        widths for other types.
    class_names, positive : tuple of str, tuple of int
        A name per class, and the classes that the paper explains.
    atoms : tuple of str, optional
        The element per column of `x`, for molecules whose elements are known.
    seed : int
        The seed of a synthetic set, or of the draw of the pairs.
    output : {"classes", "logit", "regression"}
        What a model gives for an instance: a logit per class, one logit for two classes, or a number.
    node_type, edge_type : str, tuple of str, optional
        Which nodes of a typed graph are classified, or which edges are predicted: pairs are numbers of its first and
        its last node type.
    pairs, pair_labels : Tensor, optional
        int64 [instances, 2] and [instances], of a pair task; label 1 is a link.
    test_ids : Tensor, optional
        int64 [tests]: the test instances, where the data itself says which they are.
    first : int, optional
        Explain the first so many test instances of any class; None: those whose label and prediction are positive.
    explanations : callable, optional
        Every acceptable explanation of a key, none where it has none; for sets without `truth` or `edge_motif`.
    """

    name: str
    task: str
    graphs: list[Any]
    num_classes: int
    num_features: int
    class_names: tuple[str, ...]
    positive: tuple[int, ...]
    atoms: tuple[str, ...] | None = None
    seed: int = 0
    output: str = "classes"
    num_edge_features: int = 0
    node_type: str | None = None
    edge_type: EdgeType | None = None
    pairs: Tensor | None = None
    pair_labels: Tensor | None = None
    test_ids: Tensor | None = None
    first: int | None = None
    explanations: Callable[[Key], list[Edges]] | None = None

    def __post_init__(self) -> None:
        require(self.task in TASKS, f"Expected `task` to be one of {', '.join(TASKS)}", got=repr(self.task))
        require(self.output in OUTPUTS, f"Expected `output` to be one of {', '.join(OUTPUTS)}", got=repr(self.output))
        require(
            len(self.graphs) == 1 if self.task != "graph" else len(self.graphs) > 0,
            f"Expected data set {self.name!r} to have {'graphs' if self.task == 'graph' else 'one graph'}",
            got=f"{len(self.graphs)} of them",
        )
        require((self.pairs is not None) == (self.task == "pair"), "Expected `pairs` for a pair task, and for no other")

    @property
    def data(self) -> Any:
        """The one graph of a node or pair task, a Data or HeteroData."""
        require(self.task != "graph", f"Expected a task on one graph, and {self.name!r} {TASKS[self.task]}")
        return self.graphs[0]

    @property
    def typed(self) -> bool:
        """Whether nodes and edges have types (HeteroData)."""
        return isinstance(self.graphs[0], HeteroData)

    @property
    def types(self) -> dict[str, Any] | None:
        """The features per node type, the edge types, and what is predicted, of a typed graph; ready for JSON."""
        if not self.typed:
            return None
        graph = self.graphs[0]
        widths = {name: int(graph[name].x.shape[1]) for name in graph.node_types}
        types: dict[str, Any] = {"nodes": widths, "edges": [list(kind) for kind in graph.edge_types]}
        if self.edge_type is None:
            return types | {"target": self.node_type}
        return types | {"source": self.edge_type[0], "target": self.edge_type[2]}

    @property
    def _nodes(self) -> Any:
        """What holds the nodes that are classified: the graph, or one type of it."""
        return self.data[self.node_type] if self.node_type else self.data

    @property
    def has_truth(self) -> bool:
        """Whether true explanations are known, as edges."""
        return self.explanations is not None or ("edge_motif" if self.task == "node" else "truth") in self.graphs[0]

    @property
    def labels(self) -> Tensor:
        """The label of every instance [len(self)]: int64, or float32 where a number is predicted."""
        if self.pair_labels is not None:
            return self.pair_labels
        return torch.cat([graph.y.view(-1) for graph in self.graphs]) if self.task == "graph" else self._nodes.y

    def __len__(self) -> int:
        """How many instances there are: nodes, graphs or pairs."""
        if self.pairs is not None:
            return len(self.pairs)
        return len(self.graphs) if self.task == "graph" else int(self._nodes.num_nodes or 0)

    def keys(self, ids: Iterable[int] | Tensor) -> list[Key]:
        """What `cf2.explain` calls instances: the numbers themselves, or the two nodes of each pair."""
        numbers = [int(number) for number in ids]
        if self.pairs is None:
            return list(numbers)
        return [(int(a), int(b)) for a, b in self.pairs[numbers].tolist()]

    def truths(self, key: Key) -> list[Edges]:
        """Every acceptable explanation of a key, each as `truth` gives it: for example one per benzene ring."""
        number = self._number(key)
        if self.explanations is not None:
            return self.explanations(key)
        if not self.has_truth:
            return []
        if self.task == "graph":
            return [self.graphs[number].truth]
        motif = int(self.data.motif[number])
        return [self.data.edge_motif == motif] if motif >= 0 else []

    def truth(self, key: Key) -> Any:
        """The true explanation of a node, graph or pair; if there are several acceptable ones, their union.

        Parameters
        ----------
        key : int or tuple of int
            A node (node task), the number of a graph, or the two nodes of a pair.

        Returns
        -------
        Tensor, dict or None
            bool [edges], in the order of the columns of its `edge_index`; of a typed graph, that for each edge type;
            None where the truth is not known.
        """
        explanations: list[Any] = self.truths(key)
        if explanations and isinstance(explanations[0], dict):
            return {kind: torch.stack([edges[kind] for edges in explanations]).any(0) for kind in explanations[0]}
        return torch.stack(explanations).any(0) if explanations else None

    def fingerprint(self) -> str:
        """A SHA-256 of the edges, labels and features, by which a model knows the data it was trained on."""
        parts: list[Any] = [f"{self.task} {self.num_classes} {self.num_features}"]
        for graph in self.graphs:
            for store in graph.stores:  # one of a Data, one per type of a HeteroData
                parts += _parts(store)
        given = [part for part in (self.pairs, self.pair_labels, self.test_ids) if part is not None]
        return fingerprint(*parts, *(f"{tuple(part.shape)} {part.tolist()}" for part in given))

    def _number(self, key: Key) -> int:
        """The number of a valid key; of a pair, that of its first node."""
        if self.pairs is not None:
            ends = [self.data[kind] for kind in self.edge_type[::2]] if self.edge_type else [self.data] * 2
            last = [int(end.num_nodes) - 1 for end in ends]
            good = isinstance(key, tuple) and len(key) == 2 and all(0 <= a <= b for a, b in zip(key, last))
            require(good, f"Expected a pair of {self.name!r}, (0, 0) to ({last[0]}, {last[1]})", got=key)
            return int(key[0])  # type: ignore[index]
        what = "a node" if self.task == "node" else "a graph"
        good = isinstance(key, int) and 0 <= key < len(self)
        require(good, f"Expected {what} of {self.name!r}, 0 to {len(self) - 1}", got=key)
        return int(key)  # type: ignore[arg-type]


def _parts(store: Any) -> Iterator[Any]:
    """What a fingerprint is made of: the tensors of a graph, or of one type of a typed one, each after its shape."""
    kind, x = getattr(store, "_key", None), store.get("x")
    yield "" if kind is None else str(kind)
    tensors = [store[name] for name in ("edge_index", "y") if name in store]
    tensors = [tensor if tensor.is_floating_point() else tensor.int() for tensor in tensors]
    if x is not None:
        filled = x.nonzero()  # zeros are left out: CiteSeer's features are 99 % zeros
        yield str(tuple(x.shape))
        tensors += [filled.int(), x[filled.unbind(1)]]
    for tensor in tensors + ([store["edge_attr"]] if "edge_attr" in store else []):
        yield f"{tuple(tensor.shape)} {tensor.dtype}"
        yield tensor


def split(dataset: Dataset, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw 80 % of the instances for training and 20 % for testing, unless the data defines its test instances.

    Python's own generator is used because its stream is the same for every version of every library.

    Parameters
    ----------
    dataset : Dataset
        Whose instances (nodes, graphs or pairs) are split.
    seed : int
        The seed of the draw.

    Returns
    -------
    train_ids, test_ids : Tensor
        int64 [int(0.8 n)] and [the rest], in random order. If the data has `test_ids`: the other ids in random order,
        and `test_ids` unchanged.
    """
    require_number("seed", seed, 0, integer=True)
    if dataset.test_ids is not None:
        tests = set(dataset.test_ids.tolist())
        return torch.tensor(shuffled((i for i in range(len(dataset)) if i not in tests), seed)), dataset.test_ids
    order = shuffled(range(len(dataset)), seed)
    cut = int(0.8 * len(order))
    return torch.tensor(order[:cut]), torch.tensor(order[cut:])


def shuffled(values: Iterable[int], seed: int) -> list[int]:
    """Numbers in an order that is drawn, the same with every version of every library."""
    order, rng = list(values), random.Random(seed)
    for last in range(len(order) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def instances_to_explain(dataset: Dataset, test_ids: Tensor, predictions: Tensor) -> Tensor:
    """Test instances explained in the paper.

    CiteSeer, pairs and regressions: the first 200. Other data sets: those whose label and prediction are both in
    `dataset.positive`.

    Parameters
    ----------
    dataset : Dataset
        The data set.
    test_ids : Tensor
        int64 [tests], the second part of `split`.
    predictions : Tensor
        int64 [tests] or [len(dataset)], the predicted class per test instance or per instance.

    Returns
    -------
    Tensor
        int64 [chosen], in the order of `test_ids`.
    """
    if len(predictions) == len(dataset):
        predictions = predictions[test_ids]
    require(
        len(predictions) == len(test_ids),
        "Expected a prediction for each test instance or for every instance",
        got=f"{len(predictions)} predictions for {len(test_ids)} test instances of {len(dataset)}",
    )
    if dataset.first is not None:
        return test_ids[: dataset.first]
    positive = torch.tensor(dataset.positive)
    both = torch.isin(dataset.labels[test_ids], positive) & torch.isin(predictions, positive)
    return test_ids[both]
