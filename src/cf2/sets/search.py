"""The constrained problem: from scores to the smallest set that passes the tests of the question.

1. *Start* from the shortest prefix of two rankings, the given one and one by slope, that passes the tests. If none
   passes, *repair* the nearest.
2. *Prune*: drop runs of the least important units, then single ones, while the tests pass. If many are left, *grow* a
   set from nothing as well.
3. *Prove* (`proof.py`): try every smaller set if the budget pays for it. A proved set needs nothing more. If no set
   is known to pass, the smallest sets are tried as far as a small budget goes.
4. *Leap*, if there are many units and the set is large: to much smaller sets that slopes promise to pass.
5. *Exchange*: leave one unit out and swap others, by slopes that learn from every trial, until the tests pass again.
6. *Restart* if there are many units: prune them in other orders, and go on from a smaller result. Then prove.
7. *Widen*: among sets of that size, look for one whose tests hold by a wider margin.

Every step is packed over all instances at once. A set is only ever accepted by the model's own verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from cf2.errors import require_number, unknown_name
from cf2.sets.moves import (
    Budget,
    drop_loose,
    exchange,
    grow,
    leap,
    prefixes,
    prune,
    prune_single,
    repair,
    start_edits,
    take_smaller,
    widen,
)
from cf2.sets.oracle import Oracle
from cf2.sets.proof import Proof, prove, unproved
from cf2.sets.tests import QUESTIONS, Criterion, Test
from cf2.sets.trials import Constraints, Incumbents, Trials, in_order

Effort = Literal["quick", "standard", "thorough", "exact"]
WHY = QUESTIONS["why"]
LARGE_SET = 14  # units of a set beyond which one is grown from nothing as well
MANY_UNITS = 64  # of an instance, beyond which that is done for smaller sets, and restarts are made
MAX_FIRST_PROOF = 1_000  # sets that a proof may take before anything else is tried
MAX_SMALLEST_SETS = 200  # sets that are tried by size if no other step has led to one that passes
MAX_PROOF = 10**9  # sets: more than a month of trials
MAX_RESTART_SIZE = 8  # a restart looks for a set of fewer units: larger ones are hardly found by chance


@dataclass(frozen=True)
class Search:
    """How hard to search. `proof` is the maximum number of sets to try in a proof (None: set by `effort`)."""

    effort: Effort = "standard"
    confidence: float = 0.0
    proof: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.effort, str) or self.effort not in get_args(Effort):
            raise unknown_name("`effort`", self.effort, get_args(Effort))
        require_number("confidence", self.confidence, 0, 0.999)
        if self.proof is not None:
            require_number("proof", self.proof, 0, MAX_PROOF, integer=True)


# Of 1,003 smaller sets on seven columns, the exchange found one where its guesses had all been further off than this.
DOUBT = 0.1  # slack

_BUDGETS = {
    "quick": Budget(repairs=10, restarts=0, grown=1, exchanges=10, drops=6, adds=4, proof=0, doubt=DOUBT),
    "standard": Budget(
        repairs=30, restarts=0, grown=3, exchanges=28, drops=6, adds=4, proof=1_000, swaps=7, doubt=DOUBT
    ),
    "thorough": Budget(
        repairs=120,
        restarts=20,
        slack=2,
        grown=LARGE_SET,
        exchanges=130,
        drops=6,
        adds=8,
        proof=20_000,
        rounds=3,
        swaps=48,
    ),
    "exact": Budget(
        repairs=30, restarts=6, grown=3, exchanges=34, drops=6, adds=4, proof=300_000, partly=True, swaps=48
    ),
}


# The wider walks of these efforts end elsewhere, and not always better. So they go on from what `standard` has found.
_LADDER: dict[str, tuple[Effort, ...]] = {"thorough": ("standard", "thorough"), "exact": ("standard", "exact")}


@dataclass(frozen=True, eq=False)
class Choice:
    """The units that were chosen [units], their cost per instance, and what a search has found out about them.

    `status` is None for methods that do not look for a passing set.
    """

    selected: Tensor  # [units] bool
    evaluations: Tensor  # [B], forward passes of one instance; a backward counts as two
    status: Sequence[str] | None = None  # [B] of found, not found, impossible
    minimal: Sequence[bool | None] | None = None  # [B]
    optimal: Sequence[bool | None] | None = None  # [B]
    notes: Sequence[str] | None = None  # [B]
    lower_bound: Sequence[int] | None = None  # [B], no set of a smaller size passes


def proof_budget(settings: Search) -> int:
    """The most sets to try in a proof."""
    return _BUDGETS[settings.effort].proof if settings.proof is None else settings.proof


def search(
    oracle: Oracle,
    criterion: Criterion,
    tests: tuple[Test, ...],
    scores: Tensor,
    settings: Search,
    constraints: Constraints | None = None,
    why: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
    best: Incumbents | None = None,
    grows: bool = True,
) -> Choice:
    """The smallest set per instance that passes the tests, keeps to the constraints, and that the effort finds.

    If one test of `why` is asked and nothing is proved, `why` is answered as well, so that no answer is larger than
    that one. `why` gives the scores for that [units] of some instances and their cost [B]; None: `scores`. `best` is
    told of every set that passes. Sets that are grown from nothing do not depend on scores, so a search with other
    scores need not grow them again.
    """
    trials = Trials(oracle, criterion, tests, settings.confidence, constraints, best=best)
    dense, most = oracle.dense(scores, float("-inf")), proof_budget(settings)
    proof = None
    for effort in _LADDER.get(settings.effort, (settings.effort,)):
        budget = _BUDGETS[effort] if grows else replace(_BUDGETS[effort], grown=0)
        proof, ranking = _answered(trials, dense, budget, min(most, MAX_FIRST_PROOF), proof)
    assert proof is not None
    rows = _beside_why(trials, proof)
    if len(rows):
        scores_for_why, cost = (dense[rows][trials.valid[rows]], 0) if why is None else why(rows)
        part = None if constraints is None else constraints.take(rows)
        both = search(oracle.take(rows), criterion.take(rows), WHY, scores_for_why, settings, part, grows=grows)
        trials.evaluations[rows] += both.evaluations + cost
        sets, passed = _no_larger(trials, rows, proof, both, ranking)
        proof = prove(trials, sets, passed, min(most, MAX_FIRST_PROOF), proof)
    if most > MAX_FIRST_PROOF or budget.partly:
        proof = prove(trials, proof.sets, proof.passed, most, proof, partly=budget.partly)
    return _choice(trials, replace(proof, sets=_widened(trials, proof, ranking, budget)))


def _answered(trials: Trials, scores: Tensor, budget: Budget, most: int, before: Proof | None) -> tuple[Proof, Tensor]:
    """What an effort finds, and the ranking of its start [B, U]; it goes on from what a lower effort found `before`."""
    sets, passed, ranking = _start(trials, scores, budget, most)
    if before is not None:
        smaller = trials.size(trials.rows, before.sets) <= trials.size(trials.rows, sets)
        kept = before.passed & (~passed | smaller)
        sets, passed = torch.where(kept[:, None], before.sets, sets), passed | kept
    proof = prove(trials, sets, passed, most, before)  # if it can be made now, there is nothing to improve
    proof = _try_smallest(trials, proof, min(most, MAX_SMALLEST_SETS))
    alive = (proof.passed & ~proof.optimal).nonzero().flatten()
    if len(alive):
        sets = proof.sets.clone()
        sets[alive] = _improve(trials, alive, sets[alive], ranking[alive], budget)
        proof = prove(trials, sets, proof.passed, most, proof)
    return proof, ranking


def _try_smallest(trials: Trials, proof: Proof, budget: int) -> Proof:
    """Try the smallest sets of the instances for which no set is known to pass."""
    # If the model has a default answer, the empty set and single units often pass one of the tests. Rankings mislead
    # then, and none of their prefixes is that small.
    if proof.passed.all() or not budget:
        return proof
    only_failed = replace(proof, optimal=proof.optimal | proof.passed)
    tried = prove(trials, proof.sets, proof.passed, budget, only_failed, partly=True)
    return replace(tried, optimal=torch.where(proof.passed, proof.optimal, tried.optimal))


def _beside_why(trials: Trials, proof: Proof) -> Tensor:
    """The instances that are asked one test of `why`, and for which an answer to `why` may be smaller."""
    one_test = trials.oracle.absent is None and len(trials.tests) == 1
    todo = ~proof.optimal & ~proof.impossible & (~proof.passed | (proof.sets.sum(1) > 1))
    return (todo & one_test & (trials.counts > 0)).nonzero().flatten()


def _no_larger(trials: Trials, rows: Tensor, proof: Proof, both: Choice, ranking: Tensor) -> tuple[Tensor, Tensor]:
    """Sets [B, U], and whether they pass, that are no larger than the answers to `why` of instances `rows`."""
    sets, passed = proof.sets.clone(), proof.passed.clone()
    answers = torch.zeros_like(sets[rows])
    answers[trials.valid[rows]] = both.selected
    improved = rows[take_smaller(trials, rows, sets, passed, answers, trials.passes(rows, answers))]
    sets[improved] = prune_single(trials, improved, sets[improved], ranking[improved])
    return sets, passed


def _widened(trials: Trials, proof: Proof, ranking: Tensor, budget: Budget) -> Tensor:
    """Passing sets with the widest margin in reach, from which needless units are dropped.

    A set ends where no single drop passes, which is the proof of `minimal`. Each step of widening changes most sets, so
    single drops are tried once after it and not before.
    """
    sets = proof.sets.clone()
    rows = (proof.passed & (budget.swaps > 0)).nonzero().flatten()
    while len(rows):
        sets[rows] = widen(trials, rows, sets[rows], budget.swaps)
        rows = rows[~proof.optimal[rows]]
        fewer = drop_loose(trials, rows, sets[rows], ranking[rows])
        smaller = (fewer != sets[rows]).any(1)
        sets[rows] = fewer
        rows = rows[smaller]
    return sets


def _in_order(trials: Trials, scores: Tensor) -> Tensor:
    """Scores [B, U] as a ranking without ties: minus the position of each unit."""
    return -in_order(scores.masked_fill(~trials.valid, float("-inf"))).float()


def _steepest(trials: Trials) -> Tensor:
    """A second ranking, for one gradient: by how much adding each unit to nothing would help the tests."""
    _, slope = trials.slopes(trials.rows, trials.admissible(trials.rows, torch.zeros_like(trials.valid)))
    return _in_order(trials, slope.sum(2))


def _start(trials: Trials, scores: Tensor, budget: Budget, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """A first set per instance [B, U], whether it passes [B], and the ranking that it came from [B, U]."""

    def settle(sets: Tensor, passed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        proof = replace(unproved(trials, sets, passed), optimal=passed)  # those that pass are not proved here
        if most:
            proof = prove(trials, sets, passed, most, proof)
        return proof.sets, proof.passed, proof.impossible

    given = _in_order(trials, scores)
    if trials.oracle.absent is not None:
        return *start_edits(trials, given, budget), given
    rankings = torch.stack([given, _steepest(trials)])
    sets, outcome, way = prefixes(trials, *rankings)
    ranking = rankings[way, trials.rows]
    sets, passed, never = repair(trials, sets, outcome, budget, settle)
    sets = prune(trials, trials.rows, sets, ranking, passed)
    return *_regrow(trials, sets, passed, never, budget), ranking


def _regrow(trials: Trials, sets: Tensor, passed: Tensor, never: Tensor, budget: Budget) -> tuple[Tensor, Tensor]:
    """Try a set that is grown from nothing: a few units, or many if the ranking led to a large set or to none."""
    if not budget.grown:
        return sets, passed
    size = sets.sum(1)
    many_units = trials.counts > MANY_UNITS
    few = torch.minimum(size - 1, torch.where(many_units, budget.grown, 0))
    most = torch.where(~passed | (many_units & (size > LARGE_SET)), LARGE_SET, few)
    rows = ((most > 0) & ~never).nonzero().flatten()
    sets, passed = sets.clone(), passed.clone()
    take_smaller(trials, rows, sets, passed, *grow(trials, rows, most[rows], 2 * budget.adds))
    return sets, passed


def _improve(trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor, budget: Budget) -> Tensor:
    """Leap, exchange and prune; then start again from prunings of everything in other orders, and keep the best."""
    if trials.oracle.has_slopes and trials.price is None:
        sets = sets.clone()
        many = (trials.counts[rows] > MANY_UNITS).nonzero().flatten()
        sets[many] = leap(trials, rows[many], sets[many], LARGE_SET)
    best = exchange(trials, rows, sets, budget)
    only = budget.rounds + budget.restarts == 1
    if not (only and budget.swaps):  # `_widened` tries single drops too
        best = prune_single(trials, rows, best, ranking)
    if only:
        return best
    everything = trials.selectable[rows]
    passes = trials.passes(rows, everything)  # everything removed may leave the answer as it is
    for number in range(1, budget.rounds):
        order = _shuffled(trials, rows, number)
        other = prune(trials, rows, torch.where(passes[:, None], everything, sets), order, torch.ones_like(passes))
        other = prune_single(trials, rows, exchange(trials, rows, other, budget), order)
        best = torch.where((trials.size(rows, other) < trials.size(rows, best))[:, None], other, best)
    if budget.restarts:
        most = trials.width if trials.oracle.local else LARGE_SET  # larger sets only if trials are cheap
        worth = (best.sum(1) > 1) & (best.sum(1) <= most)
        todo = (passes & (trials.counts[rows] > MANY_UNITS) & worth).nonzero().flatten()
        best[todo] = _restart(trials, rows[todo], best[todo], budget)
    return best


def _restart(trials: Trials, rows: Tensor, best: Tensor, budget: Budget) -> Tensor:
    """Prune everything in other orders, all at once, and go on from the smallest set if it is smaller than the best."""
    best, count, times = best.clone(), len(rows), budget.restarts
    repeated = rows.repeat(times)
    order = torch.cat([_shuffled(trials, rows, budget.rounds + number) for number in range(times)])
    below = budget.slack * best.sum(1).clamp(max=MAX_RESTART_SIZE).repeat(times)
    passed = torch.ones_like(repeated, dtype=torch.bool)
    other = prune(trials, repeated, trials.selectable[repeated], order, passed, below)
    smallest = trials.size(repeated, other).view(times, count).argmin(0) * count
    smallest += torch.arange(count, device=rows.device)
    other, order = other[smallest], order[smallest]
    hit = (trials.size(rows, other) < trials.size(rows, best)).nonzero().flatten()
    best[hit] = prune_single(trials, rows[hit], exchange(trials, rows[hit], other[hit], budget), order[hit])
    return best


def _shuffled(trials: Trials, rows: Tensor, number: int) -> Tensor:
    """The units in another order, which does not depend on what an instance is packed with."""
    # The seed is the number of the restart alone, so a unit gets the same noise in every pack.
    noise = torch.from_numpy(np.random.default_rng(number).random(trials.width, dtype=np.float32))
    return torch.where(trials.selectable[rows], noise.to(rows.device), float("-inf"))


def _choice(trials: Trials, proof: Proof) -> Choice:
    found = proof.passed
    status = [
        "found" if good else "impossible" if never else "not found"
        for good, never in zip(found.tolist(), proof.impossible.tolist())
    ]
    minimal: list[bool | None] = [True if good else None for good in found.tolist()]
    optimal: list[bool | None] = [True if proved else None for proved in proof.smallest(trials).tolist()]
    bound = proof.lower_bound(trials).tolist()
    return Choice(trials.flat(proof.sets), trials.evaluations, status, minimal, optimal, lower_bound=bound)
