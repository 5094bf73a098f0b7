"""The moves of the search, each packed over all instances at once.

A set is only ever accepted by the model's own verdict; slopes and rankings decide what is tried first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.verify.race import race
from cf2.verify.trials import ALIKE, EQUAL, Outcome, Trials, best_of, score, top

TRIED = 2  # units beyond the first after which it is judged whether growing leads anywhere


@dataclass(frozen=True)
class Budget:
    """How much of everything an effort spends."""

    repairs: int  # moves towards a first passing set
    restarts: int  # prunings in other orders, where there are many units
    grown: int  # units that a set grown from nothing may have, where a small passing set is known
    exchanges: int  # moves without a smaller set before an instance is left alone
    drops: int  # candidates tried in each move that drops a unit
    adds: int  # candidates tried in each move that adds one
    proof: int  # sets tried to prove an answer smallest
    rounds: int = 1  # exchanges from so many starts
    partly: bool = False  # whether a proof goes on where it cannot reach the end, for a lower bound
    swaps: int = 0  # swaps without a wider margin before a smallest set is left alone
    slack: int = 1  # a restart is given up when it looks to end with so many times the units of the best set


# -- 1. start ----------------------------------------------------------------------------------------------


def prefixes(trials: Trials, *rankings: Tensor) -> tuple[Tensor, Outcome, Tensor]:
    """The shortest tried prefix of any ranking that passes, else the tried prefix nearest to passing.

    With what the tests gave, and which ranking it was [B].
    """
    rows, sets, ways = [], [], []
    for way, ranking in enumerate(rankings):
        place = ranking.argsort(dim=1, descending=True, stable=True).argsort(1)
        for length in _lengths(trials.width) or [0]:
            fits = ((trials.counts > length) | (length == trials.width)).nonzero().flatten()
            rows.append(fits)
            sets.append(trials.admissible(fits, place[fits] < length))
            ways.append(torch.full_like(fits, way))
    row, candidates, way_of = torch.cat(rows), torch.cat(sets), torch.cat(ways)
    size = trials.size(row, candidates)

    def value(outcome: Outcome) -> Tensor:
        return torch.where(outcome.passes, 1e6 - size, outcome.score.clamp(min=-1e5))

    outcome = race(trials, row, row, candidates, torch.full_like(row, len(trials.tests) - 1), value)
    winner = best_of(row, value(outcome), trials.pack.num_instances)  # everything is a candidate of each
    return candidates[winner], outcome.take(winner), way_of[winner]


def _lengths(width: int) -> list[int]:
    """Sizes to try: a few small ones, then by half as much again each, and everything."""
    lengths, length = [], 2
    while length < width:
        lengths.append(length)
        length = max(length + 2, int(length * 1.5))
    return [*lengths, width] if width else []


def repair(trials: Trials, sets: Tensor, start: Outcome, budget: Budget) -> tuple[Tensor, Tensor]:
    """Add or drop the most promising unit of sets that fail, until they pass or the budget is spent.

    `start` is what the tests gave for `sets`: where nothing nearer to passing is found, a set stays as it is.
    """
    passed = start.passes.clone()
    best = start.score.clone()
    nearest, current = sets.clone(), sets.clone()
    tabu = torch.zeros(sets.shape, dtype=torch.long, device=sets.device)
    for move in range(1, budget.repairs + 1):
        rows = (~passed & (trials.counts > 0)).nonzero().flatten()
        if not len(rows):
            break
        held = tabu[rows] > move
        picked, outcome, unit, _ = _move(trials, rows, current[rows], held, budget.drops, budget.adds)
        current[rows], passed[rows] = picked, outcome.passes
        tabu[rows, unit] = move + 5
        nearer = (outcome.score > best[rows] + EQUAL) | outcome.passes
        best[rows] = torch.where(nearer, outcome.score, best[rows])
        nearest[rows] = torch.where(nearer[:, None], picked, nearest[rows])
    return nearest, passed


def grow(trials: Trials, rows: Tensor, most: Tensor, adds: int) -> tuple[Tensor, Tensor]:
    """From nothing, add the most promising unit again and again: a small passing set where the ranking misled.

    Given up early where a test, going on as it did so far, would not be passed in time.
    """
    nothing = torch.zeros_like(trials.valid[rows])
    sets = trials.admissible(rows, nothing)
    passed = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    most = torch.minimum(most, trials.selectable[rows].sum(1))
    first = torch.zeros(len(rows), len(trials.tests), device=rows.device)  # the slack with the first unit
    step = 0
    while True:
        live = (~passed & (sets.sum(1) < most)).nonzero().flatten()
        if not len(live):
            return sets, passed
        picked, outcome, _, _ = _move(trials, rows[live], sets[live], nothing[live], 0, adds)
        stuck = (picked == sets[live]).all(1)  # nothing is left to add
        if step == 0:
            first[live] = outcome.slack
        elif step >= TRIED:
            pace = (outcome.slack - first[live]).clamp(min=0) / step
            stuck |= (outcome.slack + pace * (most[live] - picked.sum(1))[:, None] < 0).any(1)
        sets[live], passed[live], most[live[stuck]] = picked, outcome.passes, 0
        step += 1


# -- 2. exchange -------------------------------------------------------------------------------------------


def exchange(trials: Trials, rows: Tensor, sets: Tensor, budget: Budget, floor: Tensor | None = None) -> Tensor:
    """Look for a smaller passing set: drop a unit, add another, and again, until the tests pass with fewer.

    The walk never comes to the same set twice. An instance is left alone after some moves without a smaller set (more
    of them where trials are cheap), where nothing new is in reach, or where no set smaller than `floor` [R] passes and
    the best one has that size.
    """
    best, current = sets.clone(), sets.clone()
    patience = budget.exchanges * (1 if trials.fields is None else 2)
    left = torch.full_like(rows, patience)
    been = _name(trials, sets)[:, None]
    free = torch.zeros_like(sets)
    while True:
        size = trials.size(rows, best)
        live = ((left > 0) & (current.sum(1) > 1) & (True if floor is None else size > floor)).nonzero().flatten()
        if not len(live):
            return best
        left[live] -= 1
        slopes = trials.slopes(rows[live], current[live])
        picked, outcome, _, new = _move(
            trials, rows[live], current[live], free[live], budget.drops, 0, slopes, been[live]
        )
        current[live], been = picked, _been(trials, been, live, picked)
        smaller = outcome.passes & (trials.size(rows[live], picked) < size[live])
        hit = live[smaller]
        best[hit], left[hit] = current[hit], patience
        left[live[~new & ~smaller]] = 0
        on = ~smaller & (current[live].sum(1) < best[live].sum(1)) & (left[live] > 0)
        short = live[on]
        if len(short):  # the slopes are those of one unit more, which tells candidates apart well enough
            near = outcome.slack[on], slopes[1][on]
            picked, _, _, new = _move(
                trials, rows[short], current[short], free[short], 0, budget.adds, near, been[short]
            )
            current[short], been = picked, _been(trials, been, short, picked)
            left[short[~new]] = 0


def _been(trials: Trials, been: Tensor, rows: Tensor, sets: Tensor) -> Tensor:
    """Where walks have been [R, moves], with one more set for some of them."""
    key = been.new_zeros((len(been), 1))
    key[rows, 0] = _name(trials, sets)
    return torch.cat([been, key], 1)


def _name(trials: Trials, sets: Tensor) -> Tensor:
    return trials.keys(torch.zeros_like(sets[:, :1], dtype=torch.long).flatten(), sets)[0]


def _move(
    trials: Trials,
    rows: Tensor,
    sets: Tensor,
    held: Tensor,
    drops: int,
    adds: int,
    slopes: tuple[Tensor, Tensor] | None = None,
    been: Tensor | None = None,
) -> tuple[Tensor, Outcome, Tensor, Tensor]:
    """The best of the most promising single drops and adds, chosen by slopes and decided by trials.

    With the outcome, the unit that was moved, and whether that is a set where the walk has not `been` [R, moves]. A
    set that no unit can be dropped from or added to stays as it is and counts as failing, with unit 0.
    """
    slack, slope = trials.slopes(rows, sets) if slopes is None else slopes
    sign = torch.where(sets, -1.0, 1.0)
    if trials.price is not None:
        slope = slope / trials.price[rows].clamp(min=1e-9)[..., None]  # what a unit wins for what it counts
    guess = score(slack[:, None].double() + sign[..., None] * slope)  # so precise that only slopes tell units apart
    equal = ALIKE * slope.abs().sum(2).amax(1)
    allowed = trials.selectable[rows] & torch.where(sets, drops > 0, adds > 0)
    if trials.required is not None:
        allowed &= ~trials.required[rows]
    if trials.rules is not None:
        allowed &= trials.rules.movable(rows, sets)
    guess = guess.masked_fill(~allowed, float("-inf"))
    guess = torch.where(held & allowed, guess - 1e6, guess)  # a held unit is the last resort
    chosen = []
    for kind, count in ((sets, drops), (~sets, adds)):
        if count:
            chosen.append(top(guess.masked_fill(~kind, float("-inf")), count, equal))
    guessed, unit = (torch.cat(column, 1) for column in zip(*chosen))
    owner, place = guessed.isfinite().nonzero(as_tuple=True)
    unit = unit[owner, place]
    candidates = sets[owner].clone()
    candidates[torch.arange(len(owner), device=owner.device), unit] ^= True
    if trials.rules is not None:
        candidates = trials.rules.mended(rows[owner], candidates)
    known = torch.zeros_like(owner, dtype=torch.bool)
    if been is not None:
        known = (been[owner] == _name(trials, candidates)[:, None]).any(1)

    def value(outcome: Outcome) -> Tensor:
        worth = outcome.score + 1e3 * outcome.passes - 1e6 * known
        if trials.price is None:
            return worth
        cheap = 1e9 - trials.size(rows[owner], candidates).double() - 1e10 * known  # of those that pass, the cheapest
        return torch.where(outcome.passes, cheap, worth.double())

    likely = (slack[owner] + sign[owner, unit, None] * slope[owner, unit]).argmin(1)
    outcome = race(trials, owner, rows[owner], candidates, likely, value)
    winner = best_of(owner, value(outcome), len(rows))
    if bool((winner >= 0).all()):
        return candidates[winner], outcome.take(winner), unit[winner], ~known[winner]
    # One row more at the end, for the instances without a candidate.
    failing = Outcome(
        torch.cat([outcome.passed, torch.zeros_like(slack[:1], dtype=torch.bool)]),
        torch.cat([outcome.slack, torch.full_like(slack[:1], float("-inf"))]),
    )
    moved = torch.where((winner >= 0)[:, None], torch.cat([candidates, sets[:1]])[winner], sets)
    known = torch.cat([known, torch.ones_like(known[:1]) if len(known) else allowed.new_ones(1)])
    return moved, failing.take(winner), torch.cat([unit, unit.new_zeros(1)])[winner], ~known[winner]
