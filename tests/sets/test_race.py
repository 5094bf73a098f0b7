"""Trials that are left out or packed in a shorter way change no answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cf2.methods.contract import Problem
from cf2.models.oracle import GraphOracle, outputs_after
from cf2.sets.trials import Outcome, Trials, best_of, race
from toys import LAYERS, GraphNet, NodeNet, random_graph


def trials_of(problem: Problem, **options: bool) -> Trials:
    oracle = GraphOracle(problem.predictor, problem.pack, together=False)
    return Trials(oracle, problem.criterion, problem.tests, **options)


def random_sets(trials: Trials, times: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(times)
    rows = torch.arange(len(trials.valid)).repeat_interleave(times)
    sets = torch.rand((len(rows), trials.width), generator=draw) < torch.rand((len(rows), 1), generator=draw)
    return rows, sets & trials.valid[rows]


@pytest.mark.parametrize("level", ["node", "graph"])
def test_a_race_has_the_winner_of_all_trials_and_runs_fewer(level: str, problem_of: Callable[..., Problem]) -> None:
    graphs = [random_graph(12, 24, seed=seed) for seed in range(6)]
    problem = (
        problem_of(GraphNet("sum", seed=1), graphs)
        if level == "graph"
        else problem_of(NodeNet("gcn", seed=1), random_graph(40, 100, seed=1), range(12))
    )
    plain, raced = trials_of(problem), trials_of(problem)
    rows, sets = random_sets(plain, 15)
    everything = plain.run(rows, sets)
    size = sets.sum(1)

    def shortest(outcome: Outcome) -> Tensor:
        return torch.where(outcome.passes, 1e6 - size, outcome.score)

    def nearest(outcome: Outcome) -> Tensor:
        return outcome.score + 1e3 * outcome.passes

    for value in (shortest, nearest):
        for likely in (torch.zeros_like(rows), torch.ones_like(rows), rows % 2):
            outcome = race(raced, rows, rows, sets, likely, value)
            winner = best_of(rows, value(everything), len(plain.valid))
            assert torch.equal(best_of(rows, value(outcome), len(plain.valid)), winner)
            assert torch.equal(outcome.passed[winner], everything.passed[winner])
            assert torch.allclose(outcome.slack[winner], everything.slack[winner], atol=1e-5)
    fewer = trials_of(problem)
    race(fewer, rows, rows, sets, torch.ones_like(rows), nearest)
    assert fewer.evaluations.sum() < plain.evaluations.sum()


@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_trials_of_edges_are_packed_as_instances_taken_and_cut(kind: str, problem_of: Callable[..., Problem]) -> None:
    graphs = [random_graph(10, 20, seed=seed) for seed in range(5)]
    problem = problem_of(GraphNet(kind, seed=1), graphs)
    trials = trials_of(problem, cache=False)
    assert problem.oracle.removals is not None
    rows, sets = random_sets(trials, 4)
    given = trials.run(rows, sets)
    for column, test in enumerate(trials.tests):
        said = outputs_after(test.intervention, problem.predictor, problem.pack.take(rows), sets[trials.valid[rows]])
        assert torch.equal(trials._judged(test, rows, said)[0], given.passed[:, column])
        assert torch.allclose(trials._judged(test, rows, said)[1], given.slack[:, column], atol=1e-4)
