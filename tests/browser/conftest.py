"""One served app and one browser for all browser tests; every page is watched for errors."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, ViewportSize, expect

import viz.page.gradio_patches  # noqa: F401 - before gradio is imported
from tests.support.chromium import chromium_path, started_chromium
from tests.support.serving import Serve, ServedApp

TIMEOUT_MS = 60_000
MAX_DISK_MB = 9
"""Room for the files of all visitors: less than one upload may have."""
DESKTOP: ViewportSize = {"width": 1280, "height": 800}

expect.set_options(timeout=TIMEOUT_MS)

OpenPage = Callable[..., AbstractContextManager[Page]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: all of them need Chromium, and may fail once on a busy machine."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="package")
def app(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    log = tmp_path_factory.mktemp("app") / "app.log"
    with serve(log, "--max-disk-mb", str(MAX_DISK_MB)) as served:
        yield served
        assert "Traceback" not in served.log.read_text()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium was found; install it or name its path in PINE_CHROMIUM")
    with started_chromium(path) as browser:
        yield browser


def watch(page: Page, *addresses: str) -> list[str]:
    """Return a list that collects page errors, console errors and requests to other hosts."""
    problems: list[str] = []
    hosts = {urlsplit(address).hostname for address in addresses}

    def check_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(f"console: {message.text}")

    def check_request(request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.hostname not in hosts:
            problems.append(f"request to {request.url}")

    page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
    page.on("console", check_console)
    page.on("request", check_request)
    return problems


@contextmanager
def window(browser: Browser) -> Iterator[BrowserContext]:
    """A window for one visitor after the other.

    It keeps the compiled scripts of the page, which take as long as the rest of the page. No visitor has to
    guess first.
    """
    # Without transitions, so that axe-core sees no color between two others.
    with browser.new_context(viewport=DESKTOP, reduced_motion="reduce") as context:
        context.set_default_timeout(TIMEOUT_MS)
        context.add_init_script("try { localStorage.setItem('pine-explorer-guess', '1') } catch {}")
        yield context


@contextmanager
def visit(
    window: BrowserContext, app: ServedApp, address: str = "", *, strict: bool = True
) -> Iterator[Page]:
    """Yield the page of a new visitor, of whom nothing is kept.

    Args:
        window: Window of the visitor.
        app: Served page.
        address: Address of the app, or of a page with the app in a frame; by default that of the app.
        strict: Fail on page errors, console errors, error messages and requests to other hosts.
    """
    with window.new_page() as page:
        problems = watch(page, app.url, address)
        try:
            page.goto(address or app.url)
            yield page
            problems += page.locator(".toast-wrap .error").all_inner_texts()
        finally:
            found = list(problems)  # gradio reports requests that end with their page
            page.goto("about:blank")
            window.clear_cookies()
            window.clear_permissions()
            storage = {"origin": app.url.rstrip("/"), "storageTypes": "all"}
            window.new_cdp_session(page).send("Storage.clearDataForOrigin", storage)
    assert not strict or found == []


@pytest.fixture(scope="package")
def first_window(browser: Browser) -> Iterator[BrowserContext]:
    with window(browser) as context:
        yield context


@pytest.fixture(scope="package")
def second_window(browser: Browser) -> Iterator[BrowserContext]:
    with window(browser) as context:
        yield context


@pytest.fixture
def page(first_window: BrowserContext, app: ServedApp) -> Iterator[Page]:
    """The page of a visitor."""
    with visit(first_window, app) as page:
        yield page


@pytest.fixture
def open_page(second_window: BrowserContext, app: ServedApp) -> OpenPage:
    """Return a function that opens the page of another visitor; its arguments are those of `visit`."""
    return partial(visit, second_window, app)


@pytest.fixture
def offline(browser: Browser) -> Iterator[Page]:
    """A page without a network; the test fails on errors, and on requests for anything but its own file."""
    with browser.new_context(offline=True, viewport=DESKTOP) as context, context.new_page() as page:
        problems = watch(page)
        yield page
        assert set(problems) <= {f"request to {page.url}"}
