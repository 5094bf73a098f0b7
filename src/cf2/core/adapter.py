"""The packed graph -> the user's own call -> one row per target.

How a model is called is decided here and nowhere else: by tensors, `forward(x, edge_index, …)`, by one Data object, or
by a function of the user's. A further way to call a model is one more class with the members of `Adapter`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from cf2.core.modules import module_of
from cf2.errors import CF2Error, require

CALLED = ("the model", "`call`")  # what an error speaks of
Call = Callable[[torch.nn.Module, Any], Any]  # the user's own: the model and a batch -> one row per target


@dataclass(frozen=True)
class CallOfOurs:
    """A call that no user wrote: errors speak of the model."""

    call: Call

    def __call__(self, model: torch.nn.Module, batch: Any) -> Any:
        return self.call(model, batch)


def called(call: Call | None) -> str:
    """What an error speaks of: the model, or the user's own function."""
    return CALLED[call is not None and not isinstance(call, CallOfOurs)]


@dataclass(frozen=True, eq=False)
class Inputs:
    """One graph as it is handed to the model: what is gone is not in it."""

    x: Tensor  # [N, d]
    edge_index: Tensor  # [2, E]
    arguments: dict[str, Any]  # by the names that a forward may have
    targets: Tensor  # [B, nodes to read]


class Answer(NamedTuple):
    """What the model returns, how many rows that should be, and which are read; None: one row per target."""

    out: Any
    rows: int
    read: Tensor | None


class Adapter(Protocol):
    """How one model is called."""

    @property
    def cure(self) -> str:
        """What else to do where the model does not run."""

    @property
    def called(self) -> str:
        """What is called, for an error: the model, or the user's own function."""

    @property
    def weighs(self) -> bool:
        """Whether it takes edge weights of ours."""

    def takes(self, name: str) -> bool:
        """Whether the model can be handed an argument of that name."""

    def call(self, inputs: Inputs) -> Answer:
        """What the model returns."""

    def relation(self, layer: MessagePassing, edge_index: Any) -> int | None:
        """Along which type of edges a layer is passing messages; None: along all of them."""

    def columns(self, layer: MessagePassing, edge_index: Tensor) -> Tensor | None:
        """The column of the packed graph of every message of a layer; None: found by its two ends."""


class OneType:
    """An adapter whose layers see the edges of the packed graph itself."""

    cure = ""
    called = "the model"

    def relation(self, layer: MessagePassing, edge_index: Any) -> int | None:
        return None

    def columns(self, layer: MessagePassing, edge_index: Tensor) -> Tensor | None:
        return None


class TensorAdapter(OneType):
    """`model(x, edge_index, …)`, with the further arguments that its forward names."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        self.model, self.names = model, names
        self.weighs = "edge_weight" in names

    def takes(self, name: str) -> bool:
        return name in self.names

    def call(self, inputs: Inputs) -> Answer:
        arguments = {name: value for name, value in inputs.arguments.items() if name in self.names}
        return answer(self.model(inputs.x, inputs.edge_index, **arguments), inputs)


class DataAdapter(OneType):
    """`model(data)`, or the user's `call(model, data)`; an `edge_weight` of ours it might not read."""

    weighs = False

    def __init__(self, model: torch.nn.Module, call: Call | None = None) -> None:
        self.model, self.own = model, call
        self.called = called(call)

    def takes(self, name: str) -> bool:
        return name != "bond"  # what a bond is, is for drawings and for chemistry

    def call(self, inputs: Inputs) -> Answer:
        data = Data(x=inputs.x, edge_index=inputs.edge_index, **inputs.arguments)
        if self.own is None:
            return answer(self.model(data), inputs)
        if inputs.targets.size(1) == 1:
            data.index = inputs.targets[:, 0]
        return answer(self.own(self.model, data), inputs, either=True)


def answer(out: Any, inputs: Inputs, *, either: bool = False) -> Answer:
    """How the rows of an output are read: one per target; of nodes one each, or, if `either`, one per target."""
    targets, nodes = inputs.targets, inputs.x.size(0)
    chosen = either and isinstance(out, Tensor) and out.dim() > 0 and len(out) == len(targets) != nodes
    if targets.size(1) != 1 or chosen:
        return Answer(out, len(targets), None)
    return Answer(out, nodes, targets[:, 0])


def adapter_for(model: torch.nn.Module, level: str, call: Call | None = None) -> Adapter:
    """The way in which a model is called: as the user says, or by the signature of its forward."""
    model = module_of(model)
    if call is not None:
        require(callable(call), "Expected `call` to be a function of a model and a batch", got=repr(call)[:80])
        return DataAdapter(model, call)
    names = parameters(model)
    adapter: Adapter = DataAdapter(model) if names is None else TensorAdapter(model, names)
    needed = NEEDED.get(level)
    if needed is not None:
        require(
            adapter.takes(needed.argument),
            f"Expected the forward of a model of {level}s to take `{needed.argument}`, {needed.why}",
            got=f"forward({', '.join(names or ())})",
            do=f"Or pass call=lambda model, batch: …, which finds `batch.{needed.argument}`.",
        )
    return adapter


class _Needed(NamedTuple):
    """What a forward must take, and why."""

    argument: str
    why: str


NEEDED = {
    "graph": _Needed("batch", "so that many graphs run at once"),
    "pair": _Needed("edge_label_index", "the pairs whose outputs it returns"),
}


def target_arguments(level: str, targets: Tensor, batch: Tensor) -> dict[str, Any]:
    """What a model is handed beside the graph, to know what it is asked about."""
    if level == "graph":
        return {"batch": batch, "batch_size": len(targets)}
    return {"edge_label_index": targets.t()} if level == "pair" else {}


def run(adapter: Adapter, inputs: Inputs, level: str) -> Tensor:
    """Call the model and read one row per target, [B, width]."""
    try:
        out, rows, read = adapter.call(inputs)
    except CF2Error:
        raise
    except Exception as error:  # whatever the user's own forward raises
        nodes, edges = inputs.x.size(0), inputs.edge_index.size(1)
        own = adapter.called != CALLED[False]
        cure = "Check that the model runs on your data by itself, or pass call=lambda model, batch: …, which calls it."
        raise CF2Error(
            f"Expected {adapter.called} to run on a graph of {nodes} nodes and {edges} edges",
            got=f"{type(error).__name__}: {error}",
            do="It is called with the model and a batch of such graphs." if own else f"{cure}{adapter.cure}",
        ) from error
    if not isinstance(out, Tensor):
        cure = "Pass call=lambda model, batch: …, which returns one of what the model returns."
        raise CF2Error(
            f"Expected {adapter.called} to return a tensor",
            got=type(out).__name__,
            do=cure if adapter.called == CALLED[False] else "",
        )
    if not out.is_floating_point() or out.layout != torch.strided or out.is_meta:
        raise CF2Error(
            "Expected the model to return real numbers in a dense tensor",
            got=f"{out.dtype} in {out.layout} on {out.device}",
            do="Return logits or probabilities, not their argmax.",
        )
    shaped = out.unsqueeze(1) if out.dim() == 1 else out
    if shaped.dim() != 2 or shaped.size(0) != rows or not shaped.size(1):
        raise CF2Error(
            f"Expected {adapter.called} to return one row per {level}, [{rows}, classes]",
            got=f"shape {tuple(out.shape)}",
        )
    return shaped if read is None else shaped[read]


def parameters(model: torch.nn.Module) -> tuple[str, ...] | None:
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
