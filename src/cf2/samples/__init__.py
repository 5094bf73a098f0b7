"""Small data sets and trained models for the demo, the tutorials and `cf2 explain NAME`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from cf2.errors import require

CLONE = Path(__file__).parents[3]  # the root of the repository, if the package lies in its `src`


def from_clone(folder: str, module: str) -> Any:
    """A module that comes with the repository and not with a wheel: `module` in a folder of its root, such as "."."""
    place = CLONE / folder
    file = place.joinpath(*module.split("."))
    require(
        file.with_suffix(".py").is_file() or (file / "__init__.py").is_file(),
        f"Expected a clone of the cf2 repository: only that has {module.partition('.')[0]!r}",
        got=f"none at {place.resolve()}",
        do="Clone the repository, run `pip install -e .` in it, and call this again.",
    )
    if str(place.resolve()) not in sys.path:
        sys.path.insert(0, str(place.resolve()))
    return importlib.import_module(module)
