"""What the model's numbers are, the values that they stand for, and when two of them are the same answer.

An output kind says what the answer is: a class, a label of many, or a number. A form says how the model writes it down:
logits, probabilities, … Each is one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from cf2.errors import CF2Error, require
from cf2.options import Key, Output
from cf2.sets.tests import Criterion, Label, NotYet, PredictedClass, Within

SMALLEST = 1.2e-38  # below the smallest normal float, a probability says nothing
ROUNDINGS = 16  # spacings of numbers by which the same sum in another order may be off
MASKED = 1e3  # a column that is always the same and larger than this says nothing
TOLERANCE_SHARE = 0.1  # of the range of the predictions, the tolerance where none is given

Target = int | tuple[tuple[Key, int], ...] | None


@dataclass(frozen=True)
class OutputKind:
    """Everything about one kind of output. A new kind is a row of `OUTPUT_KINDS`, its forms in `FORMS`, and a test."""

    name: str  # in an explanation
    noun: str  # what `target` names
    plural: str
    said: str  # how an answer is written, of `name` of its column, `probability`, `value`, and `no` where that is small
    axis: str  # what a chart measures
    criterion: Callable[[Tensor, Tensor, float | None], Criterion]  # from columns [B], their values [B] and a tolerance
    answer: Callable[[int, float], int | float]  # of a column and its value, what a table holds
    exclusive: bool = False  # whether the columns exclude each other, and the answer is the largest one
    probability: bool = True  # whether values are from 0 to 1
    takes_tolerance: bool = False

    def column_name(self, column: int, names: Sequence[str] | None = None) -> str:
        """The name of a column, or its number."""
        return str(names[column]) if names is not None and 0 <= column < len(names) else f"{self.noun} {column}"


def _within(columns: Tensor, values: Tensor, tolerance: float | None) -> Criterion:
    assert tolerance is not None
    return Within(columns, values, tolerance)


CLASSES = OutputKind(
    name="classes",
    noun="class",
    plural="classes",
    said="{name} ({probability})",
    axis="probability",
    criterion=lambda columns, values, tolerance: PredictedClass(columns),
    answer=lambda column, value: column,
    exclusive=True,
)
MULTILABEL = OutputKind(
    name="multilabel",
    noun="label",
    plural="labels",
    said="{no}{name} ({probability})",
    axis="probability",
    criterion=lambda columns, values, tolerance: Label(columns, values > 0.5),
    answer=lambda column, value: int(value > 0.5),
)
REGRESSION = OutputKind(
    name="regression",
    noun="column",
    plural="columns",
    said="{value:.4g}",
    axis="output",
    criterion=_within,
    answer=lambda column, value: value,
    probability=False,
    takes_tolerance=True,
)
OUTPUT_KINDS: Mapping[str, OutputKind] = MappingProxyType(
    {kind.name: kind for kind in (CLASSES, MULTILABEL, REGRESSION)}
)


def output_kind(name: str) -> OutputKind:
    """The kind of that name in an explanation; of an unknown one, classes."""
    return OUTPUT_KINDS.get(name, CLASSES)


def criterion_for(
    outputs: Tensor,
    keys: Sequence[Key],
    target: Target,
    kind: OutputKind = CLASSES,
    *,
    wanted: bool = False,
    tolerance: float | None = None,
) -> Criterion:
    """The criterion of instances, from what the model says of them [B, width] and the columns that are asked for.

    Of classes, the answer in question is the class itself, or, where the class is `wanted`, that the model does not
    give it yet. Of labels and numbers it is what the model says, and `target` is the column.
    """
    columns = target_columns(outputs, keys, target, kind)
    values = outputs.detach().gather(1, columns[:, None]).squeeze(1)
    found = kind.criterion(columns, values, tolerance)
    return NotYet(found) if wanted and isinstance(found, PredictedClass) and target is not None else found


def target_columns(outputs: Tensor, keys: Sequence[Key], target: Target, kind: OutputKind) -> Tensor:
    """Which column of the outputs [B, width] is explained, [B]: by default the largest one of classes."""
    if target is None and kind.exclusive:
        return outputs.argmax(1)
    if target is None:
        require(
            outputs.size(1) == 1,
            f"Expected `target`, the {kind.noun} to explain",
            got=f"None, and a model with {outputs.size(1)} outputs",
            do="Pass target=0 for the first.",
        )
        target = 0
    by_key = dict.fromkeys(keys, target) if isinstance(target, int) else dict(target)
    missing = [key for key in keys if key not in by_key]
    require(not missing, "Expected a class in `target` for each key", got=f"none for {missing[:1]}")
    columns = torch.tensor([by_key[key] for key in keys], device=outputs.device)
    require(
        int(columns.min()) >= 0 and int(columns.max()) < outputs.size(1),
        f"Expected `target` to hold {kind.plural} from 0 to {outputs.size(1) - 1}",
        got=columns.tolist(),
    )
    return columns


def default_tolerance(outputs: Tensor, columns: Tensor) -> float:
    """A tenth of the range of the predictions in outputs [B, width], of which each instance has one column [B]."""
    values = outputs.gather(1, columns[:, None]).squeeze(1)
    span = float(values.max() - values.min())
    one_column = bool((columns == columns[0]).all())
    require(
        one_column and span > 0,
        "Expected different predictions of one column, to derive the tolerance",
        got=f"{len(values)} predictions of {float(values[0]):.4g}" if one_column else "several columns",
        do="Pass tolerance=…: outputs within ± this value count as unchanged.",
    )
    return TOLERANCE_SHARE * span


def settle(rows: Tensor, given: Output) -> Output:
    """What the rows [B, classes] are: as the user says, if they can be that, or, for ``auto``, as they look."""
    rows = rows.float()
    if given == "auto":
        return _looks_like(rows)
    if given == "multilabel":  # taken for the wrong ones, they would be on the wrong side of 0.5
        _check_unambiguous(rows, "the labels' outputs are logits or probabilities", "multilabel_")
        return "multilabel_logits"
    FORMS[given].check(rows)
    return given


def _looks_like(rows: Tensor) -> Output:
    require(
        rows.size(1) > 0 and not (rows.size(1) == 1 and bool(((rows == 0) | (rows == 1)).all())),
        "Expected a model with at least two classes, or one logit for two classes",
        got=f"outputs of shape {tuple(rows.shape)} that are all {rows.flatten()[:1].tolist()}",
    )
    if rows.size(1) == 1:
        _check_unambiguous(rows, "the model's single output is a logit or a probability")
    elif bool((rows >= 0).all()) and _sums_to_one(rows):
        return "probabilities"
    elif bool((rows <= 1e-6).all()) and _sums_to_one(rows.exp()):
        return "log_probabilities"
    return "logits"


def _sums_to_one(rows: Tensor, tolerance: float = 1e-4) -> bool:
    return torch.allclose(rows.sum(1), torch.ones(len(rows), device=rows.device), atol=tolerance)


def _check_unambiguous(rows: Tensor, what: str, prefix: str = "") -> None:
    require(
        bool(((rows < 0) | (rows > 1)).any()),
        f"Expected `output` to say whether {what}",
        got="values between 0 and 1, which fit both",
        do=f'Pass output="{prefix}logits" or output="{prefix}probabilities"'
        + ("." if prefix else ', or output="regression" for a number.'),
    )


def _check_range(rows: Tensor, what: str, scores: str) -> None:
    outside = ((rows < -1e-4) | (rows > 1 + 1e-2)).any(1).nonzero().flatten()
    if len(outside):
        cure = f'Pass output="{scores}" if the model returns scores.'
        raise CF2Error(f"Expected {what} from 0 to 1", got=f"a row of {_short(rows[outside[0]])}", do=cure)


def _check_distribution(rows: Tensor, what: str) -> None:
    """Refuse what cannot be probabilities of classes: the verdicts would be of something else."""
    _check_range(rows, what, "logits")
    if rows.size(1) > 1 and not _sums_to_one(rows, 2e-2):
        row = rows[int((rows.sum(1) - 1).abs().argmax())]
        raise CF2Error(
            f"Expected {what} that sum to 1 in every row",
            got=f"a row of {_short(row)} with the sum {float(row.sum()):.3g}",
            do='Pass output="logits" if it returns scores, or output="multilabel" and target=… if it is multi-label.',
        )


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


@dataclass(frozen=True)
class OutputForm:
    """How a model writes down a kind of output."""

    kind: OutputKind
    values: Callable[[Tensor], Tensor] = lambda rows: rows  # what rows stand for
    unsaturated: Callable[[Tensor], Tensor] = lambda rows: rows.clamp(min=-1e30)  # rows on a scale without an end
    check: Callable[[Tensor], None] = lambda rows: None  # refuses rows that cannot be this
    unit: float = 0.0  # of the scale without an end, where it has one: 1 for logarithms


FORMS: Mapping[Output, OutputForm] = MappingProxyType(
    {
        "logits": OutputForm(CLASSES, _of_logits),
        "log_probabilities": OutputForm(
            CLASSES,
            lambda rows: _both(rows.exp()),
            check=lambda rows: _check_distribution(rows.exp(), "logarithms of probabilities"),
            unit=1.0,
        ),
        "probabilities": OutputForm(
            CLASSES, _both, _logarithm, lambda rows: _check_distribution(rows, "probabilities"), unit=1.0
        ),
        "multilabel_logits": OutputForm(MULTILABEL, lambda rows: rows.double().sigmoid()),
        "multilabel_probabilities": OutputForm(
            MULTILABEL,
            unsaturated=_logarithm,
            check=lambda rows: _check_range(rows, "probabilities of labels", "multilabel_logits"),
            unit=1.0,
        ),
        "regression": OutputForm(REGRESSION),
    }
)


def takes_tolerance(output: Output) -> bool:
    """Whether answers of the model are the same within a tolerance."""
    return output in FORMS and FORMS[output].kind.takes_tolerance


def probabilities(rows: Tensor, output: Output) -> Tensor:
    """The values [B, width] of the model's rows, in single precision or better; one column of classes becomes two."""
    return FORMS[output].values(rows if rows.dtype == torch.float64 else rows.float())


