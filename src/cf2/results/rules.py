"""Edit rules: the changes that answers to "what would have to change?" share, whatever graph they are made in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from cf2.core.whole_files import write_bytes
from cf2.results.explanation import Explanation
from cf2.results.intervals import Estimate
from cf2.results.labelled import GraphRow
from cf2.results.pattern import Pattern
from cf2.spec import Key

if TYPE_CHECKING:
    import pandas

REMOVE, ADD, ARROW = "−", "+", "→"  # before the label of an edge, and between two labels of a node
Edits = Sequence[tuple[Any, ...]]


def edits_of(e: Explanation) -> list[tuple[Any, ...]]:
    """What an answer changes: its own list of edits, or else the removal of what it chose."""
    given = getattr(e, "edits", None)
    return list(given) if given else [("remove", tuple(pair)) for pair in e.chosen("edges").tolist()]


@dataclass(frozen=True)
class EditRule:
    """Edits up to the names of nodes: connected pieces of edges that are removed or added, and nodes that change.

    The labels of a piece say what is done: `−` before the label of an edge removes it, `+` adds it, and a node
    `C→N` gets another label.
    """

    pieces: tuple[Pattern, ...]

    @property
    def size(self) -> int:
        """How many edits it makes: edges, and nodes that change."""
        changed = sum(ARROW in (label or "") for piece in self.pieces for label in piece.labels)
        return changed + sum(piece.size for piece in self.pieces)

    @property
    def text(self) -> str:
        """The rule in words."""
        return "; ".join(map(_words, self.pieces))


def rule_of(
    edits: Edits, row: GraphRow, place: Mapping[int, int], renamed: Mapping[int, str], directed: bool
) -> EditRule:
    """The rule of edits in one graph.

    Parameters
    ----------
    edits : sequence of tuples
        As `edits_of` gives them, in the user's ids.
    row : GraphRow
        The graph as it was, with labels.
    place : mapping
        From the user's ids to nodes of the row.
    renamed : mapping
        The new label of every node that changes.
    directed : bool
    """
    known = {(a, b): name for (a, b), name in zip(row.edges.tolist(), row.edge_labels or [""] * len(row.edges))}
    edges: dict[tuple[int, int], str] = {}
    for kind, where, *_ in edits:
        if kind in ("remove", "add"):
            a, b = place[where[0]], place[where[1]]
            pair = (a, b) if directed or a < b else (b, a)
            name = known.get(pair, known.get(pair[::-1], ""))
            edges[pair] = f"{REMOVE if kind == 'remove' else ADD}{name}"
    labels = {node: str(row.labels[node]) for pair in edges for node in pair}
    labels |= {node: f"{row.labels[node]}{ARROW}{name}" for node, name in renamed.items()}
    pieces = []
    for nodes in _components(labels, edges):
        at = {node: number for number, node in enumerate(nodes)}
        mine = [(pair, name) for pair, name in edges.items() if pair[0] in at]
        pieces.append(
            Pattern.make(
                [labels[node] for node in nodes],
                [(at[a], at[b]) for (a, b), _ in mine],
                [name for _, name in mine],
                directed=directed,
            )
        )
    return EditRule(tuple(sorted(pieces, key=repr)))


def _components(nodes: Mapping[int, str], edges: Mapping[tuple[int, int], str]) -> list[list[int]]:
    root = {node: node for node in nodes}

    def find(node: int) -> int:
        while root[node] != node:
            node = root[node]
        return node

    for a, b in edges:
        root[find(a)] = find(b)
    groups: dict[int, list[int]] = {}
    for node in sorted(nodes):
        groups.setdefault(find(node), []).append(node)
    return list(groups.values())


def _words(piece: Pattern) -> str:
    signs = {(name or " ")[0] for name in piece.edge_labels}
    changed = [label for label in piece.labels if label and ARROW in label]
    if not piece.edges:
        return f"change {changed[0].replace(ARROW, ' to ')}"
    if len(signs) == 1 and not changed:
        plain = Pattern(
            piece.labels, piece.marks, piece.edges, tuple((n or "")[1:] for n in piece.edge_labels), piece.directed
        )
        return f"{'remove' if signs == {REMOVE} else 'add'} {plain.text}"
    return piece.text


@dataclass(frozen=True, eq=False)
class TriedRule:
    """An edit rule of a class, and what it does to predictions that it was not found on.

    Attributes
    ----------
    rule : EditRule
    prediction : int
        The class that it leads away from.
    support, answers : int
        How many answers are this rule, of how many.
    turned : Estimate or None
        The share of other predictions of the class that some one application of it turns, of those that are tried.
    within : Estimate or None
        The same, counted only where the edits are at most θ of the nodes and edges of both graphs.
    keys : tuple of keys
        The explained instances whose answer it is.
    """

    rule: EditRule
    prediction: int
    support: int
    answers: int
    turned: Estimate | None = None
    within: Estimate | None = None
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, eq=False)
class EditRules(Sequence[TriedRule]):
    """The few edit rules that turn most of a class, and the coverage of counterfactual graphs as GCFExplainer has it.

    Attributes
    ----------
    items : tuple of TriedRule
    about : dict
        The split; `theta`; by class, how many predictions were `tested`, the share that any of the rules turns
        (`together`, and `within` θ), and the `coverage` of as many counterfactual graphs: `surely` and `possibly`,
        because an edit distance is bounded, not computed.
    context : dict
    """

    items: tuple[TriedRule, ...]
    about: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> TriedRule: ...
    @overload
    def __getitem__(self, index: slice) -> EditRules: ...
    def __getitem__(self, index: int | slice) -> TriedRule | EditRules:
        if isinstance(index, slice):
            return EditRules(self.items[index], self.about, self.context)
        return self.items[index]

    def __iter__(self) -> Iterator[TriedRule]:
        return iter(self.items)

    def name(self, prediction: int) -> str:
        """A class by its name, where it has one."""
        names = self.context.get("class_names") or ()
        return str(names[prediction]) if prediction < len(names) else f"class {prediction}"

    def __repr__(self) -> str:
        lines = [f"Edit rules, θ = {self.about.get('theta')}:"]
        for prediction in sorted({one.prediction for one in self.items}):
            both = (self.about.get(name, {}).get(prediction) for name in ("together", "within"))
            shares = [f"{name} {_share(e)}" for name, e in zip(("together", "within θ"), both) if e is not None]
            covered = self.about.get("coverage", {}).get(prediction)
            if covered:
                shares.append(f"{covered['count']} graphs cover {100 * covered['surely']:.1f} %")
            lines.append(f"away from {self.name(prediction)}: {', '.join(shares)}")
            for one in self.items:
                if one.prediction == prediction:
                    turned = "" if one.turned is None else f", turns {_share(one.turned)}"
                    lines.append(f"  {one.rule.text}: {one.support} of {one.answers} answers{turned}")
        return "\n".join([*lines, *self.about.get("notes", ())])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        from cf2.results.patterns import jsonable

        rows = []
        for one in self.items:
            row = {"class_name": self.name(one.prediction), "rule": one.rule.text, "size": one.rule.size}
            row |= {
                n: jsonable(getattr(one, n)) for n in ("prediction", "support", "answers", "turned", "within", "keys")
            }
            rows.append(row | {"pieces": [piece.to_dict() for piece in one.rule.pieces]})
        return {"about": jsonable(self.about), "rules": rows}

    def save(self, path: str | Path) -> Path:
        """Write `to_dict()` as a JSON file."""
        write_bytes(Path(path), (json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n").encode())
        return Path(path)

    def to_pandas(self) -> pandas.DataFrame:
        """A table with one row per rule."""
        import pandas

        rows = []
        for one in self.items:
            row: dict[str, Any] = {"class": self.name(one.prediction), "rule": one.rule.text, "size": one.rule.size}
            row |= {"support": one.support, "answers": one.answers}
            for name in ("turned", "within"):
                value, low, high = getattr(one, name) or (np.nan,) * 3
                row |= {name: value, f"{name}_low": low, f"{name}_high": high}
            rows.append(row)
        return pandas.DataFrame(rows)


def _share(e: Estimate) -> str:
    return f"{100 * e.value:.0f} % ({100 * e.low:.0f}–{100 * e.high:.0f})"
