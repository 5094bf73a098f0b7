"""Every claim of explanations again, by plain code: one edited copy of the whole graph at a time.

Nothing of the search, the proofs, the packs or the receptive fields is used here, so that a mistake in one of them is
noticed. From the package come only how data is read, how the model is borrowed and called, and what the units are.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import networkx
import numpy as np
import torch
from torch import Tensor

from cf2.errors import require, require_number
from cf2.graphs.data import graphs_of
from cf2.graphs.graph import Instance, kinds_that_fit
from cf2.graphs.targets import Targets, targets_for
from cf2.models.adapters import Call, Inputs, adapter_for, module_of, run, target_arguments
from cf2.models.soft_masks import Loan, default_dtype
from cf2.options import Key, Spec
from cf2.results.explanation import VERDICTS, Explanation
from cf2.results.explanations import Explanations, by_key
from cf2.runs.functions import Function, functions_of, returned_by

SINGLE = 1.2e-7  # by so little two probabilities may be the same number when they are stored
ROUNDING = 100  # spacings of floats, relative to the outputs: what is decided by less is not decided
SAME_OUTPUT = 1e-4  # two probabilities closer than this are one
AMPLIFIED = 0.01  # relative rounding beyond which a model's numbers say nothing; that of bfloat16 is smaller
MAX_UNITS_NAMED = 8  # units of a set that a sentence names
Mask = np.ndarray  # bool [units]


# -- the result ---------------------------------------------------------------------------------------------------


class ClaimCount(NamedTuple):
    """How many claims of one sort were tried again, how many of these are false, and how many cannot be tried."""

    checked: int = 0
    false: int = 0
    not_checkable: int = 0


class FalseClaim(NamedTuple):
    """A claim that does not hold, of the answer of that rank for a key."""

    key: Key
    rank: int
    claim: str
    sentence: str

    def __str__(self) -> str:
        return f"key {self.key}{f', answer {self.rank}' if self.rank else ''}, {self.claim}: {self.sentence}"


@dataclass
class Check:
    """Result of `cf2.check`; true if no claim is false.

    Attributes
    ----------
    claims : dict
        By claim: how many were `checked`, how many of these are `false`, and how many are `not_checkable`.
    false : list of FalseClaim
        The false ones, each with its `key`, `rank`, `claim` and a `sentence`.
    """

    claims: dict[str, ClaimCount] = field(default_factory=dict)
    false: list[FalseClaim] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.false

    def __iadd__(self, other: Check) -> Check:
        for claim, count in other.claims.items():
            self.claims[claim] = ClaimCount(*map(sum, zip(self.claims.get(claim, ClaimCount()), count)))
        self.false += other.false
        return self

    def __repr__(self) -> str:
        total = sum(count.checked for count in self.claims.values())
        wrong = sum(count.false for count in self.claims.values())
        lines = [f"{total:,} claims checked: {wrong or 'none'} of them false."]
        for claim, (checked, false, not_checkable) in self.claims.items():
            left = f", {not_checkable:,} not checkable" if not_checkable else ""
            lines.append(f"  {claim}: {checked:,} checked, {false or 'none'} false{left}")
        return "\n".join([*lines, *(f"  {claim}" for claim in self.false)])

    def _note(self, e: Explanation, claim: str, holds: bool | None, sentence: str) -> None:
        """Count a claim that holds, does not (the sentence says why), or cannot be checked (None)."""
        false = [FalseClaim(e.key, e.rank, claim, sentence)] if holds is False else []
        self += Check({claim: ClaimCount(holds is not None, len(false), holds is None)}, false)


def check(found: Explanations, model: Any, data: Any, *, call: Call | None = None, most: int = 4096) -> Check:
    """Check every claim with code that is independent of the search.

    The whole graph is edited as each claim requires, one copy at a time, and the model is run on it. Claims about all
    sets (`optimal`, `lower_bound`, `impossible`, `complete`) are checked by trying all sets, if there are at most
    `most`. Claims that depend on rounding of the model's outputs or on `valid=` cannot be checked.

    Parameters
    ----------
    found : Explanations
        Result of `cf2.explain`, `cf2.explain_sets` or `cf2.load`.
    model, data
        The explained model and data; for `cf2.explain_sets`, the function and the number of its units.
    call : function, optional
        How the model is called, as in `cf2.explain`.
    most : int
        Maximum number of sets to try for one claim.

    Returns
    -------
    Check
        True if no claim is false; `print` shows the number of checked claims and the false ones.

    Examples
    --------
    >>> import cf2, torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> data = Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    >>> model = GCN(3, 8, 2, 2)
    >>> bool(cf2.check(cf2.explain(model, data, nodes=[1]), model, data))
    True
    """
    require(isinstance(found, Explanations), "Expected Explanations to check", got=type(found).__name__)
    require_number("most", most, 0, integer=True)
    result = Check()
    if not len(found):
        return result
    with _claimants(found[0].task, found.context, model, data, call) as claimant:
        for answers in by_key(found):
            claimants = [claimant(e) for e in answers]
            own = Check()
            _check_key(own, claimants, most)
            if own.false and sum(answer.widened() for answer in claimants):
                own = Check()
                _check_key(own, claimants, most)
            result += own
    return result


def outputs_at(e: Explanation, model: Any, data: Any, states: np.ndarray, call: Call | None = None) -> np.ndarray:
    """What the model says where exactly these units [R, units, bool] are as they were: [R, columns], NaN for nothing.

    By plain code on the whole graph, one edited copy at a time; probabilities, or the numbers of a regression.
    """
    return answers_at(e, model, data, states, call)[0]


def answers_at(
    e: Explanation, model: Any, data: Any, states: np.ndarray, call: Call | None = None
) -> tuple[np.ndarray, list[bool | None]]:
    """The same, and whether each is the answer in question; None where rounding decides, or no node is left."""
    with _claimants(e.task, e.context, model, data, call) as claimant:
        answer = claimant(e)
        rows = [answer.edited.row(state | answer.edited.fixed) for state in states]
        kept = [None if bool(row.isnan().any()) else answer.says(row) for row in rows]
        values = [row if bool(row.isnan().any()) else answer.values(row) for row in rows]
    return np.stack([np.broadcast_to(row.numpy(), e.probabilities.shape) for row in values]), kept


@contextmanager
def _claimants(
    level: str, context: Mapping[str, Any], model: Any, data: Any, call: Call | None
) -> Iterator[Callable[[Explanation], _Claimant]]:
    """What makes of an explanation one that can be tried on its input, with the model borrowed."""
    spec = Spec.from_json(context.get("spec") or {})
    if level == "input":  # of a function, `model` and `data` are its `f` and `n`
        functions, counts = functions_of(model, data)

        def of_function(e: Explanation) -> _Claimant:
            known = e.key in range(len(functions))
            require(known, f"Expected a function for key {e.key}", got=f"{len(functions)} of them")
            return _Claimant(e, spec, _EditedInput(e, functions[e.key], counts[e.key]))  # type: ignore[index]

        yield of_function
        return
    read = isinstance(data, Targets)  # by somebody who asks more than once
    targets = data if read else targets_for(graphs_of(data, level, positions=True), level, spec)
    caller = _Caller(model, targets, call, spec.device)
    with Loan(caller.model, caller.device, caller.origin) as loan, torch.no_grad(), default_dtype(loan.dtype):
        yield lambda e: _Claimant(e, spec, _EditedGraph(e, spec, caller))


# -- running the model --------------------------------------------------------------------------------------------


class _Caller:
    """The user's whole graph of each key, and the model run on edited copies of it."""

    def __init__(self, model: Any, targets: Targets, call: Call | None, device: str | None) -> None:
        self.model, self.targets = module_of(model), targets
        self.origin = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        self.device = torch.device(device) if device else self.origin
        self.call, self.adapter = call, adapter_for(self.model, targets.level, call, targets)
        kinds = {p.dtype for p in self.model.parameters() if p.is_floating_point()} or {torch.float32}
        self.spacing = max(torch.finfo(kind).eps for kind in kinds)
        self.dtype: torch.dtype | None = None  # what the model computes in; None: as it is

    def doubled(self) -> _Caller:
        """The same with a copy of the model in double precision."""
        made = copy(self)
        made.model, made.dtype = deepcopy(self.model).double(), torch.float64
        made.adapter = adapter_for(made.model, self.targets.level, self.call, self.targets)
        return made

    def kept(self) -> list[str]:
        """What the model's parts hold."""
        parts = (vars(part) for part in self.model.modules())
        return [repr({name: value for name, value in part.items() if name != "_modules"}) for part in parts]

    def graph(self, key: Key) -> tuple[Instance, Tensor]:
        """The whole graph in which a key is predicted, and the nodes [1, ·] whose output that is."""
        for whole in self.targets.wholes([key]):
            return whole.instance, whole.targets
        return self.targets.instance(key), torch.zeros((1, 0), dtype=torch.long)

    def row(self, x: Tensor, edge_index: Tensor, extras: dict[str, Tensor], place: Tensor) -> Tensor:
        """What the model returns for the key, [width]; of a graph without nodes it says nothing, NaN."""
        if not len(x):
            return torch.full((1,), math.nan)
        level, batch = self.targets.level, torch.zeros(len(x), dtype=torch.long, device=self.device)
        place = place.to(self.device)
        x, *values = (v.to(self.dtype) if v.is_floating_point() else v for v in (x, *extras.values()))
        arguments: dict[str, Any] = {name: value.to(self.device) for name, value in zip(extras, values)}
        arguments |= target_arguments(level, place, batch)
        inputs = Inputs(x.to(self.device), edge_index.to(self.device), arguments, place)
        return run(self.adapter, inputs, level)[0].detach().cpu().double()

    def belongs(self, name: str, graph: Instance) -> str:
        """Whether an attribute is of nodes, edges or the graph; where sizes leave that open, as in other graphs."""
        kind = graph.extras[name][0]
        for other in range(min(len(self.targets), 64)) if self.targets.level == "graph" else ():
            sample = self.targets.instance(other)
            if name in sample.extras:
                fits = kinds_that_fit(name, len(sample.extras[name][1]), len(sample.x), sample.edge_index.size(1))
                kind = kind if kind in fits or not fits else fits[0]
        return kind


