"""Explanation: a frozen result that says what was verified and what was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cf2.core.types import Types
from cf2.core.units import KINDS
from cf2.errors import require, unknown_name
from cf2.results import typed
from cf2.results.names import node_name
from cf2.results.unit_table import UnitTable
from cf2.spec import Key

if TYPE_CHECKING:
    import networkx


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
            return typed.edges(self, self.selected)
        pairs = self._pairs()
        return pairs if self.directed else np.concatenate([pairs, pairs[:, ::-1]])

    @property
    def features(self) -> Any:
        """The chosen feature entries [n, 2]: node and column; of a typed graph by node type."""
        entries = self.chosen("features")
        return entries if self.types is None else typed.rows(self.types, entries)

    @property
    def edits(self) -> list[tuple[Any, ...]]:
        """What a counterfactual does to the graph, one after the other; empty for other questions.

        ``("remove", (u, v))`` and ``("add", (u, v))`` are edges, ``("remove", (node,))`` a node with its edges and
        features, ``("change", (node, column), old, new)`` a feature entry. A one-hot feature that moves is two such
        changes and counts once. Of a typed graph ids are those of the type, which comes last; mirror images go along.
        """
        from cf2.results.apply import edits_of

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
        from cf2.results.apply import apply_edits

        return apply_edits(self, data)

    @property
    def nodes(self) -> Any:
        """The nodes [n] that the chosen units touch, ascending; of a typed graph by node type."""
        parts = [self._pairs().reshape(-1), self.chosen("added_edges").reshape(-1)]
        pairs = ("edges", "added_edges", "groups")
        parts += [self.chosen(name)[:, 0] for name in self.units.names if name not in pairs]
        found = np.unique(np.concatenate(parts))
        found = found[found >= 0]
        if self.types is None:
            return found
        return {name: ids[:, 0] for name, ids in typed.rows(self.types, found[:, None]).items()}

    def by_type(self) -> dict[Any, tuple[int, int]]:
        """How many units of each type were chosen, and of how many: which types carried the answer.

        By edge type, and for features by node type; an edge and its mirror image are one unit of the first of the two
        types. Empty for a graph without types.
        """
        return {} if self.types is None else typed.counts(self)

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
        from cf2.results.edge_mask import edge_mask

        return edge_mask(self, edge_index, soft)

    def to_networkx(self) -> networkx.Graph:
        """The edges that could be chosen as a networkx graph, with `score` and `chosen` on each.

        Of a typed graph nodes are (type, id), and parallel edges are told apart by their relation.
        """
        import networkx as nx

        if self.types is not None:
            return typed.to_networkx(self)
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
        from cf2.report.sentences import verdict

        return verdict(self)

    def __repr__(self) -> str:
        from cf2.report.sentences import in_short

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
        from cf2.report.figures import plot

        known = self.context if context is None else context
        shown = {"words": words, "probabilities": probabilities, "size": size}
        return plot(self, ax=ax, layout=layout, path=path, context=known, **shown)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        from cf2.report.html import explanation_html

        return explanation_html(self, self.context)


def stored_fields(kind: Any) -> list[Field[Any]]:
    """The fields that say what was found, and that a file keeps."""
    return [f for f in fields(kind) if f.metadata.get("stored", True)]
