"""Soft masks and real removal agree where they must, every kind of output works, and the model is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import cf2
from cf2.errors import CF2Error
from cf2.graphs.graph import Graph
from cf2.graphs.targets import NodeTargets
from cf2.models.predictor import Predictor
from cf2.models.receptive_field import ReceptiveField
from cf2.units.kinds import unit_kinds, units_of
from cf2.units.packs import Pack, pack
from toys import LAYERS, NodeNet, WeightedNet, edited, model_state, probabilities, random_graph, same_state

DATA = random_graph(40, 60, seed=3)
BOTH = ("edges", "features")


def packed(predictor: Predictor, *units: str, data: Data = DATA, nodes: range = range(10)) -> Pack:
    field = ReceptiveField(predictor, NodeTargets(Graph(data)))
    return pack(field.instances(nodes), unit_kinds(units or ("edges",)))


@pytest.mark.parametrize("kind", LAYERS)
def test_full_masks_change_nothing(kind: str) -> None:
    with Predictor(NodeNet(kind), "node") as predictor:
        whole = packed(predictor, *BOTH)
        truth = predictor.predict(whole)
        every = torch.ones(whole.units.count)
        with predictor.soft(whole) as run:
            assert torch.allclose(run(every), truth, atol=1e-6)
        assert torch.allclose(predictor.hard(whole, every.bool()), truth, atol=1e-6)


@pytest.mark.parametrize("make", [lambda: NodeNet("sum"), lambda: NodeNet("gin"), lambda: WeightedNet("gcn")])
def test_zero_masks_are_removals_where_the_layer_makes_them_so(make: object) -> None:
    with Predictor(make(), "node") as predictor:  # type: ignore[operator]
        whole = packed(predictor, *BOTH)
        predictor.predict(whole)
        keep = torch.rand(whole.units.count, generator=torch.Generator().manual_seed(0)) > 0.5
        with predictor.soft(whole) as run:
            assert torch.allclose(run(keep.float()), predictor.hard(whole, keep), atol=1e-5)


def test_removal_is_the_model_on_the_smaller_graph() -> None:
    model = NodeNet("gat")
    with Predictor(model, "node") as predictor:
        (instance,) = ReceptiveField(predictor, NodeTargets(Graph(DATA))).instances([5])
        whole, units = pack([instance]), units_of(instance, unit_kinds(["edges"])).ids.tolist()
        predictor.predict(whole)
        for gone in range(len(units)):
            expected = probabilities(model, edited(DATA, [("edges", tuple(units[gone]))]), 5)
            assert torch.allclose(predictor.hard(whole, torch.arange(len(units)) != gone)[0], expected, atol=1e-6)


def test_a_removal_inside_of_a_soft_pass_is_a_real_one() -> None:
    """The search asks for removals while soft masks are on the layers."""
    with Predictor(NodeNet("gat"), "node") as predictor:
        whole = packed(predictor)
        predictor.predict(whole)
        keep = torch.arange(whole.units.count) % 3 > 0
        alone = predictor.hard(whole, keep)
        with predictor.soft(whole) as run:
            half = run(torch.full((whole.units.count,), 0.5))
            assert torch.equal(predictor.hard(whole, keep), alone)
            assert torch.equal(run(torch.full((whole.units.count,), 0.5)), half)


class Out(nn.Module):
    """One GCN layer whose output is made into what is asked for."""

    def __init__(self, finish: object, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.finish = GCNConv(4, classes), finish

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.finish(self.conv(x, edge_index))  # type: ignore[operator]


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
        (lambda z: z[:3], "one row per node"),
        (lambda z: z * float("nan"), "finite model outputs"),
        (lambda z: (z, z), "return a tensor"),
        (lambda z: z[:, :1].softmax(1), "at least two classes"),
        (lambda z: z.reshape(-1, 1, 3), "one row per node"),
    ],
)
def test_wrong_outputs_are_named(finish: object, said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        cf2.explain(Out(finish), DATA, nodes=[1])


def test_a_model_that_reads_no_edge_has_nothing_to_explain() -> None:
    class Dense(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x

    (e,) = cf2.explain(Dense(), DATA, nodes=[0])
    assert e.status in ("impossible", "empty")


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


def test_a_model_of_nodes_does_not_explain_graphs() -> None:
    with pytest.raises(CF2Error, match="row per node"):
        cf2.explain(NodeNet("gcn"), [DATA])


FIRST_STEPS = {  # what a model does with wide features first, and whether that needs their zeros
    "scaled": (lambda x, lin: lin(0.1 * x / 3 * 2), False),
    "dropout": (lambda x, lin: lin(functional.dropout(x, 0.5, training=False)), False),
    "matmul": (lambda x, lin: x @ lin.weight.t(), False),
    "twice": (lambda x, lin: lin(x) - torch.matmul(2 * x, lin.weight.t()) * x.size(1), False),
    "rounded": (lambda x, lin: lin(torch.div(x, 0.4, rounding_mode="floor")), True),
    "shifted": (lambda x, lin: lin(x + 1), True),
    "joined": (lambda x, lin: lin(torch.cat([x[:, :350], x[:, 350:]], 1)), True),
    "normed": (lambda x, lin: lin(x / x.sum(1, keepdim=True).clamp(min=1)), True),
    "in place": (lambda x, lin: lin(x.clone().mul_(2)), True),
}


@pytest.mark.parametrize("step", FIRST_STEPS)
def test_whatever_reads_wide_features_first_gets_the_same(step: str) -> None:
    first, unfolds = FIRST_STEPS[step]

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.conv = torch.nn.Linear(700, 4), GCNConv(4, 2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(first(x, self.lin), edge_index)

    torch.manual_seed(0)
    model = Net()
    data = random_graph(30, 45, features=700, seed=2)
    data.x = torch.where(data.x > 2.0, data.x, 0.0)
    with Predictor(model, "node") as predictor:
        whole = packed(predictor, *BOTH, data=data, nodes=range(5))
        predictor.predict(whole)
        assert predictor.findings is not None
        assert predictor.findings.reads_sparse != unfolds
        keep = torch.rand(whole.units.count, generator=torch.Generator().manual_seed(1)) > 0.3
        predictor.findings = replace(predictor.findings, reads_sparse=True)
        quick, now = predictor.hard(whole, keep), predictor.predict(whole)
        with predictor.soft(whole) as run:
            assert torch.allclose(run(torch.ones(whole.units.count)), now, atol=1e-5)
        predictor.findings = replace(predictor.findings, reads_sparse=False)
        assert torch.allclose(quick, predictor.hard(whole, keep), atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(now, model(data.x, data.edge_index)[:5].softmax(1), atol=1e-6)


def test_columns_of_wide_features_are_really_removed() -> None:
    data = random_graph(20, 30, features=600, seed=4)
    data.x = (data.x > 2.0).float()
    model = NodeNet("gin", features=600)
    (e,) = cf2.explain(model, data, nodes=[1], units="columns", effort="quick")
    rest = [("columns", tuple(ids)) for ids, inside in zip(e.units.ids.tolist(), e.selected) if not inside]
    expected = probabilities(model, edited(data, rest), 1)  # type: ignore[arg-type]
    assert torch.allclose(torch.from_numpy(e.probabilities_only), expected, atol=1e-5)


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
