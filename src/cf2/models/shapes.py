"""Sets of edges that look alike: a model that reads a whole graph gives all sets of one shape the same output alone.

Two sets have the same shape if a renumbering of the nodes, features included, maps the edges of one to those of the
other. So a proof runs one set of every shape, and goes back to single sets only for the shapes that pass.

Colour refinement decides equality of shape exactly for connected sets with at most one cycle: equal colours mean equal
universal covers, and only one tree of that many nodes, or one cycle with trees on it, has a given universal cover. For
sets with more cycles, equal colours are confirmed by a search for the renumbering itself (VF2++).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, compress, count, islice
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool, global_mean_pool

from cf2.models.adapters import TensorAdapter
from cf2.models.equal_rows import MIXERS, colours_of, mixed
from cf2.sets.oracle import Listing
from cf2.sets.proof import MAX_SETS_PER_CALL, Exhaustion, every_set, in_twin_order, twins
from cf2.sets.tests import PredictedClass
from cf2.sets.trials import Trials

if TYPE_CHECKING:
    from cf2.models.oracle import Field, GraphOracle, Removals

Table = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Shapes:
    """The edges of one instance, one per unit, and the colours of its nodes. Equal features give equal colours."""

    def __init__(self, ends: Tensor, colours: Tensor) -> None:
        self.ends, self.colours = ends, colours  # [2, U] and [N], on the CPU
        self.mixed = mixed(colours + 1, 0)
        self.pairs: list[tuple[int, int]] = [(tail, head) for tail, head in ends.t().tolist()]
        self.touches = np.zeros((ends.size(1), len(colours)), dtype=np.float32)  # 1 where an edge has a node
        for end in ends.numpy():
            self.touches[np.arange(len(end)), end] = 1
        self.touching: Table = self.touches @ self.touches.T > 0

    @classmethod
    def of(cls, oracle: GraphOracle, row: int) -> Shapes | None:
        """The shapes of an instance, or None if some unit is not one undirected edge."""
        pack, removals = oracle.pack, oracle.removals
        assert removals is not None
        first, last = pack.edge_ptr[row : row + 2].tolist()
        low, high = pack.node_ptr[row : row + 2].tolist()
        edges, unit = (pack.edge_index[:, first:last] - low).cpu(), removals.unit[first:last].cpu()
        units = int(oracle.counts[row])
        order = unit.argsort(stable=True)
        if edges.size(1) != 2 * units or not torch.equal(unit[order], torch.arange(units).repeat_interleave(2)):
            return None
        forth, back = edges[:, order[::2]], edges[:, order[1::2]]
        if not torch.equal(forth, back.flip(0)) or bool((forth[0] == forth[1]).any()):
            return None
        return cls(forth, torch.unique(pack.x[low:high].cpu(), dim=0, return_inverse=True)[1])

    def nodes(self, sets: Table) -> Table:
        """The nodes [R, N] at the edges of sets [R, U]."""
        return np.asarray(sets.astype(np.float32) @ self.touches > 0)

    def components(self, chosen: Table) -> Table:
        """The connected parts of a set [U], one row each."""
        units = np.flatnonzero(chosen)
        found, part = connected_components(self.touching[np.ix_(units, units)], directed=False)
        parts = np.zeros((found, len(chosen)), dtype=bool)
        parts[part, units] = True
        return parts

    def keys(self, sets: Table) -> Numbers:
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

    def classes(self, sets: Table) -> Numbers:
        """A number [R] per connected set [R, U]: two sets have the same number if and only if they have one shape."""
        number = np.unique(self.keys(sets), axis=0, return_inverse=True)[1].reshape(-1)
        representatives: dict[int, list[int]] = {}  # by number, one set of each shape that has this number
        next_number = int(number.max(initial=-1)) + 1
        # A connected set with more edges than nodes has two cycles, so equal keys do not prove equal shapes.
        for position in np.flatnonzero(self.nodes(sets).sum(1) < sets.sum(1)).tolist():
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


# -- trials that look alike -------------------------------------------------------------------------------------

MAX_FEATURES = 256  # of a node; with more of them, hardly two nodes have the same ones


@dataclass(frozen=True, eq=False)
class Lookalikes:
    """Names of trials: of one instance, those with one name are one graph but for the numbers of its nodes.

    Leaves are folded into the node that they hang on, round by round, so a tree ends in its centre, whose colour says
    all of it (Aho, Hopcroft and Ullman, 1974). Targets stay, as do nodes that are left on cycles or between these: they
    are told apart by their numbers. So one name means one graph, whatever a model sees in it; but two graphs that are
    the same only by a renumbering of their cycles have two names.
    """

    removals: Removals
    colours: Numbers  # [nodes]
    held: NDArray[np.bool_]  # [nodes], targets

    @classmethod
    def of(cls, removals: Removals) -> Lookalikes | None:
        """Names for the trials of a pack; None where nodes have too many features to be alike."""
        x = removals.pack.x
        if x.size(1) > MAX_FEATURES:
            return None
        held = np.zeros(len(x), dtype=bool)
        held[removals.targets.ravel()] = True
        return cls(removals, colours_of(x).cpu().numpy(), held)

    def names(self, instance: Numbers, columns: Numbers, trial: Numbers) -> list[bytes]:
        """The name of each trial of instances [R], from the edge columns [e] that are there in which trial [e]."""
        width, start = self.removals.width, self.removals.starts(instance)
        place = self.removals.ends.take(columns, 1) + start[trial]
        local = np.zeros(len(instance) * width, dtype=np.int64)  # first a mark, then a number: `np.unique` sorts
        local[place] = 1
        tail, head = (local.cumsum() - 1)[place]
        place = local.nonzero()[0]
        of_node = place // max(width, 1)
        node = place - start[of_node]
        first = self.colours[node]
        colour, there = first.copy(), np.ones(len(node), dtype=bool)
        while len(tail):
            at, other = np.concatenate([tail, head]), np.concatenate([head, tail])
            degree, total = np.bincount(at, minlength=len(node)), np.bincount(at, other, len(node))
            end = total / np.maximum(degree, 1)  # of a leaf, the one node that it is joined to
            stays = self.held[node]
            stays[at[other != end[at]]] = True
            leaf = ~stays & (degree > 0)
            left = ~(leaf[tail] | leaf[head])
            if left.all():
                break
            leaves = leaf.nonzero()[0]
            onto = end[leaves].astype(np.int64)
            way = degree[leaves] + np.bincount(tail, minlength=len(node))[leaves] * MIXERS[2]
            np.add.at(colour, onto, mixed(mixed(colour[leaves], 1) + way, 0))
            there[leaves[~leaf[onto]]] = False  # of two leaves that are joined to each other, both stay
            tail, head, columns, trial = tail[left], head[left], columns[left], trial[left]
        numbered = self.held[node]
        numbered[tail] = numbered[head] = True
        last = mixed(np.where(numbered, colour + mixed(node + 1, 3), colour), 2) * there
        first, edge = mixed(first, 2), mixed(columns + 1, 1)  # what has no edge is the rest of the instance
        name = np.stack([instance, *np.zeros((2, len(instance)), dtype=np.int64)], 1)
        np.add.at(name[:, 1], of_node, last - first)
        np.add.at(name[:, 2], of_node, last * last - first * first)
        np.add.at(name[:, 1], trial, edge)
        np.add.at(name[:, 2], trial, edge * edge)
        text = name.tobytes()
        return [text[low : low + 24] for low in range(0, len(text), 24)]


# -- connected parts, and the shapes that are made of them ------------------------------------------------------


MAX_ENTRIES_KEPT = 1 << 25  # entries of a table that is kept
MAX_SHAPES_PER_CALL = 1 << 11  # shapes that are extended at once
CANDIDATES_PER_RUN = 8  # listing and bounding so many shapes costs as much as one run of the model
MAX_STEPS = 200_000  # of backtracking for the shapes of one size; if that is not enough, the proof lists single sets

Branch = tuple[Tensor, Tensor, Tensor, Tensor]  # of shapes: z [R, d], classes [R, parts], edges left [R], looks [R, l]


@dataclass(frozen=True, eq=False)
class Parts:
    """All connected sets of one size, in the order of their classes."""

    sets: Table  # [P, U]
    nodes: Table  # [P, N]
    starts: Numbers  # [C], the first part of each class


class Census:
    """The shapes of the sets of one instance that hold only `free` units, by size; with `bounds`, those not refuted.

    A set is a union of connected parts that share no node, so a shape is a multiset of classes of connected parts.
    Classes are numbered by size, and a multiset is built in ascending order of its classes.
    """

    def __init__(self, shapes: Shapes, free: list[int], bounds: Bounds | None = None) -> None:
        self.shapes, self.bounds = shapes, bounds
        units = len(shapes.pairs)
        self.single: Table = np.eye(units, dtype=bool)[free]
        self.near = (shapes.touching & self.single.any(0)).astype(np.float32)
        self.max_kept = MAX_ENTRIES_KEPT // max(units, 1)
        self.parts: list[Parts] = []  # of one edge, of two, …
        self.ends = [0]  # how many classes have at most so many edges
        degree = shapes.touches[free].sum(0)
        colours = shapes.colours.numpy()
        self.looks = [
            (colour, edges)
            for colour in range(int(colours.max(initial=-1)) + 1)
            for edges in range(1, int(degree[colours == colour].max(initial=0)) + 1)
        ]
        self.stock = self._looking(degree[None])
        self.takes = self.stock[:0]  # how many such nodes each class takes
        self.cost = 0  # how many runs the last level stands for
        self._masks: dict[int, list[tuple[int, int]]] = {}

    def _looking(self, degree: NDArray[np.float32]) -> Tensor:
        """The number of nodes of each colour with at least so many edges: degrees [R, N] -> [R, looks]."""
        colours = self.shapes.colours.numpy()
        counts = [((colours == colour) & (degree >= edges)).sum(1) for colour, edges in self.looks]
        return torch.from_numpy(np.stack(counts, 1) if counts else np.zeros((len(degree), 0), dtype=np.int64))

    def level(self, size: int, most: int) -> tuple[Table, list[list[int]]] | None:
        """A set [U] of every shape with `size` edges, and the classes of its parts.

        None if that takes more than `most` runs of the model, or if placing takes too long.
        """
        self.cost = 0
        most = min(most, self.max_kept)
        if not self._grow_to(size, most):
            return None
        shapes = self._multisets(size, most)
        placed = None if shapes is None else self._placed(shapes)
        if placed is None or len(placed[0]) > most:
            return None
        self.cost += len(placed[0])
        return placed

    def _grow_to(self, size: int, most: int) -> bool:
        """List the connected sets up to `size`. False if those of a smaller size are more than `most`."""
        while len(self.parts) < size:
            if (self.parts and len(self.parts[-1].sets) > most) or self.cost > most:
                return False
            self._grow()
            if self.bounds is not None:
                self.cost += self.bounds.learn(self.parts[-1])
        return True

    def _grow(self) -> None:
        sets = self.single
        if self.parts:
            last = self.parts[-1].sets
            row, unit = ((last.astype(np.float32) @ self.near > 0) & ~last).nonzero()
            sets = last[row]
            sets[np.arange(len(row)), unit] = True
            sets = sets[once(sets)]
        kind = self.shapes.classes(sets)
        order = np.argsort(kind, kind="stable")
        sets, kind = sets[order], kind[order]
        starts = np.flatnonzero(np.diff(kind, prepend=-1))
        self.parts.append(Parts(sets, self.shapes.nodes(sets), starts))
        self.takes = torch.cat([self.takes, self._looking(sets[starts].astype(np.float32) @ self.shapes.touches)])
        self.ends.append(len(self.takes))

    def _multisets(self, size: int, most: int) -> list[list[int]] | None:
        """The shapes with `size` edges, not refuted, as lists of classes; None if there are too many candidates.

        A search in depth: each branch is a shape so far, and its children have one more part.
        """
        bounds = self.bounds
        start = torch.zeros(1, 0) if bounds is None else bounds.start
        if not size:
            return [[]] if bounds is None or bool(bounds.close(start)) else []
        device = start.device
        ends, takes, stock = torch.tensor(self.ends, device=device), self.takes.to(device), self.stock.to(device)
        sizes = torch.arange(1, len(self.ends), device=device).repeat_interleave(ends.diff())
        gain = start.new_zeros(len(sizes), 0) if bounds is None else bounds.gain
        whole = torch.full((1,), size, device=device)
        stack: list[Branch] = [(start, whole.new_zeros((1, 0)), whole, torch.zeros_like(stock))]
        found: list[list[int]] = []
        left = CANDIDATES_PER_RUN * (most - self.cost)
        budget = left
        while stack:
            z, kinds, rest, looks = stack.pop()
            least = kinds[:, -1] + 1 if kinds.size(1) else ends[-1:]
            children = torch.minimum(least, ends[rest])
            some = max(1, int((children.cumsum(0) <= MAX_SHAPES_PER_CALL).sum()))
            if some < len(z):
                stack.append((z[some:], kinds[some:], rest[some:], looks[some:]))
            row = torch.arange(some, device=device).repeat_interleave(children[:some])
            kind = torch.arange(len(row), device=device) - (children[:some].cumsum(0) - children[:some])[row]
            # The graph must have enough nodes of every colour and degree.
            fits = (looks[row] + takes[kind] <= stock).all(1).nonzero().flatten()
            row, kind = row[fits], kind[fits]
            left -= len(row)
            if left < 0:
                return None
            z, kinds = z[row] + gain[kind], torch.cat([kinds[row], kind[:, None]], 1)
            rest, looks = rest[row] - sizes[kind], looks[row] + takes[kind]
            last, more = (rest == 0).nonzero().flatten(), (rest > 0).nonzero().flatten()
            if bounds is not None:
                last = last[bounds.close(z[last])]
                more = more[~bounds.refuted(z[more], sizes[kind[more]], rest[more])]
            found += kinds[last].tolist()
            if len(more):
                stack.append((z[more], kinds[more], rest[more], looks[more]))
        if bounds is not None:
            self.cost += (budget - left) // CANDIDATES_PER_RUN
        return found

    def _placed(self, shapes: list[list[int]]) -> tuple[Table, list[list[int]]] | None:
        """A set of each shape that fits into the graph, and its classes; None if that takes too many steps."""
        steps = iter(range(MAX_STEPS))
        placed = [(next(self.placements(kinds, steps), None), kinds) for kinds in shapes]
        if next(steps, None) is None:
            return None
        sets = [chosen for chosen, _ in placed if chosen is not None]
        none = np.zeros((0, len(self.near)), dtype=bool)
        return np.stack(sets) if sets else none, [kinds for chosen, kinds in placed if chosen is not None]

    def placements(self, kinds: list[int], steps: Iterator[int]) -> Iterator[Table]:
        """Every set [U] of a shape, as long as there are `steps` of backtracking left.

        The class with the fewest positions left is placed first. Nodes and edges are bits of one number each.
        """
        stack = [(0, [(kind, self._parts(kind)) for kind in kinds])]  # the edges taken, and where the rest may go
        while stack:
            edges, left = stack.pop()
            if not left:
                yield self._row(edges)
                continue
            if next(steps, None) is None:
                return
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

    def _row(self, edges: int) -> Table:
        units = len(self.near)
        bits = np.frombuffer(edges.to_bytes((units + 7) // 8, "little"), dtype=np.uint8)
        return np.unpackbits(bits, count=units, bitorder="little").astype(bool)

    def _parts(self, kind: int) -> list[tuple[int, int]]:
        """The parts of a class, as the bits of their nodes and of their edges."""
        if kind not in self._masks:
            size = int(np.searchsorted(self.ends, kind, side="right"))
            parts, position = self.parts[size - 1], kind - self.ends[size - 1]
            own = slice(*[*parts.starts.tolist(), len(parts.sets)][position : position + 2])
            self._masks[kind] = [(_bits(n), _bits(s)) for n, s in zip(parts.nodes[own], parts.sets[own])]
        return self._masks[kind]


def _bits(row: Table) -> int:
    return int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")


def once(sets: Table) -> Numbers:
    """The positions of sets [R, U], each set once, by their bits; `torch.unique` by rows took eight times as long."""
    bits = np.packbits(sets, axis=1)
    return np.unique(bits.view(f"V{max(bits.shape[1], 1)}").ravel(), return_index=True)[1]


# -- shapes that a head cannot let pass -------------------------------------------------------------------------
#
# If a model is head(pool(embed(x, edge_index))) with a sum or mean as pool, the pooled states of a set are those of the
# empty graph plus a gain of every connected part. So a shape is bounded without a run: linear bounds of the head
# (as in CROWN, Zhang et al. 2018) on all sums that the remaining edges can still reach. What cannot pass is not run.


RELATIVE_MARGIN = 1e-3  # bounds nearer to 0 refute nothing, because the model computes in single precision
CLASS_OUTPUTS = ("logits", "log_probabilities", "probabilities")  # the largest is the answer
SETS_CHECKED = 8  # sets on which it is checked that the gains of parts add up


class Head:
    """Linear layers with ReLU between them, and bounds of the answer's lead, its logit less that of another class."""

    def __init__(self, head: nn.Sequential, answer: int) -> None:
        linear = [part for part in head if isinstance(part, nn.Linear)]
        self.first, *self.further = map(_weights, linear)
        every = torch.eye(linear[-1].out_features, dtype=torch.double, device=self.first[0].device)
        self.lead = every[answer] - torch.cat([every[:answer], every[answer + 1 :]])  # [other classes, classes]

    def outputs(self, z: Tensor) -> Tensor:
        """What the head returns [R, C], from what its first layer gives [R, d]."""
        for weight, bias in self.further:
            z = z.relu() @ weight + bias
        return z

    def exact(self, z: Tensor) -> Tensor:
        """The least lead [R], from what the first layer gives [R, d]."""
        return (self.outputs(z) @ self.lead.t()).amin(1)

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
        constant = rows.new_zeros(rows.shape[:2])
        for (weight, bias), (low, high) in zip(reversed(self.further), reversed(before)):
            constant = constant + rows @ bias
            rows, shift = _through(rows @ weight.t(), low[:, None], high[:, None])
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


