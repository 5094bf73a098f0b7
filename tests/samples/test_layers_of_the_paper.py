"""The paper's layer is a scaled sum that torch_geometric's own explainers can mask."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCNConv

import cf2
from cf2.samples.models import ScaledSum, build

X = torch.arange(12.0).view(4, 3) / 10
EDGES = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 0]])


def test_it_is_a_plain_sum_times_a_constant() -> None:
    torch.manual_seed(0)
    layer, plain = ScaledSum(3, 2, 0.3), GCNConv(3, 2, normalize=False)
    plain.load_state_dict(layer.state_dict())
    weight = torch.rand(5)
    for given in (None, weight):
        assert torch.allclose(layer(X, EDGES, given), plain(0.3 * X, EDGES, given), atol=1e-6)
    assert torch.allclose(layer(X, EDGES, 0 * weight), layer(X, EDGES[:, :0]))


def test_gnnexplainer_of_torch_geometric_sees_its_edges() -> None:
    GCNConv(3, 2)  # a subclass of a layer that was used before could not be masked
    explainer = Explainer(
        ScaledSum(3, 2, 0.3),
        algorithm=GNNExplainer(epochs=2),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    mask = explainer(X, EDGES, index=0).edge_mask
    assert (mask > 0).tolist() == [False, False, False, True, True]


def test_three_layers_look_three_hops_far() -> None:
    model = build("gcn", task="node", num_features=3, num_classes=2, hidden=4, aggregation="sum", scale=0.3)
    path = torch.tensor([[node, node + 1] for node in range(7)]).t()
    data = Data(x=torch.rand(8, 3), edge_index=torch.cat([path, path.flip(0)], 1))
    (found,) = cf2.explain(model.eval(), data, nodes=[0], method="gradient", k=1)
    assert found.num_units == 3


def test_a_seed_gives_the_weights_that_a_gcn_layer_would_have() -> None:
    layers = []
    for make in (lambda: ScaledSum(3, 2, 0.3), lambda: GCNConv(3, 2, normalize=False)):
        torch.manual_seed(0)
        layers.append(make())
    assert torch.equal(layers[0].lin.weight, layers[1].lin.weight)
