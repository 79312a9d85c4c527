"""The first minute of a visitor: at a desk, on a phone, by keyboard in the dark, and before a class."""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from pine_engine.prompts.tasks import TASKS
from tests.browser.driving import (
    DEFAULT,
    EXAMPLES,
    SHORT,
    card,
    cut_off,
    drag,
    letters,
    open_tab,
    pick,
    plot,
    text,
    texts,
    unfold,
    violations,
    wait_for_model,
)
from tests.support.serving import ServedApp
from tools.first_screen import CONTROLS, LAPTOP, SKIP_GUESS, count_first_screen
from viz.page.why import METHODS, STEPS

DESKTOP: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
CHALLENGE = next(example for example in EXAMPLES if example.challenge and len(example.documents) == 4)
FOUR = next(example for example in EXAMPLES if len(example.documents) == 4 and example.question)
KEYS = next(example for example in EXAMPLES if example.task == "kv_retrieval")
MAIN_JOB = (
    "#question",
    ".page-card:visible",
    "#add-document",
    "#start-all",
    "#start-one",
    "#order-table table",
)
CLICK_AND_DRAW = """
async (tick) => {
  tick.click();
  for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
  const lane = document.querySelector("#order-table [data-method=vanilla] .page-lane");
  return [lane.getAttribute("aria-label"), document.querySelector("#documents .page-text").value];
}
"""
"""Script that returns the bars and the first document in the second frame after a click."""

WATCH_ORDERS = """
() => {
  window.ordersSeen = [];
  const status = document.querySelector("#order-table [role=status]");
  const add = () => {
    const [order] = status.textContent.match(/^Order \\d/) ?? [];
    if (order && order !== window.ordersSeen.at(-1)) window.ordersSeen.push(order);
  };
  new MutationObserver(add).observe(status, { childList: true, characterData: true, subtree: true });
}
"""
"""Script that lists the orders as they are announced: on a busy machine a test may look too late."""

RESTORE_B_A_C = "document.dispatchEvent(new CustomEvent('pine:order', { detail: [1, 0, 2] }))"
"""Move the documents as a draft does that is restored during the first animation."""

TRANSLATE = """
() => {
  const kept = "script, style, template, textarea, select, svg, data, [translate=no]";
  const translate = () => {
    const texts = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) texts.push(walker.currentNode);
    for (const text of texts) {
      const { parentElement: place, data } = text;
      if (!data.trim() || place.localName === "font" || place.closest(kept)) continue;
      const font = document.createElement("font");
      font.append(data.toUpperCase());
      text.replaceWith(font);
    }
  };
  translate();
  setInterval(translate, 300);
}
"""
"""Script that replaces all texts, also later ones, by others in a <font>, as translators of browsers do."""

ADD_LOADER = """
() => document.querySelector(".contain").insertAdjacentHTML(
  "beforebegin", "<div id='late-loader' class='wrap default full translucent'>Loading</div>")
"""
"""Script that adds the loader of gradio, which a slow phone shows after the guess has begun."""

SMALL_TARGETS = """
() => [...document.querySelectorAll("button, select, [role=tab], input[type=range]")].filter((node) => {
  const { width, height } = node.getBoundingClientRect();
  return node.checkVisibility() && width > 2 && height < 44;
}).map((node) => node.outerHTML)
"""
"""Script that lists the controls that are lower than 44 pixels."""

SMALL_TEXTS = """
() => [...document.body.querySelectorAll("*")].filter((node) =>
  node.checkVisibility() && parseFloat(getComputedStyle(node).fontSize) < 12 &&
  [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim()),
).map((node) => node.outerHTML)
"""
"""Script that lists the elements with a text of less than 12 pixels."""

BOXES = "nodes => nodes.map(node => node.getBoundingClientRect())"
RIBBON = """
async (row) => {
  for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
  const [path, word] = [".page-ribbons path", ".page-source"].map((one) => row.querySelector(one));
  const bar = row.querySelector(`.page-lane [data-document="${path.dataset.document}"]`);
  const middle = (node) => node.getBoundingClientRect().left + node.getBoundingClientRect().width / 2;
  const { left, right } = path.getBoundingClientRect();
  const badge = word.querySelector("small").textContent;
  return [badge, Math.abs(left - middle(bar)), Math.abs(right - middle(word))];
}
"""
"""Script that returns the badge of the decisive word, and how far its ribbon ends from bar and word."""

