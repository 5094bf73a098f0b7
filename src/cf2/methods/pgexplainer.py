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

import torch
from torch import Tensor, nn

from cf2.errors import require_number
from cf2.methods.contract import Method, Problem, Ranking, ranked, settings_dict
from cf2.methods.trained import Batch, MaskSettings, Trained, batches, drawn, moments, trained_for, unit_mean
from cf2.sets.tests import ONLY
from cf2.units.packs import Pack


@dataclass(frozen=True)
class Settings(MaskSettings):
    """Those of every trained mask, and between which temperatures masks are drawn."""

    first_temperature: float = 5.0
    last_temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("first_temperature", "last_temperature"):
            require_number(name, getattr(self, name), 0.01)

    def temperature(self, epoch: int) -> float:
        """From the first to the last temperature in equal ratios."""
        share = epoch / max(self.epochs - 1, 1)
        return float(self.first_temperature * (self.last_temperature / self.first_temperature) ** share)


class Scorer(nn.Module):
    """A logit for every edge unit: w · ReLU(U h_tail + V h_head + T h_target), averaged over directions."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.spread: Tensor
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        # One matrix for each role and node, not one for each edge: there are far more edges than nodes.
        self.tail = nn.Linear(width, hidden)
        self.head = nn.Linear(width, hidden, bias=False)
        self.target = nn.Linear(width, hidden, bias=False)
        self.score = nn.Linear(hidden, 1)

    def forward(self, nodes: Tensor, pack: Pack) -> Tensor:
        h = (nodes - self.mean) / self.spread
        tail, head = pack.edge_index
        hidden = self.tail(h)[tail] + self.head(h)[head]
        if pack.targets.size(1):
            hidden = hidden + self.target(h[pack.targets]).sum(1)[pack.batch[tail]]
        return unit_mean(self.score(hidden.relu()).squeeze(1), pack)


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Train the scorer on the instances of the problems."""
    made = batches(problems, settings.batch)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        scorer = Scorer(made[0].nodes.size(1), settings.hidden).to(made[0].nodes.device)
        scorer.mean, scorer.spread = moments(made)
        adam = torch.optim.Adam(scorer.parameters(), lr=settings.lr)
        for epoch in range(settings.epochs):
            for number in torch.randperm(len(made)).tolist():
                adam.zero_grad()
                cost = loss(scorer, made[number], settings, settings.temperature(epoch))
                torch.autograd.backward(cost, inputs=list(scorer.parameters()))  # and not those of the model
                nn.utils.clip_grad_norm_(scorer.parameters(), 1.0)  # a degree near 0 makes gradients explode
                adam.step()
    count = sum(batch.pack.num_instances for batch in made)
    facts = {"instances": count, "evaluations": count * (1 + 3 * settings.epochs), "seed": seed}
    return Trained("pgexplainer", settings_dict(settings), dict(scorer.state_dict()), facts)


def loss(scorer: Scorer, batch: Batch, settings: Settings, temperature: float) -> Tensor:
    """The mean over the batch of what one instance costs under one random draw of its mask."""
    mask = drawn(scorer(batch.nodes, batch.pack), temperature)
    with batch.predictor.soft(batch.pack) as run:
        each = batch.criterion.loss(run(ONLY.states(mask)))
    return settings.penalised(each, mask, batch.pack).mean()


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Score the edges of unseen instances in one pass."""
    tensors = problem.trained.tensors
    hidden, width = tensors["tail.weight"].shape
    nodes = trained_for(problem, width)
    scorer = problem.trained.restore(Scorer(width, hidden)).to(nodes.device)
    with torch.no_grad():
        scores = scorer(nodes, problem.pack).sigmoid()
    return ranked(problem, scores, settings)


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
