"""How the base model of each data set is built and trained."""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import torch
import torch_geometric
from torch import Tensor, nn

from cf2.errors import require_number, unknown_name
from cf2.models.soft_masks import single_thread
from cf2.samples import registry as datasets
from cf2.samples.registry import Dataset
from cf2.samples.training import Batches, Description, Progress, Recipe, answers, batches, forward, outputs, predict
from cf2.storage import fingerprint

# What the paper and its code fix: three layers, of which the last is read, and sums. The rest: benchmarks/recipes.py.
_SUMS = Recipe(aggregation="sum", epochs=2000, lr=0.01, weight_decay=5e-3, schedule="cosine")
_MOLECULES = Recipe("gin", hidden=32, dense=2, epochs=30, lr=0.005, batch_size=128, pool="sum", validation=0.2)
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "ba-shapes": replace(_SUMS, scale=0.3),
        "tree-cycles": replace(_SUMS, hidden=32),
        "mutag": Recipe(hidden=128, aggregation="sum", dense=3, epochs=40, lr=0.003, batch_size=256),
        "mutag0": Recipe(hidden=64, aggregation="sum", dense=3, epochs=40, lr=0.003, batch_size=256),
        "nci1": Recipe(hidden=32, aggregation="sum", dense=3, epochs=40, lr=0.005, batch_size=256),
        "citeseer": Recipe(
            hidden=32, aggregation="sum", scale=0.3, epochs=100, lr=0.01, weight_decay=5e-4, dropout=0.5
        ),
        "typed-motifs": Recipe("rgcn", hidden=16, layers=2, aggregation="sum", epochs=150, lr=0.01, validation=0.2),
        "cora-links": Recipe(
            hidden=32, layers=2, epochs=100, lr=0.01, weight_decay=5e-4, dropout=0.5, validation=0.2, redraw=True
        ),
        "page-link": Recipe(
            "rgcn", hidden=32, layers=2, aggregation="symmetric", epochs=200, lr=0.01, validation=0.2, redraw=True
        ),
        "benzene": replace(_MOLECULES, epochs=20, instances=4000),
        "fluoride-carbonyl": _MOLECULES,
        "crippen": replace(_MOLECULES, dense=1, readout="all", epochs=50, schedule="cosine"),
        "ba-2motifs": Recipe(hidden=32, aggregation="sum", dense=2, epochs=100, lr=0.005, batch_size=256),
    }
)
_OTHERS = {
    "node": Recipe(hidden=32, readout="all", epochs=200, lr=0.01, weight_decay=5e-4, dropout=0.5),
    "graph": Recipe(hidden=64, dense=3, epochs=100, batch_size=256),
    "pair": Recipe(hidden=32, layers=2, epochs=100, lr=0.01, weight_decay=5e-4, validation=0.2, redraw=True),
}


def recipe_for(dataset: Dataset, arch: str | None = None, **changes: Any) -> Recipe:
    """The recipe of a data set, or the usual one for its task, with changes; None keeps the default."""
    known = {field.name for field in fields(Recipe)}
    for name in changes:
        if name not in known:
            raise unknown_name("the setting", name, known)
    given = {name: value for name, value in {"arch": arch, **changes}.items() if value is not None}
    recipe = replace(RECIPES.get(dataset.name, _OTHERS[dataset.task]), **given)
    require_number("epochs", recipe.epochs, 0, integer=True)
    require_number("lr", recipe.lr, 1e-12)
    require_number("weight_decay", recipe.weight_decay, 0)
    require_number("dropout", recipe.dropout, 0, 0.99)
    require_number("validation", recipe.validation, 0, 0.9)
    for name in ("batch_size", "instances"):
        if getattr(recipe, name) is not None:
            require_number(name, getattr(recipe, name), 1, integer=True)
    if recipe.schedule not in ("constant", "cosine"):
        raise unknown_name("`schedule`", recipe.schedule, ("constant", "cosine"))
    return recipe


