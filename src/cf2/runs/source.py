"""A model with the data it is asked about: what a run explains, whatever it came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from cf2.errors import require
from cf2.graphs.targets import Targets, targets_for
from cf2.methods import registry
from cf2.models.adapters import Call
from cf2.options import EdgeType, Key, Spec
from cf2.results.names import Names, with_edges
from cf2.runs.session import Request, train
from cf2.storage import fingerprint

MAX_TRAINING_INSTANCES = 200  # training instances of a method that is trained first


@dataclass(frozen=True, eq=False)
class ModelAndData:
    """A model and the graphs to explain.

    `description` is JSON by which the same model and data are found again. `keys_to_explain` and `keys_to_train_on` say
    what is explained, and what a learned method is trained on, where nothing is given.
    """

    model: nn.Module
    level: str  # "node", "pair": one graph; "graph": many
    graphs: Sequence[Data | HeteroData]
    class_names: tuple[str, ...] = ()
    description: dict[str, Any] = field(default_factory=dict)
    model_line: str = ""  # the model in a few words
    name: str = ""
    output: str = "auto"  # what the model gives, where a Spec leaves it open
    node_type: str | None = None  # of a typed graph, the nodes that are explained
    edge_type: tuple[str, str, str] | None = None  # of a typed graph, what a pair stands for
    truths: Callable[[Key], list[Any]] = lambda key: []  # every acceptable explanation, each as `truth` gives it
    atoms: tuple[str, ...] | None = None  # the element that each feature column stands for
    names: Names = field(default_factory=Names)  # what nodes and features are called, and which molecules graphs are
    # True edges: a bool per column of the `edge_index`; of a typed graph that for each edge type.
    truth: Callable[[Key], Tensor | Mapping[EdgeType, Tensor] | None] = lambda key: None
    call: Call | None = None  # how the model is called, where its own forward does not say it
    labels: Mapping[Key, int] = field(default_factory=dict)  # true classes that the graphs themselves do not hold
    keys_to_explain: Callable[[], list[Key]] | None = None
    keys_to_train_on: Callable[[], list[Key]] | None = None
    _targets: dict[tuple[Any, ...], Targets] = field(default_factory=dict, repr=False)
    _fingerprints: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def settled(self, spec: Spec) -> Spec:
        """The Spec with what it leaves open and the source knows: what the model gives, and the types of a graph."""
        if spec.level not in ("auto", self.level):
            return spec
        known: dict[str, Any] = {"output": self.output} if spec.output == "auto" else {}
        known |= {"node_type": self.node_type} if spec.node_type is None else {}
        known |= {"edge_type": self.edge_type} if spec.edge_type is None else {}
        return replace(spec, **known)

    def targets(self, spec: Spec = Spec()) -> Targets:
        """What can be explained; checked and indexed once."""
        spec = self.settled(spec)
        level = self.level if spec.level == "auto" else spec.level
        reading = (level, spec.directed, spec.leave_out_pair, spec.node_type, spec.edge_type, spec.reverse)
        if reading not in self._targets:
            possible = level == "graph" or self.level != "graph"
            require(possible, f'Expected one graph for level="{level}"', got="several")
            self._targets[reading] = targets_for(self.graphs if level == "graph" else self.graphs[0], level, spec)
        return self._targets[reading]

    def fingerprints(self) -> dict[str, str]:
        """Digests of the data, and of the model: its layers as it prints them, and its weights; made once."""
        if not self._fingerprints:
            layers = re.sub(r" at 0x[0-9a-f]+", "", f"{type(self.model).__qualname__} {self.model!r}")
            self._fingerprints["data"] = _fingerprint(self.level, map(values_of, self.graphs))
            self._fingerprints["model"] = _fingerprint(layers, [self.model.state_dict()])
        return dict(self._fingerprints)

    def __len__(self) -> int:
        """How many nodes or graphs there are."""
        return int(self.graphs[0].num_nodes or 0) if self.level != "graph" else len(self.graphs)

    def keys(self, spec: Spec = Spec()) -> list[Key]:
        """The keys that are explained by default: those of the source, else the test set, else all."""
        if spec.level not in ("auto", self.level):
            return list(range(len(self.targets(spec))))
        if self.keys_to_explain is not None:
            return self.keys_to_explain()
        if masked := self._masked("test_mask", self.settled(spec).node_type):
            return masked
        require(self.level != "pair", "Expected the pairs to explain", got="none", do="Pass --pairs 3:17,4:9.")
        return list(range(len(self.targets(spec))))

    def _masked(self, name: str, node_type: str | None = None) -> list[Key]:
        graph = self.graphs[0]
        store = graph[node_type] if isinstance(graph, HeteroData) and node_type in graph.node_types else graph
        mask = getattr(store, name, None) if self.level == "node" else None
        if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == 1:
            return [int(key) for key in mask.nonzero().flatten()]
        return []

    def request(self, keys: Sequence[Key], spec: Spec, trained: Any = None) -> Request:
        """The request to explain the keys; elements are taken from the data for `valid="molecule"`."""
        spec = self.settled(spec)
        if spec.valid == "molecule" and spec.atoms is None and self.atoms is not None:
            spec = replace(spec, atoms=self.atoms)
        targets = self.targets(spec)
        labels = targets.labels(keys) or {key: self.labels[key] for key in keys if key in self.labels} or None
        own = self.class_names if self.description.get("kind") in ("function", "chemprop") else ()
        return Request(self.model, targets, spec, trained, labels, call=self.call, names=Names(own or None))

    def needed(self, spec: Spec, keys: Sequence[Key]) -> Any:
        """What the method of a Spec needs beside the model to explain the keys: see `Method.needs`."""
        needs = registry.get(spec.method).needs
        if needs == "truth":
            return self.true_edges(keys)
        return train(self.request([], spec), self._training_keys(spec, keys)) if needs == "training" else None

    def check_needs(self, spec: Spec, keys: Sequence[Key]) -> None:
        """Refuse a method that could not be given what it needs, without making that."""
        needs = registry.get(spec.method).needs
        if needs == "truth":
            self.true_edges(keys)
        elif needs == "training":
            self._training_keys(spec, keys)

    def _training_keys(self, spec: Spec, keys: Sequence[Key]) -> list[Key]:
        own = spec.level in ("auto", self.level)
        if own and self.keys_to_train_on is not None:
            others = self.keys_to_train_on()
        else:
            explained, masked = set(keys), self._masked("train_mask", self.settled(spec).node_type) if own else []
            others = [key for key in masked or range(len(self.targets(spec))) if key not in explained]
        require(
            len(others) > 0,
            "Expected instances to train the method on, besides the explained ones",
            got="none",
            do="Explain fewer keys.",
        )
        return others[:MAX_TRAINING_INSTANCES]

    def true_edges(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """The true edges of the keys as pairs [n, 2] of node ids, of a typed graph by edge type; all must be known."""
        true = {key: self._pairs(key) for key in keys}
        for key, pairs in true.items():
            what = f"{self.level} {key} of {self.name or 'your own data'}"
            require(pairs is not None, f"Expected the true explanation of {what} to be known", got="none")
        return {key: _arrays(pairs) for key, pairs in true.items()}

    def context(self, keys: Sequence[Key], *, edges: bool = False) -> dict[str, Any]:
        """What a reader of the explanations needs beside them, ready for JSON; `edges` if answers may have none."""
        context: dict[str, Any] = {
            "class_names": list(self.class_names),
            "model": self.model_line,
            "dataset": self.name,
        }
        names = replace(self.names, class_names=None, atoms=self.atoms)
        context |= names.context(self._graph, keys, None if self.level != "graph" else len(self.graphs))
        if edges and self.level == "graph":
            context = with_edges(context, self._graph, keys)
        true = {str(key): pairs for key in keys if (pairs := self._pairs(key)) is not None}
        return context | ({"truth": true} if true else {})

    def _graph(self, key: Key) -> Any:
        return self.graphs[0] if self.level != "graph" else self.graphs[key]  # type: ignore[index]

    def _pairs(self, key: Key) -> Any:
        """The true edges as JSON has them: pairs of ids, or, of a typed graph, pairs by edge type."""
        mask, graph = self.truth(key), self._graph(key)
        if isinstance(mask, Mapping):
            some = {kind: own for kind, own in mask.items() if bool(own.any())}
            return {",".join(kind): graph[kind].edge_index[:, own].t().tolist() for kind, own in some.items()}
        return None if mask is None else graph.edge_index[:, mask].t().tolist()


def _arrays(pairs: Any) -> Any:
    if isinstance(pairs, Mapping):
        return {tuple(kind.split(",")): _arrays(some) for kind, some in pairs.items()}
    return np.asarray(pairs, dtype=np.int64).reshape(-1, 2)


def values_of(graph: Data | HeteroData) -> dict[str, Any]:
    """Everything that a graph holds, by name; of a typed graph with the type before the name."""
    if isinstance(graph, Data):
        return dict(graph.to_dict())
    parts = zip((*graph.node_types, *graph.edge_types), (*graph.node_stores, *graph.edge_stores))
    return {f"{kind}.{name}": value for kind, store in parts for name, value in store.items()}


def _fingerprint(name: str, parts: Iterable[Mapping[str, Any]]) -> str:
    """A short SHA-256 over values by name: tensors by their type, shape and bytes, plain values as they print."""
    told: list[Any] = [name]
    for part in parts:
        for key, value in sorted(part.items()):
            if isinstance(value, Tensor) and not nn.parameter.is_lazy(value):
                told += [f"\0{key} {value.dtype} {tuple(value.shape)} ", value]
            elif value is None or isinstance(value, bool | int | float | str):
                told.append(f"\0{key} {value!r}")
    return fingerprint(*told, digits=32)
