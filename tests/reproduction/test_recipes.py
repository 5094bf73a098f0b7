"""The recipes of the paper's data sets are those that the stated rule chooses by held-out accuracy."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from cf2.samples.training import Recipe
from reproduction.training import RECIPES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks" / "NOTES.md"


@pytest.fixture(scope="module")
def grid() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recipes_grid", ROOT / "benchmarks" / "recipes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["ba-shapes", "tree-cycles", "mutag0", "nci1", "citeseer"])
def test_the_recipe_is_what_the_page_marks_as_chosen(grid: ModuleType, name: str) -> None:
    rest = PAGE.read_text(encoding="utf-8").split(grid.BEGIN)[1]
    tables = [table for table in rest.split(grid.END)[0].split("\n\n") if table.strip().startswith(f"| {name}")]
    (chosen,) = re.findall(r"^\| \*\*.*$", tables[-1], re.MULTILINE)  # of the last stage
    shown = grid.row(RECIPES[name], grid.Figure((0.5, 0.5, 0.5), 10), True)
    assert chosen.split("|")[1:3] == shown.split("|")[1:3]  # the shape and the training


def test_among_recipes_near_the_best_the_simplest_is_taken(grid: ModuleType) -> None:
    plain = Recipe(hidden=32, readout="all")
    small, decayed = replace(plain, hidden=16), replace(plain, weight_decay=0.005)
    far = replace(plain, weight_decay=0.1)
    figures = {
        plain: grid.Figure((0.98, 0.97, 0.96), 100),
        small: grid.Figure((0.97, 0.96, 0.96), 100),
        far: grid.Figure((0.80, 0.81, 0.82), 100),
    }
    assert grid.simplest(figures) == small
    assert grid.simplest(figures | {decayed: grid.Figure((0.97, 0.96, 0.96), 100)}) == decayed


def test_the_recipe_before_stays_unless_it_is_beaten_by_more_than_an_error(grid: ModuleType) -> None:
    before, other = Recipe(hidden=16), Recipe(hidden=32)
    own = grid.Figure((0.70, 0.72, 0.71), 10_000)
    near = grid.Figure((own.mean + 0.9 * own.error,) * 3, 10_000)
    ahead = grid.Figure((own.mean + 1.1 * own.error,) * 3, 10_000)
    assert grid.kept_unless_beaten(before, {before: own, other: near}) == before
    assert grid.kept_unless_beaten(before, {before: own, other: ahead}) == other
    assert grid.Figure((0.9, 0.9, 0.9), 100).error == pytest.approx((0.9 * 0.1 / 300) ** 0.5)  # never 0 by chance
