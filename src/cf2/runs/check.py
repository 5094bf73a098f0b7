"""Every claim of explanations again, by plain code: one edited copy of the whole graph at a time.

Nothing of the search, the proofs, the packs or the receptive fields is used here, so that a mistake in one of them is
noticed. From the package come only how data is read, how the model is borrowed and called, and what the units are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cf2.errors import require, require_number
from cf2.graphs.data import graphs_of
from cf2.graphs.graph import Instance, kinds_that_fit
from cf2.graphs.targets import Targets, targets_for
from cf2.models.adapters import Adapter, Call, Inputs, adapter_of, module_of, run, target_arguments
from cf2.models.soft_masks import Loan, default_dtype
from cf2.options import Key, Spec
from cf2.results.explanation import VERDICTS, Explanation
from cf2.results.explanations import Explanations

ROUNDING = 100  # spacings of floats, relative to the outputs: what is decided by less is not decided
SAME_OUTPUT = 1e-4  # two probabilities closer than this are one
FORMS = ("logits", "log_probabilities", "probabilities")  # that output="auto" can mean
Mask = np.ndarray  # bool [units]


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
        place = f", answer {self.rank}" if self.rank else ""
        return f"Key {self.key}{place}, {self.claim}: {self.sentence}"


@dataclass(frozen=True)
class Check:
    """What `cf2.check` found; true where no claim is false.

    Attributes
    ----------
    claims : dict
        By claim: how many were `checked`, how many of these are `false`, and how many are `not_checkable`.
    false : tuple of FalseClaim
        The false ones, each with its `key`, `rank`, `claim` and a `sentence`.
    """

    claims: dict[str, ClaimCount]
    false: tuple[FalseClaim, ...] = ()

    def __bool__(self) -> bool:
        return not self.false

    def __repr__(self) -> str:
        total = sum(count.checked for count in self.claims.values())
        lines = [f"{total:,} claims checked: {len(self.false) or 'none'} of them false."]
        for claim, (checked, false, not_checkable) in self.claims.items():
            left = f", {not_checkable:,} not checkable" if not_checkable else ""
            lines.append(f"  {claim}: {checked:,} checked, {false or 'none'} false{left}")
        return "\n".join([*lines, *(f"  {claim}" for claim in self.false)])

    @staticmethod
    def joined(checks: Sequence[Check]) -> Check:
        """Several as one."""
        claims: dict[str, ClaimCount] = {}
        for claim, count in (item for check in checks for item in check.claims.items()):
            claims[claim] = ClaimCount(*(a + b for a, b in zip(claims.get(claim, ClaimCount()), count)))
        return Check(claims, tuple(false for check in checks for false in check.false))


def check(found: Explanations, model: Any, data: Any, *, call: Call | None = None, most: int = 4096) -> Check:
    """Try every claim of explanations again, by plain code that shares nothing with the search.

    The user's whole graph is edited as each claim says, one copy at a time, and the model is run on it. What a claim
    says of all sets (`optimal`, `lower_bound`, `impossible`, `complete`) is checked by trying all of them, where these
    are few enough. Not checkable is also what hangs on the rounding of the model's outputs, and whether a set that
    passes is ruled out by `valid=` or `robust=`.

    Parameters
    ----------
    found : Explanations
        What `cf2.explain` gave, or `cf2.load` read.
    model, data
        What was explained.
    call : function, optional
        How the model is called, as in `cf2.explain`.
    most : int
        The most sets that are tried for one claim.

    Returns
    -------
    Check
        It is true if no claim is false; `print` shows how many were checked, and what is wrong.

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
    spec = Spec.from_json(found.context.get("spec") or {})
    tally = _Tally()
    if not len(found):
        return tally.result()
    level = found[0].task
    targets = targets_for(graphs_of(data, level, positions=True), level, spec)
    module = module_of(model)
    here = next((p.device for p in module.parameters()), torch.device("cpu"))
    caller = _Caller(module, targets, call, torch.device(spec.device) if spec.device else here)
    with Loan(module, caller.device, here) as loan, torch.no_grad(), default_dtype(loan.dtype):
        for answers in _by_key(found):
            graph, place = caller.graph(answers[0].key)
            _check_key(tally, [_Claimant(e, spec, caller, graph, place) for e in answers], most)
    return tally.result()


