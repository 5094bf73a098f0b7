"""Finding the benchmarks, which come with the source of cf2 and not with a wheel."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

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
