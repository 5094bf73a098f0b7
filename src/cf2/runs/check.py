"""Is a run what it claims to be? Its shards and keys, and a sample of its verdicts by running the model again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cf2.core.units import InstanceUnits
from cf2.errors import CF2Error
from cf2.methods.contract import Problem
from cf2.results.explanation import Explanation
from cf2.runs.model_and_data import ModelAndData
from cf2.runs.run import Run
from cf2.runs.session import Session
from cf2.spec import Spec
from cf2.verify.verdict import judge

NEAR = 1e-4  # probabilities closer than this are one probability, summed in another order


def problems_of_files(run: Run) -> list[str]:
    """What is wrong with the files of a run: shards that are refused, keys that are missing, a changed context."""
    found = []
    try:
        run.context()
    except CF2Error as error:
        found.append(str(error))
    there = run.look()
    found += [f"Shard {refused}." for refused in there.refused]
    for spec in run.jobs():
        unread = [shard for shard in there.shards.get(spec.name, ()) if not run.loaded(shard)]
        found += [f"Shard {shard.path.name} does not hold what it names." for shard in unread]
        missing = len(run.keys) - len(there.keys(spec.name))
        if missing:
            found.append(f"{spec.name}: {missing:,} of {len(run.keys):,} keys are missing; --resume explains them.")
    return found


def problems_of_source(run: Run, source: ModelAndData) -> list[str]:
    """In what a model and data differ from those that were explained."""
    before, now = run.manifest["fingerprints"], source.fingerprints()
    return [f"The {name} is not what was explained." for name in now if before.get(name) != now[name]]


def problems_of_verdicts(run: Run, source: ModelAndData, sample: int) -> tuple[int, list[str]]:
    """How many verdicts were computed again, at most `sample` spread over the run, and which came out otherwise."""
    stored = [(spec, e) for spec in run.jobs() for e in run.explanations(spec.method, spec.seed, spec.question)]
    stored = [(spec, e) for spec, e in stored if e.seed == spec.seed and e.status != "refused"]
    places = sorted({round(at) for at in np.linspace(0, len(stored) - 1, min(sample, len(stored)))})
    chosen = [stored[place] for place in places]
    found = []
    for spec in run.jobs():
        mine = [e for job, e in chosen if job == spec]
        found += list(_differences(source, spec, mine)) if mine else []
    return len(chosen), found


def _differences(source: ModelAndData, spec: Spec, stored: Sequence[Explanation]) -> Iterator[str]:
    by_key = {e.key: e for e in stored}
    spec = replace(spec, tolerance=stored[0].tolerance)  # as it was measured on all keys
    with Session(source.request(list(by_key), spec), fitting=True) as session:
        for problem in session.problems(list(by_key)):
            here = [by_key[instance.key] for instance in problem.instances]
            other = [e for e, table in zip(here, problem.tables) if not _same_units(e, table)]
            yield from (f"{spec.name}, key {e.key}: it has other units." for e in other)
            if not other:
                yield from _judged(spec, problem, here)


def _same_units(e: Explanation, table: InstanceUnits) -> bool:
    """Whether an explanation is of the units that its instance has now: a verdict is about sets of those."""
    return (
        tuple(e.units.names) == tuple(table.names)
        and np.array_equal(e.units.kind, table.kind.numpy())
        and np.array_equal(e.units.ids, table.ids.numpy())
    )


def _judged(spec: Spec, problem: Problem, stored: Sequence[Explanation]) -> Iterator[str]:
    """What the model says of the stored sets now, where it is not what was stored."""
    selected = torch.from_numpy(np.concatenate([e.selected for e in stored])).to(problem.outputs.device)
    verdict = judge(problem.predictor, problem.pack, problem.criterion, selected, problem.outputs)
    said = problem.criterion.said(problem.outputs).tolist()
    for row, e in enumerate(stored):
        pairs = (
            (e.probabilities, problem.outputs[row]),
            (e.probabilities_only, verdict.only[row]),
            (e.probabilities_without, verdict.without[row]),
        )
        wrong = [name for name, now in _verdicts(verdict, row).items() if getattr(e, name) != now]
        wrong += ["prediction"] if e.prediction != said[row] else []
        wrong += ["question"] if (e.question, e.method) != (spec.question, spec.method) else []
        wrong += ["probabilities"] if not all(_near(before, now) for before, now in pairs) else []
        if wrong:
            yield f"{spec.name}, key {e.key}: the model gives another result ({', '.join(wrong)})."


def _verdicts(verdict: Any, row: int) -> dict[str, bool]:
    return {name: bool(getattr(verdict, name)[row]) for name in ("sufficient", "necessary")}


def _near(before: np.ndarray, now: torch.Tensor) -> bool:
    values = now.float().cpu().numpy()
    return before.shape == values.shape and bool(np.allclose(before, values, atol=NEAR))
