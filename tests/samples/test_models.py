"""The base models: their signatures, what edge weights mean, what is refused, and the paper's layer."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCNConv

from cf2.errors import CF2Error
from cf2.samples.models import AGGREGATIONS, ARCHITECTURES, build

EDGES = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
X = torch.arange(15.0).view(5, 3) / 10
ADJACENCY = torch.zeros(5, 5).index_put_((EDGES[1], EDGES[0]), torch.tensor(1.0))


def make(arch: str = "gcn", task: str = "node", **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    return build(arch, task=task, num_features=3, num_classes=2, hidden=8, **settings).eval()


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("readout", ["last", "all"])
def test_logits_have_a_row_per_node_or_graph_and_only_the_gcn_takes_edge_weights(arch: str, readout: str) -> None:
    nodes, graphs = make(arch, readout=readout), make(arch, "graph", readout=readout, dense=3)
    assert nodes(X, EDGES).shape == (5, 2)
    assert graphs(X, EDGES).shape == (1, 2)
    assert graphs(X, EDGES, batch=torch.tensor([0, 0, 0, 1, 1])).shape == (2, 2)
    for model, takes_batch in ((nodes, False), (graphs, True)):
        names = list(inspect.signature(model.forward).parameters)
        assert ("edge_weight" in names) == (arch == "gcn")
        assert ("batch" in names) == takes_batch


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_of_one_change_nothing_and_of_zero_remove_messages(aggregation: str) -> None:
    model = make(aggregation=aggregation)
    torch.testing.assert_close(model(X, EDGES), model(X, EDGES, torch.ones(6)))
    weight = torch.tensor([1.0, 1, 1, 1, 0, 0])
    torch.testing.assert_close(model(X, EDGES, weight), model(X, EDGES[:, :4]))


def test_sums_are_sums_and_symmetric_normalisation_has_no_self_loops() -> None:
    scale = ADJACENCY.sum(1).rsqrt()
    normalised = scale[:, None] * ADJACENCY * scale
    for aggregation, matrix in (("sum", ADJACENCY), ("symmetric", normalised)):
        model = make(aggregation=aggregation, layers=1)
        (conv,) = model.convs  # type: ignore[misc, union-attr]
        expected = model.head(torch.relu(matrix @ X @ conv.lin.weight.t() + conv.bias))  # type: ignore[operator]
        torch.testing.assert_close(model(X, EDGES), expected)
    alone = model(X, EDGES[:, :0])
    torch.testing.assert_close(alone, alone[:1].expand(5, 2))


def test_a_batch_of_graphs_equals_the_graphs_one_by_one() -> None:
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
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CF2Error, match=message):
        make(**settings)


# -- the paper's layer ----------------------------------------------------------------------------------------


def test_it_is_a_plain_sum_times_a_constant_with_the_weights_of_a_gcn() -> None:
    scaled, plain = (make(aggregation="sum", layers=1, scale=scale) for scale in (0.3, 1.0))
    assert all(torch.equal(a, b) for a, b in zip(scaled.state_dict().values(), plain.state_dict().values()))
    weight = torch.rand(6)
    for given in (None, weight):
        assert torch.allclose(scaled(X, EDGES, given), plain(0.3 * X, EDGES, given), atol=1e-6)
    pairs = make(task="pair", aggregation="sum", layers=1, scale=0.3)
    assert torch.allclose(pairs(X, EDGES, EDGES), make(task="pair", aggregation="sum", layers=1)(0.3 * X, EDGES, EDGES))


def test_gnnexplainer_of_torch_geometric_sees_its_edges() -> None:
    GCNConv(3, 2)  # a subclass of a layer that was used before could not be masked
    explainer = Explainer(
        make(aggregation="sum", layers=1, scale=0.3),
        algorithm=GNNExplainer(epochs=2),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    mask = explainer(X, EDGES, index=1).edge_mask
    assert (mask > 0).tolist() == [True, False, False, True, False, False]
