"""How good explanations are: pure functions of Explanations, as fractions in [0, 1].

The verdicts come from really edited graphs; no metric asks the model again. `found` is always a sequence of
Explanation, such as what `cf2.explain` returns, with at least one in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from cf2.errors import require, require_number
from cf2.results.explanation import VERDICTS, Explanation
from cf2.results.ground_truth import TRUTH_FIELDS, auc, instance_scores, true_units, truth, with_masks
from cf2.results.intervals import Estimate, bootstrap, harmonic_of_shares, share
from cf2.spec import Key

__all__ = [
    "Correlation",
    "Fidelity",
    "auc",
    "characterisation",
    "correlation",
    "evaluate",
    "fidelity",
    "fns",
    "harmonic",
    "intervals",
    "jaccard",
    "passed",
    "pn",
    "ps",
    "size",
    "sparsity",
    "stability",
    "summary",
    "true_units",
    "truth",
]


def pn(found: Sequence[Explanation]) -> float:
    """Probability of necessity: the share of explanations without which the prediction changes."""
    return float(np.mean([e.necessary for e in _some(found)]))


def ps(found: Sequence[Explanation]) -> float:
    """Probability of sufficiency: the share of explanations that alone keep the prediction."""
    return float(np.mean([e.sufficient for e in _some(found)]))


def fns(found: Sequence[Explanation]) -> float:
    """F_NS = 2 PN PS / (PN + PS), 0 where both are 0."""
    return harmonic(pn(found), ps(found))


def harmonic(one: float, other: float) -> float:
    """The harmonic mean of two shares, 0 where both are 0.

    >>> harmonic(1.0, 0.5), harmonic(0.0, 0.0)
    (0.6666666666666666, 0.0)
    """
    return 2 * one * other / (one + other) if one + other else 0.0


def size(found: Sequence[Explanation]) -> float:
    """The mean number of units of an explanation."""
    return float(np.mean([e.size for e in _some(found)]))


def sparsity(found: Sequence[Explanation]) -> float:
    """The mean share of the units that an explanation leaves out."""
    return float(np.mean([1 - e.size / max(e.num_units, 1) for e in _some(found)]))


def passed(found: Sequence[Explanation]) -> float:
    """The share of explanations that are sufficient and necessary at once."""
    return float(np.mean([e.sufficient and e.necessary for e in _some(found)]))


def answered(found: Sequence[Explanation]) -> float:
    """The share of explanations that pass every test of the question that was asked of them."""
    best = _some(found)
    return float(np.mean([all(getattr(e, name) for name in VERDICTS.get(e.question, ())) for e in best]))


class Fidelity(NamedTuple):
    """How far the probability of the explained class falls without the explanation, and with only it."""

    plus: float
    minus: float


def fidelity(found: Sequence[Explanation]) -> Fidelity:
    """fid₊ = mean P(ŷ|G) - P(ŷ|G without E), high is good; fid₋ = mean P(ŷ|G) - P(ŷ|E alone), low is good.

    Of a regression, both are mean distances in the model's own unit.
    """
    whole, only, without = (
        np.array([getattr(e, name)[e.explained] for e in _some(found)], dtype=float)
        for name in ("probabilities", "probabilities_only", "probabilities_without")
    )
    if any(e.output == "regression" for e in found):  # a number may rise or fall
        return Fidelity(float(np.abs(whole - without).mean()), float(np.abs(whole - only).mean()))
    return Fidelity(float((whole - without).mean()), float((whole - only).mean()))


def characterisation(plus: float, minus: float, weight: float = 0.5) -> float:
    """The weighted harmonic mean of fid₊ and 1 - fid₋, 0 where either is 0 (GraphFramEx).

    >>> characterisation(1.0, 0.5)
    0.6666666666666666
    """
    require_number("weight", weight, 0, 1)
    if not plus or minus == 1:
        return 0.0
    return 1.0 / (weight / plus + (1 - weight) / (1 - minus))


def summary(found: Sequence[Explanation]) -> dict[str, Any]:
    """Every metric that needs nothing but the explanations, and what they cost."""
    plus, minus = fidelity(found)
    return {
        "n": len(found),
        "pn": pn(found),
        "ps": ps(found),
        "fns": fns(found),
        "size": size(found),
        "passed": passed(found),
        "sparsity": sparsity(found),
        "fidelity_plus": plus,
        "fidelity_minus": minus,
        "characterisation": characterisation(plus, minus),
        "evaluations": float(np.mean([e.evaluations for e in found])),
        "seconds": float(np.mean([e.seconds for e in found])),
    }


# -- over seeds, between metrics, and how sure a number is --------------------------------------------------


def jaccard(one: Explanation, other: Explanation) -> float:
    """The overlap of the units of two explanations of the same instance; two empty ones are equal."""
    first, second = _units(one), _units(other)
    union = first | second
    return len(first & second) / len(union) if union else 1.0


def _units(e: Explanation) -> set[tuple[Any, ...]]:
    return {(name, *ids) for name in e.units.names for ids in e.chosen(name).tolist()}


def stability(found: Sequence[Explanation]) -> float:
    """The mean Jaccard overlap of explanations of one key by one method, over all pairs of seeds."""
    groups: dict[tuple[Key, str], list[Explanation]] = {}
    for e in found:
        groups.setdefault((e.key, e.method), []).append(e)
    overlaps = [jaccard(a, b) for group in groups.values() for a, b in combinations(group, 2) if a.seed != b.seed]
    require(
        len(overlaps) > 0,
        "Expected explanations of the same key under at least two seeds",
        got="none",
        do="Explain the same keys with several values of `seed` and add the results.",
    )
    return float(np.mean(overlaps))


class Correlation(NamedTuple):
    """Kendall's τ and Spearman's ρ; NaN where one of the two metrics is the same for all methods."""

    tau: float
    rho: float


def correlation(one: Sequence[float], other: Sequence[float]) -> Correlation:
    """How far two metrics rank the same methods alike.

    >>> correlation([1, 2, 3, 4], [2, 1, 3, 4])
    Correlation(tau=0.6666666666666669, rho=0.7999999999999999)
    """
    from scipy.stats import kendalltau, spearmanr

    require(
        len(one) == len(other) and len(one) > 1,
        "Expected two metrics of the same methods, at least two of them",
        got=f"{len(one)} and {len(other)} values",
    )
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return Correlation(float("nan"), float("nan"))
    return Correlation(float(kendalltau(one, other).statistic), float(spearmanr(one, other).statistic))


def intervals(found: Sequence[Explanation], masks: Any = None, data: Any = None) -> dict[str, Estimate]:
    """PN, PS, F_NS and the size with their 95 % intervals, and the truth metrics where `masks` are given.

    Parameters
    ----------
    found : sequence of Explanation
    masks, data
        The true edges, as in `truth`.

    Returns
    -------
    dict of str to Estimate
        A value, its lower and its upper end.
    """
    necessary = [e.necessary for e in _some(found)]
    sufficient = [e.sufficient for e in found]
    ranges = {
        "pn": share(necessary),
        "ps": share(sufficient),
        "fns": bootstrap(np.stack([necessary, sufficient], 1), harmonic_of_shares),
        "size": bootstrap([e.size for e in found]),
    }
    rows = [] if masks is None else [instance_scores(e, mask, data)[:4] for e, mask in with_masks(found, masks)]
    if rows:
        table = np.array(rows)
        ranges |= {name: bootstrap(table[:, column]) for column, name in enumerate(TRUTH_FIELDS)}
    return ranges


def evaluate(found: Sequence[Explanation], masks: Any = None, data: Any = None) -> dict[str, Any]:
    """All of it in one dict: the summary, the truth metrics where masks are known, and 95 % intervals."""
    values = summary(found)
    if masks is not None and with_masks(found, masks):
        values |= truth(found, masks, data)
    ranges = intervals(found, masks, data)
    return values | {"intervals": {name: [e.low, e.high] for name, e in ranges.items()}}


def _some(found: Sequence[Explanation]) -> Sequence[Explanation]:
    """The best answer of every key: alternatives to it are not counted."""
    require(len(found) > 0, "Expected at least one explanation", got="none")
    return [e for e in found if not e.rank]
