"""A request carried out: keys are cut and packed, a method ranks their units, and what it chose is verified."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
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
from cf2.methods import registry
from cf2.methods.contract import LARGE, Method, Problem, SetProblem, named
from cf2.methods.reduction import MAX_EDITS, NARROWED_NOTE, narrowed, reduced, too_many
from cf2.methods.trained import Trained
from cf2.models.adapters import Call, adapter_for, module_of
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
from cf2.results.explanation import Explanation, UnitTable
from cf2.results.explanations import in_order
from cf2.results.names import Names, with_edges
from cf2.runs.answers import DEFAULT, Answers, Facts, Noisy, check_asked, check_class_names, is_too_large
from cf2.runs.progress import Progress
from cf2.sets.search import Search
from cf2.sets.tests import QUESTIONS, Verdict, Within, passes, slack
from cf2.units.constraints import Valid, constraints_for, flags
from cf2.units.edits import CHANGE, Editing, kinds_for, with_noise
from cf2.units.kinds import InstanceUnits, places_in, unit_kinds, units_of
from cf2.units.molecules import Molecules
from cf2.units.packs import Pack, chunks, pack

KEYS_AT_ONCE = 256  # keys that are cut at once, so that memory is bounded and the packs are the same on every engine
KEYS_TO_MEASURE = 64  # keys by which a model is measured
UNITS_PER_PART = 8_000  # units of one part: some seconds of work
NOISE_STREAM = 1 << 30  # keeps the edges of noise apart from what a method draws with the same seed
SAME_OUTPUT = 1e-4  # two values of a run closer than this are one, rounded otherwise

MEANT_BY_K = (  # which people try with methods that do not know it
    "Did you mean `alternatives`, the number of answers? Related options: `max_units`, and `sizes` for ranking methods."
)
STAYS_BARE = "The prediction stays the same without any edge, so the answer is made of {units}."
EDGES_IN_VAIN = "No set of edges alone passes, so the answer is made of {units}."
BOTH_IN_VAIN = "No set of {units} was found either."
NOT_ASKED = "The search over {units} failed: {error}"
# What `units="auto"` tries where edges fail. A node of a graph goes with all that it has: a feature that is a whole
# number has no value for "gone", and a position is no feature.
WIDER_UNITS = {"node": ("edges", "features"), "pair": ("edges", "features"), "graph": ("nodes",)}
MAX_AUTO_UNITS = 2_000  # units that `units="auto"` chooses from where edges fail
TRY_FEATURES = 'Features may decide it: try units=("edges", "features").'
TRY_ADDING = 'To look for added edges that change it, ask question="counterfactual", edits=("remove", "add").'
ZERO_NOTE = "Features are whole numbers; removing one sets it to 0, which may be a category."
ZEROED = ("features", "node_features", "columns")  # units that are removed by a 0
FAR_NOTE = "Nothing was found inside the receptive field, so edges to any node of the graph were tried too."
FAILED = ("impossible", "not found", "empty")  # statuses after which something wider is tried

Cut = tuple[Instance, InstanceUnits]  # a receptive field, and the units that can be chosen in it


# -- requests -------------------------------------------------------------------------------------------------


def check_names(spec: Spec, options: Iterable[str]) -> None:
    """Refuse a setting that neither the method nor the search knows, with the nearest name, `options` included."""
    method = registry.get(spec.method)
    searching = fields(Search) if spec.search and not method.searches else ()
    known = [f.name for f in (*fields(method.settings), *searching)]
    for name in spec.settings:
        what = f"an option, or a setting of method {spec.method!r}"
        if name == "k" and name not in known:
            raise CF2Error(f"Expected {what}", got=repr(name), do=MEANT_BY_K)
        if name not in known:
            raise unknown_name(what, name, [*known, *options])


def make_settings(spec: Spec, method: Method, trained: Any = None) -> tuple[Any, Search | None]:
    """The settings of the method of a Spec, and of a search from its scores where one is asked for."""
    method.check_units(kinds_for(spec))
    own, search = dict(spec.settings), None
    if spec.search and not method.searches:
        search = Search(**{f.name: own.pop(f.name) for f in fields(Search) if f.name in own})
    return method.make_settings(trained.merge(method.name, own) if isinstance(trained, Trained) else own), search


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
        require(spec.sizes is None or ranks, "Expected a ranking method with `k` for `sizes`", got=repr(spec.method))
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
        context: dict[str, Any] = {"method": self.spec.method, "spec": self.spec.to_json()}
        if self.valid is not None:
            context["own_valid"] = True  # a function, which a Spec does not hold
        if self.reference is not None:
            context["reference"] = len(self.reference)
        return context


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
        wider = WIDER_UNITS[request.targets.level]
        tries = spec.units == (AUTO,) and (method.searches or request.search is not None)
        self._wider = wider if tries and {*wider} <= {*(method.units or wider)} else ()
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
            adapter=adapter_for(request.model, request.targets.level, request.call, request.targets),
        )
        editing = Editing.of(spec, request.targets, request.reference)
        self.group = KEYS_AT_ONCE if editing is None else KEYS_AT_ONCE // 8  # candidates take room
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

    def __exit__(self, *raised: Any) -> None:
        self.predictor.__exit__(*raised)

    # -- measuring ----------------------------------------------------------------------------------------------

    def measure(self, keys: Sequence[Key]) -> Request:
        """The request with everything measured that a session would find out from these keys."""
        for _ in self.problems(keys[:KEYS_TO_MEASURE]):
            pass
        return replace(self.request, measured=self.measured)

    @property
    def measured(self) -> Measured | None:
        """What has been measured of the model so far; None where every key was refused."""
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
        instances = self.field.instances(keys[:KEYS_TO_MEASURE])
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
        small, large = self._apart([cut for cut in cuts if not is_too_large(self.spec, cut[1].count)])
        packs, start = [], 0
        for instances in instance_chunks(self.predictor, [instance for instance, _ in small]):
            fitting, start = small[start : start + len(instances)], start + len(instances)
            packs += [fitting[part] for part in chunks([table.count for _, table in fitting], max_units)]
        packs += large
        packs += [[cut] for cut in cuts if refused and is_too_large(self.spec, cut[1].count)]
        for part in packs:
            if not done.issuperset(instance.key for instance, _ in part):
                yield from self._packed(part, self.field)

    def _cut(self, keys: Sequence[Key], field: ReceptiveField) -> list[Cut]:
        require(
            "nodes" not in self.spec.units or not field.reach.knows_nodes,
            "Expected a model that runs without some of the nodes, for units='nodes'",
            got="one that needs all nodes, such as one with an embedding per node",
            do="Use units='edges'.",
        )
        return [(instance, units_of(instance, self.kinds)) for instance in field.instances(keys)]

    def _apart(self, cuts: Sequence[Cut]) -> tuple[list[Cut], list[list[Cut]]]:
        """What may be packed together, and each very large one by itself, as its search is bounded."""
        large = [self.answers.bounded and table.count > LARGE for _, table in cuts]
        small = [cut for cut, alone in zip(cuts, large) if not alone]
        return small, [[cut] for cut, alone in zip(cuts, large) if alone]

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
            yield problem if limit is None else reduced(problem, limit)

    def _problem(
        self, instances: Sequence[Instance], tables: Sequence[InstanceUnits], packed: Pack, outputs: Tensor
    ) -> Problem:
        """Packed instances with what is asked of them, and the constraints of an answer."""
        spec, predictor, tests = self.spec, self.predictor, QUESTIONS[self.spec.question]

        units = packed.units.flagged(flags(spec, instances, tables, self.request.targets.graph))
        packed = replace(packed, units=units).to(predictor.device)
        keys, wanted = [instance.key for instance in instances], spec.question == "counterfactual"
        criterion = criterion_for(outputs, keys, spec.target, self.kind, wanted=wanted, tolerance=self.tolerance)
        constraints = constraints_for(spec, packed, instances, tables, self.request.valid)
        oracle = GraphOracle(predictor, packed)
        asked = (keys, outputs, criterion, tests, constraints, spec.seed)
        return Problem(oracle, *asked, instances=instances, tables=tables, trained=self.request.trained)

    # -- from problems to explanations --------------------------------------------------------------------------

    def explain(
        self, keys: Sequence[Key], progress: Progress | None = None, *, best_so_far: bool = False
    ) -> list[Explanation]:
        """Explanations of the keys, in their order.

        With `best_so_far`, an interrupt ends the search, and what is finished comes with the smallest sets that had
        passed.
        """
        self.answers.resume = self._resume if best_so_far else None
        self._settle_tolerance(keys)
        explained = self.finished = list[Explanation]()
        for group in self._groups(keys):
            made: list[Explanation] = []
            for part in self._explained(self._problems(group)):
                made += [e for e in part if e.key not in self.answers.unfinished]
                self.finished = explained + made  # what an interrupt leaves
                if progress is not None:
                    progress(sum(not e.rank for e in part))
            # Those that are too large came last. What is asked for twice is explained twice, with the same result.
            explained += in_order(made, group)
            if self.interrupted:
                break
        self.finished = explained
        return explained

    @property
    def interrupted(self) -> bool:
        """Whether an interrupt has ended the search."""
        return self.answers.interrupted

    def _resume(self) -> None:
        """Borrow the model anew, as an interrupt may have left hooks in it that a verdict must not meet."""
        self.predictor.give_back()
        self.predictor.__enter__()

    def parts(self, chunk: Chunk) -> Iterator[list[Explanation]]:
        """Explanations of a chunk as they are made, some seconds of work at a time, in any order.

        How the keys are packed does not depend on what is done already, so the results do not either.
        """
        for group in self._groups(chunk.keys):
            yield from self._explained(self._problems(group, chunk.done, UNITS_PER_PART))

    def _explained(self, problems: Iterator[Problem]) -> Iterator[list[Explanation]]:
        started = time.perf_counter()
        for problem in problems:
            made = self.answers.of(problem, started)
            if not self.interrupted:
                with self.answers.until_interrupted():
                    made = self._with_wider_units(self._with_far_candidates(made))
            yield made
            if self.interrupted:
                return
            started = time.perf_counter()

    def _with_far_candidates(self, made: list[Explanation]) -> list[Explanation]:
        """Answers in their order, those sought in vain from candidates all over the graph if these are left open."""
        failed = {e.key: e for e in made if e.status in FAILED}
        if self._far_editing is None or not failed:
            return made
        field = ReceptiveField(self.predictor, self.request.targets, self.field.reach, self._far_editing)
        answers = self._tried_again(failed, field, lambda first: FAR_NOTE)
        return [new for e in made for new in (answers.get(e.key, [e]) if e.key in failed else [e])]

    def _with_wider_units(self, made: list[Explanation]) -> list[Explanation]:
        """Answers in their order; where no set of edges passes, one made of wider units if there is any."""
        failed = {e.key: e for e in made if e.status in FAILED}
        if not self._wider or not failed:
            return made
        wider, words = copy(self), " and ".join(self._wider)  # the same model, field and measurements
        most = min(self.spec.max_units or MAX_AUTO_UNITS, MAX_AUTO_UNITS)
        wider.spec = replace(self.spec, units=self._wider, max_units=most, reduce="gradient")
        wider.kinds = kinds_for(wider.spec)
        wider.answers = wider._answers()
        wider.answers.bounded = self.answers.bounded

        def note_of(first: Explanation) -> str:
            return (STAYS_BARE if first.default or first.status == "empty" else EDGES_IN_VAIN).format(units=words)

        in_vain, answers = BOTH_IN_VAIN.format(units=words), dict[Key, list[Explanation]]()
        try:
            answers = wider._tried_again(failed, self.field, note_of)
        except CF2Error as error:  # a model may need as many nodes as there were; edges do not take any away
            in_vain = NOT_ASKED.format(units=words, error=error)
        explained: list[Explanation] = []
        for e in made:
            new = answers.get(e.key, [e]) if e.key in failed else []
            if new and new[0].status == "found":
                explained += new
            elif new:
                spent = {name: getattr(new[0], name) for name in ("evaluations", "seconds")}
                explained.append(replace(e, note=f"{e.note} {in_vain}".strip(), **spent))
            else:
                explained.append(e)
        return explained

    def _tried_again(
        self, failed: Mapping[Key, Explanation], field: ReceptiveField, note_of: Callable[[Explanation], str]
    ) -> dict[Key, list[Explanation]]:
        """New answers to keys with a failed one, by key: the first has what both cost, and a word about it."""
        cuts = [cut for cut in self._cut(list(failed), field) if not is_too_large(self.spec, cut[1].count)]
        answers: dict[Key, list[Explanation]] = {}
        started = time.perf_counter()
        small, large = self._apart(cuts)
        for problem in (problem for part in [small, *large] for problem in self._packed(part, field)):
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

    def _answer_again(self, problem: SetProblem, mixed: Tensor, started: float) -> list[Explanation]:
        """Answers of some instances, one after the other, where the whole graph by itself said something else.

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
            alone = (single for cut in cuts for single in self._packed([cut], whole))
            return [e for single in alone for e in self.answers.of(single, started)]
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
            units = packed.units.flagged(flags(spec, part, tables, targets.graph))
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
            features = spec.units == ("edges",) and not self._wider and bool((instance.x != instance.x[:1]).any())
            hints = [DEFAULT, TRY_FEATURES, TRY_ADDING] if features else [DEFAULT, TRY_ADDING]
            return "" if "add" in spec.edits else " ".join(hints)

        counted = instance.x.size(1) and not instance.x.is_floating_point()
        zeroed = counted and any(name in ZEROED for name in table.names)
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


