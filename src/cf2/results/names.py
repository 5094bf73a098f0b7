"""What the user calls things, as a context keeps it: the names of nodes and features, by number or by key."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar, overload

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cf2.errors import CF2Error, extra, require, unknown_name
from cf2.graphs.data import with_edge_index
from cf2.graphs.typed import Types
from cf2.options import Key

# -- names -----------------------------------------------------------------------------------------------


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


# -- smiles ----------------------------------------------------------------------------------------------


def read_smiles(text: Any, nodes: int, edges: np.ndarray, where: str, *, aromatic: bool = False) -> dict[str, Any]:
    """The molecule of a graph, ready for JSON; an error in words where it is not the graph's.

    Parameters
    ----------
    text : str
        The SMILES, whose atoms are the nodes in the order of their ids, as `torch_geometric.utils.from_smiles` and
        RDKit number them; with all hydrogens or without them.
    nodes, edges : int, ndarray [2, edges]
        The graph.
    where : str
        Which graph that is, for an error.
    aromatic : bool
        Whether the bonds of aromatic rings have the order 1.5; if not, 1 and 2 in turn, as they are drawn.

    Returns
    -------
    dict
        `labels`, an element per node; `bonds`, (u, v, order); `formal`, the charge and the hydrogens of each node.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError as error:
        raise CF2Error("Expected rdkit to draw `smiles`", got="no such package", do=extra("molecules")) from error
    require(isinstance(text, str), f"Expected the SMILES of {where} to be text", got=repr(text)[:80])
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(text)
        require(molecule is not None, f"Expected a SMILES that RDKit can read for {where}", got=repr(text)[:80])
        found = molecule if molecule.GetNumAtoms() == nodes else Chem.AddHs(molecule)
    many = f"{molecule.GetNumAtoms()} atoms, or {found.GetNumAtoms()} with hydrogens, in {text[:60]!r}"
    cure = "Number the atoms as RDKit does for this SMILES."
    require(found.GetNumAtoms() == nodes, f"Expected an atom for each of the {nodes} nodes of {where}", got=many)
    if not aromatic:
        Chem.Kekulize(found, clearAromaticFlags=True)
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), b.GetBondTypeAsDouble()) for b in found.GetBonds()]
    ends = {(min(u, v), max(u, v)) for u, v in edges.T.tolist() if u != v}
    known = {(min(u, v), max(u, v)) for u, v, _ in bonds}
    other = sorted(ends ^ known)[:1]
    said = f"other edges, such as {other[0]}" if other else ""
    require(not other, f"Expected the edges of {where} to be the bonds of {text[:60]!r}", got=said, do=cure)
    atoms = list(found.GetAtoms())
    return {
        "labels": [atom.GetSymbol() for atom in atoms],
        "bonds": [list(bond) for bond in bonds],
        "formal": [[atom.GetFormalCharge(), atom.GetTotalNumHs()] for atom in atoms],
    }


# -- naming ----------------------------------------------------------------------------------------------


log = logging.getLogger("cf2")

