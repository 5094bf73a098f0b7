"""Which instance is shown: filters, orders, search and pages of the list; and what an address says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import build_app
from cf2.web.navigation import PAGE_LENGTH, matching
from cf2.web.whatif import WhatIf


def test_the_list_filters_sorts_and_finds(found: dict[str, Explanations]) -> None:
    guesses = list(found["guess"])
    assert matching(guesses, "all", "key", "") == guesses
    assert all(not e.necessary for e in matching(guesses, "unnecessary", "run", None))
    assert all(e.label != e.prediction for e in matching(guesses, "wrong", "run", None))
    sizes = [e.size for e in matching(guesses, "all", "largest", None)]
    assert sizes == sorted(sizes, reverse=True)
    assert [e.key for e in matching(guesses, "all", "run", "9")] == [9]
    assert matching(guesses, "all", "run", "nine") == []
    pairs = [replace(e, key=(30 - e.key, e.key)) for e in found["cf2"]]
    assert [e.key for e in matching(pairs, "all", "key", "")[:2]] == [(1, 29), (2, 28)]
    assert [e.key for e in matching(pairs, "all", "run", "(26, 4)")] == [(26, 4)]
    assert matching(pairs, "all", "run", "26") == []


def test_one_page_of_ten_thousand_instances_is_sent(
    ask: Any, found: dict[str, Explanations], red_source: ModelAndData
) -> None:
    some = found["cf2"].items
    many = Explanations(tuple(replace(some[i % len(some)], key=i) for i in range(10_000)), found["cf2"].context)
    app = build_app(red_source, {"cf2": many})
    values = {"show.value": "all", "sort.value": "largest", "method.value": "cf2", "key.data": "0", "page.data": 70}
    response = ask(app, "list.children", "next.n_clicks", values)
    assert len(response.get_data()) < 40_000
    body = response.get_json()["response"]
    assert len(body["list"]["children"]) == PAGE_LENGTH
    assert body["pages"]["children"] == "72 of 500"
    last = ask(app, "list.children", "next.n_clicks", values | {"page.data": 499}).get_json()["response"]
    assert (last["pages"]["children"], last["next"]["disabled"]) == ("500 of 500", True)


@pytest.fixture
def whatif(red_source: ModelAndData, found: dict[str, Explanations]) -> WhatIf:
    return WhatIf(red_source, found, "first")


def test_an_address_says_what_it_was_made_of(whatif: WhatIf) -> None:
    e = whatif.explanation(3, "guess")
    edits = [("add", 3, 12), ("change", 4, 1, 0.5)]
    state = whatif.state_at(whatif.address_of(e, "guess", e.selected, edits))
    assert state is not None
    assert (state.key, state.method, state.edits) == ("3", "guess", edits)
    assert np.array_equal(state.removed, e.selected)
    assert whatif.state_at("") is whatif.state_at("?run=first") is None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?key=999", "Expected an instance of this run"),
        ("?key=3&method=nobody", "Expected the method of an explanation"),
        ("?key=3&removed=0-99", "Expected units from 0 to 3"),
        ("?key=3&removed=x", "Expected units from 0 to 3"),
        ("?key=3&edits=fly~3~9", "Expected an edit that adds or changes"),
        ("?key=3&edits=add~3", "Expected an edit that adds or changes"),
        ("?key=3&edits=change~3~0~nan", "Expected `value` to be a number"),
        ("?key=3&edits=add~3~x", "Expected `node` to be a whole number from 0 to 35"),
        ("?run=second&key=3", "Expected an address of the run 'first'"),
    ],
)
def test_an_address_that_means_nothing_here_is_refused_in_words(whatif: WhatIf, query: str, said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        whatif.state_at(query)
