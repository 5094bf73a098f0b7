"""One writer at a time for a run directory; who only reads is never kept waiting."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock, Timeout

from cf2.errors import CF2Error, os_reason, require, require_file, require_number
from cf2.methods import registry
from cf2.methods.contract import Problem
from cf2.methods.trained import Trained, load_trained
from cf2.methods.trained import digest as weights_digest
from cf2.options import Key, Spec, titled
from cf2.results import files
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.session import GROUP, Chunk, Request, Session, complete
from cf2.runs.source import ModelAndData
from cf2.sets.tests import judge
from cf2.storage import (
    PARTIAL,
    ROOM,
    digest,
    digest_json,
    partial_path,
    publish,
    read_json,
    synchronise,
    write_bytes,
    write_json,
    write_with,
    writing,
)
from cf2.units.kinds import InstanceUnits

# -- lock ------------------------------------------------------------------------------------------------


LOCK = ".lock"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the one writer of the run at `path`, or say which process is.

    The system frees the lock of a process that has ended, however it did; the file stays, with the last owner's name.
    """
    file = path / LOCK
    require(file.is_file() or not file.exists(), f"Expected {file} to be the lock of a run", got="no regular file")
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise CF2Error(
            f"Expected to be the only one who writes to the run in {str(path)!r}",
            got=f"{_owner(file)}, which does so now",
            do="Wait until it has ended, or choose another directory.",
        ) from None
    except OSError as error:
        raise CF2Error(f"Expected to write {file}", got=os_reason(error), do=ROOM) from error
    try:
        with suppress(OSError):  # the name is for the message above alone
            file.write_text(f"{os.getpid()}\n{socket.gethostname()}\n", encoding="utf-8")
        _sweep(path)
        yield
    finally:
        lock.release()


def _owner(file: Path) -> str:
    try:
        pid, host = file.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return "another process"
    return f"process {pid}" + ("" if host == socket.gethostname() else f" on {host}")


def _sweep(path: Path) -> None:
    """Remove the half-written files of processes that have ended."""
    for partial in path.glob(f"{PARTIAL}*"):
        pid = partial.name.removeprefix(PARTIAL).partition("-")[0]
        if not (pid.isdecimal() and _alive(int(pid))):
            with suppress(OSError):  # a directory of that name is not ours
                partial.unlink()


