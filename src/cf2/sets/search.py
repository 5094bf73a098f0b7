"""The constrained problem: from scores to the smallest set that passes the tests of the question.

1. *Start* from the smallest prefix of two rankings, the given one and one by slope, that passes the tests; where none
   does, repair the nearest.
2. *Prune*: drop blocks of the least important units, then single ones, while the tests pass. Where that
   leaves many, *grow* a set from nothing instead.
3. *Prove* (`proof.py`): try every smaller set where that fits the budget. What is proved needs nothing more. Where
   no set is known to pass, the smallest sets are tried as far as a small budget goes.
4. *Exchange*: leave one unit out and swap others, guided by slopes that learn from every trial, until both pass again.
5. *Restart* where there are many units: prune them in other orders, and go on from what is smaller. Then prove.
6. *Widen* (`margins.py`): of the sets of that size, take one whose tests hold by a wider margin.

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
from cf2.sets.moves import Budget, exchange, grow, prefixes, prune, prune_single, repair, start_edits, widen
from cf2.sets.oracle import Oracle
from cf2.sets.proof import Proof, prove
from cf2.sets.tests import QUESTIONS, Criterion, Test
from cf2.sets.trials import Constraints, Trials, in_order

Effort = Literal["quick", "standard", "thorough", "exact"]
WHY = QUESTIONS["why"]
LARGE_SET = 14  # a set of more units is worth a second way to start
MANY_UNITS = 64  # and so is a choice among more units than this
FIRST_PROOF = 1_000  # sets that a proof may take before anything else is tried
LAST_PROOF = 200  # sets that are tried by size where nothing else has led to one that passes
MAX_PROOF = 10**9  # sets: more than a month of trials
MAX_RESTART_SIZE = 8  # a restart looks for a set of fewer units: larger ones are hardly found by chance


@dataclass(frozen=True)
class Search:
    """How hard to search. `proof` is the most sets to try in proving an answer smallest (None: by effort)."""

    effort: Effort = "standard"
    confidence: float = 0.0
    proof: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.effort, str) or self.effort not in get_args(Effort):
            raise unknown_name("`effort`", self.effort, get_args(Effort))
        require_number("confidence", self.confidence, 0, 0.999)
        if self.proof is not None:
            require_number("proof", self.proof, 0, MAX_PROOF, integer=True)


_BUDGETS = {
    "quick": Budget(repairs=10, restarts=0, grown=1, exchanges=10, drops=6, adds=4, proof=0),
    "standard": Budget(repairs=30, restarts=0, grown=3, exchanges=24, drops=6, adds=4, proof=1_000, swaps=8),
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


# The wider walks of these efforts end elsewhere, and not always better: they go on from what `standard` has found.
_LADDER: dict[str, tuple[Effort, ...]] = {"thorough": ("standard", "thorough"), "exact": ("standard", "exact")}


@dataclass(frozen=True, eq=False)
class Choice:
    """The units that were chosen [units], what that cost per instance, and what a search knows of them.

    `status` is None where no passing set was looked for.
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
) -> Choice:
    """The smallest set per instance that passes the tests, keeps to the constraints, and that the effort finds.

    Where one test of `why` is asked and nothing is proved, the answer to `why` is looked for as well, so that no answer
    is larger. `why` gives the scores for that [units] of some instances, and what they cost [B]; None: `scores`.
    """
    trials = Trials(oracle, criterion, tests, settings.confidence, constraints)
    dense, most = oracle.dense(scores, float("-inf")), proof_budget(settings)
    *lesser, budget = (_BUDGETS[effort] for effort in _LADDER.get(settings.effort, (settings.effort,)))
    before = None
    for less in lesser:
        before, _ = _answered(trials, dense, less, min(most, FIRST_PROOF), before)
    proof, ranking = _answered(trials, dense, budget, min(most, FIRST_PROOF), before)
    rows = _beside_why(trials, proof)
    if len(rows):
        own, cost = (dense[rows][trials.valid[rows]], 0) if why is None else why(rows)
        part = None if constraints is None else constraints.take(rows)
        both = search(oracle.take(rows), criterion.take(rows), WHY, own, settings, part)
        trials.evaluations[rows] += both.evaluations + cost
        sets, passed = _no_larger(trials, rows, proof, both, ranking)
        proof = prove(trials, sets, passed, min(most, FIRST_PROOF), proof)
    if most > FIRST_PROOF or budget.partly:
        proof = prove(trials, proof.sets, proof.passed, most, proof, partly=budget.partly)
    return _choice(trials, replace(proof, sets=_widened(trials, proof, ranking, budget)))


