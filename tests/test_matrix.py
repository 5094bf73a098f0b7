"""Layers, dtypes, tasks, outputs, methods and rules: each verdict is true of the *full* graph.

The check shares nothing with the package: it takes the chosen edges out of the whole `edge_index` and runs the model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import degree

import cf2
import toys
from cf2.errors import CF2Error
from cf2.methods import registry
from test_claims_fuzz import CONVS, FIRST_CONVS


def random_graph(seed: int, nodes: int = 8, edges: int = 11, *, directed: bool = False) -> Data:
    """A graph without loops, which no unit stands for."""
    data = toys.random_graph(nodes, edges, directed=directed, seed=seed)
    data.edge_index = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    return data


def said(model: nn.Module, data: Data, key: int | None, stay: Any = slice(None)) -> tuple[int, bool]:
    """The class that the model gives of some edges, and whether by so much that rounding does not decide it."""
    batch = {} if key is not None else {"batch": torch.zeros(data.num_nodes, dtype=torch.long)}
    with torch.no_grad():
        row = model(data.x, data.edge_index[:, stay], **batch)[key or 0].double()
    best = (row if len(row) > 1 else torch.cat([-row, row])).topk(2)
    largest = float(best.values.abs().max())
    near = 2e-2 * largest if data.x.dtype in HALF else 1e-5 * (largest + 1)
    return int(best.indices[0]), float(best.values[0] - best.values[1]) > near


def check(model: nn.Module, data: Data, e: cf2.Explanation) -> None:
    """The verdicts of an explanation by edges, against the model on the whole graph without those edges."""
    key = e.key if e.task == "node" else None
    whole, decided = said(model, data, key)
    assert e.prediction == whole or not decided
    chosen = {tuple(pair) for pair in e.edges.tolist()}
    inside = torch.tensor([tuple(pair) in chosen for pair in data.edge_index.t().tolist()])
    for stay, verdict in ((inside, e.sufficient), (~inside, not e.necessary)):
        answer, decided = said(model, data, key, stay)
        assert not decided or (answer == e.prediction) == verdict, (e.method, e.key, stay)
    assert e.status != "found" or (e.sufficient and e.necessary)


# -- layers, directed or not, with sure and very sure logits --------------------------------------------------


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


class Scaled(nn.Module):
    """Two layers of a kind; the logits are scaled, so that their probabilities saturate."""

    def __init__(self, make: Callable[[int, int], nn.Module], scale: float) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second, self.scale = make(4, 6), make(6, 4), scale

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index) * self.scale


SOME = {1.0: ["random"], 100.0: ["random"], 1e4: ["cf2", "random"]}
ALL = {scale: ["cf2", "random", "gradient"] for scale in (1.0, 100.0, 1e4)}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("step", "effort", "methods"), [(10, "quick", SOME), pytest.param(1, "standard", ALL, marks=pytest.mark.slow)]
)
def test_every_kind_of_layer(
    kind: str, directed: bool, step: int, effort: str, methods: dict[float, list[str]]
) -> None:
    data = random_graph(7, 30, 34, directed=directed)
    for scale, names in methods.items():
        model = Scaled(LAYERS[kind], scale).eval()
        for name in names:
            if (kind, name) == ("none", "gradient"):
                continue  # it has no layer in which edges could be masked softly, and is refused
            settings = {"effort": effort, "epochs": 3} if name == "cf2" else {"k": 3}
            for e in cf2.explain(model, data, nodes=range(0, 30, step), method=name, **settings):
                check(model, data, e)


# -- dtype × task × output ---------------------------------------------------------------------------------

HALF = (torch.float16, torch.bfloat16)
OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "logits": lambda rows: rows,
    "log_probabilities": lambda rows: rows.log_softmax(1),
    "probabilities": lambda rows: rows.softmax(1),
    "one logit": lambda rows: rows[:, :1] * 3,
}


class Net(nn.Module):
    def __init__(self, output: str, pooled: bool) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second = pyg.SAGEConv(4, 8), pyg.SAGEConv(8, 3)
        self.output, self.pooled = OUTPUTS[output], pooled

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        rows = self.second(self.first(x, edge_index).relu(), edge_index)
        return self.output(pyg.global_add_pool(rows, batch) if self.pooled else rows)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF], ids=str)
def test_dtypes_tasks_and_outputs(dtype: torch.dtype, pooled: bool, output: str) -> None:
    model = Net(output, pooled).to(dtype).eval()
    graphs = [random_graph(seed) for seed in range(3)]
    for graph in graphs:
        graph.x = graph.x.to(dtype)
    data, nodes = (graphs, None) if pooled else (graphs[0], [0, 3, 5])
    given = output if output in ("probabilities", "log_probabilities") and dtype in HALF else "auto"
    for units in ("edges", "edges,features"):
        found = cf2.explain(model, data, nodes, units=units, output=given, epochs=3)
        assert len(found) == 3
        for e in found if units == "edges" else ():
            check(model, graphs[e.key] if pooled else graphs[0], e)
    assert next(model.parameters()).dtype == graphs[0].x.dtype == dtype


# -- extras ------------------------------------------------------------------------------------------------


class Weighted(nn.Module):
    """Reads edge attributes, a node attribute and one of the graph; the names do not say which is which."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv = pyg.GINEConv(nn.Linear(4, 3), edge_dim=2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, kind: Tensor, mass: Tensor, heat: Tensor) -> Tensor:
        rows = self.conv(x * mass[:, None], edge_index, kind)
        return pyg.global_add_pool(rows, batch) * heat.view(-1, 1)


