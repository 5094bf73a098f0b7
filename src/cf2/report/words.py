"""What was verified, in sentences that a reader can repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from cf2.explanation import Explanation

Tone = Literal["good", "bad", "plain"]

STATUS = {
    "found": "passes both tests",
    "impossible": "impossible",
    "not found": "not found",
    "unverified": "not searched",
    "empty": "nothing to mask",
    "refused": "too large",
}


class Sentence(NamedTuple):
    """One statement: its first words stand out, and its tone says whether it is good news."""

    tone: Tone
    head: str
    text: str


def class_name(number: int, names: Sequence[str] | None = None) -> str:
    """The name of a class, or its number.

    >>> class_name(1, ["base", "house"]), class_name(7, ["base", "house"])
    ('house', 'class 7')
    """
    return str(names[number]) if names is not None and 0 <= number < len(names) else f"class {number}"


def class_names(context: Mapping[str, Any]) -> Sequence[str] | None:
    """The class names in a context, if it has any."""
    names = context.get("class_names")
    return [str(name) for name in names] if isinstance(names, list | tuple) and names else None


def counted(number: int, singular: str, plural: str = "") -> str:
    """A number and its noun.

    >>> counted(1, "edge"), counted(3, "feature entry", "feature entries")
    ('1 edge', '3 feature entries')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def units(e: Explanation) -> str:
    """What the explanation consists of: '3 edges and 2 feature entries'."""
    edges = int(e.selected[: len(e.unit_edges)].sum())
    entries = len(e.features)
    parts = [counted(edges, "edge")] if edges or not entries else []
    return " and ".join(parts + ([counted(entries, "feature entry", "feature entries")] if entries else []))


def subject(e: Explanation) -> str:
    """What was explained: 'node 42' or 'graph 7'."""
    return f"{'node' if e.task == 'node' else 'graph'} {e.key}"


def says(probabilities: np.ndarray, names: Sequence[str] | None = None) -> str:
    """The class that the model says, and how sure it is: 'mutagen (0.97)'."""
    best = int(np.argmax(probabilities))
    return f"{class_name(best, names)} ({round_probability(float(probabilities[best]))})"


def round_probability(value: float) -> str:
    """Two decimals, but never a rounded certainty.

    >>> round_probability(0.9999), round_probability(1.0), round_probability(0.5)
    ('>0.99', '1.00', '0.50')
    """
    if 0.995 <= value < 1.0:
        return ">0.99"
    return "<0.01" if 0.0 < value < 0.005 else f"{value:.2f}"


def prediction(e: Explanation, names: Sequence[str] | None = None) -> str:
    """What the model says of the whole graph, and whether that is right."""
    sure = round_probability(float(e.probabilities[e.prediction]))
    text = f"The model says {class_name(e.prediction, names)} ({sure}) of {subject(e)}"
    if e.label is None:
        return f"{text}."
    right = e.label == e.prediction
    return f"{text}, which is right." if right else f"{text}; the true class is {class_name(e.label, names)}."


def sentences(e: Explanation, names: Sequence[str] | None = None) -> list[Sentence]:
    """The verdicts on one explanation, the two tests first."""
    if e.status == "refused":
        return [Sentence("bad", "Refused", e.note)]
    if e.status == "empty":
        return [Sentence("plain", "Nothing to mask", e.note or "there is no edge or feature to remove.")]
    found = [_sufficient(e, names), _necessary(e, names), *_smallest(e)]
    status = _status(e)
    return [*found, status] if status else found


def verdict(e: Explanation, names: Sequence[str] | None = None) -> str:
    """All verdicts on one explanation as one paragraph."""
    return " ".join(f"{s.head}: {s.text}" for s in sentences(e, names))


def _those(e: Explanation) -> tuple[str, str]:
    """How the set is called when it is alone, and when it is gone."""
    if not e.size:
        return "nothing kept", "nothing removed"
    these = "this" if e.size == 1 else "these units:" if len(e.edges) and len(e.features) else "these"
    return f"only {these} {units(e)}", "it" if e.size == 1 else "them"


def _sufficient(e: Explanation, names: Sequence[str] | None) -> Sentence:
    alone = _those(e)[0]
    if e.sufficient:
        return Sentence("good", "Sufficient", f"with {alone} the model still says {says(e.only, names)}.")
    said = class_name(e.prediction, names)
    return Sentence("bad", "Not sufficient", f"with {alone} the model says {says(e.only, names)} instead of {said}.")


def _necessary(e: Explanation, names: Sequence[str] | None) -> Sentence:
    gone = _those(e)[1]
    start = f"without {gone}" if e.size else f"with {gone}"
    if e.necessary:
        return Sentence("good", "Necessary", f"{start} the model says {says(e.without, names)}.")
    return Sentence("bad", "Not necessary", f"{start} the model still says {says(e.without, names)}.")


def _smallest(e: Explanation) -> list[Sentence]:
    if not e.size:
        return []
    if e.optimal:
        return [Sentence("good", "Smallest", "proved that no smaller set passes both tests.")]
    if e.minimal:
        return [Sentence("good", "Minimal", "no single part of it can be left out.")]
    if e.minimal is False:
        return [Sentence("plain", "Not minimal", "some part of it can be left out and it still passes.")]
    return []


def _status(e: Explanation) -> Sentence | None:
    note = f" {e.note}" if e.note else ""
    if e.status == "impossible":
        return Sentence("bad", "Impossible", f"proved that no set passes both tests; this is the closest one.{note}")
    if e.status == "not found":
        text = f"no set that passes both tests was found within the budget; this is the best on offer.{note}"
        return Sentence("bad", "Not found", text)
    if e.status == "unverified" and not (e.sufficient and e.necessary):
        who = f"{e.method} does" if e.method else "this method does"
        return Sentence(
            "plain", "Not searched", f"{who} not look for a set that passes; both tests were still run.{note}"
        )
    return Sentence("plain", "Note", e.note) if e.note else None
