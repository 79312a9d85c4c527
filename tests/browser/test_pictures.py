"""Pictures of a finished run in a browser: what is drawn, what is told, what is picked, what is saved."""

import csv
import io
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.driving import SHORT, control, open_tab, picture, save
from viz.drawing.numbers import format_value

LAYERS, HEADS = 30, 9  # of SmolLM2-135M
DOCUMENTS = len(SHORT.documents)
SVG = "{http://www.w3.org/2000/svg}"

# Cells that may be read, by hand: SYS, A, B and the suffix, queries down; the diagonal is causal.
READABLE = {
    "Vanilla": 6,
    "NIA": 5,
    "PCW": 5,
    "SP": 5,
    "PINE": 7,
    "Mask only": 7,
    "Re-assignment only": 6,
}


def readout(shown: Locator) -> Locator:
    """The line of a picture that tells what is pointed at."""
    return shown.locator(".pine-readout")


@pytest.fixture
def offline(browser: Browser) -> Iterator[Page]:
    """A page of another browser window, without a network; fails on any request but that for its own file."""
    asked: list[str] = []
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: asked.append(str(error)))
    yield page
    assert asked == [page.url]
    context.close()


# What is drawn -----------------------------------------------------------------------------------------


def test_every_mask_has_a_cell_for_every_pair_of_segments(drawn: Page) -> None:
    cards = drawn.locator("#masks .pine-mask")
    expect(cards).to_have_count(len(READABLE))
    for card, (method, readable) in zip(cards.all(), READABLE.items(), strict=True):
        expect(card.locator("caption")).to_contain_text(method)
        expect(card.locator("td.pine-causal")).to_have_count(4)
        expect(card.locator("td.pine-allowed")).to_have_count(readable)
        expect(card.locator("td.pine-masked")).to_have_count(12 - readable)


def test_positions_have_a_row_a_query_and_a_ruler_a_method(drawn: Page) -> None:
    open_tab(drawn, "Positions")
    grid = picture(drawn, "position-grid")
    expect(grid.locator("tbody tr")).to_have_count(DOCUMENTS + 1)
    expect(grid.locator("td.pine-number")).to_have_count((DOCUMENTS + 1) * DOCUMENTS)
    rulers = picture(drawn, "position-methods").locator(".pine-ruler-row:has(.pine-ruler-track)")
    for ruler in rulers.all():
        expect(ruler.locator(".pine-block:not(.pine-block-prefix)")).to_have_count(DOCUMENTS)
    for method in ("Vanilla", "NIA", "PCW", "PINE"):
        expect(rulers.filter(has_text=re.compile(f"^\\s*{method}\\b"))).to_have_count(1)


def test_importance_has_a_cell_a_head_and_a_row_an_answer_token(drawn: Page) -> None:
    open_tab(drawn, "Importance")
    expect(picture(drawn, "decisive-heads").locator("tbody td")).to_have_count(LAYERS * HEADS)
    documents = picture(drawn, "importance-of-documents")
    expect(documents.locator("tbody td:not(.pine-masked)")).to_have_count(DOCUMENTS * (DOCUMENTS - 1))
    expect(documents.locator("tbody td.pine-masked")).to_have_count(DOCUMENTS)
    written = picture(drawn, "importance-while-writing")
    words = written.locator(".pine-answer-tokens button").count()
    assert 0 < words <= 16
    expect(written.locator("tbody td")).to_have_count(words * DOCUMENTS)


def test_single_tokens_stay_open_while_a_query_is_chosen(drawn: Page) -> None:
    drawn.locator("#masks").get_by_text("Show single tokens").click()
    tokens = drawn.locator("#masks .pine-token-mask")
    expect(tokens).to_be_visible()
    rows, keys = tokens.locator("tbody tr"), tokens.locator("thead tr").nth(1).locator("th")
    expect(tokens.locator("tbody td")).to_have_count(rows.count() * keys.count())
    rows.filter(has_text="B").locator(".pine-row-pick").first.press("Enter")
    expect(control(drawn, "Query: whose view")).to_have_value(re.compile("^Document B"))
    expect(tokens.locator("tr.pine-selected")).to_contain_text("B")
    # The row is another element now, because the window has moved.
    expect(tokens.locator("tr.pine-selected .pine-row-pick")).to_be_focused()
    expect(tokens).to_be_visible()
    drawn.locator("#masks").get_by_text("Show single tokens").click()


def test_the_focus_follows_the_query_whose_row_is_made_into_another(drawn: Page) -> None:
    open_tab(drawn, "Positions")
    drawn.locator("#positions").get_by_text("Show single tokens").click()
    tokens = drawn.locator("#positions .pine-positions")
    # So near the end that rows of the question stay rows of the question when the window moves.
    word = tokens.locator(".pine-row-pick", has_text="built").first
    picked = word.get_attribute("data-pick")
    word.press("Enter")
    expect(tokens.locator("tr.pine-selected .pine-row-pick")).to_have_attribute("data-pick", picked or "")
    expect(tokens.locator("tr.pine-selected .pine-row-pick")).to_be_focused()
    drawn.locator("#positions").get_by_text("Show single tokens").click()


