"""The relaxed problem, all instances at once; keeps no state, returns soft masks.

Adam is element-wise, so optimising the masks of a pack is exactly optimising each instance by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.errors import CF2Error
from cf2.packing import Pack, owners
from cf2.predictor import Predictor


@dataclass(frozen=True, eq=False)
class Step:
    """What an objective sees: soft masks, both masked passes (where asked for) and the classes to explain."""

    mask: Tensor  # [units]
    owner: Tensor  # [units]
    only: Tensor | None  # [B, classes], probabilities with the masks
    without: Tensor | None  # [B, classes], probabilities with one minus the masks
    y: Tensor  # [B]
    rows: Tensor  # [B], positions in the pack that was given

    @property
    def size(self) -> int:
        return int(self.y.numel())


Objective = Callable[[Step], Tensor]
Watch = Callable[[int, Step], None]


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
    if seed is None:
        place = torch.arange(pack.num_units, device=pack.keys.device) - pack.unit_ptr[:-1][pack.unit_owner]
        logits = 1.0 + scale * (((place + 1) * 0.6180339887498949) % 1.0 - 0.5)
    else:
        parts = []
        for key, units in zip(pack.keys.tolist(), pack.units.tolist()):
            stream = torch.Generator().manual_seed((seed * 1_000_003 + key) % (2**63))
            parts.append(torch.randn(units, generator=stream))
        logits = (1.0 + scale * torch.cat(parts)).to(pack.keys.device)
    # A unit that may not be chosen stays at a mask of 0: its gradient is 0 there.
    return logits if pack.open is None else logits.masked_fill(~pack.open, float("-inf"))


def descend(
    predictor: Predictor,
    pack: Pack,
    y: Tensor,
    objective: Objective,
    logits: Tensor,
    *,
    epochs: int,
    lr: float,
    passes: Iterable[str] = ("only", "without"),
    patience: int | None = None,
    threshold: float = 0.5,
    messages: bool = False,
    watch: Watch | None = None,
) -> Descent:
    """Minimise the objective over sigmoid(logits) with Adam; with `patience`, converged instances leave.

    An instance has converged when its thresholded set has not changed for `patience` epochs and its masks have
    moved by less than 0.01 on average over them.
    """
    passes = tuple(passes)
    done = torch.zeros(pack.size, dtype=torch.long, device=y.device)
    result = logits.sigmoid()
    active = torch.arange(pack.size, device=y.device)
    unit_ids = torch.arange(pack.num_units, device=y.device)
    adam = _Adam(logits, lr)
    current, reference = pack, result.clone()
    epoch = 0
    while epoch < epochs and len(active):
        stretch = epochs - epoch if patience is None else min(patience, epochs - epoch)
        _run(predictor, current, y[active], active, objective, adam, passes, epoch, stretch, messages, watch)
        epoch += stretch
        mask = adam.logits.sigmoid()
        result[unit_ids] = mask
        done[active] = epoch
        if patience is None or epoch >= epochs:
            continue
        stays = _moving(mask, reference, current, threshold)
        keep_units = stays[current.unit_owner]
        current = current.take(stays.nonzero().flatten())
        adam.keep(keep_units)
        active, unit_ids, reference = active[stays], unit_ids[keep_units], mask[keep_units].clone()
    return Descent(result, done)


def _moving(mask: Tensor, reference: Tensor, pack: Pack, threshold: float) -> Tensor:
    """Which instances still change: another thresholded set, or masks that moved by 0.01 on average."""
    owner, count = pack.unit_owner, pack.units.clamp(min=1)
    flips = torch.zeros(pack.size, device=mask.device).index_add(
        0, owner, ((mask > threshold) != (reference > threshold)).float()
    )
    moved = torch.zeros(pack.size, device=mask.device).index_add(0, owner, (mask - reference).abs()) / count
    return (flips > 0) | (moved > 0.01)


def _run(
    predictor: Predictor,
    pack: Pack,
    y: Tensor,
    rows: Tensor,
    objective: Objective,
    adam: _Adam,
    passes: tuple[str, ...],
    epoch: int,
    epochs: int,
    messages: bool,
    watch: Watch | None,
) -> None:
    """`epochs` steps on one pack; both passes run as one graph of twice the size."""
    instances = torch.arange(pack.size, device=y.device)
    owner = owners(pack.unit_ptr)
    both = pack.take(torch.cat([instances] * len(passes)))
    with predictor.masked(both, messages=messages) as probabilities:
        for number in range(epoch, epoch + epochs):
            logits = adam.logits.requires_grad_()
            mask = logits.sigmoid()
            P = probabilities(torch.cat([mask if name == "only" else 1 - mask for name in passes]))
            parts = dict(zip(passes, torch.split(P, pack.size)))
            step = Step(mask, owner, parts.get("only"), parts.get("without"), y, rows)
            loss = objective(step)
            if not math.isfinite(float(loss.detach().sum())):
                raise CF2Error(
                    "Expected a finite loss",
                    got=f"{_first_bad(loss, pack)} in epoch {number}",
                    do="Lower `lr`, or check the model's output on this instance.",
                )
            (gradient,) = torch.autograd.grad(loss.sum(), logits)
            if watch is not None:
                watch(number, step)
            adam.step(gradient)


def _first_bad(loss: Tensor, pack: Pack) -> str:
    row = int((~torch.isfinite(loss)).nonzero()[0])
    return f"{float(loss[row])} for instance {int(pack.keys[row])}"


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
