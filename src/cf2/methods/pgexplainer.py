"""PGExplainer: one edge scorer for all instances (Luo et al., NeurIPS 2020, https://arxiv.org/abs/2011.04573).

A small network scores an edge from the model's states of its two ends (and of the node that is explained).
It is trained on -log P(ŷ | A⊙M) + size + entropy with M drawn from the concrete distribution, whose
temperature falls; an unseen instance then takes one pass. Size and entropy are means over an instance's
edges, so that one weight suits graphs of every size. Only a mean mask above `budget` is penalised: a model
that normalises by degree does not mind when all masks shrink together, and without a budget they all do.
The entropy term, off unless asked for, leads to the same collapse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from cf2.methods.contract import Method, Problem, Ranking, number, ranked
from cf2.methods.trained import EdgeScorer, MaskSettings, Trained, batches, drawn, train, trained_scores
from cf2.sets.tests import ONLY


@dataclass(frozen=True)
class Settings(MaskSettings):
    """Settings of the training, and the first and last temperature at which masks are drawn."""

    first_temperature: float = number(5.0, 0.01)
    last_temperature: float = number(1.0, 0.01)

    def temperature(self, epoch: int) -> float:
        """From the first to the last temperature in equal ratios."""
        share = epoch / max(self.epochs - 1, 1)
        return float(self.first_temperature * (self.last_temperature / self.first_temperature) ** share)


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Train the scorer on the instances of the problems."""
    batched = batches(problems, settings.batch)

    def loss(scorer: EdgeScorer, position: int, epoch: int) -> Tensor:
        """The mean over the batch of what one instance costs under one random draw of its mask."""
        batch = batched[position]
        mask = drawn(scorer(batch.nodes, batch.pack), settings.temperature(epoch))
        with batch.predictor.soft(batch.pack) as run:
            losses = batch.criterion.loss(run(ONLY.states(mask)))
        return settings.mean_loss(losses, mask, batch.pack)

    network = partial(EdgeScorer, hidden=settings.hidden)
    return train("pgexplainer", batched, settings, seed, network, loss, passes=1 + 3 * settings.epochs)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Score the edges of unseen instances in one pass."""
    network = partial(EdgeScorer, hidden=len(problem.trained.tensors["tail.weight"]))
    return ranked(problem, trained_scores(problem, network), settings)


METHOD = Method(
    name="pgexplainer",
    title="PGExplainer",
    summary="factual, trained once: a shared network scores edges from the model's node states",
    settings=Settings,
    rank=rank,
    units=("edges",),
    needs="training",
    fit=fit,
    paper=("k",),
)
