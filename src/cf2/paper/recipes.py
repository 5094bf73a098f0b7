"""How each data set's base model is built and trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from torch import nn

from cf2.errors import require_number, unknown_name
from cf2.paper.datasets import Dataset
from cf2.paper.models import build


@dataclass(frozen=True)
class Recipe:
    """A model's shape and its training.

    Parameters
    ----------
    arch, hidden, layers, aggregation, readout, dense
        The shape, as for `cf2.paper.models.build`.
    epochs : int
        How often each training instance is seen.
    lr, weight_decay : float
        Those of Adam.
    dropout : float
        The share of the input features that is dropped in each training step.
    batch_size : int, optional
        Graphs per training step; None: all at once.
    schedule : {"constant", "cosine"}
        How the learning rate changes.
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

    def __post_init__(self) -> None:
        require_number("epochs", self.epochs, 0, integer=True)
        require_number("lr", self.lr, 1e-12)
        require_number("weight_decay", self.weight_decay, 0)
        require_number("dropout", self.dropout, 0, 0.99)
        if self.batch_size is not None:
            require_number("batch_size", self.batch_size, 1, integer=True)
        if self.schedule not in ("constant", "cosine"):
            raise unknown_name("`schedule`", self.schedule, ("constant", "cosine"))

    def build(self, task: str, num_features: int, num_classes: int) -> nn.Module:
        """The model of this shape, untrained; see `cf2.paper.models.build`."""
        return build(
            self.arch,
            task=task,
            num_features=num_features,
            num_classes=num_classes,
            hidden=self.hidden,
            layers=self.layers,
            aggregation=self.aggregation,
            readout=self.readout,
            dense=self.dense,
        )


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "ba-shapes": Recipe(hidden=32, epochs=3000, lr=0.005, schedule="cosine"),
        "tree-cycles": Recipe(hidden=64, aggregation="sum", epochs=3000, lr=0.003, schedule="cosine"),
        "mutag": Recipe(hidden=128, aggregation="sum", dense=3, epochs=40, lr=0.003, batch_size=256),
        "mutag0": Recipe(hidden=128, aggregation="sum", dense=3, epochs=40, lr=0.003, batch_size=256),
        "nci1": Recipe(hidden=16, aggregation="sum", dense=3, epochs=40, lr=0.005, batch_size=256),
        "citeseer": Recipe(hidden=32, readout="all", epochs=100, lr=0.01, weight_decay=5e-4, dropout=0.5),
        "ba-community": Recipe(hidden=32, epochs=2000, lr=0.005, schedule="cosine"),
        "tree-grid": Recipe(hidden=32, aggregation="sum", epochs=2000, lr=0.005, schedule="cosine"),
        "ba-2motifs": Recipe(hidden=32, aggregation="sum", dense=2, epochs=100, lr=0.005, batch_size=256),
    }
)
_OTHERS = {
    "node": Recipe(hidden=32, readout="all", epochs=200, lr=0.01, weight_decay=5e-4, dropout=0.5),
    "graph": Recipe(hidden=64, dense=3, epochs=100, batch_size=256),
}


def recipe_for(dataset: Dataset, arch: str = "gcn", **changes: Any) -> Recipe:
    """The data set's default recipe with changes.

    Parameters
    ----------
    dataset : Dataset
        The data set to train on.
    arch : {"gcn", "gin", "gat", "sage"}
        The kind of the graph layers.
    **changes
        Fields of `Recipe`; None keeps the default.

    Returns
    -------
    Recipe
        What `train` follows.
    """
    known = {field.name for field in fields(Recipe)}
    for name in changes:
        if name not in known:
            raise unknown_name("the setting", name, known)
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(RECIPES.get(dataset.name, _OTHERS[dataset.task]), arch=arch, **given)
