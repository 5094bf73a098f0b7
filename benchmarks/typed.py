"""What types cost: the same graph explained as a HeteroData and flattened, with layers that compute the same.

Run it from a clone: `python benchmarks/typed.py`. Both models have a weight matrix per relation and the same number of
layers; the flat one reads `edge_type`. Both are explained by the same fixed number of evaluations.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import HeteroConv, RGCNConv, SAGEConv

import cf2

TYPES = {"user": 600, "item": 400, "tag": 100}
WIDTH, HIDDEN = 16, 32
ROUNDS = 3


def graph(seed: int = 0) -> HeteroData:
    """Users, items and tags with three relations and their reverses."""
    made, data = torch.Generator().manual_seed(seed), HeteroData()
    for name, count in TYPES.items():
        data[name].x = torch.randn(count, WIDTH, generator=made)
    for src, relation, dst, count in (("user", "likes", "item", 1_500), ("item", "has", "tag", 500)):
        ends = torch.stack([torch.randint(TYPES[name], (count,), generator=made) for name in (src, dst)])
        ends = torch.unique(ends, dim=1)
        data[src, relation, dst].edge_index, data[dst, f"rev_{relation}", src].edge_index = ends, ends.flip(0)
    return data


class Typed(nn.Module):
    """Two layers with a SAGEConv per relation."""

    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            HeteroConv({kind: SAGEConv((WIDTH if n == 0 else HIDDEN,) * 2, HIDDEN) for kind in data.edge_types})
            for n in range(2)
        )
        self.head = nn.Linear(HIDDEN, 2)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        for layer in self.layers:
            x_dict = {name: value.relu() for name, value in layer(x_dict, edge_index_dict).items()}
        return self.head(x_dict["user"])


class Flat(nn.Module):
    """Two layers with a matrix per relation, on one graph of all types."""

    def __init__(self, relations: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(RGCNConv(WIDTH if n == 0 else HIDDEN, HIDDEN, relations) for n in range(2))
        self.head = nn.Linear(HIDDEN, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index, edge_type).relu()
        return self.head(x)


def seconds(model: nn.Module, data: Any, **options: Any) -> float:
    """CPU seconds per explanation."""
    started = time.process_time()
    found = cf2.explain(model, data, range(0, 320, 8), method="cf2-relaxed", epochs=20, **options)
    return (time.process_time() - started) / len(found)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = graph()
    flat: Data = data.to_homogeneous()
    typed_model, flat_model = Typed(data).eval(), Flat(len(data.edge_types)).eval()
    ratios = []
    for _ in range(ROUNDS):  # interleaved, because machines change their mind
        typed = seconds(typed_model, data, node_type="user")
        plain = seconds(flat_model, flat)
        ratios.append(typed / plain)
        print(f"typed {1e3 * typed:.1f} ms, flat {1e3 * plain:.1f} ms per explanation, ratio {ratios[-1]:.2f}")
    print(f"median ratio {sorted(ratios)[len(ratios) // 2]:.2f}")


if __name__ == "__main__":
    main()
