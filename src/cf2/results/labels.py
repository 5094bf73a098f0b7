"""Labels of nodes and edges from their features: what makes two of them the same in a pattern.

>>> node_labels(np.array([[0.0, 1.0], [1.0, 0.0]]), ["C", "N"])
['N', 'C']
>>> node_labels(np.ones((2, 3)))
['', '']
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FEW = 16  # distinct rows of features that are labels of their own
BINNED = 2  # columns of any numbers that are binned


def node_labels(x: np.ndarray, names: Sequence[str] = (), prefix: str = "x") -> list[str]:
    """A label per row [n, d] of features.

    One-hot rows are called by their column, or by its name; a few distinct rows by their values; up to two columns of
    numbers by the third of the values that they lie in. Features that are constant, or too many for that, give no
    label.
    """
    x = np.asarray(x, dtype=float).reshape(len(x), -1)
    if not len(x) or not x.shape[1]:
        return [""] * len(x)
    if x.shape[1] > 1 and bool(np.isin(x, (0.0, 1.0)).all()) and bool((x.sum(1) == 1).all()):
        known = [str(names[column]) if column < len(names) else f"{prefix}{column}" for column in range(x.shape[1])]
        return [known[column] for column in x.nonzero()[1].tolist()]
    varying = np.flatnonzero(np.ptp(x, axis=0) > 0)
    if not len(varying):
        return [""] * len(x)
    if x.shape[1] > 64 and len(varying) > FEW:  # wide features: no need to sort them
        return [""] * len(x)
    distinct, place = np.unique(x[:, varying], axis=0, return_inverse=True)
    if len(distinct) <= FEW:
        return [_values(distinct[row], varying, prefix) for row in place.reshape(-1).tolist()]
    if len(varying) > BINNED:
        return [""] * len(x)
    words = np.array(["low", "middle", "high"])
    parts = []
    for column in varying:
        edges = np.quantile(x[:, column], [1 / 3, 2 / 3])
        parts.append([f"{prefix}{column} {word}" for word in words[np.searchsorted(edges, x[:, column])]])
    return [", ".join(part) for part in zip(*parts)]


def _values(row: np.ndarray, columns: np.ndarray, prefix: str) -> str:
    shown = [f"{prefix}{column}={value:g}" for column, value in zip(columns.tolist(), row.tolist())]
    return " ".join(shown if len(shown) <= 3 else [name for name, value in zip(shown, row) if value][:4] or ["0"])
