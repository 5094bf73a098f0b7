"""What is explained: nodes, pairs of nodes or graphs, each by its key, and the keys as people name them."""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.errors import CF2Error, require, shown
from cf2.graphs.data import check_graph
from cf2.graphs.graph import Direction, Graph, Instance
from cf2.graphs.typed import Schema, schema_of
from cf2.options import EdgeType, Key, Reverse, Spec


def check_ids(ids: Any, count: int, what: str = "id", cure: str = "") -> list[Key]:
    """Ids as a list of whole numbers, each from 0 to `count` - 1, in the order in which they are given.

    One id, or several in anything that can be listed; a slice; or a mask, one bool for each of the `count`. A set is
    sorted. An id that is given twice stays twice. `cure` is what to do about a number that is too large.

    >>> check_ids(slice(1, None), 3), check_ids([True, False, True], 3), check_ids({2, 0}, 3)
    ([1, 2], [0, 2], [0, 2])
    """
    listed: list[Any] = []
    try:
        for given in _listed(ids, count):
            listed.append(_plain(given))
            _check_id(listed[-1], count, what, cure)  # at once, for what never ends
    except CF2Error:
        raise
    except Exception as error:
        got = f"{_shown(ids)} ({type(error).__name__}: {error})"
        raise CF2Error(f"Expected `nodes` to be whole numbers from 0 to {count - 1}", got=got) from error
    if any(isinstance(given, bool) for given in listed):
        listed = _of_mask(listed, count)
    none = f"{ids!r}, which is empty" if isinstance(ids, slice | range) else "none"
    none = "an empty list" if isinstance(ids, list | tuple) else none
    require(len(listed) > 0, f"Expected at least one {'node' if what == 'id' else 'graph'} to explain", got=none)
    return sorted(listed) if isinstance(ids, set | frozenset) else listed


def _check_id(given: Any, count: int, what: str, cure: str) -> None:
    if isinstance(given, bool) or (type(given) is int and 0 <= given < count):
        return
    if isinstance(given, int):
        cure = "Ids start at 0." if given < 0 else cure
    elif isinstance(given, float | str):
        cure = "Convert it with int(…)."
    elif isinstance(given, list | tuple | Tensor | np.ndarray | set | range):
        cure = "Pass one flat list."
    expected = f"Expected every {what} in `nodes` to be a whole number from 0 to {count - 1}"
    raise CF2Error(expected, got=_shown(given), do=cure)


def _array(given: Any) -> Any:
    """A tensor, or a pandas Series or Index, as an array; anything else as it is."""
    if isinstance(given, Tensor):
        return given.detach().cpu().numpy()
    return given.to_numpy() if hasattr(given, "to_numpy") else given


def _listed(ids: Any, count: int) -> Iterable[Any]:
    """What `nodes` holds, one after the other."""
    if isinstance(ids, slice):
        return range(count)[ids]
    ids = _array(ids)
    if isinstance(ids, np.ndarray):
        require(
            ids.dtype != np.uint8 or ids.shape != (count,) or bool((ids > 1).any()),
            "Expected `nodes` to be ids, or a mask of bools",
            got=f"{count} zeros and ones of dtype uint8",
            do="Pass a mask as bool, ids as int64.",
        )
        return np.atleast_1d(ids).tolist()  # type: ignore[no-any-return]
    alone = isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable)
    return [ids] if alone else ids


def _of_mask(mask: list[Any], count: int) -> list[Any]:
    bools = sum(isinstance(chosen, bool) for chosen in mask)
    require(
        len(mask) == bools == count,
        f"Expected a mask in `nodes` to have one bool for each of the {count} that can be explained",
        got=f"{len(mask)}" if len(mask) == bools else f"{bools} among {len(mask)} values",
    )
    require(any(mask), "Expected a mask in `nodes` to choose at least one", got="none that is True")
    return [position for position, chosen in enumerate(mask) if chosen]


