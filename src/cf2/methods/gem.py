"""Gem: causal contributions, distilled into a graph auto-encoder (Lin et al., ICML 2021,
https://arxiv.org/abs/2104.06643).

The contribution of a unit is how much the loss -log P(ŷ) grows when it is really removed. On the training
instances the largest contributions make up the target subgraph; a graph auto-encoder on the model's node
states learns to give its edges large weights, and an unseen instance then takes one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from cf2.methods.contract import Method, Problem, Ranking, RankSettings, integer, learning_rate, rank_within, ranked
from cf2.methods.reduction import sum_of_gradients
from cf2.methods.relaxation import mean_within
from cf2.methods.trained import Network, Trained, batches, train, trained_for, trained_scores, unit_mean
from cf2.models.oracle import outputs_after
from cf2.sets.tests import WITHOUT
from cf2.units.packs import Pack

HOPS = 6  # distances to the explained node are told apart up to here
MAX_FLOATS = 8_000_000  # kept by one pass over copies of instances, each with one unit removed


@dataclass(frozen=True)
class Settings(RankSettings):
    """`k` units (or those above `threshold`); the rest is of the training.

    Only the `candidates` units with the steepest gradients are removed one by one; the others count as
    contributing nothing. `target` is the size of the target subgraph: `k` if None, and 10 without a `k`.
    """

    candidates: int = integer(64)
    target: int | None = integer(None)
    epochs: int = integer(100)
    lr: float = learning_rate(0.01)
    batch: int = integer(16)
    hidden: int = integer(32)

    @property
    def distilled(self) -> int:
        """How many units the target subgraph has."""
        return self.target or self.k or 10


class AutoEncoder(Network):
    """Two graph convolutions give each node a code z; the logit of an edge is z_tail · B z_head + b."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width)
        self.near = nn.Embedding(HOPS + 2, hidden)
        self.first = GCNConv(width, hidden)
        self.second = GCNConv(hidden, hidden)
        self.bilinear = nn.Linear(hidden, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, nodes: Tensor, pack: Pack) -> Tensor:
        h = self.first(self.scaled(nodes), pack.edge_index)
        if pack.targets.size(1):
            h = h + self.near(distances(pack))
        z = self.second(h.relu(), pack.edge_index)
        tail, head = pack.edge_index
        return unit_mean((z[tail] * self.bilinear(z)[head]).sum(1) + self.bias, pack)


def distances(pack: Pack) -> Tensor:
    """Steps from every node to the explained node of its instance, at most HOPS + 1."""
    tail, head = pack.edge_index
    far = torch.full((pack.x.size(0),), HOPS + 1, device=pack.x.device)
    far[pack.targets.flatten()] = 0
    for _ in range(HOPS):
        step = far.scatter_reduce(0, tail, far[head] + 1, "amin")
        far = step.scatter_reduce(0, head, far[tail] + 1, "amin")
    return far


def contributions(problem: Problem, candidates: int) -> Tensor:
    """The loss without the unit, minus the loss with it; 0 for units that are not candidates. [units]"""
    pack, criterion = problem.pack, problem.criterion
    steepness = sum_of_gradients(problem, [1.0]).abs()
    owner = pack.units.owner
    units = (rank_within(steepness, pack) < candidates).nonzero().flatten()
    before = criterion.precise_loss(problem.outputs)
    growth = torch.zeros_like(steepness)
    nodes, edges = int(pack.node_ptr.diff().max()), int(pack.edge_ptr.diff().max())
    copies = max(1, MAX_FLOATS // max(problem.predictor.cost(nodes, edges), 1))
    for part in torch.split(units, copies):
        rows = owner[part]
        copied = pack.take(rows)
        removed = torch.zeros(copied.units.count, dtype=torch.bool, device=part.device)
        removed[copied.units.ptr[:-1] + part - pack.units.ptr[rows]] = True
        after = criterion.take(rows).precise_loss(outputs_after(WITHOUT, problem.predictor, copied, removed))
        growth[part] = (after - before[rows]).to(growth.dtype)
    return growth


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Distil the target subgraphs, then train the auto-encoder to give their edges weight."""
    growth = [contributions(problem, settings.candidates) for problem in problems]
    wanted = [((rank_within(g, p.pack) < settings.distilled) & (g > 0)).float() for g, p in zip(growth, problems)]
    made = batches(problems, settings.batch)
    goals = torch.split(torch.cat(wanted), [batch.pack.units.count for batch in made])

    def loss(encoder: AutoEncoder, position: int, epoch: int) -> Tensor:
        batch = made[position]
        logits = encoder(batch.nodes, batch.pack)
        losses = nn.functional.binary_cross_entropy_with_logits(logits, goals[position], reduction="none")
        return mean_within(losses, batch.pack.units.owner, batch.pack.num_instances).mean()

    removals = sum(int(problem.pack.units.counts.clamp(max=settings.candidates).sum()) for problem in problems)
    network = partial(AutoEncoder, hidden=settings.hidden)
    return train("gem", made, settings, seed, network, loss, passes=4, clip=None, removals=removals)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Weigh the edges of unseen instances in one pass."""
    nodes = trained_for(problem)
    hidden, width = problem.trained.tensors["first.lin.weight"].shape
    return ranked(problem, trained_scores(problem, AutoEncoder(width, hidden), nodes), settings)


METHOD = Method(
    name="gem",
    title="Gem",
    summary="causal, trained once: a graph auto-encoder learns what removing each edge does to the loss",
    settings=Settings,
    rank=rank,
    units=("edges",),
    needs="training",
    fit=fit,
    paper=("k",),
)
