"""What was chosen of a typed graph, by the user's types and in their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from cf2.core.types import EdgeType, Types


class Explained(Protocol):
    """An explanation of a typed graph."""

    @property
    def units(self) -> Any: ...

    @property
    def types(self) -> Types | None: ...

    @property
    def scores(self) -> np.ndarray: ...

    @property
    def selected(self) -> np.ndarray: ...


def edges(e: Explained, which: np.ndarray) -> dict[EdgeType, np.ndarray]:
    """The edges of some units [units, bool] by edge type [n, 2], with their mirror images; only types with any."""
    types, found = e.types, {}
    assert types is not None
    units = e.units.where("edges")
    for place, kind in enumerate(types.edges):
        pairs = [pair for _, pair in _columns(e, units[which[units]], place)]
        joined = np.concatenate([np.zeros((0, 2), np.int64), *pairs])
        if len(joined):
            found[kind] = np.unique(types.local(joined), axis=0)
    return found


def _columns(e: Explained, units: np.ndarray, place: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Units that govern edges of a type, and these edges [n, 2] in flat ids."""
    assert e.types is not None
    own = units[e.units.types[units] == place]
    yield own, e.units.ids[own]
    partner = e.types.partners[place]
    if partner >= 0:
        mirrored = units[e.units.types[units] == partner]
        yield mirrored, e.units.ids[mirrored][:, ::-1]


def rows(types: Types, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Rows [n, ·] that start with a flat node id, by node type, with the id in that type first."""
    kind = types.of(ids[:, 0])
    first = types.local(ids[:, 0])
    local = np.concatenate([first[:, None], ids[:, 1:]], 1)
    return {name: local[kind == place] for place, name in enumerate(types.nodes) if (kind == place).any()}


def counts(e: Explained) -> dict[Any, tuple[int, int]]:
    """How many units of each edge type or node type were chosen, and how many there were."""
    types, found = e.types, {}
    assert types is not None
    of_edge = np.concatenate([e.units.where("edges"), e.units.where("added_edges")])
    for place, kind in enumerate(types.edges):
        mine = of_edge[e.units.types[of_edge] == place]
        if len(mine):
            found[kind] = (int(e.selected[mine].sum()), len(mine))
    others = np.setdiff1d(np.arange(len(e.units.ids)), of_edge)
    node = e.units.ids[others, 0]
    kinds = np.where(node >= 0, types.of(np.maximum(node, 0)), e.units.types[others])
    for place, name in enumerate(types.nodes):
        mine = others[kinds == place]
        if len(mine):
            found[name] = (int(e.selected[mine].sum()), len(mine))  # type: ignore[index]
    return found


def mask(e: Explained, kind: EdgeType, ends: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The value of the unit of each edge [2, e] of a type in the ids of its ends' types, 0 where it has none."""
    types = e.types
    assert types is not None
    made = np.zeros(ends.shape[1], dtype=np.float32)
    units = e.units.where("edges")
    if kind not in types.edges or not len(units):
        return made
    place = types.edges.index(kind)
    starts = dict(zip(types.nodes, types.starts))
    code = types.code(np.full(ends.shape[1], place), ends[0] + starts[kind[0]], ends[1] + starts[kind[2]])
    known = types.code(e.units.types[units], *e.units.ids[units].T)
    order = np.argsort(known)
    near = np.minimum(np.searchsorted(known, code, sorter=order), len(known) - 1)
    hit = known[order[near]] == code
    made[hit] = values[units[order[near[hit]]]]
    return made


def true_edges(e: Explained, known: Mapping[Any, Any]) -> np.ndarray:
    """Which edge units are true, bool [edge units]; `known` holds pairs [n, 2] by edge type, in their ids."""
    types, units = e.types, e.units.where("edges")
    assert types is not None
    return np.isin(types.code(e.units.types[units], *e.units.ids[units].T), types.codes(known))


def to_networkx(e: Explained) -> Any:
    """The edges that could be chosen, between nodes (type, id); the key of an edge is its relation."""
    import networkx as nx

    graph, types = nx.MultiDiGraph(), e.types
    assert types is not None
    units = e.units.where("edges")
    for place, (src, relation, dst) in enumerate(types.edges):
        for rows, pairs in _columns(e, units, place):
            for row, (tail, head) in zip(rows.tolist(), types.local(pairs).tolist()):
                facts = {"score": float(e.scores[row]), "chosen": bool(e.selected[row])}
                graph.add_edge((src, tail), (dst, head), key=relation, **facts)
    return graph
