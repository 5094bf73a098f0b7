"""Random scores: the lower reference of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cf2.graphs.targets import stream
from cf2.methods.contract import Method, Problem, Ranking, check_choice
from cf2.methods.reduction import choose_once
from cf2.sets.search import Choice


@dataclass(frozen=True)
class Settings:
    """`k` units, or those above `threshold` (0.5 if neither is given: about half of them)."""

    k: int | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        check_choice(self.k, self.threshold)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Uniform scores from a stream of each instance's own: the seed (0 if there is none) and its key."""
    pack, seed = problem.pack, problem.seed or 0
    parts = [
        torch.rand(count, generator=stream(seed, pack.key(row))) for row, count in enumerate(pack.units.counts.tolist())
    ]
    scores = torch.cat(parts).to(problem.outputs.device)
    selected = choose_once(problem, scores, k=settings.k, threshold=settings.threshold)
    return Ranking(scores, Choice(selected, torch.zeros(problem.num_instances, dtype=torch.long)))


METHOD = Method(
    name="random",
    title="random",
    summary="uniform scores, the lower reference of a comparison",
    settings=Settings,
    rank=rank,
    edits=True,
    draws=True,
    paper=("k",),
)
