"""A run directory: manifest, finished shards, resume.

    manifest.json          which run it is, and what is explained and how: model and data, keys, and one Spec per job
    context.json           what a reader needs beside the explanations: class names, truth, elements
    shards/JOB-NUMBER.DIGEST.parquet
    trained-JOB.safetensors

A shard appears under its name only when every byte of it is on the disk, and says whose it is. So a run can be killed
at any moment: what is there is whole, what is not is computed again, and what is of another run is refused.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cf2.core.whole_files import digest, write_bytes, writing
from cf2.errors import CF2Error, require, require_number
from cf2.results import files
from cf2.runs.lock import locked
from cf2.runs.manifest import (
    FORMAT,
    MANIFEST,
    as_json,
    read_manifest,
    refuse_changes,
    versions,
    warn_of_versions,
    write_manifest,
)
from cf2.runs.model_and_data import ModelAndData
from cf2.runs.run import OWN, Finished, Run, partial_sentence
from cf2.runs.session import GROUP
from cf2.runs.settings import complete
from cf2.runs.shards import SHARDS
from cf2.runs.start import CONTEXT, Start, refuse_occupied
from cf2.spec import Key, Spec

CHUNK_SIZE = GROUP

log = logging.getLogger("cf2")


def create_run(
    path: str | Path,
    source: ModelAndData,
    spec: Spec,
    *,
    keys: Sequence[Key] | None = None,
    chunk_size: int = CHUNK_SIZE,
    resume: bool = False,
) -> Run:
    """Make a run directory with one job, or, with `resume`, go on with the one that is there.

    Parameters
    ----------
    path : str or Path
        The directory: a new or an empty one, or, to resume, that of a run of the same choices.
    source : ModelAndData
        The model and its data.
    spec : Spec
        How to explain.
    keys : sequence of keys, optional
        What to explain; as the source says, if none are given.
    chunk_size : int
        How many keys are packed and handed to a worker together.
    resume : bool
        Whether to go on with a run that is there.

    Returns
    -------
    Run
    """
    path = Path(path)
    require_number("chunk_size", chunk_size, 1, integer=True)
    spec = complete(source.settled(spec))
    keys = source.keys(spec) if keys is None else source.targets(spec).check(keys)
    require(len(keys) > 0, "Expected at least one key to explain", got="none")
    require(len(set(keys)) == len(keys), "Expected every key once", got="a key that comes twice")
    plan = {"source": dict(source.description), "fingerprints": source.fingerprints()}
    plan = as_json({**plan, "chunk_size": chunk_size, "keys": list(keys)})
    refuse_occupied(path, resume)
    start = Start(path)
    start.make_directory()
    try:
        with locked(path):
            refuse_occupied(path, resume)  # nobody else has begun one meanwhile
            there = (path / MANIFEST).exists()
            run = _go_on(path, plan, source) if there else _begin(start, plan, source, spec)
        run.start = start
        run.add(spec)
    except Exception:
        start.take_back()
        raise
    return run


def _begin(start: Start, plan: dict[str, Any], source: ModelAndData, spec: Spec) -> Run:
    """A new run of one job; its manifest comes last."""
    start.fresh = True
    start.jobs.add(spec.name)
    content = _context(source, plan["keys"])
    about = {"format": FORMAT, "id": uuid.uuid4().hex, "created": datetime.now(UTC).isoformat(timespec="seconds")}
    about |= {"versions": versions(), **plan, "context": digest(content)}
    with writing(start.path / SHARDS):
        (start.path / SHARDS).mkdir(exist_ok=True)
    write_bytes(start.path / CONTEXT, content)
    manifest = as_json({**about, "jobs": [spec.to_json()], "trained": {}})
    write_manifest(start.path, manifest)
    return Run(start.path, manifest, source)


def _go_on(path: Path, plan: dict[str, Any], source: ModelAndData) -> Run:
    """The run that is there, if it was started with the same choices; its context is mended if it must be."""
    run = Run(path, read_manifest(path), source)
    refuse_changes(path, _without_root({name: run.manifest[name] for name in plan}), _without_root(plan))
    warn_of_versions(run.manifest)
    try:
        run.context()
    except (CF2Error, OSError) as error:
        log.warning("%s It is written again.", error)
        content = _context(source, plan["keys"])
        write_bytes(path / CONTEXT, content)
        run.update(context=digest(content))
    return run


def _context(source: ModelAndData, keys: Sequence[Any]) -> bytes:
    return (json.dumps(source.context([files.as_key(key) for key in keys])) + "\n").encode()


def _without_root(plan: dict[str, Any]) -> dict[str, Any]:
    """Where the raw data lies is kept, and may be another place when the run goes on."""
    return {**plan, "source": {name: value for name, value in plan["source"].items() if name != "root"}}


LISTS = "`cf2 runs` lists those that there are."


def open_run(path: str | Path) -> Run:
    """The run in a directory, as far as it has come."""
    path = Path(path)
    what = "is a file" if path.is_file() else "is not there"
    require(path.is_dir(), "Expected the directory of a run", got=f"{str(path)!r}, which {what}", do=LISTS)
    inside = next((place for place in sorted(path.iterdir()) if (place / MANIFEST).is_file()), None)
    require(
        (path / MANIFEST).is_file(),
        f"Expected {str(path)!r} to be the directory of a run",
        got=f"one without a {MANIFEST}",
        do="Make one with: cf2 explain … --out DIR" if inside is None else f"There is one in it: {inside}. {LISTS}",
    )
    return Run(path, read_manifest(path))


__all__ = ["CHUNK_SIZE", "OWN", "Finished", "Run", "create_run", "open_run", "partial_sentence"]
