"""What the model looks for: the patterns that the answers of a class share, and how they fare on other instances."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch

from cf2.errors import CF2Error, require, require_number, require_path, shown, unknown_name
from cf2.graphs.data import graphs_of
from cf2.graphs.graph import edge_positions
from cf2.graphs.targets import targets_for
from cf2.models.adapters import module_of
from cf2.models.oracle import outputs_after
from cf2.options import Key, Spec, as_json
from cf2.patterns.labelled import Collected, collected, explained_graphs
from cf2.patterns.matching import Occurrences, containing, occurrences
from cf2.patterns.mining import Miner, Pieces
from cf2.patterns.pattern import Pattern
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.results.files import as_key
from cf2.results.metrics import Estimate, share
from cf2.results.names import Results, entry
from cf2.runs.session import Request, Session
from cf2.sets.tests import ONLY, WITHOUT, Intervention
from cf2.storage import read_json, write_bytes

if TYPE_CHECKING:
    import pandas

MEASURES = ("coverage", "precision", "necessity", "sufficiency", "sufficiency_one", "chance")
BY_CLASS = ("tested", "together", "empty", "jointly")  # what `about` knows of each class
LABELS = ("auto", "degree", "class", "none")
MAX_SINGLE_OCCURRENCES = 8  # occurrences of a graph that are kept one at a time
MAX_ASKED = 60  # graphs in which the necessity of a pattern is compared with that of a more general one
MIN_PRECISION = 0.5  # of patterns of a class, each or all together, that are offered as what the model looks for


class Answer(NamedTuple):
    """What an explanation chose."""

    key: Key
    row: int  # of its graph
    pieces: list[Pattern]  # the connected pieces of the edges


@dataclass(frozen=True)
class SummaryOptions:
    """How patterns and edit rules are looked for; see `Explanations.patterns`."""

    count: int = 5
    held_out: float = 0.5
    seed: int = 0
    most: int = 2000
    least: float = 0.02
    labels: str | Sequence[str] = "auto"
    given: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        require_number("count", self.count, 1, 1000, integer=True)
        require_number("held_out", self.held_out, 0, 0.95)
        require_number("seed", self.seed, 0, integer=True)
        require_number("most", self.most, 1, integer=True)
        require_number("least", self.least, 0, 1)
        if isinstance(self.labels, str) and self.labels not in LABELS:
            raise unknown_name("`labels`", self.labels, LABELS)
        good = all(isinstance(pattern, Pattern) for pattern in self.given)
        cure = "Make one with cf2.Pattern.make."
        require(good, "Expected `given` to hold patterns", got=shown(self.given, 80), do=cure)

    def is_test(self, key: Key) -> bool:
        """Whether a key is kept for the test: by the seed and the key, whatever else there is."""
        return self.draw(key) < self.held_out

    def draw(self, key: Key, purpose: str = "") -> float:
        """A number in [0, 1) that depends on the seed, the key and the purpose alone."""
        digest = hashlib.blake2b(f"{purpose}{self.seed}:{key}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


@dataclass(frozen=True, eq=False)
class ClassSummary(Results[Any]):
    """What was found for each class, with how it was found and tested."""

    about: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    list_name: ClassVar[str]  # of the items in a file
    noun: ClassVar[str]
    file_name: ClassVar[str]  # in the directory of a run
    row_type: ClassVar[Any]

    def classes(self) -> list[int]:
        """The classes with at least one item, ascending."""
        return sorted({row.prediction for row in self.items})

    def of(self, prediction: int) -> tuple[Any, ...]:
        """The items of a class, in order."""
        return tuple(row for row in self.items if row.prediction == prediction)

    def name(self, prediction: int) -> str:
        """The name of a class, or its number."""
        names = self.context.get("class_names") or ()
        return str(names[prediction]) if prediction < len(names) else f"class {prediction}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        rows = [{"class_name": self.name(row.prediction), **row.to_dict()} for row in self.items]
        return {"about": as_json(self.about), self.list_name: rows}

    def to_pandas(self) -> pandas.DataFrame:
        """A table with one row for each; every share with the ends of its interval."""
        import pandas

        return pandas.DataFrame([{"class": self.name(row.prediction), **row.cells()} for row in self.items])

    def save(self, path: str | Path) -> Path:
        """Write `to_dict()` as a JSON file."""
        path = require_path(path, "a file to write")
        write_bytes(path, (json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n").encode())
        return path

    @classmethod
    def load(cls, path: str | Path, context: Mapping[str, Any] | None = None) -> Self:
        """What `save` wrote, with what is known of the explanations, such as `class_names` and `atoms`."""
        try:
            given = read_json(require_path(path, f"a file of {cls.noun}"), f"{cls.noun}")
            rows = tuple(map(cls.row_type.from_dict, given[cls.list_name]))
            about = dict(given["about"])
            for name in (name for name in BY_CLASS if isinstance(about.get(name), Mapping)):
                about[name] = {int(number): _with_estimates(value) for number, value in about[name].items()}
            return cls(rows, about, dict(context or {}))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            got = f"{str(path)!r}, which cannot be read: {type(error).__name__}: {error}"
            cure = "Make it again with: cf2 patterns RUN"
            raise CF2Error(f"Expected a file of {cls.noun}", got=got[:300], do=cure) from error

    @classmethod
    def of_run(cls, directory: Path, context: Mapping[str, Any]) -> Self | None:
        """What the directory of a run keeps; None where it keeps nothing of this kind."""
        path = directory / cls.file_name
        return cls.load(path, context) if path.exists() else None


def _with_estimates(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _with_estimates(part) for name, part in value.items()}
    return Estimate(*map(float, value)) if isinstance(value, list) and len(value) == 3 else value


def facts_of(row: Any) -> dict[str, Any]:
    """The fields of a row of a summary as plain values, without the first one, which is what was found."""
    return {fact.name: as_json(getattr(row, fact.name)) for fact in fields(row)[1:]}


def read_facts(row_type: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that `facts_of` gave."""
    facts = {fact.name: _with_estimates(given[fact.name]) for fact in fields(row_type)[1:]}
    return facts | {"keys": tuple(map(as_key, given["keys"]))}


