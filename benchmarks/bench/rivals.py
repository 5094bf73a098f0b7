"""torch_geometric's explainers, looped as its users loop them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from bench.timing import cpu
from cf2.options import Key
from cf2.runs.source import ModelAndData


def gnnexplainer(source: ModelAndData, keys: Sequence[Key], epochs: int = 500) -> float:
    """CPU seconds per explanation of torch_geometric's GNNExplainer, one instance at a time."""
    from torch_geometric.explain import GNNExplainer

    explainer = _explainer(source, GNNExplainer(epochs=epochs), "model")
    with torch.random.fork_rng(devices=[]):
        _explain(source, _explainer(source, GNNExplainer(epochs=2), "model"), keys[:1])
        return cpu(lambda: _explain(source, explainer, keys)) / len(keys)


def pgexplainer(source: ModelAndData, keys: Sequence[Key], epochs: int = 30) -> float:
    """CPU seconds per explanation of torch_geometric's PGExplainer, its training shared by all keys."""
    from torch_geometric.explain import PGExplainer

    def everything() -> None:
        algorithm = PGExplainer(epochs=epochs, lr=0.003)
        explainer = _explainer(source, algorithm, "phenomenon")
        for epoch in range(epochs):
            for key in keys:
                data, options = _inputs(source, key)
                algorithm.train(epoch, source.model, data.x, data.edge_index, target=data.y, **options)
        for key in keys:
            data, options = _inputs(source, key)
            explainer(data.x, data.edge_index, target=data.y, **options)

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its training turns a loss with a gradient into a number
        return cpu(everything) / len(keys)


def _explainer(source: ModelAndData, algorithm: Any, kind: str) -> Any:
    from torch_geometric.explain import Explainer

    config = {"mode": "multiclass_classification", "task_level": source.level, "return_type": "raw"}
    return Explainer(source.model, algorithm, explanation_type=kind, edge_mask_type="object", model_config=config)


def _explain(source: ModelAndData, explainer: Any, keys: Sequence[Key]) -> None:
    for key in keys:
        data, options = _inputs(source, key)
        explainer(data.x, data.edge_index, **options)


def _inputs(source: ModelAndData, key: Key) -> tuple[Data, dict[str, Key]]:
    if source.level == "graph":
        return source.graphs[key], {}  # type: ignore[index]
    return source.graphs[0], {"index": key}