def train(request: Request, keys: Sequence[Key]) -> Trained:
    """Train the method of a request on some keys."""
    if request.method.fit is None:
        raise CF2Error("Expected a method that needs training", got=repr(request.spec.method))
    started = time.perf_counter()
    with Session(request, fitting=True) as session:
        problems = list(session.problems(keys))
        require(
            len(problems) > 0,
            "Expected training instances with at most `max_units` units",
            got=f"none among {len(keys)}",
            do='Raise max_units, or pass reduce="gradient".',
        )
        trained: Trained = named(request.method, request.method.fit)(problems, session.settings, request.spec.seed or 0)
    return replace(trained, facts={**trained.facts, "seconds": time.perf_counter() - started})


# -- verdicts and tables of units -----------------------------------------------------------------------------


def last_word(problem: Problem, field: ReceptiveField, selected: Tensor, verdict: Verdict) -> Verdict:
    """The verdict of the user's whole graphs, each run alone, and which of it hangs on rounding or on the packing.

    Of a graph that is too large for that it stays the verdict of packs and receptive fields.
    """
    predictor, criterion, units = problem.predictor, problem.criterion, problem.pack.units
    fits = [field.runs_plainly(instance) for instance in problem.instances]
    rows = torch.tensor(fits, device=selected.device).nonzero().flatten()
    said = [verdict.only.double(), verdict.without.double()]  # in which answers are told apart, as in `plain`

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
            said[column] = packed.index_copy(0, rows, values)
        # What differs between a pack and a run alone is rounding, if the model does not mix.
        if asked:
            tied |= _near_tie(now, band) | (~mixed & (now.abs() < ROUNDINGS * (now - before).abs()))
    given = criterion.holds(problem.outputs)
    nothing = ~problem.oracle.dense(selected, False).any(1)
    return replace(
        verdict,
        only=said[0].to(verdict.only.dtype),
        without=said[1].to(verdict.only.dtype),
        sufficient=given & passes(criterion, said[0], same=True),
        necessary=given & passes(criterion, said[1], same=False) & ~nothing,
        margins=torch.stack([criterion.margin(said[0]), -criterion.margin(said[1])], 1).to(verdict.margins.dtype),
        tied=tied | (mixed & predictor.alone),
        mixed=mixed,
        plain=torch.zeros_like(tied).index_fill(0, rows, True),
    )


def _near_tie(slack: Tensor, band: Tensor | float) -> Tensor:
    """Whether rounding decides; of an exact tie the first answer counts, to the user's argmax as well."""
    return (slack != 0) & (slack.abs() <= band)


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
                    "Expected `nodes` or `pairs` for a single graph",
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

    def with_edges(self, context: dict[str, Any], targets: Targets, found: Iterable[Explanation]) -> dict[str, Any]:
        """The context with the edges of graphs whose answers are made of something else."""
        if not isinstance(targets, GraphTargets):
            return context
        graphs: Any = targets.graphs
        bare = [e.key for e in found if "edges" not in e.units.names]
        return with_edges(context, lambda key: graphs[key], bare)

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
