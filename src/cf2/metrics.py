"""How good explanations are: pure functions of Explanations, as fractions in [0, 1].

The verdicts come from really removed edges and features. `soft` alone asks the model again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch

from cf2.errors import CF2Error, require, require_number
from cf2.explanation import Explanation
from cf2.groundtruth import auc, instance_scores, true_units, truth, with_masks
from cf2.work import Session, Work

DRAWS = 1000

__all__ = [
    "Correlation",
    "Fidelity",
    "Interval",
    "auc",
    "bootstrap",
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
    "soft",
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


class Fidelity(NamedTuple):
    """How far the probability of the explained class falls without the explanation, and with only it."""

    plus: float
    minus: float


def fidelity(found: Sequence[Explanation]) -> Fidelity:
    """fid₊ = mean P(ŷ|G) - P(ŷ|G without E), high is good; fid₋ = mean P(ŷ|G) - P(ŷ|E alone), low is good."""
    whole, only, without = (
        np.array([getattr(e, name)[e.prediction] for e in _some(found)], dtype=float)
        for name in ("probabilities", "only", "without")
    )
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
    edges = e.unit_edges[e.selected[: len(e.unit_edges)]].tolist()
    return {("edge", *pair) for pair in edges} | {("feature", *pair) for pair in e.features.tolist()}


def stability(found: Sequence[Explanation]) -> float:
    """The mean Jaccard overlap of explanations of one key by one method, over all pairs of seeds."""
    groups: dict[tuple[int, str], list[Explanation]] = {}
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


class Interval(NamedTuple):
    """The range in which a number lies with 95 % confidence."""

    low: float
    high: float


def bootstrap(
    values: Any,
    statistic: Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """The percentile interval of a statistic over instances drawn with replacement; the same for every call.

    `values` has a row an instance; `statistic` maps draws [draws, n, …] to numbers [draws], or is the mean.
    """
    require_number("draws", draws, 1, integer=True)
    require_number("level", level, 0, 1)
    rows = np.asarray(values, dtype=float)
    require(len(rows) > 0, "Expected at least one value to draw from", got="none")
    rng, found = np.random.default_rng(seed), []
    for part in np.array_split(np.arange(draws), -(-draws * len(rows) // 5_000_000)):
        drawn = rows[rng.integers(0, len(rows), (len(part), len(rows)))]
        found.append(drawn.mean(1) if statistic is None else statistic(drawn))
    low, high = np.percentile(np.concatenate(found), [50 * (1 - level), 50 * (1 + level)])
    return Interval(float(low), float(high))


def intervals(found: Sequence[Explanation], masks: Any = None, data: Any = None) -> dict[str, Interval]:
    """Bootstrap intervals of PN, PS, F_NS and the size, and of the truth metrics where `masks` are given."""
    necessary = np.array([e.necessary for e in _some(found)], dtype=float)
    sufficient = np.array([e.sufficient for e in found], dtype=float)
    ranges = {
        "pn": bootstrap(necessary),
        "ps": bootstrap(sufficient),
        "fns": bootstrap(np.stack([necessary, sufficient], 1), _fns_of_draws),
        "size": bootstrap([e.size for e in found]),
    }
    rows = [] if masks is None else [instance_scores(e, mask, data)[:4] for e, mask in with_masks(found, masks)]
    if rows:
        table = np.array(rows)
        ranges |= {name: bootstrap(table[:, column]) for column, name in enumerate(("acc", "pr", "re", "f1"))}
    return ranges


def _fns_of_draws(drawn: np.ndarray) -> np.ndarray:
    shares = drawn.mean(1)
    both: np.ndarray = 2 * shares.prod(1) / np.maximum(shares.sum(1), 1e-12)
    return both


def evaluate(found: Sequence[Explanation], masks: Any = None, data: Any = None) -> dict[str, Any]:
    """All of it in one dict: the summary, the truth metrics where masks are known, and 95 % intervals."""
    values = summary(found)
    if masks is not None and with_masks(found, masks):
        values |= truth(found, masks, data)
    ranges = intervals(found, masks, data)
    return values | {"intervals": {name: list(interval) for name, interval in ranges.items()}}


# -- by soft mask -------------------------------------------------------------------------------------------


def soft(work: Work, found: Sequence[Explanation]) -> dict[str, float]:
    """PN, PS and F_NS with the scores as soft masks, and the gaps: soft minus removed.

    This is how explanations are often scored, and it flatters: the model never sees such half edges.
    """
    by_key = {e.key: e for e in _some(found)}
    require(len(by_key) == len(found), "Expected one explanation a key", got=f"{len(found)} of {len(by_key)} keys")
    only: list[bool] = []
    without: list[bool] = []
    with Session(work) as session:
        for chunk in session.chunks(list(by_key)):
            rows = [by_key[instance.key] for instance in chunk.instances]
            scores = np.concatenate([e.scores for e in rows])
            if len(scores) != chunk.pack.num_units:
                raise CF2Error("Expected explanations of the same units as the work's", got=f"{len(scores)} units")
            mask = torch.from_numpy(scores).to(chunk.y.device)
            with torch.no_grad(), chunk.predictor.masked(chunk.pack) as run:
                only += (run(mask).argmax(1) == chunk.y).tolist()
                without += (run(1 - mask).argmax(1) != chunk.y).tolist()
    values = {"pn": float(np.mean(without)), "ps": float(np.mean(only))}
    values["fns"] = harmonic(values["pn"], values["ps"])
    hard = {"pn": pn(found), "ps": ps(found), "fns": fns(found)}
    return values | {f"gap_{name}": values[name] - hard[name] for name in hard}


def _some(found: Sequence[Explanation]) -> Sequence[Explanation]:
    require(len(found) > 0, "Expected at least one explanation", got="none")
    return found