# -- one explanation ----------------------------------------------------------------------------------------------


class _EditedInput:
    """What a function returns of the input that an explanation is about, with exactly some of its units there."""

    def __init__(self, e: Explanation, f: Function, n: int) -> None:
        own = (e.context.get("graphs") or {}).get(str(e.key)) or {}
        expected = f"Expected explanations of a function of {n} units"
        require(len(own.get("units", ())) == n, expected, got=len(own.get("units", ())))
        self.f, self.unit = f, np.array(own["units"], dtype=int)
        self.fixed, self.free = (np.array(own[name], dtype=bool) for name in ("fixed", "free"))
        self.price, self.absent = np.array(own["costs"], dtype=float), np.zeros_like(self.free)
        self.spacing = float(np.finfo(np.float64).eps)

    def row(self, as_it_was: Mask) -> Tensor:
        """What it returns where exactly these units are there."""
        return returned_by(self.f, as_it_was[None, self.unit])[0]

    def joined(self, chosen: Mask, connected: bool) -> bool:
        """Any set will do."""
        return True


class _EditedGraph:
    """What a model says of the whole graph that an explanation is about, edited as sets of its units say."""

    def __init__(self, e: Explanation, spec: Spec, caller: _Caller) -> None:
        self.e, self.spec, self.caller = e, spec, caller
        self.graph, self.place = caller.graph(e.key)
        self.spacing = caller.spacing
        self.kinds = [e.units.names[kind] for kind in e.units.kind]
        self.absent = np.array([kind in ("added_edges", "changes") for kind in self.kinds], dtype=bool)
        self._list_columns()
        kept, forbidden = (self._named(pairs) for pairs in (spec.keep, spec.forbid))
        self.fixed, self.free = kept, ~(kept | forbidden)
        edits = {"added_edges": "add", "changes": "change"}
        costs: dict[str, float] = dict(spec.costs)
        self.price = np.array([costs.get(edits.get(kind, "remove"), 1.0) for kind in self.kinds])

    # -- what a unit is, from its ids ---------------------------------------------------------------------------

    def _list_columns(self) -> None:
        """The edges that are there, after them those that can be added, and which of them each unit governs."""
        e, units, extras = self.e, self.e.units, self.graph.extras
        count = self.graph.edge_index.size(1)
        added: dict[int, list[int]] = defaultdict(list)
        new: list[tuple[int, int, int]] = []
        for unit in units.where("added_edges").tolist():
            columns_of = self._columns_of(unit)
            added[unit] += range(count + len(new), count + len(new) + len(columns_of))
            new += columns_of
        rows = np.array(new, dtype=np.int64).reshape(-1, 3)
        types = np.full(count, -1) if e.types is None else extras["edge_type"][1].numpy()
        self.ends = np.concatenate([self.graph.edge_index.t().numpy(), rows[:, 1:]])
        self.types = np.concatenate([types, rows[:, 0]])
        # Columns by their type and ends, by their ends, and by either end: units name them in one of these ways. Of a
        # large graph only those are listed that a unit can name.
        at: dict[Any, list[int]] = defaultdict(list)
        named = np.concatenate([units.ids.ravel(), units.members[:, 1:].ravel()])
        for column in np.flatnonzero(np.isin(self.ends, named).any(1)).tolist():
            a, b = self.ends[column].tolist()
            for name in ((a, b), a, b, *([(int(self.types[column]), a, b)] if column < count else [])):
                at[name].append(column)
        grouped: dict[int, int] = {}
        if isinstance(self.spec.groups, str) and "groups" in self.kinds:  # a number for each column
            of_number = {number: unit for unit, number in zip(units.where("groups").tolist(), units.of("groups")[:, 0])}
            numbers = extras[self.spec.groups][1].tolist()
            grouped = {column: of_number.get(number, -1) for column, number in enumerate(numbers) if number >= 0}
        for unit, a, b in units.members.tolist() if not grouped else ():
            both = at[a, b] if e.directed else at[a, b] + at[b, a]
            grouped |= dict.fromkeys(both, unit)
        self.governed: list[set[int]] = []
        for unit, kind in enumerate(self.kinds):
            columns = set(added[unit])
            if kind == "edges":
                columns = {column for name in self._columns_of(unit) for column in at[name]} - grouped.keys()
            elif kind == "groups":
                columns = {column for column, group in grouped.items() if group == unit}
            elif kind == "nodes":
                columns = set(at[int(units.ids[unit, 0])])
            self.governed.append(columns)

    def _columns_of(self, unit: int) -> list[tuple[int, int, int]]:
        """The types and ends of the columns that an edge unit stands for: of undirected edges both ways."""
        a, b = self.e.units.ids[unit].tolist()
        if self.e.types is None:
            return [(-1, a, b)] if self.e.directed else [(-1, a, b), (-1, b, a)]
        kind = int(self.e.units.types[unit])
        partner = self.e.types.partners[kind]
        return [(kind, a, b)] + ([(partner, b, a)] if partner >= 0 else [])

    def _named(self, given: Any) -> Mask:
        """Which units govern one of the edges that `keep` or `forbid` names."""
        pairs = {pair for key, pairs in given or () if key in (None, self.e.key) for pair in pairs}
        pairs |= set() if self.e.directed else {(b, a) for a, b in pairs}
        ends = {node for pair in pairs for node in pair}
        named = [any(tuple(self.ends[c].tolist()) in pairs for c in columns) for columns in self.governed]
        nodes = [kind == "nodes" and int(ids[0]) in ends for kind, ids in zip(self.kinds, self.e.units.ids)]
        return np.array([a or b for a, b in zip(named, nodes)], dtype=bool)

    # -- what a set does ----------------------------------------------------------------------------------------

    def row(self, as_it_was: Mask, caller: _Caller | None = None) -> Tensor:
        """What it says where exactly these units are as they were at first: what is gone is not there."""
        graph, units, there = self.graph, self.e.units, as_it_was ^ self.absent
        x, nodes = graph.x.clone(), torch.ones(len(graph.x), dtype=torch.bool)
        gone: set[int] = set()
        for unit in np.flatnonzero(~there | (self.absent & there)):
            (node, column), kind = units.ids[unit].tolist(), self.kinds[unit]
            if not there[unit]:
                gone |= self.governed[unit]
            if kind == "changes" and there[unit]:
                source, _, x[node, column] = units.values[unit].tolist()
                x[node, [int(source)] if source >= 0 else []] = 0
            elif kind == "features":
                x[node, column] = 0
            elif kind == "node_features":
                x[node] = 0
            elif kind == "nodes":
                nodes[node] = False
            elif kind == "columns":
                typed = self.e.types is not None
                x[graph.extras["node_type"][1] == int(units.types[unit]) if typed else slice(None), column] = 0
        columns = torch.ones(len(self.ends), dtype=torch.bool)
        columns[list(gone)] = False
        number = nodes.cumsum(0) - 1
        edge_index, own = number[torch.from_numpy(self.ends)[columns].t()], x if bool(nodes.all()) else x[nodes]
        return (caller or self.caller).row(own, edge_index, self._extras(nodes, columns), number[self.place])

    def _extras(self, nodes: Tensor, columns: Tensor) -> dict[str, Tensor]:
        """What the model takes beside features and edges, of the nodes and edges that are there."""
        made = {}
        for name, (_, value) in self.graph.extras.items():
            if self.caller.adapter.takes(name):
                kind = self.caller.belongs(name, self.graph)
                if kind == "edge":
                    new = [self._attribute(name, value, of_type) for of_type in self.types[len(value) :].tolist()]
                    value = torch.cat([value, torch.stack(new)]) if new else value
                made[name] = value[{"edge": columns, "node": nodes}[kind]] if kind in ("edge", "node") else value
        return made

    def _attribute(self, name: str, value: Tensor, kind: int) -> Tensor:
        """What an added edge has: what was given, or the row that most edges (of its type) have, the smallest first."""
        if name == "edge_type" and kind >= 0:
            return torch.tensor(kind, dtype=value.dtype)
        if name in self.spec.added_attributes:
            return torch.as_tensor(self.spec.added_attributes[name], dtype=value.dtype).expand(value.shape[1:])
        rows = Counter(tuple(row.flatten().tolist()) for row, of in zip(value, self.types) if of == kind)
        commonest = min(rows, key=lambda row: (-rows[row], row), default=(0.0,) * math.prod(value.shape[1:]))
        return torch.tensor(commonest, dtype=value.dtype).reshape(value.shape[1:])

    def joined(self, chosen: Mask, connected: bool) -> bool:
        """Whether a set changes no feature twice, and is connected if it has to be."""
        changed = [self._feature(unit) for unit in np.flatnonzero(chosen).tolist() if self.kinds[unit] == "changes"]
        return len(set(changed)) == len(changed) and (not connected or self._one_piece(chosen))

    def _feature(self, unit: int) -> tuple[int, int, bool]:
        """The feature that a change is of: a node's column, or its one-hot group by the column that is left."""
        (node, column), source = self.e.units.ids[unit].tolist(), int(self.e.units.values[unit, 0])
        return (node, source, True) if source >= 0 else (node, column, False)

    def _one_piece(self, chosen: Mask) -> bool:
        """Whether chosen edges and nodes, and what is explained, hang together."""
        piece, units = networkx.Graph(), np.flatnonzero(chosen).tolist()
        piece.add_nodes_from(self.place.flatten().tolist())
        piece.add_nodes_from(int(self.e.units.ids[unit, 0]) for unit in units if self.kinds[unit] == "nodes")
        if "nodes" in self.kinds:
            there = self.ends[: self.graph.edge_index.size(1)]
            piece.add_edges_from(there[np.isin(there, list(piece)).all(1)].tolist())
        for unit in units:
            piece.add_edges_from(self.ends[c].tolist() for c in self.governed[unit] if self.kinds[unit] != "nodes")
        return not len(piece) or networkx.is_connected(piece)


