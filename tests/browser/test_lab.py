"""The Lab and the answers of a finished run: comparison, orders, figures, selection and exports."""

import csv
import io
import json
import re
import struct
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.browser.conftest import DESKTOP
from tests.browser.driving import (
    DRAWN,
    INSIDE_TABS,
    RUN_MS,
    SHORT,
    TABS,
    choose,
    click_cell,
    control,
    cut_off,
    numbers,
    open_tab,
    paint,
    pick,
    picture,
    plot,
    save,
    set_length,
    share,
    unfold,
    violations,
    wait_for_model,
)
from tests.support.api_server import wait_until
from viz.cards.compare import word_diff

LAYERS, HEADS = 30, 9  # of SmolLM2-135M
DOCUMENTS = len(SHORT.documents)
SVG = "{http://www.w3.org/2000/svg}"
NARROW: ViewportSize = {"width": 320, "height": 640}
ZOOMED: ViewportSize = {"width": 640, "height": 400}  # the window of a laptop at 200 %
SHOW_ALL = "node => node.style.setProperty('display', 'flex', 'important')"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_finished_run_is_compared_selected_drawn_and_saved(page: Page, offline: Page, tmp_path: Path) -> None:
    finish_all_runs(page)
    assert_answers_are_compared_word_by_word(page)
    assert_orders_and_slots_are_drawn_and_certified(page, tmp_path)
    assert_head_is_chosen_for_every_figure(page)
    assert_query_is_chosen_by_mouse_and_keys(page)
    assert_attention_is_computed_and_stays(page)
    assert_answers_are_compared_token_by_token(page)
    assert_figures_are_saved_as_shown(page, offline, tmp_path)
    assert_all_tabs_fit_and_are_accessible(page)


def finish_all_runs(page: Page) -> None:
    """Shuffle two documents, and move one of them."""
    wait_for_model(page)
    pick(page, SHORT)
    set_length(page, 8)
    page.get_by_role("button", name="Run live").click()
    expect(page.locator("#shuffle-status")).to_contain_text("Done: 2 orders", timeout=RUN_MS)
    open_tab(page, "Position sweep")
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-status")).to_contain_text("Done: 2 slots", timeout=RUN_MS)
    open_tab(page, "Attention masks")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def answer_texts(page: Page, inside: str) -> list[str]:
    return [text.strip() for text in page.locator(f"{inside} .pine-answer-text").all_inner_texts()]


def choose_query(page: Page, index: int) -> str:
    """Choose a query token by its place in the list, and return its name."""
    query = control(page, "Query token")
    query.click()
    page.get_by_role("option").nth(index).click()
    return query.input_value()


def assert_answers_are_compared_word_by_word(page: Page) -> None:
    page.set_viewport_size(NARROW)
    chosen = choose_query(page, 0)
    unfold(page, "#answers-in-full")
    names = page.locator("#answers h3").all_inner_texts()
    answers = dict(zip(names, answer_texts(page, "#answers"), strict=True))
    opener = page.locator("#answers [data-answer=vanilla][data-compare]")
    opener.press("Enter")
    dialog = page.get_by_role("dialog", name="Answer")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Compare with").select_option("PCW")
    assert answer_texts(page, "dialog") == [answers["Vanilla"], answers["PCW"]]
    expected = [
        ["".join(words).strip() for words, is_changed in runs if is_changed]
        for runs in word_diff(answers["Vanilla"], answers["PCW"])
    ]
    cards = dialog.locator("article").all()
    shown = [[mark.strip() for mark in card.locator("mark").all_inner_texts()] for card in cards]
    assert shown == expected and any(expected)
    expect(dialog.get_by_role("status")).to_contain_text("words differ (PCW)")
    first, second = (card.bounding_box() for card in cards)
    assert first and second and second["y"] > first["y"] + first["height"] - 1
    assert cut_off(page) == 0
    assert violations(page, "dialog") == []
    press(page, "Escape")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()

    card = page.locator("#answers [data-method=nia]")
    card.get_by_role("button", name="Expand").click()
    text = card.locator(".pine-answer-text")
    before = text.inner_text()
    for words in ("One word more.", before):  # the dialog follows its card while the card is drawn again
        text.evaluate("(node, words) => { node.textContent = words; }", words)
        expect(dialog.locator(".pine-answer-text")).to_have_text(words)
    dialog.get_by_role("button", name="Close").click()
    expect(card.get_by_role("button", name="Expand")).to_be_focused()
    open_tab(page, "Attention masks")
    assert control(page, "Query token").input_value() == chosen  # Escape closed only the dialog
    press(page, "Escape")
    expect(control(page, "Query token")).not_to_have_value(chosen)
    page.set_viewport_size(DESKTOP)


