"""SubgraphX: Shapley values against full enumeration, connected answers, a budget that holds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb, tanh
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import cf2
from cf2.methods import subgraphx
from cf2.methods.contract import Problem
from cf2.methods.subgraphx import Settings, grow, rank, shapley
from cf2.sets.tests import SUFFICIENT
from cf2.sets.trials import Trials
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


def trials_of(problem: Problem) -> Trials:
    return Trials(problem.oracle, problem.criterion, (SUFFICIENT,))


def test_shapley_values_are_those_of_every_coalition(problem_of: Callable[..., Problem]) -> None:
    """Against the sum over all coalitions of the nodes one hop around, with code that shares nothing with ours."""
    model, data = Lights(), star(1.5, 0.9, -0.2)
    problem = problem_of(model, data, [0], seed=1)
    pairs = [tuple(ids) for ids in problem.tables[0].ids.tolist()]
    units: list[Unit] = [("edges", pair) for pair in pairs]  # type: ignore[misc]
    near = {node: {a + b - node for a, b in pairs if node in (a, b)} for node in range(5)}
    trials = trials_of(problem)
    (tree,) = grow(problem, trials, Settings(samples=4000, budget=1))

    def between(nodes: set[int]) -> set[Unit]:
        return {unit for unit in units if {*unit[1]} <= nodes}

    local = {node: place for place, node in enumerate(problem.instances[0].node_ids.tolist())}
    for inside in ({0, 1}, {0, 1, 2}, {0, 2, 3}):
        nodes = np.isin(np.arange(len(local)), [local[node] for node in inside])
        around = set().union(*(near[node] for node in inside)) - inside
        others = {*local} - around - inside | {0}  # those further away, and the explained one, are always there
        exact = 0.0
        for size in range(len(around) + 1):
            for coalition in combinations(sorted(around), size):
                there = others | {*coalition}
                gain = worth(model, data, units, between(there | inside)) - worth(model, data, units, between(there))
                exact += gain / ((len(around) + 1) * comb(len(around), size))
        (value,) = shapley([tree], trials, [(0, subgraphx.Subgraph(nodes, tree.units(nodes)))])
        assert value == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize("level", ["node", "graph"])
def test_every_subgraph_is_connected(level: str, problem_of: Callable[..., Problem]) -> None:
    graphs = [random_graph(14, 14, seed=s) for s in range(4)]
    problem = (
        problem_of(NodeNet("gin"), graphs[0], [0, 3, 7], masking="messages")
        if level == "node"
        else problem_of(GraphNet("gin"), graphs, masking="messages")
    )
    tried = 0
    for row, tree in enumerate(grow(problem, trials_of(problem), Settings(k=3, budget=400))):
        ids, names = problem.tables[row].ids, problem.instances[row].node_ids
        for made in tree.tried.values():
            graph = nx.Graph([tuple(pair) for pair in ids[torch.from_numpy(made.units)].tolist()])
            graph.add_nodes_from(names[torch.from_numpy(made.nodes)].tolist())
            tried += 1
            assert nx.is_connected(graph)
            assert len(graph) == made.nodes.sum()
            assert level == "graph" or problem.instances[row].key in graph
    assert tried > 50


@pytest.mark.parametrize("budget", [40, 333, 2000])
def test_the_budget_holds(budget: int) -> None:
    subject = toy("houses", 0)
    found = cf2.explain(subject.model, subject.data, subject.test[:6], method="subgraphx", k=6, budget=budget)
    assert all(0 < e.evaluations - 2 <= budget for e in found)
    assert all(e.size == 6 for e in found)


def test_no_subgraph_is_tried_twice(problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def counted(trees: Any, trials: Any, asked: Any) -> list[float]:
        seen.extend(made.nodes.tobytes() for _, made in asked)
        return shapley(trees, trials, asked)

    monkeypatch.setattr(subgraphx, "shapley", counted)
    problem = problem_of(NodeNet("gin"), random_graph(14, 20, seed=1), [3], masking="messages")
    ranking = rank(problem, Settings(k=2))
    assert len(seen) == len(set(seen)) > 5
    assert 0 < int(ranking.choice.evaluations) <= 2 * 5 * len(seen)  # what the target sees the same of is run once


def test_graphs_without_edges() -> None:
    empty = Data(x=torch.ones(3, 4), edge_index=torch.zeros((2, 0), dtype=torch.long))
    found = cf2.explain(GraphNet("gin"), [empty, random_graph(6, 8)], method="subgraphx", k=2, budget=60)
    assert [e.size for e in found] == [0, 2]
