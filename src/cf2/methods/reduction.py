"""Instances that are too large: refused, or reduced to the units that matter most by gradient.

A reduction limits what may be *chosen*. Everything is still removed where everything is to be removed, so the
verdicts are those of the whole receptive field.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from cf2.methods.contract import Problem, rank_within
from cf2.methods.gradient import sum_of_gradients

PLACES = [0.5, 1.0]  # soft states at which the gradient is taken: half-way down, and the graph as it is
REFUSAL = (
    "{units:,} units to choose from are more than max_units = {limit:,}. "
    'Raise it, or pass reduce="gradient" to choose among those that matter most.'
)
NOTE = (
    "Only the {limit:,} of {units:,} units that matter most by gradient could be chosen; "
    "the verdicts are those of the whole receptive field."
)


def reduced(problem: Problem, limit: int) -> Problem:
    """The problem with every instance of more than `limit` units limited to choosing its steepest ones."""
    pack = problem.pack
    if int(pack.units.counts.max()) <= limit:
        return problem
    steep = sum_of_gradients(problem, PLACES).abs()
    kept = rank_within(steep, pack) < limit
    units = replace(pack.units, left_out=pack.units.admissible(torch.ones_like(kept)) & ~kept)
    return replace(problem, pack=replace(pack, units=units))
