"""Links of one graph: which edges messages take, which are predicted, and pairs that are no edges.

The edges that are predicted are not in the graph, so that a model never sees the answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.errors import require
from cf2.options import Key
from cf2.samples import citations, storage
from cf2.samples.datasets import EXPLAINED, Dataset, Edges, EdgeType, shuffled

MESSAGES, TEST_SHARE = 0.7, 0.1  # shares of the edges; the rest is what a model learns to predict
CLASSES = ("no link", "link")


def cora_links(root: str | Path | None = None, seed: int = 0) -> Dataset:
    """Planetoid's Cora, 2,708 papers: does one of the two cite the other? Half of the pairs are no edges."""
    whole = citations.planetoid("Cora", root)
    return link_dataset("cora-links", whole.data, seed)


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
    content = _checked(path)
    counts, edges = content["nodes"], content["edges"]
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
    truth = {"edge_type": LIKES, "explanations": _Paths(graph, content["truth"])}
    return _pair_dataset("page-link", graph, ("does not like", "likes"), links[order], others, tests, seed, **truth)


class _Paths:
    """The paths of each pair as masks; an edge and its mirror image in another type are one."""

    def __init__(self, graph: HeteroData, paths: Mapping[Key, list[list[Step]]]) -> None:
        self.paths = paths
        self.columns = {
            kind: {(a, b): column for column, (a, b) in enumerate(graph[kind].edge_index.t().tolist())}
            for kind in graph.edge_types
        }
        back = {kind: {(b, a) for a, b in ends} for kind, ends in self.columns.items()}
        self.mirrors = {
            kind: [other for other in back if other[::2] == kind[::-2] and back[other] == ends.keys()]
            for kind, ends in self.columns.items()
        }

    def __call__(self, key: Key) -> list[Edges]:
        return [self._mask(path) for path in self.paths.get(key, [])]

    def _mask(self, path: list[Step]) -> Edges:
        mask = {kind: torch.zeros(len(ends), dtype=torch.bool) for kind, ends in self.columns.items()}
        for kind, a, b in path:
            mask[kind][self.columns[kind][a, b]] = True
            for other in self.mirrors[kind]:
                mask[other][self.columns[other][b, a]] = True
        return mask


def _checked(path: Path) -> dict[str, Any]:
    """The counts, edges [2, n] by type, and paths by pair, of a file whose parts fit together."""
    content = storage.read_json(path)
    try:
        counts = {str(kind): int(count) for kind, count in content["nodes"].items()}
        edges = {_edge_type(name): _ends(ends) for name, ends in content["edges"].items()}
        truth: dict[Key, list[list[Step]]] = {
            (int(entry["pair"][0][1]), int(entry["pair"][1][1])): [
                [(_edge_type("|".join(kind)), int(a), int(b)) for kind, a, b in steps] for steps in entry["paths"]
            ]
            for entry in content["truth"]
        }
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
        raise storage.damaged(path, "`nodes`, `edges` and `truth`", f"{type(error).__name__}: {error}") from error
    storage.require_size(sum(counts.values()), WIDTH)
    if LIKES not in edges or not edges[LIKES].numel():
        raise storage.damaged(path, "edges of the type user|likes|item", f"the types {sorted(content['edges'])}")
    steps_there = set()
    for (first, relation, last), ends in edges.items():
        counts_of_ends = torch.tensor([[counts.get(first, 0)], [counts.get(last, 0)]])
        if bool((ends < 0).any()) or bool((ends >= counts_of_ends).any()):
            raise storage.damaged(path, f"edges {first}|{relation}|{last} among its nodes", "others")
        if len(set(map(tuple, ends.t().tolist()))) != ends.shape[1]:
            raise storage.damaged(path, f"different edges {first}|{relation}|{last}", "one of them twice")
        steps_there |= {((first, relation, last), a, b) for a, b in ends.t().tolist()}
    for pair, paths in truth.items():
        if any(step not in steps_there for steps in paths for step in steps):
            raise storage.damaged(path, f"paths of edges for the pair {pair}", "one with a step that is no edge")
    return {"nodes": counts, "edges": edges, "truth": truth}


def _edge_type(name: str) -> EdgeType:
    first, relation, last = name.split("|")
    return first, relation, last


def _ends(columns: Any) -> Tensor:
    ends = torch.tensor(columns, dtype=torch.long)
    if ends.dim() != 2 or ends.shape[0] != 2:
        raise ValueError(f"edges of shape {tuple(ends.shape)}")
    return ends
