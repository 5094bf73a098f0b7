"""Candidates all over the graph, where a request leaves them open and nothing nearby would do."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data

import cf2
from cf2.runs.session import FAR_NOTE as NOTE
from toys import NodeNet

ASK: dict[str, Any] = {"question": "counterfactual", "edits": ("remove", "add")}


def two_worlds() -> Data:
    """Two paths without an edge between them, and a node that has none at all; features say which is which."""
    ends = torch.tensor([[0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]])
    x = torch.tensor([[1.0, 0, 0, 0]] * 4 + [[0, 4.0, 0, 0]] * 4 + [[1.0, 0, 0, 0]])
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1))


def says(model: Any, data: Data, key: int) -> int:
    with torch.no_grad():
        return int(model(data.x, data.edge_index).argmax(1)[key])


def test_wider_candidates_are_tried_where_near_ones_fail_and_answer_some_of_that() -> None:
    data, models = two_worlds(), [NodeNet("sage", classes=2, seed=seed, layers=2) for seed in range(6)]
    answered = 0
    for model in models:
        near = cf2.explain(model, data, nodes=range(9), candidates="near", **ASK)
        both = cf2.explain(model, data, nodes=range(9), **ASK)
        assert [e.key for e in both] == list(range(9))
        assert near[8].status == "empty", "a node by itself has no pair nearby"
        for one, other in zip(near, both):
            answered += one.status != "found" == other.status
            check_wider(model, data, one, other)
    assert answered


def check_wider(model: Any, data: Data, one: cf2.Explanation, other: cf2.Explanation) -> None:
    assert NOTE not in one.note
    if one.status == "found":
        assert other.edits == one.edits
        assert NOTE not in other.note
    else:
        assert NOTE in other.note
        assert other.evaluations > one.evaluations
        assert other.num_units > one.num_units, "near candidates are there as well"
    if other.status == "found":
        assert says(model, other.apply(data), int(other.key)) != other.prediction  # type: ignore[arg-type]


def test_given_candidates_and_whole_graphs_are_left_as_they_are() -> None:
    data, model = two_worlds(), NodeNet("sage", classes=2, seed=1, layers=2)
    for given in ("target", "far", [(0, 2)]):
        for e in cf2.explain(model, data, nodes=range(9), candidates=given, **ASK):
            assert NOTE not in e.note
    kept = cf2.explain(model, data, nodes=range(9), max_units=6, **ASK)
    assert all(e.num_units <= 6 for e in kept)
