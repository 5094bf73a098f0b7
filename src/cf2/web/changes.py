"""From what a browser sends to what is removed; every value is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cf2.errors import require
from cf2.results.explanation import Explanation
from cf2.web.whatif import WhatIf

LARGEST = 1e9  # of any number that is typed into the page


def removed_now(e: Explanation, cause: Any, tap: Any, checked: Any, before: Any, listed: np.ndarray) -> np.ndarray:
    """Which units are removed after what the user did: a click, a button, or a checkbox.

    Parameters
    ----------
    e : Explanation
    cause : str or None
        The part of the page that the user changed.
    tap, checked, before
        From the browser: the edge that was clicked, the numbers of the units that are checked, and of those that
        were removed before.
    listed : ndarray of int
        The units that have a checkbox.

    Returns
    -------
    ndarray of bool, shape [units]
    """
    removed = np.zeros(e.num_units, dtype=bool)
    if cause == "without":
        return np.asarray(removed | e.selected)
    if cause == "only":
        return np.asarray(~e.selected)
    if cause not in ("cytoscape", "units", "near"):
        return removed
    removed[checked_units(before, e.num_units)] = True
    if cause == "cytoscape":
        data = tap.get("data") if isinstance(tap, Mapping) else None
        unit = data.get("unit") if isinstance(data, Mapping) else None
        if unit is not None:
            removed[checked_units([unit], e.num_units)] ^= True
    elif cause == "units":
        removed[listed] = True
        removed[np.intersect1d(listed, checked_units(checked, e.num_units))] = False
    return removed


def state_of(asked: WhatIf, e: Explanation, units: np.ndarray) -> dict[str, Any]:
    """The current what-if with everything needed to repeat it; `units` are the numbers of those removed."""
    removed = np.zeros(e.num_units, dtype=bool)
    removed[units] = True
    found = asked.ask(e, removed)
    gone = replace(e, selected=removed)
    return {
        "key": e.key,
        "task": e.task,
        "prediction": e.prediction,
        "class_names": asked.context.get("class_names"),
        **{f"removed_{name}": gone.chosen(name).tolist() for name in ("edges", "features", *e.units.names)},
        "probabilities": {
            "all": e.probabilities.tolist(),
            "left": found.left.tolist(),
            "removed": found.removed.tolist(),
        },
        "left": dict(zip(("sufficient", "necessary"), found.left_verdict)),
        "removed": dict(zip(("sufficient", "necessary"), found.removed_verdict)),
        "explanation": e.to_dict(),
    }


def checked_units(values: Any, count: int) -> np.ndarray:
    """Unit numbers from the browser, each checked."""
    good = isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < count for v in values
    )
    require(good, f"Expected a list of units from 0 to {count - 1}", got=f"a {type(values).__name__}")
    return np.array(sorted(set(values)), dtype=np.int64)


def checked_number(name: str, value: Any) -> float:
    """A number from the browser that a float can hold."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    got = "nothing" if value is None else repr(value)[:40]
    require(good, f"Expected {name} to be a number of at most {LARGEST:,.0f}", got=got)
    return float(value)


def checked_lam(value: Any) -> float | None:
    """λ from the browser; None for an empty field."""
    return None if value in (None, "") else checked_number("λ", value)
