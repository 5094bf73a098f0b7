"""What the page looks like in a real browser: verdicts, molecules, types, dark pages, phones and wide screens."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import image as pictures

import cf2
import typed_toys
from cf2.report.words import next_step, verdict_sentences
from cf2.results.explanation import STATUSES
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.canvas import DARK
from cf2.web.server import served
from report.explained_toys import ATOMS, NITROBENZENE, explained, first_edge, nitro_bonds, red_edges
from web.browser import GRAPH, REMOVED, click, new_page, opened, until

pytestmark = pytest.mark.browser
KEKULE = [[0, 1, 2], [1, 2, 1], [2, 3, 2], [3, 4, 1], [4, 5, 2], [0, 5, 1], [0, 6, 1], [6, 7, 2], [6, 8, 1]]


def molecule() -> Explanations:
    given = explained(nitro_bonds, "cf2")
    given.context.update(atoms=list(ATOMS), graphs={"0": {"labels": list(NITROBENZENE), "bonds": KEKULE}})
    return given


def test_the_verdict_stands_beside_the_prediction_for_every_status_with_what_to_try_next(
    browser: Any, red_source: ModelAndData
) -> None:
    one = explained(first_edge, "guess", [3], status="unverified")[0]
    notes = {"refused": "900 units.", "not predicted": "The model does not say this."}
    others = [status for status in STATUSES if status != "found"]
    every = [replace(explained(red_edges, "guess", [3])[0], key=0)]
    every += [replace(one, key=n, status=status, note=notes.get(status, "")) for n, status in enumerate(others, 1)]
    assert {e.status for e in every} == set(STATUSES)
    found = Explanations(tuple(every), {"class_names": ["quiet", "busy"]})
    with served(build_app(None, {"guess": found})) as url, new_page(browser) as page:
        page.goto(url)
        for e in every:
            until(page, f"document.querySelector('#now')?.dataset.instance === '{e.key} guess'")
            shown = page.locator("#verdict").inner_text()
            for sentence in verdict_sentences(e, ["quiet", "busy"]):
                assert f"{sentence.head}: {sentence.text}" in shown
            assert next_step(e)
            assert f"Try next: {next_step(e)}" in shown
            page.keyboard.press("ArrowRight")
        above = "document.querySelector('#verdict').getBoundingClientRect().bottom"
        assert page.evaluate(f"{above} <= document.querySelector('#cytoscape').getBoundingClientRect().top")


def test_names_in_the_list_are_never_cut(browser: Any, red_source: ModelAndData) -> None:
    found = explained(red_edges, "cf2", range(30), class_names=["quiet", "A class with a rather long name indeed"])
    with opened(browser, build_app(red_source, {"cf2": found})) as page:
        cut = page.evaluate(
            """[...document.querySelectorAll('#list span')].filter(e =>
                getComputedStyle(e).overflow !== 'visible' || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0
            ).map(e => e.innerText)"""
        )
        assert cut == []
        assert "A class with a rather long name indeed" in page.locator("#list").inner_text()


def test_a_molecule_is_drawn_as_chemists_draw_it_and_its_bonds_and_atoms_can_be_clicked(
    browser: Any, molecule_source: ModelAndData
) -> None:
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    source = replace(molecule_source, atoms=ATOMS)
    with opened(browser, build_app(source, {"cf2": molecule()})) as page:
        shown = page.evaluate(f"{GRAPH}.nodes('.atom').map(n => n.data('label')).join('')")
        assert shown == NITROBENZENE.replace("H", "")  # hydrogens that nothing points at are not drawn
        assert page.evaluate(f"{GRAPH}.nodes('.drawing').length") == 1
        image = page.evaluate(f"{GRAPH}.nodes('.drawing').data('image')")
        drawn = page.evaluate("image => atob(image.split(',')[1])", image)
        assert drawn.count("M") >= 13  # nine bonds, of which four are double and none is of hydrogen
        places = page.evaluate(f"{GRAPH}.nodes('.atom').map(n => [n.position().x, n.position().y])")
        gaps = np.linalg.norm(np.array(places)[:, None] - np.array(places)[None], axis=2) + 1e9 * np.eye(len(places))
        assert gaps.min() > 30  # nothing is stacked
        chosen = sorted(page.evaluate(f"{GRAPH}.edges('.chosen').map(e => e.data('unit'))"))
        click(page, f"edges('[unit = {chosen[0]}]')")
        until(page, f"{REMOVED} === '1'")
        looks = {"line-style": "dashed", "underlay-opacity": "0.9"}  # as the legend says, and the bond is covered
        for name, value in looks.items():
            assert page.evaluate(f"{GRAPH}.edges('[unit = {chosen[0]}]')[0].style('{name}')") == value
        assert page.evaluate(f"{GRAPH}.edges('[unit = {chosen[0]}]')[0].style('z-index')") == "2"  # it covers the bond
        click(page, "nodes('[node = 3]')")
        until(page, "document.querySelector('#node').value === '3'")


def test_a_typed_graph_is_coloured_by_type_and_says_which_colour_is_which(browser: Any) -> None:
    model, data = typed_toys.model().eval(), typed_toys.graph()
    found = cf2.explain(model, data, [0], node_type="user")
    source = ModelAndData(model, "node", [data], node_type="user")
    with opened(browser, build_app(source, {"cf2": found})) as page:
        until(page, "document.querySelectorAll('#types .type').length === 3")
        assert page.locator("#types .type").all_inner_texts() == ["user", "item", "tag"]
        colours = page.evaluate(f"[...new Set({GRAPH}.nodes().map(n => n.style('background-color')))]")
        legend = page.evaluate(
            "[...document.querySelectorAll('#types .type')].map(e => getComputedStyle(e, '::before').backgroundColor)"
        )
        assert sorted(colour.replace(" ", "") for colour in legend) == sorted(colours)


def test_all_of_the_graph_is_seen_also_when_its_room_changes(browser: Any, red_source: ModelAndData) -> None:
    app = build_app(red_source, {"cf2": explained(red_edges, "cf2", [3])})
    with opened(browser, app) as page:
        for height in (1000, 700):
            page.set_viewport_size({"width": 1366, "height": height})
            inside = f"""(() => {{
                const cy = {GRAPH}, box = cy.elements().renderedBoundingBox();
                return cy.height() > 0 && box.y1 >= 0 && box.y2 <= cy.height() && box.x1 >= 0 && box.x2 <= cy.width();
            }})()"""
            until(page, inside)


def test_the_canvas_is_dark_on_a_dark_page(browser: Any, red_source: ModelAndData) -> None:
    app = build_app(red_source, {"cf2": explained(red_edges, "cf2", [3])})
    with opened(browser, app, color_scheme="dark") as page:
        back = "document.querySelector('.canvas')"
        assert page.evaluate(f"getComputedStyle({back}).backgroundColor") == "rgb(24, 29, 38)"
        assert DARK["back"] == "#181d26"
        assert page.evaluate(f"{GRAPH}.nodes()[0].style('color')") == "rgb(230,233,239)"
        page.emulate_media(color_scheme="light")
        until(page, f"{GRAPH}.nodes()[0].style('color') === 'rgb(28,35,48)'")


@pytest.mark.parametrize(("scheme", "bright"), [("dark", True), ("light", False)])
def test_pictures_beside_the_canvas_have_lines_that_are_seen_on_the_page(
    browser: Any, molecule_source: ModelAndData, scheme: str, bright: bool
) -> None:
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    source = replace(molecule_source, atoms=ATOMS)
    app = build_app(source, {"cf2": molecule(), "other": molecule()})
    with opened(browser, app, color_scheme=scheme) as page:
        page.wait_for_selector("#comparison img")
        page.locator("#comparison img").first.scroll_into_view_if_needed()
        pixels = pictures.imread(BytesIO(page.locator("#comparison img").first.screenshot()))[..., :3]
        grey = pixels[np.ptp(pixels, axis=2) < 0.12].mean(1)  # without the colours of marks and elements
        assert (grey > 0.75).mean() > 0.005
        assert (grey < 0.25).mean() > 0.005
        assert (np.median(grey) < 0.25) == bright  # most is background, and lines are its contrary


def test_the_picture_is_saved_as_svg_as_it_is_and_after_a_change(
    browser: Any, red_source: ModelAndData, tmp_path: Path
) -> None:
    app = build_app(red_source, {"cf2": explained(red_edges, "cf2", [3])})
    with opened(browser, app, accept_downloads=True) as page:
        crosses = []
        for _ in range(2):
            with page.expect_download() as caught:
                page.click("#svg")
            assert caught.value.suggested_filename == "node-3.svg"
            caught.value.save_as(tmp_path / "picture.svg")
            text = (tmp_path / "picture.svg").read_text()
            assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
            crosses.append('class="cf2-cross"' in text)
            page.click("#without")
            until(page, f"{REMOVED} === '2'")
        assert crosses == [False, True]


def test_methods_stand_side_by_side_above_the_fold_of_a_wide_screen(
    browser: Any, red_source: ModelAndData, found: dict[str, Explanations]
) -> None:
    wide = {"width": 1920, "height": 1000}
    with opened(browser, build_app(red_source, found), viewport=wide) as page:
        until(page, "document.querySelectorAll('#comparison img').length === 2")
        boxes = [page.locator("#comparison section").nth(n).bounding_box() for n in range(2)]
        assert all(box["y"] + box["height"] <= wide["height"] for box in boxes)
        assert page.evaluate("document.documentElement.scrollWidth") <= wide["width"]


def test_the_page_is_usable_on_a_phone(browser: Any, red_source: ModelAndData, found: dict[str, Explanations]) -> None:
    phone = {"width": 390, "height": 844}
    with opened(browser, build_app(red_source, found), viewport=phone) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= phone["width"]
        box = page.locator("#cytoscape").bounding_box()
        assert box["width"] > 300
        assert box["y"] < phone["height"] / 2  # the graph is seen at once, below what the model says of it
        outside = page.evaluate(
            """[...document.querySelectorAll('button, input')].filter(e => e.offsetParent !== null &&
                (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1))
                .map(e => e.outerHTML)"""
        )
        assert outside == []
        page.click("#instance-next")
        until(page, "document.querySelector('#now').dataset.instance === '1 cf2'")
        page.click("#without")
        until(page, f"{REMOVED} === '1'")
