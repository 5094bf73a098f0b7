"""Sets of any function: every claim against brute force over all sets, by code that shares nothing with the package."""

from __future__ import annotations

from itertools import combinations
from math import comb
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


def answer(f: Any, states: np.ndarray) -> np.ndarray:
    rows = np.asarray(f(states))
    return (rows > 0).astype(int) if rows.ndim == 1 else rows.argmax(1)


class Everything:
    """All sets of the units of a function, and which of them pass: by their numbers, whose bits are the units."""

    def __init__(self, f: Any, groups: list[list[int]], fixed: Any, free: Any, question: str) -> None:
        self.count = len(groups)
        self.sets = (np.arange(2**self.count)[:, None] >> np.arange(self.count)) & 1 > 0
        self.fixed, n = np.array(fixed, bool), sum(map(len, groups))
        there = np.zeros((2**self.count, n), bool)
        for unit, members in enumerate(groups):
            there[:, members] = (self.sets | self.fixed)[:, [unit]]
        self.said = answer(f, there)
        self.holds = self.said == self.said[-1]
        alone, without = ASKED[question]
        good = ~(self.sets & ~np.array(free, bool)).any(1)
        if alone:
            good &= self.holds
        if without:
            good &= ~self.holds[::-1]
        self.passing = np.flatnonzero(good)

    def number(self, chosen: np.ndarray) -> int:
        return int((chosen * (1 << np.arange(self.count))).sum())

    def minimal(self) -> set[int]:
        """Those that hold no other one."""
        return {one for one in self.passing.tolist() if (((self.passing & one) == self.passing).sum()) == 1}

    def surely(self, chosen: int) -> tuple[float, float | None, float]:
        """PS, PN and PNS: a context of k of the m units outside has the probability of k heads by a random coin."""
        outside = [u for u in range(self.count) if not self.fixed[u] and not chosen >> u & 1]
        ps = pns = 0.0
        for size in range(len(outside) + 1):
            for some in combinations(outside, size):
                context, weight = sum(1 << u for u in some), 1 / ((len(outside) + 1) * comb(len(outside), size))
                ps += weight * self.holds[context | chosen]
                pns += weight * (self.holds[context | chosen] & ~self.holds[context])
        return ps, pns / ps if ps else None, pns


@st.composite
def asked(draw: Any) -> tuple[Any, int, dict[str, Any], Everything, np.ndarray]:
    """A function, a question about it with constraints, and what brute force says."""
    n, seed = draw(st.integers(1, 12)), draw(st.integers(0, 10**6))
    f = draw(st.sampled_from([boolean, monotone, threshold]))(n, seed)
    question, rng = draw(st.sampled_from(list(ASKED))), np.random.default_rng(seed)
    options: dict[str, Any] = {"question": question}
    groups, price = [[unit] for unit in range(n)], np.ones(n)
    if n > 3 and draw(st.booleans()):
        order = rng.permutation(n).tolist()
        together = [sorted(order[:2]), sorted(order[2:4])]
        options["groups"] = together
        rest = [[unit] for unit in range(n) if unit not in order[:4]]
        groups = sorted(together + rest)
    if draw(st.booleans()):
        price = rng.choice([0.5, 1.0, 2.25], n)
        options["costs"] = price.tolist()
    flags = {}
    for name in ("keep", "forbid"):
        flags[name] = rng.random(n) < (0.2 if draw(st.booleans()) else 0)
        if flags[name].any():
            options[name] = np.flatnonzero(flags[name]).tolist()
    fixed, forbidden = ([flags[name][members].any() for members in groups] for name in ("keep", "forbid"))
    free = ~(np.array(fixed) | np.array(forbidden))
    return f, n, options, Everything(f, groups, fixed, free, question), np.array([price[own].sum() for own in groups])


