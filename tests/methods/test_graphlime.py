"""GraphLIME finds the columns that predictions depend on; the lasso is checked by its optimality conditions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

import cf2
from cf2.methods.contract import Problem
from cf2.methods.graphlime import gram, lasso
from toys import NodeNet, random_graph

COLUMN = 3


class OneColumn(torch.nn.Module):
    """Says 1 of a node while its own entry of one column and its neighbours' mean of it are positive together."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = SimpleConv(aggr="mean", combine_root="sum")

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        value = self.mean(x, edge_index)[:, COLUMN]
        return torch.stack([torch.zeros_like(value), 3 * value], 1)


def columns(one: cf2.Explanation) -> dict[int, float]:
    return dict(zip(one.units.of("columns")[:, 1].tolist(), one.scores.tolist()))


@pytest.fixture
def data() -> Data:
    return random_graph(60, 400, features=5, seed=2)


def test_the_column_that_the_model_reads_comes_first(data: Data) -> None:
    found = cf2.explain(OneColumn(), data, range(20), method="graphlime", units="columns", k=1)
    hits = [e.chosen("columns")[:, 1].tolist() == [COLUMN] for e in found if e.num_units]
    assert sum(hits) >= 0.9 * len(hits) > 10
    assert all(e.evaluations == 1 + 4 for e in found)
    assert all(columns(e)[COLUMN] == 1.0 for e, hit in zip(found, hits) if hit)  # divided by the largest


def test_an_entry_has_the_weight_of_its_column_the_less_the_further_away(data: Data) -> None:
    (whole,) = cf2.explain(OneColumn(), data, [4], method="graphlime", units="columns")
    (single,) = cf2.explain(OneColumn(), data, [4], method="graphlime", units="features")
    by_column = columns(whole)
    neighbours = set(data.edge_index[0, data.edge_index[1] == 4].tolist()) - {4}
    near, entries = 0, dict(zip(map(tuple, single.units.ids.tolist()), single.scores.tolist()))
    for (node, column), score in entries.items():
        steps = 0 if node == 4 else 1 if node in neighbours else None
        if steps is not None:
            near += 1
            assert score == pytest.approx(by_column[column] / (1 + steps) * entries[4, COLUMN], abs=1e-6)
    assert near > 30


@pytest.mark.parametrize("rho", [0.0, 0.01, 0.1, 0.5])
def test_no_weight_of_the_lasso_can_be_changed_for_the_better(rho: float) -> None:
    """The conditions of Karush, Kuhn and Tucker: the slope is 0 where a weight is positive, and not negative at 0."""
    draw = np.random.default_rng(5)
    features, wanted = draw.normal(size=(9, 30)), draw.normal(size=30)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    features[4] = features[3]  # two of a kind
    wanted = wanted / 10 + features[2] + 0.5 * features[7]
    weights = lasso(features, wanted, rho)
    slope = features @ (features.T @ weights - wanted) + rho
    assert (weights >= 0).all()
    assert np.allclose(slope[weights > 1e-9], 0, atol=1e-5)
    assert (slope > -1e-5).all()
    assert weights[2] > 0.4 > weights[0]


def test_gram_matrices_are_centred_and_of_norm_one() -> None:
    made = gram(np.random.default_rng(0).normal(size=(3, 7, 2)), 2)
    assert np.allclose(made.sum(1), 0, atol=1e-9)
    assert np.allclose((made**2).sum((1, 2)), 1)
    assert not gram(np.ones((1, 5, 1)), 1).any()  # a constant says nothing


def test_a_constant_prediction_depends_on_nothing(problem_of: Callable[..., Problem]) -> None:
    lonely = Data(x=torch.eye(3), edge_index=torch.zeros((2, 0), dtype=torch.long))
    (e,) = cf2.explain(NodeNet("gin", features=3), lonely, [1], method="graphlime", units="columns")
    assert not e.scores.any()
