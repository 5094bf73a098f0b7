"""`cf2.check` finds what is false in explanations: each sort of claim is made false on purpose, and it is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv

import cf2
from cf2.results.explanation import Explanation

# -- a model whose answers are known by hand ----------------------------------------------------------------------


class Counts(torch.nn.Module):
    """Class 1 where the neighbours' first feature sums up to more than 1.5; the second feature is not looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(2, 1)
        with torch.no_grad():
            self.conv.lin_rel.weight.copy_(torch.tensor([[1.0, 0.0]]))
            self.conv.lin_rel.bias.fill_(-1.5)
            self.conv.lin_root.weight.zero_()

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        lead = self.conv(x, edge_index)
        return torch.cat([-lead, lead], 1)


# Node 0 has the neighbours 1, 2 (each 1), 3 and 4 (each 0): class 1 by two edges, both of which are needed. Node 5 has
# the three neighbours 1, 2 and 6 that count: any two are sufficient, and necessary, so there are three answers.
X = torch.tensor([[0.0, 1], [1, 0], [1, 0], [0, 1], [0, 1], [0, 0], [1, 0]])
AHEAD = torch.tensor([[1, 2, 3, 4, 1, 2, 6], [0, 0, 0, 0, 5, 5, 5]])
MODEL, DATA = Counts(), Data(x=X, edge_index=torch.cat([AHEAD, AHEAD.flip(0)], 1))
CALLS: dict[str, dict[str, Any]] = {
    "why": {"nodes": [0]},
    "all": {"nodes": [5], "alternatives": 5},
    "contexts": {"nodes": [0, 5], "contexts": 64},
    "impossible": {"nodes": [3]},
    "changes": {"nodes": [0], "question": "counterfactual", "edits": ("change",)},
    "adds": {"nodes": [0], "question": "counterfactual", "edits": ("add",), "target": 0},
    "target": {"nodes": [0], "target": 0},
    "features": {"nodes": [0], "units": ("edges", "features")},
    "regression": {"nodes": [5], "output": "regression", "tolerance": 0.7, "target": 1, "question": "factual"},
}


@cache
def explained(name: str) -> cf2.Explanations:
    return cf2.explain(MODEL, DATA, effort="thorough", epochs=5, **CALLS[name])


@pytest.mark.parametrize("name", CALLS)
def test_what_is_true_is_not_called_false(name: str) -> None:
    checked = cf2.check(explained(name), MODEL, DATA)
    assert checked, checked
    assert all(count.checked and not count.not_checkable for count in checked.claims.values()), checked


def test_the_answers_are_those_that_were_worked_out_by_hand() -> None:
    why, every = explained("why")[0], explained("all")
    assert why.chosen("edges").tolist() == [[0, 1], [0, 2]]
    assert (why.status, why.minimal, why.optimal, why.lower_bound) == ("found", True, True, 2)
    assert sorted(e.chosen("edges").tolist() for e in every) == [[[1, 5], [2, 5]], [[1, 5], [5, 6]], [[2, 5], [5, 6]]]
    assert every[0].complete
    assert explained("impossible")[0].status == "impossible"


# -- what is made false -------------------------------------------------------------------------------------------


def choose(e: Explanation, *units: int) -> np.ndarray:
    """The explanation's set with these units in it or out of it, the other way round than before."""
    chosen = e.selected.copy()
    chosen[list(units)] ^= True
    return chosen


def other_ids(e: Explanation) -> Explanation:
    ids = e.units.ids.copy()
    ids[np.flatnonzero(e.selected)[0]] = ids[np.flatnonzero(~e.selected)[0]]
    return replace(e, units=replace(e.units, ids=ids))


def other_value(e: Explanation) -> Explanation:
    values = e.units.values.copy()
    values[e.selected, 2] = values[e.selected, 1]  # nothing changes
    return replace(e, units=replace(e.units, values=values))


def larger(e: Explanation, **claims: Any) -> Explanation:
    """The set with a unit that does not matter, with claims about it."""
    chosen = choose(e, int(np.flatnonzero(~e.selected)[0]))
    return replace(e, selected=chosen, lower_bound=None, **{"minimal": None, "optimal": None} | claims)


