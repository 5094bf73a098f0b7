"""Sets of one shape against networkx and plain enumeration; bounds of a head refute nothing that passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, count, pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv, global_add_pool

from cf2.methods.contract import Problem
from cf2.models import oracle as oracle_module
from cf2.models import shapes as shapes_module
from cf2.models.oracle import GraphOracle
from cf2.models.shapes import Bounds, Census, Head, Shapes, head_of
from cf2.samples.models import build
from cf2.sets.proof import prove
from cf2.sets.trials import Trials
from toys import GraphNet, NodeNet, random_graph

QUIET = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SAME = nx.algorithms.isomorphism.categorical_node_match("colour", 0)
Set = frozenset[int]


def trials_of(problem: Problem) -> Trials:
    oracle = GraphOracle(problem.predictor, problem.pack, together=False)
    return Trials(oracle, problem.criterion, problem.tests)


def shapes_of(edges: Iterable[tuple[int, int]], colours: Tensor) -> Shapes:
    return Shapes(torch.tensor(list(edges)).t().contiguous(), colours)


def graph_of(nodes: int, pairs: int, seed: int, features: int = 4) -> Data:
    """A graph without loops, of which every third node has other features."""
    edges = torch.tensor(list(nx.gnm_random_graph(nodes, pairs, seed=seed).edges)).t()
    x = torch.ones(nodes, features)
    x[::3, 0] = 2
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))


def every_set(units: int) -> Tensor:
    sets = [chosen for size in range(units + 1) for chosen in combinations(range(units), size)]
    return torch.tensor([[unit in chosen for unit in range(units)] for chosen in sets])


# -- shapes ------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Shapes, list[int]]:
    """A small graph of two colours, and which of its edges may be chosen: most of them."""
    nodes = draw(st.integers(2, 7))
    pairs = list(combinations(range(nodes), 2))
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=9, unique=True))
    colours = draw(st.lists(st.integers(0, 1), min_size=nodes, max_size=nodes))
    held = draw(st.sets(st.integers(0, len(edges) - 1), max_size=2))
    return shapes_of(edges, torch.tensor(colours)), [unit for unit in range(len(edges)) if unit not in held]


def sets_by_shape(shapes: Shapes, free: list[int], size: int) -> set[frozenset[Set]]:
    found: dict[str, list[tuple[nx.Graph, set[Set]]]] = {}
    for chosen in map(frozenset, combinations(free, size)):
        graph = nx.Graph()
        graph.add_nodes_from((node, {"colour": colour}) for node, colour in enumerate(shapes.colours.tolist()))
        graph.add_edges_from(shapes.pairs[unit] for unit in chosen)
        known = found.setdefault(nx.weisfeiler_lehman_graph_hash(graph, node_attr="colour"), [])
        match = next((sets for other, sets in known if nx.is_isomorphic(graph, other, node_match=SAME)), None)
        if match is None:
            known.append((graph, {chosen}))
        else:
            match.add(chosen)
    return {frozenset(sets) for known in found.values() for _, sets in known}


def chosen_in(sets: Iterable[np.ndarray]) -> list[Set]:
    return [frozenset(np.flatnonzero(row).tolist()) for row in sets]


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_every_shape_is_met_once_and_all_its_sets_are_known(graph: tuple[Shapes, list[int]]) -> None:
    shapes, free = graph
    census = Census(shapes, free)
    for size in range(min(len(free), 6) + 1):
        level = census.level(size, 10**6)
        assert level is not None
        found = [chosen_in(census.placements(kinds, count())) for kinds in level[1]]
        assert all(len(sets) == len(set(sets)) for sets in found)
        expected = sets_by_shape(shapes, free, size)
        assert {frozenset(sets) for sets in found} == expected
        assert len(found) == len(expected)
        assert all(one in sets for one, sets in zip(chosen_in(level[0]), found, strict=True))


SIX = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]
TWO_TRIANGLES = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]
DECALIN = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (5, 6), (6, 7), (7, 8), (8, 9), (0, 9)]
TWO_PENTAGONS = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (5, 6), (6, 7), (7, 8), (8, 9), (5, 9), (0, 5)]


@pytest.mark.parametrize("pair", [(SIX, TWO_TRIANGLES), (DECALIN, TWO_PENTAGONS)])
def test_rings_that_colours_do_not_tell_apart_are_two_shapes(pair: tuple[list[tuple[int, int]], ...]) -> None:
    edges = sorted({*pair[0], *pair[1]})
    shapes = shapes_of(edges, torch.zeros(1 + max(map(max, edges)), dtype=torch.long))
    both = np.array([[edge in ring for edge in edges] for ring in pair])
    assert shapes.keys(both)[0].tolist() == shapes.keys(both)[1].tolist()
    assert not shapes.isomorphic(*both)
    assert shapes.isomorphic(both[1], both[1])
    if pair[0] is DECALIN:  # two triangles are not connected, and so no class
        assert len(set(shapes.classes(both).tolist())) == 2


def test_a_level_that_is_too_large_or_too_hard_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, every = shapes_of(nx.gnm_random_graph(10, 14, seed=1).edges, torch.arange(10) % 3), list(range(14))
    full = Census(shapes, every).level(5, 10**6)
    assert full is not None
    assert Census(shapes, every).level(5, len(full[0])) is not None
    assert Census(shapes, every).level(5, len(full[0]) - 1) is None
    monkeypatch.setattr(shapes_module, "MAX_STEPS", 1)
    assert Census(shapes, every).level(5, 10**6) is None


# -- trials that look alike ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [None, [3]])
@pytest.mark.parametrize("seed", range(3))
def test_trials_of_one_name_are_one_graph_and_trees_that_are_one_graph_have_one_name(
    nodes: list[int] | None, seed: int, problem_of: Callable[..., Problem]
) -> None:
    data = graph_of(7, 9, seed)
    model = GraphNet("sum") if nodes is None else NodeNet("sum", layers=6)
    problem = problem_of(model, [data] if nodes is None else data, nodes)
    oracle = trials_of(problem).oracle
    sets = every_set(int(oracle.counts[0]))
    rows = torch.zeros(len(sets), dtype=torch.long)
    assert oracle.has_looks
    ((_, looks),) = oracle.looks(rows, sets)
    pack, trees = problem.pack, 0
    classes: dict[bytes, nx.Graph] = {}
    names: dict[str, list[tuple[nx.Graph, bytes]]] = {}
    for name, there in zip(looks.names, sets):
        graph, edges = nx.Graph(), pack.edge_index[:, there[pack.units.edges.first]].t().tolist()
        graph.add_nodes_from((node, {"colour": str(row)}) for node, row in enumerate(pack.x.tolist()))
        graph.add_edges_from(edges)
        for target in pack.targets.flatten().tolist():
            graph.nodes[target]["colour"] = "target"
            graph = graph.subgraph(nx.node_connected_component(graph, target))
        assert nx.is_isomorphic(graph, classes.setdefault(name, graph), node_match=SAME)
        if nx.is_forest(graph) and not name.startswith(b"="):
            trees += 1
            alike = names.setdefault(nx.weisfeiler_lehman_graph_hash(graph, node_attr="colour"), [])
            known = next((other for one, other in alike if nx.is_isomorphic(graph, one, node_match=SAME)), name)
            assert known == name
            alike.append((graph, name))
    assert trees > 50
    assert len(classes) < len(sets)


# -- proofs ------------------------------------------------------------------------------------------------


class Weigh(nn.Module):
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
    model: nn.Module, problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(model, [graph_of(9, 8 + number, number) for number in range(4)])
    monkeypatch.setattr(GraphOracle, "lookalikes", None)  # else both ways run each shape once
    shown, runs = [], []
    for shaped in (10**9, 0):
        monkeypatch.setattr(oracle_module, "MIN_SETS_FOR_SHAPES", shaped)
        trials = trials_of(problem)
        assert trials.oracle._shaped()
        passed = trials.passes(torch.arange(len(trials.valid)), trials.valid)
        proof = prove(trials, trials.valid, passed, 10_000)
        facts = (proof.sets.sum(1), proof.passed, proof.optimal, proof.impossible)
        shown.append([fact.tolist() for fact in facts])
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


SPLIT = st.fixed_dictionaries(
    {
        "arch": st.sampled_from(["gcn", "gin", "sage", "gat"]),
        "pool": st.sampled_from(["mean", "sum"]),
        "readout": st.sampled_from(["last", "all"]),
        "dense": st.integers(1, 4),
        "aggregation": st.sampled_from(["sum", "symmetric", "symmetric-self-loops"]),
    }
)


def model_of(shape: dict[str, object], seed: int, classes: int = 3) -> nn.Module:
    """A model that splits at its pooling, whose predictions change with the edges."""
    torch.manual_seed(seed)
    model = build(task="graph", num_features=4, num_classes=classes, hidden=6, layers=2, **shape)  # type: ignore[arg-type]
    for weight in model.head.parameters():
        weight.data.mul_(3)
    return model


@QUIET
@given(
    make=st.one_of(st.sampled_from(["sum", "gin", "gcn", "sage"]), SPLIT),
    seed=st.integers(0, 99),
    pairs=st.integers(3, 10),
    budget=st.integers(1, 4000),
    known=st.booleans(),
)
def test_what_a_proof_says_within_any_budget_is_true(
    make: str | dict[str, object], seed: int, pairs: int, budget: int, known: bool, problem_of: Callable[..., Problem]
) -> None:
    """Of models with bounds and without, from nothing and from a set that passes."""
    model = GraphNet(make, seed=seed) if isinstance(make, str) else model_of(make, seed, 2)
    trials = trials_of(problem_of(model, [graph_of(7, pairs, seed)]))
    every = every_set(trials.width)
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
        assert int(proof.sets.sum()) == int(proof.lower_bound(trials)[0]) == smallest
    if budget > 3 * 2**trials.width:
        assert proof.optimal[0] or proof.impossible[0]


# -- bounds ------------------------------------------------------------------------------------------------


def bounded_of(trials: Trials) -> Census:
    shapes = Shapes.of(trials.oracle, 0)
    assert shapes is not None
    bounds = Bounds.of(trials, 0, shapes)
    assert bounds is not None
    return Census(shapes, list(range(trials.width)), bounds)


def passes_alone(trials: Trials, sets: Tensor) -> Tensor:
    return trials.test(trials.tests[0], torch.zeros(len(sets), dtype=torch.long), sets)[0]


@QUIET
@given(seed=st.integers(0, 999), dense=st.integers(1, 4), width=st.floats(0, 3), answer=st.integers(0, 2))
def test_linear_bounds_of_a_head_hold_and_are_exact_without_width(
    seed: int, dense: int, width: float, answer: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    sizes = [5] * dense + [3]
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())][:-1]
    head = Head(nn.Sequential(*layers), answer)
    low = torch.randn(4, len(head.first[1]), generator=draw).double()
    high = low + width * torch.rand(low.shape, generator=draw).double()
    rows, constant = head.linear(low, high)
    for share in torch.rand(30, *low.shape, generator=draw).double():
        z = low + (share if int(seed) % 2 else share.round()) * (high - low)
        upper = (rows * z[:, None]).sum(2) + constant
        assert (head.exact(z) <= upper.amin(1) + 1e-9).all()
    rows, constant = head.linear(low, low)
    exact = (rows * low[:, None]).sum(2) + constant
    torch.testing.assert_close(exact.amin(1), head.exact(low), atol=1e-9, rtol=1e-9)


@QUIET
@given(shape=SPLIT, seed=st.integers(0, 99), pairs=st.integers(3, 9))
def test_no_set_that_passes_alone_is_refuted(
    shape: dict[str, object], seed: int, pairs: int, problem_of: Callable[..., Problem]
) -> None:
    trials = trials_of(problem_of(model_of(shape, seed), [graph_of(7, pairs, seed)]))
    census = bounded_of(trials)
    sets = every_set(trials.width)
    alone = sets[passes_alone(trials, sets)]
    for size in range(trials.width + 1):
        level = census.level(size, 10**6)
        assert level is not None
        left = {row.tobytes() for kinds in level[1] for row in census.placements(kinds, count())}
        assert {row.tobytes() for row in alone[alone.sum(1) == size].numpy()} <= left


def test_bounds_refute_shapes_without_running_them(problem_of: Callable[..., Problem]) -> None:
    """What is left are the shapes that pass alone, and only connected parts have been run."""
    model = model_of({"arch": "gcn", "aggregation": "sum", "dense": 2}, 20)
    trials = trials_of(problem_of(model, [graph_of(14, 16, 1)]))
    census = bounded_of(trials)
    assert census.bounds is not None
    plain, shapes = Census(census.shapes, list(range(16))), 0
    for size in range(7):
        level, full = census.level(size, 10**6), plain.level(size, 10**6)
        assert level is not None
        assert full is not None
        good = passes_alone(trials, torch.from_numpy(full[0]))
        assert int(good.sum()) <= len(level[0]) <= 1.1 * int(good.sum())
        shapes += len(full[0])
    assert census.bounds.gain.size(0) < shapes / 3


class Mixed(nn.Module):
    """Says that it splits at its pooling, and centres its states over all nodes before that."""

    splits_at_pool = True

    def __init__(self) -> None:
        super().__init__()
        inner = model_of({"arch": "gcn", "aggregation": "sum", "dense": 2}, 1)
        self.inner, self.head, self.pool = inner, inner.head, inner.pool  # type: ignore[assignment]

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner.embed(x, edge_index).cumsum(0)  # type: ignore[operator,no-any-return]

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.head(self.pool(self.inner.embed(x, edge_index), batch))  # type: ignore[operator,no-any-return]


def test_only_a_model_that_says_and_shows_that_it_splits_is_bounded(problem_of: Callable[..., Problem]) -> None:
    graph = graph_of(7, 8, 1)
    assert head_of(trials_of(problem_of(GraphNet("sum", seed=1), [graph]))) is None
    bounded_of(trials_of(problem_of(model_of({"arch": "gin", "dense": 2}, 1), [graph])))
    liar = trials_of(problem_of(Mixed(), [graph]))
    assert head_of(liar) is not None
    shapes = Shapes.of(liar.oracle, 0)
    assert shapes is not None
    assert Bounds.of(liar, 0, shapes) is None
