"""TAGE: the condition is what the prediction reads of the embedding, and decides what is found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

import cf2
from cf2.methods.contract import Problem
from cf2.methods.tage import conditions, scaled
from methods_toys import edges

LONG = {"epochs": 300, "lr": 0.01, "batch": 64, "contrast": 1.0}


class TwoTasks(nn.Module):
    """The sums of six features over neighbours are the embedding; the head reads the first or the last three."""

    def __init__(self, task: int) -> None:
        super().__init__()
        self.sum = SimpleConv(aggr="sum", combine_root="sum")
        self.head = nn.Linear(6, 2)
        with torch.no_grad():
            self.head.weight.zero_()
            self.head.weight[1, 3 * task : 3 * task + 3] = 3.0
            self.head.bias.copy_(torch.tensor([3.0, 0.0]))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.head(self.sum(x, edge_index))


def stars(count: int = 64) -> tuple[Data, list[int]]:
    """Stars whose eight rays carry one of six features each, and the nodes in their middle."""
    draw, pairs, x, middles = np.random.default_rng(0), [], [], []
    for _ in range(count):
        middle = len(x)
        middles.append(middle)
        x.append([0.0] * 6)
        for kind in [*draw.integers(0, 3, 3), *draw.integers(3, 6, 3), *draw.integers(0, 6, 2)]:
            pairs.append((middle, len(x)))
            x.append([float(column == kind) for column in range(6)])
    both = torch.tensor(pairs + [(b, a) for a, b in pairs]).t().contiguous()
    return Data(x=torch.tensor(x), edge_index=both), middles


def test_the_condition_is_the_gradient_of_the_head(problem_of: Callable[..., Problem]) -> None:
    data, middles = stars()
    for task in (0, 1):
        slopes = conditions(problem_of(TwoTasks(task), data, middles[:5]))
        read = slice(3 * task, 3 * task + 3)
        assert torch.allclose(slopes[:, read], torch.tensor(3.0), rtol=1e-3)  # of the log-odds of two classes
        assert float(slopes.sum()) == pytest.approx(float(slopes[:, read].sum()))
    assert scaled(torch.tensor([[0.0, 2.0], [0.0, 0.0]])).tolist() == [[0.0, 1.0], [1.0, 1.0]]


def test_one_training_explains_two_tasks() -> None:
    """Trained without any answer, so one explainer serves two heads on the same embedding."""
    data, middles = stars()
    trained = cf2.fit(TwoTasks(0), data, middles, method="tage", k=2, **LONG)
    again = cf2.fit(TwoTasks(1), data, middles, method="tage", k=2, **LONG)
    assert all(torch.equal(trained.tensors[name], again.tensors[name]) for name in trained.tensors)
    right = []
    for task in (0, 1):
        for e in cf2.explain(TwoTasks(task), data, middles, method="tage", trained=trained):
            right += [bool(data.x[node, 3 * task : 3 * task + 3].any()) for _, node in edges(e)]
    assert np.mean(right) > 0.9


def test_one_instance_cannot_be_told_from_others() -> None:
    data, middles = stars(2)
    with pytest.raises(cf2.CF2Error, match="at least two instances"):
        cf2.fit(TwoTasks(0), data, middles[:1], method="tage")


def test_another_head_is_refused() -> None:
    data, middles = stars(4)
    trained = cf2.fit(TwoTasks(0), data, middles, method="tage", epochs=1)

    class Wider(TwoTasks):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.wide(torch.cat([self.sum(x, edge_index)] * 2, 1))

    model = Wider(0)
    model.wide = nn.Linear(12, 2)
    with pytest.raises(cf2.CF2Error, match="embeddings of width 6"):
        cf2.explain(model, data, middles[:2], method="tage", trained=trained)
