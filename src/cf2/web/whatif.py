"""What the model says when parts of a graph are removed, added or changed by hand. Knows nothing of the browser."""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from cf2.errors import CF2Error, require, require_number
from cf2.graphs.graph import Changes, Instance
from cf2.methods.contract import Problem
from cf2.models.oracle import outputs_after
from cf2.models.outputs import criterion_for
from cf2.models.receptive_field import ReceptiveField
from cf2.options import AUTO, Key, Spec
from cf2.report.scene import is_molecule
from cf2.report.words import atom_names, class_name, class_names, describe_change, describe_target, key_id
from cf2.results.explanation import VERDICTS, Explanation
from cf2.results.explanations import Explanations
from cf2.runs.session import ModelCache, Session
from cf2.runs.source import ModelAndData
from cf2.sets.tests import EDITED, passes
from cf2.units.edits import ADD, CHANGE, EDITS, Editing, is_candidate
from cf2.units.kinds import InstanceUnits, unit_kinds, units_of
from cf2.units.packs import pack

MAX_KEPT_EXPLANATIONS = 64  # made on the page by one visitor
MAX_VISITORS = 64  # whose explanations are kept
VISITOR: ContextVar[str] = ContextVar("visitor", default="")  # who asks, as the server names them
MAX_KEPT_PROBLEMS = 64  # packed instances
MAX_EDITS = 50  # of one what-if
MAX_NUMBER = 10**9  # that is typed into the page
SAME_PROBABILITY = 1e-3  # probabilities closer than this are those of the run
EDIT_LENGTHS: dict[str, int] = {edit.name: edit.by_hand for edit in EDITS.values() if edit.by_hand}
# The options that an answer depends on.
ANSWER_OPTIONS = {"units", "question", "target", "output", "level", "directed", "leave_out_pair", "node_type"}
ANSWER_OPTIONS |= {"edge_type", "reverse", "edits", "candidates", "groups", "one_hot", "added_attributes"}
# Control characters, which XML forbids and browsers drop; halves of surrogate pairs, which cannot be sent; and marks
# that change the direction of all that follows.
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")

Edit = tuple[Any, ...]  # ("add", u, v) or ("change", node, column, value)
Entry = tuple[int, int, float]  # a node, a column of its features, and the value that stands there
GoOn = Callable[[], None]  # called before every run of the model; what it raises ends the search


def visible(text: object) -> str:
    r"""A label from a file, with every character that cannot be seen or that turns text around written as its number.

    >>> visible("caf\u00e9 \u202e1\x00")
    'café \\u202e1\\u0000'
    """
    return HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))


def visible_context(context: Mapping[str, Any]) -> dict[str, Any]:
    """The context of explanations, or of one graph, with labels that can be displayed."""
    shown = {**context, **{name: visible(context[name]) for name in ("dataset", "model") if context.get(name)}}
    for name in ("class_names", "atoms", "labels"):
        if isinstance(context.get(name), list | tuple):
            shown[name] = [visible(label) for label in context[name]]
    if context.get("graphs"):
        shown["graphs"] = {key: graph and visible_context(graph) for key, graph in context["graphs"].items()}
    return shown


class Answer(NamedTuple):
    """What the model says of what is left and of what was removed, each by itself; and the verdicts on them."""

    left: np.ndarray  # probabilities [classes]
    removed: np.ndarray
    left_verdict: tuple[bool, bool]  # whether what is left is (sufficient, necessary)
    removed_verdict: tuple[bool, bool]
    changed: bool  # whether the model gives another answer now


class State(NamedTuple):
    """What an address says: an explanation by its key and name, the units that are removed, and the edits."""

    key: str
    method: str
    removed: np.ndarray
    edits: list[Edit]


