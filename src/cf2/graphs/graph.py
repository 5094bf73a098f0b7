"""The user's graph, checked once and indexed by node; and one prediction with the graph that determines it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.errors import CF2Error, require
from cf2.graphs.data import described, with_edge_index
from cf2.graphs.typed import Schema, Types, flatten, schema_of
from cf2.options import Key, Reverse

Direction = Literal["in", "out", "both"]
Kind = Literal["node", "edge", "graph", "misfit"]
Extras = dict[str, tuple[Kind, Tensor]]
Index = tuple[np.ndarray, np.ndarray, np.ndarray]  # compressed rows: pointer, neighbour, edge id
NODE_IDS = 1 << 31  # more than there are: the id of a tail times this plus that of a head is a number for both


class Role:
    """What an edge column is to an edit."""

    THERE, CANDIDATE, BEYOND = 0, 1, 2  # in the graph; not yet in it; too far away to be edited


class Changes(NamedTuple):
    """New values of feature entries, in changes that are made or not: those of `unit` u are made together."""

    place: Tensor  # [c, 2], local row and column of each entry
    value: Tensor  # [c], its new value
    unit: Tensor  # [c], which change it belongs to, ascending
    ids: Tensor  # [u, 2], the user's node and the column that each change is named by
    source: Tensor  # [u], the column that a one-hot feature moves away from, -1 where there is none
    choice: Tensor  # [u], changes of the same choice exclude each other


@dataclass(frozen=True, eq=False)
class Instance:
    """One prediction and the graph that determines it, in local ids; `node_ids` are the user's.

    `targets` are the local nodes whose output is read: one for a node, none for a whole graph.
    """

    key: Key
    x: Tensor  # [n, d]
    edge_index: Tensor  # [2, e]
    targets: tuple[int, ...]
    node_ids: Tensor  # [n]
    directed: bool
    extras: Extras = field(default_factory=dict)
    role: Tensor | None = None  # [e], what each edge column is to an edit: see `Role`; None: all of them THERE
    changes: Changes | None = None  # what may be changed of the features
    groups: Tensor | None = None  # [e], edges of the same number from 0 on are one unit; None: each by itself
    narrowed: int = 0  # how many additions and changes there were before some were left out; 0: none were
    ties: Tensor | None = None  # [e], columns of one number are one unit; None: by their ends
    types: Types | None = None  # of the whole graph, where it has any

    @property
    def codes(self) -> Tensor:
        """A number for every edge column [e], the same for those that are one edge to an edit: (type,) tail, head."""
        if self.ties is not None:
            return self.ties
        ends = self.node_ids[self.edge_index]
        ends = ends if self.directed else ends.sort(0).values
        return ends[0] * NODE_IDS + ends[1]


class Graph:
    """The user's graph, checked once and indexed by node, so that a cut costs what it contains."""

    def __init__(
        self,
        data: Any,
        *,
        directed: bool | None = None,
        position: int | None = None,
        reverse: Reverse = "auto",
        schema: Schema | None = None,
    ) -> None:
        where = "the graph" if position is None else f"graph {position}"
        self.schema = schema
        self.types: Types | None = None
        self.ties: Tensor | None = None
        if isinstance(data, HeteroData):
            self.schema = schema_of(data) if schema is None else schema
            data, self.types, self.ties = flatten(data, self.schema, where, directed=directed, reverse=reverse)
            directed = True  # which edges are one unit is said by their ties
        data = with_edge_index(data, where)
        self.x, self.edge_index = check_tensors(data, where)
        self.num_nodes = int(self.x.size(0))
        self.directed = _is_directed(self.edge_index, self.num_nodes) if directed is None else directed
        self.extras = extras_of(data, self.num_nodes, int(self.edge_index.size(1)))
        self._index: dict[str, Index] = {}

    def index(self, direction: Direction) -> Index:
        """Compressed rows: (pointer, neighbour, edge id), for edges into, out of, or at each node."""
        if direction not in self._index:
            self._index[direction] = _compress(self.edge_index.numpy(), self.num_nodes, direction)
        return self._index[direction]

    def cut(
        self, nodes: tuple[int, ...], hops: int, direction: Direction, key: Key, without: np.ndarray | None = None
    ) -> Instance:
        """The subgraph of nodes up to `hops` from any of `nodes`, with the edges that end less far away.

        Edges `without`, ids of some between the `nodes` themselves, are left out: they bring nothing nearer.
        """
        inside, edge_ids = _reach(self.index(direction), nodes, hops)
        if without is not None and len(without):
            edge_ids = np.setdiff1d(edge_ids, without)
        targets = tuple(np.searchsorted(inside, nodes).tolist())
        return self.part(key, torch.from_numpy(inside), torch.from_numpy(edge_ids), targets)

    def between(self, u: int, v: int, tie: int | None = None) -> np.ndarray:
        """The ids of the edges from u to v, and back where edges are undirected; or those that are one unit, `tie`."""
        pointer, neighbour, edge_id = self.index("in")
        ways = [(u, v)] if self.directed and tie is None else [(u, v), (v, u)]
        spans = [(slice(pointer[head], pointer[head + 1]), tail) for tail, head in ways]
        found = np.unique(np.concatenate([edge_id[span][neighbour[span] == tail] for span, tail in spans]))
        return found if tie is None or self.ties is None else found[self.ties.numpy()[found] == tie]

    def whole(self, key: Key, without: np.ndarray | None = None) -> Instance:
        """The graph itself as one instance, for a graph-level prediction; perhaps without some edges."""
        every = torch.arange(self.num_nodes)
        parts = (key, self.x, self.edge_index, (), every, self.directed, self.extras)
        whole = Instance(*parts, ties=self.ties, types=self.types)
        if without is None or not len(without):
            return whole
        return with_edges(whole, torch.from_numpy(np.setdiff1d(np.arange(self.edge_index.size(1)), without)))

    def part(self, key: Key, nodes: Tensor, edges: Tensor, targets: tuple[int, ...] = ()) -> Instance:
        """Some nodes, ascending, and edges between them, by their ids, as one instance."""
        return Instance(
            key,
            self.x[nodes],
            torch.searchsorted(nodes, self.edge_index[:, edges].contiguous()),
            targets,
            nodes,
            self.directed,
            take_extras(self.extras, {"node": nodes, "edge": edges}),
            ties=None if self.ties is None else self.ties[edges],
            types=self.types,
        )


