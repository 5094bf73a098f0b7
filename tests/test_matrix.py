"""Dtype × task × output, and method × rules: every verdict is checked by code that shares nothing with the package."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv, SAGEConv, global_add_pool

import cf2
from cf2.errors import CF2Error
from cf2.methods import registry

# -- dtype × task × output ---------------------------------------------------------------------------------

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
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
        self.first, self.second, self.output, self.pooled = SAGEConv(4, 8), SAGEConv(8, 3), OUTPUTS[output], pooled

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        rows = self.second(self.first(x, edge_index).relu(), edge_index)
        return self.output(global_add_pool(rows, batch) if self.pooled else rows)


def random_graph(seed: int, nodes: int = 8) -> Data:
    made = torch.Generator().manual_seed(seed)
    pairs = torch.randint(nodes, (2, 11), generator=made)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return Data(x=torch.randn(nodes, 4, generator=made), edge_index=torch.cat([pairs, pairs.flip(0)], 1))


def said(model: nn.Module, data: Data, key: int | None, edge_index: Tensor, **extras: Tensor) -> tuple[int, bool]:
    """The class that the model gives, and whether it is sure enough for the answer not to be a matter of rounding."""
    arguments = {} if key is not None else {"batch": torch.zeros(data.num_nodes, dtype=torch.long)}
    with torch.no_grad():
        rows = model(data.x, edge_index, **extras, **arguments)
    row = rows[key if key is not None else 0].double()
    if len(row) == 1:
        return int(row > 0), abs(float(row)) > 1e-6
    best = row.topk(2).values
    return int(row.argmax()), float(best[0] - best[1]) > 2e-2 * float(best.abs().max()) * (data.x.dtype in DTYPES[2:])


def check(model: nn.Module, data: Data, e: cf2.Explanation, answer: Callable[[int], bool] | None = None) -> None:
    """The verdicts of an explanation by edges, against the model on the whole graph without those edges."""
    key = e.key if e.task == "node" else None
    whole, _ = said(model, data, key, data.edge_index)
    assert e.prediction == whole
    gives = answer or (lambda c: c == whole)
    chosen = {tuple(pair) for pair in e.edges.tolist()}
    for inside, verdict in ((True, e.sufficient), (False, not e.necessary)):
        columns = [n for n, pair in enumerate(zip(*data.edge_index.tolist())) if (pair in chosen) == inside]
        c, decided = said(model, data, key, data.edge_index[:, columns])
        if decided:
            assert gives(c) == verdict, (e.method, e.key, inside)
    assert e.status != "found" or (e.sufficient and e.necessary)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_tasks_and_outputs(dtype: torch.dtype, pooled: bool, output: str) -> None:
    model = Net(output, pooled).to(dtype).eval()
    graphs = [random_graph(seed) for seed in range(3)]
    for graph in graphs:
        graph.x = graph.x.to(dtype)
    given = output if output in ("probabilities", "log_probabilities") and dtype in DTYPES[2:] else "auto"
    for units in ("edges", "edges,features"):
        if pooled:
            found = cf2.explain(model, graphs, units=units, output=given, epochs=3)
        else:
            found = cf2.explain(model, graphs[0], nodes=[0, 3, 5], units=units, output=given, epochs=3)
        assert len(found) == 3
        if units == "edges":
            for e in found:
                check(model, graphs[e.key] if pooled else graphs[0], e)
    assert next(model.parameters()).dtype == dtype
    assert graphs[0].x.dtype == dtype


# -- extras ------------------------------------------------------------------------------------------------


class Weighted(nn.Module):
    """Reads edge attributes, a node attribute and one of the graph; the names do not say which is which."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv = GINEConv(nn.Linear(4, 3), edge_dim=2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, kind: Tensor, mass: Tensor, heat: Tensor) -> Tensor:
        rows = self.conv(x * mass[:, None], edge_index, kind)
        return global_add_pool(rows, batch) * heat.view(-1, 1)


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


