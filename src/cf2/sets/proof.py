"""Proof by exhaustion: every set smaller than the answer, in order of size, packed over all instances.

Not every set has to be tried. An oracle may know units that the model cannot tell apart (`twins`), so that only sets
that take them in their order are tried. It may also list the sets that could pass at all (`listing`).
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
from cf2.sets.trials import Trials, in_order, score

MAX_SETS_PER_CALL = 2048  # of one instance
FIRST_SETS = 48  # of a size that are tried at first, the most promising ones; then twice as many each time
MAX_ENTRIES_PER_CALL = 1 << 23  # of the table of all sets that are tried at once
SETS_PER_LISTED = 16  # of so many sets, a listing is likely to leave out all but one
BOUNDLESS = 1 << 62
MAX_PROOFS_TOGETHER = 8  # proofs made side by side if every trial runs a whole input


@dataclass(frozen=True, eq=False)
class Proof:
    """The sets after the proof, and what is proved of which instances [B]."""

    sets: Tensor  # [B, U]
    passed: Tensor
    optimal: Tensor
    impossible: Tensor
    exhausted: Tensor  # no set of fewer free units than this passes

    def lower_bound(self, trials: Trials) -> Tensor:
        """The size below which no set passes [B]."""
        # All sets of fewer than `exhausted` free units were tried. So a passing set holds what it must and at least so
        # many free units, which count no less than the cheapest ones do.
        prices = torch.ones_like(trials.valid, dtype=torch.double) if trials.price is None else trials.price.double()
        free = prices.masked_fill(~trials.free, float("inf")).sort(1).values
        taken = torch.arange(free.size(1), device=free.device)[None] < self.exhausted[:, None]
        bound = trials.size(trials.rows, trials.must).double() + free.masked_fill(~taken | free.isinf(), 0).sum(1)
        size = trials.size(trials.rows, self.sets).double()
        bound = torch.where(self.optimal, size, torch.where(self.passed, torch.minimum(bound, size), bound))
        return (bound + 1e-6).floor().long()

    def smallest(self, trials: Trials) -> Tensor:
        """Whether no set passes that is smaller than the given one [B], which may be found after the proof."""
        reached = trials.size(trials.rows, self.sets) <= self.lower_bound(trials)
        return self.optimal | (self.passed & (self.exhausted > 0) & reached)


def prove(
    trials: Trials, sets: Tensor, passed: Tensor, budget: int, before: Proof | None = None, *, partly: bool = False
) -> Proof:
    """Try every smaller set (every set, if none passes) of the instances for which `budget` sets are enough.

    With `partly`, all sets of as many sizes are tried as the budget allows. What an earlier proof `before` has shown
    of the same instances is not shown again.
    """
    before = before or unproved(trials, sets, passed)
    shown = (fact.clone() for fact in (before.optimal, before.impossible, before.exhausted))
    proof = Proof(sets.clone(), passed.clone(), *shown)
    searches, runs_whole_inputs = [], False
    for row, count in enumerate(trials.counts.tolist()):
        if not count or trials.oracle.narrowed[row] or proof.optimal[row] or proof.impossible[row]:
            continue
        best = sets[row] if passed[row] else None
        search = Exhaustion(trials, row, best, budget, int(proof.exhausted[row]), partly)
        listing = trials.oracle.listing(search)
        runs_whole_inputs |= listing is not None and not trials.oracle.local
        if listing is None and (search.certain or partly):
            listing = every_set(search)
        if listing is not None:
            searches.append((search, listing))
    together = MAX_PROOFS_TOGETHER if runs_whole_inputs else max(1, len(searches))
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


def unproved(trials: Trials, sets: Tensor, passed: Tensor) -> Proof:
    """Sets of which nothing is proved yet."""
    never = torch.zeros_like(passed)
    return Proof(sets, passed, never, never, torch.zeros_like(trials.counts))


class Exhaustion:
    """The proof of one instance while it is made: sets are tried in order of the number of their free units."""

    def __init__(
        self, trials: Trials, row: int, best: Tensor | None, budget: int, exhausted: int, partly: bool
    ) -> None:
        self.trials, self.row, self.best, self.partly = trials, row, best, partly
        self.budget, self.exhausted = budget, exhausted
        free = trials.free[row].nonzero().flatten()
        self.free: list[int] = free.tolist()
        self.top = len(free) if best is None else _most_units(trials, row, best, free)
        self.must = trials.must[row]
        self.complete = self.exhausted > self.top
        self.certain = _affordable(len(free), self.top, budget, exhausted)  # the budget pays for all sets
        # Whether the budget is likely to do if a listing leaves out many sets.
        self.likely = _affordable(len(free), self.top, budget * SETS_PER_LISTED, exhausted)

    def spend(self, sets: int) -> bool:
        """Take so many sets from the budget; False if it has fewer."""
        if sets > self.budget and not self.certain:
            return False
        self.budget -= sets
        return True

    @property
    def left(self) -> int:
        """The most sets that can be spent."""
        return BOUNDLESS if self.certain else self.budget

    def table(self, sets: NDArray[np.bool_]) -> Tensor:
        """Sets of the units of this instance, padded to the width of its pack."""
        table = torch.zeros((len(sets), self.trials.width), dtype=torch.bool)
        table[:, : sets.shape[1]] = torch.from_numpy(sets)
        return table.to(self.trials.valid.device)

    def allowed(self, sets: Tensor) -> Tensor:
        """The sets that keep to the constraints."""
        return sets[self.trials.constraints.allow(self.rows(sets), sets)]

    def rows(self, sets: Tensor) -> Tensor:
        """The row of this instance, once for each set."""
        return torch.full((len(sets),), self.row, device=sets.device)

    def size(self, sets: Tensor) -> Tensor:
        """The sizes of sets of this instance."""
        return self.trials.size(self.rows(sets), sets)

    def combined(self, base: Tensor, units: list[int], number: int) -> Iterator[Tensor]:
        """The base with every choice of so many of the units, smaller than the best set, in blocks [r, U]."""
        every = combinations(units, number)
        while block := list(islice(every, MAX_SETS_PER_CALL)):
            sets = base.expand(len(block), -1).clone()
            if number:
                flat = np.fromiter(chain.from_iterable(block), dtype=np.int64, count=number * len(block))
                sets.scatter_(1, torch.from_numpy(flat).view(-1, number).to(sets.device), True)
            if self.best is not None:
                sets = sets[self.size(sets) < self.size(self.best[None])]
            if len(sets):
                yield sets

    def by_promise(self, sets: Tensor) -> Iterator[Tensor]:
        """Sets in parts, the first ones those of which slopes at the empty set promise most."""
        # One that passes ends the proof, so it should come early and in a small part. Removals alone: their start has
        # asked for these slopes, and they are not measured twice. Slopes by trials depend on what was asked before.
        if len(sets) <= FIRST_SETS or self.trials.oracle.absent is not None or not self.trials.oracle.has_slopes:
            return iter([sets] if len(sets) else [])
        slack, slope = self.trials.slopes(self.rows(sets[:1]), self.must[None])
        guess = slack.double() + (sets & ~self.must).double() @ slope[0].double()
        ordered = sets[in_order(score(guess)[None])[0].argsort()]  # rounding must not decide what is tried first
        ends = [FIRST_SETS * (2**part - 1) for part in range(1, MAX_SETS_PER_CALL.bit_length())]
        return iter(torch.tensor_split(ordered, [end for end in ends if end < len(sets)]))

    def found(self, good: Tensor) -> bool:
        """Take the smallest of `good` sets (of several, that of the widest margin); True if none smaller can follow."""
        if not len(good):
            return False
        size = self.size(good)
        smallest = good[size == size.min()]
        rows = self.rows(smallest)
        self.best = smallest[int(widest(rows * 0, margins(self.trials, rows, smallest), 1)[0])]
        return self.trials.price is None  # sets come by their number of units, which is then their size

    def done(self, number: int) -> None:
        """Note that all sets of that many free units have been tried."""
        self.exhausted = max(self.exhausted, number + 1)
        self.complete = self.exhausted > self.top


def every_set(search: Exhaustion) -> Listing:
    """All sets, except those that take twins in another order."""
    trials = search.trials
    pairs = twins(trials, search.row)
    for number in range(search.exhausted, search.top + 1):
        if not search.spend(math.comb(len(search.free), number)):
            return
        for block in search.combined(search.must, search.free, number):
            for sets in search.by_promise(in_twin_order(block, pairs)):
                good = yield sets, None
                if search.found(sets[good]):
                    search.complete = True
                    return
        search.done(number)


def in_twin_order(sets: Tensor, pairs: Tensor) -> Tensor:
    """The sets that take twins in their order."""
    return sets[(sets[:, pairs[:, 0]] | ~sets[:, pairs[:, 1]]).all(1)] if len(pairs) and len(sets) else sets


def twins(trials: Trials, row: int) -> Tensor:
    """Interchangeable units [p, 2]; none under constraints, which may tell units apart that are equal to the model."""
    return trials.valid.new_zeros((0, 2), dtype=torch.long) if trials.constrained else trials.oracle.twins(row)


def _run(trials: Trials, searches: list[tuple[Exhaustion, Listing]]) -> None:
    """Carry out the trials that the listings of all searches ask for, side by side."""
    # A listing is a coroutine: it yields sets and is sent which of them pass. So each one reads as if it were alone,
    # while the sets of all instances share calls of the model.
    asking: list[tuple[Exhaustion, Listing, Asked]] = []
    for search, listing in searches:
        asked = next(listing, None)
        if asked is not None:
            asking.append((search, listing, asked))
    while asking:
        entries, count = MAX_ENTRIES_PER_CALL, 0
        while count < len(asking) and entries > 0:
            entries -= asking[count][2][0].numel()
            count += 1
        now, asking = asking[:count], asking[count:]
        for column in sorted({asked[1] for _, _, asked in now}, key=lambda c: -1 if c is None else c):
            group = [(search, listing, asked[0]) for search, listing, asked in now if asked[1] == column]
            sets = torch.cat([block for _, _, block in group])
            rows = torch.cat([search.rows(block) for search, _, block in group])
            if column is None:
                good = trials.passes(rows, sets, small=True)
            else:
                good, _ = trials.test(trials.tests[column], rows, sets)
            for (search, listing, _), passing in zip(group, torch.split(good, [len(block) for _, _, block in group])):
                try:
                    asking.append((search, listing, listing.send(passing)))
                except StopIteration:
                    continue


def _most_units(trials: Trials, row: int, best: Tensor, free: Tensor) -> int:
    """The most free units that a set smaller than the best one can have; -1 where none is smaller."""
    # With prices, that is how many of the cheapest units fit below its size; the proof may stop there.
    rows = torch.tensor([row, row], device=best.device)
    size, least = trials.size(rows, torch.stack([best, trials.must[row]])).tolist()
    prices = torch.ones(len(free)) if trials.price is None else trials.price[row, free].double().sort().values
    return int((prices.cumsum(0) < size - least - 1e-9).sum()) if size > least else -1


def _affordable(count: int, top: int, budget: int, done: int = 0) -> bool:
    """Whether there are at most `budget` sets of `done` to `top` of `count` units."""
    sets = 0
    for size in range(done, top + 1):
        sets += math.comb(count, size)
        if sets > budget:
            return False
    return True
