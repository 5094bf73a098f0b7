"""Sets that look alike: of a graph as a whole, what the model says of S alone is the same for all of one shape.

Two sets have the same shape if a renumbering of the nodes, features and all, takes the edges of the one to those of the
other. Where a set is connected, refining the colours of its nodes tells that exactly if it has at most one cycle: equal
colours mean equal universal covers, and of so many nodes only one tree, or one cycle with trees on it, has a given one.
Of sets with more cycles, equal colours are confirmed by looking for the renumbering itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool, global_mean_pool

from cf2.models.adapters import TensorAdapter
from cf2.models.equal_rows import MIXERS, mixed
from cf2.sets.oracle import Listing
from cf2.sets.proof import MAX_SETS_PER_CALL, Exhaustion, every_set, in_twin_order, twins
from cf2.sets.tests import PredictedClass
from cf2.sets.trials import Trials

if TYPE_CHECKING:
    from cf2.models.oracle import GraphOracle

Table = NDArray[np.bool_]


class Shapes:
    """The edges of one instance, one per unit, and the colours of its nodes: nodes with the same features share one."""

    def __init__(self, ends: Tensor, colours: Tensor) -> None:
        self.ends, self.colours = ends, colours  # [2, U] and [N], on the CPU
        self.mixed = mixed(colours + 1, 0)
        self.pairs: list[tuple[int, int]] = [(one, other) for one, other in ends.t().tolist()]

    @classmethod
    def of(cls, oracle: GraphOracle, row: int) -> Shapes | None:
        """Those of an instance; None where a unit is not one undirected edge."""
        pack, removals = oracle.pack, oracle.removals
        assert removals is not None
        first, last = pack.edge_ptr[row : row + 2].tolist()
        low, high = pack.node_ptr[row : row + 2].tolist()
        edges, unit = (pack.edge_index[:, first:last] - low).cpu(), removals.unit[first:last].cpu()
        count = int(oracle.counts[row])
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
            colour.index_add_(0, tail, mixed(other, 1))
            colour.index_add_(0, head, mixed(one, 1))
        last = mixed(colour, 3).view(len(sets), len(self.colours))
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


# -- connected parts, and the shapes that are made of them ------------------------------------------------------


Numbers = NDArray[np.int64]
MAX_ENTRIES_PER_CALL = 1 << 22  # of a table that is made at once
MAX_ENTRIES_KEPT = 1 << 25  # entries of a table that is kept
MAX_STEPS = 200_000  # of backtracking for the shapes of one size: where these are not enough, nothing is said of it


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
        most = min(most, MAX_ENTRIES_KEPT // max(len(self.near), 1))
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
            if self.parts and len(self.parts[-1].sets) > min(most, MAX_ENTRIES_KEPT // max(len(self.near), 1)):
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
        size, steps, found = len(self.levels), MAX_STEPS, 0
        made: list[Level] = []
        for number, parts in enumerate(self.parts[:size], 1):
            level = self.levels[size - number]
            if not len(parts.starts) or not len(level.sets):
                continue
            kinds = parts.first + np.arange(len(parts.starts))
            stride = max(1, MAX_ENTRIES_PER_CALL // max(len(parts.sets), level.sets.shape[1]))
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


# -- shapes that a head cannot let pass -------------------------------------------------------------------------


MAX_SHAPES_PER_CALL = 1 << 11  # shapes that are bounded at once
BOUNDS_PER_RUN = 8  # so many bounds of a head for one run of the model
RELATIVE_MARGIN = 1e-3  # relative: bounds nearer to 0 refute nothing, as the model itself computes in single precision
CLASS_OUTPUTS = ("logits", "log_probabilities", "probabilities")  # the largest is the answer
SETS_CHECKED = 8  # sets on which it is seen that parts add up

Branch = tuple[Tensor, Tensor, Tensor, Tensor]  # of shapes: z [R, d], classes [R, parts], edges left [R], looks [R, l]


class Head:
    """Linear layers with ReLU between them, and bounds of the lead of the answer: `PredictedClass` wants it above 0."""

    def __init__(self, head: nn.Sequential, answer: int) -> None:
        linear = [part for part in head if isinstance(part, nn.Linear)]
        self.first = _weights(linear[0])
        self.further = [_weights(part) for part in linear[1:]]
        classes = linear[-1].out_features
        others = [place for place in range(classes) if place != answer]
        self.lead = torch.zeros(len(others), classes, dtype=torch.double, device=self.first[0].device)
        self.lead[torch.arange(len(others)), others] = -1.0
        self.lead[:, answer] = 1.0

    def exact(self, z: Tensor) -> Tensor:
        """The least lead [R], from what the first layer gives [R, d]."""
        for weight, bias in self.further:
            z = z.relu() @ weight + bias
        return (z @ self.lead.t()).amin(1)

    def linear(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Rows on z [R, K, d] and constants [R, K]: upper bounds of all leads, for z in an interval [R, d] each."""
        before = [(low, high)]
        for weight, bias in self.further[:-1]:
            low, high = low.relu(), high.relu()
            up, down = weight.clamp(min=0), weight.clamp(max=0)
            low, high = low @ up + high @ down + bias, high @ up + low @ down + bias
            before.append((low, high))
        rows = self.lead.expand(len(low), -1, -1)
        constant = torch.zeros(rows.shape[:2], dtype=rows.dtype, device=rows.device)
        for (weight, bias), (low, high) in zip(reversed(self.further), reversed(before)):
            constant = constant + rows @ bias
            rows = rows @ weight.t()
            rows, shift = _through(rows, low[:, None], high[:, None])
            constant = constant + shift
        return rows, constant


