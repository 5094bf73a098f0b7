"""What the tests of the page share: a model with its data, two methods' explanations, the app, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from report.explained_toys import NitroGroup, RedNeighbours, explained, first_edge, nitrobenzene, red_edges, red_graph
from web.browser import browser_of_a_module  # noqa: F401
from web.holding import Holding

KEYS = list(range(30))
if any(find_spec(name) is None for name in ("flask", "waitress")):
    collect_ignore_glob = ["test_*.py"]  # the extra `web` is not installed


@pytest.fixture(scope="session")
def red_source() -> ModelAndData:
    """The red graph: a node is busy if two of its neighbours are red."""
    return ModelAndData(model=RedNeighbours(), level="node", graphs=[red_graph()], class_names=("quiet", "busy"))


@pytest.fixture
def holding() -> Iterator[ModelAndData]:
    """The red graph, with a model that holds whoever explains again; on leaving, it lets go."""
    Holding.held.clear()
    Holding.let_go.clear()
    Holding.runs = 0
    yield ModelAndData(model=Holding(), level="node", graphs=[red_graph()], class_names=("quiet", "busy"))
    Holding.let_go.set()


@pytest.fixture(scope="session")
def molecule_source() -> ModelAndData:
    """Nitrobenzene, a mutagen because of two bonds."""
    names = ("mutagen", "non-mutagen")
    return ModelAndData(model=NitroGroup(), level="graph", graphs=[nitrobenzene()], class_names=names)


@pytest.fixture(scope="session")
def found() -> dict[str, Explanations]:
    """A good method and a bad one on the same nodes."""
    return {"cf2": explained(red_edges, "cf2", KEYS), "guess": explained(first_edge, "guess", KEYS)}


def _app(red_source: ModelAndData, found: dict[str, Explanations]) -> Any:
    """The page about the red graph."""
    from cf2.web import build_app

    return build_app(red_source, found)


app = pytest.fixture(_app, scope="module", name="app")
app_of_its_own = pytest.fixture(_app, name="app_of_its_own")  # for one test, which may close it


@pytest.fixture
def client(app: Any) -> Any:
    """What sends requests to the page's server."""
    return app.test_client()
