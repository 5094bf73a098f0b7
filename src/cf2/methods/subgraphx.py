"""SubgraphX: the connected subgraph with the largest Shapley value (Yuan et al., ICML 2021,
https://arxiv.org/abs/2102.05152).

A Monte-Carlo tree search goes from the whole graph to subgraphs of at most `size` units by pruning, and keeps to one
connected piece (that of the explained node). From a subgraph it goes to the child a with the largest

    Q(a) + λ R(a) √(1 + Σ_b C(b)) / (1 + C(a)),

where C counts visits, Q is the mean reward of the leaves below, and R is the child's own Shapley value: the mean over
random coalitions T of its neighbours, up to as many hops away as the model has layers, of f(T ∪ S) - f(T). f is what
the criterion says of the graph with these units only: tanh(slack / 2), which for two classes is P(ŷ) - P(other).

Changed here: players are the undirected edges and not the nodes, because they are what is chosen and really
removed (the paper sets a node's features to 0); a step prunes one edge in `children`, in a ball around a random edge,
so that large graphs are reached through, and single edges at the end; the trees of all instances grow side by side,
with one packed pass for each level; every subgraph of an instance meets the same random coalitions and is tried once;
and `budget` limits the evaluations. The paper returns the best subgraph and ranks nothing. Here its edges have scores
above 0.5; beyond that, an edge scores by how much less the children without it are worth than those with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from cf2.graphs.targets import stream
from cf2.methods.contract import Method, Problem, Ranking, RankSettings, integer, number, ranked
from cf2.models.soundness import GOLDEN_RATIO
from cf2.sets.tests import SUFFICIENT
from cf2.sets.trials import EQUAL, Trials


@dataclass(frozen=True)
class Settings(RankSettings):
    """`k` units, or those above `threshold` (if neither is given, the best subgraph of at most `size` units).

    `budget` is in evaluations per instance; a subgraph takes two for each of the `samples`. `size` is `k` if None, and
    6 without a `k`. `exploration` is λ.
    """

    size: int | None = integer(None)
    budget: int = integer(3000)
    rollouts: int = integer(20)
    samples: int = integer(5)
    children: int = integer(6)
    exploration: float = number(5.0)

    @property
    def leaf(self) -> int:
        """How many units a subgraph may have that is pruned no further."""
        return self.size or self.k or 6


class Subgraphs:
    """Sets of edges of many instances at once: rows of a boolean matrix [R, U], with `rows` [R] their instances."""

    def __init__(self, problem: Problem, settings: Settings) -> None:
        pack, self.settings = problem.pack, settings
        self.trials = Trials(problem.oracle, problem.criterion, (SUFFICIENT,))
        self.hops = max(len(problem.predictor.layers), 1)
        device = pack.x.device
        self.nodes = int(pack.node_ptr.diff().max())
        governed = pack.units.edges.first >= 0
        unit = pack.units.edges.first[governed]
        ends = torch.zeros(2, pack.units.count, dtype=torch.long, device=device)
        ends[:, unit] = (pack.edge_index - pack.node_ptr[pack.batch[pack.edge_index[0]]])[:, governed]
        self.ends = [problem.oracle.dense(end, 0) for end in ends]  # [B, U] each, in local ids
        self.sources = torch.zeros(pack.num_instances, self.nodes, dtype=torch.bool, device=device)
        self.sources.scatter_(1, pack.targets - pack.node_ptr[:-1, None], True)
        self.anchored = pack.targets.size(1) > 0
        noise = torch.zeros(pack.num_instances, settings.samples + 1, self.trials.width)
        for row, count in enumerate(self.trials.counts.tolist()):
            draw = stream(problem.seed or 0, pack.key(row))
            noise[row, :, :count] = torch.rand(count, settings.samples + 1, generator=draw).t()
        self.noise = noise.to(device)

    def _spread(self, rows: Tensor, sets: Tensor, start: Tensor, steps: int) -> Tensor:
        """Steps [R, N] along edges of the sets from the nodes in `start` [R, N], `steps` + 1 where it takes more."""
        tail, head = (end[rows] for end in self.ends)
        far = torch.where(start, 0, steps + 1)
        for step in range(steps):
            near = far <= step
            reached = torch.zeros_like(far).scatter_add(1, head, (near.gather(1, tail) & sets).long())
            reached = reached.scatter_add(1, tail, (near.gather(1, head) & sets).long())
            new = (reached > 0) & (far > step)
            if not bool(new.any()):
                break
            far = torch.where(new, step + 1, far)
        return far

    def connected(self, rows: Tensor, sets: Tensor) -> Tensor:
        """What of the sets is connected with an explained node; for a graph, the piece with most edges."""
        tail, head = (end[rows] for end in self.ends)
        if self.anchored:
            reached = self._spread(rows, sets, self.sources[rows], self.nodes) <= self.nodes
            return sets & reached.gather(1, tail)
        row, unit = sets.nonzero(as_tuple=True)
        ends = (torch.stack([tail[row, unit], head[row, unit]]) + row * self.nodes).cpu().numpy()  # of disjoint graphs
        total = len(rows) * self.nodes
        _, labels = connected_components(coo_array((np.ones(len(row)), ends), (total, total)), directed=False)
        piece = torch.from_numpy(labels.astype(np.int64)).to(sets.device).view(-1, self.nodes).gather(1, tail)
        size = torch.where(sets, torch.bincount(piece[sets], minlength=total)[piece], 0)
        largest = torch.where(sets & (size == size.amax(1, keepdim=True)), piece, total)
        return sets & (piece == largest.amin(1, keepdim=True))  # of equals, that of the first node

    def neighbours(self, rows: Tensor, sets: Tensor) -> Tensor:
        """The edges outside of the sets that are at most as many hops away as the model has layers."""
        near = self._spread(rows, self.trials.valid[rows], self._ends_of(rows, sets), self.hops - 1) < self.hops
        tail, head = (end[rows] for end in self.ends)
        return (near.gather(1, tail) | near.gather(1, head)) & self.trials.valid[rows] & ~sets

    def _ends_of(self, rows: Tensor, sets: Tensor) -> Tensor:
        count = torch.zeros(len(rows), self.nodes, dtype=torch.long, device=sets.device)
        for end in self.ends:
            count = count.scatter_add(1, end[rows], sets.long())
        return count > 0

    def children(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The position in `rows` of what connected subgraphs come from, and these, each without a ball of edges."""
        size = sets.sum(1)
        count = min(self.settings.children, sets.size(1))
        # Another order of the edges for each size, so that a path does not try the same balls again and again.
        order = (self.noise[rows, -1] + GOLDEN_RATIO * size[:, None]) % 1.0
        seed = torch.where(sets, order, -1.0).topk(count, dim=1).indices.flatten()
        parent = torch.arange(len(rows), device=rows.device).repeat_interleave(count)
        real = sets[parent, seed]
        parent, seed = parent[real], seed[real]
        instance, within = rows[parent], sets[parent]
        center = torch.nn.functional.one_hot(seed, sets.size(1)).bool()
        far = self._spread(instance, within, self._ends_of(instance, center), self.nodes)
        tail, head = (end[instance] for end in self.ends)
        away = torch.minimum(far.gather(1, tail), far.gather(1, head)) + 0.5 * order[parent]
        away = torch.where(within, away, torch.inf).masked_fill(center, -1.0)
        ball = torch.minimum((size + self.settings.children - 1) // self.settings.children, size - self.settings.leaf)
        outside = away.argsort(1).argsort(1) >= ball.clamp(min=1)[parent, None]
        smaller = self.connected(instance, within & outside)
        some = smaller.any(1)
        return parent[some], smaller[some]

    def shapley(self, rows: Tensor, sets: Tensor) -> Tensor:
        """The Shapley value of each set as one player among its neighbours, by sampling [R]."""
        times = self.settings.samples
        share = (torch.arange(times, device=sets.device) + 0.5) / times
        among = self.noise[rows, :times] < share[:, None]  # a random order, in which the set comes at `share`
        before = (self.neighbours(rows, sets)[:, None] & among).flatten(0, 1)
        after = before | sets.repeat_interleave(times, 0)
        _, slack = self.trials.test(SUFFICIENT, rows.repeat_interleave(times).repeat(2), torch.cat([after, before]))
        gained, had = torch.split((slack / 2).tanh(), len(before))
        return (gained - had).view(-1, times).mean(1)


@dataclass(eq=False)
class Subgraph:
    """A subgraph that was tried: its units, its Shapley value, and what the rollouts through it gave."""

    units: np.ndarray
    value: float = 0.0
    visits: int = 0
    total: float = 0.0
    children: list[Subgraph] | None = None  # None: not expanded yet


@dataclass
class Tree:
    """The subgraphs of one instance that were tried, in their order; the first is where every rollout starts."""

    tried: dict[bytes, Subgraph]
    path: list[Subgraph]
    expanded: list[Subgraph] = field(default_factory=list)
    rollouts: int = 0

    def descend(self, settings: Settings) -> bool:
        """Walk and finish rollouts until a subgraph must be expanded; False where none is left to be."""
        while self.rollouts < settings.rollouts:
            here = self.path[-1]
            if here.units.sum() > settings.leaf and here.children is None:
                return True
            if here.children:
                self.path.append(_best(here.children, settings.exploration))
                continue
            for subgraph in self.path:
                subgraph.visits += 1
                subgraph.total += here.value
            self.path, self.rollouts = self.path[:1], self.rollouts + 1
        return False

    def expand(self, children: Sequence[np.ndarray]) -> None:
        """Give the last subgraph of the path its children, all of which were tried."""
        here = self.path[-1]
        here.children = list(dict.fromkeys(self.tried[units.tobytes()] for units in children))
        self.expanded.append(here)

    def answer(self, leaf: int) -> np.ndarray:
        """The best of the subgraphs that are small enough; of the smallest ones, where none is."""
        smallest = min(int(subgraph.units.sum()) for subgraph in self.tried.values())
        fits = [subgraph for subgraph in self.tried.values() if subgraph.units.sum() <= max(leaf, smallest)]
        best = max(subgraph.value for subgraph in fits)
        return next(subgraph.units for subgraph in fits if subgraph.value >= best - EQUAL)

    def effects(self) -> np.ndarray:
        """By how much children with an edge are worth more than those without it, the mean over their parents [U]."""
        total, count = np.zeros(len(self.path[0].units)), np.zeros(len(self.path[0].units))
        for children in (subgraph.children for subgraph in self.expanded):
            if children is not None and len(children) > 1:
                has = np.stack([child.units for child in children])
                value = np.array([child.value for child in children])[:, None]
                inside, outside = has.sum(0), (~has).sum(0)
                both = (inside > 0) & (outside > 0)
                gap = (value * has).sum(0) / inside.clip(min=1) - (value * ~has).sum(0) / outside.clip(min=1)
                total, count = total + np.where(both, gap, 0.0), count + both
        return np.asarray(total / count.clip(min=1))


def _best(children: Sequence[Subgraph], exploration: float) -> Subgraph:
    """The child with the largest Q + λ R √(1 + Σ C) / (1 + C); of equals, the first."""
    root = (1 + sum(child.visits for child in children)) ** 0.5
    scores = [
        child.total / max(child.visits, 1) + exploration * child.value * root / (1 + child.visits) for child in children
    ]
    return next(child for child, score in zip(children, scores) if score >= max(scores) - EQUAL)


def grow(subgraphs: Subgraphs, settings: Settings) -> list[Tree]:
    """The trees of all instances, one level of all of them at a time."""
    trials = subgraphs.trials
    roots = [Subgraph(units) for units in subgraphs.connected(trials.rows, trials.valid).cpu().numpy()]
    trees = [Tree({b"": root}, [root]) for root in roots]  # no child is the root again
    left = [settings.budget // (2 * settings.samples)] * len(trees)
    active = [row for row, tree in enumerate(trees) if tree.descend(settings)]
    while active:
        rows = torch.tensor(active, device=trials.valid.device)
        sets = torch.from_numpy(np.stack([trees[row].path[-1].units for row in active])).to(trials.valid.device)
        parent, smaller = subgraphs.children(rows, sets)
        owners = rows[parent]
        fresh: dict[tuple[int, bytes], int] = {}  # the position in `smaller` of what was not tried before
        children: dict[int, list[np.ndarray]] = {row: [] for row in active}
        for position, (owner, units) in enumerate(zip(owners.tolist(), smaller.cpu().numpy())):
            key = (owner, units.tobytes())
            if key[1] not in trees[owner].tried and key not in fresh:
                if not left[owner]:
                    continue
                left[owner] -= 1
                fresh[key] = position
            children[owner].append(units)
        if fresh:
            positions = torch.tensor(list(fresh.values()), device=trials.valid.device)
            values = subgraphs.shapley(owners[positions], smaller[positions]).tolist()
            for (owner, code), units, value in zip(fresh, smaller[positions].cpu().numpy(), values):
                trees[owner].tried[code] = Subgraph(units, value)
        for row in active:
            trees[row].expand(children[row])
        active = [row for row in active if left[row] and trees[row].descend(settings)]
    return trees


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Grow the trees, and score edges by the best subgraph and by what their absence costs."""
    subgraphs = Subgraphs(problem, settings)
    trees = grow(subgraphs, settings)
    table = np.stack([0.5 * tree.answer(settings.leaf) + 0.25 + tree.effects().clip(-1.9, 1.9) / 8 for tree in trees])
    scores = subgraphs.trials.flat(torch.from_numpy(table).float().to(problem.outputs.device))
    return ranked(problem, scores, settings, subgraphs.trials.evaluations)


METHOD = Method(
    name="subgraphx",
    title="SubgraphX",
    summary="a Monte-Carlo tree search for the connected subgraph with the largest Shapley value",
    settings=Settings,
    rank=rank,
    units=("edges",),
    draws=True,
    paper=("k",),
)
