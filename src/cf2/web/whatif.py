"""What the model says when parts of a graph are removed, added or changed by hand. Knows nothing of the browser."""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import numpy as np
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from cf2.errors import CF2Error, require, require_number
from cf2.options import AUTO, Key, Spec
from cf2.report.live import absent
from cf2.report.plots import margin
from cf2.report.words import class_name, describe_target, key_id
from cf2.results.explanation import VERDICTS, Explanation, UnitTable
from cf2.results.explanations import Explanations
from cf2.runs.check import answers_at
from cf2.runs.session import ModelCache, Session
from cf2.runs.source import ModelAndData
from cf2.units.edits import ADD, CHANGE, is_candidate
from cf2.units.kinds import unit_kinds, units_of

MAX_KEPT_EXPLANATIONS = 64  # made on the page by one visitor
MAX_VISITORS = 64  # whose explanations are kept
MAX_EDITS = 50  # of one what-if
MAX_NUMBER = 10**9  # that is typed into the page
SAME_PROBABILITY = 1e-3  # probabilities closer than this are those of the run
VISITOR: ContextVar[str] = ContextVar("visitor", default="")  # who asks, as the server names them
# The options that an answer depends on.
ANSWER_OPTIONS = {"units", "question", "target", "output", "level", "directed", "leave_out_pair", "node_type"}
ANSWER_OPTIONS |= {"edge_type", "reverse", "edits", "candidates", "groups", "one_hot", "added_attributes"}

Edit = tuple[Any, ...]  # ("add", u, v) or ("change", node, column, value)
GoOn = Callable[[], None]  # called before every run of the model; what it raises ends the search


class Answer(NamedTuple):
    """What the model says of what is left and of what was removed, each by itself; and the verdicts on them."""

    left: np.ndarray  # probabilities [classes]
    removed: np.ndarray
    left_verdict: tuple[bool, bool]  # whether what is left is (sufficient, necessary)
    removed_verdict: tuple[bool, bool]
    changed: bool  # whether the model gives another answer now


class State(NamedTuple):
    """What is shown: an explanation with its name on the page, the units that are removed, and the edits."""

    e: Explanation
    method: str
    removed: np.ndarray  # [units, bool]
    edits: list[Edit]


