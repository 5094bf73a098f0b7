"""TAGE: one explainer of embeddings, whatever is made of them (Xie et al., NeurIPS 2022,
https://arxiv.org/abs/2202.08335).

A network scores edges from the model's states of their ends, given a condition p: how much each dimension of the
embedding z matters. It is trained without any answer, for random p, by contrast: the embedding of the masked graph
must be told, in the dimensions that p weighs, from those of the other graphs of the batch,

    -log ( exp(s_ii / τ) / Σ_j exp(s_ij / τ) ) + size · mean M + entropy · H(M),
    s_ij = cos(p_i ⊗ z_i^masked, p_i ⊗ z_j).

The downstream explainer then turns a prediction into a condition: p = |∂ odds / ∂ z|, scaled to a largest entry of 1.

What we changed: z is what the first linear layer after the last message passing reads (or else the row that the model
returns), in units of its spread over the training instances; p is drawn per instance, the positive part of a Laplace
draw scaled to a largest entry of 1; masks are drawn from the concrete distribution, as PGExplainer draws them, and
only a mean mask above `budget` is penalised; an edge and its reverse are one unit; a batch is one packed pass. It
scores `edges`, at every level, whatever the criterion: only the gradient of its odds is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from cf2.errors import require, require_number
from cf2.methods.contract import Method, Problem, Ranking, ranked, settings_dict
from cf2.methods.trained import Batch, MaskSettings, Trained, batches, drawn, moments, read_head, trained_for, unit_mean
from cf2.sets.tests import ONLY
from cf2.units.packs import Pack


@dataclass(frozen=True)
class Settings(MaskSettings):
    """Those of every trained mask; `contrast` is τ, `temperature` that of the draws."""

    batch: int = 32
    contrast: float = 0.5
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("batch", self.batch, 2, integer=True)
        for name in ("contrast", "temperature"):
            require_number(name, getattr(self, name), 0.01)


class Conditioned(nn.Module):
    """A logit per edge unit: w · (ReLU(U h_tail + V h_head + T h_target) ⊗ 2σ(C p)), averaged over directions."""

    def __init__(self, width: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.spread: Tensor
        self.center: Tensor
        self.scale: Tensor
        for name, size in (("mean", width), ("center", embedding)):
            self.register_buffer(name, torch.zeros(size))
        for name, size in (("spread", width), ("scale", embedding)):
            self.register_buffer(name, torch.ones(size))
        self.tail = nn.Linear(width, hidden)
        self.head = nn.Linear(width, hidden, bias=False)
        self.target = nn.Linear(width, hidden, bias=False)
        self.condition = nn.Linear(embedding, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, nodes: Tensor, pack: Pack, p: Tensor) -> Tensor:
        h = (nodes - self.mean) / self.spread
        tail, head = pack.edge_index
        hidden = self.tail(h)[tail] + self.head(h)[head]
        of_edge = pack.batch[tail]
        if pack.targets.size(1):
            hidden = hidden + self.target(h[pack.targets]).sum(1)[of_edge]
        gate = 2 * self.condition(p).sigmoid()
        return unit_mean(self.score(hidden.relu() * gate[of_edge]).squeeze(1), pack)

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
        odds = problem.criterion.odds(run(ONLY.states(states)))
        slope = torch.autograd.grad(odds.sum(), head.raw, allow_unused=True)[0] if odds.requires_grad else None
        return head.rows(torch.zeros_like(head.raw) if slope is None else slope).detach().abs()


def scaled(p: Tensor) -> Tensor:
    """Conditions with a largest entry of 1; all ones where nothing matters."""
    top = p.amax(1, keepdim=True)
    return torch.where(top > 0, p / torch.where(top > 0, top, 1.0), 1.0)


def fit(problems: Sequence[Problem], settings: Settings, seed: int) -> Trained:
    """Train the explainer of embeddings on the instances of the problems, for random conditions."""
    made = batches(problems, settings.batch)
    require(
        max(batch.pack.num_instances for batch in made) > 1,
        "Expected at least two instances to train on, to be told apart",
        got="one",
    )
    plain = [embeddings(batch) for batch in made]
    every = torch.cat(plain)
    spread = every.std(0, unbiased=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Conditioned(made[0].nodes.size(1), every.size(1), settings.hidden).to(every.device)
        network.mean, network.spread = moments(made)
        network.center, network.scale = every.mean(0), torch.where(spread > 1e-6, spread, 1.0)
        adam = torch.optim.Adam(network.parameters(), lr=settings.lr)
        for _ in range(settings.epochs):
            for number in torch.randperm(len(made)).tolist():
                adam.zero_grad()
                cost = loss(network, made[number], plain[number], settings)
                torch.autograd.backward(cost, inputs=list(network.parameters()))  # and not those of the model
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                adam.step()
    count = len(every)
    facts = {"instances": count, "evaluations": count * (2 + 3 * settings.epochs), "seed": seed}
    return Trained("tage", settings_dict(settings), dict(network.state_dict()), facts)


def loss(network: Conditioned, batch: Batch, plain: Tensor, settings: Settings) -> Tensor:
    """The mean over the batch of what one instance costs under one random condition."""
    uniform = torch.rand(plain.shape).clamp(1e-6).to(plain.device)
    p = scaled(-(2 * uniform).clamp(max=1).log())  # the positive part of a Laplace draw: half of them are 0
    mask = drawn(network(batch.nodes, batch.pack, p), settings.temperature)
    count = batch.pack.num_instances
    with read_head(batch.predictor, batch.pack) as head, batch.predictor.soft(batch.pack) as run:
        run(ONLY.states(mask))
        masked = network.standard(head.states)
    whole = normalize(p[:, None] * network.standard(plain)[None], dim=2)  # [B, B, embedding]: p of the row
    alike = torch.einsum("id,ijd->ij", normalize(p * masked, dim=1), whole)
    each = cross_entropy(alike / settings.contrast, torch.arange(count, device=p.device), reduction="none")
    return settings.penalised(each, mask, batch.pack).mean()


def rank(problem: Problem, settings: Settings) -> Ranking:
    """A backward pass for the condition of each prediction, and a pass for the states of the nodes."""
    tensors = problem.trained.tensors
    (hidden, width), embedding = tensors["tail.weight"].shape, len(tensors["center"])
    nodes = trained_for(problem, width)
    network = problem.trained.restore(Conditioned(width, embedding, hidden)).to(nodes.device)
    slopes = conditions(problem)
    require(
        slopes.size(1) == embedding,
        f"Expected the model that the explainer was trained for, with embeddings of width {embedding}",
        got=slopes.size(1),
    )
    with torch.no_grad():
        scores = network(nodes, problem.pack, scaled(slopes * network.scale)).sigmoid()
    return ranked(problem, scores, settings, 4)


METHOD = Method(
    name="tage",
    title="TAGE",
    summary="trained once and without answers: what embeddings are made of, conditioned on what a prediction reads",
    settings=Settings,
    rank=rank,
    units=("edges",),
    needs="training",
    fit=fit,
    paper=("k",),
)