def assert_orders_and_slots_are_drawn_and_certified(page: Page, folder: Path) -> None:
    unfold(page, "#shuffle-section")
    expect(page.locator("#shuffle-matrix .ytick")).to_have_text(["A B", "B A"])
    first, second = numbers(page, "shuffle-matrix")
    heads = page.locator("#shuffle-matrix thead th").all_inner_texts()
    for method in ("PCW", "PINE"):
        column = next(place for place, head in enumerate(heads) if head.startswith(method))
        assert first[column] == second[column] != "–"
    plot = page.locator("#shuffle-matrix .pine-plot")
    click_cell(plot, 1, 0, 2, 4)
    answer = page.locator("#shuffle-answer h3")
    expect(answer).to_contain_text("Vanilla")
    clicked = answer.inner_text()
    plot.focus()
    press(page, "Escape")
    expect(answer).to_have_count(0)
    press(page, "Home", "PageUp", "ArrowDown")
    expect(page.locator("#shuffle-matrix [role=status]")).to_contain_text("Vanilla")
    press(page, "Enter")
    expect(answer).to_have_text(clicked)
    expect(plot).to_be_focused()
    press(page, "Escape")
    assert len(numbers(page, "shuffle-spread")) == 4 * 2

    page.set_viewport_size({"width": 390, "height": 844})  # Play and its slider have room on a phone
    positions = page.locator("#shuffle-positions")
    expect(positions.locator(".slider-rail-rect")).to_be_visible()
    parts = (".updatemenu-button", ".slider-label", ".slider-rail-rect")
    button, label, rail = (positions.locator(part).first.bounding_box() for part in parts)
    assert button and label and rail and rail["width"] > 150
    assert button["y"] + button["height"] <= label["y"] + 2

    file = save(page, share(page, "Download results"), folder)
    assert file.name == "pine-explorer-results.zip"
    with zipfile.ZipFile(file) as archive:
        certificate = json.loads(archive.read("certificate.json"))
    assert certificate["orders"] == [[0, 1], [1, 0]]
    by_method = {result["method"]: result for result in certificate["results"]}
    assert by_method["pine"]["bitwise_identical"] and not by_method["vanilla"]["bitwise_identical"]
    page.set_viewport_size(DESKTOP)

    open_tab(page, "Position sweep")
    lines = page.locator("#sweep-lines")
    expect(lines.locator(".scatterlayer .point")).to_have_count(4 * DOCUMENTS)
    expect(page.locator("#sweep-effects .legendtext")).to_have_count(3)
    expect(page.locator("#sweep-finding")).to_contain_text("constant (range 0.0)")
    lines.locator(".pine-plot").focus()
    press(page, "ArrowRight")
    expect(lines.locator("[role=status]")).to_contain_text("Vanilla")


def assert_head_is_chosen_for_every_figure(page: Page) -> None:
    open_tab(page, "RoPE positions")
    page.get_by_role("button", name="heads", exact=True).click()
    expect(plot(page, "positions").locator(".ytick")).to_have_count(HEADS)
    page.get_by_role("button", name="layers", exact=True).click()

    open_tab(page, "Document importance")
    documents = [row[2:] for row in numbers(page, "figure-importance")]
    assert [[cell == "–" for cell in row] for row in documents] == [[True, False], [False, True]]
    heads = plot(page, "decisive-heads")
    heads.focus()
    press(page, "Home", "PageUp", *["ArrowDown"] * 2, *["ArrowRight"] * 5)
    expect(page.locator("#figure-decisive-heads [role=status]")).to_contain_text("layer 5, head 2")
    click_cell(heads, 4, 7, HEADS, LAYERS)
    layer, head = control(page, "Layer"), control(page, "Head")
    expect(layer).to_have_value("layer 7")
    expect(head).to_have_value("head 4")
    heads.focus()
    press(page, "ArrowRight", "Enter")  # from where the mouse has been
    expect(layer).to_have_value("layer 8")
    expect(heads).to_be_focused()
    for tab, place in (("RoPE positions", "position-map"), ("Document importance", "answer-importance")):
        open_tab(page, tab)
        title = page.locator(f"#figure-{place} .pine-figure-title")
        expect(title).to_contain_text("layer 8, head 4")
    press(page, "Escape")


def is_filled_by_squares(masks: Locator) -> bool:
    around, last = masks.bounding_box(), masks.locator(".heatmaplayer image").last.bounding_box()
    if not around or not last or abs(last["width"] - last["height"]) >= 6:
        return False
    below = around["y"] + around["height"] - last["y"] - last["height"]
    return 0 < below < 120  # two lines of labels and the color scale


