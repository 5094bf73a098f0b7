from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cf2 import bench
from cf2.bench import curves, page, rivals
from cf2.bench.subjects import big_work, block, copies, shapes
from cf2.bench.timing import in_fresh_process
from cf2.errors import CF2Error
from cf2.work import Session


def test_a_block_is_undirected_and_of_the_size_it_says() -> None:
    edges = block(nodes=500, degree=6)
    assert edges.shape == (2, 3000)
    pairs = set(map(tuple, edges.T.tolist()))
    assert pairs == {(v, u) for u, v in pairs}


def test_copies_keep_the_neighbourhoods_of_the_first_block() -> None:
    """What makes the comparison of graph sizes fair: the same instances, whatever the size of the graph."""
    found = {}
    for count in (1, 3):
        graph, nodes = copies(count, 400)
        instances = [graph.cut(int(node), 2) for node in nodes[:5]]
        found[count] = [(len(i.node_ids), i.num_edge_units, round(float(i.x.sum()), 3)) for i in instances]
    assert found[1] == found[3]


def test_cutting_does_not_cost_more_in_a_larger_graph() -> None:
    """A graph of 10⁶ directed edges against one of 10⁵: a cut must cost what it contains."""
    small, large = (bench.cut_seconds(work, nodes[::50]) for work, nodes in (big_work(1), big_work(10)))
    assert large < 3 * small


def test_many_instances_take_bounded_memory() -> None:
    """2,000 streamed instances may not need more memory than 200 by more than some noise."""
    _, few = in_fresh_process(curves._instances_point, 200)
    _, many = in_fresh_process(curves._instances_point, 2_000)
    assert many < few + 30


def collect(count: int) -> int:
    subject = shapes()
    keys = np.resize(subject.keys(), count).tolist()
    with Session(subject.work(keys, method="gradient", settings={"k": 6})) as session:
        return len(session.explain(keys))


@pytest.mark.slow
def test_ten_thousand_explanations_take_less_than_two_gigabytes() -> None:
    found, peak = in_fresh_process(collect, 10_000)
    assert found == 10_000
    assert peak < 2048


def test_packed_is_faster_than_a_loop_of_gnnexplainer() -> None:
    subject = shapes()
    keys = subject.keys()[:8]
    looped = rivals.gnnexplainer(subject, keys[:1], epochs=40)
    packed = bench.per_explanation(subject.work(keys, method="cf2-relaxed", settings={"epochs": 40}), keys)
    assert packed < looped


def test_pgexplainer_runs_on_nodes() -> None:
    state = torch.random.get_rng_state()
    subject = shapes()
    assert rivals.pgexplainer(subject, subject.keys()[:1], epochs=2) > 0
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_page_has_every_figure_and_plot(tmp_path: Path) -> None:
    curve = curves.Curve("toy", "A toy", ("size", "ms"), ((1, 0.5), (10, 5.25)), "Made up.")
    path = page.write_page(tmp_path, {"toy_ratio": 12.345}, [curve])
    text = path.read_text()
    assert "| `toy_ratio` | 12.3 |" in text
    assert "| 10 | 5.25 |" in text
    assert "images/bench-toy.svg" in text
    first = (tmp_path / "images" / "bench-toy.svg").read_bytes()
    page.plot(curve, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == first


def test_sections_by_name() -> None:
    with pytest.raises(CF2Error, match="'workers'"):
        bench.run(sections=["worker"])
    assert json.dumps(bench.run(sections=[])) == "{}"
