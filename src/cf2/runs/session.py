"""The settings of a request: which are its method's, which those of a search from the method's scores."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.errors import CF2Error, require, unknown_name
from cf2.graphs.data import graphs_of
from cf2.graphs.graph import Instance
from cf2.graphs.targets import GraphTargets, Targets, targets_for
from cf2.methods import registry
from cf2.methods.contract import Method, Problem, Ranking, choose_once, search_from, settings_dict
from cf2.methods.reduction import MAX_EDITS, NARROWED_NOTE, REDUCED_NOTE, REFUSAL, narrowed, reduced, too_many
from cf2.methods.trained import Trained, check_needs
from cf2.models.adapters import Call, adapter_of, module_of
from cf2.models.neighbours import Neighbours, neighbours, single_removals
from cf2.models.outputs import (
    FORMS,
    OutputKind,
    check_labels,
    criterion_for,
    default_tolerance,
    takes_tolerance,
    target_columns,
)
from cf2.models.predictor import Findings, Predictor
from cf2.models.receptive_field import Reach, ReceptiveField, instance_chunks
from cf2.options import Key, Spec
from cf2.results.explanation import Explanation, UnitTable
from cf2.sets.alternatives import list_answers, without_supersets
from cf2.sets.search import Choice, Search, proof_budget
from cf2.sets.tests import QUESTIONS, VERDICT_RUNS, Verdict
from cf2.units.constraints import SetConstraints, Valid, constraints_for, flags
from cf2.units.edits import CHANGE, Editing, kinds_for
from cf2.units.kinds import InstanceUnits, units_of
from cf2.units.packs import Pack, chunks, pack

# -- settings --------------------------------------------------------------------------------------------


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
    method.check_units(kinds_for(spec))
    own, search = split_settings(spec, method)
    searching = {} if search is None else settings_dict(Search(**search))
    return replace(spec, settings=settings_dict(method.make_settings(own)) | searching)


# -- verified --------------------------------------------------------------------------------------------


NOTHING = "The receptive field has no unit that can be removed: the prediction rests on the rest of the input."
UNCONFIRMED = "The search ended with a set that the final check does not confirm."
ALREADY = "The model says class {asked} already: nothing has to change."
DEFAULT = (
    "The model gives the same answer when everything that can be removed is gone, so it may need none of that. "
    'Ask question="counterfactual", edits=("remove", "add") for what would have to be added.'
)
NOT_PREDICTED = (
    "The model says class {said}, not class {asked}: nothing can be the reason for an answer that it does not give. "
    'Ask question="counterfactual", target={asked} for what would have to change.'
)


class Asked(Protocol):
    """What an explanation says of the request that it answers."""

    @property
    def targets(self) -> Targets: ...

    @property
    def spec(self) -> Spec: ...

    @property
    def labels(self) -> Mapping[Key, int] | None: ...


def explanations(
    request: Asked,
    settings: Any,
    problem: Problem,
    ranking: Ranking,
    verdict: Verdict,
    refused: bool,
    seconds: float,
    empty: Tensor | None = None,
) -> Iterator[Explanation]:
    """What was said and verified, as one frozen value per instance.

    `empty` says of which instances the model gives the same answer with everything removed [B].
    """
    spec, choice, labels = request.spec, ranking.choice, request.labels or {}
    plain = settings_dict(settings)
    scores = [part.cpu().float().numpy() for part in problem.pack.split(ranking.scores)]
    selected = [part.cpu().numpy() for part in problem.pack.split(choice.selected)]
    P, only, without = (part.float().cpu().numpy() for part in (problem.outputs, verdict.only, verdict.without))
    confirmed, given = verdict.passes(problem.tests).tolist(), problem.criterion.holds(problem.outputs).tolist()
    said, asked = problem.criterion.said(problem.outputs).tolist(), problem.criterion.answers.tolist()
    default = None if empty is None else empty.tolist()
    assert problem.predictor.findings is not None
    kind = FORMS[problem.predictor.findings.output].kind
    for row, (instance, table) in enumerate(zip(problem.instances, problem.tables)):
        status, note = _status(spec, choice, row, confirmed[row], table.count, refused)
        tried = status in ("impossible", "not found")
        if tried and default is not None and default[row] and given[row] and _may_add(spec):
            note = f"{DEFAULT} {note}".strip()
        if instance.narrowed and not refused:
            note = f"{note} {NARROWED_NOTE.format(most=MAX_EDITS, all=instance.narrowed)}".strip()
        if not given[row] and status not in ("refused", "empty"):
            text = ALREADY if spec.question == "counterfactual" else NOT_PREDICTED
            status, note = "not predicted", text.format(said=said[row], asked=asked[row])
        kept = 0 if refused else len(scores[row])
        found = status == "found"
        yield Explanation(
            key=instance.key,
            task=request.targets.level,
            prediction=said[row],
            units=UnitTable.none() if refused else _unit_table(instance, table, spec.question),
            scores=scores[row][:kept],
            selected=selected[row][:kept],
            probabilities=P[row],
            probabilities_only=only[row],
            probabilities_without=without[row],
            sufficient=bool(verdict.sufficient[row]),
            necessary=bool(verdict.necessary[row]),
            minimal=choice.minimal[row] if found and choice.minimal else None,
            optimal=choice.optimal[row] if found and choice.optimal else None,
            status=status,
            note=note,
            question=spec.question,
            method=spec.method,
            settings=plain,
            seed=spec.seed,
            evaluations=int(choice.evaluations[row]) + VERDICT_RUNS,
            seconds=seconds,
            directed=instance.directed,
            label=labels.get(instance.key) if kind.exclusive else None,
            target=None if spec.target is None else asked[row],
            lower_bound=_bound(spec, choice, row) if status in ("found", "not found") else None,
            default=default[row] if default is not None and tried else None,
            output=kind.name,
            tolerance=getattr(problem.criterion, "tolerance", None),
            types=instance.types,
        )


def _may_add(spec: Spec) -> bool:
    """Whether edits that add could be asked for, and were not."""
    return "add" not in spec.edits


def _bound(spec: Spec, choice: Choice, row: int) -> int | None:
    """The size below which nothing passes; it counts units, so there is none where some cost more than others."""
    return None if choice.lower_bound is None or spec.costs else choice.lower_bound[row]


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
    if "groups" not in table.names:
        return np.zeros((0, 3), np.int64)
    first, _ = table.edges
    mine = (first >= 0) & (table.kind[first.clamp(min=0)] == table.names.index("groups"))
    ends = instance.node_ids[instance.edge_index[:, mine]].t()
    ends = ends if instance.directed else ends.sort(1).values
    return np.unique(torch.cat([first[mine, None], ends], 1).numpy(), axis=0)


def _status(spec: Spec, choice: Choice, row: int, confirmed: bool, units: int, refused: bool) -> tuple[str, str]:
    """The status of an explanation, which comes from the final check, and what a reader should know beside it."""
    limit = spec.max_units or 0
    if refused:
        return "refused", REFUSAL.format(units=units, limit=limit)
    if not units:
        return "empty", NOTHING
    status = "unverified" if choice.status is None else choice.status[row]
    notes = [choice.notes[row]] if choice.notes else []
    if status == "found" and not confirmed:
        status, notes = "not found", [UNCONFIRMED]
    if spec.reduce is not None and limit and units > limit:
        notes.insert(0, REDUCED_NOTE.format(limit=limit, units=units))
    return status, " ".join(notes).strip()


# -- answers ---------------------------------------------------------------------------------------------


LAST = 1e4  # by how much a unit that was used falls in the ranking of a further search


@dataclass(frozen=True, eq=False)
class Answers:
    """How one request is answered, whatever its problems are."""

    request: Asked
    method: Any  # Method
    settings: Any
    search: Search | None  # of a method that only ranks
    refuses: Any  # whether an instance with these units is too large

    @property
    def searches(self) -> bool:
        return self.method.searches or self.search is not None

    def explain(self, problem: Problem, started: float) -> list[Explanation]:
        """Explanations of a problem's instances in their order, the best answer of each first."""
        asked = problem.criterion.holds(problem.outputs)
        if self.searches and bool(asked.any()) and not bool(asked.all()):
            return self._apart(problem, asked, started)
        refused = self.refuses(problem.tables[0])
        skipped = refused or not problem.pack.units.count or (self.searches and not bool(asked.any()))
        ranking = _nothing(problem) if skipped else self.method.rank(problem, self.settings)
        sizes = self.request.spec.sizes
        if sizes is not None and not skipped and not self.searches:
            most = choose_once(problem, ranking.scores, k=problem.sizes(sizes), threshold=None)
            ranking = replace(ranking, choice=replace(ranking.choice, selected=most))
        if self.search is not None and not skipped:
            ranking = search_from(problem, ranking, self.search)
        ranking, verdict = _judged(problem, ranking)
        looked = self.searches and not skipped
        several = looked and self.request.spec.alternatives > 1
        others = self._others(problem, ranking, verdict) if several else {}
        empty = _default(problem, verdict) if looked else None
        seconds = (time.perf_counter() - started) / max(problem.num_instances, 1)
        best = explanations(self.request, self.settings, problem, ranking, verdict, refused, seconds, empty)
        if looked and self.request.spec.robust:
            best = iter(_with_robustness(problem, ranking, list(best)))
        return [e for row, first in enumerate(best) for e in _ordered(first, others.get(row))]

    def _apart(self, problem: Problem, asked: Tensor, started: float) -> list[Explanation]:
        """Search only where the model gives the answer that is asked about."""
        parts = [rows.nonzero().flatten() for rows in (asked, ~asked)]
        made = [_by_key(self.explain(problem.take(rows), started), len(rows)) for rows in parts]
        listed = [answers for part in made for answers in part]
        return [e for place in torch.cat(parts).argsort().tolist() for e in listed[place]]

    def _others(
        self, problem: Problem, ranking: Ranking, verdict: Verdict
    ) -> dict[int, tuple[list[Explanation], bool]]:
        """Further answers of the instances that have one, by row, and whether these are all there are."""
        most, settings = self.request.spec.alternatives, self._search_settings()
        assert isinstance(problem.constraints, SetConstraints)
        trials = problem.trials(problem.constraints)
        alive = verdict.passes(problem.tests)
        found: dict[int, tuple[list[Explanation], bool]] = {}
        for row in alive.nonzero().flatten().tolist():
            listed = list_answers(trials, row, most, proof_budget(settings))
            if listed is not None:
                alive[row] = False
                rows = torch.full((len(listed.sets),), row, device=alive.device)
                found[row] = (self._made(problem.take(rows), listed.sets), listed.complete)
        known = problem.oracle.dense(ranking.choice.selected, False)[:, None]
        for _ in range(most - 1):
            rows = alive.nonzero().flatten()
            if not len(rows):
                break
            sub = problem.take(rows)
            assert isinstance(sub.constraints, SetConstraints)
            width = int(sub.pack.units.counts.max())
            sub = replace(sub, constraints=sub.constraints.besides(known[rows][:, :, :width]))
            used = known[rows].any(1)[trials.valid[rows]]
            scores = ranking.scores[alive[problem.pack.units.owner]]
            start = Ranking(scores - LAST * used, Choice(used & False, torch.zeros(len(rows), device=rows.device)))
            again, judged = _judged(sub, search_from(sub, start, settings))
            good = judged.passes(sub.tests)
            made = list(explanations(self.request, self.settings, sub, again, judged, False, 0.0))
            for place in good.nonzero().flatten().tolist():
                found.setdefault(int(rows[place]), ([], False))[0].append(made[place])
            alive[rows[~good]] = False
            sets = torch.zeros_like(known[:, 0])
            own = sub.oracle.dense(again.choice.selected, False)
            sets[rows[good], : own.size(1)] = own[good]
            known = torch.cat([known, sets[:, None]], 1)
        return found

    def _made(self, sub: Problem, sets: Tensor) -> list[Explanation]:
        """Explanations of sets that are known to be minimal answers of one instance, repeated once for each."""
        if not len(sets):
            return []
        count, size = int(sub.pack.units.counts[0]), sets.sum(1)
        smallest: list[bool | None] = [bool(one == size.min()) or None for one in size]
        mine = torch.zeros(len(sets) * count, device=sets.device)
        choice = Choice(
            sets[:, :count].reshape(-1),
            torch.zeros(len(sets), device=sets.device),
            ["found"] * len(sets),
            [True] * len(sets),
            smallest,
        )
        made, judged = _judged(sub, Ranking(mine, choice))
        return list(explanations(self.request, self.settings, sub, made, judged, False, 0.0))

    def _search_settings(self) -> Search:
        if self.search is not None:
            return self.search
        names = ("effort", "confidence", "proof")
        return Search(**{name: getattr(self.settings, name) for name in names if hasattr(self.settings, name)})