def _by_key(found: Explanations) -> Iterator[list[Explanation]]:
    """All answers of one key together; what was asked for twice comes twice."""
    answers: list[Explanation] = []
    for e in found:
        if answers and (e.rank <= answers[-1].rank or e.key != answers[-1].key):
            yield answers
            answers = []
        answers.append(e)
    yield answers


class _Tally:
    """Counts claims as they are checked."""

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}
        self.false: list[FalseClaim] = []

    def add(self, e: Explanation, claim: str, holds: bool | None, sentence: str) -> None:
        """A claim that holds, does not (and why), or cannot be checked (None)."""
        count = self.counts.setdefault(claim, [0, 0, 0])
        count[2 if holds is None else 0] += 1
        if holds is False:
            count[1] += 1
            self.false.append(FalseClaim(e.key, e.rank, claim, sentence))

    def result(self) -> Check:
        return Check({claim: ClaimCount(*count) for claim, count in self.counts.items()}, tuple(self.false))


# -- running the model --------------------------------------------------------------------------------------------


class _Caller:
    """The user's whole graph of each key, and the model run on edited copies of it."""

    def __init__(self, model: torch.nn.Module, targets: Targets, call: Call | None, device: torch.device) -> None:
        self.targets, self.device = targets, device
        self.adapter: Adapter = adapter_of(model, targets, call)
        kinds = {p.dtype for p in model.parameters() if p.is_floating_point()} or {torch.float32}
        self.spacing = max(torch.finfo(kind).eps for kind in kinds)

    def graph(self, key: Key) -> tuple[Instance, Tensor]:
        """The whole graph in which a key is predicted, and the nodes [1, ·] whose output that is."""
        for whole in self.targets.wholes([key]):
            return whole.instance, whole.targets
        return self.targets.instance(key), torch.zeros((1, 0), dtype=torch.long)

    def row(self, x: Tensor, edge_index: Tensor, extras: dict[str, Tensor], place: Tensor) -> Tensor:
        """What the model returns for the key, [width]."""
        level, batch = self.targets.level, torch.zeros(len(x), dtype=torch.long, device=self.device)
        place = place.to(self.device)
        arguments: dict[str, Any] = {name: value.to(self.device) for name, value in extras.items()}
        arguments |= target_arguments(level, place, batch)
        inputs = Inputs(x.to(self.device), edge_index.to(self.device), arguments, place)
        return run(self.adapter, inputs, level)[0].detach().cpu()

    def belongs(self, name: str, graph: Instance) -> str:
        """Whether an attribute is one of nodes, edges or the graph; where sizes leave that open, as in other graphs."""
        kind = graph.extras[name][0]
        for other in range(min(len(self.targets), 64)) if self.targets.level == "graph" else ():
            one = self.targets.instance(other)
            if name in one.extras:
                fits = kinds_that_fit(name, len(one.extras[name][1]), len(one.x), one.edge_index.size(1))
                kind = kind if kind in fits or not fits else fits[0]
        return kind


# -- one explanation ----------------------------------------------------------------------------------------------


