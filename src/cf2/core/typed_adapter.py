"""The packed flat graph of a typed graph -> dictionaries by type, or a HeteroData -> one row per target.

This is the only place where a flat graph is turned back into types. It is also the one that knows which column of the
flat graph a message of a layer came from: such a layer sees the edges of one type, in the ids of their ends' types.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.nn import MessagePassing

from cf2.core.adapter import NEEDED, Adapter, Answer, Call, Inputs, adapter_for, called, parameters
from cf2.core.modules import module_of
from cf2.core.targets import Targets
from cf2.core.types import EdgeType, Schema
from cf2.errors import CF2Error, require


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