def unsaturated(rows: Tensor, output: Output) -> Tensor:
    """The model's rows on a scale on which a sure model can still be told from a surer one."""
    return FORMS[output].unsaturated(rows.double())


def differ(one: Tensor, other: Tensor, output: Output, precision: float) -> Tensor:
    """Which of the model's rows [B, width] are not the same numbers summed in another order, bool [B].

    `precision` is what the model computes with. Rounding is relative to the size of the outputs, whatever their unit
    is; logarithms have a unit of their own. A masked class, a column that is always -1e9 or so, does not count.
    """
    one, other = unsaturated(one, output), unsaturated(other, output)
    both = torch.cat([one, other])
    masked = (both == both[:1]).all(0) & (both.abs().amax(0) > MASKED)
    size = torch.maximum(one.abs(), other.abs()).masked_fill(masked, 0.0).amax(1)
    size = torch.maximum(size, size.median()) if len(size) else size  # one output may be near 0 by chance
    same: Tensor = (one - other).abs().amax(1) <= precision**0.5 * (FORMS[output].unit + size)
    return ~same


def size_of(rows: Tensor, output: Output) -> float:
    """How large the numbers are by which rows [B, width] are decided: of classes the two largest of each row."""
    scale = unsaturated(rows, output)
    if FORMS[output].kind.exclusive:
        scale = scale.topk(min(2, scale.size(1)), 1).values
    return float(scale.abs().max()) if scale.numel() else 0.0


def guard_band(criterion: Criterion, size: float, precision: float) -> Tensor | float:
    """By how little a test may be passed or failed before that is rounding, as slack of the criterion.

    A sum in another order is off by some spacings of outputs of this `size`, and a probability of single precision
    does not tell logits apart that are closer than its own spacing.
    """
    if isinstance(criterion, Within):
        return ROUNDINGS * precision * criterion.value.abs().clamp(min=size) / criterion.tolerance
    return precision * (ROUNDINGS * size + ROUNDINGS / 4)


def check_labels(labels: Tensor | None, columns: int) -> None:
    """Refuse outputs that are not classes: labels [n] or [n, k] that are measurements, or several at once."""
    if labels is None or not labels.numel() or labels.is_complex():
        return
    known = labels.double()
    known = known[torch.isfinite(known)] if known.dim() < 2 else known[torch.isfinite(known).all(1)]
    several = known.dim() == 2 and known.size(1) > 1
    whole = bool((known == known.round()).all())
    cure = 'Pass output="regression", or output="logits" if the columns are classes.'
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
