"""From what torch_geometric passes to a model to what is explained: the model's call, its targets, keys and classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.errors import CF2Error, require
from cf2.graphs.graph import Direction, Graph, Instance, check_tensors
from cf2.graphs.targets import GraphTargets, NodeTargets, PairTargets, Targets, Whole, check_ids
from cf2.graphs.typed import ATTRIBUTES
from cf2.models.adapters import NEEDED, Call, CallOfOurs, module_of
from cf2.options import EdgeType, Key, Spec

Kind = Literal["node", "edge", "graph", "constant"]
_CARRIER = {"node": "node_argument", "edge": "edge_argument", "graph": "node_graph_argument"}


class BatchTargets(GraphTargets):
    """The graphs of one batch; their nodes keep the ids that they have in the batch."""

    def __init__(self, batch: Graph, of_node: Tensor, *, directed: bool | None = True) -> None:
        graphs = int(of_node.max()) + 1 if of_node.numel() else 1
        self._batch, self.schema = batch, batch.schema
        self._mixed = directed is None and batch.directed  # some of the graphs may be undirected
        self._nodes = _members(of_node, graphs)
        self._edges = _members(of_node[batch.edge_index[0]], graphs)

    def __len__(self) -> int:
        return len(self._nodes)

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        assert isinstance(key, int)
        part = self._batch.part(key, self._nodes[key], self._edges[key])
        own = self._mixed and Graph(Data(x=part.x, edge_index=part.edge_index)).directed
        return replace(part, directed=own) if self._mixed else part


class LabelledPairs(PairTargets):
    """The pairs of an `edge_label_index`, by their position in it; the graph is as the model was given it."""

    def __init__(self, graph: Graph, pairs: Any, *, edge_type: EdgeType | None = None) -> None:
        super().__init__(graph, leave_out=False, edge_type=edge_type)
        self._pairs = super().check(pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def check(self, keys: Any) -> list[Key]:
        return check_ids(keys, len(self))

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        return super().wholes(range(len(self)) if keys is None else keys)

    def probes(self, direction: Direction, count: int) -> list[Key]:
        return [*range(min(count, len(self)))]

    def _ends(self, key: Key) -> tuple[int, ...]:
        assert isinstance(key, int)
        return super()._ends(self._pairs[key])


def _members(group: Tensor, groups: int) -> list[Tensor]:
    """The positions of every group, ascending."""
    return list(torch.split(group.argsort(stable=True), torch.bincount(group, minlength=groups).tolist()))


def arrange(
    model: torch.nn.Module,
    x: Tensor,
    edge_index: Tensor,
    kwargs: Mapping[str, Any],
    *,
    level: str,
    directed: bool | None,
) -> tuple[torch.nn.Module, Targets]:
    """The model with its further arguments in place, and its targets: nodes, pairs, or the graphs of a batch."""
    model, data = module_of(model), Data(x=x, edge_index=edge_index)
    x, edge_index = check_tensors(data, "the graph")
    batch = _batch(kwargs.get("batch"), x, edge_index) if level == "graph" else None
    constants: dict[str, Any] = {}
    names: dict[str, str] = {}  # ours -> the model's; ours say what a tensor describes
    for name, value in kwargs.items():
        if (batch is not None and name in ("batch", "batch_size")) or (level == "edge" and name == PAIRS):
            continue  # the packed ones take their place
        kind = _kind(name, value, x.size(0), edge_index.size(1), None if batch is None else int(batch.max()) + 1)
        if kind == "constant":
            constants[name] = value
            continue
        if kind == "graph" and batch is not None:  # kept per node, so that it is packed with the graph's nodes
            value = value[batch.to(value.device)]
        own = name if kind == "edge" and name.startswith("edge_") else f"{_CARRIER[kind]}_{name}"
        names[own] = name
        data[own] = value
    bound = ModelWithArguments(model, constants, names, kwargs)
    graph = Graph(data, directed=directed)
    if level == "edge":
        return bound, LabelledPairs(graph, labelled_pairs(kwargs))
    return bound, NodeTargets(graph) if batch is None else BatchTargets(graph, batch, directed=directed)


PAIRS = "edge_label_index"


def labelled_pairs(kwargs: Mapping[str, Any]) -> Tensor:
    """The pairs whose outputs a model of edges returns."""
    pairs = kwargs.get(PAIRS)
    good = isinstance(pairs, Tensor) and pairs.dim() == 2 and pairs.size(0) == 2 and not pairs.is_floating_point()
    require(
        good,
        "Expected the pairs of an explanation of edges as `edge_label_index`, [2, pairs]",
        got="none" if pairs is None else f"an object of type {type(pairs).__name__}",
        do="Call the Explainer with edge_label_index=….",
    )
    assert isinstance(pairs, Tensor)
    return pairs.t().reshape(-1, 2)


def arrange_types(
    model: torch.nn.Module,
    x: Mapping[str, Tensor],
    edge_index: Mapping[EdgeType, Tensor],
    kwargs: Mapping[str, Any],
    *,
    level: str,
    outputs: int,
    spec: Spec,
) -> tuple[Targets, Call]:
    """The targets of a typed graph, and how the model is called with its further arguments."""
    model, data = module_of(model), HeteroData()
    for name, value in x.items():
        data[name].x = value
    for kind, ends in edge_index.items():
        data[kind].edge_index = ends
    batch = _batch_name(model, kwargs) if level == "graph" else None
    by_type = {name: value for name, value in kwargs.items() if isinstance(value, Mapping) and name != batch}
    per_edge = {name: name.removesuffix("_dict") for name in by_type}
    for name, own in per_edge.items():
        require(
            own in ATTRIBUTES,
            f"Expected the further arguments by type to be {' or '.join(ATTRIBUTES)} of edges",
            got=f"`{name}`",
            do="Explain with cf2.explain(…, call=…), or have the model hold it.",
        )
        for kind, value in kwargs[name].items():
            data[kind][own] = value
    constants = {name: value for name, value in kwargs.items() if name not in {*per_edge, PAIRS, batch}}
    graph = Graph(data, directed=spec.directed, reverse=spec.reverse)
    targets: Targets
    if level == "edge":
        targets = LabelledPairs(graph, labelled_pairs(kwargs), edge_type=spec.edge_type)
    elif level == "graph":
        targets = BatchTargets(graph, _typed_batch(kwargs.get(batch or ""), x, graph.edge_index))
    else:
        targets = NodeTargets(graph, None, _type_of_rows(x, outputs) if spec.node_type is None else spec.node_type)

    def call(inner: torch.nn.Module, packed: Any) -> Any:
        arguments = {name: packed.collect(own) for name, own in per_edge.items()}
        arguments |= {PAIRS: packed.edge_label_index} if level == "edge" else {}
        arguments |= {} if batch is None else {batch: packed.collect("batch")}
        return inner(packed.x_dict, packed.edge_index_dict, **arguments, **constants)

    return targets, CallOfOurs(call)


def _batch_name(model: torch.nn.Module, kwargs: Mapping[str, Any]) -> str | None:
    """The argument in which a model is handed the graph of every node, by type."""
    takes = {**inspect.signature(model.forward).parameters, **kwargs}
    found = next((name for name in ("batch_dict", "batch") if name in takes), None)
    expected = f"Expected the forward of a model of graphs to take `batch_dict`, {NEEDED['graph'][1]}"
    require(found is not None, expected, got=f"forward({', '.join(takes)})")
    return found


def _typed_batch(batch: Any, x: Mapping[str, Tensor], edge_index: Tensor) -> Tensor:
    """The graph of every node of all types, one type after the other; without a batch there is one."""
    given = {} if batch is None else batch
    named = isinstance(given, Mapping) and (batch is None or set(given) >= set(x))
    got = list(given) if isinstance(given, Mapping) else f"an object of type {type(given).__name__}"
    require(named, f"Expected a `batch` for the nodes of each type, {', '.join(x)}", got=got)
    none = torch.zeros(2, 0, dtype=torch.long)
    of_node = torch.cat([_batch(given.get(name), rows, none) for name, rows in x.items()])
    return _inside(of_node, edge_index)


def _type_of_rows(x: Mapping[str, Tensor], outputs: int) -> str:
    """The node type whose nodes the rows of the model's output are, by how many there are."""
    fits = [name for name, value in x.items() if value.size(0) == outputs]
    require(
        len(fits) == 1,
        f"Expected to know the node type of the model's {outputs} outputs",
        got="none with as many nodes" if not fits else f"as many nodes of {' and '.join(fits)}",
        do="Pass node_type=… to the algorithm.",
    )
    return fits[0]


