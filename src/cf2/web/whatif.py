"""Explaining again, one at a time: with a place to wait, a time limit, and a way to give up.

Python cannot end a thread from outside. So what is done here asks before every run of the model whether to go on.
"""

from __future__ import annotations

import copy
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from cf2.errors import CF2Error, require
from cf2.graphs.graph import Changes, Instance
from cf2.methods.contract import Problem
from cf2.models.oracle import outputs_after
from cf2.models.outputs import criterion_for
from cf2.models.receptive_field import ReceptiveField
from cf2.options import Edit as Sort
from cf2.options import Key, Spec
from cf2.report.words import atom_names, class_name, class_names, describe_change, describe_target, key_id
from cf2.results.explanation import VERDICTS, Explanation
from cf2.results.explanations import Explanations
from cf2.runs.session import Kept, Session
from cf2.runs.source import ModelAndData
from cf2.sets.tests import EDITED
from cf2.units.edits import ADD, CHANGE, EDITS, Editing, is_candidate
from cf2.units.kinds import InstanceUnits, unit_kinds, units_of
from cf2.units.packs import pack
from cf2.web.labels import visible, visible_context

# -- again -----------------------------------------------------------------------------------------------


SECONDS = 300.0  # that one explanation may take
WAITING = 3  # explanations that may wait for the one that is made; each of them holds a thread of the server

GoOn = Callable[[], None]  # returns, or raises `Stopped`


class Stopped(CF2Error):
    """An explanation that is not made: there is no room, the time is over, or it is not wanted any more."""


@dataclass(eq=False)
class _Job:
    visitor: str
    cancelled: threading.Event = field(default_factory=threading.Event)
    until: float = float("inf")
    runs: int = 0  # of the model
    future: Future[Any] = field(init=False)


