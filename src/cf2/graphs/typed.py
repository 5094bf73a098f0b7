"""Typed graphs: a HeteroData as one flat graph with a type per node and edge, and ids in the user's own types.

Nodes of a type are a block of flat ids. Everything between this file and the adapter knows the flat graph only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.errors import CF2Error, require, unknown_name
from cf2.graphs.data import described, edges_of
from cf2.options import EdgeType, Reverse

ATTRIBUTES = ("edge_attr", "edge_weight")  # what a model may be handed of the edges of a type


@dataclass(frozen=True)
class Types:
    """The node and edge types of one flat graph.

    Attributes
    ----------
    nodes : tuple of str
        The names of the node types.
    starts : tuple of int
        The first flat id of each node type, and the number of all nodes at the end.
    edges : tuple of (str, str, str)
        The edge types.
    partners : tuple of int
        The edge type that mirrors each, so that an edge and its mirror image are one unit; its own place where edges
        of the type are undirected, -1 where there is none.
    explained : tuple of str
        The type of the node that is explained, or of the two nodes of a pair; empty for a whole graph.
    """

    nodes: tuple[str, ...]
    starts: tuple[int, ...]
    edges: tuple[EdgeType, ...]
    partners: tuple[int, ...]
    explained: tuple[str, ...] = ()

    def flat(self, key: int | tuple[int, ...]) -> tuple[int, ...]:
        """The flat ids of the nodes that are explained, from their key."""
        numbers = key if isinstance(key, tuple) else (key,)
        return tuple(self.starts[self.nodes.index(name)] + number for name, number in zip(self.explained, numbers))

    def of(self, ids: np.ndarray) -> np.ndarray:
        """The place of the type of flat node ids."""
        return np.searchsorted(np.array(self.starts[1:]), ids, side="right")

    def local(self, ids: np.ndarray) -> np.ndarray:
        """Flat node ids as ids in their own type."""
        found: np.ndarray = ids - np.array(self.starts)[self.of(ids)]
        return found

    def code(self, kind: Any, tail: Any, head: Any) -> Any:
        """A number for edges of type `kind` between flat ids, the same for those that are one unit."""
        kind, tail, head = (np.asarray(values, dtype=np.int64) for values in (kind, tail, head))
        partner = np.array([*self.partners, -1])[kind]
        mirrored = (partner >= 0) & (partner < kind)
        swap = mirrored | ((partner == kind) & (tail > head))
        first, last = np.where(swap, head, tail), np.where(swap, tail, head)
        own = np.where(mirrored, partner, kind)
        return (own * self.starts[-1] + first) * self.starts[-1] + last

    def codes(self, known: Mapping[Any, Any]) -> np.ndarray:
        """The numbers of edges that are given as pairs [n, 2] by edge type, in the ids of the types.

        A type is a tuple, or, as JSON has it, its three names separated by commas.
        """
        starts, found = dict(zip(self.nodes, self.starts)), [np.zeros(0, np.int64)]
        for name, pairs in known.items():
            kind = tuple(name.split(",")) if isinstance(name, str) else tuple(name)
            if kind not in self.edges:
                raise unknown_name("an edge type", str(kind), [str(edge_type) for edge_type in self.edges])
            tail, head = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
            found.append(self.code(self.edges.index(kind), tail + starts[kind[0]], head + starts[kind[2]]))
        return np.concatenate(found)

    def to_json(self) -> dict[str, Any]:
        """Plain lists, of which `from_json` makes the same."""
        return {
            name: [list(item) if isinstance(item, tuple) else item for item in values]
            for name, values in asdict(self).items()
        }

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Types:
        """The Types that `to_json` was called on, or an error."""
        nodes, starts, edges, partners, explained = (stored[item.name] for item in fields(Types))
        made = Types(
            tuple(map(str, nodes)),
            tuple(map(int, starts)),
            tuple((str(src), str(rel), str(dst)) for src, rel, dst in edges),
            tuple(map(int, partners)),
            tuple(map(str, explained)),
        )
        whole = len(made.starts) == len(made.nodes) + 1 and len(made.partners) == len(made.edges)
        inside = all(-1 <= partner < len(made.edges) for partner in made.partners)
        inside = inside and set(made.explained) <= set(made.nodes)
        require(whole and inside, "Expected types of nodes and edges that belong together", got="others")
        return made


class Schema(NamedTuple):
    """What the nodes and edges of each type have; the same for all graphs of a request."""

    nodes: tuple[str, ...]
    edges: tuple[EdgeType, ...]
    widths: tuple[int | None, ...]  # of the features of each node type; None: it has none
    attributes: dict[str, tuple[tuple[int, ...] | None, ...]]  # by name: the shape of a row for each edge type

    def node(self, name: str | None) -> int:
        """The place of a node type that a user names."""
        if name is None:
            cure = f"Pass node_type={self.nodes[0]!r}."
            raise CF2Error(f"Expected `node_type`, one of {', '.join(self.nodes)}", got="None", do=cure)
        if name not in self.nodes:
            raise unknown_name("`node_type`", name, self.nodes)
        return self.nodes.index(name)

    def ends(self, edge_type: tuple[str, ...] | None) -> tuple[int, int]:
        """The places of the node types at the ends of an edge type that a user names; the graph may have none of it."""
        known = ", ".join(map(str, self.edges))
        if edge_type is None or len(edge_type) != 3:
            cure = f"Pass edge_type={self.edges[0] if self.edges else ('user', 'likes', 'item')}."
            raise CF2Error(f"Expected `edge_type` of the pairs, such as {known}", got=edge_type, do=cure)
        return self.node(edge_type[0]), self.node(edge_type[2])


def schema_of(data: HeteroData) -> Schema:
    """What the types of a graph are and have."""
    nodes, edges = tuple(data.node_types), tuple(data.edge_types)
    require(len(nodes) > 0, "Expected a HeteroData with nodes", got="an empty one")
    widths = tuple(_width(data[name].get("x"), name) for name in nodes)
    attributes = {}
    for name in ATTRIBUTES:
        rows = [data[kind].get(name) for kind in edges]
        if any(isinstance(row, Tensor) for row in rows):
            attributes[name] = tuple(tuple(row.shape[1:]) if isinstance(row, Tensor) else None for row in rows)
    return Schema(nodes, edges, widths, attributes)


def _width(x: Any, name: str) -> int | None:
    if x is None:
        return None
    good = isinstance(x, Tensor) and x.dim() == 2 and x.layout == torch.strided and not x.is_meta
    require(good, f"Expected the features `x` of {name!r} to have shape [nodes, features]", got=described(x))
    return int(x.size(1))


def flatten(
    data: HeteroData, schema: Schema, where: str, *, directed: bool | None, reverse: Reverse
) -> tuple[Data, Types, Tensor]:
    """One graph of all types: blocks of nodes, features padded to the widest type, and types as attributes.

    With it come its types, and its ties [E]: columns of one number are one unit.
    """
    known = set(data.node_types) <= set(schema.nodes) and set(data.edge_types) <= set(schema.edges)
    require(
        known, f"Expected {where} to have the types of the first graph", got=f"{data.node_types}, {data.edge_types}"
    )
    counts = {name: int(data[name].num_nodes or 0) if name in data.node_types else 0 for name in schema.nodes}
    starts = np.cumsum([0, *counts.values()]).tolist()
    ends = [_edges(data, kind, counts, where) for kind in schema.edges]
    sizes = [pairs.size(1) for pairs in ends]
    offset = dict(zip(schema.nodes, starts))
    shift = [torch.tensor([[offset[src]], [offset[dst]]]) for src, _, dst in schema.edges]
    edge_index = torch.cat([torch.zeros(2, 0, dtype=torch.long), *(e + s for e, s in zip(ends, shift))], 1)
    edge_type = torch.repeat_interleave(torch.tensor(sizes, dtype=torch.long))
    partners = _partners(schema.edges, ends, directed, reverse, where)
    types = Types(schema.nodes, tuple(starts), schema.edges, partners)
    flat = Data(x=_features(data, schema, counts, where), edge_index=edge_index)
    flat.node_type = torch.repeat_interleave(torch.tensor(list(counts.values())))
    flat.node_id = torch.arange(starts[-1]) - torch.tensor(starts)[flat.node_type]
    flat.edge_type = edge_type
    for name, shapes in schema.attributes.items():
        flat[name] = _attributes(data, schema.edges, name, shapes, sizes, where)
    return flat, types, torch.from_numpy(types.code(edge_type.numpy(), *edge_index.numpy()))


def _edges(data: HeteroData, kind: EdgeType, counts: Mapping[str, int], where: str) -> Tensor:
    """The edges of one type [2, e], in the ids of their ends' types."""
    if kind not in data.edge_types:
        return torch.zeros(2, 0, dtype=torch.long)
    pairs, matrix = (data[kind].get(name) for name in ("edge_index", "adj_t"))
    if pairs is None and matrix is not None:
        pairs = edges_of(matrix, f"the edges {kind} of {where}")
    expected = f"Expected the edges {kind} of {where} to be an `edge_index` of shape [2, edges] and dtype torch.int64"
    good = isinstance(pairs, Tensor) and pairs.dim() == 2 and pairs.size(0) == 2 and pairs.dtype == torch.int64
    require(good, expected, got=described(pairs))
    for ids, name in zip(pairs if pairs.numel() else (), kind[::2]):
        low, high, count = int(ids.min()), int(ids.max()), counts.get(name, 0)
        require(
            low >= 0 and high < count,
            f"Expected the edges {kind} of {where} to hold ids of {name!r} from 0 to {count - 1}",
            got=f"ids from {low} to {high}",
        )
    found: Tensor = pairs.detach().cpu().contiguous()
    return found


