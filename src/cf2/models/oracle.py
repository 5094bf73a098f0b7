"""The oracle of graphs: what the model says of packed instances in which exactly these units are there.

Most of what a search asks for are removals, so those are made directly into what the model is handed, without a pack.
Where nodes are read, a trial is run on its own receptive field: what the target can still see once the edges are gone.
Trials that see the same are one, and a proof lists only connected sets. Where a graph is read as a whole, sets of the
same shape are one (`shapes.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cf2.models.adapters import Inputs, target_arguments
from cf2.models.lazy_features import LazyFeatures
from cf2.models.predictor import Predictor
from cf2.models.shapes import MIN_SETS_FOR_SHAPES, Lookalikes, Shapes, every_shape, once
from cf2.sets.oracle import SHORT_CUTS, Listing, Looks, Oracle
from cf2.sets.proof import Exhaustion
from cf2.sets.tests import Criterion, Intervention, slack, soft_outputs
from cf2.sets.trials import Trials, names_of, short
from cf2.units.kinds import FLAGS, Governors, owners, pointer, spans
from cf2.units.packs import Pack, chunks

MAX_ROWS_TOGETHER = 24  # up to so many sets, a call of the model costs more than what is computed in it
MAX_FLOATS_PER_CALL = 16_000_000  # kept by one packed pass of trials


class GraphOracle(Oracle):
    """What a model says of the instances of a pack; `own_fields=False` and `together=False` switch short cuts off."""

    def __init__(self, predictor: Predictor, pack: Pack, *, own_fields: bool = True, together: bool = True) -> None:
        units = pack.units
        super().__init__(units.counts)
        self.predictor, self.pack = predictor, pack
        every = torch.ones(units.count, dtype=torch.bool, device=self.counts.device)
        self.selectable = self.dense(units.admissible(every), False)
        self.required, self.absent, self.price, self.fixed = (
            None if flag is None else self.dense(flag, 0)
            for flag in (units.required, units.absent, units.price, units.fixed)
        )
        lacking = torch.zeros_like(self.counts, dtype=torch.bool) if units.narrowed is None else units.narrowed
        if units.left_out is not None:
            lacking = lacking | self.dense(units.left_out, False).any(1)
        self.narrowed = lacking.tolist()
        self._footprint = predictor.cost(pack.node_ptr.diff(), pack.edge_ptr.diff()).cpu()
        # A model that mixes all graphs of a call is run on one at a time, and sees also what is not joined to a target.
        handed = units.absent is None and units.changes is None and Removals.hold(pack) and not predictor.alone
        self.removals = Removals(pack, self.fixed, predictor) if handed else None
        # Only edges come and go, each with one unit.
        self.edges_alone = handed and units.nodes is None and not units.entries.some and not units.edges.further.numel()
        local = own_fields and "fields" in SHORT_CUTS and self.edges_alone
        self.local = bool(local and units.edges.some and pack.targets.size(1))
        together = together and "together" in SHORT_CUTS and not self.local and units.absent is None
        together = together and not units.entries.some  # entries are many, and what is computed in a call is, too
        self.rows_together = MAX_ROWS_TOGETHER if together else 0

    def take(self, rows: Tensor) -> GraphOracle:
        """The same for some of the instances, which may repeat."""
        return GraphOracle(self.predictor, self.pack.take(rows))

    def band(self, criterion: Criterion) -> Tensor | float:
        """The slack within which an answer of the model hangs on rounding."""
        return self.predictor.band(criterion)

    def name(self, row: int) -> object:
        """The key of an instance."""
        return self.pack.key(row)

    def outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        """What the model says of instances `rows` [R] in these states [R, U, bool]: [R, C]."""
        costs = self._footprint[rows.cpu()]
        if float(costs.sum()) <= MAX_FLOATS_PER_CALL:  # nearly always: a call has a few thousand nodes
            return self._outputs(rows, states)
        parts = chunks(costs.tolist(), MAX_FLOATS_PER_CALL)
        return torch.cat([self._outputs(rows[part], states[part]) for part in parts])

    def _outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        if self.removals is None:
            return self.predictor.hard(self.pack.take(rows), states[self.valid[rows]])
        return self.removals.outputs(self.removals.whole(rows, states), states)

    def checked(self, states: Tensor) -> Tensor:
        """What the model says of every instance in a state each [B, U]: by `Predictor.hard`, without short cuts."""
        return self.predictor.hard(self.pack, states[self.valid], shares_rows=False)

    @cached_property
    def lookalikes(self) -> Lookalikes | None:
        """Names that states share if they are one graph but for the numbers of its nodes; None: that cannot be told."""
        pack, removals = self.pack, self.removals
        plain = self.edges_alone and pack.sparse is None
        whole = all(kind == "graph" for kind, _ in pack.extras.values())
        if "alike" not in SHORT_CUTS or not plain or not whole or self.predictor.ordered:
            return None
        return Lookalikes.of(removals) if removals is not None else None

    @property
    def has_looks(self) -> bool:
        """Whether some states are the same to the model."""
        return self.local or self.lookalikes is not None

    def looks(self, rows: Tensor, states: Tensor) -> Iterator[tuple[slice, Looks]]:
        """The receptive fields that are left of states, in parts that fit into memory, or the whole graphs."""
        assert self.removals is not None
        if not self.local:
            yield slice(0, len(rows)), GraphLooks(self, rows, states)
            return
        extent = self.pack.edge_ptr.diff()[rows] + self.removals.width
        for part in chunks(extent.tolist(), MAX_FLOATS_PER_CALL):
            field = self.removals.find(rows[part], states[part])
            yield part, FieldLooks(self.removals, field, self.lookalikes)

    @property
    def has_slopes(self) -> bool:
        """Whether the model has gradients by soft masks of the units."""
        return self.predictor.has_slopes(self.pack)

    def slopes(self, trials: Trials, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The slack of sets in every test [R, tests], and its gradient by soft masks of units [R, U, tests].

        A model without such a gradient is tried with units flipped instead.
        """
        if not self.has_slopes:
            return super().slopes(trials, rows, sets)
        factor = 2 * len(trials.tests)
        parts = chunks((self._footprint[rows.cpu()] * factor).tolist(), MAX_FLOATS_PER_CALL)
        found = [self._slopes(trials, rows[part], sets[part]) for part in parts]
        trials.evaluations.index_add_(0, rows, torch.full_like(rows, 3 * len(trials.tests)))
        room, slope = (torch.cat(column) for column in zip(*found))
        return room, slope

    def _slopes(self, trials: Trials, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        valid, count = self.valid[rows], len(trials.tests)
        criterion = trials.criterion.take(rows)
        masks = sets[valid].float().expand(count, -1).clone().requires_grad_()  # one per test: a gradient of its own
        with self.predictor.soft(self.pack.take(rows.repeat(count)), messages=True) as run:
            outputs = soft_outputs(run, [test.intervention for test in trials.tests], list(masks))
            room = [slack(criterion, said, test.same) for test, said in zip(trials.tests, outputs)]
            (gradient,) = torch.autograd.grad(torch.stack(room).sum(), masks, allow_unused=True)
        slope = torch.zeros(*valid.shape, count, device=rows.device)
        if gradient is not None:
            slope[valid] = torch.nan_to_num(gradient).t()
        return torch.stack(room, 1).detach(), slope

    def twins(self, row: int) -> Tensor:
        """Edges to leaves with the same neighbour and features: the second is taken only where the first is."""
        pack, none = self.pack, super().twins(row)
        entries = int(pack.entry_ptr[row + 1] - pack.entry_ptr[row])
        flags = (getattr(pack.units, name) for name in FLAGS)
        if any(flag is not None for flag in flags) or self.predictor.ordered:
            return none  # interchangeable to the model is not interchangeable to what is asked
        several = pack.units.edges.further.numel() or pack.units.nodes is not None
        if entries or pack.extras or pack.sparse is not None or several:
            return none  # only plain edges between nodes whose features are at hand are compared
        edges = slice(int(pack.edge_ptr[row]), int(pack.edge_ptr[row + 1]))
        nodes = range(int(pack.node_ptr[row]), int(pack.node_ptr[row + 1]))
        targets = pack.targets[row].tolist()
        columns: dict[int, list[tuple[int, int, int]]] = {node: [] for node in nodes}
        units = pack.units.edges.first[edges].tolist()
        governed = Counter(units)  # a unit that governs more than the edge to a leaf has no twin
        for tail, head, unit in zip(*pack.edge_index[:, edges].tolist(), units):
            columns[tail].append((head, unit, 0))
            columns[head].append((tail, unit, 1))
        leaves: dict[object, int] = {}
        pairs = []
        for node, seen in columns.items():
            ends, own = {end for end, _, _ in seen}, {unit for _, unit, _ in seen}
            if node in targets or len(own) != 1 or -1 in own or len(ends) != 1 or governed[min(own)] != len(seen):
                continue
            unit = own.pop() - int(pack.units.ptr[row])
            features = pack.x[node].cpu().contiguous().view(torch.uint8).numpy().tobytes()
            look = (ends.pop(), tuple(sorted(way for _, _, way in seen)), features)
            if look in leaves:
                pairs.append((leaves[look], unit))
            leaves[look] = unit
        return torch.tensor(pairs, device=none.device) if pairs else none

    def listing(self, proof: Exhaustion) -> Listing | None:
        """Connected sets where nodes are read, one set of each shape where a graph is read as a whole."""
        trials, row = proof.trials, proof.row
        alone = next((column for column, test in enumerate(trials.tests) if test.intervention.keeps), None)
        if alone is None or self.required is not None or self.price is not None:
            return None
        if self.local and self.removals is not None:
            return connected_sets(proof, alone, self.removals)
        if proof.budget <= MIN_SETS_FOR_SHAPES or not (proof.likely or proof.partly) or not self._shaped():
            return None
        shapes = Shapes.of(self, row)
        return None if shapes is None else every_shape(proof, alone, shapes)

    def _shaped(self) -> bool:
        """Whether sets of one shape are the same to the model: plain graphs, and it is handed nothing else."""
        pack = self.pack
        plain = self.edges_alone and self.fixed is None and pack.units.edges.every and pack.sparse is None
        whole = not pack.targets.size(1) and all(kind == "graph" for kind, _ in pack.extras.values())
        return plain and whole and not self.predictor.ordered


def outputs_after(intervention: Intervention, predictor: Predictor, pack: Pack, chosen: Tensor) -> Tensor:
    """What the model says after an intervention on chosen units [units], really carried out: [B, classes]."""
    return predictor.hard(pack, intervention.states(chosen, pack.units.absent))


# -- removed edges, and the receptive fields that are left --------------------------------------------------------


Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Field:
    """What R trials can see: nodes and edge columns of the pack, each with the trial that sees it."""

    rows: Tensor  # [R], the instance of each trial
    nodes: Array  # [n], in the order of trials and then of nodes
    of_node: Array  # [n]
    columns: Array  # [e], in the order of trials and then of columns
    of_column: Array  # [e]

    def take(self, trials: Tensor) -> Field:
        """Some of the trials, in ascending order."""
        if len(trials) == len(self.rows):
            return self
        place = np.full(len(self.rows), -1)
        place[trials.cpu().numpy()] = np.arange(len(trials))
        of_node, of_column = place[self.of_node], place[self.of_column]
        nodes, columns = (of.nonzero()[0] for of in (of_node >= 0, of_column >= 0))
        return Field(self.rows[trials], self.nodes[nodes], of_node[nodes], self.columns[columns], of_column[columns])

    def parts(self, cost: Callable[[Array, Array], Array]) -> Iterator[Field]:
        """Runs of the trials that fit into one call each, by what a trial of so many nodes and columns costs."""
        counts = [np.bincount(of, minlength=len(self.rows)) for of in (self.of_node, self.of_column)]
        node_ptr, column_ptr = (np.concatenate([[0], count.cumsum()]) for count in counts)
        for some in chunks(cost(*counts).tolist(), MAX_FLOATS_PER_CALL):
            seen, met = (slice(ptr[some.start], ptr[some.stop]) for ptr in (node_ptr, column_ptr))
            of_node, of_column = self.of_node[seen] - some.start, self.of_column[met] - some.start
            yield Field(self.rows[some], self.nodes[seen], of_node, self.columns[met], of_column)

    def names(self) -> list[bytes]:
        """What each trial sees, as a name: its instance and its edges."""
        text = self.columns.astype(np.int32).tobytes()
        ends = (4 * np.bincount(self.of_column, minlength=len(self.rows)).cumsum()).tolist()
        owner = [row.to_bytes(4, "little") for row in self.rows.tolist()]
        return [short(name + text[start:end]) for name, start, end in zip(owner, [0, *ends], ends)]


class Removals:
    """Trials in which removed nodes, edges and feature entries are not there; of packs where only these can go.

    They are handed to the model as they are left, without units of their own. In NumPy, because there are a dozen small
    steps per call, and each of them takes it a fifth of torch's time.
    """

    def __init__(self, pack: Pack, fixed: Tensor | None, predictor: Predictor) -> None:
        self.pack, self.fixed, self.predictor = pack, fixed, predictor
        self.hops, direction = predictor.sight
        self.direction = "both" if self.hops is None else direction
        units, entries = pack.units, owners(pack.entry_ptr)
        self.unit = _own_units(units.edges, units.ptr, owners(pack.edge_ptr))
        pair_owner = owners(units.edges.ptr)
        element, unit = units.edges.further - torch.stack([pack.edge_ptr[pair_owner], units.ptr[pair_owner]])
        arrays = (pack.edge_index, pack.node_ptr, pack.edge_ptr, pack.entry_ptr, pack.targets, self.unit)
        self.ends, self.node_ptr, self.edge_ptr, self.entry_ptr, self.targets, self._unit = map(_array, arrays)
        self._pair_ptr, self._pair_column, self._pair_unit = map(_array, (units.edges.ptr, element, unit))
        self._node_unit = None if units.nodes is None else _array(_own_units(units.nodes, units.ptr, pack.batch))
        self._entry_unit = _array(_own_units(units.entries, units.ptr, entries))
        self._entry_row, self._entry_column = _array(pack.entry_row - pack.node_ptr[entries]), _array(pack.entry_column)
        self.width = int(np.diff(self.node_ptr).max(initial=0))

    @staticmethod
    def hold(pack: Pack) -> bool:
        """Whether this can remove what the units of a pack govern: nodes have one unit, which their entries share."""
        nodes, entries = pack.units.nodes, pack.units.entries
        if nodes is None:
            return not entries.further.numel()
        single = not nodes.further.numel() and not entries.further.numel()
        return single and (not entries.some or torch.equal(entries.first, nodes.first[pack.entry_row]))

    @cached_property
    def around(self) -> tuple[Tensor, Tensor]:
        """The units of the edges at which each node looks further, end to end, and their pointer by node."""
        tail, head = self.pack.edge_index
        anchor = {"in": head, "out": tail}.get(self.direction, torch.cat([head, tail]))
        unit = self.unit.repeat(len(anchor) // max(len(tail), 1))
        return pointer(torch.bincount(anchor, minlength=self.pack.x.size(0))), unit[anchor.argsort(stable=True)]

    def whole(self, rows: Tensor, states: Tensor) -> Field:
        """Instances `rows` [R], in which the units with a state [R, U, bool] are there."""
        instance, there = self.trials(rows, states)
        nodes, of_node = _spans(self.node_ptr, instance)
        if self._node_unit is not None and self.pack.units.nodes is not None:
            left = _present(self._node_unit[nodes], self.pack.units.nodes.every, there, of_node).nonzero()[0]
            nodes, of_node = nodes[left], of_node[left]
        return Field(rows, nodes, of_node, *self.columns(instance, there))

    def find(self, rows: Tensor, states: Tensor) -> Field:
        """What is seen in such states, by a search in breadth from all targets at once."""
        instance, there = self.trials(rows, states)
        column, trial = self.columns(instance, there)
        start = self.starts(instance)
        shift = start if len(instance) == 1 else start[trial]
        tail, head = self.ends[0][column] + shift, self.ends[1][column] + shift
        inside = np.zeros(len(instance) * self.width, dtype=bool)
        inside[(self.targets[instance] + start[:, None]).ravel()] = True
        met, size, hop = np.zeros(len(column), dtype=bool), -1, 0
        ways = {"in": [(head, tail)], "out": [(tail, head)]}.get(self.direction, [(head, tail), (tail, head)])
        while (self.hops is None or hop < self.hops) and (count := int(np.count_nonzero(inside))) > size:
            seen = [inside[anchor] for anchor, _ in ways]
            for (_, other), reached in zip(ways, seen):
                inside[other[reached]] = True
            met, size, hop = np.logical_or.reduce(seen), count, hop + 1
        places = inside.nonzero()[0]
        of_node = places // self.width
        return Field(rows, places - start[of_node], of_node, column[met], trial[met])

    def outputs(self, field: Field, states: Tensor | None = None) -> Tensor:
        """What the model says of trials [R, C]; with `states` [R, U], entries of features are gone as well."""
        rows = field.rows
        left = torch.from_numpy(np.unique(field.of_node)).to(rows.device)
        if len(left) < len(rows):  # a graph without any node is no input
            outputs = self.predictor.on_nothing(len(rows))
            if not len(left):
                return outputs
            said = self.outputs(field.take(left), None if states is None else states[left])
            return outputs.to(said.dtype).index_copy(0, left, said)
        return self.predictor.on_what_is_left(self.inputs(field, states), lambda trial: self.pack.key(int(rows[trial])))

    def inputs(self, field: Field, states: Tensor | None = None) -> Inputs:
        """What the model is handed of trials; with `states` [R, U], entries of features are gone as well."""
        pack, rows = self.pack, field.rows
        instance, start = rows.cpu().numpy(), self.starts(rows.cpu().numpy())
        local = np.zeros(len(instance) * self.width, dtype=np.int64)  # of every node of every trial, its new id
        local[field.nodes + start[field.of_node]] = np.arange(len(field.nodes))
        arrays = (
            field.nodes,
            field.columns,
            local[self.ends.take(field.columns, 1) + start[field.of_column]],
            local[self.targets[instance] + start[:, None]],
            field.of_node,
        )
        nodes, columns, edge_index, targets, batch = (torch.from_numpy(array).to(rows.device) for array in arrays)
        if pack.sparse is None:
            x = pack.x.index_select(0, nodes)
        else:
            x = LazyFeatures.of(pack.x[:1].expand(len(nodes), -1), pack.sparse.take(nodes))
        if states is not None and self._node_unit is None and pack.units.entries.some:  # else they go with their node
            x = self._with_entries(x, *self.trials(rows, states))
        own: dict[str, Tensor] = {"node": nodes, "edge": columns, "graph": rows}
        arguments = {n: value[own[kind]] if kind in own else value for n, (kind, value) in pack.extras.items()}
        return Inputs(x, edge_index, arguments | target_arguments(self.predictor.level, targets, batch), targets)

    def starts(self, instance: Array) -> Array:
        """What turns a node of the pack into its position where every trial has `width` of them."""
        starts: Array = np.arange(len(instance)) * self.width - self.node_ptr[instance]
        return starts

    def trials(self, rows: Tensor, states: Tensor) -> tuple[Array, Array]:
        """Instances `rows` [R] and their states [R, U], in which what is fixed is there."""
        states = states if self.fixed is None else states | self.fixed[rows]
        return rows.cpu().numpy(), np.ascontiguousarray(states.cpu().numpy())

    def columns(self, instance: Array, there: Array) -> tuple[Array, Array]:
        """The edge columns that are there in states [R, U] of instances [R], and the trial of each."""
        columns, trial = _spans(self.edge_ptr, instance)
        edges = self.pack.units.edges
        if not edges.some:
            return columns, trial
        present = _present(self._unit[columns], edges.every, there, trial)
        if len(self._pair_unit) and there.size:
            pair, of_pair = _spans(self._pair_ptr, instance)
            gone = (~there.ravel()[self._pair_unit[pair] + of_pair * there.shape[1]]).nonzero()[0]
            counts = np.diff(self.edge_ptr)[instance]
            present[self._pair_column[pair[gone]] + (counts.cumsum() - counts)[of_pair[gone]]] = False
        kept = present.nonzero()[0]
        return columns[kept], trial[kept]

    def _with_entries(self, x: Tensor, instance: Array, there: Array) -> Tensor:
        """Features of trials without the entries that are gone."""
        entries, trial = _spans(self.entry_ptr, instance)
        stay = _present(self._entry_unit[entries], self.pack.units.entries.every, there, trial)
        if isinstance(x, LazyFeatures):
            return LazyFeatures.of(x.as_subclass(Tensor), x.sparse.scaled(torch.from_numpy(stay).to(x.device)))
        gone = (~stay).nonzero()[0]
        first = np.diff(self.node_ptr)[instance].cumsum() - np.diff(self.node_ptr)[instance]
        place = self._entry_row[entries[gone]] + first[trial[gone]], self._entry_column[entries[gone]]
        return x.index_put(tuple(torch.from_numpy(part).to(x.device) for part in place), x.new_tensor(0))


def _array(values: Tensor) -> Array:
    return values.cpu().numpy()


def _own_units(governors: Governors, ptr: Tensor, owner: Tensor) -> Tensor:
    """The unit of every element, counted within its instance; -1 where it has none."""
    return torch.where(governors.first < 0, governors.first, governors.first - ptr[owner])


def _spans(ptr: Array, index: Array) -> tuple[Array, Array]:
    """Positions of the spans `index`, end to end, and the place of each one in `index`."""
    counts = ptr[index + 1] - ptr[index]
    shift = ptr[index] - counts.cumsum() + counts
    trial = np.arange(len(index)).repeat(counts)
    return np.arange(len(trial)) + shift[trial], trial


def _present(unit: Array, every: bool, there: Array, trial: Array) -> Array:
    """Which elements with these units (-1: none) are there in the states [R, U] of their trials."""
    if not there.size:
        return unit < 0
    present: Array = there.ravel().take(unit + trial * there.shape[1], mode="clip")
    return present if every else present | (unit < 0)


@dataclass(frozen=True, eq=False)
class FieldLooks:
    """What trials see, by the edges in their fields, or by what these look like."""

    removals: Removals
    field: Field
    lookalikes: Lookalikes | None

    @property
    def names(self) -> list[bytes]:
        field = self.field
        if self.lookalikes is None:
            return field.names()
        return self.lookalikes.names(field.rows.cpu().numpy(), field.columns, field.of_column)

    def outputs(self, index: Tensor) -> Tensor:
        """What the model says of some of the fields [r, C]."""
        parts = self.field.take(index).parts(self.removals.predictor.cost)
        return torch.cat([self.removals.outputs(part) for part in parts])


@dataclass(frozen=True, eq=False)
class GraphLooks:
    """Whole graphs, by what they look like if at most half of their units are there, else by their units."""

    # Of large graphs hardly two look alike, and naming them takes longer than it saves. In small calls it takes as long
    # as it saves, at a hidden size of 64: packs of 80 molecules took the same time with any least number of rows.
    oracle: GraphOracle
    rows: Tensor
    states: Tensor

    @property
    def names(self) -> list[bytes]:
        oracle, few = self.oracle, self.states.sum(1) <= self.oracle.counts[self.rows] // 2
        assert oracle.removals is not None
        assert oracle.lookalikes is not None
        instance, there = oracle.removals.trials(self.rows[few], self.states[few])
        alike = iter(oracle.lookalikes.names(instance, *oracle.removals.columns(instance, there)))
        others = (b"=" + name for name in names_of(self.rows[~few], self.states[~few]))
        return [next(alike if small else others) for small in few.tolist()]

    def outputs(self, index: Tensor) -> Tensor:
        """What the model says of some of the graphs [r, C]."""
        return self.oracle.outputs(self.rows[index], self.states[index])


# -- connected sets ---------------------------------------------------------------------------------------------


def connected_sets(search: Exhaustion, column: int, removals: Removals) -> Listing:
    """All sets that could pass, by size: those T that pass alone, each with every choice of further units.

    Alone, a set does what its part T does that is joined to the target: the model sees no more. So only connected sets
    are put to the test that looks at S alone, the one in `column`, and only what holds a passing one is completed.
    """
    trials = search.trials
    level = torch.zeros_like(trials.valid[search.row : search.row + 1])
    counts: list[int] = []
    alone: list[Tensor] = []  # by size, what passes alone
    for number in range(search.top + 1):
        if number:
            level = _grown(search, removals, level)
        counts.append(len(level))
        if not search.partly and not search.certain and not _in_sight(search, counts, alone):
            return
        if not search.spend(len(level)):
            return
        good = level.new_zeros(0)
        for part in torch.split(level, 4096):
            good = torch.cat([good, (yield part, column)])
        alone.append(level[good])
        if number < search.exhausted:
            continue
        if not search.spend(_completions(search, alone, number)):
            return
        for size, sets in enumerate(alone):
            for base in sets:
                rest = [unit for unit in search.free if not base[unit]]
                for some in search.combined(base, rest, number - size):
                    passing = yield some, None
                    if search.found(some[passing]):
                        search.complete = True
                        return
        search.done(number)


def _completions(search: Exhaustion, alone: list[Tensor], number: int) -> int:
    """How many sets of so many units have a part that passes alone."""
    count = len(search.free)
    return sum(len(sets) * math.comb(count - size, number - size) for size, sets in enumerate(alone) if size <= number)


def _in_sight(search: Exhaustion, counts: list[int], alone: list[Tensor]) -> bool:
    """Whether the budget will hold to the end, if there are ever more parts as there have been so far."""
    growth = counts[-1] / counts[-2] if len(counts) > 2 else 2.0
    sets, level = 0.0, float(counts[-1])
    for number in range(len(counts) - 1, search.top + 1):
        sets += level + (_completions(search, alone, number) if number >= search.exhausted else 0)
        level *= growth
        if sets > search.budget:
            return False
    return True


def _grown(search: Exhaustion, removals: Removals, level: Tensor) -> Tensor:
    """Every set of the level with one unit more, at an edge of what its target can see; each once."""
    parts = [level[:0]]
    for some in torch.split(level, 1024):
        rows = torch.full((len(some),), search.row, device=some.device)
        field = removals.find(rows, some)
        nodes, of_node = (torch.from_numpy(part).to(some.device) for part in (field.nodes, field.of_node))
        at, ptr, _ = spans(removals.around[0], nodes)
        trial, unit = of_node[owners(ptr)], removals.around[1][at]
        new = (unit >= 0).nonzero().flatten()
        trial, unit = trial[new], unit[new]
        keep = search.trials.selectable[search.row, unit] & ~some[trial, unit]
        grown = some[trial[keep]].clone()
        grown[torch.arange(len(grown), device=grown.device), unit[keep]] = True
        parts.append(_once(grown))
    return parts[-1] if len(parts) == 2 else _once(torch.cat(parts))


def _once(sets: Tensor) -> Tensor:
    return sets[torch.from_numpy(once(sets.cpu().numpy())).to(sets.device)]
