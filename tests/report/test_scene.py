"""What a picture shows, and where: every kind of unit and edit, the truth, what was left out, and points."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cf2.report import pictures as svg
from cf2.report import scene as layout
from cf2.report.scene import Scene, scene
from cf2.report.words import describe_edits
from cf2.results.explanation import Explanation, UnitTable
from report.edited_toys import edited, reddened
from report.explained_toys import random_graph, red_graph, table, with_units


def test_of_a_thousand_nodes_only_the_part_that_matters_is_drawn() -> None:
    e = random_graph(1000, 3000)
    shown = scene(e)
    assert len(shown.nodes) < 90
    assert set(e.edges.reshape(-1).tolist()) <= set(shown.nodes.tolist())
    assert int(shown.chosen.sum()) == 10
    assert f"{len(shown.nodes)} of 1,000 nodes" in shown.caption
    assert "of 3,000 edges" in shown.caption


def test_nodes_that_no_path_joins_to_the_target_are_not_drawn() -> None:
    pairs = np.array([[0, 1], [1, 2], *([node, node + 1] for node in range(3, 400, 2))])
    e = with_units(random_graph(12, 14), table("edges", pairs), [True] + [False] * (len(pairs) - 1))
    shown = scene(e)
    assert shown.nodes.tolist() == [0, 1, 2]
    assert f"3 of {len(np.unique(pairs))} nodes" in shown.caption


def test_truth_is_marked_in_either_direction() -> None:
    e = random_graph(12, 16)
    u, v = e.units.of("edges")[3].tolist()
    assert np.flatnonzero(scene(replace(e, context={"truth": {"0": [[v, u]]}})).true).tolist() == [3]
    assert not scene(replace(e, context={"truth": {"5": [[v, u]]}})).true.any()


def feature_scene(units: UnitTable, selected: list[bool]) -> Scene:
    """Node 0 explained without edges as units; the context knows two of them."""
    e = with_units(random_graph(12, 14), units, selected)
    return scene(replace(e, context={"graphs": {"0": {"edges": [[0, 1], [1, 2]]}}}))


def test_where_only_features_were_masked_the_edges_come_from_the_context() -> None:
    shown = feature_scene(table("features", [[0, 1], [2, 0]]), [True, False])
    assert shown.nodes.tolist() == [0, 1, 2]
    assert shown.edges.tolist() == [[0, 1], [1, 2]]
    assert shown.units.tolist() == [-1, -1]
    assert shown.marked.tolist() == [1, 0, 0]
    assert not shown.chosen.any()
    assert not shown.inside.any()


def test_chosen_nodes_are_inside_and_chosen_rows_of_features_are_marks() -> None:
    shown = feature_scene(table("nodes", [[1, -1], [2, -1]]), [True, False])
    assert shown.inside.tolist() == [False, True, False]
    assert not shown.marked.any()
    shown = feature_scene(table("node_features", [[1, -1], [2, -1]]), [True, False])
    assert shown.marked.tolist() == [0, 1, 0]
    assert not shown.inside.any()


def test_a_column_of_features_belongs_to_no_node() -> None:
    shown = feature_scene(table("columns", [[-1, 0], [-1, 1]]), [True, True])
    assert shown.nodes.tolist() == [0, 1, 2]
    assert not shown.marked.any()


def test_edges_need_not_come_first_among_the_units() -> None:
    e = random_graph(12, 14)
    entries = np.array([[3, 0], [4, 1]])
    kind = np.repeat(np.array([0, 1], dtype=np.int8), [2, 14])
    mixed = UnitTable(("features", "edges"), kind, np.concatenate([entries, e.units.ids]))
    both = scene(with_units(e, mixed, [False, True, *e.selected.tolist()]))
    alone = scene(e)
    assert both.edges[both.chosen].tolist() == alone.edges[alone.chosen].tolist()
    assert both.units.tolist() == (alone.units + 2).tolist()
    assert both.nodes[both.marked > 0].tolist() == [4]


def test_what_other_methods_chose_is_drawn_too() -> None:
    e = random_graph(1000, 3000)
    other = replace(e, selected=np.roll(e.selected, 5), units=e.units)
    drawn = set(scene(e, [other]).units.tolist())
    assert set(np.flatnonzero(other.selected).tolist()) <= drawn
    assert not set(np.flatnonzero(other.selected).tolist()) <= set(scene(e).units.tolist())


@pytest.mark.parametrize("nodes", [30, 100, 600])
def test_nodes_stay_where_they_are_when_the_explanation_changes(nodes: int) -> None:
    e = random_graph(nodes, 2 * nodes)
    other = replace(e, selected=np.roll(e.selected, 7))
    scenes = (scene(e, [other]), scene(other, [e]))  # as a page draws two methods side by side
    places = [dict(zip(s.nodes.tolist(), map(tuple, s.points))) for s in scenes]
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


def test_a_group_is_named_by_its_edges(good: Explanation) -> None:
    units = UnitTable(
        ("groups", "added_edges"),
        np.array([0, 1], dtype=np.int8),
        np.array([[2, -1], [4, 9]]),
        members=np.array([[0, 1, 3], [0, 3, 4]]),
    )
    e = replace(
        good, units=units, scores=np.ones(2), selected=np.ones(2, dtype=bool), question="counterfactual", status="found"
    )
    assert describe_edits(e) == "removing group 2 (1–3, 3–4) and adding 4–9"
    shown = scene(e)
    ids = shown.nodes[shown.edges]
    assert ids[shown.chosen].tolist() == [[1, 3], [3, 4]]
    assert shown.nodes[shown.added].tolist() == [[4, 9]]


def test_the_picture_knows_what_is_added_taken_away_and_changed() -> None:
    shown = scene(reddened())
    assert shown.nodes[shown.added].tolist() == [[4, 9]]
    assert {int(shown.nodes[node]): text for node, text in shown.changed.items()} == {5: "feature 1: 1 → 0.25"}
    assert not shown.chosen.any()
    assert not shown.marked.any()  # what changes is not what the explanation holds
    struck = scene(edited(red_graph(), 3, remove=[(0, 3)]))
    assert struck.nodes[struck.edges[struck.chosen]].tolist() == [[0, 3]]


def test_edges_that_could_have_been_added_are_not_drawn() -> None:
    shown = scene(reddened())
    spare = {tuple(pair) for pair in shown.nodes[shown.edges].tolist()} | set(
        map(tuple, shown.nodes[shown.added].tolist())
    )
    assert (0, 2) not in spare
