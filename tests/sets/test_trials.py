"""Short cuts of trials change no answer: nothing is run twice, fields, races; and rounding decides no tie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import cf2
from cf2.methods.contract import Problem, choose, rank_within
from cf2.models import oracle as oracle_module
from cf2.models.oracle import GraphOracle, Removals, outputs_after
from cf2.models.predictor import Predictor
from cf2.options import Spec
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset
from cf2.sets import trials as trials_module
from cf2.sets.oracle import SHORT_CUTS
from cf2.sets.search import Search, search
from cf2.sets.trials import Outcome, Trials, TrialTable, best_of, in_order, names_of, race, top
from toys import LAYERS, GraphNet, NodeNet, random_graph


def trials_of(problem: Problem, *, cache: bool = True, **short_cuts: bool) -> Trials:
    oracle = GraphOracle(problem.predictor, problem.pack, **short_cuts)
    return Trials(oracle, problem.criterion, problem.tests, cache=cache)


def random_sets(trials: Trials, times: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sets of every size for every instance."""
    draw = torch.Generator().manual_seed(seed)
    rows = trials.rows.repeat(times)
    sets = torch.rand((len(rows), trials.width), generator=draw) < torch.rand((len(rows), 1), generator=draw)
    return rows, trials.admissible(rows, sets & trials.valid[rows])


def same_outcomes(one: Outcome, other: Outcome) -> bool:
    return torch.equal(one.passed, other.passed) and torch.allclose(one.slack, other.slack, atol=1e-4)


# -- nothing is run twice, and a trial is run on its own field ------------------------------------------------


def test_a_table_that_would_grow_too_large_forgets_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "MAX_TABLE_BYTES", 1 << 14)
    table = TrialTable(torch.device("cpu"))
    for start in range(0, 20_000, 1_000):
        numbers = torch.arange(start, start + 1_000)
        slot, fresh = table.claim([number.to_bytes(8, "little") for number in numbers.tolist()])
        assert len(fresh) == len(numbers)
        table.keep(slot, numbers % 2 == 0, numbers.float())
        assert torch.equal(table.read(slot)[1], numbers.float())
        assert len(table.slots) <= 1 << 11


def test_different_sets_and_different_instances_have_different_names() -> None:
    sets = torch.tensor([[bool(number >> bit & 1) for bit in range(12)] for number in range(1 << 12)])
    names = [names_of(torch.full((1 << 12,), row), sets) for row in (0, 1, 300)]
    assert len({name for some in names for name in some}) == 3 << 12
    assert names == [names_of(torch.full((1 << 12,), row), sets.clone()) for row in (0, 1, 300)]


@pytest.mark.parametrize("kind", sorted(LAYERS))
@pytest.mark.parametrize("known", [True, False])
def test_a_trial_on_its_own_field_gives_what_the_whole_instance_gives(
    kind: str, known: bool, problem_of: Callable[..., Problem]
) -> None:
    problem = problem_of(NodeNet(kind, seed=2), random_graph(60, 75, seed=3), range(0, 60, 6))
    if not known:
        problem.predictor.sight = (None, "both")
    plain, ours = trials_of(problem, cache=False, own_fields=False), trials_of(problem, cache=False)
    assert ours.oracle.local
    assert (ours.oracle.removals.hops is not None) == known
    rows, sets = random_sets(plain, 12)
    expected, given = plain.run(rows, sets), ours.run(rows, sets)
    assert same_outcomes(expected, given)
    assert torch.equal(plain.evaluations, ours.evaluations)
    states = sets | ~ours.valid[rows]
    field = ours.oracle.removals.find(rows, states)
    assert len(field.nodes) < int(problem.pack.node_ptr.diff()[rows].sum())


def test_no_gradient_is_computed_twice(problem_of: Callable[..., Problem]) -> None:
    trials = trials_of(problem_of(NodeNet("sum", layers=2), random_graph(30, 40, seed=3), range(4)))
    rows, sets = random_sets(trials, 3)
    once, some = trials.slopes(rows, sets), trials.slopes(rows[5:8], sets[5:8])
    assert trials.evaluations.tolist() == [3 * 3 * len(trials.tests)] * 4
    assert all(torch.equal(every[5:8], own) for every, own in zip(once, some, strict=True))


