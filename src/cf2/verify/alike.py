"""Sets that look alike: of a graph as a whole, what the model says of S alone is the same for all of one shape.

Two sets have the same shape if a renumbering of the nodes, features and all, takes the edges of the one to those of the
other. Where a set is connected, refining the colours of its nodes tells that exactly if it has at most one cycle: equal
colours mean equal universal covers, and of so many nodes only one tree, or one cycle with trees on it, has a given one.
Of sets with more cycles, equal colours are confirmed by looking for the renumbering itself.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cf2.verify.trials import Trials

MIXERS = (-7046029254386353131, -4417276706812531889, 6364136223846793005, 2862933555777941757)

Table = NDArray[np.bool_]


def applies(trials: Trials) -> int | None:
    """The test that looks at S alone, where shapes are known: plain graphs, whose model is handed nothing else."""
    pack = trials.pack
    if pack.targets.size(1) or trials.carried_out is None or trials.fixed is not None or trials.predictor.ordered:
        return None
    if (
        pack.sparse is not None
        or any(kind != "graph" for kind, _ in pack.extras.values())
        or not pack.units.edges.every
        or trials.required is not None
        or trials.price is not None
    ):
        return None
    return next((column for column, test in enumerate(trials.tests) if test.intervention.keeps), None)


class Shapes:
    """The edges of one instance, one per unit, and the colours of its nodes: nodes with the same features share one."""

    def __init__(self, ends: Tensor, colours: Tensor) -> None:
        self.ends, self.colours = ends, colours  # [2, U] and [N], on the CPU
        self.mixed = _mixed(colours + 1, MIXERS[0])
        self.pairs: list[tuple[int, int]] = [(one, other) for one, other in ends.t().tolist()]

    @classmethod
    def of(cls, trials: Trials, row: int) -> Shapes | None:
        """Those of an instance; None where a unit is not one undirected edge."""
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
        return cls(one, torch.unique(pack.x[low:high].cpu(), dim=0, return_inverse=True)[1])

    def keys(self, sets: Table) -> NDArray[np.int64]:
        """A key [R, 2] per set [R, U]: equal for sets of one shape; of forests, for no others."""
        row, unit = torch.from_numpy(sets).nonzero(as_tuple=True)
        tail, head = (row * len(self.colours) + end[unit] for end in self.ends)
        colour = self.mixed.repeat(len(sets))  # one after the other; nodes without edges keep theirs
        for _ in range(int(sets.sum(1).max()) if len(sets) else 0):
            one, other = colour[tail], colour[head]
            colour[tail], colour[head] = one * MIXERS[2], other * MIXERS[2]
            colour.index_add_(0, tail, _mixed(other, MIXERS[1]))
            colour.index_add_(0, head, _mixed(one, MIXERS[1]))
        last = _mixed(colour, MIXERS[3]).view(len(sets), len(self.colours))
        return np.asarray(torch.stack([last.sum(1), (last * last).sum(1)], 1))

    def classes(self, sets: Table) -> NDArray[np.int64]:
        """A number [R] per connected set [R, U], the same for those of one shape and for nothing else."""
        number = np.unique(self.keys(sets), axis=0, return_inverse=True)[1].reshape(-1)
        joined = np.zeros((len(sets), len(self.colours)), dtype=bool)
        row, unit = sets.nonzero()
        for end in self.ends.numpy():
            joined[row, end[unit]] = True
        first: dict[int, list[int]] = {}  # by number, one set of each shape that has it
        more = int(number.max(initial=-1)) + 1
        for place in np.flatnonzero(joined.sum(1) < sets.sum(1)).tolist():  # more edges than nodes: two cycles
            known = first.setdefault(int(number[place]), [])
            same = (other for other in known if self.isomorphic(sets[place], sets[other]))
            match = next(same, None)
            if match is not None:
                number[place] = number[match]
                continue
            if known:
                number[place], more = more, more + 1
            known.append(place)
        return number

    def isomorphic(self, one: Table, other: Table) -> bool:
        """Whether a renumbering of the nodes takes one connected set [U] to the other, of as many edges."""
        mine, theirs = self._near(one), self._near(other)
        if not mine or len(mine) != len(theirs):
            return len(mine) == len(theirs)
        order = [next(iter(mine))]
        for node in order:
            order += [near for near in sorted(mine[node]) if near not in order]
        colour = self.colours.tolist()

        def fits(node: int, image: int, taken: dict[int, int]) -> bool:
            alike = colour[node] == colour[image] and len(mine[node]) == len(theirs[image])
            return alike and all(taken[near] in theirs[image] for near in mine[node] if near in taken)

        paths: list[dict[int, int]] = [{}]
        while paths:
            taken = paths.pop()
            if len(taken) == len(order):
                return True
            node = order[len(taken)]
            before = next((taken[near] for near in mine[node] if near in taken), None)
            choice = theirs if before is None else theirs[before]
            used = set(taken.values())
            paths += [taken | {node: image} for image in choice if image not in used and fits(node, image, taken)]
        return False

    def _near(self, one: Table) -> dict[int, set[int]]:
        near: dict[int, set[int]] = {}
        for unit in np.flatnonzero(one).tolist():
            tail, head = self.pairs[unit]
            near.setdefault(tail, set()).add(head)
            near.setdefault(head, set()).add(tail)
        return near


def _mixed(value: Tensor, mixer: int) -> Tensor:
    value = (value ^ (value >> 29)) * mixer
    return value ^ (value >> 32)
