"""Every move keeps what it must: sets that passed still pass, and what fails never gets further away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cf2.methods.contract import Problem
from cf2.sets.moves import (
    STEPS_BEFORE_GIVING_UP,
    _move,
    exchange,
    flipped,
    grow,
    leap,
    prefixes,
    prune,
    prune_single,
    repair,
)
from cf2.sets.search import _BUDGETS
from cf2.sets.trials import Trials
from toys import NodeNet, random_graph

BUDGET = _BUDGETS["quick"]


@pytest.fixture
def trials(problem_of: Callable[..., Problem]) -> Trials:
    return problem_of(NodeNet("gcn", seed=1, layers=2), random_graph(40, 120, seed=1), range(16)).trials()


def whole_that_pass(trials: Trials) -> tuple[torch.Tensor, torch.Tensor]:
    """The instances whose whole graph passes the tests, and that set."""
    rows = trials.passes(torch.arange(len(trials.valid)), trials.valid).nonzero().flatten()
    assert len(rows) > 2
    return rows, trials.valid[rows]


def ranking_of(trials: Trials, seed: int = 0) -> torch.Tensor:
    scores = torch.rand(int(trials.counts.sum()), generator=torch.Generator().manual_seed(seed))
    return trials.oracle.dense(scores, float("-inf"))


def test_a_start_is_the_shortest_prefix_that_passes(trials: Trials) -> None:
    ranking = ranking_of(trials)
    sets, outcome, _ = prefixes(trials, ranking)
    position = ranking.argsort(dim=1, descending=True, stable=True).argsort(1)
    for row, size in enumerate(sets.sum(1).tolist()):
        assert torch.equal(sets[row], position[row] < size)
        if outcome.passes[row] and size > 2:
            shorter = torch.stack([(position[row] < 2) & trials.valid[row]])
            assert not trials.passes(torch.tensor([row]), shorter)[0]
    assert torch.equal(outcome.passes, trials.passes(torch.arange(len(sets)), sets))


def pruned(trials: Trials, rows: Tensor, sets: Tensor) -> Tensor:
    return prune(trials, rows, sets, ranking_of(trials)[rows], torch.ones(len(rows), dtype=torch.bool))


@pytest.mark.parametrize(
    "move",
    [
        pruned,
        lambda trials, rows, sets: prune_single(trials, rows, sets, ranking_of(trials)[rows]),
        lambda trials, rows, sets: exchange(trials, rows, pruned(trials, rows, sets), BUDGET),
        lambda trials, rows, sets: prune_single(trials, rows, pruned(trials, rows, sets), ranking_of(trials)[rows]),
        lambda trials, rows, sets: leap(trials, rows, sets, enough=2),
    ],
    ids=["prune", "prune single", "exchange", "both prunings", "leap"],
)
def test_a_move_from_a_passing_set_gives_a_smaller_one_that_passes(
    move: Callable[[Trials, Tensor, Tensor], Tensor], trials: Trials
) -> None:
    rows, whole = whole_that_pass(trials)
    sets = move(trials, rows, whole)
    assert trials.passes(rows, sets).all()
    assert not (sets & ~whole).any()
    assert int(sets.sum()) < int(whole.sum())


def test_a_leap_leaves_small_sets_as_they_are(trials: Trials) -> None:
    rows, whole = whole_that_pass(trials)
    before = trials.evaluations.clone()
    assert torch.equal(leap(trials, rows, whole, enough=int(trials.counts.max())), whole)
    assert torch.equal(trials.evaluations, before)


def test_an_exchange_without_doubt_costs_less_and_still_passes(problem_of: Callable[..., Problem]) -> None:
    data, costs = random_graph(40, 120, seed=1), []
    for doubt in (0.0, float("inf")):
        trials = problem_of(NodeNet("gcn", seed=1, layers=2), data, range(16)).trials()
        rows, whole = whole_that_pass(trials)
        sets = exchange(trials, rows, pruned(trials, rows, whole), replace(_BUDGETS["thorough"], doubt=doubt))
        assert trials.passes(rows, sets).all()
        costs.append(int(trials.evaluations.sum()))
    assert costs[0] < costs[1]


def test_single_prunings_leave_only_what_is_needed(trials: Trials) -> None:
    rows, whole = whole_that_pass(trials)
    sets = prune_single(trials, rows, whole, ranking_of(trials)[rows])
    owner, unit = sets.nonzero(as_tuple=True)
    assert not trials.passes(rows[owner], flipped(sets[owner], unit)).any()


def test_a_pruning_that_cannot_win_is_given_up(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(NodeNet("gcn", seed=1, layers=2), random_graph(40, 120, seed=1), range(8))
    spent = []
    for below in (None, torch.full((8,), 2), torch.full((8,), 1000)):
        trials = problem.trials()
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
    trials = problem_of(model, random_graph(40, 120, seed=1), range(16)).trials()
    assert (trials.counts > 2 + STEPS_BEFORE_GIVING_UP).all()
    sets, passed = grow(trials, torch.arange(16), torch.full((16,), 14), 8)
    assert not passed.any()
    assert sets.sum(1).tolist() == [1 + STEPS_BEFORE_GIVING_UP] * 16


def test_a_repair_that_comes_no_nearer_keeps_the_set_it_was_given(problem_of: Callable[..., Problem]) -> None:
    """Many moves give sets that are as near as can be; one more from there makes most of them worse."""
    trials = problem_of(NodeNet("sum", seed=1), random_graph(40, 60, seed=5), range(40)).trials()
    rows = torch.arange(40)
    sets, start, _ = prefixes(trials, ranking_of(trials))
    kept = 0
    for repairs in (12, 1, 3):
        nearest, passed, _ = repair(trials, sets, start, replace(BUDGET, repairs=repairs))
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
    trials = problem.repacked(replace(problem.pack, units=units)).trials()
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
    nearest, _, _ = repair(trials, nothing, start, BUDGET)
    assert not start.passes[0]
    assert not nearest[0].any()


def test_a_repair_ends_where_nothing_passes_and_goes_on_as_before_elsewhere(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(NodeNet("gcn", seed=1), random_graph(40, 60, seed=1), range(12))
    trials = problem.trials()
    nothing = torch.zeros_like(trials.valid)
    start = trials.run(torch.arange(12), nothing)
    plain, passed, never = repair(trials, nothing, start, BUDGET)
    assert not never.any()
    asked = []

    def settle(sets: Tensor, passed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked.append(sets.clone())
        return sets, passed, ~passed & (torch.arange(12) % 2 == 0)

    ours, good, never = repair(trials, nothing, start, BUDGET, settle)
    assert len(asked) == 1
    assert never.any()
    assert torch.equal(ours[~never], plain[~never])
    assert torch.equal(good, passed & ~never)
    assert torch.equal(ours[never], asked[0][never])
