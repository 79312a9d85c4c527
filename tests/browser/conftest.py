"""One served app and one browser for all browser tests; every page is watched for errors."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.serving import ServedApp, served_app

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000


@pytest.fixture(scope="session")
def app(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    with served_app(tmp_path_factory.mktemp("app") / "app.log") as served:
        yield served
        assert "Traceback" not in served.log.read_text()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = os.environ.get("PINE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium was found; install it or name its path in PINE_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, app: ServedApp) -> Iterator[Page]:
    """A page that shows the app; the test fails on any page error, console error or foreign request."""
    complaints: list[str] = []
    host = urlsplit(app.url).hostname

    def check_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(f"console: {message.text}")

    def check_request(request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.hostname != host:
            complaints.append(f"request to {request.url}")

    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: complaints.append(f"page error: {error}"))
    page.on("console", check_console)
    page.on("request", check_request)
    page.goto(app.url)
    yield page
    complaints += page.locator(".toast-wrap .error").all_inner_texts()
    context.close()
    assert complaints == []
