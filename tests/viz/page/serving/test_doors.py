"""Middleware of a launched page with a password: visitors, unknown clients and pages of other sites."""

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


USER, PASSWORD = "ada", "lovelace: x"


@pytest.fixture(scope="module")
def app(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    log = tmp_path_factory.mktemp("doors") / "log"
    variables = {"PINE_AUTH": f"{USER}:{PASSWORD}", "PINE_MAX_DISK_MB": "2"}
    with serve(log, *NO_MODEL, environment=variables) as served:
        yield served


@pytest.fixture
def visitor(app: ServedApp) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=app.url, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/config", {}, 401),
        ("GET", "/", {"Host": "rebound.example"}, 403),
        ("POST", "/gradio_api/queue/join", {"Origin": "https://evil.example"}, 403),
        ("GET", "/config", {"X-Forwarded-For": "198.51.100.7"}, 403),
        ("GET", "/monitoring", {}, 404),
    ],
)
def test_rejection_has_headers_and_its_detail(
    visitor: httpx.Client, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answered = visitor.request(method, path, headers=headers)
    assert answered.status_code == status and answered.json()["detail"]
    policy = answered.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "object-src 'none'" in policy and "https://cdn" not in policy
    assert answered.headers["x-content-type-options"] == "nosniff"
    assert answered.headers["referrer-policy"] == "same-origin"


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
    assert "\x1b" not in log and not [line for line in log.splitlines() if line.startswith('{"what"')]


def test_page_with_password_needs_login(app: ServedApp, visitor: httpx.Client) -> None:
    body = {"data": [], "fn_index": 0, "session_hash": "s"}
    assert visitor.post("/gradio_api/upload", files={"files": ("a.txt", b"a")}).status_code == 401
    paths = [path for path in addresses(whole_page().app.routes) if not WITHOUT_LOGIN.fullmatch(path)]
    for method, path in product(("GET", "POST"), [*paths, "/gradio_api/call/compare", "/gradio_api/mcp/"]):
        expected = 401 if OPEN.fullmatch(path) else 404
        content = body if method == "POST" else None
        assert visitor.request(method, path, json=content).status_code == expected, (method, path)
    assert "The castle" not in visitor.get("/").text
    login = {"username": USER, "password": "guess"}
    assert visitor.post("/login", data=login).status_code == 400
    assert visitor.post("/login", data=login | {"password": PASSWORD}).status_code == 200
    config = visitor.get("/config")
    assert config.status_code == 200 and "content-security-policy" in config.headers
    assert "The castle" in visitor.get("/").text
    log = app.log.read_text()
    (line,) = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert (line["operation"], line["address"]) == ("login", "127.0.0.1")
    assert PASSWORD not in log and USER not in log and "guess" not in log
    # The disk has room for one of two files.
    uploads = [
        visitor.post("/gradio_api/upload", files={"files": ("a.txt", letter * 1_000_000)})
        for letter in (b"x", b"y")
    ]
    assert [upload.status_code for upload in uploads] == [200, 507] and "2 MB" in uploads[1].text
