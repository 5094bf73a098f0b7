"""Every shape that a set of so many edges of a graph can have, with one set of each: parts first, then choices of them.

A set is a choice of connected parts that share no node, and its shape is which shapes these parts have, and how often.
A graph has few connected sets of a few edges, and of these still fewer shapes; of 45 bonds one can choose 45 million
sets of seven, but only hundreds of shapes. So shapes are made from shapes: one of fewer edges, and a part that is no
larger than its smallest. Whether they fit side by side is looked up in the graph, by backtracking where need be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cf2.verify.alike import Shapes, Table

Numbers = NDArray[np.int64]
ENTRIES = 1 << 22  # of a table that is made at once
ROOM = 1 << 25  # entries of a table that is kept
STEPS = 200_000  # of backtracking for the shapes of one size: where these are not enough, nothing is said of it


@dataclass(frozen=True, eq=False)
class Parts:
    """All connected sets of one size, in the order of their classes."""

    sets: Table  # [P, U]
    nodes: NDArray[np.float32]  # [P, N], 1 where a part has a node
    starts: Numbers  # [C], the first part of each class
    first: int  # the number of the first class, counted over all sizes

    def of(self, kind: int) -> range:
        """The places of the parts of one class."""
        place = kind - self.first
        last = len(self.sets) if place + 1 == len(self.starts) else int(self.starts[place + 1])
        return range(int(self.starts[place]), last)


@dataclass(frozen=True, eq=False)
class Level:
    """One set of every shape of one size."""

    sets: Table  # [R, U]
    kinds: Numbers  # [R, most parts], the classes of its parts, the largest first; -1: no more parts
    keys: NDArray[np.uint64]  # [R], the sum of the random numbers of its classes

    @property
    def least(self) -> Numbers:
        """The smallest class of each."""
        known: Numbers = np.where(self.kinds < 0, np.iinfo(np.int64).max, self.kinds).min(1, initial=2**62)
        return known


class Census:
    """The shapes of the sets of one instance that hold only some of its units, by size."""

    def __init__(self, shapes: Shapes, free: list[int]) -> None:
        self.shapes, ends = shapes, shapes.ends.numpy()
        count, nodes = ends.shape[1], len(shapes.colours)
        self.touches = np.zeros((count, nodes), dtype=np.float32)
        for end in ends:
            self.touches[np.arange(count), end] = 1
        self.touching = self.touches @ self.touches.T > 0
        self.near = self.touching.copy()
        self.near &= np.isin(np.arange(count), free)[None]
        self.single = np.eye(count, dtype=bool)[free]
        self.parts: list[Parts] = []  # of one edge, of two, …
        self.numbers = np.zeros(0, dtype=np.uint64)  # a random one per class
        self.size_of = np.zeros(0, dtype=np.int64)  # the edges of each class
        none = np.zeros((1, 0), dtype=np.int64)
        self.levels = [Level(np.zeros((1, count), dtype=bool), none, np.zeros(1, dtype=np.uint64))]
        degree = self.touches[free].sum(0)
        colours = shapes.colours.numpy()
        self.looks = [
            (colour, edges)
            for colour in range(int(colours.max(initial=-1)) + 1)
            for edges in range(1, int(degree[colours == colour].max(initial=0)) + 1)
        ]
        self.stock = self._looking(colours[None], degree[None])[0]
        self.takes = np.zeros((0, len(self.looks)), dtype=np.int64)  # the same for each class
        self.cost = 0  # how many sets the last level asks to be run
        self._draw = np.random.default_rng(0)
        self._masks: dict[int, list[tuple[int, int]]] = {}

    def _looking(self, colours: Numbers, degree: NDArray[np.float32]) -> Numbers:
        """How many nodes of each colour have at least so many edges, of rows of nodes [R, N] -> [R, looks]."""
        found = [((colours == colour) & (degree >= edges)).sum(1) for colour, edges in self.looks]
        return np.stack(found, 1) if found else np.zeros((len(degree), 0), dtype=np.int64)

    def level(self, size: int, most: int) -> Level | None:
        """One set of each shape of so many edges; None where that is more than `most`, or hard to tell."""
        self.cost = 0
        most = min(most, ROOM // max(len(self.near), 1))
        while len(self.levels) <= size:
            if not self.grown(len(self.levels), most):
                return None
            level = self._next(most)
            if level is None:
                return None
            self.levels.append(level)
        self.cost = len(self.levels[size].sets)
        return self.levels[size]

    def grown(self, size: int, most: int) -> bool:
        """List the connected sets up to a size, if those of a smaller size are no more than `most`."""
        while len(self.parts) < size:
            if self.parts and len(self.parts[-1].sets) > min(most, ROOM // max(len(self.near), 1)):
                return False
            self._grow()
        return True

    def _grow(self) -> None:
        sets = self.single
        if self.parts:
            last = self.parts[-1].sets
            border = (last.astype(np.float32) @ self.near.astype(np.float32) > 0) & ~last
            row, unit = border.nonzero()
            sets = last[row]
            sets[np.arange(len(row)), unit] = True
            sets = _once(sets)
        kind = self.shapes.classes(sets)
        order = np.argsort(kind, kind="stable")
        sets, kind = sets[order], kind[order]
        starts = np.flatnonzero(np.diff(kind, prepend=-1))
        nodes = (sets.astype(np.float32) @ self.touches > 0).astype(np.float32)
        self.parts.append(Parts(sets, nodes, starts, len(self.numbers)))
        of_one = sets[starts].astype(np.float32) @ self.touches
        self.takes = np.concatenate([self.takes, self._looking(self.shapes.colours.numpy()[None], of_one)])
        fresh = self._draw.integers(1, 2**63, len(starts)).astype(np.uint64)
        self.numbers = np.concatenate([self.numbers, fresh])
        self.size_of = np.concatenate([self.size_of, np.full(len(starts), len(self.parts))])

    def _next(self, most: int) -> Level | None:
        """Every shape of the next size: one of a smaller size and a part that is no larger than its smallest."""
        size, steps, found = len(self.levels), STEPS, 0
        made: list[Level] = []
        for number, parts in enumerate(self.parts[:size], 1):
            level = self.levels[size - number]
            if not len(parts.starts) or not len(level.sets):
                continue
            kinds = parts.first + np.arange(len(parts.starts))
            stride = max(1, ENTRIES // max(len(parts.sets), level.sets.shape[1]))
            for low in range(0, len(level.sets), stride):
                some = slice(low, low + stride)
                used = (level.sets[some].astype(np.float32) @ self.touches > 0).astype(np.float32)
                free = used @ parts.nodes.T == 0
                may = level.least[some, None] >= kinds[None]
                place = np.minimum.reduceat(np.where(free, np.arange(free.shape[1]), free.shape[1]), parts.starts, 1)
                fits = place < free.shape[1]
                row, kind = (may & fits).nonzero()
                sets = level.sets[low + row] | parts.sets[place[row, kind]]
                made.append(self._joined(level, low + row, parts.first + kind, sets))
                row, kind = (may & ~fits).nonzero()
                left = self._joined(level, low + row, parts.first + kind, None)
                placed, steps = self._placed(left, size, steps)
                if steps <= 0:
                    return None
                made.append(placed)
                found += len(made[-1].sets) + len(made[-2].sets)
                if found > most:
                    return None
        if not made:
            empty = self.levels[0]
            return Level(empty.sets[:0], np.zeros((0, size), dtype=np.int64), empty.keys[:0])
        return Level(*(np.concatenate([getattr(one, name) for one in made]) for name in ("sets", "kinds", "keys")))

    def _joined(self, level: Level, row: Numbers, kind: Numbers, sets: Table | None) -> Level:
        """Shapes of a level with a part of a class each; the sets are known or not yet."""
        size = len(self.levels)
        kinds = np.full((len(row), size), -1, dtype=np.int64)
        before = level.kinds[row]
        kinds[:, : before.shape[1]] = before
        kinds[np.arange(len(row)), (before >= 0).sum(1)] = kind
        sets = np.zeros((len(row), level.sets.shape[1]), dtype=bool) if sets is None else sets
        return Level(sets, kinds, level.keys[row] + self.numbers[kind])

    def _placed(self, level: Level, size: int, steps: int) -> tuple[Level, int]:
        """Those shapes for which the graph has room, each with a set; what holds a shape without room has none."""
        live = np.ones(len(level.keys), dtype=bool)
        for column in range(level.kinds.shape[1]):
            kind = level.kinds[:, column]
            lost = np.where(kind < 0, 0, self.size_of[kind])
            for less in np.unique(lost[live & (lost > 0)]).tolist():
                asked = np.flatnonzero(live & (lost == less))
                keys = level.keys[asked] - self.numbers[kind[asked]]
                live[asked] = np.isin(keys, self.levels[size - less].keys)
        live &= self.enough(level.kinds)
        keep = []
        for row in np.flatnonzero(live).tolist():
            found, used = self.place([kind for kind in level.kinds[row].tolist() if kind >= 0], steps)
            steps -= used
            if steps <= 0:
                break
            if found is not None:
                level.sets[row] = found
                keep.append(row)
        return Level(level.sets[keep], level.kinds[keep], level.keys[keep]), steps

    def enough(self, kinds: Numbers) -> Table:
        """Whether there are as many nodes of every colour, and with as many edges, as shapes [R, parts] take."""
        need = np.zeros((len(kinds), self.stock.shape[0]), dtype=np.int64)
        for column in kinds.T:
            need += np.where(column[:, None] >= 0, self.takes[column], 0)
        enough: Table = (need <= self.stock).all(1)
        return enough

    def place(self, kinds: list[int], steps: int) -> tuple[Table | None, int]:
        """A set of a shape, or None, and how many steps of backtracking that took."""
        start = steps
        stack = [
            (0, [(kind, self._parts(kind)) for kind in kinds])
        ]  # the edges that are taken, and where the rest may go
        while stack and steps > 0:
            edges, left = stack.pop()
            if not left:
                return self._row(edges), start - steps
            steps -= 1
            left.sort(key=lambda one: (len(one[1]), one[0]))
            (kind, first), *others = left
            for place in range(len(first) - 1, -1, -1):
                nodes, more = first[place]
                rest = []
                for other, parts in others:  # of equal parts, one order
                    fits = [part for part in (first[place + 1 :] if other == kind else parts) if not part[0] & nodes]
                    if not fits:
                        break
                    rest.append((other, fits))
                else:
                    stack.append((edges | more, rest))
        return None, start - steps

    def components(self, chosen: Table) -> Table:
        """The connected parts of a set [U], one row each."""
        left, parts = chosen.copy(), [np.zeros((0, len(chosen)), dtype=bool)]
        while left.any():
            part = np.zeros_like(left)
            part[np.flatnonzero(left)[0]] = True
            while (grown := left & (self.touching[part].any(0) | part)).sum() > part.sum():
                part = grown
            parts.append(part[None])
            left &= ~part
        return np.concatenate(parts)

    def _row(self, edges: int) -> Table:
        count = len(self.near)
        bits = np.frombuffer(edges.to_bytes((count + 7) // 8, "little"), dtype=np.uint8)
        return np.unpackbits(bits, count=count, bitorder="little").astype(bool)

    def placements(self, kinds: Numbers) -> Iterator[Table]:
        """Every set of a shape, the classes of whose parts are given."""
        wanted = sorted((kind for kind in kinds.tolist() if kind >= 0), key=lambda kind: (len(self._parts(kind)), kind))
        lists = [self._parts(kind) for kind in wanted]
        stack = [(0, 0, 0, 0)]  # how many parts are placed, where to go on, the nodes and the edges that are taken
        while stack:
            depth, start, nodes, edges = stack.pop()
            if depth == len(lists):
                yield self._row(edges)
                continue
            same = depth + 1 < len(lists) and wanted[depth + 1] == wanted[depth]  # of equal parts, one order
            parts = lists[depth]
            for place in range(len(parts) - 1, start - 1, -1):
                taken, chosen = parts[place]
                if not taken & nodes:
                    stack.append((depth + 1, place + 1 if same else 0, nodes | taken, edges | chosen))

    def _parts(self, kind: int) -> list[tuple[int, int]]:
        """The parts of a class, as the bits of their nodes and of their edges."""
        if kind not in self._masks:
            parts = self.parts[int(self.size_of[kind]) - 1]
            self._masks[kind] = [(_bits(parts.nodes[place] > 0), _bits(parts.sets[place])) for place in parts.of(kind)]
        return self._masks[kind]


def _bits(row: Table) -> int:
    return int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")


def _once(sets: Table) -> Table:
    """Every row once."""
    if not len(sets):
        return sets
    bits = np.ascontiguousarray(np.packbits(sets, axis=1))
    first = np.unique(bits.view(np.dtype((np.void, bits.shape[1]))).ravel(), return_index=True)[1]
    return sets[first]