GraphOf = Callable[[Key], Any]
_WORDS = {"class_names": "class", "node_names": "node", "feature_names": "feature column", "smiles": "graph"}


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
            most = max(map(int, given), default=-1)
            require(0 <= most < 100_000, "Expected `class_names` by number", got=repr(self.class_names)[:80])
            given = [given.get(str(number), f"class {number}") for number in range(most + 1)]
        return tuple(given)

    def number(self, target: Any) -> Any:
        """A target in which classes may be named, with their numbers in place of their names."""
        if isinstance(target, Mapping):
            return {key: self.number(value) for key, value in target.items()}
        if isinstance(target, list | tuple):
            return [self.number(value) for value in target]
        classes = self.classes()
        if not isinstance(target, str) or not classes:
            return target
        if target not in classes:
            raise unknown_name("`target`", target, classes)
        return classes.index(target)

    def context(self, graph_of: GraphOf, keys: Sequence[Key], count: int | None) -> dict[str, Any]:
        """What a reader needs of it, ready for JSON.

        Parameters
        ----------
        graph_of : callable
            Gives the graph of a key.
        keys : sequence of keys
            What is explained; of graphs, only these are kept.
        count : int or None
            How many graphs there are; None for the nodes or pairs of one.
        """
        found: dict[str, Any] = {}
        if self.class_names is not None:
            found["class_names"] = list(self.classes())
        first = graph_of(keys[0]) if keys else None
        if self.feature_names is not None and first is not None:
            found["feature_names"] = _by_type("feature_names", self.feature_names, first, _columns, False)
        if self.node_names is not None and count is None and first is not None:
            found["node_names"] = _by_type("node_names", self.node_names, first, _nodes, True)
        graphs, smiles = self._graphs(graph_of, keys, count)
        found |= {"graphs": graphs} if graphs else {}
        found |= {"smiles": smiles} if smiles else {}
        return found | ({"atoms": list(self.atoms)} if self.atoms else {})

    def _graphs(
        self, graph_of: GraphOf, keys: Sequence[Key], count: int | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """What is known of the graph of each key, and its SMILES."""
        named = self.node_names if count is not None else None
        for option, given in (("node_names", named), ("smiles", self.smiles)):
            _check_count(option, given, count)
        graphs: dict[str, Any] = {}
        written: dict[str, str] = {}
        for key in dict.fromkeys(keys):
            graph, where = graph_of(key), "the graph" if count is None else f"graph {key}"
            if isinstance(graph, HeteroData):
                continue
            own = self.smiles if isinstance(self.smiles, str) else _pick(self.smiles, key)
            text = getattr(graph, "smiles", None) if own is None else own
            known = self._molecule(graph, text, where, asked=own is not None)
            if known is not None and isinstance(text, str):
                written[str(key)] = text
            elif self.atoms:
                known = _elements(graph, self.atoms)
            if (names := _pick(named, key)) is not None:
                known = {**(known or {}), "names": _checked("node_names", names, _nodes(graph), f" of {where}")}
            if known:
                graphs[str(key)] = known
        return graphs, written

    @staticmethod
    def _molecule(graph: Any, text: Any, where: str, *, asked: bool) -> dict[str, Any] | None:
        """The molecule of a SMILES; one that the data holds, and that is not the graph's, is only told of."""
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
    found: dict[str, Any] = {"labels": [atoms[place] for place in x.argmax(1).tolist()]}
    bond = graph.get("bond")
    if isinstance(bond, Tensor) and bond.shape == (graph.edge_index.size(1),):
        found["bonds"] = torch.cat([graph.edge_index, bond[None]]).t().tolist()
    return found


def _nodes(graph: Any) -> int:
    return int(graph.num_nodes or 0)


def _columns(graph: Any) -> int:
    x = graph.get("x")
    return int(x.size(1)) if isinstance(x, Tensor) and x.dim() == 2 else 0


def _by_type(option: str, given: Any, graph: Data | HeteroData, count: Callable[[Any], int], flat: bool) -> Any:
    """Names of one graph; of a typed one by type, or, flat, with the types one after the other."""
    if not isinstance(graph, HeteroData):
        return _checked(option, given, count(graph))
    types = set(graph.node_types)
    good = isinstance(given, Mapping) and set(given) <= types
    require(good, f"Expected `{option}` by node type, of {', '.join(sorted(types))}", got=repr(given)[:80])
    named = {
        name: _checked(option, given[name], count(graph[name]), f" of type {name!r}") if name in given else {}
        for name in graph.node_types
    }
    if not flat:
        return named
    found: dict[str, str] = {}
    start = 0
    for name, own in named.items():
        numbered = own.items() if isinstance(own, dict) else enumerate(own)
        found |= {str(start + int(number)): text for number, text in numbered}
        start += count(graph[name])
    return found


def _table(option: str, given: Any) -> list[str] | dict[str, str]:
    """Names as a list, or as text by number as text."""
    word = _WORDS[option]
    expected = f"Expected `{option}` to be a list with one name for each {word}, or names by number"
    require(not isinstance(given, str | bytes), expected, got=repr(given)[:80])
    try:
        if isinstance(given, Mapping):
            return {str(int(number)): str(name) for number, name in given.items()}
        return [str(name) for name in given]
    except (TypeError, ValueError) as error:
        raise CF2Error(expected, got=repr(given)[:80]) from error


def _checked(option: str, given: Any, count: int, where: str = "") -> list[str] | dict[str, str]:
    """Names for so many things."""
    table, word = _table(option, given), _WORDS[option]
    if isinstance(table, dict):
        wrong = next((number for number in table if not 0 <= int(number) < count), None)
        expected = f"Expected `{option}` by number below {count}{where}"
        require(wrong is None, expected, got=wrong)
        return table
    expected = f"Expected `{option}` to hold {count} names, one for each {word}{where}"
    require(len(table) == count, expected, got=f"{len(table)}")
    return table


def _check_count(option: str, given: Any, count: int | None) -> None:
    """Refuse what is not there for every graph, or by key."""
    if given is None or isinstance(given, Mapping):
        return
    if count is None:
        require(isinstance(given, str), f"Expected `{option}` of one graph to be text", got=repr(given)[:80])
        return
    single = isinstance(given, str) and count == 1
    listed = not isinstance(given, str) and hasattr(given, "__len__") and hasattr(given, "__getitem__")
    expected = f"Expected `{option}` for each of the {count} graphs, or by key"
    require(single or listed, expected, got=repr(given)[:80])
    require(single or len(given) == count, expected, got=f"{len(given)} in a list")


def _pick(given: Any, key: Key) -> Any:
    """What is given for a key: by place, or by number or text."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return given[key] if key in given else given.get(str(key))
    return given.iloc[key] if hasattr(given, "iloc") else given[key]


Row = TypeVar("Row", covariant=True)


class NoSuchIndex(CF2Error, IndexError):
    """Also an IndexError, as loops and other code expect it of a sequence."""


@dataclass(frozen=True, eq=False)
class Rows(Sequence[Row]):
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
            raise CF2Error("Expected an index or a slice", got=repr(index)[:80], do=self.index_help) from error
        if not -len(self) <= number < len(self):
            raise NoSuchIndex(f"Expected an index below {len(self)}", got=number)
        return number