def share_cells(name: str, value: Estimate | None) -> dict[str, float]:
    """A share and the ends of its interval as cells of a table."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), value or (np.nan,) * 3))


def share_text(e: Estimate) -> str:
    """A share in percent with its interval."""
    return f"{100 * e.value:.0f} % ({100 * e.low:.0f}–{100 * e.high:.0f})"


def estimate(passed: np.ndarray) -> Estimate | None:
    """A share with its interval, None of nothing."""
    return share(passed.tolist()) if len(passed) else None


@dataclass(frozen=True, eq=False)
class FoundPattern:
    """A pattern of a class, with its measurements on held-out instances.

    Attributes
    ----------
    pattern : Pattern
    prediction : int
        The class whose answers share it.
    support, answers : int
        Number of answers that contain it, and number of answers in which patterns of the class were searched.
    coverage, precision : Estimate or None
        Of the predictions of the class, the share whose graph contains it; of the graphs that contain it, the share
        that gets the class.
    necessity, chance : Estimate or None
        Of the predictions of the class that contain it, the share that leaves the class when every occurrence is
        removed; and, to compare, when as many other edges are, drawn by the seed.
    sufficiency, sufficiency_one : Estimate or None
        Of the same, the share that keeps the class when only the occurrences are kept, and when only one of them is
        (some one, of those that are tried).
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
        return {**facts_of(self), "pattern": self.pattern.to_dict()}

    @staticmethod
    def from_dict(row: Mapping[str, Any]) -> FoundPattern:
        """The pattern that `to_dict` gave."""
        return FoundPattern(Pattern.from_dict(row["pattern"]), **read_facts(FoundPattern, row))

    def cells(self) -> dict[str, Any]:
        """The row of a table."""
        row: dict[str, Any] = {"pattern": self.pattern.text, "smarts": self.pattern.smarts}
        row |= {"nodes": len(self.pattern.labels), "edges": self.pattern.size}
        row |= {name: getattr(self, name) for name in ("support", "answers", "contained")}
        for name in MEASURES:
            row |= share_cells(name, getattr(self, name))
        return row


