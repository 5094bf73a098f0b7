"""CF-GNNExplainer: the smallest removal that flips the prediction (Lucic et al., AISTATS 2022,
https://arxiv.org/abs/2102.03322).

Minimises 1[not flipped] · L_pred + β · (units removed) over soft removals. Whether the *binarised* removal
flips the prediction is asked of the model on the really reduced graph, every epoch that changed it; the
smallest flip seen is the answer. L_pred is the log-odds of the prediction, because the log-probability of
the original has no gradient where the model is sure.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.errors import require_number
from cf2.methods.method import Chunk, Method, Ranking
from cf2.objectives import cf_gnnexplainer_loss, margin, size
from cf2.optimise import Step, descend, start

NONE = "No counterfactual was found in {epochs} epochs."


@dataclass(frozen=True)
class Settings:
    """`beta` weighs the number of removed units against the prediction."""

    epochs: int = 300
    lr: float = 0.1
    beta: float = 0.1

    def __post_init__(self) -> None:
        require_number("epochs", self.epochs, 1, integer=True)
        require_number("lr", self.lr, 1e-6, 10)
        require_number("beta", self.beta, 0)


class Flips:
    """The smallest flip of every instance so far, and which binarised sets flip now."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        units, rows, device = chunk.pack.num_units, chunk.pack.size, chunk.y.device
        self.owner = chunk.pack.unit_owner
        self.current = torch.zeros(units, dtype=torch.bool, device=device)
        self.best = self.current.clone()
        self.best_size = torch.full((rows,), float("inf"), device=device)
        self.scores = torch.zeros(units, device=device)
        self.flipped = torch.zeros(rows, dtype=torch.bool, device=device)
        self.passes = torch.zeros(rows, dtype=torch.long, device=device)

    def update(self, mask: Tensor) -> Tensor:
        """Run the model on the sets that changed; returns which instances are flipped [B]."""
        removal = mask > 0.5
        changed = size((removal != self.current).float(), self.owner, self.chunk.pack.size) > 0
        rows = changed.nonzero().flatten()
        if not len(rows):
            return self.flipped
        self.current = removal
        keep = ~removal[changed[self.owner]]
        P = self.chunk.predictor.removed(self.chunk.pack.take(rows), keep)
        self.flipped[rows] = margin(P, self.chunk.y[rows]) < 0
        self.passes[rows] += 1
        count = size(removal.float(), self.owner, self.chunk.pack.size)
        better = changed & self.flipped & (count < self.best_size)
        self.best_size = torch.where(better, count, self.best_size)
        mine = better[self.owner]
        self.best = torch.where(mine, removal, self.best)
        self.scores = torch.where(mine, mask, self.scores)
        return self.flipped


def rank(chunk: Chunk, settings: Settings) -> Ranking:
    """Start from nothing removed, descend, and give back the smallest flip that was seen."""
    flips = Flips(chunk)

    def objective(step: Step) -> Tensor:
        assert step.without is not None
        flipped = flips.update(step.mask.detach())
        count = size(step.mask, step.owner, step.size)
        return cf_gnnexplainer_loss(step.without, count, flipped, step.y, settings.beta)

    soft = descend(
        chunk.predictor,
        chunk.pack,
        chunk.y,
        objective,
        -start(chunk.pack, chunk.seed),
        epochs=settings.epochs,
        lr=settings.lr,
        passes=("without",),
    )
    flips.update(soft.mask)
    found = flips.best_size.isfinite()
    scores = torch.where(found[flips.owner], flips.scores, soft.mask)
    note = NONE.format(epochs=settings.epochs)
    return Ranking(
        scores,
        flips.best,
        3 * soft.epochs + flips.passes,
        notes=["" if one else note for one in found.tolist()],
    )


METHOD = Method(
    name="cf-gnnexplainer",
    summary="counterfactual: the smallest removal seen that flips the prediction",
    settings=Settings,
    rank=rank,
)
