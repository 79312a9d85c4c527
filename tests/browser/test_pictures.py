"""Figures of a finished run in a browser: drawing, hover text, selection, download."""

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

from tests.browser.driving import (
    RUN_MS,
    SHORT,
    click_cell,
    control,
    numbers,
    open_tab,
    picture,
    plot,
    save,
)

LAYERS, HEADS = 30, 9  # of SmolLM2-135M
DOCUMENTS = len(SHORT.documents)
SVG = "{http://www.w3.org/2000/svg}"


def readout(shown: Locator) -> Locator:
    """The line of a picture that tells what is pointed at."""
    return shown.locator(".pine-readout")


@pytest.fixture
def offline(browser: Browser) -> Iterator[Page]:
    """A page of another browser window, without a network; fails on any request but that for its own file."""
    sent_request: list[str] = []
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.on("request", lambda request: sent_request.append(request.url))
    page.on("pageerror", lambda error: sent_request.append(str(error)))
    yield page
    assert sent_request == [page.url]
    context.close()


# What is drawn -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
def test_no_room_is_left_below_squares_of_tokens(drawn: Page, width: int) -> None:
    drawn.set_viewport_size({"width": width, "height": 900})
    masks = plot(drawn, "token-masks")
    around = masks.bounding_box()
    drawn_last = masks.locator(".heatmaplayer image").last.bounding_box()
    assert around and drawn_last
    assert abs(drawn_last["width"] - drawn_last["height"]) < 6
    left = around["y"] + around["height"] - drawn_last["y"] - drawn_last["height"]
    assert 0 < left < 96


def test_positions_have_a_row_a_layer_and_a_row_a_method(drawn: Page) -> None:
    open_tab(drawn, "RoPE positions")
    bars = [row for row in numbers(drawn, "figure-positions") if row[0].startswith("document")]
    assert len(bars) == DOCUMENTS * LAYERS
    drawn.get_by_role("button", name="heads", exact=True).click()
    expect(plot(drawn, "positions").locator(".ytick")).to_have_count(HEADS)
    drawn.get_by_role("button", name="layers", exact=True).click()
    methods = plot(drawn, "method-positions").locator(".ytick")  # from below
    expect(methods).to_have_text(["PINE", "PCW", "NIA", "Vanilla"])
    queries = [row[1] for row in numbers(drawn, "figure-position-map")]
    assert queries[: DOCUMENTS + 1] == ["A", "B", "answer 1"]


def test_importance_has_a_cell_a_head_and_a_row_an_answer_token(drawn: Page) -> None:
    open_tab(drawn, "Document importance")
    heads = numbers(drawn, "figure-decisive-heads")
    assert [len(row) for row in heads] == [LAYERS + 2] * HEADS
    documents = [row[2:] for row in numbers(drawn, "figure-importance")]
    assert [[cell == "–" for cell in row] for row in documents] == [[True, False], [False, True]]
    written = numbers(drawn, "figure-answer-importance")
    assert 0 < len(written) <= 16 and {len(row) for row in written} == {DOCUMENTS + 2}
    assert len(numbers(drawn, "figure-attention-shares")) == DOCUMENTS + 2


@pytest.mark.slow
def test_masks_are_drawn_token_by_token_over_the_whole_prompt(drawn: Page) -> None:
    masks = plot(drawn, "token-masks")
    expect(masks.locator(".heatmaplayer image")).to_have_count(3)
    drawn.locator("#figure-token-masks").scroll_into_view_if_needed()
    # Somewhere in the documents: the last third of what stands before the question.
    click_cell(masks, 11, 2, 20, 20)
    expect(control(drawn, "Query token")).to_have_value(re.compile("^Document"))


