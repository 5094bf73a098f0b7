"""Explanations against the known truth: accuracy, precision, recall, F1 and AUC over the edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cf2.errors import require
from cf2.results import typed
from cf2.results.explanation import Explanation

TRUTH_FIELDS = ("acc", "pr", "re", "f1")


def truth(found: Sequence[Explanation], masks: Any, data: Any = None) -> dict[str, float]:
    """Accuracy, precision, recall, F1 and AUC per instance over the edges of its receptive field, averaged.

    Parameters
    ----------
    found : sequence of Explanation
    masks : mapping from keys, or list in the order of `found`
        The true edges: pairs of node ids [n, 2], or a bool for each column of the `edge_index` of `data`; of a typed
        graph pairs by edge type. Keys without truth are left out.
    data : Data or sequence of Data, optional
        The graph, or the graphs that the keys count, for masks with a bool per column.

    Returns
    -------
    dict of str to float
        `acc`, `pr`, `re`, `f1`, `truths` (how many were compared) and `auc`, which ranks by score, leaves out instances
        in which all edges or none are true, and is not there if that leaves none.
    """
    rows = [instance_scores(e, mask, data) for e, mask in with_masks(found, masks)]
    require(len(rows) > 0, "Expected the true edges of at least one explained key in `masks`", got="none")
    table = np.array(rows)
    ranked = table[~np.isnan(table[:, 4]), 4]
    values = dict(zip(TRUTH_FIELDS, table[:, :4].mean(0).tolist()))
    return values | ({"auc": float(ranked.mean())} if len(ranked) else {}) | {"truths": len(rows)}


def true_units(e: Explanation, mask: Any, data: Any = None) -> np.ndarray:
    """Which edge units of an explanation are true, bool [edge units]; `mask` and `data` as in `truth`."""
    if e.types is not None:
        require(isinstance(mask, Mapping), f"Expected the true edges of {e.key} by edge type", got=type(mask).__name__)
        return typed.true_edges(e, mask)
    values = np.asarray(mask)
    if values.dtype == bool:
        if data is None:
            count = len(e.units.where("edges"))
            require(
                values.shape == (count,),
                f"Expected pairs of node ids, or a bool for each of the {count} edges of {e.key}",
                got=f"a mask of shape {values.shape}",
                do="For a bool per column of edge_index, pass the graph or graphs as `data`.",
            )
            return values
        graph = data if hasattr(data, "edge_index") else data[e.key]
        edge_index = np.asarray(graph.edge_index)
        require(
            values.shape == edge_index.shape[1:],
            f"Expected a bool for each of the {edge_index.shape[1]} columns of edge_index for {e.key}",
            got=f"a mask of shape {values.shape}",
        )
        values = edge_index[:, values].T
    require(
        values.size == 0 or (values.ndim == 2 and values.shape[1] == 2),
        f"Expected the true edges of {e.key} as pairs of node ids or as a bool mask",
        got=f"shape {values.shape}",
    )
    pairs = {tuple(pair) for pair in values.tolist()}
    if not e.directed:
        pairs |= {pair[::-1] for pair in pairs}
    return np.array([tuple(pair) in pairs for pair in e.units.of("edges").tolist()], dtype=bool)


def instance_scores(e: Explanation, mask: Any, data: Any = None) -> tuple[float, ...]:
    """Accuracy, precision, recall, F1 and AUC of one explanation."""
    rows = e.units.where("edges")
    true, chosen = true_units(e, mask, data), e.selected[rows]
    hits, picked, wanted = int((true & chosen).sum()), int(chosen.sum()), int(true.sum())
    accuracy = float((true == chosen).mean()) if len(true) else 1.0
    f1 = 2 * hits / (picked + wanted) if picked + wanted else 0.0
    return accuracy, hits / max(picked, 1), hits / max(wanted, 1), f1, auc(e.scores[rows], true)


def auc(scores: np.ndarray, true: np.ndarray) -> float:
    """The probability that a true edge scores above a false one, a tie counting half; NaN without both."""
    from scipy.stats import rankdata

    true = np.asarray(true, dtype=bool)
    good, bad = int(true.sum()), int((~true).sum())
    if not good or not bad:
        return float("nan")
    return float((rankdata(scores)[true].sum() - good * (good + 1) / 2) / (good * bad))


def with_masks(found: Sequence[Explanation], masks: Any) -> list[tuple[Explanation, Any]]:
    """Each explanation whose truth is known, with its mask."""
    if isinstance(masks, Mapping):
        known = {e.key: masks.get(e.key, masks.get(str(e.key))) for e in found}  # JSON has only string keys
        return [(e, known[e.key]) for e in found if known[e.key] is not None]
    require(len(masks) == len(found), f"Expected one mask per explanation, {len(found)}", got=f"{len(masks)} masks")
    return [(e, mask) for e, mask in zip(found, masks) if mask is not None]
