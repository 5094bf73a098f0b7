"""What a picture draws of an instance: its nodes and edges, and what the context knows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import shortest_path

from cf2.report.words import ADDED, CHANGED, atom_names, count_nouns, describe_unit
from cf2.results.explanation import Explanation
from cf2.results.names import describe_node, entry, node_name

# -- known -----------------------------------------------------------------------------------------------


PAIRS = ("edges", "groups", ADDED)  # kinds of unit whose first id is no node of its own


def is_molecule(context: Mapping[str, Any]) -> bool:
    """Whether node labels are chemical elements: of named columns, or of SMILES."""
    return bool(context.get("atoms") or context.get("smiles"))


def graph_of(e: Explanation, context: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The user's ids of all nodes, sorted; the edges as pairs of ids; and each edge's row in the units.

    Where edges are no units, the context may know them (row -1).
    """
    known = known_graph(e, context)
    units = np.concatenate([e.units.where("edges"), e.units.members[:, 0]])
    pairs = np.concatenate([e.units.of("edges"), e.units.members[:, 1:]])
    if not len(pairs) and (known.get("edges") or known.get("bonds")):
        ends = known.get("edges") or [bond[:2] for bond in known["bonds"]]
        pairs = np.asarray(ends, dtype=np.int64).reshape(-1, 2)
        pairs = np.unique(pairs if e.directed else np.sort(pairs, 1), axis=0)
        units = np.full(len(pairs), -1)
    named = [e.units.of(name)[:, 0] for name in e.units.names if name not in PAIRS]
    named += [e.chosen(ADDED).reshape(-1)]
    given = np.arange(len(known.get("labels") or ()) if e.task == "graph" else 0)
    nodes = np.unique(np.concatenate([pairs.reshape(-1), *named, target_ids(e), given])).astype(np.int64)
    return nodes[nodes >= 0], pairs, units  # a column of features belongs to no node


def target_ids(e: Explanation) -> np.ndarray:
    """The user's ids of the nodes that are explained; none where it is a whole graph."""
    ids = () if e.task == "graph" else e.key if isinstance(e.key, tuple) else (e.key,)
    ids = ids if e.types is None else e.types.flat(e.key)
    return np.array(ids, dtype=np.int64)


