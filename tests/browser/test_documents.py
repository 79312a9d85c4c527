"""The documents of the form: the browser moves, adds, removes and brings back their cards."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, ViewportSize, expect

from tests.browser.driving import (
    DEFAULT,
    LONG,
    SHORT,
    choose,
    cut_off,
    give,
    pick,
    save,
    text,
    unfold,
)
from tests.browser.test_accessibility import paint, violations

PHONE: ViewportSize = {"width": 390, "height": 844}

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


@pytest.fixture(autouse=True)
def cards(page: Page) -> None:
    """Wait for the documents; a click ends the animation of their orders."""
    expect(text(page, len(DEFAULT.documents))).to_be_visible()
    page.mouse.click(1, 1)


def letters(page: Page) -> list[str]:
    return page.locator("#documents .pine-badge").all_inner_texts()


def texts(page: Page) -> list[str]:
    return [field.input_value() for field in page.locator("#documents .page-text").all()]


def card(page: Page, slot: int) -> Locator:
    return page.locator(f".page-card-{slot}")


def drag(page: Page, slot: int, onto: int) -> None:
    """Takes a card by its handle to the far edge of another, and holds it."""
    page.locator("#documents").evaluate("node => node.scrollIntoView({ block: 'center' })")  # at no edge
    grip = card(page, slot).locator(".page-grip")
    grip.hover(position={"x": 4, "y": 8})  # once nothing moves it any more
    page.mouse.down()
    expect(page.locator(".page-dragged")).to_have_count(1)
    handle, other = grip.bounding_box(), card(page, onto).bounding_box()
    assert handle and other
    beside = abs(other["y"] - handle["y"]) < other["height"]
    if beside:
        page.mouse.move(other["x"] + (other["width"] - 6 if onto > slot else 6), handle["y"] + 8, steps=8)
    else:
        page.mouse.move(handle["x"] + 4, other["y"] + (other["height"] - 6 if onto > slot else 6), steps=8)


def saved(page: Page, folder: Path) -> list[dict[str, Any]]:
    """The documents as the server has them."""
    session = json.loads(save(page, page.locator("#save-session"), folder).read_text())
    documents: list[dict[str, Any]] = session["documents"]
    return documents


def test_no_step_loses_a_text_or_a_letter(page: Page, tmp_path: Path) -> None:
    for step in page.evaluate(RANDOM_STEPS):
        before, after = step["before"], step["after"]
        expected = [chr(ord("A") + index) for index in range(len(after))]
        assert sorted(one["letter"] for one in after) == expected
        assert all(one["title"][6:] == one["text"][5:] for one in after if one["title"])
        if step["kind"] != "type":
            gone = {one["text"] for one in before} - {one["text"] for one in after}
            assert len(gone) <= 1
    shown = [(ord(letter) - ord("A"), text) for letter, text in zip(letters(page), texts(page), strict=True)]
    assert [(one["letter"], one["text"]) for one in saved(page, tmp_path)] == shown


def test_a_card_is_dragged_to_another_slot(page: Page, tmp_path: Path) -> None:
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


def test_keys_move_the_card_and_the_caret_stays(page: Page) -> None:
    field = text(page, 1)
    field.focus()
    page.keyboard.press("Home")
    page.keyboard.type("Now ")
    page.keyboard.press("Alt+ArrowRight")
    assert letters(page) == ["B", "A", "C"]
    expect(text(page, 2)).to_be_focused()
    page.keyboard.type("then ")
    expect(text(page, 2)).to_have_value(f"Now then {DEFAULT.documents[0].text}")
    expect(page.locator("#documents [role=status]")).to_have_text("Moved Document A to slot 2 of 3.")
    page.keyboard.press("Alt+ArrowLeft")
    page.keyboard.press("Alt+ArrowLeft")
    assert letters(page) == ["A", "B", "C"]


@pytest.mark.slow
def test_a_button_keeps_the_focus_when_its_card_moves_or_goes(page: Page) -> None:
    up = card(page, 3).get_by_role("button", name="Earlier: Document C")
    up.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert letters(page) == ["C", "A", "B"]
    focused = page.locator(":focus")
    expect(focused).to_have_attribute("aria-label", "Earlier: Document C")
    expect(focused).to_be_disabled()
    card(page, 2).get_by_role("button", name="Remove").press("Enter")
    expect(page.locator(":focus")).to_have_attribute("aria-label", "Remove: Document A")
    page.keyboard.press("Control+z")
    assert letters(page) == ["C", "A", "B"]
    page.keyboard.press("Control+Shift+z")
    assert letters(page) == ["B", "A"]
    page.locator("#add-document").press("Enter")
    expect(text(page, 3)).to_be_focused()


def test_undo_brings_back_what_an_example_replaced(page: Page) -> None:
    text(page, 2).fill("typed here")
    pick(page, SHORT)
    pick(page, LONG)
    page.locator("#undo-documents").click()
    assert texts(page)[1] == "typed here" and len(texts(page)) == 3
    page.locator("#redo-documents").click()
    assert texts(page) == [document.text for document in LONG.documents]


@pytest.mark.slow
def test_what_is_typed_while_files_are_read_stays(page: Page, tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_a_judge_has_no_titles_and_names_whose_answer_it_is(page: Page) -> None:
    unfold(page)
    choose(page, "Task", "Judge")
    expect(card(page, 1)).to_contain_text("Answer of assistant A")
    expect(page.get_by_label("Text, answer in slot 1")).to_be_visible()
    expect(card(page, 1).locator(".page-title")).to_be_hidden()
    expect(page.locator("#add-document")).to_have_text("Add an answer")


@pytest.mark.slow
def test_a_phone_has_room_for_the_cards(page: Page) -> None:
    page.set_viewport_size(PHONE)
    unfold(page)
    text(page, 1).fill("word " * 60 + "unbreakable" * 12)
    for slot in (1, 2, 3):
        box = card(page, slot).bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    assert cut_off(page) == 0
    boxes = [box for box in (card(page, slot).bounding_box() for slot in (1, 2, 3)) if box]
    assert all(above["y"] + above["height"] <= below["y"] for above, below in pairwise(boxes))
    drag(page, 1, onto=2)
    page.mouse.up()
    assert letters(page) == ["B", "A", "C"]


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious_in_the_cards(page: Page, dark: bool) -> None:
    unfold(page)
    choose(page, "Task", "Judge")
    card(page, 2).get_by_role("button", name="Earlier").click()
    paint(page, dark=dark)
    assert violations(page, "#documents") == []
    paint(page, dark=False)


@pytest.mark.slow
def test_restarted_server_receives_the_current_documents(page: Page, tmp_path: Path) -> None:
    text(page, 1).fill("typed before")
    card(page, 2).get_by_role("button", name="Earlier").click()

    def send(route: Route) -> None:
        """As one of a session that the server does not know."""
        route.continue_(post_data=_of_another(route.request.post_data))

    page.route("**/gradio_api/**", send)
    documents = saved(page, tmp_path)
    assert [one["letter"] for one in documents] == [1, 0, 2] and documents[1]["text"] == "typed before"
    page.unroute_all(behavior="wait")


def _of_another(body: str | None) -> str | None:
    if not body or "session_hash" not in body:
        return body
    return json.dumps(json.loads(body) | {"session_hash": "unknown"})