def _alive(pid: int) -> bool:
    """Whether a process other than this one has that number; where one cannot ask, it may have."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return pid != os.getpid()


# -- manifest --------------------------------------------------------------------------------------------


log = logging.getLogger("cf2")

FORMAT = 2
MANIFEST = "manifest.json"
FIELDS: dict[str, type] = {
    "id": str,  # drawn anew for every run
    "created": str,
    "versions": dict,
    "source": dict,  # the description of model and data, by which they are found again
    "fingerprints": dict,  # of the data and the model that were explained
    "context": str,  # the digest of context.json
    "chunk_size": int,
    "keys": list,
    "jobs": list,  # a Spec each, in the order in which they were added
    "trained": dict,  # by job: the digest of what was trained for it
}
AGAIN = "Explain again into a new directory."


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest of the run at `path` at once; it holds a digest of itself."""
    write_json(path / MANIFEST, {**manifest, "digest": digest_json(manifest)})


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the run at `path`, if it is one of ours and as it was written."""
    file = path / MANIFEST
    manifest = read_json(file)
    is_ours = isinstance(manifest, dict) and manifest.get("format") == FORMAT and "jobs" in manifest
    require(
        is_ours,
        f"Expected {file} to have format {FORMAT}",
        got=manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__,
        do=f"It was made by another version of cf2. {AGAIN}",
    )
    require(
        "id" in manifest and "digest" in manifest,
        f"Expected {file} to say which run it is of, so that its shards can be told from others",
        got="none of that",
        do=f"It was made before version 0.2 was finished. {AGAIN}",
    )
    require(
        manifest.pop("digest") == digest_json(manifest),
        f"Expected {file} as it was written",
        got="one that was changed or damaged since",
        do=f"Put the old one back. If there is none: {AGAIN.lower()}",
    )
    wrong = _wrong_field(manifest)
    require(not wrong, f"Expected {file} to describe a run", got=f"another {wrong}", do=AGAIN)
    return dict(manifest)


def _wrong_field(manifest: Mapping[str, Any]) -> str:
    """The name of a field that is not what it should be, if there is one."""
    for name, kind in FIELDS.items():
        if not isinstance(manifest.get(name), kind):
            return f"`{name}`"
    keys, jobs = manifest["keys"], manifest["jobs"]
    if not keys or not all(_is_key(key) for key in keys) or len({files.as_key(key) for key in keys}) != len(keys):
        return "`keys`"
    if isinstance(manifest["chunk_size"], bool) or manifest["chunk_size"] < 1:
        return "`chunk_size`"
    if not jobs or not all(isinstance(job, dict) for job in jobs):
        return "`jobs`"
    names = [Spec.from_json(job).name for job in jobs]
    return "" if len(set(names)) == len(names) else "`jobs`"


def _is_key(key: Any) -> bool:
    numbers = key if isinstance(key, list) else [key]
    return bool(numbers) and all(type(number) is int for number in numbers)


def refuse_changes(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise an error that says what differs, if anything does."""
    before, now = dict(_flat(old)), dict(_flat(new))
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        says = "; ".join(
            f"{name} was {in_short(before.get(name))}, is {in_short(now.get(name))}" for name in changed[:5]
        )
        raise CF2Error(
            f"Expected the same choices as the run in {str(path)!r} was started with",
            got=f"others: {says}",
            do="Repeat the first command to resume, or choose another directory.",
        )


def warn_of_versions(manifest: Mapping[str, Any]) -> None:
    """Say in the log which libraries are not those that the run was started with."""
    before, now = manifest.get("versions", {}), versions()
    changed = [f"{name} {before.get(name)} → {now[name]}" for name in now if before.get(name) != now[name]]
    if changed:
        log.warning("The run was started with other versions (%s); its parts may differ.", ", ".join(changed))


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{name}.")
        else:
            yield prefix + name, item


def in_short(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, list) and len(value) > 6:
        return f"{len(value)} keys from {value[0]} to {value[-1]} ({digest(json.dumps(value).encode())})"
    return json.dumps(value, default=str)


def as_json(value: dict[str, Any]) -> dict[str, Any]:
    """As it will be when it is read back."""
    stored: dict[str, Any] = json.loads(json.dumps(value))
    return stored


