"""The page behind nginx, with the lines of docs/hosting.md."""

import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.support.nginx import started_nginx
from tests.support.serving import Serve, free_port

pytestmark = pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")

HOSTING = Path(__file__).parents[4] / "docs" / "hosting.md"
HEADER_TIMEOUT_S = 1

SETTINGS = """
access_log off;
{limits}
server {{
    listen 127.0.0.1:{port};
    {location}
}}
"""


@pytest.fixture(scope="module")
def port(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the port of nginx before a page."""
    folder, port = tmp_path_factory.mktemp("proxy"), free_port()
    recipe = HOSTING.read_text(encoding="utf-8").partition("### Reverse proxy with a path")[2]
    limits, location = re.findall(r"^(?:    .*\n)+", recipe, re.MULTILINE)[:2]
    limits = limits.replace("15s", f"{HEADER_TIMEOUT_S}s")
    flags = ("--model", "none", "--root-path", "/pine", "--allowed-hosts", "127.0.0.1,pine.example")
    with serve(folder / "log", *flags) as page:
        location = location.replace("http://127.0.0.1:7860/", page.url)
        with started_nginx(folder, port, SETTINGS.format(limits=limits, port=port, location=location)):
            yield port


def test_page_behind_nginx_is_served_below_its_path(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/pine/", timeout=60) as client:
        page = client.get("", headers={"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Host": "evil.example"})
        assert page.status_code == 200 and "evil.example" not in page.text
        policies = page.headers.get_list("content-security-policy")
        assert policies[1:] == ["frame-ancestors 'self' https://school.example"]
        assert client.get("config").json()["root"] == f"http://127.0.0.1:{port}/pine"
        body = {"data": [], "fn_index": 0, "session_hash": "s"}
        origin = f"http://127.0.0.1:{port}"
        for sender, status in ((origin, 404), ("https://evil.example", 403)):
            answer = client.post("gradio_api/run/none", json=body, headers={"Origin": sender})
            assert answer.status_code == status, answer.text


def test_nginx_closes_half_requests_and_limits_rates(port: int) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as half:
        half.sendall(b"GET /pine/ HTTP/1.1\r\nHost: ")
        began = time.monotonic()
        while half.recv(1000):
            pass
        assert time.monotonic() - began < 10 * HEADER_TIMEOUT_S
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/pine/", timeout=60) as client:
        statuses = {client.get("robots.txt").status_code for _ in range(400)}
    assert statuses == {200, 429}
