"""The base models: layers with ReLU, and a linear head on nodes, pooled graphs or pairs of nodes.

Only the GCN takes an `edge_weight`, as the paper's A ⊙ M needs; the others are plain torch_geometric models. Where
edges have features, every layer reads them (`edge_attr`). The forward methods differ in what they take, because that
is how `cf2.explain` learns what a model needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    GINEConv,
    HGTConv,
    MessagePassing,
    SAGEConv,
    global_add_pool,
    global_mean_pool,
)

from cf2.errors import require, require_number, unknown_name
from cf2.options import EdgeType
from cf2.samples import from_clone

ARCHITECTURES = ("gcn", "gin", "gat", "sage")
TYPED_ARCHITECTURES = ("rgcn", "hgt")
AGGREGATIONS = ("sum", "symmetric", "symmetric-self-loops")
READOUTS = ("last", "all")
POOLS = {"mean": global_mean_pool, "sum": global_add_pool}
HEADS = 2  # of a transformer layer

Nodes = dict[str, Tensor]
EdgeIndices = dict[EdgeType, Tensor]


# -- models of graphs without types ---------------------------------------------------------------------------


class _Layers(nn.Module):
    """Graph layers with ReLU, and a head on what they give.

    With a `scale` c, layers compute c·Σ w·h·W + b, as the paper's code does. The constant is no part of W, so that a
    step of Adam on W moves the sums by c times as much: sums over hubs do not train otherwise.
    """

    def __init__(
        self, convs: Sequence[nn.Module], head: nn.Module, readout: str, pool: str = "mean", scale: float = 1.0
    ) -> None:
        super().__init__()
        self.convs, self.head, self.readout, self.pool = nn.ModuleList(convs), head, readout, POOLS[pool]
        self.scale = scale

    def embed(self, x: Tensor, edge_index: Tensor, edge: Tensor | None = None) -> Tensor:
        """The last hidden states, or those of all layers side by side, [nodes, width].

        `edge` holds weights [edges] or features [edges, width], for layers that take them.
        """
        states = []
        for conv in self.convs:
            x = self._scaled(x)
            x = torch.relu(conv(x, edge_index) if edge is None else conv(x, edge_index, edge))
            states.append(x)
        return torch.cat(states, dim=-1) if self.readout == "all" else x

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.scale == 1 else self.scale * x

    def logits(self, h: Tensor) -> Tensor:
        """The output of the head for each row, [rows, classes]."""
        out: Tensor = self.head(h)
        return out


class NodeGCN(_Layers):
    """Node logits from graph convolutions: h ← ReLU(Â·h·W + b), then a linear head."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits [nodes, classes] from `x` [nodes, features] and `edge_index` [2, edges]."""
        return self.logits(self.embed(x, edge_index, edge_weight))


class GraphGCN(_Layers):
    """Graph logits from graph convolutions, pooled nodes, and dense layers."""

    splits_at_pool = True  # it is head(pool(embed(x, edge_index), batch)): proofs make use of that

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Logits [graphs, classes]; `batch` [nodes] is the graph of each node."""
        return self.logits(self.pool(self.embed(x, edge_index, edge_weight), batch))


class NodeGNN(_Layers):
    """`NodeGCN` with layers that take no edge weight (GIN, GAT, GraphSAGE)."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits [nodes, classes]."""
        return self.logits(self.embed(x, edge_index))


class GraphGNN(_Layers):
    """`GraphGCN` with layers that take no edge weight (GIN, GAT, GraphSAGE)."""

    splits_at_pool = True  # as above

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Logits [graphs, classes]."""
        return self.logits(self.pool(self.embed(x, edge_index), batch))


class GraphEdgeGNN(_Layers):
    """Graph logits, or a number per graph, from layers that read edge features."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor | None = None) -> Tensor:
        """Logits [graphs, classes]; `edge_attr` is [edges, edge features]."""
        return self.logits(self.pool(self.embed(x, edge_index, edge_attr), batch))


