"""RCExplainer: edges whose removal crosses the model's decision boundaries (Bajaj et al., NeurIPS 2021,
https://arxiv.org/abs/2107.04086).

The head of the model is piecewise linear in the embedding α that it reads. Around each training instance it is B(α) =
wᵀα + b, the log-odds of the answer against the runner-up, and B = 0 is a linear decision boundary h. Few boundaries H
are chosen whose positive sides hold as many instances of one answer as possible and as few others; instances that are
left get a further region. A small network then scores edges from the model's states of their ends and is trained on

    λ · mean_h σ(-B_h(α) B_h(α_only)) + (1 - λ) · min_h σ(B_h(α) B_h(α_without)) + size · mean M + entropy · H(M):

with the mask alone the embedding stays on its sides of all boundaries, without it it crosses one.

Changed here: α is what `read_head` reads, so any model will do; w is the gradient of the criterion's slack there, not
read off the weights; boundaries are scaled to a mean of 1 on their own instances; masks are drawn and penalised as
PGExplainer's are. Regions are those of answers, so it is made for classes; where every instance has an answer of its
own, each has its own boundary alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cf2.errors import require
from cf2.methods import pgexplainer
from cf2.methods.contract import Method, Problem, number
from cf2.methods.trained import Batch, EdgeScorer, MaskSettings, Trained, batches, drawn, read_head, train
from cf2.sets.tests import ONLY, WITHOUT

MAX_REGIONS = 8  # of one answer; instances in none of them keep their own boundary


@dataclass(frozen=True)
class Settings(MaskSettings):
    """Settings of trained masks; `factual` is λ, `sharpness` the slope of the sigmoids."""

    factual: float = number(0.5, 0, 1)
    sharpness: float = number(3.0, 0.01)
    temperature: float = number(1.0, 0.01)


@dataclass(frozen=True, eq=False)
class Boundaries:
    """Linear functions of the embedding, and which of them bound the region of each training instance."""

    weight: Tensor  # [n, width]
    bias: Tensor  # [n]
    region: Tensor  # [instances, n] bool
    values: Tensor  # [instances, n], of the embeddings as they are


def local_boundaries(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """The embedding of every instance [B, width], and w [B, width] and b [B] of the head around it."""
    states = torch.ones(batch.pack.units.count, device=batch.nodes.device, requires_grad=True)
    with read_head(batch.predictor, batch.pack) as head, batch.predictor.soft(batch.pack) as run:
        slack = batch.criterion.slack(run(ONLY.states(states)))
        weight, embedded = head.slopes(slack), head.states.detach()
    return embedded, weight, slack.detach().float() - (weight * embedded).sum(1)


def regions(inside: Tensor, answers: Tensor) -> Tensor:
    """Which boundaries bound the region of each instance, bool [instances, n], from who is on which positive side.

    Greedy, as in the paper: the boundary that loses fewest instances of the answer per other instance shed.
    """
    chosen = torch.zeros_like(inside)
    for answer in sorted(set(answers.tolist())):
        own = answers == answer
        members = own.nonzero().flatten()
        left = own.clone()
        for _ in range(MAX_REGIONS):
            if not bool(left.any()):
                break
            held, leaking, picked = left.clone(), ~own, torch.zeros_like(inside[0])
            while True:
                lost = (held[:, None] & ~inside).sum(0)
                shed = (leaking[:, None] & ~inside).sum(0)
                useful = (lost < held.sum()) & (shed > 0) & ~picked
                useful[~own] = False  # a boundary around another answer bounds nothing of this one
                if not bool(useful.any()):
                    break
                cost = torch.where(useful, (lost + 1e-3) / shed.clamp(min=1), torch.inf)
                best = int(cost.argmin())
                picked[best] = True
                held, leaking = held & inside[:, best], leaking & inside[:, best]
            if not bool(picked.any()):  # nothing to shed: the boundary that loses fewest
                picked[members[int((left[:, None] & ~inside[:, members]).sum(0).argmin())]] = True
                held = left & inside[:, picked.nonzero().flatten()].all(1)
            if not bool(held.any()):
                break
            chosen[held] = picked
            left = left & ~held
        alone = left.nonzero().flatten()
        chosen[alone, alone] = True
    return chosen


def boundaries(batched: Sequence[Batch]) -> Boundaries:
    """The boundaries of all training instances, scaled, and the region of each instance."""
    parts = [local_boundaries(batch) for batch in batched]
    embedded, weight, bias = (torch.cat(part) for part in zip(*parts))
    answers = torch.cat([batch.criterion.answers for batch in batched])
    require(
        bool((weight != 0).any()),
        "Expected a model whose output depends on the embedding that its head reads",
        got="gradients that are all 0",
        do="Use a method that does not read embeddings.",
    )
    values = embedded @ weight.t() + bias
    same = answers[:, None] == answers[None]
    scale = (values.abs() * same).sum(0) / same.sum(0)
    scale = torch.where(scale > 0, scale, 1.0)
    values = values / scale
    return Boundaries(weight / scale[:, None], bias / scale, regions(values > 0, answers), values)


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Find the boundaries of the training instances, then train the scorer against them."""
    batched = batches(problems, settings.batch)
    bounds = boundaries(batched)
    rows = torch.split(torch.arange(len(bounds.values)), [batch.pack.num_instances for batch in batched])

    def loss(scorer: EdgeScorer, position: int, epoch: int) -> Tensor:
        batch = batched[position]
        mask = drawn(scorer(batch.nodes, batch.pack), settings.temperature)
        losses = crossings(batch, mask, bounds, rows[position], settings)
        return settings.mean_loss(losses, mask, batch.pack)

    network, kept = partial(EdgeScorer, hidden=settings.hidden), int(bounds.region.any(0).sum())
    return train("rcexplainer", batched, settings, seed, network, loss, passes=4 + 6 * settings.epochs, boundaries=kept)


def crossings(batch: Batch, mask: Tensor, bounds: Boundaries, rows: Tensor, settings: Settings) -> Tensor:
    """What each instance of a batch costs [B]: both masked passes against the boundaries of its region."""
    count = batch.pack.num_instances
    twice = batch.pack.take(torch.arange(count, device=mask.device).repeat(2))
    with read_head(batch.predictor, twice) as head, batch.predictor.soft(twice) as run:
        run(torch.cat([ONLY.states(mask), WITHOUT.states(mask)]))
        only, without = torch.split(head.states @ bounds.weight.t() + bounds.bias, count)
    region, sides = bounds.region[rows], settings.sharpness * bounds.values[rows]
    same = ((-sides * only).sigmoid() * region).sum(1) / region.sum(1)
    crossed = torch.where(region, (sides * without).sigmoid(), torch.inf).amin(1)
    return settings.factual * same + (1 - settings.factual) * crossed


METHOD = Method(
    name="rcexplainer",
    title="RCExplainer",
    summary="factual and counterfactual, trained once: edges that hold the embedding inside its decision boundaries",
    settings=Settings,
    rank=pgexplainer.rank,
    units=("edges",),
    needs="training",
    fit=fit,
    paper=("k",),
)
