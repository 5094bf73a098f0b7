"""Graphs with a planted path of three kinds of nodes, and a model that looks for exactly that."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv, global_add_pool

COLUMNS = 5


class Path(nn.Module):
    """Class 1 for a graph in which some node of kind b has a neighbour of kind a and one of kind c."""

    def __init__(self, a: int, b: int, c: int) -> None:
        super().__init__()
        self.conv, self.kinds = SimpleConv(aggr="sum"), (a, b, c)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        a, b, c = self.kinds
        near = self.conv(x, edge_index)
        there = global_add_pool(near[:, a] * x[:, b] * near[:, c], batch)
        return torch.stack([torch.zeros_like(there), 4.0 * there - 2.0], 1)


class Both(nn.Module):
    """Class 1 for a graph with an edge between kinds 0 and 1, and somewhere an edge between kinds 2 and 3."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        near = self.conv(x, edge_index)
        there = global_add_pool(torch.stack([near[:, 0] * x[:, 1], near[:, 2] * x[:, 3]], 1), batch).clamp(max=1)
        return torch.stack([torch.zeros(len(there)), 4.0 * there.sum(1) - 6.0], 1)


def made_of_two(seed: int) -> Data:
    """A tree of kind 4, to which an edge 0–1, an edge 2–3 or (every second one) both hang."""
    draw = random.Random(seed)
    nodes = [4] * draw.randint(3, 6)
    pairs = [(node, draw.randrange(node)) for node in range(1, len(nodes))]
    for piece in [[0, 1], [2, 3]] if seed % 2 == 0 else [draw.choice([[0, 1], [2, 3]])]:
        pairs += [(len(nodes), len(nodes) + 1), (draw.randrange(3), len(nodes))]
        nodes += piece
    x = torch.nn.functional.one_hot(torch.tensor(nodes), COLUMNS).float()
    edges = torch.tensor(pairs).t()
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))


def made(kinds: tuple[int, int, int], seed: int, planted: bool) -> Data:
    """A random tree of other kinds with a path a–b–c, or with a–b and b–c apart."""
    draw = random.Random(seed)
    others = [kind for kind in range(COLUMNS) if kind not in kinds]
    nodes = [draw.choice(others) for _ in range(draw.randint(2, 5))]
    pairs = [(node, draw.randrange(node)) for node in range(1, len(nodes))]
    a, b, c = kinds
    for piece in [[a, b, c]] if planted else draw.choice([[[a, b]], [[b, c]], [[a, b], [b, c]]]):
        start = len(nodes)
        nodes += piece
        pairs += [(start + step, start + step + 1) for step in range(len(piece) - 1)]
        ends = (
            [start, start + len(piece) - 1] if planted else [start + piece.index(end) for end in (a, c) if end in piece]
        )
        pairs.append((draw.randrange(start), draw.choice(ends)))
    order = draw.sample(range(len(nodes)), len(nodes))
    x = torch.zeros(len(nodes), COLUMNS)
    for node, kind in enumerate(nodes):
        x[order[node], kind] = 1.0
    edges = torch.tensor([(order[p], order[q]) for p, q in pairs]).t()
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))
