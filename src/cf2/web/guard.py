"""Checks on every request: only from this host, only well-formed ones, and no tracebacks in the answers."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import urlsplit

from cf2.errors import CF2Error

LIMIT = 2_000_000  # bytes of a request
UPDATE = "/_dash-update-component"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

log = logging.getLogger("cf2.web")


def protect(app: Any, hosts: frozenset[str] | None = LOOPBACK) -> None:
    """Have the app's server refuse foreign hosts and malformed requests; `hosts=None` allows every host."""
    server = app.server
    server.config["MAX_CONTENT_LENGTH"] = LIMIT
    server.before_request(lambda: _refusal(app, hosts))
    server.register_error_handler(Exception, _answer)

    @server.after_request  # type: ignore[untyped-decorator]
    def headers(response: Any) -> Any:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _refusal(app: Any, hosts: frozenset[str] | None) -> Any:
    """The response to a request that is not to be handled; None for a good one."""
    from flask import request

    if hosts is not None and _host(request.host) not in hosts:
        return _plain("This page answers to its own address only.", 403)
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        return _plain("This page answers to itself only.", 403)
    if request.path != UPDATE or request.method != "POST":
        return None
    raw = request.get_data(cache=True)  # over the limit, this raises the 413
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return _plain("Expected JSON.", 400)
    problem = _problem(app, body)
    return _plain(problem, 400) if problem else None


def _problem(app: Any, body: object) -> str:
    """What is wrong with the question that a page asks, if anything."""
    if not isinstance(body, dict):
        return "Expected a JSON object."
    output = body.get("output")
    if not isinstance(output, str) or output not in app.callback_map:
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
    causes = body.get("changedPropIds", [])
    if not isinstance(causes, list) or not all(isinstance(cause, str) and "." in cause for cause in causes):
        return "Expected a list of changed properties."
    return ""


def _same(known: dict[str, Any], given: object) -> bool:
    """Whether a value is for the input that is expected; one that matches many ids has a list of them."""
    part = known["property"]
    if known["id"].startswith("{"):
        return isinstance(given, list) and all(
            isinstance(one, dict) and isinstance(one.get("id"), dict) and one.get("property") == known["property"]
            for one in given
        )
    return isinstance(given, dict) and given.get("id") == known["id"] and given.get("property") == part


def _answer(error: Exception) -> Any:
    from dash.exceptions import DashException
    from werkzeug.exceptions import HTTPException

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

    return Response(text, code, mimetype="text/plain")


def _host(netloc: str) -> str:
    """The host without its port; brackets of IPv6 gone."""
    return (urlsplit(f"//{netloc}").hostname or "").lower()