class _Claimant:
    """One explanation, with the input that it is about: whether sets of its units pass."""

    def __init__(self, e: Explanation, spec: Spec, edited: _EditedGraph | _EditedInput) -> None:
        self.e, self.spec, self.edited = e, spec, edited
        self.confidence = float(spec.settings.get("confidence") or e.settings.get("confidence") or 0)
        own_valid = e.context.get("own_valid") or spec.valid is not None
        self.ruled_out_elsewhere = bool(own_valid)  # by what is not tried here
        self.whole = edited.row(np.ones(len(e.units), dtype=bool))
        self.kept: dict[bytes, bool | None] = {}  # what `keeps` has found out
        self.form = {"multilabel": "multilabel_logits"}.get(spec.output, spec.output)
        if self.form == "auto":  # what gives the stored outputs
            forms = self._fitting(("logits", "log_probabilities", "probabilities"), self.whole, e.probabilities)
            for run, stored in ((self.without, e.probabilities_without), (self.only, e.probabilities_only)):
                if len(forms) > 1 and e.status != "refused":  # two classes near 0.5 are nearly the same as scores
                    forms = self._fitting(forms, run(e.selected), stored) or forms
            self.form = next(iter(forms), "")

    def _fitting(self, forms: Iterable[str], row: Tensor, stored: np.ndarray) -> list[str]:
        """The forms of output in which a row gives what is stored."""
        return [form for form in forms if self.near(self.values(row, form), stored)]

    def only(self, chosen: Mask) -> Tensor:
        """What the model says of the set alone: nothing is added or changed."""
        return self.edited.row(chosen | self.edited.absent | self.edited.fixed)

    def without(self, chosen: Mask) -> Tensor:
        """What it says of everything but the set, or with every edit of it made."""
        return self.edited.row(~chosen | self.edited.fixed)

    def widened(self) -> bool:
        """Whether more must be left to rounding than was; then `spacing` is larger from now on.

        A norm over nodes that are equal divides by little more than rounding: double precision then says another thing.
        What a model says that keeps something between its runs, such as their number, cannot be asked again at all.
        """
        e, edited = self.e, self.edited
        if not isinstance(edited, _EditedGraph) or e.status == "refused":
            return False
        nothing = edited.absent | edited.fixed
        states = np.stack([e.selected | True, e.selected | nothing, ~e.selected | edited.fixed, nothing])
        single, *runs = ([edited.row(state) for state in states] for _ in range(2))
        kept = edited.caller.kept()  # after what a first run may leave for later ones
        runs.append([edited.row(state) for state in states])
        try:
            with default_dtype(torch.float64):
                caller = edited.caller.doubled()
                runs.append([edited.row(state, caller) for state in states])
        except Exception:  # a model that cannot be copied, or that computes in single precision whatever it is given
            pass
        pairs = [(a, b) for run in runs for a, b in zip(single, run) if not a.isnan().any()]
        worst = max((float(((a - b) / a.abs().max()).abs().max()) for a, b in pairs), default=0.0)
        worst = 1.0 if edited.caller.kept() != kept else worst
        if worst > ROUNDING * edited.spacing:
            edited.spacing = worst
            self.kept.clear()
            return True
        return False

    # -- what the model's numbers say ---------------------------------------------------------------------------

    def values(self, row: Tensor, form: str = "") -> Tensor:
        """Probabilities of classes or labels, or the numbers of a regression."""
        form = form or self.form
        if form in ("regression", "multilabel_probabilities"):
            return row
        if form == "multilabel_logits":
            return row.sigmoid()
        if len(row) == 1:
            positive = {"probabilities": row, "log_probabilities": row.exp()}.get(form, row.sigmoid())
            return torch.cat([1 - positive, positive])
        return {"probabilities": row, "log_probabilities": row.exp()}.get(form, row.softmax(0))

    def near(self, values: Tensor, stored: np.ndarray) -> bool | None:
        """Whether these are the values that are stored; None if they are not and rounding decides them."""
        size = max(float(np.abs(self.e.probabilities).max()), 1e-30) if self.e.output == "regression" else 1.0
        slack = max(SAME_OUTPUT, self.edited.spacing**0.5) * size
        if bool(values.isnan().any()):
            return bool(np.isnan(stored).all())
        close = values.shape == stored.shape and np.allclose(values.numpy(), stored, rtol=slack / size, atol=slack)
        return None if not close and self.edited.spacing > AMPLIFIED else bool(close)

    def _scores(self, row: Tensor) -> Tensor:
        """The classes' scores on the model's own scale, on which sure answers are still told apart."""
        middle = {"log_probabilities": math.log(0.5), "probabilities": 0.5}.get(self.form, 0.0)
        return row.clamp(min=-1e30) if len(row) > 1 else torch.cat([row * 0 + middle, row])

    def _lead(self, row: Tensor) -> tuple[float, float]:
        """By how much a row gives the answer in question, and the size of the numbers that decide it."""
        e, column = self.e, self.e.prediction
        if e.output == "regression":
            before, now = float(self.whole[column]), float(row[column])
            return (e.tolerance or 0) - abs(now - before), max(abs(before), abs(now))
        if e.output == "multilabel":
            middle = 0.5 if self.form == "multilabel_probabilities" else 0.0
            before, now = float(self.whole[column]) - middle, float(row[column]) - middle
            return math.copysign(now, now * before), max(abs(before), abs(now), middle)
        scores = self._scores(row)
        decisive = [scores[e.explained], *scores.topk(2).values, *self._scores(self.whole).topk(2).values]
        return self._gap(scores), float(torch.stack(decisive).abs().max())

    def _gap(self, scores: Tensor) -> float:
        """By how much the class in question leads the best other one, or is behind it where it is to be reached."""
        e, rest = self.e, scores.clone()
        rest[e.explained] = -math.inf
        gap = float(scores[e.explained] - rest.max())
        return -gap if e.question == "counterfactual" and e.target is not None else gap

    def says(self, row: Tensor) -> bool | None:
        """Whether a row gives the answer in question; None where rounding decides."""
        lead, size = self._lead(row)
        return None if abs(lead) <= ROUNDING * self.edited.spacing * size else lead > 0

    def _margin(self, row: Tensor) -> float:
        """By how much a row gives the answer, from -1 to 1, as `confidence` means it."""
        e, values = self.e, self.values(row)
        if e.output == "regression":
            distance = 1 - self._lead(row)[0] / (e.tolerance or 1)
            return 1 - distance if distance <= 1 else 1 / distance - 1
        if e.output == "multilabel":
            return (2 * float(values[e.prediction]) - 1) * (1 if e.probabilities[e.prediction] > 0.5 else -1)
        return self._gap(values)

    def test(self, chosen: Mask, verdict: str, confidence: float) -> bool | None:
        """Whether a set passes one test, by more than a confidence."""
        same = verdict == "sufficient"
        row = self.only(chosen) if same else self.without(chosen)
        if bool(row.isnan().any()):
            return False  # of nothing, the model says nothing
        said = self.says(row)
        if said is None or said != same or not confidence:
            return None if said is None else said == same
        margin = self._margin(row) * (1 if same else -1)
        return None if abs(margin - confidence) <= SAME_OUTPUT else margin > confidence

    # -- which sets are answers ---------------------------------------------------------------------------------

    def passes(self, chosen: Mask) -> bool | None:
        """Whether a set is an answer: it keeps to the constraints and passes every test of the question."""
        tests = (partial(self.test, chosen, verdict, self.confidence) for verdict in VERDICTS[self.e.question])
        passed = [self.allowed(chosen), *(None,) * self.ruled_out_elsewhere]
        for test in tests:
            if False not in passed:
                passed.append(test())
        return False if False in passed else None if None in passed else True

    def allowed(self, chosen: Mask) -> bool:
        """Whether a set holds no unit that it must not, no feature changed twice, and is connected if it has to be."""
        return not (chosen & ~self.edited.free).any() and self.edited.joined(chosen, self.spec.connected)

    def sets(self, most: int, below: float = math.inf) -> list[Mask] | None:
        """Every set that may be chosen and is smaller than `below`; None where there are more than `most`."""
        free = np.flatnonzero(self.edited.free)
        sums = np.concatenate([[0.0], np.sort(self.edited.price[free]).cumsum()])
        # The cheapest set of a size costs the sum of the cheapest units, so larger sizes than that cannot fit.
        top = int((sums < below - 1e-6).sum())
        if sum(math.comb(len(free), size) for size in range(top)) > most:
            return None
        made = [self._mask(units) for size in range(top) for units in combinations(free.tolist(), size)]
        return [chosen for chosen in made if self.edited.price[chosen].sum() < below - 1e-6]

    def _mask(self, units: Iterable[int]) -> Mask:
        chosen = np.zeros(len(self.edited.free), dtype=bool)
        chosen[list(units)] = True
        return chosen

    def none_passes(self, sets: list[Mask] | None) -> tuple[bool | None, str]:
        """Whether no set passes, None if that is not known; and a set that does."""
        unsure = sets is None
        for chosen in sets or ():
            passed = self.passes(chosen)
            if passed:
                return False, self.named(chosen)
            unsure |= passed is None
        return (None if unsure else True), ""

    def keeps(self, as_it_was: Mask) -> bool | None:
        """Whether the model gives the answer where exactly these units are as they were; None: rounding decides.

        Contexts are counted by probabilities, which do not tell logits apart that are small and nearly equal.
        """
        known = as_it_was.tobytes()
        if known not in self.kept:
            row = self.edited.row(as_it_was)
            if bool(row.isnan().any()):  # nothing is left to predict
                self.kept[known] = False
            elif self.e.output != "regression" and abs(self._lead(row)[0]) <= ROUNDING * self.edited.spacing:
                self.kept[known] = None
            else:
                self.kept[known] = self.says(row)
        return self.kept[known]

    def contexts(self, units: Mask, most: int) -> np.ndarray | None:
        """States [2^n, units] with every part of some units gone; None where these are more than `most`."""
        rows = np.flatnonzero(units & ~self.edited.absent & ~self.edited.fixed)
        if len(rows) > 63 or 2 ** len(rows) > most:
            return None
        states: np.ndarray = np.ones((2 ** len(rows), len(units)), dtype=bool)
        states[:, rows] = (np.arange(len(states))[:, None] >> np.arange(len(rows))) & 1
        return states

    def named(self, chosen: Mask) -> str:
        """A set in words."""
        units = self.e.units
        rows = [f"{units.names[units.kind[u]]} {tuple(units.ids[u].tolist())}" for u in np.flatnonzero(chosen)]
        return "{" + ", ".join(rows[:MAX_UNITS_NAMED]) + (", …" if len(rows) > MAX_UNITS_NAMED else "") + "}"


