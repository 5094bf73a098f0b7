"""What the model's numbers are, the class probabilities that they stand for, and when two of them are one."""

from __future__ import annotations

import torch
from torch import Tensor

from cf2.errors import CF2Error, require
from cf2.spec import Output

SMALLEST = 1.2e-38  # below the smallest normal float, a probability says nothing


def settle(rows: Tensor, given: Output) -> Output:
    """What the rows [B, classes] are: as the user says, if they can be that, or, for ``auto``, as they look."""
    rows = rows.float()
    if given == "auto":
        return _looks_like(rows)
    if given != "logits":
        positive = rows if given == "probabilities" else rows.exp()
        _check_probabilities(positive, given)
    return given


def _looks_like(rows: Tensor) -> Output:
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
    if bool((rows >= 0).all()) and _sums_to_one(rows):
        return "probabilities"
    if bool((rows <= 1e-6).all()) and _sums_to_one(rows.exp()):
        return "log_probabilities"
    return "logits"


def _sums_to_one(rows: Tensor, tolerance: float = 1e-4) -> bool:
    return torch.allclose(rows.sum(1), torch.ones(len(rows), device=rows.device), atol=tolerance)


def _check_probabilities(rows: Tensor, given: Output) -> None:
    """Refuse what cannot be probabilities of classes: the verdicts would be of something else."""
    what = "probabilities" if given == "probabilities" else "logarithms of probabilities"
    outside = ((rows < -1e-4) | (rows > 1 + 1e-2)).any(1).nonzero().flatten()
    if len(outside):
        got = f"a row of {_short(rows[outside[0]])}"
        raise CF2Error(f"Expected {what} from 0 to 1", got=got, do='Pass output="logits" if the model returns scores.')
    if rows.size(1) > 1 and not _sums_to_one(rows, 2e-2):
        row = rows[int((rows.sum(1) - 1).abs().argmax())]
        raise CF2Error(
            f"Expected {what} that sum to 1 in every row",
            got=f"a row of {_short(row)} with the sum {float(row.sum()):.3g}",
            do="Is the model multi-label? Then explain one label: a model that returns that label's logit alone.",
        )


def _short(row: Tensor) -> str:
    listed = [f"{value:.3g}" for value in row[:4].tolist()]
    return f"[{', '.join(listed)}{', …' if len(row) > 4 else ''}]"


def probabilities(rows: Tensor, output: Output) -> Tensor:
    """Class probabilities [B, classes] of the model's rows, in single precision or better; one column becomes two."""
    rows = rows if rows.dtype == torch.float64 else rows.float()
    if rows.size(1) == 1:
        if output == "logits":
            return torch.cat([(-rows).sigmoid(), rows.sigmoid()], 1)
        one = rows if output == "probabilities" else rows.exp()
        return torch.cat([1 - one, one], 1)
    if output == "probabilities":
        return rows
    return rows.exp() if output == "log_probabilities" else rows.softmax(1)


def unsaturated(rows: Tensor, output: Output) -> Tensor:
    """The model's rows on a scale on which a sure model can still be told from a surer one."""
    rows = rows.double()
    return rows.clamp(min=SMALLEST).log() if output == "probabilities" else rows.clamp(min=-1e30)


def differ(one: Tensor, other: Tensor, precision: float) -> Tensor:
    """Which rows [B] are not the same numbers summed in another order; `precision` is what the model computes with."""
    scale = torch.maximum(one.abs(), other.abs()).amax(1)
    gap = (one - other).abs().amax(1)
    same: Tensor = gap <= precision**0.5 * (1 + scale)
    return ~same


def check_labels(labels: Tensor | None, columns: int) -> None:
    """Refuse outputs that are not classes: labels [n] or [n, k] that are measurements, or several at once."""
    if labels is None or not labels.numel() or labels.is_complex():
        return
    known = labels.double()
    known = known[torch.isfinite(known)] if known.dim() < 2 else known[torch.isfinite(known).all(1)]
    several = known.dim() == 2 and known.size(1) > 1
    whole = bool((known == known.round()).all())
    cure = 'Pass output="logits" if the model\'s columns are classes all the same.'
    require(
        whole,
        "Expected a classifier, whose true classes `y` are whole numbers",
        got=f"{_short(known.flatten())}",
        do=cure,
    )
    if several and bool(((known == 0) | (known == 1)).all()):
        count = known.sum(1).long().tolist()
        other = next((number for number in count if number != 1), 1)
        require(
            other == 1,
            "Expected one class per row of `y`",
            got=f"a row with {other} of {known.size(1)} labels, so the model is multi-label",
            do="Explain one label: a model that returns that label's logit alone.",
        )
    elif columns == 1 and known.numel():
        require(
            float(known.min()) >= -1 and float(known.max()) <= 1,
            "Expected a model with one output to tell two classes apart, with 0 and 1 in `y`",
            got=f"values from {float(known.min()):g} to {float(known.max()):g}, as of a regression",
            do=cure,
        )
