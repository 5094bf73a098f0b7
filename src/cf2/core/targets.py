"""Which output is explained: the keys that exist, and the instance that each of them stands for.

A kind of target is one class with the members of `Targets`. The receptive field asks it for cuts, the session
for keys and labels, and nothing else in the package asks what kind it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.core.data import check_graph
from cf2.core.graph import Direction, Graph, Instance
from cf2.core.keys import check_ids, check_pairs
from cf2.core.types import EdgeType, Schema, Types, schema_of
from cf2.errors import CF2Error, require
from cf2.spec import Key, Reverse, Spec


class Whole(NamedTuple):
    """A whole graph, and which targets are read from it."""

    instance: Instance
    targets: Tensor  # [n, nodes to read]
    places: list[int]  # [n], where the keys stand among those that were asked for


class Asked(NamedTuple):
    """Of a typed graph: the type of the nodes or of the pairs that are explained."""

    node_type: str | None = None
    edge_type: EdgeType | None = None


SAMPLE = 500  # graphs by which it is known what values features take


class Targets(Protocol):
    """Outputs of a model that can be explained, by key.

    `level` is what the model gives one row for: a node, a graph or a pair. `graph` is the one graph that all keys lie
    in, None where each has its own.
    """

    @property
    def level(self) -> str: ...

    @property
    def graph(self) -> Graph | None: ...

    @property
    def schema(self) -> Schema | None:
        """What the types of the graphs are, where they have any."""

    @property
    def asked(self) -> Asked:
        """Which types are explained."""

    def __len__(self) -> int:
        """How many keys there are."""

    def check(self, keys: Any) -> list[Key]:
        """The keys as they are given, in a list, each one checked."""

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        """The key's graph; where all keys share one, the part of it that is `hops` around the key."""

    def around(self, key: Key, nodes: Tensor, hops: int, direction: Direction = "in") -> Instance:
        """The key's graph with what is `hops` around further nodes of it as well."""

    def features(self) -> Tensor:
        """The features of the nodes [n, d], or of many of them, by which it is known what values they take."""

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        """The whole graphs on which the keys (None: all that there are) would be predicted; none without `graph`."""

    def probes(self, direction: Direction, count: int) -> list[Key]:
        """A few keys with edges, spread over the graph."""

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        """The true classes of the keys, where the data has them as whole numbers."""

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        """What the data holds to be true, whatever it is: a row for each key, then for others that are at hand."""


class NodeTargets:
    """The nodes of one graph."""

    level = "node"

    def __init__(self, graph: Graph, y: Any = None, node_type: str | None = None) -> None:
        self.graph, self.schema, self.asked = graph, graph.schema, Asked(node_type)
        self._first, self._end = _block(graph, node_type)
        _say_explained(graph, (node_type,))
        self._truth = y if _has_values(y) and y.dim() and len(y) == len(self) else None
        self.y = y if _are_classes(y) and y.shape == (len(self),) else None

    def __len__(self) -> int:
        return self._end - self._first

    def check(self, keys: Any) -> list[Key]:
        return check_ids(keys, len(self))

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        assert isinstance(key, int)
        return self.graph.cut((self._first + key,), hops, direction, key)

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        nodes = torch.arange(len(self)) if keys is None else torch.tensor(keys)
        yield Whole(self.graph.whole(0), self._first + nodes[:, None], list(range(len(nodes))))

    def probes(self, direction: Direction, count: int) -> list[Key]:
        return list(_spread(self.graph, direction, count, (self._first, self._end)))

    def around(self, key: Key, nodes: Tensor, hops: int, direction: Direction = "in") -> Instance:
        assert isinstance(key, int)
        wide = self.graph.cut((self._first + key, *nodes.tolist()), hops, direction, key)
        return replace(wide, targets=wide.targets[:1])

    def features(self) -> Tensor:
        return self.graph.x

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        return None if self.y is None else {key: int(self.y[key]) for key in keys}

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        if self._truth is None:
            return None
        every = self._truth.detach().cpu()
        others = every if every.dim() == 1 else every[(every != 0).flatten(1).any(1)]  # an empty row may be no label
        return torch.cat([every[list(keys)], others])


