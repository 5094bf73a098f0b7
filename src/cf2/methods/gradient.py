"""How fast the log-odds of the prediction move with each unit: saliency, and integrated gradients.

Saliency is |∂ log-odds / ∂ mask| on the graph as it is. Integrated gradients average the gradient on the
way from no unit to all of them (Sundararajan et al., ICML 2017, https://arxiv.org/abs/1703.01365) and keep
its sign: a unit that speaks against the prediction ranks last. Scores are divided by the largest of the
instance, so that a threshold means the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.errors import unknown_name
from cf2.methods.contract import Method, Problem, Ranking, RankSettings, integer, ranked
from cf2.methods.reduction import sum_of_gradients

KINDS = ("saliency", "integrated")


@dataclass(frozen=True)
class Settings(RankSettings):
    """Selects `k` units, or those above `threshold` (default: 0.5); `steps` is for integrated gradients."""

    kind: str = "saliency"
    steps: int = integer(20)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in KINDS:
            raise unknown_name("`kind`", self.kind, KINDS)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """One backward pass for saliency, `steps` of them for integrated gradients."""
    # Saliency looks at the graph as it is, 1; integrated gradients at the middle of each step from 0 to 1.
    saliency = settings.kind == "saliency"
    states = [1.0] if saliency else [(step + 0.5) / settings.steps for step in range(settings.steps)]
    gradient = sum_of_gradients(problem, states) / len(states)
    signed = not saliency or problem.pack.units.absent is not None  # an edit must help, not hurt
    scores = gradient if signed else gradient.abs()
    scores = scores / largest(scores.abs(), problem)[problem.pack.units.owner]
    return ranked(problem, scores, settings, 3 * len(states))


def largest(values: Tensor, problem: Problem) -> Tensor:
    """The largest value of each instance, 1 where all are 0."""
    top = values.new_zeros(problem.num_instances).scatter_reduce(0, problem.pack.units.owner, values, "amax")
    return torch.where(top > 0, top, 1.0)


METHOD = Method(
    name="gradient",
    title="gradient",
    summary="saliency or integrated gradients of the prediction's log-odds",
    settings=Settings,
    rank=rank,
    edits=True,
    paper=("k",),
)
