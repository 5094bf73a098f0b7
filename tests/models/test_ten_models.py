"""Models of many kinds, each explained with the defaults; graphs are edited by hand and models called plainly.

Each has its own way to be called: dense matrices, sparse products, positions, embeddings, other libraries. Chemprop's
two kinds of message passing are in test_chemprop.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import DenseGCNConv, DenseSAGEConv, GINConv, GPSConv, dense_diff_pool
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


class SparseGCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        size = (len(x), len(x))
        step = torch.sparse_coo_tensor(edge_index, torch.ones(edge_index.size(1)), size, check_invariants=False)
        return 9 * self.second(torch.sparse.mm(step, torch.sparse.mm(step, self.first(x)).tanh()) + self.first(x))


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


class States(nn.Module):
    """The pooled states of a graph, for a model of another library."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GINConv(nn.Linear(4, 6))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return mean_pool(self.conv(x, edge_index).tanh(), batch)


def forest() -> Callable[[nn.Module, Any], Tensor]:
    """A forest of sklearn, trained on the states of graphs with random edges left out."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    model, rng = made(States), np.random.default_rng(0)
    rows = []
    for data in GRAPHS * 8:
        stays = torch.from_numpy(rng.random(data.edge_index.size(1)) < rng.random())
        rows.append(model(data.x, data.edge_index[:, stays], one(data)).detach().numpy()[0])
    states = np.array(rows)
    fitted = ensemble.RandomForestClassifier(20, random_state=0, n_jobs=1)
    fitted.fit(states, states[:, 0] + states[:, 3] > np.median(states[:, 0] + states[:, 3]))
    return lambda model, data: torch.from_numpy(
        fitted.predict_proba(model(data.x, data.edge_index, data.batch).detach().numpy())
    )


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
    SparseGCN: lambda model, data: model(data.x, data.edge_index)[:1],
    PointNet: lambda model, data: model(data.pos, data.edge_index, one(data)),
    SchNet: lambda model, data: model(data.z, data.pos, data.edge_index, one(data)),
    Embedded: lambda model, data: model(data.x, data.edge_index, one(data)),
    GPS: lambda model, data: model(data.x, data.edge_index, one(data)),
    Box: lambda model, data: model(data.x, data.edge_index, one(data)),
}
RANKED_BY_TRIALS = {SparseGCN, SchNet, Box, States, nn.Identity}  # the others have a place for soft masks


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


def check(model: nn.Module, graphs: list[Data], says: Callable[[Any, Data], Tensor], found: Any) -> None:
    assert len(found) == len(graphs)
    with torch.no_grad():
        for e, data in zip(found, graphs, strict=True):
            whole, only, without = (
                int(says(model, edited)[0].argmax())
                for edited in (data, left(data, e.edges, keep=True), left(data, e.edges, keep=False))
            )
            assert (e.prediction, e.sufficient, e.necessary) == (whole, only == whole, without != whole)
            assert e.ranking == ("trials" if type(model) in RANKED_BY_TRIALS else "gradient")
    assert any(e.status == "found" for e in found), [e.status for e in found]


@pytest.mark.parametrize("kind", ROWS)
def test_each_model_is_explained_and_its_verdicts_are_true(kind: type[nn.Module]) -> None:
    model, graphs = made(kind), molecules() if kind is Embedded else GRAPHS
    balance(model, graphs)
    if kind in (DenseNodes, SparseGCN):  # they read nodes
        found = [cf2.explain(model, data, [0])[0] for data in graphs]
    else:
        found = list(cf2.explain(model, graphs))
    check(model, graphs, ROWS[kind], found)


def test_a_forest_on_the_states_of_a_model() -> None:
    model, call = made(States), forest()

    def says(model: nn.Module, data: Data) -> Tensor:
        return call(model, Data(x=data.x, edge_index=data.edge_index, batch=one(data)))

    check(model, GRAPHS, says, cf2.explain(model, GRAPHS, call=call, output="probabilities"))


NETWORK = """
<ir_version: 9, opset_import: ["" : 18]>
graph (float[N,4] x, int64[E] source, int64[E,1] target, int64[N,1] owner, float[G,8] zero, float[4,8] a, float[8,2] b)
    => (float[G,2] y)
{
    h = MatMul(x, a)
    sent = Gather(h, source)
    summed = ScatterND <reduction = "add"> (h, target, sent)
    states = Tanh(summed)
    pooled = ScatterND <reduction = "add"> (zero, owner, states)
    y = MatMul(pooled, b)
}
"""


def test_a_session_of_onnxruntime() -> None:
    onnx, runtime = pytest.importorskip("onnx.parser"), pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(onnx.parse_model(NETWORK).SerializeToString())
    draw = np.random.default_rng(3)
    given = {name: draw.normal(size=size).astype(np.float32) for name, size in (("a", (4, 8)), ("b", (8, 2)))}

    def says(model: Any, data: Any) -> Tensor:
        batch = one(data) if data.batch is None else data.batch
        source, target = data.edge_index.numpy()
        given.update(x=data.x.numpy(), source=source, target=target[:, None], owner=batch.numpy()[:, None])
        given["zero"] = np.zeros((int(batch[-1]) + 1, 8), np.float32)
        return torch.from_numpy(session.run(None, given)[0])

    found = cf2.explain(nn.Identity(), GRAPHS, call=says, output="logits")
    check(nn.Identity(), GRAPHS, says, found)


def test_a_function_of_random_features() -> None:
    draw = np.random.default_rng(1)
    inner, outer = draw.normal(size=(12, 32)), draw.normal(size=(32, 2))

    def says(states: Any) -> Any:
        return np.cos(np.asarray(states, dtype=float) @ inner) @ outer

    (e,) = cf2.explain_sets(says, 12)
    chosen = e.selected
    whole, only, without = (
        int(says(rows[None])[0].argmax()) for rows in (np.ones(12, dtype=bool), chosen, ~np.asarray(chosen))
    )
    assert (e.prediction, e.sufficient, e.necessary) == (whole, only == whole, without != whole)
    assert e.status == "found"