@pytest.mark.slow
def test_attention_is_computed_on_request(drawn: Page) -> None:
    open_tab(drawn, "Attention")
    drawn.locator("#attend").click()
    expect(drawn.locator("#attend-status")).to_contain_text("Done: layer", timeout=RUN_MS)
    weights = plot(drawn, "attention")
    expect(weights.locator(".heatmaplayer image")).to_have_count(2)
    expect(drawn.locator("#stop-attend")).to_be_disabled()
    weights.focus()
    for key in ("Home", *["PageUp"] * 20, *["PageDown"] * 3, *["ArrowRight"] * 3):
        drawn.keyboard.press(key)
    message = drawn.locator("#figure-attention [role=status]")
    expect(message).to_contain_text("Vanilla: query")
    drawn.keyboard.press("+")
    drawn.keyboard.press("Enter")
    expect(control(drawn, "Query token")).to_have_value(re.compile("^Document"))
    expect(weights).to_be_focused()
    # What is drawn is not what is chosen any more, and stays.
    control(drawn, "Layer").click()
    drawn.get_by_role("option", name="layer 1", exact=True).click()
    expect(drawn.locator("#attention")).to_contain_text("Click “Compute attention”")
    expect(weights.locator(".heatmaplayer image")).to_have_count(2)
    weights.press("Escape")


# Hover text ---------------------------------------------------------------------------------------------


def test_keys_walk_over_the_cells_of_a_figure(drawn: Page) -> None:
    open_tab(drawn, "Document importance")
    heads = plot(drawn, "decisive-heads")
    heads.focus()
    for key in ("Home", "PageUp", *["ArrowDown"] * 2, *["ArrowRight"] * 5):
        drawn.keyboard.press(key)
    expect(drawn.locator("#figure-decisive-heads [role=status]")).to_contain_text("layer 5, head 2")


# What is picked ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_query_is_selected_by_keyboard_and_marked_in_every_figure(drawn: Page) -> None:
    query = control(drawn, "Query token")
    first = query.input_value()
    masks = plot(drawn, "token-masks")
    masks.focus()
    for key in ("Home", *["PageUp"] * 20, *["PageDown"] * 3, "Enter"):
        drawn.keyboard.press(key)
    expect(query).to_have_value(re.compile("^Document"))
    expect(masks).to_be_focused()
    open_tab(drawn, "Document importance")
    chosen = plot(drawn, "importance").locator(".shapelayer path")
    expect(chosen).to_have_count(1)
    drawn.keyboard.press("Escape")
    expect(query).to_have_value(first)
    expect(chosen).to_have_count(0)


@pytest.mark.slow
def test_keys_step_through_the_queries_and_the_lesson(drawn: Page) -> None:
    query = control(drawn, "Query token")
    query.click()
    names = drawn.get_by_role("option").all_inner_texts()
    drawn.get_by_role("option").nth(1).click()
    expect(query).to_have_value(names[1].strip())
    drawn.wait_for_timeout(500)  # keys step from what is drawn
    drawn.evaluate("document.activeElement.blur()")
    drawn.keyboard.press("Alt+Period")
    expect(query).to_have_value(names[2].strip())
    expect(drawn.locator("#query-said [role=status]")).to_have_text(f"Query: {names[2].strip()}")
    drawn.keyboard.press("Alt+Comma")
    expect(query).to_have_value(names[1].strip())

    open_tab(drawn, "Tutorial")
    message = drawn.locator("#lesson .pine-lesson-step:visible .pine-lesson-count")
    drawn.locator("#lesson [data-turn='1']").focus()
    # Others who share the page may have left the lesson elsewhere.
    for step in range(int(message.inner_text().split()[1]) - 1, 0, -1):
        drawn.keyboard.press("Alt+Comma")
        expect(message).to_have_text(f"Step {step} of 9")
    drawn.keyboard.press("Alt+Period")
    expect(message).to_have_text("Step 2 of 9")
    drawn.keyboard.press("Alt+Comma")
    expect(message).to_have_text("Step 1 of 9")
    drawn.locator("#question textarea").press("Alt+Period")
    open_tab(drawn, "Attention masks")
    assert query.input_value() == names[1].strip()  # there the keys write


