"""Every kind of layer, directed or not, with sure and very sure logits: each verdict is true of the *full* graph.

The check shares nothing with the package: it takes the chosen edges out of the whole `edge_index` and runs the model.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import degree

import cf2
from toys import InTurn


def mlp(inside: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inside, 6), nn.ReLU(), nn.Linear(6, out))


class Normalised(pyg.MessagePassing):
    """A layer of one's own that divides by the degree of the node that a message comes from."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__(aggr="add")
        self.linear = nn.Linear(inside, out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        share = 1 / degree(edge_index[1], x.size(0)).clamp(min=1)
        return self.propagate(edge_index, x=self.linear(x) * share[:, None]) + self.linear(x)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


def then(*steps: object) -> nn.Module:
    """Modules one after the other; those of torch_geometric are handed the edges too."""
    passes = [(step, "x, e -> x" if isinstance(step, pyg.MessagePassing) else "x -> x") for step in steps]
    return InTurn("x, e", passes)  # type: ignore[arg-type]


PLAIN = """GCNConv SAGEConv GraphConv GATv2Conv TransformerConv MFConv LEConv GENConv ClusterGCNConv ResGatedGraphConv
    FiLMConv SuperGATConv"""
LAYERS: dict[str, Callable[[int, int], nn.Module]] = {name: getattr(pyg, name) for name in PLAIN.split()} | {
    "GCNConv sum": lambda i, o: pyg.GCNConv(i, o, normalize=False),
    "ChebConv": lambda i, o: pyg.ChebConv(i, o, K=3),
    "GATConv": lambda i, o: pyg.GATConv(i, o, heads=2, concat=False),
    "AGNNConv": lambda i, o: then(pyg.AGNNConv(), nn.Linear(i, o)),
    "TAGConv": lambda i, o: pyg.TAGConv(i, o, K=2),
    "GINConv": lambda i, o: pyg.GINConv(mlp(i, o)),
    "ARMAConv": lambda i, o: pyg.ARMAConv(i, o, num_stacks=2, num_layers=2),
    "SGConv": lambda i, o: pyg.SGConv(i, o, K=2),
    "SSGConv": lambda i, o: pyg.SSGConv(i, o, alpha=0.2, K=2),
    "APPNP": lambda i, o: then(nn.Linear(i, o), pyg.APPNP(2, 0.1)),
    "EdgeConv": lambda i, o: pyg.EdgeConv(mlp(2 * i, o)),
    "FeaStConv": lambda i, o: pyg.FeaStConv(i, o, heads=2),
    "PNAConv": lambda i, o: pyg.PNAConv(i, o, ["mean", "max"], ["identity", "amplification"], torch.tensor([1, 4, 5])),
    "FAConv": lambda i, o: Faithful(i, o),
    "LGConv": lambda i, o: then(nn.Linear(i, o), pyg.LGConv()),
    "MixHopConv": lambda i, o: then(pyg.MixHopConv(i, o), nn.Linear(3 * o, o)),
    "one's own": Normalised,
}


class Faithful(nn.Module):
    """FAConv, which needs its first input as well."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.linear, self.conv = nn.Linear(inside, out), pyg.FAConv(out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.linear(x)
        return self.conv(x, x, edge_index)


class Net(nn.Module):
    """Two layers of a kind; the logits are scaled, so that their probabilities saturate."""

    def __init__(self, make: Callable[[int, int], nn.Module], scale: float) -> None:
        super().__init__()
        self.first, self.second, self.scale = make(4, 6), make(6, 3), scale

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index) * self.scale


def graph(directed: bool) -> Data:
    made = torch.Generator().manual_seed(7)
    pairs = torch.randint(30, (2, 34), generator=made)
    pairs = pairs[:, pairs[0] != pairs[1]]
    edge_index = pairs if directed else torch.cat([pairs, pairs.flip(0)], 1)
    return Data(x=torch.randn(30, 4, generator=made), edge_index=edge_index)


def wrong_verdicts(model: nn.Module, data: Data, e: cf2.Explanation) -> list[str]:
    """Which of an explanation's verdicts are false on the full graph; a tie of two classes decides nothing."""
    chosen = {tuple(pair) for pair in e.edges.tolist()}
    inside = torch.tensor([tuple(pair) in chosen for pair in data.edge_index.t().tolist()])
    wrong = []
    for name, verdict, stay in (("sufficient", e.sufficient, inside), ("necessary", not e.necessary, ~inside)):
        with torch.no_grad():
            row = model(data.x, data.edge_index[:, stay])[e.key].double()
        best = row.topk(2).values
        decided = float(best[0] - best[1]) > 1e-5 * float(best.abs().max() + 1)
        if decided and (int(row.argmax()) == e.prediction) != verdict:
            wrong.append(f"{name} of node {e.key}")
    return wrong


SOME = {1.0: ["random"], 100.0: ["random"], 1e4: ["cf2", "random"]}
ALL = {scale: ["cf2", "random", "gradient"] for scale in (1.0, 100.0, 1e4)}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("step", "effort", "methods"), [(10, "quick", SOME), pytest.param(1, "standard", ALL, marks=pytest.mark.slow)]
)
def test_verdicts_are_true_of_the_full_graph(
    kind: str, directed: bool, step: int, effort: str, methods: dict[float, list[str]]
) -> None:
    data, wrong = graph(directed), []
    for scale, names in methods.items():
        torch.manual_seed(3)
        model = Net(LAYERS[kind], scale).eval()
        for name in names:
            settings = {"effort": effort, "epochs": 3} if name == "cf2" else {"k": 3}
            for e in cf2.explain(model, data, nodes=range(0, 30, step), method=name, **settings):
                wrong += wrong_verdicts(model, data, e)
    assert wrong == []
