"""What an explanation could choose from, in the user's own ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cf2.errors import require, unknown_name
from cf2.graphs.typed import Types
from cf2.options import EdgeType, Key
from cf2.results.names import node_name
from cf2.units.edits import ADD, CHANGE, EDGE_KINDS
from cf2.units.kinds import KINDS

if TYPE_CHECKING:
    import networkx
import copy

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from cf2.errors import CF2Error
from cf2.graphs.graph import commonest
from cf2.graphs.typed import ATTRIBUTES

# -- unit table ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class UnitTable:
    """What there was to choose from: one row per unit, in the user's own ids.

    Attributes
    ----------
    names : tuple of str
        The kinds of unit that occur, by the names that `units=` has: ``"edges"``, ``"features"``, …
    kind : ndarray of int8, shape [units]
        The place of each unit's kind in `names`.
    ids : ndarray of int64, shape [units, 2]
        An edge is (tail, head), with the smaller id first if edges are undirected; a feature entry is
        (node, column); a node, or all features of one, is (node, -1); a column is (-1, column); a group is
        (number, -1); a change of a feature is (node, column).
    values : ndarray of float64, shape [units, 3] or [0, 3]
        Of what can be changed: the column that a one-hot feature leaves (-1 if it does not), the old and the new value.
    members : ndarray of int64, shape [members, 3]
        Of groups: the row of the group, and the ends of an edge of it.
    types : ndarray of int16, shape [units] or [0]
        Of a typed graph: the place of an edge's type, or of the node type of a column, in `Explanation.types`; else -1.
    """

    names: tuple[str, ...]
    kind: np.ndarray
    ids: np.ndarray
    values: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    members: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    types: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int16))

    def __post_init__(self) -> None:
        require(
            self.kind.shape == (len(self.ids),) and self.ids.shape == (len(self.ids), 2),
            "Expected a kind and two ids per unit",
            got=f"shapes {self.kind.shape} and {self.ids.shape}",
        )
        typed = len(self.types) in (0, len(self.ids))
        require(typed, "Expected a type per unit, or none", got=f"{len(self.types)} types")
        require(
            self.values.shape in ((len(self.ids), 3), (0, 3)) and self.members.shape == (len(self.members), 3),
            "Expected three values per unit, and three numbers per member of a group",
            got=f"shapes {self.values.shape} and {self.members.shape}",
        )

    def __len__(self) -> int:
        return len(self.kind)

    def where(self, name: str) -> np.ndarray:
        """The rows that hold units of a kind, ascending."""
        return np.flatnonzero(self.kind == self.names.index(name)) if name in self.names else np.zeros(0, np.int64)

    def of(self, name: str) -> np.ndarray:
        """The ids [n, 2] of the units of a kind."""
        rows: np.ndarray = self.ids[self.where(name)]
        return rows

    @staticmethod
    def none() -> UnitTable:
        """A table without a row."""
        return UnitTable((), np.zeros(0, np.int8), np.zeros((0, 2), np.int64))


# -- typed -----------------------------------------------------------------------------------------------


class Explained(Protocol):
    """An explanation of a typed graph."""

    @property
    def units(self) -> Any: ...

    @property
    def types(self) -> Types | None: ...

    @property
    def scores(self) -> np.ndarray: ...

    @property
    def selected(self) -> np.ndarray: ...


def edges(e: Explained, which: np.ndarray) -> dict[EdgeType, np.ndarray]:
    """The edges of some units [units, bool] by edge type [n, 2], with their mirror images; only types with any."""
    types, found = e.types, {}
    assert types is not None
    units = e.units.where("edges")
    for place, kind in enumerate(types.edges):
        pairs = [pair for _, pair in _columns(e, units[which[units]], place)]
        joined = np.concatenate([np.zeros((0, 2), np.int64), *pairs])
        if len(joined):
            found[kind] = np.unique(types.local(joined), axis=0)
    return found


def _columns(e: Explained, units: np.ndarray, place: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Units that govern edges of a type, and these edges [n, 2] in flat ids."""
    assert e.types is not None
    own = units[e.units.types[units] == place]
    yield own, e.units.ids[own]
    partner = e.types.partners[place]
    if partner >= 0:
        mirrored = units[e.units.types[units] == partner]
        yield mirrored, e.units.ids[mirrored][:, ::-1]


