"""One served app and one browser for all browser tests; every page is watched for errors."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, ViewportSize, expect

import viz.page.gradio_patches.no_stubs  # noqa: F401 - before gradio is imported
from tests.browser.driving import (
    RUN_MS,
    SELECTION,
    SHORT,
    control,
    open_tab,
    pick,
    set_length,
    wait_for_model,
)
from tests.support.chromium import chromium_path, started_chromium
from tests.support.serving import Serve, ServedApp

PATIENCE_MS = 60_000
DESKTOP: ViewportSize = {"width": 1280, "height": 800}

expect.set_options(timeout=PATIENCE_MS)

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
    with serve(tmp_path_factory.mktemp("app") / "app.log") as served:
        yield served
        assert "Traceback" not in served.log.read_text()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium was found; install it or name its path in PINE_CHROMIUM")
    with started_chromium(path) as browser:
        yield browser


def watched(page: Page, *addresses: str) -> list[str]:
    """Return a list that collects page errors, console errors and requests to other hosts."""
    complaints: list[str] = []
    hosts = {urlsplit(one).hostname for one in addresses}

    def check_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(f"console: {message.text}")

    def check_request(request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.hostname not in hosts:
            complaints.append(f"request to {request.url}")

    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: complaints.append(f"page error: {error}"))
    page.on("console", check_console)
    page.on("request", check_request)
    return complaints


def toasts(page: Page) -> list[str]:
    return page.locator(".toast-wrap .error").all_inner_texts()


@contextmanager
def window(browser: Browser) -> Iterator[BrowserContext]:
    """An empty one of a visitor never seen before."""
    # Without transitions, so that no colour is looked at on its way to another.
    with browser.new_context(viewport=DESKTOP, reduced_motion="reduce") as context:
        yield context


def forget(page: Page, app: ServedApp) -> None:
    """Leaves the app's page, and nothing of its visitor in the window."""
    page.goto("about:blank")
    page.context.clear_cookies()
    page.context.clear_permissions()
    kept = {"origin": app.url.rstrip("/"), "storageTypes": "all"}
    page.context.new_cdp_session(page).send("Storage.clearDataForOrigin", kept)


@pytest.fixture(scope="package")
def other_window(browser: Browser) -> Iterator[BrowserContext]:
    """A window for one more visitor after the other, beside the one of `page`.

    It has compiled the scripts of the page already, for which a new one takes as long as for all else.
    """
    with window(browser) as context:
        yield context


@pytest.fixture(scope="package")
def open_page(other_window: BrowserContext, app: ServedApp) -> OpenPage:
    """Opens a page of a visitor never seen before; any page error, console error or foreign request fails it.

    Takes an address of the app, or of a page with the app in a frame; the app's own by default.
    """

    @contextmanager
    def opened(address: str = app.url) -> Iterator[Page]:
        page = other_window.new_page()
        complaints = watched(page, app.url, address)
        try:
            page.goto(address)
            yield page
            complaints += toasts(page)
        finally:
            shown_text = list(complaints)  # of what is left while it waits gradio complains
            forget(page, app)
            page.close()
        assert shown_text == []

    return opened


@pytest.fixture(scope="package")
def kept_page(browser: Browser, app: ServedApp) -> Iterator[tuple[Page, list[str]]]:
    """A page in a window of its own for one test after the other, with its complaints."""
    with window(browser) as context:
        page = context.new_page()
        yield page, watched(page, app.url)


@pytest.fixture
def page(kept_page: tuple[Page, list[str]], app: ServedApp) -> Iterator[Page]:
    """The page, of which nothing is kept from any test before; it fails as those of open_page do.

    A test that adds scripts uses `open_page`.
    """
    page, complaints = kept_page
    page.goto(app.url)
    yield page
    shown_text = complaints + toasts(page)
    forget(page, app)
    complaints.clear()  # of what is left while it waits gradio complains
    page.set_viewport_size(DESKTOP)
    assert shown_text == []


@pytest.fixture(scope="package")
def finished_page(open_page: OpenPage) -> Iterator[Page]:
    """A page on which everything was run: the documents shuffled, and one of them moved.

    Tests that only read share the page; `drawn` restores its selection for each of them.
    """
    with open_page() as page:
        wait_for_model(page)
        pick(page, SHORT)
        set_length(page, 8)
        page.locator("#shuffle").click()
        expect(page.locator("#shuffle-status")).to_contain_text("Done: 2 orders", timeout=RUN_MS)
        open_tab(page, "Position sweep")
        page.locator("#sweep-run").click()
        expect(page.locator("#sweep-status")).to_contain_text("Done: 2 slots", timeout=RUN_MS)
        open_tab(page, "Attention masks")
        yield page


@pytest.fixture(scope="package")
def first_selection(finished_page: Page) -> dict[str, str]:
    """Return the initial values of the dropdowns of the selection."""
    return {label: control(finished_page, label).input_value() for label in SELECTION}


@pytest.fixture
def drawn(finished_page: Page, first_selection: dict[str, str]) -> Iterator[Page]:
    """The page with finished runs at the tab Masks, nothing hovered, and the selection that comes first."""
    page = finished_page
    yield page
    page.set_viewport_size(DESKTOP)
    page.evaluate("document.body.classList.remove('dark')")
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Escape")  # leaves the presentation
    open_tab(page, "Attention masks")
    page.keyboard.press("Escape")
    for label, value in first_selection.items():
        expect(control(page, label)).to_have_value(value)
