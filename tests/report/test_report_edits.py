"""Edits in words and in pictures: what is added, taken away and changed is told apart, also without colours."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cf2.report import molecules
from cf2.report import pictures as svg
from cf2.report.html import explanation_html, explanations_html, write_report
from cf2.report.scene import after, scene
from cf2.report.words import describe_edits, list_edits, verdict, verdict_sentences
from cf2.results.explanation import Explanation, UnitTable
from cf2.results.explanations import Explanations
from report.edited_toys import CLASSES, edited, harmless, molecule_context, nitrated, reddened
from report.explained_toys import ATOMS, explained, red_edges, red_graph
from web.browser import new_page

QUIET = ["quiet", "busy"]


# -- words ----------------------------------------------------------------------------------------------------


def test_edits_are_said_with_what_the_model_says_before_and_after() -> None:
    text = verdict(nitrated(), CLASSES, ATOMS)
    assert text == (
        "Changed: after removing 2–3, adding 6–8 and changing atom 7: C → O "
        "the model says mutagen (0.88) instead of non-mutagen."
    )
    assert "node 7: feature 0 → feature 2" in verdict(nitrated(), CLASSES)
    assert "node 5, feature 1: 1 → 0.25" in verdict(reddened(), QUIET)


def test_a_class_that_was_asked_for_is_reached_or_not() -> None:
    e = replace(nitrated(), target=0)
    assert verdict(e, CLASSES, ATOMS).startswith("Reached: after removing 2–3,")
    failed = replace(edited(harmless(), add=[(6, 8)], target=0), minimal=None)
    text = verdict(failed, CLASSES)
    assert "Not reached: after adding 6–8 the model still says non-mutagen (0.88), and not mutagen." in text
    assert "Not found: no set of edits that reaches that class was found within the budget" in text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("impossible", "Impossible: proved that no set of such edits changes the answer; this one comes closest. Why."),
        ("not found", "Not found: no set of edits that changes the answer was found within the budget;"),
    ],
)
def test_what_cannot_be_changed_is_said(status: str, words: str) -> None:
    e = edited(red_graph(), 4, status=status, note="Why.")
    text = verdict(e, QUIET)
    assert text.startswith("Not changed: with nothing edited the model still says quiet (0.88).")
    assert words in text


def test_edits_are_never_called_sufficient_but_removals_are_as_before(good: Explanation) -> None:
    heads = [s.head for s in verdict_sentences(replace(nitrated(), sufficient=True, minimal=True), CLASSES)]
    assert heads == ["Changed", "Minimal"]
    assert "no fewer edits do this" in verdict(replace(nitrated(), optimal=True))
    removal = replace(good, question="counterfactual")
    assert [s.head for s in verdict_sentences(removal)][:2] == ["Sufficient", "Necessary"]


def test_many_edits_are_counted_and_listed() -> None:
    pairs = [(0, other) for other in range(5, 15)]
    e = edited(red_graph(), 4, add=pairs)
    assert describe_edits(e) == "adding 10 edges"
    assert list_edits(e) == "add 0–5, 0–6, 0–7, 0–8, 0–9, 0–10 and 4 more"
    assert list_edits(nitrated(), ATOMS) == "remove 2–3; add 6–8; change atom 7: C → O"
    assert describe_edits(edited(red_graph(), 4)) == "no edit"


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


# -- pictures -------------------------------------------------------------------------------------------------


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


def test_added_edges_are_dashed_removed_ones_struck_and_changed_nodes_ringed() -> None:
    text = str(svg.picture(scene(edited(red_graph(), 4, add=[(4, 9)], remove=[(3, 4)])), "edits"))
    assert text.count('class="cf2-added"') == text.count('class="cf2-removed"') == text.count('class="cf2-cross"') == 1
    assert "cf2-chosen" not in text
    for kind in ("added", "removed", "changed"):
        assert re.search(rf"\.cf2-{kind} {{[^}}]*stroke-dasharray", svg.STYLE)
    changed = str(svg.picture(scene(reddened()), "a change"))
    assert changed.count('class="cf2-changed"') == 1
    assert "feature 1: 1 → 0.25" in changed
    assert "cf2-cross" not in changed


def test_what_passes_without_edits_is_drawn_as_before(good: Explanation) -> None:
    text = str(svg.picture(scene(good), "no edits"))
    assert "cf2-chosen" in text
    for kind in ("added", "removed", "cross", "changed", "pair"):
        assert f"cf2-{kind}" not in text


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
    figure = reddened().plot(context={"class_names": QUIET})
    axes = figure.axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["added", "explained node", "changed"]
    assert "feature 1: 1 → 0.25" in [text.get_text() for text in axes.texts]
    assert [tick.get_text() for tick in figure.axes[1].get_yticklabels()] == ["as it is", "after the\nedits"]
    figure.savefig(tmp_path / "edits.png")


class TestMolecules:
    @pytest.fixture(autouse=True)
    def needs_rdkit(self) -> None:
        pytest.importorskip("rdkit", reason="rdkit is not installed")

    def test_the_molecule_after_the_edits_has_the_new_atoms_and_bonds(self) -> None:
        shown = scene(nitrated(), molecule_context())
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
        text = str(svg.picture(scene(nitrated(), molecule_context()), "edits", molecule=True))
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
        context = molecule_context()
        context["graphs"]["0"]["bonds"] = [[0, 6, 1], [6, 0, 1], [6, 7, 1]]
        shown = scene(replace(e, units=fewer, scores=e.scores[rows], selected=e.selected[rows]), context)
        assert shown.edges.tolist() == [[0, 6], [6, 7]]

    def test_the_figure_shows_both_and_the_card_is_wide(self) -> None:
        figure = nitrated().plot(context=molecule_context())
        words = [text.get_text() for text in figure.axes[0].texts]
        assert {"before", "after", "C → O"} <= set(words)
        assert "cf2-wide" in explanation_html(nitrated(), molecule_context())


# -- the report -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report about two questions on the same node, one of them with hostile names."""
    context: dict[str, Any] = {"class_names": QUIET}
    why = explained(red_edges, "cf2", [4])
    counterfactual = Explanations((reddened(),), context)
    return write_report([why, counterfactual], tmp_path_factory.mktemp("report") / "both.html")


