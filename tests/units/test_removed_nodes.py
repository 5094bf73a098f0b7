"""A removed node is not in the graph, and a model may read whatever the graph has: each claim against brute force.

Graphs are edited here by hand, on lists of nodes; nothing shares code with the package.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, GPSConv, MessagePassing
from torch_geometric.nn import global_add_pool as add_pool
from torch_geometric.nn import global_max_pool as max_pool
from torch_geometric.nn import global_mean_pool as mean_pool

import cf2
from toys import PointNet

NODES = 6


class Count(nn.Module):
    """Class 1 for four nodes or more."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(2, 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        count = add_pool(torch.ones(len(x), 1), batch) - 3.5
        return torch.cat([-count, count], 1) + 0 * add_pool(self.conv(x, edge_index), batch)


class Pools(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = GCNConv(2, 8), nn.Linear(16, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.conv(x, edge_index).tanh()
        return 9 * self.out(torch.cat([mean_pool(h, batch), max_pool(h, batch)], 1))


class GPS(nn.Module):
    """Attention over all nodes of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.out = nn.Linear(2, 8), nn.Linear(8, 2)
        self.conv = GPSConv(8, GINConv(nn.Linear(8, 8)), heads=2, norm=None)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return 9 * self.out(mean_pool(self.conv(self.start(x), edge_index, batch).tanh(), batch))


class SchNet(nn.Module):
    """Atomic numbers and distances, and a message from each neighbour."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.conv, self.out = nn.Embedding(5, 8), Filter(), nn.Linear(8, 2)

    def forward(self, z: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.conv(self.atoms(z), edge_index, (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1))
        return 9 * self.out(add_pool(h.tanh(), batch))


class Filter(MessagePassing):
    def forward(self, h: Tensor, edge_index: Tensor, distance: Tensor) -> Tensor:
        return h + self.propagate(edge_index, h=h, distance=distance)

    def message(self, h_j: Tensor, distance: Tensor) -> Tensor:
        return h_j * (-distance[:, None]).exp()


class OneObject(SchNet):
    """The same, of one Data object."""

    def forward(self, data: Data) -> Tensor:  # type: ignore[override]
        assert data.x is None
        return super().forward(data.z, data.pos, data.edge_index, data.batch)


class OwnName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = GCNConv(1, 8), nn.Linear(8, 2)

    def forward(self, charge: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return 9 * self.out(mean_pool(self.conv(charge[:, None], edge_index).tanh(), batch))


class Molecules(nn.Module):
    """Whole numbers of atoms in, as torch_geometric's from_smiles gives them: an embedding per column."""

    def __init__(self, sizes: tuple[int, ...] = (9, 4)) -> None:
        super().__init__()
        self.atoms = nn.ModuleList(nn.Embedding(size, 8) for size in sizes)
        self.conv, self.out = GINConv(nn.Linear(8, 8)), nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        assert x.dtype == torch.long
        h = torch.stack([embed(x[:, column]) for column, embed in enumerate(self.atoms)]).sum(0)
        return 9 * self.out(add_pool(self.conv(h, edge_index).tanh(), batch))


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.next = GCNConv(2, 8), GCNConv(8, 8)

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        h = self.next(self.conv(x, edge_index).tanh(), edge_index)
        return 9 * (h[edge_label_index[0]] * h[edge_label_index[1]])[:, :2]


class Nodes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.next = GCNConv(2, 8), GCNConv(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return 9 * self.next(self.conv(x, edge_index).tanh(), edge_index)


FIELDS: dict[type[nn.Module], tuple[str, ...]] = {
    Count: ("x",),
    Pools: ("x",),
    GPS: ("x",),
    PointNet: ("pos",),
    SchNet: ("z", "pos"),
    OneObject: ("z", "pos"),
    OwnName: ("charge",),
    Molecules: ("x",),
    Pairs: ("x",),
    Nodes: ("x",),
}


def graph(kind: type[nn.Module], seed: int) -> Data:
    draw = torch.Generator().manual_seed(seed)
    pairs = [(n, n + 1) for n in range(NODES - 1)] + ([(0, 3)] if seed % 2 else [(1, 4), (0, 5)])
    atoms = [torch.randint(low, high, (NODES,), generator=draw) for low, high in ((1, 9), (0, 4))]
    numbers = {
        "x": torch.stack(atoms, 1) if kind is Molecules else torch.randn(NODES, 2, generator=draw),
        "pos": torch.randn(NODES, 3, generator=draw),
        "z": torch.randint(1, 5, (NODES,), generator=draw),
        "charge": torch.randn(NODES, generator=draw),
    }
    both = torch.tensor(pairs + [(v, u) for u, v in pairs]).t()
    return Data(edge_index=both, num_nodes=NODES, **{name: numbers[name] for name in FIELDS[kind]})


def network(kind: type[nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return kind().eval()


def without_nodes(data: Data, gone: set[int]) -> tuple[Data, list[int]]:
    left = [node for node in range(NODES) if node not in gone]
    ends = [[left.index(u), left.index(v)] for u, v in data.edge_index.t().tolist() if u in left and v in left]
    own = {name: data[name][left] for name, _ in data if name not in ("edge_index", "num_nodes")}
    edge_index = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).t()
    return Data(edge_index=edge_index, num_nodes=len(left), **own), left


def without_edges(data: Data, gone: set[tuple[int, int]]) -> Data:
    stay = [n for n, (u, v) in enumerate(data.edge_index.t().tolist()) if (u, v) not in gone and (v, u) not in gone]
    made = data.clone()
    made.edge_index = data.edge_index[:, stay]
    return made


def answer(model: nn.Module, data: Data, left: list[int], key: Any) -> int | None:
    """The class that the model gives; None if no node is left."""
    if not left:
        return None
    with torch.no_grad():
        if isinstance(model, Nodes):
            return int(model(data.x, data.edge_index)[left.index(key)].argmax())
        if isinstance(model, Pairs):
            return int(model(data.x, data.edge_index, torch.tensor([[left.index(n)] for n in key]))[0].argmax())
        batch = torch.zeros(len(left), dtype=torch.long)
        if isinstance(model, OneObject):
            data.batch = batch
            return int(model(data)[0].argmax())
        return int(model(*(data[name] for name in FIELDS[type(model)]), data.edge_index, batch)[0].argmax())


def explained(model: nn.Module, data: Data, **options: Any) -> cf2.Explanation:
    asked = {Nodes: {"nodes": [2]}, Pairs: {"pairs": [(1, 4)]}}.get(type(model), {"level": "graph"})  # type: ignore[call-overload]
    (e,) = cf2.explain(model, data, effort="exact", **asked, **options)
    return e


def without(data: Data, e: cf2.Explanation, gone: tuple[int, ...]) -> tuple[Data, list[int]]:
    """The graph without some units, all of one kind, and the nodes that are left."""
    ids, every = [tuple(e.units.ids[unit].tolist()) for unit in gone], list(range(NODES))
    if e.units.names == ("nodes",):
        return without_nodes(data, {node for node, _ in ids})
    if e.units.names == ("edges",):
        return without_edges(data, set(ids)), every
    made = data.clone()
    for node, column in ids:
        made.x[slice(None) if node < 0 else node, slice(None) if column < 0 else column] = 0
    return made, every


def compare(model: nn.Module, data: Data, e: cf2.Explanation) -> bool:
    """Verdicts, size and proof against all sets of units."""
    units = range(e.num_units)

    def says(gone: tuple[int, ...]) -> int | None:
        return answer(model, *without(data, e, gone), e.key)

    whole = says(())

    def verdicts(chosen: tuple[int, ...]) -> tuple[bool, bool]:
        others = tuple(unit for unit in units if unit not in chosen)
        return says(others) == whole, says(chosen) not in (whole, None)

    chosen = tuple(e.selected.nonzero()[0].tolist())
    assert verdicts(chosen) == (e.sufficient, e.necessary)
    sizes = [n for n in range(len(units) + 1) for some in combinations(units, n) if all(verdicts(some))]
    if e.status == "found":
        assert len(chosen) == e.size
        assert not e.optimal or e.size == min(sizes)
    else:
        assert "impossible" not in e.status or not sizes
        assert not e.optimal
    return e.status == "found"


FEATURES = ("features", "node_features", "columns")
CASES: list[tuple[type[nn.Module], str]] = [(kind, "nodes") for kind in FIELDS]
CASES += [(kind, "edges") for kind in (PointNet, SchNet, OneObject, OwnName, Molecules)]
CASES += [(Molecules, units) for units in FEATURES]  # a removed whole number is 0


@pytest.mark.parametrize(("kind", "units"), CASES)
def test_what_is_removed_is_in_no_tensor_that_the_model_reads(kind: type[nn.Module], units: str) -> None:
    found = 0
    for seed in range(3 if units == "nodes" else 1):
        data, model = graph(kind, seed), network(kind, seed)
        whole = without_edges(data, {(1, 4)}) if kind is Pairs else data
        e = explained(model, data, units=units)
        targets = {Nodes: {2}, Pairs: {1, 4}}.get(kind, set())  # type: ignore[call-overload]
        assert units != "nodes" or not targets & set(e.units.ids[:, 0].tolist())
        assert ("whole numbers" in e.note) == (units in FEATURES)
        found += compare(model, whole, e)
    assert found or units != "nodes"


def test_a_changed_whole_number_is_one_that_occurs() -> None:
    found = 0
    for seed in range(4):
        data, model = graph(Molecules, seed), network(Molecules, seed)
        (e,) = cf2.explain(model, data, level="graph", question="counterfactual", edits="change")
        if e.status != "found":
            continue
        found += 1
        made = data.clone()
        for edit, (node, column), old, new in e.edits:
            assert (edit, old) == ("change", data.x[node, column])
            assert new in data.x[:, column]
            assert new != old
            made.x[node, column] = int(new)
        every = list(range(NODES))
        assert answer(model, made, every, 0) != answer(model, data, every, 0)
        after = e.apply(data)
        assert after.x.dtype == torch.long
        assert torch.equal(after.x, made.x)
    assert found


@pytest.mark.parametrize("asked", [{"question": "counterfactual", "edits": "change"}, {"units": "features"}], ids=str)
def test_without_features_there_is_nothing_to_change(asked: dict[str, Any]) -> None:
    (e,) = cf2.explain(network(PointNet, 0), graph(PointNet, 0), level="graph", **asked)
    assert (e.status, e.num_units) == ("empty", 0)
    assert "whole numbers" not in e.note


def test_applied_edits_words_and_files_agree_on_a_removed_node(tmp_path: Any) -> None:
    data, model = graph(Count, 0), network(Count, 0)
    data.edge_attr = torch.arange(data.edge_index.size(1))
    data.y, data.label = torch.tensor([1]), torch.arange(NODES)
    (e,) = cf2.explain(model, data, level="graph", units="nodes", question="counterfactual", effort="exact")
    assert (e.status, e.size, e.optimal) == ("found", 3, True)  # three of six are under four
    gone = {ends[0] for _, ends in e.edits}
    after, left = without_nodes(data.clone().update({"y": torch.zeros(NODES), "edge_attr": torch.zeros(NODES)}), gone)
    made = e.apply(data)
    assert made.num_nodes == 3
    assert made.n_id.tolist() == left == made.label.tolist()
    assert torch.equal(made.x, after.x)
    assert torch.equal(made.edge_index, after.edge_index)
    assert made.edge_attr.shape == made.edge_index[0].shape
    assert made.y.tolist() == [1]
    assert data.num_nodes == NODES
    assert "3 nodes" in e.summary()
    found = cf2.explain(model, [data], units="nodes", question="why", effort="exact")
    found.report(tmp_path / "report.html")
    assert "NaN" not in (tmp_path / "report.html").read_text()


def test_an_edge_that_is_added_at_a_removed_node_is_not_added() -> None:
    data, model = graph(Count, 0), network(Count, 0)
    asked: dict[str, Any] = {"question": "counterfactual", "edits": ("remove", "add"), "effort": "quick"}
    (e,) = cf2.explain(model, data, level="graph", units="nodes", **asked)
    touches = (e.units.ids == 2).any(1)
    nodes, edges = (np.isin(np.arange(e.num_units), e.units.where(kind)) for kind in ("nodes", "added_edges"))
    both, alone = (
        replace(e, selected=rows, status="unverified") for rows in (touches & (nodes | edges), touches & nodes)
    )
    assert both.size > alone.size == 1
    assert torch.equal(both.apply(data).edge_index, alone.apply(data).edge_index)


def test_nothing_is_said_of_a_graph_without_nodes(tmp_path: Any) -> None:
    """All six are needed to have six; alone they do, and without them there is no graph to ask about."""

    class Six(Count):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return super().forward(x, edge_index, batch).flip(1)  # class 0 for four or more

    data, model = graph(Count, 1), Six()
    found = cf2.explain(model, data, level="graph", units="nodes", method="random", k=6)
    (e,) = found
    assert (e.size, e.sufficient, e.necessary) == (6, True, False)
    assert "no node is left" in e.summary()
    found.report(tmp_path / "report.html")
    assert "no node left" in (tmp_path / "report.html").read_text()
    for name in ("found.json", "found.parquet"):
        found.save(tmp_path / name)
        (again,) = cf2.load(tmp_path / name)
        assert (again.sufficient, again.necessary, again.summary()) == (True, False, e.summary())


@pytest.mark.parametrize("units", ["edges", "nodes", "features", "node_features"])
def test_molecules_of_from_smiles(units: str) -> None:
    pytest.importorskip("rdkit")
    from torch_geometric.utils import from_smiles

    data, model = from_smiles("CC(=O)Nc1ccc(O)cc1"), Molecules((119,) * 9).eval()
    (e,) = cf2.explain(model, [data], units=units, question="counterfactual", effort="quick")
    assert e.num_units
    batch = torch.zeros(data.num_nodes, dtype=torch.long)
    with torch.no_grad():
        before = model(data.x, data.edge_index, batch).argmax()
        if units == "node_features":
            after = data.clone()
            after.x[e.chosen(units)[:, 0]] = 0
        else:
            after = e.apply(data)
        said = model(after.x, after.edge_index, batch[: after.num_nodes]).argmax()
    assert (said != before) == e.necessary


def test_a_forward_that_needs_features_says_so() -> None:
    with pytest.raises(cf2.CF2Error, match="features `x`"):
        cf2.explain(Count(), graph(PointNet, 0), level="graph")
