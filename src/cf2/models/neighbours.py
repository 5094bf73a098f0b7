"""The input a little disturbed: does a set still pass its tests there?

A neighbour of a graph has some edges more or some fewer, and the model says the same of it. Which edges are tried
depends on the seed and on the ids of their ends alone, so that graphs that are nearly the same have nearly the same
neighbours. Of a node or a pair only edges that go are drawn: one that comes could bring in what lies outside of the
receptive field. A set that holds an edge which a neighbour lacks is not asked about there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cf2.graphs.graph import Instance, Role
from cf2.models.oracle import outputs_after
from cf2.models.predictor import Predictor
from cf2.models.shapes import MIXERS
from cf2.sets.tests import WITHOUT, Criterion, Test, passes, slack
from cf2.sets.trials import Constraints, TrialTable, names_of
from cf2.units.edits import extended
from cf2.units.kinds import InstanceUnits
from cf2.units.packs import Pack, pack

MAX_DRAWS = 4  # of a neighbour of which the model says the same
MAX_EDGES = 3  # in which a neighbour differs
MAX_COPIES = 512  # of graphs with one unit removed that are run at once


@dataclass(eq=False)
class Neighbours(Constraints):
    """Neighbours of every instance of a pack, and how often each instance was run on them."""

    predictor: Predictor
    criterion: Criterion
    tests: tuple[Test, ...]
    packs: Sequence[Pack]
    there: Tensor  # [neighbours, B] bool: the model says the same of it
    gone: Tensor  # [neighbours, B, U] bool: units that it lacks
    counted: Tensor  # evaluations of the instances that neighbours were drawn of, shared by all that is taken from them
    origin: Tensor  # [B], which of those each instance is

    def __post_init__(self) -> None:
        self._known = TrialTable(self.there.device)

    def take(self, rows: Tensor) -> Neighbours:
        """The neighbours of some instances, which may repeat."""
        packs = [pack.take(rows) for pack in self.packs]
        width = int(packs[0].units.counts.max()) if len(rows) else 0
        there, gone, criterion = self.there[:, rows], self.gone[:, rows, :width], self.criterion.take(rows)
        return Neighbours(self.predictor, criterion, self.tests, packs, there, gone, self.counted, self.origin[rows])

    @property
    def evaluations(self) -> Tensor:
        """How often every instance was run on its neighbours so far [B]."""
        return self.counted[self.origin]

    def confirm(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether sets pass on every neighbour [R]."""
        return self._held(rows, sets)[0]

    def slack(self, rows: Tensor, sets: Tensor) -> Tensor:
        """By how much sets pass on the neighbour where they pass by least [R]."""
        return self._held(rows, sets)[1]

    def _held(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Whether sets [R, U] of instances `rows` pass on every neighbour [R], and their least slack there [R]."""
        slot, new = self._known.claim(names_of(rows, sets))
        if len(new):
            passed, tried, least = self.passed(rows[new], sets[new])
            self._known.keep(slot[new], passed == tried, least)
        return self._known.read(slot)

    def passed(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """On how many neighbours sets [R, U] of instances `rows` pass [R], of how many, and their least slack."""
        passed, tried = torch.zeros_like(rows), torch.zeros_like(rows)
        least = torch.full((len(rows),), float("inf"), device=rows.device)
        for neighbour, made, gone in zip(self.there, self.packs, self.gone):
            todo = (neighbour[rows] & ~(gone[rows] & sets).any(1)).nonzero().flatten()
            if not len(todo):
                continue
            instances = rows[todo]
            part, criterion = made.take(instances), self.criterion.take(instances)
            valid = torch.arange(sets.size(1), device=rows.device)[None] < part.units.counts[:, None]
            good = torch.ones_like(todo, dtype=torch.bool)
            for test in self.tests:
                outputs = outputs_after(test.intervention, self.predictor, part, sets[todo][valid])
                good &= passes(criterion, outputs, test.same)
                least[todo] = torch.minimum(least[todo], slack(criterion, outputs, test.same))
            self.counted.index_add_(0, self.origin[instances], torch.full_like(instances, len(self.tests)))
            passed[todo] += good.long()
            tried[todo] += 1
        return passed, tried, least


def neighbours(
    predictor: Predictor,
    criterion: Criterion,
    tests: tuple[Test, ...],
    instances: Sequence[Instance],
    tables: Sequence[InstanceUnits],
    *,
    count: int,
    seed: int,
    flagged: Callable[[Pack], Pack],
    takes: Callable[[str], bool],
) -> Neighbours:
    """Draw `count` neighbours of every instance; `flagged` puts the flags of the units on a pack of them."""
    width = max(table.count for table in tables)
    if "edges" in tables[0].names:  # an edge that comes is a unit of no set: with only S, all is as in the input
        tests = tuple(test for test in tests if not test.intervention.keeps)
    packs, there, gone = [], [], []
    every = torch.arange(len(instances), device=predictor.device)
    evaluations = torch.zeros_like(every)
    for number in range(count):
        streams = [torch.Generator().manual_seed(seed * 1_000_003 + number) for _ in instances]
        drawn = [_draw(i, t, s, number, width) for i, t, s in zip(instances, tables, streams)]
        for attempt in range(MAX_DRAWS):
            made = flagged(pack([d[0] for d in drawn], tables=[d[1] for d in drawn], takes=takes))
            made = made.to(predictor.device)
            same = criterion.holds(predictor.predict(made))
            evaluations += 1
            if attempt == MAX_DRAWS - 1 or bool(same.all()):
                break
            for row in (~same).nonzero().flatten().tolist():
                drawn[row] = _draw(instances[row], tables[row], streams[row], number, width)
        packs.append(made)
        there.append(same)
        gone.append(torch.stack([d[2] for d in drawn]).to(predictor.device))
    return Neighbours(predictor, criterion, tests, packs, torch.stack(there), torch.stack(gone), evaluations, every)


Drawn = tuple[Instance, InstanceUnits, Tensor]


def _draw(instance: Instance, table: InstanceUnits, draw: torch.Generator, number: int, width: int) -> Drawn:
    """One neighbour: the instance, its units, numbered as in the instance itself, and which of them it lacks."""
    edges = 1 + (number // 2) % MAX_EDGES
    first, (element, unit) = table.edges
    columns = torch.ones(instance.edge_index.size(1), dtype=torch.bool)
    missing = torch.zeros(width, dtype=torch.bool)
    new = torch.zeros((2, 0), dtype=torch.long)
    if not instance.targets and number % 2 == 0:
        new = _absent(instance, edges, draw)
    else:
        there = columns if instance.role is None else instance.role == Role.THERE
        units = torch.unique(first[(first >= 0) & there])
        order = _order(table.ids[units], int(torch.randint(2**62, (1,), generator=draw)))
        units = units[order.argsort(stable=True)[:edges]]
        columns = ~torch.isin(first, units) if len(units) else columns
        missing[units] = True

    def extended_by(values: Tensor | None, filled: int) -> Tensor | None:
        """Values of the columns that stay, and one for each new one."""
        return None if values is None else torch.cat([values[columns], torch.full((new.size(1),), filled)])

    position = columns.long().cumsum(0) - 1
    kept = columns[element]
    extras = {n: (kind, value[columns] if kind == "edge" else value) for n, (kind, value) in instance.extras.items()}
    made = replace(
        instance,
        edge_index=torch.cat([instance.edge_index[:, columns], new], 1),
        extras=extended(extras, new.size(1), {}, {}),
        role=extended_by(instance.role, Role.THERE),
        ties=extended_by(instance.ties, -1),
        groups=extended_by(instance.groups, -1),
    )
    governed = torch.cat([first[columns], torch.full((new.size(1),), -1)])
    return made, replace(table, edges=(governed, torch.stack([position[element[kept]], unit[kept]]))), missing


def _order(ids: Tensor, salt: int) -> Tensor:
    """A random number per pair of ids [u, 2], the same in every graph."""
    value = torch.full_like(ids[:, 0], salt)
    for part in ids.t():
        value = (value ^ (part + 1)) * MIXERS[0]
        value = (value ^ (value >> 29)) * MIXERS[1]
    return value ^ (value >> 32)


def _absent(instance: Instance, count: int, draw: torch.Generator) -> Tensor:
    """Some edges that are not there, both ways if edges are undirected: [2, ·]."""
    nodes = len(instance.node_ids)
    tail, head = instance.edge_index
    known = set((tail * nodes + head).tolist())
    found: list[tuple[int, int]] = []
    for _ in range(8 * count):
        u, v = torch.randint(0, nodes, (2,), generator=draw).tolist()
        if u != v and u * nodes + v not in known and (u, v) not in found:
            found += [(u, v)] if instance.directed else [(u, v), (v, u)]
        if len(found) >= count * (1 if instance.directed else 2):
            break
    return torch.tensor(found, dtype=torch.long).reshape(-1, 2).t()


def single_removals(
    predictor: Predictor, made: Pack, criterion: Criterion, tests: tuple[Test, ...], chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """On how many graphs with one other unit gone the set passes [B], and of how many: those of the same prediction.

    With only S, what else is gone does not matter; so only what happens without S is asked.
    """
    units = made.units
    removable = ~chosen
    for forbidden in (units.absent, units.fixed, units.left_out):
        removable = removable if forbidden is None else removable & ~forbidden
    passed = torch.zeros(made.num_instances, dtype=torch.long, device=chosen.device)
    tried = torch.zeros_like(passed)
    for other in torch.split(removable.nonzero().flatten(), MAX_COPIES):
        rows = units.owner[other]
        packed, own = made.take(rows), criterion.take(rows)
        alone = torch.zeros(packed.units.count, dtype=torch.bool, device=other.device)
        alone[packed.units.ptr[:-1] + other - units.ptr[rows]] = True
        shift = torch.repeat_interleave(units.ptr[rows] - packed.units.ptr[:-1], packed.units.counts)
        together = chosen[torch.arange(packed.units.count, device=other.device) + shift] | alone
        same = own.holds(outputs_after(WITHOUT, predictor, packed, alone))
        good = same.clone()
        for test in tests:
            if not test.same:
                good &= passes(own, outputs_after(test.intervention, predictor, packed, together), test.same)
        tried.index_add_(0, rows, same.long())
        passed.index_add_(0, rows, good.long())
    return passed, tried
