"""What is asked: what a set does to a graph, what counts as the same answer, and the final check that decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cf2
from cf2.errors import CF2Error
from cf2.methods.contract import Problem
from cf2.models.oracle import outputs_after
from cf2.models.outputs import criterion_for
from cf2.runs import session
from cf2.runs.answers import UNCONFIRMED
from cf2.sets.tests import (
    EDITED,
    ONLY,
    QUESTIONS,
    VERDICT_RUNS,
    WITHOUT,
    Intervention,
    PredictedClass,
    Verdict,
    passes,
    soft_outputs,
)
from toys import NodeNet, Unit, WeightedNet, edited, probabilities, random_graph

# -- interventions --------------------------------------------------------------------------------------------

GRAPH = random_graph(30, 40, seed=1)


def test_a_set_stays_or_goes() -> None:
    hard, soft = torch.tensor([True, False]), torch.tensor([0.25, 1.0], requires_grad=True)
    assert ONLY.states(hard).tolist() == [True, False]
    assert WITHOUT.states(hard).tolist() == EDITED.states(hard).tolist() == [False, True]
    assert ONLY.states(soft) is soft
    assert WITHOUT.states(soft).tolist() == [0.75, 0.0]
    assert torch.autograd.grad(WITHOUT.states(soft).sum(), soft)[0].tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("intervention", [ONLY, WITHOUT, EDITED])
def test_outputs_are_those_of_the_really_edited_graph(
    intervention: Intervention, problem_of: Callable[..., Problem]
) -> None:
    model = NodeNet("gat")
    problem = problem_of(model, GRAPH, [3, 8, 9], units=("edges", "features"))
    chosen = torch.rand(problem.pack.units.count, generator=torch.Generator().manual_seed(0)) < 0.4
    outputs = outputs_after(intervention, problem.predictor, problem.pack, chosen)
    for row, (table, own) in enumerate(zip(problem.tables, problem.pack.split(chosen))):
        units: list[Unit] = [(table.names[k], tuple(ids)) for k, ids in zip(table.kind, table.ids.tolist())]  # type: ignore[misc]
        gone = [unit for unit, inside in zip(units, own) if bool(inside) != intervention.keeps]
        expected = probabilities(model, edited(GRAPH, gone), int(problem.pack.key(row)))  # type: ignore[arg-type]
        assert torch.allclose(outputs[row], expected, atol=1e-6)


def test_soft_outputs_of_several_interventions_are_those_of_each(problem_of: Callable[..., Problem]) -> None:
    """Where weights of 0 are removals, soft sets of 0 and 1 give what the real ones do."""
    problem = problem_of(WeightedNet("sum"), GRAPH, [3, 8, 9])
    masks = torch.rand(2, problem.pack.units.count, generator=torch.Generator().manual_seed(0)).round()
    both = problem.pack.take(torch.arange(3).repeat(2))
    with problem.predictor.soft(both) as run:
        found = soft_outputs(run, (ONLY, WITHOUT), list(masks))
    for intervention, mask, outputs in zip((ONLY, WITHOUT), masks, found):
        expected = outputs_after(intervention, problem.predictor, problem.pack, mask.bool())
        assert torch.allclose(outputs, expected, atol=1e-5)


# -- criteria -------------------------------------------------------------------------------------------------


@st.composite
def judged(draw: st.DrawFn) -> tuple[torch.Tensor, list[int]]:
    classes, rows = draw(st.integers(2, 5)), draw(st.integers(1, 6))
    weights = st.lists(st.integers(1, 20), min_size=classes, max_size=classes)
    outputs = torch.tensor([draw(weights) for _ in range(rows)], dtype=torch.float64)
    return outputs / outputs.sum(1, keepdim=True), [draw(st.integers(0, classes - 1)) for _ in range(rows)]


@settings(max_examples=100, deadline=None)
@given(judged())
def test_every_measure_equals_its_definition(case: tuple[torch.Tensor, list[int]]) -> None:
    outputs, classes = case
    criterion = PredictedClass(torch.tensor(classes))
    for row, (P, y) in enumerate(zip(outputs.tolist(), classes)):
        others = [p for c, p in enumerate(P) if c != y]
        first_best = min(c for c, p in enumerate(P) if p == max(P))
        assert bool(criterion.holds(outputs)[row]) == (first_best == y)
        assert float(criterion.margin(outputs)[row]) == pytest.approx(P[y] - max(others))
        assert float(criterion.slack(outputs)[row]) == pytest.approx(math.log(P[y]) - math.log(max(others)))
        assert float(criterion.loss(outputs)[row]) == pytest.approx(-math.log(P[y]))
        assert float(criterion.precise_loss(outputs)[row]) == pytest.approx(-math.log(P[y]))
        assert float(criterion.odds(outputs)[row]) == pytest.approx(math.log(P[y]) - math.log(sum(others)))
    assert criterion.answers.tolist() == classes


@given(judged(), st.sampled_from([0.0, 0.1, 0.4]), st.booleans())
def test_confidence_is_a_margin_on_the_side_that_is_asked_for(
    case: tuple[torch.Tensor, list[int]], confidence: float, same: bool
) -> None:
    outputs, classes = case
    criterion = PredictedClass(torch.tensor(classes))
    for row, good in enumerate(passes(criterion, outputs, same, confidence).tolist()):
        right, margin = bool(criterion.holds(outputs)[row]), float(criterion.margin(outputs)[row])
        by = margin if same else -margin
        assert good == (right == same and (by > confidence or not confidence))


def test_a_sure_model_keeps_its_gradient() -> None:
    """P(ŷ) rounds to 1, so that its logarithm is flat; what is left for the others is not."""
    logits = torch.tensor([[30.0, 0.0]], requires_grad=True)
    outputs = logits.softmax(1)
    criterion = PredictedClass(torch.tensor([0]))
    assert float(criterion.loss(outputs.detach())) == 0
    assert float(criterion.precise_loss(outputs.detach())) == pytest.approx(math.exp(-30), rel=1e-3)
    slope = torch.autograd.grad(criterion.odds(outputs).sum(), logits)[0]
    assert slope.tolist() == [pytest.approx([1.0, -1.0], rel=1e-3)]


def test_the_answer_is_the_prediction_or_the_class_that_is_asked_for() -> None:
    outputs = torch.eye(3)[[2, 0]]
    assert criterion_for(outputs, [7, (1, 2)], None).answers.tolist() == [2, 0]
    assert criterion_for(outputs, [7, (1, 2)], 1).answers.tolist() == [1, 1]
    assert criterion_for(outputs, [7, (1, 2)], (((1, 2), 1), (7, 0), (9, 9))).answers.tolist() == [0, 1]
    with pytest.raises(CF2Error, match=r"none for \[7\]"):
        criterion_for(outputs, [7, 8], ((8, 0),))
    with pytest.raises(CF2Error, match="classes from 0 to 2"):
        criterion_for(outputs, [7, 8], 3)


# -- verdicts -------------------------------------------------------------------------------------------------

DATA, MODEL = random_graph(30, 45, seed=6), NodeNet("sum", seed=1)


def test_a_question_is_answered_by_its_own_verdicts() -> None:
    sufficient, necessary = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    none = torch.zeros(4, dtype=torch.bool)
    verdict = Verdict(none, none, sufficient, necessary, torch.zeros(4, 2), none, none, none)
    assert verdict.passes(QUESTIONS["why"]).tolist() == [True, False, False, False]
    assert verdict.passes(QUESTIONS["factual"]).tolist() == sufficient.tolist()
    assert verdict.passes(QUESTIONS["counterfactual"]).tolist() == necessary.tolist()


@pytest.fixture
def final_check(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the final check say that a verdict fails, whatever the model says."""

    last_word = session.last_word

    def fails(name: str) -> None:
        def changed(*given: Any) -> Verdict:
            verdict = last_word(*given)
            getattr(verdict, name).fill_(False)
            return verdict

        monkeypatch.setattr(session, "last_word", changed)

    return fails


