"""What people pass as a model, as the module that computes: without wrappers, and with weights."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import MessagePassing

from cf2.errors import CF2Error, require
from cf2.graphs.targets import Targets
from cf2.graphs.typed import Schema
from cf2.options import EdgeType

# -- modules ---------------------------------------------------------------------------------------------


_WRAPPERS = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel, AveragedModel)


def module_of(model: Any) -> torch.nn.Module:
    """The module inside of what `torch.compile`, DataParallel or AveragedModel made; an error if none can be run.

    >>> from torch_geometric.nn import GCN
    >>> net = GCN(3, 8, 2, 2)
    >>> module_of(torch.nn.DataParallel(net)) is net
    True
    """
    if isinstance(model, type):
        raise CF2Error(
            "Expected `model` to be a torch.nn.Module",
            got=f"the class {model.__name__} itself",
            do=f"Make an instance of it: {model.__name__}(…).",
        )
    while (inner := _inside(model)) is not None:
        model = inner
    require(
        isinstance(model, torch.nn.Module),
        "Expected `model` to be a torch.nn.Module",
        got=_article(model),
        do="The model comes first, then the data." if hasattr(model, "edge_index") else "",
    )
    require(
        not isinstance(model, torch.jit.ScriptModule),
        "Expected `model` to be a module in Python, whose layers can be masked",
        got="one that torch.jit traced or scripted",
        do="Pass the module that it was made from.",
    )
    _check_weights(model)
    return model  # type: ignore[no-any-return]


def _inside(model: Any) -> Any:
    """The module that a wrapper calls, None if `model` is no wrapper."""
    if isinstance(model, _WRAPPERS):
        return model.module
    compiled = type(model).__name__ == "OptimizedModule"  # the class itself is in a module that takes seconds to import
    return getattr(model, "_orig_mod", None) if compiled else None


def _check_weights(model: torch.nn.Module) -> None:
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        require(
            not is_lazy(value),
            "Expected a model whose layers know their sizes",
            got=f"`{name}`, which is made at the first call",
            do="Run the model once on your data, model(x, edge_index), before it is explained.",
        )
        require(
            not value.is_meta,
            "Expected a model with weights",
            got=f"`{name}` on the meta device, where tensors have no values",
            do='Make the model on the CPU, or call to_empty(device="cpu") and load its weights.',
        )


def _article(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


# -- adapter ---------------------------------------------------------------------------------------------


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


# -- typed adapter ---------------------------------------------------------------------------------------


class _Nodes(NamedTuple):
    """The nodes of a flat graph by type."""

    source: Tensor  # the types that this was made of
    order: Tensor  # [N], nodes sorted by type
    place: Tensor  # [N], the id of each node in its type
    counts: list[int]


class _Edges(NamedTuple):
    """The edges of a flat graph by type."""

    source: Tensor  # the edge list that this was made of
    columns: list[Tensor]  # the flat columns of each type
    ends: list[Tensor]  # [2, e] in the ids of the types


class TypedAdapter:
    """`model(x_dict, edge_index_dict, …)`, `model(hetero_data)`, or the user's `call(model, hetero_data)`."""

    weighs = False
    cure = " A model without types reads data.to_homogeneous()."

    def __init__(self, model: torch.nn.Module, targets: Targets, call: Call | None = None) -> None:
        assert targets.schema is not None
        self.model, self.own, self.schema = model, call, targets.schema
        self.level, self.asked, self.called = targets.level, targets.asked, called(call)
        self.names = None if call is not None else parameters(model)
        self._nodes: _Nodes | None = None
        self._edges: _Edges | None = None
        self._by_layer = _types_of_layers(model, self.schema)
        needed = NEEDED.get(self.level)
        if needed is not None and self.names is not None:
            require(
                self._takes_argument(needed.argument),
                f"Expected the forward of a model of {self.level}s to take `{needed.argument}`, {needed.why}",
                got=f"forward({', '.join(self.names)})",
                do=f"Or pass call=lambda model, batch: …, which finds `{needed.argument}` in the batch.",
            )

    def _takes_argument(self, name: str) -> bool:
        return self.names is None or name in self.names or f"{name}_dict" in self.names

    def takes(self, name: str) -> bool:
        return name in ("node_type", "node_id", "edge_type", *self.schema.attributes)

    # -- the call ---------------------------------------------------------------------------------------------

    def call(self, inputs: Inputs) -> Answer:
        nodes, edges = self._by_type(inputs)
        by_name = self._dictionaries(inputs, nodes, edges)
        if self.names is None:
            data = self._hetero(by_name, nodes, inputs)
            out = self.model(data) if self.own is None else self.own(self.model, data)
        else:
            out = self._call_with_dictionaries(by_name)
        return self._answer(out, inputs, nodes)

    def _by_type(self, inputs: Inputs) -> tuple[_Nodes, _Edges]:
        kind = inputs.arguments["node_type"]
        if self._nodes is None or self._nodes.source is not kind:
            order = kind.argsort(stable=True)
            counts = torch.bincount(kind, minlength=len(self.schema.nodes))
            first = counts.cumsum(0) - counts
            place = torch.empty_like(order)
            place[order] = torch.arange(len(order), device=order.device) - first[kind[order]]
            self._nodes = _Nodes(kind, order, place, counts.tolist())
            self._edges = None
        if self._edges is None or self._edges.source is not inputs.edge_index:
            of_edge = inputs.arguments["edge_type"]
            order = of_edge.argsort(stable=True)
            sizes = torch.bincount(of_edge, minlength=len(self.schema.edges)).tolist()
            ends = self._nodes.place[inputs.edge_index[:, order]]
            # Each type's own memory: a layer may tell tensors by that, and so do we.
            parts = [part.contiguous() for part in torch.split(ends, sizes, 1)]
            self._edges = _Edges(inputs.edge_index, list(torch.split(order, sizes)), parts)
        return self._nodes, self._edges

    def _dictionaries(self, inputs: Inputs, nodes: _Nodes, edges: _Edges) -> dict[str, Any]:
        """Everything that is handed to the model, by the name that torch_geometric has for it."""
        schema = self.schema
        rows = torch.split(nodes.order, nodes.counts)
        made: dict[str, Any] = {
            "x": {
                name: inputs.x[row][:, :width]
                for name, row, width in zip(schema.nodes, rows, schema.widths)
                if width is not None
            },
            "edge_index": dict(zip(schema.edges, edges.ends)),
            "n_id": {name: inputs.arguments["node_id"][row] for name, row in zip(schema.nodes, rows)},
        }
        for name, shapes in schema.attributes.items():
            value = inputs.arguments[name]
            made[name] = {
                kind: _shaped(value[columns], shape)
                for kind, columns, shape in zip(schema.edges, edges.columns, shapes)
                if shape is not None
            }
        if "batch" in inputs.arguments:
            made["batch"] = {name: inputs.arguments["batch"][row] for name, row in zip(schema.nodes, rows)}
            made["batch_size"] = inputs.arguments["batch_size"]
        if "edge_label_index" in inputs.arguments:
            made["edge_label_index"] = nodes.place[inputs.arguments["edge_label_index"]]
        return made

    def _call_with_dictionaries(self, by_name: dict[str, Any]) -> Any:
        assert self.names is not None
        names = list(self.names)
        by_keyword = {"x_dict", "edge_index_dict"} <= set(names)
        first = names if by_keyword else names[2:]
        given = {name: by_name[name.removesuffix("_dict")] for name in first if name.removesuffix("_dict") in by_name}
        return self.model(**given) if by_keyword else self.model(by_name["x"], by_name["edge_index"], **given)

    def _hetero(self, by_name: dict[str, Any], nodes: _Nodes, inputs: Inputs) -> HeteroData:
        data = HeteroData()
        for name, count in zip(self.schema.nodes, nodes.counts):
            data[name].num_nodes = count
        for name, value in by_name.items():
            if isinstance(value, dict):
                for kind, part in value.items():
                    data[kind][name] = part
            elif name == "edge_label_index" and self.asked.edge_type is not None:
                data[self.asked.edge_type].edge_label_index = value
                data.edge_label_index = value
            else:
                data[name] = value
        if inputs.targets.size(1) == 1 and self.own is not None:
            data.index = nodes.place[inputs.targets[:, 0]]
        return data

    def _answer(self, out: Any, inputs: Inputs, nodes: _Nodes) -> Answer:
        """Which rows are read: of nodes, those of the explained type; else one per target."""
        targets = inputs.targets
        if isinstance(out, dict):
            asked = self.asked.edge_type if self.level == "pair" else self.asked.node_type
            if asked not in out:
                raise CF2Error(
                    f"Expected the model to return rows for {asked!r}",
                    got=f"a dictionary of {', '.join(map(str, out))}",
                    do="Pass call=lambda model, batch: …, which returns one row per target.",
                )
            out = out[asked]
        if targets.size(1) != 1:
            return Answer(out, len(targets), None)
        count = nodes.counts[self.schema.node(self.asked.node_type)]
        if self.own is not None and isinstance(out, Tensor) and out.dim() and len(out) == len(targets) != count:
            return Answer(out, len(targets), None)
        return Answer(out, count, nodes.place[targets[:, 0]])

    # -- whose messages they are --------------------------------------------------------------------------------

    def relation(self, layer: MessagePassing, edge_index: Any) -> int | None:
        """The edge type that a layer is passing messages along; None: all of them at once, or not known."""
        if layer in self._by_layer:
            return self._by_layer[layer]
        given = [] if self._edges is None else self._edges.ends
        return next((place for place, ends in enumerate(given) if edge_index is ends), None)

    def columns(self, layer: MessagePassing, edge_index: Tensor) -> Tensor:
        """The flat column of every message of a layer; one past the last for edges that are not ours."""
        assert self._edges is not None
        place, known = self.relation(layer, edge_index), self._edges
        total = known.source.size(1)
        if place is None:
            if edge_index.size(1) == total:  # as HGTConv joins them: type after type
                return torch.cat(known.columns)
            alike = (columns for ends, columns in zip(known.ends, known.columns) if torch.equal(edge_index, ends))
            return next(alike, edge_index[0] * 0 + total)  # as RGCNConv takes them apart again
        ends, columns = known.ends[place], known.columns[place]
        if edge_index is ends or (edge_index.shape == ends.shape and torch.equal(edge_index, ends)):
            return columns
        high = int(torch.cat([ends.flatten(), edge_index.flatten(), ends.new_zeros(1)]).max()) + 1
        keys, order = (ends[0] * high + ends[1]).sort()
        if not len(keys):
            return edge_index[0] * 0 + total
        wanted = edge_index[0] * high + edge_index[1]
        near = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return torch.where(keys[near] == wanted, columns[order[near]], total)