def assert_query_is_chosen_by_mouse_and_keys(page: Page) -> None:
    open_tab(page, "Attention masks")
    query, masks = control(page, "Query token"), plot(page, "token-masks")
    first = query.input_value()
    for width in (1440, 390):  # no room is left below the squares of tokens
        page.set_viewport_size({"width": width, "height": 900})
        wait_until(lambda: is_filled_by_squares(masks))  # plotly lays out again after the window has changed
    page.set_viewport_size(DESKTOP)
    click_cell(masks, 11, 2, 20, 20)  # in the documents: the last third of what stands before the question
    expect(query).to_have_value(re.compile("^Document"))
    press(page, "Escape")
    expect(query).to_have_value(first)
    masks.focus()
    press(page, "Home", *["PageUp"] * 20, *["PageDown"] * 3, "Enter")
    expect(query).to_have_value(re.compile("^Document"))
    expect(masks).to_be_focused()
    open_tab(page, "Document importance")
    chosen = plot(page, "importance").locator(".shapelayer path")
    expect(chosen).to_have_count(1)
    press(page, "Escape")
    expect(query).to_have_value(first)
    expect(chosen).to_have_count(0)
    heads = plot(page, "decisive-heads")
    ticks = heads.locator(".xtick")
    every = ticks.count()
    heads.focus()
    press(page, "ArrowRight", "+")  # a zoom outlives another scale
    expect(ticks).not_to_have_count(every)
    near = ticks.all_inner_texts()
    page.get_by_role("button", name="log scale", exact=True).click()
    expect(page.locator("#figure-importance")).to_contain_text("log10(importance)")
    assert ticks.all_inner_texts() == near
    heads.press("0")
    expect(ticks).to_have_count(every)

    second = choose_query(page, 1)
    page.wait_for_timeout(500)  # keys step from the query that is drawn
    page.evaluate("document.activeElement.blur()")
    press(page, "Alt+Period")
    expect(query).not_to_have_value(second)
    expect(page.locator("#query-announcement [role=status]")).to_have_text(f"Query: {query.input_value()}")
    press(page, "Alt+Comma")
    expect(query).to_have_value(second)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.post_data or ""))
    page.evaluate(
        "[{ layer: 3 }, { layer: 7 }, { query: 'document 0' }, { turn: 1 }].forEach(pine.pictures.select)"
    )
    expect(query).to_have_value(re.compile("^Document B"))
    expect(control(page, "Layer")).to_have_value("layer 7")
    assert len([body for body in sent if "document 0" in body]) == 1  # of several any may be shown last
    for layer in (4, 5, 6):
        page.evaluate(f"pine.pictures.select({{ layer: {layer} }})")
    expect(control(page, "Layer")).to_have_value("layer 6")
    press(page, "Escape")


def assert_attention_is_computed_and_stays(page: Page) -> None:
    open_tab(page, "Attention")
    page.locator("#attend").click()
    expect(page.locator("#attend-status")).to_contain_text("Done: layer", timeout=RUN_MS)
    weights = plot(page, "attention")
    expect(weights.locator(".heatmaplayer image")).to_have_count(2)
    expect(page.locator("#stop-attend")).to_be_disabled()
    weights.focus()
    press(page, "Home", *["PageUp"] * 20, *["PageDown"] * 3, *["ArrowRight"] * 3)
    expect(page.locator("#figure-attention [role=status]")).to_contain_text("Vanilla: query")
    press(page, "+", "Enter")
    expect(control(page, "Query token")).to_have_value(re.compile("^Document"))
    expect(weights).to_be_focused()
    # The figure stays although it is not that of the selected layer.
    choose(page, "Layer", "layer 29")
    expect(page.locator("#attention")).to_contain_text("Click “Compute attention”")
    expect(weights.locator(".heatmaplayer image")).to_have_count(2)
    weights.press("Escape")


