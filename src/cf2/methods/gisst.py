"""GISST: features and edges that matter, learnt together and kept sparse (Lin et al., 2020,
https://arxiv.org/abs/2007.00119).

Every feature column has a probability p = σ(θ), and one attention layer gives every edge another,

    p_e = σ(wᵀ[z_tail ‖ z_head] + b),

by which features and edges are multiplied. All are trained on

    -log P(ŷ | A ⊙ p_e, X ⊙ p) + the mean of the probabilities (L1) + their mean entropy, for edges and for columns.

What we changed: the paper trains the model along with the probabilities, and we explain a model that is there, so
only they are trained; z is the masked feature row beside the model's own states of the node, since a model can see
what no feature says (the planted sets have constant features); columns start near 1, so that the model is not lost
before it is explained; edges are drawn from the concrete distribution in training, as PGExplainer draws them; L1 and
entropy are means within an instance, for graphs of every size; an edge and its reverse have the mean of both. Only a
mean edge mask above `budget` is penalised: a model that normalises by degree does not mind when all masks shrink
together. It scores `edges`, `columns` and `features` (an entry has the probability of its column), at every level,
whatever the criterion; features that are no numbers are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from cf2.errors import require, require_number
from cf2.methods.contract import Method, Problem, Ranking, check_choice, ranked, settings_dict
from cf2.methods.relaxation import entropy, mean_within
from cf2.methods.trained import Batch, Trained, batches, drawn, moments, trained_for, unit_mean
from cf2.sets.tests import ONLY
from cf2.units.kinds import unit_kinds
from cf2.units.packs import Pack, pack


@dataclass(frozen=True)
class Settings:
    """`k` units or those above `threshold`; the rest is of the training.

    `edge_size` weighs what the mean edge mask exceeds `budget` by, `feature_size` the mean of the columns'.
    """

    k: int | None = None
    threshold: float | None = None
    epochs: int = 60
    lr: float = 0.003
    batch: int = 16
    edge_size: float = 1.0
    budget: float = 0.2
    edge_entropy: float = 0.01
    feature_size: float = 0.1
    feature_entropy: float = 0.01
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_choice(self.k, self.threshold)
        for name in ("epochs", "batch"):
            require_number(name, getattr(self, name), 1, integer=True)
        require_number("lr", self.lr, 1e-6, 10)
        for name in ("edge_size", "edge_entropy", "feature_size", "feature_entropy"):
            require_number(name, getattr(self, name), 0)
        require_number("budget", self.budget, 0, 1)
        require_number("temperature", self.temperature, 0.01)


class Attention(nn.Module):
    """A probability per column, and per edge from the masked features and the states of its ends."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.spread: Tensor
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.columns = nn.Parameter(torch.full((features,), 3.0))
        self.tail = nn.Linear(features + width, 1)
        self.head = nn.Linear(features + width, 1, bias=False)

    def forward(self, nodes: Tensor, pack: Pack) -> Tensor:
        """The logit of the probability of every unit of the pack [units]."""
        p = self.columns.sigmoid()
        z = torch.cat([pack.dense().to(p.dtype) * p, (nodes - self.mean) / self.spread], 1)
        tail, head = pack.edge_index
        edges = unit_mean((self.tail(z)[tail] + self.head(z)[head]).squeeze(1), pack).clamp(-10, 10)
        is_feature, column = feature_units(pack)
        return torch.where(is_feature, self.columns[column], edges)


def feature_units(pack: Pack) -> tuple[Tensor, Tensor]:
    """Which units govern feature entries [units], and the column of those (0 for the others)."""
    column = torch.zeros(pack.units.count, dtype=torch.long, device=pack.x.device)
    is_feature = torch.zeros_like(column, dtype=torch.bool)
    first = pack.units.entries.first
    governed = first >= 0
    column[first[governed]] = pack.entry_column[governed]
    is_feature[first[governed]] = True
    return is_feature, column


def with_columns(problem: Problem) -> Problem:
    """The problem with edges and columns as its units, whatever they were: both are learnt together."""
    numbers = problem.pack.x.is_floating_point()
    kinds = unit_kinds(("edges", "columns") if numbers else ("edges",))
    takes = problem.predictor.adapter.takes
    return replace(problem, pack=pack(problem.instances, kinds, takes=takes).to(problem.outputs.device))


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Train the probabilities on the instances of the problems."""
    made = batches([with_columns(problem) for problem in problems], settings.batch)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Attention(made[0].nodes.size(1), made[0].pack.x.size(1)).to(made[0].nodes.device)
        network.mean, network.spread = moments(made)
        adam = torch.optim.Adam(network.parameters(), lr=settings.lr)
        for _ in range(settings.epochs):
            for number in torch.randperm(len(made)).tolist():
                adam.zero_grad()
                cost = loss(network, made[number], settings)
                torch.autograd.backward(cost, inputs=list(network.parameters()))  # and not those of the model
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)  # a degree near 0 makes gradients explode
                adam.step()
    count = sum(batch.pack.num_instances for batch in made)
    facts = {"instances": count, "evaluations": count * (1 + 3 * settings.epochs), "seed": seed}
    return Trained("gisst", settings_dict(settings), dict(network.state_dict()), facts)


def loss(network: Attention, batch: Batch, settings: Settings) -> Tensor:
    """The mean over the batch of what one instance costs."""
    logits = network(batch.nodes, batch.pack)
    rows, owner = batch.pack.num_instances, batch.pack.units.owner
    is_feature, _ = feature_units(batch.pack)
    mask = torch.where(is_feature, logits.sigmoid(), drawn(logits, settings.temperature))
    with batch.predictor.soft(batch.pack) as run:
        each = batch.criterion.loss(run(ONLY.states(mask)))
    edges, of_edge = mask[~is_feature], owner[~is_feature]
    each = each + settings.edge_size * (mean_within(edges, of_edge, rows) - settings.budget).relu()
    each = each + settings.edge_entropy * mean_within(entropy(edges), of_edge, rows)
    columns, of_column = mask[is_feature], owner[is_feature]
    each = each + settings.feature_size * mean_within(columns, of_column, rows)
    each = each + settings.feature_entropy * mean_within(entropy(columns), of_column, rows)
    return each.mean()


def rank(problem: Problem, settings: Settings) -> Ranking:
    """The probabilities of the units of unseen instances, in one pass."""
    tensors = problem.trained.tensors
    features, width = len(tensors["columns"]), len(tensors["mean"])
    nodes = trained_for(problem, width)
    require(
        problem.pack.x.size(1) == features,
        f"Expected data as the explainer was trained on, with {features} features",
        got=problem.pack.x.size(1),
    )
    network = problem.trained.restore(Attention(width, features)).to(nodes.device)
    with torch.no_grad():
        scores = network(nodes, problem.pack).sigmoid()
    return ranked(problem, scores, settings)


METHOD = Method(
    name="gisst",
    title="GISST",
    summary="factual, trained once: sparse probabilities of edges and feature columns, learnt together",
    settings=Settings,
    rank=rank,
    units=("edges", "columns", "features"),
    needs="training",
    fit=fit,
    paper=("k",),
)
