"""What was verified, in sentences that a reader can repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from cf2.core.types import Types
from cf2.results.explanation import Explanation
from cf2.results.typed import name_of
from cf2.spec import Key

Tone = Literal["good", "bad", "plain"]

STATUS = {
    "found": "passes its tests",
    "impossible": "impossible",
    "not found": "not found",
    "unverified": "not searched",
    "not predicted": "not predicted",
    "empty": "nothing to mask",
    "refused": "too large",
}


TESTS = {"why": "both tests", "factual": "the test of sufficiency", "counterfactual": "the test of necessity"}


class UnitWords(NamedTuple):
    """The noun for a kind of unit, and how one of them is written from its two ids."""

    singular: str
    plural: str
    pattern: str


UNIT_WORDS = {
    "edges": UnitWords("edge", "edges", "{0}{arrow}{1}"),
    "features": UnitWords("feature entry", "feature entries", "node {0}, feature {1}"),
    "nodes": UnitWords("node", "nodes", "node {0}"),
    "node_features": UnitWords("feature row", "feature rows", "features of node {0}"),
    "columns": UnitWords("feature column", "feature columns", "feature {1}"),
}


class Sentence(NamedTuple):
    """One statement: its first words stand out, and its tone says whether it is good or bad."""

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


def count_nouns(number: int, singular: str, plural: str = "") -> str:
    """A number and its noun.

    >>> count_nouns(1, "edge"), count_nouns(3, "feature entry", "feature entries")
    ('1 edge', '3 feature entries')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def unit_words(name: str) -> UnitWords:
    """The words for a kind of unit by its name in `units=`; one that is not known is called by its name.

    >>> unit_words("features").plural, unit_words("added_edges").singular
    ('feature entries', 'added edge')
    """
    plain = name.replace("_", " ")
    return UNIT_WORDS.get(name) or UnitWords(plain.removesuffix("s"), plain, "{0}, {1}")


def describe_unit(e: Explanation, row: int) -> str:
    """How one unit is written: '3–17', 'node 3, feature 5', 'user 3 –likes→ item 17'."""
    name = e.units.names[e.units.kind[row]]
    if e.types is not None:
        return _typed_unit(e, e.types, row, name)
    pattern = unit_words(name).pattern
    return pattern.format(*e.units.ids[row].tolist(), arrow="→" if e.directed else "–")


def _typed_unit(e: Explanation, types: Types, row: int, name: str) -> str:
    first, second = e.units.ids[row].tolist()
    if name == "edges":
        relation = types.edges[e.units.types[row]][1]
        return f"{name_of(types, first)} –{relation}→ {name_of(types, second)}"
    if name == "columns":
        return f"{types.nodes[e.units.types[row]]}, feature {second}"
    text = unit_words(name).pattern.format("{0}", second, arrow="")
    return text.replace("node {0}", name_of(types, first)).replace("{0}", name_of(types, first))


def describe_types(e: Explanation) -> str:
    """Which types carried the answer: '3 of 12 (user, likes, item), 1 of 4 user'; empty without types."""
    parts = [f"{chosen} of {units} {_type_name(name)}" for name, (chosen, units) in e.by_type().items() if chosen]
    return ", ".join(parts)


def _type_name(name: Any) -> str:
    return f"({', '.join(name)})" if isinstance(name, tuple) else str(name)


def count_units(e: Explanation) -> str:
    """What the explanation consists of: '3 edges and 2 feature entries'."""
    names = _chosen_kinds(e) or e.units.names[:1] or ("edges",)
    return " and ".join(count_nouns(len(e.chosen(name)), *unit_words(name)[:2]) for name in names)


def describe_target(e: Explanation) -> str:
    """What was explained: 'node 42', 'graph 7' or 'pair (3, 17)'."""
    if e.types is not None and e.types.explained:
        named = [name_of(e.types, node) for node in e.types.flat(e.key)]
        return named[0] if len(named) == 1 else f"pair ({', '.join(named)})"
    return f"{e.task} {e.key}"


def key_id(key: Key) -> str:
    """A key as part of an id in HTML.

    >>> key_id(3), key_id((3, 17))
    ('3', '3-17')
    """
    return "-".join(map(str, key)) if isinstance(key, tuple) else str(key)


def describe_output(probabilities: np.ndarray, names: Sequence[str] | None = None) -> str:
    """The class that the model says, and how sure it is: 'mutagen (0.97)'."""
    best = int(np.argmax(probabilities))
    return f"{class_name(best, names)} ({round_probability(float(probabilities[best]))})"


def describe_said(e: Explanation, values: np.ndarray, names: Sequence[str] | None = None) -> str:
    """What the model says: a class and how sure it is, a label or its absence, or a number."""
    if e.output == "classes":
        return describe_output(values, names)
    own = float(values[e.prediction])
    if e.output == "regression":
        return f"{own:.4g}"
    return f"{'' if own > 0.5 else 'not '}{label_name(e.prediction, names)} ({round_probability(own)})"


def short_said(e: Explanation, names: Sequence[str] | None = None) -> str:
    """The same in a word or two, for a table."""
    return class_name(e.prediction, names) if e.output == "classes" else describe_said(e, e.probabilities, names)


