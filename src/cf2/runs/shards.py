"""Shards: files of finished explanations that say whose they are, and are refused where they say something else.

A shard is named JOB-NUMBER.DIGEST.parquet. The digest is of its bytes; inside, under `shard` in its context, stand the
run, the job with a digest of its Spec, the fingerprints of data and model, and its keys.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from cf2.core.whole_files import digest_json, partial_path, publish, synchronise, writing
from cf2.errors import CF2Error, os_reason, require, require_file
from cf2.results import files
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.results.limits import MOST_FILE, check_size
from cf2.spec import Key, Spec

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
    import pyarrow.parquet as pq

    try:
        require_file(file, "a shard", most=MOST_FILE)  # a pipe is not opened: that would wait for ever
        if _digest(file) != digest:
            raise _NotOurs("is truncated, damaged or renamed")
        check_size(file)  # before a library reads it that would believe it
        footer = pq.read_metadata(file)
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
