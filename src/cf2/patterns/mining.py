"""From answers to the few patterns that they share.

Answers are grouped by isomorphism. A group's pattern is made more general, step by step, as long as its precision does
not fall: what does not help to tell the class apart is left out. So that a pattern of a single graph does not count as
certain, its precision is taken as if a few more graphs contained it, of which the class has its share of all graphs.
Then the pattern that most answers share which are not covered yet is taken, and so on. An answer may need two things in
different places of a graph; so what most answers have beside the patterns that were taken becomes a pattern, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cf2.patterns.labelled import GraphRow, LabelledGraphs
from cf2.patterns.matching import containing
from cf2.patterns.pattern import Pattern
from cf2.results.metrics import share

if TYPE_CHECKING:
    pass

# -- mining ----------------------------------------------------------------------------------------------


FRUITLESS = 2  # rounds of starts without a pattern, after which the search ends
STARTS = 6  # groups that are generalised for every pattern that is taken
SMALL = 9  # a pattern of at most so many edges takes the best step, a larger one the first good one
PRIOR = 4.0  # graphs, of which the class has its share of all, that are counted with every pattern
LARGEST = 60  # edges of an answer's piece that is looked at
BESIDE = 0.5  # the share of answers that must have a pattern beside those that cover the class


@dataclass(frozen=True)
class Counted:
    """Where a pattern is contained, and how precise that makes it."""

    contained: np.ndarray  # [G] bool
    undecided: np.ndarray  # [G] bool
    hits: int  # graphs of the class that contain it
    total: int  # graphs that contain it
    precise: float  # hits / total, with the prior
    lower: float  # the lower end of the interval of hits / total


@dataclass(eq=False)
class Miner:
    """Graphs, which of them are of the class, and the answers found for some of them.

    `graphs` are the whole graphs, `answers` the chosen edges of one each: pairs of a row and its pieces.
    """

    graphs: LabelledGraphs
    in_class: np.ndarray  # [G] bool
    answers: list[tuple[int, list[Pattern]]]
    _known: dict[Pattern, Counted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.contrast = bool((~self.in_class).any())
        self.base = float(self.in_class.mean())
        self.groups = Counter(piece for _, pieces in self.answers for piece in set(pieces))
        self._weights = _weights(self.groups, self.graphs, self.in_class)

    def mine(self, count: int, least: float) -> list[Pattern]:
        """At most `count` patterns, each of which newly covers at least a share `least` of the class."""
        chosen: list[Pattern] = []
        covered = np.zeros(len(self.graphs), bool)
        needed = max(1.0, least * float(self.in_class.sum()))
        tried: set[Pattern] = set()
        rows = [row for row, _ in self.answers]
        fruitless = 0
        while len(chosen) < count and fruitless < FRUITLESS:
            starts = self._starts(covered, tried)
            if not starts:
                break
            tried.update(starts)
            found = {self.climb(start) for start in starts} - set(chosen)
            best, gain = None, 0.0
            for pattern in sorted(found, key=_order):
                counted = self.counted(pattern)
                new = float((counted.contained & self.in_class & ~covered).sum())
                # Among those that cover enough, the one that most answers share, as far as it tells the class apart.
                tells = counted.lower - self.base if self.contrast else counted.lower
                worth = float((self.supported(pattern) & ~covered[rows]).sum()) * tells
                if new >= needed and worth > gain + 1e-12:
                    best, gain = pattern, worth
            fruitless += 1
            if best is not None:
                chosen.append(best)
                covered |= self.counted(best).contained
                fruitless = 0
        while len(chosen) < count and (beside := self._beside(chosen)) is not None:
            chosen.append(beside)
        return chosen

    def _beside(self, chosen: list[Pattern]) -> Pattern | None:
        """The pattern that most answers have in pieces without any of the chosen ones, if enough of them do."""
        taken = np.zeros(len(self.groups), bool)
        for pattern in chosen:
            taken |= containing(pattern, self._pieces).contained
        free = {piece for piece, there in zip(self.groups, taken.tolist()) if not there and piece.size <= LARGEST}
        pieces = [_anchored(set(mine)) & free for _, mine in self.answers]
        left = Counter(piece for mine in pieces for piece in mine)
        found = {self.climb(start) for start in sorted(left, key=lambda p: (-left[p], _order(p)))[:STARTS]}
        place = {piece: at for at, piece in enumerate(self.groups)}
        best, most = None, BESIDE * len(self.answers)
        known = _graphs(chosen, self.graphs.directed)
        for pattern in sorted(found, key=_order):
            if containing(pattern, known).contained.any():
                continue  # a part of a chosen one tells nothing beside it
            if self.contrast and self.counted(pattern).precise <= self.base:
                continue  # found in other classes as often
            within = containing(pattern, self._pieces).contained
            shared = sum(any(within[place[piece]] for piece in mine) for mine in pieces)
            if shared >= most and (best is None or shared > most):
                best, most = pattern, shared
        return best

    def _starts(self, covered: np.ndarray, tried: set[Pattern]) -> list[Pattern]:
        """The most frequent pieces of answers to what is not covered yet."""
        left = Counter(
            piece
            for row, pieces in self.answers
            if not covered[row]
            for piece in _anchored(set(pieces))
            if piece not in tried and piece.size <= LARGEST
        )
        # A piece that tells nothing apart is a poor start, so pieces are ranked by what their edges tell.
        ranked = sorted(left, key=lambda piece: (-left[piece], -self._worth(piece), _order(piece)))
        return ranked[:STARTS]

    def climb(self, pattern: Pattern) -> Pattern:
        """The pattern made as general as it gets without loss of precision; as it is, where nothing tells that."""
        while self.contrast:
            now = self.counted(pattern)
            step = self._best_step(pattern, now) if pattern.size <= SMALL else self._first_step(pattern, now)
            if step is None:
                break
            pattern = step
        return pattern

    def _steps(self, pattern: Pattern) -> list[Pattern]:
        """What is one step more general, the least telling part gone first."""
        ranked: dict[Pattern, tuple[Any, ...]] = {}
        for kind, place, general in pattern.generalisations():
            worth = self._weights.get(_pair(pattern, place), 0.0) if kind == "drop" else 0.0
            ranked.setdefault(general, (kind != "drop", round(worth, 9), _order(general)))
        return sorted(ranked, key=lambda general: ranked[general])

    def _first_step(self, pattern: Pattern, now: Counted) -> Pattern | None:
        for general in self._steps(pattern):
            counted = self.counted(general, now)
            if counted.precise >= now.precise - 1e-12 and _pays(pattern, general, now, counted):
                return general
        return None

    def _best_step(self, pattern: Pattern, now: Counted) -> Pattern | None:
        best, reached = None, (now.precise - 1e-12, -1)
        for general in self._steps(pattern):
            counted = self.counted(general, now)
            if (counted.precise, counted.hits) > reached and _pays(pattern, general, now, counted):
                best, reached = general, (counted.precise + 1e-12, counted.hits)
        return best

    def counted(self, pattern: Pattern, special: Counted | None = None) -> Counted:
        """Where a pattern is contained; what contains a more `special` one contains it too."""
        if pattern not in self._known:
            rows = None if special is None else ~special.contained
            found = containing(pattern, self.graphs, rows)
            contained = found.contained if special is None else found.contained | special.contained
            hits, total = int((contained & self.in_class).sum()), int(contained.sum())
            self._known[pattern] = Counted(
                contained,
                found.undecided,
                hits,
                total,
                (hits + PRIOR * self.base) / (total + PRIOR),
                lower(hits, total),
            )
        return self._known[pattern]

    def support(self, pattern: Pattern) -> int:
        """How many answers contain the pattern."""
        return int(self.supported(pattern).sum())

    def supported(self, pattern: Pattern) -> np.ndarray:
        """Which answers contain the pattern, in their order."""
        within = dict(zip(self.groups, containing(pattern, self._pieces).contained.tolist()))
        return np.array([any(within[piece] for piece in pieces) for _, pieces in self.answers], dtype=bool)

    @cached_property
    def _pieces(self) -> LabelledGraphs:
        """The pieces of the answers, as graphs."""
        return _graphs(list(self.groups), self.graphs.directed)

    def _worth(self, pattern: Pattern) -> float:
        return sum(self._weights.get(_pair(pattern, edge), 0.0) for edge in range(pattern.size))


def _graphs(patterns: list[Pattern], directed: bool) -> LabelledGraphs:
    """Patterns as graphs, to look for others in."""
    rows = [
        GraphRow(
            place,
            [label or "" for label in pattern.labels],
            np.array(pattern.marks, np.int64),
            np.array(pattern.edges, np.int64).reshape(-1, 2),
            [label or "" for label in pattern.edge_labels],
        )
        for place, pattern in enumerate(patterns)
    ]
    return LabelledGraphs.join(rows, directed)


def _anchored(pieces: set[Pattern]) -> set[Pattern]:
    """The pieces at what is explained, if there are any: others may lie anywhere in a graph that many share."""
    return {piece for piece in pieces if any(piece.marks)} or pieces


def _pays(pattern: Pattern, general: Pattern, before: Counted, after: Counted) -> bool:
    """A label is given up only where that covers more; an edge is left out wherever it tells nothing."""
    return general.size < pattern.size or after.hits > before.hits


@lru_cache(maxsize=100_000)
def lower(hits: int, total: int) -> float:
    """The lower end of the interval of a share; 0 where there is nothing."""
    return share(np.arange(total) < hits).low if total else 0.0  # type: ignore[arg-type]


def _order(pattern: Pattern) -> tuple[int, str, tuple[tuple[int, int], ...]]:
    """Small patterns first, then by what is written: an order that does not depend on how nodes are numbered."""
    return pattern.size, repr((pattern.labels, pattern.marks, pattern.edge_labels)), pattern.edges


Pair = tuple[str, str]


def _pair(pattern: Pattern, edge: int) -> Pair:
    a, b = (pattern.labels[node] or "" for node in pattern.edges[edge])
    return (a, b) if a <= b else (b, a)


def _weights(groups: Counter[Pattern], graphs: LabelledGraphs, in_class: np.ndarray) -> dict[Pair, float]:
    """By the labels of its ends, how much more often an edge is in answers than in graphs of other classes."""
    total = sum(groups.values())
    inside: Counter[Pair] = Counter()
    for piece, times in groups.items():
        for pair in {_pair(piece, edge) for edge in range(piece.size)}:
            inside[pair] += times
    others = np.flatnonzero(~in_class)
    place = {name: at for at, name in enumerate(graphs.names)}
    weights = {}
    for (a, b), times in inside.items():
        there = graphs.pair_counts[others, place[a], place[b]] > 0 if len(others) else np.zeros(1)
        weights[a, b] = times / total - float(there.mean())
    return weights
