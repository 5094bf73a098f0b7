"""What a page on this machine lets in: only this host, only well-formed requests, and so many of them."""

from __future__ import annotations

import errno
import ipaddress
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer

from cf2.errors import CF2Error, require, require_number

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


# -- listen ----------------------------------------------------------------------------------------------


THREADS = 8  # requests that are answered at once; see `again.WAITING`
CONNECTIONS = 200
ARRIVAL = 30  # seconds that a request may take to arrive
IDLE = 60  # seconds that a connection may stay open without a request
HEADERS = 65_536  # bytes

FREE = "choose another port (--port), or 0, which takes a free one."
FAILURES = {
    errno.EADDRINUSE: ("one that another program listens on", f"Stop that program, or {FREE}"),
    errno.EACCES: ("one that this user may not listen on", FREE.capitalize()),
    errno.EADDRNOTAVAIL: ("an address that this machine does not have", "Leave the host out for 127.0.0.1."),
}

logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # that a request waits for a moment is no news


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens, or an error that says why there is none; port 0 takes a free one."""
    require_number("port", port, 0, 65535, integer=True)
    family, address = _resolve(host, port)
    both = family == socket.AF_INET6 and address == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((address, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        got, do = FAILURES.get(error.errno or 0, (str(error), "Choose another port (--port) or host (--host)."))
        raise CF2Error(f"Expected to listen on port {port} of {host}", got=got, do=do) from error


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach the socket."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """The address of a host. An empty name would stand for every address of this machine."""
    require(
        isinstance(host, str) and bool(host.strip()),
        "Expected the name or the address of a host to listen on",
        got=repr(host),
        do="Leave it out for 127.0.0.1, which only this machine can reach.",
    )
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as error:
        raise CF2Error("Expected a host that this machine knows", got=repr(host)[:80]) from error
    family, _, _, _, address = found[0]
    return family, str(address[0])


class _Channel(HTTPChannel):  # type: ignore[misc]
    """A connection that knows when the request that it is reading began."""

    began = float("inf")

    def received(self, data: bytes) -> Any:
        if self.request is None:
            self.began = time.time()
        return super().received(data)


class Server(TcpWSGIServer):  # type: ignore[misc]
    """A WSGI application behind a socket that listens; on leaving `with server:`, everything is closed.

    Parameters
    ----------
    application : callable
    listening : socket
    arrival : float
        Seconds that a request may take to arrive.
    connections : int
        The most connections that are open.
    """

    channel_class = _Channel

    def __init__(
        self, application: Any, listening: socket.socket, *, arrival: float = ARRIVAL, connections: int = CONNECTIONS
    ) -> None:
        self._arrival, self._stopped = arrival, threading.Event()
        limits = Adjustments(
            sockets=[listening],
            threads=THREADS,
            connection_limit=connections,
            channel_timeout=IDLE,
            cleanup_interval=1,
            max_request_body_size=LIMIT,
            max_request_header_size=HEADERS,
            log_socket_errors=False,
            ident=None,
        )
        info = listening.family, listening.type, listening.proto, listening.getsockname()
        super().__init__(application, {}, _sock=listening, adj=limits, sockinfo=info, bind_socket=False)
        self.port = int(listening.getsockname()[1])

    def maintenance(self, now: float) -> None:
        """Close the connections that are idle, those with a slow request, and, where most are taken, the oldest."""
        super().maintenance(now)
        waiting = [channel for channel in self.active_channels.values() if not channel.requests]
        for channel in waiting:
            if channel.request is not None and now - channel.began > self._arrival:
                channel.will_close = True
        oldest = sorted(waiting, key=lambda channel: channel.last_activity)
        for channel in oldest[: max(0, len(waiting) - self.adj.connection_limit // 2)]:
            channel.will_close = True

    def serve_forever(self) -> None:
        """Answer until `stop` is called, or until an interrupt."""
        while not self._stopped.is_set():
            wasyncore.loop(timeout=1.0, use_poll=True, map=self._map, count=1)

    def stop(self) -> None:
        """Have `serve_forever` return; any thread may call this."""
        self._stopped.set()
        self.pull_trigger()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        """End the threads, and close all connections and the socket."""
        self.task_dispatcher.shutdown()
        wasyncore.close_all(self._map)


@contextmanager
def served(app: Any, **limits: Any) -> Iterator[str]:
    """The page on a free port of this machine, in a thread, until the block is left; gives its address.

    Parameters
    ----------
    app : Dash
        As `build_app` gives it.
    **limits
        As `Server` takes them.
    """
    with Server(app.server, listening_socket("127.0.0.1", 0), **limits) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.port}"
        finally:
            app.server.extensions["cf2"].close()
            server.stop()
            thread.join()