ONE: dict[str, tuple[str, str, Callable[[Explanation], Explanation]]] = {  # where, the claim, what is made of it
    "sufficient": ("why", "sufficient", lambda e: replace(e, sufficient=False, status="unverified")),
    "necessary": ("why", "necessary", lambda e: replace(e, necessary=False, status="unverified")),
    "sufficient after all": ("impossible", "sufficient", lambda e: replace(e, sufficient=not e.sufficient)),
    "prediction": ("why", "prediction", lambda e: replace(e, prediction=0)),
    "probabilities": ("why", "outputs", lambda e: replace(e, probabilities=e.probabilities[::-1].copy())),
    "of the set": ("why", "outputs", lambda e: replace(e, probabilities_only=e.probabilities_only + 0.01)),
    "of the rest": ("why", "outputs", lambda e: replace(e, probabilities_without=e.probabilities_without - 0.01)),
    "a number": ("regression", "outputs", lambda e: replace(e, probabilities=1.01 * e.probabilities)),
    "tolerance": ("regression", "found", lambda e: replace(e, tolerance=1e-3, selected=choose(e, 0, 1, 2))),
    "one unit less": ("why", "found", lambda e: replace(e, selected=choose(e, np.flatnonzero(e.selected)[0]))),
    "another unit": ("why", "optimal", other_ids),
    "another value": ("changes", "found", other_value),
    "what an addition does": ("adds", "necessary", lambda e: replace(e, necessary=not e.necessary, status="not found")),
    "impossible": ("why", "impossible", lambda e: replace(e, status="impossible", minimal=None, optimal=None)),
    "not found": ("why", "not found", lambda e: replace(e, status="not found", minimal=None, optimal=None)),
    "empty": ("why", "empty", lambda e: replace(e, status="empty")),
    "not predicted": ("why", "not predicted", lambda e: replace(e, status="not predicted")),
    "predicted": ("target", "not predicted", lambda e: replace(e, status="not found")),
    "minimal": ("why", "minimal", lambda e: larger(e, minimal=True)),
    "optimal": ("why", "optimal", lambda e: larger(e, optimal=True)),
    "optimal with features": ("features", "optimal", lambda e: larger(e, optimal=True)),
    "bound above the size": ("why", "lower_bound", lambda e: replace(e, lower_bound=3)),
    "bound": ("why", "lower_bound", lambda e: replace(larger(e), lower_bound=3)),
    "default": ("impossible", "default", lambda e: replace(e, default=not e.default)),
    "confidence": ("why", "found", lambda e: replace(e, settings={**e.settings, "confidence": 0.99})),
    "share": ("contexts", "all_contexts", lambda e: replace(e, pns=(0.9, 0.9, 0.9))),
    "a context": ("contexts", "counterexample", lambda e: replace(e, counterexample=(2, 3))),
    "the set itself": ("contexts", "counterexample", lambda e: replace(e, counterexample=(0, 1))),
    "bound of always": ("contexts", "always_bound", lambda e: replace(e, always_bound=3)),
    "complete": ("why", "complete", lambda e: replace(larger(e), complete=True)),
}


@pytest.mark.parametrize("defect", ONE)
def test_one_false_claim_is_found(defect: str) -> None:
    name, claim, change = ONE[defect]
    found = explained(name)
    checked = cf2.check(replace(found, items=(change(found[0]), *found.items[1:])), MODEL, DATA)
    assert claim in [false.claim for false in checked.false], checked
    assert not checked
    assert str(checked.false[0]) in repr(checked)


def test_answers_that_are_missing_or_parts_of_another_are_found() -> None:
    found = explained("all")
    missing = cf2.check(replace(found, items=found.items[:2]), MODEL, DATA)
    assert [false.claim for false in missing.false] == ["complete"], missing
    twice = cf2.check(replace(found, items=(*found.items[:2], replace(found[1], rank=2))), MODEL, DATA)
    assert {false.claim for false in twice.false} == {"alternative", "complete"}, twice
    some = cf2.check(replace(found, items=(found[0], found[2])), MODEL, DATA)  # the others are kept elsewhere
    assert some
    assert some.claims["complete"].not_checkable == 1


