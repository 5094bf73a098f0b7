"""Listening on an address, with a limit on whatever a connection can hold.

waitress reads all connections in one thread and hands complete requests to others, so one that is slow keeps nobody
waiting. What it lacks is added here: a request that comes too slowly, byte by byte, is given up.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer

from cf2.errors import CF2Error, require, require_number
from cf2.web.guard import LIMIT

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