PLACES = """
(stage) => [...stage.querySelectorAll("[data-document], [aria-label]")].map(
  (node) => [node.dataset.document, node.style.left, node.ariaLabel, node.dataset.share].join())
"""
"""Script that returns where a stage of Why shows each document, and the attention on it."""


def bottom(page: Page, part: str) -> float:
    """Return where an element ends, in pixels from the top of the screen."""
    box = page.locator(part).first.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


def answer_of(page: Page, method: str) -> str:
    return page.locator(f"#order-table [data-method={method}] .page-order-answer").inner_text()


def ribbons(page: Page) -> list[str]:
    """Return the badges on the decisive words of vanilla and PINE, whose ribbons must end at bar and word."""
    rows = [page.locator(f"#order-table [data-method={method}]") for method in METHODS]
    ends = [row.evaluate(RIBBON) for row in rows]
    assert all(left < 12 and right < 12 for _, left, right in ends), ends
    return [badge for badge, *_ in ends]


def expect_order(page: Page, words: str) -> None:
    expect(page.locator("#order-table [role=status]")).to_contain_text(words)


def expect_first_screen(page: Page, screen: ViewportSize) -> None:
    """Expect the recorded orders in sight: Vanilla changes its answer, PINE does not."""
    page.set_viewport_size(screen)
    rows = page.locator("#order-table tbody tr")
    expect(rows).to_have_count(5)  # two methods, and a fold with two others
    expect(rows.first).to_contain_text("4 of 6 correct · 3 answers")
    expect(rows.nth(1)).to_contain_text("6 of 6 correct · 1 answer")
    expect(page.locator("#order-table")).to_contain_text("Precomputed with")
    expect(page.locator("#question textarea")).to_have_value(DEFAULT.question)
    expect(page.locator(".page-card:visible")).to_have_count(len(DEFAULT.documents))
    assert cut_off(page) == 0
    if screen != PHONE:
        assert bottom(page, "#order-table .page-order-foot") <= screen["height"]


def test_order_is_drawn_at_once_with_its_decisive_words(page: Page) -> None:
    expect_first_screen(page, DESKTOP)
    entered = texts(page)
    bars = page.locator("#order-table [data-method=pine] .page-lane")
    before, pine = bars.get_attribute("aria-label"), answer_of(page, "pine")
    assert "1660" in answer_of(page, "vanilla")
    tick = page.locator("#order-table [data-method=vanilla] .page-ticks span").nth(2)
    assert tick.evaluate(CLICK_AND_DRAW) == ["From far to near: B A C", entered[1]]
    assert answer_of(page, "pine") == pine and bars.get_attribute("aria-label") == before
    assert "1913" in answer_of(page, "vanilla")
    slider = page.get_by_role("slider", name="Document order")
    for key, order, sources in (
        ("Home", "1 of 6: A B C", ["A", "B"]),  # of vanilla, and of PINE
        ("End", "6 of 6: C B A", ["C", "B"]),
    ):
        slider.press(key)
        expect_order(page, f"Order {order}")
        expect(slider).to_have_attribute("aria-valuetext", f"Order {order}")
        assert ribbons(page) == sources
    expect(slider).to_be_focused()
    page.set_viewport_size(LAPTOP)
    assert ribbons(page) == sources
    page.locator("[data-method=vanilla] .page-source").focus()
    expect(page.locator(":popover-open")).to_contain_text("Vanilla without document C: ")
    page.get_by_role("button", name="Is PINE always right? Why not sort?").click()
    expect(page.locator("#base-rate tbody").first.locator("tr")).to_have_count(4)


