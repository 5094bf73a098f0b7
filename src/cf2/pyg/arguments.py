"""From what torch_geometric passes to a model to what is explained: the bound model, its targets, keys and classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.errors import reading, require
from cf2.graphs.graph import Direction, Graph, Instance, check_tensors
from cf2.graphs.targets import GraphTargets, NodeTargets, PairTargets, Targets, Whole, check_ids
from cf2.graphs.typed import ATTRIBUTES
from cf2.models.adapters import module_of
from cf2.options import EdgeType, Key, Spec

PAIRS = "edge_label_index"
PACKED = {"graph": ("batch", "batch_dict", "batch_size"), "edge": (PAIRS,)}  # by level: these are made for every pack
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_CARRIER = {"node": "node_argument", "edge": "edge_argument", "graph": "node_graph_argument"}


def arrange(
    model: torch.nn.Module, x: Any, edge_index: Any, kwargs: Mapping[str, Any], *, level: str, outputs: int, spec: Spec
) -> tuple[torch.nn.Module, Targets]:
    """The model with its further arguments bound, and its targets: nodes, pairs, or the graphs of a batch.

    What describes nodes, edges or graphs goes into the graph, with which it is cut and packed. `outputs` is how many
    rows the model gives; `x` and `edge_index` are dictionaries of a typed graph.
    """
    model, typed = module_of(model), isinstance(x, Mapping)
    further = {name: value for name, value in kwargs.items() if name not in PACKED.get(level, ())}
    of_graphs, batch = level == "graph", kwargs.get("batch_dict", kwargs.get("batch"))
    parts = (_typed if typed else _plain)(x, edge_index, further, of_graphs, batch, spec)
    bound, graph = BoundModel(model, parts.constants, parts.names, kwargs), parts.graph
    if level == "edge":
        return bound, LabelledPairs(graph, labelled_pairs(kwargs), edge_type=spec.edge_type)
    if parts.of_node is not None:
        return bound, BatchTargets(graph, parts.of_node, directed=True if typed else spec.directed)
    if typed and spec.node_type is None:
        return bound, NodeTargets(graph, None, _type_of_rows(x, outputs))
    return bound, NodeTargets(graph, None, spec.node_type if typed else None)


class _Parts(NamedTuple):
    """The arguments of a call, by what they are for."""

    graph: Graph  # with what describes its nodes and edges
    of_node: Tensor | None  # the graph of every node, where graphs are explained
    names: dict[str, str]  # what the graph calls an argument -> what the model calls it
    constants: dict[str, Any]  # what is passed on as it is


def _plain(x: Any, edge_index: Any, further: Mapping[str, Any], of_graphs: bool, batch: Any, spec: Spec) -> _Parts:
    data = Data(x=x, edge_index=edge_index)
    x, edge_index = check_tensors(data, "the graph")
    of_node = _graph_of_node(batch, x, edge_index) if of_graphs else None
    graphs = None if of_node is None else int(of_node.max()) + 1
    names, constants = {}, {}
    for name, value in further.items():
        kind = _described(name, value, len(x), edge_index.size(1), graphs)
        if kind is None:
            constants[name] = value
            continue
        if kind == "graph" and of_node is not None:  # kept per node, so that it is packed with the graph's nodes
            value = value[of_node.to(value.device)]
        own = name if kind == "edge" and name.startswith("edge_") else f"{_CARRIER[kind]}_{name}"
        names[own], data[own] = name, value
    return _Parts(Graph(data, directed=spec.directed), of_node, names, constants)


def _typed(x: Any, edge_index: Any, further: Mapping[str, Any], of_graphs: bool, batch: Any, spec: Spec) -> _Parts:
    data = HeteroData()
    for node_type, value in x.items():
        data[node_type].x = value
    for edge_type, ends in edge_index.items():
        data[edge_type].edge_index = ends
    by_type = [name for name, value in further.items() if isinstance(value, Mapping)]
    for name in by_type:
        attribute = name.removesuffix("_dict")
        require(
            attribute in ATTRIBUTES,
            f"Expected further arguments by type to be {' or '.join(ATTRIBUTES)} of edges",
            got=f"`{name}`",
            do="Use cf2.explain(…, call=…), or store it in the model.",
        )
        for edge_type, value in further[name].items():
            data[edge_type][attribute] = value
    graph = Graph(data, directed=spec.directed, reverse=spec.reverse)
    of_node = _graph_of_node(batch, x, graph.edge_index) if of_graphs else None
    constants = {name: value for name, value in further.items() if name not in by_type}
    return _Parts(graph, of_node, {name: name for name in by_type}, constants)


def _described(name: str, value: object, nodes: int, edges: int, graphs: int | None) -> str | None:
    """What an argument describes, by its length, as torch_geometric decides it for a Data object; None: nothing."""
    rows = value.size(0) if isinstance(value, Tensor) and value.dim() else -1
    if rows == edges and (edges not in (nodes, graphs) or "edge" in name):
        return "edge"
    if rows == nodes:
        return "node"
    return "graph" if rows == graphs else None


class BoundModel(torch.nn.Module):
    """A model with some arguments in place, and others under names that say what they describe."""

    def __init__(
        self, model: torch.nn.Module, constants: Mapping[str, Any], names: Mapping[str, str], given: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.model = model

        def forward(x: Any, edge_index: Any, **passed: Any) -> Any:
            arguments = dict(constants)
            for own, value in passed.items():
                per_graph = own.startswith(_CARRIER["graph"])
                arguments[names.get(own, own)] = value[_first(passed["batch"])] if per_graph else value
            return model(x, edge_index, **arguments)

        # The adapters ask the signature what may be passed.
        takes = {*inspect.signature(model.forward).parameters, *given}
        filled = [name for name in ("edge_weight", *PACKED["graph"], PAIRS) if name in takes]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        declared = [inspect.Parameter(name, kind) for name in dict.fromkeys(["x", "edge_index", *filled, *names])]
        forward.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
        self.forward = forward


def _first(batch: Tensor) -> Tensor:
    """The first node of every graph of a packed batch."""
    return torch.searchsorted(batch, torch.arange(int(batch[-1]) + 1, device=batch.device))


# -- targets --------------------------------------------------------------------------------------------------


class BatchTargets(GraphTargets):
    """The graphs of one batch; their nodes keep the ids that they have in the batch."""

    def __init__(self, batch: Graph, of_node: Tensor, *, directed: bool | None) -> None:
        self._batch, self.schema = batch, batch.schema
        self._mixed = directed is None and batch.directed  # some of the graphs may be undirected
        of_edge, graphs = of_node[batch.edge_index[0]], int(of_node.max()) + 1 if of_node.numel() else 1
        self._nodes, self._edges = (
            torch.split(group.argsort(stable=True), torch.bincount(group, minlength=graphs).tolist())
            for group in (of_node, of_edge)
        )

    def __len__(self) -> int:
        return len(self._nodes)

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in", further: Sequence[int] = ()) -> Instance:
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


def _type_of_rows(x: Mapping[str, Tensor], outputs: int) -> str:
    """The node type whose nodes the rows of the model's output are, by how many there are."""
    fits = [name for name, value in x.items() if value.size(0) == outputs]
    require(
        len(fits) == 1,
        f"Expected one node type with as many nodes as the model's {outputs} outputs",
        got=" and ".join(fits) or "none",
        do="Pass node_type=… to the algorithm.",
    )
    return fits[0]


