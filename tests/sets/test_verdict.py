"""Status comes from the final check and from nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import cf2
from cf2.errors import CF2Error
from cf2.runs import session as verified
from cf2.runs.answers import UNCONFIRMED
from cf2.sets.tests import QUESTIONS, VERDICT_RUNS, PredictedClass, Verdict
from toys import NodeNet, random_graph

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

    def fails(name: str) -> None:
        def changed(*given: Any) -> Verdict:
            verdict = last_word(*given)
            getattr(verdict, name).fill_(False)
            return verdict

        last_word = verified.last_word
        monkeypatch.setattr(verified, "last_word", changed)

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
    with pytest.raises(CF2Error, match=r"the same of 3 as before when nothing is removed.*not a function of its input"):
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