@given(asked())
@settings(max_examples=80, deadline=None)
def test_every_claim_is_what_brute_force_says(drawn: Any) -> None:
    f, n, options, truth, price = drawn
    found = cf2.explain_sets(f, n, **options, alternatives=2**n, proof=5000, contexts=4096)
    best, minimal = found[0], truth.minimal()
    check = cf2.check(found, f, n)
    assert check, check
    if not minimal:
        assert best.status == "impossible"
        return
    assert best.status == "found"
    assert best.complete
    assert {truth.number(e.selected) for e in found} == minimal
    costs = [price[e.selected].sum() for e in found]
    assert costs == pytest.approx(sorted(costs))
    bound = None if (price != 1).any() else int(truth.sets[truth.passing].sum(1).min())
    for e, cost in zip(found, costs):
        number = truth.number(e.selected)
        assert e.minimal
        assert bool(e.optimal) == (cost == pytest.approx(min(costs)))
        assert e.lower_bound == bound
        assert e.prediction == truth.said[-1]
        assert e.sufficient == truth.holds[number]
        assert e.necessary == (not truth.holds[2**truth.count - 1 - number])
        assert e.all_contexts
        for value, exact in zip((e.ps, e.pn, e.pns), truth.surely(number)):
            assert (value is None) == (exact is None)
            assert exact is None or value == pytest.approx((exact,) * 3)


@given(asked(), st.sampled_from(["quick", "standard", "thorough"]), st.sampled_from([0, 30, None]))
@settings(max_examples=60, deadline=None)
def test_with_little_effort_nothing_is_claimed_that_is_not_true(drawn: Any, effort: str, proof: int | None) -> None:
    f, n, options, truth, price = drawn
    found = cf2.explain_sets(f, n, **options, effort=effort, proof=proof, alternatives=3)
    passing, least = truth.passing.tolist(), (truth.sets * price).sum(1)[truth.passing]
    numbers = [truth.number(e.selected) for e in found]
    for e, number in zip(found, numbers):
        assert (e.status == "found") == (number in passing)
        assert e.status != "impossible" or not passing
        assert not e.optimal or price[e.selected].sum() == pytest.approx(least.min())
        assert e.lower_bound is None or not passing or e.lower_bound <= truth.sets[truth.passing].sum(1).min()
        units = [unit for unit in range(truth.count) if number >> unit & 1]
        assert not e.minimal or not any(number - (1 << unit) in passing for unit in units)
    assert not any(a & b == a for a in numbers for b in numbers if a != b)
    assert not found[0].complete or set(numbers) == truth.minimal()
    assert cf2.check(found, f, n)


def test_a_sure_set_is_as_sure_as_it_says() -> None:
    reached = 0
    for seed in range(12):
        f = threshold(10, seed)
        (e,) = cf2.explain_sets(f, 10, surely=0.4, contexts=1024)
        truth = Everything(f, [[u] for u in range(10)], [False] * 10, [True] * 10, "why")
        if e.status == "found":
            assert e.pns == pytest.approx((truth.surely(truth.number(e.selected))[2],) * 3)
            assert e.pns[1] >= 0.4
            reached += 1
    assert reached >= 3


def test_several_functions_give_what_each_gives_alone() -> None:
    functions, counts = [boolean(5, 1), boolean(7, 2), boolean(3, 3)], [5, 7, 3]
    together = cf2.explain_sets(functions, counts)
    for key, (e, f, n) in enumerate(zip(together, functions, counts)):
        (alone,) = cf2.explain_sets(f, n)
        assert e.key == key
        assert (e.status, e.selected.tolist(), e.optimal) == (alone.status, alone.selected.tolist(), alone.optimal)


