"""`cf2 bench`, and finding what comes with the source of cf2 and not with a wheel."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from cf2.cli import options as o
from cf2.cli.terminal import if_stopped, named_bar, out, print_json, table
from cf2.errors import require

HOME = Path(__file__).parents[3]  # the clone, if this is one


def find(name: str) -> ModuleType:
    """The package at a path of the clone, such as "benchmarks/bench", or an error that says where it would be."""
    place = HOME / name
    require(
        (place / "__init__.py").is_file(),
        f"Expected the package {place.name!r}, which comes with the source of cf2",
        got=f"none at {place}",
        do="Clone the repository and run it there.",
    )
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    return importlib.import_module(place.name)


def bench(full: o.Full = False, data_root: o.Root = None, as_json: o.Json = False) -> None:
    """Measure speed as ratios within one run, one thread each. The benchmarks come with the source, not with a wheel.

    Example: cf2 bench --json
    """
    if_stopped("Nothing is kept: measure again from the start.")
    measure = find("benchmarks/bench").run
    with named_bar("measuring") as step:
        found = measure(full=full, root=data_root, progress=step)
    if as_json:
        print_json(found)
        return
    rows = [[name, "–" if value is None else f"{value:,.3g}"] for name, value in found.items()]
    out.print(table("Measured in this run", ("what", "figure"), rows))
