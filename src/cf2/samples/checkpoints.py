"""Trained models on disk: `NAME.safetensors` with `NAME.json` beside it; those in here are shipped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from cf2.errors import CF2Error, require, unknown_name
from cf2.samples import registry as datasets
from cf2.samples.recipes import Recipe
from cf2.samples.registry import Dataset
from cf2.storage import write_together

DIRECTORY = Path(__file__).parent / "weights"
WEIGHTS = "weights_sha256"  # beside the fields of a description


@dataclass(frozen=True)
class Description:
    """Everything needed to rebuild a model, and to know what it was trained on and how well it does.

    Parameters
    ----------
    dataset, dataset_seed, fingerprint, task, num_features, num_classes
        The data set: its name, seed, SHA-256 and shape.
    recipe : Recipe
        The model's shape and its training.
    seed : int
        The seed of the split, of the first weights and of the order of training.
    split : mapping
        `seed`, the sizes `train` and `test`, and `test_sha256`, a digest of the test ids.
    train_accuracy, test_accuracy : float
        Shares of right predictions, in [0, 1]; where a number is predicted, R², at most 1.
    seconds : float
        How long the training took.
    versions : mapping of str to str
        The versions of Python, torch and torch_geometric that trained it.
    validation_accuracy : float, optional
        The same of the instances that were held out of the training, where the recipe holds some out.
    output : {"classes", "logit", "regression"}
        What the model gives for an instance.
    num_edge_features : int
        The columns of `edge_attr`.
    types : mapping, optional
        The types of a typed graph, as `Dataset.types` gives them.
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
        """What the accuracies are."""
        return "R²" if self.output == "regression" else "accuracy"

    def build(self) -> nn.Module:
        """The model that this describes, untrained."""
        outputs = self.num_classes if self.output == "classes" else 1
        return self.recipe.build(self.task, self.num_features, outputs, self.num_edge_features, self.types)

    def mismatches(self, dataset: Dataset) -> list[str]:
        """In what a data set differs from the one that the model was trained on.

        Parameters
        ----------
        dataset : Dataset
            The data set at hand.

        Returns
        -------
        list of str
            A phrase per difference; none if it is the same data with the same split.
        """
        pairs = [
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
            f"{what}: {mine!r} in the model, {theirs!r} here" for what, mine, theirs in pairs if mine != theirs
        ]
        if different:
            return different
        if self.fingerprint != dataset.fingerprint():
            return ["the edges, labels or features are not the same"]
        if self.split["test_sha256"] != digest(datasets.split(dataset, self.split["seed"])[1]):
            return ["the split into training and test instances is not the same"]
        return []


def digest(ids: Tensor) -> str:
    """A SHA-256 of a list of ids in its order."""
    return hashlib.sha256(json.dumps(ids.tolist()).encode()).hexdigest()


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
    path = _weights_path(path)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    weights = to_bytes(state)
    about = json.dumps({**asdict(description), WEIGHTS: hashlib.sha256(weights).hexdigest()}, indent=2) + "\n"
    write_together(
        {
            path: lambda partial: partial.write_bytes(weights),
            path.with_suffix(".json"): lambda partial: partial.write_text(about, encoding="utf-8"),
        }
    )
    return path


def load(path_or_name: str | Path, dataset: Dataset | None = None) -> tuple[nn.Module, Description]:
    """Read a trained model.

    Parameters
    ----------
    path_or_name : str or Path
        A path that `save` was given or returned, or the name of a data set with a shipped model.
    dataset : Dataset, optional
        Data that must be what the model was trained on.

    Returns
    -------
    model : torch.nn.Module
        In evaluation mode.
    description : Description
        What it was trained on, and how.
    """
    if str(path_or_name) in shipped_names():
        path_or_name = DIRECTORY / str(path_or_name)
    path = _weights_path(path_or_name)
    for file in (path, path.with_suffix(".json")):
        require(
            file.is_file(),
            f"Expected the file {file} of a trained model, and it is missing",
            do=f"`cf2 train` writes it; the shipped models are {', '.join(shipped_names())}.",
        )
    description, expected = _read_description(path.with_suffix(".json"))
    weights = path.read_bytes()
    require(
        expected == hashlib.sha256(weights).hexdigest(),
        f"Expected {path} to hold the weights that {path.with_suffix('.json').name} describes",
        got="others, or damaged ones",
        do="Train it again with `cf2 train`.",
    )
    with torch.random.fork_rng(devices=[]):  # the start values that are about to be overwritten
        model = description.build()
    try:
        model.load_state_dict(from_bytes(weights))
    except (SafetensorError, RuntimeError) as error:
        raise CF2Error(
            f"Expected {path} to hold the weights that {path.with_suffix('.json').name} describes",
            got=error,
            do="Train it again with `cf2 train`.",
        ) from error
    differences = description.mismatches(dataset) if dataset is not None else []
    if differences:
        raise CF2Error(
            f"Expected the data that {path.name} was trained on", got="; ".join(differences), do="Train it again."
        )
    return model.eval(), description


def shipped(name: str) -> tuple[nn.Module, Description]:
    """The trained model that comes with the package for a data set.

    Parameters
    ----------
    name : str
        One of `shipped_names()`.

    Returns
    -------
    model, description
        As `load` gives them.
    """
    if name not in shipped_names():
        raise unknown_name("a data set with a shipped model", name, shipped_names())
    return load(DIRECTORY / name)


def shipped_names() -> list[str]:
    """The data sets that have a shipped model."""
    return sorted(path.stem for path in DIRECTORY.glob("*.safetensors"))


def _weights_path(path: str | Path) -> Path:
    path = Path(path).expanduser()
    return path if path.suffix == ".safetensors" else path.with_name(path.name + ".safetensors")


def _read_description(path: Path) -> tuple[Description, str]:
    """The description, and the digest of the weights that it is of."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        expected = content.pop(WEIGHTS)
        return Description(**{**content, "recipe": Recipe(**content["recipe"])}), expected
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CF2Error(
            f"Expected {path} to be the description of a trained model",
            got=error,
            do="Train it again with `cf2 train`.",
        ) from error
