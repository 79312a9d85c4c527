"""Responses that are the same for all visitors are computed once."""

from email.utils import formatdate
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse
from starlette.testclient import TestClient

from tests.support.serving import ServedApp
from viz.page.common.asgi import http_middleware
from viz.page.serving import response_cache
from viz.page.serving.response_cache import FOREVER, ResponseCache

SCRIPT = "/assets/script-a1b2.js"


class CountingApp:
    """An app behind the cache, and the URLs of the requests that reached it."""

    def __init__(self, auth: Any = None) -> None:
        self.urls: list[str] = []
        self._auth = auth
        self._cached = http_middleware(ResponseCache())(self._answer)
        self.client = TestClient(self._with_auth, base_url="http://localhost")

    async def _with_auth(self, scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = SimpleNamespace(auth=self._auth)
        await self._cached(scope, receive, send)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        url = str(Request(scope).url)
        self.urls.append(url)
        is_script = url.endswith(SCRIPT)
        script = FileResponse(__file__, media_type="text/javascript")
        response = script if is_script else PlainTextResponse(url, 404 if "missing" in url else 200)
        await response(scope, receive, send)


def test_page_is_computed_once_for_each_address() -> None:
    app = CountingApp()
    hosts = ["localhost", "pine.example"]
    for path, host in product(("/", "/", "/?__theme=dark"), hosts):
        response = app.client.get(path, headers={"Host": host})
        assert response.text == f"http://{host}/" and response.headers["content-encoding"] == "gzip"
        assert response.headers["content-type"].startswith("text/plain")
        assert "cache-control" not in response.headers
    assert app.urls == [f"http://{host}/" for host in hosts]


@pytest.mark.parametrize("condition", [{}, {"Range": "bytes=0-9"}, {"If-Modified-Since": formatdate()}])
def test_assets_are_computed_once_and_kept_by_browsers(condition: dict[str, str]) -> None:
    app = CountingApp()
    for headers in (condition, {"Host": "pine.example"}):
        response = app.client.get(SCRIPT, headers=headers)
        assert (response.status_code, response.text) == (200, Path(__file__).read_text())
        assert response.headers["cache-control"] == FOREVER
    assert len(app.urls) == 1


@pytest.mark.parametrize(
    ("path", "headers", "auth"),
    [
        ("/?__theme=dark&deep_link=1", {}, None),
        ("/?page", {}, None),
        ("/config", {}, None),
        ("/assets/missing.js", {}, None),
        ("/", {"Accept-Encoding": "identity"}, None),
        ("/", {}, {"teacher": "password"}),
    ],
)
def test_other_responses_are_not_stored(path: str, headers: dict[str, str], auth: Any) -> None:
    app = CountingApp(auth)
    for _ in range(2):
        assert app.client.get(path, headers=headers).text == f"http://localhost{path}"
    assert len(app.urls) == 2


def test_oldest_responses_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "MAX_RESPONSES", 2)
    app = CountingApp()
    for host in ("a", "b", "c", "b", "a"):
        app.client.get("/", headers={"Host": host})
    assert app.urls == [f"http://{host}/" for host in ("a", "b", "c", "a")]


def test_served_page_is_compressed_and_equal_to_the_page_of_gradio(app: ServedApp) -> None:
    stored = httpx.get(app.url, headers={"Accept-Encoding": "gzip"})
    original = httpx.get(app.url, headers={"Accept-Encoding": "identity"})
    assert stored.headers["content-encoding"] == "gzip" and "content-encoding" not in original.headers
    assert stored.text == original.text and stored.headers["content-security-policy"]
    assert stored.num_bytes_downloaded < original.num_bytes_downloaded / 4