class _Claimant:
    """One explanation with the whole graph that it is about: what its sets do to the graph, and whether they pass."""

    def __init__(self, e: Explanation, spec: Spec, caller: _Caller, graph: Instance, place: Tensor) -> None:
        self.e, self.spec, self.caller, self.graph, self.place = e, spec, caller, graph, place
        units = e.units
        self.kinds = [units.names[kind] for kind in units.kind]
        self.types = units.types.tolist() if len(units.types) else [-1] * len(units)
        self.adds = np.array([kind == "added_edges" for kind in self.kinds], dtype=bool)
        self.absent = self.adds | np.array([kind == "changes" for kind in self.kinds], dtype=bool)
        self._list_columns()
        kept, forbidden = (self._governing(pairs) for pairs in (spec.keep, spec.forbid))
        self.fixed, self.free = kept, ~(kept | forbidden)
        costs = dict(spec.costs)
        edits = ["add" if kind == "added_edges" else "change" if kind == "changes" else "remove" for kind in self.kinds]
        self.price = np.array([costs.get(edit, 1.0) for edit in edits])
        self.confidence = float(spec.settings.get("confidence") or e.settings.get("confidence") or 0)
        own_valid = e.context.get("own_valid") or spec.valid is not None
        self.ruled_out_elsewhere = bool(own_valid or spec.robust)  # by what is not tried here
        self.whole = self.row(np.ones(len(units), dtype=bool))
        self.form = self._form()

    # -- what a unit is, from its ids ---------------------------------------------------------------------------

    def _list_columns(self) -> None:
        """The edges that are there, and after them those that can be added; and which of them each unit governs."""
        e, graph, ids = self.e, self.graph, self.e.units.ids
        ends, kinds, adder = graph.edge_index.numpy().T, [], []
        typed = e.types is not None
        types = graph.extras["edge_type"][1].numpy() if typed else np.full(len(ends), -1)
        new: list[tuple[int, int]] = []
        for unit in np.flatnonzero(self.adds):
            for kind, pair in self._columns_of(int(unit)):
                new.append(pair)
                kinds.append(kind)
                adder.append(int(unit))
        self.ends = np.concatenate([ends, np.array(new, dtype=np.int64).reshape(-1, 2)])
        self.type = np.concatenate([types, np.array(kinds, dtype=np.int64)])
        self.adder = np.concatenate([np.full(len(ends), -1), np.array(adder, dtype=np.int64)])
        there = self.adder < 0
        group = self._groups(len(ends))
        tail, head = self.ends.T
        self.governed: list[np.ndarray] = []
        for unit, kind in enumerate(self.kinds):
            hit = np.zeros(len(tail), dtype=bool)
            if kind == "edges":
                for of_type, (a, b) in self._columns_of(unit):
                    hit |= (tail == a) & (head == b) & (self.type == of_type)
                hit &= there & (group < 0) & (tail != head)
            elif kind == "groups":
                hit = there & (group == unit)
            elif kind == "nodes":
                hit = (tail == ids[unit, 0]) | (head == ids[unit, 0])
            self.governed.append(np.flatnonzero(hit))

    def _columns_of(self, unit: int) -> list[tuple[int, tuple[int, int]]]:
        """The types and ends of the columns that an edge unit stands for: of undirected edges both ways."""
        a, b = self.e.units.ids[unit].tolist()
        kind, types = self.types[unit], self.e.types
        if types is None:
            return [(-1, (a, b))] if self.e.directed else [(-1, (a, b)), (-1, (b, a))]
        partner = types.partners[kind]
        return [(kind, (a, b))] + ([(partner, (b, a))] if partner >= 0 else [])

    def _groups(self, columns: int) -> np.ndarray:
        """The group unit of every column, -1 where it has none."""
        units, group = self.e.units, np.full(len(self.ends), -1)
        rows = units.where("groups")
        if isinstance(self.spec.groups, str) and len(rows):  # a number for each column
            numbers = self.graph.extras[self.spec.groups][1].numpy()
            for row in rows:
                group[:columns][numbers == units.ids[row, 0]] = row
            group[:columns][(numbers >= 0) & (group[:columns] < 0)] = len(units)  # of a group that is out of sight
            return group
        tail, head = self.ends.T
        for row, a, b in units.members.tolist():
            group[(tail == a) & (head == b)] = row
            if not self.e.directed:
                group[(tail == b) & (head == a)] = row
        return group

    def _governing(self, given: Any) -> Mask:
        """Which units govern one of the edges that `keep` or `forbid` names."""
        pairs = [pair for key, pairs in given or () if key in (None, self.e.key) for pair in pairs]
        named = {tuple(pair) for pair in pairs} | ({(b, a) for a, b in pairs} if not self.e.directed else set())
        hit = np.array([tuple(pair) in named for pair in self.ends.tolist()], dtype=bool)
        return np.array(
            [bool(hit[columns].any()) or (add and bool(hit[self.adder == unit].any()))
             for unit, (columns, add) in enumerate(zip(self.governed, self.adds))],
            dtype=bool,
        )  # fmt: skip

    # -- what a set does ----------------------------------------------------------------------------------------

    def row(self, as_it_was: Mask) -> Tensor:
        """What the model says where exactly these units are as they were at first: what is gone is not there."""
        e, graph, units = self.e, self.graph, self.e.units
        edited = ~as_it_was
        stays = self.adder < 0
        for unit in np.flatnonzero(self.adds & edited):
            stays |= self.adder == unit
        x = graph.x.clone()
        for unit in np.flatnonzero(edited & ~self.absent):
            stays[self.governed[unit]] = False
            (node, column), kind = units.ids[unit].tolist(), self.kinds[unit]
            if kind == "features":
                x[node, column] = 0
            elif kind in ("nodes", "node_features"):
                x[node] = 0
            elif kind == "columns" and e.types is None:
                x[:, column] = 0
            elif kind == "columns":
                x[graph.extras["node_type"][1] == self.types[unit], column] = 0
            else:
                require(kind in ("edges", "groups"), "Expected a kind of unit that can be checked", got=kind)
        for unit in np.flatnonzero(edited & self.absent & ~self.adds):
            (node, column), (source, _, new) = units.ids[unit].tolist(), units.values[unit].tolist()
            x[node, column] = new
            if source >= 0:
                x[node, int(source)] = 0
        columns = torch.from_numpy(np.flatnonzero(stays))
        edge_index = torch.from_numpy(self.ends).t()[:, columns].contiguous()
        return self.caller.row(x, edge_index, self._extras(columns), self.place)

    def _extras(self, columns: Tensor) -> dict[str, Tensor]:
        """What the model takes beside features and edges, of the edges that are there."""
        made = {}
        for name, (_, value) in self.graph.extras.items():
            if not self.caller.adapter.takes(name):
                continue
            if self.caller.belongs(name, self.graph) == "edge":
                new = [self._attribute(name, value, int(kind)) for kind in self.type[self.adder >= 0]]
                value = torch.cat([value, torch.stack(new)])[columns] if new else value[columns]
            made[name] = value
        return made

    def _attribute(self, name: str, value: Tensor, kind: int) -> Tensor:
        """What an added edge has: what was given, or the row that most edges (of its type) have, the smallest first."""
        if name == "edge_type" and kind >= 0:
            return torch.tensor(kind, dtype=value.dtype)
        if name in self.spec.added_attributes:
            given = torch.as_tensor(self.spec.added_attributes[name], dtype=value.dtype)
            return given.expand(value.shape[1:])
        own = value if kind < 0 else value[torch.from_numpy(self.type[: len(value)] == kind)]
        if not len(own):
            return torch.zeros(value.shape[1:], dtype=value.dtype)
        rows = [tuple(row.flatten().tolist()) for row in own]
        commonest = min(set(rows), key=lambda row: (-rows.count(row), row))
        return torch.tensor(commonest, dtype=value.dtype).reshape(value.shape[1:])

    def only(self, chosen: Mask) -> Tensor:
        """The set alone: nothing is added or changed."""
        return self.row(chosen | self.absent | self.fixed)

    def without(self, chosen: Mask) -> Tensor:
        """Everything but the set, or every edit of it made."""
        return self.row(~chosen | self.fixed)

    # -- what the model's numbers say ---------------------------------------------------------------------------

    def _form(self) -> str:
        """How the model writes its answer down: as the request says, or what gives the stored outputs."""
        given = self.spec.output
        if given != "auto":
            return "multilabel_logits" if given == "multilabel" else given
        close = [form for form in FORMS if self._near(self.values(self.whole, form), self.e.probabilities)]
        return close[0] if close else "logits"

    def values(self, row: Tensor, form: str = "") -> Tensor:
        """Probabilities of classes or labels, or the numbers of a regression."""
        row, form = row.double(), form or self.form
        if form == "regression" or form == "multilabel_probabilities":
            return row
        if form == "multilabel_logits":
            return row.sigmoid()
        if len(row) == 1:
            one = {"logits": row.sigmoid(), "log_probabilities": row.exp()}.get(form, row)
            return torch.cat([1 - one, one])
        return {"logits": row.softmax(0), "log_probabilities": row.exp()}.get(form, row)

    def _near(self, values: Tensor, stored: np.ndarray) -> bool:
        other = torch.from_numpy(np.asarray(stored, dtype=np.float64))
        if other.shape != values.shape:
            return False
        size = max(float(other.abs().max()), 1e-30) if self.e.output == "regression" else 1.0
        slack = max(SAME_OUTPUT, self.caller.spacing**0.5) * size
        return bool(((other - values).abs() <= slack).all())

    def _scores(self, row: Tensor) -> Tensor:
        """The classes' scores on the model's own scale, on which sure answers are still told apart."""
        row = row.double().clamp(min=-1e30)
        if len(row) > 1:
            return row
        middle = {"log_probabilities": math.log(0.5), "probabilities": 0.5}.get(self.form, 0.0)
        return torch.cat([row * 0, row - middle])

    def says(self, row: Tensor) -> bool | None:
        """Whether a row gives the answer in question; None where rounding decides."""
        e, slack = self.e, ROUNDING * self.caller.spacing
        if e.output == "regression":
            value, now = (float(r[e.prediction]) for r in (self.whole, row))
            apart, size = abs(now - value), max(abs(value), abs(now))
            assert e.tolerance is not None
            return None if abs(apart - e.tolerance) <= slack * size else apart <= e.tolerance
        if e.output == "multilabel":
            middle = 0.5 if self.form == "multilabel_probabilities" else 0.0
            before, now = (float(r[e.prediction]) - middle for r in (self.whole, row))
            unsure = min(abs(now), abs(before)) <= slack * max(abs(now), abs(before), middle)
            return None if unsure else (now > 0) == (before > 0)
        asked = e.explained
        if not 0 <= asked < len(self._scores(row)):
            return False
        scores, whole = self._scores(row), self._scores(self.whole)
        rest = scores.clone()
        rest[asked] = -math.inf
        other = int(rest.argmax())
        gap = float(scores[asked] - scores[other])
        largest = torch.cat([scores[[asked, other]], whole.topk(2).values]).abs().max()
        if 0 < abs(gap) <= slack * float(largest):
            return None
        gap = gap or other - asked  # of equals, the first counts
        return (gap > 0) != self._wanted

    @property
    def _wanted(self) -> bool:
        """Whether the explained class is one that is to be reached."""
        return self.e.question == "counterfactual" and self.e.target is not None and self.e.output == "classes"

    def margin(self, row: Tensor) -> float:
        """By how much a row gives the answer, from -1 to 1."""
        e, values = self.e, self.values(row)
        if e.output == "regression":
            distance = abs(float(row[e.prediction]) - float(self.whole[e.prediction])) / (e.tolerance or 1)
            return 1 - distance if distance <= 1 else 1 / distance - 1
        if e.output == "multilabel":
            given = float(self.values(self.whole)[e.prediction]) > 0.5
            return (2 * float(values[e.prediction]) - 1) * (1 if given else -1)
        rest = values.clone()
        rest[e.explained] = -math.inf
        gap = float(values[e.explained] - rest.max())
        return -gap if self._wanted else gap

    def test(self, chosen: Mask, verdict: str) -> bool | None:
        """Whether a set passes one test, by more than the confidence that was asked for."""
        same = verdict == "sufficient"
        row = self.only(chosen) if same else self.without(chosen)
        said = self.says(row)
        if said is None or said != same or not self.confidence:
            return None if said is None else said == same
        margin = self.margin(row) * (1 if same else -1)
        return None if abs(margin - self.confidence) <= SAME_OUTPUT else margin > self.confidence

    # -- which sets are answers ---------------------------------------------------------------------------------

    def passes(self, chosen: Mask) -> bool | None:
        """Whether a set is an answer: it keeps to the constraints and passes every test of the question."""
        if not self.allowed(chosen):
            return False
        unsure = self.ruled_out_elsewhere
        for verdict in VERDICTS[self.e.question]:
            passed = self.test(chosen, verdict)
            if passed is False:
                return False
            unsure |= passed is None
        return None if unsure else True

    def allowed(self, chosen: Mask) -> bool:
        """Whether a set holds no unit that it must not, no feature changed twice, and is connected if it has to be."""
        if (chosen & ~self.free).any():
            return False
        changed = [self._feature(unit) for unit in np.flatnonzero(chosen) if self.kinds[unit] == "changes"]
        return len(set(changed)) == len(changed) and (not self.spec.connected or self._one_piece(chosen))

    def _feature(self, unit: int) -> tuple[int, int, bool]:
        """The feature that a change is of: a node's column, or its one-hot group by the column that is left."""
        (node, column), source = self.e.units.ids[unit].tolist(), int(self.e.units.values[unit, 0])
        return (node, source, True) if source >= 0 else (node, column, False)

    def _one_piece(self, chosen: Mask) -> bool:
        """Whether chosen edges and nodes, and what is explained, hang together."""
        units, targets = self.e.units, set(self.place.flatten().tolist())
        nodes = {int(units.ids[unit, 0]) for unit in np.flatnonzero(chosen) if self.kinds[unit] == "nodes"} | targets
        pairs = [self.ends[self.governed[u]] for u in np.flatnonzero(chosen) if self.kinds[u] in ("edges", "groups")]
        pairs += [self.ends[self.adder == unit] for unit in np.flatnonzero(chosen & self.adds)]
        links = [tuple(pair) for part in pairs for pair in part.tolist()]
        if "nodes" in self.kinds:
            links += [(a, b) for a, b in self.ends[self.adder < 0].tolist() if a in nodes and b in nodes]
        left = nodes | {node for pair in links for node in pair}
        reached = {left.pop()} if left else set()
        while grown := [pair for pair in links if (pair[0] in reached) != (pair[1] in reached)]:
            for pair in grown:
                reached.update(pair)
        return not left - reached

    def sets(self, most: int, below: float = math.inf) -> list[Mask] | None:
        """Every set that may be chosen and is smaller than `below`; None where there are more than `most`."""
        free = np.flatnonzero(self.free)
        prices = np.sort(self.price[free])
        top = int((np.concatenate([[0.0], prices.cumsum()]) < below - 1e-6).sum()) - 1  # units that can fit
        if sum(math.comb(len(free), size) for size in range(top + 1)) > most:
            return None
        made = []
        for size in range(top + 1):
            for units in combinations(free.tolist(), size):
                chosen = np.zeros(len(self.free), dtype=bool)
                chosen[list(units)] = True
                if self.price[chosen].sum() < below - 1e-6:
                    made.append(chosen)
        return made

    def none_passes(self, sets: list[Mask] | None) -> tuple[bool | None, str]:
        """Whether no set passes, None if that is not known; and a set that does."""
        unsure = sets is None
        for chosen in sets or ():
            passed = self.passes(chosen)
            if passed:
                return False, self.named(chosen)
            unsure |= passed is None
        return (None if unsure else True), ""

    def named(self, chosen: Mask) -> str:
        """A set in words."""
        rows = [f"{self.kinds[unit]} {tuple(self.e.units.ids[unit].tolist())}" for unit in np.flatnonzero(chosen)]
        return "{" + ", ".join(rows[:8]) + (", …" if len(rows) > 8 else "") + "}"


