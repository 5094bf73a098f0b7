"""Edits that may be made, where there are very many: those that promise most by gradient.

The gradient is that of the test's slack with respect to how far an edit is made, taken on the graph as it is: the
weight 0 of an edge that is not there yet. It only says what is looked at. Of an instance that is narrowed nothing is
proved, because what was left out might have done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cf2.graphs.graph import Instance, Role
from cf2.methods.contract import Problem, choose, rank_within
from cf2.units.edits import with_some
from cf2.units.kinds import InstanceUnits

# -- candidates ------------------------------------------------------------------------------------------


MOST = 1_000  # edits beside removals that one instance can choose from
NARROWED_NOTE = (
    "Only the {most:,} of {all:,} additions and changes that promise most by gradient were looked at, so nothing is "
    "proved about the others."
)


def first_gains(problem: Problem) -> Tensor:
    """By how much making each edit would help to pass the tests, by the slope at the graph as it is [units]."""
    pack = problem.pack
    trials = problem.trials()
    rows = torch.arange(pack.num_instances, device=pack.node_ptr.device)
    _, slope = trials.slopes(rows, torch.zeros_like(trials.valid))
    return trials.flat(slope.sum(2))


def too_many(table: InstanceUnits) -> bool:
    """Whether an instance has more additions and changes to choose from than are looked at."""
    return table.absent is not None and int(table.absent.sum()) > MOST


def narrowed(problem: Problem) -> list[Instance]:
    """The instances of a problem, each with the most promising of its additions and changes."""
    pack = problem.pack
    assert pack.units.absent is not None
    gain = first_gains(problem).masked_fill(~pack.units.absent, float("-inf"))
    kept = pack.split(((rank_within(gain, pack) < MOST) & pack.units.absent).cpu())
    return [_some(i, t, k) if too_many(t) else i for i, t, k in zip(problem.instances, problem.tables, kept)]


def _some(instance: Instance, table: InstanceUnits, kept: Tensor) -> Instance:
    first, _ = table.edges
    columns = torch.ones(instance.edge_index.size(1), dtype=torch.bool)
    if instance.role is not None:
        mine = instance.role == Role.CANDIDATE
        columns = ~mine | (mine & kept[first.clamp(min=0)])
    changed = None if table.changes is None else kept[torch.unique(table.changes.unit)]
    return replace(with_some(instance, columns, changed), narrowed=int(table.absent.sum()))  # type: ignore[union-attr]


def one_of_each_choice(problem: Problem, scores: Tensor) -> Tensor:
    """Scores [units] in which of several changes of one feature only the best one ranks among the others."""
    tables: Sequence[InstanceUnits] = problem.tables
    if all(table.changes is None for table in tables):
        return scores
    parts = []
    for table, part in zip(tables, problem.pack.split(scores.clone())):
        if table.changes is not None:
            mine = torch.unique(table.changes.unit).to(part.device)
            choice = table.changes.choice.to(part.device)
            best = torch.full((int(choice.max()) + 1 if len(choice) else 0,), float("-inf"), device=part.device)
            best = best.scatter_reduce(0, choice, part[mine], "amax")
            places = torch.arange(len(mine), device=part.device)
            equal = part[mine] >= best[choice]
            first = torch.full_like(best, len(mine), dtype=torch.long)
            first = first.scatter_reduce(0, choice[equal], places[equal], "amin")  # of equals, the first
            second = places != first[choice]
            part[mine[second]] -= 1e6
        parts.append(part)
    return torch.cat(parts)


def choose_once(problem: Problem, scores: Tensor, *, k: int | Tensor | None, threshold: float | None) -> Tensor:
    """What `choose` takes of scores [units], with at most one change of each feature."""
    apart = one_of_each_choice(problem, scores)
    return choose(apart, problem.pack, k=k, threshold=threshold) & (apart == scores)


# -- reduction -------------------------------------------------------------------------------------------


PLACES = [0.5, 1.0]  # soft states at which the gradient is taken: half-way down, and the graph as it is
REFUSAL = (
    "{units:,} units to choose from are more than max_units = {limit:,}. "
    'Raise it, or pass reduce="gradient" to choose among those that matter most.'
)
REDUCED_NOTE = (
    "Only the {limit:,} of {units:,} units that matter most by gradient could be chosen; "
    "the verdicts are those of the whole receptive field."
)


def reduced(problem: Problem, limit: int) -> Problem:
    """The problem with every instance of more than `limit` units limited to choosing its steepest ones."""
    from cf2.methods.gradient import sum_of_gradients

    pack = problem.pack
    if int(pack.units.counts.max()) <= limit:
        return problem
    steep = sum_of_gradients(problem, PLACES).abs()
    kept = rank_within(steep, pack) < limit
    units = replace(pack.units, left_out=pack.units.admissible(torch.ones_like(kept)) & ~kept)
    return replace(problem, pack=replace(pack, units=units))