@pytest.mark.parametrize(
    "constraint", [{"forbid": [(0, 1)]}, {"keep": [(0, 1)]}, {"connected": True}, {"target": 0, "units": "columns"}]
)
def test_an_answer_that_breaks_a_constraint_is_found(constraint: dict[str, Any]) -> None:
    found = explained("why")
    e, asked = found[0], {**found.context, "spec": {**found.context["spec"], **constraint}}
    if "connected" in constraint:  # the edge between 2 and 5 is out of sight, so one that is apart is made of another
        ids = e.units.ids.copy()
        ids[~e.selected] = [[1, 5], [2, 5]]
        e = replace(e, units=replace(e.units, ids=ids), selected=choose(e, *np.flatnonzero(e.selected), 2, 3))
    checked = cf2.check(replace(found, items=(e,), context=asked), MODEL, DATA)
    assert bool(checked) == ("units" in constraint), checked  # other options of the request are not claims
    assert checked or "found" in [false.claim for false in checked.false]


@pytest.mark.parametrize(("keep", "status"), [((2, 5), "impossible"), ((1, 5), "found")])
def test_a_group_is_kept_for_an_edge_out_of_sight(keep: tuple[int, int], status: str) -> None:
    one = torch.isin(torch.arange(7), torch.tensor([0, 1, 5])).repeat(2)  # 1-0, 2-0 and 2-5, which node 0 cannot see
    data = Data(x=X, edge_index=DATA.edge_index, one=one.long() - 1)
    found = cf2.explain(MODEL, data, nodes=[0], question="counterfactual", groups="one", keep=[keep], units="edges")
    assert found[0].status == status
    assert cf2.check(found, MODEL, data)


def test_edges_added_where_there_are_none_have_attributes_of_zeros() -> None:
    class Weighs(Counts):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
            return super().forward(x, edge_index) + edge_attr.sum()

    data = Data(x=X, edge_index=torch.zeros((2, 0), dtype=torch.long), edge_attr=torch.zeros((0, 2)))
    found = cf2.explain(Weighs(), data, nodes=[0], question="counterfactual", edits="add")
    assert found[0].size == 2
    checked = cf2.check(found, Weighs(), data)
    assert checked, checked


def test_what_does_not_fit_or_is_decided_by_rounding_is_not_checked() -> None:
    found = explained("why")
    few = cf2.check(found, MODEL, DATA, most=3)
    assert (few.claims["optimal"], few.claims["lower_bound"]) == ((0, 0, 1), (0, 0, 1))
    assert "optimal: 0 checked, none false, 1 not checkable" in repr(few)
    x = X.clone()
    x[1, 0] = 0.5  # 0.5 + 1 = 1.5: neither class leads
    tied = cf2.check(found, MODEL, Data(x=x, edge_index=DATA.edge_index))
    assert tied.claims["prediction"].not_checkable == 1
    for wrong in ({"found": [found[0]]}, {"most": -1}):
        with pytest.raises(cf2.CF2Error, match="Expected"):
            cf2.check(**{"found": found, "model": MODEL, "data": DATA} | wrong)
    assert cf2.check(cf2.Explanations(()), MODEL, DATA).claims == {}


def test_the_model_and_the_data_are_as_before() -> None:
    model = Counts().train()
    before = [p.clone() for p in (*model.parameters(), DATA.x, DATA.edge_index)]
    cf2.check(explained("changes"), model, DATA)
    assert model.training
    assert torch.is_grad_enabled()
    assert all(torch.equal(a, b) for a, b in zip(before, (*model.parameters(), DATA.x, DATA.edge_index)))


@pytest.mark.parametrize(("large", "holds"), [(3e6, True), (0.0, False)])
def test_what_hangs_on_the_rounding_of_a_model_is_not_false(large: float, holds: bool) -> None:
    class Rounds(Counts):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            lead = self.conv(x, edge_index) + 0.15 + large - large
            return torch.cat([-lead, lead], 1)

    checked = cf2.check(explained("why"), Rounds(), DATA)
    assert bool(checked) == holds
    assert checked.claims["outputs"].false == (0 if holds else 3)
