"""Small graphs with planted motifs and models trained on them in a second, for the tests of the methods."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.samples.models import build

HOUSE = (((0, 1), (1, 2), (2, 3), (3, 0), (4, 0), (4, 1)), (1, 1, 2, 2, 3))
CYCLE = (tuple((i, (i + 1) % 6) for i in range(6)), (1,) * 6)


@dataclass(frozen=True, eq=False)
class Toy:
    """A trained model, its graph, motif nodes that it gets right, and the planted edges of each."""

    model: torch.nn.Module
    data: Data
    learn: list[int]
    test: list[int]
    truth: dict[int, np.ndarray]


def undirected(pairs: list[tuple[int, int]]) -> torch.Tensor:
    """The `edge_index` with each pair in both directions."""
    return torch.tensor(pairs + [(b, a) for a, b in pairs]).t().contiguous()


def plant(kind: str, seed: int) -> tuple[Data, dict[int, np.ndarray]]:
    """A tree with six-cycles, or a scale-free graph with houses; and the motif edges of every motif node."""
    draw = random.Random(seed)
    base, count = (81, 12) if kind == "cycles" else (50, 14)
    edges = {(child, (child - 1) // 3) for child in range(1, base)}
    if kind == "houses":
        edges |= {(new, draw.randrange(new)) for new in range(2, base) for _ in range(2)}
    pattern, roles = CYCLE if kind == "cycles" else HOUSE
    labels, truth = [0] * base, {}
    for number in range(count):
        first = len(labels)
        labels += roles
        own = [(first + a, first + b) for a, b in pattern]
        edges |= {*own, (first, number * base // count)}
        truth |= {first + role: np.array(own) for role in range(len(roles))}
    for _ in range(len(edges) // (5 if kind == "cycles" else 20)):  # else a cycle is most of what its nodes see
        edges.add((draw.randrange(base), draw.randrange(len(labels))))
    pairs = sorted({(min(a, b), max(a, b)) for a, b in edges if a != b})
    return Data(x=torch.ones(len(labels), 4), edge_index=undirected(pairs), y=torch.tensor(labels)), truth


@functools.cache
def toy(kind: str, seed: int) -> Toy:
    data, truth = plant(kind, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build(
            "gcn",
            task="node",
            num_features=4,
            num_classes=int(data.y.max()) + 1,
            hidden=24,
            aggregation="sum" if kind == "cycles" else "symmetric",
        )
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(300):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
            adam.step()
    right = model(data.x, data.edge_index).argmax(1) == data.y
    nodes = [node for node in truth if right[node]]
    return Toy(model.eval(), data, nodes[::2], nodes[1::2], truth)


class Lights(torch.nn.Module):
    """Says 1 of a node while the neighbours' first features add up to more than `limit`; no edge weights."""

    def __init__(self, limit: float = 2.0) -> None:
        super().__init__()
        self.sum, self.limit = SimpleConv(aggr="sum"), limit
        self.scale = torch.nn.Parameter(torch.tensor(4.0))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        total = self.sum(x, edge_index)[:, 0]
        return torch.stack([torch.zeros_like(total), self.scale * (total - self.limit)], 1)


def star(*lights: float) -> Data:
    """Node 0 with neighbours 1, 2, … that add so much light each, and behind the last one a node that adds nothing."""
    last = len(lights)
    pairs = [(0, node) for node in range(1, last + 1)] + [(last, last + 1)]
    return Data(x=torch.tensor([0.0, *lights, 3.0])[:, None], edge_index=undirected(pairs))


STAR = star(1.0, 1.0, 1.0, 0.0, -0.5)  # 2.5 light in all, and 2 are needed


def stars(rays: list[list[list[float]]], middle: list[float]) -> tuple[Data, list[int]]:
    """Stars with the features of their rays, all with the same middle; and the nodes in their middle."""
    pairs, x, middles = [], [], []
    for own in rays:
        middles.append(len(x))
        pairs += [(len(x), len(x) + 1 + number) for number in range(len(own))]
        x += [middle, *own]
    return Data(x=torch.tensor(x), edge_index=undirected(pairs)), middles


def edges(e: Explanation) -> set[tuple[int, int]]:
    """The chosen edges, each once."""
    return {(a, b) for a, b in e.chosen("edges").tolist()}


def f1(found: Explanations, truth: dict[int, np.ndarray]) -> float:
    """Mean F1 of the chosen edges against the planted ones."""
    wanted = [{(min(pair), max(pair)) for pair in truth[e.key].tolist()} for e in found]
    return float(np.mean([2 * len(own & edges(e)) / (len(own) + e.size) for own, e in zip(wanted, found)]))
