"""What was verified, in sentences that a reader can repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from cf2.results.explanation import Explanation
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
    "groups": UnitWords("group of edges", "groups of edges", "group {0}"),
    "added_edges": UnitWords("added edge", "added edges", "{0}{arrow}{1}"),
    "changes": UnitWords("changed feature", "changed features", "node {0}, feature {1}"),
}
# The sorts of edit, as a sentence and as a list name them; the kinds of unit that are not named here are removed.
ADDED, CHANGED = "added_edges", "changes"
SORTS = {"removing": "remove", "adding": "add", "changing": "change"}
SPELT_OUT = 6  # edits of one sort that a sentence names; of more, it gives the number


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


def describe_unit(e: Explanation, row: int, atoms: Sequence[str] | None = None) -> str:
    """How one unit is written: '3–17', 'node 3, feature 5'; of a change, 'atom 3: C → N' or 'node 3, feature 5: 0 → 1'.

    `atoms` names the element of every feature column.
    """
    name, arrow = e.units.names[e.units.kind[row]], "→" if e.directed else "–"
    text = unit_words(name).pattern.format(*e.units.ids[row].tolist(), arrow=arrow)
    if name == "groups":
        ends = e.units.members[e.units.members[:, 0] == row][:, 1:].tolist()
        shown = ", ".join(f"{u}{arrow}{v}" for u, v in ends[:SPELT_OUT])
        return f"{text} ({shown}{', …' if len(ends) > SPELT_OUT else ''})" if ends else text
    if name == CHANGED and len(e.units.values):
        (node, column), (source, old, new) = e.units.ids[row].tolist(), e.units.values[row].tolist()
        return describe_change(node, column, source, old, new, atoms)
    return text


def describe_change(
    node: int, column: int, source: float, old: float, new: float, atoms: Sequence[str] | None = None
) -> str:
    """A change of a feature; a one-hot feature moves from the column `source`, which is -1 for any other.

    >>> describe_change(3, 1, 0, 0, 1, ("C", "N")), describe_change(3, 1, -1, 0, 0.25), describe_change(3, 1, 0, 0, 1)
    ('atom 3: C → N', 'node 3, feature 1: 0 → 0.25', 'node 3: feature 0 → feature 1')
    """
    if source < 0:
        return f"node {node}, feature {column}: {old:.4g} → {new:.4g}"
    if atoms and max(column, source) < len(atoms):
        return f"atom {node}: {atoms[int(source)]} → {atoms[column]}"
    return f"node {node}: feature {int(source)} → feature {column}"


def adds_or_changes(e: Explanation) -> bool:
    """Whether a counterfactual may do more than remove, so that its set is no part of the graph."""
    return e.question == "counterfactual" and any(name in e.units.names for name in (ADDED, CHANGED))


def edits_by_sort(e: Explanation, atoms: Sequence[str] | None = None) -> dict[str, list[str]]:
    """The edits of a counterfactual as texts by sort, 'removing', 'adding', 'changing'; none of a sort, no entry."""
    found: dict[str, list[str]] = {sort: [] for sort in SORTS}
    for row in np.flatnonzero(e.selected).tolist() if e.question == "counterfactual" else ():
        name = e.units.names[e.units.kind[row]]
        sort = {ADDED: "adding", CHANGED: "changing"}.get(name, "removing")
        found[sort].append(describe_unit(e, row, atoms))
    return {sort: texts for sort, texts in found.items() if texts}


def describe_edits(e: Explanation, atoms: Sequence[str] | None = None) -> str:
    """The edits of a counterfactual in half a sentence: 'adding 1–5 and removing 3–4'."""
    parts = []
    for sort, texts in edits_by_sort(e, atoms).items():
        many = count_nouns(len(texts), {"adding": "edge", "changing": "feature"}.get(sort, "unit"))
        parts.append(f"{sort} {join_words(texts) if len(texts) <= SPELT_OUT else many}")
    return join_words(parts) or "no edit"


def list_edits(e: Explanation, atoms: Sequence[str] | None = None, most: int = SPELT_OUT) -> str:
    """The edits of a counterfactual as a short list: 'remove 3–4; add 1–5, 2–7'."""
    parts = []
    for sort, texts in edits_by_sort(e, atoms).items():
        more = f" and {len(texts) - most} more" if len(texts) > most else ""
        parts.append(f"{SORTS[sort]} {', '.join(texts[:most])}{more}")
    return "; ".join(parts)


def join_words(words: Sequence[str]) -> str:
    """A list in words.

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def atom_names(context: Mapping[str, Any]) -> Sequence[str] | None:
    """The element of every feature column in a context, if it has any."""
    atoms = context.get("atoms")
    return [str(atom) for atom in atoms] if isinstance(atoms, list | tuple) and atoms else None


def said_rows(e: Explanation) -> tuple[tuple[str, np.ndarray], ...]:
    """What the model was asked, in a few words each, and the probabilities [classes] that it gave."""
    if adds_or_changes(e):
        return ("as it is", e.probabilities), ("after the edits", e.probabilities_without)
    return ("all", e.probabilities), ("only", e.probabilities_only), ("without", e.probabilities_without)