# -- the claims -----------------------------------------------------------------------------------------------


def _check_key(tally: _Tally, answers: list[_Claimant], most: int) -> None:
    """Every claim of all answers for one key."""
    for one in answers:
        _check_outputs(tally, one)
        if one.e.status != "refused":
            _check_verdicts(tally, one)
            _check_proofs(tally, one, most)
    first = answers[0]
    if first.e.complete:
        listed = [one.e.selected for one in answers]
        sets, missing, unsure = first.sets(most), "", False
        for chosen in sets or ():
            if any((chosen | ~known).all() for known in listed):
                continue
            passed = first.passes(chosen)
            unsure |= passed is None
            if passed:
                missing = first.named(chosen)
                break
        holds = False if missing else None if unsure or sets is None else True
        tally.add(first.e, "complete", holds, f"{missing} passes and holds none of the {len(listed)} answers.")


def _check_outputs(tally: _Tally, one: _Claimant) -> None:
    """What the model says, of the whole graph, of the set alone and of all but it."""
    e = one.e
    rows = {"probabilities": one.whole}
    if e.status != "refused":
        rows |= {"probabilities_only": one.only(e.selected), "probabilities_without": one.without(e.selected)}
    for name, row in rows.items():
        values, stored = one.values(row), getattr(e, name)
        said = f"{np.round(stored, 6).tolist()} is stored, and the model says {np.round(values.numpy(), 6).tolist()}."
        tally.add(e, "outputs", one._near(values, stored), f"`{name}`: {said}")
    if e.output == "classes":
        scores = one._scores(one.whole)
        now, (best, second) = int(scores.argmax()), scores.topk(2).values.tolist()
        sure = best - second > ROUNDING * one.caller.spacing * max(abs(best), abs(second))
        holds = (now == e.prediction) if sure else None
        tally.add(e, "prediction", holds, f"{e.prediction} is stored, and the model says class {now}.")