def _judged(problem: Problem, ranking: Ranking) -> tuple[Ranking, Verdict]:
    """The ranking with what may be chosen of its choice, and the final check of that."""
    selected = problem.pack.units.admissible(ranking.choice.selected)
    verdict = problem.judge(selected)
    return replace(ranking, choice=replace(ranking.choice, selected=selected)), verdict


def _ordered(first: Explanation, others: tuple[list[Explanation], bool] | None) -> list[Explanation]:
    """All answers of one instance, the smallest first, none with another one inside."""
    if others is None:
        return [first]
    listed, complete = others
    made = [first, *(replace(e, scores=first.scores, seconds=0.0) for e in listed)]
    kept = without_supersets([torch.from_numpy(e.selected) for e in made])
    return [replace(made[place], rank=rank, complete=complete) for rank, place in enumerate(kept)]


def _by_key(made: list[Explanation], count: int) -> list[list[Explanation]]:
    """Explanations as lists of answers, one list per instance."""
    groups: list[list[Explanation]] = []
    for e in made:
        if e.rank == 0:
            groups.append([])
        groups[-1].append(e)
    assert len(groups) == count
    return groups


def _default(problem: Problem, verdict: Verdict) -> Tensor | None:
    """Whether the model gives the same answer with everything removed [B], if some set was looked for in vain."""
    failed = (~verdict.passes(problem.tests)).nonzero().flatten()
    if not len(failed) or problem.tests == QUESTIONS["factual"]:
        return None
    pack = problem.pack.take(failed)
    everything = pack.units.kept(torch.zeros_like(pack.units.owner, dtype=torch.bool))
    said = problem.predictor.hard(pack, everything)
    empty = torch.zeros(problem.num_instances, dtype=torch.bool, device=failed.device)
    empty[failed] = problem.criterion.take(failed).holds(said)
    return empty


