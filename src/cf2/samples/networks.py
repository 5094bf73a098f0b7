"""Networks: citations of CiteSeer and Cora.

Where links are predicted, a data set says which edges messages take, which are predicted, and pairs that are no edges.
The edges that are predicted are not in the graph, so that a model never sees the answer.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data
from torch_geometric.utils import subgraph

from cf2.errors import require
from cf2.samples.datasets import EXPLAINED, Dataset, shuffled
from cf2.samples.storage import Root, raw_directory

CITESEER_CLASSES = ("AI", "ML", "IR", "DB", "Agents", "HCI")  # told by the classes' sizes
MESSAGES, TEST_SHARE = 0.7, 0.1  # shares of the edges; the rest is what a model learns to predict
CLASSES = ("no link", "link")


def citeseer(root: Root = None) -> Dataset:
    """CiteSeer without the 15 papers that have no words: 3,312 papers, 3,703 words, 6 classes."""
    data = _planetoid("CiteSeer", root)
    kept = (data.x.sum(dim=1) > 0).nonzero().view(-1)
    edge_index, _ = subgraph(kept, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    graph = Data(x=data.x[kept], edge_index=edge_index, y=data.y[kept])
    return Dataset("citeseer", "node", [graph], 6, 3703, CITESEER_CLASSES, tuple(range(6)), first=EXPLAINED)


def cora_links(root: Root = None, seed: int = 0) -> Dataset:
    """Planetoid's Cora, 2,708 papers: does one of the two cite the other? Half of the pairs are no edges."""
    return link_dataset("cora-links", _planetoid("Cora", root), seed)


def _planetoid(name: str, root: Root) -> Data:
    """All papers of a set. Its files are pickles, so only the known ones, by their SHA-256, are read."""
    folder = raw_directory(root, "Planetoid", name)
    with warnings.catch_warnings():  # the reader adds a filter of its own
        return read_planetoid_data(str(folder), name.lower())


def link_dataset(name: str, data: Data, seed: int = 0) -> Dataset:
    """The links of an undirected graph: 70 % of the edges carry messages, 20 % are learned, 10 % are for testing.

    The pairs are in turn an edge and no edge, those for testing last; the seed decides which edges and which others.
    """
    tail, head = data.edge_index
    edges = data.edge_index[:, tail < head].t()
    nodes = int(data.num_nodes or 0)
    require(len(edges) >= 10, "Expected at least ten edges to divide", got=len(edges))
    order = torch.tensor(shuffled(range(len(edges)), seed))
    messages, tests = int(MESSAGES * len(edges)), int(TEST_SHARE * len(edges))
    predicted = edges[order[messages:]]
    codes = set((edges[:, 0] * nodes + edges[:, 1]).tolist())
    spare = nodes * (nodes - 1) // 2 - len(edges)
    require(spare >= len(predicted), f"Expected {len(predicted)} pairs of nodes that are no edges", got=spare)
    others = torch.tensor([(a, b) for _, (a, b) in zip(range(len(predicted)), _others(nodes, codes, seed))])
    kept = edges[order[:messages].sort().values].t()
    graph = Data(x=data.x, edge_index=torch.cat([kept, kept.flip(0)], 1))
    return pair_dataset(name, graph.coalesce(), CLASSES, predicted, others, tests, seed)


def pair_dataset(
    name: str, graph: Any, classes: tuple[str, str], links: Tensor, others: Tensor, tests: int, seed: int, **more: Any
) -> Dataset:
    """Links and as many other pairs in turn, of which the last so many of both are for testing."""
    pairs = torch.stack([links, others], 1).view(-1, 2)
    width = int(graph.node_stores[0].x.shape[1])
    more |= {
        "pairs": pairs,
        "pair_labels": torch.tensor([1, 0]).repeat(len(links)),
        "test_ids": torch.arange(len(pairs) - 2 * tests, len(pairs)),
    }
    return Dataset(name, "pair", [graph], 2, width, classes, (0, 1), seed=seed, output="logit", first=EXPLAINED, **more)


def _others(nodes: int, codes: set[int], seed: int) -> Iterator[tuple[int, int]]:
    """Pairs of different nodes that are no edges, each once, in an order that is drawn."""
    rng, seen = random.Random(seed + 1), set(codes)
    while True:
        a, b = sorted((int(rng.random() * nodes), int(rng.random() * nodes)))
        if a != b and a * nodes + b not in seen:
            seen.add(a * nodes + b)
            yield a, b
