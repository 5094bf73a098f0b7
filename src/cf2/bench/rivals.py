"""torch_geometric's explainers, looped as its users loop them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from cf2.bench.timing import cpu
from cf2.subjects import Subject


def gnnexplainer(subject: Subject, keys: Sequence[int], epochs: int = 500) -> float:
    """CPU seconds per explanation of torch_geometric's GNNExplainer, one instance at a time."""
    from torch_geometric.explain import GNNExplainer

    explainer = _explainer(subject, GNNExplainer(epochs=epochs), "model")
    with torch.random.fork_rng(devices=[]):
        _explain(subject, _explainer(subject, GNNExplainer(epochs=2), "model"), keys[:1])
        return cpu(lambda: _explain(subject, explainer, keys)) / len(keys)


def pgexplainer(subject: Subject, keys: Sequence[int], epochs: int = 30) -> float:
    """CPU seconds per explanation of torch_geometric's PGExplainer, its training shared by all keys."""
    from torch_geometric.explain import PGExplainer

    def everything() -> None:
        algorithm = PGExplainer(epochs=epochs, lr=0.003)
        explainer = _explainer(subject, algorithm, "phenomenon")
        for epoch in range(epochs):
            for key in keys:
                x, edge_index, options = _inputs(subject, key)
                target = subject.graphs[key].y if subject.task == "graph" else subject.graphs[0].y
                algorithm.train(epoch, subject.model, x, edge_index, target=target, **options)
        for key in keys:
            x, edge_index, options = _inputs(subject, key)
            target = subject.graphs[key].y if subject.task == "graph" else subject.graphs[0].y
            explainer(x, edge_index, target=target, **options)

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its training turns a loss with a gradient into a number
        return cpu(everything) / len(keys)


def _explainer(subject: Subject, algorithm: Any, kind: str) -> Any:
    from torch_geometric.explain import Explainer

    config = {"mode": "multiclass_classification", "task_level": subject.task, "return_type": "raw"}
    return Explainer(subject.model, algorithm, explanation_type=kind, edge_mask_type="object", model_config=config)


def _explain(subject: Subject, explainer: Any, keys: Sequence[int]) -> None:
    for key in keys:
        x, edge_index, options = _inputs(subject, key)
        explainer(x, edge_index, **options)


def _inputs(subject: Subject, key: int) -> tuple[Any, Any, dict[str, Any]]:
    data = subject.graphs[key if subject.task == "graph" else 0]
    return data.x, data.edge_index, {} if subject.task == "graph" else {"index": key}
