"""Soft masks by gradient descent: one loop for all methods that relax, and what several of their losses hold.

Every loss is per instance, [B].
M are the soft masks of all units; `owner` is the instance of each unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from cf2.errors import CF2Error
from cf2.methods.contract import Problem, draws
from cf2.models.soundness import golden_sequence
from cf2.sets.tests import ONLY, WITHOUT, Criterion, Intervention, soft_outputs
from cf2.units.packs import Pack

MAX_NORM = 2.0  # of the gradient of an instance, beside a momentum
MOVED = 0.01  # mean change of an instance's masks below which it has converged


def size(mask: Tensor, owner: Tensor, instances: int) -> Tensor:
    """‖M‖₁ + ‖F‖₁, the relaxed explanation complexity of equation (12)."""
    return mask.new_zeros(instances).index_add(0, owner, mask.abs())


def binary_entropy(mask: Tensor) -> Tensor:
    """The entropy of every mask value, which pushes masks towards 0 and 1."""
    inside = mask.clamp(1e-15, 1 - 1e-7)
    return -inside * inside.log() - (1 - inside) * (1 - inside).log()


def penalised(
    losses: Tensor, mask: Tensor, owner: Tensor, *, size: float, entropy: float, budget: float = 0.0
) -> Tensor:
    """The losses of instances [B] + size · ReLU(mean M - budget) + entropy · mean H(M), for some of the masks."""
    parts = (mask, binary_entropy(mask))
    mean, mean_entropy = (scatter(values, owner, dim_size=len(losses), reduce="mean") for values in parts)
    penalty: Tensor = size * (mean - budget).relu() + entropy * mean_entropy
    return losses + penalty


@dataclass(frozen=True, eq=False)
class Step:
    """What an objective sees: soft masks, the outputs of each masked pass, and what the answer is."""

    mask: Tensor  # [units]
    owner: Tensor  # [units]
    outputs: list[Tensor]  # [B, classes] per intervention
    criterion: Criterion
    rows: Tensor  # [B], positions in the problem that was given

    @property
    def size(self) -> Tensor:
        """The sum of the masks of each instance [B]."""
        return size(self.mask, self.owner, len(self.rows))


class Descent(NamedTuple):
    """Soft masks [units], and how many epochs each instance took [B]."""

    mask: Tensor
    epochs: Tensor


def start(pack: Pack, seed: int | None, scale: float = 0.1) -> Tensor:
    """First logits [units]: near 1, as the reference starts. Without a seed they are one fixed sequence.

    The sequence spreads evenly, which is enough to tell symmetric edges apart; a seed draws normal noise.
    """
    noise = golden_sequence(pack.units) - 0.5 if seed is None else draws(pack, seed, torch.randn)
    return 1.0 + scale * noise


def descend(
    problem: Problem,
    objective: Callable[[Step], Tensor],
    logits: Tensor,
    *,
    epochs: int,
    lr: float,
    interventions: tuple[Intervention, ...] = (ONLY, WITHOUT),
    patience: int | None = None,
    threshold: float = 0.5,
    messages: bool = False,
    momentum: float | None = None,
) -> Descent:
    """Adam on the logits of all units; with a `momentum`, gradient descent with Nesterov's and clipped gradients.

    The objective gives a loss per instance from what the model says under each of the `interventions`, which run as
    one graph of several times the size. With `patience`, an instance leaves the pack when neither its thresholded set
    nor its masks change over that many epochs.
    """
    pack = problem.pack
    result = pack.units.admissible_mask(logits.sigmoid())
    logits = logits.detach().clone().requires_grad_()
    optimiser: torch.optim.Optimizer = torch.optim.Adam([logits], lr)
    if momentum is not None:
        optimiser = torch.optim.SGD([logits], lr, momentum=momentum, nesterov=momentum > 0)
    took = torch.zeros(problem.num_instances, dtype=torch.long, device=logits.device)
    active = torch.arange(problem.num_instances, device=logits.device)
    unit_ids = torch.arange(pack.units.count, device=logits.device)
    before = result.clone()
    stretch = patience or epochs
    for first in range(0, epochs, stretch):
        last = min(first + stretch, epochs)
        criterion = problem.criterion.take(active)
        rows = torch.arange(pack.num_instances, device=active.device).repeat(len(interventions))
        with problem.predictor.soft(pack.take(rows), messages=messages) as run:
            for epoch in range(first, last):
                mask = pack.units.admissible_mask(logits.sigmoid())
                outputs = soft_outputs(run, interventions, [mask] * len(interventions))
                losses = objective(Step(mask, pack.units.owner, outputs, criterion, active))
                _check_finite(losses, pack, epoch)
                (logits.grad,) = torch.autograd.grad(losses.sum(), logits)
                if momentum is not None:
                    norm = size(logits.grad.square(), pack.units.owner, pack.num_instances).sqrt()
                    logits.grad *= (MAX_NORM / norm.clamp(min=MAX_NORM))[pack.units.owner]
                optimiser.step()
        mask = pack.units.admissible_mask(logits.detach().sigmoid())
        result[unit_ids], took[active] = mask, last
        if last == epochs:
            break
        moving = _moving(mask, before, pack, threshold)
        units = moving[pack.units.owner]
        pack = pack.take(moving.nonzero().flatten())
        logits = _kept(optimiser, logits, units)
        active, unit_ids, before = active[moving], unit_ids[units], mask[units].clone()
        if not len(active):
            break
    return Descent(result, took)


def _moving(mask: Tensor, before: Tensor, pack: Pack, threshold: float) -> Tensor:
    """Which instances still change: another thresholded set, or masks that moved [B]."""
    owner, instances = pack.units.owner, pack.num_instances
    flips = size(((mask > threshold) != (before > threshold)).float(), owner, instances)
    moved: Tensor = scatter((mask - before).abs(), owner, dim_size=instances, reduce="mean")
    return (flips > 0) | (moved > MOVED)


def _check_finite(losses: Tensor, pack: Pack, epoch: int) -> None:
    if not math.isfinite(float(losses.detach().sum())):
        row = int((~torch.isfinite(losses)).nonzero()[0])
        raise CF2Error(
            "Expected a finite loss",
            got=f"{float(losses[row].detach())} for instance {pack.key(row)} in epoch {epoch}",
            do="Lower `lr`, or check the model's output on this instance.",
        )


def _kept(optimiser: torch.optim.Optimizer, logits: Tensor, units: Tensor) -> Tensor:
    """The logits of some units [units, bool], which the optimiser goes on with; it forgets the others."""
    kept = logits.detach()[units].requires_grad_()
    state = optimiser.state.pop(logits, {})
    optimiser.state[kept] = {name: value[units] if value.dim() else value for name, value in state.items()}
    optimiser.param_groups[0]["params"] = [kept]
    return kept
