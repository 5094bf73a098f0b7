"""One short function per equation. Everything is per instance: [B] in, [B] out.

A margin is what the criterion gives for a masked pass: P(ŷ) - P(ŷ_s) for classes. M are the soft masks of all units,
`owner` is the instance of each unit.
"""

from __future__ import annotations

import torch
from torch import Tensor


def size(mask: Tensor, owner: Tensor, instances: int) -> Tensor:
    """‖M‖₁ + ‖F‖₁, the relaxed explanation complexity of equation (12)."""
    return mask.new_zeros(instances).index_add(0, owner, mask.abs())


def factual_loss(only: Tensor, gamma: float) -> Tensor:
    """L_f = ReLU(γ + P(ŷ_s | A⊙M, X⊙F) - P(ŷ | A⊙M, X⊙F)), equation (10), from the margin of that pass."""
    return torch.relu(gamma - only)


def counterfactual_loss(without: Tensor, gamma: float) -> Tensor:
    """L_c = ReLU(γ + P(ŷ | A-A⊙M, X-X⊙F) - P(ŷ_s | A-A⊙M, X-X⊙F)), equation (11), from the margin of that pass."""
    return torch.relu(gamma + without)


def hinge(margin: Tensor, gamma: float, *, same: bool) -> Tensor:
    """L_f for a test that the answer stays the same, L_c for one that it changes."""
    return factual_loss(margin, gamma) if same else counterfactual_loss(margin, gamma)


def cf2_loss(size: Tensor, strength: Tensor, *, lam: Tensor | float) -> Tensor:
    """‖M‖₁ + ‖F‖₁ + λ(α L_f + (1 - α) L_c), equation (12), from the explanation strength in brackets."""
    return size + lam * strength


def mean_within(values: Tensor, owner: Tensor, instances: int) -> Tensor:
    """The mean of the values of each instance, 0 for one that has none."""
    total = values.new_zeros(instances).index_add(0, owner, values)
    count = torch.bincount(owner, minlength=instances).clamp(min=1)
    return total / count


def cf_gnnexplainer_loss(odds: Tensor, size: Tensor, flipped: Tensor, beta: float) -> Tensor:
    """1[not flipped] · L_pred + β · size: L_pred is the odds of ŷ, the flip is of the binarised set."""
    return torch.where(flipped, 0.0, odds) + beta * size


def entropy(mask: Tensor) -> Tensor:
    """The binary entropy of every mask value, which pushes masks towards 0 and 1."""
    inside = mask.clamp(1e-15, 1 - 1e-7)
    return -inside * inside.log() - (1 - inside) * (1 - inside).log()
