"""What the user calls classes, nodes and features, and the molecules that graphs are: checked, and kept for readers."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, overload

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.errors import CF2Error, reading, require, shown, unknown_name
from cf2.graphs.data import with_edge_index
from cf2.graphs.typed import Types
from cf2.options import Key, bounded
from cf2.units.molecules import read_smiles

if TYPE_CHECKING:
    from cf2.results.explanation import Explanation

log = logging.getLogger("cf2")

MAX_CLASSES = 100_000
MAX_DRAWN_EDGES = 2_000  # of a graph in the context: a larger one is drawn without
# What each entry of an option names.
NAMED = {"class_names": "class", "node_names": "node", "feature_names": "feature column", "smiles": "graph"}


def entry(table: Any, key: Key) -> Any:
    """What a table of a context holds for a key, None for nothing: a list by position, or values by number or text.

    >>> entry({3: "c"}, 3), entry({"3": "c"}, 3), entry(["a", "b"], 1), entry({"(3, 17)": "d"}, (3, 17)), entry([], 4)
    ('c', 'c', 'b', 'd', None)
    """
    if isinstance(table, Mapping):
        return table[key] if key in table else table.get(str(key))
    listed = isinstance(table, list | tuple) and isinstance(key, int) and 0 <= key < len(table)
    return table[key] if listed else None


def typed_id(types: Types, node: int) -> tuple[str, int]:
    """The type of a node by its flat id, and its id in that type."""
    flat = np.array([node])
    return types.nodes[int(types.of(flat)[0])], int(types.local(flat)[0])


def node_name(e: Explanation, node: int) -> str:
    """What the user calls a node, by its id as the table of units has it; empty without a name."""
    graph = entry(e.context.get("graphs"), e.key)
    name = entry(graph.get("names"), node) if isinstance(graph, Mapping) else None
    if name is None and e.task != "graph":
        name = entry(e.context.get("node_names"), node)
    return "" if name is None else str(name)


def describe_node(e: Explanation, node: int) -> str:
    """A node by its name, else by its id; of a typed graph with its type: 'user 3'."""
    name = node_name(e, node)
    if e.types is None:
        return name or str(node)
    kind, number = typed_id(e.types, node)
    return f"{kind} {name or number}"


def feature_name(e: Explanation, column: int, node: int = -1, kind: str = "") -> str:
    """What the user calls a column of features, of a typed graph one of a node or of a type; else 'feature 5'."""
    table = e.context.get("feature_names")
    if e.types is not None:
        table = entry(table, kind or typed_id(e.types, node)[0])  # type: ignore[arg-type]
    name = entry(table, column)
    return f"feature {column}" if name is None else str(name)


@dataclass(frozen=True, eq=False)
class Names:
    """What a user calls classes, nodes and features, and the molecules that graphs are.

    Each is a list with one name for each, or names by number; of a typed graph, such names by node type. For graphs,
    `node_names` and `smiles` are by graph. `atoms` names the element of every feature column.
    """

    class_names: Any = None
    node_names: Any = None
    feature_names: Any = None
    smiles: Any = None
    atoms: Sequence[str] | None = None

    def classes(self) -> tuple[str, ...]:
        """The names of the classes, one after the other."""
        if self.class_names is None:
            return ()
        given = _table("class_names", self.class_names)
        if isinstance(given, dict):
            highest = max(map(int, given), default=-1)
            require(0 <= highest < MAX_CLASSES, "Expected `class_names` by number", got=shown(self.class_names, 80))
            given = [given.get(str(number), f"class {number}") for number in range(highest + 1)]
        return tuple(given)

    def number(self, target: Any) -> Any:
        """A target in which classes may be named, with their numbers in place of their names."""
        if isinstance(target, Mapping):
            return {key: self.number(value) for key, value in target.items()}
        if isinstance(target, list | tuple):
            return [self.number(value) for value in target]
        classes = self.classes()
        if not isinstance(target, str):
            return target
        require(
            len(classes) > 0,
            "Expected `target` to be a class number, or a class name from `class_names`",
            got=f"{shown(target, 80)} without `class_names`",
            do="Pass class_names=[…], one name per column of the model's output.",
        )
        if target not in classes:
            raise unknown_name("`target`", target, classes)
        return classes.index(target)

    def context(self, graph_of: Callable[[Key], Any], keys: Sequence[Key], count: int | None) -> dict[str, Any]:
        """What a reader needs of it, ready for JSON; `count` is that of the graphs, None for nodes or pairs of one."""
        context: dict[str, Any] = {}
        if self.class_names is not None:
            context["class_names"] = list(self.classes())
        first = graph_of(keys[0]) if keys else None
        if self.feature_names is not None and first is not None:
            context["feature_names"] = _by_type("feature_names", self.feature_names, first, _columns)
        if self.node_names is not None and count is None and first is not None:
            context["node_names"] = _flat(_by_type("node_names", self.node_names, first, _nodes), first)
        context |= self._graphs(graph_of, keys, count)
        return context | ({"atoms": list(self.atoms)} if self.atoms else {})

    def _graphs(self, graph_of: Callable[[Key], Any], keys: Sequence[Key], count: int | None) -> dict[str, Any]:
        """What is known of the graph of each key, and its SMILES."""
        names = None if count is None else _per_graph("node_names", self.node_names, count)
        smiles = _per_graph("smiles", self.smiles, count)
        graphs: dict[str, Any] = {}
        written: dict[str, str] = {}
        for key in dict.fromkeys(keys):
            graph, where = graph_of(key), "the graph" if count is None else f"graph {key}"
            if isinstance(graph, HeteroData):
                continue
            given = smiles if isinstance(smiles, str) else entry(smiles, key)
            text = getattr(graph, "smiles", None) if given is None else given
            facts = self._molecule(graph, text, where, asked=given is not None)
            if facts is not None:
                written[str(key)] = str(text)
            elif self.atoms:
                facts = _elements(graph, self.atoms)
            node_names = names if isinstance(names, str) else entry(names, key)
            if node_names is not None:
                facts = {**(facts or {}), "names": _table("node_names", node_names, _nodes(graph), f" of {where}")}
            if facts:
                graphs[str(key)] = facts
        return ({"graphs": graphs} if graphs else {}) | ({"smiles": written} if written else {})

    @staticmethod
    def _molecule(graph: Any, text: Any, where: str, *, asked: bool) -> dict[str, Any] | None:
        """The molecule of a SMILES; if one in the data is not the graph's, that is only logged."""
        if text is None or not (asked or isinstance(text, str)):
            return None
        edges = with_edge_index(graph).edge_index
        try:
            return read_smiles(text, _nodes(graph), np.asarray(edges.detach().cpu()), where)
        except CF2Error as error:
            if asked:
                raise
            log.info("`smiles` of %s is not used for drawing: %s", where, error)
            return None


