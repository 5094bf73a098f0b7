"""What the model's numbers are, and the class probabilities that they stand for."""

from __future__ import annotations

import torch
from torch import Tensor

from cf2.errors import require
from cf2.spec import Output


def settle(rows: Tensor, given: Output) -> Output:
    """What the rows [B, classes] are: as the user says, or, for ``auto``, as they look."""
    if given != "auto":
        return given
    ones = torch.ones(len(rows), device=rows.device)
    require(
        rows.size(1) > 0 and not (rows.size(1) == 1 and bool(((rows == 0) | (rows == 1)).all())),
        "Expected a model with at least two classes, or one logit for two classes",
        got=f"outputs of shape {tuple(rows.shape)} that are all {rows.flatten()[:1].tolist()}",
    )
    if rows.size(1) == 1:
        require(
            bool(((rows < 0) | (rows > 1)).any()),
            "Expected to know whether the model's single output is a logit or a probability",
            got="values between 0 and 1, which either could give",
            do='Pass output="logits" or output="probabilities".',
        )
        return "logits"
    if bool((rows >= 0).all()) and torch.allclose(rows.sum(1), ones, atol=1e-4):
        return "probabilities"
    if bool((rows <= 1e-6).all()) and torch.allclose(rows.exp().sum(1), ones, atol=1e-4):
        return "log_probabilities"
    return "logits"


def probabilities(rows: Tensor, output: Output) -> Tensor:
    """Class probabilities [B, classes] of the model's rows; a single column becomes two classes."""
    if rows.size(1) == 1:
        one = {"probabilities": rows, "log_probabilities": rows.exp()}.get(output, rows.sigmoid())
        return torch.cat([1 - one, one], 1)
    if output == "probabilities":
        return rows
    return rows.exp() if output == "log_probabilities" else rows.softmax(1)
