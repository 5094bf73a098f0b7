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
from cf2.graphs.graph import Instance, edge_positions
from cf2.options import Key
from cf2.patterns.labelled import Collected, LabelledGraphs, instance_outputs
from cf2.patterns.matching import occurrences
from cf2.patterns.pattern import Pattern
from cf2.patterns.summary import (
    ClassSummary,
    SummaryOptions,
    estimate,
    facts_of,
    looked_at,
    read_facts,
    share_cells,
    share_text,
)
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.results.metrics import Estimate

REMOVE, ADD, ARROW = "−", "+", "→"  # before the label of an edge, and between two labels of a node
MAX_PLACES = 8  # applications of a rule that are tried in each graph
MAX_COMBINATIONS = 64  # combinations of the places of its parts that are looked at
MAX_SEEN = 300  # predictions of a class that candidates are compared on
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
    """An edit rule of a class, with its measurements on held-out predictions.

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
        pieces = [piece.to_dict() for piece in self.rule.pieces]
        return facts_of(self) | {"rule": self.rule.text, "size": self.rule.size, "pieces": pieces}

    @staticmethod
    def from_dict(row: Mapping[str, Any]) -> TriedRule:
        """The rule that `to_dict` gave."""
        return TriedRule(EditRule(tuple(map(Pattern.from_dict, row["pieces"]))), **read_facts(TriedRule, row))

    def cells(self) -> dict[str, Any]:
        """The row of a table."""
        row = {"rule": self.rule.text, "size": self.rule.size, "support": self.support, "answers": self.answers}
        return row | share_cells("turned", self.turned)


@dataclass(frozen=True, eq=False)
class EditRules(ClassSummary):
    """Edit rules that change most predictions of a class.

    Attributes
    ----------
    items : tuple of TriedRule
    about : dict
        The split; by class, how many predictions were `tested`, and the share changed by any of the rules (`together`).
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


def find_edit_rules(found: Explanations, model: Any, data: Any, options: SummaryOptions) -> EditRules:
    """The edit rules of counterfactual answers, tried on other predictions; see `Explanations.rules`."""
    usable = [e for e in found if e.status == "found" and {len(ids) for _, ids, *_ in e.edits} == {2}]  # not nodes
    cure = 'Explain with question="counterfactual".'
    require(bool(usable), "Expected answers that change a prediction", got=f"none among {len(found)}", do=cure)
    with looked_at(found, model, data, options, detailed=False) as here:
        return _Tried(here, usable, options).edit_rules(dict(found.context))


