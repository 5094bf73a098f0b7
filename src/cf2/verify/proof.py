"""Proof by exhaustion: every set smaller than the answer, in order of size, packed.

Two edges to leaves that look alike (the same neighbour, the same features) can be exchanged without the model
noticing, so only sets that take such twins in their order need to be tried.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, islice

import torch
from torch import Tensor

from cf2.core.packed_units import FLAGS
from cf2.verify.trials import Trials

BATCH = 2048


@dataclass(frozen=True, eq=False)
class Proof:
    """The sets after the proof, and what is proved of which instances [B]."""

    sets: Tensor  # [B, U]
    passed: Tensor
    optimal: Tensor
    impossible: Tensor


def prove(trials: Trials, sets: Tensor, passed: Tensor, budget: int) -> Proof:
    """Try every smaller set (every set, where none passes) of the instances for which `budget` sets are enough."""
    sets, passed = sets.clone(), passed.clone()
    optimal, impossible = torch.zeros_like(passed), torch.zeros_like(passed)
    for row, count in enumerate(trials.counts.tolist()):
        free = _free(trials, row)
        top = _most(trials, row, sets[row], free) if passed[row] else len(free)
        if not count or trials.some_left_out[row] or not _affordable(len(free), top, budget):
            continue
        smaller = _smallest(trials, row, free, top, sets[row] if passed[row] else None)
        if smaller is not None:
            sets[row], passed[row] = smaller, True
        optimal[row] = bool(passed[row])
        impossible[row] = not passed[row]
    return Proof(sets, passed, optimal, impossible)


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


def _affordable(count: int, top: int, budget: int) -> bool:
    """Whether there are at most `budget` sets of at most `top` of `count` units; looks no further than it must."""
    sets = 0
    for size in range(top + 1):
        sets += math.comb(count, size)
        if sets > budget:
            return False
    return True


def _smallest(trials: Trials, row: int, free: Tensor, top: int, known: Tensor | None) -> Tensor | None:
    """The smallest passing set of at most `top` free units of one instance that is smaller than the known one."""
    before = twins(trials, row, int(trials.counts[row]))
    must = torch.zeros_like(trials.valid[row]) if trials.required is None else trials.required[row]
    best = known
    for number in range(top + 1):
        every = combinations(free.tolist(), number)
        while block := list(islice(every, BATCH)):
            sets = must.expand(len(block), -1).clone()
            if number:
                sets.scatter_(1, torch.tensor(block, device=sets.device), True)
            if len(before):
                sets = sets[(sets[:, before[:, 0]] | ~sets[:, before[:, 1]]).all(1)]
            if best is not None:
                sets = sets[_size(trials, row, sets) < _size(trials, row, best[None])]
            if not len(sets):
                continue
            good = sets[trials.passes(torch.full((len(sets),), row, device=sets.device), sets)]
            if len(good):
                best = good[int(_size(trials, row, good).argmin())]
                if trials.price is None:  # all that follow are larger
                    return best
    return None if best is known else best


def twins(trials: Trials, row: int, count: int) -> Tensor:
    """Pairs [p, 2] of interchangeable units of one instance: the second needs the first to be taken before it."""
    pack = trials.pack
    none = torch.zeros((0, 2), dtype=torch.long, device=trials.valid.device)
    entries = int(pack.entry_ptr[row + 1] - pack.entry_ptr[row])
    flags = (getattr(pack.units, name) for name in FLAGS)
    if any(flag is not None for flag in flags) or trials.rules is not None:
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