def _with_robustness(problem: Problem, ranking: Ranking, made: list[Explanation]) -> list[Explanation]:
    """Explanations that say on how many disturbed graphs they pass, and of how many with one other unit gone."""
    assert isinstance(problem.constraints, SetConstraints)
    near = problem.constraints.neighbours
    assert isinstance(near, Neighbours)
    sets = problem.oracle.dense(ranking.choice.selected, False)
    passed, tried, _ = near.passed(torch.arange(len(made), device=sets.device), sets)
    criterion, tests = problem.criterion, problem.tests
    kept, removals = single_removals(problem.predictor, problem.pack, criterion, tests, ranking.choice.selected)
    cost = (near.evaluations + 2 * removals).tolist()
    numbers = zip(passed.tolist(), tried.tolist(), kept.tolist(), removals.tolist())
    return [
        replace(e, robust=(p, t), robust_removals=(k, r), evaluations=e.evaluations + extra)
        if e.status not in ("empty", "refused", "not predicted")
        else e
        for e, (p, t, k, r), extra in zip(made, numbers, cost)
    ]


def _nothing(problem: Problem) -> Ranking:
    """The ranking of instances that are not explained."""
    units = problem.pack.units.owner
    return Ranking(units * 0.0, Choice(torch.zeros_like(units, dtype=torch.bool), torch.zeros(problem.num_instances)))


