"""One explained instance as a picture's content: nodes, places, edges and what is special about each.

The figure, the report and the page all draw this, so they agree on what is shown and where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from cf2.explanation import Explanation
from cf2.report import layout
from cf2.report.words import counted

SHOWN = 120  # more nodes than this, and only the part that matters is drawn
AROUND = 48  # how many nodes around the target are then kept
# Okabe and Ito's colours, which stay apart for every common kind of colour vision.
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
EXPLANATION, TRUTH, TARGET = "#D55E00", "#009E73", "#0072B2"


@dataclass(frozen=True)
class Scene:
    """What one picture shows. Edges and marks run over the drawn part; `nodes` holds the user's ids."""

    nodes: np.ndarray  # [n] user ids
    points: np.ndarray  # [n, 2]
    edges: np.ndarray  # [e, 2] local
    chosen: np.ndarray  # [e] in the explanation
    true: np.ndarray  # [e] in the known truth
    target: int  # local id, -1 for a whole graph
    units: np.ndarray  # [e] position among the explanation's edge units
    marked: np.ndarray  # [n] how many of the node's features are in the explanation
    labels: tuple[str, ...] = ()
    bonds: np.ndarray = field(default_factory=lambda: np.zeros(0))  # [e] bond orders, empty where unknown
    directed: bool = False
    has_truth: bool = False
    left_out: tuple[int, int] = (0, 0)  # nodes and edges that are not drawn

    @property
    def outward(self) -> np.ndarray:
        """The direction [n, 2] away from each node's chosen edges (else upward), where its id is readable."""
        pull = np.zeros((len(self.nodes), 2))
        for a, b in self.edges[self.chosen].tolist():
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
        drawn = f"{len(self.nodes):,} of {counted(len(self.nodes) + nodes, 'node')}"
        drawn += f", {len(self.edges):,} of {counted(len(self.edges) + edges, 'edge')}"
        return f"Only the part that matters is drawn: {drawn}."


def scene(
    e: Explanation,
    context: Mapping[str, Any] | None = None,
    others: Sequence[Explanation] = (),
    shown: int = SHOWN,
) -> Scene:
    """The picture of one explanation; `others` explain the same instance and are drawn beside it."""
    context = context or {}
    nodes, pairs, units = _graph(e, context)
    local = np.searchsorted(nodes, pairs)
    target = int(np.searchsorted(nodes, e.key)) if e.task == "node" else -1
    true, has_truth = truth(e, pairs, context)
    chosen = _chosen(e, units)
    important = chosen | true
    for other in others:
        if len(other.unit_edges) == len(e.unit_edges):
            important = important | _chosen(other, units)
    marked = _marked(e, nodes)
    keep = _kept(nodes, local, target, important, marked, shown)
    drawn = np.flatnonzero(keep[local].all(1))
    new = np.cumsum(keep) - 1
    labels, bonds = _chemistry(e, context, nodes, pairs)
    return Scene(
        nodes=nodes[keep],
        points=places(e, context)[keep],
        edges=new[local[drawn]],
        chosen=chosen[drawn],
        true=true[drawn],
        target=int(new[target]) if target >= 0 else -1,
        units=units[drawn],
        marked=marked[keep],
        labels=tuple(label for label, kept in zip(labels, keep) if kept),
        bonds=bonds[drawn] if len(bonds) else bonds,
        directed=e.directed,
        has_truth=has_truth,
        left_out=(int((~keep).sum()), len(local) - len(drawn)),
    )


def _chosen(e: Explanation, units: np.ndarray) -> np.ndarray:
    return np.asarray(e.selected[units]) if len(e.unit_edges) else np.zeros(len(units), dtype=bool)


def _kept(
    nodes: np.ndarray, local: np.ndarray, target: int, important: np.ndarray, marked: np.ndarray, shown: int
) -> np.ndarray:
    """Which nodes are drawn: all of a small graph; of a large one those near the target and in some set."""
    if len(nodes) <= shown:
        return np.ones(len(nodes), dtype=bool)
    keep = np.zeros(len(nodes), dtype=bool)
    centre = target if target >= 0 else layout.busiest(local, len(nodes))
    keep[layout.nearest(local, len(nodes), centre, AROUND)] = True
    keep[local[important].reshape(-1)] = True
    keep[np.flatnonzero(marked)[:AROUND]] = True
    return keep


