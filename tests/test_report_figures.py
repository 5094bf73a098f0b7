"""Pictures: the same places for the same instance, legible, and honest about what they leave out."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from browser_toys import ATOMS, explained, first_edge, molecule_subject, nitrobenzene, red_edges, red_subject
from cf2.errors import CF2Error
from cf2.explanation import Explanation
from cf2.report import layout, molecules, svg
from cf2.report.figures import plot
from cf2.report.scene import scene


def random_graph(nodes: int, edges: int, seed: int = 0) -> Explanation:
    """A connected random graph in which ten random edges are the explanation of node 0."""
    rng = np.random.default_rng(seed)
    pairs = {(int(rng.integers(0, i)), i) for i in range(1, nodes)}
    while len(pairs) < edges:
        a, b = sorted(rng.integers(0, nodes, 2).tolist())
        pairs |= {(a, b)} if a != b else set()
    units = np.array(sorted(pairs))
    selected = np.zeros(len(units), dtype=bool)
    selected[rng.choice(len(units), 10, replace=False)] = True
    half = np.array([0.4, 0.6], dtype=np.float32)
    return Explanation(
        key=0,
        task="node",
        prediction=1,
        unit_edges=units,
        unit_features=np.zeros((0, 2), dtype=np.int64),
        scores=selected.astype(np.float32),
        selected=selected,
        probabilities=half,
        only=half,
        without=half[::-1],
        sufficient=True,
        necessary=True,
    )


def molecule_context() -> dict[str, Any]:
    labels = [ATOMS[place] for place in nitrobenzene().x.argmax(1).tolist()]
    return {"atoms": list(ATOMS), "graphs": {"0": {"labels": labels}}}


def nitro(instance: Any, pairs: np.ndarray) -> np.ndarray:
    return np.array([tuple(pair) in {(6, 7), (6, 8)} for pair in pairs.tolist()])


@pytest.fixture
def figures() -> Iterator[list[Any]]:
    made: list[Any] = []
    yield made
    for figure in made:
        figure.clear()


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


def test_of_a_thousand_nodes_only_the_part_that_matters_is_drawn() -> None:
    e = random_graph(1000, 3000)
    shown = scene(e)
    assert len(shown.nodes) < 90
    assert set(e.edges.reshape(-1).tolist()) <= set(shown.nodes.tolist())
    assert int(shown.chosen.sum()) == 10
    assert f"{len(shown.nodes)} of 1,000 nodes" in shown.caption
    assert "of 3,000 edges" in shown.caption


def test_parts_that_do_not_touch_and_lone_nodes_are_drawn() -> None:
    points = layout.positions(np.array([[0, 1], [2, 3]]), 5, 4)
    assert np.isfinite(points).all()
    assert len({tuple(p) for p in points.round(6).tolist()}) == 5


def test_the_figure_has_the_graph_the_probabilities_and_the_words(figures: list[Any]) -> None:
    found = explained(red_subject(class_names=("$quiet$", "busy")), [3], red_edges, "cf2")
    figures.append(found.plot(0))
    figure = figures[0]
    figure.canvas.draw()
    left, right = figure.axes
    assert len(right.patches) == 6  # two classes, three graphs
    assert "Sufficient" in figure.get_supxlabel()
    assert np.isclose(sum(p.get_width() for p in right.patches), 3)
    assert "explained node" in [t.get_text() for t in left.get_legend().get_texts()]


def test_a_figure_of_a_bad_size_is_refused() -> None:
    with pytest.raises(CF2Error, match="width and a height"):
        plot(random_graph(10, 12), size=(0, 3))


def test_truth_is_marked_in_either_direction() -> None:
    e = random_graph(12, 16)
    u, v = e.unit_edges[3].tolist()
    shown = scene(e, {"truth": {"0": [[v, u]]}})
    assert shown.has_truth
    assert np.flatnonzero(shown.true).tolist() == [3]
    assert not scene(e, {"truth": {"5": [[v, u]]}}).has_truth


class TestMolecules:
    @pytest.fixture(autouse=True)
    def needs_rdkit(self) -> None:
        pytest.importorskip("rdkit", reason="rdkit is not installed")

    def test_hydrogens_outside_the_explanation_are_folded_into_their_atoms(self) -> None:
        e = explained(molecule_subject(), [0], nitro, "cf2")[0]
        made = molecules._prepare(scene(e, molecule_context()))
        assert [atom.GetSymbol() for atom in made.GetAtoms()].count("H") == 0
        assert sum(atom.GetNumExplicitHs() for atom in made.GetAtoms()) == 5

    def test_a_hydrogen_in_the_explanation_is_drawn(self) -> None:
        e = explained(molecule_subject(), [0], lambda i, p: (p == 9).any(1), "cf2")[0]
        made = molecules._prepare(scene(e, molecule_context()))
        assert [atom.GetSymbol() for atom in made.GetAtoms()].count("H") == 1

    def test_the_drawing_follows_the_colour_of_the_text_and_marks_the_explanation(self) -> None:
        e = explained(molecule_subject(), [0], nitro, "cf2")[0]
        text = str(svg.picture(scene(e, molecule_context()), "a molecule", molecule=True))
        assert "currentColor" in text
        assert "#000000" not in text
        assert text.count("cf2-bond") == 1

    def test_bond_orders_are_used_where_known(self) -> None:
        context = molecule_context()
        context["graphs"]["0"]["bonds"] = [[0, 1, 2], [6, 7, 2]]
        e = explained(molecule_subject(), [0], nitro, "cf2")[0]
        made = molecules._prepare(scene(e, context))
        kinds = [bond.GetBondTypeAsDouble() for bond in made.GetBonds()]
        assert sorted(kinds)[-2:] == [2.0, 2.0]
        assert kinds.count(1.0) == len(kinds) - 2

    def test_labels_that_are_no_elements_are_drawn_as_a_graph(self) -> None:
        context = molecule_context()
        context["graphs"]["0"]["labels"][0] = "<b>"
        e = explained(molecule_subject(), [0], nitro, "cf2")[0]
        text = str(svg.picture(scene(e, context), "no molecule", molecule=True))
        assert "cf2-chosen" in text
        assert "&lt;b&gt;" in text
        assert "<b>" not in text


def test_without_rdkit_a_molecule_is_an_ordinary_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rdkit", None)
    e = explained(molecule_subject(), [0], nitro, "cf2")[0]
    text = str(svg.picture(scene(e, molecule_context()), "a graph", molecule=True))
    assert "cf2-chosen" in text
    assert text.count("<text") == 14


def nothing_to_mask() -> Explanation:
    none = {
        "unit_edges": np.zeros((0, 2), dtype=np.int64),
        "scores": np.zeros(0),
        "selected": np.zeros(0, dtype=bool),
    }
    return replace(random_graph(12, 14), task="graph", status="empty", note="The graph has no edges.", **none)


def test_an_instance_with_nothing_to_mask_is_drawn_without_an_error(figures: list[Any]) -> None:
    e = nothing_to_mask()
    assert "<svg" in svg.picture(scene(e), "nothing")
    figures.append(plot(e))
    figures[0].canvas.draw()
    assert "The graph has no edges" in e._repr_html_()


def test_where_only_features_were_masked_the_edges_come_from_the_context() -> None:
    none = {"unit_edges": np.zeros((0, 2), dtype=np.int64), "unit_features": np.array([[0, 1], [2, 0]])}
    marks = {"scores": np.array([1.0, 0.0]), "selected": np.array([True, False])}
    shown = scene(replace(random_graph(12, 14), **none, **marks), {"graphs": {"0": {"edges": [[0, 1], [1, 2]]}}})
    assert shown.nodes.tolist() == [0, 1, 2]
    assert shown.edges.tolist() == [[0, 1], [1, 2]]
    assert shown.marked.tolist() == [1, 0, 0]
    assert not shown.chosen.any()


def test_directed_edges_have_arrows() -> None:
    e = replace(explained(red_subject(), [3], first_edge, "x")[0], directed=True)
    plain = replace(e, directed=False)
    assert str(svg.picture(scene(e), "")).count("<path") > str(svg.picture(scene(plain), "")).count("<path")
