"""CF²: factual and counterfactual reasoning (Tan et al., WWW 2022, https://doi.org/10.1145/3485447.3511948).

`cf2-relaxed` is the paper's procedure: minimise ‖M‖₁ + ‖F‖₁ + λ(α L_f + (1 - α) L_c) over soft masks, then
threshold. `cf2` takes the soft masks as a guide and searches for the smallest set that passes both tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.errors import require_number
from cf2.methods.contract import Method, Problem, Ranking, search_from
from cf2.methods.objectives import cf2_loss, size
from cf2.methods.optimise import Descent, Step, descend, start
from cf2.verify.search import Choice, Effort, Search


@dataclass(frozen=True)
class Relaxed:
    """Settings of the relaxed problem; `lam=None` scales λ to the instance's own number of units."""

    epochs: int = 500
    lr: float = 0.05
    alpha: float = 0.6
    gamma: float = 0.5
    lam: float | None = None
    threshold: float = 0.5
    patience: int | None = None
    messages: bool = False

    def __post_init__(self) -> None:
        require_number("epochs", self.epochs, 1, integer=True)
        require_number("lr", self.lr, 1e-6, 10)
        require_number("alpha", self.alpha, 0, 1)
        require_number("gamma", self.gamma, 0, 1)
        require_number("threshold", self.threshold, 0, 1)
        if self.lam is not None:
            require_number("lam", self.lam, 0, 1e30)
        if self.patience is not None:
            require_number("patience", self.patience, 1, integer=True)


def scale(units: Tensor, lam: float | None) -> Tensor:
    """λ of every instance: as given, or such that both terms of the loss have the same scale.

    The size starts at about the number of units and each hinge at about γ, so λ = 2 · units puts them level.
    """
    return 2.0 * units.clamp(min=1) if lam is None else torch.full_like(units, float(lam), dtype=torch.float32)


def relax(problem: Problem, settings: Relaxed) -> Descent:
    """Soft masks of all instances of a problem."""
    lam = scale(problem.pack.units.counts, settings.lam)

    def objective(step: Step) -> Tensor:
        only, without = (step.criterion.margin(outputs) for outputs in step.outputs)
        return cf2_loss(
            size(step.mask, step.owner, step.num_instances),
            only,
            without,
            alpha=settings.alpha,
            gamma=settings.gamma,
            lam=lam[step.rows],
        )

    return descend(
        problem,
        objective,
        start(problem.pack, problem.seed),
        epochs=settings.epochs,
        lr=settings.lr,
        patience=settings.patience,
        threshold=settings.threshold,
        messages=settings.messages,
    )


def rank_relaxed(problem: Problem, settings: Relaxed) -> Ranking:
    """The paper's procedure: relax, then threshold."""
    soft = relax(problem, settings)
    return Ranking(soft.mask, Choice(soft.mask > settings.threshold, 6 * soft.epochs))


@dataclass(frozen=True)
class Verified(Relaxed):
    """Settings of the relaxed problem that guides the search, and of the search."""

    epochs: int = 4
    lr: float = 0.1
    messages: bool = True
    effort: Effort = "standard"
    confidence: float = 0.0
    proof: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        Search(self.effort, self.confidence, self.proof)


def rank_verified(problem: Problem, settings: Verified) -> Ranking:
    """Relax for a few epochs, then search for the smallest set that passes the tests."""
    ranking = rank_relaxed(problem, settings)
    return search_from(problem, ranking, Search(settings.effort, settings.confidence, settings.proof))


VERIFIED = Method(
    name="cf2",
    title="CF² (verified)",
    summary="relaxed optimisation as a guide, then a search for the smallest verified set",
    settings=Verified,
    rank=rank_verified,
    searches=True,
)

RELAXED = Method(
    name="cf2-relaxed",
    title="CF²",
    summary="the paper's procedure to the letter: relaxed optimisation, then a threshold",
    settings=Relaxed,
    rank=rank_relaxed,
    paper=("lam", "threshold"),
)
