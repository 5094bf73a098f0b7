"""A run directory: manifest, finished shards, resume.

    manifest.json          what is explained and how: subject, keys, chunks, and one job a method and seed
    context.json           what a reader needs beside the explanations: class names, truth, elements
    shards/METHOD-SEED-CHUNK.DIGEST.parquet

A shard appears under its name only when every byte of it is on the disk, and its name holds the digest of
those bytes. So a run can be killed at any moment: what is there is whole, what is not is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cf2 import explanation
from cf2.errors import CF2Error, require, require_number
from cf2.explanation import Explanation, Explanations, settings_dict
from cf2.hubs import check_budget
from cf2.manifest import few, plain, refuse_changes, versions, warn_of_versions
from cf2.methods import get
from cf2.methods.trained import Trained, load_trained
from cf2.search import Search
from cf2.shards import PARTIAL, SHARDS, intact, read_json, write_json, write_shard, write_with, writing
from cf2.subjects import Subject, restore
from cf2.work import GROUP, Work

FORMAT = 1
CHUNK_SIZE = GROUP
MANIFEST, CONTEXT = "manifest.json", "context.json"

Chunk = tuple[int, list[int]]  # its number and its keys


@dataclass(frozen=True)
class Job:
    """One method with its settings and seed; a run may hold several."""

    method: str
    settings: dict[str, Any]
    seed: int | None = None
    search: dict[str, Any] | None = None  # search for a verified set from the method's scores

    @property
    def name(self) -> str:
        return f"{self.method}-{'none' if self.seed is None else self.seed}"


@dataclass(eq=False)
class Run:
    """An open run directory. Everything it says is read from the disk."""

    path: Path
    manifest: dict[str, Any]
    known: Subject | None = field(default=None, repr=False)

    @property
    def keys(self) -> list[int]:
        return list(self.manifest["keys"])

    @property
    def chunk_size(self) -> int:
        return int(self.manifest["chunk_size"])

    def work(self, job: Job, trained: Trained | None = None) -> Work:
        """What a job does, as the manifest says."""
        search = None if job.search is None else Search(**job.search)
        options = {name: self.manifest[name] for name in ("edges", "features", "max_units", "reduce")}
        return self.subject().work(
            self.keys,
            method=job.method,
            settings=job.settings,
            seed=job.seed,
            search=search,
            trained=trained,
            **options,
        )

    def subject(self) -> Subject:
        """The model and data that the run explains; for a user's own model this runs their function."""
        if self.known is None:
            self.known = restore(self.manifest["subject"])
        return self.known

    def context(self) -> dict[str, Any]:
        """What a reader needs beside the explanations."""
        found: dict[str, Any] = read_json(self.path / CONTEXT)
        return found

    def jobs(self) -> list[Job]:
        """Every method and seed of the run, in the order in which they were added."""
        return [Job(**job) for job in self.manifest["jobs"]]

    def methods(self) -> list[str]:
        """The methods of the run, in the order in which they were added."""
        return list(dict.fromkeys(job.method for job in self.jobs()))

    def job(self, method: str | None = None, seed: int | None = None) -> Job:
        """The job of a method and seed; without a method, the only or first one."""
        for job in self.jobs():
            if method is None or (job.method, job.seed) == (method, seed):
                return job
        names = ", ".join(job.name for job in self.jobs())
        raise CF2Error(f"Expected a method and seed of the run, {names}", got=f"{method!r} with seed {seed}")

    def add(
        self,
        method: str,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        search: Mapping[str, Any] | None = None,
    ) -> Job:
        """Have the run hold another method or seed; one that is there already must be the same."""
        full = plain(settings_dict(get(method).make_settings(settings or {})))
        new = Job(method, full, seed, None if search is None else plain(settings_dict(Search(**search))))
        for job in self.jobs():
            if job.name == new.name:
                refuse_changes(self.path, asdict(job), asdict(new))
                return job
        self.manifest = {**self.manifest, "jobs": [*self.manifest["jobs"], asdict(new)]}
        write_json(self.path / MANIFEST, self.manifest)
        return new

    def chunks(self) -> list[Chunk]:
        """The keys in the chunks that they are always explained in, whatever runs them."""
        keys, size = self.manifest["keys"], self.chunk_size
        return [(number, keys[at : at + size]) for number, at in enumerate(range(0, len(keys), size))]

    def pending(self, method: str | None = None, seed: int | None = None) -> list[Chunk]:
        """The chunks that have no intact shard yet."""
        job = self.job(method, seed)
        there = self._shards(job)
        return [chunk for chunk in self.chunks() if not any(intact(p) for p in there.get(chunk[0], ()))]

    def write(self, number: int, found: Sequence[Explanation]) -> Path:
        """Keep the explanations of one chunk; they are on the disk when this returns."""
        require(len(found) > 0, f"Expected explanations for chunk {number}", got="none")
        job = self.job(found[0].method, found[0].seed)
        expected = dict(self.chunks()).get(number)
        keys = [e.key for e in found]
        require(keys == expected, f"Expected chunk {number} to explain {few(expected or [])}", got=few(keys))
        old = self._shards(job).get(number, [])
        path = write_shard(self.path, f"{job.name}-{number:06d}", Explanations(tuple(found)))
        for shard in old:
            if shard != path:
                shard.unlink(missing_ok=True)
        return path

    def trained(self, job: Job) -> Trained | None:
        """The fitted explainer of a job, if its method needs one and it is there."""
        path = self._trained_path(job)
        return load_trained(path) if path.is_file() else None

    def keep_trained(self, job: Job, trained: Trained) -> None:
        """Keep the fitted explainer of a job, so that every resumed part uses the same one."""
        write_with(self._trained_path(job), trained.save)

    def _trained_path(self, job: Job) -> Path:
        return self.path / f"trained-{job.name}.safetensors"

    def explanations(self, method: str | None = None, seed: int | None = None) -> Explanations:
        """What is finished, in the order of the keys: of all jobs, of a method's, or of one seed's."""
        wanted = [
            job
            for job in self.jobs()
            if method is None or (job.method == method and (seed is None or job.seed == seed))
        ]
        if not wanted:
            self.job(method, seed)
        items: list[Explanation] = []
        for job in wanted:
            shards = self._shards(job)
            for number in sorted(shards):
                whole = next((path for path in shards[number] if intact(path)), None)
                items += () if whole is None else explanation.load(whole).items
        context = self.context() | {"method": method or ", ".join(self.methods())}
        return Explanations(tuple(items), context)

    def _shards(self, job: Job) -> dict[int, list[Path]]:
        """The files that claim to be shards of a job, by chunk."""
        found: dict[int, list[Path]] = {}
        for path in sorted((self.path / SHARDS).glob(f"{job.name}-*.*.parquet")):
            number = path.name.removeprefix(f"{job.name}-").partition(".")[0]
            if number.isdigit():
                found.setdefault(int(number), []).append(path)
        return found


