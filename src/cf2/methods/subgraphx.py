"""SubgraphX: the connected subgraph with the largest Shapley value (Yuan et al., ICML 2021,
https://arxiv.org/abs/2102.05152).

A Monte-Carlo tree search goes from the whole graph to subgraphs of at most `size` edges by pruning nodes, and keeps to
one connected piece (that of the explained node, else the largest). From a subgraph S it goes to the child a with the
largest

    Q(a) + λ R(a) √(1 + Σ_b C(b)) / (1 + C(a)),

where C counts visits, Q is the mean reward of the leaves below, and R is the child's own Shapley value: the mean over
random coalitions T of the nodes around it, up to as many hops away as the model has layers, of f(T ∪ S) - f(T), with
all nodes further away present in both, as in the published code. f is what the criterion says of the graph with the
edges between these nodes only: tanh(slack / 2), which for two classes is P(ŷ) - P(other).

Changed here: the edges at a node that is left out are removed (the paper sets its features to 0, the published code can
do either); a step prunes one node in `children` of those left, in groups of similar degree, and single nodes at the end
(the paper prunes one of at most a dozen), so that large graphs are reached through; the trees of all instances grow
side by side; every subgraph of an instance meets the same random coalitions and is tried once; and `budget` limits the
evaluations. The paper returns the best subgraph and ranks nothing. Here its edges have scores above 0.5; beyond that,
an edge scores by how much less the children without it are worth than those with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from cf2.graphs.targets import stream
from cf2.methods.contract import Method, Problem, Ranking, RankSettings, integer, number, ranked
from cf2.sets.tests import SUFFICIENT
from cf2.sets.trials import EQUAL, Trials


@dataclass(frozen=True)
class Settings(RankSettings):
    """Selects `k` units, or those above `threshold` (default: the best subgraph of at most `size` units).

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


@dataclass(eq=False)
class Subgraph:
    """A subgraph that was tried: its nodes [N], its edges [U], its Shapley value, and what rollouts through it gave."""

    nodes: np.ndarray
    units: np.ndarray
    value: float = 0.0
    visits: int = 0
    total: float = 0.0
    children: list[Subgraph] | None = None  # None: not expanded yet


class Tree:
    """The subgraphs of one instance that were tried, in their order; the first is where every rollout starts.

    `ends` [U, 2] are the nodes of every edge, `targets` those that are explained, none for a graph.
    """

    def __init__(
        self, ends: np.ndarray, count: int, targets: np.ndarray, hops: int, draw: torch.Generator, settings: Settings
    ) -> None:
        self.ends, self.targets, self.hops, self.settings = ends, targets, hops, settings
        both = np.concatenate([ends, ends[:, ::-1]]).T
        self.adjacency = coo_array((np.ones(both.shape[1]), both), (count, count)).tocsr()
        order = torch.rand(count, settings.samples, generator=draw).numpy().T
        # In a random order of the nodes around it, a subgraph comes at `share`: those before it are the coalition.
        self.before = order < (np.arange(settings.samples)[:, None] + 0.5) / settings.samples
        root = self.piece(np.ones(count, dtype=bool))
        self.tried = {root.nodes.tobytes(): root}
        self.path = [root]
        self.expanded: list[Subgraph] = []
        self.rollouts, self.left = 0, settings.budget // (2 * settings.samples)

    def units(self, nodes: np.ndarray) -> np.ndarray:
        """The edges between nodes [..., N], bool [..., U]."""
        return np.asarray(nodes[..., self.ends].all(-1))

    def piece(self, nodes: np.ndarray) -> Subgraph:
        """What of some nodes [N] is connected with an explained node; for a graph, the largest piece."""
        edges = self.ends[self.units(nodes)]
        graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), self.adjacency.shape)
        _, labels = connected_components(graph, directed=False)
        own = labels[self.targets] if len(self.targets) else np.bincount(labels[nodes]).argmax()
        kept = nodes & np.isin(labels, own)
        return Subgraph(kept, self.units(kept))

    def pruned(self) -> list[Subgraph]:
        """The subgraph at the end of the path without a group of its nodes, for some groups of similar degree.

        As in the published scripts, nodes of few edges go first from a graph, those of many from what a node sees.
        """
        here = self.path[-1]
        degree = np.bincount(self.ends[here.units].reshape(-1), minlength=len(here.nodes))
        spare = here.nodes.copy()
        spare[self.targets] = False
        order = np.flatnonzero(spare)
        order = order[np.argsort(-degree[order] if len(self.targets) else degree[order], kind="stable")]
        count = min(self.settings.children, len(order))
        children = []
        for group in np.array_split(order, count) if count else ():
            nodes = here.nodes.copy()
            nodes[group] = False
            children.append(self.piece(nodes))
        return children

    def coalitions(self, subgraph: Subgraph) -> tuple[np.ndarray, np.ndarray]:
        """The edges [samples, U] that are there with and without a subgraph, in every sample."""
        near = subgraph.nodes
        for _ in range(self.hops):
            near = near | (self.adjacency @ near > 0)
        without = (~near | self.before) & ~subgraph.nodes
        without[:, self.targets] = True  # an explained node is there in both, as in the published code
        return self.units(without | subgraph.nodes), self.units(without)

    def descend(self) -> bool:
        """Walk and finish rollouts until a subgraph must be expanded; False where none is left to be."""
        while self.left and self.rollouts < self.settings.rollouts:
            here = self.path[-1]
            if here.units.sum() > self.settings.leaf and here.children is None:
                return True
            if here.children:
                self.path.append(_best(here.children, self.settings.exploration))
                continue
            for subgraph in self.path:
                subgraph.visits += 1
                subgraph.total += here.value
            self.path, self.rollouts = self.path[:1], self.rollouts + 1
        return False

    def expand(self) -> list[Subgraph]:
        """Give the last subgraph of the path its children; returns those that were not tried before."""
        here, fresh, children = self.path[-1], list[Subgraph](), dict[bytes, Subgraph]()
        for child in self.pruned():
            name = child.nodes.tobytes()
            if name not in self.tried and len(fresh) < self.left:
                self.tried[name] = child
                fresh.append(child)
            if name in self.tried:
                children[name] = self.tried[name]
        here.children = list(children.values())
        self.expanded.append(here)
        self.left -= len(fresh)
        return fresh

    def answer(self) -> np.ndarray:
        """The best of the subgraphs that are small enough; of the smallest ones, where none is."""
        sizes = [int(subgraph.units.sum()) for subgraph in self.tried.values()]
        leaf = max(self.settings.leaf, min(filter(None, sizes), default=0))
        fits = [subgraph for subgraph, size in zip(self.tried.values(), sizes) if 0 < size <= leaf]
        best = max((subgraph.value for subgraph in fits), default=0.0)
        good = (subgraph.units for subgraph in fits if subgraph.value >= best - EQUAL)
        return next(good, np.zeros(len(self.ends), dtype=bool))

    def effects(self) -> np.ndarray:
        """By how much children with an edge are worth more than those without it, the mean over their parents [U]."""
        total, count = np.zeros(len(self.ends)), np.zeros(len(self.ends))
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


