"""The page's server: true answers, fast ones, and no mercy for malformed questions."""

import json
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from browser_toys import explained, first_edge, molecule_subject, red_edges, red_subject
from cf2.errors import CF2Error
from cf2.explanation import Explanations
from cf2.models import build
from cf2.subjects import Subject
from cf2.web.listing import PAGE, page
from cf2.web.server import inside, serve
from cf2.web.whatif import WhatIf

pytest.importorskip("dash", reason="dash is not installed")
pytest.importorskip("dash_cytoscape", reason="dash-cytoscape is not installed")

from cf2.web import build_app

KEYS = list(range(0, 36, 3))


@pytest.fixture(scope="module")
def subject() -> Subject:
    return red_subject()


@pytest.fixture(scope="module")
def found(subject: Subject) -> dict[str, Explanations]:
    return {
        "cf2": explained(subject, KEYS, red_edges, "cf2"),
        "guess": explained(subject, KEYS, first_edge, "guess"),
    }


@pytest.fixture(scope="module")
def app(subject: Subject, found: dict[str, Explanations]) -> Any:
    return build_app(subject, found)


@pytest.fixture
def client(app: Any) -> Any:
    return app.server.test_client()


def question(app: Any, output: str, cause: str, values: dict[str, Any]) -> dict[str, Any]:
    """The request that a browser would send for the callback that fills `output`."""
    name = next(key for key in app.callback_map if output in key)
    known = app.callback_map[name]

    def filled(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**part, "value": values.get(f"{part['id']}.{part['property']}")} for part in parts]

    parts = name.strip(".").split("...")
    outputs = [dict(zip(("id", "property"), part.rsplit(".", 1))) for part in parts]
    return {
        "output": name,
        "outputs": outputs if len(outputs) > 1 else outputs[0],
        "inputs": filled(known["inputs"]),
        "state": filled(known["state"]),
        "changedPropIds": [cause] if cause else [],
    }


def ask(app: Any, output: str, cause: str, values: dict[str, Any]) -> Any:
    return app.server.test_client().post("/_dash-update-component", json=question(app, output, cause, values))


# -- answers -----------------------------------------------------------------------------------------------


def test_removing_or_keeping_the_explanation_gives_the_verdicts_of_the_run(
    subject: Subject, found: dict[str, Explanations]
) -> None:
    asked = WhatIf(subject, found)
    for e in [*found["cf2"], *found["guess"]]:
        answer = asked.ask(e, e.selected)
        assert np.allclose(answer.left, e.without, atol=1e-5)
        assert np.allclose(answer.removed, e.only, atol=1e-5)
        assert answer.removed_verdict == (e.sufficient, e.necessary)
        assert asked.ask(e, ~e.selected).left_verdict == (e.sufficient, e.necessary)
        assert np.allclose(asked.ask(e, np.zeros(e.num_units, dtype=bool)).left, e.probabilities, atol=1e-5)


def test_features_can_be_removed_too() -> None:
    subject = red_subject()
    found = {"cf2": explained(subject, [3], red_edges, "cf2", features=True)}
    e = found["cf2"][0]
    reds = np.concatenate([np.zeros(len(e.unit_edges), dtype=bool), e.unit_features[:, 1] == 0])
    assert WhatIf(subject, found).ask(e, reds).changed


def test_another_model_than_that_of_the_run_is_refused(subject: Subject, found: dict[str, Explanations]) -> None:
    e = replace(found["cf2"][0], probabilities=np.array([0.3, 0.7], dtype=np.float32))
    with pytest.raises(CF2Error, match="other probabilities"):
        WhatIf(subject, {"cf2": Explanations((e,))}).ask(e, e.selected)


def test_the_model_is_as_before_after_an_answer(subject: Subject, found: dict[str, Explanations]) -> None:
    subject.model.train()
    e = found["cf2"][0]
    WhatIf(subject, found).ask(e, e.selected)
    assert subject.model.training


