"""Sets of one shape: forests by isomorphism, and a proof that runs one of each finds what plain exhaustion finds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import networkx as nx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv, global_add_pool

from cf2.methods.contract import Problem
from cf2.models import oracle as oracle_module
from cf2.models.oracle import GraphOracle
from cf2.models.shapes import Shapes
from cf2.sets.proof import prove
from cf2.sets.trials import Trials
from toys import GraphNet, NodeNet, random_graph


def trials_of(problem: Problem) -> Trials:
    oracle = GraphOracle(problem.predictor, problem.pack, together=False)
    return Trials(oracle, problem.criterion, problem.tests)


def two_coloured(nodes: int, pairs: int, seed: int) -> Data:
    """A graph without loops, of which every third node has other features."""
    pairs_of = torch.tensor(list(nx.gnm_random_graph(nodes, pairs, seed=seed).edges)).t()
    x = torch.ones(nodes, 4)
    x[::3] *= 2
    return Data(x=x, edge_index=torch.cat([pairs_of, pairs_of.flip(0)], 1))


def sets_of(count: int, sizes: range) -> Tensor:
    sets = [chosen for size in sizes for chosen in combinations(range(count), size)]
    return torch.tensor([[unit in chosen for unit in range(count)] for chosen in sets])


@pytest.mark.parametrize("seed", range(3))
def test_forests_have_one_key_if_and_only_if_they_are_isomorphic(seed: int, problem_of: Callable[..., Problem]) -> None:
    data = two_coloured(8, 11, seed)
    trials = trials_of(problem_of(GraphNet("sum", seed=1), [data]))
    shapes = Shapes.of(trials.oracle, 0)
    assert shapes is not None
    sets = sets_of(trials.width, range(5))
    keys = shapes.keys(sets.numpy()).tolist()
    graphs = []
    for chosen in sets:
        graph = nx.Graph()
        graph.add_nodes_from((node, {"colour": float(data.x[node, 0])}) for node in range(8))
        graph.add_edges_from(shapes.ends[:, chosen].t().tolist())
        graphs.append(graph)
    kinds: dict[tuple[int, ...], list[int]] = {}
    for place, key in enumerate(keys):
        kinds.setdefault(tuple(key), []).append(place)
    same = nx.algorithms.isomorphism.categorical_node_match("colour", 0)
    for places in kinds.values():
        for place in places[1:6] if nx.is_forest(graphs[places[0]]) else []:
            assert nx.is_isomorphic(graphs[places[0]], graphs[place], node_match=same)
    first = [graphs[places[0]] for places in kinds.values() if nx.is_forest(graphs[places[0]])]
    for one, other in combinations(first[:60], 2):
        assert not nx.is_isomorphic(one, other, node_match=same)
    assert len(kinds) < len(sets) / 2


class Weigh(torch.nn.Module):
    """Says 1 of graphs in which enough arrives along the edges, more where three edges meet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        arrived = self.conv(x, edge_index)[:, :1]
        weight = global_add_pool(arrived + torch.relu(arrived - 3), batch) - 12
        return torch.cat([-weight, weight], 1)


@pytest.mark.parametrize("model", [Weigh(), GraphNet("sum", seed=3), GraphNet("gin", seed=1)])
def test_a_proof_by_shapes_is_that_of_plain_exhaustion(
    model: torch.nn.Module, problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(model, [two_coloured(9, 8 + number, number) for number in range(4)])
    shown, runs = [], []
    for shaped in (10**9, 0):
        monkeypatch.setattr(oracle_module, "MIN_SETS_FOR_SHAPES", shaped)
        trials = trials_of(problem)
        assert trials.oracle._shaped()
        passed = trials.passes(torch.arange(len(trials.valid)), trials.valid)
        proof = prove(trials, trials.valid, passed, 10_000)
        shown.append(
            (proof.sets.sum(1).tolist(), proof.passed.tolist(), proof.optimal.tolist(), proof.impossible.tolist())
        )
        runs.append(int(trials.evaluations.sum()))
        assert trials.passes(torch.arange(len(proof.sets)), proof.sets)[proof.passed].all()
    assert shown[0] == shown[1]
    assert runs[1] <= 2 * runs[0]  # a shape is asked alone first, plain exhaustion asks what fails most
    if isinstance(model, Weigh):
        assert all(shown[0][1])
        assert runs[1] < 0.8 * runs[0]


def test_nodes_directed_graphs_and_edge_features_have_no_shapes(problem_of: Callable[..., Problem]) -> None:
    nodes = problem_of(NodeNet("gcn", seed=1), random_graph(20, 40, seed=1), range(4))
    assert not nodes.oracle._shaped()
    directed = Data(x=torch.rand(4, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    trials = trials_of(problem_of(GraphNet("sum", seed=1), [directed]))
    assert Shapes.of(trials.oracle, 0) is None


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 99),
    pairs=st.integers(3, 10),
    layer=st.sampled_from(["sum", "gin", "gcn", "sage"]),
    budget=st.integers(1, 1500),
    known=st.booleans(),
)
def test_what_a_proof_says_within_any_budget_is_true(
    seed: int, pairs: int, layer: str, budget: int, known: bool, problem_of: Callable[..., Problem]
) -> None:
    trials = trials_of(problem_of(GraphNet(layer, seed=seed), [two_coloured(7, pairs, seed)]))
    every = sets_of(trials.width, range(trials.width + 1))
    good = every[trials.passes(torch.zeros(len(every), dtype=torch.long), every)]
    start = good[good.sum(1).argmax()][None] if known and len(good) else torch.zeros_like(trials.valid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle_module, "MIN_SETS_FOR_SHAPES", 0)
        proof = prove(trials, start, torch.tensor([known and len(good) > 0]), budget, partly=True)
    smallest = int(good.sum(1).min()) if len(good) else trials.width + 1
    assert int(proof.lower_bound(trials)[0]) <= smallest
    assert not (proof.impossible[0] and len(good))
    if proof.passed[0]:
        assert (good == proof.sets[0]).all(1).any()
    if proof.optimal[0]:
        assert int(proof.sets.sum()) == smallest
        assert int(proof.lower_bound(trials)[0]) == smallest
    if budget > 3 * 2**trials.width:
        assert proof.optimal[0] or proof.impossible[0]
