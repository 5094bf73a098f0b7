"""Edits carried out on the user's own graph."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from cf2.core.graph import commonest
from cf2.core.types import ATTRIBUTES, Types
from cf2.errors import CF2Error, require
from cf2.results.explanation import Explanation


def edits_of(e: Explanation) -> list[tuple[Any, ...]]:
    """What the units that a counterfactual has chosen do, one after the other; of a typed graph with the type last."""
    if e.question != "counterfactual":
        return []
    grouped = e.units.members[e.selected[e.units.members[:, 0]]][:, 1:].tolist()
    found: list[tuple[Any, ...]] = _edges(e, "remove", "edges")
    found += [("remove", tuple(pair)) for pair in grouped]
    found += [("remove", *_node(e, node)) for node, _ in e.chosen("nodes").tolist()]
    found += _edges(e, "add", "added_edges")
    for name in ("features", "changes"):
        rows = e.units.where(name)
        for row in rows[e.selected[rows]]:
            (node, column), (source, old, new) = e.units.ids[row].tolist(), e.units.values[row].tolist()
            (local,), *kind = _node(e, node)
            found.append(("change", (local, column), old, new, *kind))
            if source >= 0:
                found.append(("change", (local, int(source)), 1.0, 0.0, *kind))
    return found


def _edges(e: Explanation, sort: str, name: str) -> list[tuple[Any, ...]]:
    rows = e.units.where(name)
    rows = rows[e.selected[rows]]
    if e.types is None:
        return [(sort, tuple(pair)) for pair in e.units.ids[rows].tolist()]
    pairs, kinds = e.types.local(e.units.ids[rows]).tolist(), e.units.types[rows].tolist()
    return [(sort, tuple(pair), e.types.edges[kind]) for pair, kind in zip(pairs, kinds)]


def _node(e: Explanation, node: int) -> tuple[Any, ...]:
    """A node in a tuple, and of a typed graph its type, in whose ids it is then."""
    if e.types is None:
        return ((node,),)
    flat = np.array([node])
    return (int(e.types.local(flat)[0]),), e.types.nodes[int(e.types.of(flat)[0])]


def apply_edits(e: Explanation, data: Any) -> Any:
    """A copy of a Data object, or of a HeteroData, with the edits of an explanation made."""
    other = [name for name in e.units.names if name in ("node_features", "columns") and len(e.chosen(name))]
    require(not other, "Expected edits of edges, nodes and feature entries", got=", ".join(other))
    if e.types is not None:
        require(isinstance(data, HeteroData), "Expected the HeteroData that was explained", got=_kind(data))
        return _apply_typed(e, e.types, data)
    for name in ("x", "edge_index"):
        require(isinstance(getattr(data, name, None), Tensor), f"Expected a Data object with `{name}`", got=_kind(data))
    made = copy.copy(data)
    made.x = data.x.clone()
    tail, head = data.edge_index
    stays = torch.ones_like(tail, dtype=torch.bool)
    new: list[tuple[int, int]] = []
    for sort, ends, *values in e.edits:
        if sort == "change":
            made.x[ends[0], ends[1]] = values[1]
        elif sort == "add":
            new += [ends] if e.directed else [ends, ends[::-1]]
        elif len(ends) == 1:
            stays &= (tail != ends[0]) & (head != ends[0])
            made.x[ends[0]] = 0
        else:
            same = (tail == ends[0]) & (head == ends[1])
            stays &= ~(same if e.directed else same | ((tail == ends[1]) & (head == ends[0])))
    added = torch.tensor(new, dtype=torch.long, device=tail.device).reshape(-1, 2).t()
    columns = data.edge_index.size(1)
    made.edge_index = torch.cat([data.edge_index[:, stays], added], 1)
    for name in list(data.keys()):
        value = data[name]
        own = name not in ("x", "edge_index") and isinstance(value, Tensor) and value.dim() > 0
        if own and value.size(0) == columns and (name.startswith("edge_") or columns != data.num_nodes):
            made[name] = torch.cat([value[stays], _new(e, name, value, added.size(1))])
    return made


def _new(e: Explanation, name: str, value: Tensor, count: int) -> Tensor:
    """What added edges have beside their ends: what was given when they were explained, or else the commonest."""
    given = (e.context.get("spec") or {}).get("added_attributes") or {}
    row = torch.as_tensor(given[name], dtype=value.dtype) if name in given else commonest(value)
    return row.to(value.device).expand(count, *value.shape[1:])


def _apply_typed(e: Explanation, types: Types, data: HeteroData) -> HeteroData:
    """A copy of a typed graph with the edits made; an edge comes and goes with its mirror image."""
    made = copy.copy(data)
    for sort, ends, *values in e.edits:
        kind = values[-1]
        if sort == "change":
            made[kind].x = made[kind].x.clone()
            made[kind].x[ends[0], ends[1]] = values[1]
        elif len(ends) == 1:
            _take_node(e, made, kind, ends[0])
        else:
            place = types.edges.index(kind)
            _edit_edge(e, made, kind, ends, sort)
            if types.partners[place] >= 0:
                _edit_edge(e, made, types.edges[types.partners[place]], ends[::-1], sort)
    return made


def _edit_edge(e: Explanation, made: HeteroData, kind: Any, ends: tuple[int, int], sort: str) -> None:
    store = made[kind]
    tail, head = store.edge_index
    stays = torch.ones_like(tail, dtype=torch.bool) if sort == "add" else (tail != ends[0]) | (head != ends[1])
    added = torch.tensor([ends] if sort == "add" else [], dtype=torch.long, device=tail.device).reshape(-1, 2).t()
    _keep_edges(e, store, stays, added)


def _take_node(e: Explanation, made: HeteroData, kind: str, node: int) -> None:
    if "x" in made[kind]:
        made[kind].x = made[kind].x.clone()
        made[kind].x[node] = 0
    for source, relation, sink in made.edge_types:
        store = made[source, relation, sink]
        tail, head = store.edge_index
        gone = ((tail == node) & (source == kind)) | ((head == node) & (sink == kind))
        _keep_edges(e, store, ~gone, tail.new_zeros((2, 0)))


def _keep_edges(e: Explanation, store: Any, stays: Tensor, added: Tensor) -> None:
    """Some edges of a store, and further ones, with the attributes of each."""
    for name in ATTRIBUTES:
        if isinstance(store.get(name), Tensor):
            value = store[name]
            store[name] = torch.cat([value[stays], _new(e, name, value, added.size(1))])
    store.edge_index = torch.cat([store.edge_index[:, stays], added], 1)


def _kind(value: object) -> str:
    if isinstance(value, CF2Error):
        return str(value)
    return f"an object of type {type(value).__name__}"
