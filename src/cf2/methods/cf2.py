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
from cf2.methods.reduction import first_gains, one_of_each_choice
from cf2.methods.relaxation import Descent, Step, cf2_loss, descend, hinge, size, start
from cf2.sets.search import Choice, Effort, Search


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
    tests = problem.tests

    def objective(step: Step) -> Tensor:
        margins = [step.criterion.margin(outputs) for outputs in step.outputs]
        losses = [hinge(margin, settings.gamma, same=test.same) for test, margin in zip(tests, margins)]
        weights = [settings.alpha if test.same else 1 - settings.alpha for test in tests] if len(tests) > 1 else [1.0]
        strength = torch.stack([weight * loss for weight, loss in zip(weights, losses)]).sum(0)
        return cf2_loss(size(step.mask, step.owner, step.num_instances), strength, lam=lam[step.rows])

    return descend(
        problem,
        objective,
        start(problem.pack, problem.seed),
        epochs=settings.epochs,
        lr=settings.lr,
        interventions=tuple(test.intervention for test in tests),
        patience=settings.patience,
        threshold=settings.threshold,
        messages=settings.messages,
    )


def rank_relaxed(problem: Problem, settings: Relaxed) -> Ranking:
    """The paper's procedure: relax, then threshold."""
    soft = relax(problem, settings)
    passes = 3 * len(problem.tests)
    return Ranking(soft.mask, Choice(soft.mask > settings.threshold, passes * soft.epochs))


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
    """Relax for a few epochs, then search for the smallest set that passes the tests.

    Edits that add or change are ranked by their slopes on the graph as it is: half of each of a thousand additions is
    no graph to learn from.
    """

    def rank(asked: Problem) -> Ranking:
        return rank_relaxed(asked, settings) if asked.pack.units.absent is None else rank_edits(asked)

    return search_from(problem, rank(problem), Search(settings.effort, settings.confidence, settings.proof), rank)


def rank_edits(problem: Problem) -> Ranking:
    """Edits by how much making each of them helps, on the graph as it is."""
    gains, price = first_gains(problem), problem.pack.units.price
    scores = one_of_each_choice(problem, gains if price is None else gains / price)
    cost = torch.full((problem.num_instances,), 3 * len(problem.tests), device=scores.device)
    return Ranking(scores, Choice(torch.zeros_like(scores, dtype=torch.bool), cost))


VERIFIED = Method(
    name="cf2",
    title="CF² (verified)",
    summary="relaxed optimisation as a guide, then a search for the smallest verified set",
    settings=Verified,
    rank=rank_verified,
    edits=True,
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
