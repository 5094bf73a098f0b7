"""What is called sufficient, necessary, minimal, optimal or impossible is, by brute force on really reduced graphs."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data

import cf2
from cf2 import search as cf2_search
from cf2.explanation import Explanation
from cf2.instances import Graph
from cf2.moves import prune
from cf2.subjects import from_dataset
from cf2.trials import Trials
from cf2.work import Session, Work
from toys import LAYERS, GraphNet, NodeNet, random_graph

Pair = tuple[int, int]


def says(model: nn.Module, data: Data, keep: set[Pair], node: int | None) -> int:
    """The class that the model gives with only the undirected edges of `keep`, by plain filtering."""
    columns = [a == b or (min(a, b), max(a, b)) in keep for a, b in data.edge_index.t().tolist()]
    with torch.no_grad():
        edge_index = data.edge_index[:, torch.tensor(columns, dtype=torch.bool)]
        if node is None:
            out = model(data.x, edge_index, torch.zeros(data.x.size(0), dtype=torch.long))
            return int(out[0].argmax())
        return int(model(data.x, edge_index)[node].argmax())


def passing(model: nn.Module, data: Data, node: int | None, units: list[Pair], y: int) -> list[set[Pair]]:
    """Every subset of the units that is sufficient and necessary, smallest first."""
    rest = {(min(a, b), max(a, b)) for a, b in data.edge_index.t().tolist() if a != b} - set(units)
    found = []
    for chosen in chain.from_iterable(combinations(units, k) for k in range(len(units) + 1)):
        inside, outside = set(chosen), set(units) - set(chosen)
        if says(model, data, inside | rest, node) == y and says(model, data, outside | rest, node) != y:
            found.append(inside)
    return found


def check(model: nn.Module, data: Data, e: Explanation, node: int | None) -> None:
    model.eval()
    units = [tuple(pair) for pair in e.unit_edges.tolist()]
    chosen = {pair for pair, inside in zip(units, e.selected) if inside}
    rest = {(min(a, b), max(a, b)) for a, b in data.edge_index.t().tolist() if a != b} - set(units)
    y = e.prediction
    assert y == says(model, data, set(units) | rest, node)
    assert e.sufficient == (says(model, data, chosen | rest, node) == y)
    assert e.necessary == (says(model, data, set(units) - chosen | rest, node) != y)
    every = passing(model, data, node, units, y)
    if e.status == "found":
        assert chosen in every
        assert all(chosen - {one} not in every for one in chosen) == e.minimal
        if e.optimal:
            assert len(chosen) == len(every[0])
    if e.status == "impossible":
        assert not every
    if e.optimal or e.minimal:
        assert e.status == "found"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(LAYERS)), st.integers(3, 7), st.integers(1, 7), st.integers(0, 10_000), st.booleans())
def test_verdicts_are_true_by_brute_force(kind: str, nodes: int, edges: int, seed: int, whole: bool) -> None:
    data = random_graph(nodes, edges, seed=seed)
    if whole:
        model: nn.Module = GraphNet(kind, seed=seed)
        (e,) = cf2.explain(model, [data], effort="quick", proof=10_000)
        check(model, data, e, None)
    else:
        model = NodeNet(kind, seed=seed, layers=2)
        (e,) = cf2.explain(model, data, nodes=[seed % nodes], proof=seed % 3 * 100)
        check(model, data, e, seed % nodes)


def test_exhaustive_search_misses_nothing() -> None:
    """With a proof that covers every set, an instance is either solved at the smallest size or impossible."""
    seen = set()
    for seed in range(60):
        data, model = random_graph(6, 6, seed=seed), NodeNet("sum", seed=seed, layers=2)
        (e,) = cf2.explain(model, data, nodes=[seed % 6], proof=10**6)
        seen.add(e.status)
        if e.status == "empty":
            continue
        model.eval()
        every = passing(model, data, seed % 6, [tuple(p) for p in e.unit_edges.tolist()], e.prediction)
        assert e.status == ("found" if every else "impossible")
        if every:
            assert e.optimal
            assert e.size == len(every[0])
    assert {"found", "impossible"} <= seen


@pytest.mark.parametrize("units", ["features", "both"])
def test_features_are_verified_too(units: str) -> None:
    data = random_graph(12, 14, seed=5)
    model = NodeNet("gin", seed=2).eval()
    found = cf2.explain(model, data, nodes=range(12), features=True, edges=units == "both")
    assert any(e.status == "found" and len(e.features) for e in found)
    for e in found:
        for verdict, keep in (("only", e.selected), ("without", ~e.selected)):
            x, edge_index = data.x.clone(), data.edge_index
            gone = e.unit_features[~keep[len(e.unit_edges) :]]
            x[gone[:, 0], gone[:, 1]] = 0
            cut = {tuple(p) for p in e.unit_edges[~keep[: len(e.unit_edges)]].tolist()}
            stay = [(min(a, b), max(a, b)) not in cut for a, b in edge_index.t().tolist()]
            with torch.no_grad():
                P = model(x, edge_index[:, torch.tensor(stay)])[e.key].softmax(0).numpy()
            assert np.abs(P - getattr(e, verdict)).max() < 1e-5


def test_confidence_asks_for_a_margin() -> None:
    data, model = random_graph(40, 60, seed=1), NodeNet("sum", seed=1, layers=2)
    plain = cf2.explain(model, data, nodes=range(30))
    sure = cf2.explain(model, data, nodes=range(30), confidence=0.1)
    kept = [e for e in sure if e.status == "found"]
    assert kept
    for e in kept:
        only, without = np.sort(np.delete(e.only, e.prediction)), np.sort(np.delete(e.without, e.prediction))
        assert e.only[e.prediction] - only[-1] > 0.1 - 1e-5
        assert without[-1] - e.without[e.prediction] > 0.1 - 1e-5
    assert sum(e.status == "found" for e in plain) >= len(kept)


def test_more_effort_is_never_worse_on_average() -> None:
    data, model = random_graph(60, 110, seed=9), NodeNet("sum", seed=3)
    sizes = []
    for effort in ("quick", "standard", "thorough"):
        found = cf2.explain(model, data, nodes=range(0, 60, 3), effort=effort)
        sizes.append(np.mean([e.size for e in found if e.status == "found"]))
    assert sizes[0] >= sizes[1] >= sizes[2]


def test_restarts_among_many_units_never_lose_and_sometimes_win(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = from_dataset("ba-shapes")

    def explained(restarts: int) -> cf2.Explanations:
        budget = replace(cf2_search._BUDGETS["standard"], restarts=restarts)
        monkeypatch.setitem(cf2_search._BUDGETS, "standard", budget)
        return cf2.explain(subject.model, subject.graphs[0], nodes=[389, 433, 448, 420, 510])

    before, after = explained(0), explained(6)
    assert all(e.num_units > cf2_search.CROWDED for e in after)
    assert all(e.sufficient and e.necessary and e.minimal for e in after)
    assert all(a.size <= b.size for a, b in zip(after, before))
    assert sum(e.size for e in after) < sum(e.size for e in before)


def test_a_pruning_that_cannot_win_is_given_up() -> None:
    data, model = random_graph(40, 120, seed=1), NodeNet("gcn", seed=1, layers=2)
    with Session(Work(model, Graph(data))) as session:
        (chunk,) = session.chunks(range(8))
        spent = []
        for below in (None, torch.full((8,), 2), torch.full((8,), 1000)):
            trials = Trials(chunk.predictor, chunk.pack, chunk.y)
            rows = trials.passes(torch.arange(8), trials.open).nonzero().flatten()
            order = trials.open[rows].float()
            limit = None if below is None else below[rows]
            sets = prune(trials, rows, trials.open[rows], order, torch.ones(len(rows), dtype=torch.bool), limit)
            assert trials.passes(rows, sets).all()
            spent.append((int(trials.evaluations.sum()), sets))
    assert len(rows) > 2
    assert spent[1][0] < spent[0][0] == spent[2][0]
    assert torch.equal(spent[0][1], spent[2][1])


def test_search_serves_other_methods_scores() -> None:
    data, model = random_graph(30, 50, seed=8), NodeNet("gin", seed=8)
    plain = cf2.explain(model, data, nodes=range(20), method="gradient", k=3)
    found = cf2.explain(model, data, nodes=range(20), method="gradient", k=3, search=True, effort="quick")
    assert all(e.status == "unverified" for e in plain if e.num_units)
    assert all(e.sufficient and e.necessary for e in found if e.status == "found")
    assert sum(e.sufficient and e.necessary for e in found) > sum(e.sufficient and e.necessary for e in plain)
    assert all(e.method == "gradient" for e in found)


def test_what_it_is_packed_with_does_not_matter() -> None:
    data, model = random_graph(40, 70, seed=2), NodeNet("sum", seed=1)
    together = cf2.explain(model, data, nodes=range(40), effort="thorough")
    for node in range(0, 40, 8):
        (alone,) = cf2.explain(model, data, nodes=[node], effort="thorough")
        assert np.array_equal(alone.selected, together[node].selected)


def test_an_isolated_node_says_why_and_disturbs_nobody() -> None:
    data = random_graph(10, 12, seed=1)
    data.x = torch.cat([data.x, torch.ones(1, 4)])
    found = cf2.explain(NodeNet("gcn"), data, nodes=[10, 0])
    assert found[0].status == "empty"
    assert found[0].size == 0
    assert "no edge or feature that can be removed" in found[0].note
    (alone,) = cf2.explain(NodeNet("gcn"), data, nodes=[0])
    assert np.array_equal(alone.selected, found[1].selected)