def _answered(trials: Trials, scores: Tensor, budget: Budget, most: int, before: Proof | None) -> tuple[Proof, Tensor]:
    """What an effort finds, from what a lesser one has found `before`, and the ranking of its start [B, U]."""
    sets, passed, ranking = _start(trials, scores, budget, most)
    if before is not None:
        every = torch.arange(len(passed), device=passed.device)
        smaller = trials.size(every, before.sets) <= trials.size(every, sets)
        kept = before.passed & (~passed | smaller)
        sets, passed = torch.where(kept[:, None], before.sets, sets), passed | kept
    proof = prove(trials, sets, passed, most, before)  # where that is affordable now, there is nothing to improve
    proof = _lost(trials, proof, min(most, LAST_PROOF))
    alive = (proof.passed & ~proof.optimal).nonzero().flatten()
    if len(alive):
        sets = proof.sets.clone()
        sets[alive] = _improve(trials, alive, sets[alive], ranking[alive], budget)
        proof = prove(trials, sets, proof.passed, most, proof)
    return proof, ranking


def _lost(trials: Trials, proof: Proof, budget: int) -> Proof:
    """Try the smallest sets where none is known to pass: rankings mislead where nothing at all keeps the answer."""
    # The empty set and single units often pass where the model has a default answer; no prefix of a ranking is that.
    if proof.passed.all() or not budget:
        return proof
    known = replace(proof, optimal=proof.optimal | proof.passed)  # those that pass are left as they are
    tried = prove(trials, proof.sets, proof.passed, budget, known, partly=True)
    return replace(tried, optimal=torch.where(proof.passed, proof.optimal, tried.optimal))


def _beside_why(trials: Trials, proof: Proof) -> Tensor:
    """The instances of which one test of `why` is asked, and for which an answer to `why` may be the smaller one."""
    part = trials.oracle.absent is None and len(trials.tests) == 1
    todo = ~proof.optimal & ~proof.impossible & (~proof.passed | (proof.sets.sum(1) > 1))
    return (todo & part & (trials.counts > 0)).nonzero().flatten()


def _no_larger(trials: Trials, rows: Tensor, proof: Proof, both: Choice, ranking: Tensor) -> tuple[Tensor, Tensor]:
    """Sets [B, U], and whether they pass, that are no larger than the answers to `why` of some instances."""
    sets, passed = proof.sets.clone(), proof.passed.clone()
    theirs = torch.zeros_like(sets[rows])
    theirs[trials.valid[rows]] = both.selected
    better = trials.passes(rows, theirs)
    better &= ~passed[rows] | (trials.size(rows, theirs) < trials.size(rows, sets[rows]))
    mine = rows[better]
    sets[mine] = prune_single(trials, mine, theirs[better], ranking[mine])
    passed[mine] = True
    return sets, passed


def _widened(trials: Trials, proof: Proof, ranking: Tensor, budget: Budget) -> Tensor:
    """Passing sets with the widest margin in reach; where a swap makes another unit needless, that is dropped."""
    sets = proof.sets.clone()
    rows = (proof.passed & (budget.swaps > 0)).nonzero().flatten()
    while len(rows):
        wide = widen(trials, rows, sets[rows], budget.swaps)
        changed = (wide != sets[rows]).any(1)
        sets[rows] = wide
        rows = rows[changed & ~proof.optimal[rows]]
        fewer = prune_single(trials, rows, sets[rows], ranking[rows])
        smaller = fewer.sum(1) < sets[rows].sum(1)
        sets[rows] = fewer
        rows = rows[smaller]
    return sets


def _in_order(trials: Trials, scores: Tensor) -> Tensor:
    return -in_order(scores.masked_fill(~trials.valid, float("-inf"))).float()


def _steepest(trials: Trials, rows: Tensor) -> Tensor:
    """The units by how much adding each to nothing would help the tests: a second opinion, for one gradient."""
    _, slope = trials.slopes(rows, trials.admissible(rows, torch.zeros_like(trials.valid)))
    return _in_order(trials, slope.sum(2))


