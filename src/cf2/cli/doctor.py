"""What is installed, what is missing, and what each missing part would give."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata
from shutil import disk_usage, which
from typing import Any

from cf2 import __version__

# Of each extra: the distributions it needs, what it is for, and the download in MB on Linux.
PARTS: dict[str, tuple[tuple[str, ...], str, int]] = {
    "molecules": (("rdkit",), "molecules drawn as such, SMILES, valid edits", 31),
    "chemprop": (("chemprop",), "Chemprop models and SMILES", 79),
    "web": (("flask", "waitress", "werkzeug"), "the page of `cf2 serve`", 1),
    "notebook": (("anywidget",), "`found.widget()`, in Jupyter, VS Code and Colab", 12),
    "ray": (("ray",), "`--engine ray`, for several machines", 79),
}


def installed(name: str) -> str | None:
    """The version of a distribution; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def required() -> list[str]:
    """The names of the distributions that the package always needs, as its own metadata states them."""
    declared = metadata.requires("cf2") or []
    return [re.split(r"[^\w.-]", text)[0] for text in declared if "extra ==" not in text]


def examine() -> dict[str, Any]:
    """Everything that `cf2 doctor` reports, as JSON takes it."""
    import torch

    return {
        "cf2": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "executable": sys.executable,
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpu": torch.cuda.is_available(),
        "free_gigabytes": round(disk_usage(".").free / 1e9, 1),
        "chromium": which("chromium") or which("chromium-browser") or which("google-chrome"),
        "required": {name: installed(name) for name in required()},
        "extras": [
            {
                "extra": extra,
                "missing": [name for name in needs if installed(name) is None],
                "gives": gives,
                "megabytes": megabytes,
            }
            for extra, (needs, gives, megabytes) in PARTS.items()
        ],
    }


def remarks(facts: dict[str, Any]) -> list[str]:
    """What the reader could do, one sentence each; nothing where all is well."""
    absent = [name for name, version in facts["required"].items() if version is None]
    said = [f"{', '.join(absent)} must be installed: pip install {' '.join(absent)}"] if absent else []
    said += [
        f"To add {part['extra']}: pip install 'cf2[{part['extra']}]'" for part in facts["extras"] if part["missing"]
    ]
    if facts["torch_threads"] > 1:
        said.append("torch uses several threads. Set OMP_NUM_THREADS=1: on a busy machine it is faster.")
    return said