def test_a_field_ends_where_the_model_does_not_look(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(NodeNet("sum", layers=2), random_graph(60, 70, seed=3), [5])
    rows = torch.zeros(1, dtype=torch.long)
    everything = torch.ones(1, problem.pack.units.count, dtype=torch.bool)
    for hops in (1, 2):
        problem.predictor.sight = (hops, "in")
        field = Removals(problem.pack, None, problem.predictor).find(rows, everything)
        target = int(problem.pack.targets[0, 0])
        tail, head = problem.pack.edge_index.tolist()
        near, columns = {target}, set[int]()
        for _ in range(hops):
            columns |= {place for place, end in enumerate(head) if end in near}
            near |= {tail[place] for place in columns}
        assert field.nodes.tolist() == sorted(near)
        assert sorted(field.columns.tolist()) == sorted(columns)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_the_same_is_found_with_and_without_the_cache(
    whole: bool, fixed: bool, problem_of: Callable[..., Problem]
) -> None:
    if whole:
        problem = problem_of(GraphNet("gcn", seed=1), [random_graph(9, 12, seed=seed) for seed in range(6)])
    else:
        problem = problem_of(NodeNet("gcn", seed=1), random_graph(40, 60, seed=1), range(12))
    if fixed:
        draw = torch.rand(problem.pack.units.count, generator=torch.Generator().manual_seed(0))
        problem = problem.repacked(replace(problem.pack, units=replace(problem.pack.units, fixed=draw < 0.3)))
    plain, ours = trials_of(problem, cache=False, own_fields=False), trials_of(problem)
    assert ours.oracle.local != whole
    for seed in (0, 1, 0):
        rows, sets = random_sets(plain, 8, seed)
        expected, given = plain.run(rows, sets), ours.run(rows, sets)
        assert same_outcomes(expected, given)
        assert torch.equal(plain.passes(rows, sets), ours.passes(rows, sets))
    assert (ours.evaluations < plain.evaluations / 2).all()


@pytest.mark.parametrize("question", ["why", "factual", "counterfactual"])
def test_trying_many_sets_per_call_changes_no_answer_and_needs_fewer_calls(
    question: str, problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(GraphNet("sum", seed=1), [random_graph(12, 26, seed=3)], question=question)
    scores = torch.rand(problem.pack.units.count, generator=torch.Generator().manual_seed(2))
    calls, chosen = [0, 0], []
    plain = Predictor._run

    def counted(self: Predictor, *args: object) -> Tensor:
        calls[-1] += 1
        return plain(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Predictor, "_run", counted)
    for few in (24, 0):
        monkeypatch.setattr(oracle_module, "MAX_ROWS_TOGETHER", few)
        calls.append(0)
        choice = search(
            GraphOracle(problem.predictor, problem.pack),
            problem.criterion,
            problem.tests,
            scores,
            Search(proof=0, effort="standard"),
        )
        chosen.append((choice.selected.tolist(), choice.status, choice.minimal))
    assert chosen[0] == chosen[1]
    assert calls[-2] < calls[-1]


@pytest.mark.parametrize("cut", sorted(SHORT_CUTS))
def test_no_answer_depends_on_a_short_cut(cut: str) -> None:
    wide = random_graph(40, 60, features=600, seed=4)
    wide.x = torch.where(wide.x > 2.0, wide.x, 0.0)
    nets = (NodeNet("gcn", features=600, seed=1), NodeNet("sage", seed=2), GraphNet("gin", seed=3))
    inputs = (wide, random_graph(40, 60, seed=5), [random_graph(8, 11, seed=6)])

    def answers() -> list[object]:
        found = [e for net, data in zip(nets, inputs) for e in _explained(net, data)]
        return [(e.selected.tolist(), e.status, e.minimal, e.optimal, e.sufficient, e.necessary) for e in found]

    expected = answers()
    SHORT_CUTS.discard(cut)
    try:
        assert answers() == expected
    finally:
        SHORT_CUTS.add(cut)


def _explained(net: torch.nn.Module, data: Any) -> cf2.Explanations:
    return cf2.explain(net, data, progress=False, **({} if isinstance(data, list) else {"nodes": [1, 7, 20]}))


# -- races ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["node", "graph"])
def test_a_race_has_the_winner_of_all_trials_and_runs_fewer(level: str, problem_of: Callable[..., Problem]) -> None:
    graphs = [random_graph(12, 24, seed=seed) for seed in range(6)]
    problem = (
        problem_of(GraphNet("sum", seed=1), graphs)
        if level == "graph"
        else problem_of(NodeNet("gcn", seed=1), random_graph(40, 100, seed=1), range(12))
    )
    plain, raced = trials_of(problem, together=False), trials_of(problem, together=False)
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
            assert same_outcomes(outcome.take(winner), everything.take(winner))
    fewer = trials_of(problem, together=False)
    race(fewer, rows, rows, sets, torch.ones_like(rows), nearest)
    assert fewer.evaluations.sum() < plain.evaluations.sum()


@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_trials_of_edges_are_packed_as_instances_taken_and_cut(kind: str, problem_of: Callable[..., Problem]) -> None:
    graphs = [random_graph(10, 20, seed=seed) for seed in range(5)]
    problem = problem_of(GraphNet(kind, seed=1), graphs)
    trials = trials_of(problem, cache=False, together=False)
    assert problem.oracle.removals is not None
    rows, sets = random_sets(trials, 4)
    given = trials.run(rows, sets)
    for column, test in enumerate(trials.tests):
        said = outputs_after(test.intervention, problem.predictor, problem.pack.take(rows), sets[trials.valid[rows]])
        passed, slack = trials._judged(torch.full_like(rows, column), rows, said)
        assert torch.equal(passed, given.passed[:, column])
        assert torch.allclose(slack, given.slack[:, column], atol=1e-4)


# -- ties -----------------------------------------------------------------------------------------------------

NOISE = torch.tensor([0.0, 3e-7, -2e-7, 1e-7, -4e-7, 2e-7])


def test_the_first_of_equal_candidates_wins() -> None:
    rows = torch.tensor([0, 0, 0, 1, 1, 1])
    scores = torch.tensor([1.0, 2.0, 2.0, -5.0, -5.0, -6.0])
    for shift in range(6):
        assert best_of(rows, scores + NOISE.roll(shift), 3).tolist() == [1, 3, -1]


def test_the_highest_scores_are_taken_in_the_order_of_their_columns_where_they_are_equal() -> None:
    scores = torch.tensor([[3.0, 1.0, 3.0, 3.0, float("-inf"), 0.0]])
    for shift in range(6):
        value, column = top(scores + NOISE.roll(shift), 4, torch.tensor([1e-5]))
        assert column.tolist() == [[0, 2, 3, 1]]
        assert torch.allclose(value, torch.tensor([[3.0, 3.0, 3.0, 1.0]]), atol=1e-5)
    value, column = top(scores, 9, torch.zeros(1))
    assert column[0, :5].tolist() == [0, 2, 3, 1, 5]
    assert value.tolist() == [[3.0, 3.0, 3.0, 1.0, 0.0, float("-inf")]]  # and no column twice


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_an_order_sees_relative_differences_and_no_noise(size: float) -> None:
    scores = torch.tensor([[0.5, 1.0, 1.0, float("-inf"), 1e-9, 1.0]])
    for shift in range(6):
        assert in_order(scores * size * (1 + NOISE.roll(shift))).tolist() == [[3, 0, 1, 5, 4, 2]]


def test_what_may_not_be_chosen_comes_last() -> None:
    assert in_order(torch.tensor([[float("-inf"), 1.0, float("-inf"), 0.5]])).tolist() == [[2, 0, 3, 1]]
    assert in_order(torch.zeros(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("method", ["cf2", "gradient"])
def test_alone_and_among_others_the_sets_are_the_same(method: str) -> None:
    source = from_dataset("tree-cycles")
    spec = Spec(method, settings={} if method == "cf2" else {"k": 3})
    keys = [793, *(key for key in source.keys(spec) if key != 793)][:24]
    with Session(source.request(keys, spec)) as session:
        together = session.explain(keys)
        for other in together[:8]:
            (alone,) = session.explain([other.key])
            assert np.array_equal(alone.selected, other.selected), other.key
            assert np.allclose(alone.scores, other.scores, atol=1e-5)
        for problem in session.problems(keys):
            scores = torch.ones(problem.pack.units.count)
            place = rank_within(scores, problem.pack)
            assert choose(scores, problem.pack, k=2).sum() == (place < 2).sum()
