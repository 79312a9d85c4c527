"""In a frame on another site, and wherever a browser denies storage, everything works but the draft."""

from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Frame, Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.driving import (
    DEFAULT,
    RUN_MS,
    SHORT,
    open_tab,
    pick,
    run,
    set_length,
    text,
    unfold,
    wait_for_model,
)
from tests.support.serving import ServedApp

NOT_KEPT = "Drafts cannot be saved"

PAUSE_MS = 3000
"""After which a draft is kept."""


@pytest.fixture(scope="module")
def other_site(app: ServedApp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a page of another site, which shows the app in a frame.

    Chromium denies storage to such a frame, as the windows of these tests are private ones.
    """
    folder = tmp_path_factory.mktemp("other-site")
    (folder / "index.html").write_text(
        f'<!doctype html><title>Other</title><link rel="icon" href="data:,">'
        f'<iframe src="{app.url}" width="1240" height="700"></iframe><textarea></textarea>'
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder))
    with server:
        Thread(target=server.serve_forever).start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def frame_of(page: Page) -> Frame:
    frame = page.locator("iframe").element_handle().content_frame()
    assert frame is not None
    return frame


@pytest.mark.slow
def test_in_a_frame_on_another_site_everything_works_but_the_draft(
    open_page: OpenPage, other_site: str
) -> None:
    with open_page(other_site) as page:
        frame = frame_of(page)
        expect(text(frame, 1)).to_have_value(DEFAULT.documents[0].text)
        with pytest.raises(Exception, match="Access is denied"):
            frame.evaluate("localStorage")

        wait_for_model(frame)
        pick(frame, SHORT)
        set_length(frame, 8)
        run(frame)
        unfold(frame, "#answers-in-full")
        expect(frame.locator("#answers .pine-answer-text")).to_have_count(4)
        unfold(frame, "#shuffle-section")
        frame.locator("#shuffle").click()
        expect(frame.locator("#shuffle-status")).to_contain_text("Done: 2 orders", timeout=RUN_MS)
        open_tab(frame, "Attention masks")

        open_tab(frame, "See it")
        text(frame, 1).fill("Typed in the frame.")
        page.wait_for_timeout(PAUSE_MS)
        expect(frame.get_by_text(NOT_KEPT)).to_have_count(1)

        frame.locator("#copy-link").click()
        expect(frame.locator("#share-message")).to_contain_text("Link copied.")
        link = frame.locator("#link input, #link textarea").input_value()
        page.locator("body > textarea").focus()
        page.keyboard.press("Control+V")
        expect(page.locator("body > textarea")).to_have_value(link)
        with page.expect_download() as offered:
            frame.locator("#save-session").click()
        assert offered.value.suggested_filename == "pine-explorer-session.json"

    with open_page(link) as opened:
        expect(text(opened, 1)).to_have_value("Typed in the frame.")


@pytest.fixture
def page_with(open_page: OpenPage, app: ServedApp) -> Iterator[Callable[[str], Page]]:
    """Opens the page in a browser in which a script was run before."""
    with open_page("about:blank") as page:

        def opened(script: str) -> Page:
            page.add_init_script(script)
            page.goto(app.url)
            return page

        yield opened


def test_a_browser_without_storage_has_the_page_and_says_that_there_is_no_draft(
    page_with: Callable[[str], Page],
) -> None:
    page = page_with("Object.defineProperty(window, 'localStorage', { get: () => { throw Error() } })")
    expect(page.get_by_text(NOT_KEPT)).to_have_count(1)
    expect(text(page, 1)).to_have_value(DEFAULT.documents[0].text)


@pytest.mark.slow
def test_link_without_clipboard_access_is_shown(page_with: Callable[[str], Page], app: ServedApp) -> None:
    page = page_with(
        "document.execCommand = () => false;"
        "Object.defineProperty(navigator, 'clipboard', { value: undefined })"
    )
    expect(page.locator("#draft-kept")).to_contain_text("Your draft is saved in this browser")
    page.locator("#copy-link").click()
    expect(page.locator("#share-message")).to_contain_text("Copy this link.")
    assert page.locator("#link input, #link textarea").input_value().startswith(f"{app.url}#session=")


@pytest.mark.slow
def test_full_browser_storage_shows_a_message(page: Page) -> None:
    kept = page.locator("#draft-kept")
    expect(kept).to_contain_text("Your draft is saved in this browser")
    page.evaluate(
        """() => {
            const fill = (size, n) => localStorage.setItem(`${size} ${n}`, "x".repeat(size));
            for (let size = 2 ** 22; size >= 1; size /= 2)
                try { for (let n = 0; ; n++) fill(size, n); } catch {}
        }"""
    )
    text(page, 1).fill("Typed without room for it.")
    expect(kept).to_contain_text(NOT_KEPT)
    page.evaluate("localStorage.clear()")
    text(page, 1).fill("Typed with room again.")
    expect(kept).to_contain_text("Your draft is saved in this browser")
    assert page.evaluate("localStorage.getItem('pine-explorer-draft')")


@pytest.mark.slow
def test_what_earlier_versions_kept_is_passed_over(page_with: Callable[[str], Page]) -> None:
    page = page_with("localStorage.setItem('pine-explorer-draft', 'q7Gk/8Jx+w==:U2FsdGVkX19x5fN+2A==')")
    expect(page.locator("#draft-kept")).to_contain_text("Your draft is saved in this browser")
    expect(text(page, 1)).to_have_value(DEFAULT.documents[0].text)
    assert "cannot be opened" not in page.locator("#share-message").inner_text()
