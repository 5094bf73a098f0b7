"""One prediction to explain: its exact computation graph, its maskable units, ids in the user's graph.

A *unit* is the smallest thing an explanation can contain: an edge (both directions of an undirected one, and
all its duplicates) or a non-zero entry of the features. Self-loops are never units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cf2.errors import CF2Error, require

Direction = Literal["in", "out", "both"]
Extras = dict[str, tuple[Literal["node", "edge", "graph"], Tensor]]


@dataclass(frozen=True, eq=False)
class Instance:
    """One prediction and the graph that determines it. Tensors use local ids, `*_ids` the user's.

    `key` is the node id, or the graph's position; `target` the local id of the node, -1 for a whole graph.
    `edge_unit[e]` is the unit of column e, -1 where the column is never masked (a self-loop).
    """

    key: int
    x: Tensor  # [n, d]
    edge_index: Tensor  # [2, e]
    target: int
    node_ids: Tensor  # [n]
    edge_unit: Tensor  # [e]
    unit_edges: Tensor  # [units, 2], the user's node ids; first < second if undirected
    directed: bool
    extras: Extras = field(default_factory=dict)

    @property
    def num_edge_units(self) -> int:
        return int(self.unit_edges.size(0))

    def feature_entries(self) -> Tensor:
        """The non-zero entries of x as [f, 2] local (row, column)."""
        return self.x.nonzero()


class Graph:
    """The user's graph, checked once and indexed by node, so that a cut costs what it contains."""

    def __init__(self, data: Any, *, directed: bool | None = None, position: int | None = None) -> None:
        where = "the graph" if position is None else f"graph {position}"
        self.x, self.edge_index = check_tensors(data, where)
        self.num_nodes = int(self.x.size(0))
        self.directed = _is_directed(self.edge_index, self.num_nodes) if directed is None else directed
        self.extras = _extras(data, self.num_nodes, int(self.edge_index.size(1)))
        self._index: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def index(self, direction: Direction) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compressed rows: (pointer, neighbour, edge id), for edges into, out of, or at each node."""
        if direction not in self._index:
            self._index[direction] = _compress(self.edge_index.numpy(), self.num_nodes, direction)
        return self._index[direction]

    def cut(self, node: int, hops: int, direction: Direction = "in") -> Instance:
        """The computation graph of `node`: nodes up to `hops` away, and the edges that end less far away."""
        nodes, edge_ids = _reach(self.index(direction), node, hops)
        ends = self.edge_index.numpy()[:, edge_ids]
        local = np.searchsorted(nodes, ends)
        edge_unit, first = _units(local, len(nodes), self.directed)
        pairs = ends[:, first].T
        ids, columns = torch.from_numpy(nodes), torch.from_numpy(edge_ids)
        return Instance(
            key=int(node),
            x=self.x[ids],
            edge_index=torch.from_numpy(local),
            target=int(np.searchsorted(nodes, node)),
            node_ids=ids,
            edge_unit=torch.from_numpy(edge_unit),
            unit_edges=torch.from_numpy(np.ascontiguousarray(pairs if self.directed else np.sort(pairs, 1))),
            directed=self.directed,
            extras=_take_extras(self.extras, ids, columns),
        )

    def whole(self, key: int) -> Instance:
        """The graph itself as one instance, for a graph-level prediction."""
        ends = self.edge_index.numpy()
        edge_unit, first = _units(ends, self.num_nodes, self.directed)
        pairs = ends[:, first].T
        return Instance(
            key=key,
            x=self.x,
            edge_index=self.edge_index,
            target=-1,
            node_ids=torch.arange(self.num_nodes),
            edge_unit=torch.from_numpy(edge_unit),
            unit_edges=torch.from_numpy(np.ascontiguousarray(pairs if self.directed else np.sort(pairs, 1))),
            directed=self.directed,
            extras=self.extras,
        )


def check_nodes(nodes: Iterable[int] | Tensor | int, num_nodes: int) -> list[int]:
    """The node ids as a list of whole numbers, each inside the graph."""
    if isinstance(nodes, Tensor):
        require(
            not nodes.is_floating_point() and nodes.dtype != torch.bool and nodes.dim() <= 1,
            "Expected `nodes` to be whole numbers in one dimension",
            got=f"a tensor of shape {tuple(nodes.shape)} and dtype {nodes.dtype}",
            do="Turn a mask into ids with mask.nonzero().flatten().",
        )
        nodes = nodes.reshape(-1).tolist()
    listed = [nodes] if isinstance(nodes, int | np.integer) else list(nodes)
    for node in listed:
        good = isinstance(node, int | np.integer) and not isinstance(node, bool)
        if not good or not 0 <= node < num_nodes:
            raise CF2Error(
                f"Expected every id in `nodes` to be a whole number from 0 to {num_nodes - 1}", got=repr(node)
            )
    require(len(listed) > 0, "Expected at least one node to explain", got="an empty `nodes`")
    return [int(node) for node in listed]


def check_tensors(data: Any, where: str) -> tuple[Tensor, Tensor]:
    """`x` and `edge_index` of a Data object on the CPU, or an error that says what is wrong with them."""
    if hasattr(data, "node_types"):
        raise CF2Error(f"Expected {where} to be homogeneous", got=type(data).__name__)
    x, edge_index = getattr(data, "x", None), getattr(data, "edge_index", None)
    require(
        isinstance(x, Tensor) and x.dim() == 2,
        f"Expected {where} to have features `x` of shape [nodes, features]",
        got=_shape(x),
    )
    require(
        isinstance(edge_index, Tensor) and edge_index.dim() == 2 and edge_index.size(0) == 2,
        f"Expected {where} to have an `edge_index` of shape [2, edges]",
        got=_shape(edge_index),
    )
    assert isinstance(x, Tensor)
    assert isinstance(edge_index, Tensor)
    require(x.size(0) > 0, f"Expected {where} to have at least one node", got="an empty graph")
    require(
        edge_index.dtype == torch.int64,
        f"Expected `edge_index` of {where} to have dtype torch.int64",
        got=edge_index.dtype,
        do="Use edge_index.long().",
    )
    if edge_index.numel():
        low, high = int(edge_index.min()), int(edge_index.max())
        require(
            low >= 0 and high < x.size(0),
            f"Expected `edge_index` of {where} to hold node ids from 0 to {x.size(0) - 1}",
            got=f"ids from {low} to {high}",
        )
    x = x if x.is_floating_point() else x.float()
    bad = ~torch.isfinite(x)
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise CF2Error(
            f"Expected the features of {where} to be finite",
            got=f"{x[row, column].item()} at node {row}, feature {column}",
        )
    return x.detach().cpu().contiguous(), edge_index.detach().cpu().contiguous()


def _shape(value: object) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _is_directed(edge_index: Tensor, num_nodes: int) -> bool:
    """Whether some edge has no reverse."""
    tail, head = edge_index.numpy()
    forward, backward = tail * num_nodes + head, head * num_nodes + tail
    return not np.array_equal(np.unique(forward), np.unique(backward))


_KNOWN = frozenset(
    {"x", "edge_index", "y", "batch", "ptr", "train_mask", "val_mask", "test_mask", "truth", "motif", "bond"}
)


def _extras(data: Any, num_nodes: int, num_edges: int) -> Extras:
    """Further tensors of the Data object, which a model's forward may ask for by name."""
    extras: Extras = {}
    for name in data.keys() if callable(getattr(data, "keys", None)) else ():
        value = data[name]
        if name in _KNOWN or not isinstance(value, Tensor):
            continue
        rows = value.size(0) if value.dim() else -1
        if name.startswith("edge_") or (rows == num_edges and rows != num_nodes):
            if rows == num_edges:
                extras[name] = ("edge", value.detach().cpu())
        elif rows == num_nodes:
            extras[name] = ("node", value.detach().cpu())
        elif rows == 1:
            extras[name] = ("graph", value.detach().cpu())
    return extras


