"""Small models whose explanations are known, explained by hand: the raw model on graphs that are edited here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, SimpleConv, global_add_pool

import cf2
from cf2.results.explanation import Explanation, UnitTable
from cf2.results.explanations import Explanations

ATOMS = ("C", "N", "O", "H")
NITROBENZENE = "CCCCCCNOOHHHHH"
KEKULE = [[0, 1, 2], [1, 2, 1], [2, 3, 2], [3, 4, 1], [4, 5, 2], [0, 5, 1], [0, 6, 1], [6, 7, 2], [6, 8, 1]]
HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\"'"


class RedNeighbours(nn.Module):
    """Class 1, 'busy', for a node with at least two neighbours whose first feature is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        red = self.conv(x[:, :1], edge_index, edge_weight).squeeze(1)
        return torch.stack([torch.zeros_like(red), 4.0 * (red - 1.5)], 1)


class NitroGroup(nn.Module):
    """Class 0, 'mutagen', for a molecule with at least two N-O bonds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        oxygen = self.conv(x[:, 2:3], edge_index, edge_weight)
        bonds = global_add_pool(oxygen * x[:, 1:2], batch).squeeze(1)
        return torch.stack([4.0 * (bonds - 1.5), torch.zeros_like(bonds)], 1)


def both_ways(pairs: Sequence[tuple[int, ...]]) -> Tensor:
    return torch.tensor([*pairs, *((b, a) for a, b in pairs)]).t().contiguous()


def red_graph(nodes: int = 36) -> Data:
    """A ring with chords; every third node is red."""
    pairs = {tuple(sorted((i, (i + step) % nodes))) for i in range(nodes) for step in (1, 3)}
    x = torch.zeros(nodes, 2)
    x[:, 1], x[::3, 0] = 1.0, 1.0
    return Data(x=x, edge_index=both_ways(sorted(pairs)), y=torch.arange(nodes) % 2)


def nitrobenzene() -> Data:
    bonds = [*((i, (i + 1) % 6) for i in range(6)), (0, 6), (6, 7), (6, 8), *((i, 8 + i) for i in range(1, 6))]
    x = torch.eye(4)[[ATOMS.index(atom) for atom in NITROBENZENE]]
    return Data(x=x, edge_index=both_ways(bonds), y=torch.tensor([0]))


def ring_and_model() -> tuple[nn.Module, Data, Explanations]:
    """A ring of five nodes with random features, and a convolutional network, explained by cf2."""
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 0], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4]])
    data = Data(x=torch.randn(5, 3), edge_index=edges)
    model = GCN(3, 8, 2, 2).eval()
    asked: dict[str, Any] = {"units": ("edges", "features"), "feature_names": ["age", "mass", "size"]}
    return model, data, cf2.explain(model, data, range(5), **asked)


def red_function() -> dict[str, Any]:
    """What a user's own function would return."""
    return {"model": RedNeighbours(), "data": red_graph(), "class_names": ["quiet", "busy"]}


Choose = Callable[[int, np.ndarray], np.ndarray]  # a key and the edges [n, 2] it can be explained by


def red_edges(key: int, pairs: np.ndarray) -> np.ndarray:
    """The smallest set that passes both tests where one does: all but one of the red edges, at least two."""
    reds = np.flatnonzero([(pair == key).any() and (int(pair.sum()) - key) % 3 == 0 for pair in pairs])
    chosen = np.zeros(len(pairs), dtype=bool)
    chosen[reds[: max(2, len(reds) - 1)]] = True
    return chosen


def first_edge(key: int, pairs: np.ndarray) -> np.ndarray:
    """A bad method: whatever edge comes first."""
    return np.arange(len(pairs)) == 0


def nitro_bonds(key: int, pairs: np.ndarray) -> np.ndarray:
    """The two N-O bonds."""
    return np.array([tuple(pair) in {(6, 7), (6, 8)} for pair in pairs.tolist()])


def explained(
    choose: Choose,
    method: str,
    keys: Sequence[int] | None = None,
    *,
    class_names: Sequence[str] = ("quiet", "busy"),
    units: tuple[str, ...] = ("edges",),
    **more: Any,
) -> Explanations:
    """Explanations of nodes of the red graph, or without `keys` of nitrobenzene; whatever set is chosen."""
    model, data = (NitroGroup(), nitrobenzene()) if keys is None else (RedNeighbours(), red_graph())
    nodes = [None] if keys is None else keys
    items = tuple(_explained(model, data, node, choose, method, units, more) for node in nodes)
    return Explanations(items, {"class_names": list(class_names), "dataset": "toy", "model": "a toy"})