# -- wider -----------------------------------------------------------------------------------------------


IN_VAIN = ("impossible", "not found", "empty")
WIDER_NOTE = (
    "With edges inside of the receptive field alone nothing was found, so edges to nodes all over the graph count too."
)


class Searching(Protocol):
    """What is asked of a session."""

    request: Any
    wider: Editing | None
    predictor: Predictor
    field: ReceptiveField
    answers: Answers

    def known(self, keys: Sequence[Key], field: ReceptiveField | None) -> list[tuple[Instance, InstanceUnits]]: ...

    def packed(
        self, known: Sequence[tuple[Instance, InstanceUnits]], field: ReceptiveField | None
    ) -> Iterator[Problem]: ...

    @property
    def is_too_large(self) -> Callable[[InstanceUnits], bool]: ...


def answers_from_wider(session: Searching, made: list[Explanation]) -> list[Explanation]:
    """Answers in their order, those that were sought in vain from wider candidates if a request leaves these open."""
    failed = {e.key: e for e in made if e.status in IN_VAIN}
    if session.wider is None or not failed:
        return made
    field = ReceptiveField(session.predictor, session.request.targets, session.field.reach, session.wider)
    known = [one for one in session.known(list(failed), field) if not session.is_too_large(one[1])]
    again: dict[Key, list[Explanation]] = {}
    started = time.perf_counter()
    for problem in session.packed(known, field):
        for e in session.answers.explain(problem, started):
            again.setdefault(e.key, []).append(_after(e, failed[e.key]))
        started = time.perf_counter()
    return [new for e in made for new in (again.get(e.key, [e]) if e.key in failed else [e])]


