"""The state of the page as the query of its address, so that it can be reloaded, shared, and gone back to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import numpy as np

from cf2.errors import CF2Error, require
from cf2.report.words import key_id
from cf2.results.explanation import Explanation
from cf2.web.whatif import Edit, WhatIf, checked_edits, checked_units

LONGEST = 20_000  # characters of an address


@dataclass(frozen=True, eq=False)
class Place:
    """What an address says: an explanation by its key and name, the units that are removed, and the edits."""

    key: str
    method: str
    removed: np.ndarray
    edits: list[Edit]


def address_of(run: str, e: Explanation, method: str, removed: np.ndarray, edits: Sequence[Edit]) -> str:
    """The query of the address of a state; what is not removed or edited is not in it."""
    parts = {"run": run, "method": method, "key": key_id(e.key), "removed": _ranges(np.flatnonzero(removed).tolist())}
    parts["edits"] = "_".join("~".join(map(str, edit)) for edit in edits)
    return "?" + urlencode({name: text for name, text in parts.items() if text})


def place_of(asked: WhatIf, run: str, text: object) -> Place | None:
    """What an address says, or an error for one that means nothing here; None for one without a state."""
    query = text.get("address") if isinstance(text, dict) else None
    if not isinstance(query, str) or not query.strip("?"):
        return None
    require(len(query) <= LONGEST, f"Expected an address of at most {LONGEST:,} characters", got=f"{len(query):,}")
    given = dict(parse_qsl(query.removeprefix("?")))
    if "key" not in given:
        return None
    other = given.get("run", run)
    require(other == run, f"Expected an address of the run {run!r}", got=repr(other)[:80], do="Serve that run.")
    key = asked.key(given["key"])
    method = given.get("method") or next(iter(asked.explanations(key)))
    e = asked.explanation(key, method)
    if asked.read_only:
        return Place(given["key"], method, np.zeros(e.num_units, dtype=bool), [])
    removed = np.zeros(e.num_units, dtype=bool)
    removed[checked_units(_numbers(given.get("removed", ""), e.num_units), e.num_units)] = True
    edits = [[_value(part) for part in edit.split("~")] for edit in given.get("edits", "").split("_") if edit]
    return Place(given["key"], method, removed, checked_edits(edits, asked.graph(key), e.directed))


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in short.

    >>> _ranges([0, 1, 2, 7, 9, 10])
    '0-2.7.9-10'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ".".join("-".join(map(str, run)) for run in runs)


def _numbers(text: str, count: int) -> list[int]:
    """The numbers that `_ranges` wrote; all must be below `count`.

    >>> _numbers("0-2.7.9-10", 20)
    [0, 1, 2, 7, 9, 10]
    """
    found: list[int] = []
    for part in text.split(".") if text else ():
        ends = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if ends is None or int(ends[2] or ends[1]) >= count:
            raise CF2Error(f"Expected units from 0 to {count - 1}", got=repr(part)[:40])
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return found


def _value(text: str) -> Any:
    """A part of an edit: a number where it is one."""
    if re.fullmatch(r"[0-9]{1,12}", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