class PairGNN(_Layers):
    """One logit per pair of nodes: the head on the product of their states. The last layer has no ReLU."""

    def __init__(self, convs: Sequence[nn.Module], head: nn.Module, *shape: Any) -> None:
        super().__init__(convs, head, *shape)
        _start_as_sum(head)

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [pairs] of the pairs `edge_label_index` [2, pairs], edges or not."""
        *first, last = self.convs
        for conv in first:
            x = torch.relu(conv(self._scaled(x), edge_index))
        h = last(self._scaled(x), edge_index)
        return self.logits(h[edge_label_index[0]] * h[edge_label_index[1]]).view(-1)


def _start_as_sum(head: nn.Module) -> None:
    """Initialise a head of one layer to the sum of its input, so that a pair starts with a dot product."""
    if isinstance(head, nn.Sequential) and len(head) == 1 and isinstance(head[0], nn.Linear):
        nn.init.ones_(head[0].weight)
        nn.init.zeros_(head[0].bias)


#: The model by task and by what its layers take beside the graph: a weight per edge, features per edge, nothing.
MODELS: dict[tuple[str, str], type[_Layers]] = {
    ("node", "weight"): NodeGCN,
    ("graph", "weight"): GraphGCN,
    ("pair", "weight"): PairGNN,
    ("node", "nothing"): NodeGNN,
    ("graph", "nothing"): GraphGNN,
    ("pair", "nothing"): PairGNN,
    ("graph", "features"): GraphEdgeGNN,
}


# -- layers ---------------------------------------------------------------------------------------------------


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


# -- models of typed graphs -----------------------------------------------------------------------------------


class Types:
    """The `types` of a data set: features per node type, edge types, what is predicted."""

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


class _RelationalLayers(nn.Module):
    """Layers of `RelationalConv` on the flat graph, in which the node types follow one another."""

    def __init__(self, types: Types, hidden: int, layers: int, aggregation: str) -> None:
        super().__init__()
        self.types = types
        self.convs = nn.ModuleList(RelationalConv(hidden, len(types.edges), aggregation) for _ in range(layers))

    def forward(self, states: Nodes, edge_index_dict: EdgeIndices) -> Nodes:
        names = list(states)
        sizes = [len(states[name]) for name in names]
        first = dict(zip(names, torch.tensor([0, *sizes]).cumsum(0).tolist()))
        shifted, relations = [], []
        for number, (source, relation, target) in enumerate(self.types.edges):
            ends = edge_index_dict[source, relation, target]
            shifted.append(torch.stack([ends[0] + first[source], ends[1] + first[target]]))
            relations.append(torch.full_like(ends[0], number))
        h, edge_index = torch.cat([states[name] for name in names]), torch.cat(shifted, 1)
        for conv in self.convs:
            h = conv(h.relu(), edge_index, torch.cat(relations))
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


class _Typed(nn.Module):
    """A linear map per node type to a common width, layers between the types, and a head."""

    def __init__(self, types: Types, layers: nn.Module, head: nn.Module, hidden: int) -> None:
        super().__init__()
        self.types, self.layers, self.head = types, layers, head
        self.inputs = nn.ModuleDict({name: nn.Linear(width, hidden) for name, width in types.nodes.items()})

    def embed(self, x_dict: Nodes, edge_index_dict: EdgeIndices) -> Nodes:
        """The last hidden states by node type, [nodes of the type, hidden]."""
        nodes, edges = self.types.complete(x_dict, edge_index_dict)
        out: Nodes = self.layers({name: self.inputs[name](x) for name, x in nodes.items()}, edges)
        return out


class TypedNodes(_Typed):
    """Classifies the nodes of one type."""

    def forward(self, x_dict: Nodes, edge_index_dict: EdgeIndices) -> Tensor:
        """Logits [nodes of the type, classes]."""
        out: Tensor = self.head(self.embed(x_dict, edge_index_dict)[self.types.target])
        return out


class TypedPairs(_Typed):
    """One logit per pair of nodes of two types: the head on the product of their hidden states."""

    def __init__(self, types: Types, layers: nn.Module, head: nn.Module, hidden: int) -> None:
        super().__init__(types, layers, head, hidden)
        _start_as_sum(head)

    def forward(self, x_dict: Nodes, edge_index_dict: EdgeIndices, edge_label_index: Tensor) -> Tensor:
        """Logits [pairs]; `edge_label_index` [2, pairs] holds numbers within the first and the last type."""
        h = self.embed(x_dict, edge_index_dict)
        assert self.types.source is not None
        both = h[self.types.source][edge_label_index[0]] * h[self.types.target][edge_label_index[1]]
        out: Tensor = self.head(both).view(-1)
        return out


TYPED_LAYERS = {"rgcn": _RelationalLayers, "hgt": _TransformerLayers}
TYPED_MODELS = {"node": TypedNodes, "pair": TypedPairs}


# -- building -------------------------------------------------------------------------------------------------


def build(
    arch: str,
    *,
    task: str,
    num_features: int,
    num_classes: int,
    hidden: int,
    layers: int = 3,
    aggregation: str = "symmetric",
    readout: str = "last",
    dense: int = 1,
    pool: str = "mean",
    num_edge_features: int = 0,
    scale: float = 1.0,
    types: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Make an untrained model; its weights come from torch's global generator.

    `Recipe` describes the shape; `num_features`, `num_classes` and `num_edge_features` are the columns of `x`, of the
    logits and of `edge_attr` (0: none), and `types` are those of a typed `Dataset`.
    """
    choices: list[tuple[str, str, Collection[str]]] = [
        ("arch", arch, ARCHITECTURES if types is None else TYPED_ARCHITECTURES),
        ("aggregation", aggregation, AGGREGATIONS),
        ("readout", readout, READOUTS),
        ("pool", pool, POOLS),
    ]
    typed_only = types is None and arch in TYPED_ARCHITECTURES
    require(not typed_only, f"Expected a typed graph for `arch` {arch!r}", got="a graph without types")
    for name, value, names in choices:
        if value not in names:
            raise unknown_name(f"`{name}`", value, names)
    takes = "features" if num_edge_features else "weight" if arch == "gcn" else "nothing"
    tasks = list(TYPED_MODELS) if types is not None else [name for name, what in MODELS if what == takes]
    require(task in tasks, f"Expected `task` to be one of {', '.join(map(repr, tasks))}", got=repr(task))
    sizes = {"num_features": num_features, "num_classes": num_classes, "hidden": hidden}
    for name, number in (sizes | {"layers": layers, "dense": dense}).items():
        require_number(name, number, 1, integer=True)
    require_number("scale", scale, 1e-9)
    if types is not None:
        typed = Types(types)
        between = TYPED_LAYERS[arch](typed, hidden, layers, aggregation)
        return TYPED_MODELS[task](typed, between, _head(hidden, hidden, num_classes, dense), hidden)
    widths = [num_features] + [hidden] * layers
    convs = [_layer(arch, a, b, aggregation, num_edge_features) for a, b in pairwise(widths)]
    wide = readout == "all" and task != "pair"
    head = _head(hidden * layers if wide else hidden, hidden, num_classes, dense)
    scaled = takes == "weight" and aggregation == "sum"
    return MODELS[task, takes](convs, head, readout, pool, scale if scaled else 1.0)