def with_edges(instance: Instance, stay: Tensor) -> Instance:
    """The instance with only some columns of its edges."""
    of_edges = {name: getattr(instance, name) for name in ("role", "groups", "ties")}
    return replace(
        instance,
        edge_index=instance.edge_index[:, stay],
        extras=take_extras(instance.extras, {"edge": stay}),
        **{name: value[stay] for name, value in of_edges.items() if value is not None},
    )


def lacks_features(x: Tensor) -> bool:
    """Whether the graph has no `x`: it is then kept as no column of booleans, and not handed to a model."""
    return x.dtype == torch.bool and not x.size(1)


NO_FEATURES = "Expected {} to have features `x` of shape [nodes, features]"
GIVE_FEATURES = (
    "If the graph has no features, use those that the model was trained with, such as ones. If the model does not read "
    "`x`, set `num_nodes`."
)


TO_TENSOR = "Use data.x = torch.from_numpy(data.x).float()."


def check_tensors(data: Any, where: str) -> tuple[Tensor, Tensor]:
    """`x` and `edge_index` of a Data object on the CPU, or an error that says what is wrong with them."""
    x, edge_index = getattr(data, "x", None), getattr(data, "edge_index", None)
    counted = isinstance(data, Data) and any(data.get(name) is not None for name in ("num_nodes", "pos", "z"))
    if x is None and counted:  # a model may read `pos` or `z` alone
        x = torch.zeros(data.num_nodes, 0, dtype=torch.bool)
        edge_index = torch.zeros(2, 0, dtype=torch.long) if edge_index is None else edge_index
    require(
        isinstance(x, Tensor) and x.dim() == 2,
        NO_FEATURES.format(where),
        got=described(x),
        do=TO_TENSOR if isinstance(x, np.ndarray) else "" if isinstance(x, Tensor) else GIVE_FEATURES,
    )
    require(
        isinstance(edge_index, Tensor) and edge_index.dim() == 2 and edge_index.size(0) == 2,
        f"Expected {where} to have an `edge_index` of shape [2, edges]",
        got=described(edge_index),
        do="Use edge_index.t()." if isinstance(edge_index, Tensor) and edge_index.shape[1:] == (2,) else "",
    )
    assert isinstance(x, Tensor)
    assert isinstance(edge_index, Tensor)
    for name, value in (("x", x), ("edge_index", edge_index)):
        require(
            value.layout == torch.strided and not value.is_meta,
            f"Expected `{name}` of {where} to be a dense tensor with values",
            got=f"one in {value.layout} on {value.device}",
            do=f"Use {name}.to_dense().",
        )
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
    require(not x.is_complex(), f"Expected the features of {where} to be real numbers", got=x.dtype)
    bad = ~torch.isfinite(x)
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise CF2Error(
            f"Expected the features of {where} to be finite",
            got=f"{x[row, column].item()} at node {row}, feature {column}",
        )
    return x.detach().cpu().contiguous(), edge_index.detach().cpu().contiguous()


def _is_directed(edge_index: Tensor, num_nodes: int) -> bool:
    """Whether some edge has no reverse."""
    tail, head = edge_index.numpy()
    forward, backward = np.sort(tail * num_nodes + head), np.sort(head * num_nodes + tail)
    if np.array_equal(forward, backward):
        return False
    return not np.array_equal(np.unique(forward), np.unique(backward))  # an edge may be there twice, its reverse once


def edge_positions(edge_index: Tensor, pairs: Tensor, num_nodes: int | None = None) -> Tensor:
    """For every pair [2, p], a column of `edge_index` [2, e] with the same ends, the first one; -1 if there is none.

    >>> edge_positions(torch.tensor([[0, 1, 1], [1, 2, 2]]), torch.tensor([[1, 2], [2, 1]]))
    tensor([ 1, -1])
    """
    if num_nodes is None:
        num_nodes = max((int(ends.max()) for ends in (edge_index, pairs) if ends.numel()), default=0) + 1
    return positions_of(edge_index[0] * num_nodes + edge_index[1], pairs[0] * num_nodes + pairs[1])


