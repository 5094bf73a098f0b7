"""The same place for the same node in every picture of an instance, and nodes that do not lie on each other."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cf2.report import pictures as svg
from cf2.report import scene as layout
from cf2.report.scene import scene
from report.explained_toys import random_graph


@pytest.mark.parametrize("nodes", [30, 100, 600])
def test_nodes_stay_where_they_are_when_the_explanation_changes(nodes: int) -> None:
    e = random_graph(nodes, 2 * nodes)
    other = replace(e, selected=np.roll(e.selected, 7))
    places = [dict(zip(s.nodes.tolist(), map(tuple, s.points))) for s in (scene(e), scene(other))]
    both = places[0].keys() & places[1].keys()
    assert len(both) > 20
    assert all(places[0][node] == places[1][node] for node in both)


def test_a_path_is_laid_out_straight_with_edges_of_one() -> None:
    edges = np.array([[i, i + 1] for i in range(9)])
    points = layout.positions(edges, 10, 0)
    lengths = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    assert np.allclose(lengths, 1, atol=0.05)
    assert np.allclose(points[0], 0)


def test_a_hundred_nodes_do_not_lie_on_each_other() -> None:
    shown = scene(random_graph(100, 160))
    assert len(shown.nodes) == 100
    at = svg.fit(shown.points, svg.WIDTH, svg.HEIGHT, svg.MARGIN)
    gaps = [np.hypot(*(at[a] - at[b])) for a, b in itertools.combinations(range(100), 2)]
    assert np.quantile(gaps, 0.01) > 7.2  # two radii of the smallest dot
    assert shown.caption == ""


def test_parts_that_do_not_touch_and_lone_nodes_are_drawn() -> None:
    points = layout.positions(np.array([[0, 1], [2, 3]]), 5, 4)
    assert np.isfinite(points).all()
    assert len({tuple(p) for p in points.round(6).tolist()}) == 5
