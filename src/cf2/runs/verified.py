"""From a ranking and the final check to explanations: the one place where a status is given.

`found` is said only of a set that the final check confirms, and an `Explanation` refuses to be made otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from cf2.core.targets import Targets
from cf2.methods.contract import Problem, Ranking, settings_dict
from cf2.methods.reduction import NOTE, REFUSAL
from cf2.results.explanation import Explanation, UnitTable
from cf2.spec import Key, Spec
from cf2.verify.search import Choice
from cf2.verify.verdict import RUNS, Verdict

NOTHING = "The receptive field has no unit that can be removed: the prediction rests on the rest of the input."
UNCONFIRMED = "The search ended with a set that the final check does not confirm."
ALREADY = "The model says class {asked} already: nothing has to change."
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
    request: Asked, settings: Any, problem: Problem, ranking: Ranking, verdict: Verdict, refused: bool, seconds: float
) -> Iterator[Explanation]:
    """What was said and verified, as one frozen value per instance."""
    spec, choice, labels = request.spec, ranking.choice, request.labels or {}
    plain = settings_dict(settings)
    scores = [part.cpu().float().numpy() for part in problem.pack.split(ranking.scores)]
    selected = [part.cpu().numpy() for part in problem.pack.split(choice.selected)]
    P, only, without = (part.float().cpu().numpy() for part in (problem.outputs, verdict.only, verdict.without))
    confirmed, given = verdict.passes(problem.tests).tolist(), problem.criterion.holds(problem.outputs).tolist()
    said, asked = problem.criterion.said(problem.outputs).tolist(), problem.criterion.answers.tolist()
    for row, (instance, table) in enumerate(zip(problem.instances, problem.tables)):
        status, note = _status(spec, choice, row, confirmed[row], table.count, refused)
        if not given[row] and status not in ("refused", "empty"):
            text = ALREADY if spec.question == "counterfactual" else NOT_PREDICTED
            status, note = "not predicted", text.format(said=said[row], asked=asked[row])
        kept = 0 if refused else len(scores[row])
        found = status == "found"
        yield Explanation(
            key=instance.key,
            task=request.targets.level,
            prediction=said[row],
            units=UnitTable.none() if refused else _unit_table(table),
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
            label=labels.get(instance.key),
            target=None if spec.target is None else asked[row],
            lower_bound=choice.lower_bound[row] if choice.lower_bound and status in ("found", "not found") else None,
        )


def _unit_table(table: Any) -> UnitTable:
    return UnitTable(table.names, table.kind.numpy().astype("int8"), table.ids.numpy())


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
