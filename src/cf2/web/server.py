"""What the page lets in: a browser on this machine that asks for this page, and only so much of it."""

from __future__ import annotations

import errno
import ipaddress
import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import waitress
from dash.exceptions import DashException
from flask import Response, request
from waitress import wasyncore
from werkzeug.exceptions import HTTPException

from cf2.errors import CF2Error, require, require_number

MAX_REQUEST_BYTES = 2_000_000
MAX_REFUSAL_LENGTH = 300  # characters of an answer to a request that is refused
LIMITS = {
    "threads": 8,  # requests that are answered at once
    "connection_limit": 200,
    "channel_timeout": 60,  # seconds that a connection may stay open without anything being sent
    "max_request_body_size": MAX_REQUEST_BYTES,
    "max_request_header_size": 65_536,
}
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
# Dash and cytoscape put their styles into <style> elements of their own, so inline styles stay allowed, and
# nothing else inline: scripts come from files of this server, and the one that starts Dash is known by its hash.
POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
    "style-src-attr 'none'; img-src 'self' data: blob:; font-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
FREE = "choose another port (--port), or 0, which takes a free one."
FAILURES = {
    errno.EADDRINUSE: ("one that another program listens on", f"Stop that program, or {FREE}"),
    errno.EACCES: ("one that this user may not listen on", FREE.capitalize()),
    errno.EADDRNOTAVAIL: ("an address that this machine does not have", "Leave the host out for 127.0.0.1."),
}

log = logging.getLogger("cf2.web")
logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # that a request waits for a moment is no news


# -- requests


def protect(app: Any, hosts: frozenset[str] | None = LOOPBACK) -> None:
    """Have the app's server refuse foreign hosts and origins, and answer every error in words.

    `hosts=None` allows every host. A foreign page that has its own name lead to this machine is still named in `Host`.
    """
    server = app.server
    server.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BYTES
    server.register_error_handler(Exception, _refusal)
    policy = POLICY.format(scripts=" ".join(app.csp_hashes()))

    @server.before_request  # type: ignore[untyped-decorator]
    def check() -> Any:
        host, origin = re.sub(r":[0-9]+$", "", request.host).strip("[]"), request.headers.get("Origin")
        if hosts is not None and host.lower() not in hosts:
            return _plain("This page answers to its own address only.", 403)
        if origin is not None and origin.partition("://")[2] != request.host:
            return _plain("This page answers to itself only.", 403)
        return None

    @server.after_request  # type: ignore[untyped-decorator]
    def headers(response: Any) -> Any:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _refusal(error: Exception) -> Any:
    """An error as an answer, without a traceback."""
    if isinstance(error, HTTPException):
        return _plain(error.description or error.name, error.code or 500)
    if isinstance(error, CF2Error):
        return _plain(str(error), 400)
    if isinstance(error, DashException):
        return _plain("Expected a file or a question that this page has.", 404)
    log.error("Failed to answer", exc_info=error)
    return _plain("The page failed to answer; its log says why.", 500)


def _plain(text: str, code: int) -> Any:
    short = text if len(text) <= MAX_REFUSAL_LENGTH else f"{text[:MAX_REFUSAL_LENGTH]} …"
    return Response(short.encode("utf-8", "backslashreplace"), code, mimetype="text/plain")


# -- connections


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens, or an error that says why there is none; port 0 takes a free one."""
    require_number("port", port, 0, 65535, integer=True)
    require(
        isinstance(host, str) and bool(host.strip()),  # an empty name would stand for every address of this machine
        "Expected the name or the address of a host to listen on",
        got=repr(host),
        do="Leave it out for 127.0.0.1, which only this machine can reach.",
    )
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as error:
        raise CF2Error("Expected a host that this machine knows", got=repr(host)[:80]) from error
    family, address = found[0][0], str(found[0][4][0])
    both = family == socket.AF_INET6 and address == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((address, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        got, do = FAILURES.get(error.errno or 0, (str(error), "Choose another port (--port) or host (--host)."))
        raise CF2Error(f"Expected to listen on port {port} of {host}", got=got, do=do) from error


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach the socket."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


@contextmanager
def started(app: Any, listening: socket.socket) -> Iterator[Any]:
    """The page behind a socket, whose `run()` answers until an interrupt; on leaving, everything is closed."""
    server = waitress.create_server(app.server, sockets=[listening], ident=None, log_socket_errors=False, **LIMITS)
    try:
        yield server
    finally:
        app.server.extensions["cf2"].close()
        server.task_dispatcher.shutdown()
        wasyncore.close_all(server._map)


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The page on a free port of this machine, in a thread, until the block is left; gives its address."""
    stopped = threading.Event()
    with started(app, listening_socket("127.0.0.1", 0)) as server:

        def answer() -> None:
            while not stopped.is_set():
                wasyncore.loop(timeout=1.0, use_poll=True, map=server._map, count=1)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.effective_port}"
        finally:
            stopped.set()
            server.pull_trigger()
            thread.join()