# -- the claims -----------------------------------------------------------------------------------------------


def _check_key(result: Check, answers: list[_Claimant], most: int) -> None:
    """Every claim of all answers for one key."""
    for answer in answers:
        _check_outputs(result, answer)
        if answer.e.status != "refused":
            _check_status(result, answer, most)
            _check_proofs(result, answer, most)
            _check_contexts(result, answer, most)
    first, listed = answers[0], [answer.e.selected for answer in answers]
    whole = [answer.e.rank for answer in answers] == list(range(len(answers)))  # not some of them alone
    for number, answer in enumerate(answers[1:], 1):
        inside = any((answer.e.selected | ~other).all() for other in listed[:number])
        result._note(answer.e, "alternative", not inside, "it contains an earlier answer.")
    if first.e.complete:
        sets = first.sets(most) if whole else None
        rest = [c for c in sets or () if not any((c | ~known).all() for known in listed)]
        holds, other = first.none_passes(None if sets is None else rest)
        result._note(first.e, "complete", holds, f"{other} passes and contains none of the {len(listed)} answers.")


def _check_outputs(result: Check, answer: _Claimant) -> None:
    """What the model says, of the whole graph, of the set alone and of all but it."""
    e = answer.e
    rows = {"probabilities": answer.whole}
    if e.status != "refused":
        rows |= {"probabilities_only": answer.only(e.selected), "probabilities_without": answer.without(e.selected)}
    for name, row in rows.items():
        values, stored = answer.values(row), getattr(e, name)
        said = f"{np.round(stored, 6).tolist()} is stored, but the model gives {np.round(values.numpy(), 6).tolist()}."
        result._note(e, "outputs", answer.near(values, stored), f"`{name}`: {said}")
    if e.output == "classes":
        best = answer._scores(answer.whole).topk(2)
        sure = float(best.values.diff().abs()) > ROUNDING * answer.edited.spacing * float(best.values.abs().max())
        sure &= float(answer.values(answer.whole).topk(2).values.diff().abs()) > SINGLE  # stored in single precision
        holds = int(best.indices[0]) == e.prediction if sure else None
        result._note(
            e, "prediction", holds, f"class {e.prediction} is stored, but the model predicts {int(best.indices[0])}."
        )


