"""The torch_geometric drop-in: arguments of models, what torch_geometric does with a result, refusals."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.explain import Explanation
from torch_geometric.explain.metric import fidelity
from torch_geometric.nn import GIN, GCNConv, global_add_pool

import cf2
from cf2.errors import CF2Error
from cf2.pyg import CF2Explainer, CFGNNExplainer, VerifiedExplanation
from pyg_toys import make_explainer, make_graph, make_model

# -- arguments of the model --------------------------------------------------------------------------------


class Arguments(torch.nn.Module):
    """Takes arguments of every kind: of nodes, of edges, of graphs, and constants."""

    def __init__(self, level: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv, self.level = GCNConv(4, 3, normalize=False), level
        self.last = torch.nn.Linear(3, 3)
        self.seen: list[set[str]] = []

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        **further: Any,
    ) -> Tensor:
        self.seen.append({name for name, value in further.items() if value is not None})
        h = self.last(self.conv(x + further["y"], edge_index, edge_weight * further["strength"]).relu())
        if self.level == "node":
            return h * further["scale"]
        return (global_add_pool(h, batch) + further["shift"]) * further["scale"]


@pytest.mark.parametrize("level", ["node", "graph"])
def test_arguments_reach_the_model_in_their_places(level: str) -> None:
    model = Arguments(level).eval()
    graphs = [make_graph(0, 12), make_graph(1, 7)]
    data = Batch.from_data_list(graphs) if level == "graph" else graphs[0]
    draw = torch.Generator().manual_seed(0)
    given: dict[str, Any] = {
        "edge_weight": torch.rand(data.num_edges, generator=draw) + 0.5,
        "strength": torch.rand(data.num_edges, generator=draw) + 0.5,  # of edges, under a name that does not say so
        "y": torch.randn(data.num_nodes, 4, generator=draw),  # of nodes, under a name that Data uses for labels
        "scale": 2.0,
    }
    if level == "graph":
        given |= {"batch": data.batch, "shift": torch.randn(2, 3, generator=draw)}
    explain = make_explainer(model, level)
    found = explain(data.x, data.edge_index, index=torch.tensor([0, 1]), **given)
    assert all(names == set(given) - {"edge_weight", "batch"} for names in model.seen)
    truth = model(data.x, data.edge_index, **given).softmax(-1)
    for part in found.each():
        (one,) = part.cf2
        assert torch.allclose(torch.from_numpy(one.probabilities), truth[one.key], atol=1e-5)
        keep = part.edge_mask > 0
        cut = {k: v[keep] if k in ("edge_weight", "strength") else v for k, v in given.items()}
        only = model(data.x, data.edge_index[:, keep], **cut)
        assert torch.allclose(torch.from_numpy(one.probabilities_only), only.softmax(-1)[one.key], atol=1e-5)
    assert fidelity(explain, found.each()[1])[0] == float(found.each()[1].necessary)


def test_an_argument_of_graphs_is_not_taken_for_one_of_edges() -> None:
    """There are as many graphs as columns of `edge_index`, and two graphs of one node."""
    model = Arguments("graph").eval()
    draw = torch.Generator().manual_seed(0)
    x, edge_index = torch.randn(6, 4, generator=draw), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    given = {
        "batch": torch.tensor([0, 0, 1, 1, 2, 3]),
        "shift": torch.randn(4, 3, generator=draw),
        "edge_weight": torch.ones(4),
        "strength": 1.0,
        "y": torch.zeros(6, 4),
        "scale": 1.0,
    }
    truth = model(x, edge_index, **given).softmax(-1)
    for one in make_explainer(model, "graph")(x, edge_index, **given).cf2:
        assert torch.allclose(torch.from_numpy(one.probabilities), truth[one.key], atol=1e-5)


def test_weights_that_a_model_takes_and_drops_do_not_hide_the_masks() -> None:
    """torch_geometric's own GIN has an argument `edge_weight` that changes nothing."""
    torch.manual_seed(1)
    model, data = GIN(4, 8, 2, 3).eval(), make_graph(1)
    algorithm = CFGNNExplainer(soft=True)
    found = make_explainer(model, "node", algorithm=algorithm)(data.x, data.edge_index, index=3)
    start = make_explainer(model, "node", algorithm=CFGNNExplainer(epochs=1, beta=0.0, soft=True))
    assert len(found.edge_mask.unique()) > 2
    assert found.necessary
    assert not torch.allclose(found.edge_mask, start(data.x, data.edge_index, index=3).edge_mask, atol=0.05)


