"""The scripts of docs/serving.md, each in an environment that has only the wheel and its client."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.api_server import wait_until
from tests.support.environments import build_wheel, clean_variables, create_environment
from tests.support.pages import PAGES, blocks

pytestmark = [pytest.mark.slow, pytest.mark.embedded, pytest.mark.timeout(2400)]

PACKAGES = {
    "openai": ["openai==3.57.0"],
    "langchain": ["langchain-openai==1.7.4"],
    "inspect_ai": ["inspect_ai==0.3.285", "openai==3.57.0"],
}
SCRIPTS = dict(zip(PACKAGES, blocks(PAGES["serving.md"]), strict=True))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    return create_environment(folder / "environment", f"{build_wheel(folder)}[serve]")


@pytest.fixture(scope="module")
def address(base: Path, embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server of the embedded model."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    command = [base, "-m", "pine_engine", "serve", "--port", port, "--model", embedded_folder]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            list(map(str, command)), cwd=folder, env=clean_variables(), stdout=log, stderr=log
        )
    try:
        wait_until(lambda: is_ready(port) or process.poll() is not None, seconds=300)
        assert process.poll() is None, (folder / "log").read_text()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("client", SCRIPTS)
def test_documented_script_runs(client: str, base: Path, address: str, tmp_path: Path) -> None:
    python = create_environment(tmp_path / "environment", *PACKAGES[client], base=base)
    script = tmp_path / "script.py"
    script.write_text(SCRIPTS[client], encoding="utf-8")
    names = ("OPENAI_BASE_URL", "PINE_BASE_URL")
    variables = dict.fromkeys(names, address) | {"OPENAI_API_KEY": "none", "PINE_API_KEY": "none"}
    done = subprocess.run(
        [str(python), str(script)], cwd=tmp_path, env=clean_variables(**variables), capture_output=True,
        text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert address not in done.stdout and os.linesep in done.stdout
    if client == "inspect_ai":
        (orders,) = re.findall(r"^pine \[([\d.]+), ([\d.]+)\]$", done.stdout, re.MULTILINE)
        assert re.search(r"^vanilla \[", done.stdout, re.MULTILINE)
    else:
        orders = re.findall(r"^pine: (\S.*)$", done.stdout, re.MULTILINE)
        assert len(re.findall(r"^vanilla: \S", done.stdout, re.MULTILINE)) == 2
        *_, streamed = done.stdout.strip().splitlines()
        assert orders[0].startswith(streamed) and streamed
    assert len(orders) == 2 and len(set(orders)) == 1
