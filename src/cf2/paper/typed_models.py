"""Base models of typed graphs: a relational convolution on the flat graph (R-GCN), and a transformer (HGT).

Both take dictionaries by type, as torch_geometric's typed models do. A type that is not in them has no nodes or edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import HGTConv, MessagePassing

from cf2.errors import require, unknown_name
from cf2.paper.models import AGGREGATIONS, make_head, start_as_sum

TYPED_ARCHITECTURES = ("rgcn", "hgt")
HEADS = 2  # of a transformer layer

EdgeType = tuple[str, str, str]
Nodes = dict[str, Tensor]
EdgeIndices = dict[EdgeType, Tensor]


class RelationalConv(MessagePassing):  # type: ignore[misc]
    """h ← W·h + b + Σ (or mean) over incoming edges of W_r·h, with a matrix W_r for each relation r.

    All edges are passed at once, so that each message has its place in the flat graph.
    """

    def __init__(self, width: int, relations: int, aggregation: str) -> None:
        super().__init__(aggr="add" if aggregation == "sum" else "mean")
        self.width, self.relations = width, relations
        self.own, self.each = nn.Linear(width, width), nn.Linear(width, width * relations, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Hidden states [nodes, width]; `edge_type` [edges] is the number of each edge's relation."""
        out: Tensor = self.own(x) + self.propagate(edge_index, x=self.each(x), edge_type=edge_type, size=None)
        return out

    def message(self, x_j: Tensor, edge_type: Tensor) -> Tensor:
        """The part of the sender's states that belongs to the relation, [edges, width]."""
        return x_j.view(-1, self.relations, self.width)[torch.arange(len(edge_type), device=x_j.device), edge_type]


class _RelationalLayers(nn.Module):
    """Layers of `RelationalConv` on the flat graph: the types one after the other."""

    def __init__(self, types: Types, hidden: int, layers: int, aggregation: str) -> None:
        super().__init__()
        self.types = types
        self.convs = nn.ModuleList(RelationalConv(hidden, len(types.edges), aggregation) for _ in range(layers))

    def forward(self, states: Nodes, edge_index_dict: EdgeIndices) -> Nodes:
        names = list(states)
        sizes = [len(states[name]) for name in names]
        first = dict(zip(names, torch.tensor([0, *sizes]).cumsum(0).tolist()))
        shifted, kinds = [], []
        for number, kind in enumerate(self.types.edges):
            ends = edge_index_dict[kind]
            shifted.append(torch.stack([ends[0] + first[kind[0]], ends[1] + first[kind[2]]]))
            kinds.append(torch.full_like(ends[0], number))
        h, edge_index, edge_type = torch.cat([states[name] for name in names]), torch.cat(shifted, 1), torch.cat(kinds)
        for conv in self.convs:
            h = conv(h.relu(), edge_index, edge_type)
        return dict(zip(names, torch.split(h, sizes)))


class _TransformerLayers(nn.Module):
    """Layers of torch_geometric's `HGTConv`."""

    def __init__(self, types: Types, hidden: int, layers: int, aggregation: str) -> None:
        super().__init__()
        metadata = (list(types.nodes), list(types.edges))
        self.convs = nn.ModuleList(HGTConv(hidden, hidden, metadata, HEADS) for _ in range(layers))

    def forward(self, states: Nodes, edge_index_dict: EdgeIndices) -> Nodes:
        for conv in self.convs:
            given = conv({name: h.relu() for name, h in states.items()}, edge_index_dict)
            states = {name: given[name] for name in states}
        return states


LAYERS = dict(zip(TYPED_ARCHITECTURES, (_RelationalLayers, _TransformerLayers)))


