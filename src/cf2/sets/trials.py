"""Trials: candidate sets are put to the tests of the question by running the model, none of them twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from cf2.sets.oracle import SHORT_CUTS, Oracle
from cf2.sets.tests import Criterion, Test, passes, slack

# -- what was tried ---------------------------------------------------------------------------------------------

MAX_NAME_BYTES = 256
MAX_TABLE_BYTES = 1 << 27  # of the names in a table; a table that would grow larger is emptied


def names_of(rows: Tensor, sets: Tensor) -> list[bytes]:
    """A name for each set [R, U] of an instance `rows` [R]: the number of the instance and the bits of the set.

    Long names are digests: two are equal with a probability below 2^-100, and the final check, from which every verdict
    comes, does not look here.
    """
    # One array and one `tobytes` for all sets, because calls of NumPy per set are slow.
    numbers = np.ascontiguousarray(rows.cpu().numpy()).view(np.uint8).reshape(len(rows), 8)
    table = np.concatenate([numbers, np.packbits(sets.cpu().numpy(), axis=1)], 1)
    width, text = table.shape[1], table.tobytes()
    return [short(text[start : start + width]) for start in range(0, len(text), width)]


def short(name: bytes) -> bytes:
    """The name, or a digest of it where it is long."""
    return name if len(name) <= MAX_NAME_BYTES else blake2b(name, digest_size=24).digest()


class TrialTable:
    """Whether sets pass a test and by how much, by name."""

    # A dictionary of slots and one tensor of values: sorted tables of digests were slower, because most calls ask for
    # few sets.

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._clear()

    def _clear(self) -> None:
        self.slots, self.used = dict[bytes, int](), 0
        self.passed = torch.zeros(64, dtype=torch.bool, device=self.device)
        self.slack = torch.zeros(64, device=self.device)

    def claim(self, names: Sequence[bytes]) -> tuple[Tensor, Tensor]:
        """The slot of each name, and the positions of the new ones: one for every name that has no value yet.

        Slots are valid until the next claim. Whoever claims a new slot must `keep` its value.
        """
        if self.slots and self.used + sum(map(len, names)) > MAX_TABLE_BYTES:
            self._clear()
        slots, claimed, new = self.slots, list[int](), list[int]()
        for position, name in enumerate(names):
            slot = slots.get(name)
            if slot is None:
                slot = slots[name] = len(slots)
                new.append(position)
                self.used += len(name)
            claimed.append(slot)
        if len(slots) > len(self.passed):
            room = torch.zeros(2 * len(slots) - len(self.passed), device=self.device)
            self.passed, self.slack = torch.cat([self.passed, room.bool()]), torch.cat([self.slack, room])
        claimed_slots, positions = (torch.tensor(part, dtype=torch.long, device=self.device) for part in (claimed, new))
        return claimed_slots, positions

    def keep(self, slot: Tensor, passed: Tensor, slack: Tensor) -> None:
        """Write values into slots that were claimed."""
        self.passed[slot], self.slack[slot] = passed, slack

    def read(self, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Whether it passes, and by how much."""
        return self.passed[slot], self.slack[slot]


# -- trials -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """Whether every candidate set passes every test, and by how much (positive is good)."""

    passed: Tensor  # [R, tests] bool
    slack: Tensor  # [R, tests]

    @property
    def passes(self) -> Tensor:
        """Whether a set passes every test, [R]."""
        return self.passed.all(1)

    @property
    def score(self) -> Tensor:
        """How near a set is to passing, [R]."""
        return score(self.slack)

    def take(self, index: Tensor) -> Outcome:
        """The outcomes of some sets."""
        return Outcome(self.passed[index], self.slack[index])


def score(slack: Tensor) -> Tensor:
    """How near a set is to passing, from its slack in every test [..., tests]: minus the slack that is missing.

    Slack to spare breaks ties. It counts only up to a bound, so that one very sure test does not hide the other one.
    """
    spare = slack.clamp(max=5).sum(-1)
    return slack.clamp(max=0).sum(-1) + 1e-3 * spare


