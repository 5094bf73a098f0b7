"""From answers to the few patterns that they share.

Answers are grouped by isomorphism. A group's pattern is made more general, step by step, as long as its precision does
not fall: what does not help to tell the class apart is left out. So that a pattern of a single graph does not count as
certain, its precision is taken as if a few more graphs contained it, of which the class has its share of all graphs.
Then the pattern that most answers share which are not covered yet is taken, and so on. An answer may need two things in
different places of a graph; so what most answers have beside the patterns that were taken becomes a pattern, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cf2.patterns.labelled import LabelledGraphs
from cf2.patterns.matching import containing
from cf2.patterns.pattern import Pattern
from cf2.results.metrics import share

MAX_FRUITLESS_ROUNDS = 2  # rounds of starts without a pattern, after which the search ends
STARTS_PER_ROUND = 6  # groups that are generalised for every pattern that is taken
MAX_BEST_STEP_SIZE = 9  # a pattern of at most so many edges takes the best step, a larger one the first good one
PRIOR_GRAPHS = 4.0  # graphs, of which the class has its share of all, that are counted with every pattern
MAX_PIECE_SIZE = 60  # edges of an answer's piece that is looked at
MIN_BESIDE = 0.5  # the share of answers that must have a pattern beside those that cover the class
CLOSE = 1e-12  # precisions closer than this are equal

LabelPair = tuple[str, str]


class Counted(NamedTuple):
    """Where a pattern is contained, and how precise that makes it."""

    contained: np.ndarray  # [G] bool
    hits: int  # graphs of the class that contain it
    precision: float  # hits / graphs that contain it, with the prior
    lower: float  # the lower end of the interval of the same without the prior


class Pieces:
    """The connected pieces of answers, of which each distinct one is looked at once."""

    def __init__(self, of_answers: Sequence[Sequence[Pattern]], directed: bool) -> None:
        self.of_answers = [set(pieces) for pieces in of_answers]
        self.answers_with = Counter(piece for pieces in self.of_answers for piece in pieces)
        self.graphs = LabelledGraphs.of_patterns(list(self.answers_with), directed)

    def containing(self, pattern: Pattern) -> set[Pattern]:
        """The distinct pieces that contain a pattern."""
        inside = containing(pattern, self.graphs).contained.tolist()
        return {piece for piece, there in zip(self.answers_with, inside) if there}

    def answers(self, pattern: Pattern) -> np.ndarray:
        """Which answers contain a pattern, in their order [A, bool]."""
        there = self.containing(pattern)
        return np.array([not there.isdisjoint(pieces) for pieces in self.of_answers], dtype=bool)


class Miner:
    """Finds the patterns of a class.

    Parameters
    ----------
    graphs : LabelledGraphs
        The whole graphs.
    in_class : ndarray of bool, shape [G]
    answers : sequence of (int, list of Pattern)
        The row of each answer's graph, and the connected pieces of what it chose.
    """

    def __init__(
        self, graphs: LabelledGraphs, in_class: np.ndarray, answers: Sequence[tuple[int, list[Pattern]]]
    ) -> None:
        self.graphs, self.in_class = graphs, in_class
        self.rows = [row for row, _ in answers]
        self.pieces = Pieces([pieces for _, pieces in answers], graphs.directed)
        self.contrast = bool((~in_class).any())
        self.base = float(in_class.mean())
        self._weights = _weights(self.pieces.answers_with, graphs, in_class)
        self._counted: dict[Pattern, Counted] = {}

    def mine(self, count: int, least: float) -> list[Pattern]:
        """At most `count` patterns, each of which newly covers at least a share `least` of the class."""
        chosen: list[Pattern] = []
        covered = np.zeros(len(self.graphs), bool)
        needed = max(1.0, least * float(self.in_class.sum()))
        tried: set[Pattern] = set()
        fruitless = 0
        while len(chosen) < count and fruitless < MAX_FRUITLESS_ROUNDS:
            starts = self._starts(covered, tried)
            if not starts:
                break
            tried.update(starts)
            best, gain = None, 0.0
            for pattern in sorted({self.climb(start) for start in starts} - set(chosen), key=_order):
                counted = self.counted(pattern)
                new = float((counted.contained & self.in_class & ~covered).sum())
                # Among those that cover enough, the one that most answers share, as far as it tells the class apart.
                tells = counted.lower - self.base if self.contrast else counted.lower
                worth = float((self.pieces.answers(pattern) & ~covered[self.rows]).sum()) * tells
                if new >= needed and worth > gain + CLOSE:
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
        taken = {piece for pattern in chosen for piece in self.pieces.containing(pattern)}
        free = {piece for piece in self.pieces.answers_with if piece not in taken and piece.size <= MAX_PIECE_SIZE}
        pieces = [_anchored(own) & free for own in self.pieces.of_answers]
        left = Counter(piece for own in pieces for piece in own)
        starts = sorted(left, key=lambda piece: (-left[piece], _order(piece)))[:STARTS_PER_ROUND]
        best, most = None, MIN_BESIDE * len(pieces)
        chosen_graphs = LabelledGraphs.of_patterns(chosen, self.graphs.directed)
        for pattern in sorted({self.climb(start) for start in starts}, key=_order):
            if containing(pattern, chosen_graphs).contained.any():
                continue  # a part of a chosen one tells nothing beside it
            if self.contrast and self.counted(pattern).precision <= self.base:
                continue  # found in other classes as often
            there = self.pieces.containing(pattern)
            shared = sum(not there.isdisjoint(own) for own in pieces)
            if shared >= most and (best is None or shared > most):
                best, most = pattern, shared
        return best

    def _starts(self, covered: np.ndarray, tried: set[Pattern]) -> list[Pattern]:
        """The most frequent pieces of answers to what is not covered yet."""
        left = Counter(
            piece
            for row, pieces in zip(self.rows, self.pieces.of_answers)
            if not covered[row]
            for piece in _anchored(pieces)
            if piece not in tried and piece.size <= MAX_PIECE_SIZE
        )

        def rank(piece: Pattern) -> tuple[Any, ...]:
            # A piece that tells nothing apart is a poor start, so equally frequent ones go by what their edges tell.
            worth = sum(self._weights.get(_label_pair(piece, edge), 0.0) for edge in range(piece.size))
            return -left[piece], -worth, _order(piece)

        return sorted(left, key=rank)[:STARTS_PER_ROUND]

    def climb(self, pattern: Pattern) -> Pattern:
        """The pattern made as general as it gets without loss of precision; as it is, where nothing tells that."""
        while self.contrast and (step := self._step(pattern)) is not None:
            pattern = step
        return pattern

    def _steps(self, pattern: Pattern) -> list[Pattern]:
        """What is one step more general, the least telling part gone first."""
        ranked: dict[Pattern, tuple[Any, ...]] = {}
        for kind, place, general in pattern.generalisations():
            worth = self._weights.get(_label_pair(pattern, place), 0.0) if kind == "drop" else 0.0
            ranked.setdefault(general, (kind != "drop", round(worth, 9), _order(general)))
        return sorted(ranked, key=ranked.__getitem__)

    def _step(self, pattern: Pattern) -> Pattern | None:
        """One step more general without loss of precision: of a small pattern the best one, else the first.

        A label is given up only where that covers more; an edge is left out wherever it tells nothing.
        """
        now = self.counted(pattern)
        best, reached = None, (now.precision - CLOSE, -1)
        for general in self._steps(pattern):
            counted = self.counted(general, now)
            pays = general.size < pattern.size or counted.hits > now.hits
            if pays and (counted.precision, counted.hits) > reached:
                best, reached = general, (counted.precision + CLOSE, counted.hits)
                if pattern.size > MAX_BEST_STEP_SIZE:
                    break
        return best

    def counted(self, pattern: Pattern, special: Counted | None = None) -> Counted:
        """Where a pattern is contained; what contains a more `special` one contains it too."""
        if pattern not in self._counted:
            contained = containing(pattern, self.graphs, None if special is None else ~special.contained).contained
            contained = contained if special is None else contained | special.contained
            hits, total = int((contained & self.in_class).sum()), int(contained.sum())
            precision = (hits + PRIOR_GRAPHS * self.base) / (total + PRIOR_GRAPHS)
            self._counted[pattern] = Counted(contained, hits, precision, _lower(hits, total))
        return self._counted[pattern]


def _anchored(pieces: set[Pattern]) -> set[Pattern]:
    """The pieces at what is explained, if there are any: others may lie anywhere in a graph that many share."""
    return {piece for piece in pieces if any(piece.marks)} or pieces


@lru_cache(maxsize=100_000)
def _lower(hits: int, total: int) -> float:
    """The lower end of the interval of a share; 0 where there is nothing."""
    return share(np.arange(total) < hits).low if total else 0.0  # type: ignore[arg-type]


def _order(pattern: Pattern) -> tuple[int, str, tuple[tuple[int, int], ...]]:
    """Small patterns first, then by what is written: an order that does not depend on how nodes are numbered."""
    return pattern.size, repr((pattern.labels, pattern.marks, pattern.edge_labels)), pattern.edges


def _label_pair(pattern: Pattern, edge: int) -> LabelPair:
    a, b = sorted(pattern.labels[node] or "" for node in pattern.edges[edge])
    return a, b


def _weights(pieces: Counter[Pattern], graphs: LabelledGraphs, in_class: np.ndarray) -> dict[LabelPair, float]:
    """By the labels of its ends, how much more often an edge is in answers than in graphs of other classes."""
    inside: Counter[LabelPair] = Counter()
    for piece, times in pieces.items():
        for pair in {_label_pair(piece, edge) for edge in range(piece.size)}:
            inside[pair] += times
    others = np.flatnonzero(~in_class)
    weights = {}
    for (a, b), times in inside.items():
        codes = graphs.names.index(a), graphs.names.index(b)
        there = graphs.pair_counts[others, *codes] > 0 if len(others) else np.zeros(1)
        weights[a, b] = times / pieces.total() - float(there.mean())
    return weights
