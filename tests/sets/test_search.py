"""What is called sufficient, necessary, minimal, optimal or impossible is, by brute force on really reduced graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

import cf2
from cf2.methods.contract import Problem, Ranking, search_from
from cf2.results.explanation import Explanation
from cf2.samples.sources import from_dataset
from cf2.sets import search as cf2_search
from cf2.sets.moves import EQUAL_MARGINS, MAX_USEFUL_SLACK
from cf2.sets.search import Choice, Search
from cf2.sets.tests import QUESTIONS
from cf2.sets.trials import Trials
from toys import LAYERS, GraphNet, NodeNet, Unit, edited, passing, probabilities, random_graph


def units_of(e: Explanation) -> tuple[list[Unit], set[Unit]]:
    """All units of an explanation, and those that are chosen."""
    units = [(e.units.names[kind], tuple(ids)) for kind, ids in zip(e.units.kind, e.units.ids.tolist())]
    return units, {unit for unit, inside in zip(units, e.selected) if inside}


def explained(
    kind: str, data: Data, seed: int, whole: bool, **options: Any
) -> tuple[nn.Module, int | None, Explanation]:
    """A random model, and its explanation of the whole graph (None) or of one node."""
    if whole:
        model: nn.Module = GraphNet(kind, seed=seed)
        return model, None, cf2.explain(model, [data], **options)[0]
    model, node = NodeNet(kind, seed=seed, layers=2), seed % int(data.num_nodes)
    return model, node, cf2.explain(model, data, nodes=[node], **options)[0]


def check(model: nn.Module, data: Data, e: Explanation, node: int | None, question: str = "why") -> None:
    (units, chosen), y = units_of(e), e.prediction
    assert y == int(probabilities(model, data, node).argmax())
    assert e.sufficient == (int(probabilities(model, edited(data, set(units) - chosen), node).argmax()) == y)
    assert e.necessary == (int(probabilities(model, edited(data, chosen), node).argmax()) != y)
    every = passing(model, data, node, units, y, question)
    if e.status == "found":
        assert chosen in every
        assert all(chosen - {one} not in every for one in chosen) == e.minimal
        if e.optimal:
            assert len(chosen) == len(every[0])
    if e.status == "impossible":
        assert not every
    if e.status != "empty":
        assert e.minimal is None or e.status == "found"
        assert e.optimal is None or e.status == "found"


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(LAYERS)),
    st.integers(3, 7),
    st.integers(1, 7),
    st.integers(0, 10_000),
    st.booleans(),
    st.sampled_from(sorted(QUESTIONS)),
)
def test_verdicts_are_true_by_brute_force(
    kind: str, nodes: int, edges: int, seed: int, whole: bool, question: str
) -> None:
    data = random_graph(nodes, edges, seed=seed)
    options = {"effort": "quick", "proof": 10_000} if whole else {"proof": seed % 3 * 100}
    model, node, e = explained(kind, data, seed, whole, question=question, **options)
    check(model, data, e, node, question)


def test_confidence_asks_for_a_margin() -> None:
    data, model = random_graph(40, 60, seed=1), NodeNet("sum", seed=1, layers=2)
    plain = cf2.explain(model, data, nodes=range(30))
    sure = cf2.explain(model, data, nodes=range(30), confidence=0.1)
    kept = [e for e in sure if e.status == "found"]
    assert kept
    for e in kept:
        only, without = (np.delete(P, e.prediction).max() for P in (e.probabilities_only, e.probabilities_without))
        assert e.probabilities_only[e.prediction] - only > 0.1 - 1e-5
        assert without - e.probabilities_without[e.prediction] > 0.1 - 1e-5
    assert sum(e.status == "found" for e in plain) >= len(kept)


def test_more_effort_is_never_worse_on_average() -> None:
    data, model = random_graph(60, 110, seed=9), NodeNet("sum", seed=3)
    sizes = []
    for effort in ("quick", "standard", "thorough"):
        found = cf2.explain(model, data, nodes=range(0, 60, 4), effort=effort)
        sizes.append(np.mean([e.size for e in found if e.status == "found"]))
    assert sizes[0] >= sizes[1] >= sizes[2]


def test_restarts_among_many_units_never_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = random_graph(60, 160, seed=0), NodeNet("sum", seed=0)

    def explained(restarts: int) -> cf2.Explanations:
        budget = replace(cf2_search._BUDGETS["standard"], restarts=restarts)
        monkeypatch.setitem(cf2_search._BUDGETS, "standard", budget)
        return cf2.explain(model, data, nodes=[0, 4, 8, 12, 52])

    before, after = explained(0), explained(6)
    assert all(e.num_units > cf2_search.MANY_UNITS for e in after)
    assert all(e.sufficient and e.necessary and e.minimal for e in after)
    assert all(a.size <= b.size for a, b in zip(after, before))


def test_where_nothing_passes_no_single_edge_was_overlooked() -> None:
    source = from_dataset("ba-shapes")
    graph = source.graphs[0]

    def says(node: int, columns: Tensor) -> int:
        return int(source.model(graph.x, graph.edge_index[:, columns])[node].argmax())

    statuses = []
    for e in cf2.explain(source.model, graph, nodes=[643, 653, 617, 623, 423]):  # their class needs no edges
        passing = 0
        for pair in e.units.of("edges").tolist():
            chosen = (graph.edge_index == torch.tensor(pair)[:, None]).all(0)
            chosen |= (graph.edge_index == torch.tensor(pair[::-1])[:, None]).all(0)
            passing += says(e.key, chosen) == e.prediction != says(e.key, ~chosen)
        assert e.size == 1 if passing else e.status != "found" or e.size > 1
        statuses.append(e.status)
    assert {"found", "impossible"} <= set(statuses)


@pytest.mark.data
def test_what_does_not_depend_on_scores_is_grown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source, grown, grow = from_dataset("citeseer"), list[int](), cf2_search.grow

    def counted(trials: Trials, rows: Tensor, most: Tensor, adds: int) -> tuple[Tensor, Tensor]:
        grown.extend(trials.counts[rows].tolist())
        return grow(trials, rows, most, adds)

    monkeypatch.setattr(cf2_search, "grow", counted)
    found = cf2.explain(source.model, source.graphs[0], nodes=[139, 372], units=("edges",))
    assert {e.status for e in found} == {"not found"}  # so that each is searched again, by masks that have settled
    assert sorted(grown) == sorted(len(e.scores) for e in found)


def test_search_serves_other_methods_scores() -> None:
    data, model = random_graph(30, 50, seed=8), NodeNet("gin", seed=8)
    plain = cf2.explain(model, data, nodes=range(20), method="gradient", k=3)
    found = cf2.explain(model, data, nodes=range(20), method="gradient", k=3, search=True, effort="quick")
    assert all(e.status == "unverified" for e in plain if e.num_units)
    assert all(e.sufficient and e.necessary for e in found if e.status == "found")
    assert sum(e.sufficient and e.necessary for e in found) > sum(e.sufficient and e.necessary for e in plain)
    assert all(e.method == "gradient" for e in found)


def test_an_isolated_node_says_why_and_disturbs_nobody() -> None:
    data = random_graph(10, 12, seed=1)
    data.x = torch.cat([data.x, torch.ones(1, 4)])
    found = cf2.explain(NodeNet("gcn"), data, nodes=[10, 0])
    assert found[0].status == "empty"
    assert found[0].size == 0
    assert "No unit can be removed" in found[0].note
    (alone,) = cf2.explain(NodeNet("gcn"), data, nodes=[0])
    assert np.array_equal(alone.selected, found[1].selected)


@pytest.mark.parametrize("wrong", [{"effort": "huge"}, {"confidence": 1.0}, {"confidence": -0.1}, {"proof": 1.5}])
def test_bad_settings_of_the_search_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(cf2.CF2Error, match=next(iter(wrong))):
        Search(**wrong)  # type: ignore[arg-type]


# -- margins: of the smallest sets, the one with the widest ------------------------------------------------


def slack_of(P: torch.Tensor, y: int) -> float:
    """log P(y) - log P(the next class), as far as it counts."""
    other = torch.cat([P[:y], P[y + 1 :]]).max()
    return min(math.log(max(float(P[y]), 1e-12)) - math.log(max(float(other), 1e-12)), MAX_USEFUL_SLACK)


def margin_of(model: nn.Module, data: Data, node: int | None, chosen: set[Unit], e: Explanation) -> float:
    """By how much a set holds in the tests of its question, on really reduced graphs; negative where it fails one."""
    only = slack_of(probabilities(model, edited(data, set(units_of(e)[0]) - chosen), node), e.prediction)
    without = -slack_of(probabilities(model, edited(data, chosen), node), e.prediction)
    return {"why": min(only, without), "factual": only, "counterfactual": min(without, MAX_USEFUL_SLACK)}[e.question]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(LAYERS)),
    st.integers(0, 10_000),
    st.booleans(),
    st.sampled_from(sorted(QUESTIONS)),
    st.sampled_from(["standard", "thorough"]),
)
@example("gcn", 707, False, "counterfactual", "standard")  # a swap was proposed three times, and another one never
def test_no_single_swap_widens_the_margin(kind: str, seed: int, whole: bool, question: str, effort: str) -> None:
    edges = {"standard": 5, "thorough": 7}[effort]  # so few that all swaps are within the budget
    data = random_graph(6, edges, seed=seed)
    model, node, e = explained(kind, data, seed, whole, question=question, effort=effort)
    if e.status != "found":
        return
    units, chosen = units_of(e)
    own = margin_of(model, data, node, chosen, e)
    for gone, new in product(chosen, set(units) - chosen):
        other = margin_of(model, data, node, chosen - {gone} | {new}, e)
        assert other <= own + 2 * EQUAL_MARGINS, (gone, new)


def test_there_is_often_a_choice_and_the_widest_is_taken() -> None:
    """The same graphs without swaps have narrower margins on average, at the same sizes."""
    data, model = random_graph(40, 70, seed=2), NodeNet("sum", seed=1)
    narrow, wide = (cf2.explain(model, data, nodes=range(40), effort=effort) for effort in ("quick", "thorough"))
    margins = []
    for pair in zip(narrow, wide):
        if pair[0].status == "found" and pair[0].size == pair[1].size:
            margins.append([margin_of(model, data, int(e.key), units_of(e)[1], e) for e in pair])
    assert sum(b > a + EQUAL_MARGINS for a, b in margins) > 3
    assert sum(b for _, b in margins) > sum(a for a, _ in margins)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(LAYERS)), st.integers(0, 10_000), st.booleans(), st.sampled_from(["quick", "standard"]))
def test_one_test_never_takes_more_than_both(kind: str, seed: int, whole: bool, effort: str) -> None:
    """Without a proof: it is the search that has to find them."""
    data = random_graph(9, 14, seed=seed)
    found = {
        question: explained(kind, data, seed, whole, question=question, effort=effort, proof=0)[2]
        for question in QUESTIONS
    }
    if found["why"].status == "found":
        assert found["factual"].sufficient
        assert found["counterfactual"].necessary
        assert max(found["factual"].size, found["counterfactual"].size) <= found["why"].size


@pytest.mark.parametrize("effort", ["quick", "standard"])
def test_edits_keep_their_tests_and_sizes_when_margins_widen(effort: str) -> None:
    data, model = random_graph(20, 25, seed=3), NodeNet("sum", seed=2, layers=2)
    found = cf2.explain(model, data, nodes=range(8), question="counterfactual", edits=("remove", "add"), effort=effort)
    assert any(e.status == "found" for e in found)
    for e in found:
        if e.status == "found":
            after = e.apply(data)
            assert int(probabilities(model, after, int(e.key)).argmax()) != e.prediction


# -- constraints: what must be in, and what must not --------------------------------------------------------


def constrained(problem: Problem, seed: int) -> Problem:
    """The problem with about a third of its units forbidden and, for odd seeds, about a quarter required."""
    draw = torch.rand(problem.pack.units.count, generator=torch.Generator().manual_seed(seed))
    flags = {"selectable": draw >= 0.3} | ({"required": draw > 0.75} if seed % 2 else {})
    return problem.repacked(replace(problem.pack, units=replace(problem.pack.units, **flags)))


def searched(problem: Problem, effort: str, proof: int) -> Choice:
    counts = problem.pack.units.counts.tolist()
    scores = torch.cat([torch.rand(count, generator=torch.Generator().manual_seed(0)) for count in counts])
    nothing = Ranking(scores, Choice(scores > 1, torch.zeros(problem.num_instances, dtype=torch.long)))
    return search_from(problem, nothing, Search(effort, proof=proof)).choice  # type: ignore[arg-type]


@pytest.mark.parametrize("question", sorted(QUESTIONS))
def test_what_is_found_under_constraints_is_true_exhaustively(
    question: str, problem_of: Callable[..., Problem]
) -> None:
    solved = 0
    for seed in range(24):
        data, model = random_graph(6, 6, seed=seed), GraphNet("sum", seed=seed)
        problem = constrained(problem_of(model, [data], question=question), seed)
        choice = searched(problem, ("quick", "standard", "thorough")[seed % 3], 10**6 if seed % 4 else 0)
        named: list[Unit] = [("edges", tuple(ids)) for ids in problem.tables[0].ids.tolist()]  # type: ignore[misc]
        required, selectable = problem.pack.units.required, problem.pack.units.selectable
        must, may, chosen = (
            {unit for unit, flag in zip(named, [] if flags is None else flags.tolist()) if flag}
            for flags in (required, selectable, choice.selected)
        )
        assert must <= chosen <= may
        y = int(problem.criterion.answers[0])
        every = [s for s in passing(model, data, None, named, y, question) if must <= s <= may]
        assert choice.status is not None
        assert choice.minimal is not None
        assert choice.optimal is not None
        assert (chosen in every) == (choice.status[0] == "found")
        assert choice.status[0] != "impossible" or not every
        if choice.minimal[0]:
            assert all(chosen - {unit} not in every for unit in chosen - must)
        if choice.optimal[0]:
            assert len(chosen) == len(every[0])
        solved += choice.status[0] == "found"
    assert solved > 5


def test_without_room_to_choose_nobody_takes_the_choice_of_another(problem_of: Callable[..., Problem]) -> None:
    """The units of the first instance may not be chosen; it fails, and the second is searched as if it were alone."""
    model, data = NodeNet("sum", seed=1), random_graph(40, 70, seed=2)
    found = cf2.explain(model, data, nodes=range(40), effort="quick")
    good = [int(e.key) for e in found if e.status == "found" and e.size > 1]
    problem = problem_of(model, data, good[:2])
    selectable = problem.pack.units.owner == 1
    units = replace(problem.pack.units, selectable=selectable)
    choice = searched(problem.repacked(replace(problem.pack, units=units)), "standard", 0)
    alone = searched(problem.take(torch.tensor([1])), "standard", 0)
    first, second = problem.pack.split(choice.selected)
    assert choice.status == ["not found", "found"]
    assert not first.any()
    assert torch.equal(second, alone.selected)
    assert choice.minimal == [None, True]
