"""GraphLIME: which features of a neighbourhood go with the predictions on it (Huang et al., TKDE 2022,
https://arxiv.org/abs/2001.06216).

The nodes up to `hops` around the explained one are samples: their features, and what the model says of each. The HSIC
Lasso looks for the few features that the predictions depend on, also not linearly:

    min over β ≥ 0 of  ½ ‖L̄ - Σ_k β_k K̄_k‖² + ρ ‖β‖₁,

with K̄_k and L̄ the centred Gram matrices of feature k and of the predictions, scaled to norm 1, of Gaussian kernels.
A lasso without negative weights is a non-negative least-squares problem, and scipy solves it. The kernels and ρ are
those of the published code: exp(-distance² / 0.2 d), with d the number of features, or of classes.

Changed here: the predictions on all neighbourhoods of a pack come from one pass over the receptive fields, so those of
nodes near the border of one lack what lies outside; of a large neighbourhood the nearest `nodes` count. The paper has
nothing for single entries: each has the weight of its column, divided by 1 + the distance of its node from the target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls

from cf2.methods.contract import Method, Problem, Ranking, RankSettings, integer, number, ranked
from cf2.methods.gem import distances
from cf2.methods.gradient import largest

RIDGE = 1e-8  # turns the linear term of the lasso into a square; far below what the weights are computed to


@dataclass(frozen=True)
class Settings(RankSettings):
    """Selects `k` units, or those above `threshold` (default: 0.5) when the largest weight is scaled to 1.

    `hops` and `nodes` set the size of the neighbourhood, `rho` the sparsity of the weights.
    """

    hops: int = integer(2, 1, 6)
    nodes: int = integer(100, 2)
    rho: float = number(0.1, 0, 1)


def gram(values: np.ndarray, dimensions: int) -> np.ndarray:
    """Centred Gram matrices [c, n, n], of norm 1 or 0, of the samples values [c, n, width].

    >>> round(float((gram(np.array([[[0.0], [0.0], [1.0]]]), 1) ** 2).sum()), 6)
    1.0
    """
    gaps = ((values[:, :, None] - values[:, None]) ** 2).sum(-1)
    kernel = np.exp(-gaps / (0.2 * dimensions))
    kernel = kernel - kernel.mean(1, keepdims=True)
    kernel = kernel - kernel.mean(2, keepdims=True)
    norm = np.sqrt((kernel**2).sum((1, 2), keepdims=True))
    return np.asarray(np.where(norm > 1e-12, kernel / np.where(norm > 1e-12, norm, 1.0), 0.0))


def lasso(features: np.ndarray, wanted: np.ndarray, rho: float) -> np.ndarray:
    """The weights β ≥ 0 [c] that minimise ½ ‖wanted - Σ β_k features_k‖² + ρ Σ β_k; features [c, m], wanted [m].

    >>> lasso(np.eye(3)[:2], np.array([1.0, 0.0, 0.5]), 0.1).round(6).tolist()
    [0.9, 0.0]
    """
    # Only inner products matter: the rows of √Λ Vᵀ have those of the features, and there are c of them, not m.
    value, vector = np.linalg.eigh(features @ features.T)
    root = np.sqrt(value.clip(min=0))
    seen = root > 1e-9
    goal = np.where(seen, vector.T @ (features @ wanted) / np.where(seen, root, 1.0), 0.0)
    # ½ (√ε Σβ + ρ/√ε)² is ρ Σβ, a constant, and a square that is too small to matter.
    rows = np.vstack([root[:, None] * vector.T, np.full((1, len(root)), np.sqrt(RIDGE))])
    weights, _ = nnls(rows, np.append(goal, -rho / np.sqrt(RIDGE)), maxiter=30 * len(root) + 100)
    return np.asarray(weights)


def weights(problem: Problem, row: int, outputs: np.ndarray, far: np.ndarray, settings: Settings) -> np.ndarray:
    """The weight of every column of one instance [d], from what the model says of its nodes and how far they are."""
    x = problem.instances[row].x
    order = np.argsort(far, kind="stable")[: settings.nodes]
    near = order[far[order] <= settings.hops]
    found = np.zeros(x.size(1))
    sample = x[torch.from_numpy(near)].double().numpy()
    varies = np.flatnonzero(np.ptp(sample, axis=0) > 0)
    if len(varies) and len(near) > 1:
        features = gram(sample.T[varies][:, :, None], x.size(1)).reshape(len(varies), -1)
        wanted = gram(outputs[None, near], outputs.shape[1]).reshape(-1)
        found[varies] = lasso(features, wanted, settings.rho)
    return found


def rank(problem: Problem, settings: Settings) -> Ranking:
    """One pass over the pack for all predictions, then a lasso per instance."""
    pack, device = problem.pack, problem.outputs.device
    rows = problem.predictor.rows_of_many(pack, torch.arange(pack.x.size(0), device=device)[:, None])
    outputs = problem.predictor.probabilities(rows).double().cpu().numpy()
    steps = distances(pack)
    far = steps.cpu().numpy()
    starts = pack.node_ptr.tolist()
    parts = []
    for row, table in enumerate(problem.tables):
        own = slice(starts[row], starts[row + 1])
        by_column = weights(problem, row, outputs[own], far[own], settings)
        parts.append(torch.from_numpy(by_column[table.ids[:, 1].numpy()]))
    scores = torch.cat(parts).float().to(device)
    single = torch.cat([table.ids[:, 0] >= 0 for table in problem.tables]).to(device)
    governed = pack.units.entries.first
    near = torch.zeros_like(scores)
    near[governed[governed >= 0]] = steps[pack.entry_row[governed >= 0]].to(scores.dtype)
    scores = torch.where(single, scores / (1 + near), scores)
    scores = scores / largest(scores, problem)[pack.units.owner]
    return ranked(problem, scores, settings)


METHOD = Method(
    name="graphlime",
    title="GraphLIME",
    summary="a sparse, non-linear fit of the predictions in a node's neighbourhood by their features",
    settings=Settings,
    rank=rank,
    units=("columns", "features"),
    levels=("node",),
    paper=("k",),
)