def _plain(value: Any) -> Any:
    """A whole number or a bool as Python has it; anything else as it is."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _shown(value: object) -> str:
    text = shown(value, 400)
    plain = not isinstance(value, Iterator) and " object at 0x" not in text
    return textwrap.shorten(text, 80, placeholder="…") if plain else f"an object of type {type(value).__name__}"


def check_pairs(pairs: Any, counts: tuple[int, int]) -> list[Key]:
    """Pairs (u, v) of ids below `counts`, as a list of tuples, in the order in which they are given.

    One pair, a list of them, or an array or tensor of shape [n, 2] or, as an `edge_index`, [2, n]; [2, 2] holds a pair
    in each row.

    >>> check_pairs([(3, 1), [0, 2]], (4, 4)), check_pairs(np.array([[3, 0, 2], [1, 2, 2]]), (4, 4))
    ([(3, 1), (0, 2)], [(3, 1), (0, 2), (2, 2)])
    """
    expected = "Expected `pairs` to be pairs of node ids: [(u, v), …], or an array [n, 2] or [2, n]"
    try:
        given = _array(pairs)
        array = given if isinstance(given, np.ndarray) else np.array([_two(pair) for pair in _several(given)])
    except CF2Error:
        raise
    except Exception as error:
        raise CF2Error(expected, got=f"{_shown(pairs)} ({type(error).__name__}: {error})") from error
    array = array.reshape(1, 2) if array.shape == (2,) else array
    array = array.T if array.ndim == 2 and array.shape[0] == 2 and array.shape[1] != 2 else array
    require(array.size > 0, "Expected at least one pair to explain", got="an empty `pairs`")
    require(array.ndim == 2 and array.shape[1] == 2 and array.dtype.kind in "iu", expected, got=_shown(pairs))
    for column, count in enumerate(counts):
        wrong = array[(array[:, column] < 0) | (array[:, column] >= count)]
        where = ("first", "second")[column]
        require(
            not len(wrong),
            f"Expected the {where} number of every pair in `pairs` to be from 0 to {count - 1}",
            got=str(tuple(wrong[0].tolist())) if len(wrong) else "",
        )
    return [(u, v) for u, v in array.tolist()]


def _several(pairs: Any) -> list[Any]:
    listed = sorted(pairs) if isinstance(pairs, set | frozenset) else list(pairs)
    return [tuple(listed)] if len(listed) == 2 and all(isinstance(_plain(end), int) for end in listed) else listed


def _two(pair: Any) -> tuple[int, int]:
    u, v = (_plain(end) for end in pair)
    if type(u) is not int or type(v) is not int:
        raise TypeError(f"{pair!r:.40} is no pair of whole numbers")
    return u, v


class Whole(NamedTuple):
    """A whole graph, and which targets are read from it."""

    instance: Instance
    targets: Tensor  # [n, nodes to read]
    positions: list[int]  # [n], of the keys among those that were asked for


class Targets(ABC):
    """Outputs of a model that can be explained, by key.

    Attributes
    ----------
    level : str
        What the model gives one row for: a node, a graph or a pair.
    graph : Graph or None
        The one graph that all keys lie in; None where each has its own.
    schema : Schema or None
        What the types of the graphs are, where they have any.
    explained_type : str or tuple of str or None
        Of a typed graph, the node type of the nodes or the edge type of the pairs.
    """

    level: str
    graph: Graph | None = None
    schema: Schema | None = None
    explained_type: str | EdgeType | None = None

    @abstractmethod
    def __len__(self) -> int:
        """How many keys there are."""

    def check(self, keys: Any) -> list[Key]:
        """The keys as they are given, in a list, each one checked."""
        return check_ids(keys, len(self))

    @abstractmethod
    def instance(self, key: Key, hops: int = 0, direction: Direction = "in", further: Sequence[int] = ()) -> Instance:
        """The key's graph; where all share one, the part of it that is `hops` around the key and `further` nodes."""

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        """The whole graphs on which the keys (None: all that there are) would be predicted; none without `graph`."""
        return iter(())

    def probes(self, direction: Direction, count: int) -> list[Key]:
        """A few keys with edges, spread over the graph."""
        return []

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        """The true classes of the keys, where the data has them as whole numbers."""
        return None

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        """What the data holds to be true, whatever it is: a row for each key, then for others that are at hand."""
        return None


