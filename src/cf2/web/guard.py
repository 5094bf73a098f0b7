"""Checks on every request: only from this host, only well-formed ones, and no tracebacks in the answers."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import urlsplit

from cf2.errors import CF2Error

LIMIT = 2_000_000  # bytes of a request
DEPTH = 32  # values inside of values; what the page sends has less than ten
SAID = 300  # characters of an answer to a request that is refused
UPDATE = "/_dash-update-component"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
# Dash and cytoscape put their styles into <style> elements of their own, so inline styles stay allowed, and
# nothing else inline: scripts come from files of this server, and the one that starts Dash is known by its hash.
POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
    "style-src-attr 'none'; img-src 'self' data: blob:; font-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

log = logging.getLogger("cf2.web")


def protect(app: Any, hosts: frozenset[str] | None = LOOPBACK) -> None:
    """Have the app's server refuse foreign hosts and malformed requests; `hosts=None` allows every host."""
    server = app.server
    server.config["MAX_CONTENT_LENGTH"] = LIMIT
    server.before_request(lambda: _refusal(app, hosts))
    server.register_error_handler(Exception, _answer)
    policy = POLICY.format(scripts=" ".join(app.csp_hashes()))

    @server.after_request  # type: ignore[untyped-decorator]
    def headers(response: Any) -> Any:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _refusal(app: Any, hosts: frozenset[str] | None) -> Any:
    """The response to a request that is not to be handled; None for a good one."""
    from flask import request

    if hosts is not None and _host(request.host) not in hosts:
        return _plain("This page answers to its own address only.", 403)
    origin = request.headers.get("Origin")
    if origin is not None and _netloc(origin) != request.host:
        return _plain("This page answers to itself only.", 403)
    if "\0" in request.path:
        return _plain("Expected the path of a file or of this page.", 404)
    if request.path != UPDATE:
        return None
    if request.method != "POST":
        return _plain("Expected a question to be posted.", 405)
    if request.mimetype != "application/json":
        return _plain("Expected JSON.", 415)
    raw = request.get_data(cache=True)  # over the limit, this raises the 413
    try:
        body = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return _plain("Expected JSON.", 400)
    problem = _problem(app, body)
    return _plain(problem, 400) if problem else None


def _problem(app: Any, body: object) -> str:
    """What is wrong with the question that a page asks, if anything."""
    if not isinstance(body, dict) or _is_deep(body):
        return "Expected a JSON object."
    output = body.get("output")
    # What the browser does by itself is no question to the server.
    if not isinstance(output, str) or "callback" not in app.callback_map.get(output, ()):
        return "Expected an output that this page has."
    known = app.callback_map[output]
    for part in ("inputs", "state"):
        given = body.get(part, [])
        if not isinstance(given, list) or len(given) != len(known[part]) or not all(map(_same, known[part], given)):
            return f"Expected the {part} of that output."
    names = [name.rpartition(".") for name in output.strip(".").split("...")]
    wanted = [{"id": name, "property": part} for name, _, part in names]
    if body.get("outputs") != (wanted if output.startswith("..") else wanted[0]):
        return "Expected the outputs by name."
    causes, inputs = body.get("changedPropIds", []), _names(body["inputs"])
    if not isinstance(causes, list) or not all(isinstance(cause, str) and cause in inputs for cause in causes):
        return "Expected a list of changed properties."
    return ""


def _same(known: dict[str, Any], given: object) -> bool:
    """Whether a value is for the input that is expected."""
    return isinstance(given, dict) and all(given.get(part) == known[part] for part in ("id", "property"))


def _names(inputs: list[Any]) -> set[str]:
    """The inputs of a question as Dash names them."""
    return {f"{one['id']}.{one['property']}" for one in inputs}


def _is_deep(body: object) -> bool:
    """Whether values lie inside of more others than the page ever sends: code that recurses would fail."""
    level = [body]
    for _ in range(DEPTH):
        level = [part for value in level if isinstance(value, dict | list) for part in _parts(value)]
        if not level:
            return False
    return True


def _parts(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _answer(error: Exception) -> Any:
    from dash.exceptions import DashException
    from werkzeug.exceptions import HTTPException
    from werkzeug.routing import RequestRedirect

    if isinstance(error, RequestRedirect):
        return error
    if isinstance(error, HTTPException):
        return _plain(error.description or error.name, error.code or 500)
    if isinstance(error, CF2Error):
        return _plain(str(error), 400)
    if isinstance(error, DashException):
        return _plain("Expected a file or a question that this page has.", 404)
    log.error("Failed to answer", exc_info=error)
    return _plain("The page failed to answer; its log says why.", 500)


def _plain(text: str, code: int) -> Any:
    from flask import Response

    said = text if len(text) <= SAID else f"{text[:SAID]} …"
    return Response(said.encode("utf-8", "backslashreplace"), code, mimetype="text/plain")


def _host(netloc: str) -> str:
    """The host without its port; brackets of IPv6 gone."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").lower()
    except ValueError:
        return ""


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""
