"""Edit rules: the changes that answers to "what would have to change?" share, whatever graph they are made in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cf2.errors import require
from cf2.graphs.graph import Instance
from cf2.options import Key
from cf2.patterns.labelled import Collected, GraphRow, LabelledGraphs, instance_outputs
from cf2.patterns.matching import occurrences
from cf2.patterns.pattern import Pattern, components, connected_patterns
from cf2.patterns.summary import (
    ClassSummary,
    SummaryOptions,
    estimate,
    jsonable,
    looked_at,
    read_estimate,
    share_cells,
    share_text,
)
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.results.files import as_key
from cf2.results.metrics import Estimate

REMOVE, ADD, ARROW = "−", "+", "→"  # before the label of an edge, and between two labels of a node
MAX_PLACES = 8  # applications of a rule that are tried in each graph
MAX_COMBINATIONS = 64  # combinations of the places of its parts that are looked at
MAX_SEEN = 300  # predictions of a class that candidates are compared on
LabelledEdges = list[tuple[tuple[int, int], str]]
OTHER_FEATURES = "other features"  # the label of a node whose new features no node of the data has


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
        return "; ".join(map(_piece_text, self.pieces))


def _piece_text(piece: Pattern) -> str:
    signs = {(name or " ")[0] for name in piece.edge_labels}
    changed = [label for label in piece.labels if label and ARROW in label]
    if not piece.edges:
        return f"change {changed[0].replace(ARROW, ' to ')}"
    if len(signs) == 1 and not changed:
        plain = replace(piece, edge_labels=tuple((name or "")[1:] for name in piece.edge_labels))
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
    keys : tuple of keys
        The explained instances whose answer it is.
    """

    rule: EditRule
    prediction: int
    support: int
    answers: int
    turned: Estimate | None = None
    keys: tuple[Key, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        facts = {n: jsonable(getattr(self, n)) for n in ("prediction", "support", "answers", "turned", "keys")}
        pieces = [piece.to_dict() for piece in self.rule.pieces]
        return {"rule": self.rule.text, "size": self.rule.size, **facts, "pieces": pieces}

    @staticmethod
    def from_dict(row: Mapping[str, Any]) -> TriedRule:
        """The rule that `to_dict` gave."""
        rule = EditRule(tuple(map(Pattern.from_dict, row["pieces"])))
        prediction, support, answers = (int(row[name]) for name in ("prediction", "support", "answers"))
        keys = tuple(map(as_key, row["keys"]))
        return TriedRule(rule, prediction, support, answers, read_estimate(row["turned"]), keys)

    def cells(self) -> dict[str, Any]:
        """The row of a table."""
        row = {"rule": self.rule.text, "size": self.rule.size, "support": self.support, "answers": self.answers}
        return row | share_cells("turned", self.turned)


@dataclass(frozen=True, eq=False)
class EditRules(ClassSummary[TriedRule]):
    """The few edit rules that turn most of a class.

    Attributes
    ----------
    items : tuple of TriedRule
    about : dict
        The split; by class, how many predictions were `tested`, and the share that any of the rules turns (`together`).
    context : dict
    """

    list_name, noun, file_name = "rules", "edit rules", "rules.json"
    row_type = TriedRule

    def __repr__(self) -> str:
        lines = ["Edit rules:"]
        for prediction in self.classes():
            together = self.about.get("together", {}).get(prediction)
            words = "" if together is None else f"together {share_text(together)}"
            lines.append(f"away from {self.name(prediction)}: {words}")
            for row in self.of(prediction):
                turned = "" if row.turned is None else f", turns {share_text(row.turned)}"
                lines.append(f"  {row.rule.text}: {row.support} of {row.answers} answers{turned}")
        return "\n".join([*lines, *self.about.get("notes", ())])


@dataclass(frozen=True)
class Change:
    """Edits in one graph: pairs of its nodes from 0 on, and the new labels of nodes."""

    removed: tuple[tuple[int, int], ...]
    added: tuple[tuple[int, int], ...]
    renamed: tuple[tuple[int, str], ...]


def edit_rule(change: Change, row: GraphRow, directed: bool) -> EditRule:
    """The rule of a change in a graph, which is given as it was before."""
    known = {(a, b): name for (a, b), name in zip(row.edges.tolist(), row.edge_labels)}
    edges: dict[tuple[int, int], str] = {}
    for sign, pairs in ((REMOVE, change.removed), (ADD, change.added)):
        for a, b in pairs:
            pair = (a, b) if directed or a < b else (b, a)
            edges[pair] = sign + known.get(pair, known.get(pair[::-1], ""))
    labels = {node: str(row.labels[node]) for pair in edges for node in pair}
    labels |= {node: f"{row.labels[node]}{ARROW}{name}" for node, name in change.renamed}
    pieces = connected_patterns(labels, edges.items(), directed=directed)
    return EditRule(tuple(sorted(pieces, key=repr)))


def find_edit_rules(found: Explanations, model: Any, data: Any, options: SummaryOptions) -> EditRules:
    """The edit rules of counterfactual answers, tried on other predictions; see `Explanations.rules`."""
    usable = [e for e in found if e.question == "counterfactual" and e.status == "found" and _edits(e)]
    require(
        bool(usable),
        "Expected answers that change a prediction",
        got=f"none among {len(found)}",
        do='Explain with question="counterfactual".',
    )
    with looked_at(found, model, data, options) as here:
        return _Tried(here, usable, options).edit_rules(dict(found.context))


def _edits(e: Explanation) -> list[tuple[Any, ...]]:
    """What an answer changes: its own list of edits, or else the removal of what it chose."""
    given = getattr(e, "edits", None)
    return list(given) if given else [("remove", tuple(pair)) for pair in e.chosen("edges").tolist()]


class _Tried:
    """Graphs with their instances, and the edit rules that answers are in them."""

    def __init__(self, here: Collected, usable: Sequence[Explanation], options: SummaryOptions) -> None:
        self.here, self.options, self.directed = here, options, here.graphs.directed
        self.predictor = here.problems[0].predictor
        self.instances = [instance for instance, _ in here.instances]
        self.test = np.array([options.is_test(key) for key in here.graphs.keys])
        self.features = self._features()
        row_of = {key: row for row, key in enumerate(here.graphs.keys)}
        self.answers = [
            (row, e.key, edit_rule(self._change(row, e), here.graphs.rows[row], self.directed))
            for e in usable
            if (row := row_of.get(e.key)) is not None
        ]

    def _features(self) -> dict[str, Tensor]:
        """The features that a label stands for, where it stands for one row of them."""
        rows: dict[str, Tensor] = {}
        shared: set[str] = set()
        for row, instance in zip(self.here.graphs.rows, self.instances):
            for node, label in enumerate(row.labels):
                if label not in shared and not torch.equal(rows.setdefault(label, instance.x[node]), instance.x[node]):
                    shared.add(label)
        return {label: x for label, x in rows.items() if label not in shared}

    def _change(self, row: int, e: Explanation) -> Change:
        """What an answer does to its own graph."""
        instance = self.instances[row]
        place = {int(node): at for at, node in enumerate(instance.node_ids.tolist())}
        pairs: dict[str, list[tuple[int, int]]] = {"remove": [], "add": []}
        x: dict[int, Tensor] = {}
        for kind, where, *values in _edits(e):
            if kind in pairs:
                pairs[kind].append((place[where[0]], place[where[1]]))
            else:
                node = place[where[0]]
                x.setdefault(node, instance.x[node].clone())[where[1]] = values[-1]
        renamed = tuple((node, self._label(features)) for node, features in sorted(x.items()))
        return Change(tuple(pairs["remove"]), tuple(pairs["add"]), renamed)

    def _label(self, features: Tensor) -> str:
        labels = (label for label, x in self.features.items() if torch.equal(x, features))
        return next(labels, OTHER_FEATURES)

    def edit_rules(self, context: dict[str, Any]) -> EditRules:
        """The rules of every class."""
        items: list[TriedRule] = []
        about: dict[str, Any] = {"seed": self.options.seed, "held_out": self.options.held_out}
        about |= {"found_on": sum(not self.test[row] for row, _, _ in self.answers), "places": MAX_PLACES, "notes": []}
        about |= {"tested": {}, "together": {}}
        require(about["found_on"] > 0, "Expected answers to find rules in", got="none that is not held out")
        for prediction in sorted({int(self.here.classes[row]) for row, _, _ in self.answers}):
            items += self._of_class(prediction, about)
        return EditRules(tuple(items), about, context)

    def _of_class(self, prediction: int, about: dict[str, Any]) -> list[TriedRule]:
        own = [answer for answer in self.answers if self.here.classes[answer[0]] == prediction]
        support = Counter(rule for row, _, rule in own if not self.test[row])
        ranked = sorted(support, key=lambda rule: (-support[rule], rule.size, rule.text))[: 3 * self.options.count]
        of_class = self.here.classes == prediction
        seen, held = np.flatnonzero(of_class & ~self.test)[:MAX_SEEN], np.flatnonzero(of_class & self.test)
        chosen = _greedy({rule: self._turned(rule, prediction, seen) for rule in ranked}, self.options.count)
        turned = {rule: self._turned(rule, prediction, held) for rule in chosen}
        about["tested"][prediction] = len(held)
        about["together"][prediction] = estimate(np.any(list(turned.values()), axis=0)) if turned else None
        return [
            TriedRule(
                rule,
                prediction,
                support[rule],
                support.total(),
                estimate(turned[rule]),
                tuple(dict.fromkeys(key for _, key, other in own if other == rule)),
            )
            for rule in chosen
        ]

    def _turned(self, rule: EditRule, prediction: int, rows: np.ndarray) -> np.ndarray:
        """Which rows some one application turns."""
        applied = [(at, self._edited(int(rows[at]), change)) for at, change in self._applications(rule, rows)]
        instances = [instance for _, instance in applied if instance is not None]
        position = np.array([at for at, instance in applied if instance is not None], dtype=np.int64)
        turned = np.zeros(len(rows), bool)
        if instances:
            said = instance_outputs(self.predictor, instances).argmax(1).cpu().numpy()
            turned[position[said != prediction]] = True
        return turned

    def _applications(self, rule: EditRule, rows: np.ndarray) -> Iterator[tuple[int, Change]]:
        """The first few ways to carry out a rule in each row: where its parts lie, no two at the same node."""
        labels, edges = _joined_pieces(rule)
        parts = _parts(labels, edges, self.directed)
        nodes = [node for _, nodes in parts for node in nodes]
        wanted = np.isin(np.arange(len(self.here.graphs)), rows)
        places = [_places(part, self.here.graphs, wanted) for part, _ in parts]
        for at, row in enumerate(rows.tolist()):
            combined = islice(product(*(place.get(row, []) for place in places)), MAX_COMBINATIONS)
            images = (np.concatenate(combination).tolist() for combination in combined)
            ways = (dict(zip(nodes, image)) for image in images if len(set(image)) == len(image))
            changes = (self._applied(labels, edges, node, row) for node in ways)
            for change in islice((change for change in changes if change is not None), MAX_PLACES):
                yield at, change

    def _applied(self, labels: list[str], edges: LabelledEdges, node: Mapping[int, int], row: int) -> Change | None:
        """The change that a rule is at some nodes of a row; None where what it adds is there already."""
        removed = tuple((node[a], node[b]) for (a, b), name in edges if name.startswith(REMOVE))
        added = tuple((node[a], node[b]) for (a, b), name in edges if not name.startswith(REMOVE))
        renamed = tuple((node[n], label.split(ARROW)[1]) for n, label in enumerate(labels) if ARROW in label)
        known = {tuple(pair) for pair in self.here.graphs.rows[row].edges.tolist()}
        if any((a, b) in known or (not self.directed and (b, a) in known) for a, b in added):
            return None
        return Change(removed, added, renamed)

    def _edited(self, row: int, change: Change) -> Instance | None:
        """The instance after a change; None where it cannot be said what that is."""
        instance = self.instances[row]
        takes = self.predictor.adapter.takes
        extras = {n: (k, v) for n, (k, v) in instance.extras.items() if k != "edge" or takes(n)}
        of_edges = [name for name, (kind, _) in extras.items() if kind == "edge"]
        unknown = [label for _, label in change.renamed if label not in self.features]
        if unknown or (change.added and (of_edges or instance.targets)):
            return None  # attributes of a new edge are not known, nor what lies beyond a receptive field
        gone, new = set(change.removed), list(change.added)
        if not self.directed:
            gone |= {(b, a) for a, b in change.removed}
            new += [(b, a) for a, b in change.added]
        stay = torch.tensor([tuple(pair) not in gone for pair in instance.edge_index.t().tolist()], dtype=torch.bool)
        ends = torch.tensor(new, dtype=torch.long).reshape(-1, 2).t()
        x = instance.x.clone()
        for node, label in change.renamed:
            x[node] = self.features[label]
        extras |= {name: ("edge", extras[name][1][stay]) for name in of_edges}
        return replace(instance, x=x, edge_index=torch.cat([instance.edge_index[:, stay], ends], 1), extras=extras)


def _greedy(turned_by: Mapping[EditRule, np.ndarray], count: int) -> list[EditRule]:
    """Rules, each of which turns most of what those before it do not."""
    chosen: list[EditRule] = []
    covered: Any = np.False_
    while len(chosen) < count:
        left = {rule: int((turned & ~covered).sum()) for rule, turned in turned_by.items() if rule not in chosen}
        best = max(left, key=lambda rule: (left[rule], -rule.size, rule.text), default=None)
        if best is None or not left[best]:
            break
        chosen.append(best)
        covered = covered | turned_by[best]
    return chosen


def _joined_pieces(rule: EditRule) -> tuple[list[str], LabelledEdges]:
    """The labels of the nodes and edges of all pieces; nodes are numbered over all of them."""
    labels: list[str] = []
    edges: LabelledEdges = []
    for piece in rule.pieces:
        start = len(labels)
        edges += [((a + start, b + start), name or "") for (a, b), name in zip(piece.edges, piece.edge_labels)]
        labels += [label or "" for label in piece.labels]
    return labels, edges


def _parts(labels: list[str], edges: LabelledEdges, directed: bool) -> list[tuple[Pattern, list[int]]]:
    """What must be there for a rule to be carried out: the connected parts that its removed edges make.

    Each is a pattern with the labels as they were, and the nodes of the rule that it has, in order.
    """
    there = [(pair, name[1:]) for pair, name in edges if not name.startswith(ADD)]
    part = components(len(labels), [pair for pair, _ in there])
    parts = []
    for number in range(part.max() + 1):
        nodes = np.flatnonzero(part == number).tolist()
        own = [((nodes.index(a), nodes.index(b)), name) for (a, b), name in there if a in nodes]
        # Not in canonical order: the order of the nodes must stay known.
        before = tuple(labels[node].split(ARROW)[0] for node in nodes)
        pairs, names = tuple(pair for pair, _ in own), tuple(name for _, name in own)
        parts.append((Pattern(before, (0,) * len(nodes), pairs, names, directed), nodes))
    return parts


def _places(part: Pattern, graphs: LabelledGraphs, rows: np.ndarray) -> dict[int, list[np.ndarray]]:
    """By row, the first few occurrences of a part, as nodes of the row."""
    where = occurrences(part, graphs, rows)
    places: dict[int, list[np.ndarray]] = {}
    for graph, nodes in zip(where.graph.tolist(), where.nodes):
        own = places.setdefault(graph, [])
        if len(own) < 2 * MAX_PLACES:
            own.append(nodes - graphs.ptr[graph])
    return places
