"""The base models: their signatures, what edge weights mean, and what is refused."""

from __future__ import annotations

import inspect

import pytest
import torch

from cf2.errors import CF2Error
from cf2.samples.models import AGGREGATIONS, ARCHITECTURES, build

EDGES = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
X = torch.arange(15.0).view(5, 3) / 10


def make(arch="gcn", task="node", **settings):
    torch.manual_seed(0)
    return build(arch, task=task, num_features=3, num_classes=2, hidden=8, **settings).eval()


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("readout", ["last", "all"])
def test_logits_have_a_row_per_node_or_graph(arch, readout):
    assert make(arch, readout=readout)(X, EDGES).shape == (5, 2)
    graphs = make(arch, "graph", readout=readout, dense=3)
    assert graphs(X, EDGES).shape == (1, 2)
    assert graphs(X, EDGES, batch=torch.tensor([0, 0, 0, 1, 1])).shape == (2, 2)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("task", ["node", "graph"])
def test_only_the_gcn_takes_edge_weights(arch, task):
    names = list(inspect.signature(make(arch, task).forward).parameters)
    assert ("edge_weight" in names) == (arch == "gcn")
    assert ("batch" in names) == (task == "graph")


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_of_one_change_nothing_and_of_zero_remove_messages(aggregation):
    model = make(aggregation=aggregation)
    torch.testing.assert_close(model(X, EDGES), model(X, EDGES, torch.ones(6)))
    weight = torch.tensor([1.0, 1, 1, 1, 0, 0])
    torch.testing.assert_close(model(X, EDGES, weight), model(X, EDGES[:, :4]))


def test_sums_are_sums():
    model = make(aggregation="sum", layers=1)
    adjacency = torch.zeros(5, 5)
    adjacency[EDGES[1], EDGES[0]] = 1
    conv = model.convs[0]
    expected = model.head(torch.relu(adjacency @ X @ conv.lin.weight.t() + conv.bias))
    torch.testing.assert_close(model(X, EDGES), expected)


def test_symmetric_normalisation_has_no_self_loops():
    model = make(aggregation="symmetric", layers=1)
    adjacency = torch.zeros(5, 5)
    adjacency[EDGES[1], EDGES[0]] = 1
    scale = adjacency.sum(1).rsqrt()
    conv = model.convs[0]
    hidden = torch.relu((scale[:, None] * adjacency * scale) @ X @ conv.lin.weight.t() + conv.bias)
    torch.testing.assert_close(model(X, EDGES), model.head(hidden))
    alone = model(X, EDGES[:, :0])
    torch.testing.assert_close(alone, alone[:1].expand(5, 2))


def test_a_batch_of_graphs_equals_the_graphs_one_by_one():
    model = make(task="graph")
    both = model(X, EDGES, batch=torch.tensor([0, 0, 0, 1, 1]))
    torch.testing.assert_close(both[:1], model(X[:3], EDGES[:, :4]))
    torch.testing.assert_close(both[1:], model(X[3:], EDGES[:, 4:] - 3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"arch": "gcnn"}, "Did you mean 'gcn'"),
        ({"aggregation": "mean"}, "aggregation"),
        ({"readout": "first"}, "readout"),
        ({"task": "edge"}, "'node', 'graph', 'pair'"),
        ({"layers": 0}, "layers"),
        ({"dense": 0}, "dense"),
        ({"pool": "max"}, "pool"),
        ({"task": "pair", "num_edge_features": 2}, "one of 'graph'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(CF2Error, match=message):
        make(**settings)
