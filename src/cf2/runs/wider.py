"""A second try for nodes that nothing nearby can turn: edges to nodes all over the graph are candidates as well.

A node whose receptive field is all alike, or empty, has no edge to gain there that would help. Where a request leaves
the candidates open and the first try ends without an answer, the node may also be joined to nodes far away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from cf2.core.edits import Editing
from cf2.core.graph import Instance
from cf2.core.predictor import Predictor
from cf2.core.receptive_field import ReceptiveField
from cf2.core.units import InstanceUnits
from cf2.methods.contract import Problem
from cf2.results.explanation import Explanation
from cf2.runs.answers import Answers
from cf2.spec import Key

IN_VAIN = ("impossible", "not found", "empty")
NOTE = (
    "With edges inside of the receptive field alone nothing was found, so edges to nodes all over the graph count too."
)


class Searching(Protocol):
    """What is asked of a session."""

    request: Any
    wider: Editing | None
    predictor: Predictor
    field: ReceptiveField
    answers: Answers

    def known(self, keys: Sequence[Key], field: ReceptiveField | None) -> list[tuple[Instance, InstanceUnits]]: ...

    def packed(
        self, known: Sequence[tuple[Instance, InstanceUnits]], field: ReceptiveField | None
    ) -> Iterator[Problem]: ...

    @property
    def is_too_large(self) -> Callable[[InstanceUnits], bool]: ...


def answers_from_wider(session: Searching, made: list[Explanation]) -> list[Explanation]:
    """Answers in their order, those that were sought in vain from wider candidates if a request leaves these open."""
    failed = {e.key: e for e in made if e.status in IN_VAIN}
    if session.wider is None or not failed:
        return made
    field = ReceptiveField(session.predictor, session.request.targets, session.field.reach, session.wider)
    known = [one for one in session.known(list(failed), field) if not session.is_too_large(one[1])]
    again: dict[Key, list[Explanation]] = {}
    started = time.perf_counter()
    for problem in session.packed(known, field):
        for e in session.answers.explain(problem, started):
            again.setdefault(e.key, []).append(_after(e, failed[e.key]))
        started = time.perf_counter()
    return [new for e in made for new in (again.get(e.key, [e]) if e.key in failed else [e])]


def _after(e: Explanation, first: Explanation) -> Explanation:
    """An explanation with what the first try cost, and a word about it."""
    if e.rank:
        return e
    cost = {"evaluations": e.evaluations + first.evaluations, "seconds": e.seconds + first.seconds}
    return replace(e, note=f"{NOTE} {e.note}".strip(), **cost)  # type: ignore[arg-type]
