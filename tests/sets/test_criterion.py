"""What counts as the same answer, against a slow version per instance."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cf2.errors import CF2Error
from cf2.models.outputs import criterion_for
from cf2.sets.tests import PredictedClass, passes


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


def test_take_repeats_and_reorders() -> None:
    criterion = PredictedClass(torch.tensor([0, 1, 2])).take(torch.tensor([2, 2, 0]))
    assert criterion.holds(torch.eye(3)[[2, 0, 0]]).tolist() == [True, False, True]


def test_the_answer_is_the_prediction_or_the_class_that_is_asked_for() -> None:
    outputs = torch.eye(3)[[2, 0]]
    assert criterion_for(outputs, [7, (1, 2)], None).answers.tolist() == [2, 0]
    assert criterion_for(outputs, [7, (1, 2)], 1).answers.tolist() == [1, 1]
    assert criterion_for(outputs, [7, (1, 2)], (((1, 2), 1), (7, 0), (9, 9))).answers.tolist() == [0, 1]
    with pytest.raises(CF2Error, match=r"none for \[7\]"):
        criterion_for(outputs, [7, 8], ((8, 0),))
    with pytest.raises(CF2Error, match="classes from 0 to 2"):
        criterion_for(outputs, [7, 8], 3)
