"""Small graphs and models of every kind, for tests of the core."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool

LAYERS = {
    "gcn": lambda a, b: GCNConv(a, b),
    "gcn-no-loops": lambda a, b: GCNConv(a, b, add_self_loops=False),
    "sum": lambda a, b: GCNConv(a, b, normalize=False),
    "gin": lambda a, b: GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))),
    "gat": lambda a, b: GATConv(a, b),
    "sage": lambda a, b: SAGEConv(a, b),
}


class NodeNet(nn.Module):
    """Three layers without edge weights: masked through messages."""

    def __init__(self, kind: str, features: int = 4, classes: int = 3, seed: int = 0, layers: int = 3) -> None:
        super().__init__()
        torch.manual_seed(seed)
        widths = [features] + [8] * (layers - 1) + [classes]
        self.convs = nn.ModuleList([LAYERS[kind](a, b) for a, b in pairwise(widths)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = torch.relu(conv(x, edge_index))
        return self.convs[-1](x, edge_index)


class WeightedNet(NodeNet):
    """The same with an edge_weight: A ⊙ M as the paper writes it."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        for conv in self.convs[:-1]:
            x = torch.relu(conv(x, edge_index, edge_weight))
        return self.convs[-1](x, edge_index, edge_weight)


class GraphNet(nn.Module):
    """Two layers, a sum over nodes, a linear head."""

    def __init__(self, kind: str, features: int = 4, classes: int = 2, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.convs = nn.ModuleList([LAYERS[kind](features, 8), LAYERS[kind](8, 8)])
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = torch.relu(conv(x, edge_index))
        return self.head(global_add_pool(x, batch))


def random_graph(nodes: int, edges: int, *, directed: bool = False, features: int = 4, seed: int = 0) -> Data:
    """Random ends, so with self-loops and duplicates now and then."""
    stream = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=stream)
    if not directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], 1)
    return Data(x=torch.randn(nodes, features, generator=stream), edge_index=edge_index)


def model_state(model: nn.Module) -> dict[str, object]:
    """Everything that must be as before: weights, gradients, modes, hooks."""
    state: dict[str, object] = {name: value.clone() for name, value in model.state_dict().items()}
    for name, module in model.named_modules():
        hooks = [len(v) for k, v in vars(module).items() if k.endswith("_hooks") and hasattr(v, "__len__")]
        state[f"{name}:mode"], state[f"{name}:hooks"] = module.training, hooks
    for name, parameter in model.named_parameters():
        state[f"{name}:grad"] = None if parameter.grad is None else parameter.grad.clone()
        state[f"{name}:needs"] = parameter.requires_grad
    return state


def same_state(one: dict[str, object], other: dict[str, object]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b
        for a, b in zip(one.values(), other.values())
    )
