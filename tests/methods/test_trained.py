"""Methods that are trained once: fit, save, load, explain unseen instances in one pass; and what each learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

import cf2
from cf2.methods.contract import Problem
from cf2.methods.gem import distilled, pruned, squares
from cf2.methods.rcexplainer import boundaries, local_boundaries, regions
from cf2.methods.tage import conditions, scaled
from cf2.methods.trained import Trained, batches, digest
from cf2.samples.models import build
from methods_toys import Lights, edges, star, stars, toy
from toys import GraphNet, NodeNet, model_state, random_graph, same_state

# -- all of them -------------------------------------------------------------------------------------------

METHODS = ("gem", "pgexplainer", "rcexplainer", "tage", "gisst")
PASSES = {"tage": 4}  # a backward pass for the condition; one pass for the others


@pytest.fixture(scope="module", params=METHODS)
def trained(request: pytest.FixtureRequest) -> Trained:
    subject = toy("cycles", 0)
    return cf2.fit(subject.model, subject.data, subject.learn, method=request.param, k=4, epochs=10)


def test_a_saved_explainer_explains_the_same(trained: Trained, tmp_path: Path) -> None:
    subject = toy("cycles", 0)
    path = trained.save(tmp_path / "explainer.safetensors")
    loaded = cf2.load_trained(path)
    assert (loaded.method, loaded.settings, loaded.facts) == (trained.method, trained.settings, trained.facts)
    one, two = (
        cf2.explain(subject.model, subject.data, subject.test, method=trained.method, trained=each)
        for each in (trained, loaded)
    )
    for a, b in zip(one, two):
        assert np.array_equal(a.scores, b.scores)
        assert a.size == min(4, a.num_units)  # the size of the training holds
        assert a.evaluations == PASSES.get(trained.method, 1) + 4  # and the two that every verdict takes, twice


def test_a_size_or_threshold_asked_for_replaces_that_of_the_training(trained: Trained) -> None:
    subject = toy("cycles", 0)
    (two,) = cf2.explain(subject.model, subject.data, subject.test[:1], method=trained.method, trained=trained, k=2)
    assert two.size == 2
    (above,) = cf2.explain(
        subject.model, subject.data, subject.test[:1], method=trained.method, trained=trained, threshold=0.3
    )
    assert (above.selected == (above.scores > 0.3)).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_seed_decides_the_training_and_the_model_is_left_alone(method: str) -> None:
    subject = toy("cycles", 0)
    subject.model.train()
    before, state = model_state(subject.model), torch.get_rng_state()
    first, again, other = (
        cf2.fit(subject.model, subject.data, subject.learn[:6], method=method, k=4, epochs=3, seed=seed)
        for seed in (0, 0, 1)
    )
    assert torch.equal(state, torch.get_rng_state())
    assert same_state(before, model_state(subject.model))
    assert digest(first.tensors) == digest(again.tensors) != digest(other.tensors)
    subject.model.eval()


@pytest.mark.parametrize("method", METHODS)
def test_graphs_are_explained_too(method: str) -> None:
    graphs, model = [random_graph(10, 14, seed=seed) for seed in range(12)], GraphNet("gin")
    fit = cf2.fit(model, graphs[:8], method=method, k=5, epochs=3)
    found = cf2.explain(model, graphs[8:], method=method, trained=fit)
    assert [e.size for e in found] == [5] * 4
    assert fit.facts["instances"] == 8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_models_of_every_precision_are_explained(method: str, dtype: torch.dtype) -> None:
    data, model = random_graph(20, 40, seed=1), NodeNet("gcn").to(dtype)
    data.x = data.x.to(dtype)
    fit = cf2.fit(model, data, range(8), method=method, k=3, epochs=2)
    assert {tensor.dtype for tensor in fit.tensors.values()} == {torch.float32}
    assert [e.size for e in cf2.explain(model, data, [9, 10], method=method, trained=fit)] == [3, 3]
    assert next(model.parameters()).dtype == dtype


def test_mistakes_are_explained(trained: Trained, tmp_path: Path) -> None:
    subject = toy("cycles", 0)
    model, data, nodes, method = subject.model, subject.data, subject.test[:2], trained.method
    other = next(name for name in METHODS if name != method)
    with pytest.raises(cf2.CF2Error, match=r"cf2\.fit"):
        cf2.explain(model, data, nodes, method=method)
    with pytest.raises(cf2.CF2Error, match=f"trained for method '{other}'"):
        cf2.explain(model, data, nodes, method=other, trained=trained)
    with pytest.raises(cf2.CF2Error, match="a method that needs training"):
        cf2.fit(model, data, nodes, method="gnnexplainer")
    with pytest.raises(cf2.CF2Error, match="node_features"):
        cf2.explain(model, data, nodes, method=method, trained=trained, units="node_features")
    wider = build("gcn", task="node", num_features=4, num_classes=2, hidden=9)
    with pytest.raises(cf2.CF2Error, match="width"):
        cf2.explain(wider, data, nodes, method=method, trained=trained)
    with pytest.raises(cf2.CF2Error, match="not there"):
        cf2.load_trained(tmp_path / "nothing.safetensors")
    with pytest.raises(cf2.CF2Error, match="safetensors"):
        trained.save(tmp_path / "explainer.pt")
    (tmp_path / "junk.safetensors").write_bytes(b"not a tensor in sight")
    with pytest.raises(cf2.CF2Error, match="hold a trained explainer"):
        cf2.load_trained(tmp_path / "junk.safetensors")


class Bright(torch.nn.Module):
    """Says 1 of a node while the first features of it and its neighbours add up to more than 1; others are noise."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = SimpleConv(aggr="sum", combine_root="sum")  # so that the state of a ray tells its light

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        total = self.sum(x, edge_index)[:, 0]
        return torch.stack([torch.ones_like(total), total], 1) * 4


