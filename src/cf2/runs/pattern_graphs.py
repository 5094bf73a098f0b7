"""The graphs that patterns are looked for in: packed for the model, and with labels for the patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data

from cf2.core.data import graphs_of
from cf2.core.graph import Graph, Instance
from cf2.core.targets import GraphTargets, NodeTargets, Targets
from cf2.core.units import InstanceUnits
from cf2.errors import CF2Error, require
from cf2.methods.contract import Problem
from cf2.results.counting import Options, draw
from cf2.results.explanations import Explanations
from cf2.results.labelled import GraphRow, LabelledGraphs
from cf2.results.labels import node_labels
from cf2.results.names import entry
from cf2.results.smiles import read_smiles
from cf2.runs.session import GROUP, Session
from cf2.spec import Key, Spec
from cf2.verify.criterion import Criterion

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
