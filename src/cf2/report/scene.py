"""What a picture draws of an explanation, and where. SVG and matplotlib draw the same scene with the same looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import shortest_path

from cf2.report.words import count_nouns, describe_unit
from cf2.results.explanation import WHOLE, Explanation
from cf2.results.names import describe_node, entry, node_name
from cf2.units.edits import ADD, CHANGE, EDGE_KINDS, EDITS, REMOVE, EditKind, is_candidate

MAX_NODES = 120  # of a larger graph only the part that matters is drawn; more nodes get a faster, rougher layout
MAX_NODES_AROUND = 48  # nodes around the target that are then drawn
MAX_NODES_TOUCHED = 300  # nodes of the explanations that are then drawn, the nearest ones
MAX_LABELLED = 60  # nodes of a picture in which all labels can be read
MAX_NAMED = 24  # nodes whose ids are written beside them
PAIRS = (*EDGE_KINDS, "groups")  # kinds of unit whose first id is no node of its own
# Okabe and Ito's colours, which stay apart for every common kind of colour vision.
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
EXPLANATION, TRUTH, TARGET, MARKED, NODE = "#D55E00", "#009E73", "#0072B2", "#F0E442", "#9aa1ac"
MOLECULE = "#56B4E9"  # the explanation of a molecule, whose oxygen has the colour of other explanations
NO_EDGES = np.zeros((0, 2), dtype=np.int64)


class Look(NamedTuple):
    """How a line is drawn."""

    colour: str
    width: float  # in pixels
    opacity: float = 1.0
    dash: tuple[float, float] | None = None  # in pixels


LOOKS = {
    "true": Look(TRUTH, 9, 0.42),
    "edge": Look("#8a8f98", 1.1, 0.55),
    "chosen": Look(EXPLANATION, 3.4),
    "bond": Look(MOLECULE, 10, 0.62),
    "bond-true": Look(TRUTH, 19, 0.35),  # wider, to be seen behind
    "target": Look(TARGET, 2.6),
    **{edit.past: Look(edit.colour, edit.width, 1.0, edit.dash) for edit in EDITS.values()},
}


@dataclass(frozen=True)
class Scene:
    """What one picture shows. Edges and marks run over the drawn part; `nodes` holds the user's ids."""

    nodes: np.ndarray  # [n] ids in the table of units
    texts: tuple[str, ...]  # [n] names, or ids as the user knows them
    points: np.ndarray  # [n, 2]
    edges: np.ndarray  # [e, 2] local
    chosen: np.ndarray  # [e] in the explanation
    true: np.ndarray  # [e] in the known truth
    targets: tuple[int, ...]  # local ids of what is explained, none for a whole graph
    units: np.ndarray  # [e] the edge's row in the explanation's units, -1 if it has none
    inside: np.ndarray  # [n] at a chosen edge, or chosen itself
    marked: np.ndarray  # [n] how many of the node's features are in the explanation
    molecule: bool = False  # whether labels are elements, and bonds are drawn as chemists do
    labels: tuple[str, ...] = ()  # [n] of molecules the elements; empty where there are none
    bonds: np.ndarray = field(default_factory=lambda: np.zeros(0))  # [e] bond orders, empty where unknown
    formal: tuple[tuple[int, int], ...] = ()  # [n] charges and hydrogens of atoms, empty where unknown
    directed: bool = False
    left_out: tuple[int, int] = (0, 0)  # nodes and edges that are not drawn
    kinds: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [n] types, empty without any
    kind_names: tuple[str, ...] = ()
    edited: bool = False  # the chosen edges and nodes are taken away
    added: np.ndarray = field(default_factory=lambda: NO_EDGES)  # [a, 2] local, edges that are put in
    lost: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))  # [n] taken away; empty: none
    changed: Mapping[int, str] = field(default_factory=dict)  # by local id, what becomes of a node: 'C → N'
    node_units: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [n] rows; empty: none
    added_units: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [a] rows, -1 for none

    def pair_text(self, tail: int, head: int) -> str:
        """An edge as its user knows it."""
        return f"{self.texts[tail]}{'→' if self.directed else '–'}{self.texts[head]}"

    def fill(self, node: int) -> str:
        """The colour that a node is filled with: that of its type, where there are types."""
        if len(self.kinds):
            return OKABE_ITO[int(self.kinds[node]) % len(OKABE_ITO)]
        return MARKED if self.marked[node] else EXPLANATION if self.inside[node] else NODE

    def border(self, node: int) -> float:
        """How wide the border of a node is, which says of a typed one that it is in the explanation."""
        return 2.0 * bool(len(self.kinds) and (self.inside[node] or self.marked[node]))

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The colour and the name of every type that is drawn."""
        return [(OKABE_ITO[kind % len(OKABE_ITO)], self.kind_names[kind]) for kind in np.unique(self.kinds).tolist()]

    @property
    def lines(self) -> list[tuple[str, np.ndarray]]:
        """The edges [·, 2] of each look, those further back first."""
        taken = REMOVE.past if self.edited else "chosen"
        plain, chosen = self.edges[~self.chosen], self.edges[self.chosen]
        return [("true", self.edges[self.true]), ("edge", plain), (taken, chosen), (ADD.past, self.added)]

    @property
    def rings(self) -> list[tuple[str, int, int]]:
        """The look, the node and the place, from the inside, of every ring around a node."""
        changed = [(CHANGE.past, node, 2 if node in self.targets else 1) for node in self.changed]
        return [("target", node, 1) for node in self.targets] + changed

    def crosses(self, at: np.ndarray) -> np.ndarray:
        """Where [·, 2] something is taken away, with nodes at [n, 2]: a cross is seen without colours, too."""
        if not self.edited:
            return np.zeros((0, 2))
        return np.concatenate([at[self.edges[self.chosen]].mean(1).reshape(-1, 2), at[np.flatnonzero(self.lost)]])

    @property
    def labelled(self) -> bool:
        """Whether nodes have labels that can be read."""
        return bool(self.labels) and len(self.nodes) <= MAX_LABELLED

    @property
    def named(self) -> list[int]:
        """The nodes whose ids are written beside them."""
        return [] if self.labelled or len(self.special) > MAX_NAMED else self.special

    @property
    def has_edits(self) -> bool:
        """Whether the graph is another one after the explanation is carried out."""
        return self.edited and bool(self.edit_kinds)

    @property
    def edit_kinds(self) -> list[EditKind]:
        """The kinds of edit that are drawn."""
        removed = self.edited and bool(self.chosen.any() or self.lost.any())
        drawn = {REMOVE.name: removed, ADD.name: len(self.added), CHANGE.name: self.changed}
        return [EDITS[name] for name, some in drawn.items() if some]

    @property
    def special(self) -> list[int]:
        """The local ids of the nodes whose ids a reader needs: targets, and what is in the explanation."""
        touched = {*self.changed, *self.added.reshape(-1).tolist()}
        return sorted({*self.targets, *touched, *np.flatnonzero(self.inside | (self.marked > 0)).tolist()})

    @property
    def outward(self) -> np.ndarray:
        """The direction [n, 2] away from each node's chosen edges (else upward), where its id is readable."""
        pull = np.zeros((len(self.nodes), 2))
        ends = np.concatenate([self.edges[self.chosen], self.added])
        way = self.points[ends[:, 1]] - self.points[ends[:, 0]]
        way = way / np.maximum(np.hypot(*way.T)[:, None], 1e-9)
        np.subtract.at(pull, ends[:, 0], way)
        np.add.at(pull, ends[:, 1], way)
        length = np.hypot(*pull.T)[:, None]
        return np.asarray(np.where(length > 0.3, pull / np.maximum(length, 1e-9), [0.0, 1.0]))

    @property
    def caption(self) -> str:
        """What is not drawn, if anything."""
        nodes, edges = self.left_out
        if not len(self.edges) and not edges and len(self.nodes) > 1:
            return "Edges were not part of the question and are not drawn."
        if not nodes and not edges:
            return ""
        drawn = f"{len(self.nodes):,} of {count_nouns(len(self.nodes) + nodes, 'node')}"
        drawn += f", {len(self.edges):,} of {count_nouns(len(self.edges) + edges, 'edge')}"
        return f"Only the part that matters is drawn: {drawn}."

    def with_edges(self, keep: np.ndarray) -> Scene:
        """The scene with some of its edges [e, bool], and all nodes."""
        return replace(self, **{name: _some(getattr(self, name), keep) for name in OF_EDGES})

    def part(self, keep: np.ndarray) -> Scene:
        """The scene with some of its nodes [n, bool] and the edges between them."""
        new, added = np.cumsum(keep) - 1, keep[self.added].all(1)
        inside = self.with_edges(keep[self.edges].all(1))
        return replace(
            inside,
            **{name: _some(getattr(self, name), keep) for name in OF_NODES},
            edges=new[inside.edges],
            added=new[self.added[added]],
            added_units=_some(self.added_units, added),
            targets=tuple(new[list(self.targets)].tolist()),
            changed={int(new[node]): text for node, text in self.changed.items() if keep[node]},
        )