@pytest.mark.slow
def test_of_quick_picks_every_one_counts(drawn: Page) -> None:
    query = control(drawn, "Query token")
    sent: list[str] = []
    drawn.on("request", lambda request: sent.append(request.post_data or ""))
    drawn.evaluate("[{ layer: 3 }, { layer: 7 }, { query: 'document 0' }, { turn: 1 }].forEach(pinePick)")
    expect(query).to_have_value(re.compile("^Document B"))
    expect(control(drawn, "Layer")).to_have_value("layer 7")
    assert len([body for body in sent if "document 0" in body]) == 1  # of several any may be shown last
    for layer in (4, 5, 6):
        drawn.evaluate(f"pinePick({{ layer: {layer} }})")
    expect(control(drawn, "Layer")).to_have_value("layer 6")
    drawn.keyboard.press("Escape")


def test_a_head_is_chosen_by_click_or_key_and_stays_from_tab_to_tab(drawn: Page) -> None:
    open_tab(drawn, "Document importance")
    heads = plot(drawn, "decisive-heads")
    click_cell(heads, 4, 7, HEADS, LAYERS)
    layer, head = control(drawn, "Layer"), control(drawn, "Head")
    expect(layer).to_have_value("layer 7")
    expect(head).to_have_value("head 4")
    heads.focus()
    drawn.keyboard.press("ArrowRight")  # from where the mouse has been
    drawn.keyboard.press("Enter")
    expect(layer).to_have_value("layer 8")
    expect(heads).to_be_focused()
    for tab, place in (("RoPE positions", "position-map"), ("Document importance", "answer-importance")):
        open_tab(drawn, tab)
        title = drawn.locator(f"#figure-{place} .pine-figure-title")
        expect(title).to_contain_text("layer 8, head 4")
    expect(head).to_have_value("head 4")


@pytest.mark.slow
def test_a_zoom_outlives_another_head_and_another_scale(drawn: Page) -> None:
    open_tab(drawn, "Document importance")
    heads = plot(drawn, "decisive-heads")
    ticks = heads.locator(".xtick")
    every = ticks.count()
    heads.focus()
    drawn.keyboard.press("ArrowRight")
    drawn.keyboard.press("+")
    expect(ticks).not_to_have_count(every)
    near = ticks.all_inner_texts()
    drawn.get_by_role("button", name="log scale", exact=True).click()
    expect(drawn.locator("#figure-importance")).to_contain_text("log10(importance)")
    assert ticks.all_inner_texts() == near
    heads.press("0")
    expect(ticks).to_have_count(every)


@pytest.mark.slow
def test_a_token_of_the_answer_chooses_its_step(drawn: Page) -> None:
    open_tab(drawn, "Document importance")
    words = len(numbers(drawn, "figure-answer-importance"))
    click_cell(plot(drawn, "answer-importance"), 2, 0, words, DOCUMENTS)
    expect(control(drawn, "Query token")).to_have_value(re.compile("^Answer token 3"))
    title = drawn.locator("#figure-attention-shares .pine-figure-title")
    expect(title).to_contain_text("answer token 3")
    open_tab(drawn, "Compare answers")
    expect(picture(drawn, "answers").locator(".pine-chip.pine-chosen").first).to_contain_text("token 3")


@pytest.mark.slow
def test_an_answer_is_compared_with_the_orders_that_were_tried(drawn: Page) -> None:
    open_tab(drawn, "Compare answers")
    orders = drawn.get_by_role("group", name="Or with another order").get_by_role("button")
    expect(orders).to_have_count(1)
    orders.first.click()
    expect(orders.first).to_have_attribute("aria-pressed", "true")
    cards = picture(drawn, "answers").locator(".pine-card")
    letters = [card.locator(".pine-badge").all_inner_texts() for card in cards.all()]
    assert letters == [["A", "B"], ["B", "A"]]
    expect(picture(drawn, "answers").locator(".pine-score")).to_contain_text("Identical")
    for place in ("likely-tokens", "token-shares", "answer-shares"):
        expect(drawn.locator(f"#figure-{place} figcaption")).to_contain_text("exactly 0")
    rows = numbers(drawn, "figure-answer-shares")
    assert [row[2] for row in rows] == ["prefix", "A, slot 1 → 2", "B, slot 2 → 1", "question"] * 2
    assert [row[1] for row in rows[:4]] == [row[1] for row in rows[4:]]


