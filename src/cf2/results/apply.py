"""Edits carried out on the user's own graph."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from cf2.core.edits import commonest
from cf2.errors import CF2Error, require
from cf2.results.explanation import Explanation


def edits_of(e: Explanation) -> list[tuple[Any, ...]]:
    """What the units that a counterfactual has chosen do, one after the other."""
    if e.question != "counterfactual":
        return []
    grouped = e.units.members[e.selected[e.units.members[:, 0]]][:, 1:].tolist()
    found: list[tuple[Any, ...]] = [("remove", tuple(pair)) for pair in [*e.chosen("edges").tolist(), *grouped]]
    found += [("remove", (node,)) for node, _ in e.chosen("nodes").tolist()]
    found += [("add", tuple(pair)) for pair in e.chosen("added_edges").tolist()]
    for name in ("features", "changes"):
        rows = e.units.where(name)
        for row in rows[e.selected[rows]]:
            (node, column), (source, old, new) = e.units.ids[row].tolist(), e.units.values[row].tolist()
            found.append(("change", (node, column), old, new))
            if source >= 0:
                found.append(("change", (node, int(source)), 1.0, 0.0))
    return found


def apply_edits(e: Explanation, data: Any) -> Any:
    """A copy of a Data object with the edits of an explanation made."""
    for name in ("x", "edge_index"):
        require(isinstance(getattr(data, name, None), Tensor), f"Expected a Data object with `{name}`", got=_kind(data))
    other = [name for name in e.units.names if name in ("node_features", "columns") and len(e.chosen(name))]
    require(not other, "Expected edits of edges, nodes and feature entries", got=", ".join(other))
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
            rest = commonest(value).expand(added.size(1), *value.shape[1:])
            made[name] = torch.cat([value[stays], rest])
    return made


def _kind(value: object) -> str:
    if isinstance(value, CF2Error):
        return str(value)
    return f"an object of type {type(value).__name__}"