def _start(trials: Trials, scores: Tensor, budget: Budget, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """A first set per instance [B, U], whether it passes [B], and the ranking that it came from [B, U]."""

    def settle(sets: Tensor, passed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        never = torch.zeros_like(passed)
        if not most:
            return sets, passed, never
        known = Proof(sets, passed, passed, never, torch.zeros_like(trials.counts))  # those that pass are left alone
        proof = prove(trials, sets, passed, most, known)
        return proof.sets, proof.passed, proof.impossible

    every = torch.arange(len(trials.counts), device=trials.valid.device)
    given = _in_order(trials, scores)
    if trials.oracle.absent is not None:
        return *start_edits(trials, given, budget), given
    rankings = torch.stack([given, _steepest(trials, every)])
    sets, outcome, way = prefixes(trials, *rankings)
    ranking = rankings[way, every]
    sets, passed, never = repair(trials, sets, outcome, budget, settle)
    sets = prune(trials, every, sets, ranking, passed)
    return *_regrow(trials, sets, passed, never, budget), ranking


def _regrow(trials: Trials, sets: Tensor, passed: Tensor, never: Tensor, budget: Budget) -> tuple[Tensor, Tensor]:
    """Try a set that is grown from nothing: a few units, or many where the ranking led to a large set or to none."""
    size = sets.sum(1)
    crowded = trials.counts > MANY_UNITS
    few = torch.minimum(size - 1, torch.where(crowded, budget.grown, 0))
    most = torch.where(~passed | (crowded & (size > LARGE_SET)), LARGE_SET, few)
    rows = ((most > 0) & ~never).nonzero().flatten()
    grown, good = grow(trials, rows, most[rows], 2 * budget.adds)
    better = rows[good & (~passed[rows] | (trials.size(rows, grown) < trials.size(rows, sets[rows])))]
    sets, passed = sets.clone(), passed.clone()
    sets[better] = grown[torch.isin(rows, better)]
    passed[better] = True
    return sets, passed


def _improve(trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor, budget: Budget) -> Tensor:
    """Exchange and prune; then start again from prunings of everything in other orders, and keep the best."""
    best = prune_single(trials, rows, exchange(trials, rows, sets, budget), ranking)
    if budget.rounds + budget.restarts == 1:
        return best
    whole = trials.selectable[rows]
    passes = trials.passes(rows, whole)  # not every whole graph does
    for number in range(1, budget.rounds):
        order = _shuffled(trials, rows, number)
        other = prune(trials, rows, torch.where(passes[:, None], whole, sets), order, torch.ones_like(passes))
        other = prune_single(trials, rows, exchange(trials, rows, other, budget), order)
        best = torch.where((trials.size(rows, other) < trials.size(rows, best))[:, None], other, best)
    if budget.restarts:
        most = trials.width if trials.oracle.local else LARGE_SET  # larger sets are worth it where trials are cheap
        worth = (best.sum(1) > 1) & (best.sum(1) <= most)
        todo = (passes & (trials.counts[rows] > MANY_UNITS) & worth).nonzero().flatten()
        best[todo] = _restart(trials, rows[todo], best[todo], budget)
    return best


def _restart(trials: Trials, rows: Tensor, best: Tensor, budget: Budget) -> Tensor:
    """Prune everything in other orders, all at once, and go on from the smallest set where that is smaller."""
    best, count, times = best.clone(), len(rows), budget.restarts
    many = rows.repeat(times)
    order = torch.cat([_shuffled(trials, rows, budget.rounds + number) for number in range(times)])
    below = budget.slack * best.sum(1).clamp(max=MAX_RESTART_SIZE).repeat(times)
    other = prune(trials, many, trials.selectable[many], order, torch.ones_like(many, dtype=torch.bool), below)
    first = trials.size(many, other).view(times, count).argmin(0) * count + torch.arange(count, device=rows.device)
    other, order = other[first], order[first]
    hit = (trials.size(rows, other) < trials.size(rows, best)).nonzero().flatten()
    best[hit] = prune_single(trials, rows[hit], exchange(trials, rows[hit], other[hit], budget), order[hit])
    return best


def _shuffled(trials: Trials, rows: Tensor, number: int) -> Tensor:
    """The units in another order, the same whatever an instance is packed with."""
    # The stream depends on the number of the restart alone, so a unit gets the same noise in every pack.
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
