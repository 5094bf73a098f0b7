"""Numbers with the range in which they would fall again: 95 % intervals over the explained instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cf2 import metrics
from cf2.explanation import Explanation
from cf2.report.scene import truth

DRAWS = 1000


class Estimate(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


def share(passed: Sequence[bool]) -> Estimate:
    """A share of instances with Wilson's interval, which stays inside [0, 1] and works at 0 and 1.

    >>> [round(float(v), 3) for v in share([True] * 10)]
    [1.0, 0.722, 1.0]
    """
    n, z = len(passed), 1.959964
    if not n:
        return Estimate(float("nan"), 0.0, 1.0)
    p = float(np.mean(passed))
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * float(np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)))
    return Estimate(p, min(p, max(0.0, middle - reach)), max(p, min(1.0, middle + reach)))


def mean(values: Sequence[float]) -> Estimate:
    """A mean with the interval of a bootstrap over instances; the draws are the same every time."""
    data = np.asarray(values, dtype=float)
    if not len(data):
        return Estimate(float("nan"), float("nan"), float("nan"))
    draws = data[_draws(len(data))].mean(1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(float(data.mean()), float(low), float(high))


def fns(found: Sequence[Explanation]) -> Estimate:
    """F_NS with the interval of a bootstrap over instances."""
    if not found:
        return Estimate(float("nan"), 0.0, 1.0)
    pick = _draws(len(found))
    pn = np.array([e.necessary for e in found], dtype=float)[pick].mean(1)
    ps = np.array([e.sufficient for e in found], dtype=float)[pick].mean(1)
    draws = 2 * pn * ps / np.maximum(pn + ps, 1e-12)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(metrics.fns(found), float(low), float(high))


def truth_f1(found: Sequence[Explanation], context: Mapping[str, Any]) -> Estimate | None:
    """The mean F1 of the chosen edges against the known truth; None where there is none."""
    scores = []
    for e in found:
        true, known = truth(e, e.unit_edges, context)
        if known:
            chosen = e.selected[: len(e.unit_edges)]
            scores.append(2.0 * float((chosen & true).sum()) / max(float(chosen.sum() + true.sum()), 1.0))
    return mean(scores) if scores else None


def _draws(n: int) -> np.ndarray:
    """Which instances each draw holds; fewer draws for very many, whose intervals are narrow anyway."""
    draws = max(100, min(DRAWS, 5_000_000 // n))
    return np.random.default_rng(0).integers(0, n, (draws, n))
