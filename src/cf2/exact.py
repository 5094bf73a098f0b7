"""Proof by exhaustion: every set smaller than the answer, in order of size, packed.

Two edges to leaves that look alike (the same neighbour, the same features) can be exchanged without the model
noticing, so only sets that take such twins in their order need to be tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, islice

import torch
from torch import Tensor

from cf2.trials import Trials

BATCH = 2048


@dataclass(frozen=True, eq=False)
class Proof:
    """The sets after the proof, and of which instances what is proved [B]."""

    sets: Tensor  # [B, U]
    passed: Tensor
    optimal: Tensor
    impossible: Tensor


def prove(trials: Trials, sets: Tensor, passed: Tensor, budget: int) -> Proof:
    """Try every smaller set (every set, where none passes) of the instances for which `budget` sets are enough."""
    sets, passed = sets.clone(), passed.clone()
    optimal, impossible = torch.zeros_like(passed), torch.zeros_like(passed)
    units, sizes = trials.pack.units.tolist(), sets.sum(1).tolist()
    for row, (count, size) in enumerate(zip(units, sizes)):
        top = size - 1 if passed[row] else count
        if not count or _subsets(count, top) > budget or not bool(trials.open[row, :count].all()):
            continue
        smaller = _smallest(trials, row, count, top)
        if smaller is not None:
            sets[row], passed[row] = smaller, True
        optimal[row] = bool(passed[row])
        impossible[row] = not passed[row]
    return Proof(sets, passed, optimal, impossible)


def _subsets(count: int, top: int) -> int:
    return sum(math.comb(count, size) for size in range(top + 1))


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
    if entries or pack.extras or pack.entries is not None:
        return none  # only plain edges between nodes whose features are at hand are compared
    edges = slice(int(pack.edge_ptr[row]), int(pack.edge_ptr[row + 1]))
    nodes = range(int(pack.node_ptr[row]), int(pack.node_ptr[row + 1]))
    target = -1 if pack.target is None else int(pack.target[row])
    columns: dict[int, list[tuple[int, int, int]]] = {node: [] for node in nodes}
    for tail, head, unit in zip(*pack.edge_index[:, edges].tolist(), pack.edge_unit[edges].tolist()):
        columns[tail].append((head, unit, 0))
        columns[head].append((tail, unit, 1))
    leaves: dict[object, int] = {}
    pairs = []
    for node, seen in columns.items():
        ends, own = {end for end, _, _ in seen}, {unit for _, unit, _ in seen}
        if node == target or len(own) != 1 or -1 in own or len(ends) != 1:
            continue
        unit = own.pop() - int(pack.unit_ptr[row])
        look = (ends.pop(), tuple(sorted(way for _, _, way in seen)), pack.x[node].cpu().numpy().tobytes())
        if look in leaves:
            pairs.append((leaves[look], unit))
        leaves[look] = unit
    return torch.tensor(pairs, device=none.device) if pairs else none
