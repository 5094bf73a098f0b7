"""Put what `cf2 reproduce --out DIR` wrote into the README and the pages of results, and keep its rows.

python docs/fill_readme.py DIR   # docs/results.json, docs/results.md, reproduction/TABLES.md, docs/images and README.md
python docs/fill_readme.py       # the pages again, from docs/results.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction import TABLES
from reproduction.pictures import draw_sizes
from reproduction.tables import update_page

DOCS = Path(__file__).parent
KEPT, PAGE, README = DOCS / "results.json", DOCS / "results.md", DOCS.parent / "README.md"
TABLES_PAGE = DOCS.parent / "reproduction" / "TABLES.md"
BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"
NAMES = ("table", "dataset", "label", "model", "method", "pair", "group")  # what tells rows apart
COLUMNS = {
    "ba-shapes": "BA-Shapes",
    "tree-cycles": "Tree-Cycles",
    "mutag0": "Mutag₀",
    "nci1": "NCI1",
    "citeseer": "CiteSeer, edges",
    "citeseer-features": "CiteSeer, features",
}
METHODS = {
    "cf2": "**cf2**",
    "cf2-relaxed": "cf2-relaxed, the paper's λ",
    "cf2-relaxed-by-rule": "cf2-relaxed, λ by the paper's rule",
    **{name: name for name in ("gnnexplainer", "cf-gnnexplainer", "gem", "pgexplainer", "gradient", "random")},
}


SHORT = ("cf2", "cf2-relaxed", "gnnexplainer", "random")  # the rows of the README; the results page has all


def comparison(stored: Mapping[str, Any], methods: Sequence[str] = tuple(METHODS)) -> str:
    """The comparison: rows are methods, columns data sets; a cell is F_NS with its interval, and the size."""
    rows = {(r["method"], r["dataset"]): r for r in stored["rows"] if r["table"] == "causal"}
    columns = [column for column in COLUMNS if ("cf2", column) in rows]
    lines = ["| F_NS · size | " + " | ".join(COLUMNS[column] for column in columns) + " |"]
    lines.append("|---|" + "--:|" * len(columns))
    for method, title in ((name, METHODS[name]) for name in methods):
        cells = [_cell(rows.get((method, column))) for column in columns]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    paper = [rows["cf2", column]["published"] for column in columns]
    lines.append("| *CF², published* | " + " | ".join(f"{100 * p['fns']:.1f} · {p['size']:.1f}" for p in paper) + " |")
    top = [rows["cf2", column]["ceiling"] for column in columns]
    lines.append("| *instances with a known answer, %* | " + " | ".join(f"{100 * c:.1f}" for c in top) + " |")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    low, high = row["interval"]["fns"]
    return f"{100 * row['fns']:.1f} [{100 * low:.0f}, {100 * high:.0f}] · {row['size']:.1f}"


def filled(text: str, stored: Mapping[str, Any], methods: Sequence[str] = SHORT) -> str:
    """A page with the comparison in its place."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + "\n" + comparison(stored, methods) + "\n" + END + rest.split(END)[1]


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of several parts in the order of the tables and columns; of a row that several have, the last one's."""
    rows: dict[tuple[Any, ...], Any] = {}
    figures: dict[str, Any] = {}
    for part in parts:
        for row in part["rows"]:
            rows[tuple(str(row.get(name)) for name in NAMES)] = row
        figures |= part["figures"]
    order = sorted(rows.values(), key=lambda row: (TABLES.index(row["table"]), _place(row)))
    missing = {name: why for part in parts for name, why in part["missing"].items()}
    return {"rows": order, "figures": figures, "missing": missing, "about": parts[-1]["about"]}


def _place(row: Mapping[str, Any]) -> int:
    known = list(dict.fromkeys([*COLUMNS, "mutag"]))
    return known.index(row["dataset"]) if row["dataset"] in known else len(known)


def _read(part: Path) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((part / "rows.json").read_text(encoding="utf-8"))
    return stored | {"about": json.loads((part / "about.json").read_text(encoding="utf-8"))}


def main() -> None:
    """Take what a directory holds, if one is named, then fill all pages."""
    parts = [Path(name) for name in sys.argv[1:]]
    if parts:
        kept = merged([_read(part) for part in parts])
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    stored = json.loads(KEPT.read_text(encoding="utf-8"))
    for part in parts:
        update_page(PAGE, stored | {"files": _read(part)["files"]}, part)
    draw_sizes(stored["rows"], DOCS / "images")
    for page in (PAGE, TABLES_PAGE):
        update_page(page, stored | {"files": []}, DOCS)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), stored, tuple(METHODS)), encoding="utf-8")
    README.write_text(filled(README.read_text(encoding="utf-8"), stored), encoding="utf-8")


if __name__ == "__main__":
    main()