def _check_status(result: Check, answer: _Claimant, most: int) -> None:
    """The verdicts, and what the status says of them."""
    e, chosen = answer.e, answer.e.selected
    given = True if e.output == "classes" and e.target is None else answer.says(answer.whole)
    for verdict in ("sufficient", "necessary"):
        passed, stored = False if given is False else answer.test(chosen, verdict, 0.0), getattr(e, verdict)
        holds = None if passed is None or given is None else passed == stored
        result._note(e, verdict, holds, f"{stored} is stored, but the model gives the opposite.")
    holds, why = None, ""
    if e.status == "found":
        holds = answer.passes(chosen)
        why = "passes its tests" if answer.allowed(chosen) else "satisfies the constraints"
        why = f"{answer.named(chosen)} is given as an answer that {why}, but it does not."
    elif e.status == "not found":
        passed = given and answer.passes(chosen)
        if passed and e.surely is not None:  # it passes its tests, but may decide in too few contexts
            values = _exact(answer, answer.contexts(~chosen, most)) if e.all_contexts else None
            passed = None if values is None else values[1] >= e.surely
        holds = None if passed is None else not passed
        why = f"{answer.named(chosen)} is given, which passes."
    elif e.status == "impossible":
        holds, other = answer.none_passes(answer.sets(most))
        why = f"no set should pass, but {other} does."
    elif e.status == "empty":
        holds, why = not len(e.units), "there are units to choose from."
    elif e.status == "not predicted":
        holds, why = None if given is None else not given, "the model does give the requested answer."
    if e.status != "unverified":
        result._note(e, e.status, holds, why)
    if given is False and e.status not in ("not predicted", "empty", "tie"):
        result._note(e, "not predicted", False, f"the status is {e.status!r}, but the model predicts another class.")
    if e.default is not None:
        said = answer.keeps(answer.edited.absent | answer.edited.fixed)
        sentence = f"{e.default} is stored, but the model gives the opposite without any units."
        result._note(e, "default", None if said is None else said == e.default, sentence)


