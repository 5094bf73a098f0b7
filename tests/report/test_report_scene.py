"""What a picture shows: every kind of unit, the truth, and what was left out."""

from dataclasses import replace

import numpy as np

from cf2.report import pictures as svg
from cf2.report.scene import Scene, scene
from cf2.results.explanation import UnitTable
from report.explained_toys import random_graph, table, with_units


def test_of_a_thousand_nodes_only_the_part_that_matters_is_drawn() -> None:
    e = random_graph(1000, 3000)
    shown = scene(e)
    assert len(shown.nodes) < 90
    assert set(e.edges.reshape(-1).tolist()) <= set(shown.nodes.tolist())
    assert int(shown.chosen.sum()) == 10
    assert f"{len(shown.nodes)} of 1,000 nodes" in shown.caption
    assert "of 3,000 edges" in shown.caption


def test_truth_is_marked_in_either_direction() -> None:
    e = random_graph(12, 16)
    u, v = e.units.of("edges")[3].tolist()
    shown = scene(e, {"truth": {"0": [[v, u]]}})
    assert shown.has_truth
    assert np.flatnonzero(shown.true).tolist() == [3]
    assert not scene(e, {"truth": {"5": [[v, u]]}}).has_truth


def feature_scene(units: UnitTable, selected: list[bool]) -> Scene:
    """Node 0 explained without edges as units; the context knows two of them."""
    e = with_units(random_graph(12, 14), units, selected)
    return scene(e, {"graphs": {"0": {"edges": [[0, 1], [1, 2]]}}})


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


def test_a_pair_has_two_targets() -> None:
    e = replace(random_graph(200, 300), key=(5, 170), task="pair")
    shown = scene(e)
    assert shown.nodes[list(shown.targets)].tolist() == [5, 170]
    assert str(svg.picture(shown, "a pair")).count("cf2-target") == 2


def test_what_other_methods_chose_is_drawn_too() -> None:
    e = random_graph(1000, 3000)
    other = replace(e, selected=np.roll(e.selected, 5), units=e.units)
    drawn = set(scene(e, None, [other]).units.tolist())
    assert set(np.flatnonzero(other.selected).tolist()) <= drawn
    assert not set(np.flatnonzero(other.selected).tolist()) <= set(scene(e).units.tolist())
