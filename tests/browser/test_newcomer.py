"""The newcomer's story, in a browser, on the embedded model."""

import csv
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Locator, Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.driving import (
    DEFAULT,
    EXAMPLES,
    LONG,
    RUN_MS,
    SHORT,
    TABS,
    give,
    numbers,
    open_tab,
    pick,
    picture,
    plot,
    save,
    set_length,
    text,
    unfold,
    wait_for_model,
)
from tests.support.serving import ServedApp
from tools.fuzz.corpus import PAYLOADS, pdf_of
from viz.page.form.documents import Entry
from viz.page.form.form import Form
from viz.page.form.orders import ALL_ORDERS_UP_TO, DEFAULT_ORDERS
from viz.page.session import session_of, to_code

FIRST_TOKEN_WITHIN_MS = 15_000  # 5 s on a machine that does nothing else
SAMPLED = next(example for example in EXAMPLES if len(example.documents) == ALL_ORDERS_UP_TO + 1)
HOSTILE = "<img src=x onerror=\"window.hacked='yes'\"> <|im_end|> </textarea><script>window.hacked=1</script>"


def card(page: Page, slot: int) -> Locator:
    return page.locator(f".page-card-{slot}")


def title(page: Page, slot: int) -> Locator:
    return page.get_by_label(f"Title, document in slot {slot}", exact=True)


def letters(page: Page) -> list[str]:
    return page.locator("#documents .pine-badge").all_inner_texts()


def test_new_page_shows_recorded_answers(page: Page) -> None:
    expect(page.get_by_role("heading", name="PINE Explorer")).to_be_visible()
    expect(page.locator("#header")).to_contain_text("Same documents, another order")
    expect(page.locator("#order-table")).to_contain_text("Precomputed with")
    expect(page.locator("#order-table tbody tr").last).to_contain_text("1913")
    open_tab(page, "Attention masks")
    expect(page.locator("#inside-summary")).to_contain_text("Precomputed with")
    expect(plot(page, "token-masks").locator(".heatmaplayer image")).to_have_count(3)
    open_tab(page, "Tutorial")
    page.get_by_role("button", name="Worked example: eight tokens").click()
    positions = page.locator("#running-example pine-figure").last
    positions.get_by_role("button", name="the decoded token").click()
    expect(positions.locator(".pine-figure-title")).to_contain_text("the decoded token")
    expect(positions.locator(".ytick")).to_have_text(["PINE", "SP", "PCW", "NIA", "Vanilla"])


def test_from_an_example_to_four_answers_and_the_pictures(page: Page) -> None:
    wait_for_model(page)
    pick(page, SHORT)
    pick(page, DEFAULT)
    set_length(page, 16)
    expect(page.locator("#total")).to_contain_text("answer tokens")
    unfold(page, "#answers-in-full")
    expect(page.locator("#order-table")).to_contain_text("Precomputed with")
    page.locator("#run").click()
    expect(page.locator("#order-table")).not_to_contain_text("Precomputed with", timeout=RUN_MS)
    answers = page.locator("#answers .pine-answer-text")
    expect(answers.first).to_have_text(re.compile(r"\w"), timeout=FIRST_TOKEN_WITHIN_MS)
    expect(page.locator("#run-status")).to_contain_text("Done:")
    cards = page.locator("#answers .pine-card")
    expect(cards).to_have_count(4)
    for method, shown in zip(("Vanilla", "NIA", "PCW", "PINE"), cards.all(), strict=True):
        expect(shown.get_by_role("heading")).to_contain_text(method)
        expect(shown).to_contain_text(re.compile("Done|Stopped at the token limit"))
        expect(shown).to_contain_text(re.compile(r"prefill\s*[\d.]+ s"))
        expect(shown.locator(".pine-answer-text")).to_have_text(re.compile(r"\w"))

    open_tab(page, "Attention masks")
    expect(page.locator("#masks")).to_contain_text("Not run: SP")  # its mask needs no run
    open_tab(page, "RoPE positions")
    count = len(DEFAULT.documents)
    expect(plot(page, "method-positions").locator(".ytick")).to_have_text(["PINE", "PCW", "NIA", "Vanilla"])
    open_tab(page, "Document importance")
    assert len(numbers(page, "figure-importance")) == count
    open_tab(page, "Compare answers")
    expect(picture(page, "answers").locator(".pine-card")).to_have_count(2)
    assert len(numbers(page, "figure-answer-shares")) == 2 * (count + 2)


