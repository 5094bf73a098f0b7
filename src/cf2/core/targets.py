"""Which output is explained: the keys that exist, and the instance that each of them stands for.

A kind of target is one class with the five members of `Targets`. The receptive field asks it for cuts, the session
for keys and labels, and nothing else in the package asks what kind it is.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.core.data import check_graph
from cf2.core.graph import Direction, Graph, Instance
from cf2.errors import CF2Error, require
from cf2.spec import Key

SAMPLE = 500  # graphs by which it is known what values features take


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

    def around(self, key: Key, nodes: Tensor, hops: int, direction: Direction = "in") -> Instance:
        """The key's graph with what is `hops` around further nodes of it as well."""

    def features(self) -> Tensor:
        """The features of the nodes [n, d], or of many of them, by which it is known what values they take."""

    def labels(self, keys: Sequence[Key]) -> dict[Key, int] | None:
        """The true classes of the keys, where the data has them as whole numbers."""

    def truth(self, keys: Sequence[Key]) -> Tensor | None:
        """What the data holds to be true, whatever it is: a row for each key, then for others that are at hand."""


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

    def around(self, key: Key, nodes: Tensor, hops: int, direction: Direction = "in") -> Instance:
        assert isinstance(key, int)
        wide = self.graph.cut((key, *nodes.tolist()), hops, direction, key)
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

    def __init__(self, graphs: Sequence[Data], *, directed: bool | None = None) -> None:
        self.graphs, self.directed = graphs, directed

    def __len__(self) -> int:
        return len(self.graphs)

    def check(self, keys: Any) -> list[Key]:
        cure = 'There is one graph: pass level="node" to explain nodes of it.' if len(self) == 1 else ""
        return check_ids(range(len(self)) if keys is None else keys, len(self), "position of a graph", cure)

    def instance(self, key: Key, hops: int = 0, direction: Direction = "in") -> Instance:
        return Graph(self._graph(key), directed=self.directed, position=key).whole(key)  # type: ignore[arg-type]

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

    def _graph(self, key: Key) -> Data:
        try:
            graph = self.graphs[key]  # type: ignore[index]
        except Exception as error:  # of a data set that reads files, or makes its graphs
            got = f"{type(error).__name__}: {error}"
            raise CF2Error(f"Expected `data` to give its graph {key}", got=got) from error
        return check_graph(graph, key)


def _has_values(y: Any) -> TypeGuard[Tensor]:
    return isinstance(y, Tensor) and y.layout == torch.strided and not y.is_meta


def _are_classes(y: Any) -> TypeGuard[Tensor]:
    return _has_values(y) and not y.is_floating_point() and not y.is_complex()


def check_ids(ids: Any, count: int, what: str = "id", cure: str = "") -> list[Key]:
    """Ids as a list of whole numbers, each from 0 to `count` - 1, in the order in which they are given.

    One id, or several in anything that can be listed; a slice; or a mask, one bool for each of the `count`. A set is
    sorted. An id that is given twice stays twice. `cure` is what to do about a number that is too large.

    >>> check_ids(slice(1, None), 3), check_ids([True, False, True], 3), check_ids({2, 0}, 3)
    ([1, 2], [0, 2], [0, 2])
    """
    listed: list[Any] = []
    try:
        for one in _listed(ids, count):
            listed.append(_plain(one))
            _check_id(listed[-1], count, what, cure)  # at once, for what never ends
    except CF2Error:
        raise
    except Exception as error:
        got = f"{_shown(ids)} ({type(error).__name__}: {error})"
        raise CF2Error(f"Expected `nodes` to be whole numbers from 0 to {count - 1}", got=got) from error
    if any(isinstance(one, bool) for one in listed):
        listed = _of_mask(listed, count)
    require(len(listed) > 0, "Expected at least one node to explain", got="an empty `nodes`")
    return sorted(listed) if isinstance(ids, set | frozenset) else listed


def _check_id(one: Any, count: int, what: str, cure: str) -> None:
    if not isinstance(one, bool) and (type(one) is not int or not 0 <= one < count):
        expected = f"Expected every {what} in `nodes` to be a whole number from 0 to {count - 1}"
        raise CF2Error(expected, got=_shown(one), do=_cure(one) or cure)


def _listed(ids: Any, count: int) -> Iterable[Any]:
    """What `nodes` holds, one after the other."""
    if isinstance(ids, slice):
        return range(count)[ids]
    if isinstance(ids, Tensor):
        ids = ids.detach().cpu().numpy()
    elif hasattr(ids, "to_numpy"):  # a pandas Series or Index
        ids = ids.to_numpy()
    if isinstance(ids, np.ndarray):
        return _of_array(ids, count)
    alone = isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable)
    return [ids] if alone else ids


def _of_array(ids: np.ndarray, count: int) -> list[Any]:
    require(
        ids.ndim <= 1 and ids.dtype.kind in "iubO",
        "Expected `nodes` to be whole numbers in one dimension, or a mask",
        got=f"shape {ids.shape} and dtype {ids.dtype}",
        do={"b": "Pass one column of the mask.", "i": "Flatten it.", "u": "Flatten it."}.get(
            ids.dtype.kind, "Turn it into whole numbers with .long() or .astype(int)."
        ),
    )
    require(
        ids.dtype != np.uint8 or ids.shape != (count,) or bool((ids > 1).any()),
        "Expected to know whether `nodes` are ids or a mask",
        got=f"{count} zeros and ones of dtype uint8",
        do="Pass a mask as bool, ids as int64.",
    )
    return list(ids.reshape(-1).tolist())


def _of_mask(mask: list[Any], count: int) -> list[Any]:
    bools = sum(isinstance(one, bool) for one in mask)
    require(
        len(mask) == bools == count,
        f"Expected a mask in `nodes` to have one bool for each of the {count} that can be explained",
        got=f"{len(mask)}" if len(mask) == bools else f"{bools} among {len(mask)} values",
    )
    require(any(mask), "Expected a mask in `nodes` to choose at least one", got="none that is True")
    return [place for place, chosen in enumerate(mask) if chosen]


def _plain(one: Any) -> Any:
    """A whole number or a bool as Python has it; anything else as it is."""
    if isinstance(one, Tensor | np.ndarray | np.generic) and one.ndim == 0:
        one = one.item()
    return int(one) if isinstance(one, int) and not isinstance(one, bool) else one


def _shown(value: object) -> str:
    plain = not isinstance(value, Iterator) and " object at 0x" not in repr(value)
    return textwrap.shorten(repr(value), 80, placeholder="…") if plain else f"an object of type {type(value).__name__}"


def _cure(one: object) -> str:
    if isinstance(one, int):
        return "Ids count from 0." if one < 0 else ""
    if isinstance(one, float | str):
        return "Turn it into a whole number with int(…)."
    return "Pass one flat list." if isinstance(one, list | tuple | Tensor | np.ndarray | set | range) else ""


def stream(seed: int, key: Key) -> torch.Generator:
    """Random numbers of one key's own: the same whatever it is packed with."""
    number = 0
    for part in key if isinstance(key, tuple) else (key,):
        number = number * 2_147_483_647 + part
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % (2**63))
