"""A typed graph with a planted answer: authors, papers and venues, and a pattern that makes an author a laureate.

An author is a laureate if and only if the author *writes* a paper that was *published in* a leading venue and *cites*
a classic paper. Each laureate has exactly one such paper, so the three edges are the explanation. Every author has what
falls short of it: papers with one half of the pattern, a paper that was only submitted to a leading venue, a complete
one that the author only reviewed. So no part of the pattern decides, and no model without the types can know.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from cf2.errors import require
from cf2.paper.datasets.dataset import Dataset, Edges, EdgeType
from cf2.spec import Key

AUTHORS, VENUES, CLASSICS = 400, 40, 40
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

    def below(self, n: int) -> int:
        return int(self.rng.random() * n)

    def link(self, relation: EdgeType, a: int, b: int, author: int = NOBODY) -> None:
        self.edges[relation].setdefault((a, b), author)

    def write(self, author: int, laureate: bool) -> int | None:
        """The papers of an author, and of a laureate the one that counts.

        A laureate has the complete paper and one with neither half where the others have the two halves apart, so
        that the papers, leading venues and classics of an author are as many on average: to count them is no help.
        """
        halves, neither = [self.below(2), self.below(2)], 1 + self.below(2)
        complete = self.paper(author, leading=True, classic=True, pattern=True) if laureate else None
        for _ in range(halves[0] + (not laureate)):
            self.paper(author, leading=True, classic=False)
        tried = [self.paper(author, leading=False, classic=True) for _ in range(halves[1] + (not laureate))]
        tried += [self.paper(author, leading=False, classic=False) for _ in range(neither - (not laureate))]
        self.link(SUBMITTED, tried[0], self.below(VENUES // 2))
        return complete

    def paper(self, author: int, *, leading: bool, classic: bool, pattern: bool = False) -> int:
        """A new paper, published in a leading venue or another one, that cites a classic paper or an ordinary one."""
        number, owner = len(self.classic), author if pattern else NOBODY
        self.classic.append(False)
        self.link(WRITES, author, number, owner)
        self.link(PUBLISHED, number, self.below(VENUES // 2) + (0 if leading else VENUES // 2), owner)
        cited = self.below(CLASSICS) if classic else CLASSICS + self.below(number - CLASSICS + 1)
        if cited != number:  # the first paper has no ordinary one to cite
            self.link(CITES, number, cited, owner)
        return number


def typed_motifs(seed: int = 0) -> Dataset:
    """400 authors, half of them laureates: the paper that made each one is planted; see the head of this file."""
    library = _Library(random.Random(seed))
    laureates = [author % 2 for author in range(AUTHORS)]
    complete = [library.write(author, bool(laureate)) for author, laureate in enumerate(laureates)]
    known = [paper for paper in complete if paper is not None]
    for author in range(AUTHORS):
        for _ in range(2):
            paper = known[library.below(len(known))]
            if (author, paper) not in library.edges[WRITES]:
                library.link(REVIEWS, author, paper)
    graph = _finish(library, laureates)
    return Dataset(
        "typed-motifs",
        "node",
        [graph],
        2,
        1,
        ("author", "laureate"),
        (1,),
        seed=seed,
        node_type="author",
        explanations=lambda key: _planted(graph, key),
    )


def _finish(library: _Library, laureates: list[int]) -> HeteroData:
    """Both directions of each relation, as types of their own; features say what kind of paper or venue it is."""
    graph = HeteroData()
    graph["author"].x = torch.ones(AUTHORS, 1)
    graph["author"].y = torch.tensor(laureates)
    graph["paper"].x = _two([int(classic) for classic in library.classic])
    graph["venue"].x = _two([int(venue < VENUES // 2) for venue in range(VENUES)])
    for (first, relation, last), found in library.edges.items():
        table = torch.tensor([(a, b, owner) for (a, b), owner in sorted(found.items())])
        ends, owner = table[:, :2].t().contiguous(), table[:, 2].contiguous()
        for kind, columns in (((first, relation, last), ends), ((last, f"rev_{relation}", first), ends.flip(0))):
            graph[kind].edge_index, graph[kind].edge_motif = columns.contiguous(), owner.clone()
    return graph


def _two(values: list[int]) -> Tensor:
    return torch.eye(2)[torch.tensor(values)]


def _planted(graph: HeteroData, key: Key) -> list[Edges]:
    """The one planted explanation of a laureate; none of anybody else."""
    require(isinstance(key, int), "Expected an author", got=key)
    found = {kind: graph[kind].edge_motif == key for kind in graph.edge_types}
    return [found] if any(bool(mask.any()) for mask in found.values()) else []