class GraphTargets(Targets):
    """Whole graphs; the key of one is its position."""

    level = "graph"

    def __init__(
        self, graphs: Sequence[Data | HeteroData], *, directed: bool | None = None, reverse: Reverse = "auto"
    ) -> None:
        self.graphs, self.directed, self.reverse = graphs, directed, reverse
        first = self._read(0)
        self.schema = schema_of(first) if isinstance(first, HeteroData) else None

    def __len__(self) -> int:
        return len(self.graphs)

    def check(self, keys: Any) -> list[Key]:
        cure = 'There is one graph: pass level="node" to explain nodes of it.' if len(self) == 1 else ""
        return check_ids(range(len(self)) if keys is None else keys, len(self), "position of a graph", cure)

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in", further: Sequence[int] = ()) -> Instance:
        assert isinstance(key, int)
        options = {"directed": self.directed, "reverse": self.reverse, "schema": self.schema}
        return Graph(self._graph(key), position=key, **options).whole(key)  # type: ignore[arg-type]

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        values = {key: getattr(self._graph(key), "y", None) for key in keys}
        if not all(_are_classes(y) and y.numel() == 1 for y in values.values()):
            return None
        return {key: int(y) for key, y in values.items() if y is not None}

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        values = [getattr(self._graph(key), "y", None) for key in keys]
        rows = [y.detach().cpu().reshape(1, -1) for y in values if _has_values(y)]
        same = len(rows) == len(values) and len({row.shape for row in rows}) == 1
        return torch.cat(rows) if same else None

    def _graph(self, key: Key) -> Data | HeteroData:
        graph = self._read(key)
        require(
            isinstance(graph, HeteroData) == (self.schema is not None),
            f"Expected graph {key} of `data` to be of the kind of the first",
            got=type(graph).__name__,
        )
        return graph

    def _read(self, key: Key) -> Data | HeteroData:
        try:
            graph = self.graphs[key]  # type: ignore[index]
        except Exception as error:  # of a data set that reads files, or makes its graphs
            got = f"{type(error).__name__}: {error}"
            raise CF2Error(f"Expected `data` to give its graph {key}", got=got) from error
        return check_graph(graph, key)


class _InOneGraph(Targets):
    """Nodes of one graph, one or two of them for each key."""

    graph: Graph

    def __init__(self, graph: Graph, explained_type: str | EdgeType | None, node_types: tuple[str | None, ...]) -> None:
        self.graph, self.schema, self.explained_type = graph, graph.schema, explained_type
        self._blocks = [_block(graph, name) for name in node_types]
        if graph.types is not None:
            graph.types = replace(graph.types, explained=tuple(map(str, node_types)))
        self._counts = [end - start for start, end in self._blocks]

    def __len__(self) -> int:
        return math.prod(self._counts)

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in", further: Sequence[int] = ()) -> Instance:
        ends = self._ends(key)
        cut = self.graph.cut((*ends, *further), hops, direction, key, self._left_out(key))
        return replace(cut, targets=cut.targets[: len(ends)]) if further else cut

    def _ends(self, key: Key) -> tuple[int, ...]:
        """The nodes of a key in the ids of the graph."""
        numbers = key if isinstance(key, tuple) else (key,)
        return tuple(start + number for (start, _), number in zip(self._blocks, numbers))

    def _left_out(self, key: Key) -> np.ndarray:
        """The ids of the edges that are not in the graph in which a key is predicted."""
        return np.zeros(0, dtype=np.int64)

    def _busy(self, direction: Direction, count: int, block: tuple[int, int]) -> list[int]:
        """A few nodes of a block with edges, spread over the graph, counted from its first."""
        busy = torch.from_numpy(self.graph.index(direction)[0]).diff()[slice(*block)].nonzero().flatten()
        return sorted(set(busy[torch.linspace(0, len(busy) - 1, count).long()].tolist())) if len(busy) else []


class NodeTargets(_InOneGraph):
    """The nodes of one graph."""

    level = "node"

    def __init__(self, graph: Graph, y: Any = None, node_type: str | None = None) -> None:
        super().__init__(graph, node_type, (node_type,))
        self.y = y.detach().cpu() if _has_values(y) and y.dim() and len(y) == len(self) else None

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        nodes = torch.arange(len(self)) if keys is None else torch.tensor(keys)
        yield Whole(self.graph.whole(0), self._blocks[0][0] + nodes[:, None], list(range(len(nodes))))

    def probes(self, direction: Direction, count: int) -> list[Key]:
        return list(self._busy(direction, count, self._blocks[0]))

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        return {key: int(self.y[key]) for key in keys} if _are_classes(self.y) and self.y.dim() == 1 else None

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        if self.y is None:
            return None
        others = self.y if self.y.dim() == 1 else self.y[(self.y != 0).flatten(1).any(1)]  # an empty row: no label?
        return torch.cat([self.y[list(keys)], others])