def _elements(graph: Any, atoms: Sequence[str]) -> dict[str, Any] | None:
    """Elements from one-hot columns, and bond orders where the data has them as `bond`."""
    x = graph.x[:, : len(atoms)].detach().cpu()
    if x.size(1) < len(atoms) or not bool((((x == 0) | (x == 1)).all(1) & (x.sum(1) == 1)).all()):
        return None
    found: dict[str, Any] = {"labels": [atoms[column] for column in x.argmax(1).tolist()]}
    bond = graph.get("bond")
    if isinstance(bond, Tensor) and bond.shape == (graph.edge_index.size(1),):
        found["bonds"] = torch.cat([graph.edge_index, bond[None]]).t().tolist()
    return found


def with_edges(context: Mapping[str, Any], graph_of: Callable[[Key], Any], keys: Iterable[Key]) -> dict[str, Any]:
    """The context with the edges of some graphs, which pictures of answers that are not made of edges need."""
    graphs = dict(context.get("graphs") or {})
    for key in dict.fromkeys(keys):
        graph, facts = graph_of(key), graphs.get(str(key), {})
        small = not isinstance(graph, HeteroData) and with_edge_index(graph).edge_index.size(1) <= MAX_DRAWN_EDGES
        if small and "bonds" not in facts:
            graphs[str(key)] = facts | {"edges": with_edge_index(graph).edge_index.t().tolist()}
    return {**context, "graphs": graphs} if graphs else dict(context)


