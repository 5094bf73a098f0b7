"""TAGE: one explainer of embeddings, whatever is made of them (Xie et al., NeurIPS 2022,
https://arxiv.org/abs/2202.08335).

A network scores edges from the model's states of their ends, given a condition p: how much each dimension of the
embedding z matters. It is trained without any answer, for random p, by contrast: the embedding of the masked graph
must be told, in the dimensions that p weighs, from those of the other graphs of the batch,

    -log ( exp(s_ii / τ) / Σ_j exp(s_ij / τ) ) + size · mean M + entropy · H(M),
    s_ij = cos(p_i ⊗ z_i^masked, p_i ⊗ z_j).

The downstream explainer then turns a prediction into a condition: p = |∂ odds / ∂ z|, scaled to a largest entry of 1.

Changed here: z is what `read_head` reads, in units of its spread over the training instances; p is drawn per instance,
the positive part of a Laplace draw scaled to a largest entry of 1; masks are drawn and penalised as PGExplainer's are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from cf2.errors import require
from cf2.methods.contract import Method, Problem, Ranking, integer, number, ranked
from cf2.methods.trained import (
    Batch,
    EdgeScorer,
    MaskSettings,
    Trained,
    batches,
    drawn,
    moments,
    read_head,
    train,
    trained_scores,
)
from cf2.sets.tests import ONLY


@dataclass(frozen=True)
class Settings(MaskSettings):
    """Settings of trained masks; `contrast` is τ, `temperature` that of the sampled masks."""

    batch: int = integer(32, 2)
    contrast: float = number(0.5, 0.01)
    temperature: float = number(1.0, 0.01)


class Conditioned(EdgeScorer):
    """An edge scorer with a condition, and the mean and spread of the embeddings that it was trained on."""

    center: Tensor
    scale: Tensor

    def __init__(self, width: int, embedding: int, hidden: int) -> None:
        super().__init__(width, hidden, embedding)
        self.register_buffer("center", torch.zeros(embedding))
        self.register_buffer("scale", torch.ones(embedding))

    def standard(self, z: Tensor) -> Tensor:
        """Embeddings [B, embedding] in units of their spread."""
        return (z - self.center) / self.scale


def embeddings(batch: Batch) -> Tensor:
    """What the head reads of the instances as they are, [B, embedding]."""
    with torch.no_grad(), read_head(batch.predictor, batch.pack) as head, batch.predictor.soft(batch.pack) as run:
        run(ONLY.states(torch.ones(batch.pack.units.count, device=batch.nodes.device)))
        return head.states.detach()


def conditions(problem: Problem) -> Tensor:
    """|∂ odds / ∂ z| of the instances as they are, [B, embedding]: one backward pass."""
    states = torch.ones(problem.pack.units.count, device=problem.outputs.device, requires_grad=True)
    with read_head(problem.predictor, problem.pack) as head, problem.predictor.soft(problem.pack) as run:
        return head.slopes(problem.criterion.odds(run(ONLY.states(states)))).detach().abs()


def scaled(p: Tensor) -> Tensor:
    """Conditions with a largest entry of 1; all ones where nothing matters."""
    top = p.amax(1, keepdim=True)
    return torch.where(top > 0, p / torch.where(top > 0, top, 1.0), 1.0)


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Train the explainer of embeddings on the instances of the problems, for random conditions."""
    batched = batches(problems, settings.batch)
    require(
        max(batch.pack.num_instances for batch in batched) > 1, "Expected at least two instances to train on", got="one"
    )
    embedded = [embeddings(batch) for batch in batched]
    center, scale = moments(torch.cat(embedded))

    def network(width: int) -> Conditioned:
        net = Conditioned(width, len(center), settings.hidden)
        net.center, net.scale = center, scale
        return net

    def loss(net: Conditioned, position: int, epoch: int) -> Tensor:
        return contrast(net, batched[position], embedded[position], settings)

    return train("tage", batched, settings, seed, network, loss, passes=2 + 3 * settings.epochs)


def contrast(net: Conditioned, batch: Batch, z: Tensor, settings: Settings) -> Tensor:
    """The mean over the batch of what one instance costs under one random condition; z are the embeddings [B, ·]."""
    uniform = torch.rand(z.shape).clamp(1e-6).to(z.device)
    p = scaled(-(2 * uniform).clamp(max=1).log())  # the positive part of a Laplace draw: half of them are 0
    mask = drawn(net(batch.nodes, batch.pack, p), settings.temperature)
    with read_head(batch.predictor, batch.pack) as head, batch.predictor.soft(batch.pack) as run:
        run(ONLY.states(mask))
        masked = net.standard(head.states)
    whole = normalize(p[:, None] * net.standard(z)[None], dim=2)  # [B, B, embedding]: p of the row
    similarity = torch.einsum("id,ijd->ij", normalize(p * masked, dim=1), whole)
    own = torch.arange(len(z), device=p.device)
    losses = cross_entropy(similarity / settings.contrast, own, reduction="none")
    return settings.mean_loss(losses, mask, batch.pack)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """A backward pass for the condition of each prediction, and a pass for the states of the nodes."""
    slopes, tensors = conditions(problem), problem.trained.tensors
    embedding = len(tensors["center"])
    require(
        slopes.size(1) == embedding,
        f"Expected the model that the explainer was trained for, with embeddings of width {embedding}",
        got=slopes.size(1),
    )
    p = scaled(slopes * tensors["scale"].to(slopes.device))
    network = partial(Conditioned, embedding=embedding, hidden=len(tensors["tail.weight"]))
    return ranked(problem, trained_scores(problem, network, p), settings, 4)


METHOD = Method(
    name="tage",
    title="TAGE",
    summary="trained once without labels: explains embeddings, conditioned on the prediction",
    settings=Settings,
    rank=rank,
    units=("edges",),
    needs="training",
    fit=fit,
    paper=("k",),
)
