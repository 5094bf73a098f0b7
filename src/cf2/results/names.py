"""What the user calls things, as a context keeps it: the names of nodes and features, by number or by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from cf2.core.types import Types
from cf2.spec import Key


class Named(Protocol):
    """An explanation that knows its context."""

    @property
    def key(self) -> Key: ...

    @property
    def task(self) -> str: ...

    @property
    def types(self) -> Types | None: ...

    @property
    def context(self) -> Mapping[str, Any]: ...


def entry(table: Any, key: Key) -> Any:
    """What a table of a context holds for a key, None for nothing: a list by place, or values by number or by text.

    >>> entry({3: "c"}, 3), entry({"3": "c"}, 3), entry(["a", "b"], 1), entry({"(3, 17)": "d"}, (3, 17)), entry([], 4)
    ('c', 'c', 'b', 'd', None)
    """
    if isinstance(table, Mapping):
        return table[key] if key in table else table.get(str(key))
    listed = isinstance(table, list | tuple) and isinstance(key, int) and 0 <= key < len(table)
    return table[key] if listed else None


def node_name(e: Named, node: int) -> str:
    """What the user calls a node, by its id as the table of units has it; empty without a name."""
    graph = entry(e.context.get("graphs"), e.key)
    own = entry(graph.get("names"), node) if isinstance(graph, Mapping) else None
    if own is None and e.task != "graph":
        own = entry(e.context.get("node_names"), node)
    return "" if own is None else str(own)


def describe_node(e: Named, node: int) -> str:
    """A node by its name, else by its id; of a typed graph with its type: 'user 3'."""
    if e.types is None:
        return node_name(e, node) or str(node)
    kind, number = e.types.nodes[int(e.types.of(np.array([node]))[0])], int(e.types.local(np.array([node]))[0])
    return f"{kind} {node_name(e, node) or number}"


def feature_name(e: Named, column: int, node: int = -1, kind: str = "") -> str:
    """What the user calls a column of features, of a typed graph one of a node or of a type; else 'feature 5'."""
    table = e.context.get("feature_names")
    if e.types is not None:
        kind = kind or e.types.nodes[int(e.types.of(np.array([node]))[0])]
        table = table.get(kind) if isinstance(table, Mapping) else None
    name = entry(table, column)
    return f"feature {column}" if name is None else str(name)