def known_graph(e: Explanation, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a context knows of the graph of an explanation: labels, bonds, edges, names."""
    known = entry(context.get("graphs"), e.key)
    return known if isinstance(known, Mapping) else {}


def known_truth(e: Explanation, pairs: np.ndarray, context: Mapping[str, Any]) -> tuple[np.ndarray, bool]:
    """Which edges are in the known truth, and whether there is one."""
    wanted: Any = entry(context.get("truth"), e.key)
    wanted = () if wanted is None else wanted
    if e.types is not None:
        mine = len(pairs) == len(e.units.where("edges"))  # edges that are no units have no type here
        return (e.true_edges(wanted) if len(wanted) and mine else np.zeros(len(pairs), dtype=bool)), len(wanted) > 0
    return among(pairs, wanted, e.directed), len(wanted) > 0


def among(pairs: np.ndarray, wanted: Any, directed: bool) -> np.ndarray:
    """Which pairs of ids are among the wanted ones, in either direction unless edges are directed."""
    known = {(int(u), int(v)) for u, v in wanted}
    known |= set() if directed else {(v, u) for u, v in known}
    return np.array([(u, v) in known for u, v in pairs.tolist()], dtype=bool)


class Chemistry(NamedTuple):
    """What is drawn of a molecule; each part is empty where the context has none."""

    labels: list[str]  # [n] elements
    bonds: np.ndarray  # [e] orders
    formal: list[tuple[int, int]]  # [n] charges and hydrogens


def chemistry(e: Explanation, context: Mapping[str, Any], nodes: np.ndarray, edges: np.ndarray) -> Chemistry:
    """The labels of some nodes and the bond orders of some edges."""
    known = known_graph(e, context)
    given, formal = list(known.get("labels") or ()), list(known.get("formal") or ())
    labels = [str(given[node]) if node < len(given) else "" for node in nodes] if given else []
    charged = [(int(formal[n][0]), int(formal[n][1])) if n < len(formal) else (0, 0) for n in nodes] if formal else []
    orders = {frozenset((int(u), int(v))): float(order) for u, v, order in known.get("bonds") or ()}
    if not orders:
        return Chemistry(labels, np.zeros(0), charged)
    bonds = np.array([orders.get(frozenset((int(u), int(v))), 1.0) for u, v in edges])
    return Chemistry(labels, bonds, charged)


# -- layout ----------------------------------------------------------------------------------------------


NEAR = 70  # a graph of more nodes than `LARGE` is laid out for this many around the target
LARGE = 120


def hops(edges: np.ndarray, count: int, source: int) -> np.ndarray:
    """How far every node is from `source`, as whole steps; `count` where there is no path."""
    found = shortest_path(_matrix(edges, count), directed=False, unweighted=True, indices=source)
    return np.where(np.isfinite(found), found, count).astype(np.int64)


def nearest(edges: np.ndarray, count: int, source: int, wanted: int = NEAR) -> np.ndarray:
    """The `wanted` nodes around `source`: nearer ones first, and of two as near the one with the lower id."""
    away = hops(edges, count, source)
    return np.sort(np.lexsort((np.arange(count), away))[:wanted])


def positions(edges: np.ndarray, count: int, centre: int) -> np.ndarray:
    """A point for every node; about one unit along every edge; the centre at the origin.

    Parameters
    ----------
    edges : ndarray of int, shape [edges, 2]
        Local ids below `count`.
    count, centre : int
        How many nodes there are, and the one in the middle.

    Returns
    -------
    ndarray, shape [count, 2]
    """
    if count <= LARGE:
        return _turn(_kamada_kawai(edges, count, centre), centre)
    base = nearest(edges, count, centre)
    local = np.full(count, -1)
    local[base] = np.arange(len(base))
    inner = local[edges[(local[edges] >= 0).all(1)]]
    middle = int(local[centre])
    return _attach(edges, count, base, _turn(_kamada_kawai(inner, len(base), middle), middle))


def busiest(edges: np.ndarray, count: int) -> int:
    """The node with the most edges, the first of several."""
    return int(np.bincount(edges.reshape(-1), minlength=count).argmax())


def _matrix(edges: np.ndarray, count: int) -> coo_matrix:
    ones = np.ones(len(edges))
    return coo_matrix((ones, (edges[:, 0], edges[:, 1])), shape=(count, count)).tocsr()


def _kamada_kawai(edges: np.ndarray, count: int, centre: int) -> np.ndarray:
    """Networkx's layout from rings around the centre: 30 ms for 70 nodes, 90 ms for 120."""
    import networkx as nx

    if count == 1:
        return np.zeros((1, 2))
    wanted = shortest_path(_matrix(edges, count), directed=False, unweighted=True)
    finite = wanted[np.isfinite(wanted)]
    # Parts that do not touch are drawn a little further apart than the widest part is wide.
    wanted[~np.isfinite(wanted)] = min(finite.max(initial=0.0), 4.0) + 1.5
    golden = np.arange(count) * (np.pi * (3 - np.sqrt(5)))
    radius = np.minimum(hops(edges, count, centre), wanted.max()) + 0.3
    start = radius[:, None] * np.stack([np.cos(golden), np.sin(golden)], 1)
    distances = {node: dict(enumerate(row)) for node, row in enumerate(wanted.tolist())}
    found = nx.kamada_kawai_layout(nx.empty_graph(count), dist=distances, pos=dict(enumerate(start)))
    points = np.array([found[node] for node in range(count)])
    # networkx scales what it returns to the unit square.
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    return np.asarray(points * (wanted.sum() / gaps.sum()))


def _turn(points: np.ndarray, centre: int) -> np.ndarray:
    """Turned so that the long side lies flat, and moved so that the centre is the origin."""
    middle = points - points.mean(0)
    _, axes = np.linalg.eigh(middle.T @ middle)
    turned = middle @ axes[:, ::-1]
    sign = np.where(turned[np.abs(turned).argmax(0), [0, 1]] < 0, -1.0, 1.0)
    return np.asarray((turned - turned[centre]) * sign)


def _attach(edges: np.ndarray, count: int, base: np.ndarray, placed: np.ndarray) -> np.ndarray:
    """Places for the nodes beyond the base: each one step outward from its nearest placed neighbour."""
    points = np.zeros((count, 2))
    points[base] = placed
    known = np.zeros(count, dtype=bool)
    known[base] = True
    both = np.concatenate([edges, edges[:, ::-1]])
    while True:
        reach = both[known[both[:, 0]] & ~known[both[:, 1]]]
        if not len(reach):
            break
        node, first = np.unique(reach[:, 1], return_index=True)
        parent = reach[first, 0]
        outward = np.arctan2(points[parent, 1], points[parent, 0]) + ((node * 0.618) % 1.0 - 0.5) * 2.0
        points[node] = points[parent] + np.stack([np.cos(outward), np.sin(outward)], 1)
        known[node] = True
    rest = np.flatnonzero(~known)
    radius = np.abs(points).max(initial=1.0) + 1.0
    angle = rest * 2.399963
    points[rest] = radius * np.stack([np.cos(angle), np.sin(angle)], 1)
    return points


# -- scene -----------------------------------------------------------------------------------------------


SHOWN = 120  # more nodes than this, and only the part that matters is drawn
AROUND = 48  # how many nodes around the target are then kept
# Okabe and Ito's colours, which stay apart for every common kind of colour vision.
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
EXPLANATION, TRUTH, TARGET = "#D55E00", "#009E73", "#0072B2"
NEW, OTHER = "#009E73", "#CC79A7"  # an added edge, always dashed; a node with a changed feature, always ringed
NO_EDGES = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Scene:
    """What one picture shows. Edges and marks run over the drawn part; `nodes` holds the user's ids."""

    nodes: np.ndarray  # [n] user ids
    points: np.ndarray  # [n, 2]
    edges: np.ndarray  # [e, 2] local
    chosen: np.ndarray  # [e] in the explanation
    true: np.ndarray  # [e] in the known truth
    targets: tuple[int, ...]  # local ids of what is explained, none for a whole graph
    units: np.ndarray  # [e] the edge's row in the explanation's units, -1 if it has none
    inside: np.ndarray  # [n] at a chosen edge, or chosen itself
    marked: np.ndarray  # [n] how many of the node's features are in the explanation
    labels: tuple[str, ...] = ()
    bonds: np.ndarray = field(default_factory=lambda: np.zeros(0))  # [e] bond orders, empty where unknown
    formal: tuple[tuple[int, int], ...] = ()  # [n] charges and hydrogens of atoms, empty where unknown
    names: tuple[str, ...] = ()  # [n] what the user calls the nodes, empty where nothing
    directed: bool = False
    has_truth: bool = False
    left_out: tuple[int, int] = (0, 0)  # nodes and edges that are not drawn
    kinds: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [n] types, empty without any
    kind_names: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()  # [n] ids in the types, empty without any

    def text(self, node: int) -> str:
        """The name of a node, or its id, as its user knows it."""
        if self.names and self.names[node]:
            return self.names[node]
        return str(self.ids[node] if self.ids else int(self.nodes[node]))

    def colour(self, node: int) -> str:
        """The colour of a node's type, empty where there are none."""
        return OKABE_ITO[int(self.kinds[node]) % len(OKABE_ITO)] if len(self.kinds) else ""

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The colour and the name of every type that is drawn."""
        return [(OKABE_ITO[kind % len(OKABE_ITO)], self.kind_names[kind]) for kind in np.unique(self.kinds).tolist()]

    edited: bool = False  # the chosen edges and nodes are taken away
    added: np.ndarray = field(default_factory=lambda: NO_EDGES)  # [a, 2] local, edges that are put in
    lost: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))  # [n] taken away; empty: none
    changed: Mapping[int, str] = field(default_factory=dict)  # by local id, what becomes of a node: 'C → N'

    @property
    def has_edits(self) -> bool:
        """Whether the graph is another one after the explanation is carried out."""
        return self.edited and bool(self.chosen.any() or len(self.added) or self.lost.any() or self.changed)

    @property
    def special(self) -> list[int]:
        """The local ids of the nodes whose ids a reader needs: targets, and what is in the explanation."""
        touched = {*self.changed, *self.added.reshape(-1).tolist()}
        return sorted({*self.targets, *touched, *np.flatnonzero(self.inside | (self.marked > 0)).tolist()})

    @property
    def outward(self) -> np.ndarray:
        """The direction [n, 2] away from each node's chosen edges (else upward), where its id is readable."""
        pull = np.zeros((len(self.nodes), 2))
        for a, b in [*self.edges[self.chosen].tolist(), *self.added.tolist()]:
            way = self.points[b] - self.points[a]
            way = way / max(float(np.hypot(*way)), 1e-9)
            pull[a] -= way
            pull[b] += way
        length = np.hypot(pull[:, 0], pull[:, 1])[:, None]
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


def scene(
    e: Explanation, context: Mapping[str, Any] | None = None, others: Sequence[Explanation] = (), shown: int = SHOWN
) -> Scene:
    """The picture of one explanation.

    Parameters
    ----------
    e : Explanation
    context : mapping, optional
        What is known beside it: `truth`, `atoms`, `graphs` with labels, bonds or edges by key.
    others : sequence of Explanation
        Explanations of the same instance, which are drawn beside it; what they chose is drawn here, too.
    shown : int
        The most nodes that are drawn without leaving any out.
    """
    context = context or {}
    nodes, pairs, units = graph_of(e, context)
    local = np.searchsorted(nodes, pairs)
    targets = np.searchsorted(nodes, target_ids(e))
    true, has_truth = known_truth(e, pairs, context)
    chosen = (units >= 0) & np.append(e.selected, False)[units]
    added = np.searchsorted(nodes, e.chosen(ADDED))
    important = chosen | true
    for other in others:
        important = important | among(pairs, other.chosen("edges"), e.directed)
    inside, marked = _marks(e, nodes, local[chosen])
    inside[added.reshape(-1)] = True
    keep = _kept(len(nodes), local, targets, important, inside | (marked > 0), shown)
    drawn = np.flatnonzero(keep[local].all(1))
    new = np.cumsum(keep) - 1
    labels, bonds, formal = chemistry(e, context, nodes, pairs)
    names = [node_name(e, node) for node in nodes.tolist()]
    return Scene(
        nodes=nodes[keep],
        points=places(e, context)[keep],
        edges=new[local[drawn]],
        chosen=chosen[drawn],
        true=true[drawn],
        targets=tuple(new[targets].tolist()),
        units=units[drawn],
        inside=inside[keep],
        marked=marked[keep],
        labels=tuple(label for label, kept in zip(labels, keep) if kept),
        bonds=bonds[drawn] if len(bonds) else bonds,
        formal=tuple(one for one, kept in zip(formal, keep) if kept),
        names=tuple(name for name, kept in zip(names, keep) if kept) if any(names) else (),
        directed=e.directed,
        has_truth=has_truth,
        left_out=(int((~keep).sum()), len(local) - len(drawn)),
        kinds=np.zeros(0, np.int64) if e.types is None else e.types.of(nodes[keep]),
        kind_names=() if e.types is None else e.types.nodes,
        ids=() if e.types is None else tuple(e.types.local(nodes[keep]).tolist()),
        edited=e.question == "counterfactual",
        added=new[added[keep[added].all(1)]],
        lost=_lost(e, nodes)[keep],
        changed={int(new[node]): text for node, text in _changed(e, nodes, context).items() if keep[node]},
    )


def before_and_after(shown: Scene) -> tuple[Scene, ...]:
    """Two pictures where a counterfactual edits the graph, else one; what is added is in the second one only."""
    return (replace(shown, added=NO_EDGES), after(shown)) if shown.has_edits else (shown,)


def after(before: Scene) -> Scene:
    """The picture of the graph after the edits, every node in its place; added edges are the last ones.

    What was changed is marked, but has no text any more.
    """
    stays = ~before.lost
    new = np.cumsum(stays) - 1
    kept = np.flatnonzero(~before.chosen & stays[before.edges].all(1))
    added = before.added[stays[before.added].all(1)]
    labels = list(before.labels)
    for node, text in before.changed.items():
        if labels and text.startswith(f"{labels[node]} → "):
            labels[node] = text.rsplit(" ", 1)[-1]

    def extended(values: np.ndarray, fill: Any) -> np.ndarray:
        return np.concatenate([values[kept], np.full(len(added), fill, dtype=values.dtype)]) if len(values) else values

    return replace(
        before,
        nodes=before.nodes[stays],
        points=before.points[stays],
        inside=before.inside[stays],
        marked=before.marked[stays],
        edges=new[np.concatenate([before.edges[kept], added])],
        chosen=np.zeros(len(kept) + len(added), dtype=bool),
        true=extended(before.true, False),
        units=extended(before.units, -1),
        bonds=extended(before.bonds, 1.0),
        labels=tuple(label for label, stay in zip(labels, stays) if stay),
        names=tuple(name for name, stay in zip(before.names, stays) if stay),
        ids=tuple(number for number, stay in zip(before.ids, stays) if stay),
        formal=tuple(
            (0, 0) if node in before.changed else one
            for node, (one, stay) in enumerate(zip(before.formal, stays))
            if stay
        ),
        targets=tuple(new[list(before.targets)].tolist()),
        added=new[added],
        lost=np.zeros(len(before.nodes[stays]), dtype=bool),
        changed={int(new[node]): "" for node in before.changed if stays[node]},
    )


def _lost(e: Explanation, nodes: np.ndarray) -> np.ndarray:
    """Which nodes a counterfactual takes away."""
    taken = e.chosen("nodes")[:, 0] if e.question == "counterfactual" else nodes[:0]
    return np.isin(nodes, taken)


def _changed(e: Explanation, nodes: np.ndarray, context: Mapping[str, Any]) -> dict[int, str]:
    """What becomes of nodes whose features a counterfactual changes, by their place among the nodes."""
    found: dict[int, list[str]] = {}
    rows = e.units.where(CHANGED)
    for row in rows[e.selected[rows]].tolist():
        node = int(e.units.ids[row, 0])
        text = describe_unit(e, row, atom_names(context)).removeprefix("node ").removeprefix("atom ")
        text = text.removeprefix(describe_node(e, node))[2:]  # without 'node 3, ' or 'atom 3: '
        found.setdefault(int(np.searchsorted(nodes, node)), []).append(text)
    return {node: "; ".join(texts) for node, texts in found.items()}


def _kept(
    count: int, local: np.ndarray, targets: np.ndarray, edges: np.ndarray, nodes: np.ndarray, shown: int
) -> np.ndarray:
    """Which nodes are drawn: all of a small graph; of a large one those near the target and in some set."""
    if count <= shown:
        return np.ones(count, dtype=bool)
    keep = np.zeros(count, dtype=bool)
    keep[nearest(local, count, _centre(local, count, targets), AROUND)] = True
    keep[targets] = True
    keep[local[edges].reshape(-1)] = True
    keep[np.flatnonzero(nodes)[:AROUND]] = True
    return keep


def _centre(local: np.ndarray, count: int, targets: np.ndarray) -> int:
    return int(targets[0]) if len(targets) else busiest(local, count)


def places(e: Explanation, context: Mapping[str, Any]) -> np.ndarray:
    """The place of every node of the instance; a molecule's are those that a chemist would give it."""
    nodes, pairs, _ = graph_of(e, context)
    if not len(nodes):
        return np.zeros((0, 2))
    local = np.searchsorted(nodes, pairs)
    labels, bonds, _ = chemistry(e, context, nodes, pairs)
    if labels and is_molecule(context):
        from cf2.report.molecules import coordinates

        found = coordinates(labels, local, bonds)
        if found is not None:
            return found
    centre = _centre(local, len(nodes), np.searchsorted(nodes, target_ids(e)))
    return _places(np.ascontiguousarray(local, dtype=np.int64).tobytes(), len(nodes), centre)


@lru_cache(maxsize=512)
def _places(edges: bytes, count: int, centre: int) -> np.ndarray:
    points = positions(np.frombuffer(edges, dtype=np.int64).reshape(-1, 2), count, centre)
    points.setflags(write=False)
    return points


def _marks(e: Explanation, nodes: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which nodes are in the explanation, and how many chosen units of their features each has."""
    inside, marked = np.zeros(len(nodes), dtype=bool), np.zeros(len(nodes), dtype=np.int64)
    inside[chosen.reshape(-1)] = True
    for name in e.units.names:
        ids = e.chosen(name)[:, 0]
        places = np.searchsorted(nodes, ids[ids >= 0])
        if name == "nodes":
            inside[places] = True
        elif name not in PAIRS and name != CHANGED:
            np.add.at(marked, places, 1)
    return inside, marked