# The fields of a scene that have a value for every node or edge, or none at all.
OF_NODES = ("nodes", "texts", "points", "inside", "marked", "labels", "formal", "kinds", "lost", "node_units")
OF_EDGES = ("edges", "chosen", "true", "units", "bonds")


def _some(values: Any, keep: np.ndarray) -> Any:
    """The values that are kept; none of what there is none of."""
    return tuple(compress(values, keep)) if isinstance(values, tuple) else values[keep] if len(values) else values


def scene(e: Explanation, others: Sequence[Explanation] = ()) -> Scene:
    """The picture of one explanation, whose context may hold the `truth`, `atoms`, and labels, bonds or edges.

    `others` explain the same instance and are drawn beside it, so what they chose is drawn here, too.
    """
    graph: Mapping[str, Any] = entry(e.context.get("graphs"), e.key) or {}
    nodes, pairs, units = _graph(e, graph)
    edges, targets = np.searchsorted(nodes, pairs), np.searchsorted(nodes, _target_ids(e))
    chosen = (units >= 0) & np.append(e.selected, False)[units]
    added = np.searchsorted(nodes, e.chosen(ADD.unit_kind))
    inside, marked = _marks(e, nodes, np.concatenate([edges[chosen], added]))
    labels, bonds, formal = _chemistry(graph, nodes, pairs)
    ids = (nodes if e.types is None else e.types.local(nodes)).tolist()
    drawn = Scene(
        nodes=nodes,
        texts=tuple(node_name(e, node) or str(number) for node, number in zip(nodes.tolist(), ids)),
        points=np.zeros((len(nodes), 2)),
        edges=edges,
        chosen=chosen,
        true=_truth(e, pairs),
        targets=tuple(targets.tolist()),
        units=units,
        inside=inside,
        marked=marked,
        molecule=is_molecule(e.context),
        labels=tuple(labels),
        bonds=bonds,
        formal=tuple(formal),
        directed=e.directed,
        kinds=np.zeros(0, np.int64) if e.types is None else e.types.of(nodes),
        kind_names=() if e.types is None else e.types.nodes,
        edited=e.question == "counterfactual",
        added=added,
        added_units=_chosen_rows(e, ADD.unit_kind),
        node_units=_node_units(e, nodes),
        lost=np.isin(nodes, e.chosen("nodes")[:, 0]) & (e.question == "counterfactual"),
        changed=_changed(e, nodes),
    )
    drawn = _cropped(drawn, (e, *others)) if len(nodes) > MAX_NODES else drawn
    points = None
    if labels and drawn.molecule:  # where a chemist would put the atoms
        from cf2.report.molecules import coordinates

        points = coordinates(drawn.labels, drawn.edges, drawn.bonds)
    if points is None:
        points = _placed(drawn.edges, drawn.added, len(drawn.nodes), _centre(drawn))
    return replace(drawn, points=points)


