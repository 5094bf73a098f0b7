"""What the model's numbers are: taken as they look or as the user says, and refused where they cannot be that."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv, SimpleConv

import cf2
from cf2.errors import CF2Error
from cf2.models import outputs
from toys import GraphNet

GOOD = torch.tensor([[0.25, 0.75], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("rows", "found"),
    [(GOOD, "probabilities"), (GOOD.log(), "log_probabilities"), (GOOD * 3, "logits"), (GOOD[:, :1] * 9, "logits")],
)
def test_outputs_are_what_they_look_like(rows: Tensor, found: str) -> None:
    assert outputs.settle(rows, "auto") == found
    for kind in (torch.float64, torch.float16, torch.bfloat16):
        if found == "logits" or kind == torch.float64:
            assert outputs.settle(rows.to(kind), "auto") == found


@pytest.mark.parametrize(
    ("rows", "given", "match"),
    [
        ([[0.5, -0.5]], "probabilities", r"from 0 to 1, but got a row of \[0.5, -0.5\]"),
        ([[0.9, 0.8]], "probabilities", r"sum to 1 .* multi-label"),
        ([[2.0, 3.0]], "log_probabilities", "from 0 to 1"),
        ([[-3.0, -3.0]], "log_probabilities", "sum to 1"),
        ([[1.5]], "probabilities", "from 0 to 1"),
    ],
)
def test_rows_that_cannot_be_probabilities(rows: list[list[float]], given: outputs.Output, match: str) -> None:
    with pytest.raises(CF2Error, match=match):
        outputs.settle(torch.tensor(rows), given)


def test_a_single_logit_of_a_sure_model_keeps_both_probabilities() -> None:
    P = outputs.probabilities(torch.tensor([[30.0], [-30.0]]), "logits")
    assert (P > 0).all()
    assert P.argmax(1).tolist() == [1, 0]


def test_saturated_probabilities_are_told_apart() -> None:
    near, far = (torch.tensor([[value, 0.0]]) for value in (200.0, 400.0))
    assert torch.equal(near.softmax(1), far.softmax(1))
    assert outputs.differ(near, far, "logits", 1e-7).tolist() == [True]
    sure = torch.tensor([[1.0, 1e-20], [1.0, 1e-30]])
    assert outputs.differ(sure[:1], sure[1:], "probabilities", 1e-7).tolist() == [True]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("masked", [False, True])
def test_numbers_are_compared_in_their_own_unit_beside_whatever_never_varies(unit: float, masked: bool) -> None:
    rows = unit * torch.tensor([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]], dtype=torch.double)
    constant = torch.full((3, 1), -1e9, dtype=torch.double)
    changed, rounded = rows.clone(), rows * (1 + 1e-7)
    changed[1, 0] *= 1.01
    if masked:
        rows, changed, rounded = (torch.cat([part, constant], 1) for part in (rows, changed, rounded))
    assert outputs.differ(rows, changed, "logits", 1.2e-7).tolist() == [False, True, False]
    assert not outputs.differ(rows, rounded, "logits", 1.2e-7).any()


def test_every_kind_of_output_is_one_row_and_every_form_stands_for_one() -> None:
    assert {form.kind.name for form in outputs.FORMS.values()} == set(outputs.OUTPUT_KINDS)
    assert {*outputs.FORMS, "auto", "multilabel"} == set(get_args(outputs.Output))
    same = torch.tensor([[0.2, 0.7], [0.9, 0.4]])
    for kind in outputs.OUTPUT_KINDS.values():
        target = None if kind.exclusive else 1
        tolerance = 0.1 if kind.takes_tolerance else None
        criterion = outputs.criterion_for(same, [3, 4], target, kind, tolerance=tolerance)
        assert criterion.holds(same).all()
        assert not criterion.holds(same.flip(0)).any()
    assert [kind.answer(1, 0.7) for kind in outputs.OUTPUT_KINDS.values()] == [1, 1, 0.7]
    assert outputs.output_kind("of another version") is outputs.CLASSES


class Rows(nn.Module):
    """Returns so many columns per node."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = SAGEConv(2, columns)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index) * 4


def chain(y: Tensor | None) -> Data:
    return Data(x=torch.eye(4)[:, :2] * 2 - 1, edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]), y=y)


REAL = torch.tensor([0.5, 1.7, 3.2, -0.1])
SEVERAL = torch.tensor([[1, 1, 0], [0, 1, 0], [1, 0, 1], [0, 0, 1]])


@pytest.mark.parametrize(
    ("columns", "y", "match"),
    [
        (1, REAL, "whole numbers"),
        (3, REAL, "whole numbers"),
        (3, SEVERAL, r"a row with 2 of 3 labels.*multi-label"),
        (3, SEVERAL.float(), "multi-label"),
        (1, torch.tensor([3, 17, 4, 9]), "as of a regression"),
        # Those of the nodes that are explained could be classes; the others say what the model is.
        (3, torch.tensor([1.0, 2.0, 2.0, 2.5]), "whole numbers"),
        (3, torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]), "multi-label"),
    ],
)
def test_labels_that_are_no_classes(columns: int, y: Tensor, match: str) -> None:
    with pytest.raises(CF2Error, match=match):
        cf2.explain(Rows(columns), chain(y), nodes=[0, 1, 2])
    assert len(cf2.explain(Rows(columns), chain(y), nodes=[0, 1, 2], output="logits")) == 3  # the user knows better


@pytest.mark.parametrize(
    ("columns", "y"),
    [
        (1, torch.tensor([0.0, 1.0, 1.0, 0.0])),
        (1, torch.tensor([[0.0], [1.0], [1.0], [0.0]])),
        (3, torch.tensor([0, 2, 1, 1])),
        (3, torch.tensor([0.0, 2.0, 1.0, 1.0])),
        (3, torch.eye(3)[[0, 1, 2, 0]]),
        (3, torch.eye(4)[[0, 1, 2, 3], :3]),  # a node without a label
        (3, torch.tensor([0.0, float("nan"), 1.0, 1.0])),
        (3, None),
    ],
)
def test_labels_that_are_classes(columns: int, y: Tensor | None) -> None:
    assert len(cf2.explain(Rows(columns), chain(y), nodes=[0, 1, 2])) == 3


@pytest.mark.parametrize("y", [torch.tensor([0.37]), torch.tensor([[1.0, 1.0, 0.0]])])
def test_labels_of_graphs_that_are_no_classes(y: Tensor) -> None:
    with pytest.raises(CF2Error, match=r"whole numbers|multi-label"):
        cf2.explain(GraphNet("sage", features=2, classes=3), [chain(y), chain(y)])


def test_scores_that_look_like_probabilities_until_an_edge_is_added_are_refused() -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = SimpleConv("sum")

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.conv(x, edge_index)
            return torch.cat([0.6 - 0.5 * h, 0.4 + 0 * h], 1)

    data = Data(x=torch.ones(2, 1), edge_index=torch.zeros((2, 0), dtype=torch.long))
    with pytest.raises(CF2Error, match=r"sum to 1 in every row, but got a row of \[0.1, 0.4\].* output=.logits"):
        cf2.counterfactual(Scores(), data, nodes=[0], edits="add")
    (e,) = cf2.counterfactual(Scores(), data, nodes=[0], edits="add", output="logits")
    assert e.status == "found"
