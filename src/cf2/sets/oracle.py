"""What a model says when exactly these units are there; all that a search, a proof or a verdict ever asks.

Nothing in this package knows what a unit is. An oracle has B instances, each with some units, and answers for rows of
states [R, U]: true where a unit is as it was at first, false where it is not. `outputs` is all it must have. What it
knows beyond that makes searches cheaper, never possible: slopes, which states look the same to the model, and which
sets are worth listing in a proof.
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

# What makes searches faster and changes no answer, so that `cf2 bench` can switch each off: what was tried is kept,
# trials are run on their own receptive fields, few instances are put to both tests at once, wide features stay sparse,
# layers compute equal rows once.
SHORT_CUTS = {"kept", "fields", "together", "sparse", "quotient"}
MAX_MOVES = 4  # of units of a set, after which its steepest slopes by trials are measured anew
MAX_MOVES_OF_ALL = 16  # after which all of them are
STEEPEST = 32  # units in a set, and as many outside of it, are measured after `MAX_MOVES`
MAX_FLIPS = 256  # of units of one set, in slopes by trials
MAX_FLIP_ENTRIES = 1 << 22  # of the table of sets that are tried at once for slopes

Asked = tuple[Tensor, int | None]  # sets [r, U], and the test they are put to (None: all tests and constraints)
Listing = Generator[Asked, Tensor, None]  # asks for trials of sets and is sent which of them pass, bool [r]


class Looks(Protocol):
    """What the model can see in some states: rows with the same name give the same outputs."""

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
        How many units each instance has; `width` is the most of them, `valid` [B, U] which columns of a row exist.
    selectable : Tensor [B, U]
        Which units may be chosen.
    required, absent, fixed, price : Tensor [B, U] or None
        Units that every set holds; units that are not there at first; units that are as they were in every state; what
        a unit adds to the size of a set.
    narrowed : list of bool
        Instances of which some units are never looked at, so that nothing is proved of them.
    local : bool
        Whether the model sees only a part of most states, so that `looks` says which ones are the same to it.
    few : bool
        Whether a call costs more than its rows, so that rows are better asked for together.
    """

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts
        self.width = int(counts.max()) if len(counts) else 0
        self.valid = torch.arange(self.width, device=counts.device)[None] < counts[:, None]
        self.selectable = self.valid
        self.required: Tensor | None = None
        self.absent: Tensor | None = None
        self.fixed: Tensor | None = None
        self.price: Tensor | None = None
        self.narrowed = [False] * len(counts)
        self.local = self.few = False

    @abstractmethod
    def outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        """What the model says of instances `rows` [R] in these states [R, U, bool]: [R, C]."""

    @abstractmethod
    def take(self, rows: Tensor) -> Oracle:
        """The same for some of the instances, which may repeat."""

    def band(self, criterion: Criterion) -> Tensor | float:
        """The slack within which a test hangs on rounding, per instance [B] or for all: a proof counts it as passed."""
        return 0.0

    def name(self, row: int) -> object:
        """What an instance is called in an error message."""
        return row

    def checked(self, states: Tensor) -> Tensor:
        """What the model says of every instance in a state each [B, U], in the plainest way: verdicts come from it."""
        return self.outputs(torch.arange(len(self.counts), device=states.device), states)

    def looks(self, rows: Tensor, states: Tensor) -> Iterator[tuple[slice, Looks]]:
        """What the model sees of states, in parts that fit into memory; asked only where the oracle is `local`."""
        raise NotImplementedError

    def slopes(self, trials: Trials, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The slack of sets [R, U] in every test [R, tests], and what each unit adds to it [R, U, tests].

        Without gradients they come from trials: of each unit by itself, added or left out. A walk moves one unit at a
        time and looks at the steepest slopes alone. So these are measured again when a set has moved by more than
        `MAX_MOVES` units, and all of them after `MAX_MOVES_OF_ALL`. An oracle that has gradients answers for the price
        of one.
        """
        now = torch.stack([trials.test(test, rows, sets)[1] for test in trials.tests], 1)
        if trials.measured is None:
            slope = torch.zeros(*trials.valid.shape, len(trials.tests), device=rows.device)
            nowhere = torch.zeros_like(trials.valid)
            trials.measured = torch.zeros_like(trials.counts, dtype=torch.bool), nowhere, nowhere.clone(), slope
        known, places, recent, slopes = trials.measured
        slope = slopes[rows]
        far = ~known[rows] | ((places[rows] ^ sets).sum(1) > MAX_MOVES_OF_ALL)
        near = ~far & ((recent[rows] ^ sets).sum(1) > MAX_MOVES)
        if bool(far.any()):
            slope[far] = self._measured(trials, rows[far], sets[far], now[far])
            known[rows[far]], places[rows[far]] = True, sets[far]
        if bool(near.any()):
            flips = self._steepest(trials, rows[near], sets[near], slope[near])[:, :, None]
            again = self._flipped(trials, rows[near], sets[near], now[near], flips)
            slope[near] = torch.where(flips, again, slope[near])
        fresh = far | near
        recent[rows[fresh]], slopes[rows[fresh]] = sets[fresh], slope[fresh]
        return now, slope

    @staticmethod
    def _steepest(trials: Trials, rows: Tensor, sets: Tensor, slope: Tensor) -> Tensor:
        """The `STEEPEST` units in each set and those outside of it, by slopes that were measured before [R, U]."""
        steepest = torch.zeros_like(sets)
        for part in (trials.selectable[rows] & sets, trials.selectable[rows] & ~sets):
            first = slope.abs().sum(2).masked_fill(~part, -1).topk(min(STEEPEST, trials.width), 1).indices
            steepest |= torch.zeros_like(sets).scatter_(1, first, True) & part
        return steepest

    def _measured(self, trials: Trials, rows: Tensor, sets: Tensor, now: Tensor) -> Tensor:
        """What each unit adds to the slack `now` [R, tests] of sets, from trials: [R, U, tests].

        Of more than `MAX_FLIPS` units, blocks of neighbours are flipped first, then the units of the steepest blocks.
        """
        if trials.width <= MAX_FLIPS:
            return self._flipped(trials, rows, sets, now, trials.selectable[rows][:, :, None])
        blocks = torch.arange(trials.width, device=rows.device) * (MAX_FLIPS // 2) // trials.width
        block = torch.nn.functional.one_hot(blocks).bool()  # [U, blocks]
        coarse = self._flipped(trials, rows, sets, now, trials.selectable[rows][:, :, None] & block[None])
        steepest = coarse.abs().sum(2).masked_fill(~trials.selectable[rows], -1).topk(MAX_FLIPS // 2, 1).indices
        single = torch.zeros_like(sets).scatter_(1, steepest, True) & trials.selectable[rows]
        fine = self._flipped(trials, rows, sets, now, single[:, :, None])
        return torch.where(single[:, :, None], fine, coarse)

    @staticmethod
    def _flipped(trials: Trials, rows: Tensor, sets: Tensor, now: Tensor, flips: Tensor) -> Tensor:
        """What each unit adds to the slack [R, U, tests], from trials in which units are flipped together.

        `flips` [R, U, blocks] says which; one block stands for every unit by itself. Units of a block share its slope.
        """
        slope = torch.zeros(*sets.shape, len(trials.tests), device=rows.device)
        alone = flips.size(2) == 1
        owner, which = (flips[:, :, 0] if alone else flips.any(1)).nonzero(as_tuple=True)
        step = max(1, MAX_FLIP_ENTRIES // max(trials.width, 1))
        for start in range(0, len(owner), step):
            own, part = owner[start : start + step], which[start : start + step]
            flip = torch.nn.functional.one_hot(part, trials.width).bool() if alone else flips[own, :, part]
            change = torch.stack([trials.test(test, rows[own], sets[own] ^ flip)[1] for test in trials.tests], 1)
            change = (change - now[own]) / flip.sum(1, keepdim=True)
            at, unit = flip.nonzero(as_tuple=True)
            slope[own[at], unit] = torch.where(sets[own[at], unit, None], -change[at], change[at])
        return slope

    def twins(self, row: int) -> Tensor:
        """Pairs [p, 2] of interchangeable units of one instance: of such sets, those with the first unit count."""
        return torch.zeros((0, 2), dtype=torch.long, device=self.counts.device)

    def listing(self, proof: Exhaustion) -> Listing | None:
        """The sets that a proof has to try, where the oracle knows of some that cannot pass; None: all of them."""
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
        """A choice [units, bool] with what must not be chosen left out, and what must be put in."""
        chosen = chosen & self.selectable[self.valid]
        return chosen if self.required is None else chosen | self.required[self.valid]

    def dense(self, values: Tensor, fill: float) -> Tensor:
        """A value per unit, one instance after the other [units], as a table [B, U]."""
        table = torch.full(self.valid.shape, fill, dtype=values.dtype, device=values.device)
        table[self.valid] = values
        return table
