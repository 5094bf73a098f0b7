"""The report is one file that needs nothing else, says what it leaves out, runs no code from labels, and is read
anywhere."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.report.html import explanations_html, write_report
from cf2.results import metrics
from cf2.results.explanation import UnitTable
from cf2.results.explanations import Explanations
from report.edited_toys import reddened
from report.explained_toys import ATOMS, HOSTILE, KEKULE, NITROBENZENE, explained, nitro_bonds, red_edges
from web.browser import new_page

QUIET = ["quiet", "busy"]


@pytest.fixture(scope="module")
def report(found: list[Explanations], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report about both methods."""
    return write_report(found, tmp_path_factory.mktemp("deep") / "new" / "report.html")


@pytest.fixture(scope="module")
def numbers(found: list[Explanations]) -> list[Explanations]:
    """The same of a model that gives numbers."""
    return [Explanations(tuple(replace(e, output="regression", tolerance=0.5) for e in f), f.context) for f in found]


def data_of(page: str) -> dict[str, list[dict[str, object]]]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert match
    loaded: dict[str, list[dict[str, object]]] = json.loads(match[1])
    return loaded


def test_the_page_names_nothing_outside_of_itself(report: Path) -> None:
    page = report.read_text()
    assert re.findall(r"https?://[^\s\"'<]+", page) == []
    assert re.findall(r"<(?:link|iframe|object|embed)\b", page) == []
    assert re.findall(r"\bsrc=|@import|url\(", page) == []
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', page))


def test_every_explanation_is_a_row_and_every_instance_a_card(found: list[Explanations], report: Path) -> None:
    page, keys = report.read_text(), len(found[0])
    rows = data_of(page)["rows"]
    assert len(rows) == page.count('class="cf2-panel"') == 2 * keys
    assert sum(not row["necessary"] for row in rows) == sum(not e.necessary for f in found for e in f)
    assert page.count('<article class="cf2-card"') == keys
    assert "which is correct" in page
    assert "the true class is" in page


def test_a_number_has_no_probability_and_no_true_class(
    found: list[Explanations], report: Path, numbers: list[Explanations], tmp_path: Path
) -> None:
    assert '<button type="button" data-column="p">probability</button>' in report.read_text()
    assert data_of(report.read_text())["numbers"] is False
    page = write_report(numbers, tmp_path / "numbers.html").read_text()
    assert '<button type="button" data-column="p">prediction</button>' in page, "it sorts by the number"
    for absent in ("probability</button>", "true class</button>", "least sure"):
        assert absent not in page
    assert data_of(page)["numbers"] is True
    assert "<th>probability</th>" in explanations_html(found[0])
    assert "<th>probability</th>" not in explanations_html(numbers[0])


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


@pytest.fixture(scope="module")
def hostile() -> Explanations:
    """Names that are HTML."""
    found = explained(red_edges, HOSTILE, [3, 6], class_names=(HOSTILE, HOSTILE + "2"))
    return replace(found, context=found.context | {"dataset": HOSTILE, "model": HOSTILE})


def test_labels_with_html_in_them_are_text(hostile: Explanations, tmp_path: Path) -> None:
    page = hostile.report(tmp_path / "report.html").read_text()
    assert "<script>window" not in page
    assert "<img" not in page
    assert data_of(page)["rows"][0]["says"] in (HOSTILE, HOSTILE + "2")
    for fragment in (hostile._repr_html_(), hostile[0]._repr_html_()):
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


def with_truth(found: Explanations, truth: Any) -> Explanations:
    return replace(found, context=found.context | {"truth": truth})


def test_the_page_shows_the_f1_of_the_metrics_or_a_dash(found: list[Explanations], tmp_path: Path) -> None:
    truth = {str(e.key): e.units.of("edges")[:3].tolist() for e in found[0]}
    page = with_truth(found[0], truth).report(tmp_path / "report.html").read_text()
    assert "F1 to truth" in page
    assert f"{100 * metrics.truth(found[0], truth)['f1']:.1f} %" in page
    without = [with_truth(given, {"999": [[0, 1]]}) for given in found]
    assert write_report(without, tmp_path / "report.html").read_text().count("<td>–</td>") == 2


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
    assert "for pair (4, 1)" in page
    assert [row["key"] for row in data_of(page)["rows"]][:2] == [[0, 1], [2, 1]]
    assert "<td>4, 1</td>" in pairs._repr_html_()