class WhatIf:
    """A model with its data and their explanations by method; safe to ask from several threads.

    Without a `source`, only what was stored can be shown. The name of the `run` stands in the address of the page.
    """

    def __init__(self, source: ModelAndData | None, found: Mapping[str, Explanations], run: str = "") -> None:
        found = {name: given for name, given in found.items() if len(given)}
        self.run = run
        self.context = dict(next((f.context for f in found.values() if f.context), {}))
        if source is not None and source.class_names:
            self.context.setdefault("class_names", list(source.class_names))
        self.atoms: Sequence[str] = self.context.get("atoms") or ()
        self.methods: dict[str, dict[Key, Explanation]] = {}  # further answers of a method follow it
        for name, given in found.items():
            context = self.context | {"spec": None} | given.context  # the request is its own
            for e in sorted(given, key=lambda e: e.rank):
                self.methods.setdefault(answer_name(name, e.rank), {})[e.key] = replace(e, context=context)
        self.keys = {key_id(e.key): e.key for given in found.values() for e in given}  # by their texts in the browser
        # By visitor. Never changed, but replaced by a longer one: other threads may be reading it.
        self._found_on_page: dict[str, dict[tuple[Key, str], Explanation]] = {}
        self._source, self.read_only = source, source is None
        self._edges: dict[Key, list[list[int]]] = {}  # of receptive fields, where they are no units
        self._copy: ModelCache | None = None
        self._lock = threading.RLock()

    @property
    def source(self) -> ModelAndData:
        """The model and its data, or an error where there is only what was stored."""
        if self._source is None:
            raise CF2Error("Expected a page with a model", got="one that only shows what was stored")
        return self._source

    # -- explanations, of the run and made on the page

    def key(self, text: Any) -> Key:
        """The key that the browser means, or an error for one that is not there."""
        require(str(text) in self.keys, "Expected an instance of this run", got=repr(text)[:80])
        return self.keys[str(text)]

    def explanations(self, key: Key) -> dict[str, Explanation]:
        """All explanations of a key, by method; those made on the page last."""
        stored = {name: by_key[key] for name, by_key in self.methods.items() if key in by_key}
        own = self._found_on_page.get(VISITOR.get(), {})
        return stored | {name: e for (own_key, name), e in own.items() if own_key == key}

    def explanation(self, key: Key, method: str) -> Explanation:
        """The explanation of a key by a method, or an error for one that is not there."""
        found = self.explanations(key)
        require(method in found, "Expected the method of an explanation of this run", got=repr(method)[:80])
        return found[method]

    def answers(self, key: Key, method: str) -> list[str]:
        """The names of all answers that a method gave for a key, the best first."""
        return [name for name in self.explanations(key) if first_answer(name) == method]

    def graph(self, key: Key) -> Any:
        """The graph of a key, a Data object: the one that there is, or one of many."""
        graphs = self.source.graphs
        return graphs[key] if self.source.level == "graph" else graphs[0]  # type: ignore[index]

    def with_edges(self, e: Explanation) -> Explanation:
        """The explanation; where edges are no units, its context has them for the picture."""
        if len(e.units.where("edges")) or not len(e.units) or self.read_only:
            return e
        with self._lock:
            if e.key not in self._edges:
                with Session(self.source.request([e.key], spec_of(e))) as session:
                    (problem,) = session.problems([e.key])
                self._edges[e.key] = units_of(problem.instances[0], unit_kinds(["edges"])).ids.tolist()
        graphs = e.context.get("graphs") or {}
        graph = graphs.get(str(e.key), {}) | {"edges": self._edges[e.key]}
        return replace(e, context={**e.context, "graphs": {**graphs, str(e.key): graph}})

    # -- what the model says

    def ask(self, e: Explanation, removed: np.ndarray) -> Answer:
        """What the model says of what is left and of what was removed; `removed` [units, bool] says which units are."""
        values, (given, left, gone) = self._asked(e, ~removed, removed | absent(e))
        return Answer(
            left=values[1],
            removed=values[2],
            # Where the whole graph does not get the answer in question, nothing is the reason for it.
            left_verdict=(bool(given and left), bool(given) and gone is False),
            removed_verdict=(bool(given and gone), bool(given) and left is False),
            changed=is_changed(e, values[1]),
        )

    def ask_edited(self, e: Explanation, removed: np.ndarray, edits: Sequence[Edit]) -> tuple[np.ndarray, bool]:
        """Outputs [classes] after changes, and whether that is another answer.

        The units in `removed` [units, bool] are removed, or, where they are edits themselves, made; and so are `edits`.
        """
        made = np.concatenate([removed, np.ones(len(edits), dtype=bool)])
        said = self._asked(self.with_edits(e, edits), ~made)[0][1]
        return said, is_changed(e, said)

    def _asked(self, e: Explanation, *states: np.ndarray) -> tuple[np.ndarray, list[bool | None]]:
        """What the model says of the whole graph and where exactly these units are as they were, by plain code.

        With it, which of them are the answer in question. A model or data that say something else of the whole graph
        than was stored are refused.
        """
        source, spec = self.source, self.source.settled(spec_of(e))
        asked, states = replace(e, context={**e.context, "spec": spec.to_json()}), (np.ones_like(states[0]), *states)
        with self._lock:
            try:
                values, kept = answers_at(asked, source.model, source.targets(spec), np.stack(states), source.call)
                good = np.allclose(values[0], e.probabilities, atol=SAME_PROBABILITY)
            except IndexError:  # units of another graph
                good = False
        expected = f"Expected the model and data with which {describe_target(e)} was explained"
        require(good, expected, got="other probabilities or units")
        return values, kept

    def with_edits(self, e: Explanation, edits: Sequence[Edit]) -> Explanation:
        """The explanation with edits by hand as further units, all of them chosen."""
        if not edits:
            return e
        rows = [self._unit(e, edit) for edit in edits]
        names = tuple(dict.fromkeys([*e.units.names, *(name for name, _, _ in rows)]))
        kinds = np.array([names.index(name) for name, _, _ in rows], dtype=e.units.kind.dtype)
        values = e.units.values if len(e.units.values) else np.zeros((e.num_units, 3))
        types = e.units.types
        units = UnitTable(
            names,
            np.concatenate([e.units.kind, kinds]),
            np.concatenate([e.units.ids, [ids for _, ids, _ in rows]]),
            np.concatenate([values, [value for _, _, value in rows]]),
            e.units.members,
            np.concatenate([types, np.full(len(rows), -1, types.dtype)]) if len(types) else types,
        )
        added = np.ones(len(rows))
        selected = np.concatenate([e.selected, added.astype(bool)])
        return replace(e, units=units, scores=np.concatenate([e.scores, added]), selected=selected)

    def _unit(self, e: Explanation, edit: Edit) -> tuple[str, tuple[int, int], tuple[float, float, float]]:
        """An edit as a unit: its kind, its ids and its values. An atom that becomes another is not the old one."""
        if edit[0] == "add":
            return ADD.unit_kind, edit[1:], (-1.0, 0.0, 0.0)
        _, node, column, new = edit
        row, elements = self.graph(e.key).x[node], len(self.atoms)
        old = row[:elements].nonzero().flatten().tolist() if column < elements else []
        return CHANGE.unit_kind, (node, column), (float(old[0] if old else -1), float(row[column]), new)

    # -- searches: each works on a copy of the model, so that others can ask the model meanwhile

    def again(self, e: Explanation, alpha: float, lam: float | None, go_on: GoOn = lambda: None) -> str:
        """Explain the same prediction by cf2 with other settings; returns the name it is now known by."""
        spec = replace(spec_of(e), method=Spec().method, settings={"alpha": alpha, "lam": lam})
        (new,) = self._explained(e, spec, go_on)
        return self._keep(e, new, spec, f"cf2 (α = {alpha:g}, λ = {'auto' if lam is None else f'{lam:g}'})")

    def another(self, e: Explanation, method: str, go_on: GoOn = lambda: None) -> str:
        """Look for one more answer to what an explanation answers; returns its name, or an empty text for none."""
        answers = [self.explanation(e.key, name) for name in self.answers(e.key, method)]
        spec = replace(spec_of(e), method=Spec().method, alternatives=len(answers) + 1)
        taken = {answer.selected.tobytes() for answer in answers}
        new = [other for other in self._explained(e, spec, go_on) if other.selected.tobytes() not in taken]
        if not new or not all(getattr(new[0], verdict) for verdict in VERDICTS[e.question]):
            return ""
        return self._keep(e, new[0], spec, answer_name(method, len(answers)))

    def smallest_edit(
        self, e: Explanation, target: int | None, edits: tuple[Any, ...], valid: bool, go_on: GoOn = lambda: None
    ) -> str:
        """Look for the smallest edits of these sorts after which the model gives the class; returns the answer's name.

        Without a class, any other than the prediction will do. `valid` accepts molecules only.
        """
        spec = replace(
            spec_of(e),
            method=Spec().method,
            question="counterfactual",
            target=target,
            edits=edits,
            candidates=None,
            valid="molecule" if valid else None,
            atoms=tuple(self.atoms) or None,
        )
        aim = "another class" if target is None else class_name(e, target)
        (new,) = self._explained(e, spec, go_on)
        return self._keep(e, new, spec, f"smallest edit to {aim} ({', '.join(edits)}{', valid' if valid else ''})")

    def _explained(self, e: Explanation, spec: Spec, go_on: GoOn) -> list[Explanation]:
        """All answers for one key, by a copy of the model; `go_on` is called before every run of it."""
        with self._lock:  # nobody has the model borrowed while it is copied
            if self._copy is None:
                source = self.source
                try:
                    self._copy = ModelCache(copy.deepcopy(source.model), source.graphs)
                except Exception as error:
                    raise CF2Error(
                        "Expected a model that copy.deepcopy can copy, for searches in parallel",
                        got=f"{type(error).__name__}: {error}",
                    ) from error
            kept = self._copy
        model: nn.Module = kept.model
        # A thread cannot be ended from outside: the model itself asks whether to go on, and raises where not.
        hook = model.register_forward_pre_hook(lambda *_: go_on())
        try:
            request = replace(self.source, model=model).request([e.key], spec)
            with Session(replace(request, measured=kept.measured(request))) as session:
                found = list(session.explain([e.key]))
                kept.learn(session)
                return found
        finally:
            hook.remove()

    def _keep(self, e: Explanation, new: Explanation, spec: Spec, name: str) -> str:
        """Keep an answer beside an explanation under a name, which is returned; the oldest ones make room."""
        new = replace(new, label=e.label, context={**e.context, "spec": spec.to_json()})
        with self._lock:
            others = dict(self._found_on_page)
            own = others.pop(VISITOR.get(), {}) | {(e.key, name): new}
            own = dict(list(own.items())[-MAX_KEPT_EXPLANATIONS:])
            self._found_on_page = dict([*others.items(), (VISITOR.get(), own)][-MAX_VISITORS:])
        return name

    # -- the state of the page, as an address and as JSON

    def address_of(self, state: State) -> str:
        """The query of the address of a state; what is not removed or edited is not in it."""
        parts = {"run": self.run, "method": state.method, "key": key_id(state.e.key)}
        parts["removed"] = _ranges(np.flatnonzero(state.removed).tolist())
        parts["edits"] = "_".join("~".join(map(str, edit)) for edit in state.edits)
        return "?" + urlencode({name: text for name, text in parts.items() if text})

    def state_at(self, query: str) -> State | None:
        """What an address says, or an error for one that means nothing here; None for one without a state."""
        given = dict(parse_qsl(query.removeprefix("?")))
        if "key" not in given:
            return None
        run = given.get("run", self.run)
        expected = f"Expected an address of the run {self.run!r}"
        require(run == self.run, expected, got=repr(run)[:80], do="Serve that run.")
        key = self.key(given["key"])
        method = given.get("method") or next(iter(self.explanations(key)))
        count = self.explanation(key, method).num_units
        edits = [[_value(part) for part in edit.split("~")] for edit in given.get("edits", "").split("_") if edit]
        return self.state(key, method, _numbers(given.get("removed", ""), count), edits)

    def state(self, key: Key, method: str, removed: Any = (), edits: Any = ()) -> State:
        """A state, checked; nothing can be removed or edited where there is no model to ask."""
        e = self.explanation(key, method)
        if self.read_only:
            return State(e, method, e.selected & False, [])
        good = isinstance(removed, list | tuple) and all(
            type(unit) is int and 0 <= unit < e.num_units for unit in removed
        )
        require(good, f"Expected units from 0 to {e.num_units - 1}", got=repr(removed)[:40])
        gone = np.isin(np.arange(e.num_units), np.array(removed, dtype=np.int64))
        return State(e, method, gone, checked_edits(edits, self.graph(key), e.directed, len(self.atoms)))

    def to_dict(self, state: State) -> dict[str, Any]:
        """The current what-if with everything needed to repeat it."""
        e, edits = state.e, state.edits
        answer, gone = self.ask(e, state.removed), replace(e, selected=state.removed)
        probabilities = {"all": e.probabilities, "left": answer.left, "removed": answer.removed}
        return {
            "edits": [list(edit) for edit in edits],
            "after_edits": self.ask_edited(e, state.removed, edits)[0].tolist() if edits else None,
            "key": e.key,
            "task": e.task,
            "prediction": e.prediction,
            "class_names": self.context.get("class_names"),
            **{f"removed_{name}": gone.chosen(name).tolist() for name in ("edges", "features", *e.units.names)},
            "probabilities": {name: values.tolist() for name, values in probabilities.items()},
            "left": dict(zip(("sufficient", "necessary"), answer.left_verdict)),
            "removed": dict(zip(("sufficient", "necessary"), answer.removed_verdict)),
            "explanation": e.to_dict(),
        }


