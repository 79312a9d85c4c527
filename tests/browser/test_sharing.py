"""Shared work of a visitor: by a link, a file, a draft; in a frame, and where a browser denies storage."""

import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Dialog, Frame, Page, expect

from tests.browser.conftest import MAX_DISK_MB, OpenPage
from tests.browser.driving import (
    DEFAULT,
    RUN_MS,
    SHORT,
    choose,
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
    share,
    text,
    unfold,
    wait_for_model,
)
from tests.support.serving import ServedApp
from viz.page.answers.record import record_of
from viz.page.form.documents import Entry
from viz.page.form.examples import NO_EXAMPLE
from viz.page.form.form import Form
from viz.page.session import to_code

TYPED = 'A lamp <b>&"quoted"</b> 灯 was lit.'
LINKED = "The lamp is blue."
CODE = to_code(
    record_of(Form("retrieval_qa", "Which lamp?", "", ("pine",), 8, (Entry(0, "", LINKED),)), accepted="")
)
LINK = "#link input, #link textarea"
KEPT = "Your draft is saved in this browser"
NOT_KEPT = "Drafts cannot be saved"
PAUSE_MS = 3000  # after which a draft is kept
WATCH_CARD = """
() => {
  window.drawn = { texts: [], squares: 0 };
  const { fillText, fillRect } = CanvasRenderingContext2D.prototype;
  Object.assign(CanvasRenderingContext2D.prototype, {
    fillText(...written) {
      window.drawn.texts.push(written[0]);
      fillText.apply(this, written);
    },
    fillRect(...box) {
      window.drawn.squares += this.fillStyle === "#000000";
      fillRect.apply(this, box);
    },
  });
}
"""
"""Script that lists the texts drawn on a canvas, and counts the dark squares of the QR code of the link."""


def prepare(page: Page) -> None:
    """Two documents in the other order, the second of them typed by the visitor."""
    wait_for_model(page)
    pick(page, SHORT)
    text(page, 2).fill(TYPED)
    page.locator(".page-card-2").get_by_role("button", name="Earlier").click()
    expect(text(page, 1)).to_have_value(TYPED)
    set_length(page, 8)


def answer_texts(page: Page) -> list[str]:
    unfold(page, "#answers-in-full")
    return page.locator("#answers .pine-answer-text").all_inner_texts()


def assert_prepared(page: Page) -> None:
    expect(text(page, 1)).to_have_value(TYPED)
    expect(text(page, 2)).to_have_value(SHORT.documents[0].text)
    expect(page.locator("#question textarea")).to_have_value(SHORT.question)
    unfold(page)
    expect(page.locator("#length input[type=number]")).to_have_value("8")
    assert letters(page) == ["B", "A"]


def texts_without_a(page: Page) -> list[str]:
    """Return what the eye of document A shows, and press it again."""
    eye = page.get_by_role("button", name="Without document A")
    eye.click()
    texts = page.locator("#order-table .page-without:visible").all_inner_texts()
    eye.click()
    return texts


