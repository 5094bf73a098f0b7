"""What a file of explanations may hold: looked at before it is read, and checked when it is.

A file may come from a stranger, or have been damaged on its way. Sizes that it merely claims take no memory, and what
is not what was written is an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cf2.errors import CF2Error, require
from cf2.results.explanation import Explanation
from cf2.results.pages import count_held

MOST_JSON = 512 << 20  # bytes of a JSON document
MOST_FILE = 4 << 30  # bytes of a Parquet file, and of what it says that it holds unpacked
MOST_ROWS = 10**7  # explanations
MOST_VALUES = 2 * 10**8  # numbers in one column


def check_size(path: Path) -> None:
    """Refuse a Parquet file whose footer or pages claim too much of anything."""
    held = count_held(path)
    sizes = (
        (held.rows, MOST_ROWS, "rows"),
        (held.values, MOST_VALUES, "numbers in a column"),
        (held.unpacked, MOST_FILE, "bytes unpacked"),
    )
    for size, most, what in sizes:
        require(size <= most, f"Expected {str(path)!r} to hold at most {most:,} {what}", got=f"{size:,}")


def check_columns(schema: Any, types: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Refuse a Parquet file with other columns than one of `types` has."""
    held = {name: schema.field(name).type for name in set(schema.names)}
    if len(schema.names) != len(held) or held not in types:
        wrong = {name for name, kind in types[0].items() if held.get(name) != kind} | (held.keys() - types[0].keys())
        named = f"other columns: {', '.join(sorted(wrong)[:5])}"
        raise CF2Error(f"Expected {str(path)!r} to hold explanations", got=named)


def digest(about: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> str:
    """A SHA-256 of what a file holds, in whatever form: arrays by their bytes, the rest as JSON."""
    made = hashlib.sha256(json.dumps(about).encode())
    for name, values in columns.items():
        if values and isinstance(values[0], np.ndarray):
            made.update(f"{name} {[len(value) for value in values]}".encode())
            made.update(np.concatenate(values).tobytes())
        else:
            made.update(f"{name} {json.dumps(values)}".encode())
    return made.hexdigest()


def check_digest(stored: str | None, found: str, path: str) -> None:
    """Refuse contents that are not those that were written; a file without a digest is taken as it is."""
    require(
        stored is None or stored == found,
        f"Expected {path!r} to hold what was written to it",
        got="other contents",
        do="It was damaged or edited: get it again.",
    )


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("task", "status", "note", "question", "method", "output"), str),
    **dict.fromkeys(("sufficient", "necessary", "directed", "complete"), bool),
    **dict.fromkeys(("minimal", "optimal", "default"), (bool, type(None))),
    **dict.fromkeys(("prediction", "evaluations", "rank"), int),
    **dict.fromkeys(("robust", "robust_removals"), (tuple, type(None))),
    **dict.fromkeys(("label", "target", "seed", "lower_bound"), (int, type(None))),
    "seconds": (int, float),
    "tolerance": (int, float, type(None)),
    "settings": dict,
}


def checked(e: Explanation) -> Explanation:
    """The explanation, if each of its fields is of its kind and its numbers refer to something."""
    for name, kinds in _KINDS.items():
        value = getattr(e, name)
        plain = not isinstance(value, bool) or bool in (kinds if isinstance(kinds, tuple) else (kinds,))
        require(isinstance(value, kinds) and plain, f"Expected another `{name}`", got=f"{value!r:.60}")
    classes = len(e.probabilities)
    same = classes == len(e.probabilities_only) == len(e.probabilities_without)
    require(same and 0 <= e.prediction < classes, "Expected a class among the probabilities", got=e.prediction)
    named = all(isinstance(name, str) for name in e.units.names)
    known = not len(e.units) or 0 <= e.units.kind.min() <= e.units.kind.max() < len(e.units.names)
    groups = e.units.members[:, 0]
    known = known and (not len(groups) or 0 <= groups.min() <= groups.max() < len(e.units))
    require(named and bool(known), "Expected units of the kinds that are named", got="others")
    if e.types is not None:
        most = max(len(e.types.edges), len(e.types.nodes))
        inside = len(e.units.types) == len(e.units) and bool((e.units.types < most).all())
        require(inside, "Expected the type of every unit", got="others")
    return e
