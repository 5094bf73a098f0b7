"""What the model looks for: the patterns that the answers of a class share, and how they fare on other instances."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from cf2.errors import require
from cf2.options import Key
from cf2.patterns.pattern import Pattern
from cf2.results.metrics import Estimate
from cf2.storage import write_bytes

if TYPE_CHECKING:
    import pandas
import hashlib
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch_geometric.data import Data

from cf2.errors import CF2Error, require_number, unknown_name
from cf2.graphs.data import graphs_of
from cf2.graphs.graph import Graph, Instance
from cf2.graphs.targets import GraphTargets, NodeTargets, Targets
from cf2.methods.contract import Problem
from cf2.models.adapters import module_of
from cf2.models.oracle import outputs_after
from cf2.options import Spec
from cf2.patterns.labelled import GraphRow, LabelledGraphs, explained_graph, node_labels
from cf2.patterns.matching import Containing, Occurrences, containing, occurrences
from cf2.patterns.mining import Miner
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.results.metrics import share
from cf2.results.names import entry, read_smiles
from cf2.runs.session import GROUP, Request, Session
from cf2.sets.tests import ONLY, WITHOUT, Criterion, Intervention
from cf2.units.kinds import InstanceUnits

if TYPE_CHECKING:
    from cf2.results.explanations import Explanations

# -- patterns --------------------------------------------------------------------------------------------


MEASURES = ("coverage", "precision", "necessity", "sufficiency", "sufficiency_one", "chance")


@dataclass(frozen=True, eq=False)
class FoundPattern:
    """A pattern of a class, and what it does on instances that it was not found on.

    Attributes
    ----------
    pattern : Pattern
    prediction : int
        The class whose answers share it.
    support, answers : int
        How many answers contain it, of how many that patterns of the class were found in.
    coverage : Estimate or None
        Of the predictions of the class, the share whose graph contains it.
    precision : Estimate or None
        Of the graphs that contain it, the share that gets the class.
    necessity : Estimate or None
        Of the predictions of the class that contain it, the share that leaves the class when every occurrence is
        removed.
    sufficiency, sufficiency_one : Estimate or None
        Of the same, the share that keeps the class when only the occurrences are kept, and when only one of them is
        (some one, of those that are tried).
    chance : Estimate or None
        Of the same, the share that leaves the class when as many other edges are removed, drawn by the seed: what
        `necessity` is to be compared with.
    contained, undecided : int
        How many tested graphs contain it, and in how many it could occur in too many ways to be decided.
    keys : tuple of keys
        The explained instances whose answer contains it.
    """

    pattern: Pattern
    prediction: int
    support: int
    answers: int
    coverage: Estimate | None = None
    precision: Estimate | None = None
    necessity: Estimate | None = None
    sufficiency: Estimate | None = None
    sufficiency_one: Estimate | None = None
    chance: Estimate | None = None
    contained: int = 0
    undecided: int = 0
    keys: tuple[Key, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        shares = {name: None if (e := getattr(self, name)) is None else list(map(float, e)) for name in MEASURES}
        counts = {name: getattr(self, name) for name in ("prediction", "support", "answers", "contained", "undecided")}
        return {**counts, **shares, "pattern": self.pattern.to_dict(), "keys": [_plain(key) for key in self.keys]}


@dataclass(frozen=True, eq=False)
class Patterns(Sequence[FoundPattern]):
    """The patterns of every class, the one that covers most first, and how they were found and tested.

    Attributes
    ----------
    items : tuple of FoundPattern
    about : dict
        The split (`seed`, `held_out`), how many answers the patterns were `found_on`, and by class on how many
        predictions they were `tested`; by class the coverage of all its patterns together (`together`) and the share
        of its predictions that stay without any edge (`empty`); where a class has several patterns, the `coverage`,
        `precision` and `sufficiency` of all of them `jointly`; the overlap with the known `truth`, if there is one.
    context : dict
        What is known of the explanations: `class_names`, `atoms`, the `dataset`.
    """

    items: tuple[FoundPattern, ...]
    about: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> FoundPattern: ...
    @overload
    def __getitem__(self, index: slice) -> Patterns: ...
    def __getitem__(self, index: int | slice) -> FoundPattern | Patterns:
        if isinstance(index, slice):
            return Patterns(self.items[index], self.about, self.context)
        return self.items[index]

    def __iter__(self) -> Iterator[FoundPattern]:
        return iter(self.items)

    def classes(self) -> list[int]:
        """The classes that have patterns, ascending."""
        return sorted({one.prediction for one in self.items})

    def of(self, prediction: int) -> tuple[FoundPattern, ...]:
        """The patterns of a class, the one that covers most first."""
        return tuple(one for one in self.items if one.prediction == prediction)

    def name(self, prediction: int) -> str:
        """A class by its name, where it has one."""
        names = self.context.get("class_names") or ()
        return str(names[prediction]) if prediction < len(names) else f"class {prediction}"

    def __repr__(self) -> str:
        about = self.about
        tested = sum(about.get("tested", {}).values())
        lines = [f"Patterns found in {about.get('found_on', 0):,} answers, tested on {tested:,} other predictions:"]
        for prediction in self.classes():
            together = about.get("together", {}).get(prediction)
            lines.append(f"{self.name(prediction)}" + ("" if together is None else f" (together {_words(together)})"))
            for one in self.of(prediction):
                shares = [f"{name} {_words(e)}" for name in MEASURES if (e := getattr(one, name)) is not None]
                lines.append(f"  {one.pattern.text}: in {one.support} of {one.answers} answers; {', '.join(shares)}")
            if jointly := about.get("jointly", {}).get(prediction):
                shares = [f"{name} {_words(e)}" for name, e in jointly.items() if e is not None]
                lines.append(f"  all of them: {', '.join(shares)}")
        lines += list(about.get("notes", ()))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        rows = [{"class_name": self.name(one.prediction), **one.to_dict()} for one in self.items]
        return {"about": jsonable(self.about), "patterns": rows}

    def to_pandas(self) -> pandas.DataFrame:
        """A table with one row per pattern; every share with the ends of its interval."""
        import pandas

        rows = []
        for one in self.items:
            row: dict[str, Any] = {"class": self.name(one.prediction), "pattern": one.pattern.text}
            row |= {"smarts": one.pattern.smarts, "nodes": len(one.pattern.labels), "edges": one.pattern.size}
            row |= {"support": one.support, "answers": one.answers, "contained": one.contained}
            for name in MEASURES:
                value, low, high = getattr(one, name) or (np.nan,) * 3
                row |= {name: value, f"{name}_low": low, f"{name}_high": high}
            rows.append(row)
        return pandas.DataFrame(rows)

    def save(self, path: str | Path) -> Path:
        """Write `to_dict()` as a JSON file."""
        require(isinstance(path, str | PathLike), "Expected the path of a file to write", got=repr(path)[:80])
        write_bytes(Path(path), (json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n").encode())
        return Path(path)

    def _repr_html_(self) -> str:
        from cf2.patterns.pictures import patterns_html

        return patterns_html(self)


def _words(e: Estimate) -> str:
    return f"{100 * e.value:.0f} % ({100 * e.low:.0f}–{100 * e.high:.0f})"


def _plain(key: Key) -> Any:
    return list(key) if isinstance(key, tuple) else key


def jsonable(value: Any) -> Any:
    """Plain values; an estimate becomes its value and the two ends of its interval."""
    if isinstance(value, Mapping):
        return {str(name): jsonable(item) for name, item in value.items()}
    if isinstance(value, Estimate):
        return list(map(float, value))
    return [jsonable(item) for item in value] if isinstance(value, list | tuple) else value


# -- counting --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """How patterns are looked for; see `Explanations.patterns`."""

    count: int = 5
    held_out: float = 0.5
    seed: int = 0
    most: int = 2000
    least: float = 0.02
    labels: str | Sequence[str] = "auto"
    given: tuple[Pattern, ...] = ()

    def check(self) -> Options:
        require_number("count", self.count, 1, 1000, integer=True)
        require_number("held_out", self.held_out, 0, 0.95)
        require_number("seed", self.seed, 0, integer=True)
        require_number("most", self.most, 1, integer=True)
        require_number("least", self.least, 0, 1)
        good = isinstance(self.given, tuple) and all(isinstance(one, Pattern) for one in self.given)
        require(
            good, "Expected `given` to hold patterns", got=repr(self.given)[:80], do="Make one with cf2.Pattern.make."
        )
        return self

    def is_test(self, key: Key) -> bool:
        """Whether a key is kept for the test: by the seed and the key, whatever else there is."""
        return draw(self.seed, key) < self.held_out


def draw(seed: int, key: Key, purpose: str = "") -> float:
    """A number in [0, 1) that depends on the seed and the key alone."""
    made = hashlib.blake2b(f"{purpose}{seed}:{key}".encode(), digest_size=8).digest()
    return int.from_bytes(made, "big") / 2**64


def usable(found: Sequence[Explanation]) -> tuple[list[Explanation], list[str]]:
    """The answers that count, and what to say of that: those that pass their tests, or all where none does."""
    with_edges = [e for e in found if e.size and len(e.chosen("edges"))]
    require(
        bool(with_edges),
        "Expected explanations that chose edges, which patterns are made of",
        got=f"none among {len(found)}",
        do='Explain with units="edges".',
    )
    good = [e for e in with_edges if e.status == "found"]
    notes = [] if good else ["No answer was verified: the patterns are those of sets that a method ranks highest."]
    directions = {e.directed for e in good or with_edges}
    require(len(directions) == 1, "Expected explanations of graphs that are all directed, or all not", got="both")
    return good or with_edges, notes


class Mined(NamedTuple):
    """A pattern of a class before it is tested."""

    prediction: int
    pattern: Pattern
    support: int
    answers: int
    keys: tuple[Key, ...]


def mine(
    answers: Sequence[tuple[int, Explanation, np.ndarray]],
    graphs: LabelledGraphs,
    classes: np.ndarray,
    test: np.ndarray,
    options: Options,
) -> list[Mined]:
    """The patterns of each class.

    Parameters
    ----------
    answers : sequence of (row, Explanation, ndarray of bool [edges])
        For every answer the row of its graph, and which edges of that it chose.
    graphs : LabelledGraphs
    classes : ndarray of int, shape [G]
        What the model says of each graph.
    test : ndarray of bool, shape [G]
        Which graphs must not be looked at.
    options : Options
    """
    seen = np.flatnonzero(~test)
    place = np.full(len(graphs), -1)
    place[seen] = np.arange(len(seen))
    here = graphs.take(seen)
    pieces = [graphs.pieces(row, chosen) for row, _, chosen in answers]
    found = []
    for prediction in sorted({int(classes[row]) for row, _, _ in answers if not test[row]}):
        mine_of = [(int(place[row]), p) for (row, _, _), p in zip(answers, pieces) if classes[row] == prediction]
        miner = Miner(here, classes[seen] == prediction, [(row, p) for row, p in mine_of if row >= 0])
        everything = Miner(here, classes[seen] == prediction, mine_of)  # test answers too, to name their keys
        named = [e.key for row, e, _ in answers if classes[row] == prediction]
        for pattern in dict.fromkeys((*miner.mine(options.count, options.least), *options.given)):
            keys = [key for key, yes in zip(named, everything.supported(pattern)) if yes]
            found.append(
                Mined(prediction, pattern, miner.support(pattern), len(miner.answers), tuple(dict.fromkeys(keys)))
            )
    return found


class Contained(NamedTuple):
    """Where a pattern occurs among tested graphs, with what that says of it."""

    there: Containing
    occurrences: Occurrences  # in the graphs of the class
    coverage: Estimate | None
    precision: Estimate | None


def contained(pattern: Pattern, prediction: int, graphs: LabelledGraphs, classes: np.ndarray) -> Contained:
    """Coverage and precision of a pattern on graphs that it was not found on."""
    there = containing(pattern, graphs)
    decided, inside, mine_ = ~there.undecided, there.contained, classes == prediction
    where = occurrences(pattern, graphs, inside & mine_)
    return Contained(there, where, estimate(inside[mine_ & decided]), estimate(mine_[inside]))


def estimate(passed: np.ndarray) -> Estimate | None:
    """A share with its interval, None of nothing."""
    return share(passed.tolist()) if len(passed) else None


def count_patterns(found: Explanations, options: Options) -> Patterns:
    """The patterns of explanations, counted in the explained graphs themselves; no model is run."""
    options.check()
    good, notes = usable(found.items)
    known = {e.key: e for e in found.items if len(e.units.of("edges"))}
    rows: list[GraphRow] = [explained_graph(e, found.context) for e in known.values()]
    row_of = {key: row for row, key in enumerate(known)}
    graphs = LabelledGraphs.join(rows, good[0].directed)
    classes = np.array([e.prediction for e in known.values()])
    test = np.array([options.is_test(key) for key in known])
    answers = [(row_of[e.key], e, e.selected[e.units.where("edges")]) for e in good]
    check_split(answers, test)
    tested = graphs.take(np.flatnonzero(test))
    items: list[FoundPattern] = []
    union: dict[int, Any] = {}
    for one in mine(answers, graphs, classes, test, options):
        got = contained(one.pattern, one.prediction, tested, classes[test])
        union[one.prediction] = union.get(one.prediction, False) | got.there.contained
        items.append(with_tests(one, got))
    notes.append("No model was run, so neither necessity nor sufficiency was tested: pass the model and the data.")
    if len(set(classes.tolist())) == 1:
        notes.append("All explained predictions are of one class: nothing was generalised, and precision says nothing.")
    return Patterns(tuple(items), facts(options, answers, test, classes, union, notes), dict(found.context))


def check_split(answers: Sequence[tuple[int, Explanation, np.ndarray]], test: np.ndarray) -> None:
    """Refuse a split that leaves nothing to find patterns in."""
    require(
        any(not test[row] for row, _, _ in answers),
        "Expected answers to find patterns in",
        got=f"{len(answers)}, all of them held out for the test",
        do="Explain more predictions, or pass a smaller held_out.",
    )


def with_tests(one: Mined, got: Contained, **shares: Estimate | None) -> FoundPattern:
    """A mined pattern with what its tests gave."""
    return FoundPattern(
        one.pattern,
        one.prediction,
        one.support,
        one.answers,
        got.coverage,
        got.precision,
        contained=int(got.there.contained.sum()),
        undecided=int((got.there.undecided | got.occurrences.undecided).sum()),
        keys=one.keys,
        **shares,
    )


def facts(
    options: Options,
    answers: Sequence[tuple[int, Explanation, np.ndarray]],
    test: np.ndarray,
    classes: np.ndarray,
    union: Mapping[int, np.ndarray],
    notes: Sequence[str],
) -> dict[str, Any]:
    """What is said of the split and of the patterns of each class together."""
    held = classes[test]
    return {
        "seed": options.seed,
        "held_out": options.held_out,
        "found_on": sum(not test[row] for row, _, _ in answers),
        "looked_at": int((~test).sum()),
        "tested": {c: int((held == c).sum()) for c in sorted(set(held.tolist()))},
        "together": {c: estimate(inside[held == c]) for c, inside in union.items()},
        "notes": list(notes),
    }


# -- pattern graphs --------------------------------------------------------------------------------------


EDGES = 2_000_000  # edge columns of all graphs that are looked at
WIDE = 256  # features that are wider give no labels
LABELS = ("auto", "degree", "class", "none")
ORDERS = {1.0: "single", 1.5: "aromatic", 2.0: "double", 3.0: "triple"}  # of a graph's `bond`
MANY = 5  # neighbours, from which on a node has "many"


class Collected(NamedTuple):
    """Graphs that patterns are looked for in."""

    problems: list[Problem]  # packed, for the model
    rows: list[GraphRow]  # one per instance, with labels
    graphs: LabelledGraphs  # the same side by side
    classes: np.ndarray  # [G], what the model says of each


def request_spec(found: Explanations) -> Spec:
    """How the model was run for these explanations, without what was asked of it."""
    stored = found.context.get("spec") or {}
    kept = ("output", "level", "directed", "masking", "device")
    return Spec(**{name: stored[name] for name in kept if name in stored})


def targets_of(data: Any, task: str, spec: Spec) -> Targets:
    """What can be asked about the user's data: nodes of one graph, or graphs."""
    graphs = graphs_of(data, task, positions=True)
    if isinstance(graphs, Data) and task == "node":
        return NodeTargets(Graph(graphs, directed=spec.directed), getattr(graphs, "y", None))
    return GraphTargets([graphs] if isinstance(graphs, Data) else graphs, directed=spec.directed)


