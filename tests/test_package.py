"""The package says the same thing everywhere: versions, pins, public names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cf2

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL = "optional-dependencies"


def test_one_version() -> None:
    """The wheel takes its version from the package; these files repeat it."""
    repeated = {"CHANGELOG.md": "## {}", "CITATION.cff": "version: {}", "recipe/recipe.yaml": 'version: "{}"'}
    for name, words in repeated.items():
        assert words.format(cf2.__version__) in (ROOT / name).read_text(encoding="utf-8"), name


def test_torch_is_pinned_in_the_constraints_and_bounded_below_in_the_project() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "torch==2.13.0" in pins.splitlines()
    assert not any("==" in need for need in PROJECT["dependencies"])


def test_the_lowest_versions_are_tried_as_they_are_declared() -> None:
    needs = [*PROJECT["dependencies"], *PROJECT[OPTIONAL]["molecules"], *PROJECT[OPTIONAL]["web"]]
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    assert pins.keys() == {need.partition(">=")[0] for need in needs}
    for need in needs:
        name, _, bound = need.partition(">=")
        assert f"{pins[name]}.".startswith(f"{bound}."), need
    assert "constraints-lowest.txt" in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")


def test_ruff_is_the_same_everywhere() -> None:
    (pinned,) = re.findall(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"rev: v{pinned}" in (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*cf2.__all__, "methods", "pyg", "report", "training"])
def test_public_names_are_there(name: str) -> None:
    assert getattr(cf2, name) is not None
    assert name in dir(cf2)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = cf2.nothing_here


@pytest.mark.parametrize("module", ["cf2", "cf2.options", "cf2.__main__"])
def test_help_does_not_wait_for_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit(int('torch' in sys.modules or 'pandas' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_nothing_is_written_and_no_thread_is_started_by_an_import() -> None:
    code = "import threading, cf2.api, cf2.pyg, reproduction; print(threading.active_count())"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_what_is_declared_is_what_is_imported() -> None:
    declared = {re.split(r"[<>=\[]", need)[0].lower().replace("-", "_") for need in PROJECT["dependencies"]}
    extras = {
        re.split(r"[<>=\[]", n)[0]
        for x in ("molecules", "notebook", "web", "ray", "chemprop")
        for n in PROJECT[OPTIONAL][x]
    }
    known = {name.lower().replace("-", "_") for name in extras} | declared
    used = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                used.add(node.module.split(".")[0])
    foreign = {name for name in used if name not in sys.stdlib_module_names} - {"cf2"}
    comes_along = {"markupsafe": "jinja2", "traitlets": "anywidget"}
    assert {comes_along.get(name, name).lower() for name in foreign} <= known
    assert declared <= foreign


def test_no_pickles_and_no_paths_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.split()
    assert not [name for name in names if name.endswith((".pt", ".pkl", ".pickle", ".npz"))]
    ours = [name for name in names if name.startswith(("src/", "examples/", "benchmarks/"))]
    text = [ROOT / name for name in ours if name.endswith((".py", ".json", ".md", ".js", ".css", ".html"))]
    machine = re.compile(r"/(home|work|root|Users)/\w")
    assert not [path.name for path in text if path.is_file() and machine.search(path.read_text(encoding="utf-8"))]
