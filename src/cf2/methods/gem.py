"""Gem: causal contributions, distilled into a graph auto-encoder (Lin et al., ICML 2021,
https://arxiv.org/abs/2104.06643).

The contribution of a unit is how much the loss -log P(ŷ) grows when it is really removed. On the training
instances the largest contributions make up the target subgraph; a graph auto-encoder on the model's node
states learns to give its edges large weights, and an unseen instance then takes one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from cf2.errors import require_number
from cf2.methods.contract import Method, Problem, Ranking, check_choice, rank_within, ranked, settings_dict
from cf2.methods.gradient import sum_of_gradients
from cf2.methods.relaxation import mean_within
from cf2.methods.trained import Trained, batches, moments, trained_for, unit_mean
from cf2.models.oracle import outputs_after
from cf2.sets.tests import WITHOUT
from cf2.units.packs import Pack

HOPS = 6  # distances to the explained node are told apart up to here
BUDGET = 8_000_000  # floats kept by one pass over copies of instances, each with one unit removed


@dataclass(frozen=True)
class Settings:
    """`k` units (or those above `threshold`); the rest is of the training.

    Only the `candidates` units with the steepest gradients are removed one by one; the others count as
    contributing nothing. `target` is the size of the target subgraph: `k` if None, and 10 without a `k`.
    """

    k: int | None = None
    threshold: float | None = None
    candidates: int = 64
    target: int | None = None
    epochs: int = 100
    lr: float = 0.01
    batch: int = 16
    hidden: int = 32

    def __post_init__(self) -> None:
        check_choice(self.k, self.threshold)
        for name in ("candidates", "epochs", "batch", "hidden"):
            require_number(name, getattr(self, name), 1, integer=True)
        require_number("lr", self.lr, 1e-6, 10)
        if self.target is not None:
            require_number("target", self.target, 1, integer=True)

    @property
    def distilled(self) -> int:
        """How many units the target subgraph has."""
        return self.target or self.k or 10


class AutoEncoder(nn.Module):
    """Two graph convolutions give each node a code z; the logit of an edge is z_tail · B z_head + b."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.spread: Tensor
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.near = nn.Embedding(HOPS + 2, hidden)
        self.first = GCNConv(width, hidden)
        self.second = GCNConv(hidden, hidden)
        self.bilinear = nn.Linear(hidden, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, nodes: Tensor, pack: Pack) -> Tensor:
        h = self.first((nodes - self.mean) / self.spread, pack.edge_index)
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
    copies = max(1, BUDGET // max(problem.predictor.cost(nodes, edges), 1))
    for part in torch.split(units, copies):
        rows = owner[part]
        copied = pack.take(rows)
        one = torch.zeros(copied.units.count, dtype=torch.bool, device=part.device)
        one[copied.units.ptr[:-1] + part - pack.units.ptr[rows]] = True
        after = criterion.take(rows).precise_loss(outputs_after(WITHOUT, problem.predictor, copied, one))
        growth[part] = (after - before[rows]).to(growth.dtype)
    return growth


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Distil the target subgraphs, then train the auto-encoder to give their edges weight."""
    growth = [contributions(problem, settings.candidates) for problem in problems]
    wanted = [((rank_within(g, c.pack) < settings.distilled) & (g > 0)).float() for g, c in zip(growth, problems)]
    made = batches(problems, settings.batch)
    goals = torch.split(torch.cat(wanted), [batch.pack.units.count for batch in made])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = AutoEncoder(made[0].nodes.size(1), settings.hidden).to(made[0].nodes.device)
        network.mean, network.spread = moments(made)
        adam = torch.optim.Adam(network.parameters(), lr=settings.lr)
        for _ in range(settings.epochs):
            for number in torch.randperm(len(made)).tolist():
                batch, goal = made[number], goals[number]
                logits = network(batch.nodes, batch.pack)
                each = nn.functional.binary_cross_entropy_with_logits(logits, goal, reduction="none")
                adam.zero_grad()
                torch.autograd.backward(mean_within(each, batch.pack.units.owner, batch.pack.num_instances).mean())
                adam.step()
    count = sum(problem.num_instances for problem in problems)
    removals = sum(int(problem.pack.units.counts.clamp(max=settings.candidates).sum()) for problem in problems)
    facts = {"instances": count, "evaluations": removals + 4 * count, "seed": seed}
    return Trained("gem", settings_dict(settings), dict(network.state_dict()), facts)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Weigh the edges of unseen instances in one pass."""
    hidden, width = problem.trained.tensors["first.lin.weight"].shape
    nodes = trained_for(problem, width)
    network = problem.trained.restore(AutoEncoder(width, hidden)).to(nodes.device)
    with torch.no_grad():
        scores = network(nodes, problem.pack).sigmoid()
    return ranked(problem, scores, settings)


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
