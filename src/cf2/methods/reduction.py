"""Instances with very many units: only those that promise most by gradient can be chosen.

The gradient only says what is looked at. Nothing is proved about an instance that was narrowed, because what was left
out might have been better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cf2.graphs.graph import Instance
from cf2.methods.contract import Problem, rank_within
from cf2.units.constraints import SetConstraints
from cf2.units.edits import with_candidates
from cf2.units.kinds import InstanceUnits

MAX_EDITS = 1_000  # additions and changes that one instance can choose from
SOFT_STATES = [0.5, 1.0]  # at which a reduction takes the gradient: half-way down, and the graph as it is
NARROWED_NOTE = (
    "Only {most:,} of {all:,} possible additions and changes were tried, those with the largest gradients. Nothing is "
    "proved about the others."
)
REFUSAL = (
    "The instance has {units:,} units, more than max_units = {limit:,}. "
    'Raise max_units, or pass reduce="gradient" to search only the units with the largest gradients.'
)
REDUCED_NOTE = (
    "Only the {limit:,} of {units:,} units with the largest gradients were searched; "
    "the verdicts hold for the whole receptive field."
)


def sum_of_gradients(problem: Problem, states: Sequence[float]) -> Tensor:
    """Σ ∂ odds / ∂ state with all units in the same soft state, each of `states` in turn, [units]."""
    total = torch.zeros(problem.pack.units.count, device=problem.outputs.device)
    with problem.predictor.soft(problem.pack) as run:
        for state in states:
            soft = torch.full_like(total, state, requires_grad=True)
            odds = problem.criterion.odds(run(soft))
            slope = torch.autograd.grad(odds.sum(), soft, allow_unused=True)[0] if odds.requires_grad else None
            total += 0.0 if slope is None else slope
    return total


def reduced(problem: Problem, limit: int) -> Problem:
    """The problem in which instances of more than `limit` units may choose only their steepest."""
    pack = problem.pack
    if int(pack.units.counts.max()) <= limit:
        return problem
    steep = problem.predictor.has_slopes(pack)
    scores = sum_of_gradients(problem, SOFT_STATES) if steep else first_gains(problem)[0]
    kept = rank_within(scores.abs(), pack) < limit
    units = replace(pack.units, left_out=pack.units.admissible(torch.ones_like(kept)) & ~kept)
    made = problem.repacked(replace(pack, units=units))
    rules = made.constraints
    return replace(made, constraints=rules.within(made.pack)) if isinstance(rules, SetConstraints) else made


def first_gains(problem: Problem) -> tuple[Tensor, Tensor]:
    """How much making each edit would help to pass the tests, by slopes at the graph as it is [units], and cost [B]."""
    trials = problem.trials()
    rows = torch.arange(problem.num_instances, device=problem.pack.node_ptr.device)
    _, slope = trials.slopes(rows, torch.zeros_like(trials.valid))
    return trials.flat(slope.sum(2)), trials.evaluations


def too_many(table: InstanceUnits) -> bool:
    """Whether an instance has more additions and changes than are looked at."""
    return table.absent is not None and int(table.absent.sum()) > MAX_EDITS


def narrowed(problem: Problem) -> list[Instance]:
    """The instances of a problem, each with the most promising of its additions and changes."""
    pack = problem.pack
    assert pack.units.absent is not None
    gain = first_gains(problem)[0].masked_fill(~pack.units.absent, float("-inf"))
    kept = pack.split(((rank_within(gain, pack) < MAX_EDITS) & pack.units.absent).cpu())
    parts = zip(problem.instances, problem.tables, kept, pack.split(pack.units.absent))
    return [
        replace(with_candidates(instance, table, own), narrowed=int(absent.sum())) if too_many(table) else instance
        for instance, table, own, absent in parts
    ]
