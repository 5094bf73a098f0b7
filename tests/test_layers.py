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
from test_claims_fuzz import CONVS, FIRST_CONVS


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


# Layers of the fuzzer, which draws a few in every run; torch_geometric's median fails on nodes without neighbours.
LAYERS = {name: CONVS[name] for name in [*list(CONVS)[:FIRST_CONVS], "fa"] if name != "sage median"}
LAYERS["one's own"] = Normalised


class Net(nn.Module):
    """Two layers of a kind; the logits are scaled, so that their probabilities saturate."""

    def __init__(self, make: Callable[[int, int], nn.Module], scale: float) -> None:
        super().__init__()
        self.first, self.second, self.scale = make(4, 6), make(6, 4), scale

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
            if (kind, name) == ("none", "gradient"):
                continue  # it has no layer in which edges could be masked softly, and is refused
            settings = {"effort": effort, "epochs": 3} if name == "cf2" else {"k": 3}
            for e in cf2.explain(model, data, nodes=range(0, 30, step), method=name, **settings):
                wrong += wrong_verdicts(model, data, e)
    assert wrong == []