def grow(problem: Problem, trials: Trials, settings: Settings) -> list[Tree]:
    """The trees of all instances, one level of all of them at a time."""
    pack, hops = problem.pack, max(len(problem.predictor.layers), 1)
    first = pack.units.edges.first
    ends = torch.zeros(pack.units.count, 2, dtype=torch.long, device=first.device)
    ends[first[first >= 0]] = pack.edge_index.t()[first >= 0]
    trees = []
    for row, own in enumerate(pack.split(ends)):
        low, high = pack.node_ptr[row : row + 2].tolist()
        draw, targets = stream(problem.seed or 0, pack.key(row)), pack.targets[row] - low
        trees.append(Tree((own - low).cpu().numpy(), high - low, targets.cpu().numpy(), hops, draw, settings))
    active = [row for row, tree in enumerate(trees) if tree.descend()]
    while active:
        fresh = [(row, subgraph) for row in active for subgraph in trees[row].expand()]
        for (_, subgraph), value in zip(fresh, shapley(trees, trials, fresh)):
            subgraph.value = value
        active = [row for row in active if trees[row].descend()]
    return trees


def shapley(trees: Sequence[Tree], trials: Trials, asked: Sequence[tuple[int, Subgraph]]) -> list[float]:
    """The Shapley value of each subgraph, of an instance `row`, as one player among the nodes around it."""
    if not asked:
        return []
    sets = torch.zeros(2, len(asked), trees[0].settings.samples, trials.width, dtype=torch.bool)
    for position, (row, subgraph) in enumerate(asked):
        for way, states in enumerate(trees[row].coalitions(subgraph)):
            sets[way, position, :, : states.shape[1]] = torch.from_numpy(states)
    rows = torch.tensor([row for row, _ in asked]).repeat_interleave(sets.size(2)).repeat(2)
    device = trials.valid.device
    _, slack = trials.test(SUFFICIENT, rows.to(device), sets.flatten(0, 2).to(device))
    there, gone = (slack / 2).tanh().view(2, len(asked), -1)
    values: list[float] = (there - gone).mean(1).tolist()
    return values


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Grow the trees, and score edges by the best subgraph and by what their absence costs."""
    trials = Trials(problem.oracle, problem.criterion, (SUFFICIENT,))
    trees = grow(problem, trials, settings)
    parts = [0.5 * tree.answer() + 0.25 + tree.effects().clip(-1.9, 1.9) / 8 for tree in trees]
    scores = torch.from_numpy(np.concatenate(parts)).float().to(problem.outputs.device)
    return ranked(problem, scores, settings, trials.evaluations)


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
