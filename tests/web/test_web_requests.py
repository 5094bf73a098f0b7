"""What is sent to the page: good questions are answered; other hosts and origins, and foreign files, are refused."""

from typing import Any

import pytest

UPDATE = "/_dash-update-component"
VALUES = {  # what a page sends when all is well
    "show.value": "all",
    "sort.value": "key",
    "search.value": "",
    "method.value": "cf2",
    "key.data": "3",
    "page.data": 0,
    "shown.data": {"key": "3", "method": "cf2"},
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


def test_every_question_of_the_page_is_answered(app_of_its_own: Any, ask: Any) -> None:
    for output, known in app_of_its_own.callback_map.items():
        for part in known["inputs"] if "callback" in known else ():
            response = ask(app_of_its_own, output, f"{part['id']}.{part['property']}", VALUES)
            assert response.status_code in (200, 204), (output, part, response.data)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"output": 3}', b'{"output": "no.such"}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_malformed_request_is_refused_without_a_traceback(client: Any, body: bytes) -> None:
    response = client.post(UPDATE, data=body, content_type="application/json")
    assert response.status_code >= 400
    assert b"Traceback" not in response.data
    assert len(response.data) < 400


@pytest.mark.parametrize("key", [10**9, "99", None, "x" * 100_000, "\ud800", "\x00"])
def test_an_instance_that_is_not_there_is_refused_briefly(app: Any, ask: Any, key: Any) -> None:
    shown = {"key.data": key, "method.value": "cf2", "shown.data": {"key": key, "method": "cf2"}}
    for output, cause in (("comparison.children", "key.data"), ("removed.data", "without.n_clicks")):
        response = ask(app, output, cause, shown)
        assert (response.status_code, response.mimetype) == (400, "text/plain")
        assert len(response.data) < 400
        assert b"Traceback" not in response.data


def test_a_request_that_is_too_large_is_refused(client: Any) -> None:
    response = client.post(UPDATE, data=b" " * 3_000_000, content_type="application/json")
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
    ],
)
def test_no_file_outside_of_the_assets_is_served(client: Any, path: str) -> None:
    response = client.get(path)
    assert b"import annotations" not in response.data
    assert b"root:" not in response.data
    assert 400 <= response.status_code < 500 or b"_dash-config" in response.data


def test_an_error_of_ours_is_logged_and_not_shown(
    app_of_its_own: Any, ask: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*given: Any) -> Any:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr("cf2.web.panel.comparison", fails)
    response = ask(app_of_its_own, "comparison.children", "key.data", {"key.data": "3"})
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