def assert_answers_are_compared_token_by_token(page: Page) -> None:
    open_tab(page, "Document importance")
    words = len(numbers(page, "figure-answer-importance"))
    click_cell(plot(page, "answer-importance"), 2, 0, words, DOCUMENTS)
    expect(control(page, "Query token")).to_have_value(re.compile("^Answer token 3"))
    expect(page.locator("#figure-attention-shares .pine-figure-title")).to_contain_text("answer token 3")
    open_tab(page, "Compare answers")
    cards = picture(page, "answers").locator(".pine-card")
    expect(cards.locator(".pine-chip.pine-chosen").first).to_contain_text("token 3")
    orders = page.get_by_role("group", name="Or with another order").get_by_role("button")
    expect(orders).to_have_count(1)
    orders.first.click()
    expect(orders.first).to_have_attribute("aria-pressed", "true")
    assert [card.locator(".pine-badge").all_inner_texts() for card in cards.all()] == [["A", "B"], ["B", "A"]]
    expect(picture(page, "answers").locator(".pine-score")).to_contain_text("Identical")
    for place in ("likely-tokens", "token-shares", "answer-shares"):
        expect(page.locator(f"#figure-{place} figcaption")).to_contain_text("exactly 0")
    rows = numbers(page, "figure-answer-shares")
    assert [row[2] for row in rows] == ["prefix", "A, slot 1 → 2", "B, slot 2 → 1", "question"] * 2
    assert [row[1] for row in rows[:4]] == [row[1] for row in rows[4:]]

    page.get_by_role("group", name="Compare with").get_by_role("button", name="Vanilla", exact=True).click()
    bars = plot(page, "token-shares")
    expect(bars.locator(".ytick")).to_have_text(["prefix", "A", "B", "question"])
    expect(bars.locator(".legendtext")).to_have_text(["PINE", "Vanilla"])  # another was compared with before
    bars.focus()
    press(page, "ArrowDown")
    message = page.locator("#figure-token-shares [role=status]")
    expect(message).to_have_text(re.compile(r"^PINE, A: \S+%, \S+ pp vs. Vanilla$"))
    press(page, "ArrowRight")
    expect(message).to_contain_text("vs. PINE")
    page.evaluate("pine.pictures.select({ with_prefix: false })")
    expect(bars.locator(".ytick")).to_have_text(["A", "B", "question"])
    expect(bars).to_be_focused()
    press(page, "Escape")
    expect(bars.locator(".ytick")).to_have_count(4)


def assert_figures_are_saved_as_shown(page: Page, offline: Page, folder: Path) -> None:
    open_tab(page, "Compare answers")
    shown = json.loads(saved(page, "answers", "JSON", folder).read_text())
    table = list(csv.reader(io.StringIO(saved(page, "answers", "CSV", folder).read_text())))
    assert shown["columns"] == table[0] and len(shown["rows"]) == len(table) - 1 > 0
    drawing = ElementTree.parse(saved(page, "answers", "SVG", folder)).getroot()
    words = [text.text for text in drawing.iter(f"{SVG}text")]
    assert set(picture(page, "answers").locator(".pine-digits").all_inner_texts()) <= set(words)
    png = saved(page, "answers", "PNG", folder).read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    size = (2 * int(drawing.attrib["width"]), 2 * int(drawing.attrib["height"]))
    assert struct.unpack(">II", png[16:24]) == size

    offline.goto(saved(page, "answers", "HTML", folder).as_uri())
    expect(offline.locator(".pine-chip").first).to_be_visible()
    offline.get_by_text("Data table").click()
    expect(offline.locator(".pine-numbers-table tbody tr").first).to_be_visible()
    assert offline.locator("button[data-save], script").count() == 0

    open_tab(page, "Document importance")
    record = numbers(page, "figure-importance")
    figure = page.locator("#figure-importance")
    figure.locator(".pine-figure-save summary").click()
    path = save(page, figure.get_by_role("button", name="CSV", exact=True), folder)
    assert path.name == "importance.csv"
    table = list(csv.reader(io.StringIO(path.read_text())))
    assert table[0] == ["", "row", "A", "B"]
    assert [[cell or "–" for cell in row[1:]] for row in table[1:]] == [row[1:] for row in record]
    figure.locator(".pine-figure-save summary").click()


def saved(page: Page, name: str, form: str, folder: Path) -> Path:
    """Return the file that a picture exports."""
    button = picture(page, name).get_by_role("button", name=f"Export as {form}")
    if not button.is_visible():
        picture(page, name).get_by_text("Export", exact=True).click()
    path = save(page, button, folder)
    assert path.name == f"{name}.{form.lower()}"
    return path


def assert_all_tabs_fit_and_are_accessible(page: Page) -> None:
    page.set_viewport_size(NARROW)
    for label in TABS:
        open_tab(page, label)
        assert cut_off(page) == 0, label
    for panel in page.locator("[role=tabpanel]").all():
        panel.evaluate(SHOW_ALL)  # the contents of all tabs below each other
    page.set_viewport_size(ZOOMED)
    assert cut_off(page) == 0
    page.set_viewport_size(DESKTOP)
    for place in INSIDE_TABS.values():
        expect(page.locator(f"#{place} {DRAWN}").first).to_be_visible()
    # As without a script: all steps of the tutorial below each other.
    page.evaluate("document.documentElement.classList.remove('pine-scripted')")
    expect(page.locator("#tutorial .pine-tutorial-step:visible")).to_have_count(9)
    found = violations(page, "body")
    paint(page, dark=True)
    found += violations(page, "body", "color-contrast")
    assert found == [], "\n".join(found)
