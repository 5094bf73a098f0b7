"""The constrained problem: from scores to the smallest set that is verified sufficient and necessary.

1. *Start* from the smallest prefix of the ranking that passes both tests; where none does, repair the nearest.
2. *Prune*: drop blocks of the least important units, then single ones, while both tests pass. Where that
   leaves many, *grow* a set from nothing instead.
3. *Exchange*: leave one unit out and swap others, guided by the slopes of both tests, until both pass again.
4. *Prove* (`exact.py`): try every smaller set where that fits the budget.

Every step is packed over all instances at once. A set is only ever accepted by the model's own verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from cf2.errors import require_number, unknown_name
from cf2.exact import Proof, prove
from cf2.moves import Budget, exchange, grow, prefixes, prune, prune_single, repair
from cf2.packing import Pack
from cf2.predictor import Predictor
from cf2.trials import Trials

Effort = Literal["quick", "standard", "thorough"]
LARGE = 14  # a set of more units is worth a second way to start
CROWDED = 64  # and so is a choice among more units than this


@dataclass(frozen=True)
class Search:
    """How hard to look. `proof` is the most sets to try in proving an answer smallest (None: by effort)."""

    effort: Effort = "standard"
    confidence: float = 0.0
    proof: int | None = None

    def __post_init__(self) -> None:
        if self.effort not in get_args(Effort):
            raise unknown_name("`effort`", self.effort, get_args(Effort))
        require_number("confidence", self.confidence, 0, 0.999)
        if self.proof is not None:
            require_number("proof", self.proof, 0, integer=True)


_BUDGETS = {
    "quick": Budget(repairs=10, exchanges=4, drops=3, adds=4, grown=1, proof=0),
    "standard": Budget(repairs=30, exchanges=10, drops=4, adds=4, grown=3, proof=1_000),
    "thorough": Budget(repairs=120, exchanges=40, drops=6, adds=8, grown=LARGE, proof=20_000, rounds=3),
}


@dataclass(frozen=True, eq=False)
class Found:
    """What the search ended with: sets [units], and per instance the verdicts and what they cost."""

    selected: Tensor  # [units] bool
    status: list[str]  # found, not found, impossible
    minimal: list[bool | None]
    optimal: list[bool | None]
    evaluations: Tensor  # [B]


def search(predictor: Predictor, pack: Pack, y: Tensor, scores: Tensor, settings: Search) -> Found:
    """The smallest verified set of every instance that the budget of `settings.effort` finds."""
    budget = _BUDGETS[settings.effort]
    trials = Trials(predictor, pack, y, settings.confidence)
    ranking = trials.dense(scores, float("-inf"))
    sets, passed = prefixes(trials, ranking)
    sets, passed = repair(trials, sets, passed, budget)
    sets = prune(trials, torch.arange(pack.size, device=y.device), sets, ranking, passed)
    sets, passed = _regrow(trials, sets, passed, budget)
    alive = passed.nonzero().flatten()
    if len(alive):
        sets[alive] = _improve(trials, alive, sets[alive], ranking[alive], budget)
    proof = prove(trials, sets, passed, budget.proof if settings.proof is None else settings.proof)
    return _found(trials, proof, passed)


def _regrow(trials: Trials, sets: Tensor, passed: Tensor, budget: Budget) -> tuple[Tensor, Tensor]:
    """Try a set that is grown from nothing: a few units, or many where the ranking led to a large set or to none."""
    size = sets.sum(1)
    crowded = trials.pack.units > CROWDED
    few = torch.minimum(size - 1, torch.where(crowded, budget.grown, 0))
    most = torch.where(~passed | (crowded & (size > LARGE)), LARGE, few)
    rows = (most > 0).nonzero().flatten()
    grown, good = grow(trials, rows, most[rows], 2 * budget.adds)
    better = rows[good & (~passed[rows] | (grown.sum(1) < size[rows]))]
    sets, passed = sets.clone(), passed.clone()
    sets[better] = grown[torch.isin(rows, better)]
    passed[better] = True
    return sets, passed


def _improve(trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor, budget: Budget) -> Tensor:
    """Exchange and prune; with several rounds, start again from prunings in other orders and keep the best."""
    best = prune_single(trials, rows, exchange(trials, rows, sets, budget), ranking)
    for number in range(1, budget.rounds):
        start, order = trials.open[rows].clone(), _shuffled(ranking, number)
        fails = ~trials.passes(rows, start)  # not every whole graph passes
        start[fails] = sets[fails]
        other = prune(trials, rows, start, order, torch.ones_like(fails))
        other = prune_single(trials, rows, exchange(trials, rows, other, budget), order)
        best = torch.where((other.sum(1) < best.sum(1))[:, None], other, best)
    return best


def _shuffled(ranking: Tensor, number: int) -> Tensor:
    """The units in another order, the same whatever an instance is packed with."""
    place = torch.arange(1, ranking.size(1) + 1, device=ranking.device)
    noise = (place * (0.6180339887498949 + 0.137 * number)) % 1.0
    return torch.where(ranking.isinf(), ranking, noise[None].to(ranking.dtype))


def _found(trials: Trials, proof: Proof, passed: Tensor) -> Found:
    found = passed | proof.passed
    status = [
        "found" if good else "impossible" if never else "not found"
        for good, never in zip(found.tolist(), proof.impossible.tolist())
    ]
    minimal: list[bool | None] = [True if good else None for good in found.tolist()]
    optimal: list[bool | None] = [True if proved else None for proved in proof.optimal.tolist()]
    return Found(trials.flat(proof.sets), status, minimal, optimal, trials.evaluations)
