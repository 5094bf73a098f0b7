"""A typed graph with a planted answer: authors, papers and venues, and a pattern that makes an author a laureate.

An author is a laureate if and only if the author *writes* a paper that was *published in* a leading venue and *cites*
a classic paper. Each laureate has exactly one such paper, so the three edges are the explanation. Authors of both kinds
have what falls short of it: papers with one half of the pattern, papers that were only submitted to a leading venue,
complete ones that they only reviewed. So no part of the pattern decides, and no model without the types can know.
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

    def below(self, n: int) -> int:
        return int(self.rng.random() * n)

    def link(self, relation: EdgeType, a: int, b: int, author: int = NOBODY) -> None:
        self.edges[relation].setdefault((a, b), author)

    def write(self, author: int, laureate: bool) -> None:
        """The papers of an author: such as anybody may have and, of a laureate, the one that counts.

        So a laureate without that paper looks like anybody else, and that paper alone like a laureate with few papers.
        """
        if laureate:
            self.paper(author, leading=True, classic=True, pattern=True)
        for leading, classic in ((True, False), (False, True), (False, False)):
            for _ in range(self.below(3)):
                paper = self.paper(author, leading=leading, classic=classic)
                if not leading and self.below(2):
                    self.link(SUBMITTED, paper, self.below(VENUES // 2))

    def paper(self, author: int, *, leading: bool, classic: bool, pattern: bool = False) -> int:
        """A new paper: published in a leading venue, another one or none; citing a classic, an ordinary paper or none.

        A half that is missing is as often nothing as something else, so that a model learns what speaks for an author,
        and not what speaks against.
        """
        number, owner = len(self.classic), author if pattern else NOBODY
        self.classic.append(False)
        self.link(WRITES, author, number, owner)
        if leading or self.below(2):
            self.link(PUBLISHED, number, self.below(VENUES // 2) + (0 if leading else VENUES // 2), owner)
        cited = self.below(CLASSICS) if classic else CLASSICS + self.below(number - CLASSICS + 1)
        if cited != number and (classic or self.below(2)):  # the first paper has no ordinary one to cite
            self.link(CITES, number, cited, owner)
        return number


def typed_motifs(seed: int = 0) -> Dataset:
    """400 authors, half of them laureates: the paper that made each one is planted; see the head of this file."""
    library = _Library(random.Random(seed))
    laureates = [author % 2 for author in range(AUTHORS)]
    for author, laureate in enumerate(laureates):
        library.write(author, bool(laureate))
    for author in range(AUTHORS):
        for _ in range(library.below(2) * (1 + library.below(REVIEWED))):  # any papers, so that no review tells
            paper = CLASSICS + library.below(len(library.classic) - CLASSICS)
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
