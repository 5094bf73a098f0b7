"""What the tests of the page share: a model with its data, two methods' explanations, the app, and a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from report.explained_toys import NitroGroup, RedNeighbours, explained, first_edge, nitrobenzene, red_edges, red_graph
from web.browser import launched
from web.holding import Holding

KEYS = list(range(30))


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


@pytest.fixture(scope="module")
def app(red_source: ModelAndData, found: dict[str, Explanations]) -> Any:
    """The page about the red graph."""
    pytest.importorskip("dash_cytoscape", reason="dash-cytoscape is not installed")
    from cf2.web import build_app

    return build_app(red_source, found)


@pytest.fixture
def app_of_its_own(red_source: ModelAndData, found: dict[str, Explanations]) -> Any:
    """The same page for one test, which may close it."""
    pytest.importorskip("dash_cytoscape", reason="dash-cytoscape is not installed")
    from cf2.web import build_app

    return build_app(red_source, found)


@pytest.fixture
def client(app: Any) -> Any:
    """What sends requests to the page's server."""
    return app.server.test_client()


@pytest.fixture(scope="session")
def question() -> Callable[..., dict[str, Any]]:
    """`question(app, output, cause, values)` is what a browser would ask the callback that fills `output`."""
    return _question


@pytest.fixture(scope="session")
def ask() -> Callable[..., Any]:
    """`ask(app, output, cause, values)` sends it."""

    def send(app: Any, output: str, cause: str, values: dict[str, Any]) -> Any:
        body = _question(app, output, cause, values)
        return app.server.test_client().post("/_dash-update-component", json=body)

    return send


def _question(app: Any, output: str, cause: str, values: dict[str, Any]) -> dict[str, Any]:
    name = next(key for key in app.callback_map if output in key)
    known = app.callback_map[name]

    def filled(parts: list[dict[str, Any]]) -> list[Any]:
        made = ({**part, "value": values.get(f"{part['id']}.{part['property']}")} for part in parts)
        return [[] if part["id"].startswith("{") else part for part in made]  # of many ids, none is there

    outputs = [dict(zip(("id", "property"), part.rsplit(".", 1))) for part in name.strip(".").split("...")]
    return {
        "output": name,
        "outputs": outputs if len(outputs) > 1 else outputs[0],
        "inputs": filled(known["inputs"]),
        "state": filled(known["state"]),
        "changedPropIds": [cause] if cause else [],
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser."""
    with launched() as opened:
        yield opened
