"""Proof by exhaustion: every set smaller than the answer, in order of size, packed over all instances.

Not every set has to be tried. Two edges to leaves that look alike (the same neighbour, the same features) can be
exchanged without the model noticing, so only sets that take such twins in their order are. And of a node, what the
model says of S alone depends on the part of S that is joined to the target (`connected.py`); of a graph as a whole, on
the shape of S (`alike.py`), of which there are few (`parts.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain, combinations, islice

import numpy as np
import torch
from torch import Tensor

from cf2.models import shapes as alike
from cf2.models.oracle import applies_connected, connected
from cf2.models.shapes import Bounded, Census
from cf2.sets.moves import margins, widest
from cf2.sets.trials import Trials
from cf2.units.kinds import FLAGS

BATCH = 2048  # sets of one instance that are tried at once
WIDTH = 1 << 23  # entries of the table of all sets that are tried at once
SHAPED = 5_000  # a proof of more sets looks for those that look alike, and
CHEAP = 16  # is begun where there are so many times as many sets as it may run
WHOLE = 2  # a run of a whole graph counts for so many sets of a node
_BOUNDLESS = 1 << 62
TOGETHER = 8  # such proofs are made side by side


@dataclass(frozen=True, eq=False)
class Proof:
    """The sets after the proof, and what is proved of which instances [B]."""

    sets: Tensor  # [B, U]
    passed: Tensor
    optimal: Tensor
    impossible: Tensor
    exhausted: Tensor  # no set of fewer free units than this passes

    def lower_bound(self, trials: Trials) -> Tensor:
        """No smaller set passes, [B]: what must be chosen, and the cheapest of so many further units."""
        rows = torch.arange(len(self.sets), device=self.sets.device)
        must = torch.zeros_like(trials.valid) if trials.required is None else trials.required
        prices = torch.ones_like(trials.valid, dtype=torch.double) if trials.price is None else trials.price.double()
        free = prices.masked_fill(~trials.selectable | must, float("inf")).sort(1).values
        taken = torch.arange(free.size(1), device=free.device)[None] < self.exhausted[:, None]
        bound = trials.size(rows, must).double() + free.masked_fill(~taken | free.isinf(), 0).sum(1)
        size = trials.size(rows, self.sets).double()
        bound = torch.where(self.optimal, size, torch.where(self.passed, torch.minimum(bound, size), bound))
        return (bound + 1e-6).floor().long()

    def smallest(self, trials: Trials) -> Tensor:
        """Whether no smaller set passes than the one that is given [B], be it found by the proof or after it."""
        rows = torch.arange(len(self.sets), device=self.sets.device)
        reached = trials.size(rows, self.sets) <= self.lower_bound(trials)
        return self.optimal | (self.passed & (self.exhausted > 0) & reached)


def prove(
    trials: Trials, sets: Tensor, passed: Tensor, budget: int, before: Proof | None = None, *, partly: bool = False
) -> Proof:
    """Try every smaller set (every set, where none passes) of the instances for which `budget` sets are enough.

    With `partly`, all sets of as many sizes are tried as the budget allows. `before` is what an earlier proof has shown
    of the same instances; it is not shown again.
    """
    never = torch.zeros_like(passed)
    known = before or Proof(sets, passed, never, never, torch.zeros_like(trials.counts))
    shown = (t.clone() for t in (known.optimal, known.impossible, known.exhausted))
    proof = Proof(sets.clone(), passed.clone(), *shown)
    searches = []
    for row, count in enumerate(trials.counts.tolist()):
        if not count or trials.some_left_out[row] or proof.optimal[row] or proof.impossible[row]:
            continue
        best = sets[row] if passed[row] else None
        search = Exhaustion(trials, row, best, budget, int(proof.exhausted[row]), partly)
        if applies_connected(trials):
            searches.append((search, connected(search)))
        elif search.shapes is not None and (search.likely or partly):
            searches.append((search, every_shape(search, search.shapes)))
        elif search.certain or partly:
            searches.append((search, every_set(search)))
    together = TOGETHER if any(search.shapes is not None for search, _ in searches) else max(len(searches), 1)
    for first in range(0, len(searches), together):
        _run(trials, searches[first : first + together])
    for search, _ in searches:
        row = search.row
        if search.best is not None:
            proof.sets[row], proof.passed[row] = search.best, True
        proof.exhausted[row] = search.exhausted
        proof.optimal[row] = search.complete & proof.passed[row]
        proof.impossible[row] = search.complete & ~proof.passed[row]
    return proof


Asked = tuple[Tensor, int | None]  # sets [r, U], and the test they are put to (None: all tests and rules)
Tries = Generator[Asked, Tensor, None]  # asks for trials of sets and is sent which pass, bool [r]


class Exhaustion:
    """How far the sets of one instance have been tried, in order of the number of their free units."""

    def __init__(
        self, trials: Trials, row: int, best: Tensor | None, budget: int, exhausted: int, partly: bool
    ) -> None:
        self.trials, self.row, self.best, self.partly = trials, row, best, partly
        self.alone = alike.applies(trials) if budget > SHAPED else None
        self.shapes = None if self.alone is None else alike.Shapes.of(trials, row)
        self.budget, self.exhausted = budget, exhausted
        free = _free(trials, row)
        self.free: list[int] = free.tolist()
        self.top = len(free) if best is None else _most(trials, row, best, free)
        none = torch.zeros_like(trials.valid[row])
        self.must = none if trials.required is None else trials.required[row]
        self.complete = self.exhausted > self.top
        self.certain = _affordable(len(free), self.top, budget, exhausted)  # the budget is known to hold
        self.likely = _affordable(len(free), self.top, budget * CHEAP, exhausted)  # if sets look alike

    def spend(self, sets: int) -> bool:
        """Take so many sets from the budget, if it has them."""
        if sets > self.budget and not self.certain:
            return False
        self.budget -= sets
        return True

    @property
    def left(self) -> int:
        """The most sets that `spend` gives."""
        return _BOUNDLESS if self.certain else self.budget

    def table(self, sets: alike.Table) -> Tensor:
        """Sets of the units of this instance, as wide as those of its pack."""
        table = torch.zeros((len(sets), self.trials.width), dtype=torch.bool)
        table[:, : sets.shape[1]] = torch.from_numpy(sets)
        return table.to(self.trials.valid.device)

    def allowed(self, sets: Tensor) -> Tensor:
        """Those of the sets that keep to the rules."""
        return sets[self.trials.allowed(torch.full((len(sets),), self.row, device=sets.device), sets)]

    def size(self, sets: Tensor) -> Tensor:
        """The sizes of sets of this instance."""
        return _size(self.trials, self.row, sets)

    def combined(self, base: Tensor, units: list[int], number: int) -> Iterator[Tensor]:
        """The base with every choice of so many of the units, smaller than the best set, in blocks [r, U]."""
        every = combinations(units, number)
        while some := list(islice(every, BATCH)):
            sets = base.expand(len(some), -1).clone()
            if number:
                flat = np.fromiter(chain.from_iterable(some), dtype=np.int64, count=number * len(some))
                sets.scatter_(1, torch.from_numpy(flat).view(-1, number).to(sets.device), True)
            if self.best is not None:
                sets = sets[self.size(sets) < self.size(self.best[None])]
            if len(sets):
                yield sets

    def found(self, good: Tensor) -> bool:
        """Take the smallest of passing sets, of these that of the widest margin; whether nothing smaller can follow."""
        if not len(good):
            return False
        size = self.size(good)
        smallest = good[size == size.min()]
        rows = torch.full((len(smallest),), self.row, device=good.device)
        self.best = smallest[int(widest(rows * 0, margins(self.trials, rows, smallest), 1)[0])]
        return self.trials.price is None  # all that follow are larger

    def done(self, number: int) -> None:
        """All sets of that many free units have been tried."""
        self.exhausted = max(self.exhausted, number + 1)
        self.complete = self.exhausted > self.top


def every_set(search: Exhaustion) -> Tries:
    """All sets, but for twins in another order."""
    trials = search.trials
    pairs = twins(trials, search.row, int(trials.counts[search.row]))
    for number in range(search.exhausted, search.top + 1):
        if not search.spend(math.comb(len(search.free), number)):
            return
        for sets in search.combined(search.must, search.free, number):
            sets = _in_order(sets, pairs)
            if len(sets):
                good = yield sets, None
                if search.found(sets[good]):
                    search.complete = True
                    return
        search.done(number)


def every_shape(search: Exhaustion, shapes: alike.Shapes) -> Tries:
    """One set of each shape alone, and all sets of the shapes that pass."""
    trials, census = search.trials, Census(shapes, search.free)
    source = Bounded.of(trials, search.row, census) or census
    pairs = twins(trials, search.row, int(trials.counts[search.row]))
    for number in range(search.exhausted, search.top + 1):
        level = source.level(number, search.left // WHOLE)
        if level is None or not search.spend(WHOLE * source.cost):
            yield from every_set(search)
            return
        good = [np.zeros(0, dtype=bool)]
        for low in range(0, len(level.sets), BATCH):
            passed = yield search.table(level.sets[low : low + BATCH]), search.alone
            good.append(passed.cpu().numpy())
        placed = chain.from_iterable(census.placements(kinds) for kinds in level.kinds[np.concatenate(good)])
        while some := list(islice(placed, BATCH)):
            if not search.spend(WHOLE * len(some)):
                return
            sets = search.allowed(_in_order(search.table(np.stack(some)), pairs))
            for column in range(len(trials.tests)):
                if column != search.alone and len(sets):  # that one is passed by the whole shape
                    sets = sets[(yield sets, column)]
            if len(sets):
                fits = yield sets, None
                if search.found(sets[fits]):
                    search.complete = True
                    return
        search.done(number)


def _in_order(sets: Tensor, pairs: Tensor) -> Tensor:
    """The sets that take twins in their order."""
    return sets[(sets[:, pairs[:, 0]] | ~sets[:, pairs[:, 1]]).all(1)] if len(pairs) and len(sets) else sets


def _run(trials: Trials, searches: list[tuple[Exhaustion, Tries]]) -> None:
    """Carry out the trials that all searches ask for side by side."""
    asking: list[tuple[Exhaustion, Tries, Asked]] = []
    for search, tries in searches:
        asked = next(tries, None)
        if asked is not None:
            asking.append((search, tries, asked))
    while asking:
        room, count = WIDTH, 0
        while count < len(asking) and room > 0:
            room -= asking[count][2][0].numel()
            count += 1
        now, asking = asking[:count], asking[count:]
        for column in sorted({asked[1] for _, _, asked in now}, key=lambda c: -1 if c is None else c):
            group = [(search, tries, asked[0]) for search, tries, asked in now if asked[1] == column]
            sets = torch.cat([block for _, _, block in group])
            rows = torch.cat([torch.full((len(b),), s.row, device=b.device) for s, _, b in group])
            good = trials.passes(rows, sets, small=True) if column is None else trials.one(column, rows, sets)
            for (search, tries, _), passing in zip(group, torch.split(good, [len(b) for _, _, b in group])):
                try:
                    asking.append((search, tries, tries.send(passing)))
                except StopIteration:
                    continue


def _free(trials: Trials, row: int) -> Tensor:
    """The units of one instance that may be chosen or not."""
    may = trials.selectable[row] if trials.required is None else trials.selectable[row] & ~trials.required[row]
    return may.nonzero().flatten()


def _size(trials: Trials, row: int, sets: Tensor) -> Tensor:
    return trials.size(torch.full((len(sets),), row, device=sets.device), sets)


def _most(trials: Trials, row: int, known: Tensor, free: Tensor) -> int:
    """The most free units that a set smaller than the known one can have."""
    must = torch.zeros_like(known) if trials.required is None else trials.required[row]
    room = float(_size(trials, row, known[None])[0] - _size(trials, row, must[None])[0])
    prices = torch.ones(len(free)) if trials.price is None else trials.price[row, free].double().sort().values
    return int((prices.cumsum(0) < room - 1e-9).sum()) if room > 0 else -1


def _affordable(count: int, top: int, budget: int, done: int = 0) -> bool:
    """Whether there are at most `budget` sets of `done` to `top` of `count` units; looks no further than it must."""
    sets = 0
    for size in range(done, top + 1):
        sets += math.comb(count, size)
        if sets > budget:
            return False
    return True


def twins(trials: Trials, row: int, count: int) -> Tensor:
    """Pairs [p, 2] of interchangeable units of one instance: the second needs the first to be taken before it."""
    pack = trials.pack
    none = torch.zeros((0, 2), dtype=torch.long, device=trials.valid.device)
    entries = int(pack.entry_ptr[row + 1] - pack.entry_ptr[row])
    flags = (getattr(pack.units, name) for name in FLAGS)
    if any(flag is not None for flag in flags) or trials.rules is not None or trials.predictor.ordered:
        return none  # interchangeable to the model is not interchangeable to what is asked
    if entries or pack.extras or pack.sparse is not None or pack.units.edges.further.numel():
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
