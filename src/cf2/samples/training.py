"""Base models on disk, `NAME.safetensors` with `NAME.json` beside it, and what they predict. Some are shipped.

>>> from cf2 import training
>>> model, description = training.shipped("ba-shapes")
>>> description.recipe.layers, round(description.test_accuracy, 3)
(3, 0.979)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch_geometric.data import Batch

from cf2.errors import CF2Error, require, unknown_name
from cf2.samples import from_clone
from cf2.samples import registry as datasets
from cf2.samples.models import build
from cf2.samples.registry import Dataset
from cf2.storage import fingerprint, write_together

__all__ = ["Description", "Recipe", "load", "predict", "save", "shipped", "shipped_names", "train"]

DIRECTORY = Path(__file__).parent / "weights"
WEIGHTS = "weights_sha256"  # beside the fields of a description
MAX_NODES_PER_CALL = 20_000  # in a forward pass, when a whole data set is predicted
TRAIN_AGAIN = "Train it again with `cf2 train`."

Progress = Callable[[int, int, float, float], None]
Batches = list[tuple[Any, Tensor, Tensor]]  # graph, rows, labels


@dataclass(frozen=True)
class Recipe:
    """A model's shape and its training.

    Parameters
    ----------
    arch : {"gcn", "gin", "gat", "sage", "rgcn", "hgt"}
        The kind of the graph layers; the last two are for typed graphs.
    hidden, layers, dense : int
        The width of the hidden layers, and the numbers of graph layers and of linear layers in the head.
    aggregation, scale : {"symmetric", "symmetric-self-loops", "sum"}, float
        How a GCN scales its messages, and the factor of its sums. Typed graphs: sum, else mean.
    readout, pool : {"last", "all"}, {"mean", "sum"}
        Whether the head gets the last hidden state or all of them (of pairs: the last); how nodes become one graph.
    epochs, lr, weight_decay, schedule : int, float, float, {"constant", "cosine"}
        How often each training instance is seen, the rates of Adam, and how the learning rate changes.
    dropout : float
        The share of the input features that is dropped in each training step.
    batch_size, instances : int, optional
        Graphs per training step, and how many instances are trained on at most; None: all.
    validation : float
        The share of the training instances that is held out; the epoch with the smallest loss on them is kept. 0: the
        last epoch is kept.
    redraw : bool
        Whether pairs without a link are drawn anew in each epoch; those that are held out stay.
    """

    arch: str = "gcn"
    hidden: int = 16
    layers: int = 3
    aggregation: str = "symmetric"
    readout: str = "last"
    dense: int = 1
    epochs: int = 1000
    lr: float = 0.001
    weight_decay: float = 0.0
    dropout: float = 0.0
    batch_size: int | None = None
    schedule: str = "constant"
    pool: str = "mean"
    instances: int | None = None
    validation: float = 0.0
    redraw: bool = False
    scale: float = 1.0

    def build(self, data: Dataset | Description) -> nn.Module:
        """The untrained model of this shape for a data set, or for the one that is described."""
        shape = ("hidden", "layers", "aggregation", "readout", "dense", "pool", "scale")
        return build(
            self.arch,
            task=data.task,
            num_features=data.num_features,
            num_classes=data.num_classes if data.output == "classes" else 1,
            num_edge_features=data.num_edge_features,
            types=data.types,
            **{name: getattr(self, name) for name in shape},
        )


@dataclass(frozen=True)
class Description:
    """Everything needed to rebuild a model, with its data, its training and its accuracy.

    Parameters
    ----------
    dataset, dataset_seed, fingerprint, task, num_features, num_classes, num_edge_features, types, output
        The data set: its name, seed, SHA-256 and shape, as a `Dataset` has them.
    recipe : Recipe
        The model's shape and its training.
    seed : int
        The seed of the split, of the first weights and of the order of training.
    split : mapping
        `seed`, the sizes `train` and `test`, and `test_sha256`, a digest of the test ids.
    train_accuracy, test_accuracy, validation_accuracy : float
        Shares of right predictions, in [0, 1]; where a number is predicted, R², at most 1. The last is of the instances
        that were held out of the training, where the recipe holds some out.
    seconds, versions : float, mapping of str to str
        How long the training took, and the versions of Python, torch and torch_geometric.
    """

    dataset: str
    dataset_seed: int
    fingerprint: str
    task: str
    num_features: int
    num_classes: int
    recipe: Recipe
    seed: int
    split: Mapping[str, Any]
    train_accuracy: float
    test_accuracy: float
    seconds: float
    versions: Mapping[str, str]
    validation_accuracy: float | None = None
    output: str = "classes"
    num_edge_features: int = 0
    types: Mapping[str, Any] | None = None

    @property
    def metric(self) -> str:
        """What the accuracies are: "accuracy" or "R²"."""
        return "R²" if self.output == "regression" else "accuracy"

    def mismatches(self, dataset: Dataset) -> list[str]:
        """The differences between a data set and the one that the model was trained on, a phrase each."""
        compared = [
            ("data set", self.dataset, dataset.name),
            ("task", self.task, dataset.task),
            ("features", self.num_features, dataset.num_features),
            ("classes", self.num_classes, dataset.num_classes),
            ("output", self.output, dataset.output),
            ("features of an edge", self.num_edge_features, dataset.num_edge_features),
            ("types", self.types, dataset.types),
            ("seed of the data", self.dataset_seed, dataset.seed),
            ("instances", self.split["train"] + self.split["test"], len(dataset)),
        ]
        different = [
            f"{what}: {ours!r} in the model, {given!r} here" for what, ours, given in compared if ours != given
        ]
        if different:
            return different
        if self.fingerprint != dataset.fingerprint():
            return ["the edges, labels or features are not the same"]
        if self.split["test_sha256"] != fingerprint(datasets.split(dataset, self.split["seed"])[1].tolist()):
            return ["the split into training and test instances is not the same"]
        return []


# -- files ----------------------------------------------------------------------------------------------------


def save(path: str | Path, model: nn.Module, description: Description) -> Path:
    """Write the weights of a model and, beside them, its description, which holds a digest of the weights.

    Parameters
    ----------
    path : str or Path
        Where to; the suffixes .safetensors and .json are added.
    model : torch.nn.Module
        A model of the shape that the description gives.
    description : Description
        What `train` returned with it.

    Returns
    -------
    Path
        The file of the weights.
    """
    path = weights_path(path)
    weights = to_bytes({name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()})
    about = json.dumps({**asdict(description), WEIGHTS: fingerprint(weights)}, indent=2) + "\n"
    described = path.with_suffix(".json")
    write_together({path: lambda p: p.write_bytes(weights), described: lambda p: p.write_text(about, encoding="utf-8")})
    return path


def load(path_or_name: str | Path, dataset: Dataset | None = None) -> tuple[nn.Module, Description]:
    """Read a trained model.

    Parameters
    ----------
    path_or_name : str or Path
        A path given to `save`, or the name of a data set with a shipped model.
    dataset : Dataset, optional
        The data that the model must have been trained on.

    Returns
    -------
    model : torch.nn.Module
        In evaluation mode.
    description : Description
        Its data and its training.
    """
    if str(path_or_name) in shipped_names():
        path_or_name = DIRECTORY / str(path_or_name)
    path = weights_path(path_or_name)
    described = path.with_suffix(".json")
    for file in (path, described):
        require(
            file.is_file(),
            f"Expected the file {file} of a trained model, and it is missing",
            do=f"`cf2 train` writes it; the shipped models are {', '.join(shipped_names())}.",
        )
    try:
        content = json.loads(described.read_text(encoding="utf-8"))
        expected = content.pop(WEIGHTS)
        description = Description(**{**content, "recipe": Recipe(**content["recipe"])})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = f"Expected {described} to be the description of a trained model"
        raise CF2Error(what, got=error, do=TRAIN_AGAIN) from error
    weights = path.read_bytes()
    matching = f"Expected {path} to hold the weights that {described.name} describes"
    require(expected == fingerprint(weights), matching, got="others, or damaged ones", do=TRAIN_AGAIN)
    with torch.random.fork_rng(devices=[]):  # the start values that are about to be overwritten
        model = description.recipe.build(description)
    try:
        model.load_state_dict(from_bytes(weights))
    except (SafetensorError, RuntimeError) as error:
        raise CF2Error(matching, got=error, do=TRAIN_AGAIN) from error
    differences = "; ".join(description.mismatches(dataset)) if dataset is not None else ""
    expected_data = f"Expected the data that {path.name} was trained on"
    require(not differences, expected_data, got=differences, do="Train it again.")
    return model.eval(), description


def shipped(name: str) -> tuple[nn.Module, Description]:
    """The trained model that comes with the package for a data set of `shipped_names()`, as `load` gives it."""
    if name not in shipped_names():
        raise unknown_name("a data set with a shipped model", name, shipped_names())
    return load(DIRECTORY / name)


def shipped_names() -> list[str]:
    """The data sets that have a shipped model."""
    return sorted(path.stem for path in DIRECTORY.glob("*.safetensors"))


def weights_path(path: str | Path) -> Path:
    """The file of the weights, given with its suffix or without."""
    path = Path(path).expanduser()
    return path if path.suffix == ".safetensors" else path.with_name(path.name + ".safetensors")


# -- training and predicting ----------------------------------------------------------------------------------


def train(
    dataset: Dataset, *, arch: str | None = None, seed: int = 0, progress: Progress | None = None, **changes: Any
) -> tuple[nn.Module, Description]:
    """Train a model on 80 % of the data, in a clone of the repository; the same seed gives the same weights.

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
        Its data, its training and its accuracy.
    """
    trainer = from_clone(".", "reproduction.training").train
    trained: tuple[nn.Module, Description] = trainer(dataset, arch=arch, seed=seed, progress=progress, **changes)
    return trained


def predict(model: nn.Module, dataset: Dataset) -> Tensor:
    """The class that the model gives to each instance, or its number where numbers are predicted.

    Parameters
    ----------
    model : torch.nn.Module
        Called as `model(x, edge_index)`, of a typed graph with dictionaries; with `edge_attr` where edges have
        features, `batch` if graphs are classified and `edge_label_index` if pairs are.
    dataset : Dataset
        The data set.

    Returns
    -------
    Tensor
        int64 [len(dataset)], or float32 where numbers are predicted.
    """
    return answers(dataset, outputs(model, dataset))


def outputs(model: nn.Module, dataset: Dataset) -> Tensor:
    """What the model gives for each instance, [len(dataset), outputs] or [len(dataset)]."""
    nodes = sum(int(graph.num_nodes or 0) for graph in dataset.graphs) / len(dataset.graphs)
    parts = batches(dataset, torch.arange(len(dataset)), max(1, int(MAX_NODES_PER_CALL / nodes)))
    with torch.no_grad():
        return torch.cat([forward(model, dataset, graph, ids) for graph, ids, _ in parts])


def answers(dataset: Dataset, rows: Tensor) -> Tensor:
    """The predicted classes, or numbers, of rows that the model gave."""
    if dataset.output == "classes":
        return rows.argmax(dim=-1)
    return (rows.view(-1) > 0).long() if dataset.output == "logit" else rows.view(-1)


def batches(dataset: Dataset, ids: Tensor, size: int) -> Batches:
    """Graphs, the rows of each to ask for, and their labels; collated once, as that costs as much as a step."""
    if not len(ids):
        return []
    labels = dataset.labels
    if dataset.task != "graph":
        return [(dataset.graphs[0], ids if dataset.pairs is None else dataset.pairs[ids], labels[ids])]
    collated = []
    for part in torch.split(ids, size):
        batch = Batch.from_data_list([dataset.graphs[i] for i in part.tolist()], exclude_keys=["truth", "smiles"])
        collated.append((batch, torch.arange(len(part)), labels[part]))
    return collated


def forward(model: nn.Module, dataset: Dataset, graph: Any, ids: Tensor) -> Tensor:
    """The model's rows of some nodes, of all graphs of a batch, or of pairs [n, 2]."""
    named: dict[str, Tensor] = {}
    if dataset.num_edge_features:
        named["edge_attr"] = graph.edge_attr
    if dataset.task == "graph":
        named["batch"] = graph.batch
    if dataset.pairs is not None:
        named["edge_label_index"] = ids.t()
    inputs = (graph.x_dict, graph.edge_index_dict) if dataset.typed else (graph.x, graph.edge_index)
    rows: Tensor = model(*inputs, **named)
    return rows[ids] if dataset.task == "node" else rows
