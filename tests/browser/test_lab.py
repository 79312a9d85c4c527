"""The Lab and the answers of a finished run: figures, selection, comparison, orders, exports, tutorial."""

import csv
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser.driving import (
    DRAWN,
    INSIDE_TABS,
    RUN_MS,
    SHORT,
    TABS,
    click_cell,
    control,
    cut_off,
    numbers,
    open_tab,
    paint,
    picture,
    plot,
    save,
    unfold,
    violations,
)
from viz.cards.compare import word_diff

pytestmark = pytest.mark.slow

LAYERS, HEADS = 30, 9  # of SmolLM2-135M
DOCUMENTS = len(SHORT.documents)
SVG = "{http://www.w3.org/2000/svg}"
NARROW: ViewportSize = {"width": 320, "height": 640}
ZOOMED: ViewportSize = {"width": 640, "height": 400}  # the window of a laptop at 200 %
SHOW_ALL = "node => node.style.setProperty('display', 'flex', 'important')"


@pytest.fixture
def offline(browser: Browser) -> Iterator[Page]:
    """A page of another browser window, without a network; fails on any request but that for its own file."""
    requests: list[str] = []
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: requests.append(str(error)))
        yield page
        assert set(requests) == {page.url}


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def answer_texts(page: Page, inside: str) -> list[str]:
    return [text.strip() for text in page.locator(f"{inside} .pine-answer-text").all_inner_texts()]


def saved(page: Page, name: str, form: str, folder: Path) -> Path:
    """The file that a picture saves itself as."""
    button = picture(page, name).get_by_role("button", name=f"Export as {form}")
    if not button.is_visible():
        picture(page, name).get_by_text("Export", exact=True).click()
    path = save(page, button, folder)
    assert path.name == f"{name}.{form.lower()}"
    return path


def choose_query(page: Page, index: int) -> str:
    """Choose a query token by its place in the list, and return its name."""
    query = control(page, "Query token")
    query.click()
    page.get_by_role("option").nth(index).click()
    return query.input_value()


def test_answers_are_compared_word_by_word(drawn: Page) -> None:
    drawn.set_viewport_size(NARROW)
    chosen = choose_query(drawn, 0)
    unfold(drawn, "#answers-in-full")
    names = drawn.locator("#answers h3").all_inner_texts()
    answers = dict(zip(names, answer_texts(drawn, "#answers"), strict=True))
    opener = drawn.locator("#answers [data-answer=vanilla][data-compare]")
    opener.press("Enter")
    dialog = drawn.get_by_role("dialog", name="Answer")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Compare with").select_option("PCW")
    assert answer_texts(drawn, "dialog") == [answers["Vanilla"], answers["PCW"]]
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
    assert cut_off(drawn) == 0
    assert violations(drawn, "dialog") == []
    press(drawn, "Escape")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()

    card = drawn.locator("#answers [data-method=nia]")
    card.get_by_role("button", name="Expand").click()
    text = card.locator(".pine-answer-text")
    before = text.inner_text()
    for words in ("One word more.", before):  # the dialog follows its card while that is drawn again
        text.evaluate("(node, words) => { node.textContent = words; }", words)
        expect(dialog.locator(".pine-answer-text")).to_have_text(words)
    dialog.get_by_role("button", name="Close").click()
    expect(card.get_by_role("button", name="Expand")).to_be_focused()
    open_tab(drawn, "Attention masks")
    assert control(drawn, "Query token").input_value() == chosen  # Escape was the dialog's alone

    draw = random.Random(7)
    parts = ("the ", "key", " is", "Clara. ", "\n", "鑰匙", "it's ", "naïve", "_x1 ", "¿")
    pairs = [["".join(draw.choices(parts, k=draw.randrange(12))) for _ in range(2)] for _ in range(200)]
    found = drawn.evaluate(
        "pairs => pairs.map(pair => pineAnswers.compare(pair)"
        ".map(own => own.map(({ word, isShared }) => [word, !isShared])))",
        pairs,
    )
    for pair, sides in zip(pairs, found, strict=True):
        assert sides == [
            [[word, changed] for words, changed in runs for word in words] for runs in word_diff(*pair)
        ], pair


