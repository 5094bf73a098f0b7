"""Patterns tested by running the model: on graphs from which every occurrence is removed, and on nothing but them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from cf2.core.modules import module_of
from cf2.core.units import InstanceUnits
from cf2.errors import unknown_name
from cf2.methods.contract import Problem
from cf2.results.counting import Options, check_split, contained, draw, estimate, facts, mine, usable, with_tests
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.results.intervals import Estimate
from cf2.results.labelled import LabelledGraphs
from cf2.results.matching import Occurrences, containing, occurrences
from cf2.results.names import entry
from cf2.results.patterns import FoundPattern, Patterns
from cf2.runs.pattern_graphs import LABELS, collected, keys_to_look_at, request_spec, targets_of
from cf2.runs.session import Request, Session
from cf2.verify.intervention import ONLY, WITHOUT, Intervention

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
            outputs = intervention.outputs(problem.predictor, problem.pack.take(taken), chosen)
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
