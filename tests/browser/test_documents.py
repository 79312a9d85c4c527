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
    SHORT,
    card,
    choose,
    drag,
    give,
    letters,
    pick,
    save,
    share,
    text,
    texts,
    title,
    unfold,
)

MATH = next(example for example in EXAMPLES if example.task == "math_reasoning")

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
    """Return the documents of the server."""
    session = json.loads(save(page, share(page, "Save session"), folder).read_text())
    documents: list[dict[str, Any]] = session["documents"]
    return documents


@pytest.mark.slow
def test_moved_documents_keep_their_texts_and_letters(page: Page, tmp_path: Path) -> None:
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
def test_typed_text_outlasts_edits_and_slow_servers(page: Page, tmp_path: Path) -> None:
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

    card(page, 3).get_by_role("button", name="Earlier: Document C").focus()
    page.keyboard.press("Enter")
    assert texts(page) == ["first text", "third text", "second text"]
    expect(title(page, 3)).to_have_value("second title")
    expect(title(page, 2)).to_have_value("")
    page.keyboard.press("Enter")
    assert letters(page) == ["C", "A", "B"]
    focused = page.locator(":focus")
    expect(focused).to_have_attribute("aria-label", "Earlier: Document C")
    expect(focused).to_be_disabled()
    card(page, 2).get_by_role("button", name="Remove").press("Enter")
    expect(card(page, 3)).to_be_hidden()
    expect(focused).to_have_attribute("aria-label", "Remove: Document A")
    page.keyboard.press("Control+z")
    assert letters(page) == ["C", "A", "B"]
    page.keyboard.press("Control+Shift+z")
    assert letters(page) == ["B", "A"]
    text(page, 2).press_sequentially(" and more")
    page.locator("#undo-documents").click()
    assert texts(page) == ["third text", "first text", "second text and more"]

    assert_late_answers_keep_typed_text(page, tmp_path)
    assert_unknown_session_gets_current_documents(page, tmp_path)
    assert_files_keep_typed_text(page, tmp_path)


def assert_late_answers_keep_typed_text(page: Page, folder: Path) -> None:
    file = folder / "notes.txt"
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
    expect(field).to_have_value("third text one two three four")
    expect(field).to_be_focused()
    page.unroute_all(behavior="wait")


def assert_unknown_session_gets_current_documents(page: Page, folder: Path) -> None:
    """The server that answers may be another one, or may have been restarted."""

    def send_as_unknown(route: Route) -> None:
        body = route.request.post_data
        if body and "session_hash" in body:
            body = json.dumps(json.loads(body) | {"session_hash": "unknown"})
        route.continue_(post_data=body)

    card(page, 2).get_by_role("button", name="Earlier").click()
    page.route("**/gradio_api/**", send_as_unknown)
    documents = saved(page, folder)
    assert [document["letter"] for document in documents] == [0, 2, 1, 3]
    assert documents[1]["text"].endswith(" one two three four")
    page.unroute_all(behavior="wait")


def assert_files_keep_typed_text(page: Page, folder: Path) -> None:
    pick(page, MATH)
    text(page, 1).fill("My own condition.")
    message = page.locator("#documents-message")
    broken = folder / "rows.csv"
    broken.write_text("name\nx\n")
    give(page, "#add-files", broken)
    expect(message.get_by_role("alert")).to_contain_text("File rows.csv has no column 'text'")
    (folder / "tides.txt").write_text("The Moon pulls the sea.")
    (folder / "wind.md").write_text("Air moves.")
    give(page, "#add-files", folder / "tides.txt", folder / "wind.md")
    expect(message).to_contain_text("Added 2 documents from 2 files.")
    count = len(MATH.documents) + 2
    expect(text(page, count)).to_have_value("Air moves.")
    choose(page, "Task", "Question over documents")
    expect(title(page, count)).to_have_value("wind")
    expect(text(page, 1)).to_have_value("My own condition.")