def spec_of(e: Explanation) -> Spec:
    """What was asked when an explanation was made, as far as an answer depends on it."""
    options = e.context.get("spec")
    if options is None:
        return Spec(units=e.units.names or ("edges",), directed=e.directed)
    asked = {option: value for option, value in options.items() if option in ANSWER_OPTIONS}
    units = [name for name in e.units.names if not is_candidate(name)] if asked.get("units") == [AUTO] else []
    return Spec.from_json({**asked, "tolerance": e.tolerance} | ({"units": units} if units else {}))


def answer_name(method: str, rank: int) -> str:
    """The name of an answer of a method: 'cf2', 'cf2, answer 2'."""
    return f"{method}, answer {rank + 1}" if rank else method


def first_answer(name: str) -> str:
    """The name of the best answer of the same method."""
    return re.sub(r", answer [0-9]+$", "", name)


def is_changed(e: Explanation, values: np.ndarray) -> bool:
    """Whether these outputs are another answer than that of the whole graph: a class, a side of a label, a number."""
    return not margin(e, values, e.prediction) > 0


# -- edits by hand


def checked_edits(values: Any, graph: Any, directed: bool, elements: int = 0) -> list[Edit]:
    """Edits from the browser, each checked against the graph (a Data object), the same one once.

    The first columns may be `elements`, of which an atom has one.
    """
    require(isinstance(values, list | tuple), "Expected a list of edits", got=repr(values)[:40])
    require(len(values) <= MAX_EDITS, f"Expected at most {MAX_EDITS} edits", got=len(values))
    require(
        not values or not isinstance(graph, HeteroData),
        "Expected a graph without types, to edit it by hand",
        got="one with types",
        do='Use "Find the smallest edit" below, which supports types.',
    )
    edits: dict[tuple[Any, ...], Edit] = {}
    for value in values:
        sort = (str(value[0]), len(value)) if isinstance(value, list | tuple) and value else ("", 0)
        check = {("add", 3): _checked_edge, ("change", 4): _checked_change}.get(sort)
        if check is None:
            raise CF2Error("Expected an edit that adds or changes", got=repr(value)[:40])
        edit = check(value, graph, directed)
        what = (*edit[:2], "element") if edit[0] == "change" and edit[2] < elements else edit[:3]
        edits[what] = edit  # of two changes of one entry, the later one counts
    return list(edits.values())


