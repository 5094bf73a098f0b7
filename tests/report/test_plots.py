"""The decision strip and the cohort plot show what plain code counts and what the model says of edited graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCN

import cf2
from cf2.errors import CF2Error
from cf2.report.plots import margin, shared
from report.explained_toys import ring_and_model


def test_the_strip_goes_through_edited_graphs_and_ends_in_both_tests(tmp_path: Path) -> None:
    model, data, found = ring_and_model()
    e = max(found, key=lambda e: e.size)
    figure = e.plot("strip", model, data, path=tmp_path / "strip.png")
    bars, away, back = figure.axes
    named = [label.get_text() for label in bars.get_yticklabels()]
    assert len(named) == e.size
    (first, *_), (*_, last) = away.lines[-1].get_ydata(), back.lines[-1].get_ydata()
    assert first == pytest.approx(margin(e, e.probabilities), abs=1e-5)
    assert away.lines[-1].get_ydata()[-1] == pytest.approx(margin(e, e.probabilities_without), abs=1e-5)
    assert last == pytest.approx(margin(e, e.probabilities_only), abs=1e-5)
    order = np.flatnonzero(e.selected)[np.argsort(-e.scores[e.selected], kind="stable")]
    unit = int(order[0])  # the first step, by hand
    x, edge_index, (a, b) = data.x.clone(), data.edge_index, e.units.ids[unit].tolist()
    if e.units.names[e.units.kind[unit]] == "features":
        x[a, b] = 0
        assert f"{['age', 'mass', 'size'][b]} = {float(data.x[a, b]):.4g}" in named[0]
    else:
        edge_index = edge_index[:, [{u, v} != {a, b} for u, v in edge_index.t().tolist()]]
    said = model(x, edge_index)[e.key].softmax(0).detach().numpy()
    assert away.lines[-1].get_ydata()[1] == pytest.approx(margin(e, said), abs=1e-5)
    assert (tmp_path / "strip.png").stat().st_size > 1000


def test_without_a_model_the_strip_has_what_is_stored() -> None:
    _, _, found = ring_and_model()
    e = next(e for e in found if e.size)
    assert [len(axes.lines[-1].get_ydata()) for axes in e.plot("strip").axes[1:]] == [2, 1]
    with pytest.raises(CF2Error, match="at least one unit"):
        replace(e, selected=e.selected & False, status="unverified").plot("strip")
    with pytest.raises(CF2Error, match="`kind` of plot"):
        e.plot("stripe")


def test_the_strip_of_a_function_runs_the_function() -> None:
    def votes(states: np.ndarray) -> np.ndarray:
        agreed = states[:, :2].sum(1) - 1.5
        return np.stack([-agreed, agreed], 1)

    (e,) = cf2.explain_sets(votes, 3, output="logits")
    away, back = (axes.lines[-1].get_ydata() for axes in e.plot("strip", votes, 3).axes[1:])
    assert len(away) == len(back) == e.size + 1
    assert (away[-1], back[-1]) == pytest.approx((margin(e, e.probabilities_without), margin(e, e.probabilities_only)))


def test_features_alone_are_bars_and_no_ring_of_dots() -> None:
    torch.manual_seed(1)
    _, data, _ = ring_and_model()
    model = GCN(3, 8, 2, 2).eval()
    e = next(e for e in cf2.explain(model, data, range(5), units="features", feature_names=list("abc")) if e.size)
    assert any(", a" in label.get_text() or ", b" in label.get_text() or ", c" in label.get_text()
               for label in e.plot().axes[0].get_yticklabels())  # fmt: skip


def test_the_cohort_counts_what_answers_hold(tmp_path: Path) -> None:
    _, _, found = ring_and_model()
    rows = dict(shared(found))
    holding = [e for e in found if e.size and "age" in {["age", "mass", "size"][c] for c in e.features[:, 1]}]
    assert sum(count for count, _ in rows["age"].values()) == len(holding)
    for number in {e.prediction for e in found if e.size}:
        assert rows["age"][f"class {number}"][1] == sum(e.prediction == number for e in found if e.size)
    figure = found.plot(path=tmp_path / "cohort.png")
    assert "age" in [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert (tmp_path / "cohort.png").stat().st_size > 1000
    assert found.plot(0).axes  # one of them, as before