def _nodes(graph: Any) -> int:
    return int(graph.num_nodes or 0)


def _columns(graph: Any) -> int:
    x = graph.get("x")
    return int(x.size(1)) if isinstance(x, Tensor) and x.dim() == 2 else 0


def _table(option: str, given: Any, count: int | None = None, where: str = "") -> list[str] | dict[str, str]:
    """Names for so many things (None: any number), as a list, or by number as text."""
    expected = f"Expected `{option}` to be a list with one name for each {NAMED[option]}, or names by number"
    require(not isinstance(given, str | bytes), expected, got=shown(given, 80))
    with reading(given, expected):
        if isinstance(given, Mapping):
            numbered = {str(int(number)): str(name) for number, name in given.items()}
            wrong = [number for number in numbered if count is not None and not 0 <= int(number) < count][:1]
            require(not wrong, f"Expected `{option}` by number below {count}{where}", got="".join(wrong))
            return numbered
        names = [str(name) for name in bounded(given)]
    expected = f"Expected `{option}` to hold {count} names, one for each {NAMED[option]}{where}"
    require(count in (None, len(names)), expected, got=len(names))
    return names


def _by_type(option: str, given: Any, graph: Data | HeteroData, count: Callable[[Any], int]) -> Any:
    """Names of the nodes or columns of one graph; of a typed one by type."""
    if not isinstance(graph, HeteroData):
        return _table(option, given, count(graph))
    types = set(graph.node_types)
    good = isinstance(given, Mapping) and set(given) <= types
    require(good, f"Expected `{option}` by node type, of {', '.join(sorted(types))}", got=shown(given, 80))
    return {
        name: _table(option, given[name], count(graph[name]), f" of type {name!r}") if name in given else {}
        for name in graph.node_types
    }


def _flat(names: Any, graph: Data | HeteroData) -> Any:
    """Names of nodes; those of a typed graph by flat id, in which types come one after the other."""
    if not isinstance(graph, HeteroData):
        return names
    flat: dict[str, str] = {}
    start = 0
    for kind, own in names.items():
        numbered = own.items() if isinstance(own, dict) else enumerate(own)
        flat |= {str(start + int(number)): name for number, name in numbered}
        start += _nodes(graph[kind])
    return flat


def _per_graph(option: str, given: Any, count: int | None) -> Any:
    """What is there for every graph, as a list, or by key; one text may stand for the only graph."""
    text = isinstance(given, str)
    if given is None or isinstance(given, Mapping) or (text and count in (None, 1)):
        return given
    require(count is not None, f"Expected `{option}` of one graph to be text", got=shown(given, 80))
    expected = f"Expected `{option}` for each of the {count} graphs, or by key"
    listed = not text and hasattr(given, "__len__") and hasattr(given, "__getitem__")
    require(listed, expected, got=shown(given, 80))
    with reading(given, expected):
        items = bounded(given)
    require(len(items) == count, expected, got=f"{len(items)} in a list")
    return items


Row = TypeVar("Row", covariant=True)


class NoSuchIndex(CF2Error, IndexError):
    """Also an IndexError, as loops and other code expect it of a sequence."""


@dataclass(frozen=True, eq=False)
class Results(Sequence[Row]):
    """A frozen sequence of results. A slice is of the same class and keeps everything else that is known of them."""

    items: tuple[Row, ...]
    index_help: ClassVar[str] = ""  # what to do instead of indexing by something else

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Row | Self:
        if not isinstance(index, slice):
            return self.items[self.position(index)]
        try:
            return replace(self, items=self.items[index])
        except (TypeError, ValueError) as error:
            raise CF2Error("Expected a slice of whole numbers", got=repr(index)) from error

    def position(self, index: Any) -> int:
        """An index as a number that is in range; refused in words if it is none."""
        try:
            number = operator.index(index)
        except (TypeError, RuntimeError) as error:
            raise CF2Error("Expected an index or a slice", got=shown(index, 80), do=self.index_help) from error
        if not -len(self) <= number < len(self):
            raise NoSuchIndex(f"Expected an index below {len(self)}", got=number)
        return number
