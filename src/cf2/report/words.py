"""How units and edits are called and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from cf2.graphs.typed import Types
from cf2.models.outputs import CLASSES, output_kind
from cf2.options import Key
from cf2.results.explanation import Explanation
from cf2.results.names import describe_node, entry, feature_name, node_name
from cf2.units.edits import CHANGE, EDGE_KINDS, EDITS, EditKind, edit_of, is_candidate

# -- unit words ------------------------------------------------------------------------------------------


class UnitWords(NamedTuple):
    """The noun for a kind of unit, and how one of them is written from its two ids."""

    singular: str
    plural: str
    pattern: str


UNIT_WORDS = {
    "edges": UnitWords("edge", "edges", "{0}{arrow}{1}"),
    "features": UnitWords("feature entry", "feature entries", "node {0}, {1}"),
    "nodes": UnitWords("node", "nodes", "node {0}"),
    "node_features": UnitWords("feature row", "feature rows", "features of node {0}"),
    "columns": UnitWords("feature column", "feature columns", "{1}"),
    "groups": UnitWords("group of edges", "groups of edges", "group {0}"),
    "added_edges": UnitWords("added edge", "added edges", "{0}{arrow}{1}"),
    "changes": UnitWords("changed feature", "changed features", "node {0}, {1}"),
}
SPELT_OUT = 6  # edits of one kind that a sentence names; of more, it gives the number


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
    if e.types is not None:
        return _typed_unit(e, e.types, row, name)
    first, second = e.units.ids[row].tolist()
    tail = str(first) if name == "groups" or first < 0 else describe_node(e, first)
    head = describe_node(e, second) if name in EDGE_KINDS else feature_name(e, second)
    text = unit_words(name).pattern.format(tail, head, arrow=arrow)
    if name == "groups":
        ends = e.units.members[e.units.members[:, 0] == row][:, 1:].tolist()
        shown = ", ".join(f"{describe_node(e, u)}{arrow}{describe_node(e, v)}" for u, v in ends[:SPELT_OUT])
        return f"{text} ({shown}{', …' if len(ends) > SPELT_OUT else ''})" if ends else text
    if name == CHANGE.unit_kind and len(e.units.values):
        source, old, new = e.units.values[row].tolist()
        names = [feature_name(e, one) for one in (int(source), second)]
        return describe_change(tail, second, source, old, new, atoms, names)
    return text


def describe_change(
    node: int | str,
    column: int,
    source: float,
    old: float,
    new: float,
    atoms: Sequence[str] | None = None,
    names: Sequence[str] = (),
) -> str:
    """A change of a feature; a one-hot feature moves from the column `source`, which is -1 for any other.

    `names` are those of the two columns, where they have any.

    >>> describe_change(3, 1, 0, 0, 1, ("C", "N")), describe_change(3, 1, -1, 0, 0.25), describe_change(3, 1, 0, 0, 1)
    ('atom 3: C → N', 'node 3, feature 1: 0 → 0.25', 'node 3: feature 0 → feature 1')
    """
    before, after = names or (f"feature {int(source)}", f"feature {column}")
    if source < 0:
        return f"node {node}, {after}: {old:.4g} → {new:.4g}"
    if atoms and max(column, source) < len(atoms):
        return f"atom {node}: {atoms[int(source)]} → {atoms[column]}"
    return f"node {node}: {before} → {after}"


def adds_or_changes(e: Explanation) -> bool:
    """Whether a counterfactual may do more than remove, so that its set is no part of the graph."""
    return e.question == "counterfactual" and any(map(is_candidate, e.units.names))


def edits_by_kind(e: Explanation, atoms: Sequence[str] | None = None) -> list[tuple[EditKind, list[str]]]:
    """The edits of a counterfactual as texts by kind; kinds without any are left out."""
    found: dict[str, list[str]] = {name: [] for name in EDITS}
    for row in np.flatnonzero(e.selected).tolist() if e.question == "counterfactual" else ():
        found[edit_of(e.units.names[e.units.kind[row]]).name].append(describe_unit(e, row, atoms))
    return [(EDITS[name], texts) for name, texts in found.items() if texts]


def describe_edits(e: Explanation, atoms: Sequence[str] | None = None) -> str:
    """The edits of a counterfactual in half a sentence: 'adding 1–5 and removing 3–4'."""
    parts = []
    for edit, texts in edits_by_kind(e, atoms):
        counted = count_nouns(len(texts), edit.noun)
        parts.append(f"{edit.participle} {join_words(texts) if len(texts) <= SPELT_OUT else counted}")
    return join_words(parts) or "no edit"


def list_edits(e: Explanation, atoms: Sequence[str] | None = None, most: int = SPELT_OUT) -> str:
    """The edits of a counterfactual as a short list: 'remove 3–4; add 1–5, 2–7'."""
    parts = []
    for edit, texts in edits_by_kind(e, atoms):
        more = f" and {len(texts) - most} more" if len(texts) > most else ""
        parts.append(f"{edit.name} {', '.join(texts[:most])}{more}")
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


def _typed_unit(e: Explanation, types: Types, row: int, name: str) -> str:
    first, second = e.units.ids[row].tolist()
    if name in EDGE_KINDS:
        relation = types.edges[e.units.types[row]][1]
        return f"{describe_node(e, first)} –{relation}→ {describe_node(e, second)}"
    if name == "columns":
        kind = types.nodes[e.units.types[row]]
        return f"{kind}, {feature_name(e, second, kind=kind)}"
    text = unit_words(name).pattern.format("{0}", feature_name(e, second, first), arrow="")
    if name == CHANGE.unit_kind and len(e.units.values):
        source, old, new = e.units.values[row].tolist()
        names = [feature_name(e, one, first) for one in (int(source), second)]
        text = describe_change("{0}", second, source, old, new, None, names)
    return text.replace("node {0}", describe_node(e, first)).replace("{0}", describe_node(e, first))


def describe_types(e: Explanation) -> str:
    """Which types carried the answer: '3 of 12 (user, likes, item), 1 of 4 user'; empty without types."""
    parts = [f"{chosen} of {units} {_type_name(name)}" for name, (chosen, units) in e.by_type().items() if chosen]
    return ", ".join(parts)


def _type_name(name: Any) -> str:
    return f"({', '.join(name)})" if isinstance(name, tuple) else str(name)


# -- sentences -------------------------------------------------------------------------------------------


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
    return CLASSES.column_name(number, names)


def class_names(context: Mapping[str, Any]) -> Sequence[str] | None:
    """The class names in a context, if it has any."""
    names = context.get("class_names")
    if isinstance(names, Mapping):
        most = max((int(number) for number in names), default=-1)
        names = [entry(names, number) or f"class {number}" for number in range(min(most, 100_000) + 1)]
    return [str(name) for name in names] if isinstance(names, list | tuple) and names else None


def count_units(e: Explanation) -> str:
    """What the explanation consists of: '3 edges and 2 feature entries'."""
    names = _chosen_kinds(e) or e.units.names[:1] or ("edges",)
    return " and ".join(count_nouns(len(e.chosen(name)), *unit_words(name)[:2]) for name in names)


def describe_target(e: Explanation) -> str:
    """What was explained: 'node 42', 'graph 7' or 'pair (3, 17)'; with a name, 'node 42 (alice)'."""
    if e.types is not None and e.types.explained:
        named = [describe_node(e, node) for node in e.types.flat(e.key)]
        return named[0] if len(named) == 1 else f"pair ({', '.join(named)})"
    ids = () if e.task == "graph" else e.key if isinstance(e.key, tuple) else (e.key,)
    known = [describe_node(e, node) for node in ids] if any(node_name(e, node) for node in ids) else []
    return f"{e.task} {e.key}" + (f" ({', '.join(known)})" if known else "")


def key_id(key: Key) -> str:
    """A key as part of an id in HTML.

    >>> key_id(3), key_id((3, 17))
    ('3', '3-17')
    """
    return "-".join(map(str, key)) if isinstance(key, tuple) else str(key)


def describe_said(e: Explanation, values: np.ndarray, names: Sequence[str] | None = None) -> str:
    """What the model says: a class and how sure it is, a label or its absence, or a number."""
    kind = output_kind(e.output)
    column = int(np.argmax(values)) if kind.exclusive else e.prediction
    value = float(values[column])
    return kind.said.format(
        name=kind.column_name(column, names),
        probability=round_probability(value),
        value=value,
        no="" if value > 0.5 else "not ",
    )


def short_said(e: Explanation, names: Sequence[str] | None = None) -> str:
    """The same in a word or two, for a table."""
    exclusive = output_kind(e.output).exclusive
    return class_name(e.prediction, names) if exclusive else describe_said(e, e.probabilities, names)


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
    if carried := describe_types(e):
        found.append(Sentence("plain", "Types", f"{carried}."))
    status = _status(e)
    return [*found, status] if status else found


def verdict(e: Explanation, names: Sequence[str] | None = None, atoms: Sequence[str] | None = None) -> str:
    """All verdicts on one explanation as one paragraph; names are those of its context if none are given."""
    names, atoms = names or class_names(e.context), atoms or atom_names(e.context)
    return " ".join(f"{s.head}: {s.text}" for s in verdict_sentences(e, names, atoms))


def in_short(e: Explanation) -> str:
    """One explanation in a line: 'node 3: house (0.98) because of 4 edges of 12; sufficient, necessary, smallest'."""
    said = describe_said(e, e.probabilities, class_names(e.context)) if len(e.probabilities) else "nothing"
    facts = [name for name in ("sufficient", "necessary") if getattr(e, name)]
    facts += ["smallest"] if e.optimal else ["minimal"] if e.minimal else []
    start = f"{describe_target(e)}: {said}"
    if e.question == "counterfactual" and e.size:
        text = list_edits(e, atom_names(e.context))
        return f"{start}; to change that, {text}; {STATUS.get(e.status, e.status)}"
    if not e.size:
        return f"{start}; no units chosen of {e.num_units:,}; {STATUS.get(e.status, e.status)}"
    passed = ", ".join(facts) or "neither sufficient nor necessary"
    status = "" if e.status == "found" else f"; {STATUS.get(e.status, e.status)}"
    return f"{start} because of {count_units(e)} of {e.num_units:,}; {passed}{status}"


def _chosen_kinds(e: Explanation) -> tuple[str, ...]:
    return tuple(name for name in e.units.names if len(e.chosen(name)))


def _sufficient(e: Explanation, names: Sequence[str] | None) -> Sentence:
    these = "this" if e.size == 1 else "these units:" if len(_chosen_kinds(e)) > 1 else "these"
    alone = f"only {these} {count_units(e)}" if e.size else "nothing kept"
    said = describe_said(e, e.probabilities_only, names)
    tone: Tone = "plain" if e.question == "counterfactual" else "bad"
    if e.tolerance is not None:
        near = f"±{e.tolerance:.3g} of {e.value:.4g}"
        if e.sufficient:
            return Sentence("good", "Sufficient", f"with {alone} the model says {said}, within {near}.")
        return Sentence(tone, "Not sufficient", f"with {alone} the model says {said}, outside of {near}.")
    if e.sufficient:
        return Sentence("good", "Sufficient", f"with {alone} the model still says {said}.")
    expected = describe_said(e, e.probabilities, names)
    if output_kind(e.output).exclusive:
        expected = class_name(e.prediction if e.question == "counterfactual" else e.explained, names)
    return Sentence(tone, "Not sufficient", f"with {alone} the model says {said} instead of {expected}.")


def _necessary(e: Explanation, names: Sequence[str] | None) -> Sentence:
    start = "with nothing removed" if not e.size else f"without {'it' if e.size == 1 else 'them'}"
    said = describe_said(e, e.probabilities_without, names)
    if e.necessary:
        return Sentence("good", "Necessary", f"{start} the model says {said}.")
    tone: Tone = "plain" if e.question == "factual" else "bad"
    if e.question == "counterfactual" and e.target is not None and output_kind(e.output).exclusive:
        return Sentence(tone, "Not enough", f"{start} the model says {said}, and not {class_name(e.target, names)}.")
    return Sentence(tone, "Not necessary", f"{start} the model still says {said}.")


def _edited(e: Explanation, names: Sequence[str] | None, atoms: Sequence[str] | None) -> Sentence:
    """What the model says after the edits."""
    start = f"after {describe_edits(e, atoms)}" if e.size else "with nothing edited"
    said, before = describe_said(e, e.probabilities_without, names), short_said(e, names)
    done, failed = ("Changed", "Not changed") if e.target is None else ("Reached", "Not reached")
    if e.necessary:
        return Sentence("good", done, f"{start} the model says {said} instead of {before}.")
    wanted = "" if e.target is None else f", and not {class_name(e.target, names)}"
    said_class = int(np.argmax(e.probabilities_without))
    still = "says" if output_kind(e.output).exclusive and said_class != e.prediction else "still says"
    return Sentence("bad", failed, f"{start} the model {still} {said}{wanted}.")


def _smallest(e: Explanation) -> list[Sentence]:
    if not e.size:
        return []
    edits = adds_or_changes(e)
    if e.optimal:
        fewer = "fewer edits do this" if edits else f"smaller set passes {TESTS[e.question]}"
        return [Sentence("good", "Smallest", f"proved that no {fewer}.")]
    if e.minimal:
        bound, what = e.lower_bound or 0, "edits do this" if edits else f"passes {TESTS[e.question]}"
        proved = f" Proved that no set of fewer than {bound:,} {what}." if bound > 1 else ""
        return [Sentence("good", "Minimal", f"no single {'edit' if edits else 'part of it'} can be left out.{proved}")]
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


# -- advice ----------------------------------------------------------------------------------------------


CHANGING = 'ask for edits that add and change: question="counterfactual", edits=("remove", "add", "change").'
NEXT = {
    "found": "Take it away, or keep nothing else, and see the model change its answer; or ask for another explanation.",
    "impossible": f"Nothing that is removed does it. Other units may, or {CHANGING}",
    "not found": 'Search longer with effort="thorough", allow units of more kinds, or ' + CHANGING,
    "unverified": "This method only scores. Explain again by cf2, or pass search=True to look for a set that passes.",
    "not predicted": 'Ask what would have to change: question="counterfactual" with this class as its target.',
    "empty": 'There is nothing of this kind to remove. Choose other units, such as units=("edges", "features").',
    "refused": "Let only the units that matter be searched, with reduce=, or raise max_units=.",
}
REACHED = "Make the edits one by one, and see which of them turns the answer; or allow fewer kinds of edit."
MISSED = 'Allow more: other kinds of edit, candidates="far", or effort="thorough".'
FAILED = {
    (True, False): "The answer has a second reason beside this one. Ask for both tests at once: explain again by cf2.",
    (False, True): "It is needed, and needs company. A larger k, or cf2, finds what else it takes.",
}


def next_step(e: Explanation) -> str:
    """One sentence or two about what to try next."""
    if adds_or_changes(e) and e.status in ("found", "impossible", "not found", "unverified"):
        return REACHED if e.necessary else MISSED
    if e.status == "unverified" and e.sufficient and e.necessary:
        return NEXT["found"]
    if e.status == "unverified" and e.question == "why" and (e.sufficient, e.necessary) in FAILED:
        return FAILED[e.sufficient, e.necessary]
    return NEXT.get(e.status, "")
