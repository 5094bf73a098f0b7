"""A run on disk: a directory with a manifest, shards of explanations, a context and a lock.

`Store` is the whole of it: how a run is begun and resumed, written by one process at a time, read by any number,
and checked. A shard appears whole, carries the identity of its run and its job, and has the digest of its bytes in its
name; a file that is not what it should be is named and never used.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock, Timeout

from cf2 import storage
from cf2.errors import CF2Error, os_reason, require, require_file, require_number, require_path
from cf2.methods import registry
from cf2.methods.trained import Trained, load_trained
from cf2.methods.trained import digest as weights_digest
from cf2.options import Key, Spec, as_json, titled
from cf2.results import files
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations, by_key, in_order
from cf2.runs.check import Check, check
from cf2.runs.session import KEYS_AT_ONCE, Chunk, Request, Session, complete
from cf2.runs.source import ModelAndData
from cf2.storage import MAKE_ROOM, PARTIAL, fingerprint, writing
from cf2.units.kinds import InstanceUnits

FORMAT = 2
MANIFEST, CONTEXT, SHARDS, LOCK, SET_ASIDE = "manifest.json", "context.json", "shards", ".lock", "set-aside"
TRAINED = "trained-{job}.safetensors"
SHARD_NAME = re.compile(r"(?P<job>.+)-(?P<number>\d{6,})\.(?P<digest>[0-9a-f]{16})\.parquet")
# What only the writer of a run writes: not the report that another command may be writing here.
OWN_PARTIAL = re.compile(rf"{PARTIAL}\d+-(manifest\.json|context\.json|trained-.+\.safetensors|.+-\d{{6,}}\.parquet)")
digest_of = partial(fingerprint, digits=16)  # of whatever a run directory holds
CHUNK_SIZE = KEYS_AT_ONCE
SECONDS_PER_SHARD = 5.0  # after which what is finished goes to the disk
MAX_WAITING = 1024  # explanations that wait for that
CHECKED_SHARDS, CHECKED_KEYS = 3, 4  # of a job that is resumed: so many shards, and keys of each, are judged again
SAME_PROBABILITY = 1e-4  # two probabilities closer than this are one, summed in another order
SETS_PER_CLAIM = 256  # that are tried where a claim speaks of all: each is a run on the whole graph

JOB_OPTIONS = ("method", "settings", "seed", "search", "sizes")  # what jobs of one run may differ in
# Options of a counterfactual alone.
EDIT_OPTIONS = ("edits", "candidates", "costs", "valid", "charges", "one_hot", "added_attributes")

PLAIN_TYPES = (str, int, float, type(None))  # what the manifest says about models, data and versions by name
REFUSALS = {  # by the part of a shard's identity that differs
    "run": "is of another run",
    "job": "is of another method or seed, and was renamed",
    "spec": "was made with other options",
    "data": "is about other data",
    "model": "is about another model",
    "trained": "was made with another trained explainer",
}
EXPLAIN_TYPES_AGAIN = "Explain again into a new directory."
LIST_RUNS = "`cf2 runs` lists all runs."

log = logging.getLogger("cf2")


class Finished(NamedTuple):
    """How many explanations by a method are there, of those that the run asks for."""

    method: str
    finished: int
    asked: int

    def __str__(self) -> str:
        return f"{self.finished:,} of {self.asked:,} by {self.method}"


class Survey(NamedTuple):
    """What lies among the shards of a run."""

    shard_of: dict[str, dict[Key, Path]]  # by job: the shard of every key that is finished
    refused: dict[Path, str]  # the files that are not used, and why

    def shards(self, job: str) -> dict[Path, list[Key]]:
        """The shards of a job, with their keys."""
        shards: dict[Path, list[Key]] = {}
        for key, file in self.shard_of[job].items():
            shards.setdefault(file, []).append(key)
        return shards


@dataclass(eq=False)
class Store:
    """An open run directory. Everything it says is read from the disk; `source` is there once it has been given."""

    path: Path
    manifest: dict[str, Any]
    source: ModelAndData | None = field(default=None, repr=False)
    # Takes back what this object has made in the directory, if the work fails before anything is finished.
    _undo: ExitStack = field(default_factory=ExitStack, repr=False)
    _is_locked: bool = field(default=False, repr=False)
    _unfinished: dict[str, set[Key]] = field(default_factory=dict, repr=False)  # by job, for as long as it is locked
    _named: dict[Path, str] = field(default_factory=dict, repr=False)  # in the log: files that are not used, and why

    # -- beginning, resuming, opening -----------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | Path,
        source: ModelAndData,
        spec: Spec,
        *,
        keys: Sequence[Key] | None = None,
        chunk_size: int = CHUNK_SIZE,
        resume: bool = False,
    ) -> Store:
        """Make a run in a new or empty directory, or, with `resume`, add a job to that of the same choices there.

        Without `keys`, those of the source are explained. `chunk_size` keys are packed and given to a worker together.
        """
        store = cls(require_path(path, "a directory for the run"), {}, source)
        require_number("chunk_size", chunk_size, 1, integer=True)
        spec = complete(source.settled(spec))
        keys = source.keys(spec) if keys is None else source.targets(spec).check(keys)
        require(len(keys) > 0, "Expected at least one key to explain", got="none")
        require(len(set(keys)) == len(keys), "Expected every key once", got="a key that comes twice")
        plan = {"source": dict(source.description), "fingerprints": source.fingerprints()}
        plan = as_json({**plan, "chunk_size": chunk_size, "keys": list(keys)})
        store._refuse_occupied(resume)
        try:
            store._make_directory(store.path)
            with store.locked():
                store._refuse_occupied(resume)  # nobody else has begun one meanwhile
                if (store.path / MANIFEST).exists():
                    store._resume(plan)
                else:
                    store._begin(plan, spec)
                store.add(spec)
        except Exception:
            store._undo.close()
            raise
        return store

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open the run in a directory, finished or not."""
        path = require_path(path, "a run")
        what = "is a file" if path.is_file() else "is not there"
        require(path.is_dir(), "Expected the directory of a run", got=f"{str(path)!r}, which {what}", do=LIST_RUNS)
        inside = next((place for place in sorted(path.iterdir()) if (place / MANIFEST).is_file()), None)
        require(
            (path / MANIFEST).is_file(),
            f"Expected {str(path)!r} to be the directory of a run",
            got=f"one without a {MANIFEST}",
            do="Make one with: cf2 explain … --out DIR" if not inside else f"There is one in it: {inside}. {LIST_RUNS}",
        )
        _refuse_links(path)
        return cls(path, _read_manifest(path / MANIFEST))

    def _refuse_occupied(self, resume: bool) -> None:
        """Refuse a directory that holds something, unless that is a run which is to be resumed."""
        path, shards = self.path, self.path / SHARDS
        require(not path.exists() or path.is_dir(), "Expected a directory for the run", got=f"the file {str(path)!r}")
        if not path.is_dir():
            return
        _refuse_links(path)
        is_run = (path / MANIFEST).is_file()
        require(
            is_run or not (shards.is_dir() and any(shards.iterdir())),
            "Expected an empty or new directory for the run",
            got=f"{str(path)!r}, which holds shards of a run without its {MANIFEST}",
            do=f"Put the {MANIFEST} back, or choose another directory.",
        )
        # A run that was killed before its first manifest leaves these; they hold nothing that was computed.
        ours = {SHARDS, CONTEXT, LOCK}
        foreign = sorted(p.name for p in path.iterdir() if p.name not in ours and not p.name.startswith(PARTIAL))
        require(
            not foreign or (is_run and resume),
            "Expected an empty or new directory for the run",
            got=f"{str(path)!r}, which holds {'a run' if is_run else foreign[0] if foreign else ''}",
            do="Pass --resume (resume=True) to continue it, or choose another directory." if is_run else "",
        )

    def _begin(self, plan: dict[str, Any], spec: Spec) -> None:
        """Write a new run of one job; its manifest comes last."""
        for name in (LOCK, CONTEXT, MANIFEST):
            self._undo.callback(_remove, self.path / name)
        self._make_directory(self.path / SHARDS)
        context = self._write_context(plan["keys"], [spec])
        created = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"format": FORMAT, "id": uuid.uuid4().hex, "created": created, "versions": versions()}
        self.update(**about, **plan, context=context, jobs=[spec.to_json()], trained={})

    def _resume(self, plan: dict[str, Any]) -> None:
        """Go on with the run that is there, if it was started with the same choices; a damaged context is mended."""
        self.manifest = _read_manifest(self.path / MANIFEST)
        self._refuse_changes(_without_root({name: self.manifest[name] for name in plan}), _without_root(plan))
        before, now = self.manifest["versions"], versions()
        changed = [f"{name} {before.get(name)} → {now[name]}" for name in now if before.get(name) != now[name]]
        if changed:
            log.warning("The run was started with other versions (%s); its parts may differ.", ", ".join(changed))
        try:
            self.context()
        except (CF2Error, OSError) as error:
            log.warning("%s It is written again.", error)
            self.update(context=self._write_context(plan["keys"], self.jobs()))
        self._refuse_other_answers()

    def _refuse_other_answers(self) -> None:
        """Refuse a model that says something else of finished keys: its code may be another where its weights are not.

        A few explanations of a few shards of every job are judged again.
        """
        survey = self.survey()
        for spec in self.jobs():
            shards = list(survey.shards(spec.name).items())
            some = shards[:: max(1, len(shards) // CHECKED_SHARDS)][:CHECKED_SHARDS]
            loaded = [[e for e in self._load(*shard) if not e.rank and e.status != "refused"] for shard in some]
            stored = [e for part in loaded for e in part[:: max(1, len(part) // CHECKED_KEYS)][:CHECKED_KEYS]]
            other = next(_differences(self._model_and_data, spec, stored, again=True), None) if stored else None
            require(
                other is None,
                f"Expected the model of the run in {str(self.path)!r}",
                got=f"one with other outputs ({other})",
                do="The code of the model or data has changed: restore it, or choose another directory.",
            )

    def _write_context(self, keys: Sequence[Any], jobs: Iterable[Spec]) -> str:
        """Write what a reader needs beside the explanations; returns its digest."""
        some_without_edges = any("edges" not in spec.units for spec in jobs)
        context = self._model_and_data.context([files.as_key(key) for key in keys], edges=some_without_edges)
        content = (json.dumps(context) + "\n").encode()
        storage.write_bytes(self.path / CONTEXT, content)
        return digest_of(content)

    def _refuse_changes(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Raise an error that says what differs, if anything does."""
        before, now = dict(_flat(old)), dict(_flat(new))
        changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        listed = [f"{name} was {_shortened(before.get(name))}, is {_shortened(now.get(name))}" for name in changed[:5]]
        require(
            not changed,
            f"Expected the same options as in the run {str(self.path)!r}",
            got=f"changes: {'; '.join(listed)}",
            do="Repeat the first command to resume, or choose another directory.",
        )

    def _make_directory(self, path: Path) -> None:
        """Make a directory and those above it."""
        for place in reversed([path, *path.parents]):
            if not place.exists():
                self._undo.callback(_remove, place)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)

    # -- one writer -----------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only writer of the run, on top of what others have written before; readers never wait for this.

        The system frees the lock of a process that has ended, however it did; the file stays, with the owner's name.
        """
        if self._is_locked:
            yield
            return
        file = self.path / LOCK
        require(file.is_file() or not file.exists(), f"Expected {file} to be the lock of a run", got="no regular file")
        name = _name(file)
        try:
            lock = FileLock(file, timeout=0).acquire()
        except Timeout:
            with suppress(OSError):  # releases of filelock before 4 have emptied the file of the other writer
                file.write_text(name, encoding="utf-8")
            raise CF2Error(
                f"Expected no other writer to the run in {str(self.path)!r}",
                got=_owner(name),
                do="Wait for it to end, or choose another directory.",
            ) from None
        except OSError as error:
            raise CF2Error(f"Expected to write {file}", got=os_reason(error), do=MAKE_ROOM) from error
        with lock:
            with suppress(OSError):  # the name is for the message above alone
                file.write_text(f"{os.getpid()}\n{socket.gethostname()}\n", encoding="utf-8")
            for leftover in self.path.iterdir():  # what writers that ended left half-written
                if OWN_PARTIAL.fullmatch(leftover.name) and not leftover.is_dir():
                    leftover.unlink(missing_ok=True)
            self._unfinished.clear()
            # Another process may have added a job, or begun another run here, since this manifest was read.
            if self.manifest:
                same = (now := _read_manifest(self.path / MANIFEST))["id"] == self.manifest["id"]
                require(same, f"Expected the run that was opened in {str(self.path)!r}", got="a newer one")
                self.manifest = now
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    @contextmanager
    def started(self, spec: Spec) -> Iterator[None]:
        """Work on a job as the only writer; if that fails with nothing finished, what its start made is taken back."""
        with self.locked():
            try:
                yield
            except Exception:
                if not self.survey([spec]).shard_of[spec.name]:
                    self._undo.close()
                raise
            finally:
                self._undo.pop_all()

    def update(self, **changes: Any) -> None:
        """Change what the manifest says, at once; it holds a digest of itself."""
        self.manifest = as_json({**self.manifest, **changes})
        storage.write_json(self.path / MANIFEST, {**self.manifest, "digest": digest_of(self.manifest)})

    def add(self, spec: Spec) -> Spec:
        """Have the run hold another method or seed; one that is there already must be the same."""
        with self.locked():
            now = as_json(spec.to_json())
            for job in self.jobs():
                free: tuple[str, ...] = () if job.name == spec.name else JOB_OPTIONS
                if job.question != spec.question:
                    free = (*JOB_OPTIONS, "question", *EDIT_OPTIONS)
                before = job.to_json()
                self._refuse_changes(*({name: s[name] for name in s if name not in free} for s in (before, now)))
                if job.name == spec.name:
                    return job
            self._undo.callback(self.update, jobs=self.manifest["jobs"])
            self.update(jobs=[*self.manifest["jobs"], now])
        return spec

    # -- what is asked for ----------------------------------------------------------------------------------

    @property
    def keys(self) -> list[Key]:
        return [files.as_key(key) for key in self.manifest["keys"]]

    def context(self) -> dict[str, Any]:
        """What a reader needs beside the explanations."""
        file, do = self.path / CONTEXT, "--resume writes it again."
        require_file(file, f"{file} to say what the explanations are about", most=storage.MAX_JSON_BYTES, do=do)
        content = file.read_bytes()
        same = digest_of(content) == self.manifest["context"]
        require(same, f"Expected {file} as the run wrote it", got="one that was changed or damaged since", do=do)
        return files.checked_context(json.loads(content), file)

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
        jobs, rows = self.jobs(), dict[str, list[Spec]]()
        several = len({spec.question for spec in jobs}) > 1
        for spec in jobs:
            rows.setdefault(titled(spec.method, spec.question, several), []).append(spec)
        return rows

    def job(self, method: str, seed: int | None = None, question: str | None = None) -> Spec:
        """The job of a method and seed, and of a question or the first one."""
        for spec in self.jobs():
            if (spec.method, spec.seed) == (method, seed) and question in (None, spec.question):
                return spec
        names = ", ".join(spec.name for spec in self.jobs())
        asked = f"{method!r} with seed {seed}" + (f" and question {question!r}" if question else "")
        raise CF2Error(f"Expected a method and seed of the run, {names}", got=asked)

    def request(self, spec: Spec) -> Request:
        """What a job does; what its method needs is made if it is not there, and what was trained is kept."""
        needs = registry.get(spec.method).needs
        given = self._trained(spec) if needs == "training" else self._model_and_data.needed(spec, self.keys)
        return self._model_and_data.request(self.keys, spec, given)

    @property
    def _model_and_data(self) -> ModelAndData:
        if self.source is None:
            raise CF2Error("Expected the model and data of the run", got="none")
        return self.source

    def _trained(self, spec: Spec) -> Trained:
        """What was trained for a job: from its file, if that is the one that the manifest knows, or trained now."""
        file, expected = self.path / TRAINED.format(job=spec.name), self.manifest["trained"].get(spec.name)
        if expected is not None:
            try:
                stored = load_trained(file)
                if weights_digest(stored.tensors) == expected:
                    return stored
                why: object = "Its weights differ."
            except CF2Error as error:
                why = error
            log.warning("%s differs from what the run trained, so it is trained again. %s", file, why)
        trained: Trained = self._model_and_data.needed(spec, self.keys)
        digest = weights_digest(trained.tensors)
        require(
            digest == expected or len(self._missing(spec)) == len(self.manifest["keys"]),
            f"Expected the explainer of the finished explanations, from {file}",
            got="another one from training",
            do="Restore the file, or choose another directory.",
        )
        with self.locked():
            self._undo.callback(self.update, trained=self.manifest["trained"])
            self._undo.callback(_remove, file)
            storage.write_with(file, trained.save)
            self.update(trained={**self.manifest["trained"], spec.name: digest})
        return trained

    def pending(self, spec: Spec) -> list[Chunk]:
        """The chunks that are not finished, each with those of its keys that are.

        Keys are always packed in the same chunks, whatever runs them and whatever is finished.
        """
        keys, size, missing = self.keys, int(self.manifest["chunk_size"]), self._missing(spec)
        parts = [keys[start : start + size] for start in range(0, len(keys), size)]
        chunks = (Chunk(number, part, frozenset(part) - missing) for number, part in enumerate(parts))
        return [chunk for chunk in chunks if len(chunk.done) < len(chunk.keys)]

    def _missing(self, spec: Spec) -> set[Key]:
        """The keys that a job has no shard for; looked up once for as long as nobody else can write."""
        if not self._is_locked or spec.name not in self._unfinished:
            self._unfinished[spec.name] = set(self.keys) - self.survey([spec]).shard_of[spec.name].keys()
        return self._unfinished[spec.name]

    # -- writing shards -------------------------------------------------------------------------------------

    @contextmanager
    def writer(self, spec: Spec) -> Iterator[Callable[[Sequence[Explanation]], None]]:
        """A function that takes explanations of a job, and writes a shard every few seconds; the rest when it is left.

        So a kill loses little. What took long by itself does not wait for more.
        """
        names = [SHARD_NAME.fullmatch(file.name) for file in self._shard_files()]
        used = [int(name["number"]) for name in names if name and name["job"] == spec.name]
        numbers, last = count(max(used, default=-1) + 1), time.monotonic()
        waiting: list[Explanation] = []

        def add(explanations: Sequence[Explanation], *, write: bool = False) -> None:
            nonlocal last, waiting
            waiting += explanations
            longest = max(sum(e.seconds for e in explanations), time.monotonic() - last)
            if waiting and (write or longest >= SECONDS_PER_SHARD or len(waiting) >= MAX_WAITING):
                part, waiting = waiting, []  # what cannot be written now is not tried again on leaving
                self.write(spec, next(numbers), part)
                last = time.monotonic()

        try:
            yield add
        finally:
            add([], write=True)

    def write(self, spec: Spec, number: int, explanations: Sequence[Explanation]) -> Path:
        """Keep explanations of a job in a shard of that number; they are on the disk when this returns."""
        require(len(explanations) > 0, f"Expected explanations for shard {number}", got="none")
        keys, jobs = [e.key for e in explanations if not e.rank], {(e.method, e.seed, e.question) for e in explanations}
        require(jobs == {(spec.method, spec.seed, spec.question)}, f"Expected explanations by {spec.name}", got=jobs)
        with self.locked():
            missing = self._missing(spec)
            good = len(set(keys)) == len(keys) and missing.issuperset(keys)
            require(good, f"Expected keys of {spec.name} that are not finished, each once", got=_shortened(keys))
            path = self.write_shard(number, self.identity(spec), explanations)
            missing.difference_update(keys)
        return path

    def identity(self, spec: Spec) -> dict[str, Any]:
        """What every shard of a job says of itself, beside its keys.

        The job is told by what the manifest holds of it: another version of cf2 may know of more options.
        """
        stored = self.manifest["jobs"][[job.name for job in self.jobs()].index(spec.name)]
        return {
            "run": self.manifest["id"],
            "job": spec.name,
            "spec": digest_of(stored),
            "data": self.manifest["fingerprints"].get("data"),
            "model": self.manifest["fingerprints"].get("model"),
            "trained": self.manifest["trained"].get(spec.name),
        }

    def write_shard(self, number: int, identity: Mapping[str, Any], explanations: Sequence[Explanation]) -> Path:
        """Write a file among the shards, whatever job it is of: use `write` to add to a run."""
        stem, shards = f"{identity['job']}-{number:06d}", self.path / SHARDS
        unfinished = storage.partial_path(self.path / f"{stem}.parquet")
        keys = [list(e.key) if isinstance(e.key, tuple) else e.key for e in explanations if not e.rank]
        do = "Free disk space; finished work is kept, and --resume continues."
        try:
            with writing(shards / f"{stem}.parquet", do):
                shards.mkdir(exist_ok=True)
                files.write(Explanations(tuple(explanations), {"shard": {**identity, "keys": keys}}), unfinished)
                storage.synchronise(unfinished)
                final = shards / f"{stem}.{digest_of(unfinished)}.parquet"
                storage.publish(unfinished, final)
        finally:
            unfinished.unlink(missing_ok=True)
        return final

    # -- reading shards -------------------------------------------------------------------------------------

    def survey(self, specs: Sequence[Spec] | None = None) -> Survey:
        """The shards of some jobs, or of all. Where two hold the same key, the first one by name counts.

        What is refused is named in the log, and moved out of the way by a writer.
        """
        jobs, asked = self.jobs(), set(self.keys)
        identities = {spec.name: self.identity(spec) for spec in (jobs if specs is None else specs)}
        others = {spec.name for spec in jobs} - identities.keys()
        survey = Survey({job: {} for job in identities}, {})
        for file in self._shard_files():
            name = SHARD_NAME.fullmatch(file.name)
            job = name["job"] if name else ""
            if job in others:
                continue
            keys: tuple[Key, ...] | str = "is no shard of this run"
            if name and job in identities:
                keys = _shard_keys(file, name["digest"], identities[job], asked, survey.shard_of[job])
            if isinstance(keys, str):
                survey.refused[file] = keys
            else:
                survey.shard_of[job].update(dict.fromkeys(keys, file))
        for file, reason in survey.refused.items():
            self._warn(file, reason, f"it is set aside in {SET_ASIDE}" if self._is_locked else "it is not used")
            if self._is_locked:  # a reader leaves the directory as it is: a writer may be at work in it
                self._set_aside(file)
        return survey

    def _shard_files(self) -> list[Path]:
        try:
            return sorted((self.path / SHARDS).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            expected = f"Expected {self.path / SHARDS} to be the directory of the shards"
            raise CF2Error(expected, got=os_reason(error)) from error

    def _set_aside(self, file: Path) -> None:
        """Move a file to where nothing reads it and nothing is lost."""
        place = self.path / SET_ASIDE
        with writing(place):
            place.mkdir(exist_ok=True)
            targets = (place / (f"{file.name}.{number}" if number else file.name) for number in count())
            os.rename(file, next(target for target in targets if not target.exists()))

    def _warn(self, file: Path, reason: str, what: str) -> None:
        if self._named.get(file) != reason:  # once is enough
            log.warning("Shard %s %s: %s.", file.name, reason, what)
        self._named[file] = reason

    def _load(self, shard: Path, keys: Sequence[Key]) -> tuple[Explanation, ...]:
        """The explanations of a shard; none, and a word in the log, if they cannot be read."""
        try:
            explanations = files.load(shard).items
            same = [e.key for e in explanations if not e.rank] == list(keys)
            require(same, f"Expected {shard} to explain the keys that it names", got="others")
        except CF2Error as error:
            self._warn(shard, f"cannot be read: {error}".rstrip("."), "it is not used")
            return ()
        return explanations

    def _answers(self, spec: Spec, survey: Survey) -> list[Explanation]:
        """The answers to the finished keys of a job, in the order of the keys."""
        loaded = (self._load(shard, keys) for shard, keys in survey.shards(spec.name).items())
        return in_order(chain.from_iterable(loaded), self.keys)

    def finished(self) -> list[Finished]:
        """How much of what the run asks for is there, by row."""
        survey, total = self.survey(), len(self.manifest["keys"])
        return [
            Finished(row, sum(len(survey.shard_of[spec.name]) for spec in jobs), total * len(jobs))
            for row, jobs in self.rows().items()
        ]

    def explanations(
        self, method: str | None = None, seed: int | None = None, question: str | None = None
    ) -> Explanations:
        """The finished explanations in the order of the keys, of all jobs or of a method, seed or question.

        Its context says how many are `finished` and how many the run asks for (`asked`), and, where that is not the
        same, a sentence about it (`partial`).
        """
        asked = {"method": method, "seed": seed, "question": question}
        wanted = [
            spec for spec in self.jobs() if all(value in (None, getattr(spec, name)) for name, value in asked.items())
        ]
        if not wanted:
            self.job(str(method), seed, question)  # which says that there is none
        survey = self.survey(wanted)
        items = [e for spec in wanted for e in self._answers(spec, survey)]
        shown = [row for row, jobs in self.rows().items() if any(spec in wanted for spec in jobs)]
        counts = Finished(", ".join(shown), sum(not e.rank for e in items), len(self.keys) * len(wanted))
        context = self.context() | {"method": counts.method, "spec": wanted[0].to_json()}
        if said := partial_sentence([counts]):
            context["partial"] = said
        return Explanations(tuple(items), context | {"finished": counts.finished, "asked": counts.asked})

    # -- checking -------------------------------------------------------------------------------------------

    def problems_of_files(self) -> list[str]:
        """What is wrong with the files: shards that are refused, keys that are missing, a changed context."""
        problems = []
        try:
            self.context()
        except CF2Error as error:
            problems.append(str(error))
        survey, total = self.survey(), len(self.keys)
        problems += [f"Shard {file.name} {reason}." for file, reason in survey.refused.items()]
        for spec in self.jobs():
            unread = [shard for shard, keys in survey.shards(spec.name).items() if not self._load(shard, keys)]
            problems += [f"Shard {shard.name} does not hold what it names." for shard in unread]
            if missing := total - len(survey.shard_of[spec.name]):
                problems.append(f"{spec.name}: {missing:,} of {total:,} keys are missing; --resume explains them.")
        return problems

    def problems_of_source(self, source: ModelAndData) -> list[str]:
        """In what a model and data differ from those that were explained."""
        before, now = self.manifest["fingerprints"], source.fingerprints()
        return [f"The {name} differs from what was explained." for name in now if before.get(name) != now[name]]

    def check_claims(self, source: ModelAndData, sample: int) -> tuple[Check, int, list[str]]:
        """The claims of at most `sample` keys spread over the run, how many keys, and what is wrong beside claims."""
        survey, jobs = self.survey(), self.jobs()
        every = [(spec, own) for spec in jobs for own in by_key(self._answers(spec, survey))]
        stored = [(spec, own) for spec, own in every if own[0].status != "refused"]
        chosen = [stored[round(at)] for at in np.linspace(0, len(stored) - 1, min(sample, len(stored)))]
        result, problems = Check(), []
        for spec in jobs:
            answers = [own for job, own in chosen if job == spec]
            other = list(_differences(source, spec, [several[0] for several in answers])) if answers else []
            problems += other
            if answers and not other:
                graphs = source.graphs if spec.level == "graph" or source.level == "graph" else source.graphs[0]
                context = {"spec": source.settled(spec).to_json()}
                found = Explanations(tuple(e for several in answers for e in several), context)
                result += check(found, source.model, graphs, call=source.call, most=SETS_PER_CLAIM)
        return result, len(chosen), problems


def _read_manifest(file: Path) -> dict[str, Any]:
    """A manifest, if it is one of ours and as it was written."""
    manifest = storage.read_json(file)
    is_ours = isinstance(manifest, dict) and manifest.get("format") == FORMAT and "jobs" in manifest
    require(
        is_ours,
        f"Expected {file} to have format {FORMAT}",
        got=manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__,
        do=f"It was made by another version of cf2. {EXPLAIN_TYPES_AGAIN}",
    )
    require(
        manifest.pop("digest", None) == digest_of(manifest),
        f"Expected {file} as it was written",
        got="one that was changed or damaged since",
        do=f"Put the old one back. If there is none: {EXPLAIN_TYPES_AGAIN.lower()}",
    )
    require(_is_whole(manifest), f"Expected {file} to describe a run", got="another manifest", do=EXPLAIN_TYPES_AGAIN)
    return dict(manifest)


def _remove(path: Path) -> None:
    """Remove a file, or a directory that holds nothing; what cannot be removed stays."""
    with suppress(OSError):
        path.rmdir() if path.is_dir() else path.unlink()


def _refuse_links(path: Path) -> None:
    """Refuse a run from a stranger that would have its reader's own files read, moved or written through a link."""
    link = next((place for place in path.iterdir() if place.is_symlink()), None)
    require(
        link is None,
        f"Expected a run without links in {str(path)!r}",
        got=f"the link {link.name!r}" if link else "",
        do="Remove it, or put what it leads to in its place.",
    )


def _is_whole(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest has everything that one of ours has: its digest only says that nobody changed it since."""
    try:
        keys = [key if isinstance(key, list) else [key] for key in manifest["keys"]]
        jobs = [Spec.from_json(job).name for job in manifest["jobs"]]
        named = [
            value for part in ("versions", "source", "fingerprints", "trained") for value in manifest[part].values()
        ]
        good = all(row and all(type(number) is int for number in row) for row in keys)
        good = good and 0 < len(keys) == len({tuple(key) for key in keys}) and 0 < len(jobs) == len(set(jobs))
        good = good and type(manifest["chunk_size"]) is int and manifest["chunk_size"] > 0
        good = good and all(isinstance(manifest[name], str) for name in ("id", "created", "context"))
        return good and all(isinstance(value, PLAIN_TYPES) for value in named)
    except (KeyError, TypeError, AttributeError):
        return False


def _shard_keys(
    file: Path, digest: str, identity: Mapping[str, Any], asked: set[Key], shard_of: Mapping[Key, Path]
) -> tuple[Key, ...] | str:
    """The keys of a shard, or why it is not used: it must be whole, and of the job with this identity."""
    if file.is_symlink():
        return "is a link"
    try:
        require_file(file, "a shard", most=files.MAX_FILE_BYTES)  # a pipe is not opened: that would wait for ever
        if digest_of(file) != digest:
            return "is truncated, damaged or renamed"
        with files.open_parquet(file) as opened:
            footer = opened.metadata
        said = json.loads(footer.metadata[b"cf2"])["context"]["shard"]
        keys = tuple(files.as_key(key) for key in said["keys"])
        other = next((name for name in REFUSALS if said.get(name) != identity[name]), None)
    except CF2Error as error:
        return f"cannot be read: {error}".rstrip(".")
    except OSError as error:
        return f"cannot be read ({os_reason(error)})"
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "does not say which run it is of"
    if other is not None:
        return REFUSALS[other]
    if footer.num_rows < len(keys) or len(set(keys)) != len(keys) or not asked.issuperset(keys):
        return "holds other keys than the run asks for"
    twice = next((shard_of[key] for key in keys if key in shard_of), None)
    return keys if twice is None else f"holds keys that {twice.name} holds as well"


def _name(lock: Path) -> str:
    """What a process has written into a lock."""
    try:
        return lock.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _owner(name: str) -> str:
    """The process whose name stands in a lock."""
    try:
        pid, host = name.split()
    except ValueError:
        return "another process"
    return f"process {pid}" + ("" if host == socket.gethostname() else f" on {host}")


def _without_root(plan: dict[str, Any]) -> dict[str, Any]:
    """Where the raw data lies is kept, and may be another place when the run goes on."""
    return {**plan, "source": {name: value for name, value in plan["source"].items() if name != "root"}}


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{name}.")
        else:
            yield prefix + name, item


def _shortened(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, list) and len(value) > 6:
        return f"{len(value)} keys from {value[0]} to {value[-1]} ({digest_of(json.dumps(value))})"
    return json.dumps(value, default=str)


def partial_sentence(counts: Sequence[Finished]) -> str:
    """What to say of a run that is not finished; nothing if it is."""
    left = [str(row) for row in counts if row.finished < row.asked]
    rest = "Repeat the command of the run with --resume to finish it."
    return f"Not all is finished: {', '.join(left)}. {rest}" if left else ""


def versions() -> dict[str, str]:
    """The versions of what made the results."""
    import torch_geometric

    from cf2 import __version__

    names = {"cf2": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    return names | {"torch_geometric": torch_geometric.__version__, "numpy": np.__version__}


def _differences(
    source: ModelAndData, spec: Spec, stored: Sequence[Explanation], *, again: bool = False
) -> Iterator[str]:
    """Which stored answers are of other units than the data has now, or answer another question.

    With `again`, the model is run too: an answer is another one if the model says something else of the whole, of the
    set or of the rest.
    """
    held = {e.key: e for e in stored}
    spec = replace(spec, tolerance=stored[0].tolerance)  # as it was measured on all keys
    other = [e for e in stored if (e.question, e.method) != (spec.question, spec.method)]
    yield from (f"{spec.name}, key {e.key}: it is for another question." for e in other)
    with Session(source.request(list(held), spec), fitting=True) as session:
        for problem in session.problems(list(held)):
            here = [held[instance.key] for instance in problem.instances]
            other = [e for e, table in zip(here, problem.tables) if not _has_units(e, table)]
            yield from (f"{spec.name}, key {e.key}: it has other units." for e in other)
            if not again or other:
                continue
            selected = torch.from_numpy(np.concatenate([e.selected for e in here])).to(problem.outputs.device)
            verdict = problem.judge(selected)
            for row, e in enumerate(here):
                now = (problem.outputs[row], verdict.only[row], verdict.without[row])
                before = (e.probabilities, e.probabilities_only, e.probabilities_without)
                if not all(_near(old, new.float().cpu().numpy()) for old, new in zip(before, now)):
                    yield f"{spec.name}, key {e.key}: the model gives another result."


def _near(before: np.ndarray, now: np.ndarray) -> bool:
    return before.shape == now.shape and bool(np.allclose(before, now, atol=SAME_PROBABILITY, equal_nan=True))


def _has_units(e: Explanation, table: InstanceUnits) -> bool:
    """Whether an explanation is of the units that its instance has now: a verdict is about sets of those."""
    return (
        tuple(e.units.names) == tuple(table.names)
        and np.array_equal(e.units.kind, table.kind.numpy())
        and np.array_equal(e.units.ids, table.ids.numpy())
    )