def rows(types: Types, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Rows [n, ·] that start with a flat node id, by node type, with the id in that type first."""
    kind = types.of(ids[:, 0])
    first = types.local(ids[:, 0])
    local = np.concatenate([first[:, None], ids[:, 1:]], 1)
    return {name: local[kind == place] for place, name in enumerate(types.nodes) if (kind == place).any()}


def counts(e: Explained) -> dict[Any, tuple[int, int]]:
    """How many units of each edge type or node type were chosen, and how many there were."""
    types, found = e.types, {}
    assert types is not None
    of_edge = np.concatenate([e.units.where(name) for name in EDGE_KINDS])
    for place, kind in enumerate(types.edges):
        mine = of_edge[e.units.types[of_edge] == place]
        if len(mine):
            found[kind] = (int(e.selected[mine].sum()), len(mine))
    others = np.setdiff1d(np.arange(len(e.units.ids)), of_edge)
    node = e.units.ids[others, 0]
    kinds = np.where(node >= 0, types.of(np.maximum(node, 0)), e.units.types[others])
    for place, name in enumerate(types.nodes):
        mine = others[kinds == place]
        if len(mine):
            found[name] = (int(e.selected[mine].sum()), len(mine))  # type: ignore[index]
    return found


def mask(e: Explained, kind: EdgeType, ends: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The value of the unit of each edge [2, e] of a type in the ids of its ends' types, 0 where it has none."""
    types = e.types
    assert types is not None
    made = np.zeros(ends.shape[1], dtype=np.float32)
    units = e.units.where("edges")
    if kind not in types.edges or not len(units):
        return made
    place = types.edges.index(kind)
    starts = dict(zip(types.nodes, types.starts))
    code = types.code(np.full(ends.shape[1], place), ends[0] + starts[kind[0]], ends[1] + starts[kind[2]])
    known = types.code(e.units.types[units], *e.units.ids[units].T)
    order = np.argsort(known)
    near = np.minimum(np.searchsorted(known, code, sorter=order), len(known) - 1)
    hit = known[order[near]] == code
    made[hit] = values[units[order[near[hit]]]]
    return made


def true_edges(e: Explained, known: Mapping[Any, Any]) -> np.ndarray:
    """Which edge units are true, bool [edge units]; `known` holds pairs [n, 2] by edge type, in their ids."""
    types, units = e.types, e.units.where("edges")
    assert types is not None
    return np.isin(types.code(e.units.types[units], *e.units.ids[units].T), types.codes(known))


def to_networkx(e: Explained) -> Any:
    """The edges that could be chosen, between nodes (type, id); the key of an edge is its relation."""
    import networkx as nx

    graph, types = nx.MultiDiGraph(), e.types
    assert types is not None
    units = e.units.where("edges")
    for place, (src, relation, dst) in enumerate(types.edges):
        for rows, pairs in _columns(e, units, place):
            for row, (tail, head) in zip(rows.tolist(), types.local(pairs).tolist()):
                facts = {"score": float(e.scores[row]), "chosen": bool(e.selected[row])}
                graph.add_edge((src, tail), (dst, head), key=relation, **facts)
    return graph


# -- explanation -----------------------------------------------------------------------------------------


# The verdicts that a set must have to be called found, by question.
VERDICTS = {"why": ("sufficient", "necessary"), "factual": ("sufficient",), "counterfactual": ("necessary",)}


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why the model gives an output for one node, graph or pair, and what of that was verified.

    Attributes
    ----------
    key : int or tuple of int
        The node's id, the graph's position, or the two nodes of a pair.
    task : str
        What was explained: ``"node"``, ``"graph"`` or ``"pair"``.
    prediction : int
        The class that the model gives; of labels and regressions the column that was explained, see `value`.
    units, scores, selected : UnitTable, ndarray [units], ndarray of bool [units]
        What there was to choose from, how important the method holds each unit, and what it chose.
    probabilities, probabilities_only, probabilities_without : ndarray, shape [classes]
        What the model says of the whole graph, of the explanation alone, and of all but the explanation; of a
        regression the numbers themselves.
    sufficient, necessary : bool
        The verdicts of the two tests on really reduced graphs.
    minimal, optimal : bool or None
        No single unit can go; proved to be the smallest. None: not checked.
    lower_bound : int or None
        Proved that no smaller set passes: the size of the answer where that is `optimal`. None: nothing is proved.
    rank, complete : int, bool
        The place of this answer among those of its key, 0 for the best; whether these are all minimal ones.
    robust, robust_removals : tuple of int or None
        On how many of how many disturbed copies of the graph the set passes its tests too; the same of all graphs
        with one other unit gone. None: not tried.
    default : bool or None
        Whether the model gives the same answer when everything that can be removed is gone. None: not tried.
    status : str
        ``found``: the set passes every test of the question; ``impossible``: proved that none does; ``not found``:
        none within the budget, the best known set is given; ``unverified``: the method does not look for a
        passing set, the verdicts are still true; ``not predicted``: the model does not give the `target`, so that
        there is nothing to explain; ``empty``: there is nothing to choose from; ``refused``: there are more units
        than `max_units`, and none are kept here.
    note : str
        What a reader should know beside the status.
    question : str
        What was asked: ``why``, ``factual`` or ``counterfactual``.
    method, settings, seed : str, dict, int or None
        How it was made.
    evaluations, seconds : int, float
        What it cost: runs of the model on one instance (a gradient counts as three), and seconds.
    directed : bool
        Whether an edge and its reverse are two units.
    label : int or None
        The true class, where it is known.
    target : int or None
        The class, label or column that was asked about, where one was.
    output : str
        What the model returns: ``"classes"``, ``"multilabel"`` or ``"regression"``.
    tolerance : float or None
        Of a regression: the same answer is one within ± this of `value`.
    types : Types or None
        Of a typed graph: its node and edge types. Ids in `units` are then those of the flat graph, in which the nodes
        of a type are a block; `edges`, `features` and `nodes` are by type, in the ids of the type.
    context : mapping
        What is known beside it, by which words and pictures name things: that of the `Explanations` it stands in.
    """

    key: Key
    task: str
    prediction: int
    units: UnitTable
    scores: np.ndarray
    selected: np.ndarray
    probabilities: np.ndarray
    probabilities_only: np.ndarray
    probabilities_without: np.ndarray
    sufficient: bool
    necessary: bool
    minimal: bool | None = None
    optimal: bool | None = None
    status: str = "unverified"
    note: str = ""
    question: str = "why"
    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    evaluations: int = 0
    seconds: float = 0.0
    directed: bool = False
    label: int | None = None
    target: int | None = None
    lower_bound: int | None = None
    rank: int = 0
    complete: bool = False
    robust: tuple[int, int] | None = None
    robust_removals: tuple[int, int] | None = None
    default: bool | None = None
    output: str = "classes"
    tolerance: float | None = None
    types: Types | None = None
    context: Mapping[str, Any] = field(default_factory=dict, repr=False, metadata={"stored": False})

    def __post_init__(self) -> None:
        require(
            len(self.scores) == len(self.units) == len(self.selected),
            f"Expected {len(self.units)} scores and selections, one per unit",
            got=f"{len(self.scores)} and {len(self.selected)}",
        )
        if self.status == "found":
            failed = [name for name in VERDICTS.get(self.question, ()) if not getattr(self, name)]
            got = f"one that is not {' or '.join(failed)}"
            require(not failed, "Expected `found` only of a set that passes its tests", got=got)

    @property
    def explained(self) -> int:
        """The class that is explained: the `target` where one was asked about, or the prediction."""
        return self.prediction if self.target is None else self.target

    @property
    def value(self) -> float:
        """What the model says of the whole graph: the probability of the prediction, or the number of a regression."""
        return float(self.probabilities[self.prediction])

    @property
    def size(self) -> int:
        """The number of chosen units."""
        return int(self.selected.sum())

    @property
    def num_units(self) -> int:
        """How many units there were to choose from."""
        return len(self.units)

    def chosen(self, kind: str) -> np.ndarray:
        """The ids [n, 2] of the chosen units of a kind, such as ``"edges"``; none if it has no units of that kind."""
        if not isinstance(kind, str) or kind not in {*self.units.names, *KINDS}:
            raise unknown_name("a kind of unit", kind, {*KINDS, *self.units.names})
        rows = self.units.where(kind)
        ids: np.ndarray = self.units.ids[rows[self.selected[rows]]]
        return ids

    def _pairs(self) -> np.ndarray:
        """The chosen edges [n, 2], also of groups, as the table of units has them."""
        grouped = self.units.members[self.selected[self.units.members[:, 0]]][:, 1:]
        return np.concatenate([self.chosen("edges"), grouped])

    @property
    def edges(self) -> Any:
        """The chosen edges [n, 2] in the user's node ids, also of groups, both directions if edges are undirected.

        Of a typed graph by edge type, with the mirror images of edges that are one unit with them.
        """
        if self.types is not None:
            return edges(self, self.selected)
        pairs = self._pairs()
        return pairs if self.directed else np.concatenate([pairs, pairs[:, ::-1]])

    @property
    def features(self) -> Any:
        """The chosen feature entries [n, 2]: node and column; of a typed graph by node type."""
        entries = self.chosen("features")
        return entries if self.types is None else rows(self.types, entries)

    @property
    def edits(self) -> list[tuple[Any, ...]]:
        """What a counterfactual does to the graph, one after the other; empty for other questions.

        ``("remove", (u, v))`` and ``("add", (u, v))`` are edges, ``("remove", (node,))`` a node with its edges and
        features, ``("change", (node, column), old, new)`` a feature entry. A one-hot feature that moves is two such
        changes and counts once. Of a typed graph ids are those of the type, which comes last; mirror images go along.
        """

        return edits_of(self)

    def apply(self, data: Any) -> Any:
        """The user's graph after the edits of a counterfactual.

        Parameters
        ----------
        data : Data or HeteroData
            The graph that was explained. What an added edge has beside its ends, such as `edge_attr`, is what
            `added_attributes` gave, or else the most common value of the graph.

        Returns
        -------
        Data or HeteroData
            A new one; the given one stays as it is.
        """

        return apply_edits(self, data)

    @property
    def nodes(self) -> Any:
        """The nodes [n] that the chosen units touch, ascending; of a typed graph by node type."""
        parts = [self._pairs().reshape(-1), *(self.chosen(name).reshape(-1) for name in EDGE_KINDS)]
        pairs = (*EDGE_KINDS, "groups")
        parts += [self.chosen(name)[:, 0] for name in self.units.names if name not in pairs]
        found = np.unique(np.concatenate(parts))
        found = found[found >= 0]
        if self.types is None:
            return found
        return {name: ids[:, 0] for name, ids in rows(self.types, found[:, None]).items()}

    def by_type(self) -> dict[Any, tuple[int, int]]:
        """How many units of each type were chosen, and of how many: which types carried the answer.

        By edge type, and for features by node type; an edge and its mirror image are one unit of the first of the two
        types. Empty for a graph without types.
        """
        return {} if self.types is None else counts(self)

    def edge_mask(self, edge_index: Any, *, soft: bool = False) -> Any:
        """A value for every column of the user's `edge_index`.

        Parameters
        ----------
        edge_index : array-like of int, shape [2, edges]
            The edges of the graph that was explained; of a typed graph the `edge_index_dict`, by edge type.
        soft : bool
            Give scores instead of 1 for what was chosen.

        Returns
        -------
        ndarray of float32, shape [edges]
            0 for edges outside of the receptive field. Of a typed graph a dictionary of these.
        """

        return edge_mask(self, edge_index, soft)

    def to_networkx(self) -> networkx.Graph:
        """The edges that could be chosen as a networkx graph, with `score` and `chosen` on each.

        Of a typed graph nodes are (type, id), and parallel edges are told apart by their relation.
        """
        import networkx as nx

        if self.types is not None:
            return to_networkx(self)
        graph = nx.DiGraph() if self.directed else nx.Graph()
        named = ((node, node_name(self, node)) for node in np.unique(self.units.of("edges")).tolist())
        graph.add_nodes_from((node, {"name": name} if name else {}) for node, name in named)
        rows = self.units.where("edges")
        for row, (tail, head) in zip(rows.tolist(), self.units.ids[rows].tolist()):
            graph.add_edge(tail, head, score=float(self.scores[row]), chosen=bool(self.selected[row]))
        return graph

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON; `cf2.load` reads what `Explanations.save` makes of it."""
        from cf2.results.files import to_dict

        return to_dict(self)

    def summary(self) -> str:
        """What was verified, in words."""
        from cf2.report.words import verdict

        return verdict(self)

    def __repr__(self) -> str:
        from cf2.report.words import in_short

        return f"<Explanation of {in_short(self)}>"

    def plot(
        self,
        *,
        ax: Any = None,
        layout: Any = None,
        path: str | Path | None = None,
        context: Mapping[str, Any] | None = None,
        words: bool = True,
        probabilities: bool = True,
        size: tuple[float, float] = (9.0, 4.8),
    ) -> Any:
        """Draw the graph with the explanation in bold; a notebook shows it.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Draw the graph alone on these axes.
        layout : points by node, or function that gives them, optional
            Where the nodes are, such as networkx.circular_layout or what that gave; else as cf2 places them.
        path : str or Path, optional
            Also write the picture to this file, .png, .svg or .pdf.
        context : mapping, optional
            What is known beside the explanation: `class_names`, `atoms`, `truth`. Its own `context` if not given.
        words, probabilities : bool
            Whether to write the verdicts below, and to draw what the model says beside it.
        size : (float, float)
            Width and height in inches.

        Returns
        -------
        matplotlib.figure.Figure or Axes
            The axes where these were given.
        """
        from cf2.report.pictures import plot

        known = self.context if context is None else context
        shown = {"words": words, "probabilities": probabilities, "size": size}
        return plot(self, ax=ax, layout=layout, path=path, context=known, **shown)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        from cf2.report.html import explanation_html

        return explanation_html(self, self.context)


def stored_fields(kind: Any) -> list[Field[Any]]:
    """The fields that say what was found, and that a file keeps."""
    return [f for f in fields(kind) if f.metadata.get("stored", True)]


# -- edge mask -------------------------------------------------------------------------------------------


def edge_mask(e: Explanation, edge_index: Any, soft: bool) -> Any:
    """As `Explanation.edge_mask` describes it."""
    if e.types is not None:
        values = e.scores if soft else e.selected.astype(np.float32)
        return {kind: mask(e, kind, _ends(pairs), values) for kind, pairs in edge_index.items()}
    rows = e.units.where("edges")
    values, units = (e.scores if soft else e.selected.astype(np.float32))[rows], e.units.ids[rows]
    tail, head = _ends(edge_index)
    if not len(values) or not len(tail):
        return np.zeros(len(tail), dtype=np.float32)
    high = max(int(units.max()), int(tail.max()), int(head.max())) + 1
    low_end, high_end = (tail, head) if e.directed else (np.minimum(tail, head), np.maximum(tail, head))
    known = units[:, 0] * high + units[:, 1]
    order = np.argsort(known)
    wanted = low_end * high + high_end
    place = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    hit = known[order[place]] == wanted
    return np.where(hit, values[order[place]], 0.0).astype(np.float32)


def _ends(edge_index: Any) -> np.ndarray:
    """The user's `edge_index` as an array of whole numbers [2, edges]."""
    expected = "Expected `edge_index` to hold whole numbers of shape [2, edges]"
    try:
        ends = np.asarray(edge_index.detach().cpu() if hasattr(edge_index, "detach") else edge_index)
    except Exception as error:  # of a ragged list, or a tensor that is sparse or has no values
        raise CF2Error(expected, got=f"an object of type {type(edge_index).__name__}") from error
    ends = ends.astype(np.int64) if not ends.size else ends
    good = ends.ndim == 2 and len(ends) == 2 and ends.dtype.kind in "iu"
    require(good, expected, got=f"shape {ends.shape} and dtype {ends.dtype}")
    return ends.astype(np.int64)


# -- apply -----------------------------------------------------------------------------------------------


def edits_of(e: Explanation) -> list[tuple[Any, ...]]:
    """What the units that a counterfactual has chosen do, one after the other; of a typed graph with the type last."""
    if e.question != "counterfactual":
        return []
    grouped = e.units.members[e.selected[e.units.members[:, 0]]][:, 1:].tolist()
    found: list[tuple[Any, ...]] = _edges(e, "remove", "edges")
    found += [("remove", tuple(pair)) for pair in grouped]
    found += [("remove", *_node(e, node)) for node, _ in e.chosen("nodes").tolist()]
    found += _edges(e, ADD.name, ADD.unit_kind)
    for name in ("features", CHANGE.unit_kind):
        rows = e.units.where(name)
        for row in rows[e.selected[rows]]:
            (node, column), (source, old, new) = e.units.ids[row].tolist(), e.units.values[row].tolist()
            (local,), *kind = _node(e, node)
            found.append(("change", (local, column), old, new, *kind))
            if source >= 0:
                found.append(("change", (local, int(source)), 1.0, 0.0, *kind))
    return found


def _edges(e: Explanation, sort: str, name: str) -> list[tuple[Any, ...]]:
    rows = e.units.where(name)
    rows = rows[e.selected[rows]]
    if e.types is None:
        return [(sort, tuple(pair)) for pair in e.units.ids[rows].tolist()]
    pairs, kinds = e.types.local(e.units.ids[rows]).tolist(), e.units.types[rows].tolist()
    return [(sort, tuple(pair), e.types.edges[kind]) for pair, kind in zip(pairs, kinds)]


def _node(e: Explanation, node: int) -> tuple[Any, ...]:
    """A node in a tuple, and of a typed graph its type, in whose ids it is then."""
    if e.types is None:
        return ((node,),)
    flat = np.array([node])
    return (int(e.types.local(flat)[0]),), e.types.nodes[int(e.types.of(flat)[0])]


def apply_edits(e: Explanation, data: Any) -> Any:
    """A copy of a Data object, or of a HeteroData, with the edits of an explanation made."""
    other = [name for name in e.units.names if name in ("node_features", "columns") and len(e.chosen(name))]
    require(not other, "Expected edits of edges, nodes and feature entries", got=", ".join(other))
    if e.types is not None:
        require(isinstance(data, HeteroData), "Expected the HeteroData that was explained", got=_kind(data))
        return _apply_typed(e, e.types, data)
    for name in ("x", "edge_index"):
        require(isinstance(getattr(data, name, None), Tensor), f"Expected a Data object with `{name}`", got=_kind(data))
    made = copy.copy(data)
    made.x = data.x.clone()
    tail, head = data.edge_index
    stays = torch.ones_like(tail, dtype=torch.bool)
    new: list[tuple[int, int]] = []
    for sort, ends, *values in e.edits:
        if sort == "change":
            made.x[ends[0], ends[1]] = values[1]
        elif sort == "add":
            new += [ends] if e.directed else [ends, ends[::-1]]
        elif len(ends) == 1:
            stays &= (tail != ends[0]) & (head != ends[0])
            made.x[ends[0]] = 0
        else:
            same = (tail == ends[0]) & (head == ends[1])
            stays &= ~(same if e.directed else same | ((tail == ends[1]) & (head == ends[0])))
    added = torch.tensor(new, dtype=torch.long, device=tail.device).reshape(-1, 2).t()
    columns = data.edge_index.size(1)
    made.edge_index = torch.cat([data.edge_index[:, stays], added], 1)
    for name in list(data.keys()):
        value = data[name]
        own = name not in ("x", "edge_index") and isinstance(value, Tensor) and value.dim() > 0
        if own and value.size(0) == columns and (name.startswith("edge_") or columns != data.num_nodes):
            made[name] = torch.cat([value[stays], _new(e, name, value, added.size(1))])
    return made


def _new(e: Explanation, name: str, value: Tensor, count: int) -> Tensor:
    """What added edges have beside their ends: what was given when they were explained, or else the commonest."""
    given = (e.context.get("spec") or {}).get("added_attributes") or {}
    row = torch.as_tensor(given[name], dtype=value.dtype) if name in given else commonest(value)
    return row.to(value.device).expand(count, *value.shape[1:])


def _apply_typed(e: Explanation, types: Types, data: HeteroData) -> HeteroData:
    """A copy of a typed graph with the edits made; an edge comes and goes with its mirror image."""
    made = copy.copy(data)
    for sort, ends, *values in e.edits:
        kind = values[-1]
        if sort == "change":
            made[kind].x = made[kind].x.clone()
            made[kind].x[ends[0], ends[1]] = values[1]
        elif len(ends) == 1:
            _take_node(e, made, kind, ends[0])
        else:
            place = types.edges.index(kind)
            _edit_edge(e, made, kind, ends, sort)
            if types.partners[place] >= 0:
                _edit_edge(e, made, types.edges[types.partners[place]], ends[::-1], sort)
    return made


def _edit_edge(e: Explanation, made: HeteroData, kind: Any, ends: tuple[int, int], sort: str) -> None:
    store = made[kind]
    tail, head = store.edge_index
    stays = torch.ones_like(tail, dtype=torch.bool) if sort == "add" else (tail != ends[0]) | (head != ends[1])
    added = torch.tensor([ends] if sort == "add" else [], dtype=torch.long, device=tail.device).reshape(-1, 2).t()
    _keep_edges(e, store, stays, added)


def _take_node(e: Explanation, made: HeteroData, kind: str, node: int) -> None:
    if "x" in made[kind]:
        made[kind].x = made[kind].x.clone()
        made[kind].x[node] = 0
    for source, relation, sink in made.edge_types:
        store = made[source, relation, sink]
        tail, head = store.edge_index
        gone = ((tail == node) & (source == kind)) | ((head == node) & (sink == kind))
        _keep_edges(e, store, ~gone, tail.new_zeros((2, 0)))


def _keep_edges(e: Explanation, store: Any, stays: Tensor, added: Tensor) -> None:
    """Some edges of a store, and further ones, with the attributes of each."""
    for name in ATTRIBUTES:
        if isinstance(store.get(name), Tensor):
            value = store[name]
            store[name] = torch.cat([value[stays], _new(e, name, value, added.size(1))])
    store.edge_index = torch.cat([store.edge_index[:, stays], added], 1)


def _kind(value: object) -> str:
    if isinstance(value, CF2Error):
        return str(value)
    return f"an object of type {type(value).__name__}"
