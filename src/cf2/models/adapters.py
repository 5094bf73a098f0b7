"""How a model is called: the module inside of what people pass, and one adapter for each form of `forward`."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import to_dense_adj, to_dense_batch

from cf2.errors import CF2Error, require, shown
from cf2.graphs.graph import GIVE_FEATURES, NO_FEATURES, edge_positions, lacks_features
from cf2.graphs.targets import Targets
from cf2.graphs.typed import Schema
from cf2.options import EdgeType

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
            do=f"Create an instance: {model.__name__}(…).",
        )
    while (inner := _inside(model)) is not None:
        model = inner
    require(
        isinstance(model, torch.nn.Module),
        "Expected `model` to be a torch.nn.Module",
        got="None" if model is None else f"an object of type {type(model).__name__}",
        do="The model comes first, then the data." if hasattr(model, "edge_index") else "",
    )
    require(
        not isinstance(model, torch.jit.ScriptModule),
        "Expected `model` to be a Python module with layers that can be masked",
        got="a module traced or scripted by torch.jit",
        do="Pass the original module.",
    )
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        require(
            not is_lazy(value),
            "Expected a model with initialised layers",
            got=f"`{name}`, which is created by the first call",
            do="Run the model once on your data, model(x, edge_index), before you explain it.",
        )
        require(
            not value.is_meta,
            "Expected a model with weights",
            got=f"`{name}` on the meta device, which has no values",
            do='Create the model on the CPU, or call to_empty(device="cpu") and load its weights.',
        )
    return model  # type: ignore[no-any-return]


def _inside(model: Any) -> Any:
    """The module that a wrapper calls, None if `model` is no wrapper."""
    if isinstance(model, _WRAPPERS):
        return model.module
    compiled = type(model).__name__ == "OptimizedModule"  # the class itself is in a module that takes seconds to import
    return getattr(model, "_orig_mod", None) if compiled else None


MPNNS = {("chemprop.models.model", "MPNN"), ("cf2.models.chemprop", "Ensemble")}


def is_mpnn(model: Any) -> bool:
    """Whether this is a Chemprop model; Chemprop itself, which takes seconds to import, is not asked."""
    return any((kind.__module__, kind.__name__) in MPNNS for kind in type(model).__mro__)


Call = Callable[[torch.nn.Module, Any], Any]  # the user's own: the model and a batch -> one row per target


@dataclass(frozen=True)
class OneTask:
    """In place of a call: the task to explain, of a Chemprop model that has several tasks of many classes."""

    task: Any


@dataclass(frozen=True, eq=False)
class Inputs:
    """One graph as it is handed to the model: what is gone is not in it."""

    x: Tensor  # [N, d]
    edge_index: Tensor  # [2, E]
    arguments: dict[str, Any]  # by the names that a forward may have
    targets: Tensor  # [B, nodes to read]
    plain: bool = False  # whether every step is to be the model's own, because a verdict comes from it

    @property
    def nodes(self) -> Tensor | None:
        """The node of each target [B], where that is one."""
        return self.targets[:, 0] if self.targets.size(1) == 1 else None


class Answer(NamedTuple):
    """What the model returns, how many rows that should be, and which are read; None: one row per target."""

    out: Any
    rows: int
    read: Tensor | None


class Adapter(ABC):
    """How one model is called; the layers see the edges of the packed graph itself."""

    cure = ""  # what else to do where the model does not run
    weighs = False  # whether it takes edge weights of ours
    dense = False  # whether it is handed matrices of all pairs of nodes

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...] | None = None, call: Call | None = None) -> None:
        self.model, self.own = model, call
        self.names = names  # the arguments of forward; None: one object with all of them
        self.called = "the model" if call is None else "`call`"  # in errors

    @abstractmethod
    def takes(self, name: str) -> bool:
        """Whether the model can be handed an argument of that name."""

    @abstractmethod
    def call(self, inputs: Inputs) -> Answer:
        """What the model returns."""

    def relation(self, layer: MessagePassing, edge_index: Any) -> int | None:
        """Along which type of edges a layer is passing messages; None: all of them at once, or not known."""
        return None

    def columns(self, layer: MessagePassing, edge_index: Tensor) -> Tensor | None:
        """The column of the packed graph of every message of a layer; None: found by its two ends."""
        return None

    def check_level(self, level: str) -> None:
        """Refuse a forward that cannot be told what it is asked about."""
        names = self.names
        require(
            level != "pair" or names is None or not {"edge_label_index", "edge_label_index_dict"}.isdisjoint(names),
            "Expected the forward of a model of pairs to take `edge_label_index`, the pairs whose outputs it returns",
            got=f"forward({', '.join(names or ())})",
            do="Or pass call=lambda model, batch: …, which finds `edge_label_index` in the batch.",
        )

    def _called_with(self, data: Any, index: Tensor | None) -> Any:
        """What the model or the user's `call` says of one object; a `call` finds the rows of nodes as `index`."""
        if self.own is None:
            return self.model(data)
        if index is not None:
            data.index = index
        return self.own(self.model, data)

    def _answer(self, out: Any, targets: Tensor, nodes: int, index: Tensor | None) -> Answer:
        """How rows are read: one per target; of nodes one each, or, by the user's `call`, one per target."""
        by_target = self.own is not None and isinstance(out, Tensor) and out.dim() > 0
        if index is None or (by_target and len(out) == len(targets) != nodes):
            return Answer(out, len(targets), None)
        return Answer(out, nodes, index)


