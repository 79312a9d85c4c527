"""Middleware of a launched page: visitors, unknown clients and pages of other sites."""

import json
from collections.abc import Iterator
from itertools import product
from urllib.parse import quote

import httpx
import pytest

from tests.support.serving import Serve, ServedApp
from tests.support.widgets import whole_page
from tests.viz.page.serving.test_middleware import addresses
from viz.page.serving.middleware import OPEN, WITHOUT_LOGIN

NO_MODEL = ("--model", "no-folder-of-this-name")  # the page is served all the same, and says so
FORGED = '\n{"what": "forged"}\x1b[31m'


@pytest.fixture(scope="module")
def app(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    with serve(tmp_path_factory.mktemp("doors") / "log", *NO_MODEL, "--max-disk-mb", "2") as app:
        yield app


@pytest.fixture(scope="module")
def visitor(app: ServedApp) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=app.url, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/config", {}, 200),
        ("GET", "/", {"Host": "rebound.example"}, 403),
        ("POST", "/gradio_api/queue/join", {"Origin": "https://evil.example"}, 403),
        ("GET", "/config", {"X-Forwarded-For": "198.51.100.7"}, 403),
        ("GET", "/monitoring", {}, 404),
    ],
)
def test_every_answer_has_headers_and_a_rejection_its_detail(
    visitor: httpx.Client, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answered = visitor.request(method, path, headers=headers)
    assert answered.status_code == status and answered.json()["title" if status == 200 else "detail"]
    assert "default-src 'self'" in answered.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("method", "address"),
    [
        ("POST", "gradio_api/run/x"),
        ("POST", "gradio_api/call/x"),
        ("GET", "gradio_api/call/compare/x"),
        ("GET", "gradio_api/heartbeat/x"),
        ("GET", "gradio_api/queue/data?session_hash=x"),
        ("GET", "?deep_link=x"),
    ],
)
def test_address_with_control_character_is_rejected(
    app: ServedApp, visitor: httpx.Client, method: str, address: str
) -> None:
    assert visitor.request(method, f"/{address}{quote(FORGED)}").status_code == 400
    log = app.log.read_text()
    assert "\x1b" not in log and not [line for line in log.splitlines() if line.startswith("{")]


def test_client_text_in_a_body_writes_no_log_line(app: ServedApp, visitor: httpx.Client) -> None:
    for field in ("session_hash", "event_id", "event_data"):
        visitor.post("/gradio_api/queue/join", json={"data": [], "fn_index": 0, field: FORGED})
    tool = {"name": FORGED, "arguments": {}}
    for message in ({"method": FORGED}, {"method": "tools/call", "params": tool}):
        body = {"jsonrpc": "2.0", "id": 1} | message
        headers = {"Accept": "application/json, text/event-stream"}
        visitor.post("/gradio_api/mcp/", json=body, headers=headers)
    for content in (b"\xff", b"[" * 1_000_000):
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        assert visitor.post("/gradio_api/mcp/", content=content, headers=headers).is_error
    log = app.log.read_text()
    assert (
        "\x1b" not in log
        and "Traceback" not in log
        and not [line for line in log.splitlines() if line.startswith("{")]
    )


def test_upload_beyond_quota_is_rejected(visitor: httpx.Client) -> None:
    first, second = (
        visitor.post("/gradio_api/upload", files={"files": ("a.txt", letter * 1_000_000)})
        for letter in (b"x", b"y")
    )
    assert (first.status_code, second.status_code) == (200, 507) and "2 MB" in second.text


# a page with a password

USER, PASSWORD = "ada", "lovelace: x"


@pytest.fixture(scope="module")
def private_app(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    log = tmp_path_factory.mktemp("login") / "log"
    with serve(log, *NO_MODEL, environment={"PINE_AUTH": f"{USER}:{PASSWORD}"}) as served:
        yield served


def test_page_with_password_needs_login(private_app: ServedApp) -> None:
    with httpx.Client(base_url=private_app.url, timeout=60) as client:
        body = {"data": [], "fn_index": 0, "session_hash": "s"}
        assert client.post("/gradio_api/upload", files={"files": ("a.txt", b"a")}).status_code == 401
        paths = [path for path in addresses(whole_page().app.routes) if not WITHOUT_LOGIN.fullmatch(path)]
        for method, path in product(
            ("GET", "POST"), [*paths, "/gradio_api/call/compare", "/gradio_api/mcp/"]
        ):
            expected = 401 if OPEN.fullmatch(path) else 404
            content = body if method == "POST" else None
            assert client.request(method, path, json=content).status_code == expected, (method, path)
        assert "The castle" not in client.get("/").text
        login = {"username": USER, "password": "guess"}
        assert client.post("/login", data=login).status_code == 400
        assert client.post("/login", data=login | {"password": PASSWORD}).status_code == 200
        assert client.get("/config").status_code == 200 and "The castle" in client.get("/").text
    log = private_app.log.read_text()
    (line,) = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert (line["operation"], line["address"]) == ("login", "127.0.0.1")
    assert PASSWORD not in log and USER not in log and "guess" not in log