def test_orders_and_slots_are_drawn_certified_and_saved(drawn: Page, tmp_path: Path) -> None:
    unfold(drawn, "#shuffle-section")
    expect(drawn.locator("#shuffle-matrix .ytick")).to_have_text(["A B", "B A"])
    first, second = numbers(drawn, "shuffle-matrix")
    heads = drawn.locator("#shuffle-matrix thead th").all_inner_texts()
    for method in ("PCW", "PINE"):
        column = next(place for place, head in enumerate(heads) if head.startswith(method))
        assert first[column] == second[column] != "–"
    plot = drawn.locator("#shuffle-matrix .pine-plot")
    click_cell(plot, 1, 0, 2, 4)
    answer = drawn.locator("#shuffle-answer h4")
    expect(answer).to_contain_text("Vanilla")
    clicked = answer.inner_text()
    plot.focus()
    press(drawn, "Escape")
    expect(answer).to_have_count(0)
    press(drawn, "Home", "PageUp", "ArrowDown")
    expect(drawn.locator("#shuffle-matrix [role=status]")).to_contain_text("Vanilla")
    press(drawn, "Enter")
    expect(answer).to_have_text(clicked)
    expect(plot).to_be_focused()
    press(drawn, "Escape")
    rows = numbers(drawn, "shuffle-spread")
    assert len(rows) == 4 * 2 and len({row[0] for row in rows}) == 4

    drawn.set_viewport_size({"width": 390, "height": 844})  # Play and its slider have room on a phone
    played = drawn.locator("#shuffle-positions")
    expect(played.locator(".slider-rail-rect")).to_be_visible()
    parts = (".updatemenu-button", ".slider-label", ".slider-rail-rect")
    button, label, rail = (played.locator(part).first.bounding_box() for part in parts)
    assert button and label and rail and rail["width"] > 150
    assert button["y"] + button["height"] <= label["y"] + 2

    file = save(drawn, drawn.locator("#download-run"), tmp_path)
    assert file.name == "pine-explorer-run.zip"
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        session, certificate = (
            json.loads(archive.read(f"{name}.json")) for name in ("session", "certificate")
        )
        printable = archive.read("certificate.html").decode()
    assert certificate["orders"] == [[0, 1], [1, 0]]
    by_method = {result["method"]: result for result in certificate["results"]}
    assert by_method["pine"]["bitwise_identical"] and not by_method["vanilla"]["bitwise_identical"]
    assert by_method["pine"]["logits_sha256"] in printable
    expected = {"README.txt", "answers.csv", "orders.csv", "certificate.json", "numbers/method-positions.csv"}
    assert expected <= set(names)
    assert [one["text"] for one in session["documents"]] == [one.text for one in SHORT.documents]

    open_tab(drawn, "Position sweep")
    lines = drawn.locator("#sweep-lines")
    expect(lines.locator(".legendtext")).to_have_text(["Vanilla", "NIA", "PCW", "PINE"])
    expect(lines.locator(".scatterlayer .point")).to_have_count(4 * DOCUMENTS)
    expect(drawn.locator("#sweep-effects .legendtext")).to_have_count(3)
    expect(drawn.locator("#sweep-finding")).to_contain_text("constant (range 0.0)")
    assert len(numbers(drawn, "sweep-lines")) == 4 * DOCUMENTS
    lines.locator(".pine-plot").focus()
    press(drawn, "ArrowRight")
    expect(lines.locator("[role=status]")).to_contain_text("Vanilla")