class Queue:
    """Does what it is given one after the other, in a thread of its own.

    Parameters
    ----------
    seconds : float
        How long each may take; the time that it waits does not count.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < float("inf")
        require(good, "Expected a time limit of more than 0 seconds", got=repr(seconds))
        self.seconds = float(seconds)
        self._jobs: list[_Job] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "cf2-again")
        self._closed = False

    def run(self, visitor: str, work: Callable[[GoOn], Any]) -> Any:
        """What `work` returns. It gets a function to call now and then, which raises `Stopped` when it is to end."""
        job = _Job(visitor)
        with self._lock:
            if self._closed:
                raise Stopped("The page is being closed")
            if len(self._jobs) > WAITING:
                busy = f"Busy: one is being explained and {WAITING} wait"
                raise Stopped(busy, do="Try again when one of them has ended.")
            self._jobs.append(job)
            job.future = self._pool.submit(self._do, job, work)
        try:
            return job.future.result()
        except CancelledError:
            raise Stopped("Cancelled") from None

    def cancel(self, visitor: str) -> int:
        """Have all that a visitor asked for end, and say how many that are."""
        with self._lock:
            found = [job for job in self._jobs if job.visitor == visitor]
        for job in found:
            self._cancel(job)
        return len(found)

    def progress(self, visitor: str) -> str:
        """How far the newest of what a visitor asked for has come, in words; empty where there is nothing."""
        with self._lock:
            places = [place for place, job in enumerate(self._jobs) if job.visitor == visitor]
            if not places:
                return ""
            job, ahead = self._jobs[places[-1]], places[-1]
        if ahead:
            return f"Waiting for {ahead} before it; at most {self.seconds:g} s each."
        spent = max(0.0, time.monotonic() - job.until + self.seconds) if job.until < float("inf") else 0.0
        return f"Explaining: {job.runs:,} runs of the model, {spent:.0f} s of at most {self.seconds:g} s."

    def close(self) -> None:
        """Have everything end; nothing can be run afterwards."""
        with self._lock:
            self._closed, found = True, list(self._jobs)
        for job in found:
            self._cancel(job)
        self._pool.shutdown(wait=False)

    def __len__(self) -> int:
        """How many are being made or wait."""
        with self._lock:
            return len(self._jobs)

    def _do(self, job: _Job, work: Callable[[GoOn], Any]) -> Any:
        job.until = time.monotonic() + self.seconds
        try:
            return work(lambda: self._check(job))
        finally:
            self._forget(job)

    def _check(self, job: _Job) -> None:
        job.runs += 1
        if job.cancelled.is_set():
            raise Stopped("Cancelled")
        if time.monotonic() > job.until:
            raise Stopped(f"Stopped after {self.seconds:g} seconds, the limit for one explanation")

    def _cancel(self, job: _Job) -> None:
        job.cancelled.set()
        if job.future.cancel():  # it waits, and is not started any more
            self._forget(job)

    def _forget(self, job: _Job) -> None:
        with self._lock:
            self._jobs.remove(job)


# -- catalogue -------------------------------------------------------------------------------------------


KEPT = 64  # new explanations that stay in memory
# The options that an answer depends on.
TYPED = ("node_type", "edge_type", "reverse")
ANSWER = frozenset({"units", "question", "target", "output", "level", "directed", "leave_out_pair", *TYPED})
ANSWER |= {"edits", "candidates", "groups", "one_hot", "added_attributes"}


class Catalogue:
    """Explanations by method, as a run has them, and those that are made on the page."""

    def __init__(self, found: Mapping[str, Explanations]) -> None:
        found = {visible(name): given for name, given in found.items() if len(given)}
        require(bool(found), "Expected at least one explanation to show", got="none")
        self.methods: dict[str, dict[Key, Explanation]] = {}  # further answers of a method follow it
        self._specs: dict[str, Any] = {}
        for name, given in found.items():
            for e in sorted(given, key=lambda e: e.rank):
                self.methods.setdefault(answer_name(name, e.rank), {})[e.key] = _shown(e)
                self._specs[answer_name(name, e.rank)] = given.context.get("spec")
        self.context = visible_context(next((dict(f.context) for f in found.values() if f.context), {}))
        # The browser knows instances by these texts.
        self.keys = {key_id(e.key): e.key for given in found.values() for e in given}
        # Never changed, but replaced by a longer one: other threads may be reading it.
        self._again: dict[tuple[Key, str], tuple[Explanation, Spec]] = {}
        self._keeping = threading.Lock()

    def key(self, text: object) -> Key:
        """The key that the browser means, or an error for one that is not there."""
        if isinstance(text, str) and text in self.keys:
            return self.keys[text]
        raise CF2Error("Expected an instance of this run", got=repr(text))

    def explanations(self, key: Key) -> dict[str, Explanation]:
        """All explanations of a key, by method; those asked for on the page last."""
        run = {name: by_key[key] for name, by_key in self.methods.items() if key in by_key}
        return run | {name: e for (known, name), (e, _) in self._again.items() if known == key}

    def explanation(self, key: Key, method: object) -> Explanation:
        """The explanation of a key by a method, or an error for anything that is not there."""
        found = self.explanations(key).get(method) if isinstance(method, str) else None
        if found is None:
            raise CF2Error("Expected the method of an explanation of this run", got=repr(method))
        return found

    def answers(self, key: Key, method: str) -> list[str]:
        """The names of all answers that a method gave for a key, the best first."""
        return [name for name in self.explanations(key) if first_answer(name) == method]

    def keep(self, made: Explanation, asked: Spec, name: str) -> str:
        """Keep an answer to what was asked under a name, which is returned; the oldest ones make room."""
        spec = Spec.from_json({option: value for option, value in asked.to_json().items() if option in ANSWER})
        with self._keeping:
            kept = {**self._again, (made.key, name): (_shown(made), spec)}
            self._again = dict(list(kept.items())[-KEPT:])
        return name

    def spec(self, e: Explanation) -> Spec:
        """What was asked when the explanation was made, as far as an answer depends on it."""
        for made, spec in self._again.values():
            if made is e:
                return spec
        stored = next((self._specs[name] for name, by_key in self.methods.items() if by_key.get(e.key) is e), None)
        if stored is None:
            return Spec(units=e.units.names or ("edges",), directed=e.directed)
        asked = {name: value for name, value in stored.items() if name in ANSWER}
        return Spec.from_json({**asked, "tolerance": e.tolerance})


def answer_name(method: str, rank: int) -> str:
    """How an answer of a method is called.

    >>> answer_name("cf2", 0), answer_name("cf2", 2)
    ('cf2', 'cf2, answer 3')
    """
    return f"{method}, answer {rank + 1}" if rank else method


def first_answer(name: str) -> str:
    """The name of the method's best answer.

    >>> first_answer("cf2, answer 3"), first_answer("cf2")
    ('cf2', 'cf2')
    """
    return re.sub(r", answer [0-9]+$", "", name)


def _shown(e: Explanation) -> Explanation:
    """The explanation, with texts that can be displayed."""
    texts: dict[str, Any] = {"task": visible(e.task), "method": visible(e.method), "note": visible(e.note)}
    return e if texts == {name: getattr(e, name) for name in texts} else replace(e, **texts)


# -- trial -----------------------------------------------------------------------------------------------


Edit = tuple[Any, ...]  # ("add", u, v) or ("change", node, column, value)
Entry = tuple[int, int, float]  # a node, a column of its features, and the value that stands there
MOST = 50  # edits of one what-if
LARGEST = 1e9  # of any number that is typed into the page
SIZES = {edit.name: edit.by_hand for edit in EDITS.values() if edit.by_hand}  # how many values an edit of each sort is


def checked_edits(values: Any, graph: Any, directed: bool) -> list[Edit]:
    """Edits from the browser (None: none yet), each checked against the graph (a Data object), the same one once."""
    values = [] if values is None else values
    require(isinstance(values, list) and len(values) <= MOST, f"Expected at most {MOST} edits", got=_kind(values))
    require(
        not values or not isinstance(graph, HeteroData),
        "Expected a graph of one type, to add to it or change it by hand",
        got="one with types",
        do="Find the smallest edit below: it knows the types.",
    )
    made: dict[tuple[Any, ...], Edit] = {}
    for value in values:
        good = isinstance(value, list | tuple) and len(value) > 0 and isinstance(value[0], str)
        require(good and SIZES.get(value[0]) == len(value), "Expected an edit that adds or changes", got=_kind(value))
        edit = _checked_edge(value, graph, directed) if value[0] == "add" else _checked_change(value, graph)
        made[edit[:3]] = edit  # of two changes of one entry, the later one counts
    return list(made.values())


def _checked_edge(value: Sequence[Any], graph: Any, directed: bool) -> Edit:
    one, other = (checked_place("a node", end, int(graph.num_nodes)) for end in value[1:])
    require(one != other, "Expected two different nodes", got=f"{one} twice")
    tail, head = (one, other) if directed else sorted((one, other))
    there = ((graph.edge_index[0] == tail) & (graph.edge_index[1] == head)).any()
    there = there | (not directed and ((graph.edge_index[0] == head) & (graph.edge_index[1] == tail)).any())
    require(not bool(there), "Expected two nodes without an edge", got=f"{one} and {other}, which have one")
    return "add", tail, head


def _checked_change(value: Sequence[Any], graph: Any) -> Edit:
    require(
        isinstance(graph.x, Tensor) and graph.x.dim() == 2 and graph.x.is_floating_point(),
        "Expected features that are numbers, to change one",
        got=f"{getattr(graph.x, 'dtype', 'none')}",
    )
    node = checked_place("a node", value[1], int(graph.num_nodes))
    column = checked_place("a feature", value[2], graph.x.size(1))
    return "change", node, column, checked_number("the new value", value[3])


def checked_place(name: str, value: Any, count: int) -> int:
    """The number of a node or of a feature from the browser."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
    require(good, f"Expected {name} from 0 to {count - 1:,}", got="nothing" if value is None else repr(value)[:40])
    return int(value)