class Constraints:
    """What a set must keep to beside the tests. This class is the case without constraints."""

    def take(self, rows: Tensor) -> Constraints:
        """The constraints of some instances, which may repeat."""
        return self

    def allow(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether candidate sets [R, U] of instances `rows` [R] are allowed, bool [R]; asked first."""
        return torch.ones_like(rows, dtype=torch.bool)

    def movable(self, rows: Tensor, sets: Tensor, *, alone: bool = False) -> Tensor:
        """Which units [R, U] may be added to a set or dropped from it; if `alone`, without what `mended` adds."""
        return torch.ones_like(sets)

    def mended(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Sets with the units that they force to be chosen as well."""
        return sets

    def confirm(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether sets that pass everything else are good [R]; asked last, because it may be expensive."""
        return torch.ones_like(rows, dtype=torch.bool)


class Incumbents:
    """The smallest set of each instance that has passed so far: an interrupt leaves it, and progress tells of it."""

    def __init__(self, valid: Tensor) -> None:
        self.sets, self.rounds = torch.zeros_like(valid), 0
        self.size = torch.full((len(valid),), float("inf"), device=valid.device)
        self.evaluations = torch.zeros_like(valid[:, 0], dtype=torch.long)

    def learn(self, rows: Tensor, sets: Tensor, size: Tensor) -> None:
        """Keep the smallest of sets [R, U] that have passed, of instances `rows` [R], which may repeat."""
        for row, own, count in zip(rows.tolist(), sets, size):
            if count < self.size[row]:
                self.sets[row] = own  # before its size, so that an interrupt between them does no harm
                self.size[row] = count


class Trials:
    """Tries candidate sets of the instances of an oracle, and counts the evaluations of each instance.

    Attributes
    ----------
    must, free : Tensor [B, U]
        Units that every set holds, and those that may be chosen or not.
    evaluations : Tensor [B]
        Forward passes of each instance; a backward pass counts as two.
    """

    def __init__(
        self,
        oracle: Oracle,
        criterion: Criterion,
        tests: tuple[Test, ...],
        confidence: float = 0.0,
        constraints: Constraints | None = None,
        *,
        cache: bool = True,
        best: Incumbents | None = None,
    ) -> None:
        self.best = best
        self.oracle, self.criterion, self.tests = oracle, criterion, tests
        self.confidence, self.constrained = confidence, constraints is not None
        self.constraints = constraints or Constraints()
        self.band = oracle.band(criterion)
        self.counts, self.rows, self.width, self.valid = oracle.counts, oracle.rows, oracle.width, oracle.valid
        self.selectable, self.price = oracle.selectable, oracle.price
        self.must = torch.zeros_like(self.valid) if oracle.required is None else oracle.required
        self.free = self.selectable & ~self.must
        self.evaluations = torch.zeros_like(self.counts)
        if best is not None:
            best.evaluations = self.evaluations
        # How many large and small sets have failed each test [B, tests]. The test that fails most is run first, and
        # the next one only for sets that pass it. Before any set has failed, large sets begin with the last test
        # (`necessary`) and small ones with the first (`sufficient`).
        first_order = torch.linspace(0, 0.5, len(tests), device=self.counts.device).repeat(len(self.counts), 1)
        self.failed = first_order, -first_order
        self.cached = cache and "kept" in SHORT_CUTS
        # One Mutag molecule: 1.07 ms a call and 29 µs for each further row. So few sets are put to all tests at once,
        # and what a search goes on to ask is looked up. That changes calls and evaluations, and no answer.
        self.rows_together = oracle.rows_together if self.cached else 0
        self._tried, self._looked = TrialTable(self.valid.device), TrialTable(self.valid.device)
        self._same = torch.tensor([test.same for test in tests], device=self.valid.device)
        self._slopes: dict[bytes, tuple[Tensor, Tensor]] = {}  # by set, slack and gradient
        # Without gradients: which instances have slopes [B], the sets [B, U] at which all of them and the steepest were
        # measured, and these slopes [B, U, tests].
        self.measured: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def flat(self, sets: Tensor) -> Tensor:
        """[B, U] -> a value per unit [units]."""
        return sets[self.valid]

    def admissible(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Sets without the units that must not be chosen, and with those that must be."""
        return sets & self.selectable[rows] | self.must[rows]

    def size(self, rows: Tensor, sets: Tensor) -> Tensor:
        """The size of sets [R]: how many units they hold, or the sum of the prices of these."""
        return sets.sum(1) if self.price is None else (sets * self.price[rows]).sum(1)

    def _confirm(self, rows: Tensor, sets: Tensor, good: Tensor) -> Tensor:
        """Which of the `good` sets [R] the constraints confirm."""
        if self.constrained:
            todo = good.nonzero().flatten()
            good[todo] = self.constraints.confirm(rows[todo], sets[todo])
        return good

    def learn(self, rows: Tensor, sets: Tensor, passed: Tensor) -> None:
        """Let the incumbents know which sets have passed every test."""
        if self.best is None:
            return
        self.best.rounds += 1
        size = self.size(rows, sets)
        smaller = (passed & (size < self.best.size[rows])).nonzero().flatten()
        if len(smaller) and not self.confidence:  # what rounding may decide is left to the rest of the search
            rows_of, sets_of = rows[smaller], sets[smaller]
            room = torch.stack([self.test(test, rows_of, sets_of)[1] for test in self.tests], 1).abs()
            band = self.band[rows_of, None] if isinstance(self.band, Tensor) else self.band
            smaller = smaller[((room > band) | (room == 0)).all(1)]
        self.best.learn(rows[smaller], sets[smaller], size[smaller])

    def run(self, rows: Tensor, sets: Tensor) -> Outcome:
        """Every test of every candidate set; a set that breaks a constraint passes none."""
        outcome = self.together(rows, sets)
        good = self._confirm(rows, sets, outcome.passes & self.constraints.allow(rows, sets))
        self.learn(rows, sets, good)
        return Outcome(outcome.passed & (good | ~outcome.passes)[:, None], outcome.slack)

    def passes(self, rows: Tensor, sets: Tensor, need: Tensor | None = None, *, small: bool = False) -> Tensor:
        """Whether sets pass every test, or those that they `need` to [R, tests].

        The test that sets of an instance have failed most comes first, and the others are run only where it is passed.
        `small` and large sets are counted apart. Small ones mostly fail to be sufficient, unless the model has a
        default answer, for which every small set is sufficient.
        """
        good = self.constraints.allow(rows, sets)
        if len(rows) <= self.rows_together and not small:
            passed = self.together(rows, sets).passed
            good = good & (passed if need is None else passed | ~need).all(1)
        elif len(rows):
            self._run_in_turn(rows, sets, good, need, self.failed[int(small)])
        good = self._confirm(rows, sets, good)
        self.learn(rows, sets, good if need is None else good & need.all(1))
        return good

    def _run_in_turn(self, rows: Tensor, sets: Tensor, good: Tensor, need: Tensor | None, failed: Tensor) -> None:
        """Put `good` sets to one test after the other, the one that most sets of their instance have `failed` first."""
        order = failed[rows].argsort(dim=1, descending=True, stable=True)
        for turn in range(len(self.tests)):
            number = order[:, turn]
            todo = (good if need is None else good & need.gather(1, number[:, None])[:, 0]).nonzero().flatten()
            if len(todo):
                passed, _ = self.put(number[todo], rows[todo], sets[todo])
                good[todo] = passed
                failed.index_put_((rows[todo], number[todo]), (~passed).to(failed.dtype), accumulate=True)

    def test(self, test: Test, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Whether sets pass one test, and by how much, whatever the constraints say; no set is run twice."""
        return self.put(torch.full_like(rows, self.tests.index(test)), rows, sets)

    def together(self, rows: Tensor, sets: Tensor) -> Outcome:
        """All tests of all sets, whatever the constraints say, in one call of the model."""
        count = len(self.tests)
        number = torch.arange(count, device=rows.device).repeat_interleave(len(rows))
        passed, slack = self.put(number, rows.repeat(count), sets.repeat(count, 1))
        return Outcome(passed.view(count, -1).t(), slack.view(count, -1).t())

    def put(self, number: Tensor, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Put each set to the test of its `number` [R]: whether it passes, and by how much.

        Sets that were tried before are looked up, and the others are run in one call of the model.
        """
        if not len(rows):
            none = torch.zeros(0, device=rows.device)
            return none.bool(), none
        if not self.cached:
            return self._run(number, rows, sets)
        slot, new = self._tried.claim(names_of(rows * len(self.tests) + number, sets))
        if len(new):
            self._tried.keep(slot[new], *self._run(number[new], rows[new], sets[new]))
        return self._tried.read(slot)

    def _run(self, number: Tensor, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The same by running the model; what looks the same to it is run once."""
        absent = None if self.oracle.absent is None else self.oracle.absent[rows]
        first, *others = (test.intervention.states(sets, absent) for test in self.tests)
        for other, own in enumerate(others, 1):
            first = torch.where((number == other)[:, None], own, first)
        if not self.oracle.has_looks:
            return self._judged(number, rows, self.oracle.outputs(rows, first))
        judged = []
        for part, looks in self.oracle.looks(rows, first):
            tests, own = number[part], rows[part]
            if not self.cached:
                judged.append(self._judged(tests, own, looks.outputs(torch.arange(len(own), device=own.device))))
                continue
            names = [name + bytes((test,)) for name, test in zip(looks.names, tests.tolist())]
            slot, new = self._looked.claim(names)
            if len(new):
                self._looked.keep(slot[new], *self._judged(tests[new], own[new], looks.outputs(new)))
            judged.append(self._looked.read(slot))
        passed, slack = zip(*judged)
        return torch.cat(passed), torch.cat(slack)

    def _judged(self, number: Tensor, rows: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Whether outputs pass the test of each row, and by how much."""
        self.evaluations.index_add_(0, rows, torch.ones_like(rows))
        criterion, same = self.criterion.take(rows), self._same[number]
        passed, room = passes(criterion, outputs, same, self.confidence), slack(criterion, outputs, same)
        if not self.confidence:
            # A set within the band hangs on rounding: counting it as failed would let a proof claim too much. An exact
            # tie does not, because the criterion says which of equal classes counts.
            band = self.band[rows] if isinstance(self.band, Tensor) else self.band
            passed |= (room != 0) & (room.abs() <= band)
        return passed, room

    def slopes(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The slack in every test [R, tests], and by how much adding each unit would raise it [R, U, tests]."""
        if not len(rows):
            none = torch.zeros(*sets.shape, len(self.tests), device=rows.device)
            return none.sum(1), none
        if not (self.cached and self.oracle.has_slopes):  # slopes by trials are kept by the oracle
            return self.oracle.slopes(self, rows, sets)
        # A step often begins where another one has ended, and asks for the same gradient again.
        if len(self._slopes) * self.width * len(self.tests) * 4 > MAX_TABLE_BYTES:
            self._slopes.clear()
        names = names_of(rows, sets)
        new = torch.tensor([at for at, name in enumerate(names) if name not in self._slopes], device=rows.device).long()
        if len(new):
            found = self.oracle.slopes(self, rows[new], sets[new])
            self._slopes |= zip((names[at] for at in new.tolist()), zip(*found))
        slack, slope = zip(*(self._slopes[name] for name in names))
        return torch.stack(slack), torch.stack(slope)


EQUAL = 1e-5  # outcomes closer than this are equal: they may be the same number, summed in another order
ALIKE = 2e-6  # the same for the scores of a method, as a share of the larger one


def best_of(rows: Tensor, scores: Tensor, instances: int) -> Tensor:
    """The position of the best-scoring candidate of every instance (the first of equals); -1 where none."""
    top = torch.full((instances,), float("-inf"), dtype=scores.dtype, device=scores.device)
    top = top.scatter_reduce(0, rows, scores, "amax")
    winner = (scores >= top[rows] - EQUAL).nonzero().flatten()
    first = torch.full((instances,), len(scores), device=rows.device)
    first = first.scatter_reduce(0, rows[winner], winner, "amin")
    return torch.where(first < len(scores), first, -1)


def top(scores: Tensor, count: int, equal: Tensor) -> tuple[Tensor, Tensor]:
    """The `count` highest scores of every row [R, U] and their columns; of equals, the first column comes first.

    Scores of a row are equal if they are no further apart than its number in `equal` [R]. A row that has fewer finite
    scores ends with -inf, whatever the columns.
    """
    # `torch.topk` breaks ties by rounding, and rounding depends on what an instance is packed with. In NumPy, because
    # these small steps are many, and each of them takes it a third of torch's time.
    left, near = scores.cpu().numpy().copy(), equal.cpu().numpy()
    rows, count = np.arange(len(left)), min(count, scores.size(1))
    values, columns = np.empty((len(left), count), left.dtype), np.empty((len(left), count), np.int64)
    for place in range(count):
        column = (left >= (left.max(1) - near)[:, None]).argmax(1)
        values[:, place], columns[:, place] = left[rows, column], column
        left[rows, column] = -np.inf
    return torch.from_numpy(values).to(scores.device), torch.from_numpy(columns).to(scores.device)


def in_order(scores: Tensor) -> Tensor:
    """The position of every column of [B, U] when sorted by score, the highest first; equals by column.

    Scores are equal if they differ by no more than sums in another order would.
    """
    value, order = scores.sort(dim=1, descending=True, stable=True)
    high, low = value[:, :-1], value[:, 1:]
    # Scores fall into levels, and a new one begins at each gap: "nearly equal" alone would not be transitive.
    gap = (high - low > ALIKE * torch.maximum(high.abs(), low.abs())) | (high.isfinite() & ~low.isfinite())
    level = torch.cat([torch.zeros_like(order[:, :1]), gap.long().cumsum(1)], 1)
    level = torch.zeros_like(order).scatter(1, order, level)
    return level.argsort(dim=1, stable=True).argsort(1)


# -- race -----------------------------------------------------------------------------------------------------

Value = Callable[[Outcome], Tensor]  # how good candidates are [R]; it must not fall when a slack or a pass rises


def race(trials: Trials, owner: Tensor, rows: Tensor, sets: Tensor, likely: Tensor, value: Value) -> Outcome:
    """`Trials.run` of candidates [R, U], exact for the one of every `owner` [R] that `best_of` takes by `value`.

    The test that a set is `likely` to fail [R] is run first. If a candidate can no longer win, its second test is
    skipped. A test that was not run counts as passed with infinite slack, so it has a finite slack only if it was run.
    """
    if trials.constrained or len(trials.tests) != 2 or not len(rows):
        return trials.run(rows, sets)
    known = trials.together(rows, sets) if len(rows) <= trials.rows_together else None
    # Branch and bound. With infinite slack in the open test, `value` is an upper bound of what a candidate can reach,
    # because it never falls when a slack rises. So a candidate whose bound is below a value that is already exact
    # cannot win. Exact values come from those that passed the first test and from the leader by the bounds.
    outcome = Outcome(sets.new_ones(len(rows), 2), torch.full((len(rows), 2), float("inf"), device=rows.device))
    _fill(trials, outcome, rows, sets, likely, known)
    owners = int(owner.max()) + 1
    leader = best_of(owner, value(outcome), owners)[owner] == torch.arange(len(rows), device=rows.device)
    exact = outcome.passes | leader
    _fill(trials, outcome, rows, sets, torch.where(exact, 1 - likely, -1), known)
    bound = value(outcome)
    reached = bound.new_full((owners,), float("-inf")).scatter_reduce(0, owner[exact], bound[exact], "amax")
    late = ~exact & (bound >= reached[owner] - 2 * EQUAL)
    _fill(trials, outcome, rows, sets, torch.where(late, 1 - likely, -1), known)
    trials.learn(rows, sets, outcome.passes & outcome.slack.isfinite().all(1))
    return outcome


def _fill(trials: Trials, outcome: Outcome, rows: Tensor, sets: Tensor, number: Tensor, known: Outcome | None) -> None:
    """Put each set to the test of its number [R], or to none (-1), and write what it gives, or is `known` to give."""
    chosen = (number >= 0).nonzero().flatten()
    at = chosen, number[chosen]
    if known is None:
        outcome.passed[at], outcome.slack[at] = trials.put(at[1], rows[chosen], sets[chosen])
    else:
        outcome.passed[at], outcome.slack[at] = known.passed[at], known.slack[at]
