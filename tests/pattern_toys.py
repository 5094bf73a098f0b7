"""Graphs with planted patterns, models that look for exactly these, and labelled graphs as networkx has them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import networkx as nx
import torch
from networkx.algorithms.isomorphism import DiGraphMatcher, GraphMatcher
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv, global_add_pool

import cf2
from cf2.patterns.pattern import Pattern

COLUMNS = 5
KINDS = (0, 1, 2)


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


class Both(Path):
    """Class 1 for a graph with an edge between kinds 0 and 1, and somewhere an edge between kinds 2 and 3."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        near = self.conv(x, edge_index)
        there = global_add_pool(torch.stack([near[:, 0] * x[:, 1], near[:, 2] * x[:, 3]], 1), batch).clamp(max=1)
        return torch.stack([torch.zeros(len(there)), 4.0 * there.sum(1) - 6.0], 1)


class Either(Path):
    """Class 1 for a graph in which some node of kind a has a neighbour of kind b or of kind c."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        a, b, c = self.kinds
        near = self.conv(x, edge_index)
        there = global_add_pool((near[:, b] + near[:, c]) * x[:, a], batch).clamp(max=1)
        return torch.stack([torch.zeros_like(there), 4.0 * there - 2.0], 1)


def data_of(nodes: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Data:
    """A graph of nodes of some kinds, joined both ways."""
    edges = torch.tensor(pairs).t()
    x = torch.nn.functional.one_hot(torch.tensor(nodes), COLUMNS).float()
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))


def made_of_two(seed: int) -> Data:
    """A tree of kind 4, to which an edge 0–1, an edge 2–3 or (every second one) both hang."""
    draw = random.Random(seed)
    nodes = [4] * draw.randint(3, 6)
    pairs = [(node, draw.randrange(node)) for node in range(1, len(nodes))]
    for piece in [[0, 1], [2, 3]] if seed % 2 == 0 else [draw.choice([[0, 1], [2, 3]])]:
        pairs += [(len(nodes), len(nodes) + 1), (draw.randrange(3), len(nodes))]
        nodes += piece
    return data_of(nodes, pairs)


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
        pairs.append((draw.randrange(start), start + draw.choice([n for n, k in enumerate(piece) if k != b])))
    order = draw.sample(range(len(nodes)), len(nodes))
    shuffled = sorted(range(len(nodes)), key=order.__getitem__)
    return data_of([nodes[node] for node in shuffled], [(order[p], order[q]) for p, q in pairs])


def planted(kinds: tuple[int, int, int], seed: int, count: int = 64, **asked: Any) -> tuple[nn.Module, list[Data], Any]:
    """A model, graphs of which every second one has its path, and why it says so of these."""
    graphs = [made(kinds, seed + number, number % 2 == 0) for number in range(count)]
    return Path(*kinds), graphs, cf2.explain(Path(*kinds), graphs, range(0, count, 2), **asked)


def says(model: nn.Module, graph: Data) -> int:
    return int(model(graph.x, graph.edge_index, torch.zeros(len(graph.x), dtype=torch.long))[0].argmax())


def network(labels: Sequence[str | None], edges: Sequence[tuple[int, int]], directed: bool = False) -> nx.Graph:
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from((node, {"label": label}) for node, label in enumerate(labels))
    graph.add_edges_from(edges)
    return graph


def alike(a: dict[str, str], b: dict[str, str]) -> bool:
    return b["label"] is None or a["label"] == b["label"]


def networkx_occurrences(pattern: Pattern, host: nx.Graph) -> set[frozenset[Any]]:
    """The edge sets of all occurrences by networkx; an edge is a pair, ascending where it has no direction."""
    matcher = DiGraphMatcher if pattern.directed else GraphMatcher
    wanted = network(pattern.labels, pattern.edges, pattern.directed)
    sets = set()
    for mapping in matcher(host, wanted, node_match=alike).subgraph_monomorphisms_iter():
        image = {node: there for there, node in mapping.items()}
        pairs = ((image[a], image[b]) for a, b in pattern.edges)
        sets.add(frozenset(pair if pattern.directed else tuple(sorted(pair)) for pair in pairs))
    return sets
