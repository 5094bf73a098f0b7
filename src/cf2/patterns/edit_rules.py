"""Edit rules: the changes that answers to "what would have to change?" share, whatever graph they are made in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from cf2.options import Key
from cf2.patterns.labelled import GraphRow
from cf2.patterns.pattern import Pattern
from cf2.results.explanation import Explanation
from cf2.results.metrics import Estimate
from cf2.storage import write_bytes

if TYPE_CHECKING:
    import pandas
from collections import Counter
from dataclasses import replace
from itertools import islice, product

import torch
from torch import Tensor

from cf2.errors import require
from cf2.graphs.graph import Instance
from cf2.models.adapters import module_of
from cf2.models.predictor import Predictor
from cf2.models.receptive_field import instance_chunks
from cf2.patterns.labelled import LabelledGraphs
from cf2.patterns.matching import occurrences
from cf2.patterns.summary import Collected, Options, collected, estimate, keys_to_look_at, request_spec, targets_of
from cf2.results.explanations import Explanations
from cf2.runs.session import Request, Session
from cf2.sets.tests import PredictedClass
from cf2.units.packs import pack

# -- rules -----------------------------------------------------------------------------------------------


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
    keys : tuple of keys
        The explained instances whose answer it is.
    """

    rule: EditRule
    prediction: int
    support: int
    answers: int
    turned: Estimate | None = None
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, eq=False)
class EditRules(Sequence[TriedRule]):
    """The few edit rules that turn most of a class.

    Attributes
    ----------
    items : tuple of TriedRule
    about : dict
        The split; by class, how many predictions were `tested`, and the share that any of the rules turns (`together`).
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
        lines = ["Edit rules:"]
        for prediction in sorted({one.prediction for one in self.items}):
            together = self.about.get("together", {}).get(prediction)
            words = "" if together is None else f"together {_share(together)}"
            lines.append(f"away from {self.name(prediction)}: {words}")
            for one in self.items:
                if one.prediction == prediction:
                    turned = "" if one.turned is None else f", turns {_share(one.turned)}"
                    lines.append(f"  {one.rule.text}: {one.support} of {one.answers} answers{turned}")
        return "\n".join([*lines, *self.about.get("notes", ())])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        from cf2.patterns.summary import jsonable

        rows = []
        for one in self.items:
            row = {"class_name": self.name(one.prediction), "rule": one.rule.text, "size": one.rule.size}
            row |= {n: jsonable(getattr(one, n)) for n in ("prediction", "support", "answers", "turned", "keys")}
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
            value, low, high = one.turned or (np.nan,) * 3
            rows.append(row | {"turned": value, "turned_low": low, "turned_high": high})
        return pandas.DataFrame(rows)


def _share(e: Estimate) -> str:
    return f"{100 * e.value:.0f} % ({100 * e.low:.0f}–{100 * e.high:.0f})"


# -- rules -----------------------------------------------------------------------------------------------


PLACES = 8  # applications of a rule that are tried in each graph
SEEN = 300  # predictions of a class that candidates are compared on


@dataclass(frozen=True)
class Change:
    """One application of a rule in one graph: local pairs of nodes, and new labels."""

    removed: tuple[tuple[int, int], ...] = ()
    added: tuple[tuple[int, int], ...] = ()
    renamed: tuple[tuple[int, str], ...] = ()


def verified_rules(found: Explanations, model: Any, data: Any, options: Options) -> EditRules:
    """The edit rules of counterfactual answers, tried on other predictions; see `Explanations.rules`."""
    options.check()
    good = [e for e in found if e.question == "counterfactual" and e.status == "found" and edits_of(e)]
    require(
        bool(good),
        "Expected answers that change a prediction",
        got=f"none among {len(found)}",
        do='Explain with question="counterfactual".',
    )
    spec = request_spec(found)
    targets = data if hasattr(data, "instance") else targets_of(data, good[0].task, spec)
    with Session(Request(module_of(model), targets, spec), fitting=True) as session:
        here = collected(session, keys_to_look_at(found, targets, options), found, options)
        return _Tried(session.predictor, here, good, options).rules(dict(found.context))


class _Tried:
    """Graphs with their instances, and the changes that answers make in them."""

    def __init__(self, predictor: Predictor, here: Collected, good: Sequence[Explanation], options: Options) -> None:
        self.predictor, self.here, self.options = predictor, here, options
        self.instances = [instance for problem in here.problems for instance in problem.instances]
        self.directed = here.graphs.directed
        self.test = np.array([options.is_test(key) for key in here.graphs.keys])
        self.features = self._features()
        row_of = {key: row for row, key in enumerate(here.graphs.keys)}
        self.answers = [(row_of[e.key], e) for e in good if e.key in row_of]
        self.changes = [self._change(row, e) for row, e in self.answers]
        self.rules_of = [self._rule(row, e, change) for (row, e), change in zip(self.answers, self.changes)]

    def _features(self) -> dict[str, Tensor]:
        """The features that a label stands for, where it stands for one row of them."""
        rows: dict[str, Tensor] = {}
        shared: set[str] = set()
        for row, instance in zip(self.here.rows, self.instances):
            for node, label in enumerate(row.labels):
                if label not in rows:
                    rows[label] = instance.x[node]
                elif label not in shared and not torch.equal(rows[label], instance.x[node]):
                    shared.add(label)
        return {label: x for label, x in rows.items() if label not in shared}

    def _change(self, row: int, e: Explanation) -> Change:
        """What an answer does to its own graph."""
        instance = self.instances[row]
        place = {int(node): at for at, node in enumerate(instance.node_ids.tolist())}
        pairs: dict[str, list[tuple[int, int]]] = {"remove": [], "add": []}
        x: dict[int, Tensor] = {}
        for kind, where, *values in edits_of(e):
            if kind in pairs:
                pairs[kind].append((place[where[0]], place[where[1]]))
            else:
                node = place[where[0]]
                x.setdefault(node, instance.x[node].clone())[where[1]] = values[-1]
        renamed = tuple((node, self._label(features)) for node, features in sorted(x.items()))
        return Change(tuple(pairs["remove"]), tuple(pairs["add"]), renamed)

    def _label(self, features: Tensor) -> str:
        known = (label for label, x in self.features.items() if torch.equal(x, features))
        return next(known, "other features")

    def _rule(self, row: int, e: Explanation, change: Change) -> EditRule:
        place = {int(node): at for at, node in enumerate(self.instances[row].node_ids.tolist())}
        return rule_of(edits_of(e), self.here.rows[row], place, dict(change.renamed), self.directed)

    # -- all rules of all classes -------------------------------------------------------------------------------

    def rules(self, context: dict[str, Any]) -> EditRules:
        items: list[TriedRule] = []
        about: dict[str, Any] = {"seed": self.options.seed, "held_out": self.options.held_out}
        about |= {"found_on": sum(not self.test[row] for row, _ in self.answers), "places": PLACES, "notes": []}
        about |= {"tested": {}, "together": {}}
        require(about["found_on"] > 0, "Expected answers to find rules in", got="none that is not held out")
        for prediction in sorted({int(self.here.classes[row]) for row, _ in self.answers}):
            items += self._of_class(prediction, about)
        return EditRules(tuple(items), about, context)

    def _of_class(self, prediction: int, about: dict[str, Any]) -> list[TriedRule]:
        mine = [n for n, (row, _) in enumerate(self.answers) if self.here.classes[row] == prediction]
        known = [n for n in mine if not self.test[self.answers[n][0]]]
        support = Counter(self.rules_of[n] for n in known)
        ranked = sorted(support, key=lambda rule: (-support[rule], rule.size, rule.text))[: 3 * self.options.count]
        of_class = self.here.classes == prediction
        seen, held = np.flatnonzero(of_class & ~self.test)[:SEEN], np.flatnonzero(of_class & self.test)
        gains = {rule: self._turned(rule, prediction, seen) for rule in ranked}
        chosen = _greedy(gains, self.options.count)
        results = {rule: self._turned(rule, prediction, held) for rule in chosen}
        about["tested"][prediction] = len(held)
        turned = list(results.values())
        about["together"][prediction] = estimate(np.any(turned, axis=0)) if turned else None
        return [
            TriedRule(
                rule,
                prediction,
                support[rule],
                len(known),
                estimate(results[rule]),
                tuple(dict.fromkeys(self.answers[n][1].key for n in mine if self.rules_of[n] == rule)),
            )
            for rule in chosen
        ]

    def _turned(self, rule: EditRule, prediction: int, rows: np.ndarray) -> np.ndarray:
        """Which rows some one application turns."""
        made = [(at, self._edited(int(rows[at]), change)) for at, change in self._applications(rule, rows)]
        tried = [(at, instance) for at, instance in made if instance is not None]
        places = np.array([at for at, _ in tried], dtype=np.int64)
        turned = np.zeros(len(rows), bool)
        start = 0
        for part in instance_chunks(self.predictor, [instance for _, instance in tried]):
            outputs = self.predictor.predict(pack(part, takes=self.predictor.adapter.takes))
            criterion = PredictedClass(torch.full((len(outputs),), prediction, device=outputs.device))
            turned[places[start : start + len(part)][~criterion.holds(outputs).cpu().numpy()]] = True
            start += len(part)
        return turned

    def _applications(self, rule: EditRule, rows: np.ndarray) -> Iterator[tuple[int, Change]]:
        """The first few ways to carry out a rule in each row."""
        wanted = np.zeros(len(self.here.graphs), bool)
        wanted[rows] = True
        parts = [part for piece in rule.pieces for part in _parts(piece)]
        places = [_placed(part, self.here.graphs, wanted) for part, _ in parts]
        for at, row in enumerate(rows.tolist()):
            options = [place.get(row, []) for place in places]
            ways = (way for way in islice(product(*options), 64) if _apart(way))
            changes = (self._joined(rule, parts, way, row) for way in ways)
            for change in islice((change for change in changes if change is not None), PLACES):
                yield at, change

    def _joined(
        self, rule: EditRule, parts: Sequence[tuple[Pattern, Mapping[int, int]]], way: tuple[Any, ...], row: int
    ) -> Change | None:
        """The change that a rule is where its parts lie; None where what it adds is there already."""
        known = {tuple(pair) for pair in self.here.rows[row].edges.tolist()}
        removed: list[tuple[int, int]] = []
        added: list[tuple[int, int]] = []
        renamed: list[tuple[int, str]] = []
        number = 0
        for piece in rule.pieces:
            node: dict[int, int] = {}
            for _, place in parts[number : number + len(_parts(piece))]:
                node |= {old: int(way[number][new]) for old, new in place.items()}
                number += 1
            for (a, b), name in zip(piece.edges, piece.edge_labels):
                (removed if (name or "").startswith(REMOVE) else added).append((node[a], node[b]))
            for n, label in enumerate(piece.labels):
                if label is not None and ARROW in label:
                    renamed.append((node[n], label.split(ARROW)[1]))
        if any((a, b) in known or (not self.directed and (b, a) in known) for a, b in added):
            return None
        return Change(tuple(removed), tuple(added), tuple(renamed))

    def _edited(self, row: int, change: Change) -> Instance | None:
        """The instance after a change; None where it cannot be said what that is."""
        instance = self.instances[row]
        of_edges = [n for n, (kind, _) in instance.extras.items() if kind == "edge" and self.predictor.adapter.takes(n)]
        unknown = [label for _, label in change.renamed if label not in self.features]
        if unknown or (change.added and (of_edges or instance.targets)):
            return None  # attributes of a new edge are not known, nor what lies beyond a receptive field
        gone = set(change.removed) | (set() if self.directed else {(b, a) for a, b in change.removed})
        stay = torch.tensor([tuple(pair) not in gone for pair in instance.edge_index.t().tolist()], dtype=torch.bool)
        new = [*change.added, *(() if self.directed else ((b, a) for a, b in change.added))]
        ends = torch.tensor(new, dtype=torch.long).reshape(-1, 2).t()
        x = instance.x.clone()
        for node, label in change.renamed:
            x[node] = self.features[label]
        kept = {
            n: (k, v[stay] if k == "edge" else v)
            for n, (k, v) in instance.extras.items()
            if k != "edge" or n in of_edges
        }
        return replace(instance, x=x, edge_index=torch.cat([instance.edge_index[:, stay], ends], 1), extras=kept)


def _greedy(gains: Mapping[EditRule, np.ndarray], count: int) -> list[EditRule]:
    """Rules, each of which turns most of what those before it do not."""
    chosen: list[EditRule] = []
    covered: Any = False
    while len(chosen) < count:
        left = {rule: int((turned & ~covered).sum()) for rule, turned in gains.items() if rule not in chosen}
        best = max(left, key=lambda rule: (left[rule], -rule.size, rule.text), default=None)
        if best is None or not left[best]:
            break
        chosen.append(best)
        covered = covered | gains[best]
    return chosen


def _parts(piece: Pattern) -> list[tuple[Pattern, dict[int, int]]]:
    """What must be there for a piece to be carried out: the connected parts that its removed edges make.

    Each is a pattern with the labels as they were, and where each node of the piece is in it.
    """
    labels = [(label or "").split(ARROW)[0] for label in piece.labels]
    here = [number for number, name in enumerate(piece.edge_labels) if not (name or "").startswith(ADD)]
    root = list(range(len(labels)))
    for number in here:
        a, b = piece.edges[number]
        root = [root[b] if r == root[a] else r for r in root]
    found = []
    for group in sorted(set(root)):
        nodes = [node for node, r in enumerate(root) if r == group]
        place = {node: at for at, node in enumerate(nodes)}
        rows = [number for number in here if piece.edges[number][0] in place]
        # Not in canonical order: the places of the nodes must stay known.
        edges = tuple((place[piece.edges[r][0]], place[piece.edges[r][1]]) for r in rows)
        names = tuple((piece.edge_labels[r] or "")[1:] for r in rows)
        found.append((Pattern(tuple(labels[n] for n in nodes), (0,) * len(nodes), edges, names, piece.directed), place))
    return found


def _placed(part: Pattern, graphs: LabelledGraphs, rows: np.ndarray) -> dict[int, list[np.ndarray]]:
    """By row, the first few occurrences of a part, as local nodes."""
    where = occurrences(part, graphs, rows)
    found: dict[int, list[np.ndarray]] = {}
    for graph, nodes in zip(where.graph.tolist(), where.nodes):
        mine = found.setdefault(graph, [])
        if len(mine) < 2 * PLACES:
            mine.append(nodes - graphs.ptr[graph])
    return found


def _apart(way: Sequence[np.ndarray]) -> bool:
    """Whether the parts share no node."""
    nodes = np.concatenate(way)
    return len(np.unique(nodes)) == len(nodes)