class WhatIf:
    """A model with its data and their explanations by method; safe to ask from several threads.

    Without a `source`, only what was stored can be shown. The name of the `run` stands in the address of the page.
    """

    def __init__(self, source: ModelAndData | None, found: Mapping[str, Explanations], run: str = "") -> None:
        found = {visible(name): given for name, given in found.items() if len(given)}
        require(bool(found), "Expected at least one explanation to show", got="none")
        self.run = visible(run)
        self.methods: dict[str, dict[Key, Explanation]] = {}  # further answers of a method follow it
        self._options: dict[Any, Any] = {}  # of each method
        for name, given in found.items():
            for e in sorted(given, key=lambda e: e.rank):
                self.methods.setdefault(answer_name(name, e.rank), {})[e.key] = _visible_explanation(e)
                self._options[answer_name(name, e.rank)] = given.context.get("spec")
        self.context = visible_context(next((f.context for f in found.values() if f.context), {}))
        self.keys = {key_id(e.key): e.key for given in found.values() for e in given}  # by their texts in the browser
        # Never changed, but replaced by a longer one: other threads may be reading it.
        self._made: dict[str, dict[tuple[Key, str], tuple[Explanation, Any]]] = {}  # by visitor, with its options
        self._source, self.read_only = source, source is None
        if source is not None and source.class_names and not self.context.get("class_names"):
            self.context |= visible_context({"class_names": list(source.class_names)})
        self.class_names, self.atoms = class_names(self.context), atom_names(self.context)
        self.is_molecule = is_molecule(self.context)
        self._sessions: dict[str, Session] = {}
        self._problems: dict[tuple[str, Key], Problem] = {}
        self._copy: ModelCache | None = None
        self._lock = threading.RLock()

    @property
    def source(self) -> ModelAndData:
        """The model and its data, or an error where there is only what was stored."""
        if self._source is None:
            raise CF2Error("Expected a page with a model", got="one that only shows what was stored")
        return self._source

    # -- explanations, of the run and made on the page

    def key(self, text: str) -> Key:
        """The key that the browser means, or an error for one that is not there."""
        require(text in self.keys, "Expected an instance of this run", got=repr(text))
        return self.keys[text]

    def explanations(self, key: Key) -> dict[str, Explanation]:
        """All explanations of a key, by method; those made on the page last."""
        stored = {name: by_key[key] for name, by_key in self.methods.items() if key in by_key}
        return stored | {name: e for (made_for, name), (e, _) in self._own().items() if made_for == key}

    def _own(self) -> dict[tuple[Key, str], tuple[Explanation, Any]]:
        """What the visitor who asks has made on the page, and the options of it."""
        return self._made.get(VISITOR.get(), {})

    def explanation(self, key: Key, method: str) -> Explanation:
        """The explanation of a key by a method, or an error for one that is not there."""
        found = self.explanations(key)
        require(method in found, "Expected the method of an explanation of this run", got=repr(method))
        return found[method]

    def shown(self, shown: Mapping[str, Any] | None) -> Explanation:
        """The explanation that the page shows, from its key and method."""
        if shown is None:
            raise CF2Error("Expected an explanation that is shown", got="none")
        return self.explanation(self.key(shown["key"]), shown["method"])

    def answers(self, key: Key, method: str) -> list[str]:
        """The names of all answers that a method gave for a key, the best first."""
        return [name for name in self.explanations(key) if first_answer(name) == method]

    def spec(self, e: Explanation) -> Spec:
        """What was asked when the explanation was made, as far as an answer depends on it."""
        name = next((name for name, known in self.explanations(e.key).items() if known is e), None)
        made = self._own().get((e.key, name or ""))
        options = self._options.get(name) if made is None else made[1]
        if options is None:
            return Spec(units=e.units.names or ("edges",), directed=e.directed)
        asked = {option: value for option, value in options.items() if option in ANSWER_OPTIONS}
        units = [name for name in e.units.names if not is_candidate(name)] if asked.get("units") == [AUTO] else []
        return Spec.from_json({**asked, "tolerance": e.tolerance} | ({"units": units} if units else {}))

    def graph(self, key: Key) -> Any:
        """The graph of a key, a Data object: the one that there is, or one of many."""
        graphs = self.source.graphs
        return graphs[key] if self.source.level == "graph" else graphs[0]  # type: ignore[index]

    def context_of(self, e: Explanation) -> dict[str, Any]:
        """What the pictures need to know; where edges are no units, also the edges."""
        if len(e.units.where("edges")) or not len(e.units) or self.read_only:
            return self.context
        with self._lock:
            instance = self._problem(e).instances[0]
        graphs = self.context.get("graphs") or {}
        graph = graphs.get(str(e.key), {}) | {"edges": units_of(instance, unit_kinds(["edges"])).ids.tolist()}
        return self.context | {"graphs": {**graphs, str(e.key): graph}}

    # -- what the model says

    def ask(self, e: Explanation, removed: np.ndarray) -> Answer:
        """Run the model on what is left and on what was removed; `removed` [units, bool] says which units are."""
        with self._lock:
            problem = self._problem(e)
            chosen = torch.zeros(problem.pack.units.count, dtype=torch.bool, device=problem.outputs.device)
            chosen[: e.num_units] = torch.from_numpy(np.ascontiguousarray(removed, dtype=bool))
            with self._session(e):
                found = problem.judge(chosen)
        sufficient, necessary = bool(found.sufficient[0]), bool(found.necessary[0])
        # Where the whole graph does not get the answer in question, nothing is the reason for it.
        given = bool(problem.criterion.holds(problem.outputs)[0])
        return Answer(
            left=found.without[0].cpu().numpy(),
            removed=found.only[0].cpu().numpy(),
            left_verdict=(given and not necessary, given and not sufficient),
            removed_verdict=(sufficient, necessary),
            changed=self._changed(e, problem, found.without),
        )

    def ask_edited(self, e: Explanation, removed: np.ndarray, edits: Sequence[Edit]) -> tuple[np.ndarray, bool]:
        """Probabilities [classes] after changes, and whether that is another answer.

        The units in `removed` [units, bool] are removed, or, where they are edits themselves, made; and so are `edits`.
        """
        gone = replace(e, selected=removed)
        added = {*map(tuple, gone.chosen(ADD.unit_kind).tolist()), *(edit[1:] for edit in edits if edit[0] == "add")}
        written = (*_chosen_entries(gone), *_entries(edits, self.atoms))
        with self._lock:
            problem, spec = self._problem(e), self.spec(e)
            trial = Trial(
                edits=("add",) if added else (),
                candidates=((None, tuple(sorted(added))),),
                attributes=spec.added_attributes,
                groups=spec.groups,
                written=written,
            )
            with self._session(e) as session:
                kinds = [kind for kind in session.kinds if not kind.absent] or [*unit_kinds(["edges"])]
                kinds += unit_kinds([edit.unit_kind for edit, some in ((ADD, added), (CHANGE, written)) if some])
                field = ReceptiveField(session.predictor, session.request.targets, session.field.reach, trial)
                takes = session.predictor.adapter.takes

                def make(part: Sequence[Instance]) -> Any:
                    return pack(part, tables=[units_of(instance, kinds) for instance in part], takes=takes)

                ((instances, packed, _),) = field.packed(field.instances([e.key]), make)
                chosen = _chosen_or_edit(gone, units_of(instances[0], kinds))
                packed = packed.to(session.predictor.device)
                said = outputs_after(EDITED, session.predictor, packed, chosen.to(session.predictor.device))
        return said[0].cpu().numpy(), self._changed(e, problem, said)

    def _changed(self, e: Explanation, problem: Any, said: Tensor) -> bool:
        """Whether that is another answer than that of the whole graph: a class, a side of a label, a number."""
        kind = self._session(e).kind
        column = None if kind.exclusive else e.prediction
        criterion = criterion_for(problem.outputs, [e.key], column, kind, tolerance=e.tolerance)
        return bool(passes(criterion, said, same=False)[0])

    def _session(self, e: Explanation) -> Session:
        spec = self.spec(e)
        name = json.dumps(spec.to_json())
        if name not in self._sessions:
            self._sessions[name] = Session(self.source.request(list(self.keys.values()), spec))
        return self._sessions[name]

    def _problem(self, e: Explanation) -> Problem:
        """The instance, packed, and checked against the explanation; the latest ones are kept."""
        name = (json.dumps(self.spec(e).to_json()), e.key)
        problem = self._problems.pop(name, None)
        if problem is None:
            with self._session(e) as session:
                (problem,) = session.problems([e.key])
        self._problems[name] = problem
        if len(self._problems) > MAX_KEPT_PROBLEMS:
            del self._problems[next(iter(self._problems))]
        _check(e, problem)
        return problem

    # -- searches: each works on a copy of the model, so that others can ask the model meanwhile

    def again(self, e: Explanation, alpha: float, lam: float | None, go_on: GoOn = lambda: None) -> str:
        """Explain the same prediction by cf2 with other settings; returns the name it is now known by."""
        spec = replace(self.spec(e), method=Spec().method, settings={"alpha": alpha, "lam": lam})
        (made,) = self._explained(e, spec, go_on)
        return self._keep(e, made, spec, f"cf2 (α = {alpha:g}, λ = {'auto' if lam is None else f'{lam:g}'})")

    def another(self, e: Explanation, method: str, go_on: GoOn = lambda: None) -> str:
        """Look for one more answer to what an explanation answers; returns its name, or an empty text for none."""
        answers = [self.explanation(e.key, name) for name in self.answers(e.key, method)]
        spec = replace(self.spec(e), method=Spec().method, alternatives=len(answers) + 1)
        taken = {answer.selected.tobytes() for answer in answers}
        new = [made for made in self._explained(e, spec, go_on) if made.selected.tobytes() not in taken]
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
            self.spec(e),
            method=Spec().method,
            question="counterfactual",
            target=target,
            edits=edits,
            candidates=None,
            valid="molecule" if valid else None,
            atoms=tuple(self.atoms or ()) or None,
        )
        aim = "another class" if target is None else class_name(target, self.class_names)
        (made,) = self._explained(e, spec, go_on)
        how = ", ".join(edits) + (", valid" if valid else "")
        return self._keep(e, made, spec, visible(f"smallest edit to {aim} ({how})"))

    def _explained(self, e: Explanation, spec: Spec, go_on: GoOn) -> list[Explanation]:
        """All answers for one key, by a copy of the model; `go_on` is called before every run of it."""
        with self._lock:  # nobody has the model borrowed while it is copied
            if self._copy is None:
                source = self.source
                try:
                    self._copy = ModelCache(copy.deepcopy(source.model), source.graphs)
                except Exception as error:
                    raise CF2Error(
                        "Expected a model that copy.deepcopy can copy, to explain with while others ask it",
                        got=f"{type(error).__name__}: {error}",
                    ) from error
            kept = self._copy
        model: nn.Module = kept.model
        hook = model.register_forward_pre_hook(lambda *_: go_on())
        try:
            request = replace(self.source, model=model).request([e.key], spec)
            with Session(replace(request, measured=kept.measured(request))) as session:
                found = list(session.explain([e.key]))
                kept.learn(session)
                return found
        finally:
            hook.remove()

    def _keep(self, e: Explanation, made: Explanation, spec: Spec, name: str) -> str:
        """Keep an answer beside an explanation under a name, which is returned; the oldest ones make room."""
        made = _visible_explanation(replace(made, label=e.label))
        with self._lock:
            own = [*self._own().items(), ((e.key, name), (made, spec.to_json()))][-MAX_KEPT_EXPLANATIONS:]
            others = [(visitor, kept) for visitor, kept in self._made.items() if visitor != VISITOR.get()]
            self._made = dict([*others, (VISITOR.get(), dict(own))][-MAX_VISITORS:])
        return name

    # -- the state of the page, as an address and as JSON

    def address_of(self, e: Explanation, method: str, removed: np.ndarray, edits: Sequence[Edit]) -> str:
        """The query of the address of a state; what is not removed or edited is not in it."""
        parts = {"run": self.run, "method": method, "key": key_id(e.key)}
        parts["removed"] = _ranges(np.flatnonzero(removed).tolist())
        parts["edits"] = "_".join("~".join(map(str, edit)) for edit in edits)
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
        e = self.explanation(key, method)
        if self.read_only:
            return State(given["key"], method, e.selected & False, [])
        removed = unit_mask(_numbers(given.get("removed", ""), e.num_units), e.num_units)
        edits = [[_value(part) for part in edit.split("~")] for edit in given.get("edits", "").split("_") if edit]
        return State(given["key"], method, removed, checked_edits(edits, self.graph(key), e.directed))

    def to_dict(self, e: Explanation, removed: np.ndarray, edits: Sequence[Edit] = ()) -> dict[str, Any]:
        """The current what-if with everything needed to repeat it."""
        answer, gone = self.ask(e, removed), replace(e, selected=removed)
        probabilities = {"all": e.probabilities, "left": answer.left, "removed": answer.removed}
        return {
            "edits": [list(edit) for edit in edits],
            "after_edits": self.ask_edited(e, removed, edits)[0].tolist() if edits else None,
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


def answer_name(method: str, rank: int) -> str:
    """The name of an answer of a method: 'cf2', 'cf2, answer 2'."""
    return f"{method}, answer {rank + 1}" if rank else method


def first_answer(name: str) -> str:
    """The name of the best answer of the same method."""
    return re.sub(r", answer [0-9]+$", "", name)


def absent(e: Explanation) -> np.ndarray:
    """Which units [units, bool] are edits that add or change: not in the graph before they are made."""
    return np.isin(e.units.kind, [kind for kind, name in enumerate(e.units.names) if is_candidate(name)])


def unit_mask(units: Sequence[int], count: int) -> np.ndarray:
    """The numbers of units as a mask [count, bool]."""
    return np.isin(np.arange(count), np.asarray(units, dtype=np.int64))


def _visible_explanation(e: Explanation) -> Explanation:
    """The explanation with texts that can be displayed; the same object where they are."""
    texts = {name: getattr(e, name) for name in ("task", "method", "note")}
    shown: dict[str, Any] = {name: visible(text) for name, text in texts.items()}
    return e if shown == texts else replace(e, **shown)


def _check(e: Explanation, problem: Problem) -> None:
    """Refuse a model or data other than those with which a prediction was explained."""
    (table,) = problem.tables
    same = np.array_equal(table.ids, e.units.ids) and np.array_equal(table.kind, e.units.kind)
    same = same or e.status == "refused"  # such an explanation keeps no units
    close = np.allclose(problem.outputs[0].cpu(), e.probabilities, atol=SAME_PROBABILITY)
    require(
        same and close,
        f"Expected the model and data with which {describe_target(e)} was explained",
        got="other probabilities" if same else "other units",
    )


# -- edits by hand


def checked_edits(values: Sequence[Any] | None, graph: Any, directed: bool) -> list[Edit]:
    """Edits from the browser (None: none yet), each checked against the graph (a Data object), the same one once."""
    values = values or []
    require(len(values) <= MAX_EDITS, f"Expected at most {MAX_EDITS} edits", got=len(values))
    require(
        not values or not isinstance(graph, HeteroData),
        "Expected a graph of one type, to add to it or change it by hand",
        got="one with types",
        do="Find the smallest edit below: it knows the types.",
    )
    edits: dict[tuple[Any, ...], Edit] = {}
    for value in values:
        good = EDIT_LENGTHS.get(str(value[0])) == len(value)
        require(good, "Expected an edit that adds or changes", got=repr(value)[:40])
        edit = _checked_edge(value, graph, directed) if value[0] == "add" else _checked_change(value, graph)
        edits[edit[:3]] = edit  # of two changes of one entry, the later one counts
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


def _checked_change(value: Sequence[Any], graph: Any) -> Edit:
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


def describe_edit(edit: Edit, graph: Any, atoms: Sequence[str] | None, directed: bool) -> str:
    """An edit in words: 'add 1–5', 'atom 3: C → N'."""
    if edit[0] == "add":
        return f"add {edit[1]}{'→' if directed else '–'}{edit[2]}"
    _, node, column, value = edit
    row = graph.x[node]
    elements = row[: len(atoms)].nonzero().flatten().tolist() if atoms and column < len(atoms) else []
    return describe_change(node, column, elements[0] if elements else -1, float(row[column]), value, atoms)


def _entries(edits: Sequence[Edit], atoms: Sequence[str] | None) -> list[Entry]:
    """The feature entries that edits write; an atom that becomes another element is not the old one any more."""
    values: dict[tuple[int, int], float] = {}
    for _, node, column, value in (edit for edit in edits if edit[0] == "change"):
        for element in range(len(atoms)) if atoms and column < len(atoms) else ():
            values[node, element] = 0.0
        values[node, column] = value
    return [(node, column, value) for (node, column), value in values.items()]


def _chosen_entries(e: Explanation) -> list[Entry]:
    """The feature entries that the chosen changes of an explanation write."""
    entries: list[Entry] = []
    rows = e.units.where(CHANGE.unit_kind)
    for row in rows[e.selected[rows]]:
        (node, column), (source, _, new) = e.units.ids[row].tolist(), e.units.values[row].tolist()
        entries += [(node, int(source), 0.0)] if source >= 0 else []
        entries.append((node, column, new))
    return entries


def _chosen_or_edit(e: Explanation, table: InstanceUnits) -> Tensor:
    """The units of a table that are chosen [u, bool]: all edits, and what the explanation chooses by kind and ids."""
    taken = {(name, *ids) for name in e.units.names for ids in e.chosen(name).tolist()}
    names = [table.names[kind] for kind in table.kind.tolist()]
    chosen = [is_candidate(name) or (name, *ids) in taken for name, ids in zip(names, table.ids.tolist())]
    return torch.tensor(chosen, dtype=torch.bool)


@dataclass(frozen=True, eq=False)
class Trial(Editing):
    """Edits that are all made: pairs of nodes in `candidates`, and feature entries in `written`, one unit for all."""

    written: tuple[Entry, ...] = ()

    def prepared(self, near: Instance, around: Callable[[Tensor], Instance]) -> Instance:
        """The instance with the edits as candidates; a node that the model does not see has nothing to change."""
        prepared = super().prepared(near, around)
        local = {int(node): position for position, node in enumerate(prepared.node_ids.tolist())}
        seen = [(local[node], column, value) for node, column, value in self.written if node in local]
        if not seen:
            return prepared
        changes = Changes(
            place=torch.tensor([[node, column] for node, column, _ in seen]),
            value=torch.tensor([value for *_, value in seen]),
            unit=torch.zeros(len(seen), dtype=torch.long),
            ids=torch.tensor([[int(prepared.node_ids[seen[0][0]]), seen[0][1]]]),
            source=torch.tensor([-1]),
            choice=torch.tensor([0]),
        )
        return replace(prepared, changes=changes)


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