def test_several_functions_share_names_and_units_that_are_forbidden() -> None:
    asked = {"question": "factual", "output": "logits"}
    both = cf2.explain_sets([pay, pay], [4, 4], names=["a", "b", "c", "d"], forbid=["c", "d"], **asked)
    assert [e.chosen_names for e in both] == [["a", "b"], ["a", "b"]]
    named, forbidden = [list("abcd"), list("efgh")], [["c", "d"], ["e", "h"]]
    apart = cf2.explain_sets([pay, pay], [4, 4], names=named, forbid=forbidden, **asked)
    assert [e.chosen_names for e in apart] == [["a", "b"], ["g"]]


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
    assert "for input 0" in found.report(tmp_path / "report.html").read_text()
    assert "gift" in (tmp_path / "report.html").read_text()
    assert found[1].chosen_names[0].startswith("unit ")
    assert found.to_pandas()["chosen"].tolist() == [e.chosen_names for e in found]
    axes = found[0].plot(path=tmp_path / "picture.svg").axes[0]
    bold = [label.get_text() for label in axes.get_yticklabels() if label.get_fontweight() == "bold"]
    assert sorted(bold) == sorted(found[0].chosen_names)
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
    said = answer(three, np.ones((1, 6), bool))[0]
    (other,) = cf2.explain_sets(three, 6, target=(said + 1) % 3)
    assert other.status == "not predicted"
    reached = [cf2.explain_sets(three, 6, question="counterfactual", target=c)[0] for c in range(3) if c != said]
    for e in reached:
        assert (e.status == "found") == (answer(three, ~e.selected[None])[0] == e.target)


@pytest.mark.parametrize(
    ("f", "n", "options", "said"),
    [
        (pay, [4], {}, "`n`"),
        ([pay], [4, 4], {}, "each of 1 functions"),
        (lambda states: states[:1].sum(1) - 0.5, 3, {}, "one row of numbers"),
        (lambda states: 1 / 0, 3, {}, "ZeroDivisionError"),
        (lambda states: states.sum(1) * float("nan"), 3, {}, "finite"),
        (lambda states: DRAW.random(len(states)) * 9, 3, {}, "the same output for the same input"),
        (lambda states: 0.1 + 0.5 * states.mean(1), 3, {}, "logit or a probability"),
        (pay, 4, {"names": ["a"]}, "4 names"),
        (pay, 4, {"keep": ["z"]}, "`keep`"),
        (pay, 4, {"groups": [[0, 1], [1, 2]]}, "one group"),
        (pay, 4, {"groups": [0, 1]}, "`groups` to be a list"),
        (pay, 4, {"names": ["a", "a", "b", "c"], "keep": "a"}, "names that one unit has"),
        (pay, 4, {"costs": [1, 2]}, "a list of 4"),
        (pay, 4, {"costs": [1, 2, 3, 0]}, "above 0"),
        (pay, 4, {"keep": [True, False, False, False]}, "`keep`"),
        (pay, 4, {"class_names": ["a", "b", "c"]}, "2 names"),
        (pay, 4, {"target": [0, 1]}, "1 classes"),
        (pay, 4, {"queston": "why"}, "Did you mean 'question'"),
        (pay, 4, {"surely": 0.9, "question": "factual"}, "`surely`"),
        (pay, 4, {"tolerance": 1}, "regression"),
        (pay, -1, {}, "`n`"),
        (lambda states: [[1.0, 2.0], [1.0]], 3, {}, "one row of numbers"),
        (lambda states: states.sum(1) * 1j, 3, {}, "complex"),
        (lambda states: np.ones((len(states), 0)), 3, {}, r"shape \(1, 0\)"),
    ],
)
def test_mistakes_are_named(f: Any, n: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        cf2.explain_sets(f, n, **options)


def test_a_function_without_units_is_empty() -> None:
    functions = [lambda states: np.ones(len(states)) * 3, pay]
    assert [e.status for e in cf2.explain_sets(functions, [0, 4], contexts=8)] == ["empty", "found"]
    assert cf2.explain_sets(functions[0], np.int64(0))[0].note.startswith("No unit can be removed")


def test_outputs_may_be_lists_and_the_states_may_be_written_to() -> None:
    def greedy(states: np.ndarray) -> list[list[int]]:
        rows = [[0, 2 * int(row[1]) - 1] for row in states]
        states[:] = False
        return rows

    (e,) = cf2.explain_sets(greedy, 3, groups=torch.tensor([[1, 2]]), keep=np.array([0]))
    assert (e.chosen_names, e.chosen("units").tolist(), e.optimal) == (["unit 1 + unit 2"], [[-1, 1]], True)