def with_extras(seed: int, nodes: int) -> Data:
    data = random_graph(seed, nodes)
    count, made = data.edge_index.size(1), torch.Generator().manual_seed(seed)
    half = torch.rand(count // 2, 2, generator=made)
    data.kind, data.mass, data.heat = torch.cat([half, half]), torch.rand(nodes, generator=made), 1.0 + seed
    return data


def test_extras_belong_to_nodes_edges_and_graphs_also_where_sizes_agree() -> None:
    graphs = [with_extras(seed, nodes) for seed, nodes in enumerate((8, 9, 1))]
    graphs.append(
        next(g for g in (with_extras(s, n) for s in range(9) for n in range(12, 23)) if g.num_nodes == g.num_edges)
    )
    model = Weighted().eval()
    for e in cf2.explain(model, graphs, method="random", k=2):
        data = graphs[e.key]
        chosen = {tuple(pair) for pair in e.edges.tolist()}
        columns = [n for n, pair in enumerate(zip(*data.edge_index.tolist())) if pair in chosen]
        batch = torch.zeros(data.num_nodes, dtype=torch.long)
        rows = model(
            data.x, data.edge_index[:, columns], batch, data.kind[columns], data.mass, torch.tensor([data.heat])
        )
        assert np.allclose(e.probabilities_only, rows.softmax(1)[0].detach(), atol=1e-5)


def test_extras_and_features_that_graphs_do_not_share_are_errors() -> None:
    graphs = [with_extras(seed, 8) for seed in range(3)]
    for wrong, said in (
        (None, r"all graphs to have `mass`.*graph 1"),
        (torch.rand(5), r"all graphs to have `mass`.*graph 1"),  # fits nothing
        (torch.rand(8, 2), r"`mass` to have one dtype and one width"),
    ):
        graphs[1].mass = wrong
        with pytest.raises(CF2Error, match=said):
            cf2.explain(Weighted(), graphs)
    graphs[1].x = graphs[1].x.double()
    with pytest.raises(CF2Error, match="features of one kind"):
        cf2.explain(Net("logits", True), graphs)


# -- method × rules ----------------------------------------------------------------------------------------

METHODS = [name for name in registry.names() if name != "truth" and "edges" in (registry.get(name).units or ("edges",))]
DATA, MODEL = random_graph(2), Net("logits", False).eval()
NODES = [0, 2, 3, 5]


@cache
def trained(method: str) -> Any:
    return cf2.fit(MODEL, DATA, NODES, method=method, epochs=1)


def options(method: str) -> dict[str, Any]:
    known = registry.get(method).settings.__dataclass_fields__
    settings: dict[str, Any] = {"k": 3} if "k" in known else {}
    if registry.get(method).needs == "training":
        return settings | {"trained": trained(method)}
    return settings | ({"epochs": 5} if "epochs" in known else {})


@pytest.mark.parametrize("rule", ["all", "limited", "limited, searched", "predicted", "another class", "searched"])
@pytest.mark.parametrize("method", METHODS)
def test_methods_under_every_rule(method: str, rule: str) -> None:
    given = options(method)
    asked = [said(MODEL, DATA, key)[0] for key in NODES]
    if rule == "another class":
        asked = [(c + 1) % 3 for c in asked]
    if rule in ("predicted", "another class"):
        given |= {"target": asked}
    if "limited" in rule:
        given |= {"max_units": 4, "reduce": "gradient"}
    if "searched" in rule:
        given |= {"search": True}
    for e, c in zip(cf2.explain(MODEL, DATA, nodes=NODES, method=method, **given), asked):
        if rule == "another class":
            assert (e.sufficient, e.necessary, e.status, e.target) == (False, False, "not predicted", c)
            assert e.prediction != c
            continue
        check(MODEL, DATA, e)
        assert "limited" not in rule or e.size <= 4
        most = e.size - 1 if e.optimal else len(e.units) if e.status == "impossible" else -1
        units = [tuple(pair) for pair in e.units.of("edges").tolist()]
        smaller = (chosen for size in range(most + 1) for chosen in combinations(units, size))
        assert not any(passing(e.key, e.prediction, chosen) for chosen in smaller)


@cache
def passing(key: int, answer: int, pairs: tuple[tuple[int, int], ...]) -> bool:
    chosen = {*pairs, *((head, tail) for tail, head in pairs)}
    inside = torch.tensor([pair in chosen for pair in zip(*DATA.edge_index.tolist())])
    return said(MODEL, DATA, key, inside)[0] == answer != said(MODEL, DATA, key, ~inside)[0]