@dataclass(frozen=True, eq=False)
class Patterns(ClassSummary):
    """The patterns of every class, the one in most answers first, and how they were found and tested.

    Attributes
    ----------
    items : tuple of FoundPattern
    about : dict
        The split (`seed`, `held_out`), how many answers the patterns were `found_on`, and by class on how many
        predictions they were `tested`; by class the coverage of all its patterns together (`together`) and the share
        of its predictions that stay without any edge (`empty`); where a class has several patterns, the `coverage`,
        `precision` and `sufficiency` of all of them `jointly`; the overlap with the known `truth`, if there is one.
    context : dict
        Information about the explanations: `class_names`, `atoms`, the `dataset`.
    """

    list_name, noun, file_name = "patterns", "patterns", "patterns.json"
    row_type = FoundPattern

    def __repr__(self) -> str:
        about = self.about
        tested = sum(about.get("tested", {}).values())
        lines = [f"Patterns found in {about.get('found_on', 0):,} answers, tested on {tested:,} other predictions:"]
        for prediction in self.classes():
            together = about.get("together", {}).get(prediction)
            lines.append(self.name(prediction) + ("" if together is None else f" (together {share_text(together)})"))
            for row in self.of(prediction):
                shares = _share_list({name: getattr(row, name) for name in MEASURES})
                lines.append(f"  {row.pattern.text}: in {row.support} of {row.answers} answers; {shares}")
            if jointly := about.get("jointly", {}).get(prediction):
                lines.append(f"  all of them: {_share_list(jointly)}")
        return "\n".join([*lines, *about.get("notes", ())])

    def _repr_html_(self) -> str:
        from cf2.patterns.pictures import patterns_html

        return patterns_html(self)


def _share_list(shares: Mapping[str, Estimate | None]) -> str:
    return ", ".join(f"{name} {share_text(e)}" for name, e in shares.items() if e is not None)


def find_patterns(found: Explanations, model: Any, data: Any, options: SummaryOptions) -> Patterns:
    """See `Explanations.patterns`; `data` is what was explained, or its `Targets`."""
    with_edges = [e for e in found if e.size and len(e.chosen("edges"))]
    expected = "Expected explanations with edges, to find patterns in"
    require(bool(with_edges), expected, got=f"none among {len(found)}", do='Explain with units="edges".')
    answers = [e for e in with_edges if e.status == "found"] or with_edges
    directed = len({e.directed for e in answers}) == 1
    require(directed, "Expected explanations of graphs that are all directed, or all not", got="both")
    if model is None:
        return _summarised(found, answers, explained_graphs(found), options)
    with looked_at(found, model, data, options, detailed=True) as here:
        return _summarised(found, answers, here, options)


@contextmanager
def looked_at(
    found: Explanations, model: Any, data: Any, options: SummaryOptions, *, detailed: bool
) -> Iterator[Collected]:
    """All that is explained, then other instances in an order that the seed decides, with the model ready to be run."""
    stored = found.context.get("spec") or {}
    kept = ("output", "level", "directed", "masking", "device")
    spec = Spec(**{name: stored[name] for name in kept if name in stored})
    task = found[0].task
    targets = data if hasattr(data, "instance") else targets_for(graphs_of(data, task, positions=True), task, spec)
    explained = list(dict.fromkeys(e.key for e in found))
    targets.check(explained)
    numbers = range(len(targets)) if isinstance(explained[0], int) else ()
    others = sorted(set(numbers).difference(explained), key=lambda key: options.draw(key, "order"))
    keys: list[Key] = [*explained, *others[: options.most]]
    with Session(Request(module_of(model), targets, spec), fitting=True) as session:
        yield collected(session, keys, found.context, options.labels, detailed)


