"""The report is one file that needs nothing else, says what it leaves out, and runs no code from labels."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.report import html
from cf2.report.html import write_report
from cf2.results import metrics
from cf2.results.explanation import UnitTable
from cf2.results.explanations import Explanations
from report.explained_toys import HOSTILE, explained, red_edges
from web.browser import new_page


@pytest.fixture(scope="module")
def keys(found: list[Explanations]) -> int:
    """How many instances are explained."""
    return len(found[0])


def data_of(page: str) -> dict[str, list[dict[str, object]]]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert match
    loaded: dict[str, list[dict[str, object]]] = json.loads(match[1])
    return loaded


def test_the_page_names_nothing_outside_of_itself(found: list[Explanations], tmp_path: Path) -> None:
    page = write_report(found, tmp_path / "deep" / "report.html").read_text()
    assert re.findall(r"https?://[^\s\"'<]+", page) == []
    assert re.findall(r"<(?:link|iframe|object|embed)\b", page) == []
    assert re.findall(r"\bsrc=|@import|url\(", page) == []
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', page))


def test_every_explanation_is_a_row_and_every_instance_a_card(
    found: list[Explanations], keys: int, tmp_path: Path
) -> None:
    page = write_report(found, tmp_path / "report.html").read_text()
    rows = data_of(page)["rows"]
    assert len(rows) == 2 * keys
    assert sum(not row["necessary"] for row in rows) == sum(not e.necessary for f in found for e in f)
    assert page.count('<article class="cf2-card"') == keys
    assert page.count('class="cf2-panel"') == 2 * keys
    assert "which is right" in page
    assert "the true class is" in page


def test_a_number_has_no_probability_and_no_true_class(found: list[Explanations], tmp_path: Path) -> None:
    page = write_report(found, tmp_path / "classes.html").read_text()
    assert '<button type="button" data-column="p">probability</button>' in page
    assert data_of(page)["numbers"] is False
    many = [Explanations(tuple(replace(e, output="regression", tolerance=0.5) for e in f), f.context) for f in found]
    page = write_report(many, tmp_path / "numbers.html").read_text()
    assert '<button type="button" data-column="p">model says</button>' in page, "it sorts by the number"
    assert "probability</button>" not in page
    assert "true class</button>" not in page
    assert "least sure" not in page
    assert data_of(page)["numbers"] is True
    assert "<th>probability</th>" in html.explanations_html(found[0])
    assert "<th>probability</th>" not in html.explanations_html(many[0])


@pytest.mark.browser
def test_rows_of_numbers_stand_under_their_heads(browser: Any, found: list[Explanations], tmp_path: Path) -> None:
    many = [Explanations(tuple(replace(e, output="regression", tolerance=0.5) for e in f), f.context) for f in found]
    with new_page(browser) as page:
        page.goto(write_report(many, tmp_path / "numbers.html").as_uri())
        heads = page.locator(".list th").count()
        assert page.locator("#rows tr").first.locator("td").count() == heads
        cells = page.locator("#rows tr").first.locator("td").all_inner_texts()
        assert cells[2] == data_of(page.content())["rows"][0]["says"]
        assert cells[4:6] == [
            ("no", "yes")[data_of(page.content())["rows"][0][name]] for name in ("sufficient", "necessary")
        ]


def test_a_large_run_is_bounded_and_the_page_says_so(found: list[Explanations], tmp_path: Path) -> None:
    one = found[0][0]
    many = Explanations(tuple(replace(one, key=key) for key in range(5000)), found[0].context)
    path = write_report([many], tmp_path / "many.html", pictures=7, rows=3000)
    page = path.read_text()
    assert page.count('<article class="cf2-card"') == 7
    assert len(data_of(page)["rows"]) == 3000
    assert "The first 7 instances are drawn; 4,993 more are in the table only." in page
    assert "2,000 further rows are not listed" in page
    assert path.stat().st_size < 1_500_000


def test_labels_with_html_in_them_are_text(tmp_path: Path) -> None:
    found = explained(red_edges, HOSTILE, [3, 6], class_names=(HOSTILE, HOSTILE + "2"))
    named = replace(found, context=found.context | {"dataset": HOSTILE, "model": HOSTILE})
    page = named.report(tmp_path / "report.html").read_text()
    assert "<script>window" not in page
    assert "<img" not in page
    assert data_of(page)["rows"][0]["says"] in (HOSTILE, HOSTILE + "2")
    for fragment in (named._repr_html_(), named[0]._repr_html_()):
        assert "<script" not in fragment
        assert "<img" not in fragment


def test_the_notebook_forms_show_the_verdicts_and_the_numbers(found: list[Explanations]) -> None:
    assert "Sufficient:" in found[0][1]._repr_html_() or "Not sufficient:" in found[0][1]._repr_html_()
    text = found[0]._repr_html_()
    assert f"and {len(found[0]) - 8} more" in text
    assert "F<sub>NS</sub>" in text
    assert Explanations(())._repr_html_() == "<p>No explanations.</p>"


def test_what_cannot_be_written_is_refused(found: list[Explanations], tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match="at least one explanation"):
        write_report([Explanations(())], tmp_path / "none.html")
    with pytest.raises(CF2Error, match="a directory"):
        write_report(found, tmp_path)
    with pytest.raises(CF2Error, match="pictures"):
        write_report(found, tmp_path / "x.html", pictures=-1)


def test_the_intervals_are_those_of_the_metrics(found: list[Explanations]) -> None:
    truth = {str(e.key): e.units.of("edges")[:2].tolist() for e in found[1][:7]}
    known = [replace(given, context=given.context | {"truth": truth}) for given in found]
    for given in known:
        said, expected = html._summary("x", given), metrics.evaluate(given, truth)
        assert {*said} >= {"pn", "ps", "fns", "size", "f1"}
        for name in ("pn", "ps", "fns", "size", "f1"):
            assert [said[name].low, said[name].high] == expected["intervals"][name]
            assert said[name].value == pytest.approx(expected[name])


def test_the_page_shows_the_f1_of_the_metrics(found: list[Explanations], tmp_path: Path) -> None:
    truth = {str(e.key): e.units.of("edges")[:3].tolist() for e in found[0]}
    known = replace(found[0], context=found[0].context | {"truth": truth})
    page = known.report(tmp_path / "report.html").read_text()
    assert "F1 to truth" in page
    assert f"{100 * metrics.truth(known, truth)['f1']:.1f} %" in page


def test_a_method_whose_keys_have_no_truth_has_a_dash(found: list[Explanations], tmp_path: Path) -> None:
    known = [replace(given, context=given.context | {"truth": {"999": [[0, 1]]}}) for given in found]
    page = write_report(known, tmp_path / "report.html").read_text()
    assert page.count("<td>–</td>") == 2


def test_every_kind_of_unit_is_listed_with_what_is_left_out(found: list[Explanations], tmp_path: Path) -> None:
    table = UnitTable(
        ("columns", "edges"),
        np.repeat(np.array([0, 1], dtype=np.int8), [50, 2]),
        np.array([*([-1, column] for column in range(50)), [0, 1], [0, 3]]),
    )
    every = np.ones(52, dtype=bool)
    e = replace(found[0][0], units=table, scores=every.astype(float), selected=every)
    page = Explanations((e,)).report(tmp_path / "report.html").read_text()
    assert "50 feature columns and 2 edges" in page
    assert "<code>feature 39</code> and 10 more" in page
    assert "<p>Edges: <code>0–1</code> <code>0–3</code> </p>" in page


def test_pairs_have_anchors_and_rows(found: list[Explanations], tmp_path: Path) -> None:
    pairs = Explanations(tuple(replace(e, key=(e.key, 1), task="pair") for e in found[0]), found[0].context)
    page = pairs.report(tmp_path / "report.html").read_text()
    assert 'id="instance-4-1"' in page
    assert "of pair (4, 1)" in page
    assert [row["key"] for row in data_of(page)["rows"]][:2] == [[0, 1], [2, 1]]
    assert "<td>4, 1</td>" in pairs._repr_html_()


@pytest.mark.browser
def test_the_report_opens_from_a_file_filters_and_sorts(
    browser: Any, found: list[Explanations], keys: int, tmp_path: Path
) -> None:
    path = write_report(found, tmp_path / "report.html")
    failed = sum(not e.necessary for f in found for e in f)
    largest = max(e.size for f in found for e in f)
    with new_page(browser) as page:
        page.goto(path.as_uri())
        assert page.locator("#count").inner_text() == f"{2 * keys} of {2 * keys} explanations"
        page.select_option("#show", "unnecessary")
        assert page.locator("#count").inner_text().startswith(f"{failed} of")
        assert set(page.locator("#rows td:nth-child(8)").all_inner_texts()) == {"no"}
        page.select_option("#method", "guess")
        assert set(page.locator("#rows td:nth-child(2)").all_inner_texts()) == {"guess"}
        page.select_option("#show", "wrong")
        wrong = [e for e in found[1] if e.label != e.prediction]
        assert page.locator("#cards article:visible").count() == len(wrong)
        page.select_option("#show", "all")
        page.select_option("#method", "")
        page.select_option("#sort", "size-")
        sizes = [int(text) for text in page.locator("#rows td:nth-child(6)").all_inner_texts()]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] == largest
        page.locator("th button", has_text="instance").click()
        assert page.locator("#rows td:first-child").first.inner_text() == "0"
        assert page.locator("th[aria-sort=ascending]").inner_text().startswith("instance")
        page.fill("#search", "4")
        assert page.locator("#rows tr").count() == 2
        page.locator("#rows a").first.click()
        assert page.locator("#instance-4").is_visible()


@pytest.mark.browser
def test_pairs_are_found_and_sorted_by_number(browser: Any, found: list[Explanations], tmp_path: Path) -> None:
    pairs = [replace(e, key=(30 - e.key, e.key), task="pair") for e in found[0][:12]]
    path = Explanations(tuple(pairs), found[0].context).report(tmp_path / "report.html")
    with new_page(browser) as page:
        page.goto(path.as_uri())
        page.locator("th button", has_text="instance").click()
        shown = page.locator("#rows td:first-child").all_inner_texts()
        assert shown == [", ".join(map(str, key)) for key in sorted(e.key for e in pairs)]
        page.fill("#search", "(26, 4)")
        assert page.locator("#rows tr").count() == 1
        page.locator("#rows a").click()
        assert page.locator("#instance-26-4").is_visible()


@pytest.mark.browser
def test_the_report_is_dark_where_the_reader_is_and_white_on_paper(
    browser: Any, found: list[Explanations], tmp_path: Path
) -> None:
    path = write_report(found, tmp_path / "report.html")
    colour = "getComputedStyle(document.body).backgroundColor"
    with new_page(browser, color_scheme="dark") as page:
        page.goto(path.as_uri())
        assert page.evaluate(colour) == "rgb(20, 24, 31)"
        page.emulate_media(media="print", color_scheme="light")
        assert page.evaluate(colour) == "rgb(255, 255, 255)"
        assert not page.locator("#controls").is_visible()
        assert page.locator("#cards article").first.is_visible()


@pytest.mark.browser
def test_hostile_labels_do_not_run_in_the_report(browser: Any, tmp_path: Path) -> None:
    found = explained(red_edges, HOSTILE, [3, 6], class_names=(HOSTILE, HOSTILE + "2"))
    named = replace(found, context=found.context | {"dataset": HOSTILE})
    path = named.report(tmp_path / "report.html")
    with new_page(browser) as page:
        page.goto(path.as_uri())
        assert HOSTILE in page.locator("h1").inner_text()
        assert HOSTILE in page.locator("#rows").inner_text()
        assert page.locator("img").count() == 0
        assert page.evaluate("window.hacked") is None
