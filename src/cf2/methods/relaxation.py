"""One short function per equation. Everything is per instance: [B] in, [B] out.

A margin is what the criterion gives for a masked pass: P(ŷ) - P(ŷ_s) for classes. M are the soft masks of all units,
`owner` is the instance of each unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.errors import CF2Error
from cf2.graphs.targets import stream
from cf2.methods.contract import Problem
from cf2.sets.tests import ONLY, WITHOUT, Criterion, Intervention, soft_outputs
from cf2.units.packs import Pack

# -- objectives ------------------------------------------------------------------------------------------


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


# -- optimise --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Step:
    """What an objective sees: soft masks, the outputs of each masked pass, and what the answer is."""

    mask: Tensor  # [units]
    owner: Tensor  # [units]
    outputs: list[Tensor]  # [B, classes] per intervention
    criterion: Criterion
    rows: Tensor  # [B], positions in the problem that was given

    @property
    def num_instances(self) -> int:
        return len(self.rows)


Objective = Callable[[Step], Tensor]


@dataclass(frozen=True, eq=False)
class Descent:
    """Soft masks [units], and how many epochs each instance took [B]."""

    mask: Tensor
    epochs: Tensor


def start(pack: Pack, seed: int | None, scale: float = 0.1) -> Tensor:
    """First logits: near 1, as the reference starts. Without a seed they are one fixed sequence.

    The sequence spreads evenly, which is enough to tell symmetric edges apart; a seed draws normal noise from
    a stream of the instance's own, so what it is packed with does not matter.
    """
    units = pack.units
    if seed is None:
        place = torch.arange(units.count, device=units.ptr.device) - units.ptr[:-1][units.owner]
        return 1.0 + scale * (((place + 1) * 0.6180339887498949) % 1.0 - 0.5)
    parts = [
        torch.randn(count, generator=stream(seed, pack.key(row))) for row, count in enumerate(units.counts.tolist())
    ]
    return (1.0 + scale * torch.cat(parts)).to(units.ptr.device)


def descend(
    problem: Problem,
    objective: Objective,
    logits: Tensor,
    *,
    epochs: int,
    lr: float,
    interventions: tuple[Intervention, ...] = (ONLY, WITHOUT),
    patience: int | None = None,
    threshold: float = 0.5,
    messages: bool = False,
) -> Descent:
    """Adam on the logits of all units.

    The objective gives a loss per instance from what the model says under each of the `interventions`. With
    `patience`, an instance leaves the pack when neither its thresholded set nor its masks change over that many
    epochs.
    """
    pack, units = problem.pack, problem.pack.units
    result = units.admissible_mask(logits.sigmoid())
    done = torch.zeros(problem.num_instances, dtype=torch.long, device=logits.device)
    active = torch.arange(problem.num_instances, device=logits.device)
    unit_ids = torch.arange(units.count, device=logits.device)
    adam = _Adam(logits, lr)
    reference, epoch = result.clone(), 0
    while epoch < epochs and len(active):
        stretch = epochs - epoch if patience is None else min(patience, epochs - epoch)
        step = _Stretch(problem, pack, active, objective, interventions, messages)
        step.run(adam, epoch, stretch)
        epoch += stretch
        mask = pack.units.admissible_mask(adam.logits.sigmoid())
        result[unit_ids] = mask
        done[active] = epoch
        if patience is None or epoch >= epochs:
            continue
        stays = _moving(mask, reference, pack, threshold)
        keep_units = stays[pack.units.owner]
        pack = pack.take(stays.nonzero().flatten())
        adam.keep(keep_units)
        active, unit_ids, reference = active[stays], unit_ids[keep_units], mask[keep_units].clone()
    return Descent(result, done)


def _moving(mask: Tensor, reference: Tensor, pack: Pack, threshold: float) -> Tensor:
    """Which instances still change: another thresholded set, or masks that moved by 0.01 on average."""
    owner, count = pack.units.owner, pack.units.counts.clamp(min=1)
    none = torch.zeros(pack.num_instances, device=mask.device)
    flips = none.index_add(0, owner, ((mask > threshold) != (reference > threshold)).float())
    moved = none.index_add(0, owner, (mask - reference).abs()) / count
    return (flips > 0) | (moved > 0.01)


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Some epochs on the instances that have not converged; all passes run as one graph of several times the size."""

    problem: Problem
    pack: Pack
    rows: Tensor
    objective: Objective
    interventions: tuple[Intervention, ...]
    messages: bool

    def run(self, adam: _Adam, first: int, epochs: int) -> None:
        pack, units = self.pack, self.pack.units
        owner, criterion = units.owner, self.problem.criterion.take(self.rows)
        everything = torch.arange(pack.num_instances, device=self.rows.device)
        repeated = pack.take(everything.repeat(len(self.interventions)))
        with self.problem.predictor.soft(repeated, messages=self.messages) as run:
            for epoch in range(first, first + epochs):
                logits = adam.logits.requires_grad_()
                mask = units.admissible_mask(logits.sigmoid())
                outputs = soft_outputs(run, self.interventions, [mask] * len(self.interventions))
                loss = self.objective(Step(mask, owner, outputs, criterion, self.rows))
                if not math.isfinite(float(loss.detach().sum())):
                    raise CF2Error(
                        "Expected a finite loss",
                        got=f"{_first_bad(loss, pack)} in epoch {epoch}",
                        do="Lower `lr`, or check the model's output on this instance.",
                    )
                (gradient,) = torch.autograd.grad(loss.sum(), logits)
                adam.step(gradient)


def _first_bad(loss: Tensor, pack: Pack) -> str:
    row = int((~torch.isfinite(loss)).nonzero()[0])
    return f"{float(loss[row].detach())} for instance {pack.key(row)}"


class _Adam:
    """Adam on one vector, from which elements can be dropped."""

    def __init__(self, logits: Tensor, lr: float) -> None:
        self.logits = logits.detach().clone()
        self.lr, self.time = lr, 0
        self.first, self.second = torch.zeros_like(self.logits), torch.zeros_like(self.logits)

    def step(self, gradient: Tensor) -> None:
        self.time += 1
        with torch.no_grad():
            self.first.mul_(0.9).add_(gradient, alpha=0.1)
            self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            rate = self.lr / (1 - 0.9**self.time)
            spread = (self.second / (1 - 0.999**self.time)).sqrt_().add_(1e-8)
            self.logits = self.logits.detach().addcdiv(self.first, spread, value=-rate)

    def keep(self, which: Tensor) -> None:
        """Forget every element outside `which`."""
        self.logits = self.logits.detach()[which]
        self.first, self.second = self.first[which], self.second[which]
