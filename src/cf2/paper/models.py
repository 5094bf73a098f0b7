"""The paper's base models: graph convolutions with ReLU and a linear head, or other layers in that shape.

Only the GCN takes an `edge_weight`, as the paper's A ⊙ M needs; the others are plain torch_geometric models.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool

from cf2.errors import require, require_number, unknown_name

ARCHITECTURES = ("gcn", "gin", "gat", "sage")
AGGREGATIONS = ("sum", "symmetric", "symmetric-self-loops")
READOUTS = ("last", "all")


class _Layers(nn.Module):
    """What the four models share: graph layers with ReLU, and a head on what they give."""

    def __init__(self, convs: Sequence[nn.Module], head: nn.Module, readout: str) -> None:
        super().__init__()
        self.convs, self.head, self.readout = nn.ModuleList(convs), head, readout

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The hidden state after the last layer, or those after all layers side by side, [nodes, width]."""
        states = []
        for conv in self.convs:
            x = torch.relu(conv(x, edge_index) if edge_weight is None else conv(x, edge_index, edge_weight))
            states.append(x)
        return torch.cat(states, dim=-1) if self.readout == "all" else x

    def logits(self, h: Tensor) -> Tensor:
        """What the head gives for each row, [rows, classes]."""
        out: Tensor = self.head(h)
        return out


class NodeGCN(_Layers):
    """Node logits from graph convolutions: h ← ReLU(Â·h·W + b), then one linear layer.

    Â is the adjacency itself (`aggregation="sum"`) or its symmetric normalisation; both take edge weights.
    """

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits [nodes, classes] from `x` [nodes, features] and `edge_index` [2, edges]."""
        return self.logits(self.embed(x, edge_index, edge_weight))


class GraphGCN(_Layers):
    """Graph logits from graph convolutions, the mean over nodes, and dense layers."""

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Logits [graphs, classes]; `batch` [nodes] tells the graph of each node."""
        return self.logits(global_mean_pool(self.embed(x, edge_index, edge_weight), batch))


class NodeGNN(_Layers):
    """`NodeGCN` with layers that take no edge weight (GIN, GAT, GraphSAGE)."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits [nodes, classes]."""
        return self.logits(self.embed(x, edge_index))


class GraphGNN(_Layers):
    """`GraphGCN` with layers that take no edge weight (GIN, GAT, GraphSAGE)."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Logits [graphs, classes]."""
        return self.logits(global_mean_pool(self.embed(x, edge_index), batch))


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
) -> nn.Module:
    """Make an untrained model; its weights come from torch's global generator.

    Parameters
    ----------
    arch : {"gcn", "gin", "gat", "sage"}
        The kind of the graph layers.
    task : {"node", "graph"}
        What is classified.
    num_features, num_classes : int
        The columns of `x` and of the logits.
    hidden : int
        The width of every hidden layer.
    layers : int
        How many graph layers there are.
    aggregation : {"symmetric", "symmetric-self-loops", "sum"}
        How a GCN scales its messages.
    readout : {"last", "all"}
        Whether the head gets the last hidden state or all of them side by side.
    dense : int
        How many linear layers the head has, the last of which gives the logits.

    Returns
    -------
    torch.nn.Module
        `NodeGCN`, `GraphGCN`, `NodeGNN` or `GraphGNN`.
    """
    for name, value, known in (
        ("arch", arch, ARCHITECTURES),
        ("aggregation", aggregation, AGGREGATIONS),
        ("readout", readout, READOUTS),
    ):
        if value not in known:
            raise unknown_name(f"`{name}`", value, known)
    require(task in ("node", "graph"), "Expected `task` to be 'node' or 'graph'", got=repr(task))
    for name, number in (("num_features", num_features), ("num_classes", num_classes), ("hidden", hidden)):
        require_number(name, number, 1, integer=True)
    require_number("layers", layers, 1, integer=True)
    require_number("dense", dense, 1, integer=True)
    widths = [num_features] + [hidden] * layers
    convs = [_layer(arch, a, b, aggregation) for a, b in pairwise(widths)]
    head = _head(hidden * layers if readout == "all" else hidden, hidden, num_classes, dense)
    if arch == "gcn":
        return (NodeGCN if task == "node" else GraphGCN)(convs, head, readout)
    return (NodeGNN if task == "node" else GraphGNN)(convs, head, readout)


def _layer(arch: str, inputs: int, outputs: int, aggregation: str) -> nn.Module:
    if arch == "gcn":
        loops = aggregation == "symmetric-self-loops"
        layer: nn.Module = GCNConv(inputs, outputs, normalize=aggregation != "sum", add_self_loops=loops)
    elif arch == "gin":
        mlp = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))
        layer = GINConv(mlp)
    elif arch == "gat":
        layer = GATConv(inputs, outputs)
    else:
        layer = SAGEConv(inputs, outputs)
    return layer


def _head(inputs: int, hidden: int, num_classes: int, dense: int) -> nn.Module:
    widths = [inputs] + [hidden] * (dense - 1) + [num_classes]
    parts: list[nn.Module] = []
    for a, b in pairwise(widths):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts[:-1])
