"""A model that is no function of the graph alone is noticed: it is refused, or run on each graph by itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv, global_add_pool, global_mean_pool
from torch_geometric.nn.norm import PairNorm

import cf2
from cf2.errors import CF2Error


def graph(nodes: int = 7, seed: int = 0) -> Data:
    made = torch.Generator().manual_seed(seed)
    pairs = torch.randint(nodes, (2, 2 * nodes), generator=made)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return Data(x=torch.randn(nodes, 4, generator=made), edge_index=torch.cat([pairs, pairs.flip(0)], 1))


GRAPHS = [graph(6 + seed, seed) for seed in range(4)]


class Plain(nn.Module):
    """A graph classifier with a place to go wrong between its layer and its pooling, and one after."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.out = SAGEConv(4, 8), nn.Linear(8, 3)
        self.calls = 0

    def states(self, x: Tensor) -> Tensor:
        return x

    def pool(self, x: Tensor, batch: Tensor) -> Tensor:
        return global_mean_pool(x, batch)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.states(self.conv(x, edge_index).relu())
        return self.out(self.pool(x, batch))


class Dropout(Plain):
    def states(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)


class Noise(Plain):
    def states(self, x: Tensor) -> Tensor:
        return x + 0.01 * torch.randn_like(x)


class Memory(Plain):
    def states(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + 0.1 * self.calls


class BatchStatistics(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8, track_running_stats=False)

    def states(self, x: Tensor) -> Tensor:
        return self.norm(x)


class SoftmaxOverAll(Plain):
    def states(self, x: Tensor) -> Tensor:
        return x * x.sum(1, keepdim=True).softmax(0)


class MeanOverAll(Plain):
    def states(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class NormOverAll(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.norm = PairNorm()

    def states(self, x: Tensor) -> Tensor:
        return self.norm(x)


class InPlaceFeatures(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x -= x.mean()
        return super().forward(x, edge_index, batch)


class InPlaceEdges(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        out = super().forward(x, edge_index, batch)
        edge_index.zero_()
        return out


class UpdatesStatistics(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def states(self, x: Tensor) -> Tensor:
        self.norm.training = True
        return self.norm(x)


@pytest.mark.parametrize("units", ["edges", "features"])
@pytest.mark.parametrize("model", [Dropout, Noise, Memory])
def test_another_output_for_the_same_graph(model: type[nn.Module], units: str) -> None:
    with pytest.raises(CF2Error, match=r"same output for the same graph.*dropout left on"):
        cf2.explain(model(), GRAPHS, units=units)


def removed(data: Data, pairs: set[tuple[int, int]]) -> Tensor:
    """The columns without some undirected edges, found by hand."""
    stay = [n for n, (u, v) in enumerate(data.edge_index.t().tolist()) if not {(u, v), (v, u)} & pairs]
    return data.edge_index[:, stay]


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("method", ["cf2", "gradient", "random"])
@pytest.mark.parametrize("model", [BatchStatistics, SoftmaxOverAll, MeanOverAll, NormOverAll])
def test_an_output_that_depends_on_the_batch_is_that_of_the_graph_alone(
    model: type[nn.Module], method: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    net = model().eval()
    with torch.no_grad():
        net.out.weight.mul_(20)  # type: ignore[operator, union-attr]
    settings = {"effort": "quick"} if method == "cf2" else {}
    found = cf2.explain(net, GRAPHS[:count], method=method, **settings)
    assert "depends on what else is in the batch" in caplog.text
    for e, data in zip(found, GRAPHS, strict=False):
        chosen = {(int(u), int(v)) for u, v in e.edges}
        every = {(int(u), int(v)) for u, v in data.edge_index.t().tolist()}
        others = every - chosen - {(v, u) for u, v in chosen}
        for pairs, said in (
            (set(), e.probabilities),
            (others, e.probabilities_only),
            (chosen, e.probabilities_without),
        ):
            with torch.no_grad():
                row = net(data.x, removed(data, pairs), torch.zeros(data.num_nodes, dtype=torch.long))[0].softmax(0)
            assert said == pytest.approx(row.tolist(), abs=1e-4)


class InPlaceUncounted(Plain):
    """torch does not count a change through `.data`."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x.data.clamp_(min=0)  # the same the second time
        return super().forward(x, edge_index, batch)


class InPlaceNumPy(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        out = super().forward(x, edge_index, batch)
        edge_index.numpy()[:] = edge_index.numpy()[::-1].copy()
        return out


@pytest.mark.parametrize(
    ("model", "name"),
    [(InPlaceFeatures, "x"), (InPlaceEdges, "edge_index"), (InPlaceUncounted, "x"), (InPlaceNumPy, "edge_index")],
)
def test_inputs_changed_in_place(model: type[nn.Module], name: str) -> None:
    before = [(g.x.clone(), g.edge_index.clone()) for g in GRAPHS]
    for given in (GRAPHS, GRAPHS[:1]):  # one graph is packed as it is
        with pytest.raises(CF2Error, match=rf"changes `{name}` in place.*{name}\.clone"):
            cf2.explain(model(), given)
    assert all(torch.equal(x, g.x) and torch.equal(e, g.edge_index) for (x, e), g in zip(before, GRAPHS))


def test_a_model_that_changes_itself_is_refused_and_put_back() -> None:
    model = UpdatesStatistics()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(CF2Error):
        cf2.explain(model, GRAPHS)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


class OverAllNodes(nn.Module):
    """A node classifier that looks at the whole graph beside its layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.conv = GCNConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        states = self.conv(x, edge_index)
        return states - states.mean(0) * states.abs()


@pytest.mark.parametrize("nodes", [5, 40])
def test_a_node_classifier_that_mixes_all_nodes_is_explained_on_the_whole_graph(nodes: int) -> None:
    net, data = OverAllNodes().eval(), graph(nodes)
    edges = len({frozenset(pair) for pair in data.edge_index.t().tolist()})
    for e in cf2.explain(net, data, nodes=range(3), effort="quick"):
        assert len(e.units) == edges  # nothing is cut away
        chosen = {(int(u), int(v)) for u, v in e.edges}
        every = {(int(u), int(v)) for u, v in data.edge_index.t().tolist()}
        others = every - chosen - {(v, u) for u, v in chosen}
        for pairs, said in (
            (set(), e.probabilities),
            (others, e.probabilities_only),
            (chosen, e.probabilities_without),
        ):
            with torch.no_grad():
                row = net(data.x, removed(data, pairs))[e.key].softmax(0)
            assert said == pytest.approx(row.tolist(), abs=1e-4)


class Sums(Plain):
    def pool(self, x: Tensor, batch: Tensor) -> Tensor:
        return global_add_pool(x, batch)


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("model", [Plain, Sums])
def test_a_function_of_the_graph_is_let_through(model: type[nn.Module], scale: float) -> None:
    made = model()
    with torch.no_grad():
        made.out.weight.mul_(scale)  # type: ignore[operator, union-attr]
    big = [Data(x=g.x * scale, edge_index=g.edge_index) for g in GRAPHS]
    assert len(cf2.explain(made, big)) == 4