@pytest.fixture(scope="module")
def lit() -> tuple[Data, list[int]]:
    """Stars of six rays, two of them bright, with a column of noise beside the light."""
    draw = np.random.default_rng(1)
    rays = [[[float(place < 2), draw.normal(), 1.0] for place in draw.permutation(6)] for _ in range(20)]
    return stars(rays, [0.0, 1.0, 1.0])


@pytest.mark.parametrize("method", [method for method in METHODS if method != "tage"])  # it sees no answer: see there
def test_the_bright_edges_are_found(method: str, lit: tuple[Data, list[int]]) -> None:
    """A model that is given and not trained, and scores far apart: .69 and .51 for Gem, above .9 and below .2 else."""
    data, middles = lit
    trained = cf2.fit(Bright(), data, middles[:12], method=method, epochs=100, lr=0.03, k=2)
    for e in cf2.explain(Bright(), data, middles[12:], method=method, trained=trained):
        rays = {b for a, b in data.edge_index.t().tolist() if a == e.key}
        assert {node for _, node in edges(e)} == {node for node in rays if data.x[node, 0]}
        assert e.sufficient
        assert e.necessary


# -- RCExplainer -------------------------------------------------------------------------------------------


def test_boundaries_are_those_of_the_linear_piece_of_the_head(problem_of: Callable[..., Problem]) -> None:
    """Around an embedding, the head is W α + b: both by finite differences of the head that is called by itself."""
    torch.manual_seed(4)
    model = build("gin", task="graph", num_features=4, num_classes=3, hidden=6, dense=3).eval().double()
    graphs = [random_graph(8, 10, seed=s) for s in range(5)]
    for graph in graphs:
        graph.x = graph.x.double()
    (batch,) = batches([problem_of(model, graphs)], 8)
    embedded, weight, bias = (part.double() for part in local_boundaries(batch))
    assert weight.shape == (5, 6)
    for row in range(5):
        logits = model.head(embedded[row]).detach()
        top, second = logits.topk(2).indices.tolist()
        for column in range(6):
            step = 1e-5 * torch.eye(6, dtype=torch.float64)[column]
            ahead, behind = (model.head(embedded[row] + sign * step).detach() for sign in (1, -1))
            slope = ((ahead[top] - ahead[second]) - (behind[top] - behind[second])) / 2e-5
            assert float(weight[row, column]) == pytest.approx(float(slope), abs=1e-4)
        at = float(weight[row] @ embedded[row] + bias[row])
        assert at == pytest.approx(float(logits[top] - logits[second]), abs=1e-4)