def keys_to_look_at(found: Explanations, targets: Targets, options: Options) -> list[Key]:
    """What is looked at: everything explained, then others in an order that the seed decides."""
    explained = list(dict.fromkeys(e.key for e in found))
    targets.check(explained)
    there = set(explained)
    others = [key for key in range(len(targets)) if key not in there] if isinstance(explained[0], int) else []
    others.sort(key=lambda key: draw(options.seed, key, "order"))
    return explained + others[: options.most]


def collected(session: Session, keys: Sequence[Key], found: Explanations, options: Options) -> Collected:
    """The keys as packed problems, and the same graphs with labels."""
    problems, columns = [], 0
    for start in range(0, len(keys), GROUP):
        for problem in session.problems(keys[start : start + GROUP]):
            problems.append(problem)
            columns += int(problem.pack.edge_index.size(1))
        if columns > EDGES:
            break
    rows = _labelled(session, problems, found.context, options.labels)
    graphs = LabelledGraphs.join(rows, problems[0].instances[0].directed)
    said = torch.cat([problem.criterion.said(problem.outputs).cpu() for problem in problems])
    return Collected(problems, rows, graphs, said.numpy())


def _labelled(
    session: Session, problems: Sequence[Problem], context: Mapping[str, Any], labels: str | Sequence[str]
) -> list[GraphRow]:
    """One row per instance; its edges are its units, in their order."""
    atoms: Sequence[str] = context.get("atoms") or ()
    pairs = [pair for problem in problems for pair in zip(problem.instances, problem.tables)]
    takes = session.predictor.adapter.takes
    names = _names(session, [instance for instance, _ in pairs], problems[0].criterion, atoms, labels)
    edge_names = _edge_names(pairs, takes, labels, bool(atoms))
    if labels == "auto" and (read := _molecules(session.request.targets, pairs, context)):
        names, bonds = read
        edge_names = bonds if takes("edge_attr") else edge_names
    rows = []
    for (instance, table), of_nodes, of_edges in zip(pairs, names, edge_names):
        ids = instance.node_ids.numpy()
        marks = np.zeros(len(ids), np.int64)
        marks[list(instance.targets)] = np.arange(1, len(instance.targets) + 1)
        rows.append(GraphRow(instance.key, of_nodes, marks, _local(ids, table.ids.numpy()), of_edges))
    return rows


