"""What every method keeps to: it chooses what may be chosen, always what must be, and says what it can do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cf2
from cf2.graphs.targets import GraphTargets
from cf2.methods import registry
from cf2.methods.contract import Method, Problem, Ranking, choose
from cf2.runs import session
from cf2.sets.search import Choice
from cf2.units.kinds import KINDS, unit_kinds
from cf2.units.packs import pack
from methods_toys import toy
from toys import GraphNet, NodeNet, random_graph

PACK = pack([GraphTargets([random_graph(3 + s, 2 * s, seed=s) for s in range(5)]).instance(key) for key in range(5)])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1000), st.one_of(st.none(), st.integers(1, 6)), st.sampled_from([None, 0.25, 0.75]), st.booleans()
)
def test_the_k_best_are_chosen_of_those_that_may_be(
    seed: int, k: int | None, threshold: float | None, fixed: bool
) -> None:
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 5, (PACK.units.count,), generator=draw) / 4  # with ties
    selectable = torch.rand(PACK.units.count, generator=draw) < 0.7
    required = selectable & (torch.rand(PACK.units.count, generator=draw) < 0.2)
    flags = {"fixed": ~selectable} if fixed else {"selectable": selectable}
    flagged = replace(PACK, units=replace(PACK.units, required=required, **flags))
    threshold = None if k is not None else threshold
    chosen = choose(scores, flagged, k=k, threshold=threshold)
    parts = [PACK.split(values) for values in (scores, selectable, required, chosen)]
    for score, may, must, got in zip(*(map(torch.Tensor.tolist, part) for part in parts)):  # type: ignore[arg-type]
        places = [place for place in range(len(score)) if may[place]]
        if k is None:
            best = {place for place in places if score[place] > (0.5 if threshold is None else threshold)}
        else:
            best = set(sorted(places, key=lambda place: (-score[place], place))[:k])
        assert {place for place, one in enumerate(got) if one} == best | {p for p, one in enumerate(must) if one}


def test_a_problem_can_be_taken_apart(problem_of: Callable[..., Problem]) -> None:
    problem = problem_of(NodeNet("sum"), random_graph(20, 30, seed=1), [3, 8, 9])
    taken = problem.take(torch.tensor([2, 0, 2]))
    assert [instance.key for instance in taken.instances] == [9, 3, 9] == [taken.pack.key(row) for row in range(3)]
    assert [table.count for table in taken.tables] == taken.pack.units.counts.tolist()
    assert torch.equal(taken.outputs[1], problem.outputs[0])
    assert taken.criterion.answers.tolist() == problem.criterion.answers[[2, 0, 2]].tolist()


# -- constraints, for every method --------------------------------------------------------------------------

DATA, MODEL = random_graph(12, 16, seed=4), NodeNet("gin", seed=2, layers=2)
QUICK: dict[str, dict[str, Any]] = {
    "cf2": {"proof": 100},
    "cf2-relaxed": {"epochs": 20},
    "gnnexplainer": {"epochs": 20},
    "cf-gnnexplainer": {"epochs": 20},
    "subgraphx": {"budget": 200},
}


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    fits: dict[str, Any] = {
        name: cf2.fit(MODEL, DATA, range(12), method=name, k=3, epochs=2)
        for name in registry.names()
        if registry.get(name).needs == "training"
    }
    return fits | {"truth": {node: DATA.edge_index.t()[::3].numpy() for node in range(12)}}


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("method", registry.names())
def test_required_units_are_always_chosen_and_forbidden_ones_never(
    method: str, fixed: bool, search: bool, trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The constraints come in where a reduction would: `reduced` is what changes the units of a problem."""
    flags: dict[Any, list[tuple[bool, bool]]] = {}

    def constrained(problem: Problem, limit: int) -> Problem:
        draw = torch.rand(problem.pack.units.count, generator=torch.Generator().manual_seed(7))
        forbidden, required = draw < 0.3, draw > 0.7
        for instance, one, other in zip(problem.instances, problem.pack.split(forbidden), problem.pack.split(required)):
            flags[instance.key] = list(zip(one.tolist(), other.tolist()))
        changed = {"fixed": forbidden} if fixed else {"selectable": ~forbidden}
        units = replace(problem.pack.units, required=required, **changed)
        return problem.repacked(replace(problem.pack, units=units))

    monkeypatch.setattr(session, "reduced", constrained)
    kind = (registry.get(method).units or ("edges",))[0]
    options = QUICK.get(method, {}) | (
        {"effort": "quick", "proof": 100} if search and not registry.get(method).searches else {}
    )
    found = cf2.explain(
        MODEL,
        DATA,
        range(12),
        method=method,
        units=kind,
        trained=trained.get(method),
        search=search,
        max_units=1,
        reduce="gradient",
        **options,
    )
    assert sum(required for own in flags.values() for _, required in own) > 10
    for e in found:
        for inside, (forbidden, required) in zip(e.selected.tolist(), flags[e.key]):
            assert not (forbidden and inside)
            assert inside or not required


SEEDED: dict[str, dict[str, Any]] = {
    "random": {"k": 3},
    "cf2-relaxed": {"epochs": 20},
    "subgraphx": {"k": 5, "budget": 600},
}