@pytest.mark.parametrize(
    ("question", "needs"),
    [("why", {"sufficient", "necessary"}), ("factual", {"sufficient"}), ("counterfactual", {"necessary"})],
)
@pytest.mark.parametrize("failing", ["sufficient", "necessary"])
def test_nothing_is_found_that_the_final_check_does_not_confirm(
    question: str, needs: set[str], failing: str, final_check: Any
) -> None:
    nodes = range(0, 30, 3)
    before = cf2.explain(MODEL, DATA, nodes=nodes, question=question, effort="quick")
    assert any(e.status == "found" for e in before)
    final_check(failing)
    after = cf2.explain(MODEL, DATA, nodes=nodes, question=question, effort="quick")
    for one, other in zip(before, after):
        assert not getattr(other, failing)
        if one.status == "found" and failing in needs:
            assert other.status == "not found"
            assert other.note == UNCONFIRMED
        else:
            assert (other.status, other.note) == (one.status, one.note)


def test_what_is_not_confirmed_is_not_called_minimal(final_check: Any) -> None:
    final_check("sufficient")
    found = cf2.explain(MODEL, DATA, nodes=range(0, 30, 3), effort="quick")
    assert {(e.minimal, e.optimal) for e in found if e.status == "not found"} == {(None, None)}


def test_a_model_whose_answer_changes_when_nothing_is_removed_is_refused(problem_of: Any) -> None:
    """Neither the empty set of a function nor any of its verdicts can be so: the outputs here are not the model's."""
    problem = problem_of(MODEL, DATA, nodes=[3, 7])
    other = (problem.criterion.answers + 1) % problem.outputs.size(1)
    never = torch.eye(problem.outputs.size(1))[other]
    nothing = torch.zeros(problem.pack.units.count, dtype=torch.bool)
    with pytest.raises(CF2Error, match=r"the same output for 3 when nothing is removed.*varies between calls"):
        replace(problem, criterion=PredictedClass(other), outputs=never).judge(nothing)
    assert not problem.judge(nothing).necessary.any()


def test_every_explanation_pays_for_its_verdict() -> None:
    (e,) = cf2.explain(MODEL, DATA, nodes=[3], method="random", k=2)
    assert e.plain
    assert e.evaluations == 2 * VERDICT_RUNS == 4  # packed, and then the whole graph by itself


def test_what_has_nothing_to_choose_claims_nothing() -> None:
    """The empty set of an isolated node is sufficient, but nobody looked for it."""
    data = random_graph(6, 6, seed=1)
    data.x = torch.cat([data.x, torch.ones(1, 4)])
    (e,) = cf2.explain(MODEL, data, nodes=[6], question="factual")
    assert (e.status, e.minimal, e.optimal) == ("empty", None, None)