def create_run(
    path: str | Path,
    *,
    subject: Subject,
    keys: Sequence[int] | None = None,
    method: str = "cf2",
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    edges: bool = True,
    features: bool = False,
    search: Mapping[str, Any] | None = None,
    max_units: int | None = None,
    reduce: str | None = None,
    chunk_size: int = CHUNK_SIZE,
    resume: bool = False,
) -> Run:
    """Make a run directory with one job, or, with `resume`, go on with the one that is there."""
    path = Path(path)
    require_number("chunk_size", chunk_size, 1, integer=True)
    get(method).make_settings(settings or {})
    check_budget(max_units, reduce)
    keys = subject.keys() if keys is None else subject.check_keys(keys)
    require(len(keys) > 0, "Expected at least one key to explain", got="none")
    require(len(set(keys)) == len(keys), "Expected every key once", got="a key that comes twice")
    plan = {
        "subject": dict(subject.description),
        "edges": edges,
        "features": features,
        "max_units": max_units,
        "reduce": reduce,
        "chunk_size": chunk_size,
        "keys": list(keys),
    }
    _refuse_occupied(path, resume)
    if (path / MANIFEST).exists():
        run = open_run(path)
        refuse_changes(path, {name: run.manifest[name] for name in plan}, plain(plan))
        warn_of_versions(run.manifest)
        run.known = subject
    else:
        run = _begin(path, plan, subject)
    run.add(method, settings, seed, search)
    return run


def _begin(path: Path, plan: dict[str, Any], subject: Subject) -> Run:
    """A directory with everything but a manifest, which comes with the first job."""
    about = {"format": FORMAT, "created": datetime.now(UTC).isoformat(timespec="seconds")}
    with writing(path):
        (path / SHARDS).mkdir(parents=True, exist_ok=True)
    write_json(path / CONTEXT, subject.context(plan["keys"]))
    return Run(path, plain({**about, "versions": versions(), **plan, "jobs": []}), subject)


def open_run(path: str | Path) -> Run:
    """The run in a directory, as far as it has come."""
    path = Path(path)
    require(path.is_dir(), "Expected the directory of a run", got=f"{str(path)!r}, which is not there")
    require(
        (path / MANIFEST).is_file(),
        f"Expected {str(path)!r} to be the directory of a run",
        got=f"one without a {MANIFEST}",
        do="Make one with: cf2 explain … --out DIR",
    )
    manifest = read_json(path / MANIFEST)
    require(
        isinstance(manifest, dict) and manifest.get("format") == FORMAT and "jobs" in manifest,
        f"Expected {path / MANIFEST} to have format {FORMAT}",
        got=manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__,
    )
    return Run(path, manifest)


def same_results(one: Sequence[Explanation], other: Sequence[Explanation]) -> bool:
    """Whether two lists explain the same keys with the same sets, scores, probabilities and verdicts."""
    return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other))


def _same(one: Explanation, other: Explanation) -> bool:
    for name, value in vars(one).items():
        if name == "seconds":
            continue
        theirs = getattr(other, name)
        equal = np.array_equal(value, theirs) if isinstance(value, np.ndarray) else value == theirs
        if not equal:
            return False
    return True


def _refuse_occupied(path: Path, resume: bool) -> None:
    require(not path.exists() or path.is_dir(), "Expected a directory for the run", got=f"the file {str(path)!r}")
    if not path.is_dir():
        return
    ours = {SHARDS, CONTEXT}  # what a run that was killed before its first manifest leaves
    foreign = [p.name for p in path.iterdir() if p.name not in ours and not p.name.startswith(PARTIAL)]
    if not foreign:
        return
    is_run = (path / MANIFEST).is_file()
    require(
        is_run and resume,
        "Expected an empty or new directory for the run",
        got=f"{str(path)!r}, which holds {'a run' if is_run else foreign[0]}",
        do="Pass --resume (resume=True) to go on with it, or choose another directory." if is_run else "",
    )