class TensorAdapter(Adapter):
    """`model(x, edge_index, …)`, with the further arguments that its forward names.

    The first two may have any name, but that of something else which the graph has: `forward(z, pos, batch)` is called
    by names, and so is every forward where the graph has no `x`.
    """

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__(model, names)
        self.weighs = "edge_weight" in names

    def takes(self, name: str) -> bool:
        return name in self.names  # type: ignore[operator]

    def call(self, inputs: Inputs) -> Answer:
        arguments = {name: value for name, value in inputs.arguments.items() if self.takes(name)}
        names = self.names or ()
        bare = not inputs.x.size(1) and lacks_features(inputs.x)
        if bare or any(name in arguments for name in names[:2]):
            known = {"edge_index": inputs.edge_index} if bare else {"x": inputs.x, "edge_index": inputs.edge_index}
            signature = inspect.signature(self.model.forward).parameters
            needed = bare and "x" in names and ("x" not in signature or signature["x"].default is inspect._empty)
            require(not needed, NO_FEATURES.format("the graph"), got="none", do=GIVE_FEATURES)
            out = self.model(**{name: value for name, value in known.items() if name in names}, **arguments)
        else:
            out = self.model(inputs.x, inputs.edge_index, **arguments)
        return self._answer(out, inputs.targets, len(inputs.x), inputs.nodes)


class DenseAdapter(Adapter):
    """`model(x, adj, mask)` with matrices, as torch_geometric's dense layers read them.

    Graphs are padded to the largest: x [B, N, d], adj [B, N, N] of edge weights, or ones, and mask [B, N]. Where nodes
    are read and forward takes no mask, x is [N, d] and adj [N, N].
    """

    weighs, dense = True, True

    def takes(self, name: str) -> bool:
        return name == "edge_weight"

    def check_level(self, level: str) -> None:
        if level != "graph":  # graphs are told apart by their place in x
            super().check_level(level)

    def call(self, inputs: Inputs) -> Answer:
        names, weight = self.names or (), inputs.arguments.get("edge_weight")
        of_graphs = "batch" in inputs.arguments
        batch = inputs.arguments["batch"] if of_graphs else inputs.edge_index.new_zeros(len(inputs.x))
        count = len(inputs.targets) if of_graphs else 1
        x, mask = to_dense_batch(inputs.x, batch, batch_size=count)
        adj = to_dense_adj(inputs.edge_index, batch, weight, x.size(1), count).to(x.dtype)
        known = {"x": x, "adj": adj, "mask": mask, **inputs.arguments}
        if not of_graphs and "mask" not in names:
            known |= {"x": x[0], "adj": adj[0]}
        # The first may have any name but that of something else; losses of pooling come behind the output.
        first = () if names[0] in known else (known["x"],)
        out = self.model(*first, **{name: known[name] for name in names if name in known})
        out = out[0] if isinstance(out, tuple) else out
        if not of_graphs and isinstance(out, Tensor) and out.dim() == 3 and len(out) == 1:
            out = out[0]
        return self._answer(out, inputs.targets, len(inputs.x), inputs.nodes)


