"""Requests that no page would send, drawn from a seed, and a way to send them that has no checks of its own."""

from __future__ import annotations

import copy
import json
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

UPDATE = "/_dash-update-component"
JUNK: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 10**9, -(10**30), 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan")),
    *("", "x", "0", "3", "cf2", "all", "key", "a" * 3000, "\ud800", "\x00", "‮", "<script>", "{", "..", "9" * 39),
    *([], [0], [[]], [None] * 50, ["0"], [10**9], [True], {}, {"a": 1}, {"key": "3"}, {"key": "3", "method": "cf2"}),
    *({"data": {"unit": 0}}, {"data": {"unit": -1}}, {"data": 3}, {"key": "3", "number": 1}, {"key": [], "method": {}}),
]
ROUTES = [
    *("/", "/_dash-layout", "/_dash-dependencies", "/_reload-hash", "/_favicon.ico", "/assets/style.css", UPDATE),
    *("/static/x", "/assets/", "/_dash-component-suites/dash/", "/_dash-component-suites/dash_cytoscape/x.js", "/%00"),
]
SCRAPS = [
    "..",
    "%2e%2e",
    "%00",
    "%ff",
    "%",
    "//",
    "/",
    "\\",
    "?",
    "??a=%zz",
    "&",
    "#",
    ";",
    ":",
    "@",
    "ä",
    "\u202e",
    "a" * 500,
]
HEADERS = {
    "Host": ["evil.example", "[", "127.0.0.1:99999999", "", "localhost:x", "[::1", "127.0.0.1, evil", "\xff"],
    "Origin": ["null", "http://[", "http://evil.example", "http://127.0.0.1:1", "\xff", "file://"],
    "Content-Type": [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "\xff/x",
    ],
    "Cookie": ["a=b; ;;=", "\xff" * 20, "x=" + "y" * 3000],
    "Range": ["bytes=9-1", "bytes=abc", "bytes=0-99999999999"],
    "If-None-Match": ['"', "*", 'W/"x'],
    "If-Modified-Since": ["yesterday", "\xff"],
    "Accept-Encoding": ["gzip;q=x", ""],
    "X-Forwarded-Host": ["evil.example"],
}


@dataclass(frozen=True)
class Sent:
    """One request; `bad` says that it cannot be right, so that it must be refused."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    bad: bool = False


def requests(questions: list[dict[str, Any]], seed: int, count: int) -> Iterator[Sent]:
    """Requests of every kind in turn; `questions` are what a page would ask, and are spoilt in some way."""
    rng = random.Random(seed)
    kinds: list[Callable[[random.Random, list[dict[str, Any]]], Sent]] = [_spoilt, _other, _broken, _spoilt, _routed]
    for number in range(count):
        yield kinds[number % len(kinds)](rng, questions)


def posted(body: bytes, bad: bool = False, **headers: str) -> Sent:
    """A question to the page."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Sent("POST", UPDATE, {"Content-Type": "application/json", **named}, body, bad)


def _spoilt(rng: random.Random, questions: list[dict[str, Any]]) -> Sent:
    """A good question of which one to four parts are exchanged, removed, doubled or wrapped; it may still be good."""
    body: Any = copy.deepcopy(rng.choice(questions))
    for _ in range(rng.randint(1, 4)):
        places = list(_places(body))
        if not places:
            break
        # Most often a value, which the callbacks see; else anything, which the checks before them see.
        values = [place for place in places if place[1] == "value"]
        parent, key = rng.choice(values if values and rng.random() < 0.7 else places)
        change = rng.randrange(8)
        if change == 0:
            del parent[key]
        elif change == 1:
            parent[key] = [parent[key], parent[key]]
        elif change == 2 and isinstance(parent, list):
            parent.append(parent[key])
        else:
            parent[key] = copy.deepcopy(rng.choice(JUNK))
    return posted(as_json(body))


def _other(rng: random.Random, questions: list[dict[str, Any]]) -> Sent:
    """JSON that is no question at all."""
    return posted(as_json(_tree(rng, 4)), bad=True)


def _broken(rng: random.Random, questions: list[dict[str, Any]]) -> Sent:
    """What is wrong before anybody looks at the question."""
    good = as_json(rng.choice(questions))
    header = rng.choice(["Host", "Origin", "Content-Type"])
    return rng.choice(
        [
            lambda: posted(bytes(rng.randrange(256) for _ in range(rng.randrange(60))), bad=True),
            lambda: posted(good[: rng.randrange(len(good))], bad=True),
            lambda: posted(b"[" * rng.choice([40, 900, 100_000]), bad=True),
            lambda: posted(b'{"a":' * 500 + b"1" + b"}" * 500, bad=True),
            lambda: posted(good.replace(b'"inputs"', b'"x":' + b"[" * 400 + b"]" * 400 + b',"inputs"'), bad=True),
            lambda: posted(good[:-1] + b',"x":' + rng.choice([b"NaN", b"-Infinity", b"9" * 5000]) + b"}", bad=True),
            lambda: posted(b" " * 2_000_001, bad=True),
            lambda: posted(good, bad=True, Content_Length="2000001"),
            lambda: posted(good, bad=True, Content_Length=rng.choice(["-1", "x", "1e3", "99999999999999999999"])),
            lambda: posted(good, bad=True, **{header.replace("-", "_"): rng.choice(HEADERS[header])}),
            lambda: Sent(rng.choice(["GET", "PUT", "DELETE", "PATCH", "FOO"]), UPDATE, {}, good, bad=True),
        ]
    )()


def _routed(rng: random.Random, questions: list[dict[str, Any]]) -> Sent:
    """Any route, with a path, a method and headers that it may not expect."""
    path = rng.choice(ROUTES) + "".join(rng.choice(SCRAPS) for _ in range(rng.choice([0, 0, 1, 3])))
    named = rng.sample(sorted(HEADERS), rng.randrange(3))
    method = rng.choice(["GET", "GET", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE", "get"])
    return Sent(method, path, {name: rng.choice(HEADERS[name]) for name in named})


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a JSON value, as what holds it and its place there."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _tree(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(4) if depth else 3
    if kind == 0:
        return [_tree(rng, depth - 1) for _ in range(rng.randrange(5))]
    if kind == 1:
        names = ("output", "outputs", "inputs", "state", "changedPropIds", "x")
        return {rng.choice(names): _tree(rng, depth - 1) for _ in range(rng.randrange(5))}
    return copy.deepcopy(rng.choice(JUNK))


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def send(address: str, sent: Sent, patience: float) -> int:
    """The status of the answer; 0 where the connection was closed without one."""
    host, port = urlsplit(address).netloc.split(":")
    headers = {"Host": f"{host}:{port}", "Content-Length": str(len(sent.body)), "Connection": "close", **sent.headers}
    lines = [f"{sent.method} {sent.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    with socket.create_connection((host, int(port)), timeout=patience) as connection:
        try:
            connection.sendall("\r\n".join(lines).encode("utf-8" if not sent.path.isascii() else "latin-1") + sent.body)
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        except (BrokenPipeError, ConnectionResetError):  # it was refused before all of it was sent
            return 0
    return int(answer.split(b" ", 2)[1]) if answer else 0
