"""A visitor's own documents: typed, moved, added, removed, undone, split, uploaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.driving import (
    DEFAULT,
    EXAMPLES,
    LONG,
    RUN_MS,
    SHORT,
    card,
    choose,
    drag,
    give,
    letters,
    pick,
    run,
    save,
    select_options,
    set_length,
    text,
    texts,
    title,
    unfold,
    wait_for_model,
)
from viz.page.form.examples import NO_EXAMPLE

MATH = next(example for example in EXAMPLES if example.task == "math_reasoning")
PROBLEM = (
    "Ana runs a small stall at the market. She sells 12 loaves at 3 euros each. She sells 20 rolls at 1 euro "
    "each. She pays 15 euros for the stall. How many euros does she have left?"
)
QUESTION = "#question textarea, #question input"

RANDOM_STEPS = """
() => {
  const cards = () => [...document.querySelectorAll("#documents .page-card")];
  const shown = () => cards().map((card) => ({
    letter: card.querySelector(".pine-badge").textContent,
    title: card.querySelector(".page-title").value,
    text: card.querySelector(".page-text").value,
  }));
  const any = (list) => list[Math.floor(Math.random() * list.length)];
  const type = (field, value) => {
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const buttons = ["#add-document", "#undo-documents", "#redo-documents"];
  const typed = {};
  const seen = [];
  for (let step = 0; step < 400; step += 1) {
    const before = shown();
    const kind = step % 4 ? any(["tool", "tool", "tool", "button"]) : "type";
    if (kind === "type" && cards().length) {
      const card = any(cards());
      type(card.querySelector(".page-title"), `title ${step}`);
      type(card.querySelector(".page-text"), `text ${step}`);
      typed[step] = true;
    } else if (kind === "tool" && cards().length) any([...any(cards()).querySelectorAll("button")]).click();
    else document.querySelector(any(buttons)).click();
    seen.push({ kind, before, after: shown() });
  }
  return seen;
}
"""


def saved(page: Page, folder: Path) -> list[dict[str, Any]]:
    """The documents as the server has them."""
    session = json.loads(save(page, page.locator("#save-session"), folder).read_text())
    documents: list[dict[str, Any]] = session["documents"]
    return documents


def test_own_documents_are_checked_before_the_queue_and_answered_in_two_orders(page: Page) -> None:
    wait_for_model(page)
    pick(page, SHORT)
    title(page, 1).fill("my own title")
    text(page, 1).fill("Ada has the key to the attic.")
    page.locator(QUESTION).fill("")
    problem = page.locator("#form-problem").get_by_role("alert")
    expect(problem).to_have_text("No question. Enter one.")
    expect(page.locator("#run")).to_be_disabled()
    page.locator(QUESTION).fill("Who has the key?")
    text(page, 2).fill(" ")
    expect(problem).to_contain_text("Document B is empty")
    expect(page.locator("#shuffle")).to_be_disabled()
    expect(title(page, 1)).to_have_value("my own title")
    text(page, 2).fill("Bo was here.")
    expect(page.locator("#run")).to_be_enabled()

    set_length(page, 8)
    select_options(page, "#methods", "Vanilla", "PINE")
    run(page)
    pine = page.locator("#order-table [data-method=pine]")
    ticks = pine.locator(".page-ticks span")
    expect(ticks).to_have_count(1)
    expect(page.get_by_label("Example", exact=True)).to_have_value(NO_EXAMPLE)
    text(page, 1).focus()
    page.keyboard.press("Alt+ArrowRight")
    expect(page.locator("#order-table [role=status]")).to_have_text("This order is not computed.")
    page.locator("#run").click()
    expect(ticks).to_have_count(2, timeout=RUN_MS)  # added to what was there
    expect(pine).to_contain_text("1 answer")
    expect(page.locator("#order-table [data-kind=open]")).to_have_count(0)
    expect(page.locator("#order-table [data-legend]")).to_contain_text("≠ another answer")

    page.locator(QUESTION).fill("")
    expect(page.locator("#shuffle")).to_be_disabled()
    expect(pine).to_contain_text("1 answer")  # nothing is erased
    page.locator(QUESTION).fill("Another?")
    expect(page.locator(".page-stale")).to_contain_text("You changed: question.")
    for part, opacity in (("#order-table", "0.5"), ("#shuffle-section", "0.5"), ("#settings", "1")):
        expect(page.locator(part)).to_have_css("opacity", opacity)
    expect(page.locator("#run-status")).not_to_have_css("display", "none")
    expect(page.locator("#run")).to_be_enabled()


def test_documents_are_moved_by_mouse_and_keys_and_no_step_loses_one(page: Page, tmp_path: Path) -> None:
    expect(text(page, len(DEFAULT.documents))).to_be_visible()
    for step in page.evaluate(RANDOM_STEPS):
        before, after = step["before"], step["after"]
        assert sorted(one["letter"] for one in after) == [chr(ord("A") + n) for n in range(len(after))]
        assert all(one["title"][6:] == one["text"][5:] for one in after if one["title"])
        if step["kind"] != "type":
            assert len({one["text"] for one in before} - {one["text"] for one in after}) <= 1
    shown = [(ord(letter) - ord("A"), text) for letter, text in zip(letters(page), texts(page), strict=True)]
    assert [(one["letter"], one["text"]) for one in saved(page, tmp_path)] == shown

    pick(page, SHORT)
    pick(page, DEFAULT)
    first, second, third = (document.text for document in DEFAULT.documents)
    drag(page, 1, onto=3)
    page.mouse.up()
    assert (letters(page), texts(page)) == (["B", "C", "A"], [second, third, first])
    assert [one["letter"] for one in saved(page, tmp_path)] == [1, 2, 0]
    drag(page, 3, onto=2)
    assert letters(page) == ["B", "A", "C"]
    page.keyboard.press("Escape")
    page.mouse.up()
    assert letters(page) == ["B", "C", "A"]
    page.locator("#undo-documents").click()
    assert letters(page) == ["A", "B", "C"]

    text(page, 1).focus()
    page.keyboard.press("Home")
    page.keyboard.type("Now ")
    page.keyboard.press("Alt+ArrowRight")
    assert letters(page) == ["B", "A", "C"]
    expect(text(page, 2)).to_be_focused()  # the caret stays
    page.keyboard.type("then ")
    expect(text(page, 2)).to_have_value(f"Now then {first}")
    expect(page.locator("#documents [role=status]")).to_have_text("Moved Document A to slot 2 of 3.")
    page.keyboard.press("Alt+ArrowLeft")
    page.keyboard.press("Alt+ArrowLeft")
    assert letters(page) == ["A", "B", "C"]

    pick(page, SHORT)
    pick(page, LONG)
    page.locator("#undo-documents").click()  # brings back what examples replaced
    assert texts(page) == [f"Now then {first}", second, third]
    page.locator("#redo-documents").click()
    assert texts(page) == [document.text for document in LONG.documents]


@pytest.mark.slow
def test_typed_text_and_focus_stay_with_their_document(page: Page) -> None:
    pick(page, SHORT)
    page.locator("#clear-documents").click()
    expect(text(page, 1)).to_have_value("")
    text(page, 1).press_sequentially("first text")
    title(page, 2).press_sequentially("second title")
    text(page, 2).press_sequentially("second text")
    page.locator("#add-document").press("Enter")
    expect(text(page, 3)).to_be_focused()
    page.keyboard.type("third text")
    assert letters(page) == ["A", "B", "C"]

    earlier = card(page, 3).get_by_role("button", name="Earlier: Document C")
    earlier.focus()
    page.keyboard.press("Enter")
    expect(text(page, 2)).to_have_value("third text")
    expect(text(page, 3)).to_have_value("second text")
    expect(title(page, 3)).to_have_value("second title")
    expect(title(page, 2)).to_have_value("")
    page.keyboard.press("Enter")
    assert letters(page) == ["C", "A", "B"]
    focused = page.locator(":focus")
    expect(focused).to_have_attribute("aria-label", "Earlier: Document C")
    expect(focused).to_be_disabled()

    text(page, 3).press_sequentially(" and more")
    card(page, 2).get_by_role("button", name="Remove").press("Enter")
    expect(card(page, 3)).to_be_hidden()
    expect(focused).to_have_attribute("aria-label", "Remove: Document A")
    page.keyboard.press("Control+z")
    assert letters(page) == ["C", "A", "B"]
    page.keyboard.press("Control+Shift+z")
    assert letters(page) == ["B", "A"]
    text(page, 2).press_sequentially(" and more")
    page.locator("#undo-documents").click()
    assert texts(page) == ["third text", "first text", "second text and more and more"]
    card(page, 1).get_by_role("button", name="Remove").click()
    page.locator("#add-document").click()
    expect(text(page, 3)).to_have_value("")

    unfold(page)
    page.get_by_role("button", name="Paste multiple documents").click()
    page.locator("#pasted textarea").fill("# Tides\nThe Moon\n\nwind")
    page.locator("#paste-documents").click()
    expect(text(page, 4)).to_have_value("wind")
    expect(title(page, 3)).to_have_value("Tides")
    expect(text(page, 2)).to_have_value("second text and more and more")
    assert letters(page) == ["A", "B", "C", "D"]


@pytest.mark.slow
def test_slow_and_restarted_servers_get_the_current_documents(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("from a file")

    def delay(route: Route) -> None:
        page.wait_for_timeout(600)
        route.continue_()

    page.route("**/queue/join**", delay)
    unfold(page)
    give(page, "#add-files", file)
    field = text(page, 1)
    field.focus()
    page.keyboard.press("End")
    for word in (" one", " two", " three", " four"):
        page.keyboard.type(word, delay=60)
    expect(text(page, 4)).to_have_value("from a file")
    expect(field).to_have_value(f"{DEFAULT.documents[0].text} one two three four")
    expect(field).to_be_focused()
    page.unroute_all(behavior="wait")

    card(page, 2).get_by_role("button", name="Earlier").click()

    def send(route: Route) -> None:
        """As one of a session that the server does not know."""
        route.continue_(post_data=_of_another(route.request.post_data))

    page.route("**/gradio_api/**", send)
    documents = saved(page, tmp_path)
    assert [one["letter"] for one in documents] == [1, 0, 2, 3]
    assert documents[1]["text"].endswith(" one two three four")
    page.unroute_all(behavior="wait")


def _of_another(body: str | None) -> str | None:
    if not body or "session_hash" not in body:
        return body
    return json.dumps(json.loads(body) | {"session_hash": "unknown"})


@pytest.mark.slow
def test_split_problem_and_added_files_keep_typed_text(page: Page, tmp_path: Path) -> None:
    pick(page, MATH)
    text(page, 1).fill("My own condition.")
    unfold(page)
    page.get_by_role("button", name="Paste multiple documents").click()
    page.locator("#pasted textarea").fill(PROBLEM)
    page.locator("#split-problem").click()
    message = page.locator("#documents-message")
    expect(message).to_contain_text("3 conditions")
    expect(text(page, 3)).to_have_value("She pays 15 euros for the stall.")
    expect(page.locator(QUESTION)).to_have_value("How many euros does she have left?")
    page.locator("#undo-documents").click()
    expect(text(page, 1)).to_have_value("My own condition.")
    expect(page.locator("#pasted textarea")).to_have_value(PROBLEM)

    broken = tmp_path / "rows.csv"
    broken.write_text("name\nx\n")
    give(page, "#add-files", broken)
    expect(message.get_by_role("alert")).to_contain_text("File rows.csv has no column 'text'")
    expect(text(page, 1)).to_have_value("My own condition.")
    (tmp_path / "tides.txt").write_text("The Moon pulls the sea.")
    (tmp_path / "wind.md").write_text("Air moves.")
    give(page, "#add-files", tmp_path / "tides.txt", tmp_path / "wind.md")
    expect(message).to_contain_text("Added 2 documents from 2 files.")
    count = len(MATH.documents) + 2
    expect(text(page, count)).to_have_value("Air moves.")

    choose(page, "Task", "Question over documents")
    expect(page.get_by_label(f"Title, document in slot {count}", exact=True)).to_have_value("wind")
    expect(page.locator("#split-problem")).to_be_hidden()
    expect(text(page, 1)).to_have_value("My own condition.")
