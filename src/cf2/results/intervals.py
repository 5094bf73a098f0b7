"""How sure a number is: 95 % intervals over the explained instances, by scipy, the same in every table and page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cf2.errors import require

DRAWS = 1000
LARGE = 5_000_000  # numbers drawn at once


class Estimate(NamedTuple):
    """A value and the range in which it lies with 95 % confidence."""

    value: float
    low: float
    high: float


def share(passed: Sequence[bool]) -> Estimate:
    """A share of instances with Wilson's interval, which stays inside [0, 1] and works at 0 and 1.

    >>> [round(float(v), 3) for v in share([True] * 10)]
    [1.0, 0.722, 1.0]
    """
    from scipy.stats import binomtest

    require(len(passed) > 0, "Expected at least one instance", got="none")
    test = binomtest(int(np.sum(passed)), len(passed))
    low, high = test.proportion_ci(method="wilson")
    return Estimate(float(test.statistic), float(low), float(high))


def bootstrap(values: Any, statistic: Callable[..., Any] = np.mean, *, draws: int = DRAWS) -> Estimate:
    """A statistic over instances with its percentile interval under resampling; the same for every call.

    Parameters
    ----------
    values : array-like, shape [n] or [n, k]
        One row per instance; with k columns, `statistic` takes k arrays.
    statistic : callable
        Takes arrays and the `axis` over instances; the mean if not given.
    draws : int
        How many resamples are drawn.
    """
    from scipy.stats import bootstrap as resample

    rows = np.asarray(values, dtype=float)
    require(len(rows) > 0, "Expected at least one value to draw from", got="none")
    columns = tuple(rows.reshape(len(rows), -1).T)
    value = float(statistic(*columns, axis=-1))
    if len(rows) == 1 or all(np.ptp(column) == 0 for column in columns):
        return Estimate(value, value, value)  # every resample is the sample
    found = resample(
        columns,
        statistic,
        n_resamples=draws,
        batch=max(1, LARGE // len(rows)),
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(value, float(found.low), float(found.high))


def over_models(tables: Sequence[Any], statistic: Callable[..., Any] = np.mean, *, draws: int = DRAWS) -> Estimate:
    """The median over models of a statistic over instances; its interval draws models, and of each its instances, anew.

    Parameters
    ----------
    tables : sequence of array-like, each of shape [n] or [n, k]
        One per model, with one row per instance, as for `bootstrap`.
    statistic : callable
        Takes arrays and the `axis` over instances; the mean if not given.
    draws : int
        How often models and instances are drawn.
    """
    require(len(tables) > 0, "Expected at least one model", got="none")
    rng = np.random.default_rng(0)
    values, drawn = [], []
    for table in tables:
        rows = np.asarray(table, dtype=float)
        require(len(rows) > 0, "Expected at least one value to draw from", got="none")
        rows = rows.reshape(len(rows), -1)
        values.append(float(statistic(*rows.T, axis=-1)))
        place = rng.integers(len(rows), size=(draws * len(tables), len(rows)))
        drawn.append(statistic(*(column[place] for column in rows.T), axis=-1).reshape(draws, len(tables)))
    which = rng.integers(len(tables), size=(draws, len(tables)))
    medians = np.median(np.take_along_axis(np.stack(drawn), which[None], 0)[0], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return Estimate(float(np.median(values)), float(low), float(high))


def harmonic_of_shares(necessary: Any, sufficient: Any, axis: int = -1) -> Any:
    """F_NS of two columns of verdicts."""
    pn, ps = np.mean(necessary, axis), np.mean(sufficient, axis)
    return 2 * pn * ps / np.maximum(pn + ps, 1e-12)
