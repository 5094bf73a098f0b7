"""Every move keeps what it must: sets that passed still pass, and what fails never gets further away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from cf2.methods.contract import Problem
from cf2.sets.moves import STEPS_BEFORE_GIVING_UP, _move, exchange, grow, prefixes, prune, prune_single, repair
from cf2.sets.search import _BUDGETS
from cf2.sets.trials import Trials, best_of, score
from toys import NodeNet, random_graph

BUDGET = _BUDGETS["quick"]


def trials_of(problem: Problem) -> Trials:
    return problem.trials()


@pytest.fixture
def trials(problem_of: Callable[..., Problem]) -> Trials:
    return trials_of(problem_of(NodeNet("gcn", seed=1, layers=2), random_graph(40, 120, seed=1), range(16)))


def whole_that_pass(trials: Trials) -> tuple[torch.Tensor, torch.Tensor]:
    """The instances whose whole graph passes the tests, and that set."""
    rows = trials.passes(torch.arange(len(trials.valid)), trials.valid).nonzero().flatten()
    assert len(rows) > 2
    return rows, trials.valid[rows]


def ranking_of(trials: Trials, seed: int = 0) -> torch.Tensor:
    scores = torch.rand(int(trials.counts.sum()), generator=torch.Generator().manual_seed(seed))
    return trials.oracle.dense(scores, float("-inf"))


def test_packed_trials_are_those_of_each_set_alone(trials: Trials) -> None:
    rows = torch.tensor([3, 0, 3, 5])
    sets = ranking_of(trials)[rows] > 0.5
    together = trials.run(rows, sets)
    for place in range(4):
        alone = trials.run(rows[place : place + 1], sets[place : place + 1])
        assert torch.equal(alone.passed[0], together.passed[place])
        assert torch.allclose(alone.slack[0], together.slack[place], atol=1e-5)
    assert 2 <= trials.evaluations[3] <= 4  # two sets in two tests, however often they are asked about


def test_the_best_candidate_of_each_instance_is_the_first_of_the_highest() -> None:
    rows = torch.tensor([2, 0, 0, 2, 0])
    scores = torch.tensor([1.0, 3.0, 5.0, 1.0, 5.0])
    assert best_of(rows, scores, 3).tolist() == [2, -1, 0]


def test_what_is_missing_counts_before_what_is_to_spare() -> None:
    slack = torch.tensor([[-1.0, 100.0], [-0.5, 0.0], [0.1, 0.1]])
    assert score(slack).argsort(descending=True).tolist() == [2, 1, 0]


def test_a_start_is_the_shortest_prefix_that_passes(trials: Trials) -> None:
    ranking = ranking_of(trials)
    sets, outcome, _ = prefixes(trials, ranking)
    place = ranking.argsort(dim=1, descending=True, stable=True).argsort(1)
    for row, size in enumerate(sets.sum(1).tolist()):
        assert torch.equal(sets[row], place[row] < size)
        if outcome.passes[row] and size > 2:
            shorter = torch.stack([(place[row] < 2) & trials.valid[row]])
            assert not trials.passes(torch.tensor([row]), shorter)[0]
    assert torch.equal(outcome.passes, trials.passes(torch.arange(len(sets)), sets))


def test_pruned_sets_pass_and_hold_nothing_new(trials: Trials) -> None:
    rows, whole = whole_that_pass(trials)
    sets = prune(trials, rows, whole, ranking_of(trials)[rows], torch.ones(len(rows), dtype=torch.bool))
    assert trials.passes(rows, sets).all()
    assert not (sets & ~whole).any()
    assert int(sets.sum()) < int(whole.sum())


def test_a_pruning_that_cannot_win_is_given_up(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(NodeNet("gcn", seed=1, layers=2), random_graph(40, 120, seed=1), range(8))
    spent = []
    for below in (None, torch.full((8,), 2), torch.full((8,), 1000)):
        trials = trials_of(problem)
        rows, whole = whole_that_pass(trials)
        limit = None if below is None else below[rows]
        sets = prune(trials, rows, whole, whole.float(), torch.ones(len(rows), dtype=torch.bool), limit)
        assert trials.passes(rows, sets).all()
        spent.append((int(trials.evaluations.sum()), sets))
    assert spent[1][0] < spent[0][0] == spent[2][0]
    assert torch.equal(spent[0][1], spent[2][1])


def test_a_set_that_fails_is_pruned_to_what_it_passes(trials: Trials) -> None:
    rows = torch.arange(16)
    everything = trials.valid
    before = trials.run(rows, everything).passed
    sets = prune(trials, rows, everything, ranking_of(trials), before.all(1))
    after = trials.run(rows, sets).passed
    assert (before & ~before.all(1)[:, None]).any()
    assert not (before & ~after).any()


def test_single_prunings_leave_only_what_is_needed(trials: Trials) -> None:
    rows, whole = whole_that_pass(trials)
    sets = prune_single(trials, rows, whole, ranking_of(trials)[rows])
    assert trials.passes(rows, sets).all()
    for place, row in enumerate(rows.tolist()):
        units = sets[place].nonzero().flatten()
        fewer = sets[place].repeat(len(units), 1)
        fewer[torch.arange(len(units)), units] = False
        assert not trials.passes(torch.full((len(units),), row), fewer).any()


def test_an_exchange_gives_a_passing_set_that_is_no_larger(trials: Trials) -> None:
    rows, whole = whole_that_pass(trials)
    start = prune(trials, rows, whole, ranking_of(trials)[rows], torch.ones(len(rows), dtype=torch.bool))
    sets = exchange(trials, rows, start, BUDGET)
    assert trials.passes(rows, sets).all()
    assert (sets.sum(1) <= start.sum(1)).all()


def test_what_is_grown_is_small_and_passes_if_it_says_so(trials: Trials) -> None:
    rows = torch.arange(16)
    sets, passed = grow(trials, rows, torch.full((16,), 3), 8)
    assert passed.any()
    assert (sets.sum(1) <= 3).all()
    assert torch.equal(trials.passes(rows, sets), passed)


def test_growing_is_given_up_where_no_unit_brings_a_test_nearer(problem_of: Callable[..., Problem]) -> None:
    model = NodeNet("gcn", seed=1, layers=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(parameter.dim() == 1)  # biases alone: it says the same of every graph
            parameter.add_(torch.arange(len(parameter)) if parameter.dim() == 1 else 0)
    trials = trials_of(problem_of(model, random_graph(40, 120, seed=1), range(16)))
    assert (trials.counts > 2 + STEPS_BEFORE_GIVING_UP).all()
    sets, passed = grow(trials, torch.arange(16), torch.full((16,), 14), 8)
    assert not passed.any()
    assert sets.sum(1).tolist() == [1 + STEPS_BEFORE_GIVING_UP] * 16


def test_a_repair_that_comes_no_nearer_keeps_the_set_it_was_given(problem_of: Callable[..., Problem]) -> None:
    """Many moves give sets that are as near as can be; one more from there makes most of them worse."""
    trials = trials_of(problem_of(NodeNet("sum", seed=1), random_graph(40, 60, seed=5), range(40)))
    rows = torch.arange(40)
    sets, start, _ = prefixes(trials, ranking_of(trials))
    kept = 0
    for repairs in (12, 1, 3):
        nearest, passed = repair(trials, sets, start, replace(BUDGET, repairs=repairs))
        after = trials.run(rows, nearest)
        assert torch.equal(passed, after.passes)
        assert torch.equal(nearest[start.passes], sets[start.passes])
        assert (passed | (after.score >= start.score - 1e-6)).all()
        kept += int(((nearest == sets).all(1) & ~passed & (trials.counts > 1)).sum())
        sets, start = nearest, after
    assert kept


def test_an_instance_without_a_move_stays_as_it_is_beside_others(problem_of: Callable[..., Problem]) -> None:
    """None of its units may be chosen; the move that its neighbour makes is not its own."""
    problem = problem_of(NodeNet("sum", seed=1), random_graph(40, 60, seed=5), range(3))
    units = replace(problem.pack.units, selectable=problem.pack.units.owner != 0)
    trials = trials_of(problem.repacked(replace(problem.pack, units=units)))
    rows, held = torch.arange(3), torch.zeros_like(trials.valid)
    nothing = torch.zeros_like(trials.valid)
    picked, outcome, *_ = _move(trials, rows, nothing, held, 2, 4)
    assert not picked[0].any()
    assert picked[1:].sum(1).tolist() == [1, 1]
    assert not outcome.passes[0]
    alone, other, *_ = _move(trials, rows[1:], nothing[1:], held[1:], 2, 4)
    assert torch.equal(picked[1:], alone)
    assert torch.equal(outcome.passed[1:], other.passed)
    start = trials.run(rows, nothing)
    nearest, _ = repair(trials, nothing, start, BUDGET)
    assert not start.passes[0]
    assert not nearest[0].any()
