"""The oracle: what a model says when exactly these units are there.

A search, a proof and a verdict ask nothing else, and nothing in this package knows what a unit is. An oracle has B
instances, each with some units, and answers for rows of states [R, U]: true if a unit is as it was at first, false if
it is not. Only `outputs` is needed. Everything else makes searches cheaper: slopes, which states look the same to the
model, and which sets are worth listing in a proof.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cf2.sets.proof import Exhaustion
    from cf2.sets.tests import Criterion
    from cf2.sets.trials import Trials

# Short cuts make searches faster and change no answer; `cf2 bench` switches each off. "kept": no set is run twice.
# "fields": trials are run on their own receptive fields; proofs list connected sets alone, so that more of them end.
# "together": few sets are put to all tests in one call. "alike": of sets that leave the same graph but for the numbers
# of its nodes, one is run. "sparse": wide features stay sparse. "quotient": layers compute equal rows once.
SHORT_CUTS = {"kept", "fields", "together", "alike", "sparse", "quotient"}
MAX_MOVES = 4  # units by which a set may differ from that at which its steepest slopes were measured by trials
MAX_MOVES_OF_ALL = 16  # the same for all of its slopes
MAX_STEEPEST = 32  # units in a set, and as many outside of it, that are measured again after `MAX_MOVES`
MAX_FLIPS = 256  # trials of one set for its slopes
MAX_FLIP_ENTRIES = 1 << 22  # of the table of sets that are tried at once for slopes

Asked = tuple[Tensor, int | None]  # sets [r, U], and the test they are put to (None: all tests and constraints)
Listing = Generator[Asked, Tensor, None]  # yields sets to be tried and is sent which of them pass, bool [r]


class Looks(Protocol):
    """What the model can see in some states: rows with the same name have the same outputs."""

    @property
    def names(self) -> list[bytes]:
        """A name per row."""

    def outputs(self, index: Tensor) -> Tensor:
        """What the model says of some of the rows, in ascending order: [r, C]."""


class Oracle(ABC):
    """What the model says of B instances, whose units can be there or not.

    Attributes
    ----------
    counts : Tensor [B]
        The number of units of each instance; `width` is the largest, `valid` [B, U] says which columns of a row exist.
    selectable : Tensor [B, U]
        Which units may be chosen.
    rows : Tensor [B]
        The number of each instance.
    required, absent, fixed, price : Tensor [B, U] or None
        Units that every set holds; units that are not there at first; units that are as they were in every state; what
        a unit adds to the size of a set.
    narrowed : list of bool
        Instances with units that are never tried, so that nothing is proved of them.
    local : bool
        Whether the model sees only a part of most states.
    rows_together : int
        Sets up to which a call costs more than what is computed in it, so that they are put to all tests at once.
    """

    def __init__(self, counts: Tensor) -> None:
        self.counts, self.rows = counts, torch.arange(len(counts), device=counts.device)
        self.width = int(counts.max()) if len(counts) else 0
        self.valid = torch.arange(self.width, device=counts.device)[None] < counts[:, None]
        self.selectable = self.valid
        self.required: Tensor | None = None
        self.absent: Tensor | None = None
        self.fixed: Tensor | None = None
        self.price: Tensor | None = None
        self.narrowed = [False] * len(counts)
        self.local, self.rows_together = False, 0

    @abstractmethod
    def outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        """What the model says of instances `rows` [R] in these states [R, U, bool]: [R, C]."""

    @abstractmethod
    def take(self, rows: Tensor) -> Oracle:
        """The oracle of some of the instances, which may repeat."""

    def band(self, criterion: Criterion) -> Tensor | float:
        """The slack within which rounding may decide a test, per instance [B] or for all; it counts as passed."""
        return 0.0

    def name(self, row: int) -> object:
        """What an instance is called in an error message."""
        return row

    def checked(self, states: Tensor) -> Tensor:
        """What the model says of every instance in a state each [B, U], without short cuts: verdicts come from it."""
        return self.outputs(self.rows, states)

    @property
    def has_looks(self) -> bool:
        """Whether `looks` says which states are the same to the model."""
        return self.local

    def looks(self, rows: Tensor, states: Tensor) -> Iterator[tuple[slice, Looks]]:
        """What the model sees of states, in parts that fit into memory; asked only where the oracle `has_looks`."""
        raise NotImplementedError

    def slopes(self, trials: Trials, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The slack of sets [R, U] in every test [R, tests], and what each unit adds to it [R, U, tests].

        An oracle without gradients measures slopes by trials: of each unit by itself, added or left out.
        """
        # A gradient costs three evaluations per test and trials cost one per unit, so slopes by trials are kept. A walk
        # moves one unit at a time and uses the steepest slopes only: these are measured again when a set has moved by
        # more than `MAX_MOVES` units, and all of them after `MAX_MOVES_OF_ALL`.
        now = torch.stack([trials.test(test, rows, sets)[1] for test in trials.tests], 1)
        if trials.measured is None:
            slope = torch.zeros(*trials.valid.shape, len(trials.tests), device=rows.device)
            nowhere = torch.zeros_like(trials.valid)
            trials.measured = torch.zeros_like(trials.counts, dtype=torch.bool), nowhere, nowhere.clone(), slope
        has_slopes, all_at, steepest_at, slopes = trials.measured
        slope = slopes[rows]
        all_anew = ~has_slopes[rows] | ((all_at[rows] ^ sets).sum(1) > MAX_MOVES_OF_ALL)
        some_anew = ~all_anew & ((steepest_at[rows] ^ sets).sum(1) > MAX_MOVES)
        if bool(all_anew.any()):
            slope[all_anew] = self._measured(trials, rows[all_anew], sets[all_anew], now[all_anew])
            has_slopes[rows[all_anew]], all_at[rows[all_anew]] = True, sets[all_anew]
        if bool(some_anew.any()):
            part, part_sets = rows[some_anew], sets[some_anew]
            steepest = self._steepest(trials, part, part_sets, slope[some_anew])
            measured = self._flipped(trials, part, part_sets, now[some_anew], steepest)
            slope[some_anew] = torch.where(steepest[:, :, None], measured, slope[some_anew])
        fresh = all_anew | some_anew
        steepest_at[rows[fresh]], slopes[rows[fresh]] = sets[fresh], slope[fresh]
        return now, slope

    @staticmethod
    def _steepest(trials: Trials, rows: Tensor, sets: Tensor, slope: Tensor) -> Tensor:
        """The `MAX_STEEPEST` units in each set, and as many outside of it, by the slopes so far [R, U]."""
        steepest = torch.zeros_like(sets)
        for part in (trials.selectable[rows] & sets, trials.selectable[rows] & ~sets):
            first = slope.abs().sum(2).masked_fill(~part, -1).topk(min(MAX_STEEPEST, trials.width), 1).indices
            steepest |= torch.zeros_like(sets).scatter_(1, first, True) & part
        return steepest

    def _measured(self, trials: Trials, rows: Tensor, sets: Tensor, now: Tensor) -> Tensor:
        """What each unit adds to the slack `now` [R, tests] of sets, from trials: [R, U, tests].

        If there are more than `MAX_FLIPS` units, blocks of neighbours are flipped first, and then single units of the
        steepest blocks.
        """
        selectable = trials.selectable[rows]
        if trials.width <= MAX_FLIPS:
            return self._flipped(trials, rows, sets, now, selectable)
        block = torch.arange(trials.width, device=rows.device) * (MAX_FLIPS // 2) // trials.width
        coarse = self._flipped(trials, rows, sets, now, selectable, block)
        steepest = coarse.abs().sum(2).masked_fill(~selectable, -1).topk(MAX_FLIPS // 2, 1).indices
        single = torch.zeros_like(sets).scatter_(1, steepest, True) & selectable
        fine = self._flipped(trials, rows, sets, now, single)
        return torch.where(single[:, :, None], fine, coarse)

    @staticmethod
    def _flipped(
        trials: Trials, rows: Tensor, sets: Tensor, now: Tensor, units: Tensor, block: Tensor | None = None
    ) -> Tensor:
        """What each of some `units` [R, U] adds to the slack [R, U, tests], from trials in which it is flipped.

        Units with the same number in `block` [U] are flipped together and share a slope; None: each by itself.
        """
        block = torch.arange(trials.width, device=rows.device) if block is None else block
        owner, unit = units.nonzero(as_tuple=True)
        is_flipped = torch.zeros_like(units)
        is_flipped[owner, block[unit]] = True
        owner, number = is_flipped.nonzero(as_tuple=True)
        slope = torch.zeros(*sets.shape, len(trials.tests), device=rows.device)
        for part in torch.split(torch.arange(len(owner)), max(1, MAX_FLIP_ENTRIES // max(trials.width, 1))):
            own = owner[part]
            flip = units[own] & (block == number[part, None])
            change = torch.stack([trials.test(test, rows[own], sets[own] ^ flip)[1] for test in trials.tests], 1)
            change = (change - now[own]) / flip.sum(1, keepdim=True)
            trial, unit = flip.nonzero(as_tuple=True)
            slope[own[trial], unit] = torch.where(sets[own[trial], unit, None], -change[trial], change[trial])
        return slope

    def twins(self, row: int) -> Tensor:
        """Pairs [p, 2] of interchangeable units of one instance: a proof tries no set with only the second one."""
        return torch.zeros((0, 2), dtype=torch.long, device=self.counts.device)

    def listing(self, proof: Exhaustion) -> Listing | None:
        """The sets that a proof has to try, if the oracle knows that the others cannot pass; None: all of them."""
        return None

    @property
    def owner(self) -> Tensor:
        """The instance of every unit [units]."""
        return torch.repeat_interleave(self.counts)

    @property
    def has_slopes(self) -> bool:
        """Whether `slopes` are gradients and not trials."""
        return False

    def admissible(self, chosen: Tensor) -> Tensor:
        """A choice [units, bool] without the units that must not be chosen, and with those that must be."""
        chosen = chosen & self.selectable[self.valid]
        return chosen if self.required is None else chosen | self.required[self.valid]

    def dense(self, values: Tensor, fill: float) -> Tensor:
        """A value per unit, one instance after the other [units], as a table [B, U]."""
        table = torch.full(self.valid.shape, fill, dtype=values.dtype, device=values.device)
        table[self.valid] = values
        return table
