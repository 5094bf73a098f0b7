"""A run directory: manifest, finished shards, resume.

    manifest.json          what is explained and how: model and data, keys, and one Spec per job
    context.json           what a reader needs beside the explanations: class names, truth, elements
    shards/JOB-CHUNK.DIGEST.parquet

A shard appears under its name only when every byte of it is on the disk, and its name holds the digest of
those bytes. So a run can be killed at any moment: what is there is whole, what is not is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cf2.errors import CF2Error, require, require_number
from cf2.methods.trained import Trained, load_trained
from cf2.results import files
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.manifest import as_json, in_short, refuse_changes, versions, warn_of_versions
from cf2.runs.model_and_data import ModelAndData
from cf2.runs.session import GROUP, Chunk, Request, complete
from cf2.runs.whole_files import PARTIAL, SHARDS, intact, read_json, write_json, write_shard, write_with, writing
from cf2.spec import Key, Spec

FORMAT = 2
CHUNK_SIZE = GROUP
MANIFEST, CONTEXT = "manifest.json", "context.json"
OWN = ("method", "settings", "seed", "search")  # what jobs of one run may differ in


@dataclass(eq=False)
class Run:
    """An open run directory. Everything it says is read from the disk; `source` is there once it has been given."""

    path: Path
    manifest: dict[str, Any]
    source: ModelAndData | None = field(default=None, repr=False)
    _known: dict[str, dict[int, list[Path]]] = field(default_factory=dict, repr=False)

    @property
    def keys(self) -> list[Key]:
        return [files.as_key(key) for key in self.manifest["keys"]]

    def context(self) -> dict[str, Any]:
        """What a reader needs beside the explanations."""
        found: dict[str, Any] = read_json(self.path / CONTEXT)
        return found

    def jobs(self) -> list[Spec]:
        """What is asked for: one Spec per method and seed, in the order in which they were added."""
        return [Spec.from_json(stored) for stored in self.manifest["jobs"]]

    def methods(self) -> list[str]:
        """The methods of the run, in the order in which they were added."""
        return list(dict.fromkeys(spec.method for spec in self.jobs()))

    def job(self, method: str | None = None, seed: int | None = None) -> Spec:
        """The job of a method and seed; without a method, the first one."""
        for spec in self.jobs():
            if method is None or (spec.method, spec.seed) == (method, seed):
                return spec
        names = ", ".join(spec.name for spec in self.jobs())
        raise CF2Error(f"Expected a method and seed of the run, {names}", got=f"{method!r} with seed {seed}")

    def add(self, spec: Spec) -> Spec:
        """Have the run hold another method or seed; one that is there already must be the same."""
        for known in self.jobs():
            same = known.name == spec.name
            before, now = known.to_json(), as_json(spec.to_json())
            refuse_changes(self.path, _shared(before, same), _shared(now, same))
            if same:
                return known
        self.manifest = {**self.manifest, "jobs": [*self.manifest["jobs"], as_json(spec.to_json())]}
        write_json(self.path / MANIFEST, self.manifest)
        return spec

    def request(self, spec: Spec) -> Request:
        """What a job does; what its method needs is made if it is not there, and what was trained is kept."""
        require(self.source is not None, "Expected the model and data of the run", got="none")
        assert self.source is not None
        path = self.path / f"trained-{spec.name}.safetensors"
        trained: Any = load_trained(path) if path.is_file() else self.source.needed(spec, self.keys)
        if isinstance(trained, Trained) and not path.is_file():
            write_with(path, trained.save)
        return self.source.request(self.keys, spec, trained)

    # -- shards ---------------------------------------------------------------------------------------------

    def chunks(self) -> list[Chunk]:
        """The keys in the chunks that they are always explained in, whatever runs them."""
        keys, size = self.keys, int(self.manifest["chunk_size"])
        return [Chunk(number, keys[at : at + size]) for number, at in enumerate(range(0, len(keys), size))]

    def pending(self, spec: Spec) -> list[Chunk]:
        """The chunks that have no intact shard yet."""
        there = self._known[spec.name] = self._shards(spec)
        return [chunk for chunk in self.chunks() if not any(map(intact, there.get(chunk.number, ())))]

    def write(self, spec: Spec, number: int, found: Sequence[Explanation]) -> Path:
        """Keep the explanations of one chunk of a job; they are on the disk when this returns."""
        require(len(found) > 0, f"Expected explanations for chunk {number}", got="none")
        size, made = int(self.manifest["chunk_size"]), {(e.method, e.seed) for e in found}
        expected = [files.as_key(key) for key in self.manifest["keys"][number * size : (number + 1) * size]]
        keys = [e.key for e in found]
        require(keys == expected, f"Expected chunk {number} to explain {in_short(expected)}", got=in_short(keys))
        require(made == {(spec.method, spec.seed)}, f"Expected explanations by {spec.name}", got=made)
        path = write_shard(self.path, f"{spec.name}-{number:06d}", Explanations(tuple(found)))
        known = self._known.setdefault(spec.name, {})
        for shard in known.get(number, []):
            if shard != path:
                shard.unlink(missing_ok=True)
        known[number] = [path]
        return path

    def explanations(self, method: str | None = None, seed: int | None = None) -> Explanations:
        """What is finished, in the order of the keys: of all jobs, of a method's, or of one seed's."""
        wanted = [s for s in self.jobs() if method is None or (s.method == method and seed in (None, s.seed))]
        if not wanted:
            self.job(method, seed)
        items: list[Explanation] = []
        for spec in wanted:
            shards = self._shards(spec)
            for number in sorted(shards):
                whole = next((path for path in shards[number] if intact(path)), None)
                items += () if whole is None else files.load(whole).items
        context = self.context() | {"method": method or ", ".join(self.methods()), "spec": wanted[0].to_json()}
        return Explanations(tuple(items), context)

    def _shards(self, spec: Spec) -> dict[int, list[Path]]:
        """The files that claim to be shards of a job, by chunk."""
        found: dict[int, list[Path]] = {}
        for path in sorted((self.path / SHARDS).glob(f"{spec.name}-*.*.parquet")):
            number = path.name.removeprefix(f"{spec.name}-").partition(".")[0]
            if number.isdigit():
                found.setdefault(int(number), []).append(path)
        return found


def _shared(spec: dict[str, Any], same_job: bool) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if same_job or name not in OWN}


def create_run(
    path: str | Path,
    source: ModelAndData,
    spec: Spec,
    *,
    keys: Sequence[Key] | None = None,
    chunk_size: int = CHUNK_SIZE,
    resume: bool = False,
) -> Run:
    """Make a run directory with one job, or, with `resume`, go on with the one that is there."""
    path = Path(path)
    require_number("chunk_size", chunk_size, 1, integer=True)
    spec = complete(spec)
    keys = source.keys(spec) if keys is None else source.targets(spec).check(keys)
    require(len(keys) > 0, "Expected at least one key to explain", got="none")
    require(len(set(keys)) == len(keys), "Expected every key once", got="a key that comes twice")
    plan = as_json({"source": dict(source.description), "chunk_size": chunk_size, "keys": list(keys)})
    _refuse_occupied(path, resume)
    if (path / MANIFEST).exists():
        run = open_run(path)
        refuse_changes(path, _without_root({name: run.manifest[name] for name in plan}), _without_root(plan))
        warn_of_versions(run.manifest)
        run.source = source
    else:
        run = _begin(path, plan, source)
    run.add(spec)
    return run


def _begin(path: Path, plan: dict[str, Any], source: ModelAndData) -> Run:
    """A directory with everything but a manifest, which comes with the first job."""
    about = {"format": FORMAT, "created": datetime.now(UTC).isoformat(timespec="seconds")}
    with writing(path):
        (path / SHARDS).mkdir(parents=True, exist_ok=True)
    write_json(path / CONTEXT, source.context(plan["keys"]))
    return Run(path, as_json({**about, "versions": versions(), **plan, "jobs": []}), source)


def _without_root(plan: dict[str, Any]) -> dict[str, Any]:
    """Where the raw data lies is kept, and may be another place when the run goes on."""
    return {**plan, "source": {name: value for name, value in plan["source"].items() if name != "root"}}


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
        do="It was made by another version of cf2: explain again into a new directory.",
    )
    return Run(path, manifest)


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