class DataAdapter(Adapter):
    """`model(data)`, or the user's `call(model, data)`; an `edge_weight` of ours it might not read."""

    def takes(self, name: str) -> bool:
        return name != "bond"  # what a bond is, is for drawings and for chemistry

    def call(self, inputs: Inputs) -> Answer:
        x = None if lacks_features(inputs.x) else inputs.x
        data = Data(x=x, edge_index=inputs.edge_index, num_nodes=len(inputs.x), **inputs.arguments)
        out = self._called_with(data, inputs.nodes)
        return self._answer(out, inputs.targets, len(inputs.x), inputs.nodes)


def adapter_for(model: Any, level: str, call: Call | OneTask | None = None, targets: Targets | None = None) -> Adapter:
    """The way in which a model is called: as the user says, or by the signature of its forward."""
    model = module_of(model)
    adapter: Adapter
    if is_mpnn(model) and (call is None or isinstance(call, OneTask)):
        from cf2.models.chemprop import MPNNAdapter  # it is made of what is in this file

        adapter = MPNNAdapter(model, None if call is None else call.task)
        adapter.check_level(level)
        return adapter
    require(
        call is None or callable(call), "Expected `call` to be a function of a model and a batch", got=shown(call, 80)
    )
    assert not isinstance(call, OneTask)  # it is made for a Chemprop model alone
    names = None if call is not None else parameters(model)
    if targets is not None and targets.schema is not None:
        adapter = TypedAdapter(model, names, targets, call)
    elif names is None:
        adapter = DataAdapter(model, None, call)
    else:
        dense = "adj" in names and "edge_index" not in names
        adapter = (DenseAdapter if dense else TensorAdapter)(model, names)
    adapter.check_level(level)
    return adapter


def target_arguments(level: str, targets: Tensor, batch: Tensor) -> dict[str, Any]:
    """What a model is handed beside the graph, to know what it is asked about."""
    if level == "graph":
        return {"batch": batch, "batch_size": len(targets)}
    return {"edge_label_index": targets.t()} if level == "pair" else {}


