"""The parts of the robustness and attribution rows, on graphs that can be counted by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import cf2
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset
from reproduction import attribution, published, reproduce, robustness
from reproduction.robustness import absent_pairs, with_noise
from reproduction.training import recipe_for

PATH = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))


def test_noise_joins_nodes_that_nothing_joined_and_keeps_the_prediction() -> None:
    assert absent_pairs(PATH).t().tolist() == [[0, 2], [0, 3], [1, 3]]
    asked: list[int] = []

    def closes_no_triangle(graphs: Any) -> torch.Tensor:
        asked.append(len(graphs))
        said = [{(0, 2), (1, 3)} & {tuple(pair) for pair in graph.edge_index.t().tolist()} for graph in graphs]
        return torch.tensor([len(one) for one in said])

    made = with_noise(closes_no_triangle, PATH, 1, torch.Generator().manual_seed(0))
    assert made is not None
    assert made.edge_index[:, :6].equal(PATH.edge_index)
    assert sorted(made.edge_index[:, 6:].t().tolist()) == [[0, 3], [3, 0]]
    assert len(asked) == 2  # all tries in one call
    assert with_noise(closes_no_triangle, PATH, 2, torch.Generator().manual_seed(0)) is None  # one of them closes one
    assert with_noise(closes_no_triangle, PATH, 4, torch.Generator().manual_seed(0)) is None  # there are three pairs


def answer(method: str, scores: list[float], selected: list[bool], status: str = "found") -> Any:
    edges = np.array([[place + 1, place] for place in range(len(scores))])
    units = SimpleNamespace(of=lambda kind: edges, where=lambda kind: np.arange(len(edges)))
    chosen = {"selected": np.array(selected), "size": sum(selected)}
    return SimpleNamespace(method=method, scores=np.array(scores), status=status, units=units, **chosen)


def test_a_small_verified_set_stands_for_itself_and_a_ranking_is_cut() -> None:
    verified = answer("cf2", [0.1, 0.9, 0.5, 0.2], [True, False, True, False])
    assert robustness.top(verified, 3).tolist() == [True, False, True, False]
    assert robustness.top(verified, 1).tolist() == [False, False, True, False]  # its own edges before others
    assert robustness.top(verified, 3, exact=True).tolist() == [True, True, True, False]  # filled up by its scores
    ranked = answer("gradient", [0.1, 0.9, 0.5, 0.2], [True, False, True, False])
    assert robustness.top(ranked, 1).tolist() == [False, True, False, False]
    assert robustness.top(ranked, 3).tolist() == [False, True, True, True]
    assert robustness.chosen_edges(ranked, 1) == {(1, 2)}


def test_overlap_and_connection_of_edges() -> None:
    one, other = frozenset({(0, 1), (1, 2)}), frozenset({(1, 2), (2, 3)})
    assert robustness.jaccard(one, other) == pytest.approx(1 / 3)
    assert robustness.shared(one, other | {(3, 4)}) == 0.5  # by GNNX-Bench, a share of k
    assert robustness.jaccard(frozenset(), frozenset()) == 1.0
    assert robustness._connected(frozenset({(0, 1), (2, 3), (1, 2)}))
    assert not robustness._connected(frozenset({(0, 1), (2, 3)}))
    assert robustness._connected(frozenset())


class Counts(torch.nn.Module):
    """Says 1 of a graph with more than two nodes."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        nodes = torch.bincount(batch).float()
        return torch.stack([torch.full_like(nodes, 2.5), nodes], 1)


def test_dropped_nodes_are_not_there() -> None:
    """Of a path of four nodes one edge leaves two nodes, two edges three; with all nodes kept nothing would change."""
    from cf2.runs.source import ModelAndData

    base = ModelAndData(model=Counts(), level="graph", graphs=[PATH, PATH, PATH, PATH])
    chosen = [
        frozenset({(0, 1)}),  # alone 2 nodes: changes; the rest has 3: stays
        frozenset({(0, 1), (1, 2)}),  # alone 3: stays; the rest has 2: changes
        frozenset({(0, 1), (2, 3)}),  # alone 4: stays; the rest has 2: changes
        frozenset({(0, 1), (1, 2), (2, 3)}),  # alone 4: stays; nothing is left, which gives no answer
    ]
    shares = robustness.dropped(base, [0, 1, 2, 3], chosen)
    assert shares == {"dropped_sufficiency": 0.75, "dropped_necessity": 0.75}
    none = robustness.dropped(base, [0], [frozenset()])
    assert none == {"dropped_sufficiency": 0.0, "dropped_necessity": 0.0}