def label_name(number: int, names: Sequence[str] | None = None) -> str:
    """The name of a label of many, or its number.

    >>> label_name(1, ["red", "round"]), label_name(7)
    ('round', 'label 7')
    """
    return class_name(number, names).replace("class ", "label ")


def round_probability(value: float) -> str:
    """Two decimals, but never a rounded certainty.

    >>> round_probability(0.9999), round_probability(1.0), round_probability(0.5)
    ('>0.99', '1.00', '0.50')
    """
    if 0.995 <= value < 1.0:
        return ">0.99"
    return "<0.01" if 0.0 < value < 0.005 else f"{value:.2f}"


def describe_prediction(e: Explanation, names: Sequence[str] | None = None) -> str:
    """What the model says of the whole graph, and whether that is right."""
    text = f"The model says {describe_said(e, e.probabilities, names)} of {describe_target(e)}"
    if e.label is None:
        return f"{text}."
    right = e.label == e.prediction
    return f"{text}, which is right." if right else f"{text}; the true class is {class_name(e.label, names)}."


def verdict_sentences(e: Explanation, names: Sequence[str] | None = None) -> list[Sentence]:
    """The verdicts on one explanation, the two tests first."""
    if e.status == "refused":
        return [Sentence("bad", "Refused", e.note)]
    if e.status == "empty":
        return [Sentence("plain", "Nothing to mask", e.note or "there is nothing to remove.")]
    if e.status == "not predicted":
        return [Sentence("plain", "Nothing to explain", e.note)]
    found = [_sufficient(e, names), _necessary(e, names), *_smallest(e)]
    if carried := describe_types(e):
        found.append(Sentence("plain", "Types", f"{carried}."))
    status = _status(e)
    return [*found, status] if status else found


def verdict(e: Explanation, names: Sequence[str] | None = None) -> str:
    """All verdicts on one explanation as one paragraph."""
    return " ".join(f"{s.head}: {s.text}" for s in verdict_sentences(e, names))


def _chosen_kinds(e: Explanation) -> tuple[str, ...]:
    return tuple(name for name in e.units.names if len(e.chosen(name)))


def _sufficient(e: Explanation, names: Sequence[str] | None) -> Sentence:
    these = "this" if e.size == 1 else "these units:" if len(_chosen_kinds(e)) > 1 else "these"
    alone = f"only {these} {count_units(e)}" if e.size else "nothing kept"
    said = describe_said(e, e.probabilities_only, names)
    tone: Tone = "plain" if e.question == "counterfactual" else "bad"
    if e.output == "regression":
        near = f"±{e.tolerance:.3g} of {e.value:.4g}"
        if e.sufficient:
            return Sentence("good", "Sufficient", f"with {alone} the model says {said}, within {near}.")
        return Sentence(tone, "Not sufficient", f"with {alone} the model says {said}, outside of {near}.")
    if e.sufficient:
        return Sentence("good", "Sufficient", f"with {alone} the model still says {said}.")
    expected = class_name(e.prediction if e.question == "counterfactual" else e.explained, names)
    if e.output == "multilabel":
        expected = describe_said(e, e.probabilities, names)
    return Sentence(tone, "Not sufficient", f"with {alone} the model says {said} instead of {expected}.")


def _necessary(e: Explanation, names: Sequence[str] | None) -> Sentence:
    start = "with nothing removed" if not e.size else f"without {'it' if e.size == 1 else 'them'}"
    said = describe_said(e, e.probabilities_without, names)
    if e.necessary:
        return Sentence("good", "Necessary", f"{start} the model says {said}.")
    tone: Tone = "plain" if e.question == "factual" else "bad"
    if e.question == "counterfactual" and e.target is not None and e.output == "classes":
        return Sentence(tone, "Not enough", f"{start} the model says {said}, and not {class_name(e.target, names)}.")
    return Sentence(tone, "Not necessary", f"{start} the model still says {said}.")


def _smallest(e: Explanation) -> list[Sentence]:
    if not e.size:
        return []
    if e.optimal:
        return [Sentence("good", "Smallest", f"proved that no smaller set passes {TESTS[e.question]}.")]
    if e.minimal:
        bound, tests = e.lower_bound or 0, TESTS[e.question]
        proved = f" Proved that no set of fewer than {bound:,} passes {tests}." if bound > 1 else ""
        return [Sentence("good", "Minimal", f"no single part of it can be left out.{proved}")]
    if e.minimal is False:
        return [Sentence("plain", "Not minimal", "some part of it can be left out and it still passes.")]
    return []


def _status(e: Explanation) -> Sentence | None:
    note, tests = f" {e.note}" if e.note else "", TESTS[e.question]
    if e.status == "impossible":
        return Sentence("bad", "Impossible", f"proved that no set passes {tests}; this is the closest one.{note}")
    if e.status == "not found":
        text = f"no set that passes {tests} was found within the budget; this is the best set known.{note}"
        return Sentence("bad", "Not found", text)
    if e.status == "unverified" and not (e.sufficient and e.necessary):
        who = f"{e.method} does" if e.method else "this method does"
        text = f"{who} not look for a set that passes; both tests were still run.{note}"
        return Sentence("plain", "Not searched", text)
    return Sentence("plain", "Note", e.note) if e.note else None
