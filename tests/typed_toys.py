"""Typed graphs and models of every kind, and what is true of them by brute force; nothing here shares code with cf2."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv, GraphConv, HeteroConv, HGTConv, Linear, SAGEConv, global_add_pool, to_hetero

LIKES, BACK, SEES = ("user", "likes", "item"), ("item", "rev_likes", "user"), ("user", "sees", "item")
HAS, KNOWS = ("tag", "of", "item"), ("user", "knows", "user")


def graph(seed: int = 0) -> HeteroData:
    """Types of different widths; two relations between the same ends; one that mirrors another; one undirected."""
    made, data = torch.Generator().manual_seed(seed), HeteroData()
    for name, count, width in (("user", 5, 4), ("item", 4, 2), ("tag", 3, 3)):
        data[name].x = torch.randn(count, width, generator=made)
    likes = torch.tensor([[0, 0, 1, 2, 3, 4], [0, 1, 1, 2, 3, 0]])
    data[LIKES].edge_index, data[BACK].edge_index = likes, likes.flip(0)
    data[SEES].edge_index = torch.tensor([[0, 2], [0, 3]])  # 0 likes and sees the same item
    data[HAS].edge_index = torch.tensor([[0, 1, 2], [0, 1, 2]])
    knows = torch.tensor([[0, 1], [1, 2]])
    data[KNOWS].edge_index = torch.cat([knows, knows.flip(0)], 1)
    return data


class Typed(nn.Module):
    """Layers over types, then nodes of `kind`, pairs user-item, or graphs."""

    def __init__(self, layers: list[nn.Module], width: int, hidden: int = 8, kind: str = "user") -> None:
        super().__init__()
        self.layers, self.kind = nn.ModuleList(layers), kind
        self.first = nn.ModuleDict({name: Linear(-1, hidden) for name in ("user", "item", "tag")})
        self.head = nn.Linear(hidden, width, bias=False)

    def encode(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
        x = {name: self.first[name](value).tanh() for name, value in x_dict.items()}
        for layer in self.layers:
            new = {name: value for name, value in layer(x, edge_index_dict).items() if value is not None}
            x = {name: (new.get(name, value)).tanh() for name, value in x.items()}
        return x

    def forward(
        self,
        x_dict: dict[str, Tensor],
        edge_index_dict: dict[Any, Tensor],
        edge_label_index: Tensor | None = None,
        batch_dict: dict[str, Tensor] | None = None,
    ) -> Tensor:
        x = self.encode(x_dict, edge_index_dict)
        z = x[self.kind]
        if edge_label_index is not None:
            z = x["user"][edge_label_index[0]] * x["item"][edge_label_index[1]]
        elif batch_dict is not None:
            size = 1 + max(int(batch.max()) for batch in batch_dict.values() if len(batch))
            z = sum(global_add_pool(x[name], batch_dict[name], size) for name in x)
        return self.head(z) * 3


def convolutions(make: Any, edge_types: list[Any]) -> nn.Module:
    return HeteroConv({kind: make() for kind in edge_types}, aggr="sum")


def model(kind: str = "sage", width: int = 3, seed: int = 0) -> nn.Module:
    """A model of two layers whose lazy sizes are known."""
    torch.manual_seed(seed)
    data = graph()
    makes = {
        "sage": lambda: SAGEConv((-1, -1), 8),
        "graph": lambda: GraphConv((-1, -1), 8),
        "gat": lambda: GATConv((-1, -1), 8, add_self_loops=False),
    }
    if kind == "hgt":
        layers: list[nn.Module] = [HGTConv(8, 8, data.metadata(), heads=2) for _ in range(2)]
    else:
        layers = [convolutions(makes[kind], data.edge_types) for _ in range(2)]
    made = Typed(layers, width)
    with torch.no_grad():
        made(data.x_dict, data.edge_index_dict)
    return made.eval()


class Plain(nn.Module):
    """What `to_hetero` makes a typed model of."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index) * 3


def transformed(width: int = 3, seed: int = 0) -> nn.Module:
    """A model of `to_hetero`: it returns rows for every node type."""
    torch.manual_seed(seed)
    data = graph()
    types = (["user", "item"], [LIKES, BACK, SEES, KNOWS])  # nothing reaches a tag
    try:
        made = to_hetero(Plain(width), types)
    except AttributeError as error:  # torch_geometric 2.6 reads what newer releases of torch do not have
        if not torch_geometric.__version__.startswith("2.6"):
            raise
        pytest.skip(f"to_hetero of this torch_geometric does not run with this torch: {error}")
    with torch.no_grad():
        made(data.x_dict, data.edge_index_dict)
    return made.eval()


# -- brute force ----------------------------------------------------------------------------------------------


def kept(data: HeteroData, chosen: dict[Any, Any], inside: bool) -> HeteroData:
    """A copy with only the chosen edges (pairs by type), or with all but them."""
    made = data.clone()
    for kind in data.edge_types:
        wanted = {tuple(pair) for pair in chosen.get(kind, [])}
        pairs = [tuple(pair) for pair in data[kind].edge_index.t().tolist()]
        stay = [n for n, pair in enumerate(pairs) if (pair in wanted) == inside]
        made[kind].edge_index = data[kind].edge_index[:, stay]
        if "edge_attr" in data[kind]:
            made[kind].edge_attr = data[kind].edge_attr[stay]
    return made


def zeroed(data: HeteroData, chosen: dict[str, Any], inside: bool) -> HeteroData:
    """A copy with only the chosen feature entries (node, column), or with all but them."""
    made = data.clone()
    for name in data.node_types:
        x = data[name].x
        mask = torch.zeros_like(x)
        for node, column in chosen.get(name, []):
            mask[node, column] = 1
        made[name].x = x * (mask if inside else 1 - mask)
    return made


def says(net: nn.Module, data: HeteroData, level: str, key: Any) -> Tensor:
    """What a model says of one node, pair or graph."""
    with torch.no_grad():
        if level == "node":
            return net(data.x_dict, data.edge_index_dict)[key]
        if level == "pair":
            return net(data.x_dict, data.edge_index_dict, torch.tensor([key]).t())[0]
        batch = {name: torch.zeros(data[name].num_nodes, dtype=torch.long) for name in data.node_types}
        return net(data.x_dict, data.edge_index_dict, batch_dict=batch)[0]
