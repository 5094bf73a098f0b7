"""What a data set is, how it is split, and which of its instances the paper explains."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import CF2Error, require, require_number

CITESEER_INSTANCES = 200


@dataclass(frozen=True)
class Dataset:
    """Graphs with labels and, where it is planted or known, the true explanation of each.

    Parameters
    ----------
    name : str
        The name by which `load` knows it.
    task : {"node", "graph"}
        What is classified.
    graphs : list of Data
        Each with `x` [nodes, num_features], `edge_index` [2, edges] and `y`. A node task has one graph, with `y`
        [nodes] and, where the truth is known, `motif` [nodes] and `edge_motif` [edges], both -1 outside of motifs.
        A graph task has `y` [1] on each graph and, where the truth is known, `truth` [edges], bool.
    num_classes, num_features : int
        How many classes, and columns of `x`, there are.
    class_names : tuple of str
        A name per class.
    positive : tuple of int
        The classes that the paper explains.
    atoms : tuple of str, optional
        The element per column of `x`, for molecules whose elements are known.
    seed : int
        The seed of a synthetic set.
    """

    name: str
    task: str
    graphs: list[Data]
    num_classes: int
    num_features: int
    class_names: tuple[str, ...]
    positive: tuple[int, ...]
    atoms: tuple[str, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.task in ("node", "graph"), "Expected `task` to be 'node' or 'graph'", got=repr(self.task))
        require(
            len(self.graphs) == 1 if self.task == "node" else len(self.graphs) > 0,
            f"Expected data set {self.name!r} to have {'one graph' if self.task == 'node' else 'graphs'}",
            got=f"{len(self.graphs)} of them",
        )

    @property
    def data(self) -> Data:
        """The one graph of a node task."""
        require(self.task == "node", f"Expected a node task, and {self.name!r} classifies graphs")
        return self.graphs[0]

    @property
    def has_truth(self) -> bool:
        """Whether the true explanations are known."""
        return ("edge_motif" if self.task == "node" else "truth") in self.graphs[0]

    @property
    def labels(self) -> Tensor:
        """The label of every node (node task) or of every graph, int64 [len(self)]."""
        if self.task == "node":
            return self._tensor(self.graphs[0].y)
        return torch.cat([self._tensor(graph.y).view(-1) for graph in self.graphs])

    def __len__(self) -> int:
        """How many instances there are: nodes of a node task, graphs of a graph task."""
        return int(self.graphs[0].num_nodes or 0) if self.task == "node" else len(self.graphs)

    def truth_edges(self, node: int) -> Tensor:
        """The planted edges of the motif of a node, bool [edges]; none outside of motifs.

        Parameters
        ----------
        node : int
            A node of the one graph of a node task.

        Returns
        -------
        Tensor
            bool [edges], in the order of the columns of `edge_index`.
        """
        data = self.data
        require("edge_motif" in data, f"Expected a data set with ground truth, and {self.name!r} has none")
        self._check(node)
        motif = int(data.motif[node])
        return self._tensor((data.edge_motif == motif) & (data.edge_motif >= 0))

    def truth(self, key: int) -> Tensor | None:
        """The true explanation of a node or graph.

        Parameters
        ----------
        key : int
            A node (node task) or the number of a graph.

        Returns
        -------
        Tensor or None
            bool [edges], in the order of the columns of its `edge_index`; None where the truth is not known.
        """
        self._check(key)
        if not self.has_truth:
            return None
        if self.task == "graph":
            return self._tensor(self.graphs[key].truth)
        return self.truth_edges(key) if int(self.graphs[0].motif[key]) >= 0 else None

    def fingerprint(self) -> str:
        """A SHA-256 of the edges, labels and features, by which a model knows the data it was trained on."""
        digest = hashlib.sha256(f"{self.task} {self.num_classes} {self.num_features}".encode())
        for graph in self.graphs:
            filled = graph.x.nonzero()  # zeros are left out: CiteSeer's features are 99 % zeros
            values = graph.x[filled.unbind(1)]
            digest.update(str(tuple(graph.x.shape)).encode())
            for tensor in (graph.edge_index.int(), graph.y.int(), filled.int(), values):
                digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
                digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def _check(self, key: int) -> None:
        what = "a node" if self.task == "node" else "a graph"
        require(0 <= key < len(self), f"Expected {what} of {self.name!r}, 0 to {len(self) - 1}", got=key)

    @staticmethod
    def _tensor(value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            raise CF2Error("Expected a tensor on the graph", got=type(value).__name__)
        return value


@dataclass(frozen=True)
class PaperConstants:
    """What the paper fixes for one data set.

    Parameters
    ----------
    k : int
        How many edges the methods of a fixed size choose.
    lam : float
        The weight λ of the two conditions against the size.
    k_features : int, optional
        How many feature entries the methods of a fixed size choose, where features are explained.
    threshold : float
        The value above which an entry of the relaxed mask is chosen.
    """

    k: int
    lam: float
    k_features: int | None = None
    threshold: float = 0.5


#: What the paper fixes, by the name of the data set.
PAPER: Mapping[str, PaperConstants] = MappingProxyType(
    {
        "ba-shapes": PaperConstants(k=6, lam=500),
        # The published reference cuts this one set's masks at 0.1 instead of 0.5.
        "tree-cycles": PaperConstants(k=6, lam=500, threshold=0.1),
        "mutag0": PaperConstants(k=15, lam=1000),
        "nci1": PaperConstants(k=15, lam=20),
        "citeseer": PaperConstants(k=5, lam=100, k_features=60),
    }
)


def split(dataset: Dataset, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw 80 % of the instances for training and leave 20 % for testing.

    Python's own generator is used because its stream is the same for every version of every library.

    Parameters
    ----------
    dataset : Dataset
        Whose instances (nodes or graphs) are split.
    seed : int
        The seed of the draw.

    Returns
    -------
    train_ids, test_ids : Tensor
        int64 [int(0.8 n)] and [the rest], both in the order of drawing.
    """
    require_number("seed", seed, 0, integer=True)
    order = list(range(len(dataset)))
    rng = random.Random(seed)
    for last in range(len(order) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        order[last], order[other] = order[other], order[last]
    cut = int(0.8 * len(order))
    return torch.tensor(order[:cut]), torch.tensor(order[cut:])


def instances_to_explain(dataset: Dataset, test_ids: Tensor, predictions: Tensor) -> Tensor:
    """The test instances that the paper explains.

    CiteSeer: the first 200. Elsewhere: those whose label and prediction are both in `dataset.positive`.

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
    if dataset.name == "citeseer":
        return test_ids[:CITESEER_INSTANCES]
    positive = torch.tensor(dataset.positive)
    both = torch.isin(dataset.labels[test_ids], positive) & torch.isin(predictions, positive)
    return test_ids[both]
