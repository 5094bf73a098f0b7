"""What the page lets in: a browser that was given the address with the token, and only so much of it."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import waitress
from flask import Flask, Response, g, redirect, request, session
from waitress import wasyncore
from werkzeug.exceptions import HTTPException

from cf2.errors import CF2Error, require, require_number, shown
from cf2.web.whatif import VISITOR

MAX_REQUEST_BYTES = 2_000_000
# Scripts are those that the page itself holds, which a number that is drawn for each answer shows.
POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

log = logging.getLogger("cf2.web")
logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # that a request waits for a moment is no news


PARTS: dict[str, tuple[type, ...]] = {  # of a request, and the types that they may have
    **dict.fromkeys(("method", "do", "address", "what"), (str,)),
    **dict.fromkeys(("removed", "edits", "near", "sorts"), (list,)),
    "alpha": (float, int),
    "lambda": (float, int, type(None)),
    "aim": (int, type(None)),
}

# -- requests


def protect(app: Flask, token: str | None = None) -> None:
    """Have the app answer every error in words, and with a `token` only browsers that have once sent it.

    A page of a stranger that has its own name lead to this machine has neither the token nor the cookie.
    """
    app.secret_key = secrets.token_bytes(32)  # signs the cookie that holds the name of a visitor
    app.config.update(MAX_CONTENT_LENGTH=MAX_REQUEST_BYTES, SESSION_COOKIE_SAMESITE="Lax")
    app.register_error_handler(Exception, _refusal)

    @app.before_request
    def check() -> Any:
        g.nonce = secrets.token_urlsafe(16)
        given = request.args.get("token")
        if "visitor" not in session:
            if token is not None and not secrets.compare_digest(token.encode(), (given or "").encode()):
                return _plain("Open the address that `cf2 serve` printed, with the token in it.", 403)
            session["visitor"] = secrets.token_urlsafe(24)
        VISITOR.set(session["visitor"])
        if given is None:
            return None
        rest = urlencode([pair for pair in request.args.items(multi=True) if pair[0] != "token"])
        return redirect("/" + (f"?{rest}" if rest else ""))  # so that the token is in no history and no screenshot

    @app.teardown_request
    def leave(_: BaseException | None) -> None:
        VISITOR.set("")

    @app.after_request
    def headers(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = POLICY.format(nonce=g.get("nonce", ""))
        return response


class Sent(dict[str, Any]):
    """What a browser sent as JSON, each part of the type that it must have."""

    def __missing__(self, name: str) -> Any:
        raise CF2Error(f"Expected {name!r} in the request", got="none")

    @classmethod
    def read(cls) -> Sent:
        """The body of the request, or an error that names the part that is wrong."""
        try:
            given = request.get_json()
        except RecursionError:
            given = None
        require(isinstance(given, dict), "Expected an object as the body of the request", got=type(given).__name__)
        for name, value in given.items():
            fits = type(value) in PARTS.get(name, (type(value),))
            if fits and name in ("removed", "near"):
                fits = all(type(number) is int for number in value)
            require(fits, f"Expected another value for {name!r} in the request", got=shown(value, 80))
        return cls(given)


def _refusal(error: Exception) -> Response:
    """An error as an answer, without a traceback."""
    if isinstance(error, HTTPException):
        return _plain(error.description or error.name, error.code or 500)
    if isinstance(error, CF2Error):
        return _plain(str(error), 400)
    log.error("Failed to answer", exc_info=error)
    return _plain("The page failed to answer; its log says why.", 500)


def _plain(text: str, code: int) -> Response:
    return Response(text.encode("utf-8", "backslashreplace"), code, mimetype="text/plain")


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
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except (OSError, ValueError) as error:  # a name that is not known, a port in use, or one that is not allowed
        raise CF2Error(
            f"Expected to listen on port {port} of {host[:80]}",
            got=(getattr(error, "strerror", None) or str(error)).partition(" (while")[0],
            do="Choose another --port (0 takes a free one), or leave the host out for 127.0.0.1.",
        ) from error


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach the socket."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


@contextmanager
def started(app: Flask, listening: socket.socket) -> Iterator[Any]:
    """The page behind a socket, whose `run()` answers until an interrupt; on leaving, everything is closed."""
    app.config["SESSION_COOKIE_NAME"] = f"cf2-{listening.getsockname()[1]}"  # browsers share cookies between ports
    server = waitress.create_server(
        app,
        sockets=[listening],
        ident=None,
        log_socket_errors=False,
        threads=8,
        max_request_body_size=MAX_REQUEST_BYTES,
    )
    try:
        yield server
    finally:
        app.extensions["cf2"].close()
        server.task_dispatcher.shutdown()
        wasyncore.close_all(server._map)


@contextmanager
def served(app: Flask) -> Iterator[str]:
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
