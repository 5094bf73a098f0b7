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
    units, sizes = trials.counts.tolist(), sets.sum(1).tolist()
    for row, (count, size) in enumerate(zip(units, sizes)):
        top = size - 1 if passed[row] else count
        free = bool(trials.selectable[row, :count].all()) and (
            trials.required is None or not trials.required[row].any()
        )
        if not count or not free or not _affordable(count, top, budget):
            continue  # every set is tried, so every set must be allowed
        smaller = _smallest(trials, row, count, top)
        if smaller is not None:
            sets[row], passed[row] = smaller, True
        optimal[row] = bool(passed[row])
        impossible[row] = not passed[row]
    return Proof(sets, passed, optimal, impossible)


def _affordable(count: int, top: int, budget: int) -> bool:
    """Whether there are at most `budget` sets of at most `top` of `count` units; looks no further than it must."""
    sets = 0
    for size in range(top + 1):
        sets += math.comb(count, size)
        if sets > budget:
            return False
    return True


def _smallest(trials: Trials, row: int, count: int, top: int) -> Tensor | None:
    """The first passing set of at most `top` of the `count` units of one instance, by size."""
    before = twins(trials, row, count)
    for size in range(top + 1):
        every = combinations(range(count), size)
        while block := list(islice(every, BATCH)):
            sets = torch.zeros(len(block), trials.width, dtype=torch.bool, device=trials.valid.device)
            if size:
                sets.scatter_(1, torch.tensor(block, device=sets.device), True)
            if len(before):
                sets = sets[(sets[:, before[:, 0]] | ~sets[:, before[:, 1]]).all(1)]
            rows = torch.full((len(sets),), row, device=sets.device)
            good = trials.passes(rows, sets).nonzero().flatten()
            if len(good):
                return sets[good[0]]
    return None


def twins(trials: Trials, row: int, count: int) -> Tensor:
    """Pairs [p, 2] of interchangeable units of one instance: the second needs the first to be taken before it."""
    pack = trials.pack
    none = torch.zeros((0, 2), dtype=torch.long, device=trials.valid.device)
    entries = int(pack.entry_ptr[row + 1] - pack.entry_ptr[row])
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