def _layer(arch: str, inputs: int, outputs: int, aggregation: str, edges: int = 0) -> nn.Module:
    layer: nn.Module
    if edges and arch == "gcn":  # no shipped model reads edge features by this layer, or by that of "sage"
        conv = _layer(arch, inputs, outputs, aggregation)
        layer = from_clone(".", "reproduction.layers").WeighedGCN(conv, edges)
    elif edges and arch == "sage":
        layer = from_clone(".", "reproduction.layers").EdgeSAGE(inputs, outputs, edges)
    elif arch == "gcn":
        loops = aggregation == "symmetric-self-loops"
        layer = GCNConv(inputs, outputs, normalize=aggregation != "sum", add_self_loops=loops)
    elif arch == "gin":
        mlp = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))
        layer = GINEConv(mlp, edge_dim=edges) if edges else GINConv(mlp)
    elif arch == "gat":
        layer = GATConv(inputs, outputs, edge_dim=edges or None)
    else:
        layer = SAGEConv(inputs, outputs)
    return layer


def _head(inputs: int, hidden: int, num_classes: int, dense: int) -> nn.Module:
    """`dense` linear layers with ReLU between them."""
    widths = [inputs] + [hidden] * (dense - 1) + [num_classes]
    parts: list[nn.Module] = []
    for a, b in pairwise(widths):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts[:-1])
