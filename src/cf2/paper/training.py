"""Train a base model to the seed.

>>> from cf2 import training
>>> model, description = training.shipped("ba-shapes")
>>> description.recipe.layers, round(description.test_accuracy, 3)
(3, 0.986)
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from cf2.core.hooks import single_thread
from cf2.paper import datasets
from cf2.paper.checkpoints import Description, digest, load, save, shipped, shipped_names
from cf2.paper.datasets import Dataset
from cf2.paper.recipes import RECIPES, Recipe, recipe_for

__all__ = [
    "RECIPES",
    "Description",
    "Recipe",
    "default_class_share",
    "load",
    "predict",
    "recipe_for",
    "save",
    "shipped",
    "shipped_names",
    "train",
]

PREDICT_NODES = 20_000  # nodes per forward pass when a whole data set is predicted

Progress = Callable[[int, int, float, float], None]
_Batches = list[tuple[Data, Tensor]]


def train(
    dataset: Dataset, *, arch: str = "gcn", seed: int = 0, progress: Progress | None = None, **changes: Any
) -> tuple[nn.Module, Description]:
    """Train a model on 80 % of the data; on one machine the same seed gives the same weights, bit for bit.

    The last epoch's weights are kept: nothing is selected by looking at the test set.

    Parameters
    ----------
    dataset : Dataset
        The data set, of which `cf2.datasets.split` gives the training part.
    arch : {"gcn", "gin", "gat", "sage"}
        The kind of the graph layers.
    seed : int
        The seed of the split, of the first weights and of the order of training.
    progress : callable, optional
        Called after each epoch with the epoch, the number of epochs, the loss and the training accuracy.
    **changes
        Fields of `Recipe`, such as `hidden`, `epochs` and `lr`.

    Returns
    -------
    model : torch.nn.Module
        In evaluation mode.
    description : Description
        What it was trained on, how, and how well it does.
    """
    recipe = recipe_for(dataset, arch, **changes)
    train_ids, test_ids = datasets.split(dataset, seed)
    start = time.perf_counter()
    with single_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = recipe.build(dataset.task, dataset.num_features, dataset.num_classes)
        _fit(model, _batches(dataset, train_ids, recipe.batch_size or len(train_ids)), recipe, progress)
        right = predict(model.eval(), dataset) == dataset.labels
    description = Description(
        dataset=dataset.name,
        dataset_seed=dataset.seed,
        fingerprint=dataset.fingerprint(),
        task=dataset.task,
        num_features=dataset.num_features,
        num_classes=dataset.num_classes,
        recipe=recipe,
        seed=seed,
        split={"seed": seed, "train": len(train_ids), "test": len(test_ids), "test_sha256": digest(test_ids)},
        train_accuracy=float(right[train_ids].float().mean()),
        test_accuracy=float(right[test_ids].float().mean()),
        seconds=round(time.perf_counter() - start, 2),
        versions={
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
        },
    )
    return model, description


def predict(model: nn.Module, dataset: Dataset, *, without_edges: bool = False) -> Tensor:
    """The class that the model gives to each node (node task) or graph.

    Parameters
    ----------
    model : torch.nn.Module
        Called as `model(x, edge_index)`, and with `batch` if graphs are classified.
    dataset : Dataset
        The data set.
    without_edges : bool
        Whether all edges are removed first.

    Returns
    -------
    Tensor
        int64 [len(dataset)].
    """
    nodes = sum(int(graph.num_nodes or 0) for graph in dataset.graphs) / len(dataset.graphs)
    outputs = []
    with torch.no_grad():
        for batch, _ in _batches(dataset, torch.arange(len(dataset)), max(1, int(PREDICT_NODES / nodes))):
            edge_index = batch.edge_index[:, :0] if without_edges else batch.edge_index
            outputs.append(_forward(model, batch.x, edge_index, batch))
    return torch.cat(outputs).argmax(dim=-1)


def default_class_share(model: nn.Module, dataset: Dataset, test_ids: Tensor) -> float:
    """The share of the explained instances whose prediction stays the same with all edges gone.

    For those, the empty set is sufficient, and not even all edges together are necessary.

    Parameters
    ----------
    model : torch.nn.Module
        As for `predict`.
    dataset : Dataset
        The data set.
    test_ids : Tensor
        int64 [tests], the second part of `cf2.datasets.split`.

    Returns
    -------
    float
        In [0, 1]; 0 if there is nothing to explain.
    """
    full = predict(model, dataset)
    chosen = datasets.instances_to_explain(dataset, test_ids, full)
    same = predict(model, dataset, without_edges=True)[chosen] == full[chosen]
    return float(same.float().mean()) if len(chosen) else 0.0


def _fit(model: nn.Module, batches: _Batches, recipe: Recipe, progress: Progress | None) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    steps = max(1, recipe.epochs * len(batches))
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps) if recipe.schedule == "cosine" else None
    model.train()
    for epoch in range(1, recipe.epochs + 1):
        loss_sum, right, seen = 0.0, 0, 0
        for i in torch.randperm(len(batches)).tolist():
            batch, ids = batches[i]
            x = _thin(batch.x, recipe.dropout) if recipe.dropout else batch.x
            logits, labels = _forward(model, x, batch.edge_index, batch)[ids], batch.y[ids]
            loss = nn.functional.cross_entropy(logits, labels)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if decay is not None:
                decay.step()
            loss_sum += float(loss.detach()) * len(ids)
            right += int((logits.argmax(-1) == labels).sum())
            seen += len(ids)
        if progress is not None:
            progress(epoch, recipe.epochs, loss_sum / seen, right / seen)


def _batches(dataset: Dataset, ids: Tensor, size: int) -> _Batches:
    """Each batch with the rows to learn from; collated once, since that costs as much as a training step."""
    if dataset.task == "node":
        return [(dataset.graphs[0], ids)]
    out = []
    for part in torch.split(ids, size):
        batch = Batch.from_data_list([dataset.graphs[i] for i in part.tolist()], exclude_keys=["truth"])
        out.append((batch, torch.arange(len(part))))
    return out


def _forward(model: nn.Module, x: Tensor, edge_index: Tensor, batch: Data) -> Tensor:
    logits: Tensor = model(x, edge_index, batch=batch.batch) if "batch" in batch else model(x, edge_index)
    return logits


def _thin(x: Tensor, share: float) -> Tensor:
    """Dropout that draws only for entries that are not zero: CiteSeer's features are 99 % zeros."""
    row, column = x.nonzero(as_tuple=True)
    thinned = torch.zeros_like(x)
    thinned[row, column] = nn.functional.dropout(x[row, column], share)
    return thinned
