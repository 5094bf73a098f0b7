"""One short function per equation. Everything is per instance: [B] in, [B] out.

P is the class probabilities [B, classes] of a masked pass, y the predicted classes [B], M the soft masks of
all units, `owner` the instance of each unit.
"""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1.2e-38  # the smallest normal float: below it, -log P has no gradient


def size(mask: Tensor, owner: Tensor, instances: int) -> Tensor:
    """‖M‖₁ + ‖F‖₁, the relaxed explanation complexity of equation (12)."""
    return mask.new_zeros(instances).index_add(0, owner, mask.abs())


def own(P: Tensor, y: Tensor) -> Tensor:
    """P(ŷ), the probability of the predicted class."""
    return P.gather(1, y[:, None]).squeeze(1)


def runner_up(P: Tensor, y: Tensor) -> Tensor:
    """P(ŷ_s), the largest probability of any other class."""
    return P.scatter(1, y[:, None], float("-inf")).amax(1)


def margin(P: Tensor, y: Tensor) -> Tensor:
    """P(ŷ) - P(ŷ_s): positive while the model says ŷ."""
    return own(P, y) - runner_up(P, y)


def factual_loss(only: Tensor, y: Tensor, gamma: float) -> Tensor:
    """L_f = ReLU(γ + P(ŷ_s | A⊙M, X⊙F) - P(ŷ | A⊙M, X⊙F)), equation (10)."""
    return torch.relu(gamma - margin(only, y))


def counterfactual_loss(without: Tensor, y: Tensor, gamma: float) -> Tensor:
    """L_c = ReLU(γ + P(ŷ | A-A⊙M, X-X⊙F) - P(ŷ_s | A-A⊙M, X-X⊙F)), equation (11)."""
    return torch.relu(gamma + margin(without, y))


def cf2_loss(
    size: Tensor, only: Tensor, without: Tensor, y: Tensor, *, alpha: float, gamma: float, lam: Tensor | float
) -> Tensor:
    """‖M‖₁ + ‖F‖₁ + λ(α L_f + (1 - α) L_c), equation (12)."""
    strength = alpha * factual_loss(only, y, gamma) + (1 - alpha) * counterfactual_loss(without, y, gamma)
    return size + lam * strength


def cross_entropy(P: Tensor, y: Tensor) -> Tensor:
    """-log P(ŷ), what GNNExplainer minimises of the explanation alone."""
    return -own(P, y).clamp(min=TINY).log()


def log_odds(P: Tensor, y: Tensor) -> Tensor:
    """log P(ŷ) - log (1 - P(ŷ)), which keeps its gradient however sure the model is."""
    others = P.scatter(1, y[:, None], 0.0).sum(1)
    return own(P, y).clamp(min=TINY).log() - others.clamp(min=TINY).log()


def precise_loss(P: Tensor, y: Tensor) -> Tensor:
    """-log P(ŷ) = -log(1 - Σ P(others)), exact also where P(ŷ) rounds to 1."""
    others = P.scatter(1, y[:, None], 0.0).sum(1)
    return torch.where(others < 0.5, -torch.log1p(-others.clamp(max=0.5)), cross_entropy(P, y))


def mean_within(values: Tensor, owner: Tensor, instances: int) -> Tensor:
    """The mean of the values of each instance, 0 for one that has none."""
    total = values.new_zeros(instances).index_add(0, owner, values)
    count = torch.bincount(owner, minlength=instances).clamp(min=1)
    return total / count


def cf_gnnexplainer_loss(without: Tensor, size: Tensor, flipped: Tensor, y: Tensor, beta: float) -> Tensor:
    """1[not flipped] · L_pred + β · size: L_pred falls as P(ŷ) does, the flip is of the binarised set."""
    return torch.where(flipped, 0.0, log_odds(without, y)) + beta * size


def entropy(mask: Tensor) -> Tensor:
    """The binary entropy of every mask value, which pushes masks towards 0 and 1."""
    inside = mask.clamp(1e-15, 1 - 1e-7)
    return -inside * inside.log() - (1 - inside) * (1 - inside).log()