@pytest.mark.parametrize(("method", "options"), SEEDED.items())
def test_the_seed_decides(method: str, options: dict[str, Any]) -> None:
    subject = toy("houses", 1)
    one, same, other = (
        cf2.explain(subject.model, subject.data, subject.test[:5], method=method, seed=seed, **options)
        for seed in (3, 3, 4)
    )
    assert all(np.array_equal(a.scores, b.scores) for a, b in zip(one, same))
    assert any(not np.allclose(a.scores, b.scores, atol=1e-3) for a, b in zip(one, other))


# -- what a method says of itself ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.names())
def test_every_method_says_what_it_needs(name: str) -> None:
    method = registry.get(name)
    assert method.name == name
    assert method.title
    assert method.summary
    assert (method.fit is not None) == (method.needs == "training")
    defaults = method.make_settings({})
    assert set(method.paper) <= set(vars(defaults)) | {"lam"}
    with pytest.raises(cf2.CF2Error, match=f"method '{name}'"):
        method.make_settings({"no_such_setting": 1})


WRONG: list[tuple[str, str, Any]] = [
    *[("cf2-relaxed", name, -1) for name in ("lam", "gamma", "lr", "epochs")],
    *[("cf2-relaxed", name, value) for name, value in (("alpha", 1.5), ("epochs", 1.5), ("lr", math.nan))],
    ("cf-gnnexplainer", "beta", -1),
    ("random", "k", 0),
    ("gradient", "steps", 0),
    ("gradient", "kind", "integrate"),
    ("gnnexplainer", "edge_size", -1),
    ("greedy", "most", 0),
    ("greedy", "budget", 0),
    ("graphlime", "hops", 0),
    ("subgraphx", "budget", 0),
    ("gem", "target", 0),
    ("gisst", "edge_size", -1),
    ("pgexplainer", "first_temperature", 0),
    ("rcexplainer", "factual", 2),
    ("tage", "batch", 1),
    ("tage", "contrast", 0),
]


@pytest.mark.parametrize(("method", "setting", "value"), WRONG)
def test_settings_out_of_range_are_refused(method: str, setting: str, value: Any) -> None:
    with pytest.raises(cf2.CF2Error, match=f"Expected `{setting}`"):
        registry.get(method).make_settings({setting: value})
    with pytest.raises(cf2.CF2Error, match="not both"):
        registry.get("gnnexplainer").make_settings({"k": 3, "threshold": 0.5})


def test_a_method_says_which_units_it_scores() -> None:
    registry.get("cf2").check_units(tuple(KINDS.values()))
    with pytest.raises(cf2.CF2Error, match="scores, edges, but got features"):
        registry.get("gem").check_units(unit_kinds(("edges", "features")))
    with pytest.raises(cf2.CF2Error, match="scores only what is there"):
        registry.get("gnnexplainer").check_units((KINDS["added_edges"],))


def test_a_method_says_which_levels_it_is_defined_for() -> None:
    with pytest.raises(cf2.CF2Error, match="prediction of a node for method 'graphlime', but got that of a graph"):
        cf2.explain(GraphNet("gin"), [random_graph(6, 6)], method="graphlime", units="columns")
    registry.get("gem").check_level("anything")


@pytest.fixture
def own_method(monkeypatch: pytest.MonkeyPatch) -> Method:
    """A user's own method, which likes the last unit best; forgotten after the test."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    settings_class = registry.get("random").settings

    def rank(problem: Problem, settings: Any) -> Ranking:
        units = problem.pack.units
        place = torch.arange(units.count) - units.ptr[:-1][units.owner]
        scores = place / units.counts[units.owner]
        return Ranking(scores, Choice(choose(scores, problem.pack, k=settings.k), torch.zeros(problem.num_instances)))

    return Method("last", "last", "the last units", settings_class, rank)


def test_a_users_own_method_is_known_once_it_is_registered(own_method: Method) -> None:
    graphs = [random_graph(6, 6, seed=s) for s in range(2)]
    with pytest.raises(cf2.CF2Error, match="'last'"):
        cf2.explain(GraphNet("gin"), graphs, method="last")
    assert cf2.register(own_method) is own_method
    assert cf2.register(own_method) is own_method  # once more is no harm
    for e in cf2.explain(GraphNet("gin"), graphs, method="last", k=2):
        assert e.selected.tolist() == [False] * (e.num_units - 2) + [True] * 2
        assert (e.method, e.status) == ("last", "unverified")
    with pytest.raises(cf2.CF2Error, match="'last', which is taken"):
        cf2.register(replace(own_method, title="another"))
    with pytest.raises(cf2.CF2Error, match="Method"):
        cf2.register("last")  # type: ignore[arg-type]


def test_a_choice_among_equal_scores_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where some units are chosen, and others with the same score are not."""
    data = random_graph(10, 14, seed=2)

    def notes(k: int) -> str:
        (e,) = cf2.explain(NodeNet("gcn"), data, nodes=[3], method="gradient", units="edges", k=k)
        return e.note

    assert "same score" not in notes(2)
    monkeypatch.setattr("cf2.methods.gradient.largest", lambda scores, problem: torch.tensor([torch.inf]))
    assert "same score" in notes(2)
    assert "same score" not in notes(99)