class PairTargets(_InOneGraph):
    """Pairs of nodes of one graph, edges of it or not.

    With `leave_out`, the edge between a pair (undirected: both directions) is not in the graph that the model sees.
    """

    level = "pair"

    def __init__(
        self, graph: Graph, *, leave_out: bool = True, data: Any = None, edge_type: EdgeType | None = None
    ) -> None:
        ends: tuple[str | None, ...] = (None, None)
        if graph.schema is not None:
            ends = tuple(graph.schema.nodes[position] for position in graph.schema.ends(edge_type))
        super().__init__(graph, edge_type, ends)
        self.leave_out, self._known = leave_out, _known_pairs(data)

    def check(self, keys: Any) -> list[Key]:
        first, second = self._counts
        return check_pairs(keys, (first, second))

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        """One graph for all pairs whose edge is in it or is none, and one for each pair whose edge is left out."""
        ends = [self._ends(key) for key in keys or ()]
        left_out = [self._left_out(key) for key in keys or ()]
        shared = [position for position, columns in enumerate(left_out) if not len(columns)]
        alone = [[position] for position, columns in enumerate(left_out) if len(columns)]
        for positions in [shared, *alone] if shared else alone:
            targets = torch.tensor([ends[position] for position in positions])
            yield Whole(self.graph.whole(0, left_out[positions[0]]), targets, positions)

    def probes(self, direction: Direction, count: int) -> list[Key]:
        tails, heads = (self._busy(direction, count, block) for block in self._blocks)
        return list(zip(tails, heads[1:] + heads[:1])) if tails and heads else []

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        known = {key: self._known[key] for key in keys if key in self._known}
        whole = all(float(value).is_integer() for value in known.values())
        return {key: int(value) for key, value in known.items()} if known and whole else None

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        known = [self._known[key] for key in keys if key in self._known]
        return torch.tensor(known) if known else None

    def _left_out(self, key: Key) -> np.ndarray:
        types, kind = self.graph.types, self.explained_type
        if not self.leave_out or (types is not None and kind not in types.edges):
            return super()._left_out(key)
        u, v = self._ends(key)
        tie = None if types is None else int(types.code(types.edges.index(kind), u, v))
        return self.graph.between(u, v, tie)


def _block(graph: Graph, node_type: str | None) -> tuple[int, int]:
    """The first flat id of the nodes of a type, and the one after the last; without types, of all nodes."""
    if graph.types is None or graph.schema is None:
        return 0, graph.num_nodes
    position = graph.schema.node(node_type)
    return graph.types.starts[position], graph.types.starts[position + 1]


def _known_pairs(data: Any) -> dict[Key, float]:
    """What the data holds to be true of pairs: `edge_label` of `edge_label_index`, as RandomLinkSplit makes them."""
    index, label = getattr(data, "edge_label_index", None), getattr(data, "edge_label", None)
    if not (_has_values(index) and _has_values(label)) or index.dim() != 2 or index.shape != (2, label.numel()):
        return {}
    return dict(zip(zip(*index.tolist()), label.flatten().tolist()))


def targets_for(data: Any, level: str, spec: Spec) -> Targets:
    """What can be explained at a level: the nodes or pairs of one graph, or graphs of a sequence."""
    if level == "graph":
        graphs = [data] if isinstance(data, Data | HeteroData) else data
        return GraphTargets(graphs, directed=spec.directed, reverse=spec.reverse)
    graph = Graph(data, directed=spec.directed, reverse=spec.reverse)
    typed = graph.types is not None
    for name, value in (("node_type", spec.node_type), ("edge_type", spec.edge_type)):
        require(typed or value is None, f"Expected a HeteroData for `{name}`", got="a graph without types")
    if level == "pair":
        own = data[spec.edge_type] if typed and spec.edge_type in data.edge_types else data
        return PairTargets(graph, leave_out=spec.leave_out_pair, data=own, edge_type=spec.edge_type)
    if graph.schema is not None:
        graph.schema.node(spec.node_type)
    y = data[spec.node_type].get("y") if typed else getattr(data, "y", None)
    return NodeTargets(graph, y, spec.node_type)


def _has_values(y: Any) -> TypeGuard[Tensor]:
    return isinstance(y, Tensor) and y.layout == torch.strided and not y.is_meta


def _are_classes(y: Any) -> TypeGuard[Tensor]:
    return _has_values(y) and not y.is_floating_point() and not y.is_complex()


def stream(seed: int, key: Key) -> torch.Generator:
    """Random numbers of one key's own: the same whatever it is packed with."""
    number = 0
    for part in key if isinstance(key, tuple) else (key,):
        number = number * 2_147_483_647 + part
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % (2**63))
