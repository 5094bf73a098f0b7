"""The constrained problem: from scores to the smallest set that is verified sufficient and necessary.

1. *Start* from the smallest prefix of the ranking that passes both tests; where none does, repair the nearest.
2. *Prune*: drop blocks of the least important units, then single ones, while both tests pass.
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
from cf2.packing import Pack
from cf2.predictor import Predictor
from cf2.trials import Outcome, Trials, best_of, score

Effort = Literal["quick", "standard", "thorough"]


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


@dataclass(frozen=True)
class _Budget:
    repairs: int  # moves towards a first passing set
    exchanges: int  # moves without a smaller set before an instance is left alone
    drops: int  # candidates tried in each move that drops a unit
    adds: int  # candidates tried in each move that adds one
    proof: int  # sets tried to prove an answer smallest
    rounds: int = 1  # exchanges from so many starts


_BUDGETS = {
    "quick": _Budget(repairs=10, exchanges=4, drops=3, adds=4, proof=0),
    "standard": _Budget(repairs=30, exchanges=10, drops=4, adds=4, proof=60),
    "thorough": _Budget(repairs=120, exchanges=40, drops=6, adds=8, proof=20_000, rounds=3),
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
    sets, passed = _prefixes(trials, ranking)
    sets, passed = _repair(trials, sets, passed, budget)
    alive = passed.nonzero().flatten()
    if len(alive):
        sets[alive] = _improve(trials, alive, sets[alive], ranking[alive], budget)
    proof = prove(trials, sets, passed, budget.proof if settings.proof is None else settings.proof)
    return _found(trials, proof, passed)


def _improve(trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor, budget: _Budget) -> Tensor:
    """Prune and exchange; with several rounds, start again from prunings in other orders and keep the best."""
    best = sets
    for number in range(budget.rounds):
        order = ranking if number == 0 else _shuffled(ranking, number)
        start = sets if number == 0 else trials.open[rows].clone()
        keep = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        if number:  # not every whole graph passes
            keep = trials.passes(rows, start)
        start[~keep] = best[~keep]
        small = _exchange(trials, rows, _prune(trials, rows, start, order), budget)
        small = _prune_single(trials, rows, small)
        better = small.sum(1) < best.sum(1) if number else torch.ones_like(keep)
        best = torch.where(better[:, None], small, best)
    return best


def _shuffled(ranking: Tensor, number: int) -> Tensor:
    """The same units in an order drawn from a fixed stream."""
    stream = torch.Generator().manual_seed(number)
    noise = torch.rand(ranking.size(1), generator=stream).to(ranking.device)
    return torch.where(ranking.isinf(), ranking, noise[None])


def _found(trials: Trials, proof: Proof, passed: Tensor) -> Found:
    found = passed | proof.passed
    status = [
        "found" if good else "impossible" if never else "not found"
        for good, never in zip(found.tolist(), proof.impossible.tolist())
    ]
    minimal: list[bool | None] = [True if good else None for good in found.tolist()]
    optimal: list[bool | None] = [True if proved else None for proved in proof.optimal.tolist()]
    return Found(trials.flat(proof.sets), status, minimal, optimal, trials.evaluations)


# -- 1. start ----------------------------------------------------------------------------------------------


def _prefixes(trials: Trials, ranking: Tensor) -> tuple[Tensor, Tensor]:
    """The shortest tried prefix that passes, else the tried prefix nearest to passing."""
    place = ranking.argsort(dim=1, descending=True, stable=True).argsort(1)
    rows, sets = [], []
    for length in _lengths(trials.width):
        fits = ((trials.pack.units > length) | (length == trials.width)).nonzero().flatten()
        rows.append(fits)
        sets.append((place[fits] < length) & trials.open[fits])
    if not rows:
        empty = torch.zeros_like(trials.valid)
        return empty, torch.zeros(len(empty), dtype=torch.bool, device=empty.device)
    row, candidates = torch.cat(rows), torch.cat(sets)
    outcome = trials.run(row, candidates)
    size = candidates.sum(1)
    value = torch.where(outcome.passes, 1e6 - size, outcome.score.clamp(min=-1e5))
    winner = best_of(row, value, trials.pack.size)
    return candidates[winner], outcome.passes[winner]


def _lengths(width: int) -> list[int]:
    """Sizes to try: a few small ones, then by a quarter more each, and everything."""
    lengths, length = [], 2
    while length < width:
        lengths.append(length)
        length = max(length + 2, int(length * 1.5))
    return [*lengths, width] if width else []


def _repair(trials: Trials, sets: Tensor, passed: Tensor, budget: _Budget) -> tuple[Tensor, Tensor]:
    """Add or drop the most promising unit of sets that fail, until they pass or the budget is spent."""
    best = torch.full((len(sets),), float("-inf"), device=sets.device)
    offer, current = sets.clone(), sets.clone()
    passed = passed.clone()
    tabu = torch.zeros(sets.shape, dtype=torch.long, device=sets.device)
    for move in range(1, budget.repairs + 1):
        rows = (~passed & (trials.pack.units > 0)).nonzero().flatten()
        if not len(rows):
            break
        held = tabu[rows] > move
        picked, outcome, unit = _move(trials, rows, current[rows], held, budget.drops, budget.adds)
        current[rows], passed[rows] = picked, outcome.passes
        tabu[rows, unit] = move + 5
        nearer = (outcome.score > best[rows]) | outcome.passes
        best[rows] = torch.where(nearer, outcome.score, best[rows])
        offer[rows] = torch.where(nearer[:, None], picked, offer[rows])
    return offer, passed


# -- 2. prune ----------------------------------------------------------------------------------------------


def _prune(trials: Trials, rows: Tensor, sets: Tensor, ranking: Tensor) -> Tensor:
    """Drop runs of the least important units, halving their length, then single ones, while both tests pass."""
    sets = sets.clone()
    length = sets.sum(1) // 2
    skip = torch.zeros_like(length)  # units at the bottom of the ranking that have proved needed
    while True:
        todo = ((length > 0) & (skip < sets.sum(1))).nonzero().flatten()
        if not len(todo):
            return sets
        order = ranking[todo].masked_fill(~sets[todo], float("inf")).argsort(dim=1, stable=True).argsort(1)
        first = skip[todo, None]
        block = sets[todo] & (order >= first) & (order < first + length[todo, None])
        candidates = sets[todo] & ~block
        good = trials.passes(rows[todo], candidates)
        sets[todo[good]] = candidates[good]
        skip[todo[~good]] += length[todo[~good]]
        over = todo[skip[todo] >= sets[todo].sum(1)]
        finer = over[length[over] > 1]
        length[over[length[over] == 1]] = 0
        length[finer] = (length[finer] // 2).clamp(min=1)
        skip[finer] = 0


def _prune_single(trials: Trials, rows: Tensor, sets: Tensor) -> Tensor:
    """Drop single units until every one left is needed: the proof of `minimal`."""
    sets = sets.clone()
    todo = torch.arange(len(rows), device=rows.device)
    while len(todo):
        owner, unit = sets[todo].nonzero(as_tuple=True)
        candidates = sets[todo[owner]].clone()
        candidates[torch.arange(len(unit), device=unit.device), unit] = False
        good = trials.passes(rows[todo[owner]], candidates).nonzero().flatten()
        first = best_of(owner[good], -good.float(), len(todo))
        found = (first >= 0).nonzero().flatten()
        sets[todo[found]] = candidates[good[first[found]]]
        todo = todo[found]
    return sets


# -- 3. exchange -------------------------------------------------------------------------------------------


def _exchange(trials: Trials, rows: Tensor, sets: Tensor, budget: _Budget) -> Tensor:
    """Look for a passing set one smaller: drop a unit, then swap units until both tests pass again.

    A unit that was just moved is left alone for a few moves, so that the walk does not step back.
    """
    best, current = sets.clone(), sets.clone()
    left = torch.full((len(rows),), budget.exchanges, device=rows.device)
    held = torch.zeros(sets.shape, dtype=torch.long, device=sets.device)
    move = 0
    while True:
        move += 1
        live = ((left > 0) & (current.sum(1) > 1)).nonzero().flatten()
        if not len(live):
            return best
        picked, outcome, unit = _move(trials, rows[live], current[live], held[live] > move, budget.drops, 0)
        current[live] = picked
        held[live, unit] = move + 4
        hit = live[outcome.passes & (picked.sum(1) < best[live].sum(1))]
        best[hit], left[hit], held[hit] = current[hit], budget.exchanges + 1, 0
        short = live[current[live].sum(1) == best[live].sum(1) - 1]
        if len(short):
            picked, outcome, unit = _move(trials, rows[short], current[short], held[short] > move, 0, budget.adds)
            current[short] = picked
            held[short, unit] = move + 3
        left[live] -= 1


def _move(
    trials: Trials, rows: Tensor, sets: Tensor, held: Tensor, drops: int, adds: int
) -> tuple[Tensor, Outcome, Tensor]:
    """The best of the most promising single drops and adds, chosen by slopes and decided by trials."""
    only, without, up, down = trials.slopes(rows, sets)
    sign = torch.where(sets, -1.0, 1.0)
    guess = score(only[:, None] + sign * up, without[:, None] + sign * down)
    allowed = trials.open[rows] & torch.where(sets, drops > 0, adds > 0)
    guess = guess.masked_fill(~allowed, float("-inf"))
    guess = torch.where(held & allowed, guess - 1e6, guess)  # a held unit is the last resort
    chosen = []
    for kind, count in ((sets, drops), (~sets, adds)):
        if count:
            chosen.append(guess.masked_fill(~kind, float("-inf")).topk(min(count, guess.size(1)), 1))
    value, unit = (torch.cat(column, 1) for column in zip(*chosen))
    owner, place = value.isfinite().nonzero(as_tuple=True)
    unit = unit[owner, place]
    candidates = sets[owner].clone()
    candidates[torch.arange(len(owner), device=owner.device), unit] ^= True
    outcome = trials.run(rows[owner], candidates)
    winner = best_of(owner, outcome.score + 1e3 * outcome.passes, len(rows))
    return candidates[winner], outcome.take(winner), unit[winner]