class Bounds:
    """Which shapes of one instance could pass alone, from the gain of every class of connected parts."""

    def __init__(self, trials: Trials, row: int, shapes: Shapes, head: nn.Sequential) -> None:
        self.trials, self.row, self.shapes = trials, row, shapes
        self.oracle: GraphOracle = trials.oracle  # type: ignore[assignment]
        self.model: Any = self.oracle.predictor.model
        self.head = Head(head, int(trials.criterion.answers[row]))
        self.share = 1 / max(len(shapes.colours), 1) if self.model.pool is global_mean_pool else 1.0
        self.nothing = self._sums(np.zeros((1, len(shapes.pairs)), dtype=bool))
        self.start = self._first(self.nothing)
        self.gain = self.start[:0]  # by class, what a part adds to the first layer of the head
        self.rate = self.start[:0]  # the same per edge
        self.ends = [0]  # how many classes have at most so many edges
        self.low, self.high = torch.zeros_like(self.start), torch.zeros_like(self.start)  # of the rates, by size

    @classmethod
    def of(cls, trials: Trials, row: int, shapes: Shapes) -> Bounds | None:
        """The bounds of an instance, if the model says that it splits at its pooling, and a check confirms it."""
        head = head_of(trials)
        bounds = None if head is None else cls(trials, row, shapes, head)
        return bounds if bounds is not None and bounds.adds_up() else None

    def adds_up(self) -> bool:
        """Whether gains of parts add up on a few sets, and the head on their sum returns what the model returns."""
        draw = np.random.default_rng(0).random((SETS_CHECKED, len(self.shapes.pairs)))
        sets = draw < np.linspace(0.1, 0.9, SETS_CHECKED)[:, None]
        whole = self._sums(sets)
        for chosen, pooled in zip(sets, whole):
            sums = self.nothing[0] + (self._sums(self.shapes.components(chosen)) - self.nothing).sum(0)
            if not torch.allclose(sums, pooled, atol=1e-4, rtol=1e-4):
                return False
        rows = self.removals.outputs(self._trials(sets))
        outputs = self.head.outputs(self._first(whole)).to(rows.dtype)
        return torch.allclose(self.oracle.predictor.probabilities(outputs), rows, atol=1e-4)

    def _first(self, sums: Tensor) -> Tensor:
        """What the first layer of the head gives for sums of states."""
        weight, bias = self.head.first
        return sums * self.share @ weight + bias

    @property
    def removals(self) -> Removals:
        """How trials are made of sets; shapes are asked about where only edges can go."""
        assert self.oracle.removals is not None
        return self.oracle.removals

    def _trials(self, sets: Table) -> Field:
        table = torch.zeros((len(sets), self.trials.width), dtype=torch.bool)
        table[:, : sets.shape[1]] = torch.from_numpy(sets)
        device = self.trials.valid.device
        return self.removals.whole(torch.full((len(sets),), self.row, device=device), table.to(device))

    def _sums(self, sets: Table) -> Tensor:
        """The sums of the states of all nodes [R, width], with only these sets [R, U]."""
        sums = []
        for low in range(0, len(sets), 1024):
            inputs = self.removals.inputs(self._trials(sets[low : low + 1024]))
            with torch.no_grad():
                states = self.model.embed(inputs.x, inputs.edge_index).double()
            sums.append(states.view(-1, len(self.shapes.colours), states.size(1)).sum(1))
        self.trials.evaluations[self.row] += len(sets)
        return torch.cat(sums) if sums else self.nothing[:0]

    def learn(self, parts: Parts) -> int:
        """Run one part of every class of the next size; how many runs that took."""
        gain = (self._sums(parts.sets[parts.starts]) - self.nothing) * self.share @ self.head.first[0]
        rate = gain / len(self.ends)
        self.gain, self.rate = torch.cat([self.gain, gain]), torch.cat([self.rate, rate])
        self.low = torch.cat([self.low, torch.cat([rate, self.low[-1:]]).amin(0, keepdim=True)])
        self.high = torch.cat([self.high, torch.cat([rate, self.high[-1:]]).amax(0, keepdim=True)])
        self.ends.append(len(self.gain))
        return len(gain)

    def close(self, z: Tensor) -> Tensor:
        """Which complete shapes may pass alone."""
        if not len(z):
            return z.new_zeros(0, dtype=torch.bool)
        return self.head.exact(z) > -RELATIVE_MARGIN * (1 + z.abs().amax(1))

    def refuted(self, z: Tensor, largest: Tensor, rest: Tensor) -> Tensor:
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
            rate = self.rate[: self.ends[size]]
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
    trials = search.trials
    census = Census(shapes, search.free, Bounds.of(trials, search.row, shapes))
    pairs = twins(trials, search.row)
    for size in range(search.exhausted, search.top + 1):
        level = census.level(size, search.left // RUNS_PER_GRAPH)
        if level is None or not search.spend(RUNS_PER_GRAPH * census.cost):
            yield from every_set(search)
            return
        representatives, kinds = level
        good: list[list[int]] = []
        for low in range(0, len(kinds), MAX_SETS_PER_CALL):
            some = slice(low, low + MAX_SETS_PER_CALL)
            passed = yield search.table(representatives[some]), alone
            good += compress(kinds[some], passed.tolist())
        placed = chain.from_iterable(census.placements(shape, count()) for shape in good)
        while batch := list(islice(placed, MAX_SETS_PER_CALL)):
            if not search.spend(RUNS_PER_GRAPH * len(batch)):
                return
            sets = search.allowed(in_twin_order(search.table(np.stack(batch)), pairs))
            for column in range(len(trials.tests)):
                if column != alone and len(sets):  # that one is passed by the whole shape
                    sets = sets[(yield sets, column)]
            if len(sets):
                fits = yield sets, None
                if search.found(sets[fits]):
                    search.complete = True
                    return
        search.done(size)