def test_a_set_that_passes_with_isolated_nodes_dropped_is_what_the_wrapped_model_is_asked_for() -> None:
    """A graph of which nothing is left has a class of its own; what is found for the wrapper passes the tests."""
    from cf2.runs.source import ModelAndData

    wrapped = robustness.WithoutIsolated(Counts())
    alone = torch.tensor([[0, 1], [1, 0]])
    rows = wrapped(torch.ones(8, 1), torch.cat([alone, PATH.edge_index + 4], 1), torch.tensor([0] * 4 + [1] * 4))
    for row, nodes, edge_index in ((0, 2, alone), (1, 4, PATH.edge_index)):
        batch = torch.zeros(nodes, dtype=torch.long)
        assert torch.equal(rows[row, :2], Counts()(torch.ones(nodes, 1), edge_index, batch=batch)[0])
    assert wrapped(PATH.x, PATH.edge_index[:, :0]).argmax(1).tolist() == [2]
    (e,) = cf2.explain(wrapped, [PATH], units="edges")
    assert e.status == "found"
    edges = [frozenset((min(ends), max(ends)) for ends in e.edges.tolist())]
    base = ModelAndData(model=Counts(), level="graph", graphs=[PATH])
    assert robustness.dropped(base, [0], edges) == {"dropped_sufficiency": 1.0, "dropped_necessity": 1.0}


def test_the_curve_agrees_with_the_verdicts_of_the_answers() -> None:
    """BA-2motifs' graphs with an untrained model: at the size of a ranking's answer, the shares are PS and PN."""
    from cf2.runs.source import ModelAndData
    from cf2.samples import registry as datasets

    data = datasets.load("ba-2motifs")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = recipe_for(data).build(data).eval()
    source = ModelAndData(model=model, level="graph", graphs=data.graphs[:6])
    spec = robustness.spec_of("gradient")
    with Session(source.request(list(range(6)), spec)) as session:
        found = session.explain(list(range(6)))
    curve = robustness.curves(source, spec, found, None)
    assert len(curve["sufficient_at"]) == len(robustness.SIZES)
    assert curve["sufficient_at"][robustness.TEN - 1] == pytest.approx(np.mean([e.sufficient for e in found]))
    assert curve["necessary_at"][robustness.TEN - 1] == pytest.approx(np.mean([e.necessary for e in found]))


def test_the_best_of_the_acceptable_truths_counts() -> None:
    e = answer("cf2", [0.0] * 4, [True, True, False, False])
    far, near = np.array([False, True, True, True]), np.array([True, True, True, False])
    assert attribution.best_fit(e, [far, near]) == pytest.approx((4 / 5, 2 / 3))
    assert attribution.best_fit(e, []) == (0.0, 0.0)


def test_what_is_finished_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def row(models: Any, name: str, method: str, keys: Any) -> dict[str, Any]:
        made.append(f"{name} {method}")
        return {"table": "robustness", "dataset": name, "method": method, "n": len(keys), "published": {}}

    monkeypatch.setattr(robustness, "_model", lambda cells, name, arch: from_dataset("tree-cycles"))
    monkeypatch.setattr(robustness, "agreed_keys", lambda *given: [1, 2, 3])
    monkeypatch.setattr(robustness, "_row", row)
    options: dict[str, Any] = {"tables": ["robustness"], "datasets": ["mutag"], "instances": 2}
    first = reproduce(tmp_path / "out", **options)
    again = reproduce(tmp_path / "out", resume=True, **options)
    assert made == [f"mutag {method}" for method in published.ROBUSTNESS_ROWS]
    assert first["rows"] == again["rows"]
    assert first["rows"][-1]["method"] == "subgraphx"  # published only
    assert {r["n"] for r in first["rows"][:-1]} == {2}
