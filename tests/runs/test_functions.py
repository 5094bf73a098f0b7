"""Sets of any function: every claim against brute force over all sets, by code that shares nothing with the package."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cf2
from cf2.errors import CF2Error

DRAW = np.random.default_rng(0)
ASKED = {"why": (True, True), "factual": (True, False), "counterfactual": (False, True)}


def boolean(n: int, seed: int) -> Any:
    """Any of the functions of n bits, by its table."""
    table = np.random.default_rng(seed).random(2**n) < 0.5
    return lambda states: np.where(table[states @ (1 << np.arange(n))], 2.0, -2.0)


def monotone(n: int, seed: int) -> Any:
    """True where one of a few sets of units is there as a whole."""
    parts = np.random.default_rng(seed).random((3, n)) < 0.4
    return lambda states: np.where((states[:, None] | ~parts).all(2).any(1), 2.0, -2.0)


def threshold(n: int, seed: int) -> Any:
    """Three classes by weighted sums, as torch gives them."""
    weight = torch.from_numpy(np.random.default_rng(seed).normal(size=(n, 3)))
    return lambda states: torch.from_numpy(states).double() @ weight


def answer(f: Any, state: np.ndarray) -> int:
    row = np.asarray(f(state[None]))[0]
    return int(row > 0) if row.ndim == 0 else int(row.argmax())


def passing(f: Any, n: int, question: str) -> list[frozenset[int]]:
    """All sets that pass, the smallest first."""
    full = np.ones(n, bool)
    found, (alone, without) = [], ASKED[question]
    for size in range(n + 1):
        for chosen in combinations(range(n), size):
            inside = np.isin(np.arange(n), chosen)
            good = not alone or answer(f, inside) == answer(f, full)
            if good and (not without or answer(f, ~inside) != answer(f, full)):
                found.append(frozenset(chosen))
    return found


@pytest.mark.parametrize("question", ASKED)
@pytest.mark.parametrize("kind", [boolean, monotone, threshold])
@given(n=st.integers(1, 8), seed=st.integers(0, 10**6))
@settings(max_examples=12, deadline=None)
def test_every_claim_is_true(kind: Any, question: str, n: int, seed: int) -> None:
    f = kind(n, seed)
    sets = passing(f, n, question)
    minimal = {one for one in sets if not any(other < one for other in sets)}
    found = cf2.explain_sets(f, n, question=question, alternatives=2**n)
    best = found[0]
    if not sets:
        assert best.status == "impossible"
        return
    assert best.status == "found"
    assert best.optimal
    assert best.size == best.lower_bound == len(sets[0])
    assert found[0].complete
    assert {frozenset(e.chosen("units")[:, 1].tolist()) for e in found} == minimal
    full = np.ones(n, bool)
    for e in found:
        assert e.minimal
        assert e.sufficient == (answer(f, e.selected) == answer(f, full))
        assert e.necessary == (answer(f, ~e.selected) != answer(f, full))
        assert e.prediction == answer(f, full)


@pytest.mark.parametrize("question", ASKED)
def test_without_a_proof_nothing_is_claimed_that_is_not_true(question: str) -> None:
    for seed in range(12):
        f = [boolean, monotone, threshold][seed % 3](8, seed)
        sets = passing(f, 8, question)
        found = cf2.explain_sets(f, 8, question=question, effort="quick", proof=0, alternatives=3)
        for e in found:
            chosen = frozenset(e.chosen("units")[:, 1].tolist())
            assert (e.status == "found") == (chosen in sets)
            assert e.status != "impossible" or not sets
            assert not e.optimal or len(chosen) == len(sets[0])
            assert e.lower_bound is None or not sets or e.lower_bound <= len(sets[0])
            assert not e.minimal or not any(chosen - {unit} in sets for unit in chosen)
        answers = [frozenset(e.chosen("units")[:, 1].tolist()) for e in found]
        assert not any(a < b for a in answers for b in answers)


def test_several_functions_give_what_each_gives_alone() -> None:
    functions, counts = [boolean(5, 1), boolean(7, 2), boolean(3, 3)], [5, 7, 3]
    together = cf2.explain_sets(functions, counts)
    for key, (e, f, n) in enumerate(zip(together, functions, counts)):
        (alone,) = cf2.explain_sets(f, n)
        assert e.key == key
        assert (e.status, e.selected.tolist(), e.optimal) == (alone.status, alone.selected.tolist(), alone.optimal)


def pay(states: np.ndarray) -> np.ndarray:
    """Units 0 and 1 together, or 2 alone, or 3 alone, make it positive."""
    return np.where((states[:, 0] & states[:, 1]) | states[:, 2] | states[:, 3], 1.0, -1.0)


def test_constraints_hold() -> None:
    names = ["a", "b", "c", "d"]

    def chosen(**options: Any) -> list[str]:
        return cf2.explain_sets(pay, 4, names=names, question="factual", **options)[0].chosen_names

    assert chosen() in (["c"], ["d"])
    assert chosen(forbid=["c", 3]) == ["a", "b"]
    assert chosen(forbid=["c", "d"], keep="a") == ["b"]
    assert chosen(costs={"c": 5, "d": 3}) == ["a", "b"]
    assert chosen(costs=[1, 1, 5, 1.5]) == ["d"]
    assert chosen(groups=[["a", "b"]], forbid=["c", "d"]) == ["a + b"]
    gone = cf2.explain_sets(pay, 4, names=names, question="counterfactual")[0]
    assert sorted(gone.chosen_names) in (["a", "c", "d"], ["b", "c", "d"])
    assert "to change that, remove" in repr(gone)


def test_words_files_tables_and_a_report(tmp_path: Path) -> None:
    found = cf2.explain_sets(
        [pay, pay], [4, 4], names=[["wage", "bonus", "gift", "loan"], None], class_names=["poor", "rich"]
    )
    assert "rich" in found[0].summary()
    assert "of input 0" in found.report(tmp_path / "report.html").read_text()
    assert "gift" in (tmp_path / "report.html").read_text()
    assert found[1].chosen_names[0].startswith("unit ")
    assert len(found.to_pandas()) == 2
    for suffix in ("parquet", "json"):
        found.save(tmp_path / f"sets.{suffix}")
        again = cf2.load(tmp_path / f"sets.{suffix}")
        assert [e.chosen_names for e in again] == [e.chosen_names for e in found]
        assert [e.ranking for e in again] == ["trials", "trials"]
    assert found._repr_html_()
    assert found[0]._repr_html_()


def test_numbers_labels_and_targets() -> None:
    weight = np.array([3.0, 1.0, 0.2, 0.1])
    (e,) = cf2.explain_sets(lambda states: states @ weight, 4, output="regression", tolerance=0.5)
    assert e.chosen("units")[:, 1].tolist() == [0, 1]
    rows = np.array([[0.9, 0.2], [0.2, 0.9], [0.1, 0.1]])

    def labels(states: np.ndarray) -> np.ndarray:
        return 1 - (1 - states[:, :, None] * rows).prod(1)

    options: dict[str, Any] = {"output": "multilabel_probabilities", "question": "factual"}
    assert [cf2.explain_sets(labels, 3, target=t, **options)[0].chosen("units")[0, 1] for t in (0, 1)] == [0, 1]
    three = threshold(6, 4)
    said = answer(three, np.ones(6, bool))
    (other,) = cf2.explain_sets(three, 6, target=(said + 1) % 3)
    assert other.status == "not predicted"
    reached = [cf2.explain_sets(three, 6, question="counterfactual", target=c)[0] for c in range(3) if c != said]
    for e in reached:
        assert (e.status == "found") == (answer(three, ~e.selected) == e.target)


@pytest.mark.parametrize(
    ("f", "n", "options", "said"),
    [
        (pay, [4], {}, "`n`"),
        ([pay], 4, {}, "a list of both"),
        ([pay], [4, 4], {}, "each of 1 functions"),
        (lambda states: states[:1].sum(1) - 0.5, 3, {}, "one row of numbers"),
        (lambda states: 1 / 0, 3, {}, "ZeroDivisionError"),
        (lambda states: states.sum(1) * float("nan"), 3, {}, "finite"),
        (lambda states: DRAW.random(len(states)) * 9, 3, {}, "the same for the same input"),
        (lambda states: 0.1 + 0.5 * states.mean(1), 3, {}, "logit or a probability"),
        (pay, 4, {"names": ["a"]}, "4 names"),
        (pay, 4, {"keep": ["z"]}, "`keep`"),
        (pay, 4, {"groups": [[0, 1], [1, 2]]}, "one group"),
        ([pay, pay], [4, 4], {"names": ["a"]}, "each of 2 functions"),
        (pay, 4, {"question": "whence"}, "question"),
    ],
)
def test_mistakes_are_named(f: Any, n: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        cf2.explain_sets(f, n, **options)


def test_a_function_without_units_is_empty() -> None:
    (e,) = cf2.explain_sets(lambda states: np.ones(len(states)) * 3, 0)
    assert e.status == "empty"
