"""What the page asks: explanations by key and method, and the model on a graph with units removed."""

from __future__ import annotations

import copy
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from cf2.core.graph import Instance
from cf2.core.packing import pack
from cf2.core.receptive_field import ReceptiveField
from cf2.core.units import ADDED, CHANGED, InstanceUnits, unit_kinds, units_of
from cf2.errors import CF2Error, require
from cf2.methods.contract import Problem
from cf2.report.sentences import class_name, class_names, describe_target
from cf2.report.unit_words import atom_names
from cf2.results.explanation import VERDICTS, Explanation
from cf2.results.explanations import Explanations
from cf2.runs.model_and_data import ModelAndData
from cf2.runs.planning import Kept
from cf2.runs.session import Session
from cf2.spec import Key, Spec
from cf2.verify.criterion import criterion_for
from cf2.verify.intervention import EDITED
from cf2.verify.verdict import judge
from cf2.web.again import GoOn
from cf2.web.catalogue import Catalogue, answer_name
from cf2.web.labels import visible, visible_context
from cf2.web.trial import Edit, Entry, Trial, entries

KEPT = 64  # instances that stay in memory
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
                found = judge(problem.predictor, problem.pack, problem.criterion, chosen, problem.outputs)
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
        column = None if e.output == "classes" else e.prediction
        return criterion_for(problem.outputs, [e.key], column, kind=self._session(e).kind, tolerance=e.tolerance)

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
        added = {*map(tuple, mine.chosen(ADDED).tolist()), *(edit[1:] for edit in edits if edit[0] == "add")}
        written = (*_entries(mine), *entries(edits, atoms))
        with self._lock:
            before, spec = self._problem(e), self.spec(e)
            pairs = ((None, tuple(sorted(added))),)
            trial = Trial(bool(added), None, pairs, spec.added_attributes, spec.groups, written=written)
            with self._session(e) as session:
                kinds = [kind for kind in session.kinds if not kind.absent] or [*unit_kinds(["edges"])]
                kinds += unit_kinds([ADDED] if added else []) + unit_kinds([CHANGED] if written else [])
                field = ReceptiveField(session.predictor, session.request.targets, session.field.reach, trial)
                takes = session.predictor.adapter.takes

                def make(part: Sequence[Instance]) -> Any:
                    return pack(part, tables=[units_of(one, kinds) for one in part], takes=takes)

                ((instances, packed, _),) = field.packed(field.instances([e.key]), make)
                chosen = _chosen(mine, units_of(instances[0], kinds))
                packed = packed.to(session.predictor.device)
                said = EDITED.outputs(session.predictor, packed, chosen.to(session.predictor.device))
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
            while len(self._problems) > KEPT:
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
    rows = e.units.where(CHANGED)
    for row in rows[e.selected[rows]]:
        (node, column), (source, _, new) = e.units.ids[row].tolist(), e.units.values[row].tolist()
        found += [(node, int(source), 0.0)] if source >= 0 else []
        found.append((node, column, new))
    return found


def _chosen(e: Explanation, table: InstanceUnits) -> torch.Tensor:
    """The units of a table that are chosen [u, bool]: all edits, and what the explanation chooses by kind and ids."""
    taken = {(name, *ids) for name in e.units.names for ids in e.chosen(name).tolist()}
    names = [table.names[kind] for kind in table.kind.tolist()]
    made = [name in (ADDED, CHANGED) or (name, *ids) in taken for name, ids in zip(names, table.ids.tolist())]
    return torch.tensor(made, dtype=torch.bool)
