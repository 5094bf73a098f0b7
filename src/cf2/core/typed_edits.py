"""What may be added to a typed graph: pairs of nodes that an edge type joins, with the mirror images of its edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cf2.core.graph import Extras, Instance, Role, commonest
from cf2.core.types import Types

MANY = 40_000  # where a type joins more pairs than this, only those at the target are candidates


def with_typed_edges(
    base: Instance,
    role: Tensor,
    inside: Tensor,
    far: Tensor,
    attributes: Mapping[str, Any],
    common: Mapping[str, Tensor],
    *,
    target: bool,
) -> Instance:
    """An instance with every absent edge between local nodes `inside`, and between the targets and those `far` away.

    With `target`, only edges at the target. An edge that is one unit with its mirror image comes with it. Its
    `attributes` are given, or else the most `common` ones of its type, where these are known of the whole graph.
    """
    types = base.types
    assert types is not None
    assert base.ties is not None
    ids = base.node_ids.numpy()
    kinds, tails, heads = [], [], []
    for place, mirror in enumerate(types.partners):
        if 0 <= mirror < place:  # the mirror images of another type
            continue
        one, other = _pairs(base, types, place, inside.numpy(), far.numpy(), target)
        kinds.append(np.full(len(one), place))
        tails.append(one)
        heads.append(other)
    kind, tail, head = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in (kinds, tails, heads))
    code, first = np.unique(types.code(kind, ids[tail], ids[head]), return_index=True)
    first = np.sort(first[~np.isin(code, base.ties.numpy())])
    kind, tail, head = kind[first], tail[first], head[first]
    tie = types.code(kind, ids[tail], ids[head])
    partner = np.array([*types.partners, -1])[kind]
    back = partner >= 0
    columns = torch.from_numpy(np.stack([np.r_[tail, head[back]], np.r_[head, tail[back]]]))
    of_type = torch.from_numpy(np.r_[kind, partner[back]])
    return replace(
        base,
        edge_index=torch.cat([base.edge_index, columns], 1),
        role=torch.cat([role, torch.full((columns.size(1),), Role.CANDIDATE)]),
        ties=torch.cat([base.ties, torch.from_numpy(np.r_[tie, tie[back]])]),
        extras=_extended(base.extras, of_type, attributes, common),
        groups=None if base.groups is None else torch.cat([base.groups, torch.full_like(of_type, -1)]),
    )


def _pairs(
    base: Instance, types: Types, kind: int, inside: np.ndarray, far: np.ndarray, target: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Local nodes that edges of a type may join, whether they do or not."""
    source, _, sink = types.edges[kind]
    of, own = types.of(base.node_ids.numpy()), np.array(base.targets, dtype=np.int64)
    places = [types.nodes.index(name) if name in types.nodes else -1 for name in (source, sink)]

    def joined(tails: np.ndarray, heads: np.ndarray) -> np.ndarray:
        tails, heads = tails[of[tails] == places[0]], heads[of[heads] == places[1]]
        return np.stack([np.repeat(tails, len(heads)), np.tile(heads, len(tails))])

    near, wide = [(own, inside), (inside, own)], [(own, far), (far, own)]
    count = int((of[inside] == places[0]).sum()) * int((of[inside] == places[1]).sum())
    if not len(own) or not (target or count > MANY):
        near = [(inside, inside)]
    pairs = np.concatenate([joined(*ends) for ends in near + wide], 1)
    if not len(own):
        pairs = pairs[:, :: max(1, -(-pairs.shape[1] // MANY))]  # of a huge graph, every so many-th pair
    tail, head = pairs[:, pairs[0] != pairs[1]]
    return tail, head


def _extended(extras: Extras, of_type: Tensor, given: Mapping[str, Any], common: Mapping[str, Tensor]) -> Extras:
    """What edges have beside their ends, for those that may be added the commonest of their type, or what is given."""
    known, found = extras["edge_type"][1], dict[str, Any]()
    for name, (kind, value) in extras.items():
        if kind == "edge" and name == "edge_type":
            value = torch.cat([value, of_type.to(value.dtype)])
        elif kind == "edge":
            rows = value.new_zeros((len(of_type), *value.shape[1:]))
            for one in torch.unique(of_type).tolist():
                row = common[name][one] if name in common else commonest(value[known == one])
                if name in given:
                    row = torch.as_tensor(given[name], dtype=value.dtype)
                rows[of_type == one] = row
            value = torch.cat([value, rows])
        found[name] = (kind, value)
    return found
