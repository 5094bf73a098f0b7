"""Equal rows are computed once: the same outputs with and without, for every layer, and off where it would not be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import test_matrix
from cf2.methods.contract import Problem
from cf2.models import equal_rows, predictor
from cf2.models.equal_rows import Colouring, EqualRows
from toys import random_graph

W = 6


class LastMessage(pyg.MessagePassing):
    """The order of messages counts."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
        return inputs.new_zeros(dim_size, inputs.size(1)).index_put((index,), inputs)


LAYERS: dict[str, Callable[[], nn.Module]] = {  # of node states alone
    **{name: partial(make, W, W) for name, make in test_matrix.LAYERS.items()},
    "heads side by side": lambda: pyg.GATConv(W, W // 2, heads=2),
    "max": lambda: pyg.SAGEConv(W, W, aggr="max", project=True),
    "beta": lambda: pyg.TransformerConv(W, W // 2, heads=2, beta=True),
    "simple, max": lambda: pyg.SimpleConv(aggr="max"),
    "last message": LastMessage,
}
EDGED: dict[str, Callable[[], nn.Module]] = {  # that read `edge_attr` [E, 3] as well
    "gine": lambda: pyg.GINEConv(nn.Linear(W, W), edge_dim=3),
    "gat with edges": lambda: pyg.GATConv(W, W, edge_dim=3),
    "nn": lambda: pyg.NNConv(W, W, nn.Linear(3, W * W)),
    "cg": lambda: pyg.CGConv(W, 3),
    "gmm": lambda: pyg.GMMConv(W, W, 3, 2),
    "transformer with edges": lambda: pyg.TransformerConv(W, W, edge_dim=3),
}
BETWEEN: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "in place": lambda: nn.ReLU(inplace=True),
    "dropout": lambda: nn.Sequential(nn.Dropout(), nn.ELU()),
    "batch norm": lambda: nn.BatchNorm1d(W).eval(),
    "layer norm": lambda: nn.LayerNorm(W),
    "over channels and nodes": lambda: pyg.LayerNorm(W, mode="graph"),  # each graph by itself, if it knows the batch
}
# With a step that is not known to go by rows.
KEPT_WHOLE = {"last message", "in place", "one's own", "none", "arma", "pna", "film", "agnn", "antisymmetric"}


class Net(nn.Module):
    """An embedding, two layers with something between them, and a sum of all that came before."""

    def __init__(self, layer: Callable[[], nn.Module], between: Callable[[], nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.convs = nn.Linear(4, W), nn.ModuleList([layer(), layer()])
        self.between, self.head = between(), nn.Linear(2 * W, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        h = start = self.first(x)
        for conv in self.convs:
            h = conv(h, edge_index) if edge_attr is None else conv(h, edge_index, edge_attr)
            own = (h, batch) if isinstance(self.between, pyg.LayerNorm) else (h,)
            h = 0.5 * self.between(*own) + h
        return 5 * self.head(pyg.global_mean_pool(torch.cat([h, h - start], 1), batch))


class EdgedNet(Net):
    """The same with features of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index, batch, edge_attr)


def graphs(edged: bool) -> list[Data]:
    """Graphs of few kinds of nodes and of edges, so that many have equal neighbourhoods."""
    made = [random_graph(9, 10, seed=seed) for seed in range(5)]
    for graph in made:
        graph.x = torch.eye(4)[torch.arange(9) % 3]
        ends = graph.edge_index.sum(0)
        graph.edge_attr = torch.eye(3)[ends % 2] if edged else None
    return made


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor, "MIN_WORK", 0)


CASES = [(layer, "relu") for layer in (*LAYERS, *EDGED)] + [("gcn", between) for between in BETWEEN]


@pytest.mark.parametrize(("layer", "between"), CASES)
def test_outputs_are_the_same_and_most_rows_are_not_computed(
    layer: str, between: str, always: None, problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    edged = layer in EDGED
    net = (EdgedNet if edged else Net)((EDGED | LAYERS)[layer], BETWEEN[between]).eval()
    problem = problem_of(net, graphs(edged), units="edges")
    findings = problem.predictor.findings
    assert findings is not None
    assert findings.equal_rows == ({layer, between}.isdisjoint(KEPT_WHOLE))
    levels: list[int] = []
    refine = Colouring.refine
    monkeypatch.setattr(
        Colouring, "refine", lambda own, names: (refine(own, names), levels.append(len(own.first[-1])))[0]
    )
    rows = torch.arange(5).repeat(8)
    states = torch.rand(len(rows), problem.oracle.width, generator=torch.Generator().manual_seed(1)) < 0.3
    given = problem.oracle.outputs(rows, states)
    assert (len(levels) > 1) == findings.equal_rows
    assert not levels or max(levels) < 9 * len(rows) / 2
    monkeypatch.setattr(predictor, "MIN_WORK", float("inf"))
    assert torch.allclose(given, problem.oracle.outputs(rows, states), atol=1e-5)


def test_colours_are_those_of_weisfeiler_and_leman() -> None:
    """Of a path, a star and a loop: nodes share a colour as long as they have the same neighbourhood so far."""
    x = torch.ones(9, 2)
    source = torch.tensor([0, 1, 1, 2, 2, 3, 4, 5, 4, 6, 4, 7, 8])
    target = torch.tensor([1, 0, 2, 1, 3, 2, 5, 4, 6, 4, 7, 4, 8])
    colouring = Colouring(x)
    for expected in ({(0, 3, 5, 6, 7, 8), (1, 2), (4,)}, {(0, 3), (5, 6, 7), (8,), (1, 2), (4,)}):
        colouring.pass_messages(source, target, [])
        last = colouring.index[-1].tolist()
        assert {tuple(n for n in range(9) if last[n] == colour) for colour in set(last)} == expected
        assert colouring.index[-1][colouring.first[-1]].tolist() == list(range(len(expected)))


def test_edges_with_other_values_give_other_colours() -> None:
    colouring = Colouring(torch.ones(4, 1))
    colouring.pass_messages(torch.tensor([0, 0]), torch.tensor([1, 2]), [torch.tensor([[0.5], [0.25]])])
    assert len(set(colouring.index[-1].tolist())) == 3


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.view(-1, 2),
        lambda x: x.view(len(x), -1, 2),
        lambda x: nn.functional.layer_norm(x, x.shape),
        lambda x: torch.clamp(x, min=torch.arange(12.0).view(6, 2)),
        lambda x: x + torch.arange(6.0)[:, None],
        lambda x: x.sum(0),
        lambda x: x.softmax(0),
        lambda x: x[torch.tensor([3, 3, 0])],
        lambda x: x[:, 1],
        lambda x: x.t() @ x,
        lambda x: torch.stack([x, x]).max(),
    ],
)
def test_steps_give_what_they_give_on_all_rows(step: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([[1.0, -2.0], [3.0, 4.0], [1.0, -2.0], [0.0, 1.0], [3.0, 4.0], [1.0, -2.0]])
    colouring = Colouring(x)
    lazy = EqualRows.of(x[colouring.first[0]], colouring, 0)
    assert len(lazy.rows) == 3
    found = step(lazy)
    assert torch.allclose(found.dense() if isinstance(found, EqualRows) else found, step(x))


def test_writing_into_rows_is_refused() -> None:
    colouring = Colouring(torch.ones(3, 2))
    lazy = EqualRows.of(torch.ones(1, 2), colouring, 0)
    for write in (lambda: lazy.relu_(), lambda: lazy.add_(1), lambda: nn.functional.relu(lazy, inplace=True)):
        with pytest.raises(equal_rows.NotByRows):
            write()


def test_a_verdict_shares_no_rows(
    always: None, problem_of: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = problem_of(Net(LAYERS["gcn"], BETWEEN["relu"]).eval(), graphs(edged=False), units="edges").oracle
    made: list[Colouring] = []
    monkeypatch.setattr(predictor, "Colouring", lambda x: made.append(Colouring(x)) or made[-1])
    oracle.checked(oracle.valid)
    assert not made
    oracle.outputs(torch.arange(5), oracle.valid)
    assert made
