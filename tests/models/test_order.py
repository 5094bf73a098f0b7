"""A model that tells nodes or edges by their order: nothing that only looks alike is the same to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv, SimpleConv, global_add_pool

import cf2
from cf2.methods.contract import Problem
from cf2.models import oracle as oracle_module
from cf2.models.oracle import GraphOracle
from cf2.sets.proof import prove, twins
from cf2.sets.trials import Trials
from toys import GraphNet, NodeNet, random_graph

LEAF = 5


class Place(nn.Module):
    """Class 1 if the sixth node of a graph has an edge."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        first = torch.searchsorted(batch, batch)
        sixth = torch.arange(len(x), device=x.device) - first == LEAF
        edges = global_add_pool(self.conv(x, edge_index) * sixth[:, None], batch)
        return torch.cat([0.5 - edges, edges - 0.5], 1)


class Sorted(nn.Module):
    """Reads its edges in an order, and says so where they are not in it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = SAGEConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if bool((edge_index[1].diff() < 0).any()):
            raise ValueError("edges that are not sorted")
        return self.conv(x, edge_index)


def star(leaves: int = 7) -> Data:
    """Leaves that look alike around node 0."""
    pairs = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    return Data(x=torch.ones(leaves + 1, 1), edge_index=torch.cat([pairs, pairs.flip(0)], 1))


@pytest.mark.parametrize("shaped", [10**9, 0])
def test_leaves_that_look_alike_are_not_the_same_to_a_model_that_counts_places(
    shaped: int, problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one edge that matters is neither the first of its kind nor the only one of its shape."""
    monkeypatch.setattr(oracle_module, "MIN_SETS_FOR_SHAPES", shaped)
    problem = problem_of(Place(), [star()])
    oracle = GraphOracle(problem.predictor, problem.pack, together=False)
    trials = Trials(oracle, problem.criterion, problem.tests)
    assert not oracle._shaped()
    assert not len(twins(trials, 0))
    proof = prove(trials, torch.zeros_like(trials.valid), torch.zeros(1, dtype=torch.bool), 10_000)
    assert proof.optimal.tolist() == [True]
    assert proof.sets.nonzero()[:, 1].tolist() == [LEAF - 1]


def test_the_answer_is_that_edge_and_the_order_is_known_of_the_model() -> None:
    (e,) = cf2.explain(Place(), [star()])
    assert e.size == 1
    assert e.nodes.tolist() == [0, LEAF]
    assert e.optimal


def test_whether_the_order_matters_is_found_out(problem_of: Callable[..., Problem]) -> None:
    data = random_graph(12, 24, seed=1)
    order = data.edge_index[1].argsort(stable=True)
    data.edge_index = data.edge_index[:, order]
    for model, expected in ((NodeNet("gat", seed=1), False), (NodeNet("gcn", seed=1), False), (Sorted(), True)):
        predictor = problem_of(model, data, range(3)).predictor
        assert predictor.findings is not None
        assert predictor.ordered is expected
    graphs = [random_graph(8, 10, seed=seed) for seed in range(3)]
    assert not problem_of(GraphNet("gin", seed=1), graphs).predictor.ordered
    assert problem_of(Place(), [star()]).predictor.ordered