def train(
    dataset: Dataset, *, arch: str | None = None, seed: int = 0, progress: Progress | None = None, **changes: Any
) -> tuple[nn.Module, Description]:
    """Train a model; parameters are those of `cf2.training.train`."""
    recipe = recipe_for(dataset, arch, **changes)
    train_ids, test_ids = datasets.split(dataset, seed)
    start = time.perf_counter()
    learned = train_ids[: recipe.instances]
    held = len(learned) - int(len(learned) * (1 - recipe.validation))
    learned, held_out = learned[: len(learned) - held], learned[len(learned) - held :]
    with single_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = recipe.build(dataset)
        size = recipe.batch_size or len(learned)
        parts = [batches(dataset, ids, size) for ids in (learned, held_out)]
        _fit(model, dataset, parts[0], parts[1], recipe, progress)
        rows = outputs(model.eval(), dataset)
    scores = [_score(dataset, rows[ids], dataset.labels[ids]) for ids in (learned, test_ids, held_out)]
    split = {"seed": seed, "train": len(train_ids), "test": len(test_ids)}
    description = Description(
        dataset=dataset.name,
        dataset_seed=dataset.seed,
        fingerprint=dataset.fingerprint(),
        task=dataset.task,
        num_features=dataset.num_features,
        num_classes=dataset.num_classes,
        recipe=recipe,
        seed=seed,
        split=split | {"test_sha256": fingerprint(test_ids.tolist())},
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


def _fit(
    model: nn.Module, dataset: Dataset, learned: Batches, held_out: Batches, recipe: Recipe, progress: Progress | None
) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    steps = max(1, recipe.epochs * len(learned))
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps) if recipe.schedule == "cosine" else None
    model.train()
    best, kept = float("inf"), None
    for epoch in range(1, recipe.epochs + 1):
        loss_sum, seen_rows, seen_labels = 0.0, [], []
        for i in torch.randperm(len(learned)).tolist():
            graph, ids, labels = learned[i]
            asked = _redrawn(dataset, ids, labels) if recipe.redraw and dataset.pairs is not None else ids
            rows = forward(model, dataset, _dropped(graph, recipe.dropout) if recipe.dropout else graph, asked)
            loss = _loss(dataset, rows, labels)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if decay is not None:
                decay.step()
            loss_sum += float(loss.detach()) * len(labels)
            seen_rows.append(rows.detach())
            seen_labels.append(labels)
        if held_out:
            held_out_loss = _held_out_loss(model, dataset, held_out)
            if held_out_loss < best:
                best, kept = held_out_loss, {name: value.clone() for name, value in model.state_dict().items()}
        if progress is not None:
            labels = torch.cat(seen_labels)
            progress(epoch, recipe.epochs, loss_sum / len(labels), _score(dataset, torch.cat(seen_rows), labels))
    if kept is not None:
        model.load_state_dict(kept)


def _held_out_loss(model: nn.Module, dataset: Dataset, held_out: Batches) -> float:
    model.eval()
    with torch.no_grad():
        parts = [_loss(dataset, forward(model, dataset, g, ids), labels) * len(labels) for g, ids, labels in held_out]
    model.train()
    return float(torch.stack(parts).sum())


def _loss(dataset: Dataset, rows: Tensor, labels: Tensor) -> Tensor:
    if dataset.output == "classes":
        return nn.functional.cross_entropy(rows, labels)
    if dataset.output == "logit":
        return nn.functional.binary_cross_entropy_with_logits(rows.view(-1), labels.float())
    return nn.functional.mse_loss(rows.view(-1), labels)


def _score(dataset: Dataset, rows: Tensor, labels: Tensor) -> float:
    """The share of right answers, or R² where numbers are predicted; 0 of nothing."""
    if not len(labels):
        return 0.0
    predicted = answers(dataset, rows)
    if dataset.output != "regression":
        return float((predicted == labels).float().mean())
    return float(1 - (predicted - labels).square().sum() / (labels - labels.mean()).square().sum())


def _redrawn(dataset: Dataset, pairs: Tensor, labels: Tensor) -> Tensor:
    """Pairs [n, 2], of which those without a link are replaced by other pairs that are not among the links."""
    types = dataset.edge_type
    ends = [dataset.data[types[0]], dataset.data[types[2]]] if types else [dataset.data] * 2
    high = torch.tensor([int(end.num_nodes) for end in ends])
    missing = labels == 0
    drawn = (torch.rand(4 * int(missing.sum()) + 16, 2) * high).long()
    links = pairs[~missing]
    known = links[:, 0] * high[1] + links[:, 1]
    fresh = drawn[~torch.isin(drawn[:, 0] * high[1] + drawn[:, 1], known)]
    replaced = pairs.clone()
    count = min(int(missing.sum()), len(fresh))
    replaced[missing.nonzero().view(-1)[:count]] = fresh[:count]
    return replaced


def _dropped(graph: Any, share: float) -> Any:
    """The graph with dropout of its features, drawn for entries that are not zero: CiteSeer's are 99 % zeros."""
    graph = copy.copy(graph)
    for store in graph.node_stores:
        row, column = store.x.nonzero(as_tuple=True)
        values = nn.functional.dropout(store.x[row, column], share)
        store.x = torch.zeros_like(store.x).index_put_((row, column), values)
    return graph


def default_class_share(model: nn.Module, dataset: Dataset, test_ids: Tensor) -> float:
    """The share of the explained test instances whose prediction stays the same with all edges gone; 0 of nothing.

    For those, the empty set is sufficient, and not even all edges together are necessary.
    """
    full = predict(model, dataset)
    chosen = datasets.instances_to_explain(dataset, test_ids, full)
    edgeless = [graph.edge_subgraph(torch.zeros(graph.num_edges, dtype=torch.bool)) for graph in dataset.graphs]
    same = predict(model, replace(dataset, graphs=edgeless))[chosen] == full[chosen]
    return float(same.float().mean()) if len(chosen) else 0.0