def test_pasted_documents_replace_the_example_until_undo(page: Page) -> None:
    expect_first_screen(page, DESKTOP)
    entered = texts(page)
    unfold(page)
    page.get_by_role("button", name="Paste multiple documents").click()
    page.locator("#pasted textarea").fill("own text\n---\nanother")
    page.locator("#paste-documents").click()
    expect(page.locator("#documents-message")).to_contain_text("Removed those of the example.")
    assert texts(page) == ["own text", "another"]
    instruction = page.locator("#instruction textarea")
    expect(instruction).to_have_value(TASKS[DEFAULT.task].instruction)
    expect(page.locator(".page-stale")).to_contain_text("Changed: number of documents")
    page.get_by_label("Sort orders by").select_option("slot of B")
    marks = page.locator("#order-table [data-method=vanilla] .page-ticks span")
    shades = marks.evaluate_all("nodes => nodes.map(({ dataset: { shade, kind } }) => [Number(shade), kind])")
    right, wrong = [1, "correct"], [[0, "incorrect"], [2, "incorrect"]]
    assert shades == [right, right, *wrong, right, right]  # vanilla fails with B between
    expect(page.locator(".page-chips li")).to_have_count(3)
    page.locator("#undo-documents").click()
    expect(page.locator(".page-stale")).to_have_count(0)
    assert texts(page) == entered
    expect(instruction).to_have_value(DEFAULT.instruction)


def test_moved_documents_are_a_draft_that_fits_the_first_screen(page: Page) -> None:
    text(page, 1).focus()
    page.keyboard.press("Alt+ArrowRight")
    expect_order(page, "Order 3 of 6: B A C")
    page.locator("#start-all").focus()
    page.wait_for_timeout(1500)  # the server answers a change of the form, and then a draft is kept
    expect(page.locator(".page-stale")).to_have_count(0)
    page.set_viewport_size(LAPTOP)
    page.reload()
    expect(page.locator("#example-note")).to_contain_text("Draft restored")
    expect_first_screen(page, LAPTOP)
    wait_for_model(page)
    assert count_first_screen(page).problems == []
    for part in MAIN_JOB:
        for box in page.locator(part).evaluate_all(BOXES):
            assert box["top"] >= 0 and box["bottom"] <= LAPTOP["height"], part


def test_each_example_has_its_answers_and_plays_without_the_server(page: Page) -> None:
    page.set_viewport_size(LAPTOP)
    ticks = page.locator("#order-table [data-method=pine] .page-ticks span")
    for example, count in ((FOUR, 24), (DEFAULT, 6), (SHORT, 2)):
        pick(page, example)
        expect(ticks).to_have_count(count)
        counts = page.locator("#order-table .page-tick-count:visible").evaluate_all(BOXES)
        assert all(0 < box["right"] <= LAPTOP["width"] for box in counts), count
    page.evaluate(WATCH_ORDERS)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.get_by_role("button", name="Play 2 orders").click()
    page.wait_for_function("window.ordersSeen.join() === 'Order 2,Order 1'")
    expect(page.get_by_role("button", name="Play 2 orders")).to_be_visible()
    assert len(sent) < 6  # these requests are of the start of the page
    open_tab(page, "Attention masks")
    expect(page.locator("#internals-summary")).to_contain_text("Precomputed with")
    expect(plot(page, "token-masks").locator(".heatmaplayer image")).to_have_count(3)


@pytest.mark.slow
def test_challenge_fills_the_form_and_plays(page: Page) -> None:
    expect_order(page, "Order 1 of 6: A B C")
    page.evaluate(WATCH_ORDERS)
    page.get_by_role("button", name="Try to break it").click()
    page.get_by_role("button", name=CHALLENGE.challenge).click()
    expect(text(page, 4)).to_have_value(CHALLENGE.documents[3].text)
    expect(page.locator(".page-changed")).to_have_count(1)
    expect(card(page, 4)).to_have_class(re.compile("page-changed"))
    expect(card(page, 4)).to_be_in_viewport(ratio=1)
    page.wait_for_function("() => window.ordersSeen.includes('Order 3')")
    expect(page.locator("#order-table tbody tr").nth(1)).to_contain_text("0 of 24 correct · 1 answer")
    expect(page.locator("#example input")).to_have_value(CHALLENGE.name)
    page.locator("[data-method=pine]").evaluate("node => node.scrollIntoView({ block: 'start' })")
    expect(page.locator(".page-order-head h2")).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Back", exact=True).click()
    expect(page.locator("#example input")).to_have_value(DEFAULT.name)
    expect(page.locator(".page-changed")).to_have_count(0)


