"""Proof by exhaustion: every set smaller than the answer, in order of size, packed over all instances.

Not every set has to be tried. An oracle may know units that can be exchanged without the model noticing (`twins`), so
that only sets that take them in their order count; and it may list the sets that are left (`listing`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cf2.sets.moves import margins, widest
from cf2.sets.oracle import Asked, Listing
from cf2.sets.trials import Trials

MAX_SETS_PER_CALL = 2048  # of one instance
MAX_ENTRIES_PER_CALL = 1 << 23  # of the table of all sets that are tried at once
LIKELY = 16  # a proof is begun where there are so many times as many sets as it may run, if many can be left out
BOUNDLESS = 1 << 62
MAX_PROOFS_TOGETHER = 8  # made side by side where whole inputs are run


@dataclass(frozen=True, eq=False)
class Proof:
    """The sets after the proof, and what is proved of which instances [B]."""

    sets: Tensor  # [B, U]
    passed: Tensor
    optimal: Tensor
    impossible: Tensor
    exhausted: Tensor  # no set of fewer free units than this passes

    def lower_bound(self, trials: Trials) -> Tensor:
        """No smaller set passes, [B]: what must be chosen, and the cheapest of so many further units.

        All sets of fewer than `exhausted` free units were tried, so a passing one has at least as many; with prices, it
        counts at least as much as the cheapest of them.
        """
        rows = torch.arange(len(self.sets), device=self.sets.device)
        must = torch.zeros_like(trials.valid) if trials.required is None else trials.required
        prices = torch.ones_like(trials.valid, dtype=torch.double) if trials.price is None else trials.price.double()
        free = prices.masked_fill(~trials.selectable | must, float("inf")).sort(1).values
        taken = torch.arange(free.size(1), device=free.device)[None] < self.exhausted[:, None]
        bound = trials.size(rows, must).double() + free.masked_fill(~taken | free.isinf(), 0).sum(1)
        size = trials.size(rows, self.sets).double()
        bound = torch.where(self.optimal, size, torch.where(self.passed, torch.minimum(bound, size), bound))
        return (bound + 1e-6).floor().long()

    def smallest(self, trials: Trials) -> Tensor:
        """Whether no smaller set passes than the one that is given [B], be it found by the proof or after it."""
        rows = torch.arange(len(self.sets), device=self.sets.device)
        reached = trials.size(rows, self.sets) <= self.lower_bound(trials)
        return self.optimal | (self.passed & (self.exhausted > 0) & reached)


def prove(
    trials: Trials, sets: Tensor, passed: Tensor, budget: int, before: Proof | None = None, *, partly: bool = False
) -> Proof:
    """Try every smaller set (every set, where none passes) of the instances for which `budget` sets are enough.

    With `partly`, all sets of as many sizes are tried as the budget allows. `before` is what an earlier proof has shown
    of the same instances; it is not shown again.
    """
    never = torch.zeros_like(passed)
    known = before or Proof(sets, passed, never, never, torch.zeros_like(trials.counts))
    shown = (t.clone() for t in (known.optimal, known.impossible, known.exhausted))
    proof = Proof(sets.clone(), passed.clone(), *shown)
    searches, whole = [], False
    for row, count in enumerate(trials.counts.tolist()):
        if not count or trials.oracle.narrowed[row] or proof.optimal[row] or proof.impossible[row]:
            continue
        best = sets[row] if passed[row] else None
        search = Exhaustion(trials, row, best, budget, int(proof.exhausted[row]), partly)
        listing = trials.oracle.listing(search)
        whole |= listing is not None and not trials.oracle.local
        if listing is None and (search.certain or partly):
            listing = every_set(search)
        if listing is not None:
            searches.append((search, listing))
    together = MAX_PROOFS_TOGETHER if whole else max(1, len(searches))
    for first in range(0, len(searches), together):
        _run(trials, searches[first : first + together])
    for search, _ in searches:
        row = search.row
        if search.best is not None:
            proof.sets[row], proof.passed[row] = search.best, True
        proof.exhausted[row] = search.exhausted
        proof.optimal[row] = search.complete & proof.passed[row]
        proof.impossible[row] = search.complete & ~proof.passed[row]
    return proof


class Exhaustion:
    """How far the sets of one instance have been tried, in order of the number of their free units."""

    def __init__(
        self, trials: Trials, row: int, best: Tensor | None, budget: int, exhausted: int, partly: bool
    ) -> None:
        self.trials, self.row, self.best, self.partly = trials, row, best, partly
        self.budget, self.exhausted = budget, exhausted
        free = _free(trials, row)
        self.free: list[int] = free.tolist()
        self.top = len(free) if best is None else _most(trials, row, best, free)
        none = torch.zeros_like(trials.valid[row])
        self.must = none if trials.required is None else trials.required[row]
        self.complete = self.exhausted > self.top
        self.certain = _affordable(len(free), self.top, budget, exhausted)  # the budget is known to hold
        self.likely = _affordable(len(free), self.top, budget * LIKELY, exhausted)  # if many sets can be left out

    def spend(self, sets: int) -> bool:
        """Take so many sets from the budget, if it has them."""
        if sets > self.budget and not self.certain:
            return False
        self.budget -= sets
        return True

    @property
    def left(self) -> int:
        """The most sets that `spend` gives."""
        return BOUNDLESS if self.certain else self.budget

    def table(self, sets: NDArray[np.bool_]) -> Tensor:
        """Sets of the units of this instance, as wide as those of its pack."""
        table = torch.zeros((len(sets), self.trials.width), dtype=torch.bool)
        table[:, : sets.shape[1]] = torch.from_numpy(sets)
        return table.to(self.trials.valid.device)

    def allowed(self, sets: Tensor) -> Tensor:
        """Those of the sets that keep to the constraints."""
        return sets[self.trials.allowed(torch.full((len(sets),), self.row, device=sets.device), sets)]

    def size(self, sets: Tensor) -> Tensor:
        """The sizes of sets of this instance."""
        return _size(self.trials, self.row, sets)

    def combined(self, base: Tensor, units: list[int], number: int) -> Iterator[Tensor]:
        """The base with every choice of so many of the units, smaller than the best set, in blocks [r, U]."""
        every = combinations(units, number)
        while some := list(islice(every, MAX_SETS_PER_CALL)):
            sets = base.expand(len(some), -1).clone()
            if number:
                flat = np.fromiter(chain.from_iterable(some), dtype=np.int64, count=number * len(some))
                sets.scatter_(1, torch.from_numpy(flat).view(-1, number).to(sets.device), True)
            if self.best is not None:
                sets = sets[self.size(sets) < self.size(self.best[None])]
            if len(sets):
                yield sets

    def found(self, good: Tensor) -> bool:
        """Take the smallest of passing sets, of these that of the widest margin; whether nothing smaller can follow."""
        if not len(good):
            return False
        size = self.size(good)
        smallest = good[size == size.min()]
        rows = torch.full((len(smallest),), self.row, device=good.device)
        self.best = smallest[int(widest(rows * 0, margins(self.trials, rows, smallest), 1)[0])]
        return self.trials.price is None  # all that follow are larger

    def done(self, number: int) -> None:
        """All sets of that many free units have been tried."""
        self.exhausted = max(self.exhausted, number + 1)
        self.complete = self.exhausted > self.top


def every_set(search: Exhaustion) -> Listing:
    """All sets, but for twins in another order."""
    trials = search.trials
    pairs = twins(trials, search.row)
    for number in range(search.exhausted, search.top + 1):
        if not search.spend(math.comb(len(search.free), number)):
            return
        for sets in search.combined(search.must, search.free, number):
            sets = in_twin_order(sets, pairs)
            if len(sets):
                good = yield sets, None
                if search.found(sets[good]):
                    search.complete = True
                    return
        search.done(number)


def in_twin_order(sets: Tensor, pairs: Tensor) -> Tensor:
    """The sets that take twins in their order."""
    return sets[(sets[:, pairs[:, 0]] | ~sets[:, pairs[:, 1]]).all(1)] if len(pairs) and len(sets) else sets


def twins(trials: Trials, row: int) -> Tensor:
    """Interchangeable units [p, 2]; to constraints, what the model cannot tell apart may differ all the same."""
    return trials.oracle.twins(row) if trials.constraints is None else trials.valid.new_zeros((0, 2), dtype=torch.long)


def _run(trials: Trials, searches: list[tuple[Exhaustion, Listing]]) -> None:
    """Carry out the trials that all searches ask for side by side.

    A listing is a generator that yields sets and is sent which of them pass, so that each reads as if it were
    alone while the sets of all instances share calls of the model.
    """
    asking: list[tuple[Exhaustion, Listing, Asked]] = []
    for search, tries in searches:
        asked = next(tries, None)
        if asked is not None:
            asking.append((search, tries, asked))
    while asking:
        room, count = MAX_ENTRIES_PER_CALL, 0
        while count < len(asking) and room > 0:
            room -= asking[count][2][0].numel()
            count += 1
        now, asking = asking[:count], asking[count:]
        for column in sorted({asked[1] for _, _, asked in now}, key=lambda c: -1 if c is None else c):
            group = [(search, tries, asked[0]) for search, tries, asked in now if asked[1] == column]
            sets = torch.cat([block for _, _, block in group])
            rows = torch.cat([torch.full((len(b),), s.row, device=b.device) for s, _, b in group])
            good = trials.passes(rows, sets, small=True) if column is None else trials.one(column, rows, sets)
            for (search, tries, _), passing in zip(group, torch.split(good, [len(b) for _, _, b in group])):
                try:
                    asking.append((search, tries, tries.send(passing)))
                except StopIteration:
                    continue


def _free(trials: Trials, row: int) -> Tensor:
    """The units of one instance that may be chosen or not."""
    may = trials.selectable[row] if trials.required is None else trials.selectable[row] & ~trials.required[row]
    return may.nonzero().flatten()


def _size(trials: Trials, row: int, sets: Tensor) -> Tensor:
    return trials.size(torch.full((len(sets),), row, device=sets.device), sets)


def _most(trials: Trials, row: int, known: Tensor, free: Tensor) -> int:
    """The most free units that a set smaller than the known one can have."""
    # With prices, that is how many of the cheapest units fit below its size; the proof may stop there.
    must = torch.zeros_like(known) if trials.required is None else trials.required[row]
    room = float(_size(trials, row, known[None])[0] - _size(trials, row, must[None])[0])
    prices = torch.ones(len(free)) if trials.price is None else trials.price[row, free].double().sort().values
    return int((prices.cumsum(0) < room - 1e-9).sum()) if room > 0 else -1


def _affordable(count: int, top: int, budget: int, done: int = 0) -> bool:
    """Whether there are at most `budget` sets of `done` to `top` of `count` units; looks no further than it must."""
    sets = 0
    for size in range(done, top + 1):
        sets += math.comb(count, size)
        if sets > budget:
            return False
    return True
