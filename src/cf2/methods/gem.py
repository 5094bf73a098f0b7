"""Gem: causal contributions, distilled into a graph auto-encoder (Lin et al., ICML 2021,
https://arxiv.org/abs/2104.06643).

The contribution of an edge is how much the loss -log P(ŷ) grows when it is really removed. On the training instances
edges are pruned from the least contribution on: an edge whose removal does not let the loss of what is left grow
stays away, any other comes back with that growth as its weight. The largest weights make up the target subgraph. A
variational graph auto-encoder with an inner product decoder, z_i · z_j, learns these weights for all pairs of nodes by
mean squares, and an unseen instance then takes one pass.

Changed here: the auto-encoder reads the model's node states, and for nodes the distance from the explained one, where
the authors' code reads features and labels of the structure. Weights are relative to the largest of their instance.
Pruning does not keep the rest connected (the code's `--disconnected`), and the last epoch is kept, not the best one on
validation instances. Settings are the authors' for graphs (for nodes: lr 0.003, 100 epochs, batches of 32).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import scatter

from cf2.methods.contract import Method, Problem, Ranking, RankSettings, integer, learning_rate, ranked
from cf2.methods.trained import Network, Trained, batches, train, trained_scores, unit_mean
from cf2.units.packs import Pack

HOPS = 6  # distances to the explained node are told apart up to here
MAX_STATES = 1 << 24  # bools of the states in which one edge each is removed, at once


@dataclass(frozen=True)
class Settings(RankSettings):
    """Selects `k` units, or those above `threshold`; the other settings control the training.

    `target` is the size of the target subgraph: `k` if None, and 10 without a `k`.
    """

    target: int | None = integer(None)
    epochs: int = integer(300)
    lr: float = learning_rate(0.01)
    batch: int = integer(128)
    hidden: int = integer(32)
    code: int = integer(16)

    @property
    def distilled(self) -> int:
        """How many units the target subgraph has."""
        return self.target or self.k or 10


class AutoEncoder(Network):
    """Graph convolutions give each node a code z around a mean; the logit of an edge is z_tail · z_head."""

    def __init__(self, width: int, hidden: int, code: int) -> None:
        super().__init__(width)
        self.near = nn.Embedding(HOPS + 2, hidden)
        self.first, self.second = GCNConv(width, hidden), GCNConv(hidden, hidden)
        self.middle, self.spread_of = GCNConv(hidden, code), GCNConv(hidden, code)

    def codes(self, nodes: Tensor, pack: Pack) -> Tensor:
        """z of every node [N, code]: drawn in training, the mean otherwise."""
        h = self.first(self.scaled(nodes), pack.edge_index)
        if pack.targets.size(1):
            h = h + self.near(distances(pack))
        h = self.second(h.relu(), pack.edge_index).relu()
        z: Tensor = self.middle(h, pack.edge_index)
        if self.training:
            z = z + self.spread_of(h, pack.edge_index).exp() * torch.randn_like(z)
        return z

    def forward(self, nodes: Tensor, pack: Pack) -> Tensor:
        return products(self.codes(nodes, pack), pack)


def products(z: Tensor, pack: Pack) -> Tensor:
    """z_tail · z_head of every unit [units]."""
    tail, head = pack.edge_index
    return unit_mean((z[tail] * z[head]).sum(1), pack)


def distances(pack: Pack) -> Tensor:
    """Steps from every node to the explained node of its instance, at most HOPS + 1."""
    tail, head = pack.edge_index
    far = torch.full((pack.x.size(0),), HOPS + 1, device=pack.x.device)
    far[pack.targets.flatten()] = 0
    for _ in range(HOPS):
        step = far.scatter_reduce(0, tail, far[head] + 1, "amin")
        far = step.scatter_reduce(0, head, far[tail] + 1, "amin")
    return far


def losses_without(problem: Problem, rows: Tensor, states: Tensor, unit: Tensor) -> Tensor:
    """The loss of instances `rows` [R] in `states` [R, U] from which one unit [R] each is removed as well."""
    outputs = problem.oracle.outputs(rows, states.scatter(1, unit[:, None], False))
    return problem.criterion.take(rows).precise_loss(outputs)


def pruned(problem: Problem) -> Tensor:
    """The weight of every unit [B, U]: what its removal adds to the loss in its turn, 0 where it stays away."""
    oracle = problem.oracle
    best = problem.criterion.precise_loss(problem.outputs).clone()
    alone = torch.full(oracle.valid.shape, torch.inf, dtype=best.dtype, device=best.device)
    every = oracle.valid.nonzero()
    for part in torch.split(every, max(1, MAX_STATES // max(oracle.width, 1))):
        rows, unit = part.t()
        alone[rows, unit] = losses_without(problem, rows, oracle.valid[rows], unit) - best[rows]
    order = alone.argsort(dim=1, stable=True)
    kept, weight = oracle.valid.clone(), torch.zeros_like(alone)
    for turn in range(oracle.width):
        rows = (oracle.counts > turn).nonzero().flatten()
        unit = order[rows, turn]
        growth = losses_without(problem, rows, kept[rows], unit) - best[rows]
        kept[rows, unit] = growth > 0
        weight[rows, unit] = growth.clamp(min=0)
        best[rows] += growth.clamp(max=0)
    return weight


def distilled(problem: Problem, size: int) -> Tensor:
    """The target of every unit [units]: its weight where it is among the largest `size`, of its instance's largest."""
    if not problem.pack.units.count:
        return torch.zeros(0, device=problem.outputs.device)
    weight = pruned(problem)
    largest = weight.topk(min(size, weight.size(1)), dim=1)
    target = torch.zeros_like(weight).scatter(1, largest.indices, largest.values)
    target = target / target.amax(1, keepdim=True).clamp(min=torch.finfo(target.dtype).tiny)
    return target[problem.oracle.valid].float()


