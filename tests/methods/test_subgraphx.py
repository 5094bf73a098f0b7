"""SubgraphX: Shapley values against full enumeration, connected answers, a budget that holds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb, tanh

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import cf2
from cf2.methods.contract import Problem
from cf2.methods.subgraphx import Settings, Subgraphs, grow, rank
from methods_toys import Lights, edges, star, toy
from toys import GraphNet, NodeNet, Unit, edited, probabilities, random_graph

STAR = star(1.5, 1.5, 0.1, 0.1, 0.1)


def test_the_lights_that_matter_are_found() -> None:
    (e,) = cf2.explain(Lights(), STAR, [0], method="subgraphx", k=2)
    assert edges(e) == {(0, 1), (0, 2)}
    (best,) = cf2.explain(Lights(), STAR, [0], method="subgraphx", size=2)  # without k: the best subgraph itself
    assert edges(best) == {(0, 1), (0, 2)}
    assert (best.selected == (best.scores > 0.5)).all()


def worth(model: torch.nn.Module, data: Data, units: list[Unit], there: set[Unit]) -> float:
    said = probabilities(model, edited(data, set(units) - there), 0).log()
    return tanh(float(said[1] - said[0]) / 2)


def test_shapley_values_are_those_of_every_coalition(problem_of: Callable[..., Problem]) -> None:
    """Against the sum over all coalitions of the other edges, with code that shares nothing with ours."""
    model, data = Lights(), star(1.5, 0.9, -0.2)
    problem = problem_of(model, data, [0], seed=1)
    pairs = [tuple(ids) for ids in problem.tables[0].ids.tolist()]
    units: list[Unit] = [("edges", pair) for pair in pairs]  # type: ignore[misc]
    subgraphs = Subgraphs(problem, Settings(samples=4000))
    for inside in ({(0, 1)}, {(0, 1), (0, 2)}, {(0, 2), (0, 3)}):
        chosen = torch.tensor([[pair in inside for pair in pairs]])
        own = {unit for unit in units if unit[1] in inside}
        others = [unit for unit in units if unit not in own and 0 in unit[1]]  # one layer: one hop
        others += [unit for unit in units if unit not in own and unit not in others and {*unit[1]} & _nodes(inside)]
        exact = 0.0
        for size in range(len(others) + 1):
            for coalition in combinations(others, size):
                gain = worth(model, data, units, {*coalition} | own) - worth(model, data, units, {*coalition})
                exact += gain / ((len(others) + 1) * comb(len(others), size))
        assert float(subgraphs.shapley(torch.tensor([0]), chosen)) == pytest.approx(exact, abs=0.03)


def _nodes(pairs: set[tuple[int, int]]) -> set[int]:
    return {node for pair in pairs for node in pair}


@pytest.mark.parametrize("level", ["node", "graph"])
def test_every_subgraph_is_connected(level: str, problem_of: Callable[..., Problem]) -> None:
    graphs = [random_graph(14, 14, seed=s) for s in range(4)]
    problem = (
        problem_of(NodeNet("gin"), graphs[0], [0, 3, 7], masking="messages")
        if level == "node"
        else problem_of(GraphNet("gin"), graphs, masking="messages")
    )
    settings, tried = Settings(k=3, budget=400), 0
    for row, tree in enumerate(grow(Subgraphs(problem, settings), settings)):
        ids = problem.tables[row].ids
        for made in (subgraph.units for subgraph in tree.tried.values()):
            graph = nx.Graph([tuple(pair) for pair in ids[torch.from_numpy(made[: len(ids)])].tolist()])
            assert not made[len(ids) :].any()
            if graph.number_of_edges():
                tried += 1
                assert nx.is_connected(graph)
                assert level == "graph" or problem.instances[row].key in graph
    assert tried > 50


@pytest.mark.parametrize("budget", [40, 333, 2000])
def test_the_budget_holds(budget: int) -> None:
    subject = toy("houses", 0)
    found = cf2.explain(subject.model, subject.data, subject.test[:6], method="subgraphx", k=6, budget=budget)
    assert all(0 < e.evaluations - 2 <= budget for e in found)
    assert all(e.size == 6 for e in found)


def test_the_seed_decides() -> None:
    subject = toy("houses", 1)
    options = {"method": "subgraphx", "k": 5, "budget": 600}
    one, same, other = (
        cf2.explain(subject.model, subject.data, subject.test[:5], **options, seed=seed) for seed in (3, 3, 4)
    )
    assert all(np.array_equal(a.scores, b.scores) for a, b in zip(one, same))
    assert any(not np.allclose(a.scores, b.scores, atol=1e-3) for a, b in zip(one, other))


def test_no_subgraph_is_tried_twice(problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    real = Subgraphs.shapley

    def counted(self: Subgraphs, rows: torch.Tensor, sets: torch.Tensor) -> torch.Tensor:
        seen.extend(made.numpy().tobytes() for made in sets)
        return real(self, rows, sets)

    monkeypatch.setattr(Subgraphs, "shapley", counted)
    problem = problem_of(NodeNet("gin"), random_graph(14, 20, seed=1), [3], masking="messages")
    ranking = rank(problem, Settings(k=2))
    assert len(seen) == len(set(seen)) > 5
    assert 0 < int(ranking.choice.evaluations) <= 2 * 5 * len(seen)  # what the target sees the same of is run once


def test_graphs_without_edges() -> None:
    empty = Data(x=torch.ones(3, 4), edge_index=torch.zeros((2, 0), dtype=torch.long))
    found = cf2.explain(GraphNet("gin"), [empty, random_graph(6, 8)], method="subgraphx", k=2, budget=60)
    assert [e.size for e in found] == [0, 2]