def versions() -> dict[str, str]:
    """What made the results."""
    import numpy
    import torch
    import torch_geometric

    from cf2 import __version__

    names = {"cf2": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    return names | {"torch_geometric": torch_geometric.__version__, "numpy": numpy.__version__}


# -- shards ----------------------------------------------------------------------------------------------


SHARDS, ASIDE = "shards", "set-aside"
NAME = re.compile(r"(?P<job>.+)-(?P<number>\d{6,})\.(?P<digest>[0-9a-f]{16})\.parquet")
EVERY = 5.0  # seconds after which what is finished goes to the disk
MOST = 1024  # explanations that wait for that
GO_ON = "Make room; what is finished is kept, and --resume goes on with it."
DIFFERENT = {
    "run": "is of another run",
    "job": "is of another method or seed, and was renamed",
    "spec": "was made with other options",
    "data": "is about other data",
    "model": "is about another model",
    "trained": "was made with another trained explainer",
}


@dataclass(frozen=True)
class Shard:
    """A shard that is whole and says that it is of the job in question."""

    path: Path
    keys: tuple[Key, ...]

    def load(self) -> tuple[Explanation, ...]:
        """Its explanations, one for each of its keys."""
        found = files.load(self.path).items
        keys = tuple(e.key for e in found if not e.rank)
        require(keys == self.keys, f"Expected {self.path} to explain the keys that it names", got="others")
        return found


@dataclass(frozen=True)
class Refused:
    """A file among the shards that is not used, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path.name} {self.reason}"


@dataclass
class Survey:
    """What lies among the shards of a run: those of some jobs, by name, and what is refused."""

    shards: dict[str, list[Shard]] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)

    def keys(self, job: str) -> set[Key]:
        """The keys of a job that are finished."""
        return {key for shard in self.shards.get(job, ()) for key in shard.keys}


def identity(manifest: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    """What every shard of a job says of itself, beside its keys."""
    return {
        "run": manifest["id"],
        "job": spec.name,
        "spec": digest_json(spec.to_json()),
        "data": manifest["fingerprints"].get("data"),
        "model": manifest["fingerprints"].get("model"),
        "trained": manifest["trained"].get(spec.name),
    }


def write_shard(path: Path, number: int, about: Mapping[str, Any], found: Sequence[Explanation]) -> Path:
    """Keep explanations in the run at `path`; when this returns, they are on the disk."""
    stem = f"{about['job']}-{number:06d}"
    partial = partial_path(path / f"{stem}.parquet")
    try:
        with writing(path / SHARDS / f"{stem}.parquet", GO_ON):
            (path / SHARDS).mkdir(exist_ok=True)
            keys = [list(e.key) if isinstance(e.key, tuple) else e.key for e in found if not e.rank]
            files.write(Explanations(tuple(found), {"shard": {**about, "keys": keys}}), partial)
            synchronise(partial)
            final = path / SHARDS / f"{stem}.{_digest(partial)}.parquet"
            publish(partial, final)
    finally:
        partial.unlink(missing_ok=True)
    return final


def survey(path: Path, known: Sequence[str], wanted: Mapping[str, Mapping[str, Any]], asked: set[Key]) -> Survey:
    """Look at every file among the shards of the run at `path`.

    `known` are the names of all its jobs, `wanted` the identities of those whose shards are read, and `asked` the keys
    of the run. Where two shards hold the same key, the first one by name counts.
    """
    found = Survey()
    held: dict[str, dict[Key, Path]] = {job: {} for job in wanted}
    for file in _listed(path / SHARDS):
        name = NAME.fullmatch(file.name)
        if name is None or name["job"] not in known:
            found.refused.append(Refused(file, "is no shard of this run"))
            continue
        job = name["job"]
        if job not in wanted:
            continue
        try:
            shard = Shard(file, _keys(file, name["digest"], wanted[job], asked))
        except _NotOurs as error:
            found.refused.append(Refused(file, str(error)))
            continue
        twice = next((held[job][key] for key in shard.keys if key in held[job]), None)
        if twice is not None:
            found.refused.append(Refused(file, f"holds keys that {twice.name} holds as well"))
            continue
        found.shards.setdefault(job, []).append(shard)
        held[job] |= dict.fromkeys(shard.keys, file)
    return found


def next_number(path: Path, job: str) -> int:
    """The first number that no shard of a job has."""
    names = [NAME.fullmatch(file.name) for file in _listed(path / SHARDS)]
    return 1 + max((int(name["number"]) for name in names if name and name["job"] == job), default=-1)


class _NotOurs(Exception):
    """Why a file is not used."""


def _listed(place: Path) -> list[Path]:
    try:
        return sorted(place.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CF2Error(f"Expected {place} to be the directory of the shards", got=os_reason(error)) from error


def _keys(file: Path, digest: str, wanted: Mapping[str, Any], asked: set[Key]) -> tuple[Key, ...]:
    """The keys of a shard, if it is whole and of the job that is wanted."""
    try:
        require_file(file, "a shard", most=files.MAX_FILE_BYTES)  # a pipe is not opened: that would wait for ever
        if _digest(file) != digest:
            raise _NotOurs("is truncated, damaged or renamed")
        with files.open_parquet(file) as opened:
            footer = opened.metadata
        said = json.loads(footer.metadata[b"cf2"])["context"]["shard"]
        keys = tuple(files.as_key(key) for key in said["keys"])
    except CF2Error as error:
        raise _NotOurs(f"cannot be read: {error}".rstrip(".")) from error
    except OSError as error:
        raise _NotOurs(f"cannot be read ({os_reason(error)})") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _NotOurs("does not say which run it is of") from error
    for name, reason in DIFFERENT.items():
        if said.get(name) != wanted[name]:
            raise _NotOurs(reason)
    if footer.num_rows < len(keys) or len(set(keys)) != len(keys) or not asked.issuperset(keys):
        raise _NotOurs("holds other keys than the run asks for")
    return keys


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def set_aside(path: Path, refused: Sequence[Refused]) -> None:
    """Move what is refused out of the way, where nothing reads it and nothing is lost."""
    for one in refused:
        place = path / ASIDE
        with writing(place):
            place.mkdir(exist_ok=True)
            number = 0
            while (target := place / f"{one.path.name}{f'.{number}' if number else ''}").exists():
                number += 1
            os.rename(one.path, target)


class Writer:
    """Writes what is finished every few seconds, so that a kill loses little; the rest when it is left.

    What took long by itself does not wait for more.
    """

    def __init__(self, write: Callable[[list[Explanation]], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.write, self.clock = write, clock
        self.waiting: list[Explanation] = []
        self.last = clock()

    def add(self, found: Sequence[Explanation]) -> None:
        """Take explanations, and write if it is time."""
        self.waiting += found
        took = sum(e.seconds for e in found)
        if took >= EVERY or self.clock() - self.last >= EVERY or len(self.waiting) >= MOST:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        waiting, self.waiting = self.waiting, []
        if waiting:
            self.write(waiting)
        self.last = self.clock()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()


# -- start -----------------------------------------------------------------------------------------------


CONTEXT, TRAINED = "context.json", "trained-{job}.safetensors"


@dataclass
class Start:
    """What a call has made in a run directory; nothing of it stays if the call fails before anything is finished."""

    path: Path
    directories: list[Path] = field(default_factory=list)  # the outermost first
    fresh: bool = False  # whether the run itself is new
    jobs: set[str] = field(default_factory=set)

    def make_directory(self) -> None:
        """Make the directory of the run, and remember which ones were not there."""
        self.directories = [place for place in reversed([self.path, *self.path.parents]) if not place.exists()]
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    def take_back(self) -> None:
        """Leave the directory as it was found. What is in it beside a run's own files stays."""
        if self.fresh:
            for name in (MANIFEST, CONTEXT, LOCK, *(TRAINED.format(job=job) for job in self.jobs)):
                with suppress(OSError):
                    (self.path / name).unlink(missing_ok=True)
            with suppress(OSError):
                (self.path / SHARDS).rmdir()
        for place in reversed(self.directories):
            with suppress(OSError):
                place.rmdir()


def refuse_occupied(path: Path, resume: bool) -> None:
    """Refuse a directory that holds something, unless that is a run which is to be resumed."""
    require(not path.exists() or path.is_dir(), "Expected a directory for the run", got=f"the file {str(path)!r}")
    if not path.is_dir():
        return
    is_run = (path / MANIFEST).is_file()
    shards = path / SHARDS
    held = shards.is_dir() and next(shards.iterdir(), None) is not None
    require(
        is_run or not held,
        "Expected an empty or new directory for the run",
        got=f"{str(path)!r}, which holds shards of a run without its {MANIFEST}",
        do=f"Put the {MANIFEST} back, or choose another directory.",
    )
    # A run that was killed before its first manifest leaves these; they hold nothing that was computed.
    ours = {SHARDS, CONTEXT, LOCK}
    foreign = sorted(p.name for p in path.iterdir() if p.name not in ours and not p.name.startswith(PARTIAL))
    if not foreign:
        return
    require(
        is_run and resume,
        "Expected an empty or new directory for the run",
        got=f"{str(path)!r}, which holds {'a run' if is_run else foreign[0]}",
        do="Pass --resume (resume=True) to go on with it, or choose another directory." if is_run else "",
    )


# -- run -------------------------------------------------------------------------------------------------


OWN = ("method", "settings", "seed", "search", "sizes")  # what jobs of one run may differ in
OF_EDITS = ("edits", "candidates", "costs", "valid", "one_hot", "added_attributes")  # what only a counterfactual has

log = logging.getLogger("cf2")


class Finished(NamedTuple):
    """How many explanations by a method are there, of those that the run asks for."""

    method: str
    finished: int
    asked: int

    def __str__(self) -> str:
        return f"{self.finished:,} of {self.asked:,} by {self.method}"


@dataclass(eq=False)
class Run:
    """An open run directory. Everything it says is read from the disk; `source` is there once it has been given."""

    path: Path
    manifest: dict[str, Any]
    source: ModelAndData | None = field(default=None, repr=False)
    start: Start | None = field(default=None, repr=False)
    _locked: bool = field(default=False, repr=False)
    _left: dict[str, set[Key]] = field(default_factory=dict, repr=False)
    _told: set[Refused] = field(default_factory=set, repr=False)

    @property
    def keys(self) -> list[Key]:
        return [files.as_key(key) for key in self.manifest["keys"]]

    def context(self) -> dict[str, Any]:
        """What a reader needs beside the explanations."""
        file, do = self.path / CONTEXT, "--resume writes it again."
        require_file(file, f"{file} to say what the explanations are about", most=files.MAX_JSON_BYTES, do=do)
        content = file.read_bytes()
        same = digest(content) == self.manifest["context"]
        require(same, f"Expected {file} as the run wrote it", got="one that was changed or damaged since", do=do)
        found: dict[str, Any] = json.loads(content)
        return found

    def jobs(self) -> list[Spec]:
        """What is asked for: one Spec per method, seed and question, in the order in which they were added."""
        return [Spec.from_json(stored) for stored in self.manifest["jobs"]]

    def methods(self) -> list[str]:
        """The methods of the run, in the order in which they were added."""
        return list(dict.fromkeys(spec.method for spec in self.jobs()))

    def rows(self) -> dict[str, list[Spec]]:
        """The jobs by the row of a table that they are shown in: a method, and a question where the run asks several.

        Of several, `why` goes without saying.
        """
        jobs, found = self.jobs(), dict[str, list[Spec]]()
        several = len({spec.question for spec in jobs}) > 1
        for spec in jobs:
            found.setdefault(titled(spec.method, spec.question, several), []).append(spec)
        return found

    def job(self, method: str | None = None, seed: int | None = None, question: str | None = None) -> Spec:
        """The job of a method, seed and question; the first one of those that are not said."""
        for spec in self.jobs():
            same = method is None or (spec.method, spec.seed) == (method, seed)
            if same and question in (None, spec.question):
                return spec
        names = ", ".join(spec.name for spec in self.jobs())
        asked = f"{method!r} with seed {seed}" + (f" and question {question!r}" if question else "")
        raise CF2Error(f"Expected a method and seed of the run, {names}", got=asked)

    # -- writing --------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer of the run, on top of what others have written before."""
        if self._locked:
            yield
            return
        with locked(self.path):
            now = read_manifest(self.path)
            same = now["id"] == self.manifest["id"]
            require(same, f"Expected the run that was opened in {str(self.path)!r}", got="another one, begun since")
            self.manifest, self._locked = now, True
            self._left.clear()
            try:
                yield
            finally:
                self._locked = False

    @contextmanager
    def started(self, spec: Spec) -> Iterator[None]:
        """Work on a job as the only writer; if that fails with nothing finished, what its start made is taken back."""
        with self.writing():
            try:
                yield
            except Exception:
                if self.start is not None and not self._survey([spec]).keys(spec.name):
                    self._forget(spec, self.start)
                raise

    def _forget(self, spec: Spec, start: Start) -> None:
        jobs = [job for job in self.manifest["jobs"] if Spec.from_json(job).name != spec.name]
        if start.fresh and not jobs:
            start.take_back()
        elif spec.name in start.jobs and jobs:
            trained = {job: made for job, made in self.manifest["trained"].items() if job != spec.name}
            self.update(jobs=jobs, trained=trained)
            (self.path / TRAINED.format(job=spec.name)).unlink(missing_ok=True)

    def update(self, **changes: Any) -> None:
        """Change what the manifest says."""
        self.manifest = as_json({**self.manifest, **changes})
        write_manifest(self.path, self.manifest)

    def add(self, spec: Spec) -> Spec:
        """Have the run hold another method or seed; one that is there already must be the same."""
        with self.writing():
            for known in self.jobs():
                same = known.name == spec.name
                before, now = known.to_json(), as_json(spec.to_json())
                own = () if same else OWN if known.question == spec.question else (*OWN, "question", *OF_EDITS)
                refuse_changes(self.path, _without(before, own), _without(now, own))
                if same:
                    return known
            self.update(jobs=[*self.manifest["jobs"], spec.to_json()])
            if self.start is not None:
                self.start.jobs.add(spec.name)
        return spec

    def request(self, spec: Spec) -> Request:
        """What a job does; what its method needs is made if it is not there, and what was trained is kept."""
        require(self.source is not None, "Expected the model and data of the run", got="none")
        assert self.source is not None
        needs = registry.get(spec.method).needs
        given = self._trained(spec) if needs == "training" else self.source.needed(spec, self.keys)
        return self.source.request(self.keys, spec, given)

    def _trained(self, spec: Spec) -> Trained:
        """What was trained for a job: from its file, if that is the one that the manifest knows, or trained now."""
        assert self.source is not None
        file, known = self.path / TRAINED.format(job=spec.name), self.manifest["trained"].get(spec.name)
        if known is not None:
            try:
                stored = load_trained(file)
                if weights_digest(stored.tensors) == known:
                    return stored
                why: object = "It is another one."
            except CF2Error as error:
                why = error
            log.warning("%s is not what the run has trained, and is trained again. %s", file, why)
        trained: Trained = self.source.needed(spec, self.keys)
        made = weights_digest(trained.tensors)
        require(
            made == known or len(self._missing(spec)) == len(self.manifest["keys"]),
            f"Expected the explainer that {file} held, which the finished explanations were made with",
            got="another one by training again",
            do="Put the old file back, or choose another directory.",
        )
        with self.writing():
            write_with(file, trained.save)
            self.update(trained={**self.manifest["trained"], spec.name: made})
        return trained

    def write(self, spec: Spec, number: int, found: Sequence[Explanation]) -> Path:
        """Keep explanations of a job in a shard of that number; they are on the disk when this returns."""
        require(len(found) > 0, f"Expected explanations for shard {number}", got="none")
        keys, made = [e.key for e in found if not e.rank], {(e.method, e.seed, e.question) for e in found}
        require(made == {(spec.method, spec.seed, spec.question)}, f"Expected explanations by {spec.name}", got=made)
        with self.writing():
            missing = self._missing(spec)
            good = len(set(keys)) == len(keys) and missing.issuperset(keys)
            require(good, f"Expected keys of {spec.name} that are not finished, each once", got=in_short(keys))
            path = write_shard(self.path, number, identity(self.manifest, spec), found)
            missing.difference_update(keys)
        return path

    def _missing(self, spec: Spec) -> set[Key]:
        """The keys that a job has no shard for; looked up once for as long as nobody else can write."""
        if spec.name not in self._left:
            self._left[spec.name] = set(self.keys) - self._survey([spec]).keys(spec.name)
        return self._left[spec.name]

    def writer(self, spec: Spec) -> Writer:
        """What takes the explanations of a job as they come and writes a shard every few seconds."""
        numbers = count(next_number(self.path, spec.name))
        return Writer(lambda found: self.write(spec, next(numbers), found))

    # -- reading --------------------------------------------------------------------------------------------

    def _survey(self, specs: Sequence[Spec]) -> Survey:
        """The shards of some jobs; what is refused is named in the log."""
        wanted = {spec.name: identity(self.manifest, spec) for spec in specs}
        found = survey(self.path, [spec.name for spec in self.jobs()], wanted, set(self.keys))
        for refused in found.refused:
            self._warn(refused, f"it is set aside in {ASIDE}" if self._locked else "it is not used")
        if self._locked:
            set_aside(self.path, found.refused)
        return found

    def _warn(self, refused: Refused, what: str) -> None:
        if refused not in self._told:  # once is enough
            log.warning("Shard %s: %s.", refused, what)
        self._told.add(refused)

    def chunks(self) -> list[Chunk]:
        """The keys in the chunks that they are always packed in, whatever runs them."""
        keys, size = self.keys, int(self.manifest["chunk_size"])
        return [Chunk(number, keys[at : at + size]) for number, at in enumerate(range(0, len(keys), size))]

    def pending(self, spec: Spec) -> list[Chunk]:
        """The chunks that are not finished, each with those of its keys that are."""
        if not self._locked:
            self._left.pop(spec.name, None)
        missing = self._missing(spec)
        chunks = (chunk._replace(done=frozenset(set(chunk.keys) - missing)) for chunk in self.chunks())
        return [chunk for chunk in chunks if len(chunk.done) < len(chunk.keys)]

    def look(self) -> Survey:
        """The shards of all jobs, and what is refused among them."""
        return self._survey(self.jobs())

    def finished(self) -> list[Finished]:
        """How much of what the run asks for is there, by row."""
        there = self.look()
        counts = {row: [len(there.keys(spec.name)) for spec in jobs] for row, jobs in self.rows().items()}
        total = len(self.manifest["keys"])
        return [Finished(row, sum(done), total * len(done)) for row, done in counts.items()]

    def explanations(
        self, method: str | None = None, seed: int | None = None, question: str | None = None
    ) -> Explanations:
        """What is finished, in the order of the keys: of all jobs, of a method's, of one seed's or one question's.

        Its context says how many are `finished` and how many the run asks for (`asked`), and, where that is not the
        same, a sentence about it (`partial`).
        """
        wanted = [s for s in self.jobs() if method is None or (s.method == method and seed in (None, s.seed))]
        wanted = [s for s in wanted if question in (None, s.question)]
        if not wanted:
            self.job(method, seed, question)
        there, keys = self._survey(wanted), self.keys
        items: list[Explanation] = []
        for spec in wanted:
            by_key: dict[Key, list[Explanation]] = {}
            for shard in there.shards.get(spec.name, ()):
                for e in self.loaded(shard):
                    by_key.setdefault(e.key, []).append(e)
            items += [e for key in keys for e in by_key.get(key, ())]
        done = sum(not e.rank for e in items)
        shown = [row for row, jobs in self.rows().items() if any(spec in wanted for spec in jobs)]
        told = Finished(", ".join(shown), done, len(keys) * len(wanted))
        context = self.context() | {"method": told.method, "spec": wanted[0].to_json()}
        if said := partial_sentence([told]):
            context["partial"] = said
        return Explanations(tuple(items), context | {"finished": told.finished, "asked": told.asked})

    def loaded(self, shard: Shard) -> tuple[Explanation, ...]:
        """The explanations of a shard; none, and a word in the log, if they cannot be read."""
        try:
            return shard.load()
        except CF2Error as error:
            self._warn(Refused(shard.path, f"cannot be read: {error}".rstrip(".")), "it is not used")
            return ()


def partial_sentence(told: Sequence[Finished]) -> str:
    """What to say of a run that is not finished; nothing if it is."""
    left = [str(one) for one in told if one.finished < one.asked]
    rest = "The command that made the run does the rest with --resume."
    return f"Not all is finished: {', '.join(left)}. {rest}" if left else ""


def _without(spec: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in names}


# -- directory -------------------------------------------------------------------------------------------


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


# -- check -----------------------------------------------------------------------------------------------


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
