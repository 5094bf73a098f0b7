"""The packed graph -> the user's own call -> one row per target.

How a model is called is decided here and nowhere else: by tensors, `forward(x, edge_index, …)`, or by one Data object.
A further way to call a model is one more class with the members of `Adapter`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.core.modules import module_of
from cf2.errors import CF2Error, require


@dataclass(frozen=True, eq=False)
class Inputs:
    """One graph as it is handed to the model: what is gone is not in it."""

    x: Tensor  # [N, d]
    edge_index: Tensor  # [2, E]
    arguments: dict[str, Any]  # by the names that a forward may have
    targets: Tensor  # [B, nodes to read]


class Adapter(Protocol):
    """How one model is called."""

    @property
    def weighs(self) -> bool:
        """Whether it takes edge weights of ours."""

    def takes(self, name: str) -> bool:
        """Whether the model can be handed an argument of that name."""

    def call(self, inputs: Inputs) -> Any:
        """What the model returns."""


class TensorAdapter:
    """`model(x, edge_index, …)`, with the further arguments that its forward names."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        self.model, self.names = model, names
        self.weighs = "edge_weight" in names

    def takes(self, name: str) -> bool:
        return name in self.names

    def call(self, inputs: Inputs) -> Any:
        arguments = {name: value for name, value in inputs.arguments.items() if name in self.names}
        return self.model(inputs.x, inputs.edge_index, **arguments)


class DataAdapter:
    """`model(data)`, where it finds whatever it asks for; an `edge_weight` of ours it might not read."""

    weighs = False

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def takes(self, name: str) -> bool:
        return name != "bond"  # what a bond is, is for drawings and for chemistry

    def call(self, inputs: Inputs) -> Any:
        return self.model(Data(x=inputs.x, edge_index=inputs.edge_index, **inputs.arguments))


def adapter_for(model: torch.nn.Module, level: str) -> Adapter:
    """The way in which a model is called, by the signature of its forward."""
    model = module_of(model)
    names = _parameters(model)
    adapter: Adapter = DataAdapter(model) if names is None else TensorAdapter(model, names)
    require(
        level == "node" or adapter.takes("batch"),
        "Expected the forward of a graph classifier to take `batch`, so that many graphs run at once",
        got=f"forward({', '.join(names or ())})",
        do="Add `batch` and pool with it; to explain nodes, pass one graph and nodes=[…].",
    )
    return adapter


def run(adapter: Adapter, inputs: Inputs, level: str, instances: int) -> Tensor:
    """Call the model and read one row per target, [B, width]."""
    try:
        out = adapter.call(inputs)
    except CF2Error:
        raise
    except Exception as error:  # whatever the user's own forward raises
        nodes, edges = inputs.x.size(0), inputs.edge_index.size(1)
        raise CF2Error(
            f"Expected the model to run on a graph of {nodes} nodes and {edges} edges",
            got=f"{type(error).__name__}: {error}",
            do="Check that the model runs on your data by itself, model(x, edge_index).",
        ) from error
    if not isinstance(out, Tensor):
        cure = "Wrap it in a module whose forward returns the outputs of the classes alone."
        raise CF2Error("Expected the model to return a tensor", got=f"a {type(out).__name__}", do=cure)
    if not out.is_floating_point() or out.layout != torch.strided or out.is_meta:
        raise CF2Error(
            "Expected the model to return real numbers in a dense tensor",
            got=f"{out.dtype} in {out.layout} on {out.device}",
            do="Return logits or probabilities, not their argmax.",
        )
    rows = inputs.x.size(0) if inputs.targets.size(1) else instances
    shaped = out.unsqueeze(1) if out.dim() == 1 else out
    if shaped.dim() != 2 or shaped.size(0) != rows or not shaped.size(1):
        raise CF2Error(
            f"Expected the model to return one row per {level}, [{rows}, classes]", got=f"shape {tuple(out.shape)}"
        )
    return shaped[inputs.targets[:, 0]] if inputs.targets.size(1) else shaped


def _parameters(model: torch.nn.Module) -> tuple[str, ...] | None:
    """The names of forward's arguments, or None if it takes one Data object."""
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [p.name for p in parameters if p.kind not in kinds]
    if any(p.kind == inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return ("x", "edge_index", *names)
    needed = [p for p in parameters if p.kind not in kinds and p.default is inspect.Parameter.empty]
    if len(needed) <= 1 and "edge_index" not in names:
        return None
    return tuple(names)
