"""What is chosen does not depend on what an instance is packed with: equal scores are decided by unit, not by noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cf2.methods.contract import choose, rank_within
from cf2.options import Spec
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset
from cf2.sets.trials import best_of, in_order, top

NOISE = torch.tensor([0.0, 3e-7, -2e-7, 1e-7, -4e-7, 2e-7])


def test_the_first_of_equal_candidates_wins() -> None:
    rows = torch.tensor([0, 0, 0, 1, 1, 1])
    scores = torch.tensor([1.0, 2.0, 2.0, -5.0, -5.0, -6.0])
    for shift in range(6):
        assert best_of(rows, scores + NOISE.roll(shift), 3).tolist() == [1, 3, -1]


def test_the_highest_scores_are_taken_in_the_order_of_their_columns_where_they_are_equal() -> None:
    scores = torch.tensor([[3.0, 1.0, 3.0, 3.0, float("-inf"), 0.0]])
    for shift in range(6):
        value, column = top(scores + NOISE.roll(shift), 4, torch.tensor([1e-5]))
        assert column.tolist() == [[0, 2, 3, 1]]
        assert torch.allclose(value, torch.tensor([[3.0, 3.0, 3.0, 1.0]]), atol=1e-5)
    assert top(scores, 9, torch.zeros(1))[1].shape == (1, 6)


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_an_order_sees_relative_differences_and_no_noise(size: float) -> None:
    scores = torch.tensor([[0.5, 1.0, 1.0, float("-inf"), 1e-9, 1.0]])
    for shift in range(6):
        assert in_order(scores * size * (1 + NOISE.roll(shift))).tolist() == [[3, 0, 1, 5, 4, 2]]


def test_what_may_not_be_chosen_comes_last() -> None:
    assert in_order(torch.tensor([[float("-inf"), 1.0, float("-inf"), 0.5]])).tolist() == [[2, 0, 3, 1]]
    assert in_order(torch.zeros(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("method", ["cf2", "gradient"])
def test_alone_and_among_others_the_sets_are_the_same(method: str) -> None:
    source = from_dataset("tree-cycles")
    spec = Spec(method, settings={} if method == "cf2" else {"k": 3})
    keys = [793, *(key for key in source.keys(spec) if key != 793)][:24]
    with Session(source.request(keys, spec)) as session:
        together = session.explain(keys)
        for other in together[:8]:
            (alone,) = session.explain([other.key])
            assert np.array_equal(alone.selected, other.selected), other.key
            assert np.allclose(alone.scores, other.scores, atol=1e-5)
        for problem in session.problems(keys):
            scores = torch.ones(problem.pack.units.count)
            place = rank_within(scores, problem.pack)
            assert choose(scores, problem.pack, k=2).sum() == (place < 2).sum()
