"""The oracle of graphs: what the model says of packed instances in which exactly these units are there.

Most of what a search asks for are removals of edges, so those are packed directly, with only what the model is handed.
Where nodes are read, a trial is run on its own receptive field: what the target can still see once the edges are gone.
Trials that see the same are one, and a proof lists only connected sets. Where a graph is read as a whole, sets of the
same shape are one (`shapes.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cf2.models.predictor import Predictor
from cf2.models.shapes import MIN_SETS_FOR_SHAPES, Shapes, every_shape
from cf2.sets.oracle import SHORT_CUTS, Listing, Looks, Oracle
from cf2.sets.proof import Exhaustion
from cf2.sets.tests import Criterion, Intervention, slack, soft_outputs
from cf2.sets.trials import Trials, short
from cf2.units.kinds import FLAGS, Governors, Units
from cf2.units.packs import Pack, chunks, owners, pointer, spans

MAX_INSTANCES_TOGETHER = 4  # with so few, a call of the model costs more than what is computed in it
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
        # Only edges come and go, each with one unit, and none of them is added.
        plain = not units.edges.further.numel() and not len(pack.entry_row) and units.edges.some and units.nodes is None
        removals = plain and units.absent is None and units.changes is None
        self.removals = Removals(pack, self.fixed) if removals else None
        # A model that mixes all nodes sees also what is not joined to a target.
        self.local = bool(
            own_fields
            and "fields" in SHORT_CUTS
            and plain
            and units.absent is None
            and pack.targets.size(1)
            and not predictor.alone
        )
        self.fields = Fields(pack, *predictor.sight, self.fixed) if self.local else None
        self._extent = (pack.edge_ptr.diff() + (0 if self.fields is None else self.fields.width)).cpu()
        few = together and "together" in SHORT_CUTS and len(self.counts) <= MAX_INSTANCES_TOGETHER
        self.few = few and not self.local and units.absent is None

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
        parts = chunks(self._footprint[rows.cpu()].tolist(), MAX_FLOATS_PER_CALL)
        return torch.cat([self._outputs(rows[part], states[part]) for part in parts])

    def _outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        if self.removals is None:
            return self.predictor.hard(self.pack.take(rows), states[self.valid[rows]])
        return self.predictor.hard(self.removals.packed(rows, states), self.valid.new_zeros(0))

    def checked(self, states: Tensor) -> Tensor:
        """What the model says of every instance in a state each [B, U]: by `Predictor.hard`, without short cuts."""
        return self.predictor.hard(self.pack, states[self.valid])

    def looks(self, rows: Tensor, states: Tensor) -> Iterator[tuple[slice, Looks]]:
        """The receptive fields that are left of states, in parts that fit into memory."""
        assert self.fields is not None
        for part in chunks(self._extent[rows.cpu()].tolist(), MAX_FLOATS_PER_CALL):
            yield part, FieldLooks(self, self.fields, self.fields.find(rows[part], states[part]))

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
        if self.fields is not None:
            return connected_sets(proof, alone, self.fields)
        if proof.budget <= MIN_SETS_FOR_SHAPES or not (proof.likely or proof.partly) or not self._shaped():
            return None
        shapes = Shapes.of(self, row)
        return None if shapes is None else every_shape(proof, alone, shapes)

    def _shaped(self) -> bool:
        """Whether sets of one shape are the same to the model: plain graphs, and it is handed nothing else."""
        pack = self.pack
        plain = self.removals is not None and self.fixed is None and pack.units.edges.every and pack.sparse is None
        whole = not pack.targets.size(1) and all(kind == "graph" for kind, _ in pack.extras.values())
        return plain and whole and not self.predictor.ordered


def outputs_after(intervention: Intervention, predictor: Predictor, pack: Pack, chosen: Tensor) -> Tensor:
    """What the model says after an intervention on chosen units [units], really carried out: [B, classes]."""
    return predictor.hard(pack, intervention.states(chosen, pack.units.absent))


# -- removed edges, and the receptive fields that are left --------------------------------------------------------


class Removals:
    """Packs of trials in which removed edges are not there, for packs of which only edges come and go."""

    def __init__(self, pack: Pack, fixed: Tensor | None) -> None:
        self.pack, self.fixed, self.unit = pack, fixed, _own_units(pack)

    def packed(self, rows: Tensor, states: Tensor) -> Pack:
        """Instances `rows` [R] in which the units with a state [R, U, bool] are there, without units of their own."""
        pack = self.pack
        states = states if self.fixed is None else states | self.fixed[rows]
        nodes, node_ptr, shift = spans(pack.node_ptr, rows)
        columns, ptr, _ = spans(pack.edge_ptr, rows)
        owner, unit = owners(ptr), self.unit[columns]
        there = states[owner, unit] if states.size(1) else torch.zeros_like(unit, dtype=torch.bool)
        stay = (there if pack.units.edges.every else there | (unit < 0)).nonzero().flatten()
        columns, owner = columns[stay], owner[stay]
        edge_index, targets = pack.edge_index[:, columns] + shift[owner], pack.targets[rows] + shift[:, None]
        return _without_units(pack, rows, nodes, columns, owner, edge_index, targets, node_ptr)


def _own_units(pack: Pack) -> Tensor:
    """The unit of every edge column, counted within its instance; -1 where it has none."""
    first = pack.units.edges.first
    return torch.where(first < 0, first, first - pack.units.ptr[:-1][owners(pack.edge_ptr)])


def _without_units(
    pack: Pack,
    rows: Tensor,
    nodes: Tensor,
    columns: Tensor,
    owner: Tensor,
    edge_index: Tensor,
    targets: Tensor,
    node_ptr: Tensor,
) -> Pack:
    """Some nodes and edge columns of instances `rows` as a pack in which nothing can come or go any more."""
    none, zero = rows.new_zeros((2, 0)), rows.new_zeros(len(rows) + 1)
    of = {"node": nodes, "edge": columns, "graph": rows}
    return replace(
        pack,
        x=pack.x[nodes] if pack.sparse is None else pack.x[:1].expand(len(nodes), -1),
        sparse=None if pack.sparse is None else pack.sparse.take(nodes),
        edge_index=edge_index,
        units=Units(
            zero,
            Governors(torch.full_like(columns, -1), none, zero, some=False, every=False),
            Governors(none[0], none, zero, some=False, every=False),
        ),
        targets=targets,
        node_ptr=node_ptr,
        edge_ptr=pointer(torch.bincount(owner, minlength=len(rows))),
        entry_ptr=zero,
        keys=pack.keys[rows],
        extras={name: (kind, value[of[kind]]) for name, (kind, value) in pack.extras.items()},
    )


@dataclass(frozen=True, eq=False)
class Field:
    """What R trials can see: nodes and edge columns of the pack, each with the trial that sees it."""

    rows: Tensor  # [R], the instance of each trial
    nodes: Tensor  # [n], in the order of trials and then of nodes
    of_node: Tensor  # [n]
    columns: Tensor  # [e], in the order of trials and then of columns
    of_column: Tensor  # [e]

    def take(self, trials: Tensor) -> Field:
        """Some of the trials, in ascending order."""
        if len(trials) == len(self.rows):
            return self
        place = torch.full_like(self.rows, -1)
        place[trials] = torch.arange(len(trials), device=trials.device)
        nodes, columns = place[self.of_node] >= 0, place[self.of_column] >= 0
        return Field(
            self.rows[trials],
            self.nodes[nodes],
            place[self.of_node[nodes]],
            self.columns[columns],
            place[self.of_column[columns]],
        )

    def parts(self, nodes: Tensor, columns: Tensor, slices: Iterable[slice]) -> Iterator[Field]:
        """Runs of the trials, which have so many nodes and columns [R] each."""
        node_ptr, column_ptr = pointer(nodes).tolist(), pointer(columns).tolist()
        for some in slices:
            seen, met = (slice(ptr[some.start], ptr[some.stop]) for ptr in (node_ptr, column_ptr))
            of_node, of_column = self.of_node[seen] - some.start, self.of_column[met] - some.start
            yield Field(self.rows[some], self.nodes[seen], of_node, self.columns[met], of_column)


class Fields:
    """Finds the fields of trials of one pack, by a search in breadth over all of their edges at once."""

    def __init__(
        self, pack: Pack, hops: int | None = None, direction: str = "both", fixed: Tensor | None = None
    ) -> None:
        self.pack, self.hops, self.fixed = pack, hops, fixed
        self.direction = "both" if hops is None else direction
        self.unit = _own_units(pack)
        self.width = int(pack.node_ptr.diff().max())
        # NumPy, because there are a dozen small steps per call, and each of them takes it a fifth of torch's time.
        arrays = (pack.edge_index, self.unit, pack.node_ptr, pack.edge_ptr, pack.targets)
        self._ends, self._unit, self._node_ptr, self._edge_ptr, self._targets = (a.cpu().numpy() for a in arrays)

    @cached_property
    def around(self) -> tuple[Tensor, Tensor]:
        """The units of the edges at which each node looks further, end to end, and their pointer by node."""
        tail, head = self.pack.edge_index
        anchor = {"in": head, "out": tail}.get(self.direction, torch.cat([head, tail]))
        unit = self.unit.repeat(len(anchor) // max(len(tail), 1))
        return pointer(torch.bincount(anchor, minlength=self.pack.x.size(0))), unit[anchor.argsort(stable=True)]

    def find(self, rows: Tensor, states: Tensor) -> Field:
        """The fields of trials [R] of instances `rows`, in which the units with a state [R, U, bool] are there."""
        states = states if self.fixed is None else states | self.fixed[rows]
        instance, there = rows.cpu().numpy(), np.ascontiguousarray(states.cpu().numpy())
        counts = self._edge_ptr[instance + 1] - self._edge_ptr[instance]
        shift = self._edge_ptr[instance] - counts.cumsum() + counts
        column = np.arange(counts.sum(), dtype=shift.dtype) + (shift if len(rows) == 1 else shift.repeat(counts))
        unit = self._unit[column]
        start = np.arange(len(instance)) * there.shape[1]
        place = unit + (start if len(rows) == 1 else start.repeat(counts))
        stay = there.ravel().take(place, mode="clip") if there.size else np.zeros(len(unit), dtype=bool)
        kept = (stay if self.pack.units.edges.every else stay | (unit < 0)).nonzero()[0]
        column, trial = column[kept], np.arange(len(instance)).repeat(counts)[kept]
        start = np.arange(len(instance)) * self.width - self._node_ptr[instance]
        shift = start if len(rows) == 1 else start[trial]
        tail, head = self._ends[0][column] + shift, self._ends[1][column] + shift
        inside = np.zeros(len(instance) * self.width, dtype=bool)
        inside[(self._targets[instance] + start[:, None]).ravel()] = True
        met, size, hop = np.zeros(len(column), dtype=bool), -1, 0
        ways = {"in": [(head, tail)], "out": [(tail, head)]}.get(self.direction, [(head, tail), (tail, head)])
        while (self.hops is None or hop < self.hops) and (count := int(np.count_nonzero(inside))) > size:
            seen = [inside[anchor] for anchor, _ in ways]
            for (_, other), mine in zip(ways, seen):
                inside[other[mine]] = True
            met, size, hop = np.logical_or.reduce(seen), count, hop + 1
        places = inside.nonzero()[0]
        of_node = places // self.width
        found = (places - start[of_node], of_node, column[met], trial[met])
        return Field(rows, *(torch.from_numpy(part).to(rows.device) for part in found))

    def names(self, field: Field) -> list[bytes]:
        """What each trial sees, as a name: its instance and its edges."""
        text = field.columns.cpu().numpy().astype(np.int32).tobytes()
        ends = (4 * torch.bincount(field.of_column, minlength=len(field.rows)).cumsum(0)).tolist()
        owner = [row.to_bytes(4, "little") for row in field.rows.tolist()]
        return [short(name + text[start:end]) for name, start, end in zip(owner, [0, *ends], ends)]

    def packed(self, field: Field) -> Pack:
        """The fields as a pack without units, in which what is gone is not there."""
        pack, count = self.pack, len(field.rows)
        start = torch.arange(count, device=field.rows.device) * self.width - pack.node_ptr[field.rows]
        local = field.rows.new_zeros(count * self.width)
        local[field.nodes + start[field.of_node]] = torch.arange(len(field.nodes), device=local.device)
        edge_index = local[pack.edge_index[:, field.columns] + start[field.of_column]]
        targets = local[pack.targets[field.rows] + start[:, None]]
        node_ptr = pointer(torch.bincount(field.of_node, minlength=count))
        return _without_units(
            pack, field.rows, field.nodes, field.columns, field.of_column, edge_index, targets, node_ptr
        )


class FieldLooks:
    """What trials see, by the edges in their fields."""

    def __init__(self, oracle: GraphOracle, fields: Fields, field: Field) -> None:
        self.oracle, self.fields, self.field = oracle, fields, field

    @property
    def names(self) -> list[bytes]:
        return self.fields.names(self.field)

    def outputs(self, index: Tensor) -> Tensor:
        """What the model says of some of the fields [r, C]."""
        predictor, field = self.oracle.predictor, self.field.take(index)
        nodes, columns = (torch.bincount(of, minlength=len(field.rows)) for of in (field.of_node, field.of_column))
        parts = field.parts(nodes, columns, chunks(predictor.cost(nodes, columns).tolist(), MAX_FLOATS_PER_CALL))
        return torch.cat([predictor.hard(self.fields.packed(part), self.oracle.valid.new_zeros(0)) for part in parts])


# -- connected sets ---------------------------------------------------------------------------------------------


def connected_sets(search: Exhaustion, column: int, fields: Fields) -> Listing:
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
            level = _grown(search, fields, level)
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


def _grown(search: Exhaustion, fields: Fields, level: Tensor) -> Tensor:
    """Every set of the level with one unit more, at an edge of what its target can see; each once."""
    parts = [level[:0]]
    for some in torch.split(level, 1024):
        rows = torch.full((len(some),), search.row, device=some.device)
        field = fields.find(rows, some)
        at, ptr, _ = spans(fields.around[0], field.nodes)
        trial, unit = field.of_node[owners(ptr)], fields.around[1][at]
        new = (unit >= 0).nonzero().flatten()
        trial, unit = trial[new], unit[new]
        keep = search.trials.selectable[search.row, unit] & ~some[trial, unit]
        grown = some[trial[keep]].clone()
        grown[torch.arange(len(grown), device=grown.device), unit[keep]] = True
        parts.append(torch.unique(grown, dim=0))
    once: Tensor = torch.unique(torch.cat(parts), dim=0)
    return once