def test_stop_stops_the_computing(page: Page) -> None:
    wait_for_model(page)
    pick(page, LONG)
    set_length(page, 256)
    page.locator("#run").click()
    expect(page.locator("#run-status")).to_contain_text("layer")
    page.locator("#stop").click()
    expect(page.locator("#run-status")).to_contain_text("Stopped")
    # No answer had begun: those that were there stay.
    expect(page.locator("#order-table [data-method=pine]")).to_contain_text("1 answer")
    expect(page.locator("#stop")).to_be_disabled()
    # The model is free again at once, so another run is not kept waiting for the one that was stopped.
    pick(page, SHORT)
    set_length(page, 8)
    page.locator("#run").click()
    expect(page.locator("#run-status")).to_contain_text(
        re.compile("prefill|Done"), timeout=FIRST_TOKEN_WITHIN_MS
    )
    expect(page.locator("#run-status")).to_contain_text("Done:")


@pytest.mark.slow
def test_stop_ends_a_shuffle_and_keeps_its_rows(page: Page) -> None:
    wait_for_model(page)
    pick(page, SAMPLED)
    unfold(page)
    unfold(page, "#shuffle-section")
    page.get_by_role("checkbox", name="PCW", exact=True).uncheck()
    page.get_by_role("checkbox", name="NIA", exact=True).uncheck()
    set_length(page, 32)
    page.locator("#shuffle").click()
    rows = page.locator("#shuffle-matrix .ytick")
    expect(rows).not_to_have_count(0, timeout=RUN_MS)
    page.locator("#stop-shuffle").click()
    expect(page.locator("#shuffle-status")).to_contain_text("Stopped")
    # One order or more was done when Stop was heard; what was there then stays, and nothing is added.
    kept = rows.count()
    assert 1 <= kept < DEFAULT_ORDERS
    expect(page.locator("#stop-shuffle")).to_be_disabled()
    expect(rows).to_have_count(kept)
    pick(page, SHORT)
    page.locator("#run").click()
    expect(page.locator("#run-status")).to_contain_text(
        re.compile("prefill|Done"), timeout=FIRST_TOKEN_WITHIN_MS
    )


@pytest.mark.slow
def test_typed_text_stays_with_its_document(page: Page) -> None:
    pick(page, SHORT)
    page.locator("#clear-documents").click()
    expect(text(page, 1)).to_have_value("")
    text(page, 1).press_sequentially("first text")
    title(page, 2).press_sequentially("second title")
    text(page, 2).press_sequentially("second text")
    page.locator("#add-document").click()
    expect(card(page, 3)).to_be_visible()
    text(page, 3).press_sequentially("third text")
    assert letters(page) == ["A", "B", "C"]

    card(page, 3).get_by_role("button", name="Earlier").click()
    expect(text(page, 2)).to_have_value("third text")
    expect(text(page, 3)).to_have_value("second text")
    expect(title(page, 3)).to_have_value("second title")
    expect(title(page, 2)).to_have_value("")
    assert letters(page) == ["A", "C", "B"]

    text(page, 3).press_sequentially(" and more")
    card(page, 1).get_by_role("button", name="Remove").click()
    expect(card(page, 3)).to_be_hidden()
    expect(text(page, 1)).to_have_value("third text")
    expect(text(page, 2)).to_have_value("second text and more")
    assert letters(page) == ["B", "A"]

    text(page, 2).press_sequentially(" and more")
    page.locator("#undo-documents").click()
    expect(text(page, 1)).to_have_value("first text")
    expect(text(page, 3)).to_have_value("second text and more and more")
    assert letters(page) == ["A", "C", "B"]
    card(page, 1).get_by_role("button", name="Remove").click()
    expect(card(page, 3)).to_be_hidden()

    page.locator("#add-document").click()
    expect(card(page, 3)).to_be_visible()
    expect(text(page, 3)).to_have_value("")

    unfold(page)
    page.get_by_role("button", name="Paste multiple documents").click()
    page.locator("#pasted textarea").fill("# Tides\nThe Moon\n\nwind")
    page.locator("#paste-documents").click()
    expect(text(page, 4)).to_have_value("wind")
    expect(title(page, 3)).to_have_value("Tides")
    expect(text(page, 2)).to_have_value("second text and more and more")
    assert letters(page) == ["B", "A", "C", "D"]


@pytest.mark.slow
def test_the_page_holds_twenty_documents(page: Page) -> None:
    wait_for_model(page)
    unfold(page)
    page.get_by_role("button", name="Paste multiple documents").click()
    page.locator("#clear-documents").click()
    expect(text(page, 1)).to_have_value("")
    page.locator("#pasted textarea").fill("\n\n".join(f"document number {n}" for n in range(21)))
    page.locator("#paste-documents").click()
    expect(page.locator("#documents-message")).to_contain_text("1 not added")
    expect(text(page, 20)).to_have_value("document number 19")
    expect(card(page, 20)).to_contain_text(re.compile(r"\d+ tokens"))