def _check_proofs(result: Check, answer: _Claimant, most: int) -> None:
    """What is claimed of other sets than the one that is given."""
    e, chosen = answer.e, answer.e.selected
    if e.minimal:
        members = np.flatnonzero(chosen).tolist()
        holds, other = answer.none_passes([answer._mask(set(members) - {unit}) for unit in members])
        result._note(e, "minimal", holds, f"{other} passes with one unit less than {answer.named(chosen)}.")
    if e.optimal:
        holds, other = answer.none_passes(answer.sets(most, float(answer.edited.price[chosen].sum())))
        result._note(e, "optimal", holds, f"{other} passes and is smaller than {answer.named(chosen)}.")
    if e.lower_bound is not None:
        holds, other = answer.none_passes(answer.sets(most, e.lower_bound))
        sentence = f"no set of fewer than {e.lower_bound} units should pass, but {other} does."
        if e.status == "found" and e.lower_bound > e.size:
            holds, sentence = False, f"{e.lower_bound} is above the size of the answer, {e.size}."
        result._note(e, "lower_bound", holds, sentence)


def _check_contexts(result: Check, answer: _Claimant, most: int) -> None:
    """What is claimed of all contexts, and the one that is shown. Shares of drawn contexts are not tried again."""
    e, chosen = answer.e, answer.e.selected
    if e.ps is None or e.pns is None:
        return
    if e.counterexample is not None:
        there = ~answer._mask(e.counterexample)
        kept = answer.keeps(there)
        holds = None if kept is None else not kept and bool((there | ~chosen).all())
        result._note(e, "counterexample", holds, f"without {answer.named(~there)} the set keeps the answer.")
    if e.all_contexts:
        values = _exact(answer, answer.contexts(~chosen, most))
        holds = None if values is None else bool(np.allclose(values, (e.ps[0], e.pns[0]), atol=1e-6))
        result._note(e, "all_contexts", holds, f"PS and PNS are {values}, but {e.ps[0]} and {e.pns[0]} are stored.")
    if e.always_bound is not None:
        states = answer.contexts(np.ones_like(chosen), most)
        kept_in = [None] if states is None else [answer.keeps(state) for state in states]
        holds, sentence = None, ""
        if states is not None and None not in kept_in:
            lost = states[~np.array(kept_in, dtype=bool)]
            governed = ~answer.edited.absent & ~answer.edited.fixed
            small = [own & governed for own in states if (own & governed).sum() < e.always_bound]
            other = next((own for own in small if (own & ~lost).any(1).all()), None)
            holds = other is None
            sentence = "" if other is None else f"{answer.named(other)} keeps the answer in every context."
        result._note(e, "always_bound", holds, sentence)


def _exact(answer: _Claimant, states: np.ndarray | None) -> tuple[float, float] | None:
    """PS and PNS over all contexts, given as states in which the set is there."""
    ps = pns = 0.0
    count = 0 if states is None else int(math.log2(len(states)))
    for state in () if states is None else states:
        there = int(state.sum()) - (len(state) - count)
        kept, still = answer.keeps(state), answer.keeps(state & ~answer.e.selected)
        if kept is None or still is None:
            return None
        weight = 1 / ((count + 1) * math.comb(count, there))
        ps, pns = ps + weight * kept, pns + weight * (kept and not still)
    return None if states is None else (ps, pns)
