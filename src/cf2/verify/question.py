"""What is asked of a target: which tests a set of units must pass.

>>> [test.name for test in QUESTIONS["why"]]
['sufficient', 'necessary']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cf2.verify.intervention import EDITED, ONLY, WITHOUT, Intervention


@dataclass(frozen=True)
class Test:
    """After the intervention the model must give the same answer, or another one."""

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