def _features(data: HeteroData, schema: Schema, counts: Mapping[str, int], where: str) -> Tensor:
    """The features of all types [N, widest], with zeros where a type has fewer columns."""
    given = [data[name].get("x") if name in data.node_types else None for name in schema.nodes]
    kinds = {x.dtype for x in given if isinstance(x, Tensor)}
    require(
        len(kinds) <= 1,
        f"Expected the features of all node types of {where} to have one dtype",
        got=" and ".join(sorted(map(str, kinds))),
        do="Convert them, for example with .float().",
    )
    for (name, count), x, width in zip(counts.items(), given, schema.widths):
        same = x is None or (_width(x, name) == width and x.size(0) == count)
        require(same, f"Expected `x` of {name!r} in {where} to have shape [{count}, {width}]", got=described(x))
    widest = max(width or 0 for width in schema.widths)
    return _padded(given, list(counts.values()), widest, next(iter(kinds), torch.float32))


def _attributes(
    data: HeteroData, kinds: tuple[EdgeType, ...], name: str, shapes: Any, counts: list[int], where: str
) -> Tensor:
    """An attribute of the edges of all types, with zeros where a type has fewer columns or none."""
    given = [data[kind].get(name) if kind in data.edge_types else None for kind in kinds]
    dtype = next((value.dtype for value in given if isinstance(value, Tensor)), torch.float32)
    for kind, value, shape, count in zip(kinds, given, shapes, counts):
        good = value is None or (tuple(value.shape) == (count, *shape) and value.dtype == dtype and len(shape) <= 1)
        require(good, f"Expected `{name}` of {kind} in {where} to be {dtype}, a row per edge", got=described(value))
    rows = _padded(given, counts, max(shape[0] if shape else 1 for shape in shapes), dtype)
    return rows[:, 0] if all(shape in (None, ()) for shape in shapes) else rows


