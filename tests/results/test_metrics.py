"""Every metric equals a slow version that counts in plain loops and shares no code with the package."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_geometric.data import Data
from torch_geometric.explain.metric import characterization_score

from cf2.errors import CF2Error
from cf2.results import metrics
from cf2.results.explanation import Explanation, UnitTable
from cf2.results.explanations import Explanations
from reproduction.rows import over_models


def units_table(pairs: Any, entries: Any = ()) -> UnitTable:
    pairs, entries = (np.asarray(ids, dtype=np.int64).reshape(-1, 2) for ids in (pairs, entries))
    kind = np.repeat(np.array([0, 1], dtype=np.int8), [len(pairs), len(entries)])
    return UnitTable(("edges", "features"), kind, np.concatenate([pairs, entries]))


def made(key: int, draw: np.random.Generator, *, edges: int = 8, features: int = 0, **changes: Any) -> Explanation:
    """An explanation of random content; probabilities sum to 1."""
    pairs = np.array([(i, i + 1 + int(draw.integers(0, 3))) for i in range(edges)], dtype=np.int64).reshape(-1, 2)
    entries = np.array([(i, i) for i in range(features)], dtype=np.int64).reshape(-1, 2)
    units = edges + features
    values: dict[str, Any] = {
        "key": key,
        "task": "node",
        "prediction": int(draw.integers(0, 3)),
        "units": units_table(pairs, entries),
        "scores": (draw.integers(0, 5, units) / 4).astype(np.float32),  # with ties
        "selected": draw.random(units) < 0.4,
        "sufficient": bool(draw.random() < 0.6),
        "necessary": bool(draw.random() < 0.5),
    }
    for name in ("probabilities", "probabilities_only", "probabilities_without"):
        values[name] = draw.dirichlet(np.ones(3)).astype(np.float32)
    return Explanation(**(values | changes))


def sample(seed: int, n: int = 30, **changes: Any) -> list[Explanation]:
    draw = np.random.default_rng(seed)
    return [made(key, draw, edges=int(draw.integers(1, 12)), features=2, **changes) for key in range(n)]


@pytest.mark.parametrize("seed", range(5))
def test_shares_and_sizes_equal_counting(seed: int) -> None:
    found = sample(seed)
    needed = kept = both = units = 0
    left_out = 0.0
    for e in found:
        chosen = sum(1 for picked in e.selected if picked)
        needed, kept, both = needed + e.necessary, kept + e.sufficient, both + (e.necessary and e.sufficient)
        units, left_out = units + chosen, left_out + (len(e.selected) - chosen) / len(e.selected)
    counted = {"pn": needed, "ps": kept, "passed": both, "size": units, "sparsity": left_out}
    for name, total in counted.items():
        assert getattr(metrics, name)(found) == pytest.approx(total / 30)
    assert metrics.fns(found) == pytest.approx(2 * needed * kept / ((needed + kept) * 30))
    assert metrics.fns([replace(e, sufficient=False, necessary=False) for e in found]) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_fidelity_is_a_difference_of_probabilities(seed: int) -> None:
    found = sample(seed)
    plus = minus = 0.0
    for e in found:
        whole = float(e.probabilities[e.prediction])
        plus += whole - float(e.probabilities_without[e.prediction])
        minus += whole - float(e.probabilities_only[e.prediction])
    assert metrics.fidelity(found) == pytest.approx((plus / len(found), minus / len(found)))


@settings(deadline=None, max_examples=60)
@given(st.floats(0.01, 1), st.floats(0, 0.99), st.sampled_from([0.25, 0.5, 0.75]))
def test_characterisation_equals_that_of_torch_geometric(plus: float, minus: float, weight: float) -> None:
    theirs = characterization_score(
        torch.tensor(plus, dtype=torch.double), torch.tensor(minus, dtype=torch.double), weight, 1 - weight
    )
    assert metrics.characterisation(plus, minus, weight) == pytest.approx(float(theirs), rel=1e-6)


def test_characterisation_at_the_borders_and_of_verdicts() -> None:
    for plus, minus in ((0.0, 0.3), (0.4, 1.0)):
        theirs = float(characterization_score(torch.tensor(plus), torch.tensor(minus)))
        assert metrics.characterisation(plus, minus) == theirs == 0.0
    found = sample(3)
    assert metrics.characterisation(metrics.pn(found), 1 - metrics.ps(found)) == pytest.approx(metrics.fns(found))


def slow_truth(found: list[Explanation], masks: dict[int, list[tuple[int, int]]]) -> dict[str, float]:
    rows: list[dict[str, float]] = []
    areas: list[float] = []
    for e in found:
        if e.key not in masks:
            continue
        tp = fp = fn = tn = 0
        good, bad = [], []
        for (a, b), score, picked in zip(e.units.of("edges").tolist(), e.scores.tolist(), e.selected.tolist()):
            real = any((a, b) == pair or (b, a) == pair for pair in masks[e.key])
            (good if real else bad).append(score)
            tp, fp = tp + (real and picked), fp + (not real and picked)
            fn, tn = fn + (real and not picked), tn + (not real and not picked)
        pr = tp / (tp + fp) if tp + fp else 0.0
        re = tp / (tp + fn) if tp + fn else 0.0
        f1 = 2 * pr * re / (pr + re) if pr + re else 0.0
        rows.append({"acc": (tp + tn) / (tp + tn + fp + fn), "pr": pr, "re": re, "f1": f1})
        if good and bad:
            wins = [1.0 if g > b else 0.5 if g == b else 0.0 for g, b in itertools.product(good, bad)]
            areas.append(sum(wins) / len(wins))
    means = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    return means | {"auc": sum(areas) / len(areas)}


@pytest.mark.parametrize("seed", range(5))
def test_truth_equals_counting_per_instance(seed: int) -> None:
    found = sample(seed)
    draw = np.random.default_rng(seed + 100)
    masks = {}
    for e in found[:-4]:  # the last four have no known truth
        pairs = [tuple(pair) for pair in e.units.of("edges").tolist() if draw.random() < 0.4]
        masks[e.key] = [pair[::-1] if draw.random() < 0.5 else pair for pair in pairs]
    ours, slow = metrics.truth(found, masks), slow_truth(found, masks)
    assert {name: ours[name] for name in slow} == pytest.approx(slow)
    assert ours["truths"] == 26
    assert metrics.truth(found, {str(key): pairs for key, pairs in masks.items()}) == pytest.approx(ours)
    in_order = [masks.get(e.key) for e in found]
    assert metrics.truth(found, in_order) == pytest.approx(ours)


def test_a_bool_per_column_is_read_with_the_graph() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    e = made(0, np.random.default_rng(0), edges=3)
    e = replace(e, units=units_table([[0, 1], [1, 2], [2, 3]]), selected=np.array([True, False, False]))
    column = torch.tensor([True, True, False, False, True, True])
    values = metrics.truth([e], {0: column}, Data(edge_index=edge_index))
    assert (values["pr"], values["re"], values["acc"]) == (1.0, 0.5, pytest.approx(2 / 3))
    assert values == metrics.truth([replace(e, key=2)], {2: column}, [None, None, Data(edge_index=edge_index)])
    assert values == metrics.truth([e], {0: np.array([True, False, True])})  # aligned with the units
    with pytest.raises(CF2Error, match="bool for each of the 3 edges of 0"):
        metrics.truth([e], {0: column})
    with pytest.raises(CF2Error, match="6 columns of edge_index"):
        metrics.truth([e], {0: column[:4]}, Data(edge_index=edge_index))


def test_auc_and_directions_of_the_truth() -> None:
    (e,) = sample(0, 1)
    assert "auc" not in metrics.truth([e], {0: e.units.of("edges")}), "every edge is true"
    assert math.isnan(metrics.auc(np.array([0.1, 0.2]), np.array([True, True])))
    e = made(0, np.random.default_rng(0), edges=2, directed=True, units=units_table([[0, 1], [1, 0]]))
    assert metrics.true_units(e, [(0, 1)]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: metrics.pn([]), "at least one explanation"),
        (lambda: metrics.truth(sample(0, 2), {99: [(0, 1)]}), "at least one explained key"),
        (lambda: metrics.truth(sample(0, 2), [None]), "one mask per explanation"),
        (lambda: metrics.truth(sample(0, 1), {0: [1, 2, 3]}), "pairs of node ids"),
        (lambda: metrics.stability(sample(0, 3)), "at least two seeds"),
        (lambda: metrics.correlation([1.0], [1.0]), "at least two"),
        (lambda: metrics.bootstrap([]), "at least one value"),
        (lambda: metrics.share([]), "at least one instance"),
    ],
)
def test_mistakes_are_named(call: Any, says: str) -> None:
    with pytest.raises(CF2Error, match=says):
        call()


def test_stability_is_the_mean_jaccard_over_pairs_of_seeds() -> None:
    draw = np.random.default_rng(7)
    found = []
    for key in range(4):
        first = made(key, draw, features=3, seed=0, method="random")
        for seed in (0, 1, 2):
            found.append(replace(first, seed=seed, selected=draw.random(first.num_units) < 0.5))
    overlaps = []
    for a, b in itertools.combinations(found, 2):
        if a.key == b.key:
            one, other = set(np.flatnonzero(a.selected)), set(np.flatnonzero(b.selected))
            overlaps.append(len(one & other) / len(one | other) if one | other else 1.0)
    assert len(overlaps) == 12
    assert metrics.stability(found) == pytest.approx(sum(overlaps) / 12)
    same = [replace(found[0], seed=seed) for seed in (0, 1)]
    assert Explanations(tuple(same)).stability() == 1.0


def test_a_metric_that_is_the_same_for_all_methods_correlates_with_none() -> None:
    assert all(math.isnan(value) for value in metrics.correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]))
    assert metrics.correlation([1, 2, 2, 4], [4, 2, 2, 1]) == pytest.approx((-1.0, -1.0))


def test_the_summary_and_the_evaluation_hold_every_metric() -> None:
    found = sample(4)
    assert {"n", "pn", "ps", "fns", "size", "sparsity", "fidelity_plus", "evaluations"} <= set(metrics.summary(found))
    plain = metrics.evaluate(found)
    assert "f1" not in plain
    known = metrics.evaluate(found, {0: found[0].units.of("edges")[:1]})
    assert {"acc", "pr", "re", "f1", "auc"} <= set(known)
    assert set(known["intervals"]) == {"pn", "ps", "fns", "size", "acc", "pr", "re", "f1"}


# -- intervals -----------------------------------------------------------------------------------------------------


def chains(n: int, seed: int = 0) -> list[Explanation]:
    """Random verdicts, and sets of random sizes among the six edges of a chain."""
    draw, units = np.random.default_rng(seed), units_table([(i, i + 1) for i in range(6)])
    return [made(key, draw, edges=6, units=units) for key in range(n)]


def test_the_intervals_of_an_evaluation_are_scipys_own() -> None:
    found = chains(40)
    truth = {e.key: [(0, 1), (1, 2)] for e in found}
    values = metrics.evaluate(found, truth)
    for name, (value, low, high) in metrics.intervals(found).items():
        assert value == pytest.approx(getattr(metrics, name)(found))
        assert low < value < high
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


def test_the_bootstrap_is_the_same_twice() -> None:
    values = np.random.default_rng(0).random(20)
    assert metrics.bootstrap(values) == metrics.bootstrap(values)
    for constant in ([2.0], [2.0, 2.0, 2.0]):
        assert metrics.bootstrap(constant) == (2.0, 2.0, 2.0), "nothing varies"


def test_the_median_over_models_has_an_interval_over_models_and_instances() -> None:
    assert over_models([[1.0, 1.0], [1.0], [1.0, 1.0, 1.0]]) == metrics.Estimate(1.0, 1.0, 1.0)
    models = over_models([[0.2], [0.5], [0.9]])  # no instances to draw from: only models
    assert (models.value, models.low, models.high) == pytest.approx((0.5, 0.2, 0.9))
    alike = [[0.0, 1.0] * 20] * 5  # the same model five times: only instances
    spread = over_models(alike)
    assert spread.value == 0.5
    assert 0.3 < spread.low < 0.5 < spread.high < 0.7
    pairs = over_models([[[1, 1], [0, 1]]] * 3, metrics.harmonic_of_shares)
    assert pairs.value == pytest.approx(2 / 3)
    assert float(metrics.harmonic_of_shares([0.0, 0.0], [0.0, 0.0])) == 0
    assert over_models(alike) == spread