def test_way_back_from_a_challenge_restores_own_texts(page: Page) -> None:
    expect_order(page, "Order 1 of 6: A B C")
    page.locator("#question textarea").fill("When was the mill built?")
    text(page, 3).fill("The mill of Vask was built in 1888.")
    expect(page.locator("#answers-stale")).to_contain_text("text of C")
    own = texts(page)
    page.get_by_role("button", name="Try to break it").click()
    page.get_by_role("button", name=CHALLENGE.challenge).click()
    expect(text(page, 4)).to_have_value(CHALLENGE.documents[3].text)
    page.get_by_role("button", name="Back", exact=True).click()
    expect(page.locator("#question textarea")).to_have_value("When was the mill built?")
    expect(page.locator("#documents .page-text")).to_have_count(3)
    assert sorted(texts(page)) == sorted(own)
    expect(page.locator("#answers-stale")).to_contain_text("text of C")
    expect(page.get_by_role("button", name="Back", exact=True)).to_be_hidden()


@pytest.mark.parametrize("locale", ["en-US", "de-DE", "es-MX"])
def test_first_visit_transfers_at_most_400_kilobytes(browser: Browser, app: ServedApp, locale: str) -> None:
    num_bytes: list[float] = []
    with browser.new_page(locale=locale) as page:
        network = page.context.new_cdp_session(page)
        network.on("Network.loadingFinished", lambda done: num_bytes.append(done["encodedDataLength"]))
        network.send("Network.enable")
        page.goto(app.url)
        page.locator("#order-table tbody tr").first.wait_for(state="attached")
        page.wait_for_timeout(1000)
    assert 100_000 < sum(num_bytes) <= 400_000


def test_phone_has_room_for_table_and_cards(page: Page) -> None:
    expect_first_screen(page, PHONE)
    unfold(page)
    text(page, 1).fill("word " * 60 + "unbreakable" * 12)
    boxes = [box for box in (card(page, slot).bounding_box() for slot in (1, 2, 3)) if box]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"] for box in boxes)
    assert all(above["y"] + above["height"] <= below["y"] for above, below in pairwise(boxes))
    assert cut_off(page) == 0
    drag(page, 1, onto=2)
    page.mouse.up()
    assert letters(page) == ["B", "A", "C"]


def test_phone_has_large_targets_and_sends_links(browser: Browser, app: ServedApp) -> None:
    with browser.new_context(
        viewport=PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce"
    ) as context:
        context.add_init_script(
            f"{SKIP_GUESS}; navigator.share = async ({{ url }}) => {{ window.sent = url }}"
        )
        page = context.new_page()
        page.goto(app.url)
        expect(page.locator("#order-table tbody tr")).to_have_count(5)
        assert page.evaluate(SMALL_TARGETS) == []
        assert page.evaluate(SMALL_TEXTS) == []
        page.get_by_role("button", name="Share", exact=True).tap()
        page.get_by_role("button", name="Send link").tap()
        page.wait_for_function("window.sent?.includes('#session=')")


@pytest.mark.parametrize("size", [6, 10])
def test_six_documents_have_narrow_lines_that_unfold(page: Page, size: int) -> None:
    documents = [f"Document {number} " + "has many words " * 30 for number in range(size)]
    unfold(page)
    page.get_by_role("button", name="Paste multiple documents").click()
    page.locator("#pasted textarea").fill("\n---\n".join(documents))
    page.locator("#paste-documents").click()
    cards = page.locator("#documents .page-card")
    expect(cards).to_have_count(size)
    page.mouse.move(0, 0)
    offsets = cards.evaluate_all("nodes => nodes.map(({ offsetTop }) => offsetTop)")
    assert {below - above for above, below in pairwise(offsets)} == {28}
    for slot in (1, size):
        text(page, slot).focus()
        is_whole = "node => node.clientHeight >= node.scrollHeight && node.clientHeight > 40"
        assert text(page, slot).evaluate(is_whole)
        assert cards.evaluate_all("nodes => nodes.map(({ offsetTop }) => offsetTop)") == offsets


