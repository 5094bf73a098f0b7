"""`units="auto"`: edges first, and features where edges decide nothing; checked by plain edits of the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv, global_add_pool

import cf2


@pytest.fixture
def edges_by_default() -> None:
    """Here, the default is that of users."""


class Own(torch.nn.Module):
    """Reads mostly a node's own features; a neighbour adds a little."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = SAGEConv(4, 2)
        with torch.no_grad():
            self.layer.lin_r.weight.copy_(torch.tensor([[3.0, 3, 0, 0], [0, 0, 3, 3]]))
            self.layer.lin_l.weight.copy_(0.01 * torch.eye(2, 4))
            self.layer.lin_l.bias.copy_(torch.tensor([0.0, 1.0]))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        out: Tensor = self.layer(x, edge_index)
        return out if batch is None else global_add_pool(out, batch)


def ring() -> Data:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])
    return Data(x=torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 1]]), edge_index=edges)


def says(model: Any, data: Data, e: Any, keep: bool) -> int:
    """What the model says with only the chosen units, or without them: by hand, on the whole graph."""
    x, edge_index = data.x.clone(), data.edge_index
    chosen = {tuple(pair) for pair in e.edges.tolist()}
    stays = [(tuple(pair) in chosen) == keep for pair in edge_index.t().tolist()]
    if keep:
        x = torch.zeros_like(x)
    for node, column in e.features.tolist():
        x[node, column] = data.x[node, column] if keep else 0.0
    with torch.no_grad():
        return int(model(x, edge_index[:, torch.tensor(stays)])[e.key].argmax())


def test_features_are_tried_where_edges_decide_nothing_and_the_answer_says_so() -> None:
    model, data = Own(), ring()
    before = cf2.explain(model, data, nodes=[0], units="edges")[0]
    assert before.status == "impossible"
    assert before.default
    e = cf2.explain(model, data, nodes=[0])[0]
    assert e.status == "found"
    assert len(e.features)
    assert "stays the same without any edge" in e.note
    assert says(model, data, e, keep=True) == e.prediction != says(model, data, e, keep=False)
    assert e.evaluations > before.evaluations
    assert cf2.check(cf2.explain(model, data, nodes=[0]), model, data).false == []


class Charge(torch.nn.Module):
    """Says class 1 of a graph whose numbers sum to 3 or more; edges say nothing."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        odds = global_add_pool(x.float(), batch)[:, 0] - 2.5
        return torch.stack([-odds, odds], 1)


def test_nodes_are_tried_in_graphs_where_edges_decide_nothing() -> None:
    data = ring()
    data.x = torch.tensor([[1], [0], [2], [1]])  # whole numbers, which have no value for "gone"
    (e,) = cf2.explain(Charge(), [data])
    assert (e.status, e.units.names, e.prediction) == ("found", ("nodes",), 1)
    chosen = data.x[e.nodes].sum()
    assert chosen >= 3 > data.x.sum() - chosen
    assert "stays the same without any edge, so the answer is made of nodes" in e.note
    few = data.clone()
    few.x = few.x - 1
    (e,) = cf2.explain(Charge(), [few])
    assert (e.status, e.units.names) == ("impossible", ("edges",))
    assert "was found either" in e.note


def test_a_model_that_needs_every_node_is_explained_by_edges_and_says_so() -> None:
    class Four(Charge):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            if bool((batch.bincount() != 4).any()):
                raise ValueError("four nodes each")
            return super().forward(x, edge_index, batch)

    (e,) = cf2.explain(Four(), [ring()])
    assert (e.status, e.units.names) == ("impossible", ("edges",))
    assert "four nodes each" in e.note


def test_an_isolated_node_is_explained_by_its_features() -> None:
    data = ring()
    data.edge_index = data.edge_index[:, 2:-2]
    data = Data(x=data.x, edge_index=data.edge_index[:, (data.edge_index != 0).all(0)])
    e = cf2.explain(Own(), data, nodes=[0])[0]
    assert (e.status, sorted(e.features[:, 0].tolist())) == ("found", [0] * e.size)
    assert "stays the same without any edge" in e.note


def test_what_edges_answer_and_what_is_said_explicitly_stays() -> None:
    model, data = Own(), ring()
    assert cf2.explain(model, data, nodes=[0], units="edges")[0].units.names == ("edges",)
    ranked = cf2.explain(model, data, nodes=[0], method="gradient", k=1)[0]
    assert ranked.units.names == ("edges",)  # a method that only ranks has nothing to try again
    assert cf2.explain(model, data, nodes=[0], question="counterfactual", edits=("remove", "add")).context["spec"][
        "units"
    ] == ["edges"]


def test_a_limit_is_kept_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cf2.runs.session.MAX_AUTO_UNITS", 6)
    e = cf2.explain(Own(), ring(), nodes=[0])[0]
    assert e.status == "found"
    assert "Only the 6 of" in e.note


def test_where_features_do_not_help_either_the_answer_of_edges_stays() -> None:
    model, data = Own(), ring()
    data.x[0] = 0.0
    e = cf2.explain(model, data, nodes=[0], effort="quick")[0]
    assert e.status in ("impossible", "not found")
    assert e.units.names == ("edges",)
    assert "was found either" in e.note


def test_a_removed_whole_number_has_the_value_that_the_user_says() -> None:
    """Features count from the value that stands for "gone", and `call` adds it again."""
    gone, data = 7, ring()
    data.x = torch.tensor([[8], [7], [9], [7]])

    def charge(model: Charge, batch: Data) -> Tensor:
        assert batch.x.min() >= gone
        return model(batch.x - gone, batch.edge_index, batch.batch)

    def shifted(model: Charge, batch: Data) -> Tensor:
        batch.x = batch.x + gone
        return charge(model, batch)

    moved = data.clone()
    moved.x = data.x - gone
    (e,) = cf2.explain(Charge(), [moved], units="features", call=shifted)
    assert (e.status, e.features.tolist()) == ("found", [[0, 0], [2, 0]])
    left = data.x.index_fill(0, torch.tensor([0, 2]), gone)
    whole, without = (
        charge(Charge(), Data(x=x, edge_index=data.edge_index, batch=torch.zeros(4).long())) for x in (data.x, left)
    )
    assert int(whole.argmax()) == e.prediction != int(without.argmax())
