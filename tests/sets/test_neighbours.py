"""The input a little disturbed: what passes there, by brute force; drawn by the graph alone; and counted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from test_margins import slack_of
from torch import nn
from torch_geometric.data import Data

import cf2
from cf2.methods.contract import Problem
from cf2.models.neighbours import Neighbours
from cf2.sets.moves import EQUAL_MARGINS as WIDER
from cf2.sets.search import Search, search
from cf2.units.constraints import SetConstraints
from cf2.units.kinds import InstanceUnits
from toys import GraphNet, NodeNet, Unit, edited, probabilities, random_graph


def near_of(problem: Problem) -> Neighbours:
    assert isinstance(problem.constraints, SetConstraints)
    assert problem.constraints.neighbours is not None
    return problem.constraints.neighbours


def units_of(ids: torch.Tensor) -> set[Unit]:
    return {("edges", (a, b)) for a, b in ids.tolist()}


def graphs_near(problem: Problem, row: int) -> list[tuple[Data, set[Unit]]]:
    """The neighbours of one graph of which the model says the same, and the units that each lacks."""
    near, found = near_of(problem), []
    for number, pack in enumerate(near.packs):
        low, first, last = int(pack.node_ptr[row]), *pack.edge_ptr[row : row + 2].tolist()
        graph = Data(x=problem.instances[row].x, edge_index=pack.edge_index[:, first:last] - low)
        if near.there[number, row]:
            ids = problem.tables[row].ids
            found.append((graph, units_of(ids[near.gone[number, row, : len(ids)]])))
    return found


@pytest.mark.parametrize("question", ["why", "factual", "counterfactual"])
def test_sets_pass_on_neighbours_as_on_really_disturbed_graphs(
    question: str, problem_of: Callable[..., Problem]
) -> None:
    graphs, model = [random_graph(7, 8 + seed % 3, seed=seed) for seed in range(6)], GraphNet("sum", seed=2)
    problem = problem_of(model, graphs, question=question, robust=6)
    near, asked, draw = near_of(problem), 0, torch.Generator().manual_seed(0)
    for row, table in enumerate(problem.tables):
        units = units_of(table.ids)
        y = int(problem.outputs[row].argmax())
        for _ in range(8):
            chosen = torch.rand(near.gone.size(2), generator=draw) < 0.4
            chosen[table.count :] = False
            S = units_of(table.ids[chosen[: table.count]])
            passed, tried, least = (t.item() for t in near.passed(torch.tensor([row]), chosen[None]))
            slacks = []
            for graph, gone in graphs_near(problem, row):
                if S & gone:
                    continue
                there = units_of(graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].t())
                assert there >= S
                assert units - gone <= there
                alone = slack_of(probabilities(model, edited(graph, there - S), None), y)
                assert alone == pytest.approx(slack_of(probabilities(model, edited(graphs[row], units - S), None), y))
                slacks.append(-slack_of(probabilities(model, edited(graph, S), None), y))
            assert tried == len(slacks)
            if question == "factual" or not slacks:
                assert (passed, least) == (tried, float("inf"))  # with only S, a neighbour is as the graph itself
                continue
            asked += len(slacks)
            assert passed == sum(slack > 0 for slack in slacks)
            assert max(least, -10) == pytest.approx(min(slacks), abs=1e-3)
    assert asked > 50 or question == "factual"


def test_no_single_swap_widens_the_margin_over_the_neighbours(problem_of: Callable[..., Problem]) -> None:
    graphs, model = [random_graph(7, 9, seed=seed) for seed in range(40)], GraphNet("sum", seed=5)
    problem = problem_of(model, graphs, robust=4)
    near, scores, checked = near_of(problem), torch.zeros(problem.pack.units.count), 0
    choice = search(problem.oracle, problem.criterion, problem.tests, scores, Search("thorough"), problem.constraints)
    chosen = problem.oracle.dense(choice.selected, False)
    assert choice.status is not None
    for row in (place for place, status in enumerate(choice.status) if status == "found"):
        table, y = problem.tables[row], int(problem.outputs[row].argmax())

        def margin_of(own: torch.Tensor, row: int = row, table: InstanceUnits = table, y: int = y) -> float:
            every, S = (units_of(table.ids[some]) for some in (own | True, own))
            held, least = near._held(torch.tensor([row]), nn.functional.pad(own, (0, chosen.size(1) - len(own)))[None])
            only = slack_of(probabilities(model, edited(graphs[row], every - S), None), y)
            without = -slack_of(probabilities(model, edited(graphs[row], S), None), y)
            return min(only, without, float(least)) if held else -1.0

        own = chosen[row, : table.count]
        assert margin_of(own) > 0
        for drop, add in product(own.nonzero().flatten(), (~own).nonzero().flatten()):
            other = own.clone()
            other[drop], other[add] = False, True
            assert margin_of(other) <= margin_of(own) + 2 * WIDER
            checked += margin_of(other) > 0
    assert checked > 3


def test_neighbours_are_a_property_of_the_graph(problem_of: Callable[..., Problem]) -> None:
    """The same whatever place a graph has, and nearly the same after a change elsewhere."""
    graphs, model = [random_graph(8, 12, seed=seed) for seed in range(5)], GraphNet("gcn", seed=3)
    forth, back = cf2.explain(model, graphs, robust=4), cf2.explain(model, graphs[::-1], robust=4)
    for one, other in zip(forth, list(back)[::-1]):
        assert one.selected.tolist() == other.selected.tolist()
        assert (one.robust, one.robust_removals) == (other.robust, other.robust_removals)
    graph = random_graph(30, 60, seed=1)
    fewer = Data(x=graph.x, edge_index=edited(graph, [("edges", (0, 1)), ("edges", (2, 3))]).edge_index)
    problem = problem_of(model, [graph, fewer], robust=6)
    disturbed = [graphs_near(problem, row) for row in (0, 1)]
    assert len(disturbed[0]) == len(disturbed[1]) == 6
    known = [units_of(g.edge_index.t()) for g in (graph, fewer)]
    come = [[units_of(made.edge_index.t()) - own for made, _ in part] for part, own in zip(disturbed, known)]
    gone = [[gone for _, gone in part] for part in disturbed]
    assert sum(a == b for a, b in zip(*come)) >= 5
    assert sum(a == b for a, b in zip(*gone)) >= 5
    assert all(any(part) for part in (come[0], gone[0]))


def test_what_is_run_on_neighbours_is_counted_once_and_for_all(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(NodeNet("sum", seed=4, layers=2), random_graph(14, 20, seed=5), range(6), robust=3)
    near = near_of(problem)
    before = near.evaluations
    part = near.take(torch.tensor([4, 1]))
    rows, sets = torch.tensor([0, 1]), torch.zeros(2, part.gone.size(2), dtype=torch.bool)
    _, tried, _ = part.passed(rows, sets)
    assert int(tried.sum()) > 0
    more = near.evaluations - before
    assert more.tolist() == [0, int(tried[1]), 0, 0, int(tried[0]), 0]
    part.confirm(rows, sets)
    once = near.evaluations
    part.confirm(rows, sets)
    assert near.evaluations.tolist() == once.tolist()