def test_a_model_without_a_head_is_bounded_in_its_own_outputs(problem_of: Callable[..., Problem]) -> None:
    (batch,) = batches([problem_of(NodeNet("gin"), random_graph(12, 20, seed=1), [1, 2, 3])], 8)
    embedded, weight, bias = local_boundaries(batch)
    for row, logits in enumerate(embedded):
        top, second = logits.topk(2).indices.tolist()
        wanted = torch.zeros(3)
        wanted[top], wanted[second] = 1.0, -1.0
        assert torch.allclose(weight[row], wanted, atol=1e-4)
        assert float(bias[row]) == pytest.approx(0, abs=1e-4)


def test_regions_hold_one_answer() -> None:
    answers = torch.tensor([0, 0, 0, 1, 1])
    inside = torch.tensor(
        [  # rows: instances; columns: the boundary of each
            [True, True, False, False, False],
            [True, True, False, False, False],
            [False, False, True, False, False],
            [False, True, False, True, True],
            [False, False, False, True, True],
        ]
    )
    found = regions(inside, answers)
    assert found[0].tolist() == [True, False, False, False, False] == found[1].tolist()  # sheds both others at once
    assert found[2].tolist() == [False, False, True, False, False]  # a region of its own
    for row in range(5):
        held = inside[:, found[row]].all(1)
        assert held[row]
        assert (answers[held] == answers[row]).all()


def test_regions_hold_their_instances(problem_of: Callable[..., Problem]) -> None:
    graphs = [random_graph(9, 12, seed=s) for s in range(20)]
    known = boundaries(batches([problem_of(GraphNet("gin", seed=3), graphs)], 8))
    assert known.region.any(1).all()
    assert (known.values[known.region] > 0).all()


# -- TAGE --------------------------------------------------------------------------------------------------

LONG = {"epochs": 300, "lr": 0.01, "batch": 64, "contrast": 1.0}


class TwoTasks(nn.Module):
    """The sums of six features over neighbours are the embedding; the head reads the first or the last three."""

    def __init__(self, task: int) -> None:
        super().__init__()
        self.sum = SimpleConv(aggr="sum", combine_root="sum")
        self.head = nn.Linear(6, 2)
        with torch.no_grad():
            self.head.weight.zero_()
            self.head.weight[1, 3 * task : 3 * task + 3] = 3.0
            self.head.bias.copy_(torch.tensor([3.0, 0.0]))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.head(self.sum(x, edge_index))


def coloured(count: int = 64) -> tuple[Data, list[int]]:
    """Stars whose eight rays carry one of six features each, and the nodes in their middle."""
    draw = np.random.default_rng(0)
    kinds = [[*draw.integers(0, 3, 3), *draw.integers(3, 6, 3), *draw.integers(0, 6, 2)] for _ in range(count)]
    return stars([np.eye(6)[own].tolist() for own in kinds], [0.0] * 6)


def test_the_condition_is_the_gradient_of_the_head(problem_of: Callable[..., Problem]) -> None:
    data, middles = coloured()
    for task in (0, 1):
        slopes = conditions(problem_of(TwoTasks(task), data, middles[:5]))
        read = slice(3 * task, 3 * task + 3)
        assert torch.allclose(slopes[:, read], torch.tensor(3.0), rtol=1e-3)  # of the log-odds of two classes
        assert float(slopes.sum()) == pytest.approx(float(slopes[:, read].sum()))
    assert scaled(torch.tensor([[0.0, 2.0], [0.0, 0.0]])).tolist() == [[0.0, 1.0], [1.0, 1.0]]


def test_one_training_explains_two_tasks() -> None:
    """Trained without any answer, so one explainer serves two heads on the same embedding."""
    data, middles = coloured()
    trained = cf2.fit(TwoTasks(0), data, middles, method="tage", k=2, **LONG)
    again = cf2.fit(TwoTasks(1), data, middles, method="tage", k=2, **LONG)
    assert digest(trained.tensors) == digest(again.tensors)
    right = []
    for task in (0, 1):
        for e in cf2.explain(TwoTasks(task), data, middles, method="tage", trained=trained):
            right += [bool(data.x[node, 3 * task : 3 * task + 3].any()) for _, node in edges(e)]
    assert np.mean(right) > 0.9


def test_one_instance_cannot_be_told_from_others() -> None:
    data, middles = coloured(2)
    with pytest.raises(cf2.CF2Error, match="at least two instances"):
        cf2.fit(TwoTasks(0), data, middles[:1], method="tage")