def test_a_head_is_chosen_by_click_or_key_for_every_figure(drawn: Page) -> None:
    open_tab(drawn, "RoPE positions")
    bars = [row for row in numbers(drawn, "figure-positions") if row[0].startswith("document")]
    assert len(bars) == DOCUMENTS * LAYERS
    drawn.get_by_role("button", name="heads", exact=True).click()
    expect(plot(drawn, "positions").locator(".ytick")).to_have_count(HEADS)
    drawn.get_by_role("button", name="layers", exact=True).click()
    queries = [row[1] for row in numbers(drawn, "figure-position-map")]
    assert queries[: DOCUMENTS + 1] == ["A", "B", "answer 1"]

    open_tab(drawn, "Document importance")
    assert [len(row) for row in numbers(drawn, "figure-decisive-heads")] == [LAYERS + 2] * HEADS
    documents = [row[2:] for row in numbers(drawn, "figure-importance")]
    assert [[cell == "–" for cell in row] for row in documents] == [[True, False], [False, True]]
    written = numbers(drawn, "figure-answer-importance")
    assert 0 < len(written) <= 16 and {len(row) for row in written} == {DOCUMENTS + 2}
    assert len(numbers(drawn, "figure-attention-shares")) == DOCUMENTS + 2
    heads = plot(drawn, "decisive-heads")
    heads.focus()
    press(drawn, "Home", "PageUp", *["ArrowDown"] * 2, *["ArrowRight"] * 5)
    expect(drawn.locator("#figure-decisive-heads [role=status]")).to_contain_text("layer 5, head 2")
    click_cell(heads, 4, 7, HEADS, LAYERS)
    layer, head = control(drawn, "Layer"), control(drawn, "Head")
    expect(layer).to_have_value("layer 7")
    expect(head).to_have_value("head 4")
    heads.focus()
    press(drawn, "ArrowRight", "Enter")  # from where the mouse has been
    expect(layer).to_have_value("layer 8")
    expect(heads).to_be_focused()
    for tab, place in (("RoPE positions", "position-map"), ("Document importance", "answer-importance")):
        open_tab(drawn, tab)
        title = drawn.locator(f"#figure-{place} .pine-figure-title")
        expect(title).to_contain_text("layer 8, head 4")


def test_a_query_is_chosen_by_mouse_keys_and_quick_picks(drawn: Page) -> None:
    query, masks = control(drawn, "Query token"), plot(drawn, "token-masks")
    first = query.input_value()
    for width in (1440, 390):  # no room is left below the squares of tokens
        drawn.set_viewport_size({"width": width, "height": 900})
        around, last = masks.bounding_box(), masks.locator(".heatmaplayer image").last.bounding_box()
        assert around and last and abs(last["width"] - last["height"]) < 6
        assert 0 < around["y"] + around["height"] - last["y"] - last["height"] < 96
    drawn.set_viewport_size({"width": 1280, "height": 800})
    click_cell(masks, 11, 2, 20, 20)  # in the documents: the last third of what stands before the question
    expect(query).to_have_value(re.compile("^Document"))
    press(drawn, "Escape")
    expect(query).to_have_value(first)
    masks.focus()
    press(drawn, "Home", *["PageUp"] * 20, *["PageDown"] * 3, "Enter")
    expect(query).to_have_value(re.compile("^Document"))
    expect(masks).to_be_focused()
    open_tab(drawn, "Document importance")
    chosen = plot(drawn, "importance").locator(".shapelayer path")
    expect(chosen).to_have_count(1)
    press(drawn, "Escape")
    expect(query).to_have_value(first)
    expect(chosen).to_have_count(0)
    heads = plot(drawn, "decisive-heads")
    ticks = heads.locator(".xtick")
    every = ticks.count()
    heads.focus()
    press(drawn, "ArrowRight", "+")  # a zoom outlives another scale
    expect(ticks).not_to_have_count(every)
    near = ticks.all_inner_texts()
    drawn.get_by_role("button", name="log scale", exact=True).click()
    expect(drawn.locator("#figure-importance")).to_contain_text("log10(importance)")
    assert ticks.all_inner_texts() == near
    heads.press("0")
    expect(ticks).to_have_count(every)

    second = choose_query(drawn, 1)
    drawn.wait_for_timeout(500)  # keys step from what is drawn
    drawn.evaluate("document.activeElement.blur()")
    press(drawn, "Alt+Period")
    expect(query).not_to_have_value(second)
    expect(drawn.locator("#query-announcement [role=status]")).to_have_text(f"Query: {query.input_value()}")
    press(drawn, "Alt+Comma")
    expect(query).to_have_value(second)
    sent: list[str] = []
    drawn.on("request", lambda request: sent.append(request.post_data or ""))
    drawn.evaluate("[{ layer: 3 }, { layer: 7 }, { query: 'document 0' }, { turn: 1 }].forEach(pineSelect)")
    expect(query).to_have_value(re.compile("^Document B"))
    expect(control(drawn, "Layer")).to_have_value("layer 7")
    assert len([body for body in sent if "document 0" in body]) == 1  # of several any may be shown last
    for layer in (4, 5, 6):
        drawn.evaluate(f"pineSelect({{ layer: {layer} }})")
    expect(control(drawn, "Layer")).to_have_value("layer 6")
    press(drawn, "Escape")