class _Tried:
    """Graphs with their instances, and the edit rules that answers are in them."""

    def __init__(self, here: Collected, usable: Sequence[Explanation], options: SummaryOptions) -> None:
        self.here, self.options, self.directed = here, options, here.graphs.directed
        self.predictor = here.problems[0].predictor
        self.instances = here.instances
        self.test = np.array([options.is_test(key) for key in here.graphs.keys])
        self.features = self._features()
        row_of = {key: row for row, key in enumerate(here.graphs.keys)}
        self.answers = [(row_of[e.key], e.key, self._edit_rule(row_of[e.key], e)) for e in usable if e.key in row_of]

    def _features(self) -> dict[str, Tensor]:
        """The features that a label stands for, where it stands for one row of them."""
        rows: dict[str, Tensor] = {}
        shared: set[str] = set()
        for graph, instance in zip(self.here.graphs.graphs, self.instances):
            for label, x in zip(graph.labels, instance.x):
                if not torch.equal(rows.setdefault(label or "", x), x):
                    shared.add(label or "")
        return {label: x for label, x in rows.items() if label not in shared}

    def _edit_rule(self, row: int, e: Explanation) -> EditRule:
        """What an answer does to its own graph, up to the names of nodes."""
        instance, graph = self.instances[row], self.here.graphs.graphs[row]
        place = {int(node): at for at, node in enumerate(instance.node_ids.tolist())}
        edge_labels = dict(zip(graph.edges, graph.edge_labels))
        edges: dict[tuple[int, int], str] = {}
        x: dict[int, Tensor] = {}
        for kind, (node, other), *values in e.edits:
            if kind in ("remove", "add"):
                a, b = place[node], place[other]
                pair = (a, b) if self.directed or a < b else (b, a)
                label = edge_labels.get(pair, edge_labels.get(pair[::-1])) or ""
                edges[pair] = (REMOVE if kind == "remove" else ADD) + label
            else:  # of a node the column `other` of its features
                x.setdefault(place[node], instance.x[place[node]].clone())[other] = values[-1]
        labels = {node: graph.labels[node] or "" for pair in edges for node in pair}
        labels |= {node: f"{graph.labels[node]}{ARROW}{self._label(features)}" for node, features in x.items()}
        local = {node: position for position, node in enumerate(labels)}
        pairs = tuple((local[a], local[b]) for a, b in edges)
        edited = Pattern(tuple(labels.values()), (0,) * len(labels), pairs, tuple(edges.values()), self.directed)
        return EditRule(tuple(sorted((piece.canonical() for _, piece in edited.pieces()), key=repr)))

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
        keys = {rule: tuple(dict.fromkeys(key for _, key, other in own if other == rule)) for rule in chosen}
        return [
            TriedRule(rule, prediction, support[rule], support.total(), estimate(turned[rule]), keys[rule])
            for rule in chosen
        ]

    def _turned(self, rule: EditRule, prediction: int, rows: np.ndarray) -> np.ndarray:
        """Which rows some one application turns."""
        applied = list(self._applications(rule, rows))
        turned = np.zeros(len(rows), bool)
        if applied:
            said = instance_outputs(self.predictor, [instance for _, instance in applied]).argmax(1).cpu().numpy()
            turned[np.array([at for at, _ in applied])[said != prediction]] = True
        return turned

    def _applications(self, rule: EditRule, rows: np.ndarray) -> Iterator[tuple[int, Instance]]:
        """The first few ways to carry out a rule in each row: where its parts lie, no two at the same node."""
        joined = _joined(rule, self.directed)
        # What must be there: the pieces that the removed edges make, with the labels as they were.
        there = [number for number, name in enumerate(joined.edge_labels) if not str(name).startswith(ADD)]
        before = replace(
            joined,
            labels=tuple(str(label).split(ARROW)[0] for label in joined.labels),
            edges=tuple(joined.edges[number] for number in there),
            edge_labels=tuple(str(joined.edge_labels[number])[1:] for number in there),
        )
        pieces = before.pieces()
        nodes = [node for own, _ in pieces for node in own]
        wanted = np.isin(np.arange(len(self.here.graphs)), rows)
        places = [_places(piece, self.here.graphs, wanted) for _, piece in pieces]
        for at, row in enumerate(rows.tolist()):
            combined = islice(product(*(place.get(row, []) for place in places)), MAX_COMBINATIONS)
            images = (np.concatenate(combination).tolist() for combination in combined)
            ways = (dict(zip(nodes, image)) for image in images if len(set(image)) == len(image))
            edited = (self._edited(row, joined, node) for node in ways)
            yield from ((at, instance) for instance in islice(filter(None, edited), MAX_PLACES))

    def _edited(self, row: int, rule: Pattern, node: Mapping[int, int]) -> Instance | None:
        """An instance after a rule is carried out at some nodes; None where it cannot be said what that is."""
        instance, takes = self.instances[row], self.predictor.adapter.takes
        pairs = [((node[a], node[b]), str(name)) for (a, b), name in zip(rule.edges, rule.edge_labels)]
        if not self.directed:  # an edge is a column each way
            pairs = [way for (a, b), name in pairs for way in (((a, b), name), ((b, a), name))]
        added = [pair for pair, name in pairs if not name.startswith(REMOVE)]
        ends = torch.tensor(added, dtype=torch.long).reshape(-1, 2).t()
        if bool((edge_positions(instance.edge_index, ends) >= 0).any()):
            return None
        renamed = {node[n]: label.split(ARROW)[1] for n, label in enumerate(rule.labels) if label and ARROW in label}
        extras = {n: (k, v) for n, (k, v) in instance.extras.items() if k != "edge" or takes(n)}
        of_edges = [name for name, (kind, _) in extras.items() if kind == "edge"]
        if not self.features.keys() >= set(renamed.values()) or (added and (of_edges or instance.targets)):
            return None  # attributes of a new edge are not known, nor what lies beyond a receptive field
        removed = [pair for pair, name in pairs if name.startswith(REMOVE)]
        stay = edge_positions(torch.tensor(removed, dtype=torch.long).reshape(-1, 2).t(), instance.edge_index) < 0
        x = instance.x.clone()
        for changed, label in renamed.items():
            x[changed] = self.features[label]
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


def _joined(rule: EditRule, directed: bool) -> Pattern:
    """All pieces of a rule as one graph."""
    starts = np.cumsum([0, *(len(piece.labels) for piece in rule.pieces)]).tolist()
    return Pattern(
        tuple(label for piece in rule.pieces for label in piece.labels),
        (0,) * starts[-1],
        tuple((a + start, b + start) for piece, start in zip(rule.pieces, starts) for a, b in piece.edges),
        tuple(name for piece in rule.pieces for name in piece.edge_labels),
        directed,
    )


def _places(part: Pattern, graphs: LabelledGraphs, rows: np.ndarray) -> dict[int, list[np.ndarray]]:
    """By row, the first few occurrences of a part, as nodes of the row."""
    where = occurrences(part, graphs, rows)
    places: dict[int, list[np.ndarray]] = {}
    for graph, nodes in zip(where.graph.tolist(), where.nodes):
        own = places.setdefault(graph, [])
        if len(own) < 2 * MAX_PLACES:
            own.append(nodes - graphs.ptr[graph])
    return places