def _summarised(
    found: Explanations, usable: Sequence[Explanation], here: Collected, options: SummaryOptions
) -> Patterns:
    """The patterns of each class, found on one part of the graphs and tested on the other."""
    row_of = {key: row for row, key in enumerate(here.graphs.keys)}
    answers = [_answer(e, row_of[e.key], here) for e in usable if e.key in row_of]
    test = np.array([options.is_test(key) for key in here.graphs.keys])
    found_on = sum(not test[answer.row] for answer in answers)
    got, cure = f"{len(answers)}, all of them held out", "Explain more predictions, or pass a smaller held_out."
    require(found_on > 0, "Expected answers to find patterns in", got=f"{got} for the test", do=cure)
    notes = list(here.notes)
    if usable[0].status != "found":
        notes.insert(0, "No answer was verified, so the patterns come from the sets that a method ranks highest.")
    held = PatternTests(here, np.flatnonzero(test), options)
    seen = PatternTests(here, np.flatnonzero(~test), options)
    about: dict[str, Any] = {
        "seed": options.seed,
        "held_out": options.held_out,
        "found_on": found_on,
        "looked_at": len(seen.rows),
        "tested": {c: int((held.classes == c).sum()) for c in sorted(set(held.classes.tolist()))},
        "together": {},
        "notes": notes,
    }
    if here.problems:
        about |= {"empty": {}, "jointly": {}}
    found_patterns = Patterns((), about, dict(found.context))
    items: list[FoundPattern] = []
    edges: dict[int, np.ndarray] = {}  # by class, which edges are in occurrences of its patterns
    for prediction in sorted({int(here.classes[answer.row]) for answer in answers if not test[answer.row]}):
        of_class = [answer for answer in answers if here.classes[answer.row] == prediction]
        rows = [held.tested(mined) for mined in _mined(of_class, seen, prediction, options)]
        rows, reason = _precise_enough(rows, held, prediction, options)
        if reason:
            about["notes"].append(f"{found_patterns.name(prediction)}: {reason}")
        if not rows:
            continue
        items += [row.item for row in rows]
        edges[prediction] = np.any([row.edges for row in rows], axis=0)
        inside = np.any([row.inside for row in rows], axis=0)
        about["together"][prediction] = estimate(inside[held.classes == prediction])
        if here.problems:
            about["empty"][prediction] = held.stays_empty(prediction)
            if len(rows) > 1:
                about["jointly"][prediction] = held.jointly(prediction, rows)
    if here.problems:
        about["truth"] = held.against_truth(found.context.get("truth") or {}, edges)
    return replace(found_patterns, items=tuple(items))


def _answer(e: Explanation, row: int, here: Collected) -> Answer:
    pairs = torch.from_numpy(e.chosen("edges"))
    pairs = pairs if e.directed else torch.cat([pairs, pairs.flip(1)])
    chosen = (edge_positions(pairs.t(), torch.from_numpy(here.pairs[row]).t()) >= 0).nonzero().flatten().tolist()
    return Answer(e.key, row, [piece.canonical() for _, piece in here.graphs.graphs[row].pieces(chosen)])


