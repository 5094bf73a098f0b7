"""The list of instances: filters, orders, search and pages."""

from dataclasses import replace
from typing import Any

import pytest

from cf2.errors import CF2Error
from cf2.results.explanations import Explanations
from cf2.web.listing import PAGE, page


def test_the_list_filters_sorts_finds_and_stays_inside_its_pages(found: dict[str, Explanations]) -> None:
    known = list(found["guess"])
    assert [e.key for e in page(known, 0, "all", "key", "").items] == [e.key for e in known[:PAGE]]
    assert all(not e.necessary for e in page(known, 0, "unnecessary", "run", None).items)
    assert all(e.label != e.prediction for e in page(known, 0, "wrong", "run", None).items)
    assert [e.key for e in page(known, 0, "all", "run", "9").items] == [9]
    assert page(known, 0, "all", "run", "nine").total == 0
    last = page(known * 2, 99, "all", "run", None)
    assert (last.number, last.pages) == (2, 3)


@pytest.mark.parametrize(
    ("number", "show", "sort"),
    [("x", "all", "run"), (0, "alll", "run"), (0, "all", None), (0, [], "run"), (0, "all", {})],
)
def test_the_list_refuses_what_it_does_not_know(
    found: dict[str, Explanations], number: Any, show: Any, sort: Any
) -> None:
    with pytest.raises(CF2Error, match="Expected"):
        page(list(found["cf2"]), number, show, sort, None)


def test_pairs_are_sorted_and_found_by_both_ids(found: dict[str, Explanations]) -> None:
    known = [replace(e, key=(30 - e.key, e.key)) for e in found["cf2"]]
    assert [e.key for e in page(known, 0, "all", "key", "").items[:2]] == [(1, 29), (2, 28)]
    assert [e.key for e in page(known, 0, "all", "run", "(26, 4)").items] == [(26, 4)]
    assert page(known, 0, "all", "run", "26").total == 0