def _explained(
    model: nn.Module, data: Data, node: int | None, choose: Choose, method: str, units: tuple[str, ...], more: Any
) -> Explanation:
    table = unit_table(data, node, units)
    rows, selected = table.where("edges"), np.zeros(len(table), dtype=bool)
    selected[rows] = choose(node or 0, table.ids[rows])
    every, only, without = (
        outputs(model, data, node, table, gone) for gone in (np.zeros_like(selected), ~selected, selected)
    )
    said = every.argmax()
    verdicts = {"sufficient": bool(only.argmax() == said), "necessary": bool(without.argmax() != said)}
    status = "found" if all(verdicts.values()) else "unverified"
    known = {"status": status, "label": int(data.y[node or 0]), "method": method, **verdicts} | more
    return answer(node, table, selected, every, only, without, **known)


def answer(
    node: int | None,
    units: UnitTable,
    selected: np.ndarray,
    whole: np.ndarray,
    only: np.ndarray,
    without: np.ndarray,
    **known: Any,
) -> Explanation:
    """An explanation of a node, or of the graph 0, with what the model says of three graphs."""
    return Explanation(
        key=node or 0,
        task="graph" if node is None else "node",
        prediction=int(whole.argmax()),
        units=units,
        scores=selected.astype(np.float32),
        selected=selected,
        probabilities=whole,
        probabilities_only=only,
        probabilities_without=without,
        **known,
    )


def unit_table(data: Data, node: int | None, units: tuple[str, ...]) -> UnitTable:
    """All edges of a graph, or those at a node; and the entries of features that are not 0 at their ends."""
    pairs = data.edge_index.t().numpy()
    near = pairs if node is None else pairs[(pairs == node).any(1)]
    ids = {"edges": np.unique(np.sort(near, 1), axis=0), "features": data.x.nonzero().numpy()}
    ids["features"] = ids["features"][np.isin(ids["features"][:, 0], near)]
    kind = np.repeat(np.arange(len(units), dtype=np.int8), [len(ids[name]) for name in units])
    return UnitTable(units, kind, np.concatenate([ids[name] for name in units]))


def outputs(model: nn.Module, data: Data, node: int | None, table: UnitTable, gone: np.ndarray) -> np.ndarray:
    """What the model says when the units are gone from the data itself."""
    rows = (np.intersect1d(table.where(name), np.flatnonzero(gone)) for name in ("edges", "features"))
    edges, features = (table.ids[own].tolist() for own in rows)
    return by_hand(model, data, node, remove=edges, write=[(*place, 0.0) for place in features])


def by_hand(
    model: nn.Module,
    data: Data,
    node: int | None,
    *,
    remove: Sequence[Sequence[int]] = (),
    add: Sequence[Sequence[int]] = (),
    write: Sequence[Sequence[float]] = (),
) -> np.ndarray:
    """What the model says once edges are gone and others are there, each both ways, and entries of `x` are written."""
    gone = {frozenset(pair) for pair in remove}
    pairs = [pair for pair in data.edge_index.t().tolist() if frozenset(pair) not in gone]
    pairs += [[*pair] for u, v in add for pair in ((u, v), (v, u))]
    x = data.x.clone()
    for place, column, value in write:
        x[int(place), int(column)] = value
    with torch.no_grad():
        logits = model(x, torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t())
    said: np.ndarray = logits.softmax(1)[node or 0].numpy()
    return said


def table(name: str, ids: Any) -> UnitTable:
    """Units of one kind."""
    return UnitTable((name,), np.zeros(len(ids), dtype=np.int8), np.array(ids, dtype=np.int64).reshape(-1, 2))


def random_graph(nodes: int, edges: int, seed: int = 0) -> Explanation:
    """A connected random graph in which ten random edges are the explanation of node 0."""
    rng = np.random.default_rng(seed)
    pairs = {(int(rng.integers(0, i)), i) for i in range(1, nodes)}
    while len(pairs) < edges:
        a, b = sorted(rng.integers(0, nodes, 2).tolist())
        pairs |= {(a, b)} if a != b else set()
    units = np.array(sorted(pairs))
    selected = np.zeros(len(units), dtype=bool)
    selected[rng.choice(len(units), 10, replace=False)] = True
    half = np.array([0.4, 0.6], dtype=np.float32)
    return answer(0, table("edges", units), selected, half, half, half[::-1], sufficient=True, necessary=True)


def with_units(e: Explanation, units: UnitTable, selected: list[bool]) -> Explanation:
    """The same explanation made of other units."""
    return replace(e, units=units, scores=np.array(selected, dtype=np.float32), selected=np.array(selected, dtype=bool))