def _kind(name: str, value: object, nodes: int, edges: int, graphs: int | None) -> Kind:
    """What a keyword argument describes, by its length, as torch_geometric decides it for a Data object."""
    rows = value.size(0) if isinstance(value, Tensor) and value.dim() else -1
    if rows == edges and (edges not in (nodes, graphs) or "edge" in name):
        return "edge"
    if rows == nodes:
        return "node"
    return "graph" if rows == graphs else "constant"


def _batch(batch: Any, x: Tensor, edge_index: Tensor) -> Tensor:
    """The graph of every node; without a batch there is one."""
    if batch is None:
        return torch.zeros(x.size(0), dtype=torch.long)
    expected = f"Expected `batch` to give each of the {x.size(0)} nodes its graph"
    if not isinstance(batch, Tensor) or batch.layout != torch.strided or batch.is_meta:
        raise CF2Error(expected, got=f"an object of type {type(batch).__name__}")
    batch = batch.detach().cpu()
    whole = not batch.is_floating_point() and not batch.is_complex() and batch.dtype != torch.bool
    require(
        batch.shape == (x.size(0),) and whole and bool((batch >= 0).all()),
        expected,
        got=f"shape {tuple(batch.shape)} and dtype {batch.dtype}" if whole else f"dtype {batch.dtype}",
        do="Graphs are counted from 0.",
    )
    return _inside(batch.long(), edge_index)


