"""Allowlist of gradio's routes."""

import re

import pytest
from starlette.routing import BaseRoute, Mount

from tests.support.widgets import whole_page
from viz.page.serving.open_routes import OPEN, WITHOUT_LOGIN

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


def test_every_address_of_gradio_is_either_needed_or_closed_for_a_reason() -> None:
    paths = addresses(whole_page().app.routes)
    assert "/gradio_api/queue/join" in paths and "/gradio_api/process_recording" in paths
    for path in paths:
        is_closed = any(re.search(pattern, path) for pattern in CLOSED)
        assert bool(OPEN.fullmatch(path)) != is_closed, path


def test_without_login_only_the_form_its_assets_and_the_health_are_open() -> None:
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