def _padded(parts: list[Tensor | None], counts: list[int], width: int, dtype: torch.dtype) -> Tensor:
    """The rows of all types in one tensor [Σ counts, width], with zeros where a type has fewer columns or none."""
    rows = torch.zeros(sum(counts), width, dtype=dtype)
    for part, block in zip(parts, torch.split(rows, counts)):
        if part is not None:
            flat = part.detach().cpu().reshape(len(part), -1) if part.dim() == 1 else part.detach().cpu()
            block[:, : flat.size(1)] = flat
    return rows


def _partners(
    kinds: tuple[EdgeType, ...], ends: list[Tensor], directed: bool | None, reverse: Reverse, where: str
) -> tuple[int, ...]:
    """The edge type that mirrors each: itself if each of its edges has a reverse, or another one, `rev_…` first."""
    partners = [-1] * len(kinds)
    codes = [_codes(*pairs.numpy()) for pairs in ends]
    back = [_codes(*pairs.flip(0).numpy()) for pairs in ends]
    for position, (src, _, dst) in enumerate(kinds):
        undirected = np.array_equal(codes[position], back[position]) if directed is None else not directed
        if src == dst and undirected and len(codes[position]):
            partners[position] = position
    if not isinstance(reverse, str):
        for pair in dict(reverse).items():
            for kind in pair:
                if kind not in kinds:
                    raise unknown_name("an edge type in `reverse`", str(kind), [str(known) for known in kinds])
            one, other = map(kinds.index, pair)
            _check_mirror(pair, codes[one], back[other], where)
            partners[one], partners[other] = other, one
        return tuple(partners)
    for position, (src, rel, dst) in enumerate(kinds if reverse == "auto" else ()):
        mirrors = [
            other
            for other in range(position + 1, len(kinds))
            if partners[other] < 0 and kinds[other][::2] == (dst, src) and np.array_equal(codes[position], back[other])
        ]
        if mirrors and partners[position] < 0 and len(codes[position]):
            names = (f"rev_{rel}", rel.removeprefix("rev_"))
            partner = next((other for other in mirrors if kinds[other][1] in names), mirrors[0])
            partners[position], partners[partner] = partner, position
    return tuple(partners)


def _check_mirror(pair: tuple[EdgeType, EdgeType], codes: np.ndarray, back: np.ndarray, where: str) -> None:
    """Refuse two types that a user says to mirror each other, and that do not."""
    one, other = pair
    require(one[::2] == other[::-2], f"Expected {other} in `reverse` to go back from {one[2]} to {one[0]}", got=other)
    alone = np.setxor1d(codes, back)
    require(
        np.array_equal(codes, back),
        f"Expected every edge {one} of {where} to have its mirror image in {other}, and the reverse",
        got=f"{len(alone)} without, such as {int(alone[0]) >> 32} to {int(alone[0]) & 0xFFFFFFFF}"
        if len(alone)
        else "different numbers of copies",
        do="Leave both types out of `reverse`; their edges are then separate units.",
    )


def _codes(tail: np.ndarray, head: np.ndarray) -> np.ndarray:
    return np.sort((tail << 32) + head)
