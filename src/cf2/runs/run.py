"""An open run: what it asks for, what of that is finished, and how more is written to it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from cf2.core.whole_files import digest, write_with
from cf2.errors import CF2Error, require, require_file
from cf2.methods import registry
from cf2.methods.trained import Trained, load_trained
from cf2.methods.trained import digest as weights_digest
from cf2.results import files
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.results.limits import MOST_JSON
from cf2.runs import shards
from cf2.runs.lock import locked
from cf2.runs.manifest import as_json, in_short, read_manifest, refuse_changes, write_manifest
from cf2.runs.model_and_data import ModelAndData
from cf2.runs.session import Chunk, Request
from cf2.runs.shards import Refused, Shard, Survey, Writer, identity
from cf2.runs.start import CONTEXT, TRAINED, Start
from cf2.spec import Key, Spec, titled

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
        require_file(file, f"{file} to say what the explanations are about", most=MOST_JSON, do=do)
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
            path = shards.write_shard(self.path, number, identity(self.manifest, spec), found)
            missing.difference_update(keys)
        return path

    def _missing(self, spec: Spec) -> set[Key]:
        """The keys that a job has no shard for; looked up once for as long as nobody else can write."""
        if spec.name not in self._left:
            self._left[spec.name] = set(self.keys) - self._survey([spec]).keys(spec.name)
        return self._left[spec.name]

    def writer(self, spec: Spec) -> Writer:
        """What takes the explanations of a job as they come and writes a shard every few seconds."""
        numbers = count(shards.next_number(self.path, spec.name))
        return Writer(lambda found: self.write(spec, next(numbers), found))

    # -- reading --------------------------------------------------------------------------------------------

    def _survey(self, specs: Sequence[Spec]) -> Survey:
        """The shards of some jobs; what is refused is named in the log."""
        wanted = {spec.name: identity(self.manifest, spec) for spec in specs}
        found = shards.survey(self.path, [spec.name for spec in self.jobs()], wanted, set(self.keys))
        for refused in found.refused:
            self._warn(refused, f"it is set aside in {shards.ASIDE}" if self._locked else "it is not used")
        if self._locked:
            shards.set_aside(self.path, found.refused)
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
