"""The planted explanation itself: the upper line of every comparison against ground truth.

It is given as `trained`: a mapping from keys to the true edges, pairs [k, 2] of the user's node ids.

    cf2.explain(model, data, nodes, method="truth", trained=planted(dataset, nodes))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cf2.errors import CF2Error, require
from cf2.instances import Instance
from cf2.methods.method import Chunk, Method, Ranking


@dataclass(frozen=True)
class Settings:
    """There is nothing to set."""


def planted(dataset: Any, keys: Iterable[int]) -> dict[int, np.ndarray]:
    """The true edges of the keys of a `cf2.datasets.Dataset`, as pairs of node ids."""
    pairs = {}
    for key in (int(key) for key in keys):
        mask = dataset.truth(key)
        require(mask is not None, f"Expected a data set with the true explanation of {key}", got=dataset.name)
        graph = dataset.graphs[0 if dataset.task == "node" else key]
        pairs[key] = graph.edge_index[:, mask].t().numpy()
    return pairs


def rank(chunk: Chunk, settings: Settings) -> Ranking:
    """The units whose edges are among the true ones of their instance."""
    if not isinstance(chunk.trained, Mapping):
        raise CF2Error(
            "Expected the true edges for method 'truth'",
            got="none" if chunk.trained is None else type(chunk.trained).__name__,
            do="Pass trained={key: pairs of node ids}, for example cf2.methods.truth.planted(dataset, keys).",
        )
    scores = torch.zeros(chunk.pack.num_units)
    for row, instance in enumerate(chunk.instances):
        if instance.key not in chunk.trained:
            raise CF2Error(f"Expected `trained` to hold the true edges of {instance.key}", got="none")
        first = int(chunk.pack.unit_ptr[row])
        found = among(instance, np.asarray(chunk.trained[instance.key]).reshape(-1, 2))
        edges = int(chunk.pack.units[row] - chunk.pack.entry_ptr.diff()[row])
        scores[first : first + edges] = torch.from_numpy(found[:edges]).float()
    scores = scores.to(chunk.y.device)
    return Ranking(scores, scores > 0.5, torch.zeros(chunk.pack.size, dtype=torch.long))


def among(instance: Instance, pairs: np.ndarray) -> np.ndarray:
    """Which edge units of the instance are in `pairs`, in either direction if the graph is undirected."""
    units = instance.unit_edges.numpy()
    if not instance.directed:
        pairs = np.sort(pairs, 1)
    if not len(units) or not len(pairs):
        return np.zeros(len(units), dtype=bool)
    high = int(max(units.max(), pairs.max())) + 1
    found: np.ndarray = np.isin(units[:, 0] * high + units[:, 1], pairs[:, 0] * high + pairs[:, 1])
    return found


METHOD = Method(
    name="truth",
    summary="the planted explanation, the upper line of a comparison",
    settings=Settings,
    rank=rank,
)
