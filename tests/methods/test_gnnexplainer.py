"""GNNExplainer on the packed engine is torch_geometric's GNNExplainer, one by one and all at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCNConv, GINConv
from torch_geometric.utils import barabasi_albert_graph

import cf2
from cf2.methods.contract import Problem
from cf2.methods.gnnexplainer import Settings, optimise_masks

TORCH_GEOMETRIC = {"epochs": 60, "lr": 0.05, "edge_entropy": 1.0, "edge_size": 0.005}


class Stack(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        make = {
            "gcn": lambda a, b: GCNConv(a, b),
            "gin": lambda a, b: GINConv(torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.ReLU())),
        }[kind]
        self.first, self.second, self.out = make(5, 12), make(12, 12), torch.nn.Linear(12, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        h = self.first(x, edge_index).relu()
        return self.out(self.second(h, edge_index).relu())


def graph() -> Data:
    seed_everything(0)  # torch_geometric draws the graph from numpy's global stream
    edge_index = barabasi_albert_graph(40, 2)
    x = torch.randn(40, 5)
    x[torch.rand(40, 5) < 0.2] = 0.0  # a zero entry is no unit
    return Data(x=x, edge_index=edge_index)


def theirs(model: torch.nn.Module, data: Data, node: int, features: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """torch_geometric's masks, with its own random start reproducible from the seed."""
    explainer = Explainer(
        model.eval(),
        GNNExplainer(epochs=60, lr=0.05),
        explanation_type="model",
        node_mask_type="attributes" if features else None,
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = explainer(data.x, data.edge_index, index=node)
    return found.edge_mask, found.get("node_mask")


def starts(data: Data, features: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The first logits that torch_geometric draws after the same seed: features, then edges."""
    torch.manual_seed(7)
    nodes, columns = data.x.shape
    entries = torch.randn(nodes, columns) * 0.1 if features else torch.zeros(nodes, columns)
    return torch.randn(data.edge_index.size(1)) * (2.0 / nodes) ** 0.5, entries


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_masks_are_those_of_torch_geometric(kind: str, features: bool, problem_of: Callable[..., Problem]) -> None:
    data, model = graph(), Stack(kind)
    kinds = ("edges", "features") if features else ("edges",)
    for node in (0, 7, 23):
        edge_mask, node_mask = theirs(model, data, node, features)
        edge_start, entry_start = starts(data, features)
        problem = problem_of(model, data, [node], units=kinds, directed=True, masking="messages")
        (table,) = problem.tables
        edges, entries = (table.ids[table.kind == place] for place in (0, 1))
        column = {tuple(pair): at for at, pair in enumerate(data.edge_index.t().tolist())}
        columns = torch.tensor([column[tuple(pair)] for pair in edges.tolist()])
        logits = torch.cat([edge_start[columns], entry_start[entries[:, 0], entries[:, 1]]])
        mask = optimise_masks(problem, Settings(**TORCH_GEOMETRIC), logits)
        assert torch.allclose(mask[: len(columns)], edge_mask[columns], atol=1e-4)
        outside = torch.ones(len(edge_mask), dtype=torch.bool)
        outside[columns] = False
        assert not edge_mask[outside].any()
        assert (edge_mask > 0).sum() > 3
        if features:
            assert node_mask is not None
            assert torch.allclose(mask[len(columns) :], node_mask[entries[:, 0], entries[:, 1]], atol=1e-4)


def test_weights_and_messages_are_two_ways_to_mask() -> None:
    """A GCN that normalises by degree sees a weight in the degree too, a masked message not."""
    data = graph()
    torch.manual_seed(2)
    model = _Weighted()
    by_weight, by_message = (
        cf2.explain(model, data, [7], method="gnnexplainer", epochs=20, masking=kind)[0]
        for kind in ("auto", "messages")
    )
    assert abs(by_weight.scores - by_message.scores).max() > 1e-3
    assert (by_message.scores == 0).sum() > (by_weight.scores == 0).sum()  # the outer hop matters by its degree only
    with pytest.raises(cf2.CF2Error, match="masking"):
        cf2.explain(model, data, [7], method="gnnexplainer", masking="massages")


class _Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(5, 8), GCNConv(8, 3)

    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


def test_settings_are_checked() -> None:
    data, model = graph(), Stack("gcn")
    with pytest.raises(cf2.CF2Error, match="not both"):
        cf2.explain(model, data, [0], method="gnnexplainer", k=3, threshold=0.5)
    with pytest.raises(cf2.CF2Error, match="edge_size"):
        cf2.explain(model, data, [0], method="gnnexplainer", edge_sise=1.0)
    (half,) = cf2.explain(model, data, [0], method="gnnexplainer", epochs=5)
    assert (half.selected == (half.scores > 0.5)).all()
