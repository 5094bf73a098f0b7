"""The server: oversized requests are refused at once; ports and hosts that cannot be."""

import socket
import urllib.request
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from cf2.errors import CF2Error
from cf2.web.server import is_loopback, listening_socket, served
from web.browser import PATIENCE

HALF = b"POST /state HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def connected(address: str) -> socket.socket:
    host, port = urlsplit(address).netloc.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def answers(address: str) -> bool:
    with urllib.request.urlopen(f"{address}/listing", timeout=PATIENCE) as answer:
        return bool(answer.status == 200)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HALF + b"Content-Length: 99999999999\r\n\r\n", b"413"),
        (HALF + b"X-Large: " + b"x" * 1_000_000 + b"\r\n\r\n", b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
    ],
)
def test_what_is_too_large_or_no_request_is_refused_at_once(app_of_its_own: Any, head: bytes, status: bytes) -> None:
    with served(app_of_its_own) as address:
        with connected(address) as connection:
            connection.sendall(head)
            assert connection.recv(1000).split(b" ")[1] == status
        assert answers(address)


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        *((host, 0, "Leave it out for 127") for host in ("", " ", None)),  # would mean every address
        *(("127.0.0.1", port, "Expected `port` to be a whole number from 0") for port in (-1, 65536, "8050", True)),
        *((host, 0, "Expected to listen on port 0 of") for host in ("a" * 300, "exa\x00mple")),
        ("192.0.2.1", 0, "Cannot assign requested address"),  # an address for documentation, which no machine has
    ],
)
def test_where_nobody_can_listen_is_refused_in_words(host: Any, port: Any, said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        listening_socket(host, port)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.2", True), ("localhost", True), ("0.0.0.0", False), ("0", False), ("::1", True), ("::", False)],
)
def test_whether_others_can_reach_a_host_is_seen_from_its_address(host: str, expected: bool) -> None:
    try:
        listening = listening_socket(host, 0)
    except CF2Error:
        assert ":" in host
        pytest.skip("no IPv6 on this machine")
    with closing(listening):
        assert is_loopback(listening) is expected
        assert listening.getsockname()[1] > 0
