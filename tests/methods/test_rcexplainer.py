"""RCExplainer: boundaries of the model's own head, regions that hold one answer, edges that cross them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch_geometric.nn import SimpleConv

import cf2
from cf2.methods.contract import Problem
from cf2.methods.rcexplainer import boundaries, local_boundaries, regions
from cf2.methods.trained import batches
from cf2.samples.models import build
from methods_toys import Lights, edges, star
from toys import GraphNet, NodeNet, random_graph


def test_boundaries_are_those_of_the_linear_piece_of_the_head(problem_of: Callable[..., Problem]) -> None:
    """Around an embedding, the head is W α + b: both by finite differences of the head that is called by itself."""
    torch.manual_seed(4)
    model = build("gin", task="graph", num_features=4, num_classes=3, hidden=6, dense=3).eval().double()
    graphs = [random_graph(8, 10, seed=s) for s in range(5)]
    for graph in graphs:
        graph.x = graph.x.double()
    (batch,) = batches([problem_of(model, graphs)], 8)
    embedded, weight, bias = (part.double() for part in local_boundaries(batch))
    assert weight.shape == (5, 6)
    for row in range(5):
        logits = model.head(embedded[row]).detach()
        top, second = logits.topk(2).indices.tolist()
        for column in range(6):
            step = 1e-5 * torch.eye(6, dtype=torch.float64)[column]
            ahead, behind = (model.head(embedded[row] + sign * step).detach() for sign in (1, -1))
            slope = ((ahead[top] - ahead[second]) - (behind[top] - behind[second])) / 2e-5
            assert float(weight[row, column]) == pytest.approx(float(slope), abs=1e-4)
        at = float(weight[row] @ embedded[row] + bias[row])
        assert at == pytest.approx(float(logits[top] - logits[second]), abs=1e-4)


def test_a_model_without_a_head_is_bounded_in_its_own_outputs(problem_of: Callable[..., Problem]) -> None:
    (batch,) = batches([problem_of(NodeNet("gin"), random_graph(12, 20, seed=1), [1, 2, 3])], 8)
    embedded, weight, bias = local_boundaries(batch)
    for row, logits in enumerate(embedded):
        top, second = logits.topk(2).indices.tolist()
        wanted = torch.zeros(3)
        wanted[top], wanted[second] = 1.0, -1.0
        assert torch.allclose(weight[row], wanted, atol=1e-4)
        assert float(bias[row]) == pytest.approx(0, abs=1e-4)


def test_regions_hold_one_answer() -> None:
    answers = torch.tensor([0, 0, 0, 1, 1])
    inside = torch.tensor(
        [  # rows: instances; columns: the boundary of each
            [True, True, False, False, False],
            [True, True, False, False, False],
            [False, False, True, False, False],
            [False, True, False, True, True],
            [False, False, False, True, True],
        ]
    )
    found = regions(inside, answers)
    assert found[0].tolist() == [True, False, False, False, False] == found[1].tolist()  # sheds both others at once
    assert found[2].tolist() == [False, False, True, False, False]  # a region of its own
    for row in range(5):
        held = inside[:, found[row]].all(1)
        assert held[row]
        assert (answers[held] == answers[row]).all()


def test_regions_hold_their_instances(problem_of: Callable[..., Problem]) -> None:
    graphs = [random_graph(9, 12, seed=s) for s in range(20)]
    known = boundaries(batches([problem_of(GraphNet("gin", seed=3), graphs)], 8))
    assert known.region.any(1).all()
    assert (known.values[known.region] > 0).all()


def test_the_lights_that_matter_are_found() -> None:
    model, data = Lights(4.0), star(2.0, 0.1, 2.0, 0.1, 2.0, 0.1)
    model.sum = SimpleConv(aggr="sum", combine_root="sum")  # so that the states of the rays tell their light
    trained = cf2.fit(model, data, [0], method="rcexplainer", k=3, epochs=150, seed=1)
    (e,) = cf2.explain(model, data, [0], method="rcexplainer", trained=trained)
    assert edges(e) == {(0, 1), (0, 3), (0, 5)}
    assert trained.facts["boundaries"] == 1
    (searched,) = cf2.explain(model, data, [0], method="rcexplainer", trained=trained, search=True)
    assert (searched.status, searched.size) == ("found", 3)
