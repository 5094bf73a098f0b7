"""From what a browser sends to what is removed; every value is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from cf2.core.units import ADDED, CHANGED
from cf2.errors import CF2Error, require
from cf2.results.explanation import Explanation
from cf2.spec import Edit as Sort
from cf2.web.trial import Edit, checked_edits, checked_number, checked_place
from cf2.web.whatif import WhatIf

KEEPING = ("cytoscape", "units", "near", "add-edge", "change-feature", "edited")  # what goes on from what was removed


def absent(e: Explanation) -> np.ndarray:
    """Which units [units] are edits that add or change: not in the graph before they are made."""
    kinds = [kind for kind, name in enumerate(e.units.names) if name in (ADDED, CHANGED)]
    return np.isin(e.units.kind, kinds)


def removed_now(e: Explanation, cause: Any, tap: Any, checked: Any, before: Any, listed: np.ndarray) -> np.ndarray:
    """Which units are removed (or, of edits, made) after what the user did: a click, a button, or a checkbox.

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
        return np.asarray(~e.selected & ~absent(e))
    if cause not in KEEPING:
        return removed
    removed[checked_units(before, e.num_units)] = True
    if cause == "cytoscape":
        data = tap.get("data") if isinstance(tap, Mapping) else None
        unit = data.get("unit") if isinstance(data, Mapping) else None
        if unit is not None:
            removed[checked_units([unit], e.num_units)] ^= True
    elif cause == "units":
        removed[listed] = ~np.isin(listed, checked_units(checked, e.num_units)) ^ absent(e)[listed]
    return removed


def edits_now(
    asked: WhatIf, e: Explanation, cause: Any, typed: Sequence[Any], checked: Any, before: Any
) -> tuple[list[Edit], str]:
    """What is added and changed after what the user did, and what is wrong with what was typed, if anything.

    `typed` are the two ends of an edge, and a node, a column and a value; `checked` the numbers of the edits that stay.
    """
    graph = asked.graph(e.key)
    edits = checked_edits(before, graph, e.directed) if cause in KEEPING else []
    if cause == "edited":
        return [edits[place] for place in checked_units(checked, len(edits))], ""
    tail, head, node, column, value = typed
    wanted = {"add-edge": ("add", tail, head), "change-feature": ("change", node, column, value)}
    if cause not in wanted:
        return edits, ""
    try:
        return checked_edits([*edits, wanted[cause]], graph, e.directed), ""
    except CF2Error as error:
        return edits, str(error)


def state_of(asked: WhatIf, e: Explanation, units: np.ndarray, edits: Sequence[Edit] = ()) -> dict[str, Any]:
    """The current what-if with everything needed to repeat it; `units` are the numbers of those removed."""
    removed = np.zeros(e.num_units, dtype=bool)
    removed[units] = True
    found = asked.ask(e, removed)
    gone = replace(e, selected=removed)
    after = asked.ask_edited(e, removed, edits)[0].tolist() if edits else None
    return {
        "edits": [list(edit) for edit in edits],
        "after_edits": after,
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


def checked_lam(value: Any) -> float | None:
    """λ from the browser; None for an empty field."""
    return None if value in (None, "") else checked_number("λ", value)


def checked_aim(value: Any, classes: int) -> int | None:
    """The class that edits are to lead to, from the browser; None for any other than the prediction."""
    return None if value in (None, "") else checked_place("a class", value, classes)


def checked_sorts(values: Any) -> tuple[Any, ...]:
    """The sorts of edit that are allowed, from the browser."""
    known = get_args(Sort)
    good = isinstance(values, list) and all(isinstance(value, str) and value in known for value in values)
    require(
        good and len(values) > 0, f"Expected some of {', '.join(known)}", got="none" if values == [] else _kind(values)
    )
    return tuple(sort for sort in known if sort in values)


def explanation_shown(asked: WhatIf, shown: Any) -> Explanation:
    """The explanation that the page shows."""
    require(isinstance(shown, Mapping), "Expected a key and a method", got=_kind(shown))
    return asked.explanation(asked.key(shown.get("key")), shown.get("method"))


def checked_visitor(name: Any) -> str:
    """The name of a page."""
    require(isinstance(name, str) and len(name) < 40, "Expected the name of a page", got=_kind(name))
    return str(name)


def _kind(value: object) -> str:
    return type(value).__name__