def _check_verdicts(tally: _Tally, one: _Claimant) -> None:
    """What the model's answers make of the set itself."""
    e, given, chosen = one.e, one.says(one.whole), one.e.selected
    if e.output == "classes" and e.target is None:
        given = True  # whatever it says is what is explained
    for verdict, row, same in (("sufficient", one.only(chosen), True), ("necessary", one.without(chosen), False)):
        said = one.says(row)
        truth = False if given is False else None if given is None or said is None else said == same
        stored = getattr(e, verdict)
        sentence = f"the set is stored as {'' if stored else 'not '}{verdict}, and the model says the opposite."
        tally.add(e, verdict, None if truth is None else truth == stored, sentence)
    if e.status == "found":
        passed = one.passes(chosen)
        why = "it does not pass its tests" if one.allowed(chosen) else "it does not keep to the constraints"
        tally.add(e, "found", passed, f"{one.named(chosen)} is given as an answer, and {why}.")
    elif e.status == "empty":
        tally.add(e, "empty", not len(e.units), "there are units to choose from.")
    elif (e.status == "not predicted") != (given is False) or given is False:
        holds = None if given is None else (given is False) == (e.status == "not predicted")
        tally.add(e, "predicted", holds, f"the status is {e.status!r}, and of the answer in question that is wrong.")
    if e.default is not None:
        said = one.says(one.only(np.zeros_like(chosen)))
        holds = None if said is None else said == e.default
        tally.add(e, "default", holds, f"{e.default} is stored, and with everything removed the model says otherwise.")