def test_another_head_is_refused() -> None:
    data, middles = coloured(4)
    trained = cf2.fit(TwoTasks(0), data, middles, method="tage", epochs=1)

    class Wider(TwoTasks):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.wide(torch.cat([self.sum(x, edge_index)] * 2, 1))

    model = Wider(0)
    model.wide = nn.Linear(12, 2)
    with pytest.raises(cf2.CF2Error, match="embeddings of width 6"):
        cf2.explain(model, data, middles[:2], method="tage", trained=trained)


# -- GISST -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gisst(lit: tuple[Data, list[int]]) -> Trained:
    data, middles = lit
    return cf2.fit(Bright(), data, middles[:12], method="gisst", epochs=150, lr=0.03, feature_size=0.3, k=2)


def test_the_column_that_counts_is_found(lit: tuple[Data, list[int]], gisst: Trained) -> None:
    data, middles = lit
    for e in cf2.explain(Bright(), data, middles[12:], method="gisst", trained=gisst, units="columns", k=1):
        assert e.chosen("columns")[:, 1].tolist() == [0]
    both = cf2.explain(
        Bright(), data, middles[12:], method="gisst", trained=gisst, units=("edges", "features"), search=True
    )
    assert all(e.status == "found" for e in both)
    (one,) = cf2.explain(Bright(), data, middles[:1], method="gisst", trained=gisst, units=("edges", "features"))
    by_column = {}
    for (_, column), score in zip(one.units.of("features").tolist(), one.scores[one.units.where("features")].tolist()):
        by_column.setdefault(column, set()).add(score)
    assert all(len(scores) == 1 for scores in by_column.values())  # an entry has the probability of its column


def test_integer_features_are_left_alone() -> None:
    data = random_graph(12, 16, seed=4)
    data.x = data.x.round().long().abs()

    class Embedded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.net = torch.nn.Embedding(10, 4), NodeNet("gin")

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.net(self.table(x[:, 0]), edge_index)

    model = Embedded()
    trained = cf2.fit(model, data, range(6), method="gisst", epochs=2, k=2)
    assert all(e.size == min(2, e.num_units) for e in cf2.explain(model, data, [7, 8], method="gisst", trained=trained))


def test_other_data_are_refused(gisst: Trained) -> None:
    with pytest.raises(cf2.CF2Error, match="trained on, with 3 features"):
        cf2.explain(Bright(), random_graph(8, 12, features=5), [0], method="gisst", trained=gisst)


# -- Gem ---------------------------------------------------------------------------------------------------


def test_pruning_keeps_the_edges_that_the_rest_needs(problem_of: Callable[..., Problem]) -> None:
    """Two lights of 1.5 are needed of 2.6: a dim edge goes without loss, a bright one comes back with its growth."""
    problem = problem_of(Lights(), star(1.5, 1.5, 0.1, 0.1, -0.1), [0])
    weight = pruned(problem)[0]
    by_edge = {tuple(ids): value for ids, value in zip(problem.tables[0].ids.tolist(), weight.tolist())}
    assert by_edge[0, 5] == 0.0  # without this light it is brighter
    assert min(by_edge[0, 1], by_edge[0, 2]) > 5 * max(by_edge[0, 3], by_edge[0, 4]) > 0
    target = distilled(problem, 2)
    assert set(target.nonzero().flatten().tolist()) == {
        place for place, ids in enumerate(problem.tables[0].ids.tolist()) if ids in ([0, 1], [0, 2])
    }
    assert float(target.max()) == 1.0


def test_squares_are_those_of_all_pairs_of_nodes(problem_of: Callable[..., Problem]) -> None:
    graphs = [random_graph(6, 7, seed=1), random_graph(9, 12, seed=2)]
    pack = problem_of(GraphNet("gin"), graphs).pack
    draw = torch.Generator().manual_seed(0)
    z, target = torch.randn(15, 3, generator=draw), torch.rand(pack.units.count, generator=draw)
    units = pack.units.edges.first
    for row, (low, high) in enumerate(((0, 6), (6, 15))):
        wanted = torch.eye(high - low)
        inside = (pack.batch[pack.edge_index[0]] == row) & (units >= 0)
        wanted[tuple(pack.edge_index[:, inside] - low)] = target[units[inside]]
        plain = (z[low:high] @ z[low:high].t() - wanted).square().mean()
        assert float(squares(z, pack, target)[row]) == pytest.approx(float(plain), abs=1e-4)
