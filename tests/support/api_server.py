"""The API server of an engine, on a port of this machine while a block runs."""

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from pine_engine import Engine
from pine_engine.server.app import Server
from pine_engine.server.listening import create_server
from pine_engine.server.settings import ServerSettings
from tests.support.serving import is_answered


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


@contextmanager
def server_process(
    command: Sequence[object], url: str, folder: Path, *, seconds: float = 60.0, **options: Any
) -> Iterator[None]:
    """Run a server during a block, which begins when `url` is answered; its log is in `folder`."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, **options)
    try:
        wait_until(lambda: process.poll() is not None or is_answered(url), seconds)
        assert process.poll() is None, (folder / "log").read_text()
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    """Wait until a condition holds. Tests may stop time.monotonic."""
    end = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < end
        time.sleep(0.01)
