"""Shared work of a visitor: opened by a link, from a file and after a reload."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Dialog, Page, expect

from tests.browser.conftest import OpenPage, forget
from tests.browser.driving import (
    RUN_MS,
    SHORT,
    control,
    open_tab,
    pick,
    plot,
    run,
    save,
    set_length,
    text,
    unfold,
    wait_for_model,
)
from tests.support.serving import ServedApp
from viz.page.form.documents import Entry
from viz.page.form.form import Form
from viz.page.session import session_of, to_code

TYPED = 'A lamp <b>&"quoted"</b> 灯 was lit.'

LINKED = "The lamp is blue."
CODE = to_code(
    session_of(Form("retrieval_qa", "Which lamp?", "", ("pine",), 8, (Entry(0, "", LINKED),)), accepted="")
)


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
    assert page.locator("#documents .pine-badge").all_inner_texts() == ["B", "A"]


@pytest.mark.slow
def test_link_opens_the_same_page_elsewhere(page: Page, open_page: OpenPage) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    prepare(page)
    page.get_by_label("NIA", exact=True).first.uncheck()
    run(page)
    unfold(page, "#answers-in-full")
    answers = page.locator("#answers .pine-answer-text").all_inner_texts()
    assert len(answers) == 3
    open_tab(page, "Document importance")
    control(page, "Layer").click()
    page.get_by_role("option", name="layer 7", exact=True).click()
    expect(page.locator("#figure-importance .pine-figure-title")).to_contain_text("layer 7")

    open_tab(page, "See it")
    page.locator("#copy-link").click()
    expect(page.locator("#share-message")).to_contain_text("Link copied.")
    link = page.locator("#link input, #link textarea").input_value()
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

        unfold(other)
        text(other, 2).fill("Typed after the link was opened.")
        expect(other.locator("#total")).to_contain_text("answer tokens")
        other.wait_for_timeout(3000)
        other.reload()
        expect(text(other, 2)).to_have_value("Typed after the link was opened.")
        expect(other.locator("#example-note")).to_contain_text("Draft restored")
        expect(other.locator("#run-status")).to_have_text("")


def test_a_session_is_saved_and_opened_again(page: Page, open_page: OpenPage, tmp_path: Path) -> None:
    prepare(page)
    file = save(page, page.locator("#save-session"), tmp_path)
    assert file.name == "pine-explorer-session.json"
    saved = json.loads(file.read_text())
    assert [document["letter"] for document in saved["documents"]] == [1, 0]
    assert saved["max_new_tokens"] == 8
    with open_page() as other:
        wait_for_model(other)  # whose event has the same outputs as opening a file
        with other.expect_file_chooser() as chooser:
            other.locator("#open-session").click()
        chooser.value.set_files(file)
        assert_prepared(other)
        expect(other.locator("#example-note")).to_contain_text("Loaded from pine-explorer-session.json.")

        broken = tmp_path / "broken.json"
        broken.write_text('{"task": "retrieval_qa"}')
        with other.expect_file_chooser() as chooser:
            other.locator("#open-session").click()
        chooser.value.set_files(broken)
        expect(other.locator("#share-message")).to_contain_text("Broken.json is not a valid session")
        assert_prepared(other)


@pytest.mark.parametrize("before", ["#", "?", "?other=1&"])
def test_a_link_has_its_session_behind_the_hash_or_as_older_ones_in_the_query(
    open_page: OpenPage, app: ServedApp, before: str
) -> None:
    with open_page(f"{app.url}{before}session={CODE}") as page:
        expect(text(page, 1)).to_have_value(LINKED)
        expect(page.locator("#example-note")).to_contain_text("Loaded from a link.")
        expect(page).to_have_url(app.url + ("?other=1" if "other" in before else ""))


@pytest.mark.parametrize("before", ["#", "?"])
def test_a_damaged_link_is_explained(open_page: OpenPage, app: ServedApp, before: str) -> None:
    with open_page(f"{app.url}{before}session=AAAA") as page:
        expect(page.locator("#share-message")).to_contain_text("Invalid link.")
        expect(text(page, 1)).not_to_have_value("")


@pytest.fixture
def left_page(other_window: BrowserContext, app: ServedApp) -> Iterator[Page]:
    """A page that is left while it may wait for an answer, of which gradio then complains in its console."""
    with other_window.new_page() as page:
        page.goto(app.url)
        expect(page.locator("#draft-kept")).to_contain_text("Your draft is saved in this browser")
        yield page
        forget(page, app)


@pytest.mark.slow
def test_a_link_that_is_put_into_an_open_tab_is_opened(left_page: Page, app: ServedApp) -> None:
    page = left_page
    page.goto(f"{app.url}#session={CODE}")
    expect(text(page, 1)).to_have_value(LINKED)
    expect(page).to_have_url(app.url)


@pytest.mark.slow
def test_what_was_typed_is_not_lost_to_a_link_unasked(left_page: Page, app: ServedApp) -> None:
    page = left_page
    answers = [False, True]

    def answer(dialog: Dialog) -> None:
        assert dialog.message.startswith("Open this link?")
        dialog.accept() if answers.pop(0) else dialog.dismiss()

    page.on("dialog", answer)
    text(page, 1).click()
    page.keyboard.type("Typed here. ")
    typed = text(page, 1).input_value()
    page.goto(f"{app.url}#session={CODE}")
    expect(page).to_have_url(app.url)
    expect(text(page, 1)).to_have_value(typed)
    page.goto(f"{app.url}#session={CODE}")
    expect(text(page, 1)).to_have_value(LINKED)
    assert answers == []


@pytest.mark.slow
def test_work_too_long_for_a_link_shows_a_message(page: Page) -> None:
    pick(page, SHORT)
    words = " ".join(f"{7919 * number % 99991:x}" for number in range(20_000))
    text(page, 1).fill(words)
    page.locator("#copy-link").click()
    expect(page.locator("#share-message")).to_contain_text("Link too long:")
    expect(page.locator("#link")).to_be_hidden()
    expect(page.locator("#download-run")).to_be_disabled()  # nothing was run


def test_everything_of_a_run_comes_as_one_file(drawn: Page, tmp_path: Path) -> None:
    open_tab(drawn, "See it")
    file = save(drawn, drawn.locator("#download-run"), tmp_path)
    assert file.name == "pine-explorer-run.zip"
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        session = json.loads(archive.read("session.json"))
    expected = {"README.txt", "answers.csv", "orders.csv", "certificate.json", "numbers/method-positions.csv"}
    assert expected <= set(names)
    assert [document["text"] for document in session["documents"]] == [
        document.text for document in SHORT.documents
    ]