def _graph_of_node(batch: Any, x: Any, edge_index: Tensor) -> Tensor:
    """The graph of every node, type after type; without a batch there is one."""
    if isinstance(x, Mapping):
        given = {} if batch is None else batch
        good = isinstance(given, Mapping) and (batch is None or set(given) >= set(x))
        got = list(given) if isinstance(given, Mapping) else f"an object of type {type(given).__name__}"
        require(good, f"Expected a `batch` for the nodes of each type, {', '.join(x)}", got=got)
        of_node = torch.cat([_checked_batch(given.get(name), len(rows)) for name, rows in x.items()])
    else:
        of_node = _checked_batch(batch, len(x))
    tail, head = of_node[edge_index]
    require(bool((tail == head).all()), "Expected every edge to lie inside one graph of `batch`", got="another edge")
    return of_node


def _checked_batch(batch: Any, nodes: int) -> Tensor:
    if batch is None:
        return torch.zeros(nodes, dtype=torch.long)
    expected, cure = f"Expected `batch` to hold a graph number for each of {nodes} nodes", "Numbers start at 0."
    with reading(batch, expected, cure):
        of_node: Tensor = batch.detach().cpu()
        good = of_node.shape == (nodes,) and of_node.dtype in INTEGERS and bool((of_node >= 0).all())
    require(good, expected, got=f"{of_node.dtype} of shape {[*of_node.shape]}", do=cure)
    return of_node.long()


# -- which outputs, and which classes -------------------------------------------------------------------------


def keys_of(index: Any, outputs: int) -> list[Key]:
    """The rows of the model's output to explain, as torch would index them: ids, a mask, or all."""
    if index is None:
        return list(range(outputs))
    expected = f"Expected `index` to choose among the model's {outputs} outputs"
    require(not isinstance(index, bool), expected, got=index)
    with reading(index, expected):
        index = index if isinstance(index, int | slice) else torch.as_tensor(index).detach().cpu()
        if isinstance(index, Tensor) and index.dtype == torch.uint8:
            index = index.bool()  # as torch reads it, with a warning
        keys: list[Key] = torch.arange(outputs)[index].view(-1).tolist()
    require(len(keys) > 0, "Expected `index` to choose at least one output of the model", got="none")
    return keys


def classes_of(target: Any, keys: Sequence[Key], outputs: int) -> tuple[tuple[Key, int], ...]:
    """The class to explain of each key; `target` has one for every output of the model."""
    expected = f"Expected `target` to hold one class for each of the model's {outputs} outputs"
    with reading(target, expected):
        flat = torch.as_tensor(target).detach().cpu().reshape(-1).double()
    require(flat.numel() == outputs, expected, got=flat.numel())
    chosen = flat[torch.tensor(keys)]
    require(
        bool((chosen == chosen.long()).all()) and bool((chosen >= 0).all()),
        "Expected `target` to hold classes, whole numbers from 0",
        got=chosen.tolist()[:5],
    )
    return tuple(zip(keys, chosen.long().tolist()))
