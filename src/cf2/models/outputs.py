"""What the model's numbers are, the values that they stand for, and when two of them are one.

The values are what a criterion judges: probabilities of classes or of labels, or the numbers of a regression. What an
output is made into is one row of `SORTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from cf2.errors import CF2Error, require
from cf2.options import Key, Output
from cf2.sets.tests import Criterion, Label, NotYet, PredictedClass, Within

SMALLEST = 1.2e-38  # below the smallest normal float, a probability says nothing


def settle(rows: Tensor, given: Output) -> Output:
    """What the rows [B, classes] are: as the user says, if they can be that, or, for ``auto``, as they look."""
    rows = rows.float()
    check = _CHECKS.get(given)
    return given if check is None else check(rows)


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


def _labels(rows: Tensor) -> Output:
    """Logits of labels, or their probabilities? Taken for the wrong ones, they would be on the wrong side of 0.5."""
    require(
        bool(((rows < 0) | (rows > 1)).any()),
        "Expected to know whether the labels' outputs are logits or probabilities",
        got="values between 0 and 1, which either could give",
        do='Pass output="multilabel_logits" or output="multilabel_probabilities".',
    )
    return "multilabel_logits"


def _label_probabilities(rows: Tensor) -> Output:
    _check_range(rows, "probabilities of labels", "multilabel_logits")
    return "multilabel_probabilities"


def _check_range(rows: Tensor, what: str, otherwise: str) -> None:
    outside = ((rows < -1e-4) | (rows > 1 + 1e-2)).any(1).nonzero().flatten()
    if len(outside):
        cure = f'Pass output="{otherwise}" if the model returns scores.'
        raise CF2Error(f"Expected {what} from 0 to 1", got=f"a row of {_short(rows[outside[0]])}", do=cure)


def _check_probabilities(rows: Tensor, given: Output) -> Output:
    """Refuse what cannot be probabilities of classes: the verdicts would be of something else."""
    what = "probabilities" if given == "probabilities" else "logarithms of probabilities"
    _check_range(rows, what, "logits")
    if rows.size(1) > 1 and not _sums_to_one(rows, 2e-2):
        row = rows[int((rows.sum(1) - 1).abs().argmax())]
        raise CF2Error(
            f"Expected {what} that sum to 1 in every row",
            got=f"a row of {_short(row)} with the sum {float(row.sum()):.3g}",
            do='Is the model multi-label? Pass output="multilabel" and the label as target=….',
        )
    return given


_CHECKS: dict[Output, Callable[[Tensor], Output]] = {
    "auto": lambda rows: _looks_like(rows),
    "probabilities": lambda rows: _check_probabilities(rows, "probabilities"),
    "log_probabilities": lambda rows: _check_probabilities(rows.exp(), "log_probabilities"),
    "multilabel": _labels,
    "multilabel_probabilities": _label_probabilities,
}


def _short(row: Tensor) -> str:
    listed = [f"{value:.3g}" for value in row[:4].tolist()]
    return f"[{', '.join(listed)}{', …' if len(row) > 4 else ''}]"


def _both(of_one: Tensor) -> Tensor:
    """The probabilities of two classes, from that of the second where it is all there is."""
    return torch.cat([1 - of_one, of_one], 1) if of_one.size(1) == 1 else of_one


def _of_logits(rows: Tensor) -> Tensor:
    return torch.cat([(-rows).sigmoid(), rows.sigmoid()], 1) if rows.size(1) == 1 else rows.softmax(1)


def _logarithm(rows: Tensor) -> Tensor:
    return rows.clamp(min=SMALLEST).log()


def _finite(rows: Tensor) -> Tensor:
    return rows.clamp(min=-1e30)


Kind = Literal["classes", "multilabel", "regression"]


class Sort(NamedTuple):
    """What one sort of output stands for: which kind of answer, its values, and a scale that does not saturate."""

    kind: Kind
    values: Callable[[Tensor], Tensor]
    unsaturated: Callable[[Tensor], Tensor]


SORTS: Mapping[Output, Sort] = MappingProxyType(
    {
        "logits": Sort("classes", _of_logits, _finite),
        "log_probabilities": Sort("classes", lambda rows: _both(rows.exp()), _finite),
        "probabilities": Sort("classes", _both, _logarithm),
        "multilabel_logits": Sort("multilabel", lambda rows: rows.double().sigmoid(), _finite),
        "multilabel_probabilities": Sort("multilabel", lambda rows: rows, _logarithm),
        "regression": Sort("regression", lambda rows: rows, _finite),
    }
)


def probabilities(rows: Tensor, output: Output) -> Tensor:
    """The values [B, width] of the model's rows, in single precision or better; one column of classes becomes two."""
    return SORTS[output].values(rows if rows.dtype == torch.float64 else rows.float())


