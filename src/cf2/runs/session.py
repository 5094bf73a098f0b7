"""One request carried out: from keys to packed problems, from a method's ranking to verified explanations."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cf2.core.adapter import Call
from cf2.core.edits import Editing
from cf2.core.graph import Instance
from cf2.core.outputs import SORTS, Kind, check_labels
from cf2.core.packing import Pack, chunks, pack
from cf2.core.predictor import Findings, Predictor
from cf2.core.receptive_field import Reach, ReceptiveField, instance_chunks
from cf2.core.targets import Targets
from cf2.core.typed_adapter import adapter_of
from cf2.core.units import InstanceUnits, kinds_for, units_of
from cf2.errors import CF2Error, require
from cf2.methods import registry
from cf2.methods.candidates import narrowed, too_many
from cf2.methods.contract import Method, Problem
from cf2.methods.reduction import reduced
from cf2.methods.trained import Trained
from cf2.results.explanation import Explanation
from cf2.runs.answers import Answers
from cf2.runs.settings import complete, split_settings
from cf2.runs.wider import answers_from_wider
from cf2.spec import Key, Spec
from cf2.verify.criterion import criterion_for, default_tolerance, target_columns
from cf2.verify.neighbours import neighbours
from cf2.verify.question import QUESTIONS
from cf2.verify.rules import Valid, flags, rules_for
from cf2.verify.search import Search

Progress = Callable[[int], None]
Known = tuple[Instance, InstanceUnits]


class Chunk(NamedTuple):
    """Keys that are packed together, whatever runs them, and their number in the run; some may be done already."""

    number: int
    keys: list[Key]
    done: frozenset[Key] = frozenset()


GROUP = 256  # keys that are cut at once, so that memory is bounded and the packs are the same on every engine
FIRST = 64  # keys by which a model is measured
PART = 8_000  # units of one part: some seconds of work


@dataclass(frozen=True, eq=False)
class Measured:
    """What one session found out by running the model, and every worker of the same request relies on."""

    findings: Findings
    reach: Reach
    tolerance: float | None = None


@dataclass(frozen=True, eq=False)
class Request:
    """A model, what is explained of it, and how: one value that can be sent to another process."""

    model: torch.nn.Module
    targets: Targets
    spec: Spec = Spec()
    trained: Any = None  # what the method needs beside the model: see `Method.needs`
    labels: Mapping[Key, int] | None = None
    measured: Measured | None = None
    valid: Valid | None = None  # says of an edited graph whether it is accepted
    call: Call | None = None  # how the model is called, where the user says so
    class_names: tuple[str, ...] = ()  # a name per column of the model's output, where the user gives them
    method: Method = field(init=False)

    def __post_init__(self) -> None:
        # The method is sent along, so that a worker knows a user's own one.
        object.__setattr__(self, "method", registry.get(self.spec.method))
        complete(self.spec)
        ranks = self.method.ranks and not self.spec.search
        expected = f"Expected a method that only ranks and takes `k`, for `sizes`, and {self.spec.method!r} does not"
        require(self.spec.sizes is None or ranks, expected)
        self.method.check_level(self.targets.level)

    def context(self) -> dict[str, Any]:
        """What a reader of its explanations needs to know of it."""
        return {"method": self.spec.method, "spec": self.spec.to_json()}

    def settings(self) -> tuple[Any, Search | None]:
        """The settings of the method, and of the search from its scores where one is asked for."""
        own, search = split_settings(self.spec, self.method)
        if isinstance(self.trained, Trained):
            own = self.trained.merge(self.method.name, own)
        return self.method.make_settings(own), None if search is None else Search(**search)


class Session:
    """A request with its model borrowed, so that many keys share what is measured once."""

    def __init__(self, request: Request, *, fitting: bool = False) -> None:
        self.request, self.spec, self.method = request, request.spec, request.method
        self.settings, self.search = request.settings()
        self.kinds = kinds_for(self.spec)
        known = request.measured
        self._labels_checked = known is not None
        self.predictor = Predictor(
            request.model,
            request.targets.level,
            output=self.spec.output,
            device=self.spec.device,
            masking=self.spec.masking,
            findings=None if known is None else known.findings,
            adapter=adapter_of(request.model, request.targets, request.call),
        )
        require(
            self.spec.tolerance is None or self.spec.output == "regression",
            'Expected output="regression" beside `tolerance`',
            got=f"output={self.spec.output!r}",
            do="Classes and labels have no tolerance.",
        )
        editing = Editing.of(self.spec, request.targets)
        self.answers = Answers(request, self.method, self.settings, self.search, self.is_too_large)
        self.group = GROUP if editing is None else GROUP // 8  # candidates take room
        self.tolerance = self.spec.tolerance if known is None or known.tolerance is None else known.tolerance
        self.field = ReceptiveField(self.predictor, request.targets, None if known is None else known.reach, editing)
        self.wider = None if editing is None else editing.wider(request.targets)
        if self.method.needs == "training" and request.trained is None and not fitting:
            name = self.method.name
            raise CF2Error(
                f"Expected a trained explainer for method {name!r}",
                got="none",
                do=f"Train one with cf2.fit(model, data, method={name!r}, …) and pass it as trained=….",
            )

    def __enter__(self) -> Session:
        self.predictor.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.predictor.__exit__(kind, error, trace)

    def measure(self, keys: Sequence[Key]) -> Request:
        """The request with everything measured that a session would find out from these keys."""
        for _ in self.problems(keys[:FIRST]):
            pass
        return replace(self.request, measured=self.measured)

    @property
    def measured(self) -> Measured | None:
        """What has been found out about the model so far; None where every key was refused."""
        findings = self.predictor.findings
        return None if findings is None else Measured(findings, self.field.reach, self.tolerance)

    def _settle_tolerance(self, keys: Sequence[Key]) -> None:
        """Of a regression without a tolerance: measure it once, on the first of the given keys."""
        if self.spec.output != "regression" or self.tolerance is not None:
            return
        instances = self.field.instances(keys[:FIRST])
        takes = self.predictor.adapter.takes
        outputs = torch.cat([P for _, _, P in self.field.packed(instances, lambda part: pack(part, takes=takes))])
        columns = target_columns(outputs, [instance.key for instance in instances], self.spec.target, "regression")
        self.tolerance = default_tolerance(outputs, columns)

    # -- problems -------------------------------------------------------------------------------------------

    def problems(self, keys: Sequence[Key]) -> Iterator[Problem]:
        """The keys as packed problems; what is too large is left out."""
        self._settle_tolerance(keys)
        for start in range(0, len(keys), self.group):
            known = self.known(keys[start : start + self.group])
            yield from self.packed([one for one in known if not self.is_too_large(one[1])])

    def known(self, keys: Sequence[Key], field: ReceptiveField | None = None) -> list[Known]:
        """The instances of keys and their units, by the session's receptive field or another."""
        return [(instance, units_of(instance, self.kinds)) for instance in (field or self.field).instances(keys)]

    def _all_problems(
        self, keys: Sequence[Key], done: frozenset[Key] = frozenset(), most: int | None = None
    ) -> Iterator[Problem]:
        """The same with what is too large, each a problem of its own, after the others.

        The packs are those of all keys, of at most `most` units each; a pack of which everything is `done` is left out.
        """
        known = self.known(keys)
        large = [one for one in known if self.is_too_large(one[1])]
        small = [one for one in known if not self.is_too_large(one[1])]
        at = 0
        for instances in instance_chunks(self.predictor, [instance for instance, _ in small]):
            fitting, at = small[at : at + len(instances)], at + len(instances)
            parts = [fitting[part] for part in chunks([table.count for _, table in fitting], most or sys.maxsize)]
            for part in parts:
                if not done.issuperset(instance.key for instance, _ in part):
                    yield from self.packed(part)
        for one in large:
            if one[0].key not in done:
                yield from self.packed([one])

    def packed(self, known: Sequence[Known], field: ReceptiveField | None = None) -> Iterator[Problem]:
        """Instances as packed problems, each with what is asked of it."""
        tables = {id(instance): table for instance, table in known}
        takes = self.predictor.adapter.takes

        def table_of(instance: Instance) -> InstanceUnits:
            return tables.get(id(instance)) or units_of(instance, self.kinds)  # another one, if it was cut wider

        def make(part: Sequence[Instance]) -> Any:
            return pack(part, tables=[table_of(instance) for instance in part], takes=takes)

        for instances, packed, P in (field or self.field).packed([instance for instance, _ in known], make):
            named, classes = len(self.request.class_names), P.size(1)
            expected = f"Expected `class_names` to hold {classes} names, one for each class that the model knows"
            require(named in (0, classes), expected, got=named)
            self._check_labels(instances)
            problem = self._problem(instances, [table_of(instance) for instance in instances], packed, P)
            if any(map(too_many, problem.tables)):
                fewer = narrowed(problem)
                listed = [units_of(instance, self.kinds) for instance in fewer]
                problem = self._problem(fewer, listed, pack(fewer, tables=listed, takes=takes), P)
            limit = self.spec.max_units
            yield problem if limit is None or self.spec.reduce is None else reduced(problem, limit)

    def _problem(
        self, instances: Sequence[Instance], tables: Sequence[InstanceUnits], packed: Pack, P: Tensor
    ) -> Problem:
        """Packed instances with what is asked of them, and under which rules."""
        spec = self.spec
        units = packed.units.flagged(flags(spec, instances, tables))
        packed = replace(packed, units=units).to(self.predictor.device)
        keys = [instance.key for instance in instances]
        wanted = spec.question == "counterfactual"
        criterion = criterion_for(P, keys, spec.target, wanted=wanted, kind=self.kind, tolerance=self.tolerance)
        disturbed = None
        if spec.robust:
            disturbed = neighbours(
                self.predictor,
                criterion,
                QUESTIONS[spec.question],
                instances,
                tables,
                count=spec.robust,
                seed=spec.seed or 0,
                flagged=lambda made: replace(made, units=made.units.flagged(flags(spec, instances, tables))),
                takes=self.predictor.adapter.takes,
            )
        return Problem(
            self.predictor,
            instances,
            tables,
            packed,
            P,
            criterion,
            QUESTIONS[spec.question],
            rules_for(spec, packed, instances, tables, self.request.valid, disturbed),
            spec.seed,
            self.request.trained,
        )

    @property
    def kind(self) -> Kind:
        """What the model's outputs are: classes, labels or numbers."""
        assert self.predictor.findings is not None
        return SORTS[self.predictor.findings.output].kind

    def _check_labels(self, instances: Sequence[Instance]) -> None:
        """Once per request: are the model's outputs classes, by what the data says is true?"""
        findings = self.predictor.findings
        if self._labels_checked or self.spec.output != "auto" or findings is None:
            return
        check_labels(self.request.targets.truth([instance.key for instance in instances]), findings.columns)
        self._labels_checked = True

    def is_too_large(self, table: InstanceUnits) -> bool:
        """Whether an instance with these units is refused."""
        return self.spec.max_units is not None and self.spec.reduce is None and table.count > self.spec.max_units

    # -- explanations ---------------------------------------------------------------------------------------

    def explain(self, keys: Sequence[Key], progress: Progress | None = None) -> list[Explanation]:
        """Explanations of the keys, in their order."""
        self._settle_tolerance(keys)
        found: list[Explanation] = []
        for start in range(0, len(keys), self.group):
            group = keys[start : start + self.group]
            made: list[Explanation] = []
            for part in self._explained(self._all_problems(group)):
                made += part
                if progress is not None:
                    progress(sum(not e.rank for e in part))
            if [e.key for e in made if not e.rank] != list(group):  # those that are too large came last
                by_key: dict[Key, list[Explanation]] = {}
                for e in made:  # what is asked for twice is explained twice, with the same result
                    by_key[e.key] = [*by_key[e.key], e] if e.rank else [e]
                made = [e for key in group for e in by_key[key]]
            found += made
        return found

    def parts(self, chunk: Chunk) -> Iterator[list[Explanation]]:
        """Explanations of a chunk as they are made, some seconds of work at a time, in any order.

        How the keys are packed does not depend on what is done already, so the results do not either.
        """
        for start in range(0, len(chunk.keys), self.group):
            yield from self._explained(self._all_problems(chunk.keys[start : start + self.group], chunk.done, PART))

    def _explained(self, problems: Iterator[Problem]) -> Iterator[list[Explanation]]:
        started = time.perf_counter()
        for problem in problems:
            yield answers_from_wider(self, self.answers.explain(problem, started))
            started = time.perf_counter()


def train(request: Request, keys: Sequence[Key]) -> Trained:
    """Train the method of a request on some keys."""
    if request.method.fit is None:
        raise CF2Error(f"Expected a method that is trained first, and {request.spec.method!r} needs no training")
    started = time.perf_counter()
    with Session(request, fitting=True) as session:
        problems = list(session.problems(keys))
        require(
            len(problems) > 0,
            "Expected instances to train the method on that have at most `max_units` units",
            got=f"none among {len(keys)}",
            do='Raise it, or pass reduce="gradient".',
        )
        trained: Trained = request.method.fit(problems, session.settings, request.spec.seed or 0)
    return replace(trained, facts={**trained.facts, "seconds": time.perf_counter() - started})
