"""Saliency is the slope of the log-odds, integrated gradients share out its change; a reduction goes by slopes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
import torch

import cf2
from cf2.methods.contract import Problem
from cf2.methods.reduction import reduced, sum_of_gradients
from methods_toys import STAR, Lights, edges, star
from toys import NodeNet, random_graph


def test_saliency_is_the_slope_and_integrated_gradients_keep_the_sign() -> None:
    (steep,) = cf2.explain(Lights(), STAR, [0], method="gradient", k=3)
    assert edges(steep) == {(0, 1), (0, 2), (0, 3)}
    by_edge = dict(zip(map(tuple, steep.units.of("edges").tolist()), steep.scores.tolist()))
    assert by_edge[0, 1] == pytest.approx(1.0)
    assert by_edge[0, 4] == 0.0
    assert by_edge[0, 5] == pytest.approx(0.5)
    (signed,) = cf2.explain(Lights(), STAR, [0], method="gradient", kind="integrated", threshold=0.9)
    assert edges(signed) == {(0, 1), (0, 2), (0, 3)}
    assert dict(zip(map(tuple, signed.units.ids.tolist()), signed.scores.tolist()))[0, 5] == pytest.approx(-0.5)
    assert signed.evaluations == 3 * 20 + 4


def test_integrated_gradients_add_up_to_the_change_of_the_log_odds(problem_of: Callable[..., Problem]) -> None:
    """The log-odds are linear in the masks here, so any number of steps gives the exact shares."""
    few, many = (
        cf2.explain(Lights(), STAR, [0], method="gradient", kind="integrated", steps=steps, k=1)[0].scores
        for steps in (1, 50)
    )
    assert np.allclose(few, many, atol=1e-5)
    problem = problem_of(NodeNet("gin"), random_graph(20, 25, seed=1), [3], masking="messages")
    total = sum_of_gradients(problem, [(step + 0.5) / 400 for step in range(400)]) / 400
    with torch.no_grad(), problem.predictor.soft(problem.pack) as run:
        ends = [problem.criterion.odds(run(torch.full_like(total, end)))[0] for end in (0.0, 1.0)]
    assert float(total.sum()) == pytest.approx(float(ends[1] - ends[0]), rel=0.02)


@pytest.mark.parametrize("method", ["cf2", "cf2-relaxed", "cf-gnnexplainer", "random", "gradient", "gnnexplainer"])
def test_a_node_that_nothing_reaches_is_explained_by_nothing(method: str) -> None:
    """Alone in its pack, so that no unit at all gets a gradient."""
    data = random_graph(5, 6, seed=1)
    data.x = torch.cat([data.x, torch.ones(1, 4)])
    (e,) = cf2.explain(NodeNet("gin"), data, [5], method=method)
    assert (e.status, e.size, e.sufficient, e.necessary) == ("empty", 0, True, False)


# -- reductions ---------------------------------------------------------------------------------------------

MANY = star(*[0.01] * 20, *[1.0] * 3, *[0.01] * 7)  # 3.27 light in all, and 2.9 are needed


def test_the_steepest_units_may_be_chosen_and_no_others(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(Lights(2.9), MANY, [0, 5])
    limited = reduced(problem, 4)
    left_out, leaf = problem.pack.split(limited.pack.units.left_out)  # type: ignore[arg-type]
    ids = problem.tables[0].ids[~left_out].tolist()
    assert len(ids) == 4
    assert [pair for pair in ids if pair[1] in (21, 22, 23)] == [[0, 21], [0, 22], [0, 23]]
    assert not leaf.any()  # an instance that is not too large is as before
    assert limited.pack.units.edges is problem.pack.units.edges
    assert all(getattr(limited, f.name) is getattr(problem, f.name) for f in fields(problem) if f.name != "oracle")
    assert limited.predictor is problem.predictor


def test_a_limit_that_nobody_exceeds_changes_nothing(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(Lights(2.9), MANY, [0, 5])
    assert reduced(problem, 30) is problem
    (plain,) = cf2.explain(Lights(2.9), MANY, nodes=[0])
    (limited,) = cf2.explain(Lights(2.9), MANY, nodes=[0], max_units=30, reduce="gradient")
    assert np.array_equal(plain.selected, limited.selected)
    assert np.array_equal(plain.scores, limited.scores)
    assert limited.note == plain.note
