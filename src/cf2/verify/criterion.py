"""What counts as the same answer, and by how much. Nothing else in the package compares two outputs.

A criterion is made once per pack, holds what each instance's answer is, and judges outputs [R, classes] of instances
`rows`. Everything is per instance: [R, classes] in, [R] out. A further criterion is one more class with these members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cf2.errors import require
from cf2.spec import Key

TINY = 1e-12
SMALLEST = 1.2e-38  # the smallest normal float: below it, -log P has no gradient


class Criterion(Protocol):
    """What each instance's answer is, and how outputs compare with it."""

    @property
    def answers(self) -> Tensor:
        """The answer of every instance that is asked about [B], as a number to report."""

    def said(self, outputs: Tensor) -> Tensor:
        """What outputs say, as a number to report [R]."""

    def take(self, rows: Tensor) -> Criterion:
        """The criterion of some instances, which may repeat."""

    def holds(self, outputs: Tensor) -> Tensor:
        """Whether outputs give the answer, bool [R]."""

    def margin(self, outputs: Tensor) -> Tensor:
        """By how much they do, in [-1, 1]: the quantity of the paper's hinges."""

    def slack(self, outputs: Tensor) -> Tensor:
        """The same without saturation: positive where they give the answer, and with a slope everywhere."""

    def loss(self, outputs: Tensor) -> Tensor:
        """What falls as outputs come nearer to the answer."""

    def odds(self, outputs: Tensor) -> Tensor:
        """What grows with the answer and keeps its gradient however sure the model is."""

    def precise_loss(self, outputs: Tensor) -> Tensor:
        """`loss` where it rounds to 0."""


def passes(criterion: Criterion, outputs: Tensor, same: bool, confidence: float = 0.0) -> Tensor:
    """Whether outputs give the same answer, or another one, by a margin above `confidence`."""
    good = criterion.holds(outputs) if same else ~criterion.holds(outputs)
    if not confidence:
        return good
    margin = criterion.margin(outputs)
    return good & ((margin if same else -margin) > confidence)


def criterion_for(
    outputs: Tensor, keys: Sequence[Key], target: int | tuple[tuple[Key, int], ...] | None, *, wanted: bool = False
) -> Criterion:
    """The criterion of instances, from what the model says of them [B, classes] and the classes that are asked for.

    The answer in question is the class itself, or, where the class is `wanted`, that the model does not give it yet.
    """
    if target is None:
        return PredictedClass(outputs.argmax(1))
    by_key = dict.fromkeys(keys, target) if isinstance(target, int) else dict(target)
    missing = [key for key in keys if key not in by_key]
    require(not missing, "Expected a class in `target` for each key", got=f"none for {missing[:1]}")
    y = torch.tensor([by_key[key] for key in keys], device=outputs.device)
    require(
        int(y.min()) >= 0 and int(y.max()) < outputs.size(1),
        f"Expected `target` to hold classes from 0 to {outputs.size(1) - 1}",
        got=y.tolist(),
    )
    return NotYet(PredictedClass(y)) if wanted else PredictedClass(y)


@dataclass(frozen=True, eq=False)
class PredictedClass:
    """The model gives the class y the largest probability; of equals, the first counts."""

    y: Tensor  # [B]

    @property
    def answers(self) -> Tensor:
        return self.y

    def said(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1)

    def take(self, rows: Tensor) -> PredictedClass:
        return PredictedClass(self.y[rows])

    def holds(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1) == self.y

    def margin(self, outputs: Tensor) -> Tensor:
        """P(ŷ) - P(ŷ_s), with ŷ_s the most probable other class."""
        return self._own(outputs) - self._runner_up(outputs)

    def slack(self, outputs: Tensor) -> Tensor:
        """log P(ŷ) - log P(ŷ_s)."""
        return self._own(outputs).clamp(min=TINY).log() - self._runner_up(outputs).clamp(min=TINY).log()

    def loss(self, outputs: Tensor) -> Tensor:
        """-log P(ŷ)."""
        return -self._own(outputs).clamp(min=SMALLEST).log()

    def odds(self, outputs: Tensor) -> Tensor:
        """log P(ŷ) - log (1 - P(ŷ))."""
        return self._own(outputs).clamp(min=SMALLEST).log() - self._others(outputs).clamp(min=SMALLEST).log()

    def precise_loss(self, outputs: Tensor) -> Tensor:
        """-log P(ŷ) = -log(1 - Σ P(others)), exact also where P(ŷ) rounds to 1."""
        others = self._others(outputs)
        return torch.where(others < 0.5, -torch.log1p(-others.clamp(max=0.5)), self.loss(outputs))

    def _own(self, outputs: Tensor) -> Tensor:
        return outputs.gather(1, self.y[:, None]).squeeze(1)

    def _runner_up(self, outputs: Tensor) -> Tensor:
        return outputs.scatter(1, self.y[:, None], float("-inf")).amax(1)

    def _others(self, outputs: Tensor) -> Tensor:
        return outputs.scatter(1, self.y[:, None], 0.0).sum(1)


@dataclass(frozen=True, eq=False)
class NotYet:
    """The model does not give the class that is wanted: what a counterfactual with a target has to change."""

    wanted: PredictedClass

    @property
    def answers(self) -> Tensor:
        return self.wanted.answers

    def said(self, outputs: Tensor) -> Tensor:
        return self.wanted.said(outputs)

    def take(self, rows: Tensor) -> NotYet:
        return NotYet(self.wanted.take(rows))

    def holds(self, outputs: Tensor) -> Tensor:
        return ~self.wanted.holds(outputs)

    def margin(self, outputs: Tensor) -> Tensor:
        return -self.wanted.margin(outputs)

    def slack(self, outputs: Tensor) -> Tensor:
        return -self.wanted.slack(outputs)

    def loss(self, outputs: Tensor) -> Tensor:
        """-log (1 - P(c))."""
        return -self.wanted._others(outputs).clamp(min=SMALLEST).log()

    def odds(self, outputs: Tensor) -> Tensor:
        return -self.wanted.odds(outputs)

    def precise_loss(self, outputs: Tensor) -> Tensor:
        return self.loss(outputs)