# What is told ------------------------------------------------------------------------------------------


def test_pointing_at_a_cell_tells_what_it_is(drawn: Page) -> None:
    masks = picture(drawn, "masks")
    rest = readout(masks).inner_text()
    vanilla = masks.locator(".pine-mask").first
    vanilla.locator("tbody tr").nth(1).locator("td").nth(2).hover()
    expect(readout(masks)).to_have_text(
        re.compile(r"^Vanilla: document A.* may not read document B.*, it is masked\.$")
    )
    vanilla.locator("tbody tr").nth(2).locator("td").nth(1).hover()
    expect(readout(masks)).to_have_text(re.compile(r"^Vanilla: document B.* may read document A"))
    drawn.mouse.move(0, 0)
    expect(readout(masks)).to_have_text(rest)

    open_tab(drawn, "Importance")
    heads = picture(drawn, "decisive-heads")
    heads.locator("tbody tr").nth(2).locator("td").nth(5).hover()
    value = json.loads(heads.locator(".pine-numbers").text_content() or "")["rows"][2][6]
    expect(readout(heads)).to_have_text(f"layer 5, head 2: spread of shares {format_value(value)}")


# What is picked ----------------------------------------------------------------------------------------


def test_a_query_is_chosen_by_keyboard_and_seen_everywhere(drawn: Page) -> None:
    query = control(drawn, "Query: whose view")
    first = query.input_value()
    row = drawn.locator("#masks .pine-mask").first.locator(".pine-row-pick[tabindex='0']")
    row.focus()
    drawn.keyboard.press("ArrowUp")
    drawn.keyboard.press("ArrowUp")
    focused = drawn.locator("#masks .pine-row-pick:focus")
    expect(focused).to_contain_text("A")
    expect(readout(picture(drawn, "masks"))).to_contain_text("document A")
    drawn.keyboard.press("Enter")
    expect(query).to_have_value(re.compile("^Document A"))
    expect(drawn.locator("#masks .pine-mask tr.pine-selected")).to_have_count(len(READABLE))
    # The picture has been drawn anew, and the keyboard is where it was.
    expect(focused).to_have_attribute("aria-pressed", "true")
    open_tab(drawn, "Positions")
    expect(picture(drawn, "position-ruler")).to_contain_text("what the last token of document A")
    open_tab(drawn, "Importance")
    expect(picture(drawn, "importance-of-documents").locator("tr.pine-selected")).to_contain_text("A")
    drawn.keyboard.press("Escape")
    expect(query).to_have_value(first)
    expect(picture(drawn, "importance-of-documents").locator("tr.pine-selected")).to_have_count(0)


def test_keys_step_through_the_queries_and_the_lesson(drawn: Page) -> None:
    query = control(drawn, "Query: whose view")
    query.click()
    names = drawn.get_by_role("option").all_inner_texts()
    drawn.get_by_role("option").nth(1).click()
    # Keys step from what is drawn, not from what the list says already.
    expect(drawn.locator("#masks .pine-mask tr.pine-selected").first).to_contain_text("B")
    drawn.evaluate("document.activeElement.blur()")
    drawn.keyboard.press("Alt+Period")
    expect(query).to_have_value(names[2].strip())
    expect(drawn.locator("#query-said [role=status]")).to_have_text(f"Query: {names[2].strip()}")
    drawn.keyboard.press("Alt+Comma")
    expect(query).to_have_value(names[1].strip())

    open_tab(drawn, "Lesson")
    said = drawn.locator("#lesson .pine-lesson-step:visible .pine-lesson-count")
    drawn.locator("#lesson [data-turn='1']").focus()
    drawn.keyboard.press("Alt+Period")
    expect(said).to_have_text("Step 2 of 8")
    drawn.keyboard.press("Alt+Comma")
    expect(said).to_have_text("Step 1 of 8")
    drawn.locator("#question textarea").press("Alt+Period")
    assert query.input_value() == names[1].strip()  # there the keys write


def test_a_head_is_chosen_by_click_and_stays_from_tab_to_tab(drawn: Page) -> None:
    open_tab(drawn, "Importance")
    picture(drawn, "decisive-heads").locator("tbody tr").nth(4).locator("td").nth(7).click()
    layer, head = control(drawn, "Layer"), control(drawn, "Head")
    expect(layer).to_have_value("layer 7")
    expect(head).to_have_value("head 4")
    for tab, name in (("Positions", "position-ruler"), ("Importance", "importance-while-writing")):
        open_tab(drawn, tab)
        expect(picture(drawn, name).locator("figcaption")).to_contain_text(
            re.compile("layer 7, head 4", re.IGNORECASE)
        )
    expect(layer).to_have_value("layer 7")
    expect(head).to_have_value("head 4")


