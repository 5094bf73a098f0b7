"""An explanation as a value for every column of the user's `edge_index`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cf2.errors import CF2Error, require
from cf2.results import typed
from cf2.results.explanation import Explanation


def edge_mask(e: Explanation, edge_index: Any, soft: bool) -> Any:
    """As `Explanation.edge_mask` describes it."""
    if e.types is not None:
        values = e.scores if soft else e.selected.astype(np.float32)
        return {kind: typed.mask(e, kind, _ends(pairs), values) for kind, pairs in edge_index.items()}
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
