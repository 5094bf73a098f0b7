"""`cf2 bench`, and finding the benchmarks, which come with the source of cf2 and not with a wheel."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from cf2.cli import options as o
from cf2.cli.terminal import if_stopped, named_bar, out, print_json, table
from cf2.errors import require

HOME = Path(__file__).parents[3] / "benchmarks"


def find() -> ModuleType:
    """The package `bench` beside the source, or an error that says where it would be."""
    require(
        (HOME / "bench").is_dir(),
        "Expected the benchmarks, which come with the source of cf2",
        got=f"none at {HOME}",
        do="Clone the repository and run it there.",
    )
    if str(HOME) not in sys.path:
        sys.path.insert(0, str(HOME))
    return importlib.import_module("bench")


def bench(full: o.Full = False, data_root: o.Root = None, as_json: o.Json = False) -> None:
    """Measure speed as ratios within one run, one thread each. The benchmarks come with the source, not with a wheel.

    Example: cf2 bench --json
    """
    if_stopped("Nothing is kept: measure again from the start.")
    measure = find().run
    with named_bar("measuring") as step:
        found = measure(full=full, root=data_root, progress=step)
    if as_json:
        print_json(found)
        return
    rows = [[name, "–" if value is None else f"{value:,.3g}"] for name, value in found.items()]
    out.print(table("Measured in this run", ("what", "figure"), rows))