class GraphTargets:
    """Whole graphs; the key of one is its position."""

    level = "graph"
    graph = None
    asked = Asked()

    def __init__(
        self, graphs: Sequence[Data | HeteroData], *, directed: bool | None = None, reverse: Reverse = "auto"
    ) -> None:
        self.graphs, self.directed, self.reverse = graphs, directed, reverse
        first = self._graph(0)
        self.schema = schema_of(first) if isinstance(first, HeteroData) else None

    def __len__(self) -> int:
        return len(self.graphs)

    def check(self, keys: Any) -> list[Key]:
        cure = 'There is one graph: pass level="node" to explain nodes of it.' if len(self) == 1 else ""
        return check_ids(range(len(self)) if keys is None else keys, len(self), "position of a graph", cure)

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        graph, options = self._graph(key), {"reverse": self.reverse, "schema": self.schema}
        return Graph(graph, directed=self.directed, position=key, **options).whole(key)  # type: ignore[arg-type]

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        return iter(())

    def probes(self, direction: Direction, count: int) -> list[Key]:
        return []

    def around(self, key: Key, nodes: Tensor, hops: int, direction: Direction = "in") -> Instance:
        return self.instance(key)

    def features(self) -> Tensor:
        some = range(0, len(self), max(1, len(self) // SAMPLE))
        return torch.cat([self._graph(key).x.detach().cpu() for key in some])

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        values = {key: getattr(self._graph(key), "y", None) for key in keys}
        if not all(_are_classes(y) and y.numel() == 1 for y in values.values()):
            return None
        return {key: int(y) for key, y in values.items() if y is not None}

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        values = [getattr(self._graph(key), "y", None) for key in keys]
        known = [y.detach().cpu().reshape(1, -1) for y in values if _has_values(y)]
        same = len(known) == len(values) and len({y.shape for y in known}) == 1
        return torch.cat(known) if same else None

    def _graph(self, key: Key) -> Data | HeteroData:
        try:
            graph = self.graphs[key]  # type: ignore[index]
        except Exception as error:  # of a data set that reads files, or makes its graphs
            got = f"{type(error).__name__}: {error}"
            raise CF2Error(f"Expected `data` to give its graph {key}", got=got) from error
        graph = check_graph(graph, key)
        typed = isinstance(graph, HeteroData)
        require(
            not hasattr(self, "schema") or typed == (self.schema is not None),
            f"Expected graph {key} of `data` to be of the kind of the first",
            got=type(graph).__name__,
        )
        return graph


class PairTargets:
    """Pairs of nodes of one graph, edges of it or not.

    With `leave_out`, the edge between a pair (undirected: both directions) is not in the graph that the model sees.
    """

    level = "pair"

    def __init__(
        self, graph: Graph, *, leave_out: bool = True, data: Any = None, edge_type: EdgeType | None = None
    ) -> None:
        self.graph, self.schema, self.leave_out, self.asked = graph, graph.schema, leave_out, Asked(None, edge_type)
        ends = (None, None)
        if graph.schema is not None:
            ends = tuple(graph.schema.nodes[place] for place in graph.schema.ends(edge_type))  # type: ignore[assignment]
        self._blocks = tuple(_block(graph, name) for name in ends)
        _say_explained(graph, ends)
        self._known = _known_pairs(data)

    def __len__(self) -> int:
        first, second = (end - start for start, end in self._blocks)
        return first * second

    def check(self, keys: Any) -> list[Key]:
        first, second = (end - start for start, end in self._blocks)
        return check_pairs(keys, (first, second))

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        u, v = self._ends(key)
        return self.graph.cut((u, v), hops, direction, key, self._own(u, v))

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        """One graph for all pairs whose edge is in it or is none, and one for each pair whose edge is left out."""
        ends = [self._ends(key) for key in keys or ()]
        own = [self._own(u, v) for u, v in ends]
        alike = [place for place, columns in enumerate(own) if not len(columns)]
        if alike:
            yield Whole(self.graph.whole(0), torch.tensor([ends[place] for place in alike]), alike)
        for place, columns in enumerate(own):
            if len(columns):
                yield Whole(self.graph.whole(0, columns), torch.tensor([ends[place]]), [place])

    def probes(self, direction: Direction, count: int) -> list[Key]:
        tails, heads = (_spread(self.graph, direction, count, block) for block in self._blocks)
        return list(zip(tails, heads[1:] + heads[:1])) if tails and heads else []

    def around(self, key: Key, nodes: Tensor, hops: int, direction: Direction = "in") -> Instance:
        u, v = self._ends(key)
        wide = self.graph.cut((u, v, *nodes.tolist()), hops, direction, key, self._own(u, v))
        return replace(wide, targets=wide.targets[:2])

    def features(self) -> Tensor:
        return self.graph.x

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        known = {key: self._known[key] for key in keys if key in self._known}
        whole = all(float(value).is_integer() for value in known.values())
        return {key: int(value) for key, value in known.items()} if known and whole else None

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        known = [self._known[key] for key in keys if key in self._known]
        return torch.tensor(known) if known else None

    def _ends(self, key: Key) -> tuple[int, int]:
        """The two nodes in the ids of the graph."""
        assert isinstance(key, tuple)
        return self._blocks[0][0] + key[0], self._blocks[1][0] + key[1]

    def _own(self, u: int, v: int) -> np.ndarray:
        """The columns of the pair's own edge, if these are left out and there are any."""
        types, none = self.graph.types, np.zeros(0, dtype=np.int64)
        if not self.leave_out or (types is not None and self.asked.edge_type not in types.edges):
            return none
        return self.graph.between(u, v, None if types is None else int(types.code(self._place(types), u, v)))

    def _place(self, types: Types) -> int:
        assert self.asked.edge_type is not None
        return types.edges.index(self.asked.edge_type)


def _block(graph: Graph, node_type: str | None) -> tuple[int, int]:
    """The first flat id of the nodes of a type, and the one after the last; without types, of all nodes."""
    if graph.types is None or graph.schema is None:
        return 0, graph.num_nodes
    place = graph.schema.node(node_type)
    return graph.types.starts[place], graph.types.starts[place + 1]


def _say_explained(graph: Graph, names: tuple[str | None, ...]) -> None:
    """Have the types of a graph know which of them are explained."""
    if graph.types is not None:
        graph.types = replace(graph.types, explained=tuple(str(name) for name in names))


def _spread(graph: Graph, direction: Direction, count: int, block: tuple[int, int]) -> list[int]:
    """A few nodes of a block with edges, spread over the graph, counted from its first."""
    busy = torch.from_numpy(graph.index(direction)[0]).diff()[slice(*block)].nonzero().flatten()
    return sorted(set(busy[torch.linspace(0, len(busy) - 1, count).long()].tolist())) if len(busy) else []


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
