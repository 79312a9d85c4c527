"""Serves the app in a process of its own, as a user starts it."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0  # a machine busy with other tests


@dataclass(frozen=True)
class ServedApp:
    """A running app."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def served_app(
    log: Path, *flags: str, environment: Mapping[str, str] | None = None, folder: Path = ROOT
) -> Iterator[ServedApp]:
    """Runs `python app.py` of a folder on a free port of this machine until the block is left."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}/"
    with log.open("w") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port), *flags],
            cwd=folder,
            env=os.environ | {"HF_HUB_OFFLINE": "1"} | dict(environment or {}),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while not _answers(url):
                assert process.poll() is None, f"the app ended:\n{log.read_text()}"
                assert time.monotonic() - began < PATIENCE_S, f"the app does not serve:\n{log.read_text()}"
                time.sleep(0.05)
            yield ServedApp(url, log, process)
        finally:
            process.terminate()
            process.wait(20)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, TimeoutError):
        return False
