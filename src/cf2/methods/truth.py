"""The planted explanation itself: the upper reference of every comparison against ground truth.

It is given as `trained`: a mapping from keys to the true edges, pairs [k, 2] of the user's node ids.

    cf2.explain(model, data, nodes, method="truth", trained={3: [(3, 4), (4, 5)]})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from cf2.errors import CF2Error
from cf2.methods.contract import Method, Problem, Ranking
from cf2.verify.search import Choice


@dataclass(frozen=True)
class Settings:
    """There is nothing to set."""


def rank(problem: Problem, settings: Settings) -> Ranking:
    """The units whose edges are among the true ones of their instance."""
    if not isinstance(problem.trained, Mapping):
        raise CF2Error(
            "Expected the true edges for method 'truth'",
            got="none" if problem.trained is None else type(problem.trained).__name__,
            do="Pass trained={key: pairs of node ids}.",
        )
    parts = []
    for instance, table in zip(problem.instances, problem.tables):
        if instance.key not in problem.trained:
            raise CF2Error(f"Expected `trained` to hold the true edges of {instance.key}", got="none")
        pairs = np.asarray(problem.trained[instance.key]).reshape(-1, 2)
        parts.append(torch.from_numpy(among(table.ids.numpy(), pairs, instance.directed)))
    scores = torch.cat(parts).float().to(problem.outputs.device)
    return Ranking(scores, Choice(scores > 0.5, torch.zeros(problem.num_instances, dtype=torch.long)))


def among(units: np.ndarray, pairs: np.ndarray, directed: bool) -> np.ndarray:
    """Which edge units [u, 2] are in `pairs` [p, 2], in either direction if the graph is undirected."""
    if not directed:
        pairs = np.sort(pairs, 1)
    if not len(units) or not len(pairs):
        return np.zeros(len(units), dtype=bool)
    high = int(max(units.max(), pairs.max())) + 1
    found: np.ndarray = np.isin(units[:, 0] * high + units[:, 1], pairs[:, 0] * high + pairs[:, 1])
    return found


METHOD = Method(
    name="truth",
    title="planted motif",
    summary="the planted explanation, the upper reference of a comparison",
    settings=Settings,
    rank=rank,
    units=("edges",),
    needs="truth",
)
