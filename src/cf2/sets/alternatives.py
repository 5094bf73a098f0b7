"""Other answers: sets that pass as well, none of them a part of another.

If all sets can be tried, all minimal answers are listed, and the result says so. Otherwise the search is run again for
a set that holds none of the answers so far, from a ranking in which the units of these come last.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.sets.proof import Exhaustion
from cf2.sets.trials import Constraints, Trials


@dataclass(frozen=True, eq=False)
class Listed:
    """All minimal answers of one instance, the smallest first, or the first of them."""

    sets: Tensor  # [n, U]
    complete: bool


class Besides(Constraints):
    """A set must not hold any of the `answers` [B, n, U] of its instance; empty rows are no answers."""

    def __init__(self, answers: Tensor, others: Constraints | None = None) -> None:
        self.answers, self.others = answers, others or Constraints()
        self.movable, self.mended = self.others.movable, self.others.mended  # type: ignore[method-assign]
        self.confirm = self.others.confirm  # type: ignore[method-assign]

    def take(self, rows: Tensor) -> Besides:
        return Besides(self.answers[rows], self.others.take(rows))

    def allow(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether candidate sets [R, U] hold no answer and keep to the `others` of the constraints."""
        answers = self.answers[rows][:, :, : sets.size(1)]
        inside = (sets[:, None] | ~answers).all(2) & answers.any(2)
        return ~inside.any(1) & self.others.allow(rows, sets)


def list_answers(trials: Trials, row: int, most: int, budget: int) -> Listed | None:
    """The first `most` minimal answers of an instance by size; None if there are more sets than `budget`."""
    # Sets come by their number of units, and a set that holds an answer is left out. So every set that passes is
    # minimal, and after the last size the list is complete.
    search = Exhaustion(trials, row, None, budget, exhausted=0, partly=False)
    if trials.oracle.narrowed[row] or not search.certain:
        return None
    answers = search.must.new_zeros((0, trials.width))
    for count in range(len(search.free) + 1):
        for sets in search.combined(search.must, search.free, count):
            new = sets[~(sets[:, None] | ~answers[None]).all(2).any(1)]
            answers = torch.cat([answers, new[trials.passes(search.rows(new), new)]])
        if len(answers) > most:
            break
    size = search.size(answers)
    return Listed(answers[size.argsort(stable=True)[:most]], len(answers) <= most)


def without_supersets(sets: list[Tensor], costs: list[float]) -> list[int]:
    """The positions of the sets [U] that hold no other one, the one that costs least first."""
    order = sorted(range(len(sets)), key=lambda position: (costs[position], position))
    kept: list[int] = []
    for position in order:
        if not any(bool((sets[position] | ~sets[other]).all()) for other in kept):
            kept.append(position)
    return kept
