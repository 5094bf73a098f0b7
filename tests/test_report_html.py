"""The report is one file that needs nothing else, says what it leaves out, and runs nobody's labels."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser_toys import HOSTILE, explained, first_edge, launched, new_page, red_edges, red_subject
from cf2.errors import CF2Error
from cf2.explanation import Explanations
from cf2.report import intervals
from cf2.report.html import write_report

KEYS = list(range(0, 36, 2))


@pytest.fixture(scope="module")
def found() -> list[Explanations]:
    subject = red_subject()
    return [explained(subject, KEYS, red_edges, "cf2"), explained(subject, KEYS, first_edge, "guess")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as opened:
        yield opened


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


def test_every_explanation_is_a_row_and_every_instance_a_card(found: list[Explanations], tmp_path: Path) -> None:
    page = write_report(found, tmp_path / "report.html").read_text()
    rows = data_of(page)["rows"]
    assert len(rows) == 2 * len(KEYS)
    assert sum(not row["necessary"] for row in rows) == sum(not e.necessary for f in found for e in f)
    assert page.count('<article class="cf2-card"') == len(KEYS)
    assert page.count('class="cf2-panel"') == 2 * len(KEYS)
    assert "which is right" in page
    assert "the true class is" in page


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
    subject = red_subject(class_names=(HOSTILE, HOSTILE + "2"))
    found = explained(subject, [3, 6], red_edges, HOSTILE)
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
    assert f"and {len(KEYS) - 8} more" in text
    assert "F<sub>NS</sub>" in text
    assert Explanations(())._repr_html_() == "<p>No explanations.</p>"


def test_what_cannot_be_written_is_refused(found: list[Explanations], tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match="at least one explanation"):
        write_report([Explanations(())], tmp_path / "none.html")
    with pytest.raises(CF2Error, match="a directory"):
        write_report(found, tmp_path)
    with pytest.raises(CF2Error, match="pictures"):
        write_report(found, tmp_path / "x.html", pictures=-1)


def test_the_interval_of_a_share_covers_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        low, high = intervals.share((rng.random(60) < 0.8).tolist())[1:]
        hits += low <= 0.8 <= high
    assert 0.92 <= hits / 400 <= 0.98


def test_the_interval_of_a_mean_is_the_usual_one_for_many_values() -> None:
    values = np.random.default_rng(1).normal(5, 2, 2000)
    value, low, high = intervals.mean(values.tolist())
    reach = 1.96 * values.std() / np.sqrt(2000)
    assert value == pytest.approx(values.mean())
    assert (high - low) / 2 == pytest.approx(reach, rel=0.1)


def test_the_overlap_with_the_truth_is_counted_over_edges(found: list[Explanations]) -> None:
    e = found[0][0]
    pairs = e.unit_edges[e.selected].tolist()
    assert intervals.truth_f1([e], {"truth": {str(e.key): pairs}}) == (1.0, 1.0, 1.0)
    half = intervals.truth_f1([e], {"truth": {str(e.key): pairs[:1]}})
    assert half is not None
    assert half.value == pytest.approx(2 / (1 + len(pairs)))
    assert intervals.truth_f1([e], {}) is None


@pytest.mark.browser
def test_the_report_opens_from_a_file_filters_and_sorts(
    browser: Any, found: list[Explanations], tmp_path: Path
) -> None:
    path = write_report(found, tmp_path / "report.html")
    failed = sum(not e.necessary for f in found for e in f)
    largest = max(e.size for f in found for e in f)
    with new_page(browser) as page:
        page.goto(path.as_uri())
        assert page.locator("#count").inner_text() == f"{2 * len(KEYS)} of {2 * len(KEYS)} explanations"
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
    subject = red_subject(class_names=(HOSTILE, HOSTILE + "2"))
    found = explained(subject, [3, 6], red_edges, HOSTILE)
    named = replace(found, context=found.context | {"dataset": HOSTILE})
    path = named.report(tmp_path / "report.html")
    with new_page(browser) as page:
        page.goto(path.as_uri())
        assert HOSTILE in page.locator("h1").inner_text()
        assert HOSTILE in page.locator("#rows").inner_text()
        page.wait_for_timeout(200)
        assert page.evaluate("window.hacked") is None
