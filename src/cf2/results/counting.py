"""From explanations to patterns: which keys they are found on, and what is counted on the others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cf2.errors import require, require_number
from cf2.results.explanation import Explanation
from cf2.results.intervals import Estimate, share
from cf2.results.labelled import GraphRow, LabelledGraphs, explained_graph
from cf2.results.matching import Containing, Occurrences, containing, occurrences
from cf2.results.mining import Miner
from cf2.results.pattern import Pattern
from cf2.results.patterns import FoundPattern, Patterns
from cf2.spec import Key

if TYPE_CHECKING:
    from cf2.results.explanations import Explanations


@dataclass(frozen=True)
class Options:
    """How patterns are looked for; see `Explanations.patterns`."""

    count: int = 5
    held_out: float = 0.5
    seed: int = 0
    most: int = 2000
    least: float = 0.02
    labels: str | Sequence[str] = "auto"
    given: tuple[Pattern, ...] = ()

    def check(self) -> Options:
        require_number("count", self.count, 1, 1000, integer=True)
        require_number("held_out", self.held_out, 0, 0.95)
        require_number("seed", self.seed, 0, integer=True)
        require_number("most", self.most, 1, integer=True)
        require_number("least", self.least, 0, 1)
        good = isinstance(self.given, tuple) and all(isinstance(one, Pattern) for one in self.given)
        require(
            good, "Expected `given` to hold patterns", got=repr(self.given)[:80], do="Make one with cf2.Pattern.make."
        )
        return self

    def is_test(self, key: Key) -> bool:
        """Whether a key is kept for the test: by the seed and the key, whatever else there is."""
        return draw(self.seed, key) < self.held_out


def draw(seed: int, key: Key, purpose: str = "") -> float:
    """A number in [0, 1) that depends on the seed and the key alone."""
    made = hashlib.blake2b(f"{purpose}{seed}:{key}".encode(), digest_size=8).digest()
    return int.from_bytes(made, "big") / 2**64


def usable(found: Sequence[Explanation]) -> tuple[list[Explanation], list[str]]:
    """The answers that count, and what to say of that: those that pass their tests, or all where none does."""
    with_edges = [e for e in found if e.size and len(e.chosen("edges"))]
    require(
        bool(with_edges),
        "Expected explanations that chose edges, which patterns are made of",
        got=f"none among {len(found)}",
        do='Explain with units="edges".',
    )
    good = [e for e in with_edges if e.status == "found"]
    notes = [] if good else ["No answer was verified: the patterns are those of sets that a method ranks highest."]
    directions = {e.directed for e in good or with_edges}
    require(len(directions) == 1, "Expected explanations of graphs that are all directed, or all not", got="both")
    return good or with_edges, notes


class Mined(NamedTuple):
    """A pattern of a class before it is tested."""

    prediction: int
    pattern: Pattern
    support: int
    answers: int
    keys: tuple[Key, ...]


def mine(
    answers: Sequence[tuple[int, Explanation, np.ndarray]],
    graphs: LabelledGraphs,
    classes: np.ndarray,
    test: np.ndarray,
    options: Options,
) -> list[Mined]:
    """The patterns of each class.

    Parameters
    ----------
    answers : sequence of (row, Explanation, ndarray of bool [edges])
        For every answer the row of its graph, and which edges of that it chose.
    graphs : LabelledGraphs
    classes : ndarray of int, shape [G]
        What the model says of each graph.
    test : ndarray of bool, shape [G]
        Which graphs must not be looked at.
    options : Options
    """
    seen = np.flatnonzero(~test)
    place = np.full(len(graphs), -1)
    place[seen] = np.arange(len(seen))
    here = graphs.take(seen)
    pieces = [graphs.pieces(row, chosen) for row, _, chosen in answers]
    found = []
    for prediction in sorted({int(classes[row]) for row, _, _ in answers if not test[row]}):
        mine_of = [(int(place[row]), p) for (row, _, _), p in zip(answers, pieces) if classes[row] == prediction]
        miner = Miner(here, classes[seen] == prediction, [(row, p) for row, p in mine_of if row >= 0])
        everything = Miner(here, classes[seen] == prediction, mine_of)  # test answers too, to name their keys
        named = [e.key for row, e, _ in answers if classes[row] == prediction]
        for pattern in dict.fromkeys((*miner.mine(options.count, options.least), *options.given)):
            keys = [key for key, yes in zip(named, everything.supported(pattern)) if yes]
            found.append(
                Mined(prediction, pattern, miner.support(pattern), len(miner.answers), tuple(dict.fromkeys(keys)))
            )
    return found


class Contained(NamedTuple):
    """Where a pattern occurs among tested graphs, with what that says of it."""

    there: Containing
    occurrences: Occurrences  # in the graphs of the class
    coverage: Estimate | None
    precision: Estimate | None


def contained(pattern: Pattern, prediction: int, graphs: LabelledGraphs, classes: np.ndarray) -> Contained:
    """Coverage and precision of a pattern on graphs that it was not found on."""
    there = containing(pattern, graphs)
    decided, inside, mine_ = ~there.undecided, there.contained, classes == prediction
    where = occurrences(pattern, graphs, inside & mine_)
    return Contained(there, where, estimate(inside[mine_ & decided]), estimate(mine_[inside]))


def estimate(passed: np.ndarray) -> Estimate | None:
    """A share with its interval, None of nothing."""
    return share(passed.tolist()) if len(passed) else None


def count_patterns(found: Explanations, options: Options) -> Patterns:
    """The patterns of explanations, counted in the explained graphs themselves; no model is run."""
    options.check()
    good, notes = usable(found.items)
    known = {e.key: e for e in found.items if len(e.units.of("edges"))}
    rows: list[GraphRow] = [explained_graph(e, found.context) for e in known.values()]
    row_of = {key: row for row, key in enumerate(known)}
    graphs = LabelledGraphs.join(rows, good[0].directed)
    classes = np.array([e.prediction for e in known.values()])
    test = np.array([options.is_test(key) for key in known])
    answers = [(row_of[e.key], e, e.selected[e.units.where("edges")]) for e in good]
    check_split(answers, test)
    tested = graphs.take(np.flatnonzero(test))
    items: list[FoundPattern] = []
    union: dict[int, Any] = {}
    for one in mine(answers, graphs, classes, test, options):
        got = contained(one.pattern, one.prediction, tested, classes[test])
        union[one.prediction] = union.get(one.prediction, False) | got.there.contained
        items.append(with_tests(one, got))
    notes.append("No model was run, so neither necessity nor sufficiency was tested: pass the model and the data.")
    if len(set(classes.tolist())) == 1:
        notes.append("All explained predictions are of one class: nothing was generalised, and precision says nothing.")
    return Patterns(tuple(items), facts(options, answers, test, classes, union, notes), dict(found.context))


def check_split(answers: Sequence[tuple[int, Explanation, np.ndarray]], test: np.ndarray) -> None:
    """Refuse a split that leaves nothing to find patterns in."""
    require(
        any(not test[row] for row, _, _ in answers),
        "Expected answers to find patterns in",
        got=f"{len(answers)}, all of them held out for the test",
        do="Explain more predictions, or pass a smaller held_out.",
    )


def with_tests(one: Mined, got: Contained, **shares: Estimate | None) -> FoundPattern:
    """A mined pattern with what its tests gave."""
    return FoundPattern(
        one.pattern,
        one.prediction,
        one.support,
        one.answers,
        got.coverage,
        got.precision,
        contained=int(got.there.contained.sum()),
        undecided=int((got.there.undecided | got.occurrences.undecided).sum()),
        keys=one.keys,
        **shares,
    )


def facts(
    options: Options,
    answers: Sequence[tuple[int, Explanation, np.ndarray]],
    test: np.ndarray,
    classes: np.ndarray,
    union: Mapping[int, np.ndarray],
    notes: Sequence[str],
) -> dict[str, Any]:
    """What is said of the split and of the patterns of each class together."""
    held = classes[test]
    return {
        "seed": options.seed,
        "held_out": options.held_out,
        "found_on": sum(not test[row] for row, _, _ in answers),
        "looked_at": int((~test).sum()),
        "tested": {c: int((held == c).sum()) for c in sorted(set(held.tolist()))},
        "together": {c: estimate(inside[held == c]) for c, inside in union.items()},
        "notes": list(notes),
    }
