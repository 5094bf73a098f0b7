"""Computation graphs are exact, units are right, bad graphs are refused with a reason."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph

from cf2.computation import Computation
from cf2.errors import CF2Error
from cf2.instances import Graph, graph_instances
from cf2.packing import pack
from cf2.predictor import Predictor
from toys import LAYERS, NodeNet, random_graph


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_output_on_the_cut_equals_output_on_the_graph(kind: str, directed: bool) -> None:
    for seed in range(3):
        data = random_graph(80, 110, directed=directed, seed=seed)
        model = NodeNet(kind, seed=seed).eval()
        with torch.no_grad():
            whole = model(data.x, data.edge_index).softmax(1)
        with Predictor(model, "node") as predictor:
            cuts = Computation(predictor, Graph(data)).instances(range(80))
            alone = predictor.predict(pack(cuts))
        assert (alone - whole).abs().max() < 1e-5
        assert min(cut.x.size(0) for cut in cuts) < 80


def test_cut_holds_the_edges_that_matter_and_no_others() -> None:
    data = random_graph(60, 80, directed=True, seed=1)
    graph = Graph(data)
    for node in range(0, 60, 7):
        cut = graph.cut(node, 2)
        nodes, _, _, inside = k_hop_subgraph(node, 2, data.edge_index)
        assert torch.equal(cut.node_ids, nodes.sort().values)
        near = set(k_hop_subgraph(node, 1, data.edge_index)[0].tolist())
        expected = {tuple(e) for e in data.edge_index[:, inside].t().tolist() if e[1] in near}
        assert {tuple(e) for e in cut.node_ids[cut.edge_index].t().tolist()} == expected
        assert int(cut.node_ids[cut.target]) == node


def test_units_tie_directions_and_duplicates_and_leave_loops_alone() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2, 0, 1, 2], [1, 0, 2, 1, 1, 0, 2]])
    (instance,) = graph_instances([Data(x=torch.ones(3, 1), edge_index=edge_index)])
    assert not instance.directed
    assert instance.unit_edges.tolist() == [[0, 1], [1, 2]]
    assert instance.edge_unit.tolist() == [0, 0, 1, 1, 0, 0, -1]


def test_directed_graphs_keep_directions_apart() -> None:
    edge_index = torch.tensor([[0, 1, 1], [1, 0, 2]])
    (instance,) = graph_instances([Data(x=torch.ones(3, 1), edge_index=edge_index)])
    assert instance.directed
    assert instance.unit_edges.tolist() == [[0, 1], [1, 0], [1, 2]]
    (tied,) = graph_instances([Data(x=torch.ones(3, 1), edge_index=edge_index)], directed=False)
    assert tied.unit_edges.tolist() == [[0, 1], [1, 2]]


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
    graph = Graph(data)
    cuts = [graph.cut(node, hops) for node in range(graph.num_nodes)]
    packed = pack([*cuts], edges=True, features=True)
    assert packed.size == graph.num_nodes
    for cut in cuts:
        loops = cut.edge_index[0] == cut.edge_index[1]
        assert torch.equal(cut.edge_unit < 0, loops)
        named = {tuple(p) for p in cut.unit_edges.tolist()}
        real = {tuple(sorted(e)) if not cut.directed else tuple(e) for e in data.edge_index.t().tolist()}
        assert len(named) == cut.num_edge_units
        assert named <= real
        assert int(packed.units.sum()) == packed.num_units
