"""What the page lets in: a browser that was given the address with the token, and only so much of it."""

from __future__ import annotations

import errno
import ipaddress
import logging
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import waitress
from dash.exceptions import DashException
from flask import Response, g, redirect, request
from waitress import wasyncore
from werkzeug.exceptions import HTTPException

from cf2.errors import CF2Error, require, require_number
from cf2.web.whatif import MAX_VISITORS, VISITOR

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


class Visitors:
    """Who was let in, by names that the server draws; a name is in a cookie, and nobody can guess one."""

    def __init__(self, token: str | None) -> None:
        self.token = token
        self._names: list[str] = []  # the one that came last is the last
        self._lock = threading.Lock()

    def known(self, given: str) -> bool:
        """Whether the server has drawn this name. Every name is compared, each in the same time."""
        with self._lock:
            same = [name for name in self._names if _same(name, given)]
            self._names = [name for name in self._names if name not in same] + same
        return bool(same)

    def admit(self, given: str | None) -> str | None:
        """The name of a new visitor, for the right token or where none is asked for."""
        if self.token is not None and not _same(self.token, given or ""):
            return None
        name = secrets.token_urlsafe(24)
        with self._lock:
            self._names = [*self._names, name][-MAX_VISITORS:]
        return name


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode("utf-8", "replace"))


def protect(app: Any, hosts: frozenset[str] | None = LOOPBACK, token: str | None = None) -> None:
    """Have the app's server refuse foreign hosts and origins, and answer every error in words.

    `hosts=None` allows every host. A foreign page that has its own name lead to this machine is still named in `Host`.
    With a `token`, only a browser that has once sent it in the address is answered.
    """
    server, visitors = app.server, Visitors(token)
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
        given = request.args.get("token") if token is not None else None
        name: str | None = request.cookies.get(_cookie(), "")
        if not visitors.known(name or ""):
            name = g.admitted = visitors.admit(given)
        if name is None:
            return _plain("Open the address that `cf2 serve` printed, with the token in it.", 403)
        VISITOR.set(name)
        if given is None:
            return None
        rest = urlencode([pair for pair in request.args.items(multi=True) if pair[0] != "token"])
        return redirect("/" + (f"?{rest}" if rest else ""))  # so that the token is in no history and no screenshot

    @server.teardown_request  # type: ignore[untyped-decorator]
    def leave(_: BaseException | None) -> None:
        VISITOR.set("")

    @server.after_request  # type: ignore[untyped-decorator]
    def headers(response: Any) -> Any:
        if name := g.get("admitted"):
            response.set_cookie(_cookie(), name, httponly=True, samesite="Lax")
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _cookie() -> str:
    """The name of the cookie: browsers share cookies between the ports of a host, and pages must not share them."""
    return f"cf2-{request.host.rpartition(':')[2]}" if re.search(r":[0-9]+$", request.host) else "cf2"


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
