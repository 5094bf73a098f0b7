"""Forward greedy: each step is the best single one by brute force, the budget is kept, and rules are too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import cf2
from toys import GraphNet, NodeNet, random_graph

COUNTER: dict[str, Any] = {"method": "greedy", "question": "counterfactual"}


def probability(model: Any, data: Any, gone: list[list[int]], key: int, label: int) -> float:
    """Of a class, on the whole graph without some undirected edges."""
    columns = [pair for pair in data.edge_index.t().tolist() if pair not in gone and pair[::-1] not in gone]
    edge_index = torch.tensor(columns, dtype=torch.long).reshape(-1, 2).t()
    with torch.no_grad():
        return float(model(data.x, edge_index).softmax(1)[key, label])


def test_every_step_is_the_best_one_by_brute_force() -> None:
    data, model = random_graph(10, 14, seed=3), NodeNet("gin", classes=2, seed=1, layers=2)
    steps = 0
    for e in cf2.explain(model, data, nodes=range(10), most=3, **COUNTER):
        chosen = e.units.ids[e.selected][(-e.scores[e.selected]).argsort()].tolist()  # in the order of the steps
        gone: list[list[int]] = []
        for pair in chosen:
            others = [ids for ids in e.units.of("edges").tolist() if ids not in gone]
            left = {tuple(ids): probability(model, data, [*gone, ids], int(e.key), e.prediction) for ids in others}  # type: ignore[arg-type]
            assert left[tuple(pair)] == pytest.approx(min(left.values()), abs=1e-5)
            gone.append(pair)
            steps += 1
        assert e.necessary == (probability(model, data, gone, int(e.key), e.prediction) < 0.5)  # type: ignore[arg-type]
        assert (e.status == "found") == e.necessary
        tried = sum(e.num_units - number for number in range(e.size))
        # And two of the final check, and its last word; what looks the same is run once.
        assert 4 + (e.size > 0) <= e.evaluations <= tried + 4
    assert steps > 5


@pytest.mark.parametrize("budget", [1, 5])
def test_no_more_is_evaluated_than_the_budget_pays_for(budget: int) -> None:
    data, model = random_graph(10, 14, seed=3), NodeNet("gin", classes=2, seed=1, layers=2)
    free = cf2.explain(model, data, nodes=range(10), **COUNTER)
    held = cf2.explain(model, data, nodes=range(10), budget=budget, **COUNTER)
    assert all(e.evaluations <= budget + 4 for e in held)
    assert any(e.evaluations > budget + 4 for e in free)
    for one, other in zip(free, held):
        if one.evaluations <= budget + 4:
            assert one.evaluations == other.evaluations
            assert (one.selected == other.selected).all()


def test_edits_and_rules() -> None:
    graph = random_graph(6, 7, seed=1)
    graph.x = torch.eye(4)[torch.arange(6) % 4]
    model = GraphNet("sum", classes=3, seed=6)
    (e,) = cf2.explain(model, [graph], edits=("remove", "add", "change"), **COUNTER)
    assert e.status == "found"
    said = model(e.apply(graph).x, e.apply(graph).edge_index, torch.zeros(6, dtype=torch.long)).argmax()
    assert int(said) != e.prediction
    for most in (2, 6):  # wishes for what cannot be had, so that it goes on
        options: Any = {"valid": lambda data: False, "most": most}
        (none,) = cf2.explain(model, [graph], edits="change", **COUNTER, **options)
        assert (none.status, none.size) == ("not found", most)
        assert len({node for _, (node, _), *_ in none.edits}) == most  # no two colours of one node


@pytest.mark.parametrize("method", ["random", "gradient"])
def test_a_method_that_only_ranks_changes_no_feature_twice(method: str) -> None:
    graph = random_graph(6, 7, seed=1)
    graph.x = torch.eye(4)[torch.arange(6) % 4]
    options: dict[str, Any] = {"method": method, "question": "counterfactual", "edits": "change", "k": 6}
    (e,) = cf2.explain(GraphNet("sum", classes=3, seed=6), [graph], **options)
    assert e.size == len({node for _, (node, _), *_ in e.edits}) == 6


def test_what_must_stay_may_be_enough() -> None:
    data, model = random_graph(10, 14, seed=3), NodeNet("gin", classes=2, seed=1, layers=2)
    pair = data.edge_index[:, 0].tolist()
    gone = [other for other in data.edge_index.t().tolist() if other not in (pair, pair[::-1])]
    found = cf2.explain(model, data, nodes=pair, units="edges", method="greedy", question="factual", keep=[pair])
    enough = [probability(model, data, gone, int(e.key), e.prediction) > 0.5 for e in found]  # type: ignore[arg-type]
    assert True in enough
    assert [(e.status, e.size) == ("found", 0) for e in found] == enough
