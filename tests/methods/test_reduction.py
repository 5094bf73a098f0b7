"""A reduction limits what may be chosen to the steepest units, and changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import torch

import cf2
from cf2.methods.contract import Problem
from cf2.methods.reduction import reduced
from methods_toys import Lights, edges, star

STAR = star(*[0.01] * 20, *[1.0] * 3, *[0.01] * 7)  # 3.27 light in all, and 2.9 are needed


def test_the_steepest_units_may_be_chosen_and_no_others(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(Lights(2.9), STAR, [0, 5])
    limited = reduced(problem, 4)
    left_out, leaf = problem.pack.split(limited.pack.units.left_out)  # type: ignore[arg-type]
    ids = problem.tables[0].ids[~left_out].tolist()
    assert len(ids) == 4
    assert [pair for pair in ids if pair[1] in (21, 22, 23)] == [[0, 21], [0, 22], [0, 23]]
    assert not leaf.any()  # an instance that is not too large is as before
    assert limited.pack.units.edges is problem.pack.units.edges
    assert all(getattr(limited, f.name) is getattr(problem, f.name) for f in fields(problem) if f.name not in ("pack",))


def test_a_limit_that_nobody_exceeds_changes_nothing(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(Lights(2.9), STAR, [0, 5])
    assert reduced(problem, 30) is problem
    (plain,) = cf2.explain(Lights(2.9), STAR, nodes=[0])
    (limited,) = cf2.explain(Lights(2.9), STAR, nodes=[0], max_units=30, reduce="gradient")
    assert np.array_equal(plain.selected, limited.selected)
    assert np.array_equal(plain.scores, limited.scores)
    assert limited.note == plain.note


def test_what_may_not_be_chosen_is_removed_with_the_rest() -> None:
    """The verdicts are those of the whole receptive field: alone, the three bright edges have no help of the others."""
    (one,) = cf2.explain(Lights(2.9), STAR, nodes=[0], max_units=4, reduce="gradient")
    assert edges(one) == {(0, 21), (0, 22), (0, 23)}
    assert (one.status, one.minimal, one.optimal) == ("found", True, None)
    total = torch.tensor([0.0, 4.0 * (3.0 - 2.9)]).softmax(0)
    assert np.allclose(one.probabilities_only, total.numpy(), atol=1e-5)
    assert "4 of 30 units" in one.note
