"""From a request on the command line to a finished run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cf2 import engines, metrics
from cf2.errors import CF2Error
from cf2.experiments.cells import fit
from cf2.methods import get
from cf2.methods.truth import planted
from cf2.runs import Run, create_run
from cf2.subjects import Subject, from_dataset, from_function
from cf2.work import SETTLE


@dataclass(frozen=True)
class Request:
    """Everything that `cf2 explain` can be asked for."""

    path: Path
    methods: tuple[str, ...] = ("cf2",)
    settings: dict[str, Any] = field(default_factory=dict)
    keys: tuple[int, ...] | None = None
    seeds: tuple[int | None, ...] = (None,)
    edges: bool = True
    features: bool = False
    search: bool = False
    max_units: int | None = None
    reduce: str | None = None
    resume: bool = False
    engine: str = "local"
    workers: int | None = None
    address: str | None = None


def subject(dataset: str | None, data: str | None, checkpoint: Path | None, root: Path | None) -> Subject:
    """A data set with its model, or what the user's own function returns."""
    if dataset is not None:
        return from_dataset(dataset, checkpoint=checkpoint, root=root)
    assert data is not None
    return from_function(data)


def total(request: Request) -> int:
    """How many explanations the request asks for, where its keys are given."""
    return len(request.keys or ()) * len(request.methods) * len(request.seeds)


def explain(chosen: Subject, request: Request, progress: Callable[[int], None]) -> Run:
    """Do what is asked for, or what is left of it; every finished chunk is on the disk."""
    run = None
    for method in request.methods:
        for seed in request.seeds:
            run = create_run(
                request.path,
                subject=chosen,
                keys=request.keys,
                method=method,
                settings=_settings_of(method, request),
                seed=seed,
                edges=request.edges,
                features=request.features,
                search={} if request.search and method != "cf2" else None,
                max_units=request.max_units,
                reduce=request.reduce,
                resume=request.resume or run is not None,
            )
            _fill(run, method, seed, request, progress)
    assert run is not None
    return run


def _settings_of(method: str, request: Request) -> dict[str, Any]:
    """The settings that this method knows; one that no method of the request knows is an error."""
    known = {name: {f.name for f in fields(get(name).settings)} for name in request.methods}
    for name in request.settings:
        if not any(name in own for own in known.values()):
            get(method).make_settings({name: None})
    return {name: value for name, value in request.settings.items() if name in known[method]}


def _fill(run: Run, method: str, seed: int | None, request: Request, progress: Callable[[int], None]) -> None:
    chosen = run.subject()
    if method == "truth":
        if chosen.dataset is None:
            raise CF2Error("Expected a data set with planted explanations for method 'truth'", got="your own data")
        work = chosen.work(run.keys, method=method, seed=seed, trained=planted(chosen.dataset, run.keys))
        engines.explain_chunks(
            work, run.pending(method, seed), run.keys[:SETTLE], on_chunk=run.write, progress=progress
        )
        return
    engines.explain_run(
        run,
        method=method,
        seed=seed,
        engine=request.engine,
        workers=request.workers,
        address=request.address,
        progress=progress,
        fit=lambda: fit(chosen, method, run.job(method, seed).settings, seed or 0),
    )


def summaries(run: Run, method: str | None = None) -> list[dict[str, Any]]:
    """One row a method: the metrics over its instances, and the stability where it ran under several seeds."""
    names = run.methods() if method is None else [run.job(method, _first_seed(run, method)).method]
    rows = []
    for name in names:
        found = run.explanations(name)
        if not len(found):
            raise CF2Error(
                f"Expected finished explanations by {name!r} in {run.path}",
                got="none",
                do="Run it with --resume.",
            )
        chosen = run.subject()
        masks = {e.key: mask for e in found if (mask := chosen.truth(e.key)) is not None}
        data = chosen.graphs[0] if chosen.task == "node" else chosen.graphs
        row = {"method": name, **metrics.evaluate(found, masks or None, data)}
        if len({e.seed for e in found}) > 1:
            row["stability"] = found.stability()
        if large := [e.key for e in found if e.status == "refused"]:
            row["refused"] = large
        rows.append(row)
    return rows


def _first_seed(run: Run, method: str) -> int | None:
    return next((job.seed for job in run.jobs() if job.method == method), None)