def _mined(
    of_class: Sequence[Answer], seen: PatternTests, prediction: int, options: SummaryOptions
) -> Iterator[FoundPattern]:
    """The patterns of a class before they are tested; of graphs for the test, only the keys are named."""
    place = {int(row): position for position, row in enumerate(seen.rows)}
    own = [(place[answer.row], answer.pieces) for answer in of_class if answer.row in place]
    miner = Miner(seen.graphs, seen.classes == prediction, own, seen.necessity if seen.here.problems else None)
    all_pieces = Pieces([answer.pieces for answer in of_class], seen.graphs.directed)
    mined = miner.mine(options.count, options.least)
    support = {pattern: int(miner.pieces.answers(pattern).sum()) for pattern in (*mined, *options.given)}
    ranked = sorted(mined, key=lambda pattern: -support[pattern])
    for pattern in dict.fromkeys((*ranked, *options.given)):
        keys = dict.fromkeys(answer.key for answer, yes in zip(of_class, all_pieces.answers(pattern)) if yes)
        yield FoundPattern(pattern, prediction, support[pattern], len(own), keys=tuple(keys))


class Tested(NamedTuple):
    """A pattern with its tests."""

    item: FoundPattern
    inside: np.ndarray  # [G] bool, which tested graphs contain it
    edges: np.ndarray  # [E] bool, which edges it has in graphs of its class


def _precise_enough(
    rows: list[Tested], held: PatternTests, prediction: int, options: SummaryOptions
) -> tuple[list[Tested], str]:
    """The patterns that tell the class apart, alone or together, and why others are not offered."""
    found = [row for row in rows if row.item.pattern not in options.given]
    if not found:
        return rows, "no pattern of its answers is more frequent in graphs of this class than in others."
    own, every = held.classes == prediction, np.all([row.inside for row in found], axis=0)
    low = [row.item for row in found if row.item.precision is not None and row.item.precision.value < MIN_PRECISION]
    if not low or not every.any() or own[every].mean() >= MIN_PRECISION:
        return rows, ""
    first, refused = low[0], {item.pattern for item in low}
    assert first.precision is not None
    return [row for row in rows if row.item.pattern not in refused], (
        f"`{first.pattern.text}` is in {first.support} of {first.answers} answers, but only "
        f"{share_text(first.precision)} of the graphs that contain it get this class, so it is left out."
    )