@pytest.mark.slow
def test_work_is_shared_by_link_and_file(page: Page, open_page: OpenPage, tmp_path: Path) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(share(page, "Download results")).to_be_disabled()
    page.keyboard.press("Escape")
    prepare(page)
    select_options(page, "#methods", "Vanilla", "PINE")
    page.locator("#start-all").click()
    expect(page.locator("#shuffle-status")).to_contain_text("Done:", timeout=RUN_MS)
    answers = answer_texts(page)
    assert len(answers) == 2
    expect(page.locator("#without-status")).to_contain_text("Done:", timeout=RUN_MS)
    without = texts_without_a(page)
    assert len(without) == 2 and all(re.fullmatch("without A: .+", one, re.DOTALL) for one in without)
    open_tab(page, "Document importance")
    choose(page, "Layer", "layer 7")
    expect(page.locator("#figure-importance .pine-figure-title")).to_contain_text("layer 7")

    open_tab(page, "See it")
    share(page, "Copy link").click()
    expect(page.locator("#share-message")).to_contain_text("Link copied.")
    link = page.locator(LINK).input_value()
    assert page.evaluate("navigator.clipboard.readText()") == link
    assert urlsplit(link).fragment.startswith("session=")
    assert urlsplit(link).query == ""  # which the logs of servers hold
    with open_page(link) as other:
        assert_prepared(other)
        expect(other.locator("#example-note")).to_contain_text("Loaded from a link.")
        other.wait_for_timeout(PAUSE_MS)
        assert "Starting" not in other.locator("#shuffle-status").inner_text()  # nothing runs unasked
        source = other.locator(".page-order-source")
        expect(source).to_contain_text("Computed by someone else")
        expect(other.locator("#start-all")).to_have_text("▶ Play 2 orders")
        assert answer_texts(other) == answers
        assert texts_without_a(other) == without
        source.get_by_role("button", name="Check").click()
        expect(source).to_contain_text("your run gave the same 4 answers", timeout=RUN_MS)
        other.get_by_role("tab", name="Lab").click()
        other.get_by_role("tab", name="Internals").click()
        expect(control(other, "Layer")).to_have_value("layer 7")
        expect(plot(other, "importance")).to_be_visible()
        expect(other.get_by_label("NIA", exact=True).first).not_to_be_checked()
        assert "session" not in other.url

    page.evaluate(WATCH_CARD)
    picture = save(page, share(page, "Save picture"), tmp_path).read_bytes()
    drawn = page.evaluate("window.drawn")
    finding = page.locator(".page-order-head h2").inner_text().removesuffix(".").partition(". ")
    assert finding[0] and all(words in " ".join(drawn["texts"]) for words in (SHORT.question, *finding[::2]))
    assert drawn["squares"] == 0
    expect(page.locator("#share-message")).to_contain_text("too long for a QR code")
    assert [int.from_bytes(picture[start : start + 4]) for start in (16, 20)] == [1200, 630]
    video = save(page, share(page, "Save video"), tmp_path)
    assert video.suffix == ".webm" and video.read_bytes().startswith(b"\x1aE\xdf\xa3")
    file = save(page, share(page, "Save session"), tmp_path)
    examples = page.get_by_label("Example", exact=True)
    examples.focus()
    page.keyboard.press("Tab")  # chooses nothing
    expect(text(page, 1)).to_have_value(TYPED)
    pick(page, DEFAULT)
    save(page, share(page, "Save picture"), tmp_path)
    assert page.evaluate("window.drawn.squares") > 21**2 / 2  # of the smallest code
    give(page, share(page, "Open session"), file)
    assert_prepared(page)
    expect(page.locator("#example-note")).to_contain_text("Loaded from pine-explorer-session.json.")
    expect(examples).to_have_value(NO_EXAMPLE)
    broken = tmp_path / "broken.json"
    broken.write_text('{"task": "retrieval_qa"}')
    give(page, share(page, "Open session"), broken)
    expect(page.locator("#share-message")).to_contain_text("Broken.json is not a valid session")
    assert_prepared(page)

    assert_full_storage_and_long_links_show_messages(page)


