"""The final check: the model on the set alone, and on all but the set. Every verdict comes from here."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.core.packing import Pack
from cf2.core.predictor import Predictor
from cf2.verify.criterion import Criterion, passes
from cf2.verify.question import NECESSARY, SUFFICIENT, Test

RUNS = 2  # evaluations that a verdict costs


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the model said of one set per instance, and whether that passes the two tests."""

    only: Tensor  # [B, classes]
    without: Tensor  # [B, classes]
    sufficient: Tensor  # [B] bool
    necessary: Tensor  # [B] bool

    def passes(self, tests: tuple[Test, ...]) -> Tensor:
        """Whether every test of a question is passed, bool [B]."""
        by_same = {True: self.sufficient, False: self.necessary}
        return torch.stack([by_same[test.same] for test in tests]).all(0)


def judge(predictor: Predictor, pack: Pack, criterion: Criterion, chosen: Tensor) -> Verdict:
    """Run the model on the chosen units [units, bool] alone and on all but them."""
    only = SUFFICIENT.intervention.outputs(predictor, pack, chosen)
    without = NECESSARY.intervention.outputs(predictor, pack, chosen)
    return Verdict(only, without, passes(criterion, only, SUFFICIENT.same), passes(criterion, without, NECESSARY.same))
