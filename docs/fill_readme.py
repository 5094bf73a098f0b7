"""Put the comparison into the README from what `cf2 reproduce --out DIR` wrote.

python docs/fill_readme.py DIR
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"
COLUMNS = {
    "ba-shapes": "BA-Shapes",
    "tree-cycles": "Tree-Cycles",
    "mutag0": "Mutag₀",
    "nci1": "NCI1",
    "citeseer": "CiteSeer, edges",
    "citeseer-features": "CiteSeer, features",
}
METHODS = ("cf2", "cf2-relaxed", "gnnexplainer", "cf-gnnexplainer", "gem", "pgexplainer", "gradient", "random")


def main() -> None:
    """Rows are methods, columns data sets; a cell is F_NS · size."""
    stored: Any = json.loads((Path(sys.argv[1]) / "rows.json").read_text(encoding="utf-8"))
    rows = {(r["method"], r["dataset"]): r for r in stored["rows"] if r["table"] == "causal"}
    lines = ["| F_NS · size | " + " | ".join(COLUMNS.values()) + " |", "|---|" + "--:|" * len(COLUMNS)]
    for method in METHODS:
        cells = [rows.get((method, column)) for column in COLUMNS]
        shown = [f"{100 * r['fns']:.1f} · {r['size']:.1f}" if r else "–" for r in cells]
        lines.append(f"| {'**cf2**' if method == 'cf2' else method} | " + " | ".join(shown) + " |")
    paper = [rows[("cf2", column)]["published"] for column in COLUMNS if ("cf2", column) in rows]
    lines.append("| *CF², published* | " + " | ".join(f"{100 * p['fns']:.1f} · {p['size']:.1f}" for p in paper) + " |")
    top = [rows[("cf2", column)].get("ceiling") for column in COLUMNS if ("cf2", column) in rows]
    lines.append("| *ceiling of our model, %* | " + " | ".join(f"{100 * c:.1f}" for c in top) + " |")
    head, rest = README.read_text(encoding="utf-8").split(BEGIN)
    text = head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1]
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
