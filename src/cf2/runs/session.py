"""A request carried out: keys are cut and packed, a method ranks their units, and what it chose is verified."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import Data, HeteroData

from cf2.errors import CF2Error, require, unknown_name
from cf2.graphs.data import graphs_of
from cf2.graphs.graph import Instance
from cf2.graphs.targets import GraphTargets, Targets, stream, targets_for
from cf2.graphs.typed import Types
from cf2.methods import registry
from cf2.methods.contract import Method, Problem, Ranking, SetProblem, choose_once, named, search_from
from cf2.methods.reduction import MAX_EDITS, NARROWED_NOTE, REDUCED_NOTE, REFUSAL, narrowed, reduced, too_many
from cf2.methods.trained import Trained
from cf2.models.adapters import Call, adapter_of, module_of
from cf2.models.oracle import GraphOracle
from cf2.models.outputs import (
    FORMS,
    ROUNDINGS,
    OutputKind,
    check_labels,
    criterion_for,
    default_tolerance,
    takes_tolerance,
    target_columns,
)
from cf2.models.predictor import Findings, Predictor
from cf2.models.receptive_field import Reach, ReceptiveField, instance_chunks
from cf2.options import AUTO, Key, Spec
from cf2.results.explanation import STATUSES, Explanation, UnitTable
from cf2.results.names import Names
from cf2.sets.alternatives import Besides, list_answers, without_supersets
from cf2.sets.oracle import Oracle
from cf2.sets.search import Choice, Search, proof_budget
from cf2.sets.strength import (
    SEARCH_CONTEXTS,
    Draw,
    Probability,
    Strength,
    Sure,
    draw_contexts,
    find_sure,
    holding,
    strengths,
)
from cf2.sets.tests import QUESTIONS, VERDICT_RUNS, Verdict, Within, passes, slack
from cf2.units.constraints import Valid, constraints_for, flags
from cf2.units.edits import CHANGE, Editing, kinds_for, with_noise
from cf2.units.kinds import InstanceUnits, places_in, unit_kinds, units_of
from cf2.units.molecules import Molecules
from cf2.units.packs import Pack, chunks, pack

GROUP = 256  # keys that are cut at once, so that memory is bounded and the packs are the same on every engine
FIRST = 64  # keys by which a model is measured
PART = 8_000  # units of one part: some seconds of work
NOISE_STREAM = 1 << 30  # keeps the edges of noise apart from what a method draws with the same seed
CONTEXT_STREAM = 1 << 31  # keeps contexts apart from what a method draws with the same seed
SEARCH_STREAM = 1 << 32  # and those of a search for a sure set apart from these
SURE_CONTEXTS = 256  # by which a sure set is judged
SAME_COST = 1e-6  # prices of two sets that are closer are equal: they are sums of floats
SAME_OUTPUT = 1e-4  # two values of a run closer than this are one, rounded otherwise
USED = 1e4  # by how much a unit of an earlier answer falls in the ranking of a further search

NOTHING = "There is no unit that can be removed: the prediction rests on the rest of the input."
# What people try that only other methods know, and the three options that they may mean.
LIKELY = {"k": ("`alternatives`, the number of answers", "`max_units`", "`sizes`, for methods that only rank")}
UNCONFIRMED = "The search ended with a set that the final check does not confirm."
ALREADY = "The model says {asked} already: nothing has to change."
DEFAULT = "The model gives the same answer when everything that can be removed is gone."
OWN_FEATURES = "The prediction stays without any edge: its own features decide it, so features could be chosen too."
FEATURES_TOO = "No set of edges alone passes, so features could be chosen too."
FEATURES_IN_VAIN = "Edges and features together were tried as well, in vain."
MAX_UNREDUCED = 20_000  # units beyond which an instance is reduced unless `max_units` is given
AUTO_REDUCED = 2_000  # to how many
REDUCED_ITSELF = "Pass max_units= and reduce= to search among more or fewer."
MAX_AUTO_UNITS = 2_000  # edges and features that `units="auto"` chooses from
TRY_FEATURES = 'Features may decide it: try units=("edges", "features").'
TRY_ADDING = 'Ask question="counterfactual", edits=("remove", "add") for what would have to be added.'
NOT_PREDICTED = (
    "The model says {said}, not {asked}: nothing can be the reason for an answer that it does not give. "
    'Ask question="counterfactual", target={number} for what would have to change.'
)
ZERO_NOTE = "Features are whole numbers: a removed one is 0, which may be a category of its own."
ZEROED = ("features", "node_features", "columns")  # units that are removed by a 0
UNSURE = "It decides in {share:.2f} of contexts (95 % interval {low:.2f} to {high:.2f})."
UNSURE_DEFAULT = (
    "The model gives the same answer when everything that can be removed is gone, so that all units together decide "
    'nothing, and no larger set was tried. Ask question="factual" or question="counterfactual" instead.'
)
FAR_NOTE = (
    "With edges inside of the receptive field alone nothing was found, so edges to nodes all over the graph count too."
)
FAILED = ("impossible", "not found", "empty")  # statuses after which something wider is tried

Progress = Callable[[int], None]
Cut = tuple[Instance, InstanceUnits]  # a receptive field, and the units that can be chosen in it
Others = tuple[list[Explanation], bool]  # further answers of an instance, and whether these are all there are


# -- requests -------------------------------------------------------------------------------------------------


def check_names(spec: Spec, options: Iterable[str]) -> None:
    """Refuse a setting that neither the method nor the search knows, with the nearest name, `options` included."""
    method = registry.get(spec.method)
    searching = fields(Search) if spec.search and not method.searches else ()
    known = [f.name for f in (*fields(method.settings), *searching)]
    for name in spec.settings:
        if name in LIKELY and name not in known:
            first, *others = LIKELY[name]
            do = f"Did you mean {first}? Others that limit an answer: {' and '.join(others)}."
            raise CF2Error(f"Expected an option, or a setting of method {spec.method!r}", got=repr(name), do=do)
        if name not in known:
            raise unknown_name(f"an option, or a setting of method {spec.method!r}", name, [*known, *options])


def make_settings(spec: Spec, method: Method, trained: Any = None) -> tuple[Any, Search | None]:
    """The settings of the method of a Spec, and of a search from its scores where one is asked for."""
    method.check_units(kinds_for(spec))
    own, search = dict(spec.settings), None
    if spec.search and not method.searches:
        search = Search(**{f.name: own.pop(f.name) for f in fields(Search) if f.name in own})
    return method.make_settings(trained.merge(method.name, own) if isinstance(trained, Trained) else own), search


def check_asked(spec: Spec, method: Method, search: Search | None) -> None:
    """Refuse options that do not go together, whatever is explained."""
    require(
        spec.surely is None or (spec.question == "why" and spec.alternatives == 1),
        "Expected question='why' and one answer for `surely`",
        got=f"question={spec.question!r}, alternatives={spec.alternatives}",
    )
    require(
        spec.surely is None or method.searches or search is not None,
        f"Expected a method that searches, for `surely`, and {spec.method!r} does not",
        do="Pass search=True, or method='cf2'.",
    )
    require(
        not spec.contexts_add or (spec.contexts > 0 and spec.surely is None and spec.edits == ("remove",)),
        "Expected `contexts`, no `surely` and no edits but `remove` beside `contexts_add`",
        got=f"contexts={spec.contexts}, surely={spec.surely}, edits={', '.join(spec.edits)}",
    )
    require(
        spec.tolerance is None or takes_tolerance(spec.output),
        'Expected output="regression" beside `tolerance`',
        got=f"output={spec.output!r}",
        do="Classes and labels have no tolerance.",
    )


def check_class_names(named: int, outputs: Tensor) -> None:
    """Refuse another number of names than the outputs [B, classes] have classes; 0: none are named."""
    expected = f"Expected `class_names` to hold {outputs.size(1)} names, one for each class that the model knows"
    require(named in (0, outputs.size(1)), expected, got=named)


def complete(spec: Spec) -> Spec:
    """A checked Spec with every setting of its method written out, so that another default does not change it."""
    settings, search = make_settings(spec, registry.get(spec.method))
    return replace(spec, settings=asdict(settings) | ({} if search is None else asdict(search)))


@dataclass(frozen=True, eq=False)
class Measured:
    """What one session found out by running the model, and every worker of the same request relies on."""

    findings: Findings
    reach: Reach
    tolerance: float | None = None


@dataclass(frozen=True, eq=False)
class Request:
    """A model, what is explained of it, and how: one value that is checked when it is made and sent to workers."""

    model: torch.nn.Module
    targets: Targets
    spec: Spec = Spec()
    trained: Any = None  # what the method needs beside the model: see `Method.needs`
    labels: Mapping[Key, int] | None = None
    measured: Measured | None = None
    valid: Valid | None = None  # says of an edited graph whether it is accepted
    call: Call | None = None  # how the model is called, where the user says so
    reference: Targets | None = None  # graphs by which it is known what values features take; None: the targets
    names: Names = field(default_factory=Names)
    method: Method = field(init=False)  # sent along, so that a worker knows a user's own one
    settings: Any = field(init=False)
    search: Search | None = field(init=False)  # of a method that only ranks

    def __post_init__(self) -> None:
        spec, method = self.spec, registry.get(self.spec.method)
        settings, search = make_settings(spec, method, self.trained)
        ranks = method.ranks and not spec.search
        expected = f"Expected a method that only ranks and takes `k`, for `sizes`, and {spec.method!r} does not"
        require(spec.sizes is None or ranks, expected)
        method.check_level(self.targets.level)
        if spec.valid == "molecule" and isinstance(self.targets, GraphTargets):
            molecules = copy(self.targets)
            molecules.graphs = Molecules(self.targets.graphs)
            object.__setattr__(self, "targets", molecules)
        check_asked(spec, method, search)
        for name, value in {"method": method, "settings": settings, "search": search}.items():
            object.__setattr__(self, name, value)

    def context(self) -> dict[str, Any]:
        """What a reader of its explanations needs to know of it."""
        own: dict[str, Any] = (
            {} if self.valid is None else {"own_valid": True}
        )  # a function, which a Spec does not hold
        own |= {} if self.reference is None else {"reference": len(self.reference)}
        return {"method": self.spec.method, "spec": self.spec.to_json(), **own}


class Chunk(NamedTuple):
    """Keys that are packed together, whatever runs them, and their number in the run; some may be done already."""

    number: int
    keys: list[Key]
    done: frozenset[Key] = frozenset()


# -- the session ----------------------------------------------------------------------------------------------


class Session:
    """A request with its model borrowed, so that many keys share what is measured once."""

    def __init__(self, request: Request, *, fitting: bool = False) -> None:
        spec, method, measured = request.spec, request.method, request.measured
        self._tries_features = spec.units == (AUTO,) and (method.searches or request.search is not None)
        self._tries_features &= method.units is None or "features" in method.units
        spec = replace(spec, units=("edges",)) if spec.units == (AUTO,) else spec
        self.request, self.spec, self.method, self.settings = request, spec, method, request.settings
        self.answers = self._answers()
        self.finished: list[Explanation] = []
        self.largest = 0  # units of the largest instance so far
        self.kinds = kinds_for(spec)
        self.predictor = Predictor(
            request.model,
            request.targets.level,
            output=spec.output,
            device=spec.device,
            masking=spec.masking,
            findings=None if measured is None else measured.findings,
            adapter=adapter_of(request.model, request.targets, request.call),
        )
        editing = Editing.of(spec, request.targets, request.reference)
        self.group = GROUP if editing is None else GROUP // 8  # candidates take room
        self.tolerance = spec.tolerance if measured is None or measured.tolerance is None else measured.tolerance
        self.field = ReceptiveField(
            self.predictor, request.targets, None if measured is None else measured.reach, editing
        )
        self._far_editing = None if editing is None else editing.wider(request.targets)
        self._labels_checked = measured is not None
        self._named_classes = len(request.names.classes())
        if method.needs == "training" and request.trained is None and not fitting:
            raise CF2Error(
                f"Expected a trained explainer for method {method.name!r}",
                got="none",
                do=f"Train one with cf2.fit(model, data, method={method.name!r}, …) and pass it as trained=….",
            )

    def _answers(self) -> Answers:
        """What answers the problems of this session, by its own kinds of unit."""
        request, hooks = self.request, (self._last_word, self._answer_again, self._with_noise)
        classes = request.names.classes()
        return Answers(self.spec, self.method, request.settings, request.search, self._facts, classes, *hooks)

    def __enter__(self) -> Session:
        self.predictor.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.predictor.__exit__(kind, error, trace)

    # -- measuring ----------------------------------------------------------------------------------------------

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

    @property
    def kind(self) -> OutputKind:
        """What the model's outputs are: classes, labels or numbers."""
        assert self.predictor.findings is not None
        return FORMS[self.predictor.findings.output].kind

    def _settle_tolerance(self, keys: Sequence[Key]) -> None:
        """Of a regression without a tolerance: measure it once, on the first of the given keys."""
        if not takes_tolerance(self.spec.output) or self.tolerance is not None:
            return
        instances = self.field.instances(keys[:FIRST])
        takes = self.predictor.adapter.takes
        outputs = torch.cat([P for _, _, P in self.field.packed(instances, lambda part: pack(part, takes=takes))])
        columns = target_columns(outputs, [instance.key for instance in instances], self.spec.target, self.kind)
        self.tolerance = default_tolerance(outputs, columns)

    def _check_outputs(self, instances: Sequence[Instance], outputs: Tensor) -> None:
        """Has the model as many classes as there are names, and, once per request, as the data's labels need?"""
        check_class_names(self._named_classes, outputs)
        findings = self.predictor.findings
        if not self._labels_checked and self.spec.output == "auto" and findings is not None:
            check_labels(self.request.targets.truth([instance.key for instance in instances]), findings.columns)
            self._labels_checked = True

    # -- from keys to packed problems ---------------------------------------------------------------------------

    def problems(self, keys: Sequence[Key]) -> Iterator[Problem]:
        """The keys as packed problems; what is too large is left out."""
        self._settle_tolerance(keys)
        for group in self._groups(keys):
            yield from self._problems(group, refused=False)

    def _groups(self, keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
        for start in range(0, len(keys), self.group):
            yield keys[start : start + self.group]

    def _problems(
        self,
        keys: Sequence[Key],
        done: frozenset[Key] = frozenset(),
        max_units: int = sys.maxsize,
        refused: bool = True,
    ) -> Iterator[Problem]:
        """The keys as packed problems, and then each that is `refused` as too large as a problem of its own.

        The packs are those of all keys, of at most `max_units` units each; a pack of which all is `done` is left out.
        """
        cuts = self._cut(keys, self.field)
        small = [cut for cut in cuts if not _is_too_large(self.spec, cut[1].count)]
        packs, start = [], 0
        for instances in instance_chunks(self.predictor, [instance for instance, _ in small]):
            fitting, start = small[start : start + len(instances)], start + len(instances)
            packs += [fitting[part] for part in chunks([table.count for _, table in fitting], max_units)]
        packs += [[cut] for cut in cuts if refused and _is_too_large(self.spec, cut[1].count)]
        for part in packs:
            if not done.issuperset(instance.key for instance, _ in part):
                yield from self._packed(part, self.field)

    def _cut(self, keys: Sequence[Key], field: ReceptiveField) -> list[Cut]:
        return [(instance, units_of(instance, self.kinds)) for instance in field.instances(keys)]

    def _packed(self, cuts: Sequence[Cut], field: ReceptiveField) -> Iterator[Problem]:
        """Receptive fields as packed problems."""
        tables, takes = {id(instance): table for instance, table in cuts}, self.predictor.adapter.takes
        limit = None if self.spec.reduce is None else self.spec.max_units

        def tables_of(part: Sequence[Instance]) -> list[InstanceUnits]:
            return [tables.get(id(i)) or units_of(i, self.kinds) for i in part]  # another one, if it was cut wider

        def make(part: Sequence[Instance]) -> Pack:
            return pack(part, tables=tables_of(part), takes=takes)

        self._cutting = field
        for instances, packed, outputs in field.packed([instance for instance, _ in cuts], make):
            self._check_outputs(instances, outputs)
            problem = self._problem(instances, tables_of(instances), packed, outputs)
            if any(map(too_many, problem.tables)):
                fewer = narrowed(problem)
                problem = self._problem(fewer, tables_of(fewer), make(fewer), outputs)
            self.largest = max([self.largest, *(table.count for table in problem.tables)])
            if self.answers.reduces_itself:
                yield reduced(problem, AUTO_REDUCED, above=MAX_UNREDUCED)
            else:
                yield problem if limit is None else reduced(problem, limit)

    def _problem(
        self, instances: Sequence[Instance], tables: Sequence[InstanceUnits], packed: Pack, outputs: Tensor
    ) -> Problem:
        """Packed instances with what is asked of them, and the constraints of an answer."""
        spec, predictor, tests = self.spec, self.predictor, QUESTIONS[self.spec.question]

        units = packed.units.flagged(flags(spec, instances, tables))
        packed = replace(packed, units=units).to(predictor.device)
        keys, wanted = [instance.key for instance in instances], spec.question == "counterfactual"
        criterion = criterion_for(outputs, keys, spec.target, self.kind, wanted=wanted, tolerance=self.tolerance)
        constraints = constraints_for(spec, packed, instances, tables, self.request.valid)
        oracle = GraphOracle(predictor, packed)
        asked = (keys, outputs, criterion, tests, constraints, spec.seed)
        return Problem(oracle, *asked, instances, tables, self.request.trained)

    # -- from problems to explanations --------------------------------------------------------------------------

    def explain(self, keys: Sequence[Key], progress: Progress | None = None) -> list[Explanation]:
        """Explanations of the keys, in their order."""
        self._settle_tolerance(keys)
        explained = self.finished = list[Explanation]()
        for group in self._groups(keys):
            made: list[Explanation] = []
            for part in self._explained(self._problems(group)):
                made += part
                self.finished = explained + made  # what an interrupt leaves
                if progress is not None:
                    progress(sum(not e.rank for e in part))
            if [e.key for e in made if not e.rank] != list(group):  # those that are too large came last
                by_key: dict[Key, list[Explanation]] = {}
                for e in made:  # what is asked for twice is explained twice, with the same result
                    by_key[e.key] = [*by_key[e.key], e] if e.rank else [e]
                made = [e for key in group for e in by_key[key]]
            explained += made
        self.finished = explained
        return explained

    def parts(self, chunk: Chunk) -> Iterator[list[Explanation]]:
        """Explanations of a chunk as they are made, some seconds of work at a time, in any order.

        How the keys are packed does not depend on what is done already, so the results do not either.
        """
        for group in self._groups(chunk.keys):
            yield from self._explained(self._problems(group, chunk.done, PART))

    def _explained(self, problems: Iterator[Problem]) -> Iterator[list[Explanation]]:
        started = time.perf_counter()
        for problem in problems:
            yield self._with_features(self._with_far_candidates(self.answers.of(problem, started)))
            started = time.perf_counter()

    def _with_far_candidates(self, made: list[Explanation]) -> list[Explanation]:
        """Answers in their order, those sought in vain from candidates all over the graph if these are left open."""
        failed = {e.key: e for e in made if e.status in FAILED}
        if self._far_editing is None or not failed:
            return made
        field = ReceptiveField(self.predictor, self.request.targets, self.field.reach, self._far_editing)
        answers = self._tried_again(failed, field, lambda first: FAR_NOTE)
        return [new for e in made for new in (answers.get(e.key, [e]) if e.key in failed else [e])]

    def _with_features(self, made: list[Explanation]) -> list[Explanation]:
        """Answers in their order; where no set of edges passes, one of edges and features if there is any."""
        failed = {e.key: e for e in made if e.status in FAILED}
        if not self._tries_features or not failed:
            return made
        wider = copy(self)  # the same model, field and measurements
        most = min(self.spec.max_units or MAX_AUTO_UNITS, MAX_AUTO_UNITS)
        wider.spec = replace(self.spec, units=("edges", "features"), max_units=most, reduce="gradient")
        wider.kinds = kinds_for(wider.spec)
        wider.answers = wider._answers()
        answers = wider._tried_again(
            failed, self.field, lambda first: OWN_FEATURES if first.default or first.status == "empty" else FEATURES_TOO
        )
        explained: list[Explanation] = []
        for e in made:
            new = answers.get(e.key) if e.key in failed else None
            if new is None:
                explained.append(e)
            elif new[0].status == "found":
                explained += new
            else:
                spent = {name: getattr(new[0], name) for name in ("evaluations", "seconds")}
                explained.append(replace(e, note=f"{e.note} {FEATURES_IN_VAIN}".strip(), **spent))
        return explained

    def _tried_again(
        self, failed: Mapping[Key, Explanation], field: ReceptiveField, note_of: Callable[[Explanation], str]
    ) -> dict[Key, list[Explanation]]:
        """New answers to keys with a failed one, by key: the first has what both cost, and a word about it."""
        cuts = [cut for cut in self._cut(list(failed), field) if not _is_too_large(self.spec, cut[1].count)]
        answers: dict[Key, list[Explanation]] = {}
        started = time.perf_counter()
        for problem in self._packed(cuts, field):
            for e in self.answers.of(problem, started):
                if not e.rank:
                    first = failed[e.key]
                    note = f"{note_of(first)} {e.note}".strip()
                    evaluations, seconds = e.evaluations + first.evaluations, e.seconds + first.seconds
                    e = replace(e, note=note, evaluations=evaluations, seconds=seconds)
                answers.setdefault(e.key, []).append(e)
            started = time.perf_counter()
        return answers

    def _last_word(self, problem: SetProblem, selected: Tensor, verdict: Verdict) -> Verdict:
        assert isinstance(problem, Problem)
        return last_word(problem, self.field, selected, verdict)

    def _answer_again(self, problem: SetProblem, mixed: Tensor, started: float) -> list[list[Explanation]]:
        """Answers of some instances, by instance, where the whole graph by itself said something else.

        They are looked for on whole graphs, one at a time; none, where they were already.
        """
        findings, targets = self.predictor.findings, self.request.targets
        assert isinstance(problem, Problem)
        if findings is None or findings.alone:
            return []
        whole = ReceptiveField(self.predictor, targets, Reach(whole=targets.graph is not None), self._cutting.editing)
        self.predictor.findings = replace(findings, alone=True, ordered=True)
        try:
            cuts = self._cut([problem.instances[row].key for row in mixed.nonzero().flatten().tolist()], whole)
            return [self.answers.of(one, started) for cut in cuts for one in self._packed([cut], whole)]
        finally:
            self.predictor.findings = findings

    def _with_noise(self, problem: SetProblem, rows: Tensor, count: int) -> Iterator[Noisy]:
        """The instances `rows` in parts, each with edges that are not in the graph for `count` contexts to have."""
        assert isinstance(problem, Problem)
        spec, takes, targets = self.spec, self.predictor.adapter.takes, self.request.targets
        editing = Editing.adding(spec, targets)
        kinds, seed = (*self.kinds, *unit_kinds(("added_edges",))), (spec.seed or 0) + NOISE_STREAM
        made = []
        for row in rows.tolist():
            near = self._cutting.with_candidates(problem.instances[row], editing)
            made.append(with_noise(near, kinds, count, spec.contexts_add, stream(seed, near.key)))
        start = 0
        for part in instance_chunks(self.predictor, [instance for instance, _ in made]):
            tables = [units_of(instance, kinds) for instance in part]
            packed = pack(part, tables=tables, takes=takes)
            units = packed.units.flagged(flags(spec, part, tables))
            oracle = GraphOracle(self.predictor, replace(packed, units=units).to(self.predictor.device))
            own, start = rows[start : start + len(part)], start + len(part)
            places = [places_in(table, problem.tables[row]) for table, row in zip(tables, own.tolist())]
            has = [pad(bits, (0, oracle.width - bits.size(1))) for _, bits in made[start - len(part) : start]]
            yield Noisy(own, oracle, [place.to(rows.device) for place in places], [h.to(rows.device) for h in has])

    def _facts(self, problem: SetProblem, row: int) -> Facts:
        """An instance of a graph problem in the user's ids."""
        assert isinstance(problem, Problem)
        spec, instance, table = self.spec, problem.instances[row], problem.tables[row]
        labels = self.request.labels or {} if self.kind.exclusive else {}

        def default() -> str:
            features = (
                spec.units == ("edges",) and not self._tries_features and bool((instance.x != instance.x[:1]).any())
            )
            hints = [DEFAULT, TRY_FEATURES, TRY_ADDING] if features else [DEFAULT, TRY_ADDING]
            return "" if "add" in spec.edits else " ".join(hints)

        zeroed = not instance.x.is_floating_point() and any(name in ZEROED for name in table.names)
        narrow = NARROWED_NOTE.format(most=MAX_EDITS, all=instance.narrowed) if instance.narrowed else ""
        return Facts(
            _unit_table(instance, table, spec.question),
            self.request.targets.level,
            self.kind.name,
            labels.get(instance.key),
            instance.directed,
            instance.types,
            f"{narrow} {ZERO_NOTE if zeroed else ''}".strip(),
            default,
        )


# -- answers --------------------------------------------------------------------------------------------------


class Noisy(NamedTuple):
    """Some instances of a problem with edges of noise as further units, which contexts may have."""

    rows: Tensor  # [R], which instances of the problem they are
    oracle: Oracle
    places: list[Tensor]  # by instance, where the units of the problem are among those of the oracle
    added: list[Tensor]  # by instance, the edges that each context has beside those of the graph, bool [contexts, U]


class Facts(NamedTuple):
    """What an explanation says of its instance, whatever is asked."""

    units: UnitTable
    task: str
    output: str  # the name of its `OutputKind`
    label: int | None = None
    directed: bool = False
    types: Types | None = None
    note: str = ""
    default: Callable[[], str] = lambda: DEFAULT  # what is said where the answer stays when everything is gone


class Answers:
    """Answers to what is asked of problems, whatever their units are; `facts` says what an instance is."""

    def __init__(
        self,
        spec: Spec,
        method: Method,
        settings: Any,
        search: Search | None,
        facts: Callable[[SetProblem, int], Facts],
        class_names: Sequence[str] = (),
        last_word: Callable[[SetProblem, Tensor, Verdict], Verdict] | None = None,
        again: Callable[[SetProblem, Tensor, float], list[list[Explanation]]] | None = None,
        with_noise: Callable[[SetProblem, Tensor, int], Iterator[Noisy]] | None = None,
    ) -> None:
        self.class_names = class_names
        self.spec, self.method, self.settings, self.search, self.facts = spec, method, settings, search, facts
        self.searches = method.searches or search is not None
        self.last_word, self.again, self.with_noise = last_word, again, with_noise

    def of(self, problem: SetProblem, started: float) -> list[Explanation]:
        """Explanations of a problem's instances in their order, the best answer of each first."""
        spec, predicted = self.spec, problem.criterion.holds(problem.outputs)
        if self.searches and bool(predicted.any()) and not bool(predicted.all()):
            return self._answer_apart(problem, predicted, started)
        refused = _is_too_large(spec, int(problem.oracle.counts[0]))
        skipped = refused or not problem.oracle.width or (self.searches and not bool(predicted.any()))
        ranking = _no_ranking(problem) if skipped else self._ranking(problem)
        ranking, verdict = self._judged(problem, ranking)
        if self.again is not None and bool(verdict.mixed.any()):
            again = self.again(problem, verdict.mixed, started)
            if again:
                return self._merged(problem, verdict.mixed, again, started)
        sure: dict[int, Sure] = {}
        if spec.surely is not None and not skipped:
            ranking, sure = self._surely(problem, ranking, verdict.passes(problem.tests))
            ranking, verdict = self._judged(problem, ranking)
        searched = self.searches and not skipped
        others = self._others(problem, ranking, verdict) if searched and spec.alternatives > 1 else {}
        empty = _holds_empty(problem, verdict, self._confidence) if searched else None
        best = self._explanations(problem, ranking, verdict, refused, started, empty, sure)
        oracle = problem.oracle
        prices = problem.split(oracle.price[oracle.valid].cpu()) if oracle.price is not None else [None] * len(best)
        return [e for row, first in enumerate(best) for e in claimed(first, *others.get(row, ([], False)), prices[row])]

    def _class(self, number: int) -> str:
        return str(self.class_names[number]) if number < len(self.class_names) else f"class {number}"

    @property
    def reduces_itself(self) -> bool:
        """Whether an instance with very many units is reduced without being asked."""
        return self.searches and self.spec.max_units is None and self.spec.reduce is None

    def _answer_apart(self, problem: SetProblem, predicted: Tensor, started: float) -> list[Explanation]:
        """Search only where the model gives the answer that is asked about."""
        parts = [rows.nonzero().flatten() for rows in (predicted, ~predicted)]
        by_row = [own for rows in parts for own in _by_instance(self.of(problem.take(rows), started))]
        return [e for position in torch.cat(parts).argsort().tolist() for e in by_row[position]]

    def _merged(
        self, problem: SetProblem, mixed: Tensor, again: list[list[Explanation]], started: float
    ) -> list[Explanation]:
        """Answers in the order of instances, of which some [B, bool] are answered `again` already."""
        rest = (~mixed).nonzero().flatten()
        others = _by_instance(self.of(problem.take(rest), started)) if len(rest) else []
        parts = {True: iter(again), False: iter(others)}
        return [e for own in mixed.tolist() for e in next(parts[own])]

    def _judged(self, problem: SetProblem, ranking: Ranking) -> tuple[Ranking, Verdict]:
        """The ranking with what may be chosen of its choice, and the final check of that, whose last word is plain."""
        selected = problem.oracle.admissible(ranking.choice.selected)
        verdict = problem.judge(selected)
        if self.last_word is not None and not _is_too_large(self.spec, int(problem.oracle.counts[0])):
            verdict = self.last_word(problem, selected, verdict)
        return replace(ranking, choice=replace(ranking.choice, selected=selected)), verdict

    def _ranking(self, problem: SetProblem) -> Ranking:
        """What the method says of the units, with the choice of `sizes` or of a search from its scores."""
        ranking, sizes = named(self.method, self.method.rank)(problem, self.settings), self.spec.sizes
        if sizes is not None and not self.searches and isinstance(problem, Problem):
            selected = choose_once(problem, ranking.scores, k=problem.sizes(sizes), threshold=None)
            ranking = replace(ranking, choice=replace(ranking.choice, selected=selected))
        return ranking if self.search is None else search_from(problem, ranking, self.search)

    @property
    def _confidence(self) -> float:
        """The margin that an answer must pass its tests by."""
        return self._effort().confidence if self.searches else 0.0

    def _effort(self) -> Search:
        """How hard to look, and by which margin an answer must pass."""
        if self.search is not None:
            return self.search
        return Search(
            **{f.name: getattr(self.settings, f.name) for f in fields(Search) if hasattr(self.settings, f.name)}
        )

    def _others(self, problem: SetProblem, ranking: Ranking, verdict: Verdict) -> dict[int, Others]:
        """Further answers of the instances that have one, by row."""
        most, search = self.spec.alternatives, self._effort()
        trials = problem.trials(problem.constraints, search.confidence)
        alive = self._confirmed(problem, ranking.choice, verdict)
        others: dict[int, Others] = {}
        for row in alive.nonzero().flatten().tolist():  # all answers at once, where they can be listed
            answers = list_answers(trials, row, most, proof_budget(search))
            if answers is not None:
                alive[row] = False
                rows = torch.full((len(answers.sets),), row, device=alive.device)
                others[row] = (self._listed(problem.take(rows), answers.sets), answers.complete)
        known = problem.oracle.dense(ranking.choice.selected, False)[:, None]
        for _ in range(most - 1):  # elsewhere one after the other, each by a search for something else
            rows = alive.nonzero().flatten()
            if not len(rows):
                break
            part = problem.take(rows)
            part = replace(part, constraints=Besides(known[rows], part.constraints))
            used = known[rows].any(1)[trials.valid[rows]]
            scores = ranking.scores[alive[problem.oracle.owner]]
            start = Ranking(scores - USED * used, Choice(used & False, torch.zeros(len(rows), device=rows.device)))
            further, judged = self._judged(part, search_from(part, start, search))
            passed = self._confirmed(part, further.choice, judged)
            made = self._explanations(part, further, judged)
            for position in passed.nonzero().flatten().tolist():
                others.setdefault(int(rows[position]), ([], False))[0].append(made[position])
            alive[rows[~passed]] = False
            sets = torch.zeros_like(known[:, 0])
            own = part.oracle.dense(further.choice.selected, False)
            sets[rows[passed], : own.size(1)] = own[passed]
            known = torch.cat([known, sets[:, None]], 1)
        return others

    def _listed(self, repeated: SetProblem, sets: Tensor) -> list[Explanation]:
        """Explanations of sets that are known to be minimal answers of one instance, repeated once for each."""
        if not len(sets):
            return []
        count, bound = int(repeated.oracle.counts[0]), int(sets.sum(1).min())
        status, minimal = ["found"] * len(sets), [True] * len(sets)
        cost = torch.zeros(len(sets), device=sets.device)
        choice = Choice(sets[:, :count].reshape(-1), cost, status, minimal, lower_bound=[bound] * len(sets))
        scores = torch.zeros(len(sets) * count, device=sets.device)
        return self._explanations(repeated, *self._judged(repeated, Ranking(scores, choice)))

    def _explanations(
        self,
        problem: SetProblem,
        ranking: Ranking,
        verdict: Verdict,
        refused: bool = False,
        started: float | None = None,
        empty: Tensor | None = None,
        sure: Mapping[int, Sure] = MappingProxyType({}),
    ) -> list[Explanation]:
        """What was said, tried and verified, as one frozen value per instance; `claimed` says what follows from it.

        `empty` says of which instances the model gives the same answer with everything removed [B], and `sure` what
        was found by row where a sure set was looked for.
        """
        spec, choice, criterion = self.spec, ranking.choice, problem.criterion
        settings = asdict(self.settings)
        scores = [part.cpu().float().numpy() for part in problem.split(ranking.scores)]
        selected = [part.cpu().numpy() for part in problem.split(choice.selected)]
        P, only, without = (part.float().cpu().numpy() for part in (problem.outputs, verdict.only, verdict.without))
        sufficient, necessary = verdict.sufficient.tolist(), verdict.necessary.tolist()
        confirmed = verdict.passes(problem.tests, self._confidence).tolist()
        given = criterion.holds(problem.outputs).tolist()
        said, asked = criterion.said(problem.outputs).tolist(), criterion.answers.tolist()
        tied, plain = verdict.tied.tolist(), verdict.plain.tolist()
        evaluations, default = choice.evaluations.tolist(), None if empty is None else empty.tolist()
        if default is not None:
            for row, own in sure.items():
                default[row] = own.default  # its tests pass, so that this was not asked once more
        measured, runs = self._strengths(problem, choice.selected, sure)
        seconds = 0.0 if started is None else (time.perf_counter() - started) / max(problem.num_instances, 1)
        made = []
        for row, key in enumerate(problem.keys):
            facts = self.facts(problem, row)
            status, note = self._status(choice, row, confirmed[row], len(scores[row]), refused)
            if tied[row] and status in ("found", "impossible", "not found"):
                status, note = "tie", STATUSES["tie"]
            tried = status in ("impossible", "not found")
            if tried and default is not None and default[row] and given[row]:
                note = f"{facts.default()} {note}".strip()
            if not refused:
                note = f"{note} {facts.note}".strip()
            if not given[row] and status not in ("refused", "empty"):
                text = ALREADY if spec.question == "counterfactual" else NOT_PREDICTED
                called = {"said": self._class(said[row]), "asked": self._class(asked[row]), "number": asked[row]}
                status, note = "not predicted", text.format(**called)
            count, strength = 0 if refused else len(scores[row]), measured.get(row)
            made.append(
                Explanation(
                    key=key,
                    task=facts.task,
                    prediction=said[row],
                    units=UnitTable.none() if refused else facts.units,
                    scores=scores[row][:count],
                    selected=selected[row][:count],
                    probabilities=P[row],
                    probabilities_only=only[row],
                    probabilities_without=without[row],
                    sufficient=sufficient[row],
                    necessary=necessary[row],
                    minimal=choice.minimal[row] if choice.minimal else None,
                    optimal=choice.optimal[row] if choice.optimal else None,
                    status=status,
                    note=note,
                    question=spec.question,
                    method=spec.method,
                    settings=settings,
                    seed=spec.seed,
                    evaluations=int(evaluations[row]) + (1 + plain[row]) * VERDICT_RUNS + runs[row],
                    seconds=seconds,
                    directed=facts.directed,
                    label=facts.label,
                    target=None if spec.target is None else asked[row],
                    lower_bound=choice.lower_bound[row] if choice.lower_bound else None,
                    ps=None if strength is None else _plain(strength.ps),
                    pn=None if strength is None else _plain(strength.pn),
                    pns=None if strength is None else _plain(strength.pns),
                    contexts=strength.contexts if strength else 0,
                    all_contexts=strength is not None and strength.every,
                    counterexample=strength.lost if strength else None,
                    always_bound=strength.bound if strength else None,
                    surely=spec.surely,
                    curve=sure[row].curve if row in sure else (),
                    default=default[row] if default is not None and tried else None,
                    output=facts.output,
                    tolerance=getattr(criterion, "tolerance", None),
                    types=facts.types,
                    plain=None if self.last_word is None or refused else plain[row],
                    ranking="gradient" if refused or problem.oracle.has_slopes else "trials",
                )
            )
        return made

    def _draw(self, problem: SetProblem, stream_of: int, count: int) -> Draw:
        """Contexts that depend on the key and the seed and on nothing else."""
        seed = (self.spec.seed or 0) + stream_of
        return lambda row, free: draw_contexts(count, free, stream(seed, problem.keys[row]))

    @property
    def _contexts(self) -> int:
        """How many contexts a set is judged by."""
        return self.spec.contexts or (0 if self.spec.surely is None else SURE_CONTEXTS)

    def _strengths(
        self, problem: SetProblem, selected: Tensor, sure: Mapping[int, Sure]
    ) -> tuple[dict[int, Strength], list[int]]:
        """How surely chosen units [units] decide, by row, and what that cost [B].

        It is measured where there are units and the model gives the answer in question, and not yet known.
        """
        count, measured = self._contexts, {row: own.strength for row, own in sure.items()}
        asked = problem.criterion.holds(problem.outputs) & (problem.oracle.counts > 0)
        asked[list(sure)] = False
        rows = asked.nonzero().flatten()
        if not count or not len(rows) or _is_too_large(self.spec, int(problem.oracle.counts[0])):
            return measured, [0] * problem.num_instances
        sets, draw = problem.oracle.dense(selected, False), self._draw(problem, CONTEXT_STREAM, count)
        if self.spec.contexts_add and self.with_noise is not None:
            runs = torch.zeros(problem.num_instances, dtype=torch.long)
            for noisy in self.with_noise(problem, rows, count):
                found, runs[noisy.rows] = self._strengths_in_noise(problem, noisy, sets, draw)
                measured |= zip(noisy.rows.tolist(), found)
            return measured, runs.tolist()
        held = holding(problem.oracle, problem.criterion)
        measured |= zip(rows.tolist(), strengths(held, rows, sets[rows], count, draw))
        return measured, held.evaluations.tolist()

    def _strengths_in_noise(
        self, problem: SetProblem, noisy: Noisy, sets: Tensor, draw: Draw
    ) -> tuple[list[Strength], Tensor]:
        """How surely sets [B, U] decide in contexts that have edges of noise as well, and what that cost."""
        count = self._contexts
        own = torch.zeros((len(noisy.rows), noisy.oracle.width), dtype=torch.bool, device=sets.device)
        for position, (row, place) in enumerate(zip(noisy.rows.tolist(), noisy.places)):
            own[position, place[sets[row, : len(place)]]] = True
        held = holding(noisy.oracle, problem.criterion.take(noisy.rows))
        instances = torch.arange(len(own), device=sets.device)

        def noisy_draw(position: int, free: Tensor) -> Tensor:
            return draw(int(noisy.rows[position]), free) & ~noisy.added[position]

        measured = []
        for strength, place in zip(strengths(held, instances, own, count, noisy_draw, exact=False), noisy.places):
            unit_at = {wide: unit for unit, wide in enumerate(place.tolist())}
            lost = None if strength.lost is None else tuple(unit_at[wide] for wide in strength.lost)
            measured.append(replace(strength, lost=lost))
        return measured, held.evaluations

    def _surely(self, problem: SetProblem, ranking: Ranking, passed: Tensor) -> tuple[Ranking, dict[int, Sure]]:
        """Sets that decide as surely as was asked, from the smallest ones that pass; by row, what was found."""
        goal, count, rows = self.spec.surely, self._contexts, passed.nonzero().flatten()
        if goal is None or not len(rows):
            return ranking, {}
        choice, oracle = ranking.choice, problem.oracle
        trials, held = problem.trials(problem.constraints), holding(oracle, problem.criterion)
        sets = oracle.dense(choice.selected, False)
        draws = self._draw(problem, SEARCH_STREAM, SEARCH_CONTEXTS), self._draw(problem, CONTEXT_STREAM, count)
        sure = find_sure(trials, held, rows, sets[rows], goal, count, *draws)
        facts = {
            name: list(getattr(choice, name) or [None] * len(passed))
            for name in ("status", "minimal", "optimal", "notes")
        }
        for row, own in sure.items():
            if not bool((own.chosen == sets[row]).all()):  # no smaller set was tried by the contexts
                facts["minimal"][row] = facts["optimal"][row] = None
            facts["notes"][row] = facts["notes"][row] or ""
            if not own.reached:
                share, low, high = own.strength.pns
                note = f"{UNSURE_DEFAULT if own.default else ''} {UNSURE.format(share=share, low=low, high=high)}"
                facts["status"][row], facts["notes"][row] = "not found", f"{facts['notes'][row]} {note}".strip()
            sets[row] = own.chosen
        facts["notes"] = [note or "" for note in facts["notes"]]
        evaluations = choice.evaluations + trials.evaluations + held.evaluations
        choice = replace(choice, selected=sets[oracle.valid], evaluations=evaluations, **facts)
        return replace(ranking, choice=choice), sure

    def _confirmed(self, problem: SetProblem, choice: Choice, verdict: Verdict) -> Tensor:
        """Whether what a search has found is found by the final check as well [B]."""
        found = torch.tensor([status == "found" for status in choice.status or ()], device=problem.outputs.device)
        return found & verdict.passes(problem.tests, self._confidence)

    def _status(self, choice: Choice, row: int, confirmed: bool, units: int, refused: bool) -> tuple[str, str]:
        """The status of an explanation, which comes from the final check, and what a reader should know beside it."""
        limit = self.spec.max_units or 0
        if refused:
            return "refused", REFUSAL.format(units=units, limit=limit)
        if not units:
            return "empty", NOTHING
        status = "unverified" if choice.status is None else choice.status[row]
        notes = [choice.notes[row]] if choice.notes else []
        if status == "found" and not confirmed:
            status, notes = "not found", [UNCONFIRMED]
        if self.reduces_itself and units > MAX_UNREDUCED:
            notes.insert(0, f"{REDUCED_NOTE.format(limit=AUTO_REDUCED, units=units)} {REDUCED_ITSELF}")
        elif self.spec.reduce is not None and limit and units > limit:
            notes.insert(0, REDUCED_NOTE.format(limit=limit, units=units))
        return status, " ".join(notes).strip()


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
        trained: Trained = named(request.method, request.method.fit)(problems, session.settings, request.spec.seed or 0)
    return replace(trained, facts={**trained.facts, "seconds": time.perf_counter() - started})


# -- verdicts and tables of units -----------------------------------------------------------------------------


def _is_too_large(spec: Spec, units: int) -> bool:
    """Whether an instance with so many units is refused."""
    return spec.max_units is not None and spec.reduce is None and units > spec.max_units


def _no_ranking(problem: SetProblem) -> Ranking:
    """The ranking of instances that are not explained."""
    units = problem.oracle.owner
    return Ranking(units * 0.0, Choice(torch.zeros_like(units, dtype=torch.bool), torch.zeros(problem.num_instances)))


def last_word(problem: Problem, field: ReceptiveField, selected: Tensor, verdict: Verdict) -> Verdict:
    """The verdict of the user's whole graphs, each run alone, and which of it hangs on rounding or on the packing.

    Of a graph that is too large for that it stays the verdict of packs and receptive fields.
    """
    predictor, criterion, units = problem.predictor, problem.criterion, problem.pack.units
    fits = [field.runs_plainly(instance) for instance in problem.instances]
    rows, said = torch.tensor(fits, device=selected.device).nonzero().flatten(), [verdict.only, verdict.without]

    def plain(rows: Tensor, states: Tensor) -> Tensor:
        """In double precision, in which logits are told apart whose probabilities are one number in single."""
        own = problem.pack.split(states if units.fixed is None else states | units.fixed)
        given = ((problem.instances[row], problem.tables[row], own[row].cpu()) for row in rows.tolist())
        runs = [field.plain(instance, table, problem.pack, there) for instance, table, there in given]
        return predictor.probabilities(torch.cat(runs).to(selected.device).double())

    band, room = predictor.band(criterion), slack(criterion, problem.outputs, True)
    equal = rows[room[rows] == 0]  # as far as single precision goes
    if len(equal):
        values = plain(equal, torch.ones_like(selected))
        room[equal] = slack(criterion.take(equal), values, True)
    tied, mixed = _near_tie(room, band), torch.zeros_like(room, dtype=torch.bool)
    size = problem.outputs.abs().amax(1) if isinstance(criterion, Within) else torch.ones_like(problem.outputs[:, 0])
    for test in QUESTIONS["why"]:  # both outputs are shown, whichever of them the question asks about
        column, asked = int(not test.same), any(own.same == test.same for own in problem.tests)
        packed, now = said[column], slack(criterion, said[column], test.same)
        before = now.clone()
        if len(rows):
            values = plain(rows, test.intervention.states(selected, units.absent))
            off = (values - packed[rows]).abs().amax(1) > max(SAME_OUTPUT, predictor.precision**0.5) * size[rows]
            mixed[rows] |= off | (values.isnan().any(1) != packed[rows].isnan().any(1))
            now[rows] = slack(criterion.take(rows), values, test.same)
            said[column] = packed.index_copy(0, rows, values.to(packed.dtype))
        # What differs between a pack and a run alone is rounding, if the model does not mix.
        if asked:
            tied |= _near_tie(now, band) | (~mixed & (now.abs() < ROUNDINGS * (now - before).abs()))
    given = criterion.holds(problem.outputs)
    nothing = ~problem.oracle.dense(selected, False).any(1)
    return replace(
        verdict,
        only=said[0],
        without=said[1],
        sufficient=given & passes(criterion, said[0], same=True),
        necessary=given & passes(criterion, said[1], same=False) & ~nothing,
        margins=torch.stack([criterion.margin(said[0]), -criterion.margin(said[1])], 1),
        tied=tied | (mixed & predictor.alone),
        mixed=mixed,
        plain=torch.zeros_like(tied).index_fill(0, rows, True),
    )


def _by_instance(made: Iterable[Explanation]) -> list[list[Explanation]]:
    """All answers of an instance together; its first one has rank 0."""
    by_row: list[list[Explanation]] = []
    for e in made:
        if e.rank == 0:
            by_row.append([])
        by_row[-1].append(e)
    return by_row


def _near_tie(slack: Tensor, band: Tensor | float) -> Tensor:
    """Whether rounding decides; of an exact tie the first answer counts, to the user's argmax as well."""
    return (slack != 0) & (slack.abs() <= band)


def _plain(probability: Probability | None) -> tuple[float, float, float] | None:
    """A probability with its interval as a plain tuple, as a file gives it back."""
    return None if probability is None else (probability.value, probability.low, probability.high)


def claimed(
    first: Explanation, further: Sequence[Explanation] = (), complete: bool = False, price: Tensor | None = None
) -> list[Explanation]:
    """All answers of one instance, the smallest first, with what they claim: no claim is made anywhere else.

    Each comes with what its own search has tried. A further one was looked for beside those before it: below its bound
    nothing passes, but for sets that hold one of those, which are no smaller than that. `price` [units] is what each
    unit adds to the size of a set; a bound counts units, so there is none where some cost more than others.
    """
    bound, smallest = 0, first.num_units
    for e in (first, *further):
        bound = max(bound, min(e.lower_bound or 0, smallest))
        smallest = min(smallest, e.size if e.status == "found" else smallest)
    sets = [torch.from_numpy(e.selected) for e in (first, *further)]
    costs = [float(chosen.sum() if price is None else price[chosen].sum()) for chosen in sets]
    least = min(costs) if complete or first.optimal else -1.0
    answers = []
    for e, cost in zip((first, *(replace(e, scores=first.scores, seconds=0.0) for e in further)), costs):
        found = e.status == "found"
        bounded = price is None and first.lower_bound is not None and e.status in ("found", "not found")
        optimal = cost <= least + SAME_COST or (bounded and 0 < e.size <= bound)
        answers.append(
            replace(
                e,
                minimal=e.minimal if found else None,
                optimal=True if found and optimal else None,
                lower_bound=bound if bounded else None,
                complete=complete,
            )
        )
    kept = without_supersets(sets, costs)
    return [replace(answers[position], rank=rank) for rank, position in enumerate(kept)]


def _holds_empty(problem: SetProblem, verdict: Verdict, confidence: float) -> Tensor | None:
    """Whether the model gives the same answer with everything removed [B], if some set was looked for in vain."""
    failed = (~verdict.passes(problem.tests, confidence)).nonzero().flatten()
    if not len(failed) or problem.tests == QUESTIONS["factual"]:
        return None
    oracle = problem.oracle.take(failed)
    said = oracle.checked(torch.zeros_like(oracle.valid) if oracle.absent is None else oracle.absent)
    empty = torch.zeros(problem.num_instances, dtype=torch.bool, device=failed.device)
    empty[failed] = passes(problem.criterion.take(failed), said, same=True)
    return empty


def _unit_table(instance: Instance, table: InstanceUnits, question: str) -> UnitTable:
    kind, ids = table.kind.numpy().astype("int8"), table.ids.numpy()
    types = np.zeros(0, np.int16) if table.types is None else table.types.numpy().astype(np.int16)
    return UnitTable(table.names, kind, ids, _values(instance, table, question), _members(instance, table), types)


def _values(instance: Instance, table: InstanceUnits, question: str) -> np.ndarray:
    """What an edit makes of a feature: the column it leaves, the old value and the new one; nothing without edits."""
    named = [name for name in ("features", CHANGE.unit_kind) if name in table.names]
    if question != "counterfactual" or not named or not table.count:
        return np.zeros((0, 3))
    values = torch.full((table.count, 3), -1.0, dtype=torch.double)
    for name in named:
        rows = (table.kind == table.names.index(name)).nonzero().flatten()
        node = torch.searchsorted(instance.node_ids, table.ids[rows, 0])
        values[rows, 1] = instance.x[node, table.ids[rows, 1]].double()
        values[rows, 2] = 0.0
        if name == CHANGE.unit_kind and table.changes is not None and len(rows):
            own = table.changes.place[:, 1] == table.ids[table.changes.unit, 1]
            values[table.changes.unit[own], 2] = table.changes.value[own].double()
            values[rows, 0] = table.changes.source.double()
    return values.numpy()


def _members(instance: Instance, table: InstanceUnits) -> np.ndarray:
    """The edges of every group, one way where they have none: its row, and both ends."""
    if "groups" not in table.names or not table.count:
        return np.zeros((0, 3), np.int64)
    first, _ = table.edges
    grouped = (first >= 0) & (table.kind[first.clamp(min=0)] == table.names.index("groups"))
    ends = instance.node_ids[instance.edge_index[:, grouped]].t()
    ends = ends if instance.directed else ends.sort(1).values
    return np.unique(torch.cat([first[grouped, None], ends], 1).numpy(), axis=0)


# -- what is known about a model between requests -------------------------------------------------------------

State = list[tuple[Tensor, int]]  # tensors, and how often each was written to


class ModelCache:
    """A model and its data, with what was found out about them, for as long as neither changes."""

    def __init__(self, model: Any, data: Any) -> None:
        self.model, self.data = model, data
        self._targets: dict[Any, tuple[State, Targets]] = {}
        self._measured: dict[Any, tuple[State, Measured, Call | None]] = {}

    def targets(self, nodes: Any, spec: Spec) -> Targets:
        """What can be explained of the data, as it is now: the nodes or pairs of one graph, or graphs."""
        typed = (spec.leave_out_pair, spec.node_type, spec.edge_type, spec.reverse)
        key, state = (spec.level, spec.directed, nodes is None, *typed), self._state()
        if key not in self._targets or not _same(self._targets[key][0], state):
            graphs = graphs_of(self.data, spec.level, positions=nodes is not None)
            single = isinstance(graphs, Data | HeteroData) and spec.level != "graph"
            if single and nodes is None:
                raise CF2Error(
                    "Expected `nodes` or `pairs` beside a single graph",
                    got="none",
                    do='Pass nodes=[…] or pairs=[(u, v), …], or level="graph" to explain the graph as a whole.',
                )
            level = "graph" if not single else "pair" if spec.level == "pair" else "node"
            self._targets[key] = (state, targets_for(graphs, level, spec))
        return self._targets[key][1]

    def context(self, request: Request, keys: Sequence[Key]) -> dict[str, Any]:
        """What a reader of the explanations needs beside them, ready for JSON."""
        targets = request.targets
        if isinstance(targets, GraphTargets):
            graphs: Any = targets.graphs
            return request.names.context(lambda key: graphs[key], keys, len(targets)) | request.context()
        graph = graphs_of(self.data, targets.level, positions=True)
        return request.names.context(lambda key: graph, keys, None) | request.context()

    def measured(self, request: Request) -> Measured | None:
        """What is known about the model from an earlier call, if that still holds."""
        state, measured, _ = self._measured.get(_way(request), ([], None, None))
        return measured if _same(state, self._state()) else None

    def learn(self, session: Session) -> None:
        """Keep what a session has found out about the model."""
        if session.measured is not None:
            self._measured[_way(session.request)] = (self._state(), session.measured, session.request.call)

    def _state(self) -> State:
        """What is other when the model or a single graph has changed: torch counts writes to a tensor."""
        module = module_of(self.model)
        tensors = [*module.parameters(), *module.buffers()]
        if isinstance(self.data, Data | HeteroData):
            values = (value for store in self.data.stores for value in store.values())
            tensors += [value for value in values if isinstance(value, Tensor)]
        return [(tensor, 0 if tensor.is_inference() else tensor._version) for tensor in tensors]


def _way(request: Request) -> tuple[Any, ...]:
    """On what a measurement depends. A call need not be hashable; it is kept with what is known."""
    spec = request.spec
    return request.targets, id(request.call), spec.output, spec.masking, spec.device, spec.tolerance, spec.target


def _same(state: State, other: State) -> bool:
    """Whether these are the very same tensors, unwritten since; they are held, so that no other takes their place."""
    return len(state) == len(other) and all(a is b and x == y for (a, x), (b, y) in zip(state, other))
