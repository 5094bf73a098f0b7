"""The final check: the model on the set alone, and on all but the set. Every verdict comes from here."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.core.packing import Pack
from cf2.core.predictor import Predictor
from cf2.errors import CF2Error
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


def judge(predictor: Predictor, pack: Pack, criterion: Criterion, chosen: Tensor, outputs: Tensor) -> Verdict:
    """Run the model on the chosen units [units, bool] alone and on all but them.

    `outputs` are what the model says of the graphs as they are. Where that is not the answer in question, nothing can
    be the reason for it: neither test is passed.
    """
    only = SUFFICIENT.intervention.outputs(predictor, pack, chosen)
    without = NECESSARY.intervention.outputs(predictor, pack, chosen)
    given = criterion.holds(outputs)
    verdict = Verdict(
        only,
        without,
        given & passes(criterion, only, SUFFICIENT.same),
        given & passes(criterion, without, NECESSARY.same),
    )
    _refuse_nothing(pack, verdict, chosen)
    return verdict


def _refuse_nothing(pack: Pack, verdict: Verdict, chosen: Tensor) -> None:
    """Nothing was removed, and the answer changed: that is no function of the graph."""
    size = torch.zeros(pack.num_instances, device=chosen.device).index_add(0, pack.units.owner, chosen.float())
    wrong = (verdict.necessary & (size == 0)).nonzero().flatten()
    if len(wrong):
        raise CF2Error(
            f"Expected the model to say the same of {pack.key(int(wrong[0]))} as before when nothing is removed",
            got="another answer",
            do="It is not a function of the graph: look for dropout, noise, or something that it keeps between calls.",
        )