def places(e: Explanation, context: Mapping[str, Any]) -> np.ndarray:
    """The place of every node of the instance; a molecule's are those that a chemist would give it."""
    nodes, pairs, _ = _graph(e, context)
    local = np.searchsorted(nodes, pairs)
    target = int(np.searchsorted(nodes, e.key)) if e.task == "node" else -1
    labels, bonds = _chemistry(e, context, nodes, pairs)
    if labels and is_molecule(context):
        from cf2.report.molecules import coordinates

        found = coordinates(labels, local, bonds)
        if found is not None:
            return found
    return _places(np.ascontiguousarray(local, dtype=np.int64).tobytes(), len(nodes), target)


def is_molecule(context: Mapping[str, Any]) -> bool:
    """Whether node labels are chemical elements."""
    return bool(context.get("atoms"))


@lru_cache(maxsize=512)
def _places(edges: bytes, count: int, target: int) -> np.ndarray:
    points = layout.positions(np.frombuffer(edges, dtype=np.int64).reshape(-1, 2), count, target)
    points.setflags(write=False)
    return points


def _graph(e: Explanation, context: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The user's ids of all nodes, sorted; the edges as pairs of ids; and the unit of each edge.

    Where only features were masked there are no edge units, and the context may know the edges (unit -1).
    """
    known = _known(e, context)
    pairs, units = e.unit_edges.reshape(-1, 2), np.arange(len(e.unit_edges))
    if not len(pairs) and known.get("edges"):
        pairs = np.unique(np.asarray(known["edges"], dtype=np.int64).reshape(-1, 2), axis=0)
        units = np.full(len(pairs), -1)
    parts = [pairs.reshape(-1), e.unit_features[:, 0]]
    if e.task == "node":
        parts.append(np.array([e.key]))
    else:
        parts.append(np.arange(len(known.get("labels") or ())))
    return np.unique(np.concatenate(parts)).astype(np.int64), pairs, units


def _known(e: Explanation, context: Mapping[str, Any]) -> Mapping[str, Any]:
    graphs = context.get("graphs")
    known = graphs.get(str(e.key)) if isinstance(graphs, Mapping) else None
    return known if isinstance(known, Mapping) else {}


def _marked(e: Explanation, nodes: np.ndarray) -> np.ndarray:
    count = np.zeros(len(nodes), dtype=np.int64)
    if len(e.features):
        np.add.at(count, np.searchsorted(nodes, e.features[:, 0]), 1)
    return count


def truth(e: Explanation, edges: np.ndarray, context: Mapping[str, Any]) -> tuple[np.ndarray, bool]:
    """Which edges are in the known truth, and whether there is one."""
    known = context.get("truth")
    pairs = known.get(str(e.key)) if isinstance(known, Mapping) else None
    wanted = {(int(u), int(v)) for u, v in pairs or ()}
    if not e.directed:
        wanted |= {(v, u) for u, v in wanted}
    return np.array([(u, v) in wanted for u, v in edges.tolist()], dtype=bool), bool(wanted)


def _chemistry(
    e: Explanation, context: Mapping[str, Any], nodes: np.ndarray, edges: np.ndarray
) -> tuple[list[str], np.ndarray]:
    """The nodes' labels and the edges' bond orders, empty where the context has none."""
    known = _known(e, context)
    given = list(known.get("labels") or ())
    labels = [str(given[node]) if node < len(given) else "" for node in nodes] if given else []
    orders = {frozenset((int(u), int(v))): float(order) for u, v, order in known.get("bonds") or ()}
    if not orders:
        return labels, np.zeros(0)
    return labels, np.array([orders.get(frozenset((int(u), int(v))), 1.0) for u, v in edges])
