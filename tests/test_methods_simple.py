"""CF-GNNExplainer, gradients, random and truth on graphs whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

import cf2
import cf2.datasets
from cf2.methods.truth import planted
from methods_toys import toy


class Lights(torch.nn.Module):
    """Says 1 of a node while the neighbours' first features add up to more than 2; no edge weights."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = SimpleConv(aggr="sum")
        self.scale = torch.nn.Parameter(torch.tensor(4.0))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        total = self.sum(x, edge_index)[:, 0]
        return torch.stack([torch.zeros_like(total), self.scale * (total - 2.0)], 1)


def star() -> Data:
    """Node 0 with neighbours that add 1, 1, 1, 0, -2 and a neighbour's neighbour that adds nothing."""
    pairs = [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (5, 6)]
    both = torch.tensor(pairs + [(b, a) for a, b in pairs]).t().contiguous()
    return Data(x=torch.tensor([[0.0], [1.0], [1.0], [1.0], [0.0], [-0.5], [3.0]]), edge_index=both)


def edges(one: cf2.Explanation) -> set[tuple[int, int]]:
    return {tuple(pair) for pair in one.unit_edges[one.selected].tolist()}


def test_the_smallest_flip_is_found() -> None:
    """2.5 light in all: one of the three bright edges is enough."""
    (one,) = cf2.explain(Lights(), star(), [0], method="cf-gnnexplainer")
    assert one.size == 1
    assert edges(one) < {(0, 1), (0, 2), (0, 3)}
    assert one.necessary
    assert one.note == ""


def test_no_flip_is_an_empty_set_that_says_so() -> None:
    """Node 6 sees -0.5: it is dark with and without its edge."""
    (one,) = cf2.explain(Lights(), star(), [6], method="cf-gnnexplainer", epochs=20)
    assert one.size == 0
    assert not one.necessary
    assert "20 epochs" in one.note


def test_counterfactuals_of_a_pack_are_those_of_each_instance() -> None:
    subject = toy("cycles", 0)
    nodes = subject.test[:6]
    together = cf2.explain(subject.model, subject.data, nodes, method="cf-gnnexplainer", epochs=60)
    for one, node in zip(together, nodes):
        (alone,) = cf2.explain(subject.model, subject.data, [node], method="cf-gnnexplainer", epochs=60)
        assert edges(one) == edges(alone)
        assert one.evaluations == alone.evaluations


def test_saliency_is_the_slope_and_integrated_gradients_keep_the_sign() -> None:
    (steep,) = cf2.explain(Lights(), star(), [0], method="gradient", k=3)
    assert edges(steep) == {(0, 1), (0, 2), (0, 3)}
    by_edge = dict(zip(map(tuple, steep.unit_edges.tolist()), steep.scores.tolist()))
    assert by_edge[0, 1] == pytest.approx(1.0)
    assert by_edge[0, 4] == 0.0
    assert by_edge[0, 5] == pytest.approx(0.5)
    (signed,) = cf2.explain(Lights(), star(), [0], method="gradient", kind="integrated", threshold=0.9)
    assert edges(signed) == {(0, 1), (0, 2), (0, 3)}
    assert dict(zip(map(tuple, signed.unit_edges.tolist()), signed.scores.tolist()))[0, 5] == pytest.approx(-0.5)
    assert signed.evaluations == 3 * 20 + 2


def test_integrated_gradients_add_up_to_the_change_of_the_log_odds() -> None:
    """The log-odds are linear in the masks here, so any number of steps gives the exact shares."""
    few, many = (
        cf2.explain(Lights(), star(), [0], method="gradient", kind="integrated", steps=steps, k=1)[0].scores
        for steps in (1, 50)
    )
    assert np.allclose(few, many, atol=1e-5)


def test_random_draws_from_the_stream_of_the_instance() -> None:
    subject = toy("cycles", 0)
    nodes = subject.test[:4]
    found = cf2.explain(subject.model, subject.data, nodes, method="random", k=3, seed=5)
    again = cf2.explain(subject.model, subject.data, nodes[::-1], method="random", k=3, seed=5)
    other = cf2.explain(subject.model, subject.data, nodes, method="random", k=3, seed=6)
    assert all(np.array_equal(a.scores, b.scores) for a, b in zip(found, list(again)[::-1]))
    assert not any(np.array_equal(a.scores, b.scores) for a, b in zip(found, other))
    assert {e.size for e in found} == {3}


def test_truth_needs_the_true_edges() -> None:
    data = star()
    (one,) = cf2.explain(Lights(), data, [0], method="truth", trained={0: [(2, 0), (3, 0)]})
    assert edges(one) == {(0, 2), (0, 3)}
    with pytest.raises(cf2.CF2Error, match="planted"):
        cf2.explain(Lights(), data, [0], method="truth")
    with pytest.raises(cf2.CF2Error, match="true edges of 6"):
        cf2.explain(Lights(), data, [6], method="truth", trained={0: []})


def test_planted_reads_a_dataset() -> None:
    dataset = cf2.datasets.load("tree-cycles")
    node = len(dataset) - 1
    pairs = planted(dataset, [node])[node]
    assert len({tuple(sorted(pair)) for pair in pairs.tolist()}) == 6
    with pytest.raises(cf2.CF2Error, match="true explanation of 0"):
        planted(dataset, [0])


@pytest.mark.parametrize(
    ("method", "setting"),
    [("cf-gnnexplainer", {"beta": -1}), ("gradient", {"kind": "integrate"}), ("random", {"k": 0})],
)
def test_settings_are_checked(method: str, setting: dict[str, object]) -> None:
    with pytest.raises(cf2.CF2Error):
        cf2.explain(Lights(), star(), [0], method=method, **setting)