@pytest.mark.slow
def test_bars_of_two_answers_are_walked_and_drawn_again_in_place(drawn: Page) -> None:
    open_tab(drawn, "Compare answers")
    drawn.get_by_role("group", name="Compare with").get_by_role("button", name="Vanilla", exact=True).click()
    bars = plot(drawn, "token-shares")
    expect(bars.locator(".ytick")).to_have_text(["prefix", "A", "B", "question"])
    expect(bars.locator(".legendtext")).to_have_text(["PINE", "Vanilla"])  # another was compared with before
    bars.focus()
    drawn.keyboard.press("ArrowDown")
    message = drawn.locator("#figure-token-shares [role=status]")
    expect(message).to_have_text(re.compile(r"^PINE, A: \S+%, \S+ pp vs. Vanilla$"))
    drawn.keyboard.press("ArrowRight")
    expect(message).to_contain_text("vs. PINE")
    drawn.evaluate("pinePick({ with_prefix: false })")
    expect(bars.locator(".ytick")).to_have_text(["A", "B", "question"])
    expect(bars).to_be_focused()
    drawn.keyboard.press("Escape")
    expect(bars.locator(".ytick")).to_have_count(4)


# What is saved -----------------------------------------------------------------------------------------


def saved(page: Page, name: str, form: str, folder: Path) -> Path:
    """The file that a picture saves itself as."""
    button = picture(page, name).get_by_role("button", name=f"Export as {form}")
    if not button.is_visible():
        picture(page, name).get_by_text("Export", exact=True).click()
    path = save(page, button, folder)
    assert path.name == f"{name}.{form.lower()}"
    return path


def test_numbers_are_saved_as_they_are_shown(drawn: Page, tmp_path: Path) -> None:
    open_tab(drawn, "Compare answers")
    shown = json.loads(saved(drawn, "answers", "JSON", tmp_path).read_text())
    table = list(csv.reader(io.StringIO(saved(drawn, "answers", "CSV", tmp_path).read_text())))
    assert shown["columns"] == table[0] and len(shown["rows"]) == len(table) - 1 > 0


@pytest.mark.slow
def test_figure_numbers_download_as_shown(drawn: Page, tmp_path: Path) -> None:
    open_tab(drawn, "Document importance")
    record = numbers(drawn, "figure-importance")
    figure = drawn.locator("#figure-importance")
    figure.locator(".pine-figure-save summary").click()
    path = save(drawn, figure.get_by_role("button", name="CSV", exact=True), tmp_path)
    assert path.name == "importance.csv"
    table = list(csv.reader(io.StringIO(path.read_text())))
    assert table[0] == ["", "row", "A", "B"]
    assert [[cell or "–" for cell in row[1:]] for row in table[1:]] == [row[1:] for row in record]
    figure.locator(".pine-figure-save summary").click()


@pytest.mark.slow
def test_a_picture_is_saved_as_a_drawing_of_itself(drawn: Page, tmp_path: Path) -> None:
    open_tab(drawn, "Compare answers")
    name = "answers"
    drawing = ElementTree.parse(saved(drawn, name, "SVG", tmp_path)).getroot()
    words = [text.text for text in drawing.iter(f"{SVG}text")]
    assert set(picture(drawn, name).locator(".pine-digits").all_inner_texts()) <= set(words)
    png = saved(drawn, name, "PNG", tmp_path).read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (
        2 * int(drawing.attrib["width"]),
        2 * int(drawing.attrib["height"]),
    )


def test_a_saved_page_needs_no_server(drawn: Page, offline: Page, tmp_path: Path) -> None:
    open_tab(drawn, "Compare answers")
    path = saved(drawn, "answers", "HTML", tmp_path)
    offline.goto(path.as_uri())
    expect(offline.locator(".pine-chip").first).to_be_visible()
    offline.get_by_text("Data table").click()
    expect(offline.locator(".pine-numbers-table tbody tr").first).to_be_visible()
    assert offline.locator("button[data-save], script").count() == 0
