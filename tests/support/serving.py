"""Run the app as a user does, or ten times as fast, forked from a process that has imported it."""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT

import httpx
import psutil

from tests.support import forks
from tests.support.forks import ROOT

PATIENCE_S = 60.0  # other tests may slow it down


@dataclass(frozen=True)
class ServedApp:
    url: str
    log: Path
    process: psutil.Process


Serve = Callable[..., AbstractContextManager[ServedApp]]


@contextmanager
def started_app(
    log: Path, *flags: str, environment: Mapping[str, str] | None = None, folder: Path = ROOT
) -> Iterator[ServedApp]:
    port = free_port()
    with log.open("w") as output:
        process = psutil.Popen(
            [sys.executable, "app.py", "--port", str(port), *flags], cwd=folder,
            env=os.environ | dict(environment or {}), stdout=output, stderr=STDOUT,
        )  # fmt: skip
        with _answering(ServedApp(f"http://127.0.0.1:{port}/", log, process)) as served:
            yield served


@contextmanager
def served_app(log: Path, *flags: str, environment: Mapping[str, str] | None = None) -> Iterator[ServedApp]:
    port = free_port()
    arguments = ["--port", str(port), *flags]
    log.write_text("")
    fork = forks.fork(_serve, arguments, stdout=log, stderr=log, environment=environment)
    with _answering(ServedApp(f"http://127.0.0.1:{port}/", log, psutil.Process(fork.pid))) as served:
        yield served
    fork.join()


def _serve(arguments: list[str]) -> None:
    import app

    sys.argv = ["app.py", *arguments]
    app.main()


@contextmanager
def _answering(served: ServedApp) -> Iterator[ServedApp]:
    """Wait for the page, and end its process at the end of the block."""
    began = time.monotonic()
    try:
        while not is_answered(served.url):
            assert not _has_ended(served.process), f"the app ended:\n{served.log.read_text()}"
            assert time.monotonic() - began < PATIENCE_S, f"it does not serve:\n{served.log.read_text()}"
            time.sleep(0.05)
        yield served
    finally:
        if not _has_ended(served.process):
            served.process.terminate()
            served.process.wait(20)


def _has_ended(process: psutil.Process) -> bool:
    try:
        process.wait(0)
    except psutil.TimeoutExpired:
        return False
    return True


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_answered(url: str) -> bool:
    """Check whether a server answers."""
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False
