"""No evaluation twice: what trials have given so far, found again by what was tried.

A key is two 64-bit numbers, made of random sums over what is there. Different things have the same key with a
probability below 2^-100; and the final check, from which every verdict comes, does not look here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cf2.models.oracle import CarriedOut, Field, Fields, applies, only_edges
from cf2.models.predictor import Predictor
from cf2.sets.cache import Sums, Table, keys_of
from cf2.sets.tests import Criterion, Test, passes, slack, soft_outputs
from cf2.units.packs import Pack, chunks

# -- trials ----------------------------------------------------------------------------------------------


FEW = 4  # instances with which a call of the model costs more than what is computed in it
CHUNK = 16_000_000  # floats kept by one packed pass of trials


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


class Rules(Protocol):
    """What a set must keep to beside the tests, whatever the model says of it."""

    def allow(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether candidate sets [R, U] of instances `rows` [R] keep to the rules, bool [R]; asked first."""

    def take(self, rows: Tensor) -> Rules:
        """The rules of some instances, which may repeat."""

    def movable(self, rows: Tensor, sets: Tensor, *, alone: bool = False) -> Tensor:
        """Which units [R, U] may be added to a set or dropped from it, with what `mended` adds or `alone`."""

    def mended(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Sets with what must be chosen as well, where the rules leave no choice."""

    def confirm(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether sets that pass everything else are good [R]; asked last, where an answer is dear."""

    def slack(self, rows: Tensor, sets: Tensor) -> Tensor:
        """By how much sets that are confirmed keep to the rules [R]; ∞ where that is not a matter of degree."""


class Trials:
    """Runs candidate sets of one pack; counts what each instance cost."""

    def __init__(
        self,
        predictor: Predictor,
        pack: Pack,
        criterion: Criterion,
        tests: tuple[Test, ...],
        confidence: float = 0.0,
        rules: Rules | None = None,
        *,
        cache: bool = True,
        fields: bool = True,
        wide: bool = True,
    ) -> None:
        self.predictor, self.pack, self.criterion, self.tests = predictor, pack, criterion, tests
        self.confidence, self.rules = confidence, rules
        self.counts = pack.units.counts
        self.width = int(self.counts.max()) if pack.num_instances else 0
        device = self.counts.device
        self.valid = torch.arange(self.width, device=device)[None] < self.counts[:, None]
        flags = pack.units
        self.selectable = self.dense(flags.admissible(torch.ones_like(flags.owner, dtype=torch.bool)), False)
        none = torch.zeros_like(flags.owner, dtype=torch.bool)
        left_out = none if flags.left_out is None else flags.left_out
        not_listed = torch.zeros_like(self.counts, dtype=torch.bool) if flags.narrowed is None else flags.narrowed
        self.some_left_out = (self.dense(left_out, False).any(1) | not_listed).tolist()
        self.required = None if flags.required is None else self.dense(flags.required, False)
        self.price = None if flags.price is None else self.dense(flags.price, 0)
        self.evaluations = torch.zeros(pack.num_instances, dtype=torch.long, device=device)
        self.footprint = predictor.cost(pack.node_ptr.diff(), pack.edge_ptr.diff()).cpu()
        self.fixed = None if flags.fixed is None else self.dense(flags.fixed, False)
        local = fields and not predictor.alone  # a model that mixes all nodes sees also what is not joined to a target
        self.fields = Fields(pack, *predictor.sight) if local and applies(pack) else None
        self.carried_out = CarriedOut(pack) if only_edges(pack) else None
        # With few graphs many sets are tried per call; trials in fields know most of what they are asked. Nothing that
        # is found depends on it.
        self.few = wide and cache and self.fields is None and pack.num_instances <= FEW and flags.absent is None
        self.cached, self._tables = cache, dict[tuple[str, str], Table]()
        self._sums = Sums(self.width, 0, device)

    def dense(self, values: Tensor, fill: float) -> Tensor:
        """A value per unit [units] -> [B, U]."""
        table = torch.full(self.valid.shape, fill, dtype=values.dtype, device=values.device)
        table[self.valid] = values
        return table

    @staticmethod
    def spread(values: Tensor, counts: Tensor, width: int) -> Tensor:
        """A bool per unit [units] -> [B, width], for instances with so many units each."""
        valid = torch.arange(width, device=counts.device)[None] < counts[:, None]
        table = torch.zeros(valid.shape, dtype=torch.bool, device=values.device)
        table[valid] = values
        return table

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
        """Whether sets keep to the rules [R]; asked before the model is."""
        return torch.ones_like(rows, dtype=torch.bool) if self.rules is None else self.rules.allow(rows, sets)

    def run(self, rows: Tensor, sets: Tensor) -> Outcome:
        """Every test of every candidate set; one that breaks a rule passes none."""
        columns = self.together(rows, sets) if self.few else [self.test(test, rows, sets) for test in self.tests]
        outcome = Outcome(*(torch.stack(part, 1) for part in zip(*columns)))
        if self.rules is None:
            return outcome
        good = outcome.passes & self.allowed(rows, sets)
        todo = good.nonzero().flatten()
        good[todo] = self.rules.confirm(rows[todo], sets[todo])
        return Outcome(outcome.passed & (good | ~outcome.passes)[:, None], outcome.slack)

    def one(self, column: int, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether sets pass one of the tests, whatever the rules say."""
        return self.test(self.tests[column], rows, sets)[0]

    def passes(self, rows: Tensor, sets: Tensor, need: Tensor | None = None, *, small: bool = False) -> Tensor:
        """Whether sets pass every test, or those that they `need` to [R, tests].

        The last test comes first, and the others are run only where it is passed; the first, where sets are `small`:
        alone, they hardly ever give the answer.
        """
        good = self.allowed(rows, sets)
        columns = range(len(self.tests))
        if self.few and not small:
            passed = torch.stack([passed for passed, _ in self.together(rows, sets)], 1)
            good = good & (passed if need is None else passed | ~need).all(1)
            columns = range(0)
        for column in columns if small else reversed(columns):
            run = (good if need is None else good & need[:, column]).nonzero().flatten()
            good[run], _ = self.test(self.tests[column], rows[run], sets[run])
        if self.rules is not None:
            todo = good.nonzero().flatten()
            good[todo] = self.rules.confirm(rows[todo], sets[todo])
        return good

    def test(self, test: Test, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Whether sets pass one test, and by how much; what was tried before is not run again."""
        if not self.cached or not len(rows):
            return self._seen(test, rows, sets)
        table = self._table(test, "sets")
        slot, fresh = table.claim(self.keys(rows, sets))
        new = fresh.nonzero().flatten()
        if len(new):
            table.keep(slot[new], *self._seen(test, rows[new], sets[new]))
        return table.read(slot)

    def together(self, rows: Tensor, sets: Tensor) -> list[tuple[Tensor, Tensor]]:
        """`test` for all tests in one call of the model: with few instances, a call costs more than its rows.

        What is asked, and so the answer, does not depend on it; the number of evaluations does.
        """
        keys, new, kept = self.keys(rows, sets), [], []
        for test in self.tests:
            table = self._table(test, "sets")
            slot, fresh = table.claim(keys)
            new.append(fresh.nonzero().flatten())
            kept.append((table, slot))
        many = torch.cat([rows[some] for some in new])
        if len(many):
            states = torch.cat([test.intervention.states(sets[some]) for test, some in zip(self.tests, new)])
            parts = [self._outputs(many[part], states[part]) for part in self._parts(many)]
            outputs = torch.split(torch.cat(parts), list(map(len, new)))
            for test, some, said, (table, slot) in zip(self.tests, new, outputs, kept):
                table.keep(slot[some], *self._judged(test, rows[some], said))
        return [table.read(slot) for table, slot in kept]

    def _field(self, fields: Fields, rows: Tensor, states: Tensor) -> Field:
        return fields.find(rows, states if self.fixed is None else states | self.fixed[rows])

    def _field_outputs(self, fields: Fields, field: Field) -> Tensor:
        of = (field.of_node, field.of_column)
        cost = self.predictor.cost(*(torch.bincount(owner, minlength=len(field.rows)) for owner in of))
        every = torch.arange(len(field.rows), device=field.rows.device)
        parts = (fields.packed(field.take(every[part])) for part in chunks(cost.tolist(), CHUNK))
        return torch.cat([self.predictor.hard(part, self.valid.new_zeros(0)) for part in parts])

    def keys(self, rows: Tensor, sets: Tensor) -> Tensor:
        """A key [2, R] per instance and set."""
        return keys_of(self._sums.of_sets(sets), rows)

    def _table(self, test: Test, kind: str) -> Table:
        if (test.name, kind) not in self._tables:
            self._tables[test.name, kind] = Table(self.valid.device)
        return self._tables[test.name, kind]

    def _seen(self, test: Test, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The same of sets that are new; those of which the target sees the same are run once."""
        if self.fields is None:
            return self._gathered(self._whole(test, rows[part], sets[part]) for part in self._parts(rows))
        return self._gathered(
            self._in_field(self.fields, test, rows[part], sets[part])
            for part in chunks([self.fields.width] * len(rows), CHUNK)
        )

    def _in_field(self, fields: Fields, test: Test, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        field = self._field(fields, rows, test.intervention.states(sets))
        if not self.cached:
            return self._judged(test, rows, self._field_outputs(fields, field))
        table = self._table(test, "fields")
        slot, fresh = table.claim(keys_of(fields.sums(field), rows))
        new = fresh.nonzero().flatten()
        if len(new):
            said = self._field_outputs(fields, field.take(new))
            table.keep(slot[new], *self._judged(test, rows[new], said))
        return table.read(slot)

    def _whole(self, test: Test, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        if self.carried_out is not None:
            return self._judged(test, rows, self._outputs(rows, test.intervention.states(sets)))
        chosen = sets[self.valid[rows]]
        return self._judged(test, rows, test.intervention.outputs(self.predictor, self.pack.take(rows), chosen))

    def _outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        """What the model says of instances of which the units with a state [R, U] are there."""
        if self.carried_out is None:
            return self.predictor.hard(self.pack.take(rows), states[self.valid[rows]])
        states = states if self.fixed is None else states | self.fixed[rows]
        return self.predictor.hard(self.carried_out.packed(rows, states), self.valid.new_zeros(0))

    def _judged(self, test: Test, rows: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        self.evaluations.index_add_(0, rows, torch.ones_like(rows))
        criterion = self.criterion.take(rows)
        return passes(criterion, outputs, test.same, self.confidence), slack(criterion, outputs, test.same)

    def _gathered(self, parts: Iterator[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        none = self.valid.new_zeros(0)
        passed, slack = zip((none, none.float()), *parts)
        return torch.cat(passed), torch.cat(slack)  # whatever the model computes with, in single precision

    def slopes(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The slack in every test [R, tests], and by how much adding each unit would raise it [R, U, tests]."""
        parts = [self._slopes(rows[part], sets[part]) for part in self._parts(rows, 2 * len(self.tests))]
        self.evaluations.index_add_(0, rows, torch.full_like(rows, 3 * len(self.tests)))
        slack, slope = (torch.cat(column) for column in zip(*parts))
        return slack, slope

    def _slopes(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        valid, count = self.valid[rows], len(self.tests)
        criterion = self.criterion.take(rows)
        masks = sets[valid].float().expand(count, -1).clone().requires_grad_()  # one per test: a gradient of its own
        with self.predictor.soft(self.pack.take(rows.repeat(count)), messages=True) as run:
            outputs = soft_outputs(run, [test.intervention for test in self.tests], list(masks))
            room = [slack(criterion, said, test.same) for test, said in zip(self.tests, outputs)]
            (gradient,) = torch.autograd.grad(torch.stack(room).sum(), masks, allow_unused=True)
        slope = torch.zeros(*valid.shape, count, device=rows.device)
        if gradient is not None:
            slope[valid] = torch.nan_to_num(gradient).t()
        return torch.stack(room, 1).detach(), slope

    def _parts(self, rows: Tensor, factor: int = 1) -> Iterator[slice]:
        return chunks((self.footprint[rows.cpu()] * factor).tolist(), CHUNK)


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


# -- race ------------------------------------------------------------------------------------------------


Value = Callable[[Outcome], Tensor]  # how candidates compare [R]; it never falls where a slack or a pass rises


def race(trials: Trials, owner: Tensor, rows: Tensor, sets: Tensor, likely: Tensor, value: Value) -> Outcome:
    """`Trials.run` of candidates [R, U], exact for the one of every `owner` [R] that `best_of` takes by `value`.

    The test that a set is `likely` to fail [R] comes first. What was not run counts as passed by any margin, and such
    a set is worse than the winner all the same.
    """
    if trials.few or trials.rules is not None or len(trials.tests) != 2 or not len(rows):
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
