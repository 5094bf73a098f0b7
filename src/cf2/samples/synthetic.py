"""Graphs with planted motifs: the explanation of a motif node (or of a whole graph) is known by construction.

All randomness goes through `random.Random(seed).random()`, whose stream Python keeps the same in every
version, so that a name and a seed mean the same graph everywhere.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch_geometric.data import Data, HeteroData

from cf2.options import EdgeType, Key
from cf2.samples.datasets import Dataset, Edges

WIDTH = 10  # features of each node
ROLES = ("base", "shoulder", "floor", "roof")  # of the nodes of BA-Shapes

Edge = tuple[int, int]


class Motif(NamedTuple):
    """A small graph with a role (class) per node; node 0 is the one that is tied to the base."""

    edges: tuple[Edge, ...]
    roles: tuple[int, ...]


HOUSE = Motif(edges=((0, 1), (1, 2), (2, 3), (3, 0), (4, 0), (4, 1)), roles=(1, 1, 2, 2, 3))
SIX_CYCLE = Motif(edges=tuple((i, (i + 1) % 6) for i in range(6)), roles=(1,) * 6)
FIVE_CYCLE = Motif(edges=tuple((i, (i + 1) % 5) for i in range(5)), roles=(1,) * 5)


@dataclass
class _Sketch:
    """A graph under construction: each undirected edge with the motif that it was planted for, or -1."""

    roles: list[int] = field(default_factory=list)
    motifs: list[int] = field(default_factory=list)
    edges: dict[Edge, int] = field(default_factory=dict)

    def add_nodes(self, roles: tuple[int, ...], motif: int) -> int:
        first = len(self.roles)
        self.roles.extend(roles)
        self.motifs.extend([motif] * len(roles))
        return first

    def add_edge(self, a: int, b: int, motif: int = -1) -> bool:
        edge = (min(a, b), max(a, b))
        if a == b or edge in self.edges:
            return False
        self.edges[edge] = motif
        return True

    def plant(self, motif: Motif, number: int, anchor: int) -> None:
        first = self.add_nodes(motif.roles, number)
        for a, b in motif.edges:
            self.add_edge(first + a, first + b, number)
        self.add_edge(first, anchor)

    def disturb(self, share: float, rng: random.Random) -> None:
        """Add `share` times as many random edges as there are; they belong to no motif wherever they fall."""
        missing = int(share * len(self.edges))
        while missing:
            missing -= self.add_edge(_below(len(self.roles), rng), _below(len(self.roles), rng))

    def finish(self) -> Data:
        both = [(tail, head, motif) for (a, b), motif in self.edges.items() for tail, head in ((a, b), (b, a))]
        table = torch.tensor(sorted(both))
        return Data(
            x=torch.ones(len(self.roles), WIDTH),
            edge_index=table[:, :2].t().contiguous(),
            y=torch.tensor(self.roles),
            motif=torch.tensor(self.motifs),
            edge_motif=table[:, 2].contiguous(),
        )


def _below(n: int, rng: random.Random) -> int:
    return int(rng.random() * n)


def _barabasi_albert(nodes: int, links: int, rng: random.Random) -> _Sketch:
    """Each new node links to `links` different older ones, chosen in proportion to their degree."""
    sketch = _Sketch()
    sketch.add_nodes((0,) * nodes, -1)
    ends = list(range(links))  # every node once per edge that it has: a draw from it is a draw by degree
    for new in range(links, nodes):
        chosen: list[int] = []
        while len(chosen) < links:
            # The first newcomer takes all the starting nodes, which have no degree yet.
            old = len(chosen) if new == links else ends[_below(len(ends), rng)]
            if old not in chosen:
                chosen.append(old)
        ends = ([] if new == links else ends) + chosen + [new] * links
        for old in chosen:
            sketch.add_edge(new, old)
    return sketch


def _binary_tree(depth: int) -> _Sketch:
    sketch = _Sketch()
    sketch.add_nodes((0,) * (2 ** (depth + 1) - 1), -1)
    for child in range(1, len(sketch.roles)):
        sketch.add_edge(child, (child - 1) // 2)
    return sketch


def _plant_evenly(sketch: _Sketch, motif: Motif, count: int) -> None:
    base = len(sketch.roles)
    for number in range(count):
        sketch.plant(motif, number, anchor=number * base // count)


def ba_shapes(seed: int = 0) -> Dataset:
    """80 houses on a Barabási-Albert graph of 300 nodes; the four roles are the classes."""
    rng = random.Random(seed)
    sketch = _barabasi_albert(300, 5, rng)
    _plant_evenly(sketch, HOUSE, 80)
    sketch.disturb(0.01, rng)
    return Dataset("ba-shapes", "node", [sketch.finish()], len(ROLES), WIDTH, ROLES, (1, 2, 3), seed=seed)


def tree_cycles(seed: int = 0) -> Dataset:
    """60 six-cycles on a balanced binary tree of depth 8; the classes are the tree and the cycle."""
    rng = random.Random(seed)
    sketch = _binary_tree(8)
    _plant_evenly(sketch, SIX_CYCLE, 60)
    sketch.disturb(0.05, rng)
    return Dataset("tree-cycles", "node", [sketch.finish()], 2, WIDTH, ("tree", "cycle"), (1,), seed=seed)


def ba_2motifs(seed: int = 0) -> Dataset:
    """1,000 Barabási-Albert trees of 20 nodes, each with a house or a five-cycle, which is the class."""
    rng = random.Random(seed)
    graphs = []
    for number in range(1000):
        label = number % 2
        sketch = _barabasi_albert(20, 1, rng)
        sketch.plant((HOUSE, FIVE_CYCLE)[label], 0, anchor=_below(20, rng))
        data = sketch.finish()
        graphs.append(Data(x=data.x, edge_index=data.edge_index, y=torch.tensor([label]), truth=data.edge_motif >= 0))
    return Dataset("ba-2motifs", "graph", graphs, 2, WIDTH, ("house", "cycle"), (0, 1), seed=seed)


# -- a typed graph --------------------------------------------------------------------------------------------

AUTHORS, VENUES, CLASSICS = 400, 40, 40
REVIEWED = 12  # papers, at most, that an author reviews; half of them review none
WRITES, REVIEWS = ("author", "writes", "paper"), ("author", "reviews", "paper")
PUBLISHED, SUBMITTED = ("paper", "published_in", "venue"), ("paper", "submitted_to", "venue")
CITES = ("paper", "cites", "paper")
RELATIONS: tuple[EdgeType, ...] = (WRITES, REVIEWS, PUBLISHED, SUBMITTED, CITES)
NOBODY = -1  # no author's pattern


class _Library:
    """A typed graph under construction: edges with the author whose pattern they belong to."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.classic = [True] * CLASSICS  # of each paper
        self.edges: dict[EdgeType, dict[tuple[int, int], int]] = {relation: {} for relation in RELATIONS}

    def link(self, relation: EdgeType, a: int, b: int, author: int = NOBODY) -> None:
        self.edges[relation].setdefault((a, b), author)

    def write(self, author: int, laureate: bool) -> None:
        """The papers of an author: such as anybody may have and, of a laureate, the one that counts.

        So a laureate without that paper looks like anybody else, and that paper alone like a laureate with few papers.
        """
        if laureate:
            self.paper(author, leading=True, classic=True, pattern=True)
        for leading, classic in ((True, False), (False, True), (False, False)):
            for _ in range(_below(3, self.rng)):
                paper = self.paper(author, leading=leading, classic=classic)
                if not leading and _below(2, self.rng):
                    self.link(SUBMITTED, paper, _below(VENUES // 2, self.rng))

    def paper(self, author: int, *, leading: bool, classic: bool, pattern: bool = False) -> int:
        """A new paper: published in a leading venue, another one or none; citing a classic, an ordinary paper or none.

        A half that is missing is as often nothing as something else, so that a model learns what speaks for an author,
        and not what speaks against.
        """
        number, owner = len(self.classic), author if pattern else NOBODY
        self.classic.append(False)
        self.link(WRITES, author, number, owner)
        if leading or _below(2, self.rng):
            self.link(PUBLISHED, number, _below(VENUES // 2, self.rng) + (0 if leading else VENUES // 2), owner)
        cited = _below(CLASSICS, self.rng) if classic else CLASSICS + _below(number - CLASSICS + 1, self.rng)
        if cited != number and (classic or _below(2, self.rng)):  # the first paper has no ordinary one to cite
            self.link(CITES, number, cited, owner)
        return number


def typed_motifs(seed: int = 0) -> Dataset:
    """400 authors, half of them laureates: the paper that made each one is planted."""
    library = _Library(random.Random(seed))
    laureates = [author % 2 for author in range(AUTHORS)]
    for author, laureate in enumerate(laureates):
        library.write(author, bool(laureate))
    for author in range(AUTHORS):
        reviews = _below(2, library.rng) * (1 + _below(REVIEWED, library.rng))
        for _ in range(reviews):  # of any papers, so that no review tells
            paper = CLASSICS + _below(len(library.classic) - CLASSICS, library.rng)
            if (author, paper) not in library.edges[WRITES]:
                library.link(REVIEWS, author, paper)
    graph = _finish(library, laureates)
    typed = {"node_type": "author", "explanations": lambda key: _planted(graph, key)}
    return Dataset("typed-motifs", "node", [graph], 2, 1, ("author", "laureate"), (1,), seed=seed, **typed)  # type: ignore[arg-type]


def _finish(library: _Library, laureates: list[int]) -> HeteroData:
    """Both directions of each relation, as types of their own; features say what kind of paper or venue it is."""
    graph = HeteroData()
    graph["author"].x = torch.ones(AUTHORS, 1)
    graph["author"].y = torch.tensor(laureates)
    graph["paper"].x = torch.eye(2)[[int(classic) for classic in library.classic]]
    graph["venue"].x = torch.eye(2)[[int(venue < VENUES // 2) for venue in range(VENUES)]]
    for (first, relation, last), planted in library.edges.items():
        table = torch.tensor([(a, b, owner) for (a, b), owner in sorted(planted.items())])
        ends, owner = table[:, :2].t().contiguous(), table[:, 2].contiguous()
        for kind, columns in (((first, relation, last), ends), ((last, f"rev_{relation}", first), ends.flip(0))):
            graph[kind].edge_index, graph[kind].edge_motif = columns.contiguous(), owner.clone()
    return graph


def _planted(graph: HeteroData, key: Key) -> list[Edges]:
    """The one planted explanation of a laureate, by its number; none of anybody else."""
    edges: Edges = {kind: graph[kind].edge_motif == key for kind in graph.edge_types}
    return [edges] if any(bool(mask.any()) for mask in edges.values()) else []
