"""How surely a set decides: PS, PN and PNS against a plain enumeration, their intervals, and shared contexts."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import factorial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cf2.sets.oracle import Oracle
from cf2.sets.strength import Draw, clopper_pearson, draw_contexts, every_context, strengths
from cf2.sets.tests import PredictedClass, Within


class Table(Oracle):
    """A model of each instance as a truth table: which sets of units give the answer, by the bits of the set."""

    def __init__(self, tables: list[list[bool]], units: list[int]) -> None:
        super().__init__(torch.tensor(units))
        self.tables, self.units = tables, units
        self.asked: list[tuple[int, tuple[bool, ...]]] = []

    def outputs(self, rows: Tensor, states: Tensor) -> Tensor:
        said = []
        for row, state in zip(rows.tolist(), states.tolist()):
            own = tuple(state[: self.units[row]])
            self.asked.append((row, own))
            said.append(self.tables[row][sum(there << unit for unit, there in enumerate(own))])
        answer = torch.tensor(said)
        return torch.stack([~answer, answer], 1).float()

    def take(self, rows: Tensor) -> Table:
        return Table([self.tables[row] for row in rows.tolist()], [self.units[row] for row in rows.tolist()])


def enumerated(table: list[bool], units: int, chosen: set[int], fixed: set[int]) -> tuple[Fraction, Fraction]:
    """PS and PNS by the definition, in fractions, with none of the code under test."""
    outside = [unit for unit in range(units) if unit not in chosen | fixed]
    ps = pns = Fraction(0)
    for bits in product([False, True], repeat=len(outside)):
        there = {unit for unit, bit in zip(outside, bits) if bit} | fixed
        a, b = sum(bits), len(bits) - sum(bits)
        probability = Fraction(factorial(a) * factorial(b), factorial(a + b + 1))
        kept = table[sum(1 << unit for unit in there | chosen)]
        lost = not table[sum(1 << unit for unit in there)]
        ps += probability * kept
        pns += probability * (kept and lost)
    return ps, pns


@st.composite
def problems(draw: st.DrawFn) -> tuple[Table, list[set[int]], list[set[int]]]:
    """Up to three instances of at most 8 units, with a set and fixed units of each."""
    units = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    tables = [(torch.rand(2**n, generator=random) < 0.5).tolist() for n in units]
    fixed = [draw(st.sets(st.integers(0, n - 1), max_size=2)) for n in units]
    chosen = [draw(st.sets(st.integers(0, n - 1))) - f for n, f in zip(units, fixed)]
    return Table(tables, units), chosen, fixed


def dense(oracle: Oracle, sets: list[set[int]]) -> Tensor:
    return torch.tensor([[unit in chosen for unit in range(oracle.width)] for chosen in sets])


def answers(count: int) -> PredictedClass:
    return PredictedClass(torch.ones(count, dtype=torch.long))


def no_draw(row: int, units: int) -> Tensor:
    raise AssertionError("all contexts fit, so that none is drawn")


def seeded(count: int, seed: int = 0) -> Draw:
    return lambda row, units: draw_contexts(count, units, torch.Generator().manual_seed(seed * 1000 + row))


@settings(max_examples=60, deadline=None)
@given(problems())
def test_exact_values_are_those_of_an_enumeration(problem: tuple[Table, list[set[int]], list[set[int]]]) -> None:
    oracle, chosen, fixed = problem
    oracle.fixed = dense(oracle, fixed)
    rows = torch.arange(len(chosen))
    measured = strengths(oracle, answers(len(rows)), rows, dense(oracle, chosen), 256, no_draw)
    for row, strength in enumerate(measured):
        units = oracle.units[row]
        ps, pns = enumerated(oracle.tables[row], units, chosen[row], fixed[row])
        assert strength.every
        assert strength.contexts == 2 ** (units - len(chosen[row] | fixed[row]))
        assert strength.ps == pytest.approx([float(ps)] * 3)
        assert strength.pns == pytest.approx([float(pns)] * 3)
        if ps:
            assert strength.pn == pytest.approx([float(pns / ps)] * 3)
        else:
            assert strength.pn is None


def test_intervals_cover_the_exact_value() -> None:
    table = (torch.rand(2**8, generator=torch.Generator().manual_seed(3)) < 0.6).tolist()
    chosen = {1, 4}
    ps, pns = map(float, enumerated(table, 8, chosen, set()))
    assert 0.05 < pns < ps < 0.95
    oracle = Table([table], [8])
    covered = {"ps": 0, "pn": 0, "pns": 0}
    for seed in range(300):
        (strength,) = strengths(oracle, answers(1), torch.tensor([0]), dense(oracle, [chosen]), 40, seeded(40, seed))
        assert not strength.every
        assert strength.pn is not None
        for name, exact in (("ps", ps), ("pn", pns / ps), ("pns", pns)):
            value, low, high = getattr(strength, name)
            assert low <= value <= high
            covered[name] += low <= exact <= high
    assert min(covered.values()) >= 0.93 * 300, covered


def test_an_interval_is_that_of_clopper_and_pearson() -> None:
    from scipy.stats import binomtest

    for hits, count in ((0, 7), (3, 7), (7, 7), (93, 100)):
        expected = binomtest(hits, count).proportion_ci(0.95, method="exact")
        assert clopper_pearson(hits, count) == pytest.approx((hits / count, expected.low, expected.high))


def test_all_sets_of_an_instance_meet_the_same_contexts() -> None:
    oracle = Table([[False] * 2**8], [8])
    sets = [{0}, {0, 1}, {5}]
    strengths(oracle, answers(1), torch.zeros(3, dtype=torch.long), dense(oracle, sets), 20, seeded(20))
    contexts = draw_contexts(20, 8, torch.Generator().manual_seed(0))
    expected = []
    for with_set in (True, False):
        for chosen in sets:
            for context in contexts.tolist():
                expected.append((0, tuple(with_set if unit in chosen else bit for unit, bit in enumerate(context))))
    assert oracle.asked == expected


def test_packing_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(1)
    units = [8, 3, 7]
    tables = [(torch.rand(2**n, generator=random) < 0.5).tolist() for n in units]
    oracle, sets = Table(tables, units), [{0, 3}, {1}, {2, 4, 6}]
    chosen = dense(oracle, sets)
    together = strengths(oracle, answers(3), torch.arange(3), chosen, 12, seeded(12))
    assert [s.every for s in together] == [False, True, False]
    alone = [strengths(oracle, answers(3), torch.tensor([n]), chosen[n : n + 1], 12, seeded(12))[0] for n in range(3)]
    assert alone == together
    monkeypatch.setattr("cf2.sets.strength.MAX_STATES_PER_CALL", 1)
    assert strengths(oracle, answers(3), torch.arange(3), chosen, 12, seeded(12)) == together


def test_a_number_within_its_tolerance_is_the_same_answer() -> None:
    class Sum(Oracle):
        def outputs(self, rows: Tensor, states: Tensor) -> Tensor:
            return states.float() @ torch.tensor([[4.0], [1.0], [1.0]])

        def take(self, rows: Tensor) -> Oracle:
            return self

    criterion = Within(torch.tensor([0]), torch.tensor([6.0]), 1.5)
    (strength,) = strengths(
        Sum(torch.tensor([3])), criterion, torch.tensor([0]), torch.tensor([[True, False, False]]), 4, no_draw
    )
    assert strength.ps.value == pytest.approx(2 / 3)  # 5 and 6 are near 6, and 4 is not; the first has weight 1/3
    assert strength.pns.value == pytest.approx(2 / 3)


def test_an_added_unit_is_in_no_context_and_is_carried_out_without_the_set() -> None:
    oracle = Table([[bits >= 4 for bits in range(8)]], [3])  # kept while the last unit is as it was
    oracle.absent = torch.tensor([[False, False, True]])
    (strength,) = strengths(oracle, answers(1), torch.tensor([0]), torch.tensor([[False, False, True]]), 4, no_draw)
    assert (strength.ps.value, strength.pns.value, strength.contexts) == (1.0, 1.0, 4)
    (other,) = strengths(oracle, answers(1), torch.tensor([0]), torch.tensor([[True, False, False]]), 4, no_draw)
    assert (other.ps.value, other.pns.value, other.contexts) == (1.0, 0.0, 2)


def test_drawn_contexts_have_every_size_alike_and_the_weights_of_all_sum_to_one() -> None:
    drawn = draw_contexts(9000, 8, torch.Generator().manual_seed(0)).sum(1)
    counts = torch.bincount(drawn, minlength=9)
    assert (counts - 1000).abs().max() < 150  # each of nine sizes: 1000 ± 5 standard deviations
    for units in range(6):
        contexts, weight = every_context(units)
        assert len(contexts) == 2**units == len(set(map(tuple, contexts.tolist())))
        assert float(weight.sum()) == pytest.approx(1)
