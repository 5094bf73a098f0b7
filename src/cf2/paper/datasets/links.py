"""Links of one graph: which edges messages take, which are predicted, and pairs that are no edges.

The edges that are predicted are not in the graph, so that a model never sees the answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import require
from cf2.paper.datasets import citations
from cf2.paper.datasets.dataset import EXPLAINED, Dataset, shuffled

MESSAGES, TESTS = 0.7, 0.1  # shares of the edges; the rest is what a model learns to predict
CLASSES = ("no link", "link")


def cora_links(root: str | Path | None = None, seed: int = 0) -> Dataset:
    """Planetoid's Cora, 2,708 papers: does one of the two cite the other? Half of the pairs are no edges."""
    whole = citations.planetoid("Cora", root)
    return link_dataset("cora-links", whole.data, seed)


def link_dataset(name: str, data: Data, seed: int = 0) -> Dataset:
    """The links of an undirected graph: 70 % of the edges carry messages, 20 % are learned, 10 % are for testing.

    Parameters
    ----------
    name : str
        The name of the data set.
    data : Data
        An undirected graph with `x` and `edge_index`.
    seed : int
        The seed of the draw of edges and of pairs that are none.

    Returns
    -------
    Dataset
        Its pairs are in turn an edge and no edge, those for testing last.
    """
    tail, head = data.edge_index
    edges = data.edge_index[:, tail < head].t()
    nodes = int(data.num_nodes or 0)
    require(len(edges) >= 10, "Expected at least ten edges to divide", got=len(edges))
    order = torch.tensor(shuffled(range(len(edges)), seed))
    messages, tests = int(MESSAGES * len(edges)), int(TESTS * len(edges))
    predicted = edges[order[messages:]]
    known = set((edges[:, 0] * nodes + edges[:, 1]).tolist())
    spare = nodes * (nodes - 1) // 2 - len(edges)
    require(spare >= len(predicted), f"Expected {len(predicted)} pairs of nodes that are no edges", got=spare)
    others = torch.tensor([(a, b) for _, (a, b) in zip(range(len(predicted)), _others(nodes, known, seed))])
    pairs, labels = in_turn(predicted, others)
    kept = edges[order[:messages].sort().values].t()
    graph = Data(x=data.x, edge_index=torch.cat([kept, kept.flip(0)], 1))
    return Dataset(
        name,
        "pair",
        [graph.coalesce()],
        2,
        int(data.x.shape[1]),
        CLASSES,
        (0, 1),
        seed=seed,
        output="logit",
        pairs=pairs,
        pair_labels=labels,
        test_ids=torch.arange(len(pairs) - 2 * tests, len(pairs)),
        first=EXPLAINED,
    )


def in_turn(links: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Links and as many other pairs, one after the other [2 n, 2], and which of them are links, int64 [2 n]."""
    return torch.stack([links, others], 1).view(-1, 2), torch.tensor([1, 0]).repeat(len(links))


def _others(nodes: int, known: set[int], seed: int) -> Iterator[tuple[int, int]]:
    """Pairs of different nodes that are no edges, each once, in an order that is drawn."""
    rng, seen = random.Random(seed + 1), set(known)
    while True:
        a, b = sorted((int(rng.random() * nodes), int(rng.random() * nodes)))
        if a != b and a * nodes + b not in seen:
            seen.add(a * nodes + b)
            yield a, b