def test_both_questions_of_a_run_are_shown(both: Path) -> None:
    text = both.read_text()
    for name in ("cf2", "cf2, counterfactual"):
        assert f"{name}:" in text
    assert "<strong>Edits:</strong> add 4–9; change node 5, feature 1: 1 → 0.25" in text
    assert "after the edits" in text
    assert text.count('<article class="cf2-card"') == 1


def test_a_report_of_one_question_names_methods_only(tmp_path: Path) -> None:
    text = write_report([Explanations((reddened(),), {})], tmp_path / "one.html").read_text()
    assert "cf2, counterfactual" not in text
    assert "1 of 1 reached" in text


def test_notebooks_list_edits() -> None:
    assert "add 4–9; change node 5, feature 1: 1 → 0.25" in explanations_html(Explanations((reddened(),), {}))
    assert "<th>edits</th>" not in explanations_html(explained(red_edges, "cf2", [4]))
    assert "Edits:" in reddened()._repr_html_()


@pytest.mark.browser
def test_the_table_has_a_column_of_edits(browser: Any, both: Path) -> None:
    with new_page(browser) as page:
        page.goto(both.as_uri())
        rows = [row.split("\t") for row in page.locator("#rows tr").all_inner_texts()]
        heads = [head.strip() for head in page.locator(".list th").all_inner_texts()]
        at = {name: heads.index(name) for name in ("edits", "sufficient", "method")}
        by_method = {row[at["method"]]: row for row in rows}
        assert by_method["cf2, counterfactual"][at["edits"]] == "add 4–9; change node 5, feature 1: 1 → 0.25"
        assert by_method["cf2, counterfactual"][at["sufficient"]] == "–"
        assert by_method["cf2"][at["edits"]] == "–"
        page.select_option("#show", "insufficient")
        assert page.locator("#rows tr").count() == 0 or "counterfactual" not in page.locator("#rows").inner_text()
