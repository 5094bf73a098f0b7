"""Explanations in words: what units and edits are called, what the model says, the verdicts, and what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from cf2.models.outputs import output_kind
from cf2.options import Key
from cf2.results.explanation import STATUSES, WHOLE, Explanation
from cf2.results.names import describe_node, entry, feature_name, node_name
from cf2.units.edits import CHANGE, EDGE_KINDS, EDITS, EditKind, edit_of, is_candidate

MAX_SPELT_OUT = 6  # edits of one kind that a sentence names; of more, it gives the number

Tone = Literal["good", "bad", "plain"]


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
    "units": UnitWords("unit", "units", "{1}"),
    "groups": UnitWords("group of edges", "groups of edges", "group {0}"),
}

TESTS = {"why": "both tests", "factual": "the test of sufficiency", "counterfactual": "the test of necessity"}


class Sentence(NamedTuple):
    """One statement: its first words stand out, and its tone says whether it is good or bad."""

    tone: Tone
    head: str
    text: str


def count_nouns(number: int, singular: str, plural: str = "") -> str:
    """A number and its noun.

    >>> count_nouns(1, "edge"), count_nouns(3, "feature entry", "feature entries")
    ('1 edge', '3 feature entries')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def join_words(words: Sequence[str]) -> str:
    """A list in words.

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def key_id(key: Key) -> str:
    """A key as part of an id in HTML.

    >>> key_id(3), key_id((3, 17))
    ('3', '3-17')
    """
    return "-".join(map(str, key)) if isinstance(key, tuple) else str(key)


def round_probability(value: float) -> str:
    """Two decimals, but never a rounded certainty.

    >>> round_probability(0.9999), round_probability(1.0), round_probability(0.5)
    ('>0.99', '1.00', '0.50')
    """
    if 0.995 <= value < 1.0:
        return ">0.99"
    return "<0.01" if 0.0 < value < 0.005 else f"{value:.2f}"


def class_name(e: Explanation, column: int) -> str:
    """The name of a class, of a label or of a column of numbers: 'house', or 'class 7' without a name."""
    name = entry(e.context.get("class_names"), column)
    return f"{output_kind(e.output).noun} {column}" if name is None else str(name)


def unit_words(name: str) -> UnitWords:
    """The words for a kind of unit by its name in `units=`; an unknown kind is called by its name.

    >>> unit_words("features").plural, unit_words("added_edges").singular
    ('feature entries', 'added edge')
    """
    plain = name.replace("_", " ")
    if not is_candidate(name):
        return UNIT_WORDS.get(name) or UnitWords(plain.removesuffix("s"), plain, "{0}, {1}")
    edit = edit_of(name)
    noun = f"{edit.past} {edit.noun}"
    return UnitWords(noun, f"{noun}s", UNIT_WORDS["edges" if edit.pairs else "features"].pattern)


def count_units(e: Explanation) -> str:
    """What the explanation consists of: '3 edges and 2 feature entries'."""
    names = _chosen_kinds(e) or e.units.names[:1] or ("edges",)
    return join_words([count_nouns(len(e.chosen(name)), *unit_words(name)[:2]) for name in names])


def unit_nouns(e: Explanation) -> str:
    """The noun for all units of an explanation: 'edges', or 'units' for several kinds."""
    kinds = _chosen_kinds(e)
    return "edits" if adds_or_changes(e) else unit_words(kinds[0]).plural if len(kinds) == 1 else "units"


def _chosen_kinds(e: Explanation) -> tuple[str, ...]:
    return tuple(name for name in e.units.names if len(e.chosen(name)))


def describe_unit(e: Explanation, row: int) -> str:
    """How one unit is written: '3–17', 'node 3, feature 5', of a typed graph 'user 3 –likes→ item 5'."""
    name, types, (first, second) = e.units.names[e.units.kind[row]], e.types, e.units.ids[row].tolist()
    arrow = "→" if e.directed else "–"
    if name == "groups":
        ends = e.units.members[e.units.members[:, 0] == row][:, 1:].tolist()
        shown = [f"{describe_node(e, u)}{arrow}{describe_node(e, v)}" for u, v in ends[:MAX_SPELT_OUT]]
        more = ["…"] if len(ends) > MAX_SPELT_OUT else []
        return f"group {first} ({', '.join(shown + more)})" if ends else f"group {first}"
    if name == "units":  # of a function, not of a graph
        return node_name(e, second) or f"unit {second}"
    if types is not None and name == "columns":
        kind = types.nodes[e.units.types[row]]
        return f"{kind}, {feature_name(e, second, kind=kind)}"
    node = str(first) if first < 0 else describe_node(e, first)
    if name == CHANGE.unit_kind and len(e.units.values):
        text = _describe_change(e, row, node)
    else:
        if types is not None and name in EDGE_KINDS:
            arrow = f" –{types.edges[e.units.types[row]][1]}→ "
        other = describe_node(e, second) if name in EDGE_KINDS else feature_name(e, second, first)
        text = unit_words(name).pattern.format(node, other, arrow=arrow)
    return text if types is None else text.replace(f"node {node}", node)  # the type says what it is


def _describe_change(e: Explanation, row: int, node: str) -> str:
    """A change of a feature: 'atom 3: C → N', 'node 3, feature 5: 0 → 1' or 'node 3: feature 0 → feature 1'."""
    (first, column), (source, old, new) = e.units.ids[row].tolist(), e.units.values[row].tolist()
    after = feature_name(e, column, first)
    if source < 0:  # no one-hot feature, which moves from the column `source`
        return f"node {node}, {after}: {old:.4g} → {new:.4g}"
    atoms = () if e.types is not None else e.context.get("atoms") or ()
    if max(column, source) < len(atoms):
        return f"atom {node}: {atoms[int(source)]} → {atoms[column]}"
    return f"node {node}: {feature_name(e, int(source), first)} → {after}"


def adds_or_changes(e: Explanation) -> bool:
    """Whether a counterfactual may do more than remove, so that its set is no part of the graph."""
    return e.question == "counterfactual" and any(map(is_candidate, e.units.names))


def edits_by_kind(e: Explanation) -> list[tuple[EditKind, list[str]]]:
    """The edits of a counterfactual as texts by kind; kinds without any are left out."""
    found: dict[str, list[str]] = {name: [] for name in EDITS}
    for row in np.flatnonzero(e.selected).tolist() if e.question == "counterfactual" else ():
        found[edit_of(e.units.names[e.units.kind[row]]).name].append(describe_unit(e, row))
    return [(EDITS[name], texts) for name, texts in found.items() if texts]


def describe_edits(e: Explanation) -> str:
    """The edits of a counterfactual in half a sentence: 'adding 1–5 and removing 3–4'."""
    parts = []
    for edit, texts in edits_by_kind(e):
        counted = count_nouns(len(texts), edit.noun)
        parts.append(f"{edit.participle} {join_words(texts) if len(texts) <= MAX_SPELT_OUT else counted}")
    return join_words(parts) or "no edit"


def list_edits(e: Explanation, most: int = MAX_SPELT_OUT) -> str:
    """The edits of a counterfactual as a short list: 'remove 3–4; add 1–5, 2–7'."""
    parts = []
    for edit, texts in edits_by_kind(e):
        more = f" and {len(texts) - most} more" if len(texts) > most else ""
        parts.append(f"{edit.name} {', '.join(texts[:most])}{more}")
    return "; ".join(parts)


def describe_target(e: Explanation) -> str:
    """What was explained: 'node 42', 'graph 7' or 'pair (3, 17)'; with a name, 'node 42 (alice)'."""
    if e.types is not None and e.types.explained:
        named = [describe_node(e, node) for node in e.types.flat(e.key)]
        return named[0] if len(named) == 1 else f"pair ({', '.join(named)})"
    ids = () if e.task in WHOLE else e.key if isinstance(e.key, tuple) else (e.key,)
    named = [describe_node(e, node) for node in ids] if any(node_name(e, node) for node in ids) else []
    return f"{e.task} {e.key}" + (f" ({', '.join(named)})" if named else "")


def said_rows(e: Explanation) -> tuple[tuple[str, np.ndarray], ...]:
    """Each graph that the model was run on, in a few words, and the probabilities [classes] that it gave."""
    if adds_or_changes(e):
        return ("as it is", e.probabilities), ("after the edits", e.probabilities_without)
    return ("all", e.probabilities), ("only", e.probabilities_only), ("without", e.probabilities_without)


NO_NODES = "nothing (no node is left)"


def describe_said(e: Explanation, values: np.ndarray) -> str:
    """A prediction: a class and its probability, a label or its absence, or a number."""
    if np.isnan(values).any():
        return NO_NODES
    kind = output_kind(e.output)
    column = int(np.argmax(values)) if kind.exclusive else e.prediction
    value, no = float(values[column]), "" if values[column] > 0.5 else "not "
    return kind.said.format(name=class_name(e, column), probability=round_probability(value), value=value, no=no)


def short_said(e: Explanation) -> str:
    """The prediction in a word or two, for a table."""
    exclusive = output_kind(e.output).exclusive
    return class_name(e, e.prediction) if exclusive else describe_said(e, e.probabilities)


def describe_prediction(e: Explanation) -> str:
    """The prediction for the whole graph, and whether it is correct."""
    text = f"The model predicts {describe_said(e, e.probabilities)} for {describe_target(e)}"
    if e.label is None:
        return f"{text}."
    right = e.label == e.prediction
    return f"{text}, which is correct." if right else f"{text}; the true class is {class_name(e, e.label)}."


def verdict(e: Explanation) -> str:
    """All verdicts on one explanation as one paragraph."""
    return " ".join(f"{s.head}: {s.text}" for s in verdict_sentences(e))


def verdict_sentences(e: Explanation) -> list[Sentence]:
    """The verdicts on one explanation: the two tests first, or for edits the new prediction."""
    if e.status in ("refused", "empty", "not predicted", "tie"):
        tone: Tone = "bad" if e.status == "refused" else "plain"
        return [Sentence(tone, e.status.capitalize(), e.note or _meaning(e.status))]
    tests = [_edited(e)] if adds_or_changes(e) else [_sufficient(e), _necessary(e)]
    if not e.size and not adds_or_changes(e) and not e.necessary:
        tests = tests[:1]  # an empty set is never necessary
    checked = "on the receptive field only; the whole graph is too large to run again."
    final = [Sentence("plain", "Checked", checked)] if e.plain is False else []
    return [*tests, *_smallest(e), *_surely(e), *_types(e), *_status(e), *final]


def in_short(e: Explanation) -> str:
    """One explanation in a line: 'node 3: house (0.98) because of 4 edges of 12; sufficient, necessary, smallest'."""
    said = describe_said(e, e.probabilities) if len(e.probabilities) else "nothing"
    start, status = f"{describe_target(e)}: {said}", e.status
    if not e.size:
        return f"{start}; no units chosen of {e.num_units:,}; {status}"
    if e.question == "counterfactual":
        return f"{start}; to change that, {list_edits(e)}; {status}"
    facts = [name for name in ("sufficient", "necessary") if getattr(e, name)]
    facts += [f"smallest{among(e)}"] if e.optimal else [f"minimal{among(e)}"] if e.minimal else []
    passed = ", ".join(facts) or "neither sufficient nor necessary"
    end = "" if e.status == "found" else f"; {status}"
    return f"{start} because of {count_units(e)} of {e.num_units:,}; {passed}{end}"


def _sufficient(e: Explanation) -> Sentence:
    these = f"{'this' if e.size == 1 else 'these'} {count_units(e)}"
    if len(_chosen_kinds(e)) > 1:
        these = f"this set ({count_units(e)})"
    start = f"with {f'only {these}' if e.size else 'nothing kept'} the model"
    said, expected = describe_said(e, e.probabilities_only), describe_said(e, e.probabilities)
    if output_kind(e.output).exclusive:
        expected = class_name(e, e.prediction if e.question == "counterfactual" else e.explained)
    passed, failed = f"still predicts {said}", f"predicts {said} instead of {expected}"
    if e.tolerance is not None:
        near = f"±{e.tolerance:.3g} of {e.value:.4g}"
        passed, failed = f"predicts {said}, within {near}", f"predicts {said}, outside {near}"
    if e.sufficient:
        return Sentence("good", "Sufficient", f"{start} {passed}.")
    return Sentence("plain" if e.question == "counterfactual" else "bad", "Not sufficient", f"{start} {failed}.")


def _necessary(e: Explanation) -> Sentence:
    it = "it" if e.size == 1 or len(_chosen_kinds(e)) > 1 else "them"  # several kinds are "this set"
    start = f"without {it}" if e.size else "with nothing removed"
    said = describe_said(e, e.probabilities_without)
    if e.necessary:
        return Sentence("good", "Necessary", f"{start} the model predicts {said}.")
    tone: Tone = "plain" if e.question == "factual" else "bad"
    if e.question == "counterfactual" and e.target is not None and output_kind(e.output).exclusive:
        return Sentence(tone, "Not enough", f"{start} the model predicts {said}, not {class_name(e, e.target)}.")
    return Sentence(tone, "Not necessary", f"{start} the model {'' if said == NO_NODES else 'still '}predicts {said}.")


def _edited(e: Explanation) -> Sentence:
    """What the model says after the edits."""
    start = f"after {describe_edits(e)}" if e.size else "with nothing edited"
    said, head = describe_said(e, e.probabilities_without), "changed" if e.target is None else "reached"
    if e.necessary:
        text = f"{start} the model predicts {said} instead of {short_said(e)}."
        return Sentence("good", head.capitalize(), text)
    wanted = "" if e.target is None else f", not {class_name(e, e.target)}"
    other = output_kind(e.output).exclusive and int(np.argmax(e.probabilities_without)) != e.prediction
    still = "" if other or said == NO_NODES else "still "
    return Sentence("bad", f"Not {head}", f"{start} the model {still}predicts {said}{wanted}.")


# What a request demands of a set beside its tests. A proof then covers only the sets that satisfy it.
CONSTRAINTS = {
    "connected": "are connected",
    "keep": "remove no edge of `keep`",
    "forbid": "hold no edge of `forbid`",
    "groups": "take groups of edges whole",
    "valid": "leave a valid graph",
    "costs": "are measured by `costs`",
}


def among(e: Explanation) -> str:
    """The sets that the claims cover: ', among sets that are connected'; '' for all sets."""
    spec = e.context.get("spec") or {}
    texts = [text for name, text in CONSTRAINTS.items() if spec.get(name)]
    confidence = e.settings.get("confidence") or (spec.get("settings") or {}).get("confidence")
    texts += [f"pass by a margin above {confidence}"] if confidence else []
    if CHANGE.unit_kind in e.units.names:
        texts.append(f"take new values from {'the reference' if e.context.get('reference') else 'the data'}")
    return f", among sets that {join_words(texts)}" if texts else ""


def _smallest(e: Explanation) -> list[Sentence]:
    if not e.size:
        return []
    edits, scope = adds_or_changes(e), among(e)
    if e.optimal:
        fewer = "fewer edits do this" if edits else f"smaller set passes {TESTS[e.question]}"
        return [Sentence("good", "Smallest", f"proved that no {fewer}{scope}.")]
    if e.minimal:
        bound, what = e.lower_bound or 0, "edits do this" if edits else f"passes {TESTS[e.question]}"
        proved = f" Proved that no set of fewer than {bound:,} {what}{scope}." if bound > 1 else ""
        part = "edit" if edits else "part of it"
        return [Sentence("good", "Minimal", f"no single {part} can be left out{scope}.{proved}")]
    if e.minimal is False:
        return [Sentence("plain", "Not minimal", f"some part of it can be left out and it still passes{scope}.")]
    return []


def _surely(e: Explanation) -> list[Sentence]:
    """In how many contexts the prediction holds with the set, and in how many it depends on it."""
    if e.ps is None or e.pns is None:
        return []
    if e.all_contexts:
        many = f"all {count_nouns(e.contexts, 'context')}" if e.contexts > 1 else "the only context"
        text = f"over {many} the prediction holds with probability {round_probability(e.ps[0])}"
        text += f" and depends on the set with probability {round_probability(e.pns[0])} (PNS)."
        return [Sentence("plain", "How surely", text), *_always(e)]
    kept, decided = (round(part[0] * e.contexts) for part in (e.ps, e.pns))
    text = f"the prediction holds in {kept:,} of {e.contexts:,} contexts; in {decided:,} of them it depends on the set"
    low, high = (round_probability(end) for end in e.pns[1:])
    text += f" (PNS {round_probability(e.pns[0])}, 95 % interval {low} to {high})."
    return [Sentence("plain", "How surely", text), *_always(e)]


def _always(e: Explanation) -> list[Sentence]:
    """A context in which the set does not keep the prediction, or the statement that there is none."""
    if e.always:
        return [Sentence("good", "Always", "the set keeps the prediction, whatever else is present.")]
    if e.counterexample is None:
        return []
    names = [describe_unit(e, unit) for unit in e.counterexample[:MAX_SPELT_OUT]]
    more = len(e.counterexample) - len(names)
    names += [count_nouns(more, "other unit")] if more else []
    text = f"without {join_words(names)} the prediction changes, although the set is present."
    if (e.always_bound or 0) > e.size:
        text += f" No set of fewer than {e.always_bound} units keeps it in every context."
    return [Sentence("plain", "Not always", text)]


def _types(e: Explanation) -> list[Sentence]:
    """Which types carried the answer: '3 of 12 (user, likes, item), 1 of 4 user'."""
    texts = []
    for kind, (chosen, units) in e.by_type().items():
        name = f"({', '.join(kind)})" if isinstance(kind, tuple) else str(kind)
        texts += [f"{chosen:,} of {units:,} {name}"] if chosen else []
    return [Sentence("plain", "Types", f"{', '.join(texts)}.")] if texts else []


def _meaning(status: str) -> str:
    """What a status means, to continue a sentence after a colon."""
    meaning = STATUSES[status]
    return meaning[0].lower() + meaning[1:]


def _status(e: Explanation) -> list[Sentence]:
    """What is said if nothing was found, or nothing was searched for."""
    note = f" {e.note}" if e.note else ""
    aim, closest, best = f"set passes {TESTS[e.question]}", "this is the closest one", "this is the best set found"
    wanted = f"set that passes {TESTS[e.question]}"
    if e.surely is not None:
        wanted += f" with a PNS of at least {e.surely:g}"
        best = "this is the one with the highest PNS" if e.curve else best
    if adds_or_changes(e):
        aim = "changes the prediction" if e.target is None else "reaches that class"
        wanted, aim = f"set of edits that {aim}", f"set of such edits {aim}"
        closest, best = "this one comes closest", "this is the best one found"
    if e.status == "impossible":
        return [Sentence("bad", "Impossible", f"proved that no {aim}{among(e)}; {closest}.{note}")]
    if e.status == "not found":
        return [Sentence("bad", "Not found", f"no {wanted} was found within the budget{among(e)}; {best}.{note}")]
    if e.status == "unverified" and not (e.sufficient and e.necessary):
        text = _meaning(e.status).replace("the method", e.method or "the method", 1)
        return [Sentence("plain", "Unverified", f"{text}{note}")]
    return [Sentence("plain", "Note", e.note)] if e.note else []


def next_step(e: Explanation, *, read_only: bool = False) -> str:
    """What to try next, in a sentence or two that name only what can work; '' for nothing."""
    spec = e.context.get("spec") or {}
    thorough = e.settings.get("effort") == "thorough"
    longer = "" if thorough else 'Search longer: effort="thorough".'
    removable = [name for name in e.units.names if not is_candidate(name)]
    other_units = "" if len(removable) > 1 else 'Allow units of more kinds: units=("edges", "features").'
    every_edit = {"remove", "add", "change"} <= set(spec.get("edits") or ())
    more_edits = "" if every_edit else 'Allow more edits: edits=("remove", "add", "change").'
    find = 'Press "Find" to search for the smallest edit, which may also add and change.'
    if read_only or e.task == "input":
        find = 'Ask what would have to change: question="counterfactual", edits=("remove", "add", "change").'
    again = "Explain it with method cf2, which searches for a set that passes."
    if not read_only:
        again = 'Press "Explain" to have cf2 search for a set that passes.'
    pressed = 'Press "Remove the explanation" or "Show only the explanation" to see what the model predicts then.'
    case = e.status
    if case == "unverified" and e.sufficient and e.necessary:
        case = "found"
    if adds_or_changes(e) and case in ("found", "impossible", "not found", "unverified"):
        one_by_one = (
            "" if read_only or e.size < 2 else "Make the edits one by one to see which of them changes the prediction."
        )
        steps = [one_by_one] if e.necessary else [more_edits, longer]
    else:
        steps = {
            "found": ["" if read_only else pressed],
            "impossible": [other_units, find],
            "not found": [longer, other_units, find],
            "unverified": [again],
            "empty": [other_units],
            "refused": ['Search only the most promising units: reduce="gradient". Or raise max_units.'],
            "not predicted": ['Ask what would have to change: question="counterfactual" with this class as target.'],
            "tie": ["Two answers are equally likely. Search for a set with a clear prediction: confidence=0.1."],
        }.get(case, [])
    return " ".join(filter(None, steps))
