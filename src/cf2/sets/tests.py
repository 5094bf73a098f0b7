"""Interventions, criteria and tests: what a set S of units does to an input, and what the model has to say then.

Nothing else in the package says what is there and what is gone.

>>> import torch
>>> chosen = torch.tensor([True, False])
>>> [intervention.states(chosen).tolist() for intervention in (ONLY, WITHOUT)]
[[True, False], [False, True]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from cf2.errors import CF2Error
from cf2.sets.oracle import Oracle


@dataclass(frozen=True)
class Intervention:
    """From a set of units, hard (bool) or soft (in [0, 1]), to which units are as they were at first."""

    name: str
    keeps: bool  # whether the units of S are what stays, or what goes

    def states(self, chosen: Tensor, absent: Tensor | None = None) -> Tensor:
        """Which units are as they were at first, in the shape in which S is given: bool, or soft and differentiable.

        Keeping S alone adds and changes nothing, so `absent` units stay as they were.
        """
        if self.keeps:
            return chosen if absent is None else chosen | absent
        return ~chosen if chosen.dtype == torch.bool else 1 - chosen


ONLY = Intervention("only", keeps=True)
WITHOUT = Intervention("without", keeps=False)
EDITED = Intervention("edited", keeps=False)  # every edit of S carried out: removed, added or changed


def soft_outputs(
    run: Callable[[Tensor], Tensor], interventions: Sequence[Intervention], masks: Sequence[Tensor]
) -> list[Tensor]:
    """What the model says under soft sets [units], one per intervention: [B, classes] each, in one packed pass.

    `run` gives the outputs of soft states, of all instances once per intervention.
    """
    stacked = run(torch.cat([intervention.states(mask) for intervention, mask in zip(interventions, masks)]))
    return list(torch.split(stacked, len(stacked) // len(interventions)))


# -- question -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Test:
    """Whether the model must give the `same` answer after the intervention, or another one."""

    __test__ = False  # not a test of ours: pytest would collect the name

    name: str
    intervention: Intervention
    same: bool


SUFFICIENT = Test("sufficient", ONLY, same=True)
NECESSARY = Test("necessary", WITHOUT, same=False)
CHANGED = Test("changed", EDITED, same=False)

QUESTIONS: Mapping[str, tuple[Test, ...]] = MappingProxyType(
    {"why": (SUFFICIENT, NECESSARY), "factual": (SUFFICIENT,), "counterfactual": (CHANGED,)}
)


# -- criterion ------------------------------------------------------------------------------------------------

TINY = 1e-12
NO_ANSWER = -30.0  # the slack of outputs that are NaN: below log(TINY), with which a class is missed the most
SMALLEST = 1.2e-38  # the smallest normal float; below it, -log P has no gradient


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
        """By how much outputs give the answer, in [-1, 1]: the quantity of the paper's hinges."""

    def slack(self, outputs: Tensor) -> Tensor:
        """The same without saturation: positive if they give the answer, and with a slope everywhere."""

    def loss(self, outputs: Tensor) -> Tensor:
        """A loss that falls as outputs come nearer to the answer."""

    def odds(self, outputs: Tensor) -> Tensor:
        """A number that grows with the answer and keeps its gradient however sure the model is."""

    def precise_loss(self, outputs: Tensor) -> Tensor:
        """`loss`, computed so that it does not round to 0 for sure outputs."""


def passes(criterion: Criterion, outputs: Tensor, same: bool | Tensor, confidence: float = 0.0) -> Tensor:
    """Whether outputs give the `same` answer, or another one, by a margin above `confidence`; for all or per row [R].

    Outputs that are NaN give no answer at all, neither the same nor another one.
    """
    good = (criterion.holds(outputs) == same) & ~outputs.isnan().any(1)
    if not confidence:
        return good
    return good & (_signed(criterion.margin(outputs), same) > confidence)


def slack(criterion: Criterion, outputs: Tensor, same: bool | Tensor) -> Tensor:
    """By how much outputs give the same answer, or another one, without saturation, in single precision."""
    room = criterion.slack(outputs).float()
    return torch.where(room.isnan(), NO_ANSWER, _signed(room, same))


def _signed(margin: Tensor, same: bool | Tensor) -> Tensor:
    if isinstance(same, Tensor):
        return torch.where(same, margin, -margin)
    return margin if same else -margin


@dataclass(frozen=True, eq=False)
class PredictedClass:
    """The model gives the class y the largest probability; of equal ones, the first counts."""

    answers: Tensor  # [B], the class y of each instance

    def said(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1)

    def take(self, rows: Tensor) -> PredictedClass:
        return PredictedClass(self.answers[rows])

    def holds(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1) == self.answers

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
        return _column(outputs, self.answers)

    def _runner_up(self, outputs: Tensor) -> Tensor:
        return outputs.scatter(1, self.answers[:, None], float("-inf")).amax(1)

    def _others(self, outputs: Tensor) -> Tensor:
        return outputs.scatter(1, self.answers[:, None], 0.0).sum(1)


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


