"""Networks: citations of CiteSeer and Cora, and PaGE-Link's users and items.

Where links are predicted, a data set says which edges messages take, which are predicted, and pairs that are no edges.
The edges that are predicted are not in the graph, so that a model never sees the answer.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.io import read_planetoid_data
from torch_geometric.utils import subgraph

from cf2.errors import require
from cf2.graphs.graph import Graph
from cf2.options import EdgeType, Key
from cf2.samples import storage
from cf2.samples.datasets import EXPLAINED, Dataset, Edges, shuffled

CITESEER_CLASSES = ("AI", "ML", "IR", "DB", "Agents", "HCI")  # told by the classes' sizes
MESSAGES, TEST_SHARE = 0.7, 0.1  # shares of the edges; the rest is what a model learns to predict
CLASSES = ("no link", "link")


def citeseer(root: str | Path | None = None) -> Dataset:
    """CiteSeer without the 15 papers that have no words: 3,312 papers, 3,703 words, 6 classes."""
    data = _planetoid("CiteSeer", root)
    kept = (data.x.sum(dim=1) > 0).nonzero().view(-1)
    edge_index, _ = subgraph(kept, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    graph = Data(x=data.x[kept], edge_index=edge_index, y=data.y[kept])
    return Dataset("citeseer", "node", [graph], 6, 3703, CITESEER_CLASSES, tuple(range(6)), first=EXPLAINED)


def cora_links(root: str | Path | None = None, seed: int = 0) -> Dataset:
    """Planetoid's Cora, 2,708 papers: does one of the two cite the other? Half of the pairs are no edges."""
    return link_dataset("cora-links", _planetoid("Cora", root), seed)


def _planetoid(name: str, root: str | Path | None) -> Data:
    """All papers of a set. Its files are pickles, so only the known ones, by their SHA-256, are read."""
    folder = storage.raw_directory(root, "Planetoid", name)
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
    return _pair_dataset(name, graph.coalesce(), CLASSES, predicted, others, tests, seed)


def _pair_dataset(
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


# -- page link -------------------------------------------------------------------------------------------


LIKES: EdgeType = ("user", "likes", "item")
WIDTH = 64  # of the signs by which nodes are told apart
TEST_PAIRS = 0.2
SOURCE = (
    "JSON with `nodes`, `edges` and `truth`, made of the synthetic graph of "
    "amazon-science/page-link-path-based-gnn-explanation (docs/datasets.md has the form)."
)
Step = tuple[EdgeType, int, int]


def page_link(root: str | Path | None = None, seed: int = 0) -> Dataset:
    """Does the user like the item? 714 pairs with the paths that caused each, and as many pairs without a link.

    Nodes have no features of their own. Each gets signs (±1/8, 64 of them) drawn from the seed: they tell nodes apart
    without saying anything about them, and go with a node into every part of the graph.
    """
    path = storage.raw_file(root, "PaGELink", "synthetic.json", SOURCE)
    counts, edges, paths = _parts(path)
    graph, rng = HeteroData(), random.Random(seed)
    for kind in sorted(counts):
        signs = [[1.0 if rng.random() < 0.5 else -1.0 for _ in range(WIDTH)] for _ in range(counts[kind])]
        graph[kind].x = torch.tensor(signs) / WIDTH**0.5
    for edge_type in sorted(edges):
        if edge_type != LIKES:
            graph[edge_type].edge_index = edges[edge_type]
    links = edges[LIKES].t()
    order = torch.tensor(shuffled(range(len(links)), seed))
    liked = {(int(a), int(b)) for a, b in links.tolist()}
    free = [(a, b) for a in range(counts["user"]) for b in range(counts["item"]) if (a, b) not in liked]
    if len(free) < len(links):
        raise storage.damaged(path, "as many pairs without a link as with one", f"{len(free)} and {len(links)}")
    others = torch.tensor([free[i] for i in shuffled(range(len(free)), seed + 1)[: len(links)]])
    tests = int(TEST_PAIRS * len(links))
    truth = {"edge_type": LIKES, "explanations": partial(_masks, Graph(graph), paths)}
    return _pair_dataset("page-link", graph, ("does not like", "likes"), links[order], others, tests, seed, **truth)


def _masks(graph: Graph, paths: Mapping[Key, list[list[Step]]], key: Key) -> list[Edges]:
    """The paths of a pair as masks of edges; an edge and its mirror image in another type are one."""
    types, ties = graph.types, graph.ties
    assert types is not None
    assert ties is not None
    counts = graph.extras["edge_type"][1].bincount(minlength=len(types.edges)).tolist()
    masks: list[Edges] = []
    for path in paths.get(key, []):
        codes = np.concatenate([types.codes({kind: [(a, b)]}) for kind, a, b in path])
        masks.append(dict(zip(types.edges, torch.split(torch.isin(ties, torch.from_numpy(codes)), counts))))
    return masks


def _parts(path: Path) -> tuple[dict[str, int], dict[EdgeType, Tensor], dict[Key, list[list[Step]]]]:
    """The counts of nodes, edges [2, n] by type, and paths by pair, of a file whose parts fit together."""
    content = storage.read_json(path)
    try:
        counts = {str(kind): int(count) for kind, count in content["nodes"].items()}
        storage.require_size(sum(counts.values()), WIDTH)
        edges = {_edge_type(name): torch.tensor(ends, dtype=torch.long) for name, ends in content["edges"].items()}
        there = {(kind, int(a), int(b)) for kind, ends in edges.items() for a, b in ends.t()}
        for (first, relation, last), ends in edges.items():
            high = torch.tensor([[counts[first]], [counts[last]]])
            if not bool(((ends >= 0) & (ends < high)).all()):
                raise ValueError(f"edges {first}|{relation}|{last} between nodes that are not there")
        if len(there) != sum(ends.shape[1] for ends in edges.values()) or not edges[LIKES].numel():
            raise ValueError("an edge that comes twice, or nothing that a user likes")
        truth: dict[Key, list[list[Step]]] = {}
        for entry in content["truth"]:
            (_, user), (_, item) = entry["pair"]
            paths = [[(_edge_type("|".join(kind)), int(a), int(b)) for kind, a, b in steps] for steps in entry["paths"]]
            if not there.issuperset(step for steps in paths for step in steps):
                raise ValueError(f"a path of the pair {user}, {item} with a step that is no edge")
            truth[int(user), int(item)] = paths
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        said = f"{type(error).__name__}: {error}"
        raise storage.damaged(path, "`nodes`, `edges` and `truth` that fit together", said) from error
    return counts, edges, truth


def _edge_type(name: str) -> EdgeType:
    first, relation, last = name.split("|")
    return first, relation, last