@pytest.mark.browser
def test_the_report_opens_from_a_file_filters_and_sorts(browser: Any, found: list[Explanations], report: Path) -> None:
    keys, every = len(found[0]), [e for f in found for e in f]
    with new_page(browser) as page:
        page.goto(report.as_uri())
        assert page.locator("#count").inner_text() == f"{2 * keys} of {2 * keys} explanations"
        page.select_option("#show", "unnecessary")
        assert page.locator("#count").inner_text().startswith(f"{sum(not e.necessary for e in every)} of")
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
        assert sizes[0] == max(e.size for e in every)
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
def test_the_report_is_dark_where_the_reader_is_and_white_on_paper(browser: Any, report: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    with new_page(browser, color_scheme="dark") as page:
        page.goto(report.as_uri())
        assert page.evaluate(colour) == "rgb(20, 24, 31)"
        page.emulate_media(media="print", color_scheme="light")
        assert page.evaluate(colour) == "rgb(255, 255, 255)"
        assert not page.locator("#controls").is_visible()
        assert page.locator("#cards article").first.is_visible()
        style = "e => [getComputedStyle(e).breakInside, getComputedStyle(e).contentVisibility]"
        assert page.locator(".cf2-card").first.evaluate(style) == ["avoid", "visible"], "no card is cut"
        assert page.pdf()[:5] == b"%PDF-"


@pytest.fixture(scope="module")
def mixed(found: list[Explanations], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods; some of the second's answers are impossible, some were not found."""
    ours, theirs = found
    status = ["impossible"] * 3 + ["not found"] * 2 + [e.status for e in theirs][5:]
    other = tuple(replace(e, status=now) for e, now in zip(theirs, status))
    return write_report([ours, Explanations(other, theirs.context)], tmp_path_factory.mktemp("mixed") / "report.html")


@pytest.mark.browser
def test_the_rows_and_pictures_of_one_verdict_are_shown(browser: Any, mixed: Path, found: list[Explanations]) -> None:
    with new_page(browser) as page:
        page.goto(mixed.as_uri())
        texts = page.locator("#show optgroup option").all_inner_texts()
        assert "impossible (3)" in texts
        assert "not found (2)" in texts
        assert not any(text.startswith("too large") for text in texts)
        page.select_option("#show", "status:impossible")
        assert page.locator("#rows tr").count() == 3
        shown = page.locator("#cards article:not([hidden])")
        drawn = {shown.nth(n).get_attribute("data-key") for n in range(shown.count())}
        assert drawn == {str(e.key) for e in found[1][:3]}


@pytest.mark.browser
def test_the_table_is_read_on_a_phone_without_scrolling_sideways(browser: Any, mixed: Path) -> None:
    with new_page(browser, viewport={"width": 390, "height": 844}) as page:
        page.goto(mixed.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        listing = page.locator("#listing")
        assert listing.evaluate("e => e.scrollWidth <= e.clientWidth")
        first = page.locator("#rows tr").first
        heads = first.locator("td").evaluate_all("cells => cells.map(c => getComputedStyle(c, '::before').content)")
        assert heads[:3] == ['"instance"', '"method"', '"prediction"']


def test_500_molecules_with_pictures_are_less_than_5_megabytes(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    one = explained(nitro_bonds, "cf2")[0]
    graphs = {str(key): {"labels": list(NITROBENZENE), "bonds": KEKULE} for key in range(500)}
    context = {"atoms": list(ATOMS), "class_names": ["mutagen", "non-mutagen"], "graphs": graphs}
    found = Explanations(tuple(replace(one, key=key) for key in range(500)), context)
    path = write_report([found], tmp_path / "report.html", pictures=500)
    text = path.read_text()
    assert text.count('class="cf2-molecule cf2-bond"') == 500
    assert path.stat().st_size < 5_000_000


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report about two questions on the same node."""
    edits = Explanations((reddened(),), {"class_names": QUIET})
    return write_report([explained(red_edges, "cf2", [4]), edits], tmp_path_factory.mktemp("both") / "both.html")


def test_both_questions_of_a_run_are_shown(both: Path) -> None:
    text = both.read_text()
    for name in ("cf2", "cf2, counterfactual"):
        assert f"{name}:" in text
    assert "<strong>Edits:</strong> add 4–9; change node 5, feature 1: 1 → 0.25" in text
    assert "after the edits" in text
    assert text.count('<article class="cf2-card"') == 1
    assert "add 4–9; change node 5, feature 1: 1 → 0.25" in explanations_html(Explanations((reddened(),)))
    assert "<th>edits</th>" not in explanations_html(explained(red_edges, "cf2", [4]))


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


@pytest.mark.browser
def test_what_the_answers_hold_leads_to_the_instances_that_hold_it(browser: Any, tmp_path: Path) -> None:
    edges = explained(red_edges, "cf2", list(range(9)))
    features = explained(red_edges, "cf2", list(range(9, 12)), units=("features", "edges"))
    taken = [replace(e, selected=e.units.kind == 0) for e in features]
    path = write_report([Explanations((*edges, *taken), edges.context)], tmp_path / "report.html")
    with new_page(browser) as page:
        page.goto(path.as_uri())
        button = page.locator("[data-holds]", has_text="feature 0")
        button.click()
        assert page.locator("#count").inner_text() == "3 of 12 explanations"
        assert sorted(page.locator("#rows td:first-child").all_inner_texts()) == ["10", "11", "9"]
        button.click()
        assert page.locator("#count").inner_text() == "12 of 12 explanations"