def test_an_extra_of_some_graphs_only_is_an_error() -> None:
    graphs = [with_extras(seed, 8) for seed in range(3)]
    del graphs[1].mass
    with pytest.raises(CF2Error, match=r"all graphs to have `mass`.*graph 1"):
        cf2.explain(Weighted(), graphs)
    graphs[1].mass = torch.rand(5)  # fits nothing
    with pytest.raises(CF2Error, match=r"all graphs to have `mass`.*graph 1"):
        cf2.explain(Weighted(), graphs)
    graphs[1].mass = torch.rand(8, 2)
    with pytest.raises(CF2Error, match=r"`mass` to have one dtype and one width"):
        cf2.explain(Weighted(), graphs)


def test_graphs_of_several_dtypes_are_an_error() -> None:
    graphs = [random_graph(0), random_graph(1)]
    graphs[1].x = graphs[1].x.double()
    with pytest.raises(CF2Error, match="features of one kind"):
        cf2.explain(Net("logits", True), graphs)


# -- method × rules ----------------------------------------------------------------------------------------

METHODS = [name for name in registry.names() if name != "truth" and "edges" in (registry.get(name).units or ("edges",))]
DATA = random_graph(2)
NODES = [0, 2, 3, 5]


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    model = Net("logits", False).eval()
    needing = [name for name in METHODS if registry.get(name).needs == "training"]
    return {name: cf2.fit(model, DATA, NODES, method=name, epochs=1) for name in needing}


def options(method: str, trained: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {"trained": trained[method]} if method in trained else {}
    known = registry.get(method).settings.__dataclass_fields__
    return (
        settings
        | ({"k": 3} if "k" in known else {})
        | ({"epochs": 5} if "epochs" in known and method not in trained else {})
    )


@pytest.mark.parametrize("rule", ["all", "limited", "limited, searched", "predicted", "another class", "searched"])
@pytest.mark.parametrize("method", METHODS)
def test_methods_under_every_rule(method: str, rule: str, trained: dict[str, Any]) -> None:
    model = Net("logits", False).eval()
    given = options(method, trained)
    classes = [said(model, DATA, key, DATA.edge_index)[0] for key in NODES]
    asked = classes
    if "limited" in rule:
        given |= {"max_units": 4, "reduce": "gradient"}
    if "searched" in rule:
        given |= {"search": True}
    if rule == "predicted":
        given |= {"target": classes}
    if rule == "another class":
        asked = [(c + 1) % 3 for c in classes]
        given |= {"target": asked}
    for e, c in zip(cf2.explain(model, DATA, nodes=NODES, method=method, **given), asked):
        if rule == "another class":
            assert (e.sufficient, e.necessary, e.status, e.target) == (False, False, "not predicted", c)
            assert e.prediction != c
            continue
        check(model, DATA, e)
        if "limited" in rule:
            assert e.size <= 4
        if e.optimal:
            smallest(model, e)
        if e.status == "impossible":
            assert not any(passing(model, e.key, e.prediction, pairs) for pairs in subsets(e, len(e.units)))


def subsets(e: cf2.Explanation, most: int) -> list[tuple[tuple[int, int], ...]]:
    units = [tuple(pair) for pair in e.units.of("edges").tolist()]
    return [chosen for size in range(most + 1) for chosen in combinations(units, size)]


def passing(model: nn.Module, key: int, answer: int, pairs: tuple[tuple[int, int], ...]) -> bool:
    chosen = {*pairs, *((head, tail) for tail, head in pairs)}
    inside = [pair in chosen for pair in zip(*DATA.edge_index.tolist())]
    only, _ = said(model, DATA, key, DATA.edge_index[:, torch.tensor(inside)])
    without, _ = said(model, DATA, key, DATA.edge_index[:, ~torch.tensor(inside)])
    return only == answer != without


def smallest(model: nn.Module, e: cf2.Explanation) -> None:
    assert not any(passing(model, e.key, e.prediction, pairs) for pairs in subsets(e, e.size - 1))
