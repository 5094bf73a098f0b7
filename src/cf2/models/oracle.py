"""Many trials of whole instances as one pack in which what is gone is not there: what `Pack.take` and a removal give.

That is most of what a search asks for, so only what the model is handed is made.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from cf2.sets.cache import Sums
from cf2.units.kinds import Governors, Units
from cf2.units.packs import Pack, owners, pointer, spans

if TYPE_CHECKING:
    from cf2.sets.trials import Trials

# -- carried out -----------------------------------------------------------------------------------------


def only_edges(pack: Pack) -> bool:
    """Whether what comes and goes are edges alone, each with one unit, of which none is absent at first."""
    units = pack.units
    plain = not units.edges.further.numel() and not len(pack.entry_row)
    return bool(plain and units.absent is None and units.changes is None and units.edges.some)


class CarriedOut:
    """Packs of trials, for packs of which `only_edges` come and go."""

    def __init__(self, pack: Pack) -> None:
        first = pack.units.edges.first
        self.pack = pack
        self.unit = torch.where(first < 0, first, first - pack.units.ptr[:-1][owners(pack.edge_ptr)])  # of its instance

    def packed(self, rows: Tensor, states: Tensor) -> Pack:
        """Instances `rows` [R] in which the units with a state [R, U, bool] are there, without units of their own."""
        pack, count = self.pack, len(rows)
        nodes, node_ptr, shift = spans(pack.node_ptr, rows)
        columns, ptr, _ = spans(pack.edge_ptr, rows)
        owner, unit = owners(ptr), self.unit[columns]
        there = states[owner, unit]
        stay = (there if pack.units.edges.every else there | (unit < 0)).nonzero().flatten()
        columns, owner = columns[stay], owner[stay]
        none, zero = rows.new_zeros((2, 0)), rows.new_zeros(count + 1)
        of = {"node": nodes, "edge": columns, "graph": rows}
        return replace(
            pack,
            x=pack.x[nodes] if pack.sparse is None else pack.x[:1].expand(len(nodes), -1),
            sparse=None if pack.sparse is None else pack.sparse.take(nodes),
            edge_index=pack.edge_index[:, columns] + shift[owner],
            units=Units(
                zero,
                Governors(torch.full_like(columns, -1), none, zero, some=False, every=False),
                Governors(none[0], none, zero, some=False, every=False),
            ),
            targets=pack.targets[rows] + shift[:, None],
            node_ptr=node_ptr,
            edge_ptr=pointer(torch.bincount(owner, minlength=count)),
            entry_ptr=zero,
            keys=pack.keys[rows],
            extras={name: (kind, value[of[kind]]) for name, (kind, value) in pack.extras.items()},
        )


# -- field -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Field:
    """What R trials can see: nodes and edge columns of the pack, each with the trial that sees it."""

    rows: Tensor  # [R], the instance of each trial
    nodes: Tensor  # [n], in the order of trials and then of nodes
    of_node: Tensor  # [n]
    columns: Tensor  # [e]
    of_column: Tensor  # [e]

    def take(self, trials: Tensor) -> Field:
        """Some of the trials, in ascending order."""
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


def applies(pack: Pack) -> bool:
    """Whether trials of a pack have fields of their own: nodes are read, and what comes and goes are edges alone.

    Each edge goes with one unit, no feature entry does, and there is nothing that could be added.
    """
    units = pack.units
    plain = not units.edges.further.numel() and not len(pack.entry_row) and units.absent is None
    return bool(plain and pack.targets.size(1) and units.edges.some)


class Fields:
    """Finds the fields of trials of one pack, in time proportional to what they contain."""

    def __init__(self, pack: Pack, hops: int | None = None, direction: str = "both") -> None:
        self.pack, self.hops = pack, hops
        self.direction = "both" if hops is None else direction
        tail, head = pack.edge_index
        anchor, other = {"in": (head, tail), "out": (tail, head)}.get(
            self.direction, (torch.cat([head, tail]), torch.cat([tail, head]))
        )
        order = anchor.argsort(stable=True)
        self.ptr = pointer(torch.bincount(anchor, minlength=pack.x.size(0)))
        self.column = order % max(pack.edge_index.size(1), 1)
        self.other = other[order]
        shift = pack.units.ptr[:-1][owners(pack.edge_ptr)]
        first = pack.units.edges.first
        self.unit = torch.where(first < 0, first, first - shift)  # in its own instance
        self.width = int(pack.node_ptr.diff().max())
        self.seen = Sums(pack.edge_index.size(1), 1, first.device)

    def find(self, rows: Tensor, states: Tensor) -> Field:
        """The fields of trials [R] of instances `rows`, in which the units with a state [R, U, bool] are there."""
        pack, width = self.pack, self.width
        base = pack.node_ptr[rows]
        inside = torch.zeros(len(rows) * width, dtype=torch.bool, device=rows.device)
        trial = torch.arange(len(rows), device=rows.device).repeat_interleave(pack.targets.size(1))
        places = torch.unique(trial * width + (pack.targets[rows].flatten() - base[trial]))
        inside[places] = True
        columns, of_column = [rows[:0]], [rows[:0]]
        hop = 0
        while len(places) and (self.hops is None or hop < self.hops):
            hop += 1
            trial = places // width
            at, ptr, _ = spans(self.ptr, places - trial * width + base[trial])
            trial = trial[owners(ptr)]
            column = self.column[at]
            unit = self.unit[column]
            there = (states[trial, unit] | (unit < 0)).nonzero().flatten()
            column, trial = column[there], trial[there]
            columns.append(column)
            of_column.append(trial)
            reached = trial * width + (self.other[at[there]] - base[trial])
            places = torch.unique(reached[~inside[reached]])
            inside[places] = True
        column, trial = torch.cat(columns), torch.cat(of_column)
        if self.direction == "both":  # an edge is met from both of its ends
            total = max(pack.edge_index.size(1), 1)
            both = torch.unique(trial * total + column)
            trial, column = both // total, both % total
        found = inside.nonzero().flatten()
        of_node = found // width
        return Field(rows, found - of_node * width + base[of_node], of_node, column, trial)

    def sums(self, field: Field) -> Tensor:
        """What each trial sees, as sums for a key [R, 4]."""
        return self.seen.of_lists(field.of_column, field.columns, len(field.rows))

    def packed(self, field: Field) -> Pack:
        """The fields as a pack without units, in which what is gone is not there."""
        pack, count = self.pack, len(field.rows)
        start = torch.arange(count, device=field.rows.device) * self.width - pack.node_ptr[field.rows]
        local = field.rows.new_zeros(count * self.width)
        local[field.nodes + start[field.of_node]] = torch.arange(len(field.nodes), device=local.device)
        none, zero = field.rows.new_zeros((2, 0)), field.rows.new_zeros(count + 1)
        rows = {"node": field.nodes, "edge": field.columns, "graph": field.rows}
        return replace(
            pack,
            x=pack.x[field.nodes] if pack.sparse is None else pack.x[:1].expand(len(field.nodes), -1),
            sparse=None if pack.sparse is None else pack.sparse.take(field.nodes),
            edge_index=local[pack.edge_index[:, field.columns] + start[field.of_column]],
            units=Units(
                zero,
                Governors(torch.full_like(field.columns, -1), none, zero, some=False, every=False),
                Governors(none[0], none, zero, some=False, every=False),
            ),
            targets=local[pack.targets[field.rows] + start[:, None]],
            node_ptr=pointer(torch.bincount(field.of_node, minlength=count)),
            edge_ptr=pointer(torch.bincount(field.of_column, minlength=count)),
            entry_ptr=zero,
            keys=pack.keys[field.rows],
            extras={name: (kind, value[rows[kind]]) for name, (kind, value) in pack.extras.items()},
        )


# -- connected -------------------------------------------------------------------------------------------


class Search(Protocol):
    """What is tried of one instance; see `proof.Exhaustion`."""

    trials: Trials
    row: int
    top: int
    exhausted: int
    budget: int
    partly: bool
    certain: bool
    complete: bool
    free: list[int]

    def spend(self, sets: int) -> bool: ...
    def combined(self, base: Tensor, units: list[int], number: int) -> Iterator[Tensor]: ...
    def found(self, good: Tensor) -> bool: ...
    def done(self, number: int) -> None: ...


def applies_connected(trials: Trials) -> bool:
    """Whether trials have fields of their own, and some test looks at S alone."""
    plain = trials.fields is not None and trials.required is None and trials.price is None
    return plain and _alone(trials) is not None


def _alone(trials: Trials) -> int | None:
    return next((column for column, test in enumerate(trials.tests) if test.intervention.keeps), None)


def connected(search: Search) -> Generator[tuple[Tensor, int | None], Tensor, None]:
    """All sets that could pass, by size: those T that pass alone, each with every choice of further units."""
    trials, column = search.trials, _alone(search.trials)
    level = torch.zeros_like(trials.valid[search.row : search.row + 1])
    counts: list[int] = []
    alone: list[Tensor] = []  # by size, what passes alone
    for number in range(search.top + 1):
        if number:
            level = _grown(search, level)
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


def _completions(search: Search, alone: list[Tensor], number: int) -> int:
    """How many sets of so many units have a part that passes alone."""
    count = len(search.free)
    return sum(len(sets) * math.comb(count - size, number - size) for size, sets in enumerate(alone) if size <= number)


def _in_sight(search: Search, counts: list[int], alone: list[Tensor]) -> bool:
    """Whether the budget will hold to the end, if there are ever more parts as there have been so far."""
    growth = counts[-1] / counts[-2] if len(counts) > 2 else 2.0
    sets, level = 0.0, float(counts[-1])
    for number in range(len(counts) - 1, search.top + 1):
        sets += level + (_completions(search, alone, number) if number >= search.exhausted else 0)
        level *= growth
        if sets > search.budget:
            return False
    return True


def _grown(search: Search, level: Tensor) -> Tensor:
    """Every set of the level with one unit more, at an edge of what its target can see; each once."""
    trials, fields = search.trials, search.trials.fields
    assert isinstance(fields, Fields)
    parts = [level[:0]]
    for some in torch.split(level, 1024):
        rows = torch.full((len(some),), search.row, device=some.device)
        field = fields.find(rows, some if trials.fixed is None else some | trials.fixed[rows])
        at, ptr, _ = spans(fields.ptr, field.nodes)
        trial, unit = field.of_node[owners(ptr)], fields.unit[fields.column[at]]
        new = (unit >= 0).nonzero().flatten()
        trial, unit = trial[new], unit[new]
        keep = trials.selectable[search.row, unit] & ~some[trial, unit]
        grown = some[trial[keep]].clone()
        grown[torch.arange(len(grown), device=grown.device), unit[keep]] = True
        parts.append(torch.unique(grown, dim=0))
    once: Tensor = torch.unique(torch.cat(parts), dim=0)
    return once
