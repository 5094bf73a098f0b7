"""One request carried out: from keys to packed problems, from a method's ranking to verified explanations."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cf2.core.graph import Instance
from cf2.core.outputs import check_labels
from cf2.core.packing import chunks, pack
from cf2.core.predictor import Findings, Predictor
from cf2.core.receptive_field import Reach, ReceptiveField, instance_chunks
from cf2.core.targets import Targets
from cf2.core.units import InstanceUnits, unit_kinds, units_of
from cf2.errors import CF2Error, require, unknown_name
from cf2.methods import registry
from cf2.methods.contract import Method, Problem, Ranking, search_from, settings_dict
from cf2.methods.reduction import reduced
from cf2.methods.trained import Trained
from cf2.results.explanation import Explanation
from cf2.runs.verified import explanations
from cf2.spec import Key, Spec
from cf2.verify.criterion import criterion_for
from cf2.verify.question import QUESTIONS
from cf2.verify.search import Choice, Search
from cf2.verify.verdict import judge

Progress = Callable[[int], None]


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


@dataclass(frozen=True, eq=False)
class Request:
    """A model, what is explained of it, and how: one value that can be sent to another process."""

    model: torch.nn.Module
    targets: Targets
    spec: Spec = Spec()
    trained: Any = None  # what the method needs beside the model: see `Method.needs`
    labels: Mapping[Key, int] | None = None
    measured: Measured | None = None
    method: Method = field(init=False)

    def __post_init__(self) -> None:
        # The method is sent along, so that a worker knows a user's own one.
        object.__setattr__(self, "method", registry.get(self.spec.method))
        complete(self.spec)

    def context(self) -> dict[str, Any]:
        """What a reader of its explanations needs to know of it."""
        return {"method": self.spec.method, "spec": self.spec.to_json()}

    def settings(self) -> tuple[Any, Search | None]:
        """The settings of the method, and of the search from its scores where one is asked for."""
        own, search = split_settings(self.spec, self.method)
        if isinstance(self.trained, Trained):
            own = self.trained.merge(self.method.name, own)
        return self.method.make_settings(own), None if search is None else Search(**search)


def split_settings(spec: Spec, method: Method) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The settings of a Spec that are its method's, and those of a search from the method's scores, if there is one."""
    own = dict(spec.settings)
    if not spec.search or method.searches:
        return own, None
    return own, {f.name: own.pop(f.name) for f in fields(Search) if f.name in own}


def check_names(spec: Spec, options: Iterable[str]) -> None:
    """Refuse a setting that neither the method nor the search knows, with the nearest name, `options` included."""
    method = registry.get(spec.method)
    searching = fields(Search) if spec.search and not method.searches else ()
    known = [f.name for f in (*fields(method.settings), *searching)]
    for name in spec.settings:
        if name not in known:
            raise unknown_name(f"an option, or a setting of method {spec.method!r}", name, [*known, *options])


def complete(spec: Spec) -> Spec:
    """A checked Spec with every setting of its method written out, so that another default does not change it."""
    method = registry.get(spec.method)
    unit_kinds(spec.units)
    method.check_units(spec.units)
    own, search = split_settings(spec, method)
    searching = {} if search is None else settings_dict(Search(**search))
    return replace(spec, settings=settings_dict(method.make_settings(own)) | searching)