def test_attention_and_two_answers_are_compared_token_by_token(drawn: Page) -> None:
    open_tab(drawn, "Attention")
    drawn.locator("#attend").click()
    expect(drawn.locator("#attend-status")).to_contain_text("Done: layer", timeout=RUN_MS)
    weights = plot(drawn, "attention")
    expect(weights.locator(".heatmaplayer image")).to_have_count(2)
    expect(drawn.locator("#stop-attend")).to_be_disabled()
    weights.focus()
    press(drawn, "Home", *["PageUp"] * 20, *["PageDown"] * 3, *["ArrowRight"] * 3)
    expect(drawn.locator("#figure-attention [role=status]")).to_contain_text("Vanilla: query")
    press(drawn, "+", "Enter")
    expect(control(drawn, "Query token")).to_have_value(re.compile("^Document"))
    expect(weights).to_be_focused()
    # What is drawn is not what is chosen any more, and stays.
    control(drawn, "Layer").click()
    drawn.get_by_role("option", name="layer 1", exact=True).click()
    expect(drawn.locator("#attention")).to_contain_text("Click “Compute attention”")
    expect(weights.locator(".heatmaplayer image")).to_have_count(2)
    weights.press("Escape")

    open_tab(drawn, "Document importance")
    words = len(numbers(drawn, "figure-answer-importance"))
    click_cell(plot(drawn, "answer-importance"), 2, 0, words, DOCUMENTS)
    expect(control(drawn, "Query token")).to_have_value(re.compile("^Answer token 3"))
    expect(drawn.locator("#figure-attention-shares .pine-figure-title")).to_contain_text("answer token 3")
    open_tab(drawn, "Compare answers")
    cards = picture(drawn, "answers").locator(".pine-card")
    expect(cards.locator(".pine-chip.pine-chosen").first).to_contain_text("token 3")
    orders = drawn.get_by_role("group", name="Or with another order").get_by_role("button")
    expect(orders).to_have_count(1)
    orders.first.click()
    expect(orders.first).to_have_attribute("aria-pressed", "true")
    assert [card.locator(".pine-badge").all_inner_texts() for card in cards.all()] == [["A", "B"], ["B", "A"]]
    expect(picture(drawn, "answers").locator(".pine-score")).to_contain_text("Identical")
    for place in ("likely-tokens", "token-shares", "answer-shares"):
        expect(drawn.locator(f"#figure-{place} figcaption")).to_contain_text("exactly 0")
    rows = numbers(drawn, "figure-answer-shares")
    assert [row[2] for row in rows] == ["prefix", "A, slot 1 → 2", "B, slot 2 → 1", "question"] * 2
    assert [row[1] for row in rows[:4]] == [row[1] for row in rows[4:]]

    drawn.get_by_role("group", name="Compare with").get_by_role("button", name="Vanilla", exact=True).click()
    bars = plot(drawn, "token-shares")
    expect(bars.locator(".ytick")).to_have_text(["prefix", "A", "B", "question"])
    expect(bars.locator(".legendtext")).to_have_text(["PINE", "Vanilla"])  # another was compared with before
    bars.focus()
    press(drawn, "ArrowDown")
    message = drawn.locator("#figure-token-shares [role=status]")
    expect(message).to_have_text(re.compile(r"^PINE, A: \S+%, \S+ pp vs. Vanilla$"))
    press(drawn, "ArrowRight")
    expect(message).to_contain_text("vs. PINE")
    drawn.evaluate("pineSelect({ with_prefix: false })")
    expect(bars.locator(".ytick")).to_have_text(["A", "B", "question"])
    expect(bars).to_be_focused()
    press(drawn, "Escape")
    expect(bars.locator(".ytick")).to_have_count(4)


