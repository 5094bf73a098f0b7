"""The search knows no graphs: it solves any function of which units are there, without torch_geometric."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import pytest
import torch
from torch import Tensor

from cf2.sets.oracle import Oracle
from cf2.sets.search import Search, search
from cf2.sets.tests import QUESTIONS, PredictedClass, judge


class Formula(Oracle):
    """Two classes by a formula of five units: (a and b) or (c and d and e)."""

    def __init__(self, instances: int = 1) -> None:
        super().__init__(torch.full((instances,), 5))

    def outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        true = states[:, :2].all(1) | states[:, 2:].all(1)
        return torch.stack([~true, true], 1).float()

    def take(self, rows: Tensor) -> Formula:
        return Formula(len(rows))


@pytest.mark.parametrize(("question", "size"), [("why", 3), ("factual", 2), ("counterfactual", 2)])
def test_the_smallest_sets_of_a_formula_are_found_and_proved(question: str, size: int) -> None:
    oracle, criterion = Formula(2), PredictedClass(torch.ones(2, dtype=torch.long))
    choice = search(oracle, criterion, QUESTIONS[question], torch.arange(10.0), Search())
    assert choice.status == ["found", "found"]
    assert choice.optimal == [True, True]
    sets = oracle.dense(choice.selected, False)
    assert sets.sum(1).tolist() == [size, size] == [smallest(question)] * 2
    verdict = judge(oracle, criterion, sets, oracle.outputs(torch.arange(2), oracle.valid))
    assert verdict.passes(QUESTIONS[question]).all()


def smallest(question: str) -> int:
    """By brute force, with none of the code under test."""

    def true(units: set[int]) -> bool:
        return {0, 1} <= units or {2, 3, 4} <= units

    asked = {"why": (True, True), "factual": (True, False), "counterfactual": (False, True)}[question]
    for size in range(6):
        for chosen in map(set, combinations(range(5), size)):
            alone, without = true(chosen), not true(set(range(5)) - chosen)
            if (alone or not asked[0]) and (without or not asked[1]):
                return size
    return -1


def test_sets_are_searched_where_torch_geometric_cannot_be_imported() -> None:
    code = """
import sys
sys.modules["torch_geometric"] = None
sys.path.insert(0, "tests/sets")
import pkgutil, importlib, cf2.sets
for module in pkgutil.iter_modules(cf2.sets.__path__):
    importlib.import_module(f"cf2.sets.{module.name}")
import torch
from cf2.sets.search import Search, search
from cf2.sets.tests import QUESTIONS, PredictedClass
from test_oracle import Formula
choice = search(Formula(), PredictedClass(torch.ones(1, dtype=torch.long)), QUESTIONS["why"], torch.zeros(5), Search())
print(choice.status, choice.selected.sum().item())
print(sorted(name for name in sys.modules if name.startswith("cf2.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, modules = done.stdout.splitlines()
    assert found == "['found'] 3"
    assert {name.split(".")[1] for name in eval(modules)} <= {"sets", "errors"}
