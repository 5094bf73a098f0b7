"""From what a user passes to a request: what can be explained, which keys, and what is known from an earlier call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData

from cf2.core.adapter import Call
from cf2.core.data import graphs_of
from cf2.core.modules import module_of
from cf2.core.targets import GraphTargets, Targets, targets_for
from cf2.errors import CF2Error, require
from cf2.methods import registry
from cf2.methods.needs import check_needs
from cf2.runs.session import Measured, Request, Session
from cf2.runs.settings import check_names
from cf2.spec import Key, Spec

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
