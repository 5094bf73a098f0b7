"""What a set S of units does to a graph. Nothing else in the package says what is there and what is gone.

>>> import torch
>>> chosen = torch.tensor([True, False])
>>> [intervention.states(chosen).tolist() for intervention in (ONLY, WITHOUT)]
[[True, False], [False, True]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.core.packing import Pack
from cf2.core.predictor import Predictor


@dataclass(frozen=True)
class Intervention:
    """From a set of units, hard (bool) or soft (in [0, 1]), to which units are as they were at first."""

    name: str
    keeps: bool  # whether the units of S are what stays, or what goes

    def states(self, chosen: Tensor) -> Tensor:
        """Which units are as they were [units], as S is given: bool, or soft and differentiable.

        What can be removed is there while it is as it was; what can be added or changed is not yet.
        """
        if self.keeps:
            return chosen
        return ~chosen if chosen.dtype == torch.bool else 1 - chosen

    def outputs(self, predictor: Predictor, pack: Pack, chosen: Tensor) -> Tensor:
        """What the model says after the intervention, really carried out: [B, classes].

        Keeping S alone adds and changes nothing.
        """
        states = self.states(chosen)
        return predictor.hard(pack, pack.units.kept(states) if self.keeps else states)


ONLY = Intervention("only", keeps=True)
WITHOUT = Intervention("without", keeps=False)
EDITED = Intervention("edited", keeps=False)  # every edit of S carried out: removed, added or changed


def soft_outputs(
    run: Callable[[Tensor], Tensor], interventions: Sequence[Intervention], masks: Sequence[Tensor]
) -> list[Tensor]:
    """What the model says under soft sets [units], one per intervention: [B, classes] each, in one packed pass.

    `run` is `Predictor.soft` of the pack repeated once per intervention.
    """
    stacked = run(torch.cat([intervention.states(mask) for intervention, mask in zip(interventions, masks)]))
    return list(torch.split(stacked, len(stacked) // len(interventions)))
