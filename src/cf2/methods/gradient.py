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

from cf2.errors import require_number, unknown_name
from cf2.methods.contract import Method, Problem, Ranking, check_choice
from cf2.methods.reduction import choose_once
from cf2.sets.search import Choice

KINDS = ("saliency", "integrated")


@dataclass(frozen=True)
class Settings:
    """`k` units, or those above `threshold` (0.5 if neither is given); `steps` is of integrated gradients."""

    k: int | None = None
    threshold: float | None = None
    kind: str = "saliency"
    steps: int = 20

    def __post_init__(self) -> None:
        check_choice(self.k, self.threshold)
        if self.kind not in KINDS:
            raise unknown_name("`kind`", self.kind, KINDS)
        require_number("steps", self.steps, 1, integer=True)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """One backward pass for saliency, `steps` of them for integrated gradients."""
    steps = 1 if settings.kind == "saliency" else settings.steps
    # The middle of each of the steps from 0 to 1; saliency looks at 1 itself.
    places = [1.0] if settings.kind == "saliency" else [(number + 0.5) / steps for number in range(steps)]
    gradient = sum_of_gradients(problem, places) / steps
    signed = settings.kind == "integrated" or problem.pack.units.absent is not None  # an edit must help, not hurt
    scores = gradient if signed else gradient.abs()
    scores = scores / largest(scores.abs(), problem)[problem.pack.units.owner]
    selected = choose_once(problem, scores, k=settings.k, threshold=settings.threshold)
    return Ranking(scores, Choice(selected, torch.full((problem.num_instances,), 3 * steps)))


def sum_of_gradients(problem: Problem, places: list[float]) -> Tensor:
    """Σ ∂ odds / ∂ state with all units in the same soft state, each of `places` in turn, [units]."""
    total = torch.zeros(problem.pack.units.count, device=problem.outputs.device)
    with problem.predictor.soft(problem.pack) as run:
        for place in places:
            states = torch.full_like(total, place, requires_grad=True)
            odds = problem.criterion.odds(run(states))
            slope = torch.autograd.grad(odds.sum(), states, allow_unused=True)[0] if odds.requires_grad else None
            total += 0.0 if slope is None else slope
    return total


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
