"""What the tests of the report share: two methods' explanations of the red graph, and a browser."""

from __future__ import annotations

import pytest

from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from report.explained_toys import explained, first_edge, red_edges
from web.browser import browser_of_a_module  # noqa: F401

KEYS = list(range(0, 36, 2))


@pytest.fixture(scope="session")
def found() -> list[Explanations]:
    """A good method and a bad one on the same nodes."""
    return [explained(red_edges, "cf2", KEYS), explained(first_edge, "guess", KEYS)]


@pytest.fixture(scope="session")
def good() -> Explanation:
    """A minimal set that passes both tests."""
    return explained(red_edges, "cf2", [3], minimal=True)[0]


@pytest.fixture(scope="session")
def bad() -> Explanation:
    """A set that passes neither test."""
    return explained(first_edge, "guess", [3])[0]
