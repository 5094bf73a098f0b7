"""What can be explained, by which key; and every key has random numbers of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

import cf2
from cf2.errors import CF2Error
from cf2.graphs.graph import Graph
from cf2.graphs.targets import GraphTargets, NodeTargets, stream
from cf2.options import Key
from toys import GraphNet, NodeNet, random_graph

DATA = random_graph(30, 45, seed=6)


@pytest.mark.parametrize("nodes", [[-1], [30], [1.5], ["a"], [], torch.tensor([0.5]), torch.ones(29, dtype=torch.bool)])
def test_bad_nodes_are_refused(nodes: object) -> None:
    with pytest.raises(CF2Error, match=r"nodes|node to explain"):
        cf2.explain(NodeNet("sum", seed=1), DATA, nodes=nodes)


@pytest.mark.parametrize(
    "nodes", [3, np.int64(3), [3], (3,), range(3, 4), torch.tensor(3), torch.tensor([3]), np.array([3])]
)
def test_ids_come_in_many_clothes(nodes: object) -> None:
    assert NodeTargets(Graph(DATA)).check(nodes) == [3]


def test_graphs_are_counted_and_all_of_them_if_none_are_named() -> None:
    targets = GraphTargets([random_graph(4, 4, seed=s) for s in range(3)])
    assert targets.check(None) == [0, 1, 2]
    assert targets.check([2, 0, 2]) == [2, 0, 2]
    with pytest.raises(CF2Error, match="from 0 to 2"):
        targets.check([3])


def test_labels_come_along() -> None:
    graphs = [random_graph(6, 6, seed=s) for s in range(3)]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([number % 2])
    found = cf2.explain(GraphNet("gin"), graphs, effort="quick")
    assert [e.label for e in found] == [0, 1, 0]


@pytest.mark.parametrize("y", [None, torch.rand(30), torch.zeros(30, 2, dtype=torch.long)])
def test_what_is_no_class_is_no_label(y: torch.Tensor | None) -> None:
    assert NodeTargets(Graph(DATA), y).labels([3]) is None
    assert GraphTargets([Data(x=DATA.x, edge_index=DATA.edge_index, y=y)]).labels([0]) is None


keys = st.one_of(st.integers(0, 10**9), st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)))


@given(st.integers(0, 100), st.lists(keys, min_size=2, max_size=5, unique=True))
def test_every_key_has_its_own_stream(seed: int, keys: list[Key]) -> None:
    same_kind = [key for key in keys if isinstance(key, tuple) == isinstance(keys[0], tuple)]
    draws = [torch.rand(4, generator=stream(seed, key)).tolist() for key in same_kind]
    assert len({tuple(draw) for draw in draws}) == len(same_kind)
    assert draws[0] == torch.rand(4, generator=stream(seed, same_kind[0])).tolist()
    assert draws[0] != torch.rand(4, generator=stream(seed + 1, same_kind[0])).tolist()
