"""The package says the same thing everywhere: versions, pins, public names."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cf2

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_one_version() -> None:
    assert PROJECT["version"] == cf2.__version__
    assert f"## {cf2.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_torch_is_pinned_in_the_constraints_and_bounded_below_in_the_project() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "torch==2.13.0" in pins.splitlines()
    assert not any("==" in need for need in PROJECT["dependencies"])


def test_ruff_is_the_same_everywhere() -> None:
    (pinned,) = re.findall(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"rev: v{pinned}" in (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*cf2.__all__, "pyg", "methods"])
def test_public_names_are_there(name: str) -> None:
    assert getattr(cf2, name) is not None
    assert name in dir(cf2)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = cf2.nothing_here


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, cf2.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_no_pickles_and_no_paths_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.split()
    assert not [name for name in names if name.endswith((".pt", ".pkl", ".pickle", ".npz"))]
