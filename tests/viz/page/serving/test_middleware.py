"""Host names, origins, proxies and routes that are accepted."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount
from starlette.testclient import TestClient

from pine_engine.web.middleware import http_middleware
from tests.support.widgets import whole_page
from viz.page.common.host_settings import HostSettings
from viz.page.serving.middleware import OPEN, WITHOUT_LOGIN, RequestFilter

STRANGER = ("203.0.113.9", 1234)
LOCAL = ("127.0.0.1", 1234)
LOCAL_PAGE = HostSettings()


def send(
    headers: dict[str, str],
    settings: HostSettings = LOCAL_PAGE,
    *,
    method: str = "POST",
    path: str = "/gradio_api/queue/join",
    variables: tuple[str, ...] = (),
    peer: tuple[str, int] = LOCAL,
) -> tuple[int, Any]:
    """Return the status of a request, and the headers that came through or the error."""

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse(dict(Request(scope).headers))(scope, receive, send)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = SimpleNamespace(auth=None)
        await filtered(scope, receive, send)

    with pytest.MonkeyPatch.context() as patch:
        for name in variables:
            patch.setenv(name, "true")
        filtered = http_middleware(RequestFilter(settings))(echo)
    client = TestClient(app, base_url="http://localhost:7860", client=peer)
    response = client.request(method, path, headers=headers)
    return response.status_code, response.json()


PUBLIC, SPACE = ("GRADIO_SHARE",), ("SPACE_ID",)
SCHOOL = HostSettings(allowed_hosts=("pine.example", "*.school.example"))

SENDERS: list[tuple[dict[str, str], HostSettings, tuple[str, ...], int]] = [
    *(
        ({"Host": host} | origin, LOCAL_PAGE, (), 200)
        for host in ("localhost:7860", "127.0.0.1:7860", "[::1]:7860", "LOCALHOST", "0.0.0.0:7860")
        for origin in ({}, {"Origin": f"http://{host.lower()}"})
    ),
    *(
        ({"Host": "localhost:7860", "Origin": origin}, settings, (), 403)
        for settings in (LOCAL_PAGE, HostSettings(allowed_hosts=("localhost", "pine.example")))
        for origin in (
            "http://localhost:3000",
            "http://localhost",
            "https://localhost:8443",
            "http://127.0.0.1:7860",
        )
    ),
    *(
        (headers | {"Origin": origin}, LOCAL_PAGE, PUBLIC, status)
        for host, origin, status in [
            ("pine.example", "https://pine.example", 200),  # HTTPS that ends at a proxy
            ("pine.example:443", "https://pine.example", 200),
            ("PINE.example:8443", "https://pine.example:8443", 200),
            ("pine.example", "https://pine.example:8443", 403),
            ("pine.example:8443", "https://pine.example", 403),
            ("[2001:db8::1]:7860", "http://[2001:db8::1]:7860", 200),
            ("pine.example", "https://pine.example:x", 403),
        ]
        for headers in ({"Host": host}, {"Host": "page:7860", "X-Forwarded-Host": host})
    ),
    *(
        ({"Host": "localhost:7860", "Origin": origin}, LOCAL_PAGE, variables, 403)
        for origin in ("https://evil.example", "null", "http://localhost.evil.example", "x")
        for variables in ((), PUBLIC)
    ),
    ({"Host": "pine.example", "Origin": "https://pine.example"}, SCHOOL, (), 200),
    ({"Host": "pine.example", "Origin": "https://maths.school.example:8443"}, SCHOOL, (), 200),
    ({"Host": "pine.example", "Origin": "https://other.example"}, SCHOOL, (), 403),
    ({"Host": "other.example"}, SCHOOL, (), 403),
    ({"Host": "school.example"}, SCHOOL, (), 403),
    ({"Host": "localhost", "X-Forwarded-Host": "evil.example"}, SCHOOL, (), 403),
    ({"Host": "x.hf.space", "Origin": "https://y.example"}, LOCAL_PAGE, SPACE, 200),
]


@pytest.mark.parametrize(("headers", "settings", "variables", "status"), SENDERS)
def test_request_filter_checks_host_and_origin(
    headers: dict[str, str], settings: HostSettings, variables: tuple[str, ...], status: int
) -> None:
    assert send(headers, settings, variables=variables)[0] == status


@pytest.mark.parametrize(
    ("header", "value", "path"),
    [("Origin", "https://evil.example", "/"), ("Origin", "null", "/"), ("Host", "10.1.2.3:7860", "/health")],
)
def test_foreign_origin_may_read_and_health_has_any_name(header: str, value: str, path: str) -> None:
    assert send({header: value}, method="GET", path=path)[0] == 200


HOSTS = (
    "rebound.example",
    "rebound.example:7860",
    "localhost.rebound.example",
    "127.0.0.1.nip.io",
    "",
    "[",
)
PROXY = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("headers", [*({"Host": host} for host in HOSTS), *({name: "x"} for name in PROXY)])
def test_local_page_rejects_rebound_name_and_proxy(headers: dict[str, str], method: str) -> None:
    status, record = send(headers, method=method)
    assert status == 403 and "PINE_ALLOWED_HOSTS" in record["detail"]


CLAIMS = {
    "X-Forwarded-Host": "claimed.example",
    "X-Forwarded-For": "198.51.100.7",
    "X-Forwarded-Proto": "https",
    "X-Gradio-Server": "http://evil.example",
    "Forwarded": "host=evil.example",
}


@pytest.mark.parametrize(
    ("peer", "proxies", "is_trusted"),
    [
        (STRANGER, (), False),
        (LOCAL, (), True),
        (("::1", 1234), (), True),
        (STRANGER, ("::1", "203.0.113.9"), True),
        (STRANGER, ("203.0.113.0/24",), True),
        (("10.0.0.2", 1), ("10.0.0.1",), False),
        *(
            ((peer, 1), proxies, bool(proxies))
            for peer in ("10.0.0.7", "172.17.0.1", "192.168.1.40", "fd00::7")
            for proxies in ((), (peer,))
        ),
    ],
)
def test_only_trusted_proxy_names_client_and_host(
    peer: tuple[str, int], proxies: tuple[str, ...], is_trusted: bool
) -> None:
    settings = HostSettings.model_validate({"trusted_proxies": proxies})
    status, record = send({"Host": "real.example"} | CLAIMS, settings, variables=PUBLIC, peer=peer)
    assert status == 200 and record["host"] == ("claimed.example" if is_trusted else "real.example")
    passed = {"x-forwarded-for", "x-forwarded-proto"} if is_trusted else set()
    assert {name.lower() for name in CLAIMS} & set(record) == passed


def test_space_trusts_its_proxies() -> None:
    claims = {"Host": "someone-space.hf.space", "X-Forwarded-Proto": "https"}
    status, record = send(claims, variables=SPACE, peer=STRANGER)
    assert status == 200 and record["x-forwarded-proto"] == "https"


# routes

CLOSED = {
    "component_server": "runs methods of components, and prints what it is sent",
    "custom_component": "writes lines into the log",
    "deep_link": "keeps the values of a session under an address",
    "dev/reload": "is for writing a page",
    "file/": "is another name of file=",
    r"monitoring(/x)?$": "prints a secret address, and then shows everybody's calls",
    "process_recording": "keeps what it is sent",
    "proxy=": "fetches from elsewhere",
    "pwa_icon": "is for a page that can be installed",
    "run-history": "keeps what visitors asked",
    "queue/status": "tells how busy others are",
    "runs": "shows what visitors asked",
    "stream/": "is for sound and films",
    "token": "says the secret of a login",
    "vibe": "lets others write the page",
    "^/openapi.json": "describes all of the others",
}
"""Patterns of closed routes, and the reason for each."""


def addresses(routes: list[BaseRoute], before: str = "") -> list[str]:
    """Of all routes, with parameters filled in."""
    found = []
    for route in routes:
        path = before + getattr(route, "path", "")
        if isinstance(route, Mount):
            found += addresses(list(route.routes), path)
        elif included := getattr(route, "original_router", None):  # its paths are whole
            found += addresses(included.routes)
        else:
            found.append(re.sub(r"{[^}]+}", "x", path))
    return found


def test_every_gradio_route_is_open_or_closed() -> None:
    paths = addresses(whole_page().app.routes)
    assert "/gradio_api/queue/join" in paths and "/gradio_api/process_recording" in paths
    for path in paths:
        is_closed = any(re.search(pattern, path) for pattern in CLOSED)
        assert bool(OPEN.fullmatch(path)) != is_closed, path


def test_routes_without_login_are_few() -> None:
    paths = {path.rstrip("/") for path in addresses(whole_page().app.routes) if WITHOUT_LOGIN.fullmatch(path)}
    assert paths == {
        "",
        "/assets/x",
        "/favicon.ico",
        "/gradio_api/startup-events",
        "/gradio_api/theme.css",
        "/login",
        "/logout",
        "/manifest.json",
        "/robots.txt",
        "/static/x",
        "/svelte/x",
        "/theme.css",
    }


@pytest.mark.parametrize(
    "path",
    [
        "/monitoring/abc",
        "/gradio_api/proxy=https://example.com/x",
        "/gradio_api/component_server/",
        "//",
        "/gradio_api/heartbeat/a/../../monitoring",
        "/gradio_api/run/predict/more",
        "/.env",
        "/docs",
    ],
)
def test_others_are_closed(path: str) -> None:
    assert not OPEN.fullmatch(path)