def test_a_button_answers_with_the_models_own_words(app: Any, found: dict[str, Explanations]) -> None:
    e = found["cf2"][1]
    values = {"shown.data": {"key": e.key, "method": "cf2"}, "removed.data": []}
    response = ask(app, "removed.data", "without.n_clicks", values)
    assert response.status_code == 200
    body = response.get_json()["response"]
    assert body["removed"]["data"] == np.flatnonzero(e.selected).tolist()
    now = body["answer"]["children"][0]["props"]
    assert ("unchanged" in now["className"]) is not e.necessary
    assert [float(p) for p in now["data-probabilities"].split(",")] == pytest.approx(e.without, abs=1e-5)


def test_clearing_a_box_removes_what_it_stands_for_and_keeps_the_rest(app: Any, found: dict[str, Explanations]) -> None:
    e = found["cf2"][1]
    values = {"shown.data": {"key": e.key, "method": "cf2"}, "removed.data": [0], "features.value": []}
    units = list(range(e.num_units))
    response = ask(app, "removed.data", "edges.value", values | {"edges.value": units[2:]})
    assert response.get_json()["response"]["removed"]["data"] == [0, 1]
    response = ask(app, "removed.data", "edges.value", values | {"edges.value": units})
    assert response.get_json()["response"]["removed"]["data"] == []


def test_the_state_that_is_saved_repeats_the_answer(app: Any, found: dict[str, Explanations]) -> None:
    e = found["cf2"][1]
    chosen = np.flatnonzero(e.selected).tolist()
    values = {"shown.data": {"key": e.key, "method": "cf2"}, "removed.data": chosen, "json.n_clicks": 1}
    response = ask(app, "download.data", "json.n_clicks", values)
    state = json.loads(response.get_json()["response"]["download"]["data"]["content"])
    assert state["removed_edges"] == e.unit_edges[e.selected].tolist()
    assert state["probabilities"]["left"] == pytest.approx(e.without, abs=1e-5)
    assert state["removed"] == {"sufficient": e.sufficient, "necessary": e.necessary}


def test_a_whole_graph_can_be_asked_about() -> None:
    subject = molecule_subject()
    found = {"cf2": explained(subject, [0], lambda i, p: (p == 7).any(1) | (p == 8).any(1), "cf2")}
    e = found["cf2"][0]
    assert (e.sufficient, e.necessary, e.size) == (True, True, 2)
    assert WhatIf(subject, found).ask(e, e.selected).changed
    assert ask(build_app(subject, found), "comparison.children", "", {"key.data": 0}).status_code == 200


# -- speed -------------------------------------------------------------------------------------------------


def test_what_if_on_500_edges_answers_in_under_100_ms() -> None:
    rng = np.random.default_rng(0)
    pairs = {(int(rng.integers(0, i)), i) for i in range(1, 180)}
    while len(pairs) < 500:
        a, b = sorted(rng.integers(0, 180, 2).tolist())
        pairs |= {(a, b)} if a != b else set()
    edge_index = torch.tensor(sorted(pairs)).t()
    torch.manual_seed(0)
    model = build("gcn", task="graph", num_features=8, num_classes=2, hidden=128, dense=3)
    data = Data(x=torch.rand(180, 8), edge_index=torch.cat([edge_index, edge_index.flip(0)], 1), y=torch.tensor([0]))
    subject = Subject(model=model, task="graph", graphs=[data], class_names=("a", "b"))
    found = {"cf2": explained(subject, [0], lambda i, p: np.arange(len(p)) < 10, "cf2")}
    app = build_app(subject, found)
    values = {"shown.data": {"key": 0, "method": "cf2"}, "removed.data": []}
    seconds = []
    for unit in range(25):
        tap = {"cytoscape.tapEdge": {"data": {"unit": unit}, "timeStamp": unit}}
        start = time.perf_counter()
        assert ask(app, "removed.data", "cytoscape.tapEdge", values | tap).status_code == 200
        seconds.append(time.perf_counter() - start)
    print(f"median {1000 * statistics.median(seconds):.1f} ms")
    assert statistics.median(seconds) < 0.1