@dataclass(frozen=True, eq=False)
class Label:
    """The model's probability of one label of many is on the same side of 0.5."""

    answers: Tensor  # [B], the label
    given: Tensor  # [B] bool, whether the model gives it

    def said(self, outputs: Tensor) -> Tensor:
        return self.answers

    def take(self, rows: Tensor) -> Label:
        return Label(self.answers[rows], self.given[rows])

    def holds(self, outputs: Tensor) -> Tensor:
        return (_column(outputs, self.answers) > 0.5) == self.given

    def margin(self, outputs: Tensor) -> Tensor:
        """2P - 1 where the label is given, 1 - 2P where it is not."""
        return 2 * self._own(outputs) - 1

    def slack(self, outputs: Tensor) -> Tensor:
        return self.odds(outputs).clamp(-27, 27)  # as far as log(TINY) goes for classes

    def loss(self, outputs: Tensor) -> Tensor:
        """-log P, of the label or of its absence."""
        return -self._own(outputs).clamp(min=SMALLEST).log()

    def odds(self, outputs: Tensor) -> Tensor:
        own = self._own(outputs)
        return own.clamp(min=SMALLEST).log() - (1 - own).clamp(min=SMALLEST).log()

    def precise_loss(self, outputs: Tensor) -> Tensor:
        other = 1 - self._own(outputs)
        return torch.where(other < 0.5, -torch.log1p(-other.clamp(max=0.5)), self.loss(outputs))

    def _own(self, outputs: Tensor) -> Tensor:
        own = _column(outputs, self.answers)
        return torch.where(self.given, own, 1 - own)


@dataclass(frozen=True, eq=False)
class Within:
    """The number that the model gives stays within a tolerance of what it is on the whole graph."""

    answers: Tensor  # [B], which of the outputs is explained
    value: Tensor  # [B], what the model gives
    tolerance: float

    def said(self, outputs: Tensor) -> Tensor:
        return self.answers

    def take(self, rows: Tensor) -> Within:
        return Within(self.answers[rows], self.value[rows], self.tolerance)

    def holds(self, outputs: Tensor) -> Tensor:
        return self._distance(outputs) <= 1

    def margin(self, outputs: Tensor) -> Tensor:
        """1 - d inside of the tolerance and 1/d - 1 outside of it, with d the distance in tolerances."""
        d = self._distance(outputs)
        return torch.where(d <= 1, 1 - d, 1 / d.clamp(min=1) - 1)

    def slack(self, outputs: Tensor) -> Tensor:
        """1 - d."""
        return 1 - self._distance(outputs)

    def loss(self, outputs: Tensor) -> Tensor:
        """√(1 + d²) - 1: a square near the answer, and no steeper than d far from it."""
        return (1 + self._distance(outputs) ** 2).sqrt() - 1

    def odds(self, outputs: Tensor) -> Tensor:
        return self.slack(outputs)

    def precise_loss(self, outputs: Tensor) -> Tensor:
        return self._distance(outputs)

    def _distance(self, outputs: Tensor) -> Tensor:
        """|v - value| / tolerance, with a slope where it is 0, too."""
        apart = (_column(outputs, self.answers) - self.value) / self.tolerance
        return torch.where(apart >= 0, apart, -apart)


def _column(outputs: Tensor, column: Tensor) -> Tensor:
    """One output of each row [R]."""
    return outputs.gather(1, column[:, None]).squeeze(1)


# -- verdict ---------------------------------------------------------------------------------------------

SAME_MARGIN = 1e-4  # margins that differ by less are equal up to rounding
VERDICT_RUNS = 2  # evaluations that a verdict costs


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the model said of one set per instance, and whether that passes the two tests."""

    only: Tensor  # [B, classes]
    without: Tensor  # [B, classes]
    sufficient: Tensor  # [B] bool
    necessary: Tensor  # [B] bool
    margins: Tensor  # [B, 2], by how much each of the tests is passed
    tied: Tensor  # [B] bool, whether rounding decides the answer or a test
    plain: Tensor  # [B] bool, whether the tests were run again on each whole input by itself
    mixed: Tensor  # [B] bool, whether that gave something else

    def passes(self, tests: tuple[Test, ...], confidence: float = 0.0) -> Tensor:
        """Whether every test of a question is passed, and by a margin above `confidence`, bool [B]."""
        columns = [int(not test.same) for test in tests]
        passed = torch.stack([self.sufficient, self.necessary], 1)[:, columns].all(1)
        return passed & (self.margins[:, columns] > confidence).all(1) if confidence else passed


def judge(oracle: Oracle, criterion: Criterion, sets: Tensor, outputs: Tensor) -> Verdict:
    """Run the model on the sets [B, U, bool] alone and on all but them. Every verdict comes from here.

    `outputs` are what the model says of the inputs as they are. If that is not the answer in question, no set explains
    it, and neither test is passed.
    """
    only, without = (oracle.checked(test.intervention.states(sets, oracle.absent)) for test in QUESTIONS["why"])
    given = criterion.holds(outputs)
    sufficient = given & passes(criterion, only, SUFFICIENT.same)
    necessary = given & passes(criterion, without, NECESSARY.same)
    margins = torch.stack([criterion.margin(only), -criterion.margin(without)], 1)
    # Nothing removed is the input as it was: a model that says something else then is no function of its input.
    nothing = ~sets.any(1)
    apart = (criterion.margin(outputs) + margins[:, 1]).abs() > SAME_MARGIN
    wrong = (necessary & nothing & apart).nonzero().flatten()
    if len(wrong):
        raise CF2Error(
            f"Expected the model to give the same output for {oracle.name(int(wrong[0]))} when nothing is removed",
            got="another output",
            do="Its output varies between calls: look for dropout, noise or stored state.",
        )
    none = torch.zeros_like(given)
    return Verdict(only, without, sufficient, necessary & ~nothing, margins, none, none, none)