def _weights(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    weight = layer.weight.detach().t().double()
    return weight, torch.zeros_like(weight[0]) if layer.bias is None else layer.bias.detach().double()


def _through(rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Upper linear bounds of rows [R, K, d] times ReLU(z) for z in an interval: rows on z, and constants [R, K]."""
    wide = (high - low).clamp(min=1e-300)
    open_ = (low < 0) & (high > 0)
    upper = torch.where(open_, high / wide, (low >= 0).double())
    lower = torch.where(open_, (high > -low).double(), (low >= 0).double())
    shift = torch.where(open_, -low * high / wide, 0.0)
    return rows * torch.where(rows > 0, upper, lower), (rows.clamp(min=0) * shift).sum(2)


def head_of(trials: Trials) -> nn.Sequential | None:
    """The head of a model that says of itself, by `splits_at_pool`, that it is `head(pool(embed(x, edge_index)))`."""
    oracle: GraphOracle = trials.oracle  # type: ignore[assignment]
    model: Any = oracle.predictor.model
    findings = oracle.predictor.findings
    if not getattr(model, "splits_at_pool", False) or not isinstance(oracle.predictor.adapter, TensorAdapter):
        return None
    if oracle.predictor.alone or findings is None or findings.output not in CLASS_OUTPUTS or findings.columns < 2:
        return None
    if not all(test.same for test in trials.tests if test.intervention.keeps):
        return None
    if not isinstance(trials.criterion, PredictedClass) or oracle.pack.extras or oracle.pack.sparse is not None:
        return None
    pool, head = getattr(model, "pool", None), getattr(model, "head", None)
    if pool not in (global_add_pool, global_mean_pool) or not isinstance(head, nn.Sequential):
        return None
    kinds = [nn.Linear if place % 2 == 0 else nn.ReLU for place in range(len(head))]
    plain = len(kinds) % 2 == 1 and all(type(part) is kind for part, kind in zip(head, kinds))
    return head if plain else None


class Bounded:
    """The shapes of one instance that could pass alone, by size; all others are refuted."""

    def __init__(self, trials: Trials, row: int, census: Census, head: nn.Sequential) -> None:
        self.trials, self.row, self.census = trials, row, census
        self.oracle: GraphOracle = trials.oracle  # type: ignore[assignment]
        self.head = Head(head, int(trials.criterion.answers[row]))
        self.nodes = int(self.oracle.pack.node_ptr[row : row + 2].diff())
        model: Any = self.oracle.predictor.model
        self.share = 1 / max(self.nodes, 1) if model.pool is global_mean_pool else 1.0
        self.nothing = self._sums(np.zeros((1, len(census.near)), dtype=bool))
        weight, bias = self.head.first
        self.start = self.nothing * self.share @ weight + bias
        self.gain = self.start[:0]  # by class, what a part adds to the first layer of the head
        self.ends = [0]  # how many classes have at most so many edges
        self.low, self.high = torch.zeros_like(self.start), torch.zeros_like(self.start)  # the same per edge, at most
        self.size = torch.zeros(0, dtype=torch.long, device=self.start.device)
        self.cost = 0

    @classmethod
    def of(cls, trials: Trials, row: int, census: Census) -> Bounded | None:
        """Those of an instance, where the model is known to split at its pooling, and is seen to."""
        head = head_of(trials)
        if head is None:
            return None
        bounded = cls(trials, row, census, head)
        return bounded if bounded.adds_up() else None

    def adds_up(self) -> bool:
        """Whether parts add up, and the head on their sum says what the model says, on a few sets."""
        count = len(self.census.near)
        draw = np.random.default_rng(0)
        sets = draw.random((SETS_CHECKED, count)) < np.linspace(0.1, 0.9, SETS_CHECKED)[:, None]
        whole = self._sums(sets)
        for place, chosen in enumerate(sets):
            parts = self.census.components(chosen)
            sums = self.nothing[0] + (self._sums(parts) - self.nothing).sum(0)
            if not torch.allclose(sums, whole[place], atol=1e-4, rtol=1e-4):
                return False
        weight, bias = self.head.first
        said = whole * self.share @ weight + bias
        for further, shift in self.head.further:
            said = said.relu() @ further + shift
        packed = self._packed(sets)
        rows = self.oracle.predictor.hard(packed, self.trials.valid.new_zeros(0))
        return torch.allclose(self.oracle.predictor.probabilities(said.to(rows.dtype)), rows, atol=1e-4)

    def _packed(self, sets: np.ndarray[Any, np.dtype[np.bool_]]) -> Any:
        assert self.oracle.removals is not None
        table = torch.zeros((len(sets), self.trials.width), dtype=torch.bool)
        table[:, : sets.shape[1]] = torch.from_numpy(sets)
        rows = torch.full((len(sets),), self.row)
        device = self.trials.valid.device
        return self.oracle.removals.packed(rows.to(device), table.to(device))

    def _sums(self, sets: np.ndarray[Any, np.dtype[np.bool_]]) -> Tensor:
        """The sums of the states of all nodes [R, width], with only these sets [R, U]."""
        model: Any = self.oracle.predictor.model
        found = []
        for low in range(0, len(sets), 1024):
            packed = self._packed(sets[low : low + 1024])
            with torch.no_grad():
                states = model.embed(packed.x, packed.edge_index).double()
            found.append(states.view(-1, self.nodes, states.size(1)).sum(1))
        self.trials.evaluations[self.row] += len(sets)
        return torch.cat(found) if found else self.nothing[:0]

    def _learn(self, size: int, most: int) -> bool:
        """Run one part of every class up to a size; whether these are no more than `most`."""
        while len(self.ends) <= size:
            if self.cost > most or not self.census.grown(len(self.ends), most):
                return False
            parts = self.census.parts[len(self.ends) - 1]
            sums = self._sums(parts.sets[parts.starts])
            self.cost += len(sums)
            gain = (sums - self.nothing) * self.share @ self.head.first[0]
            self.gain = torch.cat([self.gain, gain])
            self.size = torch.cat([self.size, torch.full((len(gain),), len(self.ends), device=gain.device)])
            rate = torch.cat([gain / len(self.ends), torch.zeros_like(self.start)])
            self.low = torch.cat([self.low, torch.minimum(self.low[-1:], rate.amin(0))])
            self.high = torch.cat([self.high, torch.maximum(self.high[-1:], rate.amax(0))])
            self.ends.append(len(self.gain))
        return True

    def level(self, size: int, most: int) -> Level | None:
        """A set of every shape of so many edges that is not refuted; None where that takes more than `most` runs."""
        self.cost = 0
        if not self._learn(size, most):
            return None
        takes, stock = (torch.from_numpy(t).to(self.start.device) for t in (self.census.takes, self.census.stock))
        ends = torch.tensor(self.ends, device=self.start.device)
        whole = self.start.new_full((1,), size, dtype=torch.long)
        stack: list[Branch] = [(self.start, whole.new_zeros((1, 0)), whole, takes.new_zeros((1, len(stock))))]
        found: list[list[int]] = [[]] if not size and bool(self._close(self.start)) else []
        left = BOUNDS_PER_RUN * (most - self.cost)
        while stack and size:
            z, kinds, rest, looks = stack.pop()
            least = kinds[:, -1] + 1 if kinds.size(1) else ends[-1:]
            children = torch.minimum(least, ends[rest])
            some = max(1, int((children.cumsum(0) <= MAX_SHAPES_PER_CALL).sum()))
            if some < len(z):
                stack.append((z[some:], kinds[some:], rest[some:], looks[some:]))
            row = torch.arange(some, device=z.device).repeat_interleave(children[:some])
            kind = torch.arange(len(row), device=z.device) - (children[:some].cumsum(0) - children[:some])[row]
            fits = (looks[row] + takes[kind] <= stock).all(1).nonzero().flatten()
            row, kind = row[fits], kind[fits]
            left -= len(row)
            if left < 0:
                return None
            z, kinds = z[row] + self.gain[kind], torch.cat([kinds[row], kind[:, None]], 1)
            rest, looks = rest[row] - self.size[kind], looks[row] + takes[kind]
            last = (rest == 0).nonzero().flatten()
            found += kinds[last[self._close(z[last])]].tolist()
            more = (rest > 0).nonzero().flatten()
            more = more[~self._refuted(z[more], self.size[kind[more]], rest[more])]
            if len(more):
                stack.append((z[more], kinds[more], rest[more], looks[more]))
        self.cost += (BOUNDS_PER_RUN * (most - self.cost) - left) // BOUNDS_PER_RUN + len(found)
        return self._placed(found, size)

    def _close(self, z: Tensor) -> Tensor:
        """Which shapes may pass alone, all of whose edges are known."""
        return (
            self.head.exact(z) > -RELATIVE_MARGIN * (1 + z.abs().amax(1))
            if len(z)
            else z.new_zeros(0, dtype=torch.bool)
        )

    def _refuted(self, z: Tensor, largest: Tensor, rest: Tensor) -> Tensor:
        """Of which shapes [R] nothing that adds `rest` edges passes alone, in parts of at most the `largest` size."""
        largest = torch.minimum(largest, rest)
        low, high = z + rest[:, None] * self.low[largest], z + rest[:, None] * self.high[largest]
        rows, constant = self.head.linear(low, high)
        constant = (
            constant
            + (rows * z[:, None]).sum(2)
            + RELATIVE_MARGIN * (1 + torch.maximum(low.abs(), high.abs()).amax(1))[:, None]
        )
        by_box = torch.maximum(rows * self.low[largest][:, None], rows * self.high[largest][:, None]).sum(2)
        refuted = (constant + rest[:, None] * by_box < 0).any(1)
        for size in torch.unique(largest[~refuted]).tolist():
            some = (~refuted & (largest == size)).nonzero().flatten()
            rate = (self.gain / self.size[:, None])[: self.ends[size]]
            for part in some.split(max(1, (MAX_SHAPES_PER_CALL << 9) // len(rate))):
                most = (rows[part] @ rate.t()).amax(2).clamp(min=0)
                refuted[part] = (constant[part] + rest[part][:, None] * most < 0).any(1)
        return refuted

    def _placed(self, found: list[list[int]], size: int) -> Level | None:
        """Those shapes for which the graph has room, each with a set."""
        sets, kinds, steps = [np.zeros((0, len(self.census.near)), dtype=bool)], [], MAX_STEPS
        for one in found:
            placed, used = self.census.place(one, steps)
            steps -= used
            if steps <= 0:
                return None
            if placed is not None:
                sets.append(placed[None])
                kinds.append(one + [-1] * (size - len(one)))
        table = np.array(kinds, dtype=np.int64).reshape(len(kinds), size)
        return Level(np.concatenate(sets), table, np.zeros(len(kinds), dtype=np.uint64))


# -- the sets that a proof tries --------------------------------------------------------------------------------

MIN_SETS_FOR_SHAPES = 5_000  # a smaller proof is cheaper without
RUNS_PER_GRAPH = 2  # a run of a whole graph counts for so many sets of a node


def every_shape(search: Exhaustion, alone: int, shapes: Shapes) -> Listing:
    """All sets of the shapes of which one set passes the test that looks at S alone, the one in column `alone`."""
    trials, census = search.trials, Census(shapes, search.free)
    source = Bounded.of(trials, search.row, census) or census
    pairs = twins(trials, search.row)
    for number in range(search.exhausted, search.top + 1):
        level = source.level(number, search.left // RUNS_PER_GRAPH)
        if level is None or not search.spend(RUNS_PER_GRAPH * source.cost):
            yield from every_set(search)
            return
        good = [np.zeros(0, dtype=bool)]
        for low in range(0, len(level.sets), MAX_SETS_PER_CALL):
            passed = yield search.table(level.sets[low : low + MAX_SETS_PER_CALL]), alone
            good.append(passed.cpu().numpy())
        placed = chain.from_iterable(census.placements(kinds) for kinds in level.kinds[np.concatenate(good)])
        while some := list(islice(placed, MAX_SETS_PER_CALL)):
            if not search.spend(RUNS_PER_GRAPH * len(some)):
                return
            sets = search.allowed(in_twin_order(search.table(np.stack(some)), pairs))
            for column in range(len(trials.tests)):
                if column != alone and len(sets):  # that one is passed by the whole shape
                    sets = sets[(yield sets, column)]
            if len(sets):
                fits = yield sets, None
                if search.found(sets[fits]):
                    search.complete = True
                    return
        search.done(number)
