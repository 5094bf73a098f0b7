"""Malformed requests, odd values, other hosts and foreign files are refused, without a traceback."""

from typing import Any

import pytest


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