def test_an_output_that_depends_on_the_rest_of_the_batch_is_refused() -> None:
    class Mixing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_model("gin", "graph")

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            h = self.inner(x, edge_index, batch)
            return 10 * (h - h.mean(0)) if len(h) == 2 else torch.tensor([[0.0, 0.0, 9.0]]).repeat(len(h), 1)

    twice = Batch.from_data_list([make_graph(0), make_graph(1)])
    model = Mixing()
    assert int(model(twice.x, twice.edge_index, twice.batch)[0].argmax()) != 2
    with pytest.raises(CF2Error, match="when run alone as well"):
        make_explainer(model, "graph")(twice.x, twice.edge_index, batch=twice.batch, index=0)


# -- what torch_geometric does with it ---------------------------------------------------------------------


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("node_mask", [None, "attributes", "object"])
@pytest.mark.parametrize("seed", range(3))
def test_fidelity_is_the_verdict_where_a_zero_message_is_no_message(
    level: str, node_mask: str | None, seed: int
) -> None:
    model, data = make_model("gin", level, seed=seed), make_graph(seed)
    explain = make_explainer(model, level, node_mask_type=node_mask)
    found = explain(data.x, data.edge_index, index=2 if level == "node" else None)
    assert fidelity(explain, found) == (float(found.necessary), float(not found.sufficient))


@pytest.mark.parametrize("node_mask", [None, "attributes", "object", "common_attributes"])
def test_subgraphs_keep_the_explanation(node_mask: str | None) -> None:
    model, data = make_model("gin", "node", seed=4), make_graph(4)
    found = make_explainer(model, "node", node_mask_type=node_mask)(data.x, data.edge_index, index=torch.tensor([3, 6]))
    inside, outside = found.get_explanation_subgraph(), found.get_complement_subgraph()
    assert isinstance(inside, VerifiedExplanation)
    assert inside.num_edges == int(found.edge_mask.sum()) == inside.edge_masks.any(1).sum()
    assert inside.num_edges + outside.num_edges == data.num_edges
    assert inside.validate_masks()
    assert inside.num_edges > 0
    with pytest.raises(CF2Error, match="whole graph"):
        inside.each()


def test_pictures(tmp_path: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    data = make_graph(4)
    explain = make_explainer(make_model("gin", "graph", seed=4), "graph", node_mask_type="attributes")
    found = explain(data.x, data.edge_index)
    ones = torch.ones(data.num_edges)
    for name, value in {"set": found.edge_mask, "all": ones, "none": 0 * ones}.items():
        found.edge_mask = value
        found.visualize_graph(str(tmp_path / f"{name}.png"), backend="networkx")
    found.visualize_feature_importance(str(tmp_path / "features.png"))
    sizes = {path.stem: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes["none"] < sizes["set"] < sizes["all"]
    assert "features" in sizes


def test_the_result_survives_copying_saving_and_thresholds(tmp_path: Any) -> None:
    data = make_graph()
    explain = make_explainer(make_model("gcn", "node"), "node", threshold_config={"threshold_type": "topk", "value": 2})
    found = explain(data.x, data.edge_index, index=torch.tensor([1, 2]))
    assert int((found.edge_mask > 0).sum()) <= 2
    torch.save(found, tmp_path / "found.pt")
    for other in (copy.copy(found), found.clone(), found.cpu(), torch.load(tmp_path / "found.pt", weights_only=False)):
        assert isinstance(other, Explanation)
        assert isinstance(other.cf2, cf2.Explanations)
        assert [one.key for one in other.cf2] == [1, 2]
        assert torch.equal(other.each()[1].edge_mask, found.each()[1].edge_mask)


# -- refusals ----------------------------------------------------------------------------------------------


def test_heterogeneous_graphs_are_refused() -> None:
    algorithm = CF2Explainer()
    make_explainer(make_model("gcn", "node"), "node", algorithm=algorithm)
    data = make_graph()
    with pytest.raises(CF2Error, match="homogeneous"):
        algorithm(make_model("gcn", "node"), {"a": data.x}, {("a", "to", "a"): data.edge_index}, target=torch.zeros(12))
