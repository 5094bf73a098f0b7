"""Which output is explained: the keys that exist, and the instance that each of them stands for.

A kind of target is one class with the members of `Targets`. The receptive field asks it for cuts, the session
for keys and labels, and nothing else in the package asks what kind it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.core.data import check_graph
from cf2.core.graph import Direction, Graph, Instance
from cf2.core.keys import check_ids, check_pairs
from cf2.errors import CF2Error
from cf2.spec import Key, Spec


class Whole(NamedTuple):
    """A whole graph, and which targets are read from it."""

    instance: Instance
    targets: Tensor  # [n, nodes to read]
    places: list[int]  # [n], where the keys stand among those that were asked for


class Targets(Protocol):
    """Outputs of a model that can be explained, by key.

    `level` is what the model gives one row for: a node, a graph or a pair. `graph` is the one graph that all keys lie
    in, None where each has its own.
    """

    @property
    def level(self) -> str: ...

    @property
    def graph(self) -> Graph | None: ...

    def __len__(self) -> int:
        """How many keys there are."""

    def check(self, keys: Any) -> list[Key]:
        """The keys as they are given, in a list, each one checked."""

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        """The key's graph; where all keys share one, the part of it that is `hops` around the key."""

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        """The whole graphs on which the keys (None: all that there are) would be predicted; none without `graph`."""

    def probes(self, direction: Direction, count: int) -> list[Key]:
        """A few keys with edges, spread over the graph."""

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        """The true classes of the keys, where the data has them as whole numbers."""

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        """What the data holds to be true of the keys, one row each, whatever it is."""


class NodeTargets:
    """The nodes of one graph."""

    level = "node"

    def __init__(self, graph: Graph, y: Any = None) -> None:
        self.graph = graph
        self._truth = y if _has_values(y) and y.dim() and len(y) == graph.num_nodes else None
        self.y = y if _are_classes(y) and y.shape == (graph.num_nodes,) else None

    def __len__(self) -> int:
        return self.graph.num_nodes

    def check(self, keys: Any) -> list[Key]:
        return check_ids(keys, len(self))

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        assert isinstance(key, int)
        return self.graph.cut((key,), hops, direction, key)

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        nodes = torch.arange(len(self)) if keys is None else torch.tensor(keys)
        yield Whole(self.graph.whole(0), nodes[:, None], list(range(len(nodes))))

    def probes(self, direction: Direction, count: int) -> list[Key]:
        return list(_spread(self.graph, direction, count))

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        return None if self.y is None else {key: int(self.y[key]) for key in keys}

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        return None if self._truth is None else self._truth[list(keys)].detach().cpu()


class GraphTargets:
    """Whole graphs; the key of one is its position."""

    level = "graph"
    graph = None

    def __init__(self, graphs: Sequence[Data], *, directed: bool | None = None) -> None:
        self.graphs, self.directed = graphs, directed

    def __len__(self) -> int:
        return len(self.graphs)

    def check(self, keys: Any) -> list[Key]:
        cure = 'There is one graph: pass level="node" to explain nodes of it.' if len(self) == 1 else ""
        return check_ids(range(len(self)) if keys is None else keys, len(self), "position of a graph", cure)

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        return Graph(self._graph(key), directed=self.directed, position=key).whole(key)  # type: ignore[arg-type]

    def wholes(self, keys: Sequence[Key] | None) -> Iterator[Whole]:
        return iter(())

    def probes(self, direction: Direction, count: int) -> list[Key]:
        return []

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

    def _graph(self, key: Key) -> Data:
        try:
            graph = self.graphs[key]  # type: ignore[index]
        except Exception as error:  # of a data set that reads files, or makes its graphs
            got = f"{type(error).__name__}: {error}"
            raise CF2Error(f"Expected `data` to give its graph {key}", got=got) from error
        return check_graph(graph, key)


class PairTargets:
    """Pairs of nodes of one graph, edges of it or not.

    With `leave_out`, the edge between a pair (undirected: both directions) is not in the graph that the model sees.
    """

    level = "pair"

    def __init__(self, graph: Graph, *, leave_out: bool = True, data: Any = None) -> None:
        self.graph, self.leave_out = graph, leave_out
        self._known = _known_pairs(data)

    def __len__(self) -> int:
        return self.graph.num_nodes**2

    def check(self, keys: Any) -> list[Key]:
        return check_pairs(keys, (self.graph.num_nodes, self.graph.num_nodes))

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
        busy = _spread(self.graph, direction, count)
        return list(zip(busy, busy[1:] + busy[:1]))

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        known = {key: self._known[key] for key in keys if key in self._known}
        whole = all(float(value).is_integer() for value in known.values())
        return {key: int(value) for key, value in known.items()} if known and whole else None

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        known = [self._known[key] for key in keys if key in self._known]
        return torch.tensor(known) if known else None

    def _ends(self, key: Key) -> tuple[int, int]:
        assert isinstance(key, tuple)
        return key[0], key[1]

    def _own(self, u: int, v: int) -> np.ndarray:
        return self.graph.between(u, v) if self.leave_out else np.zeros(0, dtype=np.int64)


def _spread(graph: Graph, direction: Direction, count: int) -> list[int]:
    """A few nodes with edges, spread over the graph."""
    busy = torch.from_numpy(graph.index(direction)[0]).diff().nonzero().flatten()
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
        return GraphTargets([data] if isinstance(data, Data) else data, directed=spec.directed)
    graph = Graph(data, directed=spec.directed)
    if level == "pair":
        return PairTargets(graph, leave_out=spec.leave_out_pair, data=data)
    return NodeTargets(graph, getattr(data, "y", None))


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
