"""Explanation: a frozen result that says what was verified and what was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from cf2.core.types import Types
from cf2.core.units import KINDS
from cf2.errors import CF2Error, require, unknown_name
from cf2.results import typed
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
        changes and counts once.
        """
        from cf2.results.apply import edits_of

        return edits_of(self)

    def apply(self, data: Any) -> Any:
        """The user's graph after the edits of a counterfactual.

        Parameters
        ----------
        data : Data
            The graph that was explained. What an added edge has beside its ends, such as `edge_attr`, is the most
            common value of the graph.

        Returns
        -------
        Data
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
        if self.types is not None:
            values = self.scores if soft else self.selected.astype(np.float32)
            return {kind: typed.mask(self, kind, _ends(pairs), values) for kind, pairs in edge_index.items()}
        rows = self.units.where("edges")
        values, units = (self.scores if soft else self.selected.astype(np.float32))[rows], self.units.ids[rows]
        tail, head = _ends(edge_index)
        if not len(values) or not len(tail):
            return np.zeros(len(tail), dtype=np.float32)
        high = max(int(units.max()), int(tail.max()), int(head.max())) + 1
        low_end, high_end = (tail, head) if self.directed else (np.minimum(tail, head), np.maximum(tail, head))
        known = units[:, 0] * high + units[:, 1]
        order = np.argsort(known)
        wanted = low_end * high + high_end
        place = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
        hit = known[order[place]] == wanted
        return np.where(hit, values[order[place]], 0.0).astype(np.float32)

    def to_networkx(self) -> networkx.Graph:
        """The edges that could be chosen as a networkx graph, with `score` and `chosen` on each.

        Of a typed graph nodes are (type, id), and parallel edges are told apart by their relation.
        """
        import networkx as nx

        if self.types is not None:
            return typed.to_networkx(self)
        graph = nx.DiGraph() if self.directed else nx.Graph()
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

    def plot(
        self,
        *,
        context: Mapping[str, Any] | None = None,
        words: bool = True,
        probabilities: bool = True,
        size: tuple[float, float] = (9.0, 4.8),
    ) -> Any:
        """Draw the graph with the explanation in bold.

        Parameters
        ----------
        context : mapping, optional
            What is known beside the explanation: `class_names`, `atoms`, `truth`.
        words, probabilities : bool
            Whether to write the verdicts below, and to draw what the model says beside it.
        size : (float, float)
            Width and height in inches.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from cf2.report.figures import plot

        return plot(self, context=context, words=words, probabilities=probabilities, size=size)

    def _repr_html_(self) -> str:
        from cf2.report.html import explanation_html

        return explanation_html(self)


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


def same_results(one: Sequence[Explanation], other: Sequence[Explanation]) -> bool:
    """Whether two lists explain the same keys with the same sets, scores, probabilities and verdicts."""
    return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other))


def _same(one: Any, other: Any) -> bool:
    for name in (f.name for f in fields(one) if f.name != "seconds"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, UnitTable):
            equal = _same(mine, theirs)
        else:
            equal = np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
        if not equal:
            return False
    return True