def test_a_word_of_the_answer_chooses_its_step(drawn: Page) -> None:
    open_tab(drawn, "Importance")
    written = picture(drawn, "importance-while-writing")
    words = written.locator(".pine-answer-tokens button")
    words.nth(2).click()
    expect(words.nth(2)).to_have_attribute("aria-pressed", "true")
    expect(control(drawn, "Query: whose view")).to_have_value("Answer token 2")  # which writes the third
    expect(written.locator("tr.pine-selected")).to_have_attribute("class", re.compile("pine-row"))
    expect(written.locator("tbody tr").nth(2)).to_have_class(re.compile("pine-selected"))
    expect(picture(drawn, "attention-by-document")).to_contain_text("while writing token 3")
    open_tab(drawn, "What changed")
    expect(picture(drawn, "answers").locator(".pine-chip.pine-chosen").first).to_contain_text("token 3")


def test_an_answer_is_compared_with_the_orders_that_were_tried(drawn: Page) -> None:
    open_tab(drawn, "What changed")
    orders = drawn.get_by_role("group", name="Or with the same method, order").get_by_role("button")
    expect(orders).to_have_count(1)
    orders.first.click()
    expect(orders.first).to_have_attribute("aria-pressed", "true")
    cards = picture(drawn, "answers").locator(".pine-card")
    letters = [card.locator(".pine-badge").all_inner_texts() for card in cards.all()]
    assert letters == [["A", "B"], ["B", "A"]]
    expect(picture(drawn, "answers").locator(".pine-score")).to_contain_text("same")


# What is saved -----------------------------------------------------------------------------------------


def saved(page: Page, name: str, form: str, folder: Path) -> Path:
    """The file that a picture saves itself as."""
    path = save(page, picture(page, name).get_by_role("button", name=f"Save as {form}"), folder)
    assert path.name == f"{name}.{form.lower()}"
    return path


def test_numbers_are_saved_as_they_are_drawn(drawn: Page, tmp_path: Path) -> None:
    open_tab(drawn, "Importance")
    name = "importance-while-writing"
    numbers = json.loads(saved(drawn, name, "JSON", tmp_path).read_text())
    table = list(csv.reader(io.StringIO(saved(drawn, name, "CSV", tmp_path).read_text())))
    assert numbers["columns"] == table[0] == ["step", "token", "A", "B"]
    values = [row[2:] for row in numbers["rows"]]
    assert [[float(field) for field in row[2:]] for row in table[1:]] == values
    cells = picture(drawn, name).locator("tbody td").all_inner_texts()
    assert [format_value(value) for row in values for value in row] == cells


def test_a_picture_is_saved_as_a_drawing_of_itself(drawn: Page, tmp_path: Path) -> None:
    open_tab(drawn, "Importance")
    name = "importance-while-writing"
    drawing = ElementTree.parse(saved(drawn, name, "SVG", tmp_path)).getroot()
    words = [text.text for text in drawing.iter(f"{SVG}text")]
    cells = picture(drawn, name).locator("tbody td").all_inner_texts()
    assert {"A", "B", *cells} <= set(words)
    assert len(list(drawing.iter(f"{SVG}rect"))) > len(cells)
    png = saved(drawn, name, "PNG", tmp_path).read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (
        2 * int(drawing.attrib["width"]),
        2 * int(drawing.attrib["height"]),
    )


def test_masks_are_drawn_as_masks_when_saved(drawn: Page, tmp_path: Path) -> None:
    drawing = ElementTree.parse(saved(drawn, "masks", "SVG", tmp_path)).getroot()
    hatched = [rect for rect in drawing.iter(f"{SVG}rect") if rect.get("fill") == "url(#hatch)"]
    shown = picture(drawn, "masks").locator(".pine-masked:visible")
    assert len(hatched) == shown.count()
    words = [text.text for text in drawing.iter(f"{SVG}text")]
    assert words.count("SYS") == 2 * len(READABLE)


def test_a_saved_page_needs_nothing_and_nobody(drawn: Page, offline: Page, tmp_path: Path) -> None:
    path = saved(drawn, "masks", "HTML", tmp_path)
    offline.goto(path.as_uri())
    expect(offline.locator(".pine-mask")).to_have_count(len(READABLE))
    expect(offline.locator("td.pine-allowed")).to_have_count(sum(READABLE.values()))
    colour = "node => getComputedStyle(node).backgroundColor"
    assert offline.locator("td.pine-allowed").first.evaluate(colour) == drawn.locator(
        "#masks td.pine-allowed"
    ).first.evaluate(colour)
    offline.get_by_text("As a table").click()
    expect(offline.locator(".pine-numbers-table tbody tr")).to_have_count(4 * len(READABLE))
    assert offline.locator("button[data-save], script").count() == 0
