"""Limits of connections: time per request and number per address."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_network
from typing import Any

import pytest
import uvicorn

from pine_engine.web import connections
from pine_engine.web.connections import FREE_CHUNKS, SHARE, limit_connections

PATIENCE_S = 20.0


async def greet(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"hi"})


@contextmanager
def listening(most: int, *proxies: str) -> Iterator[tuple[str, int]]:
    """A server on a free port; its address."""
    config = uvicorn.Config(greet, port=0, log_level="critical", timeout_keep_alive=60, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    limit_connections(server, most, list(map(ip_network, proxies)))
    try:
        yield server.servers[0].sockets[0].getsockname()
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def connected(address: tuple[str, int], sent: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        connection.sendall(sent)
        yield connection


def answer_of(connection: socket.socket) -> bytes:
    """All that the server says until it has greeted."""
    message = b""
    while not message.endswith(b"hi") and (more := connection.recv(1000)):
        message += more
    return message


def is_closed(connection: socket.socket) -> bool:
    """Waits until the server closes; True then, False when it says something or nothing."""
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("half", [b"", b"G", REQUEST[:-2]])
def test_incomplete_request_header_times_out(half: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)
    with listening(100) as address, connected(address, half) as connection:
        assert is_closed(connection)


def test_header_timeout_covers_second_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)
    with listening(100) as address, connected(address, REQUEST) as connection:
        assert answer_of(connection).endswith(b"hi")
        connection.sendall(REQUEST[:9])
        assert is_closed(connection)


def test_header_in_time_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 5.0)
    with listening(100) as address, connected(address) as connection:
        for part in (REQUEST[:9], REQUEST[9:]):
            time.sleep(0.1)
            connection.sendall(part)
        assert answer_of(connection).endswith(b"hi")


UPLOAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("num_chunks", "num_bytes", "is_accepted"),
    [(FREE_CHUNKS, 1, True), (FREE_CHUNKS + 1, 1, False), (500, 512, True), (10_000, 1, False)],
)
def test_body_with_too_many_chunks_is_closed(num_chunks: int, num_bytes: int, is_accepted: bool) -> None:
    body = (b"%x\r\n%s\r\n" % (num_bytes, b"a" * num_bytes)) * num_chunks + b"0\r\n\r\n"
    with listening(100) as address, connected(address, UPLOAD) as connection:
        with suppress(ConnectionError):
            connection.sendall(body)
        assert answer_of(connection).endswith(b"hi") if is_accepted else is_closed(connection)


def test_chunks_are_counted_for_each_request() -> None:
    upload = UPLOAD + b"1\r\na\r\n" * FREE_CHUNKS + b"0\r\n\r\n"
    with listening(100) as address, connected(address) as connection:
        for _ in range(2):
            connection.sendall(upload)
            assert answer_of(connection).endswith(b"hi")


@pytest.mark.parametrize(("proxies", "num_answered"), [((), 4), (("127.0.0.0/8",), 6)])
def test_address_other_than_a_proxy_has_a_share(proxies: tuple[str, ...], num_answered: int) -> None:
    with listening(4 * SHARE, *proxies) as address, ExitStack() as there:
        kept = [there.enter_context(connected(address, REQUEST)) for _ in range(num_answered)]
        assert all(answer_of(connection).endswith(b"hi") for connection in kept)
        assert proxies or is_closed(there.enter_context(connected(address, REQUEST)))


def test_connections_beyond_limit_get_status_503() -> None:
    with listening(2, "127.0.0.1") as address, connected(address), connected(address, REQUEST) as second:
        assert b"503 Service Unavailable" in second.recv(1000)