def _inside(batch: Tensor, edge_index: Tensor) -> Tensor:
    tail, head = batch[edge_index]
    require(bool((tail == head).all()), "Expected every edge to lie inside one graph of `batch`", got="one between two")
    return batch


class ModelWithArguments(torch.nn.Module):
    """A model with some arguments in place and others under names that say what they describe."""

    def __init__(
        self, model: torch.nn.Module, constants: Mapping[str, Any], names: Mapping[str, str], given: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.model = model

        def forward(x: Tensor, edge_index: Tensor, **passed: Any) -> Any:
            arguments = dict(constants)
            for own, value in passed.items():
                per_graph = own.startswith(_CARRIER["graph"])
                arguments[names.get(own, own)] = value[_first(passed["batch"])] if per_graph else value
            return model(x, edge_index, **arguments)

        # The core asks the signature what may be passed.
        takes = {*inspect.signature(model.forward).parameters, *given}
        filled = [name for name in ("edge_weight", "batch", "batch_size", PAIRS) if name in takes]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        declared = [inspect.Parameter(name, kind) for name in dict.fromkeys(["x", "edge_index", *filled, *names])]
        forward.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
        self.forward = forward


def _first(batch: Tensor) -> Tensor:
    """The first node of every graph of a packed batch."""
    return torch.searchsorted(batch, torch.arange(int(batch[-1]) + 1, device=batch.device))


def keys_of(index: Any, outputs: int) -> list[Key]:
    """The rows of the model's output to explain, as torch would index them: ids, a mask, or all."""
    if index is None:
        return list(range(outputs))
    expected, got = f"Expected `index` to choose among the model's {outputs} outputs", repr(index)[:80]
    require(not isinstance(index, bool), expected, got=got)
    try:
        index = index if isinstance(index, int | slice) else torch.as_tensor(index).detach().cpu()
        if isinstance(index, Tensor) and index.dtype == torch.uint8:
            index = index.bool()  # as torch reads it, with a warning
        keys: list[Key] = torch.arange(outputs)[index].view(-1).tolist()
    except Exception as error:  # torch has several for what is no index
        raise CF2Error(expected, got=f"{got} ({error})") from error
    require(len(keys) > 0, "Expected `index` to choose at least one output of the model", got="none")
    return keys


def classes_of(target: Any, keys: Sequence[Key], outputs: int) -> tuple[tuple[Key, int], ...]:
    """The class to explain of each key; `target` has one for every output of the model."""
    expected = f"Expected `target` to hold one class for each of the model's {outputs} outputs"
    try:
        given = torch.as_tensor(target).detach().cpu()
        flat = given.reshape(-1).double()
    except Exception as error:  # of what is no number, or a tensor without values
        raise CF2Error(expected, got=f"an object of type {type(target).__name__}") from error
    require(flat.numel() == outputs, expected, got=f"shape {tuple(given.shape)}")
    chosen = flat[torch.tensor(keys)]
    require(
        bool((chosen == chosen.long()).all()) and bool((chosen >= 0).all()),
        "Expected `target` to hold classes, whole numbers from 0",
        got=chosen.tolist()[:5],
    )
    return tuple(zip(keys, chosen.long().tolist()))