def _molecules(
    targets: Targets, pairs: Sequence[tuple[Instance, InstanceUnits]], context: Mapping[str, Any]
) -> tuple[list[list[str]], list[list[str]]] | None:
    """The elements of the nodes and the orders of the edges of every instance, where all have a SMILES."""
    written = context.get("smiles")
    if not written or not isinstance(targets, GraphTargets):
        return None
    elements, orders = [], []
    for instance, table in pairs:
        assert isinstance(instance.key, int)
        text = entry(written, instance.key) or getattr(targets.graphs[instance.key], "smiles", None)
        try:
            known = read_smiles(text, len(instance.node_ids), instance.edge_index.numpy(), "a graph", aromatic=True)
        except CF2Error:
            return None
        bonds = {frozenset((u, v)): order for u, v, order in known["bonds"]}
        elements.append([known["labels"][node] for node in instance.node_ids.tolist()])
        orders.append([_order(bonds.get(frozenset(pair), 1.0)) for pair in table.ids.tolist()])
    return elements, orders


def _order(bond: float) -> str:
    return ORDERS.get(bond, f"order {bond:g}")


def _local(ids: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Pairs of the user's ids as places in `ids`."""
    order = np.argsort(ids)
    place: np.ndarray = order[np.searchsorted(ids, pairs, sorter=order)]
    return place


def _names(
    session: Session,
    instances: Sequence[Instance],
    criterion: Criterion,
    atoms: Sequence[str],
    labels: str | Sequence[str],
) -> list[list[str]]:
    """The labels of the nodes of every instance."""
    counts = [len(instance.node_ids) for instance in instances]
    flat = [""] * sum(counts)
    if labels == "class":
        full = session.field.reach.full
        require(
            full is not None,
            'Expected a graph of which every node has a class for labels="class"',
            got="graphs, or one that is too large",
        )
        assert full is not None
        said = criterion.said(full).numpy()
        flat = [f"class {said[node]}" for instance in instances for node in instance.node_ids.tolist()]
        start = 0
        for instance, count in zip(instances, counts):
            for target in instance.targets:
                flat[start + target] = ""  # its own class would give the answer away
            start += count
    elif labels != "none" and instances[0].x.size(1) <= WIDE:
        given = atoms if isinstance(labels, str) else labels
        flat = node_labels(torch.cat([instance.x for instance in instances]).float().numpy(), given)
    if labels == "degree" or (labels == "auto" and not any(flat)):
        flat = _degrees(session.request.targets.graph, instances)
    types = [instance.extras.get("node_type") for instance in instances]
    if labels != "none" and all(kind is not None and kind[0] == "node" for kind in types):
        numbers = torch.cat([kind[1].reshape(-1) for kind in types if kind is not None]).tolist()
        flat = [f"type {number}" + (f" {label}" if label else "") for number, label in zip(numbers, flat)]
    return _parts(flat, counts)


def _degrees(whole: Graph | None, instances: Sequence[Instance]) -> list[str]:
    """How many neighbours each node has, in the whole graph where the instances are parts of one."""
    if whole is not None:
        known = _neighbours(whole.edge_index.numpy(), whole.num_nodes)
        parts = [known[instance.node_ids.numpy()] for instance in instances]
    else:
        parts = [_neighbours(instance.edge_index.numpy(), len(instance.node_ids)) for instance in instances]
    return [f"d{n}" if n < MANY else f"d{MANY}+" for n in np.concatenate(parts).tolist()]


def _neighbours(ends: np.ndarray, count: int) -> np.ndarray:
    proper = ends[:, ends[0] != ends[1]]
    pairs = np.unique(np.concatenate([proper, proper[::-1]], 1), axis=1)
    return np.bincount(pairs[0], minlength=count)


def _edge_names(
    pairs: Sequence[tuple[Instance, InstanceUnits]], takes: Any, labels: str | Sequence[str], molecules: bool
) -> list[list[str]]:
    """The labels of the edges of every instance: of what the model is given of them; bonds by their names."""
    counts = [table.count for _, table in pairs]
    flat = [""] * sum(counts)
    for name in ("edge_type", "edge_attr"):
        known = all(instance.extras.get(name, ("",))[0] == "edge" for instance, _ in pairs)
        if labels == "none" or not known or not takes(name):
            continue
        bonds = name == "edge_attr" and molecules and all("bond" in instance.extras for instance, _ in pairs)
        parts = []
        for instance, table in pairs:
            first = torch.zeros(table.count, dtype=torch.long)
            governed = (table.edges[0] >= 0).nonzero().flatten().flip(0)
            first[table.edges[0][governed]] = governed  # the first column of each unit
            parts.append(instance.extras["bond" if bonds else name][1][first].reshape(table.count, -1))
        values = torch.cat(parts).float().numpy()
        if bonds:
            said = [_order(order) for order in values[:, 0].tolist()]
        else:
            said = node_labels(values, prefix="e" if name == "edge_attr" else "type ")
        flat = [" ".join(filter(None, both)) for both in zip(flat, said)]
    return _parts(flat, counts)


def _parts(flat: list[str], counts: Sequence[int]) -> list[list[str]]:
    ends = np.cumsum([0, *counts]).tolist()
    return [flat[start:end] for start, end in pairwise(ends)]


# -- patterns --------------------------------------------------------------------------------------------


TRIES = 8  # occurrences that are kept one at a time


def verified_patterns(found: Explanations, model: Any, data: Any, options: Options) -> Patterns:
    """The patterns of explanations, found on a part of them and tested on all else that the data holds.

    `data` is what was explained, or its `Targets`; the other parameters are those of `Explanations.patterns`.
    """
    options.check()
    if isinstance(options.labels, str) and options.labels not in LABELS:
        raise unknown_name("`labels`", options.labels, LABELS)
    good, notes = usable(found.items)
    spec = request_spec(found)
    targets = data if hasattr(data, "instance") else targets_of(data, good[0].task, spec)
    keys = keys_to_look_at(found, targets, options)
    with Session(Request(module_of(model), targets, spec), fitting=True) as session:
        problems, _, graphs, classes = collected(session, keys, found, options)
        if len(graphs) < len(keys):
            notes.append(f"The graphs are large: {len(graphs):,} of {len(keys):,} were looked at.")
        return _tested(found, good, notes, problems, graphs, classes, options)


# -- the tests ----------------------------------------------------------------------------------------------


class Held(NamedTuple):
    """The graphs that patterns are tested on: packed, and with labels; `rows` of all graphs."""

    problems: list[Problem]
    graphs: LabelledGraphs
    classes: np.ndarray


def _tested(
    found: Explanations,
    good: Sequence[Explanation],
    notes: list[str],
    problems: Sequence[Problem],
    graphs: LabelledGraphs,
    classes: np.ndarray,
    options: Options,
) -> Patterns:
    row_of = {key: row for row, key in enumerate(graphs.keys)}
    test = np.array([options.is_test(key) for key in graphs.keys])
    tables = list(chain.from_iterable(problem.tables for problem in problems))
    answers = [(row, e, _chosen(e, tables[row])) for e in good if (row := row_of.get(e.key)) is not None]
    check_split(answers, test)
    held = Held(_only_rows(problems, test), graphs.take(np.flatnonzero(test)), classes[test])
    items: list[FoundPattern] = []
    union: dict[int, Any] = {}
    edges: dict[int, np.ndarray] = {}
    for one in mine(answers, graphs, classes, test, options):
        got = contained(one.pattern, one.prediction, held.graphs, held.classes)
        union[one.prediction] = union.get(one.prediction, False) | got.there.contained
        edges[one.prediction] = edges.get(one.prediction, False) | got.occurrences.union()
        items.append(with_tests(one, got, **_causal(held, got.occurrences, one.prediction, options.seed)))
    about = facts(options, answers, test, classes, union, notes)
    about["empty"] = {c: _stays_empty(held, c) for c in sorted(union)}
    about["jointly"] = _jointly(held, items)
    about["truth"] = against_truth(found, held, edges)
    return Patterns(tuple(items), about, dict(found.context))


def _chosen(e: Explanation, table: InstanceUnits) -> np.ndarray:
    """Which edges of an instance an explanation chose."""
    chosen = {tuple(pair) for pair in e.chosen("edges").tolist()}
    chosen |= set() if e.directed else {(b, a) for a, b in chosen}
    return np.array([tuple(pair) in chosen for pair in table.ids.tolist()], dtype=bool)


def _only_rows(problems: Sequence[Problem], rows: np.ndarray) -> list[Problem]:
    """The problems with the instances of some rows [bool] alone."""
    found, start = [], 0
    for problem in problems:
        mine_ = np.flatnonzero(rows[start : start + problem.num_instances])
        start += problem.num_instances
        if len(mine_):
            found.append(problem.take(torch.from_numpy(mine_).to(problem.outputs.device)))
    return found


def _causal(held: Held, where: Occurrences, prediction: int, seed: int) -> dict[str, Estimate | None]:
    """What the model says of the predictions of a class that contain a pattern, after each intervention."""
    rows = np.flatnonzero(where.contained & (held.classes == prediction))
    if not len(rows):
        return {}
    union = where.union()
    tried, owner = _single(where, rows)
    one = np.zeros(len(held.graphs), bool)
    np.logical_or.at(one, owner, _stays(held, owner, tried, ONLY))
    every = _sets(held.graphs, rows, union)
    return {
        "necessity": estimate(~_stays(held, rows, every, WITHOUT)),
        "sufficiency": estimate(_stays(held, rows, every, ONLY)),
        "sufficiency_one": estimate(one[rows]),
        "chance": estimate(~_stays(held, rows, _others(held.graphs, rows, union, seed), WITHOUT)),
    }


def _sets(graphs: LabelledGraphs, rows: np.ndarray, chosen: np.ndarray) -> list[np.ndarray]:
    """A set of edges per row, from one flag per edge of all graphs."""
    return [chosen[graphs.edge_ptr[row] : graphs.edge_ptr[row + 1]] for row in rows]


def _single(where: Occurrences, rows: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The first few different occurrences in every row, each as a set of edges, and the row of each."""
    graphs, edges = where.graphs, np.sort(where.edges(), 1)
    sets, owner = [], []
    for row in rows.tolist():
        start, end = graphs.edge_ptr[row], graphs.edge_ptr[row + 1]
        for chosen in np.unique(edges[where.graph == row], axis=0)[:TRIES]:
            flags = np.zeros(end - start, bool)
            flags[chosen - start] = True
            sets.append(flags)
            owner.append(row)
    return sets, np.array(owner, dtype=np.int64)


def _others(graphs: LabelledGraphs, rows: np.ndarray, union: np.ndarray, seed: int) -> list[np.ndarray]:
    """As many edges as the occurrences have, drawn among the others as far as there are enough."""
    drawn = []
    for row, chosen in zip(rows.tolist(), _sets(graphs, rows, union)):
        stream = np.random.default_rng(int(draw(seed, graphs.keys[row], "chance") * 2**63))
        rank = stream.random(len(chosen)) + chosen
        flags = np.zeros(len(chosen), bool)
        flags[np.argsort(rank)[: int(chosen.sum())]] = True
        drawn.append(flags)
    return drawn


def _stays(held: Held, rows: np.ndarray, sets: Sequence[np.ndarray], intervention: Intervention) -> np.ndarray:
    """Whether the model still says the same of rows (ascending, they may repeat) after what their sets do, packed."""
    said, start = [np.zeros(0, bool)], 0
    for problem in held.problems:
        places = np.flatnonzero((rows >= start) & (rows < start + problem.num_instances))
        for part in _by(places, problem.num_instances):
            taken = torch.from_numpy(rows[part] - start).to(problem.outputs.device)
            chosen = torch.from_numpy(np.concatenate([sets[place] for place in part])).to(taken.device)
            outputs = outputs_after(intervention, problem.predictor, problem.pack.take(taken), chosen)
            said.append(problem.criterion.take(taken).holds(outputs).cpu().numpy())
        start += problem.num_instances
    return np.concatenate(said)


def _by(places: np.ndarray, size: int) -> Iterator[np.ndarray]:
    yield from (places[start : start + size] for start in range(0, len(places), size))


def _stays_empty(held: Held, prediction: int) -> Estimate | None:
    """The share of a class that stays when every edge is removed: what sufficiency is to be compared with."""
    rows = np.flatnonzero(held.classes == prediction)
    nothing = _sets(held.graphs, rows, np.zeros(len(held.graphs.edges), bool))
    return estimate(_stays(held, rows, nothing, ONLY))


def _jointly(held: Held, items: Sequence[FoundPattern]) -> dict[int, dict[str, Estimate | None]]:
    """By class with several patterns: what the graphs that contain all of them are, and if these alone are enough."""
    found: dict[int, dict[str, Estimate | None]] = {}
    for prediction in sorted({one.prediction for one in items}):
        patterns = [one.pattern for one in items if one.prediction == prediction]
        if len(patterns) < 2:
            continue
        mine_ = held.classes == prediction
        inside = np.all([containing(pattern, held.graphs).contained for pattern in patterns], axis=0)
        rows = np.flatnonzero(inside & mine_)
        union = np.any([occurrences(p, held.graphs, inside & mine_).union() for p in patterns], axis=0)
        found[prediction] = {
            "coverage": estimate(inside[mine_]),
            "precision": estimate(mine_[inside]),
            "sufficiency": estimate(_stays(held, rows, _sets(held.graphs, rows, union), ONLY)),
        }
    return found


def against_truth(found: Explanations, held: Held, edges: dict[int, np.ndarray]) -> dict[str, Any] | None:
    """How much of the known true edges of tested instances lies in occurrences of the patterns of their class."""
    known = found.context.get("truth") or {}
    tables = list(chain.from_iterable(problem.tables for problem in held.problems))
    recall, precision, whole = [], [], []
    for row, key in enumerate(held.graphs.keys):
        chosen = edges.get(int(held.classes[row]))
        if entry(known, key) is None or chosen is None:
            continue
        true = {frozenset(pair) for pair in entry(known, key)}
        (mine_,) = _sets(held.graphs, np.array([row]), chosen)
        ours = {frozenset(pair) for pair in tables[row].ids.numpy()[mine_].tolist()}
        recall.append(len(true & ours) / len(true))
        whole.append(true <= ours)
        if ours:
            precision.append(len(true & ours) / len(ours))
    if not recall:
        return None
    return {
        "instances": len(recall),
        "recall": float(np.mean(recall)),
        "precision": float(np.mean(precision)) if precision else None,
        "whole": float(np.mean(whole)),
    }