def positions_of(codes: Tensor, wanted: Tensor) -> Tensor:
    """For every wanted number, its first position among others; -1 where it is none of them."""
    if not len(codes):
        return torch.full_like(wanted, -1)
    known, order = codes.sort(stable=True)
    position = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
    return torch.where(known[position] == wanted, order[position], -1)


_NOT_EXTRAS = {"x", "edge_index", "adj_t", "y", "batch", "ptr", "num_nodes", "truth", "motif"}
_NOT_EXTRAS |= {"train_mask", "val_mask", "test_mask"}


def extras_of(data: Any, num_nodes: int, num_edges: int) -> Extras:
    """Further tensors and numbers of the Data object, which a model's forward may ask for by name.

    Each belongs to the nodes, the edges or the graph: by its name, where that says so, or else by its size. What fits
    none of them is left out, or kept as a misfit where its name leaves no doubt.
    """
    extras: Extras = {}
    for name in data.keys() if callable(getattr(data, "keys", None)) else ():
        value = data[name]
        if isinstance(value, int | float) and abs(value) < 2**63:
            value = torch.tensor([value])
        if name in _NOT_EXTRAS or not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta:
            continue
        value = value.detach().cpu()
        value = value.reshape(1) if value.dim() == 0 else value
        kinds = kinds_that_fit(name, value.size(0), num_nodes, num_edges)
        if kinds or name.startswith(("edge_attr", "edge_weight", "edge_type", "node_type")):
            extras[name] = (kinds[0] if kinds else "misfit", value)
    return extras


def kinds_that_fit(name: str, rows: int, num_nodes: int, num_edges: int) -> list[Kind]:
    """What an attribute of that many rows may belong to, the likeliest first.

    >>> kinds_that_fit("edge_attr", 5, 5, 5), kinds_that_fit("pos", 5, 5, 5), kinds_that_fit("edge_attr", 4, 4, 6)
    (['edge'], ['node', 'edge'], [])
    """
    fits: list[tuple[Kind, int]] = [("node", num_nodes), ("edge", num_edges), ("graph", 1)]
    said = next((kind for kind, _ in fits if name == kind or name.startswith(f"{kind}_")), None)
    return [kind for kind, count in fits if rows == count and said in (None, kind)]


def commonest(rows: Tensor) -> Tensor:
    """The row that occurs most often, the smallest of equals; zeros where there is none.

    >>> commonest(torch.tensor([[1, 0], [0, 1], [1, 0]]))
    tensor([1, 0])
    """
    if not len(rows):
        return rows.new_zeros(rows.shape[1:])
    values, counts = torch.unique(rows, dim=0, return_counts=True)
    return values[int(counts.argmax())]  # type: ignore[no-any-return]


def commonest_of(graph: Graph | Instance) -> dict[str, Tensor]:
    """By name, the commonest attribute of the edges of a graph; of a typed one of each edge type [types, …]."""
    values = {name: value for name, (kind, value) in graph.extras.items() if kind == "edge"}
    if graph.types is None:
        return {name: commonest(value) for name, value in values.items()}
    kinds, types = values["edge_type"], range(len(graph.types.edges))
    return {name: torch.stack([commonest(value[kinds == kind]) for kind in types]) for name, value in values.items()}


def take_extras(extras: Extras, rows: Mapping[str, Tensor]) -> Extras:
    """Some rows of extras, by what they belong to; extras of other things stay as they are."""
    return {name: (kind, value[rows[kind]] if kind in rows else value) for name, (kind, value) in extras.items()}


def _compress(ends: np.ndarray, num_nodes: int, direction: Direction) -> Index:
    tail, head = ends
    anchor, other = (tail, head) if direction == "out" else (head, tail)
    if direction == "both":
        anchor, other = np.concatenate([head, tail]), np.concatenate([tail, head])
    order = np.argsort(anchor, kind="stable")
    pointer = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(anchor, minlength=num_nodes), out=pointer[1:])
    return pointer, other[order], order % max(ends.shape[1], 1)


def _reach(index: Index, sources: tuple[int, ...], hops: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes up to `hops` away (sorted) and the ids of the edges at those less than `hops` away (sorted)."""
    pointer, neighbour, edge_id = index
    nodes = frontier = np.unique(np.array(sources, dtype=np.int64))
    edges: list[np.ndarray] = []
    for _ in range(hops):
        start = pointer[frontier]
        count = pointer[frontier + 1] - start
        span = np.repeat(start - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(count.sum())
        edges.append(edge_id[span])
        near = np.unique(neighbour[span])
        frontier = np.setdiff1d(near, nodes, assume_unique=True)
        if not len(frontier):
            break
        nodes = np.sort(np.concatenate([nodes, frontier]))
    return nodes, np.unique(np.concatenate(edges)) if edges else np.zeros(0, dtype=np.int64)
