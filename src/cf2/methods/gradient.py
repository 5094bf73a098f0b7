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
from cf2.methods.method import Chunk, Method, Ranking, check_choice, choose
from cf2.objectives import log_odds

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


def rank(chunk: Chunk, settings: Settings) -> Ranking:
    """One backward pass for saliency, `steps` of them for integrated gradients."""
    steps = 1 if settings.kind == "saliency" else settings.steps
    # The middle of each of the steps from 0 to 1; saliency looks at 1 itself.
    places = [1.0] if settings.kind == "saliency" else [(number + 0.5) / steps for number in range(steps)]
    gradient = sum_of_gradients(chunk, places) / steps
    scores = gradient.abs() if settings.kind == "saliency" else gradient
    scores = scores / largest(scores.abs(), chunk)[chunk.pack.unit_owner]
    selected = choose(scores, chunk.pack, k=settings.k, threshold=settings.threshold)
    return Ranking(scores, selected, torch.full((chunk.pack.size,), 3 * steps))


def sum_of_gradients(chunk: Chunk, places: list[float]) -> Tensor:
    """Σ ∂ log-odds / ∂ mask at masks that are all equal to each of `places` in turn, [units]."""
    total = torch.zeros(chunk.pack.num_units, device=chunk.y.device)
    with chunk.predictor.masked(chunk.pack) as probabilities:
        for place in places:
            mask = torch.full_like(total, place, requires_grad=True)
            odds = log_odds(probabilities(mask), chunk.y)
            if odds.requires_grad:
                total += torch.autograd.grad(odds.sum(), mask, allow_unused=True)[0]
    return total


def largest(values: Tensor, chunk: Chunk) -> Tensor:
    """The largest value of each instance, 1 where all are 0."""
    top = values.new_zeros(chunk.pack.size).scatter_reduce(0, chunk.pack.unit_owner, values, "amax")
    return torch.where(top > 0, top, 1.0)


METHOD = Method(
    name="gradient",
    summary="saliency or integrated gradients of the prediction's log-odds",
    settings=Settings,
    rank=rank,
)