def _centre(drawn: Scene) -> int:
    """The node in the middle: what is explained, of a whole graph the node with the most edges."""
    return drawn.targets[0] if drawn.targets else busiest(drawn.edges, len(drawn.nodes)) if len(drawn.nodes) else 0


def _cropped(whole: Scene, explanations: Sequence[Explanation]) -> Scene:
    """The part of a large graph that matters: the surroundings of the target, the truth, and what was chosen.

    It is the same part for all explanations of an instance that are drawn together, so they share one layout.
    """
    ids = [e.chosen(name)[:, : 2 if name in EDGE_KINDS else 1] for e in explanations for name in e.units.names]
    touched = np.isin(whole.nodes, np.concatenate([part.reshape(-1) for part in ids]))
    touched[whole.edges[whole.chosen | whole.true].reshape(-1)] = True
    distance = _distances(whole.edges, len(whole.nodes), _centre(whole))
    near = np.argsort(distance, kind="stable")
    around = near[np.isfinite(distance[near])][:MAX_NODES_AROUND]  # a model that mixes all nodes has others, too
    keep = np.zeros(len(whole.nodes), dtype=bool)
    keep[[*whole.targets, *around, *near[touched[near]][:MAX_NODES_TOUCHED]]] = True
    drawn = whole.part(keep)
    return replace(drawn, left_out=(int((~keep).sum()), len(whole.edges) - len(drawn.edges)))


