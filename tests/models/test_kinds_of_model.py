"""Models of many kinds, each explained with the defaults; graphs are edited by hand and models called plainly.

Each has its own way to be called: dense matrices, positions, embeddings, other libraries. Chemprop's two kinds of
message passing are in test_chemprop.py, sparse products and calls of a user's own in test_without_gradients.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    DenseGCNConv,
    DenseSAGEConv,
    GCNConv,
    GINConv,
    GPSConv,
    LightGCN,
    RGCNConv,
    dense_diff_pool,
)
from torch_geometric.nn import global_add_pool as add_pool
from torch_geometric.nn import global_mean_pool as mean_pool

import cf2
from toys import PointNet, random_graph

GRAPHS = [random_graph(n, n + 3, seed=n) for n in range(7, 13)]
for graph in GRAPHS:  # every model below reads some of these
    draw = torch.Generator().manual_seed(graph.num_nodes)
    graph.pos = torch.randn(graph.num_nodes, 3, generator=draw)
    graph.z = torch.randint(1, 5, (graph.num_nodes,), generator=draw)


def matrices(data: Data) -> tuple[Tensor, Tensor]:
    """x [1, N, d] and adj [1, N, N] of one graph."""
    adjacency = torch.zeros(1, data.num_nodes, data.num_nodes)
    for u, v in data.edge_index.t().tolist():
        adjacency[0, u, v] += 1.0
    return data.x[None], adjacency


class DiffPool(nn.Module):
    """Two levels of `dense_diff_pool`; the losses of pooling come with the output, as in torch_geometric's example."""

    def __init__(self) -> None:
        super().__init__()
        self.assign, self.embed = DenseSAGEConv(4, 3), DenseSAGEConv(4, 8)
        self.last, self.out = DenseSAGEConv(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        s, h = self.assign(x, adj, mask), self.embed(x, adj, mask).tanh()
        h, adj, link, entropy = dense_diff_pool(h, adj, s, mask)
        return 9 * self.out(self.last(h, adj).tanh().mean(1)), link, entropy


class DenseGCN(nn.Module):
    """`DenseGCNConv` and a mean over all rows, padding too: its output depends on the other graphs of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = DenseGCNConv(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return 9 * self.out(self.conv(x, adj).tanh().mean(1))


class DenseNodes(nn.Module):
    """Nodes of one graph, from matrices without a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, features: Tensor, adj: Tensor) -> Tensor:
        assert features.dim() == adj.dim() == 2
        step = (adj + torch.eye(len(adj))) / (adj.sum(1, keepdim=True) + 1)
        return 9 * self.second(step @ (step @ self.first(features)).tanh())


class SchNet(nn.Module):
    """Atomic numbers and continuous filters of distances, with scatter code of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.filter, self.out = nn.Embedding(5, 8), nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, z: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h, (source, target) = self.atoms(z), edge_index
        distance = (pos[source] - pos[target]).norm(dim=1)
        radial = (-((distance[:, None] - torch.linspace(0, 4, 6)) ** 2)).exp()
        h = h + torch.zeros_like(h).index_add(0, target, h[source] * self.filter(radial))
        return 9 * self.out(add_pool(h.tanh(), batch))


class Embedded(nn.Module):
    """`nn.Embedding` of the first whole number that `from_smiles` gives of each atom."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.conv, self.out = nn.Embedding(120, 8), GINConv(nn.Linear(8, 8)), nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return 9 * self.out(add_pool(self.conv(self.atoms(x[:, 0]), edge_index).tanh(), batch))


