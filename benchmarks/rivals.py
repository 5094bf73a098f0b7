"""Methods with published and with tuned settings on the shipped models.

    cf2 reproduce --out DIR --seeds 1 --table causal --table truth --table accuracy
    python benchmarks/rivals.py DIR

A row `tuned` has the settings of a small grid with the highest F_NS on 20 training instances, at the same size.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import figures

from reproduction.published import COLUMNS, ROWS, TUNED


def main() -> None:
    folder = Path(sys.argv[1])
    stored = json.loads((folder / "rows.json").read_text("utf-8"))["rows"]
    cells = {(row["dataset"], row["method"]): row for row in stored if row["table"] == "causal"}
    rows = []
    for method in ROWS:
        shown = []
        for column in COLUMNS:
            cell = cells.get((column.name, method))
            low, high = (0, 0) if cell is None else cell["interval"]["fns"]
            shown.append(
                None
                if cell is None
                else f"{100 * cell['fns']:.0f} [{100 * low:.0f}, {100 * high:.0f}] · {cell['size']:.1f}"
            )
        rows.append([method.replace(TUNED, ", tuned"), *shown])
    forms = {"F_NS % · size": "", **{column.name: "" for column in COLUMNS}}
    commit = json.loads((folder / "about.json").read_text("utf-8"))["commit"]
    shipped = sorted({column.dataset for column in COLUMNS})
    figures.keep("rivals", f"cf2 reproduce --seeds 1, commit {commit}, and benchmarks/rivals.py", forms, rows, shipped)


if __name__ == "__main__":
    main()