def test_figures_are_saved_as_they_are_shown_and_open_offline(
    drawn: Page, offline: Page, tmp_path: Path
) -> None:
    open_tab(drawn, "Compare answers")
    shown = json.loads(saved(drawn, "answers", "JSON", tmp_path).read_text())
    table = list(csv.reader(io.StringIO(saved(drawn, "answers", "CSV", tmp_path).read_text())))
    assert shown["columns"] == table[0] and len(shown["rows"]) == len(table) - 1 > 0
    drawing = ElementTree.parse(saved(drawn, "answers", "SVG", tmp_path)).getroot()
    words = [text.text for text in drawing.iter(f"{SVG}text")]
    assert set(picture(drawn, "answers").locator(".pine-digits").all_inner_texts()) <= set(words)
    png = saved(drawn, "answers", "PNG", tmp_path).read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    size = (2 * int(drawing.attrib["width"]), 2 * int(drawing.attrib["height"]))
    assert struct.unpack(">II", png[16:24]) == size

    offline.goto(saved(drawn, "answers", "HTML", tmp_path).as_uri())
    expect(offline.locator(".pine-chip").first).to_be_visible()
    offline.get_by_text("Data table").click()
    expect(offline.locator(".pine-numbers-table tbody tr").first).to_be_visible()
    assert offline.locator("button[data-save], script").count() == 0

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


def test_no_tab_is_wider_than_a_small_or_zoomed_window(drawn: Page) -> None:
    for label in TABS:
        for window in (NARROW, ZOOMED):
            drawn.set_viewport_size(window)
            open_tab(drawn, label)
            assert cut_off(drawn) == 0, (label, window)


def test_axe_finds_nothing_serious_in_any_tab(drawn: Page) -> None:
    for label in TABS:
        open_tab(drawn, label)
    panels = drawn.locator("[role=tabpanel]").all()
    styles = [panel.get_attribute("style") for panel in panels]
    for panel in panels:
        panel.evaluate(SHOW_ALL)  # what is in the tabs below each other
    for place in INSIDE_TABS.values():
        expect(drawn.locator(f"#{place} {DRAWN}").first).to_be_visible()
    found = violations(drawn, "body")
    paint(drawn, dark=True)
    found += violations(drawn, "body", "color-contrast")
    paint(drawn, dark=False)
    for panel, style in zip(panels, styles, strict=True):
        panel.evaluate("(node, style) => node.setAttribute('style', style)", style)
    assert found == [], "\n".join(found)


def test_axe_finds_nothing_serious_in_the_steps_of_the_tutorial(drawn: Page) -> None:
    open_tab(drawn, "Tutorial")
    # As it is read without a script: all steps below each other.
    drawn.evaluate("document.documentElement.classList.remove('pine-scripted')")
    expect(drawn.locator("#tutorial .pine-tutorial-step:visible")).to_have_count(9)
    found = violations(drawn, "#tutorial")
    drawn.evaluate("document.documentElement.classList.add('pine-scripted')")
    assert found == [], "\n".join(found)


