"""Bounds hold for whatever is in the box, refute nothing that passes, and are used only where a model splits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise

import networkx as nx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from cf2.methods.contract import Problem
from cf2.models import oracle as oracle_module
from cf2.models.oracle import GraphOracle
from cf2.models.shapes import Bounded, Census, Head, Shapes, head_of
from cf2.samples.models import build
from cf2.sets.proof import prove
from cf2.sets.trials import Trials
from toys import GraphNet

SHAPES = st.fixed_dictionaries(
    {
        "arch": st.sampled_from(["gcn", "gin", "sage", "gat"]),
        "pool": st.sampled_from(["mean", "sum"]),
        "readout": st.sampled_from(["last", "all"]),
        "dense": st.integers(1, 4),
        "aggregation": st.sampled_from(["sum", "symmetric", "symmetric-self-loops"]),
    }
)
QUIET = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def model_of(shape: dict[str, object], seed: int, classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    model = build(task="graph", num_features=2, num_classes=classes, hidden=6, layers=2, **shape)  # type: ignore[arg-type]
    for weight in model.head.parameters():
        weight.data.mul_(3)  # so that predictions change with the edges
    return model


def graph_of(nodes: int, pairs: int, seed: int) -> Data:
    edges = torch.tensor(list(nx.gnm_random_graph(nodes, pairs, seed=seed).edges)).t()
    x = torch.eye(2)[torch.arange(nodes) % 2]
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))


def trials_of(problem: Problem) -> Trials:
    oracle = GraphOracle(problem.predictor, problem.pack, together=False)
    return Trials(oracle, problem.criterion, problem.tests)


def bounded_of(trials: Trials) -> Bounded:
    shapes = Shapes.of(trials.oracle, 0)
    assert shapes is not None
    bounded = Bounded.of(trials, 0, Census(shapes, list(range(trials.width))))
    assert bounded is not None
    return bounded


def every_set(count: int) -> Tensor:
    sets = [chosen for size in range(count + 1) for chosen in combinations(range(count), size)]
    return torch.tensor([[unit in chosen for unit in range(count)] for chosen in sets])


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
@given(shape=SHAPES, seed=st.integers(0, 99), pairs=st.integers(3, 9))
def test_no_set_that_passes_alone_is_refuted(
    shape: dict[str, object], seed: int, pairs: int, problem_of: Callable[..., Problem]
) -> None:
    trials = trials_of(problem_of(model_of(shape, seed), [graph_of(7, pairs, seed)]))
    bounded = bounded_of(trials)
    sets = every_set(trials.width)
    alone = sets[trials.one(0, torch.zeros(len(sets), dtype=torch.long), sets)]
    for size in range(trials.width + 1):
        level = bounded.level(size, 10**6)
        assert level is not None
        left = {row.tobytes() for kinds in level.kinds for row in bounded.census.placements(kinds)}
        passing = alone[alone.sum(1) == size].numpy()
        assert {row.tobytes() for row in passing} <= left


@QUIET
@given(shape=SHAPES, seed=st.integers(0, 99), pairs=st.integers(3, 10), budget=st.integers(20, 4000))
def test_a_proof_with_bounds_is_true(
    shape: dict[str, object], seed: int, pairs: int, budget: int, problem_of: Callable[..., Problem]
) -> None:
    trials = trials_of(problem_of(model_of(shape, seed, 2), [graph_of(8, pairs, seed)]))
    every = every_set(trials.width)
    good = every[trials.passes(torch.zeros(len(every), dtype=torch.long), every)]
    smallest = int(good.sum(1).min()) if len(good) else trials.width + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle_module, "MIN_SETS_FOR_SHAPES", 0)
        proof = prove(trials, torch.zeros_like(trials.valid), torch.tensor([False]), budget, partly=True)
    assert int(proof.lower_bound(trials)[0]) <= smallest
    assert not (proof.impossible[0] and len(good))
    if proof.optimal[0]:
        assert (good == proof.sets[0]).all(1).any()
        assert int(proof.sets.sum()) == smallest


SEED = 20


def test_bounds_refute_shapes_without_running_them(problem_of: Callable[..., Problem]) -> None:
    """What is left are the shapes that pass alone, and only connected parts have been run."""
    model = model_of({"arch": "gcn", "aggregation": "sum", "dense": 2}, SEED)
    trials = trials_of(problem_of(model, [graph_of(14, 16, 1)]))
    bounded = bounded_of(trials)
    trials.evaluations.zero_()
    shapes = 0
    for size in range(7):
        level, full = bounded.level(size, 10**6), Census(bounded.census.shapes, list(range(16))).level(size, 10**6)
        assert level is not None
        assert full is not None
        good = trials.one(0, torch.zeros(len(full.sets), dtype=torch.long), torch.from_numpy(full.sets))
        assert int(good.sum()) <= len(level.sets) <= 1.1 * int(good.sum())
        shapes += len(full.sets)
    assert bounded.gain.size(0) < shapes / 3


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
    assert head_of(trials_of(problem_of(GraphNet("sum", features=2, seed=1), [graph]))) is None
    good = trials_of(problem_of(model_of({"arch": "gin", "dense": 2}, 1), [graph]))
    assert head_of(good) is not None
    liar = trials_of(problem_of(Mixed(), [graph]))
    assert head_of(liar) is not None
    shapes = Shapes.of(liar.oracle, 0)
    assert shapes is not None
    assert Bounded.of(liar, 0, Census(shapes, list(range(8)))) is None