def _after(e: Explanation, first: Explanation) -> Explanation:
    """An explanation with what the first try cost, and a word about it."""
    if e.rank:
        return e
    cost = {"evaluations": e.evaluations + first.evaluations, "seconds": e.seconds + first.seconds}
    return replace(e, note=f"{WIDER_NOTE} {e.note}".strip(), **cost)  # type: ignore[arg-type]


# -- session ---------------------------------------------------------------------------------------------


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
            self.spec.tolerance is None or takes_tolerance(self.spec.output),
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
        if not takes_tolerance(self.spec.output) or self.tolerance is not None:
            return
        instances = self.field.instances(keys[:FIRST])
        takes = self.predictor.adapter.takes
        outputs = torch.cat([P for _, _, P in self.field.packed(instances, lambda part: pack(part, takes=takes))])
        columns = target_columns(outputs, [instance.key for instance in instances], self.spec.target, self.kind)
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
        """Packed instances with what is asked of them, and under which constraints."""
        spec = self.spec
        units = packed.units.flagged(flags(spec, instances, tables))
        packed = replace(packed, units=units).to(self.predictor.device)
        keys = [instance.key for instance in instances]
        wanted = spec.question == "counterfactual"
        criterion = criterion_for(P, keys, spec.target, self.kind, wanted=wanted, tolerance=self.tolerance)
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
            constraints_for(spec, packed, instances, tables, self.request.valid, disturbed),
            spec.seed,
            self.request.trained,
        )

    @property
    def kind(self) -> OutputKind:
        """What the model's outputs are: classes, labels or numbers."""
        assert self.predictor.findings is not None
        return FORMS[self.predictor.findings.output].kind

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


# -- planning --------------------------------------------------------------------------------------------


State = list[tuple[torch.Tensor, int]]


class Kept:
    """A model and its data, with what was found out about them, for as long as neither changes."""

    def __init__(self, model: Any, data: Any) -> None:
        self.model, self.data = model, data
        self._targets: dict[Any, tuple[State, Targets]] = {}
        self._measured: dict[Any, tuple[State, Measured]] = {}

    def targets(self, nodes: Any, spec: Spec) -> Targets:
        """What can be explained of the data, as it is now."""
        asked = (spec.leave_out_pair, spec.node_type, spec.edge_type, spec.reverse)
        kind, state = (spec.level, spec.directed, nodes is None, *asked), self._state()
        if kind not in self._targets or not _same(self._targets[kind][0], state):
            self._targets[kind] = (state, make_targets(self.data, nodes, spec))
        return self._targets[kind][1]

    @staticmethod
    def graph_count(request: Request) -> int | None:
        """How many graphs there are to explain; None where nodes or pairs of one are."""
        return len(request.targets) if isinstance(request.targets, GraphTargets) else None

    def graph_of(self, request: Request) -> Callable[[Key], Any]:
        """Gives the user's graph that a key is explained in."""
        targets = request.targets
        if isinstance(targets, GraphTargets):
            return lambda key: targets.graphs[key]  # type: ignore[index]
        one = graphs_of(self.data, targets.level, positions=True)
        return lambda key: one

    def measured(self, request: Request) -> Measured | None:
        """What is known about the model from an earlier call, if that still holds."""
        state, known = self._measured.get(self._way(request), ([], None))
        return known if _same(state, self._state()) else None

    def learn(self, session: Session) -> None:
        """Keep what a session has found out about the model."""
        known = session.measured
        if known is not None:
            self._measured[self._way(session.request)] = (self._state(), known)

    @staticmethod
    def _way(request: Request) -> tuple[Any, ...]:
        spec = request.spec
        way = (spec.output, spec.masking, spec.device, spec.tolerance, spec.target)
        return request.targets, request.call, *way  # themselves, so that they live as long as what is known of them

    def _state(self) -> State:
        """What is other when the model or a single graph has changed: torch counts writes to a tensor."""
        module = module_of(self.model)
        tensors = [*module.parameters(), *module.buffers()]
        if isinstance(self.data, Data | HeteroData):
            held = (value for store in self.data.stores for value in store.values())
            tensors += [value for value in held if isinstance(value, torch.Tensor)]
        return [(tensor, 0 if tensor.is_inference() else tensor._version) for tensor in tensors]


