"""Whatever is sent: never an internal error, never a traceback, and the page answers afterwards."""

import urllib.request
from collections import Counter
from typing import Any

import pytest

from web.browser import PATIENCE, served
from web.fuzzing import as_json, posted, requests, send

pytest.importorskip("dash_cytoscape", reason="dash-cytoscape is not installed")

SHOWN = {"key": "3", "method": "cf2"}
VALUES = {  # what a page sends when all is well
    "show.value": "all",
    "sort.value": "key",
    "search.value": "",
    "method.value": "cf2",
    "key.data": "3",
    "place.data": 0,
    "made.data": None,
    "visitor.data": "visitor",
    "shown.data": SHOWN,
    "alpha.value": 0.6,
    "removed.data": [0],
    "units.value": [0, 1],
    "cytoscape.tapEdge": {"data": {"unit": 0}},
    "cytoscape.tapNode": {"data": {"node": 3}},
    "edits.data": [["add", 3, 9], ["change", 4, 1, 0.5]],
    "edited.value": [0],
    "tail.value": 3,
    "head.value": 12,
    "node.value": 4,
    "column.value": 0,
    "value.value": 1,
    "aim.value": 0,
    "sorts.value": ["remove", "add"],
    "valid.value": [],
    "png.n_clicks": 1,
    "json.n_clicks": 1,
    "svg.n_clicks": 1,
    "wanted.data": {"address": "?key=3&method=cf2&removed=0-1&edits=add~3~9", "number": 1},
    "restored.data": {"address": "?key=3&method=cf2&removed=1", "number": 2},
    "picked.data": {"key": "3", "number": 3},
    "answer-number.data": 0,
    "scheme.data": "dark",
}


def good_questions(app: Any, question: Any) -> list[dict[str, Any]]:
    """A good question for every callback and every cause that it has."""
    made = []
    for name, known in app.callback_map.items():
        for part in known["inputs"] if "callback" in known else ():
            made.append(question(app, name, f"{part['id']}.{part['property']}", VALUES))
    return made


def attack(app: Any, questions: list[dict[str, Any]], seed: int, count: int) -> Counter[int]:
    """How often each status was answered."""
    seen: Counter[int] = Counter()
    with served(app) as address:
        for sent in requests(questions, seed, count):
            status = send(address, sent, PATIENCE)
            seen[status] += 1
            assert status < 500, (status, sent)
            assert status or len(sent.body) > 1_000_000, sent
            assert not sent.bad or not 200 <= status < 400, (status, sent)
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            assert answer.status == 200
        for good in questions:
            assert send(address, posted(as_json(good)), PATIENCE) in (200, 204), good
    return seen


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_request_is_an_internal_error_and_the_page_goes_on(
    app_of_its_own: Any, question: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    seen = attack(app_of_its_own, good_questions(app_of_its_own, question), seed=count, count=count)
    assert sum(seen.values()) == count
    assert sum(times for status, times in seen.items() if 400 <= status < 500) > count // 3
    assert [record.getMessage() for record in caplog.records if record.exc_info or record.levelname == "ERROR"] == []
