"""How the report is read: verdict filters, on a phone, on paper, and with the pictures of many molecules."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cf2.report.html import write_report
from cf2.results.explanations import Explanations
from report.explained_toys import ATOMS, NITROBENZENE, explained, nitro_bonds
from web.browser import new_page

BONDS = [[0, 1, 2], [1, 2, 1], [2, 3, 2], [3, 4, 1], [4, 5, 2], [0, 5, 1], [0, 6, 1], [6, 7, 2], [6, 8, 1]]


@pytest.fixture
def mixed(found: list[Explanations]) -> list[Explanations]:
    """Two methods; some of the second's answers are impossible, some were not found."""
    ours, theirs = found
    other = [
        replace(e, status="impossible" if n < 3 else "not found" if n < 5 else e.status) for n, e in enumerate(theirs)
    ]
    return [ours, Explanations(tuple(other), theirs.context)]


@pytest.mark.browser
def test_the_rows_and_pictures_of_one_verdict_are_shown(
    browser: Any, mixed: list[Explanations], tmp_path: Path
) -> None:
    with new_page(browser) as page:
        page.goto(write_report(mixed, tmp_path / "report.html").as_uri())
        texts = page.locator("#show optgroup option").all_inner_texts()
        assert "impossible (3)" in texts
        assert "not found (2)" in texts
        assert not any(text.startswith("too large") for text in texts)
        page.select_option("#show", "status:impossible")
        assert page.locator("#rows tr").count() == 3
        shown = page.locator("#cards article:not([hidden])")
        assert sorted(shown.nth(n).get_attribute("data-key") for n in range(shown.count())) == sorted(
            str(e.key) for e in mixed[1][:3]
        )


@pytest.mark.browser
def test_the_table_is_read_on_a_phone_without_scrolling_sideways(
    browser: Any, mixed: list[Explanations], tmp_path: Path
) -> None:
    with new_page(browser, viewport={"width": 390, "height": 844}) as page:
        page.goto(write_report(mixed, tmp_path / "report.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        listing = page.locator("#listing")
        assert listing.evaluate("e => e.scrollWidth <= e.clientWidth")
        first = page.locator("#rows tr").first
        heads = first.locator("td").evaluate_all("cells => cells.map(c => getComputedStyle(c, '::before').content)")
        assert heads[:3] == ['"instance"', '"method"', '"model says"']


@pytest.mark.browser
def test_on_paper_no_card_is_cut_and_what_is_pressed_is_gone(
    browser: Any, mixed: list[Explanations], tmp_path: Path
) -> None:
    with new_page(browser) as page:
        page.goto(write_report(mixed, tmp_path / "report.html").as_uri())
        page.emulate_media(media="print")
        style = "e => [getComputedStyle(e).breakInside, getComputedStyle(e).contentVisibility]"
        assert page.locator(".cf2-card").first.evaluate(style) == ["avoid", "visible"]
        assert page.locator("h2").first.evaluate("e => getComputedStyle(e).breakAfter") == "avoid"
        assert not page.locator("#controls").is_visible()
        assert page.pdf()[:5] == b"%PDF-"


def test_500_molecules_with_pictures_are_less_than_5_megabytes(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    one = explained(nitro_bonds, "cf2")[0]
    graphs = {str(key): {"labels": list(NITROBENZENE), "bonds": BONDS} for key in range(500)}
    context = {"atoms": list(ATOMS), "class_names": ["mutagen", "non-mutagen"], "graphs": graphs}
    found = Explanations(tuple(replace(one, key=key) for key in range(500)), context)
    path = write_report([found], tmp_path / "report.html", pictures=500)
    text = path.read_text()
    assert text.count('class="cf2-molecule cf2-bond"') == 500
    assert path.stat().st_size < 5_000_000


def test_a_molecule_in_short_shows_the_same_lines() -> None:
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    from cf2.report.molecules import _compact

    long = (
        "<ellipse cx='1' cy='2' rx='3' ry='3' class='atom-0' style='fill:#D55E0000;fill-rule:evenodd' />"
        "<ellipse cx='1' cy='2' rx='3' ry='3' class='atom-1' style='fill:#CC79A7BF;stroke-opacity:1' />"
        "<path class='bond-0' d='M 1.0,2.0 L 3.0,4.0' style='fill:none;stroke:#111111;stroke-width:1.6px' />"
        "<path class='bond-1' d='M 5.0,6.0 L 7.0,8.0' style='fill:none;stroke:#111111;stroke-width:1.6px' />"
        "<path class='atom-1' d='M 9.0 9.0 L 8.0 8.0 L 7.0 7.0 Z' fill='#0072B2'/>"
    )
    assert _compact(long) == (
        "<ellipse cx='1' cy='2' rx='3' ry='3' style='fill:#CC79A7BF'/>"
        "<path style='fill:none;stroke:#111111;stroke-width:1.6px' d='M1.0,2.0L3.0,4.0M5.0,6.0L7.0,8.0'/>"
        "<path fill='#0072B2' d='M9.0 9.0L8.0 8.0L7.0 7.0Z'/>"
    )
