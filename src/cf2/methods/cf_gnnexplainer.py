"""CF-GNNExplainer: the smallest removal that flips the prediction (Lucic et al., AISTATS 2022,
https://arxiv.org/abs/2102.03322).

Minimises 1[not flipped] · log P(ŷ) + β · (units removed) over soft removals, by gradient descent with Nesterov's
momentum. Whether the *binarised* removal flips the prediction is asked of the model on the really reduced graph, every
epoch that changed it; the smallest flip seen is the answer. The settings are those of the published code, which counts
the removed units of the binarised set with β = 0.5: that has no gradient, so that it is β = 0 here.

Changed here: masks start around 1 and not all at 1, which tells edges that look the same apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.methods.contract import CheckedSettings, Method, Problem, Ranking, integer, learning_rate, number
from cf2.methods.relaxation import Step, descend, size, start
from cf2.models.oracle import outputs_after
from cf2.sets.search import Choice
from cf2.sets.tests import WITHOUT

NONE = "No counterfactual was found in {epochs} epochs."


@dataclass(frozen=True)
class Settings(CheckedSettings):
    """`beta` weighs the sum of the soft removals against the prediction.

    `odds` replaces log P(ŷ), which has no gradient if the model is confident, by the log-odds.
    """

    epochs: int = integer(500)
    lr: float = learning_rate(0.1)
    momentum: float = number(0.0, 0, 0.999)
    beta: float = number(0.0)
    odds: bool = False


class Flips:
    """The smallest flip of every instance so far, and which binarised sets flip now."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        units, rows, device = problem.pack.units.count, problem.num_instances, problem.outputs.device
        self.owner = problem.pack.units.owner
        self.current = torch.zeros(units, dtype=torch.bool, device=device)
        self.best = self.current.clone()
        self.best_size = torch.full((rows,), float("inf"), device=device)
        self.scores = torch.zeros(units, device=device)
        self.flipped = torch.zeros(rows, dtype=torch.bool, device=device)
        self.passes = torch.zeros(rows, dtype=torch.long, device=device)

    def update(self, mask: Tensor) -> Tensor:
        """Run the model on the sets that changed; returns which instances are flipped [B]."""
        problem, removal = self.problem, mask > 0.5
        changed = size((removal != self.current).float(), self.owner, problem.num_instances) > 0
        rows = changed.nonzero().flatten()
        if not len(rows):
            return self.flipped
        self.current = removal
        removed = removal[changed[self.owner]]
        outputs = outputs_after(WITHOUT, problem.predictor, problem.pack.take(rows), removed)
        self.flipped[rows] = ~problem.criterion.take(rows).holds(outputs)
        self.passes[rows] += 1
        count = size(removal.float(), self.owner, problem.num_instances)
        better = changed & self.flipped & (count < self.best_size)
        self.best_size = torch.where(better, count, self.best_size)
        self.best = torch.where(better[self.owner], removal, self.best)
        self.scores = torch.where(better[self.owner], mask, self.scores)
        return self.flipped


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Start from nothing removed, descend, and give back the smallest flip that was seen."""
    flips = Flips(problem)

    def objective(step: Step) -> Tensor:
        flipped = flips.update(step.mask.detach())
        says = step.criterion.odds if settings.odds else lambda outputs: -step.criterion.loss(outputs)
        return torch.where(flipped, 0.0, says(step.outputs[0])) + settings.beta * step.size

    first = -start(problem.pack, problem.seed)
    epochs, lr, momentum = settings.epochs, settings.lr, settings.momentum
    soft = descend(problem, objective, first, epochs=epochs, lr=lr, momentum=momentum, interventions=(WITHOUT,))
    flips.update(soft.mask)
    found = flips.best_size.isfinite()
    scores = torch.where(found[flips.owner], flips.scores, soft.mask)
    notes = ["" if flip else NONE.format(epochs=settings.epochs) for flip in found.tolist()]
    return Ranking(scores, Choice(flips.best, 3 * soft.epochs + flips.passes, notes=notes))


METHOD = Method(
    name="cf-gnnexplainer",
    title="CF-GNNExplainer",
    summary="counterfactual: the smallest removal seen that flips the prediction",
    settings=Settings,
    rank=rank,
)
