"""Rows of a benchmark as `figures.py` keeps them, with the formats that their values tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import figures

Row = dict[str, Any]


def keep(name: str, rows: Sequence[Row], trained: str) -> None:
    """Write rows that all have the same fields; a field whose name ends in % is a share."""
    forms = {
        key: "" if isinstance(value, str) else "d" if isinstance(value, int) else ".2f"
        for key, value in rows[0].items()
    }
    forms |= {key: ".1%" for key in forms if key.endswith("%")}
    figures.keep(name, f"python benchmarks/{name}.py", forms, [list(row.values()) for row in rows], trained=trained)
