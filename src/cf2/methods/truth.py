"""The planted explanation itself: the upper reference of every comparison against ground truth.

It is given as `trained`: a mapping from keys to the true edges, pairs [k, 2] of the user's node ids, or such
pairs by type.

    cf2.explain(model, data, nodes, method="truth", trained={3: [(3, 4), (4, 5)]})
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cf2.errors import require
from cf2.methods.contract import Method, Problem, Ranking
from cf2.sets.search import Choice
from cf2.units.kinds import edges_among


@dataclass(frozen=True)
class Settings:
    """There is nothing to set."""


def rank(problem: Problem, settings: Settings) -> Ranking:
    """The units whose edges are among the true ones of their instance."""
    truth, cure = problem.trained, "Pass trained={key: pairs of node ids}."
    require(truth is not None, "Expected the true edges for method 'truth'", got="none", do=cure)
    parts = []
    for instance, table in zip(problem.instances, problem.tables):
        require(instance.key in truth, f"Expected `trained` to hold the true edges of {instance.key}", got="none")
        parts.append(torch.from_numpy(edges_among(instance, table, truth[instance.key])))
    scores = torch.cat(parts).float().to(problem.outputs.device)
    return Ranking(scores, Choice(scores > 0.5, torch.zeros(problem.num_instances, dtype=torch.long)))


METHOD = Method(
    name="truth",
    title="planted motif",
    summary="the planted explanation, the upper reference of a comparison",
    settings=Settings,
    rank=rank,
    units=("edges",),
    needs="truth",
)
