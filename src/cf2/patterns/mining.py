"""From answers to the few patterns that they share.

Answers are grouped by isomorphism, and those that most answers share come first. A group's pattern is made more
general, step by step, as long as neither its precision falls nor, where the model can be asked, its necessity: what the
model does not need is left out. So that a pattern of a single graph does not count as certain, its precision is taken
as if a few more graphs contained it, of which the class has its share of all graphs. Then the pattern that most answers
share which are not covered yet is taken, and so on. An answer may need two things in different places of a graph; so
what most answers have beside the patterns that were taken becomes a pattern, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
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
MIN_MORE_ANSWERS = 0.1  # the share of answers that a pattern with a label less must have beside those it had
CLOSE = 1e-12  # shares closer than this are equal

# The share of some graphs of the class [G, bool] that leave it without a pattern.
Necessity = Callable[[Pattern, np.ndarray], float]


class Counted(NamedTuple):
    """Where a pattern is contained, and how precise that makes it."""

    contained: np.ndarray  # [G] bool
    hits: int  # graphs of the class that contain it
    precision: float  # hits / graphs that contain it, with the prior


class Pieces:
    """The connected pieces of answers, of which each distinct one is looked at once."""

    def __init__(self, of_answers: Sequence[Sequence[Pattern]], directed: bool) -> None:
        self.of_answers = [set(pieces) for pieces in of_answers]
        self.distinct = list(dict.fromkeys(piece for pieces in of_answers for piece in pieces))
        self.graphs = LabelledGraphs(self.distinct, directed)

    def containing(self, pattern: Pattern) -> set[Pattern]:
        """The distinct pieces that contain a pattern."""
        inside, _ = containing(pattern, self.graphs)
        return {piece for piece, there in zip(self.distinct, inside.tolist()) if there}

    def answers(self, pattern: Pattern) -> np.ndarray:
        """Which answers contain a pattern, in their order [A, bool]."""
        there = self.containing(pattern)
        return np.array([not there.isdisjoint(pieces) for pieces in self.of_answers], dtype=bool)


class Miner:
    """Finds the patterns of a class."""

    def __init__(
        self,
        graphs: LabelledGraphs,  # the whole graphs
        in_class: np.ndarray,  # [G] bool
        answers: Sequence[tuple[int, list[Pattern]]],  # the row of each answer's graph, and the pieces of what it chose
        necessity: Necessity | None = None,  # where the model can be asked
    ) -> None:
        self.graphs, self.in_class, self.necessity = graphs, in_class, necessity
        self.rows = [row for row, _ in answers]
        self.pieces = Pieces([pieces for _, pieces in answers], graphs.directed)
        self.contrast = bool((~in_class).any())
        self.base = float(in_class.mean())
        self._counted: dict[Pattern, Counted] = {}

    def mine(self, count: int, least: float) -> list[Pattern]:
        """At most `count` patterns, each of which newly covers at least a share `least` of the class."""
        chosen: list[Pattern] = []
        covered = np.zeros(len(self.graphs), bool)
        needed = max(1.0, least * float(self.in_class.sum()))
        tried: set[Pattern] = set()
        fruitless = 0
        while len(chosen) < count and fruitless < MAX_FRUITLESS_ROUNDS:
            left = [pieces - tried for row, pieces in zip(self.rows, self.pieces.of_answers) if not covered[row]]
            if not (starts := _most_frequent(left)):
                break
            tried.update(starts)
            best, most = None, 0.0
            for pattern in sorted({self.climb(start) for start in starts} - set(chosen), key=_order):
                contained = self.counted(pattern).contained
                new = float((contained & self.in_class & ~covered).sum())
                # Support in answers, as far as the pattern tells the class apart: all answers share a bond of carbons.
                tells = self._surely(contained) - (self.base if self.contrast else 0.0)
                support = tells * float((self.pieces.answers(pattern) & ~covered[self.rows]).sum())
                if new >= needed and support > most + CLOSE:
                    best, most = pattern, support
            fruitless += 1
            if best is not None:
                chosen.append(best)
                covered |= self.counted(best).contained
                fruitless = 0
        while len(chosen) < count and (beside := self._beside(chosen)) is not None:
            chosen.append(beside)
        return chosen

    def _surely(self, contained: np.ndarray) -> float:
        """The lower end of the interval of a pattern's precision."""
        return share(self.in_class[contained].tolist()).low if contained.any() else 0.0

    def _beside(self, chosen: list[Pattern]) -> Pattern | None:
        """The pattern that most answers have in pieces without any of the chosen ones, if enough of them do."""
        taken = {piece for pattern in chosen for piece in self.pieces.containing(pattern)}
        free = [_anchored(own) - taken for own in self.pieces.of_answers]
        best, most = None, MIN_BESIDE * len(free)
        chosen_graphs = LabelledGraphs(chosen, self.graphs.directed)
        for pattern in sorted({self.climb(start) for start in _most_frequent(free)}, key=_order):
            if containing(pattern, chosen_graphs)[0].any():
                continue  # a part of a chosen one tells nothing beside it
            if self.contrast and self.counted(pattern).precision <= self.base:
                continue  # found in other classes as often
            there = self.pieces.containing(pattern)
            shared = sum(not there.isdisjoint(own) for own in free)
            if shared >= most and (best is None or shared > most):
                best, most = pattern, shared
        return best

    def climb(self, pattern: Pattern) -> Pattern:
        """The pattern made as general as it gets without loss; as it is, where nothing tells that."""
        if not self.contrast:
            return pattern
        plain = pattern.elements_only
        surely = self._surely(self.counted(pattern).contained)
        if self.counted(plain).precision >= surely and self._needed(plain, pattern):
            pattern = plain  # what is known of atoms beside their elements does not surely tell more
        while (step := self._step(pattern)) is not None:
            pattern = step
        return pattern

    def _step(self, pattern: Pattern) -> Pattern | None:
        """One step more general without loss: of a small pattern the most precise one, else the first.

        A label is given up only where clearly more answers have the pattern then; an edge, or a property, is left
        out wherever it tells nothing.
        """
        now, support = self.counted(pattern), int(self.pieces.answers(pattern).sum())
        good: list[tuple[Any, ...]] = []
        for general in dict.fromkeys(pattern.generalisations()):
            counted = self.counted(general, now)
            if counted.precision < now.precision - CLOSE:
                continue
            less = general.size < pattern.size or general.properties < pattern.properties
            if less or self.pieces.answers(general).sum() >= support + MIN_MORE_ANSWERS * len(self.rows):
                if pattern.size > MAX_BEST_STEP_SIZE and self._needed(general, pattern):
                    return general
                good.append((-round(counted.precision, 12), -counted.hits, _order(general), general))
        ranked = (general for *_, general in sorted(good, key=lambda row: row[:3]))
        return next((general for general in ranked if self._needed(general, pattern)), None)

    def _needed(self, general: Pattern, special: Pattern) -> bool:
        """Whether the class needs a pattern as much as a more special one, in the graphs that contain both."""
        if self.necessity is None or general == special:
            return True
        rows = self.counted(special).contained & self.in_class
        return not rows.any() or self.necessity(general, rows) >= self.necessity(special, rows) - CLOSE

    def counted(self, pattern: Pattern, special: Counted | None = None) -> Counted:
        """Where a pattern is contained; what contains a more `special` one contains it too."""
        if pattern not in self._counted:
            contained, _ = containing(pattern, self.graphs, None if special is None else ~special.contained)
            contained = contained if special is None else contained | special.contained
            hits, total = int((contained & self.in_class).sum()), int(contained.sum())
            precision = (hits + PRIOR_GRAPHS * self.base) / (total + PRIOR_GRAPHS)
            self._counted[pattern] = Counted(contained, hits, precision)
        return self._counted[pattern]


def _most_frequent(of_answers: Sequence[set[Pattern]]) -> list[Pattern]:
    """The pieces that most answers have, at what is explained if there are any there: others may lie anywhere."""
    count = Counter(piece for pieces in map(_anchored, of_answers) for piece in pieces if piece.size <= MAX_PIECE_SIZE)
    return sorted(count, key=lambda piece: (-count[piece], _order(piece)))[:STARTS_PER_ROUND]


def _anchored(pieces: set[Pattern]) -> set[Pattern]:
    return {piece for piece in pieces if any(piece.marks)} or pieces


def _order(pattern: Pattern) -> tuple[int, str, tuple[tuple[int, int], ...]]:
    """Small patterns first, then by what is written: an order that does not depend on how nodes are numbered."""
    return pattern.size, repr((pattern.labels, pattern.marks, pattern.edge_labels)), pattern.edges
