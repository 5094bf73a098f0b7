"""One explanation: what there was to choose from, what was chosen, and what of that was verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from cf2.errors import CF2Error, require, unknown_name
from cf2.graphs.graph import commonest, positions_of
from cf2.graphs.typed import Types
from cf2.options import Key
from cf2.results.names import entry, node_name, typed_id
from cf2.units.edits import CHANGE, EDGE_KINDS, EDITS, REMOVE
from cf2.units.kinds import KINDS
from cf2.units.molecules import CHARGE, edited_molecule, molecule_after, smarts_of, smiles_of

if TYPE_CHECKING:
    import networkx

# The verdicts that a set must have to be called found, by question.
VERDICTS = {"why": ("sufficient", "necessary"), "factual": ("sufficient",), "counterfactual": ("necessary",)}
# How an explanation can end, and what that means: repr, tables, report, page, command line and docs say it like this.
STATUSES = {
    "found": "The set passes every test of the question.",
    "impossible": "Proved that no set passes; the closest one is given.",
    "not found": "No set that passes was found within the budget; the best one known is given.",
    "unverified": "The method does not search for a passing set; its selection was tested.",
    "not predicted": "The model does not predict the requested class, so there is nothing to explain.",
    "empty": "There is nothing of this kind to remove.",
    "refused": "There are more units than `max_units`; nothing was chosen.",
    "tie": "The prediction depends on rounding, so it is a tie and nothing is claimed.",
}
UNTYPED = ("", "", "")  # the edge type of graphs without types, where these are treated as typed ones
WHOLE = ("graph", "input")  # tasks whose key is no node: a graph, or what a function was given
MAX_NODES = 1 << 31  # of a graph without types: two ids fit into one number


@dataclass(frozen=True, eq=False)
class UnitTable:
    """The units to choose from: one row per unit, in the user's own ids.

    Attributes
    ----------
    names : tuple of str
        The kinds of unit that occur, by the names that `units=` has: ``"edges"``, ``"features"``, …
    kind : ndarray of int8, shape [units]
        The place of each unit's kind in `names`.
    ids : ndarray of int64, shape [units, 2]
        An edge is (tail, head), with the smaller id first if edges are undirected; a feature entry is
        (node, column); a node, or all features of one, is (node, -1); a column is (-1, column); a group is
        (number, -1); a change of a feature is (node, column); a unit of a function is (-1, number).
    values : ndarray of float64, shape [units, 3] or [0, 3]
        For changes: the column that a one-hot feature leaves (-1 if none), the old and the new value.
    members : ndarray of int64, shape [members, 3]
        For groups: the row of the group, and the ends of one of its edges.
    types : ndarray of int16, shape [units] or [0]
        Typed graphs only: position in `Explanation.types` of an edge's type, or of the node type of a column; else -1.
    """

    names: tuple[str, ...]
    kind: np.ndarray
    ids: np.ndarray
    values: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    members: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    types: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int16))

    def __post_init__(self) -> None:
        count = len(self.ids)
        got = ", ".join(f"{f.name} of shape {getattr(self, f.name).shape}" for f in fields(self)[1:])
        good = self.kind.shape == (count,) and self.ids.shape == (count, 2)
        require(good, "Expected a kind and two ids per unit", got=got)
        good = self.values.shape in ((count, 3), (0, 3)) and len(self.types) in (0, count)
        require(good, "Expected three values and a type per unit, or none", got=got)
        require(self.members.shape[1:] == (3,), "Expected three numbers per member of a group", got=got)

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        counts = [f"{int((self.kind == place).sum()):,} {name}" for place, name in enumerate(self.names)]
        return f"UnitTable({', '.join(counts) or 'none'})"

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


@dataclass(frozen=True, eq=False)
class Explanation:
    """An explanation of one node, graph or pair, with its verdicts.

    Attributes
    ----------
    key : int or tuple of int
        The node's id, the graph's position, or the two nodes of a pair.
    task : str
        What was explained: ``"node"``, ``"graph"`` or ``"pair"``; ``"input"`` for `cf2.explain_sets`.
    prediction : int
        The predicted class; for labels and regressions the explained column, see `value`.
    units, scores, selected : UnitTable, ndarray [units], ndarray of bool [units]
        The units to choose from, the method's scores, and which units were chosen.
    probabilities, probabilities_only, probabilities_without : ndarray, shape [classes]
        Model outputs for the whole graph, for the explanation alone, and for everything but the explanation; for a
        regression, the numbers themselves.
    sufficient, necessary : bool
        Verdicts of the two tests, on graphs from which the units were really removed.
    minimal, optimal : bool or None
        Whether no single unit can be left out; whether the set is proved to be the smallest. None: not checked. These,
        `lower_bound`, `complete` and ``impossible`` refer to sets that satisfy all options (`connected`, `keep`,
        `confidence`, …).
    lower_bound : int or None
        Proved: no set with fewer units passes. None: nothing is proved.
    rank, complete : int, bool
        Rank among the answers for this key, 0 for the best; whether these are all minimal answers.
    ps, pn, pns : tuple of float or None
        Probabilities over contexts (random parts of the graph outside of the set), as (value, low, high) with the 95 %
        interval: the answer is kept with the set (`ps`); it is lost without the set, where it was kept (`pn`); both
        (`pns`). None: not measured (see `contexts=`); also `pn` if no context keeps the answer.
    counterexample, always_bound : tuple of int or None
        Rows of `units` whose removal changes the answer although the whole set is present (the fewest found), and a
        lower bound on the size of a set that keeps the answer in every context.
    contexts, all_contexts : int, bool
        Number of measured contexts, and whether these are all contexts; the values are then exact.
    surely, curve : float or None, tuple of pairs
        The value of `surely=`, and the best PNS for each size that the search tried, as (size, PNS). The search uses
        other contexts than `pns`.
    default : bool or None
        Whether the prediction stays the same when all removable units are removed. None: not tried.
    status : str
        The outcome, one of `STATUSES`, which explains each: ``found``, ``impossible``, ``not found``, …
    note : str
        Remarks on the result.
    question : str
        ``why``, ``factual`` or ``counterfactual``.
    method, settings, seed : str, dict, int or None
        The method, its settings and the seed.
    evaluations, seconds : int, float
        Cost: model runs on one instance (a gradient counts as three), and seconds.
    directed : bool
        Whether an edge and its reverse are two units.
    label : int or None
        The true class, if known.
    target : int or None
        The class, label or column given as `target=`, if any.
    output : str
        What the model returns: ``"classes"``, ``"multilabel"`` or ``"regression"``.
    tolerance : float or None
        Regression only: outputs within ± this of `value` count as unchanged.
    types : Types or None
        Typed graphs only: the node and edge types. Ids in `units` are then ids of the flat graph, in which the nodes of
        each type are a block; `edges`, `features` and `nodes` are by type, in ids of the type.
    ranking : str
        Source of the slopes of the search: ``"gradient"``, or ``"trials"`` if the model has none.
    plain : bool or None
        Whether the tests were repeated on the whole graph by itself. False for large graphs, of which only receptive
        fields were run. None: not known.
    context : mapping
        The `context` of the `Explanations` that it belongs to, such as names and SMILES.
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
    ps: tuple[float, float, float] | None = None
    pn: tuple[float, float, float] | None = None
    pns: tuple[float, float, float] | None = None
    contexts: int = 0
    all_contexts: bool = False
    counterexample: tuple[int, ...] | None = None
    always_bound: int | None = None
    surely: float | None = None
    curve: tuple[tuple[int, float], ...] = ()
    default: bool | None = None
    output: str = "classes"
    tolerance: float | None = None
    types: Types | None = None
    ranking: str = "gradient"
    plain: bool | None = None
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
            require(not failed, "Expected status `found` only for a set that passes its tests", got=got)

    @property
    def explained(self) -> int:
        """The explained class: the `target` if given, else the prediction."""
        return self.prediction if self.target is None else self.target

    @property
    def value(self) -> float:
        """Output for the whole graph: the probability of the prediction, or the number of a regression."""
        return float(self.probabilities[self.prediction])

    @property
    def always(self) -> bool | None:
        """Whether the set keeps the answer in every context.

        True only where all contexts were tried; one in which the answer is lost is enough for False. None: not known.
        """
        if self.ps is None:
            return None
        return False if self.ps[0] < 1 else True if self.all_contexts else None

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
        ids: np.ndarray = self.units.ids[self._chosen_rows(kind)]
        return ids

    @property
    def chosen_names(self) -> list[str]:
        """Names of the chosen units, as in the summary: '3–17', 'node 3, feature 5', or the user's own names."""
        from cf2.report.words import describe_unit

        return [describe_unit(self, row) for row in np.flatnonzero(self.selected).tolist()]

    @property
    def smarts(self) -> str | None:
        """The SMARTS of the chosen atoms and bonds; None if the graph is no molecule, or without RDKit."""
        if self._smiles is None:
            return None
        bonds = None if set(self.units.names) == {"nodes"} else [(int(u), int(v)) for u, v in self.edges]
        return smarts_of(self._smiles, self.nodes.tolist(), bonds)

    @property
    def edited_smiles(self) -> str | None:
        """The SMILES of the molecule that the edits of a counterfactual make; None if it is none."""
        if self._smiles is None or self.status != "found" or not self.edits:
            return None
        return smiles_of(edited_molecule(self._smiles, self.edits, **self._chemistry))

    @property
    def charges(self) -> list[tuple[int, int, int]]:
        """The atoms whose formal charge the edits change: (atom, charge before, charge after); empty without SMILES."""
        if self._smiles is None:
            return []
        before, after = (edited_molecule(self._smiles, edits, **self._chemistry) for edits in ((), self.edits))
        charge = {atom.GetIntProp("atom"): atom.GetFormalCharge() for atom in before.GetAtoms()} if before else {}
        atoms = [(atom.GetIntProp("atom"), atom.GetFormalCharge()) for atom in after.GetAtoms()] if after else []
        return [(atom, charge[atom], now) for atom, now in atoms if charge[atom] != now]

    @property
    def _smiles(self) -> str | None:
        text = entry(self.context.get("smiles"), self.key)
        return text if isinstance(text, str) else None

    @property
    def _chemistry(self) -> dict[str, Any]:
        """What is known of the molecule beside its SMILES, as `edited_molecule` takes it."""
        labels = (entry(self.context.get("graphs"), self.key) or {}).get("labels")
        order = ((self.context.get("spec") or {}).get("added_attributes") or {}).get("bond", 1)
        return {"nodes": len(labels) if labels else None, "atoms": self.context.get("atoms") or (), "order": order}

    def _chosen_rows(self, kind: str) -> np.ndarray:
        rows = self.units.where(kind)
        chosen: np.ndarray = rows[self.selected[rows]]
        return chosen

    def _grouped_edges(self) -> np.ndarray:
        """The edges [n, 2] of chosen groups."""
        edges: np.ndarray = self.units.members[self.selected[self.units.members[:, 0]]][:, 1:]
        return edges

    def _typed_edges(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """The units that govern edges of a type, and these edges [n, 2] in flat ids: their own and mirror images."""
        assert self.types is not None
        rows, ids = self.units.where("edges"), self.units.ids
        own, mirrored = (rows[self.units.types[rows] == place] for place in (position, self.types.partners[position]))
        return np.concatenate([own, mirrored]), np.concatenate([ids[own], ids[mirrored][:, ::-1]])

    def _by_node_type(self, ids: np.ndarray) -> Any:
        """Rows [n, ·] that start with a node id; of a typed graph by node type, with the id in that type first."""
        if self.types is None:
            return ids
        kinds = self.types.of(ids[:, 0])
        local = np.concatenate([self.types.local(ids[:, :1]), ids[:, 1:]], 1)
        return {name: local[kinds == place] for place, name in enumerate(self.types.nodes) if (kinds == place).any()}

    @property
    def edges(self) -> Any:
        """The chosen edges [n, 2], also those of chosen groups; both directions if edges are undirected.

        For typed graphs, by edge type, including the reverse edges that belong to the same units.
        """
        if self.types is None:
            pairs = np.concatenate([self.chosen("edges"), self._grouped_edges()])
            return pairs if self.directed else np.concatenate([pairs, pairs[:, ::-1]])
        by_type = {}
        for position, kind in enumerate(self.types.edges):
            rows, pairs = self._typed_edges(position)
            if self.selected[rows].any():
                by_type[kind] = np.unique(self.types.local(pairs[self.selected[rows]]), axis=0)
        return by_type

    @property
    def features(self) -> Any:
        """The chosen feature entries [n, 2]: node and column; for typed graphs, by node type."""
        return self._by_node_type(self.chosen("features"))

    @property
    def nodes(self) -> Any:
        """The nodes [n] that the chosen units touch, ascending; for typed graphs, by node type."""
        parts = [self._grouped_edges().reshape(-1), *(self.chosen(name).reshape(-1) for name in EDGE_KINDS)]
        parts += [self.chosen(name)[:, 0] for name in self.units.names if name not in (*EDGE_KINDS, "groups")]
        touched = np.unique(np.concatenate(parts))
        by_type = self._by_node_type(touched[touched >= 0][:, None])
        return by_type[:, 0] if self.types is None else {name: ids[:, 0] for name, ids in by_type.items()}

    @property
    def edits(self) -> list[tuple[Any, ...]]:
        """The edits of a counterfactual, in order; empty for other questions.

        ``("remove", (u, v))`` and ``("add", (u, v))`` are edges, ``("remove", (node,))`` a node with its edges and
        rows, ``("change", (node, column), old, new)`` a feature entry. A one-hot feature that moves is two such
        changes and counts once. Of a typed graph ids are those of the type, which comes last; mirror images go along.
        """
        if self.question != "counterfactual":
            return []
        edits: list[tuple[Any, ...]] = self._edge_edits("remove", "edges")
        edits += [("remove", tuple(pair)) for pair in self._grouped_edges().tolist()]
        for node in self.chosen("nodes")[:, 0].tolist():
            number, *kind = self._node(node)
            edits.append(("remove", (number,), *kind))
        for edit in EDITS.values():
            edits += self._edge_edits(edit.name, edit.unit_kind) if edit.unit_kind and edit.pairs else []
        for name in ("features", CHANGE.unit_kind):
            for row in self._chosen_rows(name):
                (node, column), (source, old, new) = self.units.ids[row].tolist(), self.units.values[row].tolist()
                number, *kind = self._node(node)
                edits.append(("change", (number, column), old, new, *kind))
                if source >= 0:
                    edits.append(("change", (number, int(source)), 1.0, 0.0, *kind))
        return edits

    def _edge_edits(self, edit: str, name: str) -> list[tuple[Any, ...]]:
        if self.types is None:
            return [(edit, tuple(pair)) for pair in self.chosen(name).tolist()]
        kinds = self.units.types[self._chosen_rows(name)].tolist()
        pairs = self.types.local(self.chosen(name)).tolist()
        return [(edit, tuple(pair), self.types.edges[kind]) for pair, kind in zip(pairs, kinds)]

    def _node(self, node: int) -> tuple[Any, ...]:
        """A node's id, and of a typed graph its type, in whose ids it is then."""
        return (node,) if self.types is None else typed_id(self.types, node)[::-1]

    def apply(self, data: Any) -> Any:
        """The user's graph after the edits of a counterfactual.

        Parameters
        ----------
        data : Data or HeteroData
            The graph that was explained. Attributes of added edges, such as `edge_attr`, are those of
            `added_attributes`, or the most common value in the graph.

        Returns
        -------
        Data or HeteroData
            A new graph; `data` is not modified. If `data` has `smiles`, the result has the SMILES of the edited
            molecule, or None if RDKit cannot read it. `formal_charge` is the charge of every atom of a molecule, if
            elements and bonds are known. Removed nodes have no row, so later nodes move up; `n_id` is the node of
            `data` for each row.
        """
        other = [name for name in self.units.names if name in ("node_features", "columns") and len(self.chosen(name))]
        require(not other, "Expected edits of edges, nodes and feature entries", got=", ".join(other))
        given = f"an object of type {type(data).__name__}"
        if self.types is not None:
            require(isinstance(data, HeteroData), "Expected the HeteroData that was explained", got=given)
        good = self.types is not None or isinstance(getattr(data, "edge_index", None), Tensor)
        require(good, "Expected a Data object with `edge_index`", got=given)
        edited = data.clone()
        edges: dict[Any, dict[str, list[tuple[int, int]]]] = {}  # by their type, and by what is done with them
        gone: dict[Any, list[int]] = {}  # nodes by type
        for edit, ends, *values in self.edits:
            kind = None if self.types is None else values[-1]
            if len(ends) == 2 and EDITS[edit].pairs:
                for of, pair in self._mirrored(kind, ends):
                    edges.setdefault(of, {}).setdefault(edit, []).append(pair)
            elif edit == REMOVE.name:
                gone.setdefault(kind, []).append(ends[0])
            else:
                _store(edited, kind).x[ends] = values[1]
        for kind, pairs in edges.items():
            self._edit_edges(_store(edited, kind), pairs.pop(REMOVE.name, ()), [*chain(*pairs.values())])
        edited = _without_nodes(edited, gone) if gone else edited
        molecule = None
        if isinstance(getattr(data, "smiles", None), str):
            molecule = edited_molecule(data.smiles, self.edits, **self._chemistry | {"nodes": int(data.num_nodes)})
            edited.smiles = smiles_of(molecule)
        elif self.context.get("atoms") and "bond" in data:
            molecule = molecule_after(edited, data, tuple(self.context["atoms"]))
        if molecule is not None:
            edited[CHARGE] = torch.tensor([atom.GetFormalCharge() for atom in molecule.GetAtoms()])
        return edited

    def _mirrored(self, kind: Any, ends: tuple[int, int]) -> list[tuple[Any, tuple[int, int]]]:
        """An edge with its mirror image, where that comes and goes with it; each with its type."""
        if self.types is None:
            return [(kind, ends)] if self.directed else [(kind, ends), (kind, ends[::-1])]
        partner = self.types.partners[self.types.edges.index(kind)]
        return [(kind, ends)] + ([(self.types.edges[partner], ends[::-1])] if partner >= 0 else [])

    def _edit_edges(self, store: Any, removed: Any, added: Any) -> None:
        """Edit the edges of one type in a store, with their attributes."""
        tail, head = store.edge_index.cpu()
        stays = torch.ones_like(tail, dtype=torch.bool)
        for u, v in removed:
            stays &= (tail != u) | (head != v)
        given = (self.context.get("spec") or {}).get("added_attributes") or {}
        for name in store.edge_attrs():
            value = store[name]
            if name == "edge_index" or not isinstance(value, Tensor):
                continue
            store[name] = value[stays.to(value.device)]
            if added:
                row = torch.as_tensor(given[name], dtype=value.dtype) if name in given else commonest(value)
                new = row.to(value.device).expand(len(added), *value.shape[1:])
                store[name] = torch.cat([store[name], new])
        pairs = torch.tensor(added, dtype=torch.long).reshape(-1, 2).t()
        store.edge_index = torch.cat([store.edge_index.cpu()[:, stays], pairs], 1).to(store.edge_index.device)

    def by_type(self) -> dict[Any, tuple[int, int]]:
        """Number of chosen units and of all units, for each type.

        By edge type, and for features by node type. An edge and its reverse are one unit, counted for the first of the
        two types. Empty for graphs without types.
        """
        if self.types is None:
            return {}
        edges = np.isin(self.units.kind, [n for n, name in enumerate(self.units.names) if name in EDGE_KINDS])
        nodes = self.units.ids[:, 0]
        of_node = np.where(nodes >= 0, self.types.of(np.maximum(nodes, 0)), self.units.types)
        counts: dict[Any, tuple[int, int]] = {}
        for names, own, kinds in ((self.types.edges, edges, self.units.types), (self.types.nodes, ~edges, of_node)):
            for position, name in enumerate(names):
                rows = own & (kinds == position)
                if rows.any():
                    counts[name] = (int(self.selected[rows].sum()), int(rows.sum()))
        return counts

    def _coded_edges(self) -> tuple[Types, np.ndarray]:
        """Types whose `codes` give edges of the user a number each, and these numbers [edge units] of the units."""
        rows = self.units.where("edges")
        tail, head = self.units.ids[rows].T
        if self.types is not None:
            return self.types, self.types.code(self.units.types[rows], tail, head)
        types = Types(("",), (0, MAX_NODES), (UNTYPED,), (-1 if self.directed else 0,))
        return types, types.code(np.zeros(len(rows), np.int64), tail, head)

    def edge_mask(self, edge_index: Any, *, soft: bool = False) -> Any:
        """A value for every column of the user's `edge_index`.

        Parameters
        ----------
        edge_index : array-like of int, shape [2, edges]
            The edges of the explained graph; for typed graphs, the `edge_index_dict`.
        soft : bool
            Return scores instead of 0 and 1.

        Returns
        -------
        ndarray of float32, shape [edges]
            0 for edges outside the receptive field. For typed graphs, a dictionary by edge type.
        """
        types, codes = self._coded_edges()
        values = (self.scores if soft else self.selected)[self.units.where("edges")].astype(np.float32)
        values = np.append(values, np.float32(0))  # at -1, of edges that are no units
        masks = {}
        for kind, columns in ({UNTYPED: edge_index} if self.types is None else edge_index).items():
            ends = _ends(columns)
            masks[kind] = np.zeros(ends.shape[1], np.float32)
            if kind in types.edges:
                wanted = types.codes({kind: ends.T})
                masks[kind] = values[positions_of(torch.from_numpy(codes), torch.from_numpy(wanted)).numpy()]
        return masks[UNTYPED] if self.types is None else masks

    def true_edges(self, known: Any) -> np.ndarray:
        """Which edge units are among true edges, bool [edge units]; pairs [n, 2], for typed graphs by edge type."""
        types, codes = self._coded_edges()
        return np.isin(codes, types.codes({UNTYPED: known} if self.types is None else known))

    def to_networkx(self) -> networkx.Graph:
        """The edge units as a networkx graph, with `score` and `chosen` on each edge.

        In typed graphs, nodes are (type, id), and the relation is the key of parallel edges.
        """
        import networkx as nx

        def facts(row: int) -> dict[str, Any]:
            return {"score": float(self.scores[row]), "chosen": bool(self.selected[row])}

        if self.types is None:
            graph = nx.DiGraph() if self.directed else nx.Graph()
            for node in np.unique(self.units.of("edges")).tolist():
                name = node_name(self, node)
                graph.add_node(node, **({"name": name} if name else {}))
            for row in self.units.where("edges"):
                graph.add_edge(*self.units.ids[row].tolist(), **facts(row))
            return graph
        graph = nx.MultiDiGraph()
        for position, (source, relation, sink) in enumerate(self.types.edges):
            rows, pairs = self._typed_edges(position)
            for row, (tail, head) in zip(rows, self.types.local(pairs).tolist()):
                graph.add_edge((source, tail), (sink, head), key=relation, **facts(row))
        return graph

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON. To write files, use `Explanations.save`."""
        from cf2.results.files import to_dict

        return to_dict(self)

    def summary(self) -> str:
        """The verdicts in words."""
        from cf2.report.words import verdict

        return verdict(self)

    def __repr__(self) -> str:
        from cf2.report.words import in_short

        return f"<Explanation of {in_short(self)}>"

    def plot(
        self,
        kind: str = "auto",
        model: Any = None,
        data: Any = None,
        *,
        ax: Any = None,
        layout: Any = None,
        path: str | Path | None = None,
        context: Mapping[str, Any] | None = None,
        words: bool = True,
        probabilities: bool = True,
        size: tuple[float, float] = (9.0, 4.8),
    ) -> Any:
        """Draw the graph with the explanation in bold, its decision strip, or the curve of a sure set.

        A notebook shows it.

        Parameters
        ----------
        kind : {"auto", "graph", "strip", "curve"}
            graph: the graph. strip: one bar per unit, and the margin of the prediction while the units of the set are
            removed one by one, and added one by one to an empty graph. curve: size against PNS for the sets met by the
            search for `surely`. auto: the strip if there are no edges to draw, else the graph.
        model, data : optional
            For a strip: the explained model and data; for `explain_sets`, its `f` and `n`. Without them, the strip
            shows the scores and the three stored outputs.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; only the graph is drawn.
        layout : points by node, or function that gives them, optional
            Positions of the nodes, or a function that returns them, such as networkx.circular_layout. Default: the
            layout of cf2.
        path : str or Path, optional
            Also write the picture to this file, .png, .svg or .pdf.
        context : mapping, optional
            Further information: `class_names`, `atoms`, `truth`. Default: the explanation's `context`.
        words, probabilities : bool
            Whether to show the verdicts below the graph, and the probabilities beside it.
        size : (float, float)
            Width and height in inches.

        Returns
        -------
        matplotlib.figure.Figure or Axes
            The axes if `ax` was given.
        """
        from cf2.report.pictures import plot
        from cf2.report.plots import curve, strip

        kinds = ("auto", "graph", "strip", "curve")
        if kind not in kinds:
            raise unknown_name("`kind` of plot", kind, kinds)
        if kind == "curve":
            return curve(self, ax, path, size)
        bare = self.size and not (self.context.get("graphs") or layout or ax) and self.units.names == ("features",)
        if kind == "strip" or (kind == "auto" and bare):
            return strip(self, model, data, path=path, size=size)
        shown: dict[str, Any] = {"context": context, "words": words, "probabilities": probabilities, "size": size}
        return plot(self, ax=ax, layout=layout, path=path, **shown)

    def _repr_html_(self) -> str:
        from cf2.report.html import explanation_html

        return explanation_html(self)


def stored_fields(kind: Any) -> list[Field[Any]]:
    """The fields that say what was found, and that a file keeps."""
    return [f for f in fields(kind) if f.metadata.get("stored", True)]


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


def _without_nodes(data: Any, gone: Mapping[Any, list[int]]) -> Any:
    """A graph without some nodes of each type, and without their edges; `n_id` says which each node was."""
    stays, device = {}, data.edge_stores[0].edge_index.device
    for kind in data.node_types if isinstance(data, HeteroData) else [None]:
        stays[kind] = torch.ones(_store(data, kind).num_nodes, dtype=torch.bool, device=device)
        stays[kind][gone.get(kind, [])] = False
    left = data.subgraph(stays if isinstance(data, HeteroData) else stays[None])
    for kind in gone:
        store, rows = _store(left, kind), stays[kind].nonzero().flatten().cpu()
        store.num_nodes, store.n_id = len(rows), rows
    return left


def _store(data: Any, kind: Any) -> Any:
    """What a graph has of a type of nodes or edges; the graph itself where it has no types."""
    return data if kind is None else data[kind]
