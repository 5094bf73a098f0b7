"""`serve` opens a run, and only a run."""

import importlib
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cf2 import web
from cf2.errors import CF2Error
from cf2.options import Spec
from cf2.results.explanations import Explanations
from cf2.runs.session import Session
from cf2.runs.store import Store
from cf2.samples.sources import from_dataset, from_function
from cf2.web import app as page
from cf2.web import build_app
from cf2.web.app import explanations, serve
from cf2.web.server import listening_socket
from cf2.web.whatif import MAX_KEPT_EXPLANATIONS, VISITOR, WhatIf, spec_of
from report import explained_toys
from report.explained_toys import explained, first_edge

KEYS = list(range(12))


def test_a_package_of_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "waitress", None)
    with pytest.raises(CF2Error, match=r"waitress to be installed.*pip install"):
        importlib.reload(web)


def small_run(folder: Path, done: int = len(KEYS)) -> Path:
    """A run on disk, of the model and data that a function returns; `done` of its keys are explained."""
    source = from_function("report.explained_toys:red_function")
    spec = Spec(method="random", settings={"k": 1}, seed=0)
    run = Store.create(folder / "run", source, spec, keys=KEYS, chunk_size=4)
    for number in range(done // 4):
        keys = KEYS[4 * number : 4 * number + 4]
        run.write(run.jobs()[0], number, explained(first_edge, "random", keys, seed=0).items)
    return run.path


def opened(path: Path, look: Callable[[str], Any] = str, **options: Any) -> Any:
    """Serve a run, let `look` have the address while a browser could be answered, and stop."""
    seen: list[Any] = []

    class Stop(Exception):
        pass

    def ready(address: str) -> None:
        seen.append(look(address))
        raise Stop

    with pytest.raises(Stop):
        serve(path, **({"port": 0} | options), ready=ready)
    return seen[0]


def port_of(address: str) -> int:
    return int(address.partition("/?")[0].rpartition(":")[2])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often the function that the run names was run."""
    made: list[str] = []
    real = explained_toys.red_function
    monkeypatch.setattr(explained_toys, "red_function", lambda: made.append("red_function") or real())
    return made


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pages that `serve` builds."""
    made: list[Any] = []
    monkeypatch.setattr(page, "build_app", lambda *given, **named: made.append(build_app(*given, **named)) or made[-1])
    return made


def test_a_run_is_served_from_its_directory_and_nothing_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    address = opened(small_run(tmp_path), trust=True)
    assert set(threading.enumerate()) <= before
    listening_socket("127.0.0.1", port_of(address)).close()
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*/\?token=[\w-]{32}", address)


def test_only_a_browser_with_the_token_is_answered(tmp_path: Path, pages: list[Any]) -> None:
    token = opened(small_run(tmp_path), trust=True).partition("token=")[2]
    stranger, visitor = pages[0].test_client(), pages[0].test_client()
    for path in ("/", "/listing", f"/?token={token[:-1]}", "/?token=", "/?token=%ff"):
        assert stranger.get(path).status_code == 403, path
    stranger.set_cookie(pages[0].config["SESSION_COOKIE_NAME"], token)  # the token is no name of a visitor
    assert stranger.post("/state", json={"address": ""}).status_code == 403
    welcome = visitor.get(f"/?token={token}&key=3")
    assert (welcome.status_code, welcome.headers["Location"]) == (302, "/?key=3")
    assert "HttpOnly" in welcome.headers["Set-Cookie"]
    assert token not in welcome.headers["Set-Cookie"]
    assert visitor.get("/listing").status_code == 200
    assert stranger.get("/listing").status_code == 403


def test_a_visitor_keeps_what_they_made_whatever_others_do(tmp_path: Path, red_source: Any, found: Any) -> None:
    whatif = WhatIf(red_source, found)
    e = whatif.explanation(3, "cf2")
    VISITOR.set("one")
    mine = whatif.again(e, 0.5, None)
    VISITOR.set("other")
    assert mine not in whatif.explanations(3)
    for number in range(MAX_KEPT_EXPLANATIONS + 2):
        whatif._keep(e, e, Spec(), f"made {number}")
    assert len(whatif.explanations(3)) == MAX_KEPT_EXPLANATIONS + 2  # beside those of two methods
    VISITOR.set("one")
    assert list(whatif.explanations(3)) == ["cf2", "guess", mine]
    assert spec_of(whatif.explanation(3, mine)).units == ("edges",)
    VISITOR.set("")


# -- trust ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", [False, True])
def test_the_function_that_a_run_names_is_run_only_where_it_is_trusted(
    tmp_path: Path, calls: list[str], pages: list[Any], trust: bool
) -> None:
    path = small_run(tmp_path)
    calls.clear()
    address = opened(path, trust=trust)
    client = pages[0].test_client()
    client.get("/" + address.rpartition("/")[2])
    shown = client.post("/state", json={"key": "3", "method": "random", "do": "without"}).get_json()
    assert calls == ["red_function"] * trust
    assert len(shown["removed"]) == trust
    page = client.get("/").text
    assert ("comes from your function report.explained_toys:red_function" in page) is not trust
    assert (f"<code>cf2 serve {path} --trust</code>" in page) is not trust
    assert ('<button id="without" aria-disabled' in page) is not trust
    if not trust:
        assert "The model predicted busy (0.88)." in shown["answer"]
        assert "checked aria-disabled" in shown["units"]


def test_a_run_of_a_data_set_needs_no_trust(tmp_path: Path, pages: list[Any]) -> None:
    source = from_dataset("ba-shapes")
    run = Store.create(tmp_path / "run", source, Spec(method="random", settings={"k": 1}, seed=0), keys=[300])
    with Session(run.request(run.jobs()[0])) as session:
        run.write(run.jobs()[0], 0, session.explain([300]))
    opened(run.path)
    assert told(pages[0]) == ""


def test_a_page_without_a_model_refuses_what_needs_one(found: dict[str, Explanations]) -> None:
    client = build_app(None, found).test_client()
    asked = {"what": "again", "key": "3", "method": "cf2", "alpha": 0.5, "lambda": None}
    for response in (client.get("/save?key=3&kind=json"), client.post("/search", json=asked)):
        assert (response.status_code, "only shows what was stored" in response.text) == (400, True)
    for path in ("/listing", "/comparison?key=3", "/save?key=3&kind=svg"):
        assert client.get(path).status_code == 200


# -- how much is there ----------------------------------------------------------------------------------------


def told(app: Any) -> str:
    """The note at the top of a page."""
    with app.test_request_context():
        client = app.test_client()
        with client.session_transaction() as session:
            session["visitor"] = "somebody"
        found = re.search(r'class="notice"[^>]*>([^<]*)<', client.get("/").text)
    return found[1] if found else ""


def test_a_run_that_is_not_finished_says_how_much_is_there(tmp_path: Path, pages: list[Any]) -> None:
    (tmp_path / "part").mkdir()
    opened(small_run(tmp_path / "part", done=8), trust=True)
    run = Store.open(small_run(tmp_path))
    run.add(replace(run.jobs()[0], seed=1))
    opened(run.path, trust=True)
    assert [told(page) for page in pages] == ["8 of 12 explained.", "random, seed 1: 0 of 12 explained."]


def test_a_run_without_any_explanation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match=r"finished explanations in .* none yet"):
        serve(small_run(tmp_path, done=0), port=0)


