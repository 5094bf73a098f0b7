"""Proofs are by exhaustion: nothing that could be smaller is left out, and nothing is tried that need not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import cf2
from cf2.graphs.graph import Instance
from cf2.methods.contract import Problem
from cf2.sets import proof
from cf2.sets.proof import prove, twins
from cf2.sets.trials import Trials, score
from cf2.units import kinds as cf2_units
from cf2.units.kinds import Rows, UnitKind
from toys import GraphNet, NodeNet, Unit, passing, probabilities, random_graph


def from_nothing(trials: Trials, budget: int = 10**6) -> proof.Proof:
    """A proof that starts without a passing set, so that every set is tried."""
    none = torch.zeros(len(trials.counts), dtype=torch.bool)
    return prove(trials, torch.zeros_like(trials.valid), none, budget)


@pytest.mark.parametrize("question", ["why", "factual", "counterfactual"])
def test_a_proof_from_nothing_finds_the_smallest_set_or_shows_that_there_is_none(
    question: str, problem_of: Callable[..., Problem]
) -> None:
    outcomes = set()
    for seed in range(4):
        model, data = NodeNet("sum", seed=seed, layers=2), random_graph(10, 9, seed=seed)
        problem = problem_of(model, data, range(10), question=question)
        proved, y = from_nothing(problem.trials(), 2**8), problem.criterion.answers.tolist()
        for row, (instance, table) in enumerate(zip(problem.instances, problem.tables)):
            if not 0 < table.count <= 8:
                continue
            named: list[Unit] = [("edges", tuple(ids)) for ids in table.ids.tolist()]  # type: ignore[misc]
            every = passing(model, data, instance.key, named, y[row], question)  # type: ignore[arg-type]
            outcomes.add(bool(every))
            assert bool(proved.impossible[row]) == (not every)
            assert bool(proved.optimal[row]) == bool(proved.passed[row]) == bool(every)
            if every:
                chosen = {unit for unit, inside in zip(named, proved.sets[row].tolist()) if inside}
                assert chosen in every
                assert len(chosen) == len(every[0])
    assert outcomes == ({True} if question == "factual" else {True, False})


def test_sets_come_by_promise_and_each_of_them_once(problem_of: Callable[..., Problem]) -> None:
    trials = problem_of(NodeNet("sum", seed=3, layers=2), random_graph(12, 40, seed=4), range(12)).trials()
    row = int(trials.counts.argmax())
    search = proof.Exhaustion(trials, row, None, budget=10**4, exhausted=0, partly=False)
    (pairs,) = search.combined(search.must, search.free, 2)
    parts = list(search.by_promise(pairs))
    assert [len(part) for part in parts[:2]] == [proof.FIRST_SETS, 2 * proof.FIRST_SETS]
    tried = torch.cat(parts)
    assert {tuple(units) for units in tried.tolist()} == {tuple(units) for units in pairs.tolist()}
    assert len(tried) == len(pairs)
    slack, slope = trials.slopes(torch.tensor([row]), trials.must[row][None])
    promise = score(slack.double() + tried.double() @ slope[0].double())
    assert (promise.diff() <= 0).all()


def test_a_smaller_set_replaces_the_one_that_was_known(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(NodeNet("sum", seed=3, layers=2), random_graph(12, 12, seed=4), range(12), question="factual")
    trials = problem.trials()
    whole = trials.valid.clone()
    proved = prove(trials, whole, torch.ones(12, dtype=torch.bool), 2**8)
    best = from_nothing(trials, 2**8)
    done = proved.optimal
    assert done.any()
    assert torch.equal(proved.sets[done].sum(1), best.sets[done].sum(1))
    assert torch.equal(proved.sets[~done], whole[~done])


def test_what_does_not_fit_the_budget_is_left_as_it_is(problem_of: Callable[..., Problem]) -> None:
    trials = problem_of(NodeNet("sum", seed=3, layers=2), random_graph(12, 12, seed=4), range(12)).trials()
    proved = from_nothing(trials, 1)
    assert not proved.optimal.any()
    assert not proved.impossible.any()
    assert int(trials.evaluations.sum()) == 0


@pytest.mark.parametrize(
    ("units", "top", "budget", "affordable"),
    [
        (6_000, 6_000, 20_000, False),
        (10, 10, 2**10, True),
        (10, 10, 2**10 - 1, False),
        (6_000, 1, 6_001, True),
        (6_000, -1, 0, True),  # nothing is smaller than the empty set
    ],
)
def test_a_proof_is_affordable_if_the_budget_pays_for_all_sets(
    units: int, top: int, budget: int, affordable: bool
) -> None:
    assert proof._affordable(units, top, budget) == affordable


def star(leaves: int, *, motif: bool = False) -> Data:
    """A hub with leaves that look alike, and a tail of two."""
    pairs = [(0, leaf) for leaf in range(1, leaves + 1)] + [(0, leaves + 1), (leaves + 1, leaves + 2)]
    both = torch.tensor(pairs + [(b, a) for a, b in pairs]).t().contiguous()
    x = torch.ones(leaves + 3, 4)
    x[-1] = 2.0
    data = Data(x=x, edge_index=both)
    if motif:
        data.edge_motif = torch.arange(both.size(1))
    return data


def test_leaves_that_look_alike_are_tried_once_also_beside_tensors_that_the_model_does_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = star(7, motif=True)
    solved = 0
    for seed in range(4):
        model = GraphNet("sum", seed=seed)
        quick = cf2.explain(model, [data], proof=10**4)[0]
        with monkeypatch.context() as patched:
            patched.setattr(proof, "twins", lambda trials, row: torch.zeros((0, 2), dtype=torch.long))
            slow = cf2.explain(model, [data], proof=10**4)[0]
        assert quick.evaluations < slow.evaluations
        assert (quick.status, quick.size, quick.optimal) == (slow.status, slow.size, slow.optimal)
        assert quick.selected.tolist() == slow.selected.tolist()
        solved += quick.status == "found"
    assert solved


def test_twins_are_leaves_of_one_node_with_the_same_features(problem_of: Callable[..., Problem]) -> None:
    data = star(4)
    data.x[3] = 5.0  # the third leaf looks different
    trials = problem_of(GraphNet("sum"), [data]).trials()
    assert twins(trials, 0).tolist() == [[0, 1], [1, 3]]
    trials = problem_of(NodeNet("sum"), data, [1]).trials()  # the first leaf is what is explained
    assert twins(trials, 0).tolist() == [[1, 3]]


@pytest.mark.parametrize("change", ["edge_attr", "features"])
def test_what_the_model_tells_apart_has_no_twin(change: str, problem_of: Callable[..., Problem]) -> None:
    class Attributed(GraphNet):
        def forward(self, x: Any, edge_index: Any, edge_attr: Any, batch: Any = None) -> Any:
            return super().forward(x, edge_index, batch)

    data = star(4)
    data.edge_attr = torch.arange(12.0)
    options = {"units": ("edges", "features")} if change == "features" else {}
    model = Attributed("sum") if change == "edge_attr" else GraphNet("sum")
    problem = problem_of(model, [data], **options)
    assert not len(twins(problem.trials(), 0))


# Two leaves look alike, and one of them goes together with an edge that is somewhere else.
GROUPS = {(0, 1): 0, (3, 4): 0, (0, 2): 1, (0, 3): 2}


def _groups(instance: Instance, entries: torch.Tensor) -> Rows:
    unit = torch.tensor([GROUPS[min(a, b), max(a, b)] for a, b in instance.edge_index.t().tolist()])
    ids = torch.tensor([[group, -1] for group in range(3)])
    return Rows(ids, torch.stack([torch.arange(len(unit)), unit]), torch.zeros((2, 0), dtype=torch.long))


def test_a_group_of_edges_has_no_twin_by_one_of_its_leaves(
    monkeypatch: pytest.MonkeyPatch, problem_of: Callable[..., Problem]
) -> None:
    monkeypatch.setitem(cf2_units.KINDS, "clusters", UnitKind("clusters", _groups))
    both = torch.tensor([*GROUPS, *((b, a) for a, b in GROUPS)]).t()
    for seed in (46, 250, 388):  # {1} or {1, 2} passes, and with group 0 in its place nothing of that size does
        x = torch.randn(5, 4, generator=torch.manual_seed(seed))
        x[2] = x[1]
        data, model = Data(x=x, edge_index=both), GraphNet("sum", seed=seed)
        problem = problem_of(model, [data], units="clusters")
        proved = from_nothing(problem.trials())
        y = int(problem.criterion.answers[0])

        def says(gone: set[int]) -> int:
            stay = torch.tensor([GROUPS[min(a, b), max(a, b)] not in gone for a, b in both.t().tolist()])
            return int(probabilities(model, Data(x=data.x, edge_index=both[:, stay]), None).argmax())  # noqa: B023

        every = [set(c) for size in range(4) for c in combinations(range(3), size)]
        good = [s for s in every if says({0, 1, 2} - s) == y != says(s)]
        assert good
        assert bool(proved.passed[0])
        assert int(proved.sets.sum()) == len(good[0])


def test_a_set_found_after_the_proof_is_smallest_if_it_is_as_small_as_the_bound(
    problem_of: Callable[..., Problem],
) -> None:
    """All sets of fewer than two units are tried; whoever then finds a passing set of two has the smallest."""
    trials = problem_of(NodeNet("sum", seed=3, layers=2), random_graph(12, 12, seed=4), range(3)).trials()
    sets = torch.zeros_like(trials.valid)
    sets[0, :2] = sets[1, :3] = sets[2, :1] = True
    every = torch.ones(3, dtype=torch.bool)
    known = proof.Proof(sets, every, ~every, ~every, torch.tensor([2, 2, 0]))
    assert known.smallest(trials).tolist() == [True, False, False]
    assert replace(known, passed=~every).smallest(trials).tolist() == [False, False, False]
