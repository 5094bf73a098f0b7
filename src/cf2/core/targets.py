"""Which output is explained: the keys that exist, and the instance that each of them stands for.

A kind of target is one class with the five members of `Targets`. The receptive field asks it for cuts, the session
for keys and labels, and nothing else in the package asks what kind it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.core.graph import Direction, Graph, Instance
from cf2.errors import CF2Error, require
from cf2.spec import Key


class Targets(Protocol):
    """Outputs of a model that can be explained, by key.

    `level` is what the model gives one row for: a node or a graph. `graph` is the one graph that all keys lie in,
    None where each has its own.
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

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        """The true classes of the keys, where the data has them as whole numbers."""


class NodeTargets:
    """The nodes of one graph."""

    level = "node"

    def __init__(self, graph: Graph, y: Any = None) -> None:
        self.graph = graph
        self.y = y if isinstance(y, Tensor) and not y.is_floating_point() and y.dim() == 1 else None

    def __len__(self) -> int:
        return self.graph.num_nodes

    def check(self, keys: Any) -> list[Key]:
        return check_ids(keys, len(self))

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        assert isinstance(key, int)
        return self.graph.cut((key,), hops, direction, key)

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        return None if self.y is None else {key: int(self.y[key]) for key in keys}


class GraphTargets:
    """Whole graphs; the key of one is its position."""

    level = "graph"
    graph = None

    def __init__(self, graphs: Sequence[Data], *, directed: bool | None = None) -> None:
        self.graphs, self.directed = graphs, directed

    def __len__(self) -> int:
        return len(self.graphs)

    def check(self, keys: Any) -> list[Key]:
        return check_ids(range(len(self)) if keys is None else keys, len(self))

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        return Graph(self.graphs[key], directed=self.directed, position=key).whole(key)  # type: ignore[index, arg-type]

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        values = {key: getattr(self.graphs[key], "y", None) for key in keys}  # type: ignore[index]
        if not all(isinstance(v, Tensor) and v.numel() == 1 and not v.is_floating_point() for v in values.values()):
            return None
        return {key: int(v) for key, v in values.items() if v is not None}


def check_ids(ids: Any, count: int) -> list[Key]:
    """Ids as a list of whole numbers, each from 0 to `count` - 1."""
    if isinstance(ids, Tensor):
        require(
            not ids.is_floating_point() and ids.dtype != torch.bool and ids.dim() <= 1,
            "Expected `nodes` to be whole numbers in one dimension",
            got=f"a tensor of shape {tuple(ids.shape)} and dtype {ids.dtype}",
            do="Turn a mask into ids with mask.nonzero().flatten().",
        )
        ids = ids.reshape(-1).tolist()
    listed = [ids] if isinstance(ids, int | np.integer) else list(ids)
    for one in listed:
        good = isinstance(one, int | np.integer) and not isinstance(one, bool)
        if not good or not 0 <= one < count:
            raise CF2Error(f"Expected every id in `nodes` to be a whole number from 0 to {count - 1}", got=repr(one))
    require(len(listed) > 0, "Expected at least one node to explain", got="an empty `nodes`")
    return [int(one) for one in listed]


def stream(seed: int, key: Key) -> torch.Generator:
    """Random numbers of one key's own: the same whatever it is packed with."""
    number = 0
    for part in key if isinstance(key, tuple) else (key,):
        number = number * 2_147_483_647 + part
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % (2**63))