def test_a_page_of_ten_thousand_instances_comes_at_once(found: dict[str, Explanations], subject: Subject) -> None:
    some = found["cf2"].items
    many = Explanations(tuple(replace(some[i % len(some)], key=i) for i in range(10_000)), found["cf2"].context)
    app = build_app(subject, {"cf2": many})
    values = {
        "show.value": "all",
        "sort.value": "largest",
        "method.value": "cf2",
        "key.data": 0,
        "place.data": 70,
    }
    seconds = []
    for _ in range(9):
        start = time.perf_counter()
        response = ask(app, "list.children", "next.n_clicks", values)
        seconds.append(time.perf_counter() - start)
        assert len(response.get_data()) < 40_000
    body = response.get_json()["response"]
    assert len(body["list"]["children"]) == PAGE
    assert body["pages"]["children"] == "72 of 500"
    print(f"median {1000 * statistics.median(seconds):.1f} ms")
    assert statistics.median(seconds) < 0.25


# -- the list ----------------------------------------------------------------------------------------------


def test_the_list_filters_sorts_finds_and_stays_inside_its_pages(found: dict[str, Explanations]) -> None:
    known = list(found["guess"])
    assert [e.key for e in page(known, 0, "all", "key", "").items] == KEYS
    assert all(not e.necessary for e in page(known, 0, "unnecessary", "run", None).items)
    assert all(e.label != e.prediction for e in page(known, 0, "wrong", "run", None).items)
    assert [e.key for e in page(known, 0, "all", "run", "9").items] == [9]
    assert page(known, 0, "all", "run", "nine").total == 0
    last = page(known * 5, 99, "all", "run", None)
    assert (last.number, last.pages) == (2, 3)


@pytest.mark.parametrize(("number", "show", "sort"), [("x", "all", "run"), (0, "alll", "run"), (0, "all", None)])
def test_the_list_refuses_what_it_does_not_know(
    found: dict[str, Explanations], number: Any, show: Any, sort: Any
) -> None:
    with pytest.raises(CF2Error, match="Expected"):
        page(list(found["cf2"]), number, show, sort, None)


# -- safety ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"output": 3}',
        b'{"output": "no.such"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"output": "cytoscape.generateImage", "inputs": {}}',
        b'{"output": "cytoscape.generateImage"}',
        b'{"output": "cytoscape.generateImage", "inputs": [1], "outputs": 5, "changedPropIds": [3]}',
    ],
)
def test_a_malformed_request_is_refused_without_a_traceback(client: Any, body: bytes) -> None:
    response = client.post("/_dash-update-component", data=body, content_type="application/json")
    assert 400 <= response.status_code < 500
    assert b"Traceback" not in response.data
    assert len(response.data) < 400


BAD = [
    {"shown.data": {"key": 10**9, "method": "cf2"}},
    {"shown.data": {"key": "3", "method": "cf2"}},
    {"shown.data": {"key": 3, "method": ["cf2"]}},
    {"shown.data": "x"},
    {"shown.data": {"key": 3, "method": "cf2"}, "removed.data": [10**9]},
    {"shown.data": {"key": 3, "method": "cf2"}, "removed.data": ["0"]},
    {"shown.data": {"key": 3, "method": "cf2"}, "removed.data": {"a": 1}},
    {
        "shown.data": {"key": 3, "method": "cf2"},
        "removed.data": [],
        "cytoscape.tapEdge": {"data": {"unit": -1}},
    },
    {
        "shown.data": {"key": 3, "method": "cf2"},
        "removed.data": [],
        "cytoscape.tapEdge": {"data": {"unit": True}},
    },
]


@pytest.mark.parametrize("values", BAD)
def test_odd_values_are_refused_without_a_traceback(app: Any, values: dict[str, Any]) -> None:
    response = ask(app, "removed.data", "cytoscape.tapEdge", values)
    assert response.status_code == 400
    assert b"Traceback" not in response.data


@pytest.mark.parametrize("key", [10**9, "0", None, [0], {"a": 1}])
def test_an_instance_that_is_not_there_is_refused(app: Any, key: Any) -> None:
    for output in ("comparison.children", "prediction.children"):
        response = ask(app, output, "key.data", {"key.data": key, "method.value": "cf2"})
        assert response.status_code == 400
        assert b"Traceback" not in response.data


def test_a_request_that_is_too_large_is_refused(client: Any) -> None:
    response = client.post("/_dash-update-component", data=b" " * 3_000_000, content_type="application/json")
    assert response.status_code == 413


