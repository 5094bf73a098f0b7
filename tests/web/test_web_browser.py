"""The page in a real browser: it draws, answers, restores, and runs no code from labels."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.server import served
from cf2.web.whatif import visible
from report.explained_toys import HOSTILE, NITROBENZENE, explained, nitro_bonds
from web.browser import GRAPH, PATIENCE, REMOVED, click, drawn, new_page, opened, says, until
from web.holding import Holding

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(app: Any) -> Iterator[str]:
    with served(app) as url:
        yield url


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with new_page(browser, accept_downloads=True) as opened:
        opened.goto(address)
        opened.wait_for_selector("#now")
        until(opened, "document.querySelectorAll('#comparison img').length == 2")
        yield opened


def pick(page: Any, key: int, method: str = "cf2") -> None:
    page.fill("#search", str(key))
    button = page.locator(f"#list button[aria-label^='node {key}:']")
    button.click()
    settled(page, key, method, again=button.click)  # a list that is just filled anew takes a click with it


def settled(page: Any, key: int, method: str, *, again: Callable[[], None] | None = None) -> None:
    """Wait until the page shows this instance, as it was; `again` is done while it does not."""
    shown = f"document.querySelector('#now').dataset.instance === '{key} {method}'"
    until(page, f"{shown} && {REMOVED} === '0'", again=again)
    until(page, f"{GRAPH}.edges().length > 0")


def probabilities(page: Any) -> list[float]:
    text = page.locator("#now").get_attribute("data-probabilities")
    return [float(part) for part in text.split(",")]


def remove_explanation(page: Any, e: Explanation) -> None:
    """Press the button until the units are gone: a list that is still loading puts them back."""
    page.click("#without")
    until(page, f"count => {REMOVED} === count", str(e.size), again=lambda: page.click("#without"))
    says(page, e.probabilities_without)


def some(found: dict[str, Explanations], method: str, necessary: bool) -> Explanation:
    return next(e for e in found[method] if e.necessary is necessary and e.size)


def test_picking_an_instance_draws_it(page: Any, found: dict[str, Explanations]) -> None:
    e = found["cf2"][9]
    pick(page, e.key)
    until(page, f"{GRAPH}.edges().length === {e.num_units}")
    chosen = page.evaluate(f"{GRAPH}.edges('.chosen').map(e => e.data('unit'))")
    assert sorted(chosen) == np.flatnonzero(e.selected).tolist()
    assert page.evaluate(f"{GRAPH}.nodes('.target').map(n => n.data('label'))") == [str(e.key)]
    assert page.locator("#comparison img").count() == 2


@pytest.mark.parametrize(("method", "necessary"), [("cf2", True), ("cf2", False), ("guess", False)])
def test_removing_the_explanation_changes_the_prediction_exactly_when_it_is_necessary(
    page: Any, found: dict[str, Explanations], method: str, necessary: bool
) -> None:
    e = some(found, method, necessary)
    page.locator(f"#method input[value='{method}']").check()
    pick(page, e.key, method)
    remove_explanation(page, e)
    assert ("unchanged" not in page.locator("#now").inner_text()) is e.necessary
    words = page.locator("[data-part=removed]").inner_text()
    assert words.startswith("1 unit is removed." if e.size == 1 else f"{e.size} units are removed.")
    assert (" not sufficient." not in words, " not necessary." not in words) == (e.sufficient, e.necessary)
    page.click("#only")
    says(page, e.probabilities_only)
    page.click("#restore")
    says(page, e.probabilities)


def test_clicking_an_edge_twice_restores_the_probabilities(page: Any, found: dict[str, Explanations]) -> None:
    e = some(found, "cf2", True)
    pick(page, e.key)
    before = probabilities(page)
    unit = int(np.flatnonzero(e.selected)[0])
    click(page, f"edges('[unit = {unit}]')")
    until(page, f"{REMOVED} === '1'")
    assert probabilities(page) != before
    click(page, f"edges('[unit = {unit}]')")
    until(page, f"{REMOVED} === '0'")
    assert probabilities(page) == before


def test_everything_can_be_done_with_the_keyboard(page: Any, found: dict[str, Explanations]) -> None:
    e = some(found, "cf2", True)
    page.focus("#search")
    page.keyboard.type(str(e.key))
    until(page, "document.querySelectorAll('#list button').length === 1")
    page.focus("#list button")
    page.keyboard.press("Enter")
    settled(page, e.key, "cf2")
    box = page.locator("#units input").first
    box.focus()
    page.keyboard.press("Space")
    until(page, f"{REMOVED} === '1'")
    page.focus("#without")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    says(page, e.probabilities_without)


def test_every_control_has_a_name(page: Any) -> None:
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, input, select, img')].filter(e =>
            !(e.getAttribute('aria-hidden') === 'true') &&
            !(e.innerText || e.alt || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') ||
              (e.labels && e.labels.length))).map(e => e.outerHTML)"""
    )
    assert nameless == []


