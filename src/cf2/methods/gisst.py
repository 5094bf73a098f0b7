"""GISST: features and edges that matter, learnt together and kept sparse (Lin et al., 2020,
https://arxiv.org/abs/2007.00119).

Every feature column has a probability p = σ(θ), and one attention layer gives every edge another,

    p_e = σ(wᵀ[z_tail ‖ z_head] + b),

by which features and edges are multiplied. All are trained on

    -log P(ŷ | A ⊙ p_e, X ⊙ p) + the mean of the probabilities (L1) + their mean entropy, for edges and for columns.

Changed here: the paper trains the model along with the probabilities, and we explain a model that is there; z is the
masked feature row beside the model's own states of the node, since a model can see what no feature says (the planted
sets have constant features); columns start near 1, so that the model is not lost before it is explained; edge masks are
drawn and penalised as PGExplainer's are. A feature entry has the probability of its column; features that are no
numbers are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from cf2.errors import require
from cf2.methods.contract import Method, Problem, Ranking, RankSettings, integer, learning_rate, number, ranked
from cf2.methods.relaxation import penalised
from cf2.methods.trained import Network, Trained, batches, drawn, train, trained_scores, unit_mean
from cf2.sets.tests import ONLY
from cf2.units.kinds import unit_kinds
from cf2.units.packs import Pack, pack


@dataclass(frozen=True)
class Settings(RankSettings):
    """Selects `k` units, or those above `threshold`; the other settings control the training.

    `edge_size` weighs the excess of the mean edge mask over `budget`, `feature_size` that of the mean column mask.
    """

    epochs: int = integer(60)
    lr: float = learning_rate(0.003)
    batch: int = integer(16)
    edge_size: float = number(1.0)
    budget: float = number(0.2, 0, 1)
    edge_entropy: float = number(0.01)
    feature_size: float = number(0.1)
    feature_entropy: float = number(0.01)
    temperature: float = number(1.0, 0.01)


class Attention(Network):
    """A probability per column, and per edge from the masked features and the states of its ends."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__(width)
        self.columns = nn.Parameter(torch.full((features,), 3.0))
        self.tail = nn.Linear(features + width, 1)
        self.head = nn.Linear(features + width, 1, bias=False)

    def forward(self, nodes: Tensor, pack: Pack) -> Tensor:
        """The logit of the probability of every unit of the pack [units]."""
        p = self.columns.sigmoid()
        z = torch.cat([pack.dense().to(p.dtype) * p, self.scaled(nodes)], 1)
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
    return problem.repacked(pack(problem.instances, kinds, takes=takes).to(problem.outputs.device))


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Train the probabilities on the instances of the problems."""
    batched = batches([with_columns(problem) for problem in problems], settings.batch)

    def loss(attention: Attention, position: int, epoch: int) -> Tensor:
        """The mean over the batch of what one instance costs."""
        batch = batched[position]
        logits, owner = attention(batch.nodes, batch.pack), batch.pack.units.owner
        column, _ = feature_units(batch.pack)
        mask = torch.where(column, logits.sigmoid(), drawn(logits, settings.temperature))
        with batch.predictor.soft(batch.pack) as run:
            losses = batch.criterion.loss(run(ONLY.states(mask)))
        of_edges = {"size": settings.edge_size, "entropy": settings.edge_entropy, "budget": settings.budget}
        of_columns = {"size": settings.feature_size, "entropy": settings.feature_entropy}
        losses = penalised(losses, mask[~column], owner[~column], **of_edges)
        return penalised(losses, mask[column], owner[column], **of_columns).mean()

    network = partial(Attention, features=batched[0].pack.x.size(1))
    return train("gisst", batched, settings, seed, network, loss, passes=1 + 3 * settings.epochs)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """The probabilities of the units of unseen instances, in one pass."""
    features = len(problem.trained.tensors["columns"])
    require(
        problem.pack.x.size(1) == features,
        f"Expected data as the explainer was trained on, with {features} features",
        got=problem.pack.x.size(1),
    )
    return ranked(problem, trained_scores(problem, partial(Attention, features=features)), settings)


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