def unsaturated(rows: Tensor, output: Output) -> Tensor:
    """The model's rows on a scale on which a sure model can still be told from a surer one."""
    return SORTS[output].unsaturated(rows.double())


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
    cure = 'Pass output="regression", or output="logits" if the model\'s columns are classes all the same.'
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
            do='Pass output="multilabel" and the label as target=….',
        )
    elif columns == 1 and known.numel():
        require(
            float(known.min()) >= -1 and float(known.max()) <= 1,
            "Expected a model with one output to tell two classes apart, with 0 and 1 in `y`",
            got=f"values from {float(known.min()):g} to {float(known.max()):g}, as of a regression",
            do=cure,
        )


Target = int | tuple[tuple[Key, int], ...] | None


def criterion_for(
    outputs: Tensor,
    keys: Sequence[Key],
    target: Target,
    *,
    wanted: bool = False,
    kind: Kind = "classes",
    tolerance: float | None = None,
) -> Criterion:
    """The criterion of instances, from what the model says of them [B, width] and the columns that are asked for.

    Of classes, the answer in question is the class itself, or, where the class is `wanted`, that the model does not
    give it yet. Of labels and numbers it is what the model says, and `target` is the column.
    """
    if kind != "classes":
        column = target_columns(outputs, keys, target, kind)
        own = outputs.detach().gather(1, column[:, None]).squeeze(1)
        if kind == "multilabel":
            return Label(column, own > 0.5)
        assert tolerance is not None
        return Within(column, own, tolerance)
    if target is None:
        return PredictedClass(outputs.argmax(1))
    y = _asked(outputs, keys, target, "classes")
    return NotYet(PredictedClass(y)) if wanted else PredictedClass(y)


def target_columns(outputs: Tensor, keys: Sequence[Key], target: Target, kind: Kind) -> Tensor:
    """Which column of the outputs [B, width] of labels or of a regression is explained, [B]."""
    if target is None:
        what = {"multilabel": "the label", "regression": "the column"}.get(kind)
        require(
            outputs.size(1) == 1,
            f"Expected `target`, {what} to explain",
            got=f"None, and a model with {outputs.size(1)} outputs",
            do="Pass target=0 for the first.",
        )
        target = 0
    return _asked(outputs, keys, target, {"multilabel": "labels"}.get(kind, "columns"))


TOLERANCE_SHARE = 0.1  # of the range of the predictions, the tolerance where none is given


def default_tolerance(outputs: Tensor, columns: Tensor) -> float:
    """A tenth of the range of the predictions in outputs [B, width], of which each instance has one column [B]."""
    own = outputs.gather(1, columns[:, None]).squeeze(1)
    span = float(own.max() - own.min())
    one = bool((columns == columns[0]).all())
    require(
        one and span > 0,
        "Expected predictions of one column that differ, to measure a tolerance by",
        got=f"{len(own)} that are all {float(own[0]):.4g}" if one else "several columns",
        do="Pass tolerance=…: the same answer is one within ± that.",
    )
    return TOLERANCE_SHARE * span


def _asked(outputs: Tensor, keys: Sequence[Key], target: int | tuple[tuple[Key, int], ...], what: str) -> Tensor:
    by_key = dict.fromkeys(keys, target) if isinstance(target, int) else dict(target)
    missing = [key for key in keys if key not in by_key]
    require(not missing, "Expected a class in `target` for each key", got=f"none for {missing[:1]}")
    y = torch.tensor([by_key[key] for key in keys], device=outputs.device)
    require(
        int(y.min()) >= 0 and int(y.max()) < outputs.size(1),
        f"Expected `target` to hold {what} from 0 to {outputs.size(1) - 1}",
        got=y.tolist(),
    )
    return y