def checked_number(name: str, value: Any) -> float:
    """A number from the browser that a float can hold."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    got = "nothing" if value is None else repr(value)[:40]
    require(good, f"Expected {name} to be a number of at most {LARGEST:,.0f}", got=got)
    return float(value)


def describe_edit(edit: Edit, graph: Any, atoms: Sequence[str] | None, directed: bool) -> str:
    """An edit in words: 'add 1–5', 'atom 3: C → N'."""
    if edit[0] == "add":
        return f"add {edit[1]}{'→' if directed else '–'}{edit[2]}"
    _, node, column, value = edit
    old, source = float(graph.x[node, column]), _element(graph.x[node], column, atoms)
    return describe_change(node, column, source, old, value, atoms)


def _element(row: Tensor, column: int, atoms: Sequence[str] | None) -> int:
    """The column of the element that an atom has, or -1 where features are no elements."""
    now = row[: len(atoms)].nonzero().flatten().tolist() if atoms and column < len(atoms) else []
    return int(now[0]) if now else -1


def entries(edits: Sequence[Edit], atoms: Sequence[str] | None) -> list[Entry]:
    """The feature entries that edits write; an atom that becomes another element is not the old one any more."""
    found: dict[tuple[int, int], float] = {}
    for _, node, column, value in (edit for edit in edits if edit[0] == "change"):
        for other in range(len(atoms)) if atoms and column < len(atoms) else ():
            found[node, other] = 0.0
        found[node, column] = value
    return [(node, column, value) for (node, column), value in found.items()]


@dataclass(frozen=True, eq=False)
class Trial(Editing):
    """Edits that are all made: pairs of nodes in `candidates`, and feature entries in `written`, one unit for all."""

    written: tuple[Entry, ...] = ()

    def prepared(self, near: Instance, around: Callable[[Tensor], Instance]) -> Instance:
        """The instance with the edits as candidates; a node that the model does not see has nothing to change."""
        made = super().prepared(near, around)
        place = {int(node): local for local, node in enumerate(made.node_ids.tolist())}
        seen = [(place[node], column, value) for node, column, value in self.written if node in place]
        if not seen:
            return made
        changes = Changes(
            place=torch.tensor([[node, column] for node, column, _ in seen]),
            value=torch.tensor([value for *_, value in seen]),
            unit=torch.zeros(len(seen), dtype=torch.long),
            ids=torch.tensor([[int(made.node_ids[seen[0][0]]), seen[0][1]]]),
            source=torch.tensor([-1]),
            choice=torch.tensor([0]),
        )
        return replace(made, changes=changes)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


# -- whatif ----------------------------------------------------------------------------------------------


KEPT_WHATIF = 64  # instances that stay in memory
SAME = 1e-3  # probabilities closer than this are those of the run


@dataclass(frozen=True, eq=False)
class Answer:
    """What the model says of what is left and of what was removed, each by itself; and the verdicts on them.

    Attributes
    ----------
    left, removed : ndarray, shape [classes]
        Probabilities.
    left_verdict, removed_verdict : (bool, bool)
        Whether what is left, and what was removed, is (sufficient, necessary).
    changed : bool
        Whether the model gives another answer now.
    """

    left: np.ndarray
    removed: np.ndarray
    left_verdict: tuple[bool, bool]
    removed_verdict: tuple[bool, bool]
    changed: bool


class WhatIf(Catalogue):
    """A model with its data and their explanations by method; safe to ask from several threads.

    Without a `source`, only what was stored can be shown.
    """

    def __init__(self, source: ModelAndData | None, found: Mapping[str, Explanations]) -> None:
        super().__init__(found)
        self._source = source
        if source is not None and source.class_names and not self.context.get("class_names"):
            self.context |= visible_context({"class_names": list(source.class_names)})
        self._sessions: dict[str, Session] = {}
        self._problems: OrderedDict[tuple[str, Key], Problem] = OrderedDict()
        self._copy: Kept | None = None
        self._lock = threading.RLock()

    @property
    def read_only(self) -> bool:
        """Whether there is no model to ask."""
        return self._source is None

    @property
    def source(self) -> ModelAndData:
        """The model and its data, or an error where there is only what was stored."""
        if self._source is None:
            raise CF2Error("Expected a page with a model", got="one that only shows what was stored")
        return self._source

    def context_of(self, e: Explanation) -> dict[str, Any]:
        """What the pictures need to know; where edges are no units, also the edges."""
        if len(e.units.where("edges")) or not len(e.units) or self.read_only:
            return self.context
        with self._lock:
            instance = self._problem(e).instances[0]
        graphs = self.context.get("graphs") or {}
        known = graphs.get(str(e.key), {}) | {"edges": units_of(instance, unit_kinds(["edges"])).ids.tolist()}
        return self.context | {"graphs": {**graphs, str(e.key): known}}

    def ask(self, e: Explanation, removed: np.ndarray) -> Answer:
        """Run the model on what is left and on what was removed.

        Parameters
        ----------
        e : Explanation
        removed : ndarray of bool, shape [units]
            Which units of the explanation are removed.
        """
        require(
            removed.shape == (e.num_units,), f"Expected a choice for each of {e.num_units} units", got=removed.shape
        )
        with self._lock:
            problem = self._problem(e)
            chosen = torch.zeros(problem.pack.units.count, dtype=torch.bool, device=problem.outputs.device)
            chosen[: e.num_units] = torch.from_numpy(np.ascontiguousarray(removed, dtype=bool))
            with self._session(e):
                found = problem.judge(chosen)
        sufficient, necessary = bool(found.sufficient[0]), bool(found.necessary[0])
        # Where the whole graph does not get the answer in question, nothing is the reason for it.
        given = bool(problem.criterion.holds(problem.outputs)[0])
        said = self._as_before(e, problem)
        return Answer(
            left=found.without[0].cpu().numpy(),
            removed=found.only[0].cpu().numpy(),
            left_verdict=(given and not necessary, given and not sufficient),
            removed_verdict=(sufficient, necessary),
            changed=not bool(said.holds(found.without)[0]),
        )

    def _as_before(self, e: Explanation, problem: Any) -> Any:
        """What counts as the same answer as that of the whole graph: a class, a side of a label, a number."""
        kind = self._session(e).kind
        column = None if kind.exclusive else e.prediction
        return criterion_for(problem.outputs, [e.key], column, kind, tolerance=e.tolerance)

    def graph(self, key: Key) -> Any:
        """The graph of a key, a Data object: the one that there is, or one of many."""
        graphs = self.source.graphs
        return graphs[key] if self.source.level == "graph" else graphs[0]  # type: ignore[index]

    def ask_edited(self, e: Explanation, removed: np.ndarray, edits: Sequence[Edit]) -> tuple[np.ndarray, bool]:
        """Run the model with units removed (or, where they are edits themselves, made) and more edits made.

        Parameters
        ----------
        e : Explanation
        removed : ndarray of bool, shape [units]
            Which units of the explanation are removed or made.
        edits : sequence of Edit
            What is added and changed beside, as `checked_edits` gives it.

        Returns
        -------
        (ndarray, bool)
            Probabilities [classes], and whether that is another answer.
        """
        atoms, mine = atom_names(self.context), replace(e, selected=removed)
        added = {*map(tuple, mine.chosen(ADD.unit_kind).tolist()), *(edit[1:] for edit in edits if edit[0] == "add")}
        written = (*_entries(mine), *entries(edits, atoms))
        with self._lock:
            before, spec = self._problem(e), self.spec(e)
            pairs = ((None, tuple(sorted(added))),)
            trial = Trial(bool(added), None, pairs, spec.added_attributes, spec.groups, written=written)
            with self._session(e) as session:
                kinds = [kind for kind in session.kinds if not kind.absent] or [*unit_kinds(["edges"])]
                made = ((ADD, added), (CHANGE, written))
                kinds += unit_kinds([edit.unit_kind for edit, some in made if some])
                field = ReceptiveField(session.predictor, session.request.targets, session.field.reach, trial)
                takes = session.predictor.adapter.takes

                def make(part: Sequence[Instance]) -> Any:
                    return pack(part, tables=[units_of(one, kinds) for one in part], takes=takes)

                ((instances, packed, _),) = field.packed(field.instances([e.key]), make)
                chosen = _chosen(mine, units_of(instances[0], kinds))
                packed = packed.to(session.predictor.device)
                said = outputs_after(EDITED, session.predictor, packed, chosen.to(session.predictor.device))
        same = self._as_before(e, before).holds(said)
        return said[0].cpu().numpy(), not bool(same[0])

    def again(self, e: Explanation, alpha: float, lam: float | None, go_on: GoOn = lambda: None) -> str:
        """Explain the same prediction by cf2 with other settings; returns the name it is now known by.

        It is done with a copy of the model, so that others can ask the model meanwhile. `go_on` is called before
        every run of the copy; what it raises ends the explanation.
        """
        spec = self.spec(e)
        asked = replace(spec, method=Spec().method, settings={"alpha": alpha, "lam": lam})
        return self._made(e, asked, f"cf2 (α = {alpha:g}, λ = {'auto' if lam is None else f'{lam:g}'})", go_on)

    def another(self, e: Explanation, method: str, go_on: GoOn = lambda: None) -> str:
        """Look for one more answer to what an explanation answers; returns its name, or an empty text for none."""
        known = [self.explanation(e.key, name) for name in self.answers(e.key, method)]
        asked = replace(self.spec(e), method=Spec().method, alternatives=len(known) + 1)
        taken = {one.selected.tobytes() for one in known}
        new = [one for one in self._explained(e, asked, go_on) if one.selected.tobytes() not in taken]
        if not new or not all(getattr(new[0], verdict) for verdict in VERDICTS[e.question]):
            return ""
        return self.keep(replace(new[0], label=e.label), asked, answer_name(method, len(known)))

    def smallest_edit(
        self, e: Explanation, target: int | None, edits: tuple[Any, ...], valid: bool, go_on: GoOn = lambda: None
    ) -> str:
        """Look for the smallest edits of these sorts after which the model gives the class; returns the answer's name.

        Without a class, any other than the prediction will do. `valid` accepts molecules only.
        """
        asked = replace(
            self.spec(e),
            method=Spec().method,
            question="counterfactual",
            target=target,
            edits=edits,
            candidates=None,
            valid="molecule" if valid else None,
            atoms=tuple(atom_names(self.context) or ()) or None,
        )
        aim = "another class" if target is None else class_name(target, class_names(self.context))
        how = ", ".join(edits) + (", valid" if valid else "")
        return self._made(e, asked, visible(f"smallest edit to {aim} ({how})"), go_on)

    def _made(self, e: Explanation, asked: Spec, name: str, go_on: GoOn) -> str:
        """Explain a key anew, and keep the answer under a name."""
        (made,) = self._explained(e, asked, go_on)
        return self.keep(replace(made, label=e.label), asked, name)

    def _explained(self, e: Explanation, asked: Spec, go_on: GoOn) -> list[Explanation]:
        """All answers for one key, by a copy of the model."""
        kept = self._copied()
        model: nn.Module = kept.model
        hook = model.register_forward_pre_hook(lambda *_: go_on())
        try:
            request = replace(self.source, model=model).request([e.key], asked)
            with Session(replace(request, measured=kept.measured(request))) as session:
                found = list(session.explain([e.key]))
                kept.learn(session)
                return found
        finally:
            hook.remove()

    def _copied(self) -> Kept:
        """A copy of the model, and what was found out about it; while it is made, nobody has the model borrowed."""
        with self._lock:
            if self._copy is None:
                try:
                    self._copy = Kept(copy.deepcopy(self.source.model), self.source.graphs)
                except Exception as error:
                    raise CF2Error(
                        "Expected a model that copy.deepcopy can copy, to explain with while others ask it",
                        got=f"{type(error).__name__}: {error}",
                    ) from error
            return self._copy

    def _session(self, e: Explanation) -> Session:
        spec = self.spec(e)
        name = json.dumps(spec.to_json())
        if name not in self._sessions:
            self._sessions[name] = Session(self.source.request(list(self.keys.values()), spec))
        return self._sessions[name]

    def _problem(self, e: Explanation) -> Problem:
        """The instance, packed, and checked against the explanation."""
        which = (json.dumps(self.spec(e).to_json()), e.key)
        if which not in self._problems:
            with self._session(e) as session:
                (self._problems[which],) = session.problems([e.key])
            while len(self._problems) > KEPT_WHATIF:
                self._problems.popitem(last=False)
        self._problems.move_to_end(which)
        _check(e, self._problems[which])
        return self._problems[which]


def _check(e: Explanation, problem: Problem) -> None:
    """Refuse a model or data other than those with which a prediction was explained."""
    (table,) = problem.tables
    same = np.array_equal(table.ids, e.units.ids) and np.array_equal(table.kind, e.units.kind)
    same = same or e.status == "refused"  # such an explanation keeps no units
    close = np.allclose(problem.outputs[0].cpu(), e.probabilities, atol=SAME)
    require(
        same and close,
        f"Expected the model and data with which {describe_target(e)} was explained",
        got="other probabilities" if same else "other units",
    )


def _entries(e: Explanation) -> list[Entry]:
    """The feature entries that the chosen changes of an explanation write."""
    found: list[Entry] = []
    rows = e.units.where(CHANGE.unit_kind)
    for row in rows[e.selected[rows]]:
        (node, column), (source, _, new) = e.units.ids[row].tolist(), e.units.values[row].tolist()
        found += [(node, int(source), 0.0)] if source >= 0 else []
        found.append((node, column, new))
    return found


def _chosen(e: Explanation, table: InstanceUnits) -> torch.Tensor:
    """The units of a table that are chosen [u, bool]: all edits, and what the explanation chooses by kind and ids."""
    taken = {(name, *ids) for name in e.units.names for ids in e.chosen(name).tolist()}
    names = [table.names[kind] for kind in table.kind.tolist()]
    made = [is_candidate(name) or (name, *ids) in taken for name, ids in zip(names, table.ids.tolist())]
    return torch.tensor(made, dtype=torch.bool)


# -- changes ---------------------------------------------------------------------------------------------


KEEPING = ("cytoscape", "units", "near", "add-edge", "change-feature", "edited")  # what goes on from what was removed


def absent(e: Explanation) -> np.ndarray:
    """Which units [units] are edits that add or change: not in the graph before they are made."""
    kinds = [kind for kind, name in enumerate(e.units.names) if is_candidate(name)]
    return np.isin(e.units.kind, kinds)


def removed_now(e: Explanation, cause: Any, tap: Any, checked: Any, before: Any, listed: np.ndarray) -> np.ndarray:
    """Which units are removed (or, of edits, made) after what the user did: a click, a button, or a checkbox.

    Parameters
    ----------
    e : Explanation
    cause : str or None
        The part of the page that the user changed.
    tap, checked, before
        From the browser: the edge that was clicked, the numbers of the units that are checked, and of those that
        were removed before.
    listed : ndarray of int
        The units that have a checkbox.

    Returns
    -------
    ndarray of bool, shape [units]
    """
    removed = np.zeros(e.num_units, dtype=bool)
    if cause == "without":
        return np.asarray(removed | e.selected)
    if cause == "only":
        return np.asarray(~e.selected & ~absent(e))
    if cause not in KEEPING:
        return removed
    removed[checked_units(before, e.num_units)] = True
    if cause == "cytoscape":
        data = tap.get("data") if isinstance(tap, Mapping) else None
        unit = data.get("unit") if isinstance(data, Mapping) else None
        if unit is not None:
            removed[checked_units([unit], e.num_units)] ^= True
    elif cause == "units":
        removed[listed] = ~np.isin(listed, checked_units(checked, e.num_units)) ^ absent(e)[listed]
    return removed


def edits_now(
    asked: WhatIf, e: Explanation, cause: Any, typed: Sequence[Any], checked: Any, before: Any
) -> tuple[list[Edit], str]:
    """What is added and changed after what the user did, and what is wrong with what was typed, if anything.

    `typed` are the two ends of an edge, and a node, a column and a value; `checked` the numbers of the edits that stay.
    """
    graph = asked.graph(e.key)
    edits = checked_edits(before, graph, e.directed) if cause in KEEPING else []
    if cause == "edited":
        return [edits[place] for place in checked_units(checked, len(edits))], ""
    tail, head, node, column, value = typed
    wanted = {"add-edge": ("add", tail, head), "change-feature": ("change", node, column, value)}
    if cause not in wanted:
        return edits, ""
    try:
        return checked_edits([*edits, wanted[cause]], graph, e.directed), ""
    except CF2Error as error:
        return edits, str(error)


def state_of(asked: WhatIf, e: Explanation, units: np.ndarray, edits: Sequence[Edit] = ()) -> dict[str, Any]:
    """The current what-if with everything needed to repeat it; `units` are the numbers of those removed."""
    removed = np.zeros(e.num_units, dtype=bool)
    removed[units] = True
    found = asked.ask(e, removed)
    gone = replace(e, selected=removed)
    after = asked.ask_edited(e, removed, edits)[0].tolist() if edits else None
    return {
        "edits": [list(edit) for edit in edits],
        "after_edits": after,
        "key": e.key,
        "task": e.task,
        "prediction": e.prediction,
        "class_names": asked.context.get("class_names"),
        **{f"removed_{name}": gone.chosen(name).tolist() for name in ("edges", "features", *e.units.names)},
        "probabilities": {
            "all": e.probabilities.tolist(),
            "left": found.left.tolist(),
            "removed": found.removed.tolist(),
        },
        "left": dict(zip(("sufficient", "necessary"), found.left_verdict)),
        "removed": dict(zip(("sufficient", "necessary"), found.removed_verdict)),
        "explanation": e.to_dict(),
    }


def checked_units(values: Any, count: int) -> np.ndarray:
    """Unit numbers from the browser, each checked."""
    good = isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < count for v in values
    )
    require(good, f"Expected a list of units from 0 to {count - 1}", got=f"a {type(values).__name__}")
    return np.array(sorted(set(values)), dtype=np.int64)


def checked_lam(value: Any) -> float | None:
    """λ from the browser; None for an empty field."""
    return None if value in (None, "") else checked_number("λ", value)


def checked_aim(value: Any, classes: int) -> int | None:
    """The class that edits are to lead to, from the browser; None for any other than the prediction."""
    return None if value in (None, "") else checked_place("a class", value, classes)


def checked_sorts(values: Any) -> tuple[Any, ...]:
    """The sorts of edit that are allowed, from the browser."""
    known = get_args(Sort)
    good = isinstance(values, list) and all(isinstance(value, str) and value in known for value in values)
    require(
        good and len(values) > 0,
        f"Expected some of {', '.join(known)}",
        got="none" if values == [] else _kind_changes(values),
    )
    return tuple(sort for sort in known if sort in values)


def explanation_shown(asked: WhatIf, shown: Any) -> Explanation:
    """The explanation that the page shows."""
    require(isinstance(shown, Mapping), "Expected a key and a method", got=_kind_changes(shown))
    return asked.explanation(asked.key(shown.get("key")), shown.get("method"))


def checked_visitor(name: Any) -> str:
    """The name of a page."""
    require(isinstance(name, str) and len(name) < 40, "Expected the name of a page", got=_kind_changes(name))
    return str(name)


def _kind_changes(value: object) -> str:
    return type(value).__name__