class Session:
    """A request with its model borrowed, so that many keys share what is measured once."""

    def __init__(self, request: Request, *, fitting: bool = False) -> None:
        self.request, self.spec, self.method = request, request.spec, request.method
        self.settings, self.search = request.settings()
        self.kinds = unit_kinds(self.spec.units)
        known = request.measured
        self._labels_checked = known is not None
        self.predictor = Predictor(
            request.model,
            request.targets.level,
            output=self.spec.output,
            device=self.spec.device,
            masking=self.spec.masking,
            findings=None if known is None else known.findings,
        )
        self.field = ReceptiveField(self.predictor, request.targets, None if known is None else known.reach)
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
        return None if findings is None else Measured(findings, self.field.reach)

    # -- problems -------------------------------------------------------------------------------------------

    def problems(self, keys: Sequence[Key]) -> Iterator[Problem]:
        """The keys as packed problems; what is too large is left out."""
        for start in range(0, len(keys), GROUP):
            known = self._known(keys[start : start + GROUP])
            yield from self._packed([one for one in known if not self._is_too_large(one[1])])

    def _known(self, keys: Sequence[Key]) -> list[tuple[Instance, InstanceUnits]]:
        return [(instance, units_of(instance, self.kinds)) for instance in self.field.instances(keys)]

    def _all_problems(
        self, keys: Sequence[Key], done: frozenset[Key] = frozenset(), most: int | None = None
    ) -> Iterator[Problem]:
        """The same with what is too large, each a problem of its own, after the others.

        The packs are those of all keys, of at most `most` units each; a pack of which everything is `done` is left out.
        """
        known = self._known(keys)
        large = [one for one in known if self._is_too_large(one[1])]
        small = [one for one in known if not self._is_too_large(one[1])]
        at = 0
        for instances in instance_chunks(self.predictor, [instance for instance, _ in small]):
            fitting, at = small[at : at + len(instances)], at + len(instances)
            parts = [fitting[part] for part in chunks([table.count for _, table in fitting], most or sys.maxsize)]
            for part in parts:
                if not done.issuperset(instance.key for instance, _ in part):
                    yield from self._packed(part)
        for one in large:
            if one[0].key not in done:
                yield from self._packed([one])

    def _packed(self, known: Sequence[tuple[Instance, InstanceUnits]]) -> Iterator[Problem]:
        tables = {id(instance): table for instance, table in known}
        takes = self.predictor.adapter.takes

        def table_of(instance: Instance) -> InstanceUnits:
            return tables.get(id(instance)) or units_of(instance, self.kinds)  # another one, if it was cut wider

        def make(part: Sequence[Instance]) -> Any:
            return pack(part, tables=[table_of(instance) for instance in part], takes=takes)

        for instances, packed, P in self.field.packed([instance for instance, _ in known], make):
            self._check_labels(instances)
            problem = Problem(
                self.predictor,
                instances,
                [table_of(instance) for instance in instances],
                packed.to(self.predictor.device),
                P,
                criterion_for(
                    P,
                    [instance.key for instance in instances],
                    self.spec.target,
                    wanted=self.spec.question == "counterfactual",
                ),
                QUESTIONS[self.spec.question],
                self.spec.seed,
                self.request.trained,
            )
            limit = self.spec.max_units
            yield problem if limit is None or self.spec.reduce is None else reduced(problem, limit)

    def _check_labels(self, instances: Sequence[Instance]) -> None:
        """Once per request: are the model's outputs classes, by what the data says is true?"""
        findings = self.predictor.findings
        if self._labels_checked or self.spec.output != "auto" or findings is None:
            return
        check_labels(self.request.targets.truth([instance.key for instance in instances]), findings.columns)
        self._labels_checked = True

    def _is_too_large(self, table: InstanceUnits) -> bool:
        return self.spec.max_units is not None and self.spec.reduce is None and table.count > self.spec.max_units

    # -- explanations ---------------------------------------------------------------------------------------

    def explain(self, keys: Sequence[Key], progress: Progress | None = None) -> list[Explanation]:
        """Explanations of the keys, in their order."""
        found: list[Explanation] = []
        for start in range(0, len(keys), GROUP):
            group = keys[start : start + GROUP]
            made: list[Explanation] = []
            for part in self._explained(self._all_problems(group)):
                made += part
                if progress is not None:
                    progress(len(part))
            if [e.key for e in made] != list(group):  # those that are too large came last
                by_key = {e.key: e for e in made}
                made = [by_key[key] for key in group]
            found += made
        return found

    def parts(self, chunk: Chunk) -> Iterator[list[Explanation]]:
        """Explanations of a chunk as they are made, some seconds of work at a time, in any order.

        How the keys are packed does not depend on what is done already, so the results do not either.
        """
        for start in range(0, len(chunk.keys), GROUP):
            yield from self._explained(self._all_problems(chunk.keys[start : start + GROUP], chunk.done, PART))

    def _explained(self, problems: Iterator[Problem]) -> Iterator[list[Explanation]]:
        started = time.perf_counter()
        for problem in problems:
            yield self._explain(problem, started)
            started = time.perf_counter()

    def _explain(self, problem: Problem, started: float) -> list[Explanation]:
        asked = problem.criterion.holds(problem.outputs)
        if self._searches and bool(asked.any()) and not bool(asked.all()):
            return self._explain_apart(problem, asked, started)
        refused = self._is_too_large(problem.tables[0])
        skipped = refused or not problem.pack.units.count or (self._searches and not bool(asked.any()))
        ranking = _nothing(problem) if skipped else self.method.rank(problem, self.settings)
        if self.search is not None and not skipped:
            ranking = search_from(problem, ranking, self.search)
        selected = problem.pack.units.admissible(ranking.choice.selected)
        verdict = judge(problem.predictor, problem.pack, problem.criterion, selected, problem.outputs)
        ranking = replace(ranking, choice=replace(ranking.choice, selected=selected))
        seconds = (time.perf_counter() - started) / max(problem.num_instances, 1)
        return list(explanations(self.request, self.settings, problem, ranking, verdict, refused, seconds))

    @property
    def _searches(self) -> bool:
        return self.method.searches or self.search is not None

    def _explain_apart(self, problem: Problem, asked: Tensor, started: float) -> list[Explanation]:
        """Search only where the model gives the answer that is asked about."""
        parts = [rows.nonzero().flatten() for rows in (asked, ~asked)]
        made = [e for rows in parts for e in self._explain(problem.take(rows), started)]
        return [made[place] for place in torch.cat(parts).argsort().tolist()]


def _nothing(problem: Problem) -> Ranking:
    """The ranking of instances that are not explained."""
    units = problem.pack.units.owner
    return Ranking(units * 0.0, Choice(torch.zeros_like(units, dtype=torch.bool), torch.zeros(problem.num_instances)))


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