def before_and_after(shown: Scene) -> tuple[Scene, ...]:
    """Two pictures where a counterfactual edits the graph, else one; what is added is in the second one only."""
    return (replace(shown, added=NO_EDGES), after(shown)) if shown.has_edits else (shown,)


def after(before: Scene) -> Scene:
    """The picture of the graph after the edits, every node in its place; added edges are the last ones.

    What was changed is marked, but has no text any more.
    """
    labels = list(before.labels)
    for node, text in before.changed.items():
        if labels and text.startswith(f"{labels[node]} → "):
            labels[node] = text.rsplit(" ", 1)[-1]

    def extended(values: np.ndarray, fill: Any) -> np.ndarray:
        return np.concatenate([values, np.full(len(before.added), fill, dtype=values.dtype)])

    stays = before.with_edges(~before.chosen)
    later = replace(
        stays,
        edges=np.concatenate([stays.edges, before.added]),
        chosen=extended(stays.chosen, False),
        true=extended(stays.true, False),
        units=extended(stays.units, -1),
        bonds=extended(stays.bonds, 1.0) if len(before.bonds) else before.bonds,
        labels=tuple(labels),
        formal=tuple((0, 0) if node in before.changed else both for node, both in enumerate(before.formal)),
        changed=dict.fromkeys(before.changed, ""),
    )
    return later.part(~before.lost)


def is_molecule(context: Mapping[str, Any]) -> bool:
    """Whether node labels are chemical elements: of named columns, or of SMILES."""
    return bool(context.get("atoms") or context.get("smiles"))


