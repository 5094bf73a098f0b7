"""A proof that grows sets from the target leaves nothing out, and bounds are true by brute force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import cf2
from cf2.methods.contract import Problem
from cf2.models.oracle import GraphOracle
from cf2.sets import proof
from cf2.sets.oracle import Oracle
from cf2.sets.proof import prove
from cf2.sets.trials import Trials
from toys import LAYERS, GraphNet, NodeNet, Unit, passing, random_graph


def everything(trials: Trials, **options: bool) -> proof.Proof:
    none = torch.zeros(len(trials.counts), dtype=torch.bool)
    return prove(trials, torch.zeros_like(trials.valid), none, 10**6, **options)


@pytest.mark.parametrize("kind", sorted(LAYERS))
@pytest.mark.parametrize("question", ["why", "factual"])
def test_the_same_is_proved_as_by_trying_every_set(
    kind: str, question: str, problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(NodeNet(kind, seed=3, layers=2), random_graph(16, 15, seed=4), range(16), question=question)
    small = (problem.pack.units.counts <= 10).nonzero().flatten()
    problem = problem.take(small)
    ours, plain = problem.trials(), problem.trials()
    assert ours.oracle.local
    grown = everything(ours)
    monkeypatch.setattr(GraphOracle, "listing", Oracle.listing)
    every = everything(plain)
    assert torch.equal(grown.passed, every.passed)
    assert torch.equal(grown.optimal, every.optimal)
    assert torch.equal(grown.impossible, every.impossible)
    assert torch.equal(grown.sets.sum(1), every.sets.sum(1))
    # Listing asks the set alone first; where what is left decides, plain exhaustion may need that one test only.
    assert int(ours.evaluations.sum()) <= 2 * int(plain.evaluations.sum())
    rows = torch.arange(len(small))
    assert torch.equal(ours.passes(rows, grown.sets) | ~grown.passed, torch.ones_like(grown.passed))
    assert grown.passed.any() or (kind == "gin" and grown.impossible.any())


def test_what_must_not_be_chosen_or_is_left_alone_stays_out_of_a_proof(problem_of: Callable[..., Problem]) -> None:
    solved = 0
    for seed in range(12):
        data, model = random_graph(8, 8, seed=seed), NodeNet("sum", seed=seed, layers=2)
        problem = problem_of(model, data, [seed % 8])
        draw = torch.rand(problem.pack.units.count, generator=torch.Generator().manual_seed(seed))
        units = replace(problem.pack.units, selectable=draw > 0.3)
        problem = problem.repacked(replace(problem.pack, units=units))
        trials = problem.trials()
        if not len(draw) or not trials.oracle.local:
            continue
        proved = everything(trials)
        named: list[Unit] = [("edges", tuple(ids)) for ids in problem.tables[0].ids.tolist()]  # type: ignore[misc]
        may = {unit for unit, free in zip(named, (draw > 0.3).tolist()) if free}
        y = int(problem.criterion.answers[0])
        good = [s for s in passing(model, data, seed % 8, named, y, "why") if s <= may]
        assert bool(proved.passed[0]) == bool(good)
        if good:
            assert int(proved.sets.sum()) == len(good[0])
            solved += 1
    assert solved


@pytest.mark.parametrize("whole", [False, True])
def test_a_lower_bound_is_true_and_grows_with_the_budget(whole: bool) -> None:
    above = 0
    for seed in range(8):
        data = random_graph(8, 9, seed=seed)
        model = GraphNet("sum", seed=seed) if whole else NodeNet("sum", seed=seed, layers=2)
        options = {} if whole else {"nodes": [seed % 8]}
        bounds = []
        for most in (0, 20, 10**5):
            (e,) = cf2.explain(model, [data] if whole else data, effort="exact", proof=most, **options)
            if e.status not in ("found", "not found"):
                break
            assert e.lower_bound is not None
            assert e.lower_bound <= e.size or e.status == "not found"
            named = [(e.units.names[kind], tuple(ids)) for kind, ids in zip(e.units.kind, e.units.ids.tolist())]
            good = passing(model, data, None if whole else seed % 8, named, e.prediction, "why")
            assert not good or e.lower_bound <= len(good[0])
            bounds.append(e.lower_bound)
        else:
            assert bounds == sorted(bounds)
            assert e.optimal
            assert e.lower_bound == e.size
            above += bounds[-1] > bounds[0]
    assert above


def test_a_bound_that_is_no_proof_is_told(tmp_path: object) -> None:
    data, model = random_graph(12, 26, seed=3), GraphNet("sum", seed=1)
    (e,) = cf2.explain(model, [data], effort="exact", proof=400)
    assert e.status == "found"
    assert not e.optimal
    assert e.lower_bound is not None
    assert 1 < e.lower_bound < e.size
    assert f"no set of fewer than {e.lower_bound} passes" in e.summary()
    found = cf2.explain(model, [data], effort="exact", proof=400)
    for ending in ("json", "parquet"):
        path = found.save(f"{tmp_path}/found.{ending}")
        assert cf2.load(path)[0].lower_bound == e.lower_bound