class GPS(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
        self.conv = GPSConv(8, GINConv(nn.Linear(8, 8)), heads=2, norm=None)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return 9 * self.out(mean_pool(self.conv(self.start(x), edge_index, batch).tanh(), batch))


class OneGraph(nn.Module):
    """Takes one graph at a time: no batch, and a single row without a dimension for it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = GCNConv(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return 9 * self.out(self.conv(x, edge_index).tanh().mean(0))


class OneObject(OneGraph):
    """The same of a Data object, whose `batch` it does not read."""

    def forward(self, data: Data) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index)[None]


class Box(nn.Module):
    """Numpy in and numpy out, as a session of ONNX has it: no gradient, no layer, no parameter."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        features, (source, target), owner = x.numpy(), edge_index.numpy(), batch.numpy()
        draw = np.random.default_rng(3)
        weight, last = draw.normal(size=(4, 8)), draw.normal(size=(8, 2))
        h = features @ weight
        summed = h.copy()
        np.add.at(summed, target, h[source])
        pooled = np.zeros((int(owner[-1]) + 1, 8))
        np.add.at(pooled, owner, np.tanh(summed))
        return torch.from_numpy(pooled @ last)


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(4)
    return kind().eval()


def one(data: Data) -> Tensor:
    return torch.zeros(data.num_nodes, dtype=torch.long)


def molecules() -> list[Data]:
    pytest.importorskip("rdkit")
    from torch_geometric.utils import from_smiles

    return [from_smiles(smiles) for smiles in ("CC(=O)Nc1ccc(O)cc1", "CCN(CC)C=O", "c1ccccc1Cl", "CC(O)C#N")]


# Of every model: how a plain call gives the outputs of one graph, and what is passed beside model and graphs.
ROWS: dict[type[nn.Module], Callable[[Any, Data], Tensor]] = {
    DiffPool: lambda model, data: model(*matrices(data))[0],
    DenseGCN: lambda model, data: model(*matrices(data)),
    DenseNodes: lambda model, data: model(data.x, matrices(data)[1][0])[:1],
    PointNet: lambda model, data: model(data.pos, data.edge_index, one(data)),
    SchNet: lambda model, data: model(data.z, data.pos, data.edge_index, one(data)),
    Embedded: lambda model, data: model(data.x, data.edge_index, one(data)),
    GPS: lambda model, data: model(data.x, data.edge_index, one(data)),
    OneGraph: lambda model, data: model(data.x, data.edge_index)[None],
    OneObject: lambda model, data: model(data),
    Box: lambda model, data: model(data.x, data.edge_index, one(data)),
}
RANKED_BY_TRIALS = {SchNet, Box}  # the others have a place for soft masks


def left(data: Data, pairs: np.ndarray, *, keep: bool) -> Data:
    """The graph with only these undirected edges, or with all others; self-loops are no units and stay."""
    named = {tuple(sorted(pair)) for pair in pairs.tolist()}
    stays = [u == v or (tuple(sorted((u, v))) in named) == keep for u, v in data.edge_index.t().tolist()]
    edited = data.clone()
    edited.edge_index = data.edge_index[:, torch.tensor(stays, dtype=torch.bool)]
    return edited


def balance(model: Any, graphs: list[Data]) -> None:
    """Shift the last bias so that graphs with and without their edges tend to get different answers."""
    last = getattr(model, "out", getattr(model, "second", None))
    if last is not None:
        bare = [left(data, np.zeros((0, 2), dtype=int), keep=True) for data in graphs]
        with torch.no_grad():
            last.bias -= torch.cat([ROWS[type(model)](model, data) for data in graphs + bare]).mean(0) / 9


@pytest.mark.parametrize("kind", ROWS)
def test_each_model_is_explained_and_its_verdicts_are_true(
    kind: type[nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    model, graphs, says = made(kind), molecules() if kind is Embedded else GRAPHS, ROWS[kind]
    balance(model, graphs)
    if kind is DenseNodes:
        found = [cf2.explain(model, data, [0])[0] for data in graphs]
    else:
        found = list(cf2.explain(model, graphs))
    for e, data in zip(found, graphs, strict=True):
        with torch.no_grad():
            whole, only, without = (
                int(says(model, edited)[0].argmax())
                for edited in (data, left(data, e.edges, keep=True), left(data, e.edges, keep=False))
            )
        assert (e.prediction, e.sufficient, e.necessary) == (whole, only == whole, without != whole)
        assert e.ranking == ("trials" if kind in RANKED_BY_TRIALS else "gradient")
    assert any(e.status == "found" for e in found), [e.status for e in found]
    assert ("takes one graph at a time" in caplog.text) == issubclass(kind, OneGraph)


# -- models that hold something for every node of one graph --------------------------------------------------------


class OwnEmbedding(nn.Module):
    """A trained embedding of every node, in place of features."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.first, self.second = nn.Embedding(30, 8), GCNConv(8, 16), GCNConv(16, 3)

    def forward(self, edge_index: Tensor) -> Tensor:
        return self.second(self.first(self.nodes.weight, edge_index).relu(), edge_index)


class OwnRelations(nn.Module):
    """The first layer has a row for every node, as torch_geometric's example of RGCN has it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = RGCNConv(30, 16, 2, num_bases=2), RGCNConv(16, 3, 2, num_bases=2)

    def forward(self, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.second(self.first(None, edge_index, edge_type).relu(), edge_index, edge_type)


class OwnProduct(nn.Module):
    """No layer at all: a sparse matrix of the graph's own size."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(30, 3))

    def forward(self, edge_index: Tensor) -> Tensor:
        sums = torch.zeros(30, 3).index_add(0, edge_index[1], self.rows[edge_index[0]])
        return torch.zeros(30, 3).index_add(0, edge_index[1], sums.relu()[edge_index[0]] - 1)


class Recommends(LightGCN):
    def __init__(self) -> None:
        super().__init__(30, 16, 2)


class HasRoom(Recommends):
    """With rows for more nodes than there are, parts of the graph are no error: they get the rows of other nodes."""

    def __init__(self) -> None:
        LightGCN.__init__(self, 400, 16, 2)


@pytest.mark.parametrize("kind", [OwnEmbedding, OwnRelations, OwnProduct, Recommends, HasRoom])
def test_a_model_that_holds_a_row_for_every_node_is_run_on_all_of_them(kind: type[nn.Module]) -> None:
    model, graph = made(kind), random_graph(30, 34, seed=1)
    data = Data(edge_index=graph.edge_index, num_nodes=30)
    given: dict[str, Any] = {}
    if kind is OwnRelations:
        data.edge_type = graph.edge_index.sum(0) % 2
    if issubclass(kind, Recommends):
        pairs = [(int(u), int(v)) for u, v in zip(*graph.edge_index[:, :12])]
        explained = {"pairs": pairs, "output": "logits"}
    else:
        explained = {"nodes": range(12)}
    found = cf2.explain(model, data, **explained)
    assert "found" in [e.status for e in found]
    assert not cf2.check(found, model, data).false

    def says(edges: Tensor, e: Any) -> int:
        if kind is OwnRelations:
            given["edge_type"] = edges.sum(0) % 2
        with torch.no_grad():
            if issubclass(kind, Recommends):
                return int(model(edges, torch.tensor(e.key)[:, None])[0] > 0)
            return int(model(edges, **given)[e.key].argmax())

    for e in found:
        ends = torch.tensor(e.key) if issubclass(kind, Recommends) else torch.tensor([-1, -1])
        of_pair = (data.edge_index.t().sort(1).values == ends.sort().values).all(1)
        seen = Data(edge_index=data.edge_index[:, ~of_pair], num_nodes=30)  # a link is explained without its own edge
        only, without = (says(left(seen, e.edges, keep=keep).edge_index, e) for keep in (True, False))
        whole = says(seen.edge_index, e)
        assert (e.prediction, e.sufficient, e.necessary) == (whole, only == whole, without != whole)
    assert min(len(e.units) for e in found) < 30  # what is far from the target is no unit
    with pytest.raises(cf2.CF2Error, match="that needs all nodes"):
        cf2.explain(model, data, units="nodes", **explained)