class Types:
    """The types of a graph, from the `types` of a data set: features per node type, edge types, what is predicted."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.nodes: dict[str, int] = {str(name): int(width) for name, width in given["nodes"].items()}
        self.edges: list[EdgeType] = [(str(a), str(b), str(c)) for a, b, c in given["edges"]]
        self.source: str | None = given.get("source")
        self.target: str = given["target"]

    def complete(self, x_dict: Nodes, edge_index_dict: EdgeIndices) -> tuple[Nodes, EdgeIndices]:
        """The dictionaries with an empty tensor for every type that they do not have."""
        some = next(iter(x_dict.values()))
        empty = torch.zeros(2, 0, dtype=torch.long, device=some.device)
        nodes = {name: x_dict.get(name, some.new_zeros(0, width)) for name, width in self.nodes.items()}
        return nodes, {kind: edge_index_dict.get(kind, empty) for kind in self.edges}


class _Typed(nn.Module):
    """A linear map per node type to a common width, layers between the types, and a head."""

    def __init__(self, types: Types, layers: nn.Module, head: nn.Module, hidden: int) -> None:
        super().__init__()
        self.types, self.layers, self.head = types, layers, head
        self.inputs = nn.ModuleDict({name: nn.Linear(width, hidden) for name, width in types.nodes.items()})

    def embed(self, x_dict: Nodes, edge_index_dict: EdgeIndices) -> Nodes:
        """The last hidden state of every node, by type, [nodes of the type, hidden]."""
        nodes, edges = self.types.complete(x_dict, edge_index_dict)
        states = {name: self.inputs[name](x) for name, x in nodes.items()}
        found: Nodes = self.layers(states, edges)
        return found


class TypedNodes(_Typed):
    """Classifies the nodes of one type."""

    def forward(self, x_dict: Nodes, edge_index_dict: EdgeIndices) -> Tensor:
        """Logits [nodes of the type, classes]."""
        out: Tensor = self.head(self.embed(x_dict, edge_index_dict)[self.types.target])
        return out


class TypedPairs(_Typed):
    """One logit per pair of nodes of two types: the head on the product of their hidden states, at first their sum."""

    def __init__(self, types: Types, layers: nn.Module, head: nn.Module, hidden: int) -> None:
        super().__init__(types, layers, head, hidden)
        start_as_sum(head)

    def forward(self, x_dict: Nodes, edge_index_dict: EdgeIndices, edge_label_index: Tensor) -> Tensor:
        """Logits [pairs]; `edge_label_index` [2, pairs] holds numbers within the first and the last type."""
        h = self.embed(x_dict, edge_index_dict)
        assert self.types.source is not None
        both = h[self.types.source][edge_label_index[0]] * h[self.types.target][edge_label_index[1]]
        out: Tensor = self.head(both).view(-1)
        return out


TASKS = {"node": TypedNodes, "pair": TypedPairs}


def build_typed(
    arch: str,
    *,
    task: str,
    types: Mapping[str, Any],
    num_classes: int,
    hidden: int,
    layers: int = 2,
    aggregation: str = "sum",
    dense: int = 1,
) -> nn.Module:
    """Make an untrained model of a typed graph; its weights come from torch's global generator.

    Parameters
    ----------
    arch : {"rgcn", "hgt"}
        The kind of the graph layers.
    task : {"node", "pair"}
        What is classified.
    types : mapping
        The `types` of a `Dataset`.
    num_classes : int
        The columns of the logits.
    hidden, layers, dense : int
        The width, how many graph layers, and how many linear layers the head has.
    aggregation : {"sum", "symmetric", "symmetric-self-loops"}
        Whether relational messages are summed; else their mean is taken.

    Returns
    -------
    torch.nn.Module
        `TypedNodes` or `TypedPairs`.
    """
    known: tuple[tuple[str, str, Sequence[str]], ...] = (
        ("arch", arch, TYPED_ARCHITECTURES),
        ("aggregation", aggregation, AGGREGATIONS),
    )
    for name, value, names in known:
        if value not in names:
            raise unknown_name(f"`{name}`", value, names)
    require(task in TASKS, "Expected `task` to be 'node' or 'pair' on a typed graph", got=repr(task))
    found = Types(types)
    return TASKS[task](
        found, LAYERS[arch](found, hidden, layers, aggregation), make_head(hidden, hidden, num_classes, dense), hidden
    )
