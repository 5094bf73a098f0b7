"""CF-GNNExplainer gives the smallest removal it saw that flips the prediction, and says so where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import cf2
from cf2.methods.cf_gnnexplainer import NONE, Settings, rank
from cf2.methods.contract import Problem
from methods_toys import Lights, edges, star

STAR = star(1.0, 1.0, 1.0, 0.0, -0.5)  # 2.5 light in all, and 2 are needed


def test_the_smallest_flip_is_found() -> None:
    """One of the three bright edges is enough."""
    (one,) = cf2.explain(Lights(), STAR, [0], method="cf-gnnexplainer")
    assert one.size == 1
    assert edges(one) < {(0, 1), (0, 2), (0, 3)}
    assert one.necessary
    assert one.note == ""


def test_no_flip_is_an_empty_set_that_says_so() -> None:
    """Node 6 sees -0.5: it is dark with and without its edge."""
    (one,) = cf2.explain(Lights(), STAR, [6], method="cf-gnnexplainer", epochs=20)
    assert one.size == 0
    assert not one.necessary
    assert "20 epochs" in one.note


def test_units_that_may_not_be_chosen_do_not_count_as_removed(problem_of: Callable[..., Problem]) -> None:
    """Only the edges that add no light may go: there is no flip, however many of the others would give one."""
    problem = problem_of(Lights(), STAR, [0, 0], method="cf-gnnexplainer")
    (dark, free), count = problem.pack.split(torch.zeros(problem.pack.units.count)), problem.tables[0].count
    assert len(dark) == len(free) == count
    selectable = torch.tensor([ids in ([0, 4], [0, 5], [5, 6]) for ids in problem.tables[0].ids.tolist()])
    units = replace(problem.pack.units, selectable=torch.cat([selectable, torch.ones(count, dtype=torch.bool)]))
    ranking = rank(replace(problem, pack=replace(problem.pack, units=units)), Settings(epochs=60))
    limited, plain = problem.pack.split(ranking.choice.selected)
    assert not limited.any()
    assert ranking.choice.notes == [NONE.format(epochs=60), ""]
    assert int(plain.sum()) == 1
    assert not ranking.scores[:count][~selectable].any()


@pytest.mark.parametrize("limit", [1, 3, 6, 11])
def test_a_flip_among_the_units_that_matter_most_is_a_flip(limit: int) -> None:
    """Twelve lights of which eight must stay: five have to go, so that fewer to choose from are not enough."""
    data = star(*[1.0] * 12)
    (one,) = cf2.explain(
        Lights(7.5), data, [0], method="cf-gnnexplainer", max_units=limit, reduce="gradient", epochs=100
    )
    assert one.size <= limit
    assert one.necessary == (one.size >= 5) == (limit >= 5)
    assert (one.size == 0) == (limit < 5)
    assert (NONE.format(epochs=100) in one.note) == (limit < 5)
