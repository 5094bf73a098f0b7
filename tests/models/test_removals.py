"""Trials that are made directly into what a model is handed say what the same removals from a pack say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from cf2.methods.contract import Problem
from cf2.models.oracle import GraphOracle
from toys import GraphNet, NodeNet, random_graph

KINDS = [("edges",), ("features",), ("edges", "features"), ("nodes",), ("edges", "nodes"), ("whole nodes",)]


@pytest.mark.parametrize("units", KINDS)
@pytest.mark.parametrize("whole", [False, True])
def test_a_trial_gives_what_removing_from_its_pack_gives(
    units: tuple[str, ...], whole: bool, problem_of: Callable[..., Problem], whole_nodes: object
) -> None:
    units = tuple(whole_nodes.name if name == "whole nodes" else name for name in units)  # type: ignore[attr-defined]
    if whole:
        graphs = [random_graph(9, 14, seed=seed) for seed in range(3)]
        problem = problem_of(GraphNet("gcn", seed=1), graphs, units=units)
    else:
        problem = problem_of(NodeNet("gcn", seed=1, layers=2), random_graph(20, 25, seed=2), range(4), units=units)
    oracle = GraphOracle(problem.predictor, problem.pack)
    assert oracle.removals is not None
    rows = oracle.rows.repeat(7)
    draw = torch.rand(len(rows), oracle.width, generator=torch.Generator().manual_seed(3))
    states = draw < torch.linspace(0, 1, 7).repeat_interleave(len(oracle.rows))[:, None]  # from none to nearly all
    expected = problem.predictor.hard(problem.pack.take(rows), states[oracle.valid[rows]])
    given = oracle.outputs(rows, states)
    assert torch.equal(given.isnan(), expected.isnan())
    assert bool(given.isnan().any()) == (whole and "nodes" in units), "a graph without any node is no input"
    assert torch.allclose(given, expected, atol=1e-6, equal_nan=True)
