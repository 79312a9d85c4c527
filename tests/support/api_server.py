"""The API server of an engine, on a port of this machine while a block runs."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette

from pine_engine import Engine
from pine_engine.server.app import Server, ServerSettings, create_server


@contextmanager
def running_server(engine: Engine, **settings: Any) -> Iterator[tuple[str, Server]]:
    """Yield the address of a server, and the server."""
    server = Server(engine, ServerSettings(**settings))
    with running_app(server.app()) as address:
        yield address, server


@contextmanager
def running_app(app: Starlette) -> Iterator[str]:
    """Yield the address of an application."""
    listener = socket.create_server(("127.0.0.1", 0))
    running = create_server(app, log_level="error")
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join()
        listener.close()


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