class PatternTests:
    """Tests of patterns on some `rows` of the graphs that are looked at."""

    def __init__(self, here: Collected, rows: np.ndarray, options: SummaryOptions) -> None:
        self.here, self.rows, self.options = here, rows, options
        self.graphs, self.classes = here.graphs.take(rows), here.classes[rows]

    def tested(self, mined: FoundPattern) -> Tested:
        """A pattern with its tests."""
        inside, undecided = containing(mined.pattern, self.graphs)
        own = self.classes == mined.prediction
        where = occurrences(mined.pattern, self.graphs, inside & own)
        item = replace(
            mined,
            coverage=estimate(inside[own & ~undecided]),
            precision=estimate(own[inside]),
            contained=int(inside.sum()),
            undecided=int((undecided | where.undecided).sum()),
            **self._causal(where),
        )
        return Tested(item, inside, where.union())

    def necessity(self, pattern: Pattern, rows: np.ndarray) -> float:
        """The share of the first few of some graphs [G, bool] whose class goes with every occurrence of a pattern."""
        few = np.zeros_like(rows)
        few[np.flatnonzero(rows)[:MAX_ASKED]] = True
        where = occurrences(pattern, self.graphs, few)
        asked = np.flatnonzero(where.contained)
        left = ~self.stays(asked, self.graphs.edge_sets(asked, where.union()), WITHOUT)
        return float(left.sum() / few.sum())

    def _causal(self, where: Occurrences) -> dict[str, Any]:
        """What the model says of the predictions of a class that contain a pattern, after each intervention."""
        rows = np.flatnonzero(where.contained)
        if not self.here.problems or not len(rows):
            return {}
        union = where.union()
        every = self.graphs.edge_sets(rows, union)
        single, owner = self._single(where, rows)
        one = np.zeros(len(self.graphs), bool)
        np.logical_or.at(one, owner, self.stays(owner, single, ONLY))
        return {
            "necessity": estimate(~self.stays(rows, every, WITHOUT)),
            "sufficiency": estimate(self.stays(rows, every, ONLY)),
            "sufficiency_one": estimate(one[rows]),
            "chance": estimate(~self.stays(rows, self._drawn(rows, every), WITHOUT)),
        }

    def _single(self, where: Occurrences, rows: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """The first few different occurrences in every row, each as a set of edges, and the row of each."""
        edges = np.sort(where.edges(), 1)
        sets, owner = [], []
        for row in rows.tolist():
            start, end = self.graphs.edge_ptr[row], self.graphs.edge_ptr[row + 1]
            for chosen in np.unique(edges[where.graph == row], axis=0)[:MAX_SINGLE_OCCURRENCES]:
                sets.append(np.isin(np.arange(start, end), chosen))
                owner.append(row)
        return sets, np.array(owner, dtype=np.int64)

    def _drawn(self, rows: np.ndarray, sets: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As many edges as each set has, drawn among the others as far as there are enough."""
        drawn = []
        for row, chosen in zip(rows.tolist(), sets):
            seed = int(self.options.draw(self.graphs.keys[row], "chance") * 2**63)
            rank = np.random.default_rng(seed).random(len(chosen)) + chosen
            flags = np.zeros(len(chosen), bool)
            flags[np.argsort(rank)[: int(chosen.sum())]] = True
            drawn.append(flags)
        return drawn

    def stays(self, rows: np.ndarray, sets: Sequence[np.ndarray], intervention: Intervention) -> np.ndarray:
        """Whether the model still says the same of rows (ascending, they may repeat) after what their sets do."""
        said, start, rows = [np.zeros(0, bool)], 0, self.rows[rows]
        for problem in self.here.problems:
            size = problem.num_instances
            positions = np.flatnonzero((rows >= start) & (rows < start + size))
            for part in (positions[at : at + size] for at in range(0, len(positions), size)):
                taken = torch.from_numpy(rows[part] - start).to(problem.outputs.device)
                chosen = torch.from_numpy(np.concatenate([sets[position] for position in part])).to(taken.device)
                outputs = outputs_after(intervention, problem.predictor, problem.pack.take(taken), chosen)
                said.append(problem.criterion.take(taken).holds(outputs).cpu().numpy())
            start += size
        return np.concatenate(said)

    def stays_empty(self, prediction: int) -> Estimate | None:
        """The share of a class that stays when every edge is removed: what sufficiency is to be compared with."""
        rows = np.flatnonzero(self.classes == prediction)
        nothing = self.graphs.edge_sets(rows, np.zeros(len(self.graphs.edges), bool))
        return estimate(self.stays(rows, nothing, ONLY))

    def jointly(self, prediction: int, tested: Sequence[Tested]) -> dict[str, Estimate | None]:
        """What the graphs that contain several patterns of a class are, and whether these alone are enough."""
        own, every = self.classes == prediction, np.all([row.inside for row in tested], axis=0)
        rows = np.flatnonzero(every & own)
        sets = self.graphs.edge_sets(rows, np.any([row.edges for row in tested], axis=0))
        sufficiency = estimate(self.stays(rows, sets, ONLY))
        return {"coverage": estimate(every[own]), "precision": estimate(own[every]), "sufficiency": sufficiency}

    def against_truth(self, truth: Any, edges: Mapping[int, np.ndarray]) -> dict[str, Any] | None:
        """How much of the known true edges of tested instances lies in occurrences of the patterns of their class."""
        recall, precision, whole = [], [], []
        for row, key in enumerate(self.graphs.keys):
            chosen = edges.get(int(self.classes[row]))
            if entry(truth, key) is None or chosen is None:
                continue
            true = {frozenset(pair) for pair in entry(truth, key)}
            (own,) = self.graphs.edge_sets(np.array([row]), chosen)
            ours = {frozenset(pair) for pair in self.here.pairs[self.rows[row]][own].tolist()}
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
