"""Intervals are scipy's own, hold the value, and cover what they say as often as they say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cf2.errors import CF2Error
from cf2.results import metrics
from cf2.results import metrics as intervals
from cf2.results.explanation import Explanation, UnitTable


def explained(n: int, seed: int = 0) -> list[Explanation]:
    """Random verdicts, and sets of random sizes among six edges."""
    draw = np.random.default_rng(seed)
    pairs = np.array([(i, i + 1) for i in range(6)])
    nothing = np.full(2, 0.5, dtype=np.float32)
    one = Explanation(
        key=0,
        task="node",
        prediction=0,
        units=UnitTable(("edges",), np.zeros(6, np.int8), pairs),
        scores=np.zeros(6, np.float32),
        selected=np.zeros(6, bool),
        probabilities=nothing,
        probabilities_only=nothing,
        probabilities_without=nothing,
        sufficient=False,
        necessary=False,
    )
    return [
        replace(
            one,
            key=key,
            selected=draw.random(6) < 0.4,
            sufficient=bool(draw.random() < 0.7),
            necessary=bool(draw.random() < 0.5),
        )
        for key in range(n)
    ]


def test_the_intervals_of_an_evaluation_are_scipys_own() -> None:
    found = explained(40)
    truth = {e.key: [(0, 1), (1, 2)] for e in found}
    values = metrics.evaluate(found, truth)
    necessary, sufficient = (np.array([getattr(e, name) for e in found]) for name in ("necessary", "sufficient"))
    for name, passed in (("pn", necessary), ("ps", sufficient)):
        wilson = stats.binomtest(int(passed.sum()), 40).proportion_ci(0.95, method="wilson")
        assert values["intervals"][name] == pytest.approx([wilson.low, wilson.high])

    def resampled(data: tuple[np.ndarray, ...], statistic: Any) -> list[float]:
        options: dict[str, Any] = {"n_resamples": 1000, "method": "percentile", "rng": np.random.default_rng(0)}
        found = stats.bootstrap(data, statistic, paired=True, vectorized=True, confidence_level=0.95, **options)
        return [found.confidence_interval.low, found.confidence_interval.high]

    def f_ns(one: np.ndarray, other: np.ndarray, axis: int = -1) -> np.ndarray:
        pn, ps = one.mean(axis), other.mean(axis)
        return 2 * pn * ps / (pn + ps)

    sizes = np.array([e.selected.sum() for e in found], dtype=float)
    f1 = np.array([2 * e.selected[:2].sum() / (2 + e.selected.sum()) for e in found])
    assert values["intervals"]["size"] == pytest.approx(resampled((sizes,), np.mean))
    assert values["intervals"]["f1"] == pytest.approx(resampled((f1,), np.mean))
    columns = (necessary.astype(float), sufficient.astype(float))
    assert values["intervals"]["fns"] == pytest.approx(resampled(columns, f_ns))


def test_an_interval_holds_its_value() -> None:
    found = explained(30, seed=1)
    ranges = metrics.intervals(found)
    assert set(ranges) == {"pn", "ps", "fns", "size"}
    for name, (value, low, high) in ranges.items():
        assert value == pytest.approx(getattr(metrics, name)(found))
        assert low <= value <= high
        assert low < high


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 40), st.integers(1, 40))
def test_a_share_has_wilsons_interval(hits: int, n: int) -> None:
    hits = min(hits, n)
    value, low, high = intervals.share([True] * hits + [False] * (n - hits))
    z = 1.959963984540054
    centre = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)
    assert (value, low, high) == pytest.approx((hits / n, max(centre - half, 0), min(centre + half, 1)), abs=1e-9)


def test_the_bootstrap_is_the_same_twice_and_covers_the_mean_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    hits = 0
    for _ in range(120):
        _, low, high = intervals.bootstrap(draw.normal(3.0, 1.0, 60), draws=400)
        hits += low <= 3.0 <= high
    assert 0.88 <= hits / 120 <= 0.99
    values = draw.random(20)
    assert intervals.bootstrap(values) == intervals.bootstrap(values)


def test_the_bootstrap_of_f_ns_is_a_slow_one() -> None:
    """Resampling instances and asking for the metric each time; only the random numbers differ."""
    found = explained(30, seed=2)
    rows = np.random.default_rng(5).integers(0, 30, (2000, 30))
    slow = np.percentile([metrics.fns([found[i] for i in row]) for row in rows], [2.5, 97.5])
    _, low, high = metrics.intervals(found)["fns"]
    assert (low, high) == pytest.approx(tuple(slow), abs=0.03)


@pytest.mark.parametrize("values", [[2.0], [3.0, 3.0, 3.0]])
def test_where_nothing_varies_nothing_is_uncertain(values: list[float]) -> None:
    assert intervals.bootstrap(values) == (values[0], values[0], values[0])


def test_nothing_has_no_interval() -> None:
    with pytest.raises(CF2Error, match="at least one value"):
        intervals.bootstrap([])
    with pytest.raises(CF2Error, match="at least one instance"):
        intervals.share([])


def test_f_ns_of_shares_is_zero_where_both_are() -> None:
    assert float(intervals.harmonic_of_shares([0.0, 0.0], [0.0, 0.0])) == 0
    assert float(intervals.harmonic_of_shares([1.0, 0.0], [1.0, 1.0])) == pytest.approx(2 / 3)


def test_the_median_over_models_has_an_interval_over_models_and_instances() -> None:
    same = intervals.over_models([[1.0, 1.0], [1.0], [1.0, 1.0, 1.0]])
    assert same == intervals.Estimate(1.0, 1.0, 1.0)
    models = intervals.over_models([[0.2], [0.5], [0.9]])  # no instances to draw from: only models
    assert (models.value, models.low, models.high) == pytest.approx((0.5, 0.2, 0.9))
    alike = [[0.0, 1.0] * 20] * 5  # the same model five times: only instances
    spread = intervals.over_models(alike)
    assert spread.value == 0.5
    assert 0.3 < spread.low < 0.5 < spread.high < 0.7
    pairs = intervals.over_models([[[1, 1], [0, 1]]] * 3, intervals.harmonic_of_shares)
    assert pairs.value == pytest.approx(2 / 3)
    assert intervals.over_models(alike) == spread