def test_dark_page_plays_once_and_explains_why_by_keyboard(page: Page) -> None:
    expect_order(page, "Order 1 of 6")  # reduced motion starts no animation
    expect(page.get_by_role("button", name="Play 6 orders")).to_be_visible()
    page.set_viewport_size(LAPTOP)
    page.get_by_label("Example", exact=True).focus()  # its list opens
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Without document A")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Title, document in slot 1", exact=True)).to_be_focused()
    wait_for_model(page)  # a reload ends events, about which gradio complains
    page.emulate_media(color_scheme="dark", reduced_motion="no-preference")
    page.reload()
    expect_order(page, "Order 2 of 6")
    page.evaluate(RESTORE_B_A_C)
    expect_order(page, "Order 4 of 6")
    page.locator("#question textarea").click()
    expect_order(page, "Order 3 of 6: B A C")
    assert letters(page) == ["B", "A", "C"]
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    expect(page.locator("body")).to_have_class("dark")
    assert violations(page, "body") == []

    open_tab(page, "Why")
    why = page.locator("#why")
    why.get_by_role("button", name="Step 1").focus()
    for name in STEPS:
        if name != "Mask":
            page.keyboard.press("ArrowRight")
        step = why.locator(".pine-tutorial-step:visible")
        expect(step.get_by_role("heading", level=3)).to_have_text(name)
        assert bottom(page, "#why") <= LAPTOP["height"]
        why.get_by_role("button", name="A B C").click()
        stages = {method: step.locator(f"[data-method={method}] .page-why-stage") for method in METHODS}
        before = {method: stage.evaluate(PLACES) for method, stage in stages.items()}
        why.get_by_role("button", name="C B A").click()
        after = {method: stage.evaluate(PLACES) for method, stage in stages.items()}
        assert before["pine"] == after["pine"] and before["vanilla"] != after["vanilla"], name
    why.locator("[data-method=vanilla] .page-why-words button", has_text="castle").click()
    expect(why.locator("[data-method=pine] [data-query]")).to_have_text("castle")
    expect(why.get_by_role("slider", name="Token")).to_have_value("1")
    page.set_viewport_size(PHONE)
    assert cut_off(page) == 0
    page.evaluate("document.documentElement.classList.remove('pine-scripted')")  # all steps below each other
    expect(why.locator(".pine-tutorial-step:visible")).to_have_count(len(STEPS))
    assert violations(page, "#why") == []


@pytest.mark.slow
def test_translated_page_plays_and_answers_from_the_recording(page: Page) -> None:
    expect_first_screen(page, LAPTOP)
    page.evaluate(TRANSLATE)
    status = page.locator("#order-table [role=status]")
    expect(status).to_have_text("ORDER 1 OF 6: A B C")
    slider = page.locator("#order-table [name=order]")
    slider.press("End")
    expect(status).to_have_text("ORDER 6 OF 6: C B A")
    assert letters(page) == ["C", "B", "A"]
    expect(page.locator("#order-table [data-method=pine] .page-order-answer")).to_contain_text("castle was")
    page.locator("#example input").click()
    page.get_by_role("option").filter(has_text=FOUR.name).click()  # ignores the case
    expect(page.locator("#order-table [data-orders]")).to_have_text("ALL 24 ORDERS")
    page.locator("#tabs > .tab-wrapper").get_by_role("tab", name="LAB").click()
    page.get_by_role("tab", name="ATTENTION MASKS").click()
    expect(plot(page, "token-masks").locator(".heatmaplayer image")).to_have_count(3)
    page.locator("#tabs > .tab-wrapper").get_by_role("tab", name="TUTORIAL").click()
    page.locator("#tutorial .pine-current [data-live='Compare answers']").click()
    expect(page.get_by_role("tab", name="COMPARE ANSWERS")).to_have_attribute("aria-selected", "true")
    page.locator(".page-header-button[data-projector]").click()
    expect(page.locator(".page-guess")).to_be_visible()


