"""A module imports only from modules above it in the reading order of the package."""

from __future__ import annotations

import ast
from pathlib import Path

import cf2

ORDER = [
    "errors",
    "instances",
    "packing",
    "masking",
    "predictor",
    "computation",
    "objectives",
    "optimise",
    "trials",
    "exact",
    "moves",
    "search",
    "explanation",
    "parquet",
    "methods",
    "hubs",
    "work",
    "api",
    "groundtruth",
    "metrics",
    "pyg",
    "datasets",
    "models",
    "recipes",
    "checkpoints",
    "training",
    "subjects",
    "shards",
    "manifest",
    "runs",
    "engines",
    "report",
    "experiments",
    "web",
    "bench",
    "terminal",
    "jobs",
    "demo",
    "options",
    "cli",
    "__main__",
]
ROOT = Path(cf2.__file__).parent
# `Explanations.summary()`, `.plot()` and `.report()` are doors to what is below; they open when they are called.
DOORS = {"explanation"}


def module_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> list[str]:
    """The modules of the package that a file imports, inside functions too unless it is a door."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if module_of(path) in DOORS else list(ast.walk(tree))
    found = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "cf2":
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cf2."):
            found.append(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found += [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("cf2.")]
    return found


def test_every_module_has_its_place() -> None:
    there = {module_of(path) for path in ROOT.rglob("*.py")} - {"__init__"}
    assert there == set(ORDER)


def test_imports_point_upwards() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = module_of(path)
        if own == "__init__":
            continue
        for name in imported(path):
            if name in ORDER and ORDER.index(name) > ORDER.index(own):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_no_file_is_too_long() -> None:
    long = {str(p.relative_to(ROOT)): n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > 350}
    assert not long
