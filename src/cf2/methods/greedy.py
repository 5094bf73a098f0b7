"""Forward greedy by probability: the simple rival of every search.

In each step every single unit is added to the set by a real trial, and the one after which the tests are nearest to
passing stays. Nothing is learned, guessed or taken back, so it costs one evaluation per unit, step and test.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.methods.contract import CheckedSettings, Method, Problem, Ranking, integer
from cf2.sets.moves import flipped
from cf2.sets.search import Choice
from cf2.sets.tests import QUESTIONS
from cf2.sets.trials import Trials, best_of

MAX_CELLS = 40_000_000  # bools of the candidate sets that are held at once


@dataclass(frozen=True)
class Settings(CheckedSettings):
    """At most `most` units per set, and at most `budget` evaluations per instance (None: no limit)."""

    most: int = integer(6)
    budget: int | None = integer(None)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Add the best unit until the tests pass, or the steps or the budget are spent.

    Where the budget pays for a part of a step, units spread evenly over the instance are tried. Units that are chosen
    score by when; the others by how near to passing they came alone.
    """
    trials = problem.trials(problem.constraints)
    rows = trials.rows
    sets = trials.admissible(rows, torch.zeros_like(trials.valid))
    scores = torch.zeros(sets.shape, device=rows.device)
    passed = torch.zeros_like(rows, dtype=torch.bool)
    if trials.tests == QUESTIONS["factual"]:  # another question has no answer without units
        passed = trials.run(rows, sets).passes & trials.constraints.allow(rows, sets)
    going = torch.ones_like(passed)
    for step in range(settings.most):
        live = (going & ~passed).nonzero().flatten()
        owner, unit = _candidates(trials, live, sets[live], settings.budget)
        value, passes = _tried(trials, live, sets, owner, unit)
        if step == 0:
            scores[live[owner], unit] = torch.sigmoid(value)
        winner = best_of(owner, value + 1e3 * passes, len(live))
        going[live[winner < 0]] = False
        moved, winner = live[winner >= 0], winner[winner >= 0]
        sets[moved, unit[winner]] = True
        scores[moved, unit[winner]] = float(settings.most - step + 1)
        passed[moved] = passes[winner]
    status = ["found" if good else "not found" for good in passed.tolist()]
    return Ranking(trials.flat(scores), Choice(trials.flat(sets), trials.evaluations, status))


def _candidates(trials: Trials, live: Tensor, sets: Tensor, budget: int | None) -> tuple[Tensor, Tensor]:
    """The units that a step tries [n], and the positions in `live` that they belong to [n]."""
    may = trials.selectable[live] & ~sets
    may &= trials.constraints.movable(live, sets)
    if budget is not None:
        count = may.sum(1, keepdim=True).clamp(min=1)
        left = ((budget - trials.evaluations[live]) // len(trials.tests)).clamp(min=0)[:, None]
        before = may.cumsum(1) - may.long()  # how many candidates stand before each unit
        pays = torch.minimum(left, count)
        may &= (before + 1) * pays // count > before * pays // count
    owner, unit = may.nonzero(as_tuple=True)
    return owner, unit


def _tried(trials: Trials, live: Tensor, sets: Tensor, owner: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """How near each set with one unit more is to passing [n], and whether it passes [n]; -inf where a rule forbids."""
    value = torch.full((len(owner),), float("-inf"), device=owner.device)
    passes = torch.zeros_like(owner, dtype=torch.bool)
    step = max(MAX_CELLS // max(trials.width, 1), 1)
    for start in range(0, len(owner), step):
        part = torch.arange(start, min(start + step, len(owner)), device=owner.device)
        rows = live[owner[part]]
        candidates = flipped(sets[rows], unit[part])
        good = trials.constraints.allow(rows, candidates)
        outcome = trials.run(rows[good], candidates[good])
        value[part[good]], passes[part[good]] = outcome.score, outcome.passes
    return value, passes


METHOD = Method(
    name="greedy",
    title="greedy",
    summary="forward greedy by probability: every single unit is tried in each step, and the best one stays",
    settings=Settings,
    rank=rank,
    edits=True,
    searches=True,
)
