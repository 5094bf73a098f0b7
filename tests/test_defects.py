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
Defect = tuple[Any, str, Wrap]  # whose, what of it, and what is made of it


def verdict(**wrong: Any) -> Wrap:
    """What the last word gives, with verdicts that are always the same."""
    return lambda real: (
        lambda *given: replace(
            made := real(*given), **{name: torch.full_like(getattr(made, name), value) for name, value in wrong.items()}
        )
    )


def claim(name: str, change: Callable[[cf2.Explanation, Any], Any], *, of_none: bool = True) -> Defect:
    """What `claimed` gives, with another claim."""

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def made(e: cf2.Explanation) -> cf2.Explanation:
            said = getattr(e, name)
            return e if said is None and not of_none else replace(e, **{name: change(e, said)})

        return lambda *given: [made(e) for e in real(*given)]

    return answers, "claimed", wrap


def best(scores: Any, inside: Any) -> Any:
    """The units with the best score of those inside."""
    return scores == scores[inside].max(initial=-1e9)


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


DEFECTS: dict[str, Defect] = {
    "sufficient is not checked": (session, "last_word", verdict(sufficient=True)),
    "necessary is not checked": (session, "last_word", verdict(necessary=True)),
    "sufficient is always false": (session, "last_word", verdict(sufficient=False)),
    "necessary is always false": (session, "last_word", verdict(necessary=False)),
    "another class is predicted": claim("prediction", lambda e, said: 1 - min(said, 1)),
    "found is impossible": claim("status", lambda e, said: "impossible" if said == "found" else said),
    "found is not found": claim("status", lambda e, said: "not found" if said == "found" else said),
    "what is said without the set": claim("probabilities_without", lambda e, said: e.probabilities),
    "a bound is one too high": claim("lower_bound", lambda e, said: said + 1, of_none=False),
    "a unit too many": claim("selected", lambda e, said: said | best(e.scores, ~said)),
    "a unit too few": claim("selected", lambda e, said: said & ~best(e.scores, said)),
    "nothing keeps the answer": claim("default", lambda e, said: False, of_none=False),
    "every answer is optimal": claim("optimal", lambda e, said: True if e.status == "found" else None),
    "these are all answers": claim("complete", lambda e, said: e.status == "found"),
    "a set decides more surely": claim(
        "pns", lambda e, said: tuple(min(1.0, part + 0.1) for part in said), of_none=False
    ),
    "every context is survived": claim("counterexample", lambda e, said: said[:-1], of_none=False),
    "a bound of always is one too high": claim("always_bound", lambda e, said: said + 1, of_none=False),
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
    "trials are mixed up": (
        trials,
        "names_of",
        lambda real: lambda rows, sets: real(rows, sets & (sets.cumsum(1) < 2)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrap = DEFECTS[name]
    monkeypatch.setattr(owner, attribute, wrap(getattr(owner, attribute)))
    for seed in range(CASES):
        checked = explained(seed)
        if not checked:
            print(f"{name}: after {seed + 1} cases: {checked.false[0]}")
            return
    raise AssertionError(f"{CASES} cases do not show it")