def test_the_tutorial_leads_to_the_live_figure_and_a_file(drawn: Page, offline: Page, tmp_path: Path) -> None:
    open_tab(drawn, "Tutorial")
    tutorial = drawn.locator("#tutorial")
    tutorial.get_by_role("button", name=re.compile("^Step 1")).first.click()
    count = tutorial.locator(".pine-current .pine-tutorial-count")
    tutorial.locator("[data-turn='1']").focus()
    for key, step in (("Alt+Period", 2), ("Alt+Comma", 1)):
        press(drawn, key)
        expect(count).to_have_text(f"Step {step} of 9")
    offline.goto(save(drawn, drawn.locator("#download-tutorial"), tmp_path).as_uri())
    expect(offline.locator("main")).to_contain_text("Your run: SmolLM2-135M-Instruct")
    offline.get_by_role("button", name="Next").click()
    # The run had two documents, the recorded one has three.
    ticks = offline.locator(".pine-current .pine-plot .ytick")
    expect(ticks).to_have_text(["prefix", "A", "B", "question"])
    drawn.get_by_role("button", name="Glossary and keyboard shortcuts").click()
    expect(drawn.locator("#keys kbd").first).to_have_text("Ctrl+Enter")
    drawn.get_by_role("button", name="Glossary and keyboard shortcuts").click()

    tutorial.get_by_role("button", name=re.compile("^Step 5")).click()
    tutorial.locator(".pine-current").get_by_role("link", name="Open in Internals").click()
    expect(drawn.get_by_role("tab", name="Document importance")).to_have_attribute("aria-selected", "true")
    expect(plot(drawn, "importance")).to_be_visible()
    query = control(drawn, "Query token")
    drawn.evaluate("pineSelect({ query: 'document 0' })")
    expect(query).to_have_value(re.compile("^Document A"))
    open_tab(drawn, "Attention masks")
    drawn.locator("#masks-how summary").click()
    drawn.locator("#masks-how .pine-term", has_text="mask").click()
    explanation = drawn.locator("#term-mask")
    expect(explanation).to_contain_text("which keys a query can attend to")
    press(drawn, "Escape")  # ends only the explanation
    expect(explanation).to_be_hidden()
    open_tab(drawn, "RoPE positions")  # a cleared query would show here
    expect(query).to_have_value(re.compile("^Document A"))


def test_presentation_leads_a_class_through_its_steps(drawn: Page) -> None:
    open_tab(drawn, "Tutorial")  # an earlier test may have left it at another step
    drawn.locator("#tutorial").get_by_role("button", name="Step 1", exact=False).first.click()
    drawn.set_viewport_size({"width": 1280, "height": 720})
    drawn.get_by_role("button", name="Present").click()
    place = drawn.locator("#projector-bar span")
    expect(place).to_have_text("1 of 3: See it")
    expect(drawn.locator("#order-table table")).to_be_visible()
    expect(drawn.locator("#header")).to_be_hidden()
    play = drawn.locator("#order-table [name=play]")
    for label in ("Pause", "Play"):
        press(drawn, " ")
        expect(play).to_contain_text(label)
    press(drawn, "ArrowRight")
    expect(place).to_have_text("2 of 3: Why")
    for number in range(1, 4):  # the arrows turn the three steps of Why first
        expect(drawn.locator("#why [data-step][aria-current]")).to_have_text(str(number))
        expect(drawn.locator("#why .pine-current .pine-plot .main-svg").first).to_be_visible()
        assert drawn.evaluate("document.documentElement.scrollHeight") <= 720, number
        assert cut_off(drawn) == 0
        press(drawn, "ArrowRight")
    # In the tutorial the arrows turn its steps, also at its ends.
    expect(place).to_have_text("3 of 3: Tutorial")
    count = drawn.locator("#tutorial .pine-current .pine-tutorial-count")
    expect(count).to_contain_text("Step 1")
    for key, step in (("ArrowRight", "Step 2"), ("ArrowLeft", "Step 1"), ("ArrowLeft", "Step 1")):
        press(drawn, key)
        expect(count).to_contain_text(step)
    press(drawn, "PageUp")
    expect(place).to_have_text("2 of 3: Why")
    press(drawn, "Escape")
    expect(drawn.locator("#header")).to_be_visible()
    expect(drawn.locator("#projector-bar")).to_be_hidden()
