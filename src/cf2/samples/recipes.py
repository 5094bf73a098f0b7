"""How each data set's base model is built and trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from torch import nn

from cf2.errors import CF2Error, require_number, unknown_name
from cf2.samples.models import ARCHITECTURES, TYPED_ARCHITECTURES, build, build_typed
from cf2.samples.registry import Dataset

EVERY_ARCHITECTURE = (*ARCHITECTURES, *TYPED_ARCHITECTURES)


@dataclass(frozen=True)
class Recipe:
    """A model's shape and its training.

    Parameters
    ----------
    arch, hidden, layers, aggregation, readout, dense, pool, scale
        The shape, as for `cf2.samples.models.build` and, of a typed graph, `cf2.samples.models.build_typed`.
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
    instances : int, optional
        Train on at most so many instances; None: on all of the training part.
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

    def __post_init__(self) -> None:
        require_number("epochs", self.epochs, 0, integer=True)
        require_number("lr", self.lr, 1e-12)
        require_number("weight_decay", self.weight_decay, 0)
        require_number("dropout", self.dropout, 0, 0.99)
        require_number("validation", self.validation, 0, 0.9)
        for name in ("batch_size", "instances"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), 1, integer=True)
        if self.schedule not in ("constant", "cosine"):
            raise unknown_name("`schedule`", self.schedule, ("constant", "cosine"))

    def build(
        self,
        task: str,
        num_features: int,
        num_outputs: int,
        num_edge_features: int = 0,
        types: Mapping[str, Any] | None = None,
    ) -> nn.Module:
        """The model of this shape, untrained.

        Parameters
        ----------
        task, num_features, num_outputs, num_edge_features, types
            As a `Dataset` has them.

        Returns
        -------
        torch.nn.Module
            See `cf2.samples.models.build` and `cf2.samples.models.build_typed`.
        """
        shape = {name: getattr(self, name) for name in ("hidden", "layers", "aggregation", "dense")}
        if types is not None:
            return build_typed(self.arch, task=task, types=types, num_classes=num_outputs, **shape)
        if self.arch in TYPED_ARCHITECTURES:
            raise CF2Error(f"Expected a typed graph for `arch` {self.arch!r}", got="a graph without types")
        shape |= {name: getattr(self, name) for name in ("readout", "pool", "scale")}
        shape["num_edge_features"] = num_edge_features
        return build(self.arch, task=task, num_features=num_features, num_classes=num_outputs, **shape)


_SUMS = Recipe(aggregation="sum", scale=0.1, readout="all", epochs=2000, schedule="cosine")  # the paper's layer
_MOLECULES = Recipe("gin", hidden=32, dense=2, epochs=30, lr=0.005, batch_size=128, pool="sum", validation=0.2)
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "ba-shapes": replace(_SUMS, scale=0.3, readout="last", lr=0.01, weight_decay=5e-3),
        "tree-cycles": replace(_SUMS, hidden=64, lr=0.005),
        "mutag": Recipe(hidden=128, aggregation="sum", dense=3, epochs=40, lr=0.003, batch_size=256),
        "mutag0": Recipe(hidden=64, aggregation="sum", dense=3, epochs=40, lr=0.003, batch_size=256),
        "nci1": Recipe(hidden=32, aggregation="sum", dense=3, epochs=40, lr=0.005, batch_size=256),
        "citeseer": Recipe(
            hidden=32, aggregation="sum", scale=0.3, readout="all", epochs=100, lr=0.01, weight_decay=5e-4, dropout=0.5
        ),
        "ba-community": Recipe(hidden=32, epochs=2000, lr=0.005, schedule="cosine"),
        "tree-grid": Recipe(hidden=32, aggregation="sum", epochs=2000, lr=0.005, schedule="cosine"),
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
    """The data set's default recipe with changes.

    Parameters
    ----------
    dataset : Dataset
        The data set to train on.
    arch : {"gcn", "gin", "gat", "sage", "rgcn", "hgt"}, optional
        The kind of the graph layers, the last two of typed graphs; None: as the recipe of the data set says.
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
    given = {name: value for name, value in {"arch": arch, **changes}.items() if value is not None}
    return replace(RECIPES.get(dataset.name, _OTHERS[dataset.task]), **given)
