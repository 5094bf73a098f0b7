"""Train a base model to the seed.

>>> from cf2 import training
>>> model, description = training.shipped("ba-shapes")
>>> description.recipe.layers, round(description.test_accuracy, 3)
(3, 0.979)
"""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric
from torch import Tensor, nn
from torch_geometric.data import Batch

from cf2.models.soft_masks import single_thread
from cf2.samples import registry as datasets
from cf2.samples.checkpoints import Description, digest, load, save, shipped, shipped_names
from cf2.samples.recipes import RECIPES, Recipe, recipe_for
from cf2.samples.registry import Dataset

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

FACTS = ("train_accuracy", "validation_accuracy", "test_accuracy", "metric", "seconds")  # that `cf2 train` tells
PREDICT_NODES = 20_000  # nodes per forward pass when a whole data set is predicted

Progress = Callable[[int, int, float, float], None]
_Batches = list[tuple[Any, Tensor, Tensor]]  # graph, rows, labels


def train(
    dataset: Dataset, *, arch: str | None = None, seed: int = 0, progress: Progress | None = None, **changes: Any
) -> tuple[nn.Module, Description]:
    """Train a model on 80 % of the data; on one machine the same seed gives the same weights, bit for bit.

    The last epoch's weights are kept or, where the recipe holds out a part of the training instances, those of the
    epoch that is best on that part: nothing is selected by looking at the test set.

    Parameters
    ----------
    dataset : Dataset
        The data set, of which `cf2.datasets.split` gives the training part.
    arch : {"gcn", "gin", "gat", "sage", "rgcn", "hgt"}, optional
        The kind of the graph layers, the last two of typed graphs; None: as the recipe of the data set says.
    seed : int
        The seed of the split, of the first weights and of the order of training.
    progress : callable, optional
        Called after each epoch with the epoch, the number of epochs, the loss and the training accuracy (or R²).
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
    learned = train_ids[: recipe.instances]
    held = len(learned) - int(len(learned) * (1 - recipe.validation))
    learned, held_out = learned[: len(learned) - held], learned[len(learned) - held :]
    with single_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = recipe.build(
            dataset.task, dataset.num_features, dataset.num_outputs, dataset.num_edge_features, dataset.types
        )
        size = recipe.batch_size or len(learned)
        parts = [_batches(dataset, ids, size) for ids in (learned, held_out)]
        _fit(model, dataset, parts[0], parts[1], recipe, progress)
        rows = _predicted(model.eval(), dataset)
    scores = [_score(dataset, rows[ids], dataset.labels[ids]) for ids in (learned, test_ids, held_out)]
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
        train_accuracy=scores[0],
        test_accuracy=scores[1],
        seconds=round(time.perf_counter() - start, 2),
        versions={
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
        },
        validation_accuracy=scores[2] if len(held_out) else None,
        output=dataset.output,
        num_edge_features=dataset.num_edge_features,
        types=dataset.types,
    )
    return model, description


def predict(model: nn.Module, dataset: Dataset, *, without_edges: bool = False) -> Tensor:
    """The class that the model gives to each instance, or its number where numbers are predicted.

    Parameters
    ----------
    model : torch.nn.Module
        Called as `model(x, edge_index)`, of a typed graph with dictionaries; with `edge_attr` where edges have
        features, `batch` if graphs are classified and `edge_label_index` if pairs are.
    dataset : Dataset
        The data set.
    without_edges : bool
        Whether all edges are removed first.

    Returns
    -------
    Tensor
        int64 [len(dataset)], or float32 where numbers are predicted.
    """
    return _answers(dataset, _predicted(model, dataset, without_edges=without_edges))


def _predicted(model: nn.Module, dataset: Dataset, *, without_edges: bool = False) -> Tensor:
    """What the model gives for each instance, [len(dataset), outputs] or [len(dataset)]."""
    nodes = sum(int(graph.num_nodes or 0) for graph in dataset.graphs) / len(dataset.graphs)
    outputs = []
    with torch.no_grad():
        for graph, ids, _ in _batches(dataset, torch.arange(len(dataset)), max(1, int(PREDICT_NODES / nodes))):
            outputs.append(_forward(model, dataset, _without_edges(graph) if without_edges else graph, ids))
    return torch.cat(outputs)


def _answers(dataset: Dataset, rows: Tensor) -> Tensor:
    if dataset.output == "classes":
        return rows.argmax(dim=-1)
    return (rows.view(-1) > 0).long() if dataset.output == "logit" else rows.view(-1)


def _score(dataset: Dataset, rows: Tensor, labels: Tensor) -> float:
    """The share of right answers, or R² where numbers are predicted; 0 of nothing."""
    if not len(labels):
        return 0.0
    found = _answers(dataset, rows)
    if dataset.output != "regression":
        return float((found == labels).float().mean())
    return float(1 - (found - labels).square().sum() / (labels - labels.mean()).square().sum())


def _loss(dataset: Dataset, rows: Tensor, labels: Tensor) -> Tensor:
    if dataset.output == "classes":
        return nn.functional.cross_entropy(rows, labels)
    if dataset.output == "logit":
        return nn.functional.binary_cross_entropy_with_logits(rows.view(-1), labels.float())
    return nn.functional.mse_loss(rows.view(-1), labels)


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


def _fit(
    model: nn.Module, dataset: Dataset, batches: _Batches, held_out: _Batches, recipe: Recipe, progress: Progress | None
) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    steps = max(1, recipe.epochs * len(batches))
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps) if recipe.schedule == "cosine" else None
    model.train()
    best, kept = float("inf"), None
    for epoch in range(1, recipe.epochs + 1):
        loss_sum, found, known = 0.0, [], []
        for i in torch.randperm(len(batches)).tolist():
            graph, ids, labels = batches[i]
            asked = _redrawn(dataset, ids, labels) if recipe.redraw and dataset.pairs is not None else ids
            rows = _forward(model, dataset, graph, asked, recipe.dropout)
            loss = _loss(dataset, rows, labels)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if decay is not None:
                decay.step()
            loss_sum += float(loss.detach()) * len(labels)
            found.append(rows.detach())
            known.append(labels)
        if held_out:
            lost = _held_out_loss(model, dataset, held_out)
            if lost < best:
                best, kept = lost, {name: value.clone() for name, value in model.state_dict().items()}
        if progress is not None:
            labels = torch.cat(known)
            score = _score(dataset, torch.cat(found), labels)
            progress(epoch, recipe.epochs, loss_sum / len(labels), score)
    if kept is not None:
        model.load_state_dict(kept)


def _held_out_loss(model: nn.Module, dataset: Dataset, batches: _Batches) -> float:
    model.eval()
    with torch.no_grad():
        parts = [_loss(dataset, _forward(model, dataset, g, ids), labels) * len(labels) for g, ids, labels in batches]
    model.train()
    return float(torch.stack(parts).sum())


def _batches(dataset: Dataset, ids: Tensor, size: int) -> _Batches:
    """Graphs, the rows of each to learn from, and their labels; collated once, as that costs as much as a step."""
    if not len(ids):
        return []
    labels = dataset.labels
    if dataset.task != "graph":
        asked = ids if dataset.pairs is None else dataset.pairs[ids]
        return [(dataset.graphs[0], asked, labels[ids])]
    out = []
    for part in torch.split(ids, size):
        batch = Batch.from_data_list([dataset.graphs[i] for i in part.tolist()], exclude_keys=["truth", "smiles"])
        out.append((batch, torch.arange(len(part)), labels[part]))
    return out


def _redrawn(dataset: Dataset, pairs: Tensor, labels: Tensor) -> Tensor:
    """Pairs [n, 2], of which those without a link are replaced by others that are drawn and are none of the links."""
    types = dataset.edge_type
    ends = [dataset.data[types[0]], dataset.data[types[2]]] if types else [dataset.data] * 2
    high = torch.tensor([int(end.num_nodes) for end in ends])
    missing = labels == 0
    drawn = (torch.rand(4 * int(missing.sum()) + 16, 2) * high).long()
    links = pairs[~missing]
    known = links[:, 0] * high[1] + links[:, 1]
    fresh = drawn[~torch.isin(drawn[:, 0] * high[1] + drawn[:, 1], known)]
    out = pairs.clone()
    count = min(int(missing.sum()), len(fresh))
    out[missing.nonzero().view(-1)[:count]] = fresh[:count]
    return out


def _forward(model: nn.Module, dataset: Dataset, graph: Any, ids: Tensor, dropout: float = 0.0) -> Tensor:
    """The model's rows of some nodes, of all graphs of a batch, or of pairs [n, 2], called as the data has it."""
    named: dict[str, Tensor] = {}
    if dataset.num_edge_features:
        named["edge_attr"] = graph.edge_attr
    if dataset.task == "graph":
        named["batch"] = graph.batch
    if dataset.pairs is not None:
        named["edge_label_index"] = ids.t()
    if dataset.typed:
        x = {kind: _thin(x, dropout) if dropout else x for kind, x in graph.x_dict.items()}
        rows: Tensor = model(x, graph.edge_index_dict, **named)
    else:
        rows = model(_thin(graph.x, dropout) if dropout else graph.x, graph.edge_index, **named)
    return rows[ids] if dataset.task == "node" else rows


def _without_edges(graph: Any) -> Any:
    bare = copy.copy(graph)
    for store in bare.edge_stores:
        for name in ("edge_index", "edge_attr"):
            if name in store:
                store[name] = store[name][:, :0] if name == "edge_index" else store[name][:0]
    return bare


def _thin(x: Tensor, share: float) -> Tensor:
    """Dropout that draws only for entries that are not zero: CiteSeer's features are 99 % zeros."""
    row, column = x.nonzero(as_tuple=True)
    thinned = torch.zeros_like(x)
    thinned[row, column] = nn.functional.dropout(x[row, column], share)
    return thinned
