"""GNNExplainer: the masks that keep the prediction (Ying et al., NeurIPS 2019, https://arxiv.org/abs/1903.03894).

Minimises -log P(ŷ | A⊙M, X⊙F) + size + entropy over soft masks. The terms and the first epoch are those of
torch_geometric's GNNExplainer, and so are the defaults: the size of edges is summed, everything else is a mean, and
units that get no gradient in the first epoch take no part. Here an undirected edge is one unit, there it is two
columns; with `directed=True`, `masking="messages"` and the same start both give the same masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.methods.contract import Method, Problem, Ranking, RankSettings, integer, learning_rate, number, ranked
from cf2.methods.relaxation import Step, descend, penalised, size, start
from cf2.sets.tests import ONLY


@dataclass(frozen=True)
class Settings(RankSettings):
    """Selects `k` units, or those above `threshold` (default: 0.5), and weighs the terms of the loss.

    `edge_size` weighs the sum of the edge masks, the other coefficients weigh means.
    """

    epochs: int = integer(100)
    lr: float = learning_rate(0.01)
    edge_size: float = number(0.005)
    edge_entropy: float = number(1.0)
    feature_size: float = number(1.0)
    feature_entropy: float = number(0.1)


def first_logits(problem: Problem) -> Tensor:
    """Logits around 0 with the spread √(2 / nodes)."""
    spread = (2.0 / problem.pack.node_ptr.diff()).sqrt()
    return (start(problem.pack, problem.seed, 1.0) - 1.0) * spread[problem.pack.units.owner]


def optimise_masks(problem: Problem, settings: Settings, logits: Tensor) -> Tensor:
    """Soft masks [units] from the given first logits; 0 for units that the prediction does not depend on."""
    governs = problem.pack.units.entries.first
    is_feature = torch.zeros(problem.pack.units.count, dtype=torch.bool, device=logits.device)
    is_feature[governs[governs >= 0]] = True
    reached: list[Tensor] = []  # edge units, then feature units, that got a gradient in the first epoch

    def objective(step: Step) -> Tensor:
        loss = step.criterion.loss(step.outputs[0])
        if not reached:
            (gradient,) = torch.autograd.grad(loss.sum(), step.mask, retain_graph=True)
            touched = gradient != 0
            reached.extend((touched & kind).nonzero().flatten() for kind in (~is_feature, is_feature))
            return loss
        edges, features = (step.mask[units] for units in reached)
        of_edge, of_feature = (step.owner[units] for units in reached)
        loss = loss + settings.edge_size * size(edges, of_edge, len(loss))
        loss = penalised(loss, edges, of_edge, size=0.0, entropy=settings.edge_entropy)
        return penalised(loss, features, of_feature, size=settings.feature_size, entropy=settings.feature_entropy)

    soft = descend(problem, objective, logits, epochs=settings.epochs, lr=settings.lr, interventions=(ONLY,))
    kept = torch.zeros_like(is_feature)
    kept[torch.cat(reached)] = True
    return torch.where(kept, soft.mask, 0.0)


def rank(problem: Problem, settings: Settings) -> Ranking:
    """Optimise, then keep the k largest masks or those above the threshold."""
    scores = optimise_masks(problem, settings, first_logits(problem))
    return ranked(problem, scores, settings, 3 * settings.epochs + 2)  # one more backward finds what is reached


METHOD = Method(
    name="gnnexplainer",
    title="GNNExplainer",
    summary="factual: the soft masks that keep the prediction, with size and entropy terms",
    settings=Settings,
    rank=rank,
    paper=("k",),
)
