"""Shared work of a visitor: by a link, a file, a draft; in a frame, and where a browser denies storage."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Dialog, Frame, Page, expect

from tests.browser.conftest import OpenPage, forget
from tests.browser.driving import (
    DEFAULT,
    RUN_MS,
    SHORT,
    control,
    give,
    letters,
    open_tab,
    pick,
    plot,
    run,
    save,
    select_options,
    set_length,
    text,
    unfold,
    wait_for_model,
)
from tests.support.serving import ServedApp
from viz.page.form.documents import Entry
from viz.page.form.examples import NO_EXAMPLE
from viz.page.form.form import Form
from viz.page.session import session_of, to_code

TYPED = 'A lamp <b>&"quoted"</b> 灯 was lit.'
LINKED = "The lamp is blue."
CODE = to_code(
    session_of(Form("retrieval_qa", "Which lamp?", "", ("pine",), 8, (Entry(0, "", LINKED),)), accepted="")
)
LINK = "#link input, #link textarea"
KEPT = "Your draft is saved in this browser"
NOT_KEPT = "Drafts cannot be saved"
PAUSE_MS = 3000  # after which a draft is kept


def prepare(page: Page) -> None:
    """Two documents in the other order, the second of them typed by the visitor."""
    wait_for_model(page)
    pick(page, SHORT)
    text(page, 2).fill(TYPED)
    page.locator(".page-card-2").get_by_role("button", name="Earlier").click()
    expect(text(page, 1)).to_have_value(TYPED)
    set_length(page, 8)


def assert_prepared(page: Page) -> None:
    expect(text(page, 1)).to_have_value(TYPED)
    expect(text(page, 2)).to_have_value(SHORT.documents[0].text)
    expect(page.locator("#question textarea")).to_have_value(SHORT.question)
    unfold(page)
    expect(page.locator("#length input[type=number]")).to_have_value("8")
    assert letters(page) == ["B", "A"]


@pytest.mark.slow
def test_link_opens_the_same_page_elsewhere(page: Page, open_page: OpenPage) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    prepare(page)
    select_options(page, "#methods", "Vanilla", "PINE")
    run(page)
    unfold(page, "#answers-in-full")
    answers = page.locator("#answers .pine-answer-text").all_inner_texts()
    assert len(answers) == 2
    open_tab(page, "Document importance")
    control(page, "Layer").click()
    page.get_by_role("option", name="layer 7", exact=True).click()
    expect(page.locator("#figure-importance .pine-figure-title")).to_contain_text("layer 7")

    open_tab(page, "See it")
    page.locator("#copy-link").click()
    expect(page.locator("#share-message")).to_contain_text("Link copied.")
    link = page.locator(LINK).input_value()
    assert page.evaluate("navigator.clipboard.readText()") == link
    assert urlsplit(link).fragment.startswith("session=")
    assert urlsplit(link).query == ""  # which the logs of servers hold

    with open_page(link) as other:
        assert_prepared(other)
        expect(other.locator("#example-note")).to_contain_text("Loaded from a link.")
        expect(other.locator("#shuffle-status")).to_contain_text("Done:", timeout=RUN_MS)
        unfold(other, "#answers-in-full")
        assert other.locator("#answers .pine-answer-text").all_inner_texts() == answers
        other.get_by_role("tab", name="Lab").click()
        other.get_by_role("tab", name="Internals").click()
        expect(control(other, "Layer")).to_have_value("layer 7")
        expect(plot(other, "importance")).to_be_visible()
        expect(other.get_by_label("NIA", exact=True).first).not_to_be_checked()
        assert "session" not in other.url


@pytest.mark.slow
def test_a_session_is_saved_opened_again_and_kept_as_a_draft(page: Page, tmp_path: Path) -> None:
    prepare(page)
    file = save(page, page.locator("#save-session"), tmp_path)
    assert file.name == "pine-explorer-session.json"
    saved = json.loads(file.read_text())
    assert [document["letter"] for document in saved["documents"]] == [1, 0]
    assert saved["max_new_tokens"] == 8
    examples = page.get_by_label("Example", exact=True)
    examples.focus()
    page.keyboard.press("Tab")  # chooses nothing
    expect(text(page, 1)).to_have_value(TYPED)

    pick(page, DEFAULT)
    give(page, "#open-session", file)
    assert_prepared(page)
    expect(page.locator("#example-note")).to_contain_text("Loaded from pine-explorer-session.json.")
    expect(examples).to_have_value(NO_EXAMPLE)
    broken = tmp_path / "broken.json"
    broken.write_text('{"task": "retrieval_qa"}')
    give(page, "#open-session", broken)
    expect(page.locator("#share-message")).to_contain_text("Broken.json is not a valid session")
    assert_prepared(page)

    text(page, 2).fill("Typed after the file was opened.")
    expect(page.locator("#total")).to_contain_text("answer tokens")
    page.wait_for_timeout(PAUSE_MS)
    page.reload()
    expect(text(page, 2)).to_have_value("Typed after the file was opened.")
    expect(page.locator("#example-note")).to_contain_text("Draft restored")
    expect(page.locator("#run-status")).to_have_text("")


@pytest.fixture
def left_page(other_window: BrowserContext, app: ServedApp) -> Iterator[Page]:
    """A page that is left while it may wait for an answer, of which gradio then complains in its console."""
    with other_window.new_page() as page:
        page.goto(app.url)
        expect(page.locator("#draft-kept")).to_contain_text(KEPT)
        yield page
        forget(page, app)


@pytest.mark.slow
def test_a_link_in_an_open_tab_is_opened_and_asks_before_it_replaces_what_was_typed(
    left_page: Page, app: ServedApp
) -> None:
    page = left_page
    answers = [False, True]

    def answer(dialog: Dialog) -> None:
        assert dialog.message.startswith("Open this link?")
        dialog.accept() if answers.pop(0) else dialog.dismiss()

    page.on("dialog", answer)
    page.goto(f"{app.url}#session={CODE}")
    expect(text(page, 1)).to_have_value(LINKED)
    expect(page).to_have_url(app.url)
    expect(page.locator("#draft-kept")).to_contain_text(KEPT)
    text(page, 1).click()
    page.keyboard.type("Typed here. ")
    typed = text(page, 1).input_value()
    page.goto(f"{app.url}#session={CODE}")
    expect(page).to_have_url(app.url)
    expect(text(page, 1)).to_have_value(typed)
    page.goto(f"{app.url}#session={CODE}")
    expect(text(page, 1)).to_have_value(LINKED)
    assert answers == []


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
        link = frame.locator(LINK).input_value()
        page.locator("body > textarea").focus()
        page.keyboard.press("Control+V")
        expect(page.locator("body > textarea")).to_have_value(link)
        with page.expect_download() as offered:
            frame.locator("#save-session").click()
        assert offered.value.suggested_filename == "pine-explorer-session.json"

    with open_page(link) as opened:
        expect(text(opened, 1)).to_have_value("Typed in the frame.")


@pytest.fixture
def page_with(open_page: OpenPage, app: ServedApp) -> Iterator[Callable[..., Page]]:
    """Opens the page, optionally with a query, in a browser in which a script was run before."""
    with open_page("about:blank") as page:

        def opened(script: str, query: str = "") -> Page:
            page.add_init_script(script)
            page.goto(f"{app.url}{query}")
            return page

        yield opened


def test_a_browser_without_storage_opens_an_older_link_and_says_that_there_is_no_draft(
    page_with: Callable[..., Page], app: ServedApp
) -> None:
    no_storage = "Object.defineProperty(window, 'localStorage', { get: () => { throw Error() } })"
    page = page_with(no_storage, f"?other=1&session={CODE}")  # newer links have it behind the hash
    expect(page.get_by_text(NOT_KEPT)).to_have_count(1)
    expect(text(page, 1)).to_have_value(LINKED)
    expect(page.locator("#example-note")).to_contain_text("Loaded from a link.")
    expect(page).to_have_url(f"{app.url}?other=1")


def test_a_link_ends_the_animation_which_keeps_no_draft(open_page: OpenPage, app: ServedApp) -> None:
    with open_page("about:blank") as page:
        page.emulate_media(reduced_motion="no-preference")
        page.goto(f"{app.url}#session={CODE}")
        expect(text(page, 1)).to_have_value(LINKED)
        expect(page.locator("#order-table [name=play]")).to_be_hidden()
        page.wait_for_timeout(1500)  # a step of the animation
        keep = "window.pineSharing.keep('AAAA'); localStorage.getItem('pine-explorer-draft') === 'AAAA'"
        assert not page.evaluate(keep)
        page.keyboard.press("Tab")
        assert page.evaluate(keep)


@pytest.mark.slow
def test_without_clipboard_the_link_is_shown_and_an_old_draft_is_passed_over(
    page_with: Callable[..., Page], app: ServedApp
) -> None:
    page = page_with(
        "document.execCommand = () => false;"
        "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
        "localStorage.setItem('pine-explorer-draft', 'q7Gk/8Jx+w==:U2FsdGVkX19x5fN+2A==')"
    )
    expect(page.locator("#draft-kept")).to_contain_text(KEPT)
    expect(text(page, 1)).to_have_value(DEFAULT.documents[0].text)
    expect(page.locator("#share-message")).not_to_contain_text("cannot be opened")
    page.locator("#copy-link").click()
    expect(page.locator("#share-message")).to_contain_text("Copy this link.")
    assert page.locator(LINK).input_value().startswith(f"{app.url}#session=")


@pytest.mark.slow
def test_a_full_storage_and_work_too_long_for_a_link_show_messages(page: Page) -> None:
    kept = page.locator("#draft-kept")
    expect(kept).to_contain_text(KEPT)
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
    expect(kept).to_contain_text(KEPT)
    assert page.evaluate("localStorage.getItem('pine-explorer-draft')")

    text(page, 1).fill(" ".join(f"{7919 * number % 99991:x}" for number in range(20_000)))
    page.locator("#copy-link").click()
    expect(page.locator("#share-message")).to_contain_text("Link too long:")
    expect(page.locator("#link")).to_be_hidden()
    expect(page.locator("#download-run")).to_be_disabled()  # nothing was run