def test_the_page_fits_a_laptop(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 1366
    for control in ("#without", "#only", "#restore", "#again", "#cytoscape", "#next"):
        box = page.locator(control).bounding_box()
        assert box["y"] + box["height"] <= 768, control


def test_filters_and_pages_of_the_list(page: Any, found: dict[str, Explanations]) -> None:
    assert page.locator("#list button").count() == 20
    page.click("#next")
    until(page, "document.querySelector('#pages').innerText === '2 of 2'")
    assert page.locator("#list button").count() == 10
    page.click("#show")
    page.get_by_text("failed necessity").click()
    failed = sum(not e.necessary for e in found["cf2"])
    until(page, f"document.querySelector('#count').innerText === '{failed} of 30 instances'")


def test_the_state_and_the_picture_can_be_saved(page: Any, found: dict[str, Explanations], tmp_path: Path) -> None:
    e = some(found, "cf2", True)
    pick(page, e.key)
    remove_explanation(page, e)
    with page.expect_download() as caught:
        page.click("#json")
    caught.value.save_as(tmp_path / "state.json")
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["removed_edges"] == e.chosen("edges").tolist()
    with page.expect_download() as caught:
        page.click("#png")
    caught.value.save_as(tmp_path / "picture.png")
    assert caught.value.suggested_filename == f"node-{e.key}.png"
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"


def test_explaining_again_adds_a_verified_explanation(page: Any, found: dict[str, Explanations]) -> None:
    e = some(found, "guess", False)
    pick(page, e.key)
    page.fill("#alpha", "0.5")
    page.click("#again")
    until(page, "document.querySelectorAll('#comparison img').length === 3")
    assert "α = 0.5" in page.locator("#method").inner_text()
    until(page, "key => document.querySelector('#search-note').innerText.startsWith(`node ${key}: `)", e.key)
    assert not page.locator("#cancel").is_visible()


def test_an_explanation_can_be_cancelled_and_the_page_answers_meanwhile(
    browser: Any, holding: ModelAndData, found: dict[str, Explanations]
) -> None:
    e = some(found, "cf2", True)
    with opened(browser, build_app(holding, found)) as page:
        pick(page, e.key)
        page.click("#again")
        page.wait_for_selector("#cancel", state="visible")
        assert not page.locator("#again").is_visible()
        until(page, "document.querySelector('#search-progress').innerText.includes('at most 300 s')")
        remove_explanation(page, e)
        with page.expect_response(lambda response: "cancelled.data" in (response.request.post_data or "")):
            page.click("#cancel")
        Holding.let_go.set()
        until(page, "document.querySelector('#search-note').innerText === 'Cancelled.'")
        assert not page.locator("#cancel").is_visible()
        assert page.locator("#again").is_visible()


def test_the_page_needs_no_code_but_its_own_and_lets_no_other_run(browser: Any, address: str) -> None:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
    page.goto(address)
    drawn(page)
    assert said == []
    page.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.hacked = 1';
            document.body.append(script);
            document.body.insertAdjacentHTML('beforeend', '<img src="x" onerror="window.hacked = 2">');
            setTimeout("window.hacked = 3", 0);
        }"""
    )
    started = time.monotonic()
    while len(said) < 3 and time.monotonic() - started < PATIENCE:
        page.wait_for_timeout(50)
    assert ["Content Security Policy" in text for text in said] == [True] * 3
    assert page.evaluate("window.hacked") is None
    context.close()


ODD = HOSTILE + "</style>&amp;{{7*7}} \u202e\x00\x1b[31m\ud800\u2028 ]]>-->"


def test_hostile_labels_are_shown_everywhere_and_run_nowhere(browser: Any, molecule_source: ModelAndData) -> None:
    given = explained(nitro_bonds, ODD, class_names=(ODD, ODD + "2"), note=ODD, status="not found")
    labels = [ODD, *NITROBENZENE[1:]]
    given.context.update(dataset=ODD, model=ODD, graphs={"0": {"labels": labels}})
    app = build_app(molecule_source, {ODD: given}, notes=[f"{ODD}: 1 of 2 explained."])
    shown = visible(ODD)
    with opened(browser, app) as page:
        until(page, "document.querySelector('#comparison h3') !== null")
        page.click("#without")
        until(page, f"{REMOVED} === '2'")
        places = ["h1", ".model", ".notice", "#method", "#list", "#prediction", "#now", "#comparison"]
        assert [place for place in places if shown not in page.locator(place).inner_text()] == []
        assert shown in page.locator("#list button").get_attribute("aria-label")
        assert page.evaluate(f"{GRAPH}.nodes()[0].data('label')") == shown
        until(page, "[...document.images].every(image => image.complete)")
        assert page.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.alt)") == []
        assert page.locator("img:not([src^='data:image/svg+xml'])").count() == 0
        assert page.locator("script:not([src]):not([id^='_dash-'])").count() == 0
        assert page.evaluate("window.hacked") is None


def test_a_page_without_a_model_shows_what_is_stored(browser: Any, found: dict[str, Explanations]) -> None:
    e = some(found, "cf2", True)
    notes = ["24 of 32 explained.", "Read-only: what-if needs --trust."]
    with opened(browser, build_app(None, found, notes=notes)) as page:
        page.fill("#search", str(e.key))
        page.locator(f"#list button[aria-label^='node {e.key}:']").click()
        until(page, f"document.querySelector('#now')?.dataset.instance === '{e.key} cf2'")
        assert page.locator(".notice").inner_text() == " ".join(notes)
        words = page.locator(".parts").inner_text()
        assert words.startswith(f"{e.size} units are in the explanation. Alone, they keep the answer: sufficient.")
        assert " necessary." in words.replace("not necessary", "")
        assert "The model said busy" in page.locator("#now").inner_text()
        for control in ("#only", "#without", "#restore", "#again", "#json", "#alpha", "#units input >> nth=0"):
            assert page.locator(control).is_disabled(), control
        until(page, f"{GRAPH}.edges().length > 0")
        click(page, "edges('[unit = 0]')")
        with page.expect_download() as caught:
            page.click("#png")
        assert caught.value.suggested_filename == f"node-{e.key}.png"
        assert page.locator(".parts").inner_text() == words
