"""Models without a place for soft masks, or without a gradient, are explained by trials; verdicts checked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import cf2
from cf2.errors import CF2Error
from cf2.methods import registry
from toys import NodeNet, random_graph

DATA = random_graph(14, 20, seed=3)
NODES = list(range(14))
RUNS_ONLY = ("cf2", "greedy", "random")  # methods that need nothing but the model's output


class SparseGCN(nn.Module):
    """Two layers of Â X W with `torch.sparse.mm`, and no torch_geometric layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        count = x.size(0)
        loops = torch.arange(count).expand(2, -1)
        index = torch.cat([edge_index, loops], 1)
        degree = torch.bincount(index[1], minlength=count).float()
        weight = (degree[index[0]] * degree[index[1]]).rsqrt()
        matrix = torch.sparse_coo_tensor(index.flip(0), weight, (count, count), check_invariants=False)
        return self.second(torch.sparse.mm(matrix, torch.sparse.mm(matrix, self.first(x)).relu()))


class DenseNet(SparseGCN):
    """The same with a dense adjacency matrix, which counts parallel edges once."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        adjacency = torch.eye(x.size(0))
        adjacency[edge_index[1], edge_index[0]] = 1.0
        return self.second(adjacency @ (adjacency @ self.first(x)).relu())


class NoGradient(NodeNet):
    """torch_geometric layers under `torch.no_grad`."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(x, edge_index)


class Embedding(nn.Module):
    """One GCN layer whose states go to a model of another library."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv = GCNConv(4, 6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


def forest(model: Embedding, data: Any) -> Tensor:
    """A vote of 31 decision stumps in numpy over the states of a model: steps, without a slope anywhere."""
    states = model(data.x, data.edge_index).detach().numpy()
    draw = np.random.default_rng(0)
    column, cut, sign = draw.integers(6, size=31), draw.normal(0, 0.3, 31), draw.choice([-1, 1], 31)
    votes = (sign * np.sign(states[:, column] - cut)).mean(1)
    return torch.from_numpy(np.stack([-votes, votes], 1)).float()


MODELS: dict[str, tuple[nn.Module, Any]] = {
    "sparse": (SparseGCN(), None),
    "dense": (DenseNet(), None),
    "no_grad": (NoGradient("gcn", layers=2, seed=2), None),
    "forest": (Embedding(), forest),
}


def classes(name: str, edges: Tensor) -> list[int]:
    """What the model says of every node of the whole graph with these edges."""
    model, call = MODELS[name]
    data = Data(x=DATA.x, edge_index=edges)
    with torch.no_grad():
        said = model(data.x, data.edge_index) if call is None else call(model, data)
    return said.argmax(1).tolist()


def left(chosen: np.ndarray, *, keep: bool) -> Tensor:
    """The edges of the graph that are among the chosen pairs, or those that are not."""
    pairs = {tuple(pair) for pair in chosen.tolist()}
    stays = [(tuple(pair) in pairs) == keep for pair in DATA.edge_index.t().tolist()]
    return DATA.edge_index[:, torch.tensor(stays)]


@pytest.mark.parametrize("question", ["why", "factual", "counterfactual"])
@pytest.mark.parametrize("method", RUNS_ONLY)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_that_runs_is_explained_and_its_verdicts_are_true(name: str, method: str, question: str) -> None:
    model, call = MODELS[name]
    settings = {"random": {"k": 3}}.get(method, {})
    found = cf2.explain(model, DATA, NODES, method=method, question=question, call=call, level="node", **settings)
    before = classes(name, DATA.edge_index)
    for e in found:
        assert e.ranking == "trials"
        assert e.prediction == before[e.key]
        assert e.sufficient == (classes(name, left(e.edges, keep=True))[e.key] == e.prediction)
        assert e.necessary == (classes(name, left(e.edges, keep=False))[e.key] != e.prediction)
    if method == "cf2":
        assert sum(e.status == "found" for e in found) >= 5


def test_answers_without_gradients_are_a_little_larger() -> None:
    every, units = range(int(DATA.num_nodes or 0)), ("edges", "features")
    found = cf2.explain(NoGradient("gcn", layers=2, seed=2), DATA, every, units=units)
    smooth = cf2.explain(NodeNet("gcn", layers=2, seed=2), DATA, every, units=units)
    for answers, ranking in ((found, "trials"), (smooth, "gradient")):
        assert {e.ranking for e in answers} == {ranking}
        assert {e.status for e in answers} == {"found"}
    assert sum(e.size for e in found) <= 1.3 * sum(e.size for e in smooth)


@pytest.mark.parametrize("name", [name for name in registry.names() if name not in (*RUNS_ONLY, "truth")])
def test_a_method_that_needs_gradients_or_layers_says_so_by_name(name: str) -> None:
    method = registry.get(name)
    units = (method.units or ("edges",))[0]
    options: dict[str, Any] = {"method": name, "units": units}
    said = ""
    try:
        if method.needs == "training":
            options["trained"] = cf2.fit(SparseGCN(), DATA, NODES, method=name, **({"k": 3} if method.ranks else {}))
        found = cf2.explain(SparseGCN(), DATA, NODES, **options)
    except CF2Error as error:
        said = str(error)
    if said:
        assert f"gradients for method {name!r}" in said
    else:  # it needs neither; features of this model have a gradient, edges have none
        assert {e.ranking for e in found} == {"trials" if units == "edges" else "gradient"}


def test_edits_are_found_without_gradients() -> None:
    found = cf2.explain(SparseGCN(), DATA, NODES, question="counterfactual", edits=("remove", "add"))
    reached = [e for e in found if e.status == "found"]
    assert len(reached) >= 5
    for e in reached:
        assert classes("sparse", e.apply(DATA).edge_index)[e.key] != e.prediction
