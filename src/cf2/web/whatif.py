"""What the page asks: explanations by key and method, and the model on a graph with things removed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cf2.computation import Computation
from cf2.errors import CF2Error, require
from cf2.explanation import Explanation, Explanations
from cf2.instances import Graph, Instance, graph_instances
from cf2.packing import Pack, pack
from cf2.predictor import Predictor
from cf2.subjects import Subject

KEPT = 64  # instances and new explanations that stay in memory
SAME = 1e-3  # probabilities closer than this are those of the run


@dataclass(frozen=True, eq=False)
class Answer:
    """Class probabilities on what is left and on what was removed, by itself; and what follows for both.

    What is left is sufficient if it alone keeps the prediction; it is necessary if the rest alone changes it.
    """

    prediction: int
    left: np.ndarray
    removed: np.ndarray

    @property
    def changed(self) -> bool:
        return int(self.left.argmax()) != self.prediction

    @property
    def left_verdict(self) -> tuple[bool, bool]:
        """Whether what is left is (sufficient, necessary)."""
        return not self.changed, int(self.removed.argmax()) != self.prediction

    @property
    def removed_verdict(self) -> tuple[bool, bool]:
        """Whether what was removed is (sufficient, necessary)."""
        return int(self.removed.argmax()) == self.prediction, self.changed


class WhatIf:
    """One subject and its explanations; safe to ask from several threads."""

    def __init__(self, subject: Subject, found: Mapping[str, Explanations]) -> None:
        found = {name: given for name, given in found.items() if len(given)}
        require(bool(found), "Expected at least one explanation to show", got="none")
        self.subject = subject
        self.methods = {name: {e.key: e for e in given} for name, given in found.items()}
        self.context: dict[str, Any] = next((dict(f.context) for f in found.values() if f.context), {})
        if subject.class_names and not self.context.get("class_names"):
            self.context["class_names"] = list(subject.class_names)
        self.keys = list(dict.fromkeys(e.key for given in found.values() for e in given))
        self.predictor = Predictor(subject.model, subject.task)
        self._again: OrderedDict[tuple[int, str], Explanation] = OrderedDict()
        self._packs: OrderedDict[tuple[int, bool, bool], Pack] = OrderedDict()
        self._computation: dict[bool, Computation] = {}
        self._lock = threading.RLock()

    def names(self, key: int) -> list[str]:
        """The methods that explain this key, those asked for on the page last."""
        run = [name for name, by_key in self.methods.items() if key in by_key]
        return run + [name for known, name in self._again if known == key]

    def explanation(self, key: object, method: object) -> Explanation:
        """The explanation of a key by a method, or an error for anything that is not there."""
        if isinstance(key, int) and isinstance(method, str):
            found = self.methods.get(method, {}).get(key) or self._again.get((key, method))
            if found is not None:
                return found
        raise CF2Error("Expected the key and method of an explanation of this run", got=f"{key!r} and {method!r}")

    def explanations(self, key: int) -> list[tuple[str, Explanation]]:
        """All explanations of a key, by method."""
        return [(name, self.explanation(key, name)) for name in self.names(key)]

    def context_of(self, e: Explanation) -> dict[str, Any]:
        """What the pictures need to know; where only features were masked, also the edges."""
        if len(e.unit_edges) or e.task != "node":
            return self.context
        with self._lock, self.predictor:
            instance = self._instance(e)
        graphs = {str(e.key): {"edges": instance.unit_edges.tolist()}}
        return self.context | {"graphs": graphs}

    def ask(self, e: Explanation, removed: np.ndarray) -> Answer:
        """Run the model on what is left and on what was removed; `removed` is a bool a unit."""
        require(
            removed.shape == (e.num_units,),
            f"Expected a choice for each of {e.num_units} units",
            got=removed.shape,
        )
        gone = torch.from_numpy(np.ascontiguousarray(removed, dtype=bool))
        with self._lock, self.predictor:
            twice = self._pack(e)
            answers = self.predictor.removed(twice, torch.cat([~gone, gone])).cpu().numpy()
        return Answer(e.prediction, answers[0], answers[1])

    def again(self, e: Explanation, alpha: float, lam: float | None) -> str:
        """Explain the same prediction with other settings; returns the name it is now known by."""
        from cf2.api import explain

        options: dict[str, Any] = {"edges": bool(len(e.unit_edges)), "features": bool(len(e.unit_features))}
        options |= {"alpha": alpha, "lam": lam, "directed": e.directed}
        with self._lock:
            if e.task == "node":
                made = explain(self.subject.model, self.subject.graphs[0], [e.key], **options)[0]
            else:
                made = explain(self.subject.model, [self.subject.graphs[e.key]], **options)[0]
        name = f"cf2 (α = {alpha:g}, λ = {'auto' if lam is None else f'{lam:g}'})"
        self._again[e.key, name] = replace(made, key=e.key, label=e.label)
        while len(self._again) > KEPT:
            self._again.popitem(last=False)
        return name

    def _pack(self, e: Explanation) -> Pack:
        """The instance twice, for the two questions of one answer; checked against the run at first."""
        which = (e.key, bool(len(e.unit_edges)), bool(len(e.unit_features)))
        if which not in self._packs:
            made = pack([self._instance(e)], edges=which[1], features=which[2]).to(self.predictor.device)
            said = self.predictor.predict(made).cpu().numpy()[0]
            require(
                made.num_units == e.num_units and np.allclose(said, e.probabilities, atol=SAME),
                f"Expected the model and data with which {e.task} {e.key} was explained",
                got=f"{made.num_units} units instead of {e.num_units}"
                if made.num_units != e.num_units
                else "other probabilities",
            )
            self._packs[which] = made.take(torch.zeros(2, dtype=torch.long, device=made.keys.device))
            while len(self._packs) > KEPT:
                self._packs.popitem(last=False)
        self._packs.move_to_end(which)
        return self._packs[which]

    def _instance(self, e: Explanation) -> Instance:
        if e.task == "graph":
            return graph_instances(self.subject.graphs, directed=e.directed, keys=[e.key])[0]
        if e.directed not in self._computation:
            graph = Graph(self.subject.graphs[0], directed=e.directed)
            self._computation[e.directed] = Computation(self.predictor, graph)
        return self._computation[e.directed].instances([e.key])[0]
