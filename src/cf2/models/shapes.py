"""Sets of edges that look alike: a model that reads a whole graph gives all sets of one shape the same output alone.

Two sets have the same shape if a renumbering of the nodes, features included, maps the edges of one to those of the
other. So a proof runs one set of every shape, and goes back to single sets only for the shapes that pass.

Colour refinement decides equality of shape exactly for connected sets with at most one cycle: equal colours mean equal
universal covers, and only one tree of that many nodes, or one cycle with trees on it, has a given universal cover. For
sets with more cycles, equal colours are confirmed by a search for the renumbering itself (VF2++).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
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
    """The edges of one instance, one per unit, and the colours of its nodes. Equal features give equal colours."""

    def __init__(self, ends: Tensor, colours: Tensor) -> None:
        self.ends, self.colours = ends, colours  # [2, U] and [N], on the CPU
        self.mixed = mixed(colours + 1, 0)
        self.pairs: list[tuple[int, int]] = [(tail, head) for tail, head in ends.t().tolist()]

    @classmethod
    def of(cls, oracle: GraphOracle, row: int) -> Shapes | None:
        """The shapes of an instance, or None if some unit is not one undirected edge."""
        pack, removals = oracle.pack, oracle.removals
        assert removals is not None
        first, last = pack.edge_ptr[row : row + 2].tolist()
        low, high = pack.node_ptr[row : row + 2].tolist()
        edges, unit = (pack.edge_index[:, first:last] - low).cpu(), removals.unit[first:last].cpu()
        count = int(oracle.counts[row])
        order = unit.argsort(stable=True)
        if edges.size(1) != 2 * count or not torch.equal(unit[order], torch.arange(count).repeat_interleave(2)):
            return None
        forth, back = edges[:, order[::2]], edges[:, order[1::2]]
        if not torch.equal(forth, back.flip(0)) or bool((forth[0] == forth[1]).any()):
            return None
        return cls(forth, torch.unique(pack.x[low:high].cpu(), dim=0, return_inverse=True)[1])

    def keys(self, sets: Table) -> NDArray[np.int64]:
        """A key [R, 2] per set [R, U]: equal for sets of one shape, and different for two forests of other shapes."""
        row, unit = torch.from_numpy(sets).nonzero(as_tuple=True)
        tail, head = (row * len(self.colours) + end[unit] for end in self.ends)
        colour = self.mixed.repeat(len(sets))  # all copies of the graph end to end; a node without edges keeps its own
        # The longest path has as many edges as the largest set, so after that many rounds nothing is refined further.
        for _ in range(int(sets.sum(1).max()) if len(sets) else 0):
            of_tail, of_head = colour[tail], colour[head]
            colour[tail], colour[head] = of_tail * MIXERS[2], of_head * MIXERS[2]
            colour.index_add_(0, tail, mixed(of_head, 1))
            colour.index_add_(0, head, mixed(of_tail, 1))
        last = mixed(colour, 3).view(len(sets), len(self.colours))
        # A sum and a sum of squares stand for the multiset of colours, which does not depend on the order of nodes.
        return np.asarray(torch.stack([last.sum(1), (last * last).sum(1)], 1))

    def classes(self, sets: Table) -> NDArray[np.int64]:
        """A number [R] per connected set [R, U]: two sets have the same number if and only if they have one shape."""
        number = np.unique(self.keys(sets), axis=0, return_inverse=True)[1].reshape(-1)
        joined = np.zeros((len(sets), len(self.colours)), dtype=bool)
        row, unit = sets.nonzero()
        for end in self.ends.numpy():
            joined[row, end[unit]] = True
        representatives: dict[int, list[int]] = {}  # by number, one set of each shape that has this number
        next_number = int(number.max(initial=-1)) + 1
        # A connected set with more edges than nodes has two cycles, so equal keys do not prove equal shapes.
        for position in np.flatnonzero(joined.sum(1) < sets.sum(1)).tolist():
            others = representatives.setdefault(int(number[position]), [])
            match = next((other for other in others if self.isomorphic(sets[position], sets[other])), None)
            if match is not None:
                number[position] = number[match]
                continue
            if others:
                number[position], next_number = next_number, next_number + 1
            others.append(position)
        return number

    def isomorphic(self, first: Table, second: Table) -> bool:
        """Whether a renumbering of the nodes takes one set [U] of edges to another."""
        graphs = [nx.Graph(list(compress(self.pairs, chosen))) for chosen in (first, second)]
        colours = dict(enumerate(self.colours.tolist()))
        for graph in graphs:
            nx.set_node_attributes(graph, colours, "colour")
        return bool(nx.vf2pp_is_isomorphic(*graphs, node_label="colour"))


# -- connected parts, and the shapes that are made of them ------------------------------------------------------


Numbers = NDArray[np.int64]
MAX_ENTRIES_PER_CALL = 1 << 22  # of a table that is made at once
MAX_ENTRIES_KEPT = 1 << 25  # entries of a table that is kept
MAX_STEPS = 200_000  # of backtracking for the shapes of one size; if that is not enough, the proof lists single sets


@dataclass(frozen=True, eq=False)
class Parts:
    """All connected sets of one size, in the order of their classes."""

    sets: Table  # [P, U]
    nodes: NDArray[np.float32]  # [P, N], 1 where a part has a node
    starts: Numbers  # [C], the first part of each class
    first: int  # the number of the first class, counted over all sizes

    def of(self, kind: int) -> range:
        """The positions of the parts of one class."""
        position = kind - self.first
        end = len(self.sets) if position + 1 == len(self.starts) else int(self.starts[position + 1])
        return range(int(self.starts[position]), end)


@dataclass(frozen=True, eq=False)
class Level:
    """One set of every shape of one size."""

    sets: Table  # [R, U]
    kinds: Numbers  # [R, most parts], the classes of its parts, the largest first; -1: no more parts
    keys: NDArray[np.uint64]  # [R], the sum of the random numbers of its classes

    @property
    def least(self) -> Numbers:
        """The smallest class of each shape [R]."""
        smallest: Numbers = np.where(self.kinds < 0, np.iinfo(np.int64).max, self.kinds).min(1, initial=2**62)
        return smallest


class Census:
    """The shapes of the sets of one instance that hold only `free` units, by size.

    A set is a union of connected parts that share no node, so a shape is a multiset of classes of connected parts. The
    connected parts are listed once by size (`parts`), and every shape of size n is a shape of a smaller size with one
    more part (`levels`). Parts are added in descending order of their classes, so no multiset is built twice.
    """

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
        self.numbers = np.zeros(0, dtype=np.uint64)  # a random number per class; their sum is the key of a shape
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
        self.takes = np.zeros((0, len(self.looks)), dtype=np.int64)  # how many such nodes each class takes
        self.cost = 0  # how many sets the last level asks to be run
        self._draw = np.random.default_rng(0)
        self._masks: dict[int, list[tuple[int, int]]] = {}

    def _looking(self, colours: Numbers, degree: NDArray[np.float32]) -> Numbers:
        """The number of nodes of each colour with at least so many edges: rows of nodes [R, N] -> [R, looks]."""
        counts = [((colours == colour) & (degree >= edges)).sum(1) for colour, edges in self.looks]
        return np.stack(counts, 1) if counts else np.zeros((len(degree), 0), dtype=np.int64)

    def level(self, size: int, most: int) -> Level | None:
        """One set of each shape with `size` edges; None if these are more than `most`, or if placing takes too long."""
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
        """List the connected sets up to `size`. False if those of a smaller size are more than `most`."""
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
        degree = sets[starts].astype(np.float32) @ self.touches
        self.takes = np.concatenate([self.takes, self._looking(self.shapes.colours.numpy()[None], degree)])
        fresh = self._draw.integers(1, 2**63, len(starts)).astype(np.uint64)
        self.numbers = np.concatenate([self.numbers, fresh])
        self.size_of = np.concatenate([self.size_of, np.full(len(starts), len(self.parts))])

    def _next(self, most: int) -> Level | None:
        """Every shape of the next size: a shape of a smaller size, and a part whose class is no larger than its own."""
        size, steps, count = len(self.levels), MAX_STEPS, 0
        found: list[Level] = []
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
                ordered = level.least[some, None] >= kinds[None]
                # The first part of each class that shares no node with the set of the level.
                part = np.minimum.reduceat(np.where(free, np.arange(free.shape[1]), free.shape[1]), parts.starts, 1)
                fits = part < free.shape[1]
                row, kind = (ordered & fits).nonzero()
                sets = level.sets[low + row] | parts.sets[part[row, kind]]
                found.append(self._joined(level, low + row, parts.first + kind, sets))
                # No part fits beside this set of the smaller shape, but it may fit beside another set of that shape.
                row, kind = (ordered & ~fits).nonzero()
                unplaced = self._joined(level, low + row, parts.first + kind, None)
                placed, steps = self._placed(unplaced, size, steps)
                if steps <= 0:
                    return None
                found.append(placed)
                count += len(found[-1].sets) + len(found[-2].sets)
                if count > most:
                    return None
        if not found:
            empty = self.levels[0]
            return Level(empty.sets[:0], np.zeros((0, size), dtype=np.int64), empty.keys[:0])
        return Level(*(np.concatenate([getattr(level, name) for level in found]) for name in ("sets", "kinds", "keys")))

    def _joined(self, level: Level, row: Numbers, kind: Numbers, sets: Table | None) -> Level:
        """Shapes of a level with one more part, of class `kind` [R]; `sets` is None where none is known yet."""
        size = len(self.levels)
        kinds = np.full((len(row), size), -1, dtype=np.int64)
        before = level.kinds[row]
        kinds[:, : before.shape[1]] = before
        kinds[np.arange(len(row)), (before >= 0).sum(1)] = kind
        sets = np.zeros((len(row), level.sets.shape[1]), dtype=bool) if sets is None else sets
        return Level(sets, kinds, level.keys[row] + self.numbers[kind])

    def _placed(self, level: Level, size: int, steps: int) -> tuple[Level, int]:
        """The shapes that fit into the graph, each with a set, and the steps that are left."""
        live = np.ones(len(level.keys), dtype=bool)
        # A shape fits only if it fits without any one of its parts, and those smaller shapes are known already.
        for column in range(level.kinds.shape[1]):
            kind = level.kinds[:, column]
            lost = np.where(kind < 0, 0, self.size_of[kind])
            for less in np.unique(lost[live & (lost > 0)]).tolist():
                asked = np.flatnonzero(live & (lost == less))
                keys = level.keys[asked] - self.numbers[kind[asked]]
                live[asked] = np.isin(keys, self.levels[size - less].keys)
        live &= self.enough(level.kinds)
        rows = np.flatnonzero(live)
        kept, sets, steps = self.place_all(
            ([kind for kind in level.kinds[row].tolist() if kind >= 0] for row in rows), steps
        )
        return Level(sets, level.kinds[rows[kept]], level.keys[rows[kept]]), steps

    def enough(self, kinds: Numbers) -> Table:
        """Whether the graph has enough nodes of every colour and degree for shapes [R, parts], which is necessary."""
        need = np.zeros((len(kinds), self.stock.shape[0]), dtype=np.int64)
        for column in kinds.T:
            need += np.where(column[:, None] >= 0, self.takes[column], 0)
        enough: Table = (need <= self.stock).all(1)
        return enough

    def place_all(self, shapes: Iterable[list[int]], steps: int) -> tuple[list[int], Table, int]:
        """Which shapes fit into the graph, a set of each of these, and the steps that are left (0 or less: too few)."""
        kept, sets = [], [np.zeros((0, len(self.near)), dtype=bool)]
        for position, kinds in enumerate(shapes):
            placed, used = self.place(kinds, steps)
            steps -= used
            if steps <= 0:
                break
            if placed is not None:
                kept.append(position)
                sets.append(placed[None])
        return kept, np.concatenate(sets), steps

    def place(self, kinds: list[int], steps: int) -> tuple[Table | None, int]:
        """A set of a shape, or None, and how many steps of backtracking that took.

        The class with the fewest positions left is placed first. Nodes and edges are bits of one number each.
        """
        start = steps
        stack = [(0, [(kind, self._parts(kind)) for kind in kinds])]  # the edges taken, and where the rest may go
        while stack and steps > 0:
            edges, left = stack.pop()
            if not left:
                return self._row(edges), start - steps
            steps -= 1
            left.sort(key=lambda choices: (len(choices[1]), choices[0]))
            (kind, first), *others = left
            for position in range(len(first) - 1, -1, -1):
                nodes, more = first[position]
                rest = []
                for other, parts in others:
                    later = first[position + 1 :] if other == kind else parts  # equal parts are placed in one order
                    fits = [part for part in later if not part[0] & nodes]
                    if not fits:
                        break
                    rest.append((other, fits))
                else:
                    stack.append((edges | more, rest))
        return None, start - steps

    def components(self, chosen: Table) -> Table:
        """The connected parts of a set [U], one row each."""
        units = np.flatnonzero(chosen)
        count, part = connected_components(self.touching[np.ix_(units, units)], directed=False)
        parts = np.zeros((count, len(chosen)), dtype=bool)
        parts[part, units] = True
        return parts

    def _row(self, edges: int) -> Table:
        count = len(self.near)
        bits = np.frombuffer(edges.to_bytes((count + 7) // 8, "little"), dtype=np.uint8)
        return np.unpackbits(bits, count=count, bitorder="little").astype(bool)

    def placements(self, kinds: Numbers) -> Iterator[Table]:
        """Every set of a shape, given by the classes of its parts."""
        wanted = sorted((kind for kind in kinds.tolist() if kind >= 0), key=lambda kind: (len(self._parts(kind)), kind))
        lists = [self._parts(kind) for kind in wanted]
        stack = [(0, 0, 0, 0)]  # how many parts are placed, where to go on, and the nodes and edges that are taken
        while stack:
            depth, start, nodes, edges = stack.pop()
            if depth == len(lists):
                yield self._row(edges)
                continue
            same = depth + 1 < len(lists) and wanted[depth + 1] == wanted[depth]  # equal parts are placed in one order
            for position in range(len(lists[depth]) - 1, start - 1, -1):
                taken, chosen = lists[depth][position]
                if not taken & nodes:
                    stack.append((depth + 1, position + 1 if same else 0, nodes | taken, edges | chosen))

    def _parts(self, kind: int) -> list[tuple[int, int]]:
        """The parts of a class, as the bits of their nodes and of their edges."""
        if kind not in self._masks:
            parts = self.parts[int(self.size_of[kind]) - 1]
            self._masks[kind] = [(_bits(parts.nodes[part] > 0), _bits(parts.sets[part])) for part in parts.of(kind)]
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
#
# If a model is head(pool(embed(x, edge_index))) with a sum or mean as pool, the pooled states of a set are those of the
# empty graph plus a gain of every connected part. So a shape is bounded without a run: linear bounds of the head
# (as in CROWN, Zhang et al. 2018) on all sums that the remaining edges can still reach. What cannot pass is not run.


MAX_SHAPES_PER_CALL = 1 << 11  # shapes that are bounded at once
BOUNDS_PER_RUN = 8  # so many bounds of a head cost as much as one run of the model
RELATIVE_MARGIN = 1e-3  # bounds nearer to 0 refute nothing, because the model computes in single precision
CLASS_OUTPUTS = ("logits", "log_probabilities", "probabilities")  # the largest is the answer
SETS_CHECKED = 8  # sets on which it is checked that the gains of parts add up

Branch = tuple[Tensor, Tensor, Tensor, Tensor]  # of shapes: z [R, d], classes [R, parts], edges left [R], looks [R, l]


class Head:
    """Linear layers with ReLU between them, and bounds of the answer's lead, its logit less that of another class."""

    def __init__(self, head: nn.Sequential, answer: int) -> None:
        linear = [part for part in head if isinstance(part, nn.Linear)]
        self.first = _weights(linear[0])
        self.further = [_weights(part) for part in linear[1:]]
        classes = linear[-1].out_features
        others = [column for column in range(classes) if column != answer]
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
        # Forwards, intervals of every layer; then backwards, from the lead to z, the ReLUs replaced by lines.
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
        """The bounds of an instance, if the model says that it splits at its pooling, and a check confirms it."""
        head = head_of(trials)
        if head is None:
            return None
        bounded = cls(trials, row, census, head)
        return bounded if bounded.adds_up() else None

    def adds_up(self) -> bool:
        """Whether gains of parts add up on a few sets, and the head on their sum returns what the model returns."""
        count = len(self.census.near)
        draw = np.random.default_rng(0)
        sets = draw.random((SETS_CHECKED, count)) < np.linspace(0.1, 0.9, SETS_CHECKED)[:, None]
        whole = self._sums(sets)
        for chosen, pooled in zip(sets, whole):
            sums = self.nothing[0] + (self._sums(self.census.components(chosen)) - self.nothing).sum(0)
            if not torch.allclose(sums, pooled, atol=1e-4, rtol=1e-4):
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
        sums = []
        for low in range(0, len(sets), 1024):
            packed = self._packed(sets[low : low + 1024])
            with torch.no_grad():
                states = model.embed(packed.x, packed.edge_index).double()
            sums.append(states.view(-1, self.nodes, states.size(1)).sum(1))
        self.trials.evaluations[self.row] += len(sets)
        return torch.cat(sums) if sums else self.nothing[:0]

    def _learn(self, size: int, most: int) -> bool:
        """Run one part of every class up to a size. False if these are more than `most`."""
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
        """A set of every shape with `size` edges that is not refuted; None if that takes more than `most` runs.

        A search in depth: each branch is a shape so far, and its children have one more part, in ascending order.
        """
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
        kept, sets, steps = self.census.place_all(found, MAX_STEPS)
        if steps <= 0:
            return None
        table = np.array([found[row] + [-1] * (size - len(found[row])) for row in kept], dtype=np.int64)
        return Level(sets, table.reshape(len(kept), size), np.zeros(len(kept), dtype=np.uint64))

    def _close(self, z: Tensor) -> Tensor:
        """Which complete shapes may pass alone."""
        if not len(z):
            return z.new_zeros(0, dtype=torch.bool)
        return self.head.exact(z) > -RELATIVE_MARGIN * (1 + z.abs().amax(1))

    def _refuted(self, z: Tensor, largest: Tensor, rest: Tensor) -> Tensor:
        """For which shapes [R] nothing passes that adds `rest` edges in parts of at most the `largest` size.

        First by the largest gain per edge of every column by itself, then, for what is left, by that of every class.
        """
        largest = torch.minimum(largest, rest)
        low, high = z + rest[:, None] * self.low[largest], z + rest[:, None] * self.high[largest]
        rows, constant = self.head.linear(low, high)
        margin = RELATIVE_MARGIN * (1 + torch.maximum(low.abs(), high.abs()).amax(1))
        constant = constant + (rows * z[:, None]).sum(2) + margin[:, None]
        by_box = torch.maximum(rows * self.low[largest][:, None], rows * self.high[largest][:, None]).sum(2)
        refuted = (constant + rest[:, None] * by_box < 0).any(1)
        for size in torch.unique(largest[~refuted]).tolist():
            some = (~refuted & (largest == size)).nonzero().flatten()
            rate = (self.gain / self.size[:, None])[: self.ends[size]]
            for part in some.split(max(1, (MAX_SHAPES_PER_CALL << 9) // len(rate))):
                most = (rows[part] @ rate.t()).amax(2).clamp(min=0)
                refuted[part] = (constant[part] + rest[part][:, None] * most < 0).any(1)
        return refuted


# -- the sets that a proof tries --------------------------------------------------------------------------------

MIN_SETS_FOR_SHAPES = 5_000  # a smaller proof is cheaper without
RUNS_PER_GRAPH = 2  # a run of a whole graph counts for so many sets of a node


def every_shape(search: Exhaustion, alone: int, shapes: Shapes) -> Listing:
    """All sets of those shapes that pass the test that looks at S alone, the one in column `alone`.

    If the shapes of a size are too many or too hard, the proof lists single sets instead.
    """
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
