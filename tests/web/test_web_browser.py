"""The page in a real browser: what one sees, clicks, types, saves and goes back to; and no label runs code."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import cf2
import typed_toys
from cf2.patterns.edit_rules import ADD, ARROW, REMOVE, EditRule, EditRules, TriedRule
from cf2.patterns.pattern import Pattern
from cf2.patterns.summary import FoundPattern, Patterns
from cf2.report.words import next_step, verdict_sentences
from cf2.results.explanation import STATUSES, Explanation
from cf2.results.explanations import Explanations
from cf2.results.metrics import Estimate
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.server import served
from report.edited_toys import CLASSES, harmless, molecule_context
from report.explained_toys import (
    ATOMS,
    HOSTILE,
    KEKULE,
    NITROBENZENE,
    NitroGroup,
    RedNeighbours,
    by_hand,
    explained,
    first_edge,
    nitro_bonds,
    red_edges,
    red_graph,
)
from web.browser import PATIENCE, drawn, new_page, opened, pick, press, says, shows, until
from web.holding import Holding

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(red_source: ModelAndData, found: dict[str, Explanations]) -> Iterator[str]:
    with served(build_app(red_source, found, run="first")) as url:
        yield url


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with new_page(browser, accept_downloads=True) as page:
        page.goto(address)
        drawn(page)
        yield page


def some(found: dict[str, Explanations], method: str, necessary: bool) -> Explanation:
    return next(e for e in found[method] if e.necessary is necessary and e.size)


def molecule() -> Explanations:
    given = explained(nitro_bonds, "cf2")
    given.context.update(atoms=list(ATOMS), graphs={"0": {"labels": list(NITROBENZENE), "bonds": KEKULE}})
    return given


# -- what is removed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "necessary"), [("cf2", True), ("cf2", False), ("guess", False)])
def test_removing_the_explanation_changes_the_prediction_exactly_when_it_is_necessary(
    page: Any, found: dict[str, Explanations], method: str, necessary: bool
) -> None:
    e = some(found, method, necessary)
    page.locator(f"#method input[value='{method}']").check()
    shows(page, 0, method=method)
    pick(page, e.key, method)
    assert page.locator("#picture g[data-unit]").count() == e.num_units
    page.click("#without")
    shows(page, e.key, e.size, method)
    says(page, e.probabilities_without)
    assert ("unchanged" not in page.locator(".cf2-now").inner_text()) is e.necessary
    words = page.locator("[data-part=removed]").inner_text()
    assert words.startswith("1 unit is removed." if e.size == 1 else f"{e.size} units are removed.")
    assert (" not sufficient." not in words, " not necessary." not in words) == (e.sufficient, e.necessary)
    page.click("#only")
    says(page, e.probabilities_only)
    page.click("#restore")
    says(page, e.probabilities)


def test_an_edge_is_removed_and_restored_by_clicks_keys_and_boxes(page: Any, found: dict[str, Explanations]) -> None:
    e = some(found, "cf2", True)
    pick(page, e.key)
    unit = int(np.flatnonzero(e.selected)[0])
    press(page, unit)
    shows(page, e.key, 1)
    assert page.locator(f"#picture g[data-unit='{unit}']").get_attribute("aria-pressed") == "true"
    press(page, unit)
    shows(page, e.key, 0)
    says(page, e.probabilities)
    page.focus(f"#picture g[data-unit='{unit}']")
    page.keyboard.press("Enter")
    shows(page, e.key, 1)
    page.keyboard.press("Space")  # the focus stays where it was
    shows(page, e.key, 0)
    page.locator(f"#units input[data-unit='{unit}']").click()
    shows(page, e.key, 1)
    page.focus("#only")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "without"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_undo_redo_and_going_back(page: Any, found: dict[str, Explanations]) -> None:
    e, other = some(found, "cf2", True), found["cf2"][1]
    pick(page, e.key)
    assert page.locator("#undo").is_disabled()
    for unit in (0, 1):
        press(page, unit)
        shows(page, e.key, unit + 1)
    assert page.url.endswith(f"/?run=first&method=cf2&key={e.key}&removed=0-1")
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
    pick(page, other.key)
    page.go_back()
    shows(page, e.key, 2)
    page.go_forward()
    shows(page, other.key, 0)


# -- the list and the address ---------------------------------------------------------------------------------


def test_the_list_is_filtered_sorted_searched_and_walked(page: Any, found: dict[str, Explanations]) -> None:
    assert page.locator("#list button").count() == 20
    page.click("#next")
    assert page.locator("#pages").inner_text() == "2 of 2"
    assert page.locator("#list button").count() == 10
    page.select_option("#show", "unnecessary")
    failed = sum(not e.necessary for e in found["cf2"])
    assert page.locator("#count").inner_text() == f"{failed} of 30 instances"
    page.select_option("#show", "all")
    page.select_option("#sort", "size-")
    sizes = [int(text) for text in page.locator("#list .size").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True)
    page.select_option("#sort", "")
    page.fill("#search", "19")
    page.keyboard.press("Enter")
    shows(page, 19)
    page.fill("#search", "")
    page.locator("#search").blur()
    page.keyboard.press("ArrowRight")
    shows(page, 20)
    until(page, "document.querySelector('#pages').innerText === '2 of 2'")
    page.keyboard.press("ArrowLeft")
    shows(page, 19)
    page.focus("#search")
    page.keyboard.press("ArrowRight")  # moves inside of the text
    shows(page, 19)


def test_an_address_that_is_reloaded_or_shared_shows_the_same(browser: Any, address: str) -> None:
    with new_page(browser) as page:
        page.goto(f"{address}/?run=first&method=guess&key=25&removed=0&edits=add~25~34")
        for _ in range(2):
            until(page, "document.querySelector('.cf2-now')?.dataset.instance === '25 guess'")
            until(page, "document.querySelector('#pages').innerText === '2 of 2'")
            assert page.locator("#edited").inner_text().strip() == "add 25–34 ●"
            assert page.locator("#method input[value=guess]").is_checked()
            assert page.locator("#picture .cf2-new").count() == 1
            page.reload()
        page.goto(f"{address}/?run=second&key=3")
        until(page, "document.querySelector('#address-note').innerText.startsWith('Expected an address of the run')")
        shows(page, 0)


def test_all_answers_of_a_method_are_shown_and_one_more_is_looked_for(browser: Any, red_source: ModelAndData) -> None:
    # Node 3 has two red neighbours; without any one of them it is quiet.
    found = cf2.explain(RedNeighbours(), red_graph(), [3], units="edges", question="counterfactual")
    with opened(browser, build_app(red_source, {"cf2": found})) as page:
        shows(page, 3)
        page.click("#another")
        until(page, "document.querySelector('#answer-count').innerText === 'Answer 2 of 2'")
        until(page, "document.querySelector('#search-note').innerText.startsWith('node 3: ')")
        assert "Necessary: without it the model predicts quiet" in page.locator("#verdict").inner_text()
        assert page.locator("#method input").count() == 1
        page.click("#answer-previous")
        until(page, "document.querySelector('#answer-count').innerText === 'Answer 1 of 2'")
        page.click("#answer-next")
        until(page, "document.querySelector('#answer-count').innerText === 'Answer 2 of 2'")
        page.click("#another")  # there is no third one
        until(page, "document.querySelector('#search-note').innerText === 'node 3: no other explanation was found.'")


# -- what is added and changed --------------------------------------------------------------------------------


def test_edges_are_added_and_features_changed(browser: Any, red_source: ModelAndData) -> None:
    with opened(browser, build_app(red_source, {"cf2": explained(red_edges, "cf2", [4])})) as page:
        for node in (1, 7):
            page.locator(f"#picture [data-node='{node}']").click()
        assert [page.locator(name).input_value() for name in ("#tail", "#head")] == ["1", "7"]
        page.click("#add-edge")
        says(page, by_hand(RedNeighbours(), red_graph(), 4, add=[(1, 7)]))
        page.fill("#tail", "4")
        page.fill("#head", "9")
        page.click("#add-edge")
        says(page, by_hand(RedNeighbours(), red_graph(), 4, add=[(1, 7), (4, 9)]))
        assert page.locator("#picture [data-node='9']").count() == 1  # it was not in the picture before
        page.locator("#edited input").nth(1).click()
        says(page, by_hand(RedNeighbours(), red_graph(), 4))
        press(
            page, int(page.locator("#picture .cf2-new").get_attribute("data-unit"))
        )  # a press on an added edge takes it back
        until(page, "document.querySelector('#edited').innerText === ''")
        page.locator("#picture [data-node='5']").click()
        page.fill("#column", "7")
        page.click("#change-feature")
        until(page, "document.querySelector('#edit-note').innerText.startsWith('Expected `feature` to be a whole')")
        page.fill("#column", "0")
        page.click("#change-feature")
        says(page, by_hand(RedNeighbours(), red_graph(), 4, write=[(5, 0, 1.0)]))
        until(page, "document.querySelector('#edit-note').innerText === ''")


def test_an_atom_becomes_another_and_the_smallest_edit_is_drawn(browser: Any) -> None:
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    source = ModelAndData(NitroGroup(), "graph", [harmless()], class_names=tuple(CLASSES), atoms=ATOMS)
    found = cf2.explain(NitroGroup(), [harmless()], units="edges")
    context = molecule_context() | {"spec": found.context["spec"]}
    with opened(browser, build_app(source, {"cf2": Explanations(tuple(found), context)})) as page:
        page.fill("#node", "7")
        page.select_option("#column", label="O")
        page.click("#change-feature")
        written = [(7, place, float(atom == "O")) for place, atom in enumerate(ATOMS)]
        says(page, by_hand(NitroGroup(), harmless(), None, write=written))
        assert page.locator("#edited").inner_text().strip() == "atom 7: C → O ●"
        page.select_option("#aim", label="mutagen")
        page.locator("#sorts input").nth(2).check()
        page.click("#find")
        until(page, "document.querySelector('#search-note').innerText.startsWith('graph 0: Reached: after ')")
        until(page, "document.querySelectorAll('#comparison svg.cf2-graph').length === 2")
        assert page.locator("#edited").inner_text() == ""  # that was another picture
        page.click("#without", timeout=PATIENCE * 1000)
        until(
            page, "document.querySelector('.cf2-now').innerText === 'The model now predicts mutagen (0.88): changed.'"
        )


# -- searches, files, and pages without a model ---------------------------------------------------------------


def test_an_explanation_can_be_cancelled_and_the_page_answers_meanwhile(
    browser: Any, holding: ModelAndData, found: dict[str, Explanations]
) -> None:
    e = some(found, "cf2", True)
    with opened(browser, build_app(holding, found)) as page:
        pick(page, e.key)
        page.click("#again")
        until(page, "document.querySelector('#search-progress').innerText.includes('at most 300 s')")
        assert not page.locator("#again").is_visible()
        page.click("#without")
        says(page, e.probabilities_without)
        with page.expect_response(lambda response: response.url.endswith("/cancel")):
            page.click("#cancel")
        Holding.let_go.set()
        until(page, "document.querySelector('#search-note').innerText === 'Cancelled.'")
        assert not page.locator("#cancel").is_visible()
        assert page.locator("#again").is_visible()


def test_the_state_and_the_picture_can_be_saved(page: Any, found: dict[str, Explanations], tmp_path: Path) -> None:
    e = some(found, "cf2", True)
    pick(page, e.key)
    page.click("#without")
    shows(page, e.key, e.size)
    for kind in ("svg", "json", "png"):
        with page.expect_download() as caught:
            page.click(f"#{kind}")
        assert caught.value.suggested_filename == f"node-{e.key}.{kind}"
        caught.value.save_as(tmp_path / kind)
    assert ElementTree.parse(tmp_path / "svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert 'class="cf2-cross"' in (tmp_path / "svg").read_text()
    assert json.loads((tmp_path / "json").read_text())["removed_edges"] == e.chosen("edges").tolist()
    assert (tmp_path / "png").read_bytes()[:4] == b"\x89PNG"


def test_a_page_without_a_model_says_where_one_clicks_what_it_needs(
    browser: Any, found: dict[str, Explanations]
) -> None:
    e = some(found, "cf2", True)
    app = build_app(None, found, notes=["24 of 32 explained."], command="cf2 serve runs/a --trust")
    with opened(browser, app, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.fill("#search", str(e.key))
        page.locator(f"#list button[aria-label^='node {e.key}:']").click()
        until(page, f"document.querySelector('.cf2-now').dataset.instance === '{e.key} cf2'")
        assert page.locator(".notice").inner_text() == "24 of 32 explained."
        words = page.locator(".cf2-parts").inner_text()
        assert words.startswith(f"{e.size} units are in the explanation. Alone, they keep the prediction: sufficient.")
        assert "The model predicted busy" in page.locator(".cf2-now").inner_text()
        pressed = ("#only", "#without", "#again", "#add-edge", "#find", "#json", "#units input >> nth=0")
        for control in (*pressed, "#picture g[data-unit] >> nth=0"):
            page.evaluate("document.querySelector('#why').hidden = true")
            page.locator(control).press("Enter") if "svg" in control else page.locator(control).click(force=True)
            why, at = page.locator("#why").bounding_box(), page.locator(control).bounding_box()
            assert "cf2 serve runs/a --trust" in page.locator("#why").inner_text()
            assert why is not None, control
            assert abs(why["y"] - at["y"]) < 560, control
        page.click("#copy")
        assert page.evaluate("navigator.clipboard.readText()") == "cf2 serve runs/a --trust"
        assert page.locator(".cf2-parts").inner_text() == words


# -- how it looks ---------------------------------------------------------------------------------------------


def test_the_verdict_stands_beside_the_prediction_for_every_status_with_what_to_try_next(browser: Any) -> None:
    one = explained(first_edge, "guess", [3], status="unverified")[0]
    notes = {"refused": "900 units.", "not predicted": "The model does not say this."}
    others = [status for status in STATUSES if status != "found"]
    every = [replace(explained(red_edges, "guess", [3])[0], key=0)]
    every += [replace(one, key=n, status=status, note=notes.get(status, "")) for n, status in enumerate(others, 1)]
    assert {e.status for e in every} == set(STATUSES)
    found = Explanations(tuple(every), {"class_names": ["quiet", "busy"]})
    with opened(browser, build_app(None, {"guess": found})) as page:
        for e in every:
            until(page, f"document.querySelector('.cf2-now')?.dataset.instance === '{e.key} guess'")
            shown = page.locator("#verdict").inner_text()
            for sentence in verdict_sentences(found.at(e.key)):
                assert f"{sentence.head}: {sentence.text}" in shown
            step = next_step(e, read_only=True)
            assert f"Try next: {step}" in shown if step else "Try next" not in shown
            page.keyboard.press("ArrowRight")


def test_a_molecule_is_drawn_as_chemists_draw_it_and_its_bonds_and_atoms_can_be_clicked(
    browser: Any, molecule_source: ModelAndData
) -> None:
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    with opened(browser, build_app(replace(molecule_source, atoms=ATOMS), {"cf2": molecule()})) as page:
        atoms = page.locator("#picture [data-node]")
        assert atoms.count() == len(NITROBENZENE.replace("H", ""))  # hydrogens that nothing points at are not drawn
        bond = page.locator("#picture g[data-unit]").filter(has=page.locator(".cf2-hit")).last
        unit = int(bond.get_attribute("data-unit"))
        press(page, unit)
        until(page, "document.querySelector('[data-part=removed]').dataset.count === '1'")
        strike = f"getComputedStyle(document.querySelector('#picture g[data-unit=\"{unit}\"] .cf2-strike'))"
        assert page.evaluate(f"{strike}.strokeDasharray") != "none"  # as the legend says, and the bond is covered
        atoms.nth(3).click()
        assert page.locator("#node").input_value() == atoms.nth(3).get_attribute("data-node")


def test_a_typed_graph_is_coloured_by_type_and_says_which_colour_is_which(browser: Any) -> None:
    model, data = typed_toys.model().eval(), typed_toys.graph()
    found = cf2.explain(model, data, [0], node_type="user", units="edges")
    with opened(browser, build_app(ModelAndData(model, "node", [data], node_type="user"), {"cf2": found})) as page:
        assert page.locator("#types .type").all_inner_texts() == ["user", "item", "tag"]


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (1920, 1000), (390, 844)])
def test_the_page_fits_laptops_wide_screens_and_phones(
    browser: Any, red_source: ModelAndData, found: dict[str, Explanations], width: int, height: int
) -> None:
    names = ["quiet", "A class with a rather long name indeed"]
    named = {name: Explanations(given.items, given.context | {"class_names": names}) for name, given in found.items()}
    with opened(browser, build_app(red_source, named), viewport={"width": width, "height": height}) as page:
        until(page, "document.querySelectorAll('#comparison svg.cf2-graph').length === 2")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        nameless = page.evaluate(
            """[...document.querySelectorAll('button, input, select')].filter(e => e.type !== 'hidden' &&
                !(e.innerText || e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML)"""
        )
        assert nameless == []
        cut = page.evaluate(
            """[...document.querySelectorAll('#list span')].filter(e => e.scrollWidth > e.clientWidth + 1 &&
                e.clientWidth > 0).map(e => e.innerText)"""
        )
        assert cut == []
        picture = page.locator("#picture").bounding_box()
        assert picture["width"] > 300
        assert picture["y"] < height / 2  # the graph is seen at once
        controls = ("#without", "#only", "#restore", "#picture", "#next") if width > 1000 else ()
        for control in controls:
            box = page.locator(control).bounding_box()
            assert box["y"] + box["height"] <= height, control
        if width > 1900:
            boxes = [page.locator("#comparison .cf2-panel").nth(n).bounding_box() for n in range(2)]
            assert boxes[0]["y"] + boxes[0]["height"] <= height


# -- code from elsewhere --------------------------------------------------------------------------------------


ODD = HOSTILE + "</style>&amp;{{7*7}} ]]>-->"
HALF = Estimate(0.5, 0.25, 0.75)


def test_hostile_labels_are_shown_everywhere_and_run_nowhere(browser: Any, molecule_source: ModelAndData) -> None:
    given = explained(nitro_bonds, ODD, class_names=(ODD, ODD + "2"), note=ODD, status="not found")
    given.context.update(dataset=ODD, model=ODD, graphs={"0": {"labels": [ODD, *NITROBENZENE[1:]]}})
    odd = Pattern.make([ODD, "b"], [(0, 1)])
    patterns = Patterns((FoundPattern(odd, 0, 1, 1, keys=(0,)),), about(), {"class_names": [ODD, "b"]})
    app = build_app(molecule_source, {ODD: given}, notes=[f"{ODD}: 1 of 2 explained."], patterns=patterns)
    with opened(browser, app) as page:
        until(page, "document.querySelector('#comparison h4') !== null")
        places = ["h1", ".model", ".notice", "#method", "#list", "#prediction", ".cf2-now", "#comparison", "#patterns"]
        assert [place for place in places if ODD not in page.locator(place).inner_text()] == []
        assert ODD in page.locator("#list button").get_attribute("aria-label")
        assert page.evaluate("window.hacked") is None


def about(**more: Any) -> dict[str, Any]:
    return {"found_on": 9, "held_out": 0.5, "seed": 0, "notes": [], **more}


def test_patterns_and_rules_lead_to_their_instances(
    browser: Any, red_source: ModelAndData, found: dict[str, Explanations]
) -> None:
    star = Pattern.make(["red", "", "red"], [(0, 1), (1, 2)], marks=[0, 1, 0])
    pattern = FoundPattern(star, 1, 8, 9, coverage=HALF, necessity=HALF, keys=(17, 3))
    names = {"class_names": ["quiet", "busy"]}
    facts = about(tested={1: 12}, together={1: HALF}, jointly={1: {"precision": HALF, "sufficiency": None}})
    rule = EditRule((Pattern.make(["C", "O", f"N{ARROW}C"], [(0, 1), (1, 2)], [REMOVE, ADD]),))
    rules = EditRules((TriedRule(rule, 0, 4, 5, turned=HALF, keys=(2,)),), about(tested={0: 6}), names)
    app = build_app(red_source, found, patterns=Patterns((pattern,), facts, names), rules=rules)
    with opened(browser, app) as page:
        text = page.locator("#patterns").inner_text()
        assert all(part in text for part in ("busy", star.text, "in 8 of 9 answers", "precision 50 % (25–75)."))
        assert "Away from quiet" in page.locator("#rules").inner_text()
        page.locator("#patterns a", has_text="17").click()
        shows(page, 17)
