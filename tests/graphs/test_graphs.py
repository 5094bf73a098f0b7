"""Graphs are cut to what matters, bad ones are refused with a reason, and every key has random numbers of its own."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import k_hop_subgraph

import cf2
from cf2.errors import CF2Error
from cf2.graphs.graph import Graph, Instance, _is_directed, edge_positions
from cf2.graphs.targets import NodeTargets, stream
from cf2.options import Key
from cf2.units.kinds import unit_kinds, units_of
from cf2.units.packs import pack
from toys import GraphNet, random_graph

# -- graphs and cuts ---------------------------------------------------------------------------------------


def test_cut_holds_the_edges_that_matter_and_no_others() -> None:
    data = random_graph(60, 80, directed=True, seed=1)
    targets = NodeTargets(Graph(data))
    for node in range(0, 60, 7):
        cut = targets.instance(node, 2)
        nodes, _, _, inside = k_hop_subgraph(node, 2, data.edge_index)
        assert torch.equal(cut.node_ids, nodes.sort().values)
        near = set(k_hop_subgraph(node, 1, data.edge_index)[0].tolist())
        expected = {tuple(e) for e in data.edge_index[:, inside].t().tolist() if e[1] in near}
        assert {tuple(e) for e in cut.node_ids[cut.edge_index].t().tolist()} == expected
        assert cut.node_ids[list(cut.targets)].tolist() == [node]


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_a_cut_goes_along_the_edges_that_it_is_told(direction: str) -> None:
    """0 -> 1 -> 2 -> 3 -> 4, and the middle of it."""
    line = Graph(Data(x=torch.ones(5, 1), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])))
    cut = line.cut((2,), 1, direction, 2)  # type: ignore[arg-type]
    assert cut.node_ids.tolist() == {"in": [1, 2], "out": [2, 3], "both": [1, 2, 3]}[direction]


def test_a_cut_around_two_nodes_holds_what_both_see() -> None:
    data = random_graph(40, 50, seed=2)
    graph = Graph(data)
    pair = graph.cut((3, 17), 2, "in", (3, 17))
    ones = [graph.cut((node,), 2, "in", node) for node in (3, 17)]
    assert pair.key == (3, 17)
    assert pair.node_ids[list(pair.targets)].tolist() == [3, 17]
    assert set(pair.node_ids.tolist()) == set(torch.cat([one.node_ids for one in ones]).tolist())
    named = [{tuple(e) for e in cut.node_ids[cut.edge_index].t().tolist()} for cut in (pair, *ones)]
    assert named[0] == named[1] | named[2]


def test_further_tensors_are_cut_with_their_nodes_and_edges() -> None:
    data = random_graph(30, 40, seed=3)
    data.edge_attr = torch.arange(80.0)
    data.position = torch.arange(30.0)
    cut = Graph(data).cut((4,), 2, "in", 4)
    assert torch.equal(cut.extras["position"][1], cut.node_ids.float())
    kept = cut.extras["edge_attr"][1].long()
    assert torch.equal(data.edge_index[:, kept], cut.node_ids[cut.edge_index])


GOOD = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (Data(x=torch.ones(0, 2), edge_index=torch.zeros(2, 0, dtype=torch.long)), "empty graph"),
        (Data(edge_index=GOOD), "features"),
        (Data(x=torch.ones(2), edge_index=GOOD), "shape"),
        (Data(x=torch.ones(2, 1), edge_index=torch.zeros(3, 2, dtype=torch.long)), r"\[2, edges\]"),
        (Data(x=torch.ones(2, 1), edge_index=GOOD.float()), "torch.int64"),
        (Data(x=torch.ones(2, 1), edge_index=GOOD + 1), "from 1 to 2"),
        (Data(x=torch.ones(2, 1), edge_index=GOOD - 1), "from -1 to 0"),
        (Data(x=torch.tensor([[1.0], [float("nan")]]), edge_index=GOOD), "nan at node 1"),
        (Data(x=torch.tensor([[float("inf")], [0.0]]), edge_index=GOOD), "inf at node 0"),
        (HeteroData(), "HeteroData with nodes"),
    ],
)
def test_bad_graphs_are_named(data: Data, said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        Graph(data)


@st.composite
def odd_graphs(draw: st.DrawFn) -> Data:
    nodes = draw(st.integers(1, 8))
    ends = st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=12)
    edges = draw(ends)
    edges += [(b, a) for a, b in edges] if draw(st.booleans()) else []
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous()
    return Data(x=torch.arange(2.0 * nodes).reshape(nodes, 2), edge_index=edge_index)


@settings(max_examples=150, deadline=None)
@given(odd_graphs(), st.integers(0, 4))
def test_any_shape_of_graph_is_cut_and_packed(data: Data, hops: int) -> None:
    targets = NodeTargets(Graph(data))
    cuts = [targets.instance(node, hops) for node in range(len(targets))]
    packed = pack(cuts, unit_kinds(["edges", "features"]))
    assert packed.num_instances == data.num_nodes
    assert packed.units.count == sum(_check_units(data, cut) for cut in cuts)


def _check_units(data: Data, cut: Instance) -> int:
    """Check the edge units of a cut, and count all its units."""
    table = units_of(cut, unit_kinds(["edges"]))
    loops = cut.edge_index[0] == cut.edge_index[1]
    assert torch.equal(table.edges[0] < 0, loops)
    named = {tuple(p) for p in table.ids.tolist()}
    real = {tuple(e) if cut.directed else tuple(sorted(e)) for e in data.edge_index.t().tolist()}
    assert len(named) == table.count
    assert named <= real
    return table.count + int((cut.x != 0).sum())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8))
def test_edges_are_looked_up_by_their_ends(pairs: list[tuple[int, int]]) -> None:
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    every = [(u, v) for u in range(4) for v in range(4)]
    expected = [pairs.index(pair) if pair in pairs else -1 for pair in every]
    assert edge_positions(edge_index, torch.tensor(every).t(), 4).tolist() == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12), st.booleans(), st.randoms())
def test_a_graph_is_directed_if_some_edge_has_no_reverse(
    pairs: list[tuple[int, int]], mirrored: bool, order: random.Random
) -> None:
    pairs = pairs + [(v, u) for u, v in pairs] if mirrored else pairs
    order.shuffle(pairs)
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()
    assert _is_directed(edge_index, 6) == any((v, u) not in pairs for u, v in pairs)


# -- targets and keys --------------------------------------------------------------------------------------

DATA = random_graph(30, 45, seed=6)


def test_labels_come_along() -> None:
    graphs = [random_graph(6, 6, seed=s) for s in range(3)]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([number % 2])
    found = cf2.explain(GraphNet("gin"), graphs, effort="quick")
    assert [e.label for e in found] == [0, 1, 0]


keys = st.one_of(st.integers(0, 10**9), st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)))


@given(st.integers(0, 100), st.lists(keys, min_size=2, max_size=5, unique=True))
def test_every_key_has_its_own_stream(seed: int, keys: list[Key]) -> None:
    same_kind = [key for key in keys if isinstance(key, tuple) == isinstance(keys[0], tuple)]
    draws = [torch.rand(4, generator=stream(seed, key)).tolist() for key in same_kind]
    assert len({tuple(draw) for draw in draws}) == len(same_kind)
    assert draws[0] == torch.rand(4, generator=stream(seed, same_kind[0])).tolist()
    assert draws[0] != torch.rand(4, generator=stream(seed + 1, same_kind[0])).tolist()