def test_presentation_fits_every_projector_and_outlasts_quick_keys(page: Page) -> None:
    present, bar = page.get_by_role("button", name="Present"), page.locator("#projector-bar")
    for width, height in ((1440, 900), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        present.click()
        expect(bar).to_be_focused()
        expect(page.locator("#header")).to_be_hidden()
        for _ in range(2):  # reveals, and then goes on
            page.keyboard.press("PageDown")
        row = page.locator("#order-table [data-method=pine]").bounding_box()
        assert row and row["y"] + row["height"] <= height
        ticks = page.locator("#order-table [data-method=pine] .page-ticks span").evaluate_all(BOXES)
        assert len({tick["top"] for tick in ticks}) == 1
        for key in ("PageDown", "PageDown", "PageUp", "Escape"):  # faster than the tabs are drawn
            page.keyboard.press(key)
        expect(bar).to_be_hidden()
        expect(present).to_be_focused()
        expect(page.locator("#header")).to_be_visible()


@pytest.mark.slow
def test_answers_are_explained_before_terms_are_loaded(page: Page) -> None:
    expect_order(page, "Order 1 of 6: A B C")
    expect(page.locator("#term-mask")).to_be_attached()
    page.evaluate("document.querySelectorAll('.pine-explanation').forEach((node) => node.remove())")
    page.get_by_role("slider", name="Document order").press("End")
    page.locator("[data-method=pine] .page-source").focus()
    expect(page.locator(":popover-open")).to_contain_text("PINE without document B: ")


@pytest.mark.slow
def test_forced_colors_keep_checks_and_sliders(page: Page) -> None:
    page.emulate_media(forced_colors="active")
    unfold(page)
    for control in page.locator("#settings input:is([type=checkbox], [type=range]):visible").all():
        expect(control).to_have_css("appearance", "auto")
    page.emulate_media(forced_colors="none")


@pytest.mark.slow
def test_presentation_fits_four_documents_and_names_keys(page: Page) -> None:
    page.set_viewport_size(LAPTOP)
    pick(page, KEYS)
    assert ribbons(page) == ["C", "B"]  # the decisive word is in view, though the answers are long
    page.get_by_role("button", name="Present").click()
    first = KEYS.documents[0]
    expect(page.locator(".page-guess li").first).to_have_text(f"A{first.title}: {first.text}")
    expect(page.locator(".page-guess h2")).to_have_text(f"Key: {KEYS.question}")
    place, bar = page.locator("#projector-bar span"), page.locator("#projector-bar")
    page.locator(".page-guess [name=skip]").click()
    expect(place).to_have_text("2 of 6: See it")
    expect(bar).to_be_focused()
    page.keyboard.press("Escape")
    pick(page, FOUR)
    page.get_by_role("button", name="Present").click()
    for number, name in enumerate(("Guess", "See it", *STEPS), 1):
        expect(place).to_have_text(f"{number} of 6: {name}")
        if name in STEPS:
            step = page.locator("#why .pine-current")
            expect(step.get_by_role("heading", level=3)).to_have_text(name)
            controls = page.locator("#why .page-why-controls button").evaluate_all(BOXES)
            assert bottom(page, "#why .pine-current") <= min(box["top"] for box in controls)
        assert page.evaluate("document.documentElement.scrollHeight") <= LAPTOP["height"], name
        for _ in range(2):  # reveals, and then goes on
            page.keyboard.press("ArrowRight")


def test_first_visit_guesses_before_the_page(browser: Browser, app: ServedApp) -> None:
    guess, header = ".page-guess", "#header-buttons"
    with browser.new_context(viewport=LAPTOP, reduced_motion="reduce") as context:
        page = context.new_page()
        page.goto(app.url)
        expect(page.locator(f"{guess} h2")).to_have_text(DEFAULT.question)
        chips = page.locator(f"{guess} li b")
        expect(chips).to_have_text(["A", "B", "C"])
        for hidden in (header, "#question", "#order-table table"):
            expect(page.locator(hidden)).to_be_hidden()
        assert page.evaluate(CONTROLS) <= 6
        words = [word for word in page.locator(guess).inner_text().split() if word not in "ABC"]
        assert len(words) <= 50
        assert violations(page, guess) == []
        page.evaluate(ADD_LOADER)
        expect(page.locator("#late-loader")).to_be_hidden()
        before = page.locator(f"{guess} ins").inner_text()

        page.locator(f"{guess} [value=different]").click()
        expect(chips).to_have_text(["B", "A", "C"])
        expect(page.locator(f"{guess} del")).to_have_text(before)
        expect(page.locator(f"{guess} form")).to_be_hidden()
        expect(page.locator(f"{guess} ins")).not_to_have_text(before)
        expect(page.locator("#order-table [role=status]")).to_contain_text("B A C")
        page.keyboard.press("Enter")  # the focused button goes on
        expect(page.locator(guess)).to_be_hidden()
        expect(page.locator(header)).to_be_visible()
        expect(page.locator("#start-all")).to_be_focused()

        page.reload()
        expect(page.locator("#question")).to_be_visible()
        expect(page.locator(guess)).to_be_hidden()
