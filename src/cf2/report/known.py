"""What a picture draws of an instance: its nodes and edges, and what the context knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cf2.report.unit_words import ADDED
from cf2.results.explanation import Explanation
from cf2.results.names import entry
from cf2.results.typed import true_edges

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
        return (true_edges(e, wanted) if len(wanted) and mine else np.zeros(len(pairs), dtype=bool)), len(wanted) > 0
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
