"""Middleware of a launched page: visitors, unknown clients and pages of other sites."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.support.serving import Serve, ServedApp
from tests.support.widgets import whole_page
from tests.viz.page.serving.test_open_routes import addresses
from viz.page.serving.open_routes import OPEN, WITHOUT_LOGIN

NO_MODEL = ("--model", "no-folder-of-this-name")
"""The page is served all the same, and says so."""


FORGED = '\n{"what": "forged"}\x1b[31m'


@pytest.fixture(scope="module")
def app(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    flags = (*NO_MODEL, "--frame-ancestors", "'self' https://school.example")
    with serve(tmp_path_factory.mktemp("doors") / "log", *flags) as app:
        yield app


@pytest.fixture(scope="module")
def visitor(app: ServedApp) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=app.url, timeout=60) as client:
        yield client


def test_page_is_served_with_its_headers(visitor: httpx.Client) -> None:
    answered = visitor.get("/")
    assert answered.status_code == 200 and "PINE Explorer" in answered.text
    assert answered.headers["content-security-policy"].endswith(
        "frame-ancestors 'self' https://school.example"
    )
    assert visitor.get("/config").json()["title"] == "PINE Explorer"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "sentence"),
    [
        ("GET", "/", {"Host": "rebound.example"}, 403, "This page is not reached as 'rebound.example'"),
        ("POST", "/gradio_api/mcp/", {"Host": "rebound.example"}, 403, "This page is not reached as"),
        ("POST", "/gradio_api/queue/join", {"Origin": "https://evil.example"}, 403, "may not call this one"),
        ("POST", "/gradio_api/mcp/", {"Origin": "https://evil.example"}, 403, "may not call this one"),
        ("POST", "/gradio_api/upload", {"Origin": "null"}, 403, "may not call this one"),
        ("GET", "/config", {"X-Forwarded-For": "198.51.100.7"}, 403, "this request came through a proxy"),
        ("GET", "/monitoring", {}, 404, "There is nothing at this address"),
        ("POST", "/gradio_api/process_recording", {}, 404, "There is nothing at this address"),
        ("POST", "/gradio_api/component_server/", {}, 404, "There is nothing at this address"),
        ("GET", "/gradio_api/deep_link", {}, 404, "There is nothing at this address"),
        ("POST", "/gradio_api/mcp/", {}, 400, "This message is no JSON"),
    ],
)
def test_unneeded_route_is_refused_with_a_message(
    visitor: httpx.Client, method: str, path: str, headers: dict[str, str], status: int, sentence: str
) -> None:
    answered = visitor.request(method, path, headers=headers)
    assert answered.status_code == status and sentence in answered.json()["detail"]
    assert "content-security-policy" in answered.headers


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
def test_address_with_a_control_character_is_refused_and_writes_no_log_line(
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
    log = app.log.read_text()
    assert "\x1b" not in log and not [line for line in log.splitlines() if line.startswith("{")]


def test_who_has_no_password_gets_the_form_for_it_alone(serve: Serve, tmp_path: Path) -> None:
    name, password = "ada", "lovelace: x"
    with (
        serve(tmp_path / "log", *NO_MODEL, environment={"PINE_AUTH": f"{name}:{password}"}) as app,
        httpx.Client(base_url=app.url, timeout=60) as stranger,
    ):
        sent_request = {"data": [], "fn_index": 0, "session_hash": "s"}
        for method, path in (
            ("GET", "/config"),
            ("GET", "/gradio_api/info"),
            ("POST", "/gradio_api/queue/join"),
            ("POST", "/gradio_api/run/predict"),
            ("POST", "/gradio_api/call/compare"),
        ):
            json = sent_request if method == "POST" else None
            assert stranger.request(method, path, json=json).status_code == 401, path
        assert stranger.post("/gradio_api/upload", files={"files": ("a.txt", b"a")}).status_code == 401
        paths = [path for path in addresses(whole_page().app.routes) if not WITHOUT_LOGIN.fullmatch(path)]
        for method, path in product(("GET", "POST"), [*paths, "/gradio_api/mcp/"]):
            expected = 401 if OPEN.fullmatch(path) else 404
            assert stranger.request(method, path).status_code == expected, (method, path)
        assert "The castle" not in stranger.get("/").text
        login = {"username": name, "password": "guess"}
        assert stranger.post("/login", data=login).status_code == 400
        assert stranger.post("/login", data=login | {"password": password}).status_code == 200
        assert stranger.get("/config").status_code == 200 and "The castle" in stranger.get("/").text
        assert password not in app.log.read_text()