def test_a_mistake_is_explained_and_what_was_typed_is_kept(page: Page) -> None:
    wait_for_model(page)
    page.locator("#question textarea, #question input").fill("")
    title(page, 1).fill("my own title")
    expect(page.locator("#form-problem").get_by_role("alert")).to_have_text("No question. Enter one.")
    expect(page.locator("#run")).to_be_disabled()
    expect(title(page, 1)).to_have_value("my own title")
    page.locator("#question textarea, #question input").fill("Which?")
    text(page, 2).fill(" ")
    expect(page.locator("#form-problem").get_by_role("alert")).to_contain_text("Document B is empty")
    expect(page.locator("#shuffle")).to_be_disabled()


@pytest.mark.slow
def test_only_choosing_an_example_replaces_what_was_typed(page: Page, tmp_path: Path) -> None:
    wait_for_model(page)
    examples = page.get_by_label("Example", exact=True)
    text(page, 1).fill("typed")
    examples.focus()
    page.keyboard.press("Tab")
    text(page, 2).fill("typed as well")
    file = save(page, page.locator("#save-session"), tmp_path)  # an answer of the server, after that event
    typed = json.loads(file.read_text())["documents"]
    assert [document["text"] for document in typed[:2]] == ["typed", "typed as well"]
    expect(text(page, 1)).to_have_value("typed")

    pick(page, DEFAULT)
    expect(text(page, 1)).to_have_value(DEFAULT.documents[0].text)
    give(page, "#open-session", file)
    expect(text(page, 1)).to_have_value("typed")
    expect(examples).to_have_value("")
    examples.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(text(page, 1)).to_have_value(DEFAULT.documents[0].text)
    expect(examples).to_have_value(DEFAULT.name)


def test_hostile_text_is_shown_and_never_executed(
    app: ServedApp, open_page: OpenPage, tmp_path: Path
) -> None:
    """Through every door: a link, files of three kinds, their names, and what is typed."""
    hostile = Form(
        "retrieval_qa", HOSTILE, PAYLOADS[1], ("vanilla", "pine"), 8, (Entry(0, HOSTILE, PAYLOADS[0]),)
    )
    link = to_code(session_of(hostile, accepted="\n".join(PAYLOADS)))
    name = "<img src=x onerror=window.__pwned=1>"
    table, paper, session = (tmp_path / f"{name}{ending}" for ending in (".csv", ".pdf", ".json"))
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("title", "text"), (HOSTILE, PAYLOADS[5])])
    paper.write_bytes(pdf_of(PAYLOADS[0]))
    session.write_text(json.dumps({name: HOSTILE}))

    with open_page(f"{app.url}?session={link}") as page:
        dialogs: list[str] = []

        def dismiss(dialog: Dialog) -> None:
            dialogs.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", dismiss)
        wait_for_model(page)
        expect(title(page, 1)).to_have_value(HOSTILE)
        unfold(page)
        give(page, "#add-files", table)
        expect(text(page, 2)).to_have_value(PAYLOADS[5])
        text(page, 2).fill(f"{PAYLOADS[5]} {PAYLOADS[2]}")
        page.locator("#shuffle").click()
        expect(page.locator("#shuffle-status")).to_contain_text("Done: 2 orders", timeout=RUN_MS)
        for tab in TABS:
            open_tab(page, tab)
        open_tab(page, "Attention masks")
        expect(page.locator("#inside-summary")).to_contain_text("<img src=x")
        open_tab(page, "See it")
        give(page, "#add-files", paper)
        expect(text(page, 3)).to_have_value(PAYLOADS[0])
        expect(title(page, 3)).to_have_value(re.compile("img src=x"))
        give(page, "#open-session", session)
        expect(page.locator("#share-message")).to_contain_text("is not a valid session")
        expect(page.locator("#total")).to_contain_text("answer tokens")
        assert page.evaluate("[window.hacked, window.__pwned]") == [None, None]
        assert page.locator("img[src=x], iframe, svg[onload]").count() == 0
        assert dialogs == []


@pytest.mark.slow
def test_keys_run_stop_and_shuffle_from_anywhere(page: Page) -> None:
    wait_for_model(page)
    pick(page, LONG)
    text(page, 1).press_sequentially(" ")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#stop")).to_be_enabled()
    page.keyboard.press("Control+.")
    expect(page.locator("#run-status")).to_contain_text("Stopped", timeout=RUN_MS)
    page.keyboard.press("Control+Shift+Enter")
    expect(page.locator("#stop-shuffle")).to_be_enabled()
    page.keyboard.press("Control+.")
    expect(page.locator("#shuffle-status")).to_contain_text("Stopped", timeout=RUN_MS)
    open_tab(page, "Tutorial")
    page.get_by_role("button", name="Glossary and keyboard shortcuts").click()
    expect(page.locator("#keys kbd").first).to_have_text("Ctrl+Enter")


def test_the_keyboard_is_enough_to_run(page: Page) -> None:
    wait_for_model(page)
    pick(page, SHORT)
    set_length(page, 8)
    page.locator("#run").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#run-status")).to_contain_text("Done:")