# -- where to listen ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "0"])
def test_listening_beyond_this_machine_is_warned_of(tmp_path: Path, host: str) -> None:
    with pytest.warns(UserWarning, match="everyone who can reach this machine and has the address with its token"):
        opened(small_run(tmp_path), host=host)


def test_a_port_in_use_is_said_before_the_model_is_loaded(tmp_path: Path, calls: list[str]) -> None:
    path = small_run(tmp_path)
    calls.clear()

    def second(address: str) -> None:
        port = port_of(address)
        calls.clear()
        with pytest.raises(CF2Error, match=rf"port {port} of 127\.0\.0\.1.*already in use.*another --port"):
            serve(path, port=port, trust=True)

    opened(path, second, trust=True)
    assert calls == []


def test_every_job_of_a_run_has_its_name_and_its_request(tmp_path: Path) -> None:
    run = Store.open(small_run(tmp_path))
    again = run.add(replace(run.jobs()[0], seed=1))
    run.write(again, 0, explained(first_edge, "random", KEYS[:4], seed=1).items)
    found = explanations(run)
    assert list(found) == ["random", "random, seed 1"]
    assert [{e.seed for e in given} for given in found.values()] == [{0}, {1}]
    assert [given.context["spec"]["seed"] for given in found.values()] == [0, 1]
