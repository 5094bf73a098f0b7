"""Whether two lists of explanations say the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cf2.results.explanation import Explanation, stored_fields
from cf2.results.unit_table import UnitTable


def same_results(one: Sequence[Explanation], other: Sequence[Explanation]) -> bool:
    """Whether two lists explain the same keys with the same sets, scores, probabilities and verdicts."""
    return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other))


def _same(one: Any, other: Any) -> bool:
    for name in (f.name for f in stored_fields(type(one)) if f.name != "seconds"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, UnitTable):
            equal = _same(mine, theirs)
        else:
            equal = np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
        if not equal:
            return False
    return True
