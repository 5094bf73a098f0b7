"""Small graphs and models of every kind, and what is true of them by brute force, for tests of the core."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, PointNetConv, SAGEConv, global_add_pool, global_mean_pool

import cf2
from cf2.graphs.graph import Instance
from cf2.results.explanation import UnitTable, stored_fields
from cf2.units.kinds import Rows, UnitKind


def tried(few: int, many: int) -> Any:
    """Seeds of a fuzz: few in every run, many with `-m slow`. `CF2_FUZZ` is another number, `CF2_FUZZ_SEED` a start."""
    start, count = int(os.environ.get("CF2_FUZZ_SEED", "0")), int(os.environ.get("CF2_FUZZ", few))
    slow = pytest.param(range(start + 10**6, start + 10**6 + many), marks=pytest.mark.slow)
    return pytest.mark.parametrize("seeds", [range(start, start + count), slow], ids=["few", "many"])


LAYERS = {
    "gcn": lambda a, b: GCNConv(a, b),
    "gcn-no-loops": lambda a, b: GCNConv(a, b, add_self_loops=False),
    "sum": lambda a, b: GCNConv(a, b, normalize=False),
    "gin": lambda a, b: GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))),
    "gat": lambda a, b: GATConv(a, b),
    "sage": lambda a, b: SAGEConv(a, b),
}


class PointNet(nn.Module):
    """Graphs by their positions alone: there is no `x`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = PointNetConv(nn.Sequential(nn.Linear(3, 8), nn.Tanh()), add_self_loops=False)
        self.out = nn.Linear(8, 2)

    def forward(self, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return 9 * self.out(global_mean_pool(self.conv(None, pos, edge_index), batch))


class NodeNet(nn.Module):
    """Three layers without edge weights: masked through messages."""

    def __init__(self, kind: str, features: int = 4, classes: int = 3, seed: int = 0, layers: int = 3) -> None:
        super().__init__()
        torch.manual_seed(seed)
        widths = [features] + [8] * (layers - 1) + [classes]
        self.convs = nn.ModuleList([LAYERS[kind](a, b) for a, b in pairwise(widths)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = torch.relu(conv(x, edge_index))
        return self.convs[-1](x, edge_index)


class WeightedNet(NodeNet):
    """The same with an edge_weight: A ⊙ M as the paper writes it."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        for conv in self.convs[:-1]:
            x = torch.relu(conv(x, edge_index, edge_weight))
        return self.convs[-1](x, edge_index, edge_weight)


class GraphNet(nn.Module):
    """Two layers, a sum over nodes, a linear head."""

    def __init__(self, kind: str, features: int = 4, classes: int = 2, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.convs = nn.ModuleList([LAYERS[kind](features, 8), LAYERS[kind](8, 8)])
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = torch.relu(conv(x, edge_index))
        return self.head(global_add_pool(x, batch))


def random_graph(nodes: int, edges: int, *, directed: bool = False, features: int = 4, seed: int = 0) -> Data:
    """Random ends, so with self-loops and duplicates now and then."""
    stream = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=stream)
    if not directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], 1)
    return Data(x=torch.randn(nodes, features, generator=stream), edge_index=edge_index)


def model_state(model: nn.Module) -> dict[str, object]:
    """Everything that must be as before: weights, gradients, modes, hooks."""
    state: dict[str, object] = {name: value.clone() for name, value in model.state_dict().items()}
    for name, module in model.named_modules():
        hooks = [len(v) for k, v in vars(module).items() if k.endswith("_hooks") and hasattr(v, "__len__")]
        state[f"{name}:mode"], state[f"{name}:hooks"] = module.training, hooks
    for name, parameter in model.named_parameters():
        state[f"{name}:grad"] = None if parameter.grad is None else parameter.grad.clone()
        state[f"{name}:needs"] = parameter.requires_grad
    return state


def same_state(one: dict[str, object], other: dict[str, object]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b
        for a, b in zip(one.values(), other.values())
    )


def same_results(first: Sequence[cf2.Explanation], second: Sequence[cf2.Explanation]) -> bool:
    """Whether two lists explain the same keys with the same sets, scores, probabilities and verdicts."""
    return len(first) == len(second) and all(_same(a, b) for a, b in zip(first, second))


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, cf2.Explanation | UnitTable):
        names = [f.name for f in stored_fields(type(first)) if f.name != "seconds"]
        return all(_same(getattr(first, name), getattr(second, name)) for name in names)
    return np.array_equal(first, second) if isinstance(first, np.ndarray) else bool(first == second)


# -- a user's own kind of unit ------------------------------------------------------------------------------


def _whole_nodes(instance: Instance, entries: Tensor) -> Rows:
    nodes = torch.arange(len(instance.node_ids))
    touches = (instance.edge_index[0][:, None] == nodes) | (instance.edge_index[1][:, None] == nodes)
    return Rows(
        torch.stack([instance.node_ids, torch.full_like(nodes, -1)], 1),
        touches.nonzero().t(),
        torch.stack([torch.arange(len(entries)), entries[:, 0]]),
    )


WHOLE_NODES = UnitKind("whole_nodes", _whole_nodes, features=True)


class InTurn(nn.Module):
    """Layers one after the other, as `torch_geometric.nn.Sequential` has them.

    That one keeps its code under a random number, which comes again where a test seeds `random`: with other layers.
    """

    def __init__(self, inputs: str, steps: list[tuple[nn.Module, str]]) -> None:
        super().__init__()
        self.inputs, self.layers = inputs.split(", "), nn.ModuleList(layer for layer, _ in steps)
        self.reads = [call.split(" -> ")[0].split(", ") for _, call in steps]

    def forward(self, *given: Tensor) -> Tensor:
        known = dict(zip(self.inputs, given, strict=True))
        for layer, reads in zip(self.layers, self.reads, strict=True):
            known[self.inputs[0]] = layer(*(known[name] for name in reads))
        return known[self.inputs[0]]


# -- what is true by brute force: nothing below shares code with the package --------------------------------

Unit = tuple[str, tuple[int, int]]  # a kind and its two ids, as an explanation names them


def governs(unit: Unit, a: int, b: int, *, directed: bool = False) -> bool:
    """Whether an edge from a to b goes when the unit goes."""
    kind, (first, second) = unit
    if kind == "edges":
        return a != b and ((a, b) == (first, second) or (not directed and (b, a) == (first, second)))
    return kind in ("nodes", "whole_nodes") and first in (a, b)


def governs_entry(unit: Unit, node: int, column: int) -> bool:
    """Whether a feature entry becomes 0 when the unit goes."""
    kind, (first, second) = unit
    return {
        "features": (first, second) == (node, column),
        "node_features": first == node,
        "nodes": first == node,
        "whole_nodes": first == node,
        "columns": second == column,
    }.get(kind, False)


def edited(data: Data, gone: Iterable[Unit], *, directed: bool = False) -> Data:
    """A copy of the graph from which everything is really taken that any of these units governs."""
    gone = list(gone)
    stay = [not any(governs(unit, a, b, directed=directed) for unit in gone) for a, b in data.edge_index.t().tolist()]
    x = data.x.clone()
    for node in range(x.size(0)):
        for column in range(x.size(1)):
            if any(governs_entry(unit, node, column) for unit in gone):
                x[node, column] = 0
    kept = torch.tensor(stay, dtype=torch.bool)
    made = Data(x=x, edge_index=data.edge_index[:, kept])
    if "edge_weight" in data:
        made.edge_weight = data.edge_weight[kept]
    made.left = torch.tensor([all(unit[0] != "nodes" or unit[1][0] != node for unit in gone) for node in range(len(x))])
    return made


def probabilities(model: nn.Module, data: Data, node: int | None) -> Tensor:
    """What the model, called as its author would, says of a node or (None) of the graph."""
    was = model.training
    model.eval()
    with torch.no_grad():
        if node is None:
            out = model(data.x, data.edge_index, torch.zeros(data.x.size(0), dtype=torch.long))[0]
        else:
            out = model(data.x, data.edge_index)[node]
    model.train(was)
    return out.softmax(0)


def same_answer(asked: dict[str, Any], whole: Tensor, row: Tensor) -> bool | None:
    """Whether two rows give the same answer in the form that was asked about; None where it is too close to say."""
    column = asked.get("target", 0)
    if asked["output"] == "logits" and len(row) > 1:
        best = row.topk(2).values
        lead, same = float(best[0] - best[1]), int(row.argmax()) == int(whole.argmax())
    elif asked["output"] == "regression":
        lead = asked["tolerance"] - abs(float(row[column] - whole[column]))
        same = lead >= 0
    else:
        lead, same = float(row[column]), bool(row[column] > 0) == bool(whole[column] > 0)
    return None if abs(lead) < 1e-5 else same


def passing(
    model: nn.Module,
    data: Data,
    node: int | None,
    units: list[Unit],
    y: int,
    question: str = "why",
    *,
    directed: bool = False,
) -> list[set[Unit]]:
    """Every set of the units that answers the question, smallest first."""
    says: dict[frozenset[Unit], int] = {}

    def answer(gone: frozenset[Unit]) -> int:
        if gone not in says:
            says[gone] = int(probabilities(model, edited(data, gone, directed=directed), node).argmax())
        return says[gone]

    found = []
    for size in range(len(units) + 1):
        for chosen in combinations(units, size):
            sufficient = answer(frozenset(units) - set(chosen)) == y
            necessary = answer(frozenset(chosen)) != y
            if {"why": sufficient and necessary, "factual": sufficient, "counterfactual": necessary}[question]:
                found.append(set(chosen))
    return found


def pieces(parts: Iterable[Iterable[int]]) -> int:
    """How many connected pieces sets of nodes make, where those that share a node belong together."""
    found: list[set[int]] = []
    for part in map(set, parts):
        apart = [one for one in found if not one & part]
        found = [*apart, part.union(*(one for one in found if one & part))]
    return len(found)


def chosen_of(e: cf2.Explanation) -> frozenset[int]:
    """The rows of the units that an explanation has chosen."""
    return frozenset(row for row, inside in enumerate(e.selected.tolist()) if inside)