def _shaped(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Rows as a type had them, without the padding."""
    if rows.dim() == 1:
        return rows
    return rows[:, : shape[0]] if shape else rows[:, 0]


def _types_of_layers(model: torch.nn.Module, schema: Schema) -> dict[torch.nn.Module, int]:
    """The edge type of the layers that HeteroConv and to_hetero keep under its name."""
    found: dict[torch.nn.Module, int] = {}
    names = {name: place for place, kind in enumerate(schema.edges) for name in _names(kind)}
    for name, module in model.named_modules():
        if isinstance(module, MessagePassing):
            places = [names[part] for part in name.split(".") if part in names]
            found |= {module: places[-1]} if places else {}
    return found


def _names(kind: EdgeType) -> tuple[str, str]:
    """An edge type as a name of a submodule: HeteroConv's, and that of to_hetero."""
    return f"<{'___'.join(kind)}>".replace(".", "#"), re.sub(r"[ \-:]", "_", "__".join(kind))


def adapter_of(model: Any, targets: Targets, call: Call | None = None) -> Adapter:
    """The way in which a model is called for these targets: by types where they have any."""
    model = module_of(model)
    if targets.schema is None:
        return adapter_for(model, targets.level, call)
    if call is not None:
        require(callable(call), "Expected `call` to be a function of a model and a batch", got=repr(call)[:80])
    return TypedAdapter(model, targets, call)
