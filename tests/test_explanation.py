"""Results are frozen, aligned with the user's graph, and come back from disk exactly."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import cf2
from cf2.errors import CF2Error
from toys import GraphNet, NodeNet, random_graph

DATA = random_graph(30, 45, seed=6)
MODEL = NodeNet("sum", seed=1)


@pytest.fixture(scope="module")
def found() -> cf2.Explanations:
    return cf2.explain(MODEL, DATA, nodes=[3, 7, 9, 12], features=True)


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_round_trip_is_exact(found: cf2.Explanations, tmp_path: Path, ending: str) -> None:
    back = cf2.load(found.save(tmp_path / f"x.{ending}"))
    assert back.context == found.context
    for one, other in zip(found, back):
        for field in dataclasses.fields(one):
            a, b = getattr(one, field.name), getattr(other, field.name)
            if isinstance(a, np.ndarray):
                assert a.dtype == b.dtype
                assert np.array_equal(a, b)
            else:
                assert a == b


def test_masks_align_with_the_users_edge_index(found: cf2.Explanations) -> None:
    for e in found:
        hard, soft = e.edge_mask(DATA.edge_index), e.edge_mask(DATA.edge_index, soft=True)
        chosen = {tuple(p) for p in e.edges.tolist()}
        inside = {tuple(sorted(p)) for p in e.unit_edges.tolist()}
        for column, (a, b) in enumerate(DATA.edge_index.t().tolist()):
            assert hard[column] == ((a, b) in chosen)
            if a == b or tuple(sorted((a, b))) not in inside:
                assert soft[column] == 0
        reverse = e.edge_mask(DATA.edge_index.flip(0), soft=True)
        assert np.array_equal(soft, reverse)


def test_size_counts_units_and_edges_go_both_ways(found: cf2.Explanations) -> None:
    for e in found:
        assert e.size == len(e.edges) // 2 + len(e.features)
        assert {tuple(p) for p in e.edges} == {tuple(p[::-1]) for p in e.edges}


def test_tables_and_summaries(found: cf2.Explanations) -> None:
    table = found.to_pandas()
    assert list(table["key"]) == [3, 7, 9, 12]
    assert found.summary()["n"] == 4
    assert found.summary()["pn"] == pytest.approx(table["necessary"].mean())
    assert len(found[1:3]) == 2
    assert "fns" in repr(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found[0].size = 3  # type: ignore[misc]


def test_seeds_have_a_stability() -> None:
    runs = [cf2.explain(MODEL, DATA, nodes=[3, 7], method="cf2-relaxed", epochs=20, seed=s) for s in range(3)]
    assert 0 <= (runs[0] + runs[1] + runs[2]).stability() <= 1


def test_what_cannot_be_read_is_named(tmp_path: Path, found: cf2.Explanations) -> None:
    with pytest.raises(CF2Error, match="not there"):
        cf2.load(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(CF2Error, match="to hold explanations"):
        cf2.load(tmp_path / "bad.parquet")
    with pytest.raises(CF2Error, match=r"\.parquet or \.json"):
        found.save(tmp_path / "x.pkl")


@pytest.mark.parametrize("nodes", [[-1], [30], [1.5], ["a"], [], torch.tensor([0.5]), torch.ones(30, dtype=torch.bool)])
def test_bad_nodes_are_refused(nodes: object) -> None:
    with pytest.raises(CF2Error, match=r"nodes|node to explain"):
        cf2.explain(MODEL, DATA, nodes=nodes)


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (DATA, {}, "`nodes` beside a single graph"),
        ([], {}, "at least one graph"),
        (3, {}, "Data object"),
        (["x"], {}, "Data object"),
        (DATA, {"nodes": [0], "method": "cf3"}, "Did you mean 'cf2'"),
        (DATA, {"nodes": [0], "edges": False}, "neither"),
        (DATA, {"nodes": [0], "seed": -1}, "seed"),
        (DATA, {"nodes": [0], "output": "logit"}, "Did you mean 'logits'"),
        (DATA, {"nodes": [0], "target": [0, 1]}, "one class"),
        (DATA, {"nodes": [0], "target": [9]}, "class"),
        (DATA, {"nodes": [0], "effort": "huge"}, "effort"),
    ],
)
def test_bad_requests_are_refused(data: object, options: dict[str, object], said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        cf2.explain(MODEL, data, **options)


def test_labels_come_along() -> None:
    graphs = [random_graph(6, 6, seed=s) for s in range(3)]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([number % 2])
    found = cf2.explain(GraphNet("gin"), graphs)
    assert [e.label for e in found] == [0, 1, 0]


def test_another_class_can_be_explained() -> None:
    plain = cf2.explain(MODEL, DATA, nodes=[3])[0]
    other = (plain.prediction + 1) % 3
    e = cf2.explain(MODEL, DATA, nodes=[3], target=[other])[0]
    assert e.prediction == other
    assert e.sufficient == (int(e.only.argmax()) == other)


def test_self_loops_survive_everything() -> None:
    data = random_graph(8, 8, seed=0)
    data.edge_index = torch.cat([data.edge_index, torch.arange(8).repeat(2, 1)], 1)
    for e in cf2.explain(NodeNet("sum"), data, nodes=range(8)):
        assert all(a != b for a, b in e.unit_edges.tolist())
