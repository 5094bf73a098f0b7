"""What the answers of a class share, on the page: pictures, numbers, and a click to an instance."""

from typing import Any

import pytest

from cf2.patterns.edit_rules import ADD, ARROW, REMOVE, EditRule, EditRules, TriedRule
from cf2.patterns.pattern import Pattern
from cf2.patterns.summary import FoundPattern, Patterns
from cf2.results.explanations import Explanations
from cf2.results.metrics import Estimate
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.layout import Shared
from report.explained_toys import HOSTILE
from web.browser import opened, until

HALF = Estimate(0.5, 0.25, 0.75)
STAR = Pattern.make(["red", "", "red"], [(0, 1), (1, 2)], marks=[0, 1, 0])
FOUND = FoundPattern(STAR, 1, 8, 9, coverage=HALF, necessity=HALF, keys=(17, 3))
ABOUT = {"tested": {1: 12}, "together": {1: HALF}, "jointly": {1: {"precision": HALF, "sufficiency": None}}}
PATTERNS = Patterns((FOUND,), ABOUT, {"class_names": ["quiet", "busy"]})
RULE = EditRule((Pattern.make(["C", "O", f"N{ARROW}C"], [(0, 1), (1, 2)], [REMOVE, ADD]),))
RULES = EditRules(
    (TriedRule(RULE, 0, 4, 5, turned=HALF, keys=(2,)),),
    {"tested": {0: 6}, "together": {0: HALF}},
    {"class_names": ["quiet", "busy"]},
)


@pytest.mark.browser
def test_the_page_shows_patterns_and_rules_and_leads_to_their_instances(
    browser: Any, red_source: ModelAndData, found: dict[str, Explanations]
) -> None:
    app = build_app(red_source, found, shared=Shared(PATTERNS, RULES))
    with opened(browser, app) as page:
        text = page.locator("#patterns").inner_text()
        assert "busy" in text
        assert STAR.text in text
        assert "in 8 of 9 answers" in text
        assert "50 % (25–75)" in text
        assert "Where all of them are found: precision 50 % (25–75)." in text
        assert "Away from quiet" in page.locator("#rules").inner_text()
        until(page, "[...document.querySelectorAll('.shared img')].every(i => i.complete && i.naturalWidth > 0)")
        assert page.locator("#patterns img.picture").count() == 1
        assert page.locator("#rules img.picture").count() == 1
        page.locator("#patterns button", has_text="17").click()
        until(page, "document.querySelector('#now').dataset.instance === '17 cf2'")


@pytest.mark.browser
def test_hostile_labels_of_patterns_run_nowhere(
    browser: Any, red_source: ModelAndData, found: dict[str, Explanations]
) -> None:
    odd = Pattern.make([HOSTILE + "\x00\u202e", "b"], [(0, 1)])
    shared = Shared(Patterns((FoundPattern(odd, 0, 1, 1, keys=(3,)),), {}, {"class_names": [HOSTILE, "b"]}))
    with opened(browser, build_app(red_source, found, shared=shared)) as page:
        assert HOSTILE in page.locator("#patterns").inner_text()
        until(page, "[...document.querySelectorAll('.shared img')].every(i => i.complete && i.naturalWidth > 0)")
        assert page.evaluate("window.hacked") is None
