"""Candidate sets tried on the model, none of them twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from cf2.sets.oracle import SHORT_CUTS, Looks, Oracle
from cf2.sets.tests import Criterion, Test, passes, slack

# -- what was tried ---------------------------------------------------------------------------------------------

MAX_NAME_BYTES = 256
MAX_TABLE_BYTES = 1 << 27  # of the names in a table; one that would outgrow it forgets what it knows


def names_of(rows: Tensor, sets: Tensor) -> list[bytes]:
    """A name for each set [R, U] of an instance `rows` [R]: the number of the instance and the bits of the set.

    Long names are digests: two are equal with a probability below 2^-100, and the final check, from which every verdict
    comes, does not look here.
    """
    numbers = np.ascontiguousarray(rows.cpu().numpy()).view(np.uint8).reshape(len(rows), 8)
    table = np.concatenate([numbers, np.packbits(sets.cpu().numpy(), axis=1)], 1)
    width, text = table.shape[1], table.tobytes()
    return [short(text[start : start + width]) for start in range(0, len(text), width)]


def short(name: bytes) -> bytes:
    """The name, or a digest of it where it is long."""
    return name if len(name) <= MAX_NAME_BYTES else blake2b(name, digest_size=24).digest()


class TrialTable:
    """Whether sets pass a test and by how much, by name."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._forget()

    def _forget(self) -> None:
        self.slots, self.used = dict[bytes, int](), 0
        self.passed = torch.zeros(64, dtype=torch.bool, device=self.device)
        self.slack = torch.zeros(64, device=self.device)

    def claim(self, names: Sequence[bytes]) -> tuple[Tensor, Tensor]:
        """The slot of each name, and the positions of the new ones: one for every name that has no value yet.

        Slots hold until the next claim. Whoever claims a new one must `keep` its value.
        """
        if self.slots and self.used + sum(map(len, names)) > MAX_TABLE_BYTES:
            self._forget()
        slots, known, new = self.slots, list[int](), list[int]()
        for position, name in enumerate(names):
            slot = slots.get(name)
            if slot is None:
                slot = slots[name] = len(slots)
                new.append(position)
                self.used += len(name)
            known.append(slot)
        if len(slots) > len(self.passed):
            room = torch.zeros(2 * len(slots) - len(self.passed), device=self.device)
            self.passed, self.slack = torch.cat([self.passed, room.bool()]), torch.cat([self.slack, room])
        number = partial(torch.tensor, dtype=torch.long, device=self.device)
        return number(known), number(new)

    def keep(self, slot: Tensor, passed: Tensor, slack: Tensor) -> None:
        """Write values into slots that were claimed."""
        self.passed[slot], self.slack[slot] = passed, slack

    def read(self, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Whether it passes, and by how much."""
        return self.passed[slot], self.slack[slot]


# -- trials -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """Of every candidate set and test: does it pass, and by how much (positive is good)."""

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
    """How near a set is to passing, from its slack in every test [..., tests]: minus what is missing.

    Room to spare, up to a bound, breaks ties.
    """
    spare = slack.clamp(max=5).sum(-1)
    return slack.clamp(max=0).sum(-1) + 1e-3 * spare


class Constraints:
    """What a set must keep to beside the tests; by itself, nothing."""

    def take(self, rows: Tensor) -> Constraints:
        """The constraints of some instances, which may repeat."""
        return self

    def allow(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether candidate sets [R, U] of instances `rows` [R] are allowed, bool [R]; asked first."""
        return torch.ones_like(rows, dtype=torch.bool)

    def movable(self, rows: Tensor, sets: Tensor, *, alone: bool = False) -> Tensor:
        """Which units [R, U] may be added to a set or dropped from it, with what `mended` adds or `alone`."""
        return torch.ones_like(sets)

    def mended(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Sets with what must be chosen as well, where there is no choice."""
        return sets

    def confirm(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether sets that pass everything else are good [R]; asked last, where an answer is dear."""
        return torch.ones_like(rows, dtype=torch.bool)


class Trials:
    """Tries candidate sets of the instances of an oracle; counts what each instance cost."""

    def __init__(
        self,
        oracle: Oracle,
        criterion: Criterion,
        tests: tuple[Test, ...],
        confidence: float = 0.0,
        constraints: Constraints | None = None,
        *,
        cache: bool = True,
    ) -> None:
        self.oracle, self.criterion, self.tests = oracle, criterion, tests
        self.confidence, self.constraints = confidence, constraints
        self.band = oracle.band(criterion)
        self.counts, self.width, self.valid = oracle.counts, oracle.width, oracle.valid
        self.selectable, self.required, self.price = oracle.selectable, oracle.required, oracle.price
        self.evaluations = torch.zeros_like(self.counts)
        # How many large and small sets have failed each test [B, tests]; before any has, the start decides.
        start = torch.linspace(0, 0.5, len(tests), device=self.counts.device).repeat(len(self.counts), 1)
        self.failed = start, -start
        self.cached = cache and "kept" in SHORT_CUTS
        self.few = oracle.few and self.cached  # nothing that is found depends on it
        self._tables = dict[tuple[str, str], TrialTable]()
        # Without gradients: which instances have slopes [B], the sets [B, U] at which all of them and the steepest were
        # measured, and these slopes [B, U, tests].
        self.measured: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def flat(self, sets: Tensor) -> Tensor:
        """[B, U] -> a value per unit [units]."""
        return sets[self.valid]

    def admissible(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Sets with what must not be chosen left out, and what must be put in."""
        sets = sets & self.selectable[rows]
        return sets if self.required is None else sets | self.required[rows]

    def size(self, rows: Tensor, sets: Tensor) -> Tensor:
        """The size of sets [R]: how many units they hold, or what these add up to where some count for more."""
        return sets.sum(1) if self.price is None else (sets * self.price[rows]).sum(1)

    def allowed(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether sets keep to the constraints [R]; asked before the model is."""
        if self.constraints is None:
            return torch.ones_like(rows, dtype=torch.bool)
        return self.constraints.allow(rows, sets)

    def run(self, rows: Tensor, sets: Tensor) -> Outcome:
        """Every test of every candidate set; one that breaks a constraint passes none."""
        columns = self.together(rows, sets) if self.few else [self.test(test, rows, sets) for test in self.tests]
        outcome = Outcome(*(torch.stack(part, 1) for part in zip(*columns)))
        if self.constraints is None:
            return outcome
        good = outcome.passes & self.allowed(rows, sets)
        todo = good.nonzero().flatten()
        good[todo] = self.constraints.confirm(rows[todo], sets[todo])
        return Outcome(outcome.passed & (good | ~outcome.passes)[:, None], outcome.slack)

    def one(self, column: int, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether sets pass one of the tests, whatever the constraints say."""
        return self.test(self.tests[column], rows, sets)[0]

    def passes(self, rows: Tensor, sets: Tensor, need: Tensor | None = None, *, small: bool = False) -> Tensor:
        """Whether sets pass every test, or those that they `need` to [R, tests].

        The test that sets are likely to fail comes first, and the others are run only where it is passed. For large
        sets that is the last one (`necessary`), and for `small` ones the first one (`sufficient`), until an instance
        shows otherwise: where the model has a default answer, every small set is sufficient.
        """
        good = self.allowed(rows, sets)
        if self.few and not small:
            passed = torch.stack([passed for passed, _ in self.together(rows, sets)], 1)
            good = good & (passed if need is None else passed | ~need).all(1)
        elif len(rows):
            self._race(rows, sets, good, need, self.failed[int(small)])
        if self.constraints is not None:
            todo = good.nonzero().flatten()
            good[todo] = self.constraints.confirm(rows[todo], sets[todo])
        return good

    def _race(self, rows: Tensor, sets: Tensor, good: Tensor, need: Tensor | None, failed: Tensor) -> None:
        """Put sets to the tests, the one that most sets of their instance have `failed` first."""
        order = failed[rows].argsort(dim=1, descending=True, stable=True)
        for turn in range(len(self.tests)):
            for column, test in enumerate(self.tests):
                run = good & (order[:, turn] == column)
                todo = (run if need is None else run & need[:, column]).nonzero().flatten()
                good[todo], _ = self.test(test, rows[todo], sets[todo])
                failed[:, column].index_add_(0, rows[todo], (~good[todo]).to(failed.dtype))

    def test(self, test: Test, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Whether sets pass one test, and by how much; what was tried before is not run again."""
        if not self.cached or not len(rows):
            return self._seen(test, rows, sets)
        table = self._table(test, "sets")
        slot, new = table.claim(names_of(rows, sets))
        if len(new):
            table.keep(slot[new], *self._seen(test, rows[new], sets[new]))
        return table.read(slot)

    def together(self, rows: Tensor, sets: Tensor) -> list[tuple[Tensor, Tensor]]:
        """`test` for all tests in one call of the model: with few instances, a call costs more than its rows.

        What is asked, and so the answer, does not depend on it; the number of evaluations does.
        """
        names, new, kept = names_of(rows, sets), [], []
        for test in self.tests:
            table = self._table(test, "sets")
            slot, fresh = table.claim(names)
            new.append(fresh)
            kept.append((table, slot))
        many = torch.cat([rows[some] for some in new])
        if len(many):
            states = torch.cat([self._states(test, rows[some], sets[some]) for test, some in zip(self.tests, new)])
            outputs = torch.split(self.oracle.outputs(many, states), list(map(len, new)))
            for test, some, said, (table, slot) in zip(self.tests, new, outputs, kept):
                table.keep(slot[some], *self._judged(test, rows[some], said))
        return [table.read(slot) for table, slot in kept]

    def _table(self, test: Test, kind: str) -> TrialTable:
        if (test.name, kind) not in self._tables:
            self._tables[test.name, kind] = TrialTable(self.valid.device)
        return self._tables[test.name, kind]

    def _states(self, test: Test, rows: Tensor, sets: Tensor) -> Tensor:
        absent = self.oracle.absent
        return test.intervention.states(sets, None if absent is None else absent[rows])

    def _seen(self, test: Test, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The same of sets that are new; those in which the model sees the same are run once."""
        if not len(rows):
            return sets.new_zeros(0), torch.zeros(0, device=rows.device)
        states = self._states(test, rows, sets)
        if not self.oracle.local:
            return self._judged(test, rows, self.oracle.outputs(rows, states))
        parts = (self._looked(test, rows[part], looks) for part, looks in self.oracle.looks(rows, states))
        passed, slack = zip(*parts)
        return torch.cat(passed), torch.cat(slack)

    def _looked(self, test: Test, rows: Tensor, looks: Looks) -> tuple[Tensor, Tensor]:
        if not self.cached:
            return self._judged(test, rows, looks.outputs(torch.arange(len(rows), device=rows.device)))
        table = self._table(test, "looks")
        slot, new = table.claim(looks.names)
        if len(new):
            table.keep(slot[new], *self._judged(test, rows[new], looks.outputs(new)))
        return table.read(slot)

    def _judged(self, test: Test, rows: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        self.evaluations.index_add_(0, rows, torch.ones_like(rows))
        criterion = self.criterion.take(rows)
        passed, room = passes(criterion, outputs, test.same, self.confidence), slack(criterion, outputs, test.same)
        if (
            not self.confidence
        ):  # what rounding may decide either way is no proof that a set fails; an exact tie is none
            band = self.band[rows] if isinstance(self.band, Tensor) else self.band
            passed |= (room != 0) & (room.abs() <= band)
        return passed, room

    def slopes(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The slack in every test [R, tests], and by how much adding each unit would raise it [R, U, tests]."""
        if not len(rows):
            none = torch.zeros(*sets.shape, len(self.tests), device=rows.device)
            return none.sum(1), none
        return self.oracle.slopes(self, rows, sets)


def left_out(trials: Trials) -> Tensor:
    """What the answer loses when each unit alone is left out of everything [B, U]: a ranking without gradients.

    A set that is kept alone is then everything but the unit, and a set that is removed is the unit.
    """
    test = trials.tests[-1]
    rows = torch.arange(len(trials.counts), device=trials.counts.device)
    all_or_none = trials.selectable if test.intervention.keeps else torch.zeros_like(trials.valid)
    return trials.slopes(rows, all_or_none)[1][:, :, -1]


EQUAL = 1e-5  # outcomes closer than this are equal: they may be the same number, summed in another order
ALIKE = 2e-6  # the same for the scores of a method, as a share of the larger one


def best_of(rows: Tensor, scores: Tensor, instances: int) -> Tensor:
    """The position of the best-scoring candidate of every instance (the first of equals); -1 where none."""
    top = torch.full((instances,), float("-inf"), dtype=scores.dtype, device=scores.device)
    top = top.scatter_reduce(0, rows, scores, "amax")
    winner = (scores >= top[rows] - EQUAL).nonzero().flatten()
    place = torch.full((instances,), len(scores), device=rows.device)
    place = place.scatter_reduce(0, rows[winner], winner, "amin")
    return torch.where(place < len(scores), place, -1)


def top(scores: Tensor, count: int, equal: Tensor) -> tuple[Tensor, Tensor]:
    """The `count` highest scores of every row [R, U] and their columns; of equals, the first column comes first.

    Scores of a row are equal if they are no further apart than its number in `equal` [R].
    """
    left, columns = scores.clone(), []
    for _ in range(min(count, scores.size(1))):
        best = left.amax(1, keepdim=True)
        column = (left >= best - equal[:, None]).int().argmax(1, keepdim=True)
        columns.append(column)
        left.scatter_(1, column, float("-inf"))
    chosen = torch.cat(columns, 1)
    return scores.gather(1, chosen), chosen


def in_order(scores: Tensor) -> Tensor:
    """The place of every column of [B, U] when sorted by score, the highest first; equals by column.

    Scores are equal if they differ by no more than sums in another order would.
    """
    value, order = scores.sort(dim=1, descending=True, stable=True)
    high, low = value[:, :-1], value[:, 1:]
    gap = (high - low > ALIKE * torch.maximum(high.abs(), low.abs())) | (high.isfinite() & ~low.isfinite())
    level = torch.cat([torch.zeros_like(order[:, :1]), gap.long().cumsum(1)], 1)
    level = torch.zeros_like(order).scatter(1, order, level)
    return level.argsort(dim=1, stable=True).argsort(1)


# -- race -----------------------------------------------------------------------------------------------------

Value = Callable[[Outcome], Tensor]  # how candidates compare [R]; it never falls where a slack or a pass rises


def race(trials: Trials, owner: Tensor, rows: Tensor, sets: Tensor, likely: Tensor, value: Value) -> Outcome:
    """`Trials.run` of candidates [R, U], exact for the one of every `owner` [R] that `best_of` takes by `value`.

    The test that a set is `likely` to fail [R] comes first. If a candidate can no longer win, its second test is
    skipped: what was not run counts as passed by any margin, and such a set is worse than the winner all the same.
    """
    if trials.few or trials.constraints is not None or len(trials.tests) != 2 or not len(rows):
        return trials.run(rows, sets)
    outcome = Outcome(sets.new_ones(len(rows), 2), torch.full((len(rows), 2), float("inf"), device=rows.device))
    _fill(trials, outcome, rows, sets, likely)
    owners = int(owner.max()) + 1
    leader = best_of(owner, value(outcome), owners)[owner] == torch.arange(len(rows), device=rows.device)
    whole = outcome.passes | leader
    _fill(trials, outcome, rows, sets, torch.where(whole, 1 - likely, -1))
    worth = value(outcome)
    top = worth.new_full((owners,), float("-inf")).scatter_reduce(0, owner[whole], worth[whole], "amax")
    _fill(trials, outcome, rows, sets, torch.where(~whole & (worth >= top[owner] - 2 * EQUAL), 1 - likely, -1))
    return outcome


def _fill(trials: Trials, outcome: Outcome, rows: Tensor, sets: Tensor, column: Tensor) -> None:
    """Run one test of each set [R], or none (-1), and note what it gave."""
    for number, test in enumerate(trials.tests):
        at = (column == number).nonzero().flatten()
        if len(at):
            outcome.passed[at, number], outcome.slack[at, number] = trials.test(test, rows[at], sets[at])
