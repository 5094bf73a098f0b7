"""Graph classifiers that the benchmarks train in seconds: GCN, GIN, GAT and SAGE with BatchNorm and max pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_max_pool

LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "GCN": GCNConv,
    "GIN": lambda a, b: GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))),
    "GAT": GATConv,
    "SAGE": SAGEConv,
}


class MaxPooled(nn.Module):
    """Three layers with BatchNorm, the maximum over the nodes, and a linear layer."""

    def __init__(self, features: int, hidden: int = 64, layer: str = "GCN") -> None:
        super().__init__()
        sizes = [features, hidden, hidden, hidden]
        self.layers = nn.ModuleList(LAYERS[layer](a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in sizes[1:])
        self.last = nn.Linear(hidden, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for layer, norm in zip(self.layers, self.norms):
            x = norm(layer(x, edge_index)).relu()
        return self.last(global_max_pool(x, batch))


def trained(
    graphs: Sequence[Data],
    epochs: int = 40,
    seed: int = 0,
    layer: str = "GCN",
    beside: Callable[[Batch], Batch] | None = None,
) -> tuple[MaxPooled, list[int], float]:
    """The model after so many epochs on four fifths of the graphs, the other graphs, and its accuracy on them.

    `beside` makes of each batch another one that is learned with it.
    """
    torch.manual_seed(seed)
    order = torch.randperm(len(graphs)).tolist()
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    model = MaxPooled(graphs[0].num_features, layer=layer)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(epochs):
        for batch in DataLoader([graphs[key] for key in train], batch_size=128, shuffle=True):
            optimiser.zero_grad()
            for part in [batch, beside(batch)] if beside else [batch]:
                nn.functional.cross_entropy(model(part.x, part.edge_index, part.batch), part.y).backward()
            optimiser.step()
    said = classes(model.eval(), [graphs[key] for key in test])
    right = said == torch.cat([graphs[key].y.view(1) for key in test])
    return model, test, float(right.float().mean())


@torch.no_grad()
def classes(model: MaxPooled, graphs: Sequence[Data]) -> Tensor:
    """The class that the model gives each graph."""
    batch = Batch.from_data_list(list(graphs))
    return model(batch.x, batch.edge_index, batch.batch).argmax(1)