def count_units(e: Explanation) -> str:
    """What the explanation consists of: '3 edges and 2 feature entries'."""
    names = _chosen_kinds(e) or e.units.names[:1] or ("edges",)
    return " and ".join(count_nouns(len(e.chosen(name)), *unit_words(name)[:2]) for name in names)


def describe_target(e: Explanation) -> str:
    """What was explained: 'node 42', 'graph 7' or 'pair (3, 17)'."""
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
    sure = round_probability(float(e.probabilities[e.prediction]))
    text = f"The model says {class_name(e.prediction, names)} ({sure}) of {describe_target(e)}"
    if e.label is None:
        return f"{text}."
    right = e.label == e.prediction
    return f"{text}, which is right." if right else f"{text}; the true class is {class_name(e.label, names)}."


def verdict_sentences(
    e: Explanation, names: Sequence[str] | None = None, atoms: Sequence[str] | None = None
) -> list[Sentence]:
    """The verdicts on one explanation, the two tests first; of edits, what they lead to."""
    if e.status == "refused":
        return [Sentence("bad", "Refused", e.note)]
    if e.status == "empty":
        return [Sentence("plain", "Nothing to mask", e.note or "there is nothing to remove.")]
    if e.status == "not predicted":
        return [Sentence("plain", "Nothing to explain", e.note)]
    tests = [_edited(e, names, atoms)] if adds_or_changes(e) else [_sufficient(e, names), _necessary(e, names)]
    found = [*tests, *_smallest(e)]
    status = _status(e)
    return [*found, status] if status else found


def verdict(e: Explanation, names: Sequence[str] | None = None, atoms: Sequence[str] | None = None) -> str:
    """All verdicts on one explanation as one paragraph."""
    return " ".join(f"{s.head}: {s.text}" for s in verdict_sentences(e, names, atoms))


def _chosen_kinds(e: Explanation) -> tuple[str, ...]:
    return tuple(name for name in e.units.names if len(e.chosen(name)))


def _sufficient(e: Explanation, names: Sequence[str] | None) -> Sentence:
    these = "this" if e.size == 1 else "these units:" if len(_chosen_kinds(e)) > 1 else "these"
    alone = f"only {these} {count_units(e)}" if e.size else "nothing kept"
    said = describe_output(e.probabilities_only, names)
    if e.sufficient:
        return Sentence("good", "Sufficient", f"with {alone} the model still says {said}.")
    expected = class_name(e.prediction if e.question == "counterfactual" else e.explained, names)
    tone: Tone = "plain" if e.question == "counterfactual" else "bad"
    return Sentence(tone, "Not sufficient", f"with {alone} the model says {said} instead of {expected}.")


def _necessary(e: Explanation, names: Sequence[str] | None) -> Sentence:
    start = "with nothing removed" if not e.size else f"without {'it' if e.size == 1 else 'them'}"
    said = describe_output(e.probabilities_without, names)
    if e.necessary:
        return Sentence("good", "Necessary", f"{start} the model says {said}.")
    tone: Tone = "plain" if e.question == "factual" else "bad"
    if e.question == "counterfactual" and e.target is not None:
        return Sentence(tone, "Not enough", f"{start} the model says {said}, and not {class_name(e.target, names)}.")
    return Sentence(tone, "Not necessary", f"{start} the model still says {said}.")


def _edited(e: Explanation, names: Sequence[str] | None, atoms: Sequence[str] | None) -> Sentence:
    """What the model says after the edits."""
    start = f"after {describe_edits(e, atoms)}" if e.size else "with nothing edited"
    said, before = describe_output(e.probabilities_without, names), class_name(e.prediction, names)
    done, failed = ("Changed", "Not changed") if e.target is None else ("Reached", "Not reached")
    if e.necessary:
        return Sentence("good", done, f"{start} the model says {said} instead of {before}.")
    wanted = "" if e.target is None else f", and not {class_name(e.target, names)}"
    still = "still says" if int(np.argmax(e.probabilities_without)) == e.prediction else "says"
    return Sentence("bad", failed, f"{start} the model {still} {said}{wanted}.")


def _smallest(e: Explanation) -> list[Sentence]:
    if not e.size:
        return []
    edits = adds_or_changes(e)
    if e.optimal:
        fewer = "fewer edits do this" if edits else f"smaller set passes {TESTS[e.question]}"
        return [Sentence("good", "Smallest", f"proved that no {fewer}.")]
    if e.minimal:
        return [Sentence("good", "Minimal", f"no single {'edit' if edits else 'part of it'} can be left out.")]
    if e.minimal is False:
        return [Sentence("plain", "Not minimal", "some part of it can be left out and it still passes.")]
    return []


def _status(e: Explanation) -> Sentence | None:
    note, tests = f" {e.note}" if e.note else "", TESTS[e.question]
    if adds_or_changes(e) and e.status in ("impossible", "not found"):
        return _no_edits(e, note)
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


def _no_edits(e: Explanation, note: str) -> Sentence:
    """What is said where no edits do what was asked."""
    aim = "changes the answer" if e.target is None else "reaches that class"
    if e.status == "impossible":
        return Sentence("bad", "Impossible", f"proved that no set of such edits {aim}; this one comes closest.{note}")
    text = f"no set of edits that {aim} was found within the budget; this is the best one known.{note}"
    return Sentence("bad", "Not found", text)