def squares(z: Tensor, pack: Pack, target: Tensor) -> Tensor:
    """The mean over all pairs of nodes of (z_i · z_j - target_ij)² [B], with 1 on the diagonal.

    ‖ZZᵀ - T‖² = ‖ZᵀZ‖² - 2 Σ T_ij z_i·z_j + ‖T‖², so that no matrix of all pairs is made.
    """
    counts = pack.node_ptr.diff()
    outer = scatter(z[:, :, None] * z[:, None], pack.batch, dim_size=len(counts))
    diagonal = scatter(z.square().sum(1), pack.batch, dim_size=len(counts))
    edges = 2 * target * (products(z, pack) - target / 2)  # an undirected edge is two entries
    of_edges = scatter(edges, pack.units.owner, dim_size=len(counts))
    total: Tensor = outer.square().sum((1, 2)) - 2 * diagonal + counts - 2 * of_edges
    return total / counts.square()


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Distil the target subgraphs, then train the auto-encoder to give their edges weight."""
    wanted = torch.cat([distilled(problem, settings.distilled) for problem in problems])
    batched = batches(problems, settings.batch)
    goals = torch.split(wanted, [batch.pack.units.count for batch in batched])

    def loss(encoder: AutoEncoder, position: int, epoch: int) -> Tensor:
        batch = batched[position]
        return squares(encoder.codes(batch.nodes, batch.pack), batch.pack, goals[position]).mean()

    removals = 2 * sum(problem.pack.units.count for problem in problems)
    network = partial(AutoEncoder, hidden=settings.hidden, code=settings.code)
    return train("gem", batched, settings, seed, network, loss, passes=1, removals=removals)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Weigh the edges of unseen instances in one pass."""
    hidden, code = (len(problem.trained.tensors[f"{layer}.lin.weight"]) for layer in ("first", "middle"))
    return ranked(problem, trained_scores(problem, partial(AutoEncoder, hidden=hidden, code=code)), settings)


METHOD = Method(
    name="gem",
    title="Gem",
    summary="causal, trained once: a variational graph auto-encoder learns what removing each edge does to the loss",
    settings=Settings,
    rank=rank,
    units=("edges",),
    needs="training",
    fit=fit,
    paper=("k",),
)
