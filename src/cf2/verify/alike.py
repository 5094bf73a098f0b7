"""Sets that look alike: of a graph as a whole, what the model says of S alone is the same for all of one shape.

Two sets have the same shape if a renumbering of the nodes, features and all, takes the edges of the one to those of the
other. Where a set is a forest, refining the colours of its nodes tells exactly that (colour refinement identifies every
forest), so a proof by exhaustion runs one set of each shape. What has a cycle is told apart from all else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cf2.verify.cache import Table
from cf2.verify.trials import Trials

MIXERS = (-7046029254386353131, -4417276706812531889, 6364136223846793005, 2862933555777941757)
CYCLES = 256  # an instance with more cycles is left to plain exhaustion
STEPS = 100_000  # of the walk that lists them


def applies(trials: Trials) -> int | None:
    """The test that looks at S alone, where shapes are known: plain graphs, whose model is handed nothing else."""
    pack = trials.pack
    if pack.targets.size(1) or trials.carried_out is None or trials.fixed is not None:
        return None
    if (
        pack.sparse is not None
        or any(kind != "graph" for kind, _ in pack.extras.values())
        or not pack.units.edges.every
    ):
        return None
    return next((column for column, test in enumerate(trials.tests) if test.intervention.keeps), None)


class Shapes:
    """The shapes of sets of one instance, and whether one of each passes the test of S alone."""

    def __init__(self, ends: Tensor, colours: Tensor, cycles: Tensor) -> None:
        self.tail, self.head = ends  # of every unit
        self.colours, self.cycles = colours, cycles
        self.length = cycles.sum(0)
        self.known = Table(ends.device)
        draw = torch.Generator().manual_seed(2)
        self.numbers = torch.randint(1, 2**62, (len(self.tail), 2), generator=draw).to(ends.device)

    @classmethod
    def of(cls, trials: Trials, row: int) -> Shapes | None:
        """Those of an instance; None where a unit is not one undirected edge, or the cycles are too many."""
        pack, assembled = trials.pack, trials.carried_out
        assert assembled is not None
        first, last = pack.edge_ptr[row : row + 2].tolist()
        low, high = pack.node_ptr[row : row + 2].tolist()
        edges, unit = (pack.edge_index[:, first:last] - low).cpu(), assembled.unit[first:last].cpu()
        count = int(trials.counts[row])
        order = unit.argsort(stable=True)
        if edges.size(1) != 2 * count or not torch.equal(unit[order], torch.arange(count).repeat_interleave(2)):
            return None
        one, other = edges[:, order[::2]], edges[:, order[1::2]]
        if not torch.equal(one, other.flip(0)) or bool((one[0] == one[1]).any()):
            return None
        cycles = simple_cycles(one.t().tolist(), high - low)
        if cycles is None:
            return None
        colours = torch.unique(pack.x[low:high].cpu(), dim=0, return_inverse=True)[1]
        table = torch.zeros(count, len(cycles))
        for place, cycle in enumerate(cycles):
            table[list(cycle), place] = 1
        device = pack.node_ptr.device
        return cls(one.to(device), _mixed(colours + 1, MIXERS[0]).to(device), table.to(device))

    def keys(self, sets: Tensor) -> Tensor:
        """A key [2, R] per set [R, U]: equal for forests of one shape, and for nothing else."""
        sets = sets[:, : len(self.tail)]  # an instance may have fewer units than others of its pack
        row, unit = sets.nonzero(as_tuple=True)
        tail, head = (row * len(self.colours) + end[unit] for end in (self.tail, self.head))
        colour = self.colours.repeat(len(sets))  # one after the other; nodes without edges keep theirs
        for _ in range(int(sets.sum(1).max()) if len(sets) else 0):
            one, other = colour[tail], colour[head]
            colour[tail], colour[head] = one * MIXERS[2], other * MIXERS[2]
            colour.index_add_(0, tail, _mixed(other, MIXERS[1]))
            colour.index_add_(0, head, _mixed(one, MIXERS[1]))
        last = _mixed(colour, MIXERS[3]).view(len(sets), -1)
        keys = torch.stack([last.sum(1), (last * last).sum(1)])
        if len(self.length):
            cyclic = (sets.float() @ self.cycles == self.length).any(1).nonzero().flatten()
            for half in (0, 1):
                keys[half, cyclic] = (sets[cyclic].long() * self.numbers[:, half]).sum(1)
        return keys


def _mixed(value: Tensor, mixer: int) -> Tensor:
    value = (value ^ (value >> 29)) * mixer
    return value ^ (value >> 32)


def simple_cycles(edges: list[list[int]], nodes: int) -> list[frozenset[int]] | None:
    """Every simple cycle of an undirected graph, as the places of its edges; None where there are many."""
    near: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
    for place, (one, other) in enumerate(edges):
        near[one].append((other, place))
        near[other].append((one, place))
    found: set[frozenset[int]] = set()
    steps = 0
    for start in range(nodes):  # cycles of which this is the first node
        paths: list[tuple[int, frozenset[int], frozenset[int]]] = [(start, frozenset([start]), frozenset())]
        while paths:
            node, been, used = paths.pop()
            steps += 1
            for other, place in near[node]:
                if other == start and len(used) > 1 and place not in used:
                    found.add(used | {place})
                elif other > start and other not in been:
                    paths.append((other, been | {other}, used | {place}))
            if steps > STEPS or len(found) > CYCLES:
                return None
    return list(found)
