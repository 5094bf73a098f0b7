"""Counterfactuals whose edits are known, made by hand on the toys; what is said of them comes from the raw model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from cf2.results.explanation import Explanation, UnitTable
from report.explained_toys import ATOMS, NitroGroup, RedNeighbours, answer, by_hand, nitrobenzene, red_graph

CLASSES = ["mutagen", "non-mutagen"]
METHYL = "CCCCCCNCOHHHHH"  # nitrobenzene with a methyl in place of one oxygen, the other one not bound


def harmless() -> Data:
    """No mutagen: of the two N-O bonds, one atom is a carbon and one bond is missing."""
    data = nitrobenzene()
    data.x = torch.eye(4)[[ATOMS.index(atom) for atom in METHYL]]
    away = torch.tensor([{a, b} != {6, 8} for a, b in data.edge_index.t().tolist()])
    data.edge_index = data.edge_index[:, away]
    return data


def molecule_context() -> dict[str, Any]:
    return {"atoms": list(ATOMS), "class_names": CLASSES, "graphs": {"0": {"labels": list(METHYL)}}}


def edited(
    data: Data,
    node: int | None = None,
    *,
    remove: Sequence[tuple[int, int]] = (),
    add: Sequence[tuple[int, int]] = (),
    change: Sequence[tuple[int, int, int, float, float]] = (),
    **more: Any,
) -> Explanation:
    """A counterfactual with just these edits; a change is (node, column, source, old, new).

    Every edge can be removed, one more than is added could be added, and only what changes could change.
    """
    edges = np.unique(np.sort(data.edge_index.t().numpy(), 1), axis=0)
    spare = [[0, 2]]
    ids = np.concatenate([edges, spare, np.array(add).reshape(-1, 2), np.array([c[:2] for c in change]).reshape(-1, 2)])
    counts = (len(edges), 1 + len(add), len(change))
    values = np.full((len(ids), 3), -1.0)
    values[len(ids) - len(change) :] = np.array([c[2:] for c in change]).reshape(-1, 3)
    selected = np.ones(len(ids), dtype=bool)
    selected[: len(edges)] = [tuple(pair) in set(remove) for pair in edges.tolist()]
    selected[len(edges)] = False
    write = [(place, column, value) for place, column, _, _, value in change]
    write += [(place, source, 0.0) for place, _, source, _, _ in change if source >= 0]
    model = NitroGroup() if node is None else RedNeighbours()
    before, later = by_hand(model, data, node), by_hand(model, data, node, remove=remove, add=add, write=write)
    done = bool(later.argmax() != before.argmax())
    context = molecule_context() if node is None else {"class_names": ["quiet", "busy"]}
    kinds = np.repeat(np.arange(3, dtype=np.int8), counts)
    units = UnitTable(("edges", "added_edges", "changes"), kinds, ids.astype(np.int64), values)
    known = {"status": "found" if done else "not found", "method": "cf2", "context": context} | more
    known |= {"question": "counterfactual", "sufficient": False, "necessary": done}
    return answer(node, units, selected, before, before, later, **known)


def nitrated() -> Explanation:
    """The missing bond is added, the methyl becomes an oxygen, and a bond of the ring, which does not matter, goes."""
    return edited(harmless(), add=[(6, 8)], remove=[(2, 3)], change=[(7, 2, 0, 0.0, 1.0)])


def reddened() -> Explanation:
    """Node 4 is quiet; with an edge to a red node, it is busy."""
    return edited(red_graph(), 4, add=[(4, 9)], change=[(5, 1, -1, 1.0, 0.25)])
