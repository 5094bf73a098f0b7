"""The example beside GNNExplainer, kept for the README: `python benchmarks/beside.py`."""

from __future__ import annotations

import runpy
from pathlib import Path

import figures

EXAMPLE = "examples/beside_gnnexplainer.py"
COLUMNS = {"a GAT on CiteSeer": "", "nodes": "d", "sufficient": "d", "necessary": "d", "both": "d", "CPU s": ".1f"}


def main() -> None:
    shown = runpy.run_path(str(Path(__file__).parent.parent / EXAMPLE))["rows"]
    rows = [[name, *(row[column] for column in list(COLUMNS)[1:])] for name, row in shown.items()]
    figures.keep("beside", f"python {EXAMPLE}", COLUMNS, rows, trained="a GAT that the script trains (seed 0)")


if __name__ == "__main__":
    main()