def assert_full_storage_and_long_links_show_messages(page: Page) -> None:
    kept = page.locator("#draft-kept")
    expect(kept).to_contain_text(KEPT)
    page.evaluate(
        """() => {
            localStorage.removeItem("pine-explorer-draft");
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
    share(page, "Copy link").click()
    expect(page.locator("#share-message")).to_contain_text("Link too long:")
    expect(page.locator("#link")).to_be_hidden()


@pytest.mark.slow
def test_link_asks_before_it_replaces_text_and_draft_is_restored(
    open_page: OpenPage, app: ServedApp, tmp_path: Path
) -> None:
    answers = [False, True]

    def answer(dialog: Dialog) -> None:
        assert dialog.message.startswith("Open this link?")
        dialog.accept() if answers.pop(0) else dialog.dismiss()

    with open_page("about:blank", strict=False) as page:  # gradio logs refused uploads and reloads as errors
        page.on("dialog", answer)
        page.emulate_media(reduced_motion="no-preference")
        page.goto(f"{app.url}#session={CODE}")
        expect(text(page, 1)).to_have_value(LINKED)
        expect(page).to_have_url(app.url)
        # The link ends the animation, which keeps no draft.
        expect(page.locator("#start-all")).to_have_text("Run")
        page.wait_for_timeout(1500)  # a step of the animation
        keep = (
            "pine.drafts.keep('', 'retrieval_qa', 'Kept?', '', [], 8, '[]', '');"
            "!!localStorage.getItem('pine-explorer-draft')?.includes('Kept?')"
        )
        assert not page.evaluate(keep)
        page.keyboard.press("Tab")
        assert page.evaluate(keep)
        page.emulate_media(reduced_motion="reduce")

        text(page, 1).click()
        page.keyboard.type("Typed here. ")
        typed = text(page, 1).input_value()
        page.goto(f"{app.url}#session={CODE}")
        expect(page).to_have_url(app.url)
        expect(text(page, 1)).to_have_value(typed)
        unfold(page)
        file = tmp_path / "notes.txt"
        file.write_text("Much to read. " * MAX_DISK_MB * 75_000)
        give(page, "#add-files", file)
        expect(page.get_by_test_id("toast-text")).to_contain_text(f"{MAX_DISK_MB} MB")
        expect(text(page, 1)).to_have_value(typed)
        page.goto(f"{app.url}#session={CODE}")
        expect(text(page, 1)).to_have_value(LINKED)
        text(page, 1).fill("Typed after the link was opened.")
        page.wait_for_timeout(PAUSE_MS)
        page.reload()
        expect(text(page, 1)).to_have_value("Typed after the link was opened.")
        expect(page.locator("#example-note")).to_contain_text("Draft restored")
        page.evaluate("localStorage.setItem('pine-explorer-draft', 'q7Gk/8Jx+w==:U2F='); location.reload()")
        expect(text(page, 1)).to_have_value(DEFAULT.documents[0].text)  # drafts of old versions are ignored
        expect(page.locator("#draft-kept")).to_contain_text(KEPT)
        expect(page.locator("#share-message")).not_to_contain_text("cannot be opened")
    assert answers == []


def test_browser_without_storage_and_clipboard_shows_messages_and_links(
    open_page: OpenPage, app: ServedApp
) -> None:
    with open_page("about:blank") as page:
        page.add_init_script(
            "Object.defineProperty(window, 'localStorage', { get: () => { throw Error() } });"
            "document.execCommand = () => false;"
            "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
        )
        page.goto(f"{app.url}?other=1&session={CODE}")  # newer links have the session behind the hash
        expect(page.get_by_text(NOT_KEPT)).to_have_count(1)
        expect(text(page, 1)).to_have_value(LINKED)
        expect(page.locator("#example-note")).to_contain_text("Loaded from a link.")
        expect(page).to_have_url(f"{app.url}?other=1")
        share(page, "Copy link").click()
        expect(page.locator("#share-message")).to_contain_text("Copy this link.")
        assert page.locator(LINK).input_value().startswith(f"{app.url}#session=")


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


@pytest.mark.slow
def test_frame_on_another_site_lacks_only_the_draft(open_page: OpenPage, other_site: str) -> None:
    with open_page(other_site) as page:
        frame = page.locator("iframe").element_handle().content_frame()
        assert isinstance(frame, Frame)
        expect(text(frame, 1)).to_have_value(DEFAULT.documents[0].text)
        with pytest.raises(Exception, match="Access is denied"):
            frame.evaluate("localStorage")
        wait_for_model(frame)
        pick(frame, SHORT)
        set_length(frame, 8)
        run(frame)
        open_tab(frame, "Attention masks")

        open_tab(frame, "See it")
        text(frame, 1).fill("Typed in the frame.")
        page.wait_for_timeout(PAUSE_MS)
        expect(frame.get_by_text(NOT_KEPT)).to_have_count(1)
        share(frame, "Copy link").click()
        expect(frame.locator("#share-message")).to_contain_text("Link copied.")
        link = frame.locator(LINK).input_value()
        page.locator("body > textarea").focus()
        page.keyboard.press("Control+V")
        expect(page.locator("body > textarea")).to_have_value(link)
        with page.expect_download() as offered:
            share(frame, "Save session").click()
        assert offered.value.suggested_filename == "pine-explorer-session.json"

    with open_page(link) as opened:
        expect(text(opened, 1)).to_have_value("Typed in the frame.")
