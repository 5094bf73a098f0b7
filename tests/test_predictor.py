"""Soft masks and real removal agree where they must, every kind of output works, and the model is left alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv

import cf2
from cf2.computation import Computation
from cf2.errors import CF2Error
from cf2.instances import Graph
from cf2.packing import Pack, pack
from cf2.predictor import Predictor
from toys import LAYERS, GraphNet, NodeNet, WeightedNet, model_state, random_graph, same_state

DATA = random_graph(40, 60, seed=3)


def packed(predictor: Predictor, nodes: range = range(10), **units: bool) -> Pack:
    return pack(Computation(predictor, Graph(DATA)).instances(nodes), **units)


@pytest.mark.parametrize("kind", LAYERS)
def test_full_masks_change_nothing(kind: str) -> None:
    with Predictor(NodeNet(kind), "node") as predictor:
        whole = packed(predictor, features=True)
        truth = predictor.predict(whole)
        every = torch.ones(whole.num_units)
        with predictor.masked(whole) as probabilities:
            assert torch.allclose(probabilities(every), truth, atol=1e-6)
        assert torch.allclose(predictor.removed(whole, every.bool()), truth, atol=1e-6)


@pytest.mark.parametrize("make", [lambda: NodeNet("sum"), lambda: NodeNet("gin"), lambda: WeightedNet("gcn")])
def test_zero_masks_are_removals_where_the_layer_makes_them_so(make: object) -> None:
    with Predictor(make(), "node") as predictor:  # type: ignore[operator]
        whole = packed(predictor, features=True)
        predictor.predict(whole)
        keep = torch.rand(whole.num_units, generator=torch.Generator().manual_seed(0)) > 0.5
        with predictor.masked(whole) as probabilities:
            assert torch.allclose(probabilities(keep.float()), predictor.removed(whole, keep), atol=1e-5)


def test_removal_is_the_model_on_the_smaller_graph() -> None:
    model = NodeNet("gat").eval()
    (edge,) = {tuple(sorted(e)) for e in DATA.edge_index.t().tolist() if e[0] != e[1] and 5 in e} and [
        next(tuple(sorted(e)) for e in DATA.edge_index.t().tolist() if e[0] != e[1] and 5 in e)
    ]
    stay = [tuple(sorted(e)) != edge for e in DATA.edge_index.t().tolist()]
    with torch.no_grad():
        expected = model(DATA.x, DATA.edge_index[:, stay]).softmax(1)[5]
    with Predictor(model, "node") as predictor:
        instance = Computation(predictor, Graph(DATA)).instances([5])
        whole = pack(instance)
        keep = torch.tensor([tuple(pair) != edge for pair in instance[0].unit_edges.tolist()])
        assert torch.allclose(predictor.removed(whole, keep)[0], expected, atol=1e-6)


class Out(nn.Module):
    """One GCN layer whose output is made into what is asked for."""

    def __init__(self, finish: object, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.finish = GCNConv(4, classes), finish

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.finish(self.conv(x, edge_index))  # type: ignore[operator]


@pytest.mark.parametrize("finish", [lambda z: z, lambda z: z.softmax(1), lambda z: z.log_softmax(1)])
def test_logits_probabilities_and_logs_mean_the_same(finish: object) -> None:
    with Predictor(Out(finish), "node") as predictor, Predictor(Out(lambda z: z), "node") as plain:
        assert torch.allclose(predictor.predict(packed(predictor)), plain.predict(packed(plain)), atol=1e-6)


def test_one_logit_means_two_classes() -> None:
    with Predictor(Out(lambda z: 5 * z, 1), "node") as predictor:
        P = predictor.predict(packed(predictor))
    assert P.shape == (10, 2)
    assert torch.allclose(P.sum(1), torch.ones(10))
    flat = cf2.explain(Out(lambda z: 5 * z[:, 0], 1), DATA, nodes=[1])
    assert flat[0].prediction in (0, 1)


def test_one_number_between_0_and_1_needs_a_word() -> None:
    model = Out(lambda z: z.sigmoid(), 1)
    with pytest.raises(CF2Error, match='output="probabilities"'):
        cf2.explain(model, DATA, nodes=[1])
    assert cf2.explain(model, DATA, nodes=[1], output="probabilities")[0].probabilities.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("finish", "said"),
    [
        (lambda z: z[:3], "one row a node"),
        (lambda z: z * float("nan"), "finite model outputs"),
        (lambda z: (z, z), "return a tensor"),
        (lambda z: z[:, :1].softmax(1), "at least two classes"),
        (lambda z: z.reshape(-1, 1, 3), "one row a node"),
    ],
)
def test_wrong_outputs_are_named(finish: object, said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        cf2.explain(Out(finish), DATA, nodes=[1])


def test_a_model_without_messages_is_refused() -> None:
    class Dense(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x

    with pytest.raises(CF2Error, match="no layer can be masked"):
        cf2.explain(Dense(), DATA, nodes=[0])


def test_a_model_that_looks_everywhere_is_refused() -> None:
    class Global(NodeNet):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x - 5 * x.mean(0), edge_index)

    with pytest.raises(CF2Error, match=r"whole graph|looks further"):
        cf2.explain(Global("sum"), DATA, nodes=[0])


class Cached(NodeNet):
    """GCN layers with a cached normalisation and dropout."""

    def __init__(self) -> None:
        super().__init__("gcn")
        for conv in self.convs:
            conv.cached = True

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(x, 0.5, self.training), edge_index)


@pytest.mark.parametrize("method", ["cf2", "cf2-relaxed"])
@pytest.mark.parametrize("make", [lambda: NodeNet("gat"), lambda: WeightedNet("gcn"), Cached])
def test_model_data_and_random_state_are_as_before(make: object, method: str) -> None:
    model = make().train()  # type: ignore[operator]
    model.convs[1].eval()
    model.convs[0].lin.weight.grad = (
        torch.ones_like(model.convs[0].lin.weight) if hasattr(model.convs[0], "lin") else None
    )
    before, data, state, threads = model_state(model), DATA.clone(), torch.get_rng_state(), torch.get_num_threads()
    cf2.explain(model, DATA, nodes=[0, 1], method=method, epochs=5)
    assert same_state(before, model_state(model))
    assert torch.equal(data.x, DATA.x)
    assert torch.equal(data.edge_index, DATA.edge_index)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_model_is_as_before_after_a_failure() -> None:
    class Fails(NodeNet):
        calls = 0

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            Fails.calls += 1
            if Fails.calls > 12:
                raise RuntimeError("out of luck")
            return super().forward(x, edge_index)

    model = Fails("gcn").train()
    before = model_state(model)
    with pytest.raises(CF2Error, match="out of luck"):
        cf2.explain(model, DATA, nodes=[0, 1])
    assert same_state(before, model_state(model))


def test_a_graph_classifier_needs_batch() -> None:
    with pytest.raises(CF2Error, match="batch"):
        cf2.explain(NodeNet("gcn"), [DATA])


def test_a_model_may_take_a_data_object() -> None:
    class Whole(GraphNet):
        def forward(self, data: Data) -> Tensor:
            return super().forward(data.x, data.edge_index, data.batch)

    graphs = [random_graph(6, 6, seed=s) for s in range(3)]
    one = cf2.explain(Whole("gin"), graphs)
    other = cf2.explain(GraphNet("gin"), graphs)
    assert [e.selected.tolist() for e in one] == [e.selected.tolist() for e in other]


def test_wide_sparse_features_give_the_dense_answer() -> None:
    data = random_graph(30, 45, features=700, seed=2)
    data.x = (data.x > 2.0).float()
    model = NodeNet("gcn", features=700)
    with Predictor(model, "node") as predictor:
        instances = Computation(predictor, Graph(data)).instances(range(5))
        whole = pack(instances, features=True)
        truth = predictor.predict(whole)
        keep = torch.rand(whole.num_units, generator=torch.Generator().manual_seed(1)) > 0.3
        assert predictor._sparse
        quick = predictor.removed(whole, keep)
        with predictor.masked(whole) as probabilities:
            soft = probabilities(torch.ones(whole.num_units))
        predictor._sparse = False
        assert torch.allclose(quick, predictor.removed(whole, keep), atol=1e-5)
        assert torch.allclose(soft, truth, atol=1e-5)


def test_layers_that_pass_messages_several_times_are_seen_through() -> None:
    class Deep(NodeNet):
        def __init__(self) -> None:
            super().__init__("sum", layers=2)
            self.spread = APPNP(5, 0.1)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.spread(super().forward(x, edge_index), edge_index)

    data = random_graph(60, 62, seed=7)
    model = Deep().eval()
    with torch.no_grad():
        whole = model(data.x, data.edge_index).softmax(1)
    found = cf2.explain(model, data, nodes=[0, 9, 30], effort="quick")
    for e in found:
        assert torch.allclose(torch.from_numpy(e.probabilities), whole[e.key], atol=1e-5)


def test_an_edge_weight_that_the_model_drops_is_not_relied_on() -> None:
    class Drops(NodeNet):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            return super().forward(x, edge_index)

    options = {"nodes": [1, 5, 9], "method": "cf2-relaxed", "epochs": 20}
    one, other = (cf2.explain(kind("gin"), DATA, **options) for kind in (Drops, NodeNet))
    assert all((a.scores == b.scores).all() for a, b in zip(one, other))


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_here_is_named(device: str) -> None:
    with pytest.raises(CF2Error, match="device"):
        cf2.explain(NodeNet("gcn"), DATA, nodes=[0], device=device)