def _take_extras(extras: Extras, nodes: Tensor, edges: Tensor) -> Extras:
    rows = {"node": nodes, "edge": edges}
    return {name: (kind, value if kind == "graph" else value[rows[kind]]) for name, (kind, value) in extras.items()}


def _compress(ends: np.ndarray, num_nodes: int, direction: Direction) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    tail, head = ends
    anchor, other = {"in": (head, tail), "out": (tail, head)}.get(
        direction, (np.concatenate([head, tail]), np.concatenate([tail, head]))
    )
    order = np.argsort(anchor, kind="stable")
    pointer = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(anchor, minlength=num_nodes), out=pointer[1:])
    return pointer, other[order], order % max(ends.shape[1], 1)


def _reach(index: tuple[np.ndarray, np.ndarray, np.ndarray], node: int, hops: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes up to `hops` away (sorted) and the ids of the edges at those less than `hops` away (sorted)."""
    pointer, neighbour, edge_id = index
    nodes = frontier = np.array([node], dtype=np.int64)
    edges: list[np.ndarray] = []
    for _ in range(hops):
        start = pointer[frontier]
        count = pointer[frontier + 1] - start
        span = np.repeat(start - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(count.sum())
        edges.append(edge_id[span])
        near = np.unique(neighbour[span])
        place = np.minimum(np.searchsorted(nodes, near), len(nodes) - 1)
        frontier = near[nodes[place] != near]
        if not len(frontier):
            break
        nodes = np.sort(np.concatenate([nodes, frontier]))
    return nodes, np.unique(np.concatenate(edges)) if edges else np.zeros(0, dtype=np.int64)


def _units(ends: np.ndarray, num_nodes: int, directed: bool) -> tuple[np.ndarray, np.ndarray]:
    """The unit of every edge column (-1: none), and the first column of every unit."""
    tail, head = ends
    code = tail * num_nodes + head if directed else np.minimum(tail, head) * num_nodes + np.maximum(tail, head)
    proper = np.flatnonzero(tail != head)
    _, first, unit = np.unique(code[proper], return_index=True, return_inverse=True)
    edge_unit = np.full(ends.shape[1], -1, dtype=np.int64)
    edge_unit[proper] = unit.reshape(-1)
    return edge_unit, proper[first]


def graph_instances(
    graphs: Sequence[Any], *, directed: bool | None = None, keys: Iterable[int] | None = None
) -> list[Instance]:
    """One instance a graph; a graph is directed or not by itself unless `directed` says so for all."""
    chosen = range(len(graphs)) if keys is None else keys
    return [Graph(graphs[key], directed=directed, position=key).whole(key) for key in chosen]
