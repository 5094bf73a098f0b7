"""From a ranking and the final check to explanations: the one place where a status is given.

`found` is said only of a set that the final check confirms, and an `Explanation` refuses to be made otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cf2.core.graph import Instance
from cf2.core.outputs import SORTS
from cf2.core.targets import Targets
from cf2.core.units import CHANGED, InstanceUnits
from cf2.methods.candidates import MOST
from cf2.methods.candidates import NOTE as NARROWED
from cf2.methods.contract import Problem, Ranking, settings_dict
from cf2.methods.reduction import NOTE, REFUSAL
from cf2.results.explanation import Explanation
from cf2.results.unit_table import UnitTable
from cf2.spec import Key, Spec
from cf2.verify.search import Choice
from cf2.verify.verdict import RUNS, Verdict

NOTHING = "The receptive field has no unit that can be removed: the prediction rests on the rest of the input."
UNCONFIRMED = "The search ended with a set that the final check does not confirm."
ALREADY = "The model says class {asked} already: nothing has to change."
DEFAULT = (
    "The model gives the same answer when everything that can be removed is gone, so it may need none of that. "
    'Ask question="counterfactual", edits=("remove", "add") for what would have to be added.'
)
NOT_PREDICTED = (
    "The model says class {said}, not class {asked}: nothing can be the reason for an answer that it does not give. "
    'Ask question="counterfactual", target={asked} for what would have to change.'
)


class Asked(Protocol):
    """What an explanation says of the request that it answers."""

    @property
    def targets(self) -> Targets: ...

    @property
    def spec(self) -> Spec: ...

    @property
    def labels(self) -> Mapping[Key, int] | None: ...


def explanations(
    request: Asked,
    settings: Any,
    problem: Problem,
    ranking: Ranking,
    verdict: Verdict,
    refused: bool,
    seconds: float,
    empty: Tensor | None = None,
) -> Iterator[Explanation]:
    """What was said and verified, as one frozen value per instance.

    `empty` says of which instances the model gives the same answer with everything removed [B].
    """
    spec, choice, labels = request.spec, ranking.choice, request.labels or {}
    plain = settings_dict(settings)
    scores = [part.cpu().float().numpy() for part in problem.pack.split(ranking.scores)]
    selected = [part.cpu().numpy() for part in problem.pack.split(choice.selected)]
    P, only, without = (part.float().cpu().numpy() for part in (problem.outputs, verdict.only, verdict.without))
    confirmed, given = verdict.passes(problem.tests).tolist(), problem.criterion.holds(problem.outputs).tolist()
    said, asked = problem.criterion.said(problem.outputs).tolist(), problem.criterion.answers.tolist()
    default = None if empty is None else empty.tolist()
    assert problem.predictor.findings is not None
    kind = SORTS[problem.predictor.findings.output].kind
    for row, (instance, table) in enumerate(zip(problem.instances, problem.tables)):
        status, note = _status(spec, choice, row, confirmed[row], table.count, refused)
        tried = status in ("impossible", "not found")
        if tried and default is not None and default[row] and given[row] and _may_add(spec):
            note = f"{DEFAULT} {note}".strip()
        if instance.narrowed and not refused:
            note = f"{note} {NARROWED.format(most=MOST, all=instance.narrowed)}".strip()
        if not given[row] and status not in ("refused", "empty"):
            text = ALREADY if spec.question == "counterfactual" else NOT_PREDICTED
            status, note = "not predicted", text.format(said=said[row], asked=asked[row])
        kept = 0 if refused else len(scores[row])
        found = status == "found"
        yield Explanation(
            key=instance.key,
            task=request.targets.level,
            prediction=said[row],
            units=UnitTable.none() if refused else _unit_table(instance, table, spec.question),
            scores=scores[row][:kept],
            selected=selected[row][:kept],
            probabilities=P[row],
            probabilities_only=only[row],
            probabilities_without=without[row],
            sufficient=bool(verdict.sufficient[row]),
            necessary=bool(verdict.necessary[row]),
            minimal=choice.minimal[row] if found and choice.minimal else None,
            optimal=choice.optimal[row] if found and choice.optimal else None,
            status=status,
            note=note,
            question=spec.question,
            method=spec.method,
            settings=plain,
            seed=spec.seed,
            evaluations=int(choice.evaluations[row]) + RUNS,
            seconds=seconds,
            directed=instance.directed,
            label=labels.get(instance.key) if kind == "classes" else None,
            target=None if spec.target is None else asked[row],
            lower_bound=_bound(spec, choice, row) if status in ("found", "not found") else None,
            default=default[row] if default is not None and tried else None,
            output=kind,
            tolerance=getattr(problem.criterion, "tolerance", None),
            types=instance.types,
        )


def _may_add(spec: Spec) -> bool:
    """Whether edits that add could be asked for, and were not."""
    return "add" not in spec.edits


def _bound(spec: Spec, choice: Choice, row: int) -> int | None:
    """The size below which nothing passes; it counts units, so there is none where some cost more than others."""
    return None if choice.lower_bound is None or spec.costs else choice.lower_bound[row]


def _unit_table(instance: Instance, table: InstanceUnits, question: str) -> UnitTable:
    kind, ids = table.kind.numpy().astype("int8"), table.ids.numpy()
    types = np.zeros(0, np.int16) if table.types is None else table.types.numpy().astype(np.int16)
    return UnitTable(table.names, kind, ids, _values(instance, table, question), _members(instance, table), types)


def _values(instance: Instance, table: InstanceUnits, question: str) -> np.ndarray:
    """What an edit makes of a feature: the column it leaves, the old value and the new one; nothing without edits."""
    named = [name for name in ("features", CHANGED) if name in table.names]
    if question != "counterfactual" or not named or not table.count:
        return np.zeros((0, 3))
    values = torch.full((table.count, 3), -1.0, dtype=torch.double)
    for name in named:
        rows = (table.kind == table.names.index(name)).nonzero().flatten()
        node = torch.searchsorted(instance.node_ids, table.ids[rows, 0])
        values[rows, 1] = instance.x[node, table.ids[rows, 1]].double()
        values[rows, 2] = 0.0
        if name == CHANGED and table.changes is not None and len(rows):
            own = table.changes.place[:, 1] == table.ids[table.changes.unit, 1]
            values[table.changes.unit[own], 2] = table.changes.value[own].double()
            values[rows, 0] = table.changes.source.double()
    return values.numpy()


def _members(instance: Instance, table: InstanceUnits) -> np.ndarray:
    """The edges of every group, one way where they have none: its row, and both ends."""
    if "groups" not in table.names:
        return np.zeros((0, 3), np.int64)
    first, _ = table.edges
    mine = (first >= 0) & (table.kind[first.clamp(min=0)] == table.names.index("groups"))
    ends = instance.node_ids[instance.edge_index[:, mine]].t()
    ends = ends if instance.directed else ends.sort(1).values
    return np.unique(torch.cat([first[mine, None], ends], 1).numpy(), axis=0)


def _status(spec: Spec, choice: Choice, row: int, confirmed: bool, units: int, refused: bool) -> tuple[str, str]:
    """The status of an explanation, which comes from the final check, and what a reader should know beside it."""
    limit = spec.max_units or 0
    if refused:
        return "refused", REFUSAL.format(units=units, limit=limit)
    if not units:
        return "empty", NOTHING
    status = "unverified" if choice.status is None else choice.status[row]
    notes = [choice.notes[row]] if choice.notes else []
    if status == "found" and not confirmed:
        status, notes = "not found", [UNCONFIRMED]
    if spec.reduce is not None and limit and units > limit:
        notes.insert(0, NOTE.format(limit=limit, units=units))
    return status, " ".join(notes).strip()
