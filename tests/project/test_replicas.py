"""The two replicas of docs/scaling.md: two processes of the page behind nginx, configured as in examples."""

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from gradio_client import Client

from tests.support.nginx import started_nginx
from tests.support.serving import Serve, ServedApp

FOLDER = Path(__file__).parents[2] / "examples" / "replicas"

LOG = """
log_format replicas '$upstream_addr $remote_addr $request_uri';
access_log {folder}/access.log replicas;
"""


@dataclass(frozen=True)
class Replicas:
    url: str
    pages: tuple[ServedApp, ServedApp]
    log: Path

    def replica_of(self, path: str) -> str:
        """Return the address of the replica that answered a path; nginx logs it after the answer."""
        ends_at = time.monotonic() + 20
        while True:
            lines = [line.split() for line in self.log.read_text().splitlines()]
            if addresses := [words[0] for words in lines if words[-1] == path]:
                return addresses[0]
            assert time.monotonic() < ends_at, f"nginx did not log {path}"
            time.sleep(0.05)


@contextmanager
def started_replicas(serve: Serve, folder: Path) -> Iterator[Replicas]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(serve(folder / name, "--allowed-hosts", "pages.example,127.0.0.1"))
            for name in ("page1", "page2")
        )
        text = (FOLDER / "nginx.conf").read_text()
        for name, page in (("page1:7860", first), ("page2:7860", second), ("listen 80", None)):
            address = page.url.split("/")[2] if page else f"listen 127.0.0.1:{port}"
            assert text.count(name) == 1
            text = text.replace(name, address)
        stack.enter_context(started_nginx(folder, port, LOG.format(folder=folder) + text))
        yield Replicas(f"http://127.0.0.1:{port}/", (first, second), folder / "access.log")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_visitors_stay_with_a_replica_until_it_ends(serve: Serve, tmp_path: Path) -> None:
    with started_replicas(serve, tmp_path) as replicas, ExitStack() as stack:
        visitors = [stack.enter_context(httpx.Client(base_url=replicas.url, timeout=60)) for _ in range(8)]
        found: set[str] = set()
        for number, visitor in enumerate(visitors):
            paths = [f"/?visitor={number}", f"/config?visitor={number}", f"/health?visitor={number}"]
            assert [visitor.get(path).status_code for path in paths] == [200, 200, 200]
            (replica,) = {replicas.replica_of(path) for path in paths}
            found.add(replica)
        assert found == {page.url.split("/")[2] for page in replicas.pages}

        script = Client(replicas.url, verbose=False)
        request: dict[str, Any] = {"question": "Where?", "documents": ["In Rome."], "methods": ["vanilla"]}
        answer = script.predict(**request, max_new_tokens=4, api_name="/compare")
        script.close()
        assert [result["method"] for result in answer["results"]] == ["vanilla"]

        replicas.pages[0].process.terminate()
        replicas.pages[0].process.wait(30)
        assert [visitor.get("/").status_code for visitor in visitors] == [200] * 8


def test_compose_file_names_the_pages_of_the_proxy() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    upstream = (FOLDER / "nginx.conf").read_text()
    pages = [name for name, service in services.items() if service["image"] == "pine-explorer"]
    assert len(pages) == 2 and all(f"server {name}:7860;" in upstream for name in pages)
