"""Malformed requests, odd values, other hosts and foreign files are refused, without a traceback."""

import json
from typing import Any

import pytest

from cf2.web import guard


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
    {"shown.data": {"key": 3, "method": "cf2"}},
    {"shown.data": {"key": "3", "method": ["cf2"]}},
    {"shown.data": "x"},
    {"shown.data": {"key": "3", "method": "cf2"}, "removed.data": [10**9]},
    {"shown.data": {"key": "3", "method": "cf2"}, "removed.data": ["0"]},
    {"shown.data": {"key": "3", "method": "cf2"}, "removed.data": {"a": 1}},
    {"shown.data": {"key": "3", "method": "cf2"}, "removed.data": [], "cytoscape.tapEdge": {"data": {"unit": -1}}},
    {"shown.data": {"key": "3", "method": "cf2"}, "removed.data": [], "cytoscape.tapEdge": {"data": {"unit": True}}},
]


@pytest.mark.parametrize("values", BAD)
def test_odd_values_are_refused_without_a_traceback(app: Any, ask: Any, values: dict[str, Any]) -> None:
    response = ask(app, "removed.data", "cytoscape.tapEdge", values)
    assert response.status_code == 400
    assert b"Traceback" not in response.data


@pytest.mark.parametrize("key", [10**9, "99", 0, None, [0], {"a": 1}])
def test_an_instance_that_is_not_there_is_refused(app: Any, ask: Any, key: Any) -> None:
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


@pytest.mark.parametrize("method", ["get", "head", "put", "delete", "patch", "options"])
def test_other_methods_are_refused(client: Any, method: str) -> None:
    assert getattr(client, method)("/_dash-update-component").status_code == 405


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_what_is_not_sent_as_json_is_refused(app: Any, client: Any, question: Any, kind: str | None) -> None:
    body = json.dumps(question(app, "download.data", "json.n_clicks", {}))
    assert client.post("/_dash-update-component", data=body, content_type=kind).status_code == 415


@pytest.mark.parametrize(
    "value", ["NaN", "-Infinity", "[" * 40 + "]" * 40, '{"a":' * 900 + "1" + "}" * 900, "9" * 5000]
)
def test_values_that_no_page_sends_are_refused(app: Any, client: Any, question: Any, value: str) -> None:
    body = json.dumps(question(app, "download.data", "json.n_clicks", {"json.n_clicks": "here"})).replace(
        '"here"', value
    )
    response = client.post("/_dash-update-component", data=body, content_type="application/json")
    assert response.status_code == 400


def test_what_is_refused_is_said_briefly_and_in_bytes_that_can_be_sent(app: Any, ask: Any) -> None:
    for text in ("x" * 100_000, "\ud800", "\x00"):
        response = ask(app, "comparison.children", "key.data", {"key.data": text, "method.value": "cf2"})
        assert response.status_code == 400
        assert len(response.data) < 400
        assert response.mimetype == "text/plain"


@pytest.mark.parametrize("cause", ["key.data", "{.n_clicks", '{"key":"3"}.n_clicks', "no.such", ".", ""])
def test_only_an_input_can_be_the_cause(app: Any, client: Any, question: Any, cause: str) -> None:
    body = question(app, "key.data", "", {}) | {"inputs": [[]], "changedPropIds": [cause]}
    assert client.post("/_dash-update-component", json=body).status_code == 400


def test_an_error_of_ours_is_logged_and_not_shown(
    app_of_its_own: Any, ask: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*given: Any) -> Any:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr("cf2.web.view.comparison", fails)
    response = ask(app_of_its_own, "comparison.children", "key.data", {"key.data": "3", "method.value": "cf2"})
    assert response.status_code == 500
    assert b"inside" not in response.data
    assert "ZeroDivisionError" in caplog.text


def test_other_hosts_and_origins_are_refused(client: Any) -> None:
    assert client.get("/", headers={"Host": "localhost:8050"}).status_code == 200
    assert client.get("/", headers={"Host": "[::1]:8050"}).status_code == 200
    for host in ("evil.example", "[", "[::1", "localhost.evil.example", "127.0.0.1.evil.example", "evil@[::1"):
        assert client.get("/", headers={"Host": host}).status_code in (400, 403), host
    for origin in ("http://evil.example", "null", "http://[", "http://localhost:1", ""):
        assert client.get("/", headers={"Origin": origin}).status_code == 403, origin


def test_the_page_forbids_other_hosts_and_code_from_elsewhere(client: Any) -> None:
    response = client.get("/")
    policy = dict(part.split(" ", 1) for part in response.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["object-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"].startswith("'self' 'sha256-")
    assert "unsafe" not in policy["script-src"]
    assert policy["connect-src"] == "'self'"
    assert "http" not in response.headers["Content-Security-Policy"]
    assert b"https://" not in response.data


def test_values_in_values_without_end_are_seen_before_anything_recurses() -> None:
    deep: Any = {"output": "x"}
    for _ in range(guard.DEPTH):
        deep = [deep]
    assert guard._is_deep({"inputs": deep})
    assert not guard._is_deep({"inputs": deep[0][0][0][0]})
