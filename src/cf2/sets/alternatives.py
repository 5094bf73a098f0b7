"""Other answers: sets that pass as well, none of them a part of another.

Where all sets can be tried, all minimal ones are listed, and that is said. Elsewhere the search is asked again for a
set that has no known answer inside, from a ranking in which what was used comes last.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, islice

import torch
from torch import Tensor

from cf2.sets.proof import MAX_SETS_PER_CALL
from cf2.sets.trials import Constraints, Trials


@dataclass(frozen=True, eq=False)
class Listed:
    """All minimal answers of one instance, the smallest first, or the first of them."""

    sets: Tensor  # [n, U]
    complete: bool


class Besides(Constraints):
    """None of the known answers [B, n, U] of an instance may be a part of another one; rows without a unit: none."""

    def __init__(self, known: Tensor, others: Constraints | None = None) -> None:
        self.known, self.others = known, others or Constraints()
        self.movable, self.mended = self.others.movable, self.others.mended  # type: ignore[method-assign]
        self.confirm = self.others.confirm  # type: ignore[method-assign]

    def take(self, rows: Tensor) -> Besides:
        return Besides(self.known[rows], self.others.take(rows))

    def allow(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether candidate sets [R, U] hold no known answer, and keep to the `others` of the constraints."""
        known = self.known[rows][:, :, : sets.size(1)]
        inside = (sets[:, None] | ~known).all(2) & known.any(2)
        return ~inside.any(1) & self.others.allow(rows, sets)


def list_answers(trials: Trials, row: int, most: int, budget: int) -> Listed | None:
    """The first `most` minimal answers of an instance by size; None where there are more sets than `budget`."""
    may = trials.selectable[row] if trials.required is None else trials.selectable[row] & ~trials.required[row]
    free = may.nonzero().flatten().tolist()
    if trials.oracle.narrowed[row] or len(free) > 62 or 2 ** len(free) > budget:
        return None
    must = torch.zeros_like(trials.valid[row]) if trials.required is None else trials.required[row]
    known = must.new_zeros((0, len(must)))
    for count in range(len(free) + 1):
        every = combinations(free, count)
        while block := list(islice(every, MAX_SETS_PER_CALL)):
            sets = must.expand(len(block), -1).clone()
            if count:
                sets.scatter_(1, torch.tensor(block, device=sets.device), True)
            if len(known):
                sets = sets[~(sets[:, None] | ~known[None]).all(2).any(1)]
            good = sets[trials.passes(torch.full((len(sets),), row, device=sets.device), sets)] if len(sets) else sets
            known = torch.cat([known, good])
        if len(known) > most:
            break
    size = trials.size(torch.full((len(known),), row, device=known.device), known) if len(known) else known.sum(1)
    return Listed(known[size.argsort(stable=True)[:most]], len(known) <= most)


def without_supersets(sets: list[Tensor], costs: list[float]) -> list[int]:
    """The places of the sets [U] that have no other one inside, the one that costs least first."""
    order = sorted(range(len(sets)), key=lambda place: (costs[place], place))
    kept: list[int] = []
    for place in order:
        if not any(bool((sets[place] | ~sets[other]).all()) for other in kept):
            kept.append(place)
    return kept
