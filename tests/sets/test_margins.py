"""Of the smallest sets the one with the widest margin, by brute force; and one test never needs more than two do."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data

import cf2
from cf2.results.explanation import Explanation
from cf2.sets.moves import EQUAL_MARGINS as WIDER
from cf2.sets.moves import MAX_USEFUL_SLACK
from cf2.sets.tests import QUESTIONS
from toys import LAYERS, GraphNet, NodeNet, Unit, edited, probabilities, random_graph


def slack_of(P: torch.Tensor, y: int) -> float:
    """log P(y) - log P(the next class), as far as it counts."""
    other = torch.cat([P[:y], P[y + 1 :]]).max()
    return min(math.log(max(float(P[y]), 1e-12)) - math.log(max(float(other), 1e-12)), MAX_USEFUL_SLACK)


def margin_of(
    model: nn.Module, data: Data, node: int | None, units: set[Unit], chosen: set[Unit], e: Explanation
) -> float:
    """By how much a set holds in the tests of its question, on really reduced graphs; negative where it fails one."""
    only = slack_of(probabilities(model, edited(data, units - chosen), node), e.prediction)
    without = -slack_of(probabilities(model, edited(data, chosen), node), e.prediction)
    return {"why": min(only, without), "factual": only, "counterfactual": min(without, MAX_USEFUL_SLACK)}[e.question]


def unit_sets(e: Explanation) -> tuple[set[Unit], set[Unit]]:
    """All units, and those that are chosen."""
    ids = (e.units.ids, e.units.ids[e.selected])
    return tuple({("edges", tuple(pair)) for pair in part.tolist()} for part in ids)  # type: ignore[misc, return-value]


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
    if whole:
        model, node = GraphNet(kind, seed=seed), None
        (e,) = cf2.explain(model, [data], question=question, effort=effort)
    else:
        model, node = NodeNet(kind, seed=seed, layers=2), seed % 6
        (e,) = cf2.explain(model, data, nodes=[node], question=question, effort=effort)
    if e.status != "found":
        return
    units, chosen = unit_sets(e)
    own = margin_of(model, data, node, units, chosen, e)
    for gone, new in product(chosen, units - chosen):
        other = margin_of(model, data, node, units, chosen - {gone} | {new}, e)
        assert other <= own + 2 * WIDER, (gone, new)


def test_there_is_often_a_choice_and_the_widest_is_taken() -> None:
    """The same graphs without swaps have narrower margins on average, at the same sizes."""
    data, model = random_graph(40, 70, seed=2), NodeNet("sum", seed=1)
    narrow, wide = (cf2.explain(model, data, nodes=range(40), effort=effort) for effort in ("quick", "thorough"))
    margins = []
    for pair in zip(narrow, wide):
        if pair[0].status == "found" and pair[0].size == pair[1].size:
            margins.append([margin_of(model, data, int(e.key), *unit_sets(e), e) for e in pair])
    assert sum(b > a + WIDER for a, b in margins) > 3
    assert sum(b for _, b in margins) > sum(a for a, _ in margins)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(LAYERS)), st.integers(0, 10_000), st.booleans(), st.sampled_from(["quick", "standard"]))
def test_one_test_never_takes_more_than_both(kind: str, seed: int, whole: bool, effort: str) -> None:
    """Without a proof: it is the search that has to find them."""
    data = random_graph(9, 14, seed=seed)
    found = {}
    for question in QUESTIONS:
        options = {"question": question, "effort": effort, "proof": 0}
        if whole:
            found[question] = cf2.explain(GraphNet(kind, seed=seed), [data], **options)  # type: ignore[arg-type]
        else:
            model = NodeNet(kind, seed=seed, layers=2)
            found[question] = cf2.explain(model, data, nodes=range(2), **options)  # type: ignore[arg-type]
    for why, factual, counterfactual in zip(*(found[name] for name in ("why", "factual", "counterfactual"))):
        if why.status == "found":
            assert factual.sufficient
            assert counterfactual.necessary
            assert factual.size <= why.size
            assert counterfactual.size <= why.size


@pytest.mark.parametrize("effort", ["quick", "standard"])
def test_edits_keep_their_tests_and_sizes_when_margins_widen(effort: str) -> None:
    data, model = random_graph(20, 25, seed=3), NodeNet("sum", seed=2, layers=2)
    found = cf2.explain(model, data, nodes=range(8), question="counterfactual", edits=("remove", "add"), effort=effort)
    assert any(e.status == "found" for e in found)
    for e in found:
        if e.status == "found":
            after = e.apply(data)
            assert int(probabilities(model, after, int(e.key)).argmax()) != e.prediction