@pytest.mark.parametrize(
    "path",
    [
        "/nothing-here/../../etc/passwd",
        "/assets/../app.py",
        "/assets/%2e%2e/app.py",
        "/assets/..%2fapp.py",
        "/_dash-component-suites/dash/../../../../etc/passwd",
        "/_dash-component-suites/os/path.py",
        "/_dash-component-suites/cf2/web/app.py",
        "/_favicon.ico/../../x",
    ],
)
def test_no_file_outside_of_the_assets_is_served(client: Any, path: str) -> None:
    response = client.get(path)
    assert b"import annotations" not in response.data
    assert b"root:" not in response.data
    assert response.status_code == 404 or 400 <= response.status_code < 500 or b"_dash-config" in response.data


@pytest.mark.parametrize("method", ["put", "delete", "patch"])
def test_other_methods_are_refused(client: Any, method: str) -> None:
    assert getattr(client, method)("/_dash-update-component").status_code == 405


def test_other_hosts_and_origins_are_refused(client: Any) -> None:
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/", headers={"Host": "localhost:8050"}).status_code == 200
    assert client.get("/", headers={"Host": "[::1]:8050"}).status_code == 200
    assert client.get("/", headers={"Origin": "http://evil.example"}).status_code == 403


def test_the_page_forbids_other_hosts(client: Any) -> None:
    response = client.get("/")
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert b"https://" not in response.data


def test_a_run_outside_of_the_given_directory_cannot_be_reached(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    (root / "good").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    os.symlink(tmp_path / "secret", root / "link")
    assert inside(root / "good", root) == (root / "good").resolve()
    for path in (root / ".." / "secret", root / "link", "/etc", tmp_path / "runs-of-others"):
        with pytest.raises(CF2Error, match="inside of"):
            inside(path, root)
        with pytest.raises(CF2Error, match="inside of"):
            serve(path, root=root)


def test_what_is_no_run_and_what_is_no_port_is_said(tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match="directory of a run"):
        serve(tmp_path / "none")
    with pytest.raises(CF2Error, match="port"):
        serve(tmp_path, port=70_000)


def test_an_empty_run_is_refused(subject: Subject) -> None:
    with pytest.raises(CF2Error, match="at least one explanation"):
        build_app(subject, {"cf2": Explanations(())})


def small_run(folder: Path) -> Path:
    """A finished run on disk, of a module that stands beside it."""
    from cf2.runs import create_run
    from cf2.subjects import from_function

    subject = from_function("browser_toys:red_function")
    run = create_run(folder / "run", subject=subject, keys=KEYS, method="random", settings={"k": 2}, seed=0)
    made = explained(subject, KEYS, first_edge, "random", seed=0)
    run.write(0, made.items)
    return run.path


class Stop(Exception):
    pass


def test_a_run_is_served_from_its_directory(tmp_path: Path) -> None:
    seen: list[str] = []

    def ready(address: str) -> None:
        seen.append(address)
        raise Stop

    path = small_run(tmp_path)
    with pytest.raises(Stop):
        serve(path, port=0, root=tmp_path, ready=ready)
    assert seen[0].startswith("http://127.0.0.1:")


def test_listening_beyond_this_machine_is_warned_of(tmp_path: Path) -> None:
    def ready(address: str) -> None:
        raise Stop

    path = small_run(tmp_path)
    with pytest.raises(Stop), pytest.warns(UserWarning, match="everyone who can reach this machine"):
        serve(path, host="0.0.0.0", port=0, ready=ready)


def test_where_only_features_were_masked_the_page_still_knows_the_edges() -> None:
    subject = red_subject()
    e = explained(subject, [3], red_edges, "cf2", features=True)[0]
    edges, marks = len(e.unit_edges), slice(len(e.unit_edges), None)
    only = replace(
        e, unit_edges=e.unit_edges[:0], scores=e.scores[marks], selected=e.selected[marks], method="features"
    )
    asked = WhatIf(subject, {"features": Explanations((only,))})
    assert len(asked.context_of(only)["graphs"]["3"]["edges"]) == edges
    assert asked.ask(only, only.selected).left == pytest.approx(e.probabilities, abs=1e-5)