def run(adapter: Adapter, inputs: Inputs, level: str) -> Tensor:
    """Call the model and read one row per target, [B, width]."""
    by_model = adapter.called == "the model"
    try:
        out, rows, read = adapter.call(inputs)
    except CF2Error:
        raise
    except Exception as error:  # whatever the user's own forward raises
        nodes, edges = inputs.x.size(0), inputs.edge_index.size(1)
        cure = "Check that the model runs on your data, or pass call=lambda model, batch: …, which calls it."
        if inputs.x.dtype == torch.float64 and "dtype" in str(error):
            cure = "The features are of dtype torch.float64: use data.x = data.x.float(), or model.double()."
        raise CF2Error(
            f"Expected {adapter.called} to run on a graph of {nodes} nodes and {edges} edges",
            got=f"{type(error).__name__}: {error}",
            do=f"{cure}{adapter.cure}" if by_model else "It is called with the model and a batch of such graphs.",
        ) from error
    # Sentences are made where they are needed alone: this is run thousands of times in a search.
    if not isinstance(out, Tensor):
        raise CF2Error(
            f"Expected {adapter.called} to return a tensor",
            got=type(out).__name__,
            do="Pass call=lambda model, batch: …, which returns one of the model's outputs." if by_model else "",
        )
    if not out.is_floating_point() or out.layout != torch.strided or out.is_meta:
        raise CF2Error(
            "Expected the model to return real numbers in a dense tensor",
            got=f"{out.dtype} in {out.layout} on {out.device}",
            do="Return logits or probabilities, not their argmax.",
        )
    single = level == "graph" and rows == 1 and out.dim() == 1  # one graph without a dimension for the batch
    shaped: Tensor = out if out.dim() != 1 else out[None] if single else out[:, None]
    if shaped.dim() != 2 or shaped.size(0) != rows or not shaped.size(1):
        raise CF2Error(
            f"Expected {adapter.called} to return one row per {level}, [{rows}, classes]",
            got=f"shape {tuple(out.shape)}",
            do="It has a row per node: pass one graph and nodes=[…], or pool the rows."
            if level == "graph" and shaped.size(0) == len(inputs.x)
            else "",
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
    tensors = "edge_index" in names or names[:1] in (["pos"], ["z"])
    return None if len(needed) <= 1 and not tensors else tuple(names)


class _ByType(NamedTuple):
    """A flat graph by type."""

    node_type: Tensor  # the tensors that this was made of
    edge_index: Tensor
    order: Tensor  # [N], nodes sorted by type
    ids: Tensor  # [N], of each node in its type
    counts: list[int]  # nodes of each type
    columns: list[Tensor]  # the flat columns of each edge type
    ends: list[Tensor]  # of each edge type [2, e], in the ids of the types


class TypedAdapter(Adapter):
    """`model(x_dict, edge_index_dict, …)`, `model(hetero_data)`, or the user's `call(model, hetero_data)`."""

    cure = " A model without types reads data.to_homogeneous()."

    def __init__(
        self, model: torch.nn.Module, names: tuple[str, ...] | None, targets: Targets, call: Call | None
    ) -> None:
        super().__init__(model, names, call)
        assert targets.schema is not None
        self.schema, self.explained = targets.schema, targets.explained_type
        self._parts: _ByType | None = None  # of the last call
        self._by_layer = _types_of_layers(model, self.schema)

    def takes(self, name: str) -> bool:
        return name in ("node_type", "node_id", "edge_type", *self.schema.attributes)

    def call(self, inputs: Inputs) -> Answer:
        parts = self._by_type(inputs)
        by_name = self._dictionaries(inputs, parts)
        index = None if inputs.nodes is None else parts.ids[inputs.nodes]
        if self.names is None:
            out = self._called_with(self._hetero(by_name, parts.counts), index)
        else:
            out = self._call_with_dictionaries(self.names, by_name)
        if isinstance(out, dict):
            wanted = "one row per graph" if self.explained is None else f"rows for {self.explained!r}"
            require(
                self.explained in out,
                f"Expected the model to return {wanted}",
                got=f"a dictionary of {', '.join(map(str, out))}",
                do="Pass call=lambda model, batch: …, which returns one row per target.",
            )
            out = out[self.explained]
        count = 0 if index is None else parts.counts[self.schema.nodes.index(self.explained)]
        return self._answer(out, inputs.targets, count, index)

    def _by_type(self, inputs: Inputs) -> _ByType:
        node_type, edge_type = inputs.arguments["node_type"], inputs.arguments["edge_type"]
        known = self._parts
        if known is not None and known.node_type is node_type and known.edge_index is inputs.edge_index:
            return known
        order = node_type.argsort(stable=True)
        counts = torch.bincount(node_type, minlength=len(self.schema.nodes))
        first = counts.cumsum(0) - counts
        ids = torch.empty_like(order)
        ids[order] = torch.arange(len(order), device=order.device) - first[node_type[order]]
        columns = edge_type.argsort(stable=True)
        sizes = torch.bincount(edge_type, minlength=len(self.schema.edges)).tolist()
        # Each type's own memory: a layer may tell tensors by that, and so do we.
        ends = [part.contiguous() for part in torch.split(ids[inputs.edge_index[:, columns]], sizes, 1)]
        parts = list(torch.split(columns, sizes))
        self._parts = _ByType(node_type, inputs.edge_index, order, ids, counts.tolist(), parts, ends)
        return self._parts

    def _dictionaries(self, inputs: Inputs, parts: _ByType) -> dict[str, Any]:
        """Everything that is handed to the model, by the name that torch_geometric has for it."""
        schema, given = self.schema, inputs.arguments
        rows = dict(zip(schema.nodes, torch.split(parts.order, parts.counts)))
        widths = {name: width for name, width in zip(schema.nodes, schema.widths) if width is not None}
        made: dict[str, Any] = {
            "x": {name: inputs.x[rows[name]][:, :width] for name, width in widths.items()},
            "edge_index": dict(zip(schema.edges, parts.ends)),
            "n_id": {name: given["node_id"][row] for name, row in rows.items()},
        }
        for name, shapes in schema.attributes.items():
            own = zip(schema.edges, parts.columns, shapes)
            rows_of = ((kind, given[name][columns], shape) for kind, columns, shape in own if shape is not None)
            made[name] = {kind: _shaped(value, shape) for kind, value, shape in rows_of}
        if "batch" in given:
            made["batch"] = {name: given["batch"][row] for name, row in rows.items()}
            made["batch_size"] = given["batch_size"]
        if "edge_label_index" in given:
            made["edge_label_index"] = parts.ids[given["edge_label_index"]]
        return made

    def _call_with_dictionaries(self, names: tuple[str, ...], by_name: dict[str, Any]) -> Any:
        by_keyword = {"x_dict", "edge_index_dict"} <= set(names)
        first = () if by_keyword else (by_name["x"], by_name["edge_index"])
        plain = {name: name.removesuffix("_dict") for name in names[len(first) :]}
        return self.model(*first, **{name: by_name[own] for name, own in plain.items() if own in by_name})

    def _hetero(self, by_name: dict[str, Any], counts: list[int]) -> HeteroData:
        data = HeteroData()
        for kind, count in zip(self.schema.nodes, counts):
            data[kind].num_nodes = count
        for name, value in by_name.items():
            if isinstance(value, dict):
                data.set_value_dict(name, value)
            else:
                data[name] = value
        if "edge_label_index" in by_name:
            data[self.explained].edge_label_index = by_name["edge_label_index"]
        return data

    def relation(self, layer: MessagePassing, edge_index: Any) -> int | None:
        if layer in self._by_layer:
            return self._by_layer[layer]
        known = [] if self._parts is None else self._parts.ends
        return next((position for position, ends in enumerate(known) if edge_index is ends), None)

    def columns(self, layer: MessagePassing, edge_index: Tensor) -> Tensor:
        """The flat column of every message of a layer; one past the last for edges that are not ours."""
        assert self._parts is not None
        position, parts = self.relation(layer, edge_index), self._parts
        total = parts.edge_index.size(1)
        if position is None:
            if edge_index.size(1) == total:  # as HGTConv joins them: type after type
                return torch.cat(parts.columns)
            same = (columns for ends, columns in zip(parts.ends, parts.columns) if torch.equal(edge_index, ends))
            return next(same, edge_index[0] * 0 + total)  # as RGCNConv takes them apart again
        ends, columns = parts.ends[position], parts.columns[position]
        if edge_index is ends or torch.equal(edge_index, ends):
            return columns
        return torch.cat([columns, columns.new_tensor([total])])[edge_positions(ends, edge_index)]  # -1: the last one


def _shaped(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Rows as a type had them, without the padding."""
    if rows.dim() == 1:
        return rows
    return rows[:, : shape[0]] if shape else rows[:, 0]


def _types_of_layers(model: torch.nn.Module, schema: Schema) -> dict[torch.nn.Module, int]:
    """The edge type of the layers that HeteroConv and to_hetero keep under its name."""
    by_layer: dict[torch.nn.Module, int] = {}
    names = {name: position for position, kind in enumerate(schema.edges) for name in _names(kind)}
    for path, module in model.named_modules():
        for part in path.split(".") if isinstance(module, MessagePassing) else ():
            if part in names:
                by_layer[module] = names[part]
    return by_layer


def _names(kind: EdgeType) -> tuple[str, str]:
    """An edge type as a name of a submodule: HeteroConv's, and that of to_hetero."""
    return f"<{'___'.join(kind)}>".replace(".", "#"), re.sub(r"[ \-:]", "_", "__".join(kind))
