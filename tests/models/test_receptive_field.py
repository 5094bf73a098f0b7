"""Receptive fields are exact: the model says the same on the cut as on the whole graph, or the cut is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, SimpleConv

import cf2
from cf2.errors import CF2Error
from cf2.graphs.graph import Graph
from cf2.graphs.targets import GraphTargets, NodeTargets
from cf2.models import receptive_field
from cf2.models.predictor import Predictor
from cf2.models.receptive_field import ReceptiveField
from cf2.units.packs import pack
from toys import LAYERS, GraphNet, NodeNet, random_graph


def field_of(predictor: Predictor, data: Data) -> ReceptiveField:
    return ReceptiveField(predictor, NodeTargets(Graph(data)))


class Deep(NodeNet):
    """Two layers, and one that passes messages five times."""

    def __init__(self, seed: int) -> None:
        super().__init__("sum", layers=2, seed=seed)
        self.spread = APPNP(5, 0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.spread(super().forward(x, edge_index), edge_index)


class Backwards(torch.nn.Module):
    """Messages against the direction of the edges."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.first, self.second = (SimpleConv(aggr="sum", flow="target_to_source") for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


MODELS: dict[str, Callable[..., torch.nn.Module]] = {kind: partial(NodeNet, kind) for kind in LAYERS}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("make", [*MODELS.values(), Deep, Backwards], ids=[*MODELS, "deep", "backwards"])
def test_output_on_the_cut_equals_output_on_the_graph(make: Callable[..., torch.nn.Module], directed: bool) -> None:
    for seed in range(3):
        data, model = random_graph(80, 110, directed=directed, seed=seed), make(seed=seed).eval()
        with torch.no_grad():
            whole = model(data.x, data.edge_index).softmax(1)
        with Predictor(model, "node") as predictor:
            cuts = field_of(predictor, data).instances(range(80))
            alone = predictor.predict(pack(cuts))
        assert (alone - whole).abs().max() < 1e-5
        assert min(cut.x.size(0) for cut in cuts) < 20


class Sure(NodeNet):
    """One layer that can be counted and two hops that cannot; its probabilities are 0 and 1."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        states = super().forward(x, edge_index)
        far = states
        for _ in range(2):
            far = torch.zeros_like(far).index_add(0, edge_index[1], far[edge_index[0]])
        return (states + 1e-3 * far) * 1e6


def test_a_sure_model_is_compared_in_logits() -> None:
    """Its probabilities are 0 and 1 on every cut, and say nothing about how far it looks."""
    data, model = random_graph(60, 90, seed=5), Sure("sum", layers=1)
    with Predictor(model, "node") as predictor:
        near = [cut for cut in field_of(predictor, data).instances(range(60)) if cut.edge_index.numel()]
        assert set(predictor.predict(pack(near)).unique().tolist()) == {0.0, 1.0}
        assert field_of(predictor, data).reach.hops == 3


@pytest.mark.parametrize(("kind", "hops"), [("gcn", 3), ("sum", 2)])
def test_a_layer_that_reads_degrees_gets_a_further_hop_also_where_nothing_shows_that_it_needs_one(
    kind: str, hops: int
) -> None:
    """All that is measured lies in pairs of nodes, which one hop holds; of two layers, a third hop has degrees."""
    pairs = torch.arange(40).view(20, 2).t()
    data = Data(x=torch.randn(40, 4), edge_index=torch.cat([pairs, pairs.flip(0)], 1))
    with Predictor(NodeNet(kind, layers=2), "node") as predictor:
        assert field_of(predictor, data).reach.hops == hops


class Global(NodeNet):
    """Every node sees the mean of all."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x - 5 * x.mean(0), edge_index)


def test_a_model_that_looks_everywhere_is_given_the_whole_graph() -> None:
    data, model = random_graph(40, 60, seed=3), Global("sum")
    with Predictor(model, "node") as predictor:
        field = field_of(predictor, data)
        (cut,) = field.instances([7])
        assert field.reach.whole
        assert torch.equal(cut.x, data.x)
        assert torch.equal(cut.edge_index, data.edge_index)
        assert cut.targets == (7,)
        whole = model(data.x, data.edge_index).softmax(1)[[7, 7]]
        assert torch.allclose(predictor.predict(pack([cut, cut])), whole, atol=1e-5)


class Far(NodeNet):
    """One node, which no probe sees, mixes in something from five hops away."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = super().forward(x, edge_index)
        far = x
        for _ in range(5):
            far = torch.zeros_like(far).index_add(0, edge_index[1], far[edge_index[0]])
        return out + torch.where(x[:, :1] == 9.0, far[:, :3], 0.0)


@pytest.mark.parametrize("limit", [10**6, 0])
def test_a_cut_that_says_something_else_is_noticed_where_the_whole_graph_is_known(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two layers, 5 hops are 3 wider than the model was measured to look, and 4 are the widest that is tried."""
    monkeypatch.setattr(receptive_field, "FULL_CHECK_EDGES", limit)
    line = torch.stack([torch.arange(39), torch.arange(1, 40)])
    data = Data(x=torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), edge_index=line)
    data.x[20, 0] = 9.0
    model = Far("sum", layers=2)
    if limit:
        with pytest.raises(CF2Error, match=r"node 20 .* whole graph"):
            cf2.explain(model, data, nodes=[20])
    else:
        assert cf2.explain(model, data, nodes=[20])[0].key == 20  # a graph too large to compare with


def test_what_was_measured_once_is_measured_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_graph(30, 40, seed=1)
    with Predictor(NodeNet("gin"), "node") as predictor:
        known = field_of(predictor, data)
        first = known.instances([3])
        for name in ("_measure", "_whole_outputs"):
            monkeypatch.setattr(ReceptiveField, name, _fails)
        again = ReceptiveField(predictor, known.targets, known.reach).instances([3])
    assert torch.equal(first[0].node_ids, again[0].node_ids)


def _fails(*_: Any) -> None:
    raise AssertionError("measured again")


def test_a_graph_is_its_own_receptive_field() -> None:
    graphs = [random_graph(6, 6, seed=s) for s in range(3)]
    with Predictor(GraphNet("gin"), "graph") as predictor:
        cuts = ReceptiveField(predictor, GraphTargets(graphs)).instances([2, 0])
    assert [cut.key for cut in cuts] == [2, 0]
    assert torch.equal(cuts[0].edge_index, graphs[2].edge_index)
