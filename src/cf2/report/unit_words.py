"""How units and edits are called and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cf2.core.types import Types
from cf2.results.explanation import Explanation
from cf2.results.names import describe_node, feature_name


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
# The sorts of edit, as a sentence and as a list name them; the kinds of unit that are not named here are removed.
ADDED, CHANGED = "added_edges", "changes"
SORTS = {"removing": "remove", "adding": "add", "changing": "change"}
SPELT_OUT = 6  # edits of one sort that a sentence names; of more, it gives the number


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
    head = describe_node(e, second) if name in ("edges", ADDED) else feature_name(e, second)
    text = unit_words(name).pattern.format(tail, head, arrow=arrow)
    if name == "groups":
        ends = e.units.members[e.units.members[:, 0] == row][:, 1:].tolist()
        shown = ", ".join(f"{describe_node(e, u)}{arrow}{describe_node(e, v)}" for u, v in ends[:SPELT_OUT])
        return f"{text} ({shown}{', …' if len(ends) > SPELT_OUT else ''})" if ends else text
    if name == CHANGED and len(e.units.values):
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


def _typed_unit(e: Explanation, types: Types, row: int, name: str) -> str:
    first, second = e.units.ids[row].tolist()
    if name in ("edges", ADDED):
        relation = types.edges[e.units.types[row]][1]
        return f"{describe_node(e, first)} –{relation}→ {describe_node(e, second)}"
    if name == "columns":
        kind = types.nodes[e.units.types[row]]
        return f"{kind}, {feature_name(e, second, kind=kind)}"
    text = unit_words(name).pattern.format("{0}", feature_name(e, second, first), arrow="")
    if name == CHANGED and len(e.units.values):
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
