"""Keep what a benchmark measured, so that `make figures` can put it into the documentation.

`keep` writes benchmarks/measured/NAME.json: the rows, how their columns are shown, and with what they were made. A page
shows the table where it says `<!-- table NAME -->`. A test fails where a page and its JSON differ, and where a model
that the JSON names is not the one that ships now.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cf2

Row = dict[str, Any]
MEASURED, NOTES = Path(__file__).parent / "measured", Path(__file__).parent / "NOTES.md"
WEIGHTS = Path(__file__).parent.parent / "src" / "cf2" / "samples" / "weights"


def keep(
    name: str,
    command: str,
    columns: Mapping[str, str],
    rows: Sequence[Sequence[Any]],
    shipped: Sequence[str] = (),
    trained: str = "",
) -> None:
    """Write the rows, the format of each column, and the models: shipped ones by digest, others in words."""
    versions = {part: importlib.metadata.version(part) for part in ("torch", "torch_geometric", "numpy")}
    about = {
        "command": command,
        "date": datetime.date.today().isoformat(),
        "versions": {"cf2": cf2.__version__, "python": platform.python_version(), **versions},
        "machine": f"{os.cpu_count()} cores ({platform.machine()})",
        "shipped": {model: digest(model) for model in shipped},
        "trained": trained,
    }
    kept = {"about": about, "columns": columns, "rows": rows}
    (MEASURED / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def keep_rows(name: str, rows: Sequence[Row], trained: str) -> None:
    """Write rows with the same fields, in formats that their values tell; a field whose name ends in % is a share."""
    forms = {
        key: "" if isinstance(value, str) else "d" if isinstance(value, int) else ".2f"
        for key, value in rows[0].items()
    }
    forms |= {key: ".1%" for key in forms if key.endswith("%")}
    keep(name, f"python benchmarks/{name}.py", forms, [list(row.values()) for row in rows], trained=trained)


def fill(name: str, text: str, page: Path = NOTES) -> None:
    """Put a text between the marks of that name on a page."""
    before, rest = page.read_text(encoding="utf-8").split(f"<!-- {name}: begin -->")
    after = rest.split(f"<!-- {name}: end -->")[1]
    page.write_text(f"{before}<!-- {name}: begin -->\n{text}\n<!-- {name}: end -->{after}", encoding="utf-8")


def digest(model: str) -> str:
    """What tells the weights of a shipped model from those of another release."""
    return hashlib.sha256((WEIGHTS / f"{model}.safetensors").read_bytes()).hexdigest()[:16]


def read(name: str) -> dict[str, Any]:
    """What is kept under a name."""
    kept: dict[str, Any] = json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))
    return kept


def table(kept: Mapping[str, Any]) -> str:
    """The rows in Markdown; None is an empty cell."""
    columns = kept["columns"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "".join("--:|" if form else "---|" for form in columns.values())]
    for row in kept["rows"]:
        cells = ["" if value is None else f"{value:{form}}" for value, form in zip(row, columns.values(), strict=True)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def about(kept: Mapping[str, Any]) -> str:
    """When, where and with what it was measured, in one line."""
    facts = kept["about"]
    models = [f"the shipped models of {', '.join(facts['shipped'])}"] if facts["shipped"] else []
    models += [facts["trained"]] if facts["trained"] else []
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Measured on {facts['date']} by `{facts['command']}` on {facts['machine']}, with {versions}. "
        f"Models: {'; '.join(models)}."
    )