def _check_proofs(tally: _Tally, one: _Claimant, most: int) -> None:
    """What is claimed of other sets than the one that is given."""
    e, chosen = one.e, one.e.selected
    if e.minimal:
        smaller = []
        for unit in np.flatnonzero(chosen):
            smaller.append(chosen.copy())
            smaller[-1][unit] = False
        holds, other = one.none_passes(smaller)
        tally.add(e, "minimal", holds, f"{other}, which is one unit less than {one.named(chosen)}, passes as well.")
    if e.optimal:
        holds, other = one.none_passes(one.sets(most, float(one.price[chosen].sum())))
        tally.add(e, "optimal", holds, f"{other} passes and is smaller than {one.named(chosen)}.")
    if e.lower_bound is not None:
        sentence, size = f"of {e.lower_bound} is above the size of the answer, {e.size}.", e.size
        holds = e.status != "found" or e.lower_bound <= size
        if holds:
            holds, other = one.none_passes(one.sets(most, e.lower_bound))
            sentence = f"no set of fewer than {e.lower_bound} units is said to pass, and {other} does."
        tally.add(e, "lower_bound", holds, sentence)
    if e.status == "impossible":
        holds, other = one.none_passes(one.sets(most))
        tally.add(e, "impossible", holds, f"no set is said to pass, and {other} does.")
