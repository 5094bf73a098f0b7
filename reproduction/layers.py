"""Layers that read edge features where torch_geometric's own do not: of the GCN and GraphSAGE on molecules."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing


class WeighedGCN(nn.Module):
    """A graph convolution that gives each kind of edge a positive weight, learned from its features."""

    def __init__(self, conv: nn.Module, edges: int) -> None:
        super().__init__()
        self.conv, self.weigh = conv, nn.Linear(edges, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Hidden states [nodes, outputs]."""
        weight = nn.functional.softplus(self.weigh(edge_attr)).view(-1)
        out: Tensor = self.conv(x, edge_index, weight)
        return out


class EdgeSAGE(MessagePassing):  # type: ignore[misc]
    """GraphSAGE with the edge's features in the message: W·h + mean over neighbours of V·[h, e]."""

    def __init__(self, inputs: int, outputs: int, edges: int) -> None:
        super().__init__(aggr="mean")
        self.own, self.other = nn.Linear(inputs, outputs), nn.Linear(inputs + edges, outputs, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Hidden states [nodes, outputs]."""
        out: Tensor = self.own(x) + self.propagate(edge_index, x=x, edge_attr=edge_attr, size=None)
        return out

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        """The message of each edge, [edges, outputs]."""
        out: Tensor = self.other(torch.cat([x_j, edge_attr], dim=-1))
        return out
