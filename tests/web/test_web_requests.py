"""What is sent to the page: good questions are answered; other hosts and origins, and foreign files, are refused."""

import random
from collections import Counter
from typing import Any

import pytest

from cf2.web import build_app
from toys import tried

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
    "near.value": "",
    "made.data": None,
    "search.n_submit": 1,
}


def test_every_question_of_the_page_is_answered(app_of_its_own: Any, ask: Any) -> None:
    for output, known in app_of_its_own.callback_map.items():
        for part in known["inputs"] if "callback" in known else ():
            response = ask(app_of_its_own, output, f"{part['id']}.{part['property']}", VALUES)
            assert response.status_code in (200, 204), (output, part, response.data)


ODD: list[Any] = [None, True, -1, 0, 2, 3.5, 10**30, 1e308, float("nan"), "", "3", "x" * 5000, "0-99999999", "\ud800"]
ODD += [[], [None], [[]], [-1, 10**9], [["add", 3, 3], ["change", 0, 99, 1e400]], [["remove"]], [[[]]], [{}], "light"]
ODD += [{}, {"key": []}, {"key": "3", "method": ["cf2"]}, {"key": "3", "method": "none"}, {"data": {"unit": 10**9}}]
ODD += [{"data": []}, {"address": 3}, {"address": "?key=3&removed=0-99999999"}, {"address": "?key=3&edits=add~1~~2"}]


@tried(few=150, many=2000)
def test_a_question_with_odd_values_is_answered_or_refused_in_words(
    red_source: Any, found: Any, ask: Any, seeds: range
) -> None:
    app, codes = build_app(red_source, found), Counter[int]()
    asked = [(output, known) for output, known in app.callback_map.items() if "callback" in known and known["inputs"]]
    for seed in seeds:
        draw = random.Random(seed)
        output, known = draw.choice(asked)
        parts = [f"{part['id']}.{part['property']}" for part in (*known["inputs"], *known["state"])]
        odd = draw.sample(parts, min(len(parts), draw.choice([1, 1, 2, 4])))
        cause = draw.choice([*parts[: len(known["inputs"])], *odd, "", "no.such", "."])
        response = ask(app, output, cause, VALUES | {name: draw.choice(ODD) for name in odd})
        said = f"{seed}: {output} by {cause} with {odd}: {response.status_code} {response.data[:200]!r}"
        assert response.status_code in (200, 204, 400, 404), said
        assert b"Traceback" not in response.data, said
        assert response.status_code < 300 or len(response.data) < 400, said
        codes[response.status_code] += 1
    app.server.extensions["client"].get("/")
    assert min(codes[200] + codes[204], codes[400]) > len(seeds) / 20, codes


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
