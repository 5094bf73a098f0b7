"""The state of the page in a real browser: its address, going back, undo, keys, and several answers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cf2
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.server import served
from report.explained_toys import RedNeighbours, explained, red_edges, red_graph
from web.browser import GRAPH, REMOVED, click, drawn, new_page, opened, until
from web.test_web_browser import pick, probabilities, settled, some

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(red_source: ModelAndData, found: dict[str, Explanations]) -> Iterator[str]:
    with served(build_app(red_source, found, run="first")) as url:
        yield url


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with new_page(browser) as page:
        page.goto(address)
        drawn(page)
        yield page


def shows(page: Any, key: int, removed: int, method: str = "cf2") -> None:
    """Wait until the page shows an instance with so many units removed."""
    until(page, f"document.querySelector('#now')?.dataset.instance === '{key} {method}' && {REMOVED} === '{removed}'")


def test_the_address_holds_the_run_the_method_the_instance_and_what_is_removed(
    page: Any, found: dict[str, Explanations]
) -> None:
    e = some(found, "cf2", True)
    pick(page, e.key)
    page.click("#without")
    shows(page, e.key, e.size)
    until(page, "location.search.includes('removed=')")
    query = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
    units = np.flatnonzero(e.selected)
    assert {name: query[name] for name in ("run", "method", "key")} == {
        "run": "first",
        "method": "cf2",
        "key": str(e.key),
    }
    assert query["removed"] == f"{units[0]}-{units[-1]}"  # the two are neighbours in the list of units


def test_an_address_that_is_reloaded_or_shared_shows_the_same(
    browser: Any, page: Any, address: str, found: dict[str, Explanations]
) -> None:
    e = found["guess"][25]  # on the second page of the list
    url = f"{address}/?run=first&method=guess&key={e.key}&removed=0&edits=add~{e.key}~{(e.key + 9) % 36}"
    with new_page(browser) as shared:
        shared.goto(url)
        until(shared, f"document.querySelector('#now')?.dataset.instance === '{e.key} guess'")
        until(shared, "document.querySelector('#edited').innerText.trim().startsWith('add ')")
        until(shared, "document.querySelector('#list .current') !== null")
        assert shared.locator("#pages").inner_text() == "2 of 2"
        assert shared.locator("#method input[value=guess]").is_checked()
        before = probabilities(shared)
        until(shared, f"{GRAPH}.edges('.added').length === 1")
        shared.reload()
        until(shared, f"document.querySelector('#now')?.dataset.instance === '{e.key} guess'")
        until(shared, "document.querySelector('#edited').innerText.trim().startsWith('add ')")
        assert probabilities(shared) == before


def test_back_and_forward_go_through_instances_and_what_was_removed(page: Any, found: dict[str, Explanations]) -> None:
    e, other = some(found, "cf2", True), found["cf2"][1]
    pick(page, e.key)
    page.click("#without")
    shows(page, e.key, e.size)
    page.locator("#search").fill("")
    pick(page, other.key)
    page.go_back()
    shows(page, e.key, e.size)
    page.go_back()
    shows(page, e.key, 0)
    page.go_forward()
    shows(page, e.key, e.size)
    page.go_forward()
    shows(page, other.key, 0)


def test_an_address_that_means_nothing_here_is_said(browser: Any, address: str) -> None:
    said = "Expected an address of the run 'first'"
    with new_page(browser) as page:
        page.goto(f"{address}/?run=second&key=3")
        until(page, "said => document.querySelector('#address-note')?.innerText.startsWith(said)", said)
        shows(page, 0, 0)


def test_undo_and_redo_by_buttons_and_keys(page: Any, found: dict[str, Explanations]) -> None:
    e = some(found, "cf2", True)
    pick(page, e.key)
    assert page.locator("#undo").is_disabled()
    click(page, "edges('[unit = 0]')")
    shows(page, e.key, 1)
    click(page, "edges('[unit = 1]')")
    shows(page, e.key, 2)
    page.click("#undo")
    shows(page, e.key, 1)
    page.keyboard.press("Control+z")
    shows(page, e.key, 0)
    until(page, "document.querySelector('#undo').disabled")
    page.click("#redo")
    shows(page, e.key, 1)
    page.keyboard.press("Control+Shift+z")
    shows(page, e.key, 2)
    until(page, "document.querySelector('#redo').disabled")


def test_arrow_keys_go_to_the_next_instance_across_pages_of_the_list(page: Any, found: dict[str, Explanations]) -> None:
    keys = [e.key for e in found["cf2"]]
    pick(page, keys[19])
    page.locator("#search").fill("")
    page.locator("#search").blur()
    until(page, "document.querySelectorAll('#list button').length === 20")
    page.keyboard.press("ArrowRight")
    settled(page, keys[20], "cf2")
    until(page, "document.querySelector('#pages').innerText === '2 of 2'")
    page.keyboard.press("ArrowLeft")
    settled(page, keys[19], "cf2")
    page.focus("#search")
    page.keyboard.press("ArrowRight")  # moves inside of the text
    page.wait_for_timeout(300)
    settled(page, keys[19], "cf2")


def test_enter_in_find_opens_the_only_hit(page: Any) -> None:
    page.focus("#search")
    page.keyboard.type("17")
    until(page, "document.querySelectorAll('#list button').length === 1")
    page.keyboard.press("Enter")
    settled(page, 17, "cf2")


def test_all_answers_of_a_method_are_shown(browser: Any, red_source: ModelAndData) -> None:
    first = explained(red_edges, "cf2", [3, 6])
    second = tuple(replace(e, rank=1, selected=np.roll(e.selected, 1)) for e in first[:1])
    given = Explanations((*first, *second), first.context)
    with opened(browser, build_app(red_source, {"cf2": given})) as page:
        shows(page, 3, 0)
        assert page.locator("#answer-count").inner_text() == "Answer 1 of 2"
        assert page.locator("#method input").count() == 1
        page.click("#answer-next")
        until(page, "document.querySelector('#answer-count').innerText === 'Answer 2 of 2'")
        chosen = f"{GRAPH}.edges('.chosen').map(e => e.data('unit')).sort().join()"
        until(page, f"units => {chosen} === units", ",".join(map(str, np.flatnonzero(second[0].selected))))
        until(page, "new URLSearchParams(location.search).get('method') === 'cf2, answer 2'")
        page.reload()
        until(page, "document.querySelector('#answer-count')?.innerText === 'Answer 2 of 2'")
        page.click("#answer-previous")
        until(page, "document.querySelector('#answer-count').innerText === 'Answer 1 of 2'")
        page.keyboard.press("ArrowRight")
        until(page, "document.querySelector('#answers').hidden")


def test_another_explanation_is_looked_for_and_kept_beside_the_first(browser: Any, red_source: ModelAndData) -> None:
    # Node 3 has two red neighbours; without any one of them it is quiet.
    found = cf2.explain(RedNeighbours(), red_graph(), [3], question="counterfactual")
    with opened(browser, build_app(red_source, {"cf2": found})) as page:
        shows(page, 3, 0)
        page.click("#another")
        until(page, "document.querySelector('#answer-count').innerText === 'Answer 2 of 2'")
        until(page, "document.querySelector('#search-note').innerText.startsWith('node 3: ')")
        new = page.evaluate(f"{GRAPH}.edges('.chosen').map(e => e.data('unit'))")
        assert sorted(new) != np.flatnonzero(found[0].selected).tolist()
        assert "Necessary: without it the model says quiet" in page.locator("#verdict").inner_text()
        page.click("#another")  # there is no third one
        until(page, "document.querySelector('#search-note').innerText === 'node 3: no other explanation was found.'")
