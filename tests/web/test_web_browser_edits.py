"""Edits in a real browser: two clicks add an edge, a feature changes, and the smallest edit is looked for."""

from collections.abc import Iterator
from typing import Any

import pytest

import cf2
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from report.edited_toys import CLASSES, harmless, molecule_context
from report.explained_toys import ATOMS, NitroGroup, RedNeighbours, explained, red_edges, red_graph
from web.browser import GRAPH, PATIENCE, click, opened, says, until
from web.holding import Holding
from web.test_web_edits import by_hand

pytestmark = pytest.mark.browser


@pytest.fixture
def red_page(browser: Any, red_source: ModelAndData) -> Iterator[Any]:
    """Node 4, which is quiet."""
    with opened(browser, build_app(red_source, {"cf2": explained(red_edges, "cf2", [4])})) as page:
        yield page


def test_two_clicks_and_a_button_add_an_edge_which_can_be_taken_back(red_page: Any) -> None:
    page = red_page
    before = by_hand(RedNeighbours(), red_graph(), 4)
    click(page, "nodes('[node = 1]')")
    until(page, "document.querySelector('#tail').value === '1'")
    click(page, "nodes('[node = 7]')")
    until(page, "document.querySelector('#head').value === '7'")
    page.click("#add-edge")
    until(page, "document.querySelector('#edited').innerText.trim() === 'add 1–7'")
    says(page, by_hand(RedNeighbours(), red_graph(), 4, added=[(1, 7)]))
    page.fill("#tail", "4")
    page.fill("#head", "9")
    page.click("#add-edge")
    says(page, by_hand(RedNeighbours(), red_graph(), 4, added=[(1, 7), (4, 9)]))
    assert "busy" in page.locator("#now").inner_text()
    until(page, f"{GRAPH}.edges('.added').length === 2")
    assert page.evaluate(f"{GRAPH}.edges('.added')[0].style('line-style')") == "dashed"
    assert page.evaluate(f"{GRAPH}.nodes('[node = 9]').length") == 1  # it was not in the picture before
    page.locator("#edited input").nth(1).uncheck()
    says(page, before)
    until(page, f"{GRAPH}.edges('.added').length === 1")
    page.click("#restore")
    until(page, "document.querySelector('#edited').innerText.trim() === ''")
    until(page, f"{GRAPH}.edges('.added').length === 0")


def test_a_feature_is_changed_and_what_is_wrong_is_said(red_page: Any) -> None:
    page = red_page
    click(page, "nodes('[node = 5]')")
    until(page, "document.querySelector('#node').value === '5'")
    page.fill("#column", "7")
    page.click("#change-feature")
    until(page, "document.querySelector('#edit-note').innerText.startsWith('Expected `feature` to be a whole number')")
    page.fill("#column", "0")
    page.fill("#value", "1")
    page.click("#change-feature")
    says(page, by_hand(RedNeighbours(), red_graph(), 4, written=[(5, 0, 1.0)]))
    until(page, "document.querySelector('#edit-note').innerText === ''")
    until(page, f"{GRAPH}.nodes('.changed').map(n => n.data('label')).join() === '5: feature 0 = 1'")


def test_an_atom_becomes_another_and_the_smallest_edit_is_drawn(browser: Any) -> None:
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    source = ModelAndData(NitroGroup(), "graph", [harmless()], class_names=tuple(CLASSES), atoms=ATOMS)
    found = cf2.explain(NitroGroup(), [harmless()])
    context = molecule_context() | {"spec": found.context["spec"]}
    app = build_app(source, {"cf2": Explanations(tuple(found), context)})
    with opened(browser, app) as page:
        page.fill("#node", "7")
        page.click("#column")
        page.get_by_role("option", name="O", exact=True).click()
        page.click("#change-feature")
        written = [(7, place, float(atom == "O")) for place, atom in enumerate(ATOMS)]
        says(page, by_hand(NitroGroup(), harmless(), None, written=written))
        until(page, "document.querySelector('#edited').innerText.trim() === 'atom 7: C → O'")
        page.click("#aim")
        page.get_by_role("option", name="mutagen", exact=True).click()
        page.locator("#sorts input").nth(2).check()
        page.click("#find")
        until(page, "document.querySelector('#search-note').innerText.startsWith('graph 0: Reached: after ')")
        until(page, "document.querySelector('#without').innerText === 'Make the edits'")
        until(page, "document.querySelectorAll('#comparison img').length === 2")
        until(page, "document.querySelector('#edited').innerText.trim() === ''")  # that was another picture
        page.click("#without")
        until(page, "document.querySelector('#now').innerText === 'The model now says mutagen (0.88): changed.'")


def test_a_search_is_cancelled(browser: Any, holding: ModelAndData) -> None:
    app = build_app(holding, {"cf2": explained(red_edges, "cf2", [4])})
    with opened(browser, app) as page:
        page.click("#find")
        assert Holding.held.wait(PATIENCE)
        until(page, "document.querySelector('#search-progress').innerText.startsWith('Explaining')")
        page.click("#cancel")
        until(page, "document.querySelector('#cancel') !== null")
        Holding.let_go.set()
        until(page, "document.querySelector('#search-note').innerText === 'Cancelled.'")
        assert page.locator("#method input").count() == 1
