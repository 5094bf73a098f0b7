"""SVG and figures have the graph, the probabilities and the words; edits are told apart, also without colours."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.report import molecules
from cf2.report import pictures as svg
from cf2.report.html import explanation_html
from cf2.report.pictures import plot
from cf2.report.scene import after, scene
from cf2.results.explanation import Explanation, UnitTable
from report.edited_toys import edited, nitrated, reddened
from report.explained_toys import (
    ATOMS,
    NITROBENZENE,
    explained,
    nitro_bonds,
    random_graph,
    red_edges,
    red_graph,
    with_units,
)


@pytest.fixture(scope="module")
def node() -> Explanation:
    return explained(red_edges, "cf2", [3])[0]


def test_the_figure_has_the_graph_the_probabilities_and_the_words() -> None:
    figure = explained(red_edges, "cf2", [3], class_names=("$quiet$", "busy")).plot(0)
    figure.canvas.draw()
    left, right = figure.axes
    assert len(right.patches) == 6  # two classes, three graphs
    assert "Sufficient" in figure.get_supxlabel()
    assert np.isclose(sum(p.get_width() for p in right.patches), 3)
    assert "explained node" in [t.get_text() for t in left.get_legend().get_texts()]
    assert figure._repr_png_().startswith(b"\x89PNG"), "a notebook shows it"


def test_an_instance_with_nothing_to_mask_is_drawn_without_an_error() -> None:
    known = {"task": "graph", "status": "empty", "note": "The graph has no edges."}
    e = replace(with_units(random_graph(12, 14), UnitTable.none(), []), **known)
    assert "<svg" in svg.picture(scene(e), "nothing")
    plot(e).canvas.draw()
    assert "The graph has no edges" in e._repr_html_()


def test_a_context_of_the_caller_leaves_claims_as_they_are(node: Explanation) -> None:
    e = replace(node, optimal=True, context={"spec": {"connected": True}})
    text = e.plot(context={"class_names": ["calm", "lively"]}).get_supxlabel().replace("\n", " ")
    assert "lively" in text
    assert "among sets that are connected" in text


def test_the_graph_alone_on_given_axes(node: Explanation) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert node.plot(ax=axes) is axes
    assert axes.collections
    for wrong, said in (({"ax": 3}, "`ax` to be matplotlib axes"), ({"size": (0, 3)}, "width and a height")):
        with pytest.raises(CF2Error, match=said):
            node.plot(**wrong)


def test_nodes_are_where_the_user_wants_them(node: Explanation) -> None:
    import networkx

    known = networkx.circular_layout(node.to_networkx())
    for given in (known, networkx.circular_layout):
        axes = node.plot(layout=given, probabilities=False).axes[0]
        drawn = np.concatenate([np.asarray(one.get_offsets()) for one in axes.collections if len(one.get_offsets())])
        for point in known.values():
            assert np.isclose(drawn, point).all(1).any()
    with pytest.raises(CF2Error, match=r"a point .* for every node that is drawn.*none for"):
        node.plot(layout={3: (0, 0)})
    with pytest.raises(CF2Error, match="a point"):
        node.plot(layout="circle")


def test_the_picture_is_written_where_it_should_be(node: Explanation, tmp_path: Path) -> None:
    node.plot(path=tmp_path / "one.svg")
    node.plot(path=tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 1000
    assert "<svg" in (tmp_path / "one.svg").read_text(encoding="utf-8")
    with pytest.raises(CF2Error, match=r"the ending of `path`.*'pmg'. Did you mean 'png'"):
        node.plot(path=tmp_path / "one.pmg")


def test_added_edges_are_dashed_removed_ones_struck_and_changed_nodes_ringed(node: Explanation) -> None:
    text = str(svg.picture(scene(edited(red_graph(), 4, add=[(4, 9)], remove=[(3, 4)])), "edits"))
    assert text.count('class="cf2-added"') == text.count('class="cf2-removed"') == text.count('class="cf2-cross"') == 1
    assert "cf2-chosen" not in text
    for kind in ("added", "removed", "changed"):
        assert re.search(rf"\.cf2-{kind} {{[^}}]*stroke-dasharray", svg.STYLE)
    plain, arrows = (str(svg.picture(scene(replace(node, directed=way)), "")) for way in (False, True))
    assert arrows.count("<path") > plain.count("<path")
    assert not any(f"cf2-{kind}" in plain for kind in ("added", "removed", "cross", "changed", "pair"))
    changed = str(svg.picture(scene(reddened()), "a change"))
    assert changed.count('class="cf2-changed"') == 1
    assert "feature 1: 1 → 0.25" in changed
    assert "cf2-cross" not in changed


def test_a_removed_node_is_struck_and_gone_afterwards(good: Explanation) -> None:
    ids = np.array([[3, 4], [4, 5], [4, -1]])
    units = UnitTable(("edges", "nodes"), np.array([0, 0, 1], dtype=np.int8), ids)
    chosen = np.array([False, False, True])
    e = replace(good, units=units, scores=np.ones(3), selected=chosen, question="counterfactual")
    shown = scene(e)
    assert shown.nodes[shown.lost].tolist() == [4]
    assert "cf2-cross" in str(svg.picture(shown, "a node goes"))
    later = after(shown)
    assert later.nodes.tolist() == [3, 5]
    assert not len(later.edges)


def test_the_matplotlib_figure_draws_edits(tmp_path: Path) -> None:
    figure = reddened().plot()
    axes = figure.axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["added", "explained node", "changed"]
    assert "feature 1: 1 → 0.25" in [text.get_text() for text in axes.texts]
    assert [tick.get_text() for tick in figure.axes[1].get_yticklabels()] == ["as it is", "after the\nedits"]
    figure.savefig(tmp_path / "edits.png")


def nitro(choose: Any = nitro_bonds, **known: Any) -> Explanation:
    """Nitrobenzene, whose atoms are known, and maybe more."""
    context = {"atoms": list(ATOMS), "graphs": {"0": {"labels": list(NITROBENZENE), **known}}}
    return replace(explained(choose, "cf2")[0], context=context)


class TestMolecules:
    @pytest.fixture(autouse=True)
    def needs_rdkit(self) -> None:
        pytest.importorskip("rdkit", reason="rdkit is not installed")

    def test_hydrogens_are_folded_into_their_atoms_unless_they_are_in_the_explanation(self) -> None:
        for choose, drawn in ((nitro_bonds, 0), (lambda key, pairs: (pairs == 9).any(1), 1)):
            made = molecules._prepare(scene(nitro(choose)))
            assert [atom.GetSymbol() for atom in made.GetAtoms()].count("H") == drawn
            assert sum(atom.GetNumExplicitHs() for atom in made.GetAtoms()) == 5 - drawn

    def test_the_drawing_follows_the_colour_of_the_text_and_marks_the_explanation(self) -> None:
        text = str(svg.picture(scene(nitro()), "a molecule"))
        assert "currentColor" in text
        assert "#000000" not in text
        assert text.count("cf2-bond") == 1

    def test_atoms_that_are_chosen_by_themselves_are_marked(self) -> None:
        e = nitro()
        atoms = np.column_stack([np.arange(14), np.full(14, -1)])
        units = UnitTable(("nodes",), np.zeros(14, dtype=np.int64), atoms, np.zeros((14, 3)))
        known = dict(e.context["graphs"]["0"], edges=e.units.of("edges").tolist())
        context = e.context | {"graphs": {"0": known}}
        chosen = replace(e, units=units, scores=np.zeros(14), selected=np.arange(14) == 6, context=context)
        nothing = replace(chosen, selected=np.zeros(14, dtype=bool))
        drawn = [str(svg.picture(scene(own), "a molecule")) for own in (chosen, nothing, e)]
        visible = [re.findall(r"<ellipse[^>]*class='atom-(\d+)'[^>]*fill:#56B4E9(?!00)", text) for text in drawn]
        assert visible == [["6"], [], []], "at a chosen bond, the line marks the atoms"

    def test_bond_orders_are_used_where_known(self) -> None:
        made = molecules._prepare(scene(nitro(nitro_bonds, bonds=[[0, 1, 2], [6, 7, 2]])))
        kinds = sorted(bond.GetBondTypeAsDouble() for bond in made.GetBonds())
        assert kinds[-2:] == [2.0, 2.0]
        assert kinds.count(1.0) == len(kinds) - 2

    def test_labels_that_are_no_elements_are_drawn_as_a_graph(self) -> None:
        text = str(svg.picture(scene(nitro(labels=["<b>", *NITROBENZENE[1:]])), "no molecule"))
        assert "cf2-chosen" in text
        assert "&lt;b&gt;" in text
        assert "<b>" not in text


def test_without_rdkit_a_molecule_is_an_ordinary_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rdkit", None)
    text = str(svg.picture(scene(nitro()), "a graph"))
    assert "cf2-chosen" in text
    assert text.count("<text") == 14


class TestEditedMolecules:
    @pytest.fixture(autouse=True)
    def needs_rdkit(self) -> None:
        pytest.importorskip("rdkit", reason="rdkit is not installed")

    def test_the_molecule_after_the_edits_has_the_new_atoms_and_bonds(self) -> None:
        shown = scene(nitrated())
        later = after(shown)
        made = molecules._molecule(later.labels, later.edges, later.bonds)
        assert [atom.GetSymbol() for atom in made.GetAtoms()][6:9] == ["N", "O", "O"]
        assert made.GetBondBetweenAtoms(6, 8) is not None
        assert made.GetBondBetweenAtoms(2, 3) is None
        first = molecules._molecule(shown.labels, shown.edges, shown.bonds)
        assert first.GetAtomWithIdx(7).GetSymbol() == "C"
        assert first.GetBondBetweenAtoms(6, 8) is None
        assert np.array_equal(later.points, shown.points)

    def test_before_and_after_stand_side_by_side(self) -> None:
        text = str(svg.picture(scene(nitrated()), "edits"))
        before, later = text.split("before</text></g>")
        assert later.endswith("after</text></g></svg>")
        assert "cf2-cross" in before
        assert "cf2-cross" not in later
        assert "cf2-added" in later
        assert "cf2-added" not in before
        assert "C → O" in before
        assert f'viewBox="0 0 {2 * svg.WIDTH} ' in text

    def test_bonds_of_the_context_are_drawn_where_nothing_can_be_removed(self) -> None:
        e = nitrated()
        rows = np.flatnonzero(e.units.kind > 0)
        fewer = UnitTable(e.units.names[1:], e.units.kind[rows] - 1, e.units.ids[rows], e.units.values[rows])
        known = {"graphs": {"0": {"labels": list(NITROBENZENE), "bonds": [[0, 6, 1], [6, 0, 1], [6, 7, 1]]}}}
        shown = scene(replace(e, units=fewer, scores=e.scores[rows], selected=e.selected[rows], context=known))
        assert shown.edges.tolist() == [[0, 6], [6, 7]]

    def test_the_figure_shows_both_and_the_card_is_wide(self) -> None:
        figure = nitrated().plot()
        words = [text.get_text() for text in figure.axes[0].texts]
        assert {"before", "after", "C → O"} <= set(words)
        assert "cf2-wide" in explanation_html(nitrated())


def test_the_curve_of_a_sure_set_has_its_points_and_what_was_asked(node: Explanation, tmp_path: Path) -> None:
    e = replace(node, curve=((2, 0.5), (3, 0.75), (5, 1.0)), surely=0.6, pns=(0.7, 0.6, 0.8))
    axes = e.plot("curve", path=tmp_path / "curve.png").axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[2, 0.5], [3, 0.75], [5, 1.0]]
    assert any(set(line.get_ydata()) == {0.6} for line in axes.lines)
    assert (tmp_path / "curve.png").stat().st_size > 1000
    shown = explanation_html(e)
    assert [f"size {size}: PNS {share:.2f}" in shown for size, share in e.curve] == [True] * 3
    assert "size against PNS" not in explanation_html(node)
    with pytest.raises(CF2Error, match="surely"):
        node.plot("curve")
    with pytest.raises(CF2Error, match="curve"):
        node.plot("curves")