def _graph(e: Explanation, graph: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The user's ids of all nodes, sorted; the edges as pairs of ids; and each edge's row in the units.

    Where edges are no units, the context may know them (row -1).
    """
    units = np.concatenate([e.units.where("edges"), e.units.members[:, 0]])
    pairs = np.concatenate([e.units.of("edges"), e.units.members[:, 1:]])
    if not len(pairs) and (graph.get("edges") or graph.get("bonds")):
        ends = graph.get("edges") or [bond[:2] for bond in graph["bonds"]]
        pairs = np.asarray(ends, dtype=np.int64).reshape(-1, 2)
        pairs = np.unique(pairs if e.directed else np.sort(pairs, 1), axis=0)
        units = np.full(len(pairs), -1)
    parts = [e.units.of(name)[:, 0] for name in e.units.names if name not in PAIRS]
    labelled = np.arange(len(graph.get("labels") or ()) if e.task == "graph" else 0)
    parts += [pairs.reshape(-1), e.chosen(ADD.unit_kind).reshape(-1), _target_ids(e), labelled]
    nodes = np.unique(np.concatenate(parts)).astype(np.int64)
    return nodes[nodes >= 0], pairs, units  # a column of features belongs to no node


def _chosen_rows(e: Explanation, name: str) -> np.ndarray:
    rows: np.ndarray = e.units.where(name)
    return np.asarray(rows[e.selected[rows]])


def _node_units(e: Explanation, nodes: np.ndarray) -> np.ndarray:
    """The row of each node's unit, -1 for one that has none."""
    rows = e.units.where("nodes")
    units = np.full(len(nodes), -1)
    units[np.searchsorted(nodes, e.units.ids[rows, 0])] = rows
    return units


def _target_ids(e: Explanation) -> np.ndarray:
    """The user's ids of the nodes that are explained; none where it is a whole graph."""
    ids = () if e.task in WHOLE else e.key if isinstance(e.key, tuple) else (e.key,)
    return np.array(ids if e.types is None else e.types.flat(e.key), dtype=np.int64)


def _truth(e: Explanation, pairs: np.ndarray) -> np.ndarray:
    """Which edges are in the known truth, in either direction unless edges are directed."""
    truth = entry(e.context.get("truth"), e.key)
    if truth is None or not len(truth):
        return np.zeros(len(pairs), dtype=bool)
    if e.types is not None:  # edges that are no units have no type here
        return e.true_edges(truth) if len(pairs) == len(e.units.where("edges")) else np.zeros(len(pairs), dtype=bool)
    true = {(int(u), int(v)) for u, v in truth}
    true |= set() if e.directed else {(v, u) for u, v in true}
    return np.array([(u, v) in true for u, v in pairs.tolist()], dtype=bool)


def _marks(e: Explanation, nodes: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which nodes are in the explanation, and how many chosen units of their features each has."""
    inside, marked = np.zeros(len(nodes), dtype=bool), np.zeros(len(nodes), dtype=np.int64)
    inside[chosen.reshape(-1)] = True
    for name in e.units.names:
        ids = e.chosen(name)[:, 0]
        positions = np.searchsorted(nodes, ids[ids >= 0])
        if name == "nodes":
            inside[positions] = True
        elif name not in PAIRS and not is_candidate(name):
            np.add.at(marked, positions, 1)
    return inside, marked


def _changed(e: Explanation, nodes: np.ndarray) -> dict[int, str]:
    """What becomes of nodes whose features a counterfactual changes, by their place among the nodes."""
    found: dict[int, list[str]] = {}
    for row in _chosen_rows(e, CHANGE.unit_kind).tolist():
        node = int(e.units.ids[row, 0])
        text = describe_unit(e, row).removeprefix("node ").removeprefix("atom ")
        text = text.removeprefix(describe_node(e, node))[2:]  # without 'node 3, ' or 'atom 3: '
        found.setdefault(int(np.searchsorted(nodes, node)), []).append(text)
    return {node: "; ".join(texts) for node, texts in found.items()}


def _chemistry(
    graph: Mapping[str, Any], nodes: np.ndarray, pairs: np.ndarray
) -> tuple[list[str], np.ndarray, list[tuple[int, int]]]:
    """Labels [n], bond orders [e], and charges with hydrogens [n]; each is empty where the context has none."""
    given, formal = list(graph.get("labels") or ()), list(graph.get("formal") or ())
    labels = [str(given[node]) if node < len(given) else "" for node in nodes] if given else []
    charged = [(int(formal[n][0]), int(formal[n][1])) if n < len(formal) else (0, 0) for n in nodes] if formal else []
    orders = {frozenset((int(u), int(v))): float(order) for u, v, order in graph.get("bonds") or ()}
    bonds = [orders.get(frozenset((int(u), int(v))), 1.0) for u, v in pairs] if orders else []
    return labels, np.array(bonds, dtype=float), charged


def _placed(edges: np.ndarray, added: np.ndarray, count: int, centre: int) -> np.ndarray:
    """Points [count, 2]. A node that only added edges reach is placed beside their other end, after all others.

    So the picture after an edit has every old node where it was before.
    """
    if not count:
        return np.zeros((0, 2))
    new = np.zeros(count, dtype=bool)
    new[added] = True
    new[edges], new[centre] = False, False
    local = np.cumsum(~new) - 1
    points = np.full((count, 2), np.nan)
    points[~new] = _points(local[edges].astype(np.int64).tobytes(), int((~new).sum()), int(local[centre]))
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    for tail, head in [*added.tolist(), *added[:, ::-1].tolist()]:
        if np.isnan(points[head, 0]) and not np.isnan(points[tail, 0]):
            around = points[tail] + 0.8 * np.stack([np.cos(angles), np.sin(angles)], 1)
            gaps = np.linalg.norm(around[:, None] - points[~np.isnan(points[:, 0])], axis=2)
            points[head] = around[gaps.min(1).argmax()]
    return np.asarray(np.nan_to_num(points))  # two new ends of one edge lie at the origin


@lru_cache(maxsize=512)
def _points(edges: bytes, count: int, centre: int) -> np.ndarray:
    """`positions`, the same for every picture of an instance."""
    points = positions(np.frombuffer(edges, dtype=np.int64).reshape(-1, 2), count, centre)
    points.setflags(write=False)
    return points


def positions(edges: np.ndarray, count: int, centre: int) -> np.ndarray:
    """A point [count, 2] for every node; about one unit along every edge; the centre at the origin."""
    import networkx as nx

    if count < 2:
        return np.zeros((count, 2))
    wanted = _distances(edges, count)
    # Parts that do not touch are drawn a little further apart than the widest part is wide.
    wanted[~np.isfinite(wanted)] = min(wanted[np.isfinite(wanted)].max(), 4.0) + 1.5
    golden = np.arange(count) * (np.pi * (3 - np.sqrt(5)))
    start = (wanted[centre] + 0.3)[:, None] * np.stack([np.cos(golden), np.sin(golden)], 1)
    if count <= MAX_NODES:  # 30 ms for 70 nodes, 90 ms for 120
        distances = {node: dict(enumerate(row)) for node, row in enumerate(wanted.tolist())}
        found = nx.kamada_kawai_layout(nx.empty_graph(count), dist=distances, pos=dict(enumerate(start)))
    else:
        graph = nx.empty_graph(count)
        graph.add_edges_from(edges.tolist())
        found = nx.spring_layout(graph, pos=dict(enumerate(start / start.max())), seed=0)
    points = np.array([found[node] for node in range(count)])
    # networkx scales what it returns to the unit square.
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    return _turned(points * (wanted.sum() / gaps.sum()), centre)


def busiest(edges: np.ndarray, count: int) -> int:
    """The node with the most edges, the first of several."""
    return int(np.bincount(edges.reshape(-1), minlength=count).argmax())


def _distances(edges: np.ndarray, count: int, source: int | None = None) -> np.ndarray:
    """How many steps nodes are from each other, or from a source; infinitely many where there is no path."""
    matrix = coo_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count)).tocsr()
    return np.asarray(shortest_path(matrix, directed=False, unweighted=True, indices=source))


def _turned(points: np.ndarray, centre: int) -> np.ndarray:
    """Turned so that the long side lies flat, and moved so that the centre is the origin."""
    middle = points - points.mean(0)
    _, axes = np.linalg.eigh(middle.T @ middle)
    turned = middle @ axes[:, ::-1]
    sign = np.where(turned[np.abs(turned).argmax(0), [0, 1]] < 0, -1.0, 1.0)
    return np.asarray((turned - turned[centre]) * sign)
