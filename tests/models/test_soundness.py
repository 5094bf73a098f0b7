"""A model that is no function of the graph alone is noticed; one that goes by an order is told nothing is alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, SimpleConv, global_add_pool, global_mean_pool
from torch_geometric.nn.norm import PairNorm

import cf2
from cf2.errors import CF2Error
from cf2.methods.contract import Problem
from cf2.models import oracle as oracle_module
from cf2.models.oracle import GraphOracle
from cf2.sets.proof import prove, twins
from cf2.sets.trials import Trials
from toys import GraphNet, NodeNet, random_graph

# -- the same output for the same graph --------------------------------------------------------------------


def graph(nodes: int = 7, seed: int = 0) -> Data:
    made = torch.Generator().manual_seed(seed)
    pairs = torch.randint(nodes, (2, 2 * nodes), generator=made)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return Data(x=torch.randn(nodes, 4, generator=made), edge_index=torch.cat([pairs, pairs.flip(0)], 1))


GRAPHS = [graph(6 + seed, seed) for seed in range(4)]
Change = Callable[[], Callable[[Tensor], Tensor]]
Inputs = Callable[[Tensor, Tensor], Any]


def nothing(x: Tensor, edge_index: Tensor) -> None:
    pass


class Plain(nn.Module):
    """A graph classifier with places to go wrong: between its layer and its pooling, and before and after all."""

    def __init__(self, states: Change = nn.Identity, inputs: Inputs = nothing, after: Inputs = nothing) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.out, self.pool = SAGEConv(4, 8), nn.Linear(8, 3), global_mean_pool
        self.states, self.inputs, self.after = states(), inputs, after

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        self.inputs(x, edge_index)
        out = self.out(self.pool(self.states(self.conv(x, edge_index).relu()), batch))
        self.after(x, edge_index)
        return out


def memory() -> Callable[[Tensor], Tensor]:
    calls = itertools.count(1)
    return lambda x: x + 0.1 * next(calls)


UNSTEADY: dict[str, Change] = {
    "dropout": lambda: lambda x: F.dropout(x, 0.5),
    "noise": lambda: lambda x: x + 0.01 * torch.randn_like(x),
    "memory": memory,
}
OVER_THE_BATCH: dict[str, Change] = {
    "statistics": lambda: nn.BatchNorm1d(8, track_running_stats=False),
    "softmax": lambda: lambda x: x * x.sum(1, keepdim=True).softmax(0),
    "mean": lambda: lambda x: x - x.mean(0),
    "norm": PairNorm,
}


@pytest.mark.parametrize("units", ["edges", "features"])
@pytest.mark.parametrize("name", UNSTEADY)
def test_another_output_for_the_same_graph(name: str, units: str) -> None:
    with pytest.raises(CF2Error, match=r"same output for the same graph.*Look for dropout"):
        cf2.explain(Plain(UNSTEADY[name]), GRAPHS, units=units)


def removed(data: Data, pairs: set[tuple[int, int]]) -> Tensor:
    """The columns without some undirected edges, found by hand."""
    stay = [n for n, (u, v) in enumerate(data.edge_index.t().tolist()) if not {(u, v), (v, u)} & pairs]
    return data.edge_index[:, stay]


def check_outputs(e: cf2.Explanation, data: Data, says: Callable[[Tensor], Tensor]) -> None:
    """What the model says of the graph, of the chosen edges only and of the others only is what is reported."""
    chosen = {(int(u), int(v)) for u, v in e.edges}
    every = {(int(u), int(v)) for u, v in data.edge_index.t().tolist()}
    others = every - chosen - {(v, u) for u, v in chosen}
    said = (e.probabilities, e.probabilities_only, e.probabilities_without)
    for pairs, expected in zip((set(), others, chosen), said):
        with torch.no_grad():
            assert expected == pytest.approx(says(removed(data, pairs)).softmax(0).tolist(), abs=1e-4)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("method", ["cf2", "gradient", "random"])
@pytest.mark.parametrize("name", OVER_THE_BATCH)
def test_an_output_that_depends_on_the_batch_is_that_of_the_graph_alone(
    name: str, method: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    net = Plain(OVER_THE_BATCH[name]).eval()
    with torch.no_grad():
        net.out.weight.mul_(20)
    settings = {"effort": "quick"} if method == "cf2" else {}
    found = cf2.explain(net, GRAPHS[:count], method=method, **settings)
    assert "depends on what else is in the batch" in caplog.text
    for e, data in zip(found, GRAPHS, strict=False):
        one = torch.zeros(data.num_nodes, dtype=torch.long)
        check_outputs(e, data, lambda edges, data=data, one=one: net(data.x, edges, one)[0])  # type: ignore[misc]


def turned(x: Tensor, edge_index: Tensor) -> None:
    edge_index.numpy()[:] = edge_index.numpy()[::-1].copy()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"inputs": lambda x, edge_index: x.sub_(x.mean())}, "x"),
        ({"after": lambda x, edge_index: edge_index.zero_()}, "edge_index"),
        ({"inputs": lambda x, edge_index: x.data.clamp_(min=0)}, "x"),  # torch does not count it; twice is the same
        ({"after": turned}, "edge_index"),
    ],
)
def test_inputs_changed_in_place(options: dict[str, Inputs], name: str) -> None:
    before = [(g.x.clone(), g.edge_index.clone()) for g in GRAPHS]
    for given in (GRAPHS, GRAPHS[:1]):  # one graph is packed as it is
        with pytest.raises(CF2Error, match=rf"changes `{name}` in place.*{name}\.clone"):
            cf2.explain(Plain(**options), given)
    assert all(torch.equal(x, g.x) and torch.equal(e, g.edge_index) for (x, e), g in zip(before, GRAPHS))


def test_a_model_that_changes_itself_is_refused_and_put_back() -> None:
    class Updates(nn.BatchNorm1d):
        def forward(self, x: Tensor) -> Tensor:
            self.training = True
            return super().forward(x)

    model = Plain(lambda: Updates(8))
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
        check_outputs(e, data, lambda left, key=e.key: net(data.x, left)[key])  # type: ignore[misc]


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("pool", [global_mean_pool, global_add_pool])
def test_a_function_of_the_graph_is_let_through(pool: Callable[..., Tensor], scale: float) -> None:
    model = Plain()
    model.pool = pool
    with torch.no_grad():
        model.out.weight.mul_(scale)
    big = [Data(x=g.x * scale, edge_index=g.edge_index) for g in GRAPHS]
    assert len(cf2.explain(model, big)) == 4


class Attends(nn.Module):
    """Adds self-loops with features of their own behind the edges of all graphs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = GATConv(4, 3, edge_dim=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        return global_mean_pool(self.conv(x, edge_index, edge_attr), batch)


def test_rows_of_edges_in_another_order_do_not_count_as_mixing(caplog: pytest.LogCaptureFixture) -> None:
    made = torch.Generator().manual_seed(0)
    graphs = [
        Data(x=g.x, edge_index=g.edge_index, edge_attr=torch.rand(g.edge_index.size(1), 2, generator=made))
        for g in GRAPHS
    ]
    assert len(cf2.explain(Attends(), graphs, effort="quick")) == 4
    assert not caplog.records


class OneRowOfTypes(nn.Module):
    """Puts the nodes of both types one after the other before a layer; `mixes` over all of them where asked."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mixes, self.lin, self.conv = mixes, nn.Linear(3, 8), SAGEConv(8, 2)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        h = self.lin(torch.cat([x_dict["a"], x_dict["b"]])).relu()
        h = h - h.mean(0) if self.mixes else h
        shift = torch.tensor([[0], [len(x_dict["a"])]])
        edges = edge_index_dict["a", "to", "b"] + shift
        return self.conv(h, torch.cat([edges, edges.flip(0)], 1))[: len(x_dict["a"])]


@pytest.mark.parametrize("mixes", [False, True])
def test_a_model_that_puts_types_one_after_the_other_does_not_mix_by_that(
    mixes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made, data = torch.Generator().manual_seed(0), HeteroData()
    data["a"].x, data["b"].x = torch.randn(9, 3, generator=made), torch.randn(7, 3, generator=made)
    data["a", "to", "b"].edge_index = torch.stack(
        [torch.arange(14) % 9, torch.randint(7, (14,), generator=made)]
    ).unique(dim=1)
    assert len(cf2.explain(OneRowOfTypes(mixes), data, nodes=[0, 3, 5], node_type="a", effort="quick")) == 3
    assert bool(caplog.records) is mixes


# -- the order of nodes and edges --------------------------------------------------------------------------

LEAF = 5


class Place(nn.Module):
    """Class 1 if the sixth node of a graph has an edge."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        first = torch.searchsorted(batch, batch)
        sixth = torch.arange(len(x), device=x.device) - first == LEAF
        edges = global_add_pool(self.conv(x, edge_index) * sixth[:, None], batch)
        return torch.cat([0.5 - edges, edges - 0.5], 1)


class Sorted(nn.Module):
    """Reads its edges in an order, and says so where they are not in it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = SAGEConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if bool((edge_index[1].diff() < 0).any()):
            raise ValueError("edges that are not sorted")
        return self.conv(x, edge_index)


def leaves_around(leaves: int = 7) -> Data:
    """Leaves that look alike around node 0."""
    pairs = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    return Data(x=torch.ones(leaves + 1, 1), edge_index=torch.cat([pairs, pairs.flip(0)], 1))


@pytest.mark.parametrize("shaped", [10**9, 0])
def test_leaves_that_look_alike_are_not_the_same_to_a_model_that_counts_places(
    shaped: int, problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one edge that matters is neither the first of its kind nor the only one of its shape."""
    monkeypatch.setattr(oracle_module, "MIN_SETS_FOR_SHAPES", shaped)
    problem = problem_of(Place(), [leaves_around()])
    oracle = GraphOracle(problem.predictor, problem.pack, together=False)
    trials = Trials(oracle, problem.criterion, problem.tests)
    assert not oracle._shaped()
    assert not len(twins(trials, 0))
    proof = prove(trials, torch.zeros_like(trials.valid), torch.zeros(1, dtype=torch.bool), 10_000)
    assert proof.optimal.tolist() == [True]
    assert proof.sets.nonzero()[:, 1].tolist() == [LEAF - 1]
    (e,) = cf2.explain(Place(), [leaves_around()])
    assert (e.nodes.tolist(), e.optimal) == ([0, LEAF], True)


def test_whether_the_order_matters_is_found_out(problem_of: Callable[..., Problem]) -> None:
    data = random_graph(12, 24, seed=1)
    order = data.edge_index[1].argsort(stable=True)
    data.edge_index = data.edge_index[:, order]
    for model, expected in ((NodeNet("gat", seed=1), False), (NodeNet("gcn", seed=1), False), (Sorted(), True)):
        predictor = problem_of(model, data, range(3)).predictor
        assert predictor.findings is not None
        assert predictor.ordered is expected
    graphs = [random_graph(8, 10, seed=seed) for seed in range(3)]
    assert not problem_of(GraphNet("gin", seed=1), graphs).predictor.ordered
    assert problem_of(Place(), [leaves_around()]).predictor.ordered


class _Undirecting(torch.nn.Module):
    """Two layers that look at the neighbours along both directions, whatever the graph says."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(4, 8), GCNConv(8, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        both = torch.unique(torch.cat([edge_index, edge_index.flip(0)], 1), dim=1)
        return self.second(self.first(x, both).relu(), both)


@pytest.mark.parametrize("one_way", [0, 1, 5])
def test_a_model_that_undoes_directions_is_explained_on_all_that_it_reads(one_way: int) -> None:
    torch.manual_seed(0)
    model, edges = _Undirecting().eval(), torch.randint(0, 30, (2, 40))
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.unique(torch.cat([edges, edges.flip(0)], 1), dim=1)
    graph = Data(x=torch.randn(30, 4), edge_index=edges[:, one_way:])
    found = cf2.explain(model, graph, nodes=list(range(12)), directed=True, progress=False)
    plain = model(graph.x, graph.edge_index).argmax(1)
    for node, explanation in zip(range(12), found):
        kept = {tuple(edge) for edge in explanation.edges}
        inside = torch.tensor([tuple(edge) in kept for edge in graph.edge_index.t().tolist()])
        alone = model(graph.x, graph.edge_index[:, inside]).argmax(1)[node]
        without = model(graph.x, graph.edge_index[:, ~inside]).argmax(1)[node]
        assert explanation.sufficient == bool(alone == plain[node])
        assert explanation.necessary == bool(without != plain[node])