def _checked_edge(value: Sequence[Any], graph: Any, directed: bool) -> Edit:
    _, u, v = value
    for node in (u, v):
        require_number("node", node, 0, int(graph.num_nodes) - 1, integer=True)
    require(u != v, "Expected two different nodes", got=f"{u} twice")
    tail, head = (u, v) if directed else sorted((u, v))
    ends = graph.edge_index if directed else graph.edge_index.sort(0).values
    exists = bool(((ends[0] == tail) & (ends[1] == head)).any())
    require(not exists, "Expected two nodes without an edge", got=f"{u} and {v}, which have one")
    return "add", tail, head


def _checked_change(value: Sequence[Any], graph: Any, directed: bool) -> Edit:
    require(
        isinstance(graph.x, Tensor) and graph.x.dim() == 2 and graph.x.is_floating_point(),
        "Expected features that are numbers, to change one",
        got=f"{getattr(graph.x, 'dtype', 'none')}",
    )
    _, node, column, new = value
    require_number("node", node, 0, int(graph.num_nodes) - 1, integer=True)
    require_number("feature", column, 0, graph.x.size(1) - 1, integer=True)
    require_number("value", new, -MAX_NUMBER, MAX_NUMBER)
    return "change", node, column, float(new)


# -- the text of an address


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in short.

    >>> _ranges([0, 1, 2, 7, 9, 10])
    '0-2.7.9-10'
    """
    spans = [[number for _, number in span] for _, span in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ".".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


def _numbers(text: str, count: int) -> list[int]:
    """The numbers that `_ranges` wrote; all must be below `count`."""
    numbers: list[int] = []
    for part in text.split(".") if text else ():
        ends = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if ends is None or int(ends[2] or ends[1]) >= count:
            raise CF2Error(f"Expected units from 0 to {count - 1}", got=repr(part)[:40])
        numbers += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return numbers


def _value(text: str) -> Any:
    """A part of an edit: a number where it is one."""
    try:
        return json.loads(text)
    except ValueError:
        return text
