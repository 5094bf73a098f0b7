"""Defects put into the package on purpose, one at a time: the fuzzer of claims finds each.

`pytest -m slow -s tests/test_defects.py` shows after how many cases and by which claim. What the last word puts right,
such as a verdict of packs that is wrong, is no defect here: no claim is false for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import cf2
from cf2.models import receptive_field
from cf2.models.predictor import Predictor
from cf2.runs import answers, session
from cf2.sets import proof, search, tests, trials
from cf2.units import kinds
from test_claims_fuzz import explained

CASES = 60
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def verdict(**wrong: Any) -> Wrap:
    """What the last word gives, with verdicts that are always the same."""
    return lambda real: (
        lambda *given: replace(
            made := real(*given), **{name: torch.full_like(getattr(made, name), value) for name, value in wrong.items()}
        )
    )


def claim(change: Callable[[cf2.Explanation], dict[str, Any]]) -> Wrap:
    """What `claimed` gives, with other claims."""
    return lambda real: lambda *given: [replace(e, **change(e)) for e in real(*given)]


def found(e: cf2.Explanation) -> bool:
    return e.status == "found"


def early(real: Callable[..., Any]) -> Callable[..., Any]:
    """A proof that tries no set of two free units, and says that it has."""

    def start(self: Any, *given: Any, **named: Any) -> None:
        real(self, *given, **named)
        self.top = min(self.top, 1)

    return start


def edited(*, columns: bool = False, nodes: bool = False) -> Wrap:
    """What the last word makes of a graph, with the first edge or every node still there."""

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any) -> Any:
            x, there, present = real(*given)
            there[:1] |= columns
            return x, there, present | nodes

        return made

    return wrap


def drop(*names: str) -> Wrap:
    """What `flags` gives, without some."""
    return lambda real: lambda *given: {name: flag for name, flag in real(*given).items() if name not in names}


DEFECTS: dict[str, tuple[Any, str, Wrap]] = {  # whose, what of it, and what is made of it
    "sufficient is not checked": (session, "last_word", verdict(sufficient=True)),
    "necessary is not checked": (session, "last_word", verdict(necessary=True)),
    "sufficient is always false": (session, "last_word", verdict(sufficient=False)),
    "necessary is always false": (session, "last_word", verdict(necessary=False)),
    "another class is predicted": (answers, "claimed", claim(lambda e: {"prediction": 1 - min(e.prediction, 1)})),
    "found is impossible": (answers, "claimed", claim(lambda e: {"status": "impossible" if found(e) else e.status})),
    "what is said without the set": (answers, "claimed", claim(lambda e: {"probabilities_without": e.probabilities})),
    "a bound is one too high": (
        answers,
        "claimed",
        claim(lambda e: {"lower_bound": None if e.lower_bound is None else e.lower_bound + 1}),
    ),
    "found is not found": (answers, "claimed", claim(lambda e: {"status": "not found" if found(e) else e.status})),
    "a unit too many": (
        answers,
        "claimed",
        claim(lambda e: {"selected": e.selected | (e.scores == e.scores[~e.selected].max(initial=-1e9))}),
    ),
    "a unit too few": (
        answers,
        "claimed",
        claim(lambda e: {"selected": e.selected & (e.scores != e.scores[e.selected].max(initial=-1e9))}),
    ),
    "nothing keeps the answer": (
        answers,
        "claimed",
        claim(lambda e: {"default": None if e.default is None else False}),
    ),
    "other probabilities": (
        Predictor,
        "probabilities",
        lambda real: lambda self, rows: real(self, rows) * 0.99 + 0.002,
    ),
    "classes are rounded": (
        tests.PredictedClass,
        "holds",
        lambda real: lambda self, out: real(self, (8 * out).round()),
    ),
    "twice the tolerance": (tests.Within, "holds", lambda real: lambda self, out: self._distance(out) <= 2),
    "labels above 0.4": (
        tests.Label,
        "holds",
        lambda real: lambda self, out: (tests._column(out, self.answers) > 0.4) == self.given,
    ),
    "values are not changed": (kinds.NewValues, "apply", lambda real: lambda self, x, there: x),
    "features stay": (Predictor, "_features", lambda real: lambda self, pack, there, units: pack.x),
    "kept and forbidden edges are ignored": (session, "flags", drop("selectable", "fixed", "required")),
    "every answer is optimal": (answers, "claimed", claim(lambda e: {"optimal": True if found(e) else None})),
    "these are all answers": (answers, "claimed", claim(lambda e: {"complete": found(e)})),
    "sets need not be connected": (
        session,
        "constraints_for",
        lambda real: lambda spec, *given: real(replace(spec, connected=False), *given),
    ),
    "a proof ends after sets of one unit": (proof.Exhaustion, "__init__", early),
    "what a proof has not tried fails": (
        search,
        "prove",
        lambda real: lambda *given, **named: replace(made := real(*given, **named), impossible=~made.passed),
    ),
    "what passes is proved to be smallest": (proof.Proof, "smallest", lambda real: lambda self, trials: self.passed),
    "a removed edge stays": (receptive_field, "elements", edited(columns=True)),
    "a removed node keeps its row": (receptive_field, "elements", edited(nodes=True)),
    "a set decides more surely": (
        answers,
        "claimed",
        claim(lambda e: {"pns": None if e.pns is None else tuple(min(1.0, part + 0.1) for part in e.pns)}),
    ),
    "every context is survived": (
        answers,
        "claimed",
        claim(lambda e: {"counterexample": None if e.counterexample is None else e.counterexample[:-1]}),
    ),
    "a bound of always is one too high": (
        answers,
        "claimed",
        claim(lambda e: {"always_bound": None if e.always_bound is None else e.always_bound + 1}),
    ),
    "trials are mixed up": (
        trials,
        "names_of",
        lambda real: lambda rows, sets: real(rows, sets & (sets.cumsum(1) < 2)),
    ),
}


def first_false(most: int) -> tuple[int, str]:
    """After how many cases something is false, or fails, and what."""
    for seed in range(most):
        checked = explained(seed)
        if not checked:
            return seed + 1, str(checked.false[0])
    return most, ""


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrap = DEFECTS[name]
    monkeypatch.setattr(owner, attribute, wrap(getattr(owner, attribute)))
    cases, said = first_false(CASES)
    print(f"{name}: after {cases} cases: {said}")
    assert said


def test_there_are_thirty() -> None:
    assert len(DEFECTS) >= 30