def _same(one: State, other: State) -> bool:
    """Whether these are the very same tensors, unwritten since; they are held, so that no other takes their place."""
    return len(one) == len(other) and all(a is b and x == y for (a, x), (b, y) in zip(one, other))


def plan(
    model: Any,
    data: Any,
    nodes: Any,
    spec: Spec,
    *,
    pairs: Any = None,
    target: Any = None,
    trained: Any = None,
    call: Call | None = None,
    options: Iterable[str] = (),
) -> tuple[Request, list[Key]]:
    """The request that `explain` would carry out, and the keys; `target` is a class, or one per key in their order.

    `options` are the names that may have been meant where one is misspelt.
    """
    check_names(spec, options)
    if pairs is not None:
        require(nodes is None, "Expected either `nodes` or `pairs`", got="both")
        spec = replace(spec, level="pair")
    kept, named = data if isinstance(data, Kept) else None, nodes if pairs is None else pairs
    targets = make_targets(data, named, spec) if kept is None else kept.targets(named, spec)
    keys = targets.check(named)
    if target is not None:
        spec = replace(spec, target=_classes(target, keys, len(targets)))
    if isinstance(spec.sizes, tuple):
        known = dict(spec.sizes)
        missing = next((key for key in keys if key not in known), None)
        require(missing is None, "Expected a size in `sizes` for every key", got=f"none for {missing}")
    needed = check_needs(registry.get(spec.method), trained)
    request = Request(module_of(model), targets, spec, needed, targets.labels(keys), call=call)
    return request if kept is None else replace(request, measured=kept.measured(request)), keys


def _classes(given: Any, keys: Sequence[Key], count: int) -> Any:
    """A class for all keys, or pairs of a key and its class, which the Spec checks."""
    if isinstance(given, Mapping):
        return given
    try:
        listed = given.tolist() if hasattr(given, "tolist") else list(given) if isinstance(given, range) else given
    except Exception as error:  # of a tensor without values, or a sparse one
        got = f"an object of type {type(given).__name__}"
        raise CF2Error("Expected `target` to be a class, or one for each key", got=got) from error
    if not isinstance(listed, list | tuple):
        return listed
    require(
        len(listed) == len(keys),
        f"Expected one class in `target` per key, {len(keys)}",
        got=len(listed),
        do="Pass target[nodes], the classes of what is explained." if len(listed) == count else "",
    )
    return tuple(zip(keys, listed))


def make_targets(data: Any, nodes: Any, spec: Spec) -> Targets:
    """What can be explained of the user's data: the nodes or pairs of one graph, or graphs."""
    graphs = graphs_of(data, spec.level, positions=nodes is not None)
    if not isinstance(graphs, Data | HeteroData) or spec.level == "graph":
        return targets_for(graphs, "graph", spec)
    if nodes is None:
        raise CF2Error(
            "Expected `nodes` or `pairs` beside a single graph",
            got="none",
            do='Pass nodes=[…] or pairs=[(u, v), …], or level="graph" to explain the graph as a whole.',
        )
    return targets_for(graphs, "pair" if spec.level == "pair" else "node", spec)
