"""A presentation before a class: reveal, tally, blank screen, documents switched off by key, last slide."""

import re

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.browser.conftest import OpenPage
from tests.browser.driving import (
    DEFAULT,
    LONG,
    RUN_MS,
    SHORT,
    cut_off,
    pick,
    set_length,
    text,
    texts,
    violations,
    wait_for_model,
)
from tests.browser.test_eye import WITHOUT_B
from tests.support.serving import ServedApp
from tools.first_screen import LAPTOP
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.record import record_of, with_answers
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.links import example_link
from viz.page.session import to_code
from viz.page.why import STEPS

PROJECTOR: ViewportSize = {"width": 1920, "height": 1080}
SLIDES = ("Guess", "See it", *STEPS, "Your turn")
TABLE = "#order-table table"
MIN_MODULE_PX = 4
MAX_PADDING_PX = 30  # of a card
MODULES = """
(code) => code.getBoundingClientRect().width / code.viewBox.baseVal.width
"""
"""Script that returns the pixels of a module of a QR code."""
RIGHT_ENDS = """
(node) => {
  const range = document.createRange();
  range.selectNodeContents(node);
  return [node.parentElement, range].map((one) => one.getBoundingClientRect().right);
}
"""
"""Script that returns the right ends of the card of a text and of the text."""


@pytest.fixture
def slides(page: Page) -> Locator:
    """The place of a presentation that has begun."""
    page.set_viewport_size(PROJECTOR)
    page.get_by_role("button", name="Present").click()
    place = page.locator("#projector-bar span")
    expect(place).to_have_text("1 of 6: Guess")
    return place


def turn_to(page: Page, slides: Locator, name: str) -> None:
    """Press a clicker until a slide is shown."""
    for _ in range(3 * len(SLIDES)):
        if name in slides.inner_text():
            return
        page.keyboard.press("PageDown")
        page.wait_for_timeout(100)
    raise AssertionError(slides.inner_text())


def test_each_key_reveals_and_then_goes_on(page: Page, slides: Locator) -> None:
    guess = page.locator(".page-guess")
    for key in (" ", "ArrowRight", "PageDown"):
        expect(guess.locator("output")).to_have_text("")
        expect(page.locator(TABLE)).to_be_hidden()
        page.keyboard.press(key)
        expect(guess.locator("output")).to_have_text("The order alone changes the answer.")
        expect(slides).to_have_text("1 of 6: Guess")
        expect(page.locator(TABLE)).to_be_hidden()
        page.keyboard.press(key)
        expect(slides).to_have_text("2 of 6: See it")
        expect(page.locator(TABLE)).to_be_visible()
        page.keyboard.press(key)
        expect(page.locator("#start-all")).to_contain_text("Pause")
        expect(slides).to_have_text("2 of 6: See it")
        page.keyboard.press(key)
        expect(slides).to_have_text("3 of 6: Mask")
        added = page.locator("#why .pine-current [data-method=pine] .page-why-added").first
        expect(added).to_have_css("opacity", "0")
        page.keyboard.press(key)
        expect(added).to_have_css("opacity", "1")
        expect(slides).to_have_text("3 of 6: Mask")
        for back in ("ArrowLeft", "PageUp"):
            page.keyboard.press(back)
    page.keyboard.press("PageUp")
    expect(slides).to_have_text("1 of 6: Guess")
    page.locator("#projector-bar [data-step='1']").click(click_count=2)
    expect(slides).to_have_text("2 of 6: See it")


def test_tally_has_bars_after_the_answer(page: Page, slides: Locator) -> None:
    guess = page.locator(".page-guess")
    for name, votes in (("same", "12"), ("different", "4")):
        guess.locator(f"input[name={name}]").fill(votes)
    page.keyboard.press("6")  # a digit of the number, and no document
    expect(guess.locator("input[name=different]")).to_have_value("46")
    page.keyboard.press("Backspace")
    expect(guess.locator("li span")).to_have_count(0)
    page.keyboard.press("PageDown")
    bars = guess.locator("[data-tally] li")
    expect(bars).to_have_text(["Same 12", "✓ Different 4"])
    widths = [bar.locator("span").evaluate("bar => bar.getBoundingClientRect().width") for bar in bars.all()]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.02)
    assert violations(page, ".page-guess") == []


def test_b_blanks_the_screen_until_the_next_key(page: Page, slides: Locator) -> None:
    body = page.locator("body")
    for key, back in (("b", "b"), (".", "PageDown")):
        page.keyboard.press(key)
        expect(body).to_have_class(re.compile("pine-blank"))
        middle = "() => getComputedStyle(document.body, '::after').backgroundColor"
        assert page.evaluate(middle) == "rgb(0, 0, 0)"
        page.keyboard.press(back)
        expect(body).not_to_have_class(re.compile("pine-blank"))
        expect(page.locator(".page-guess form")).to_be_visible()  # nothing is revealed


def test_digits_switch_documents_off_and_on(page: Page, slides: Locator) -> None:
    page.keyboard.press("2")
    turn_to(page, slides, "See it")
    status = page.locator("#order-table [role=status]")
    expect(status).not_to_contain_text("without")
    for key, letter in (("2", "B"), ("1", "A")):
        page.keyboard.press(key)
        expect(status).to_contain_text(f"without {letter}")
        expect(page.locator("#order-table .page-without:visible").first).to_contain_text(
            f"without {letter}: "
        )
    page.keyboard.press("1")
    expect(page.locator("#order-table .page-without:visible")).to_have_count(0)
    turn_to(page, slides, "Positions")
    caption = page.locator("#why .pine-current [data-method=pine] figcaption")
    expect(caption).to_contain_text("attention")
    page.keyboard.press("2")
    expect(caption).to_have_text(f"Without B: “{WITHOUT_B['pine']}”")


@pytest.mark.parametrize("size", [PROJECTOR, {"width": 1280, "height": 720}], ids=["1080", "720"])
def test_slides_fill_the_screen(page: Page, slides: Locator, size: ViewportSize) -> None:
    page.set_viewport_size(size)
    zoom = size["width"] / 1280
    for name in SLIDES:
        turn_to(page, slides, name)
        if name in STEPS:
            step = page.locator("#why .pine-current")
            expect(step.get_by_role("heading", level=3)).to_have_text(name)
            for stage in step.locator(".page-why-stage").all():
                expect(stage.locator(":scope > *").first).to_be_visible()
        height = page.evaluate("document.documentElement.scrollHeight")
        assert height <= size["height"], name
        assert cut_off(page) == 0
        heading = page.locator(
            ":is(.page-guess h2, #question textarea, .pine-current h3, .page-last-slide h2):visible"
        )
        pixels = heading.first.evaluate("(node) => node.getBoundingClientRect().height")
        assert pixels >= 30 * zoom, name


@pytest.mark.parametrize("language", ["de", "es"])
def test_bar_covers_no_control_beside_six_documents(
    open_page: OpenPage, app: ServedApp, language: str
) -> None:
    code = example_link(LONG, tuple(range(len(LONG.documents))))
    with open_page(f"{app.url}?lang={language}#session={code}") as page:
        expect(page.locator("#documents .page-text")).to_have_count(len(LONG.documents))
        page.set_viewport_size(LAPTOP)
        page.locator(".page-header-button[data-projector]").click()
        place, bar = page.locator("#projector-bar span"), page.locator("#projector-bar")
        for number in range(len(STEPS)):
            turn_to(page, place, f"{number + 3} ")
            orders = page.locator(".page-why-controls [role=group]")
            assert orders.evaluate("node => node.scrollWidth <= node.clientWidth")
            controls = orders.bounding_box()
            end = bar.bounding_box()
            assert controls and end and controls["x"] + controls["width"] <= end["x"]
            assert page.evaluate("document.documentElement.scrollHeight") <= LAPTOP["height"]


def test_slides_show_texts_from_right_to_left(open_page: OpenPage, app: ServedApp) -> None:
    documents = entries_from([("", "קו 12 נוסע לאוסטרבה."), ("", "קו 7 נוסע לפרל כל יום בשעה 8.")])
    form = Form("retrieval_qa", "איזה קו נוסע לפרל?", "", ("vanilla", "pine"), 8, documents)
    first, second = {"vanilla": "קו 12.", "pine": "קו 7."}, {"vanilla": "קו 7.", "pine": "קו 7."}
    orders: dict[Order, OrderAnswers] = {(0, 1): OrderAnswers(first), (1, 0): OrderAnswers(second)}
    with open_page(f"{app.url}#session={to_code(with_answers(record_of(form), orders))}") as page:
        expect(page.locator("#question textarea")).to_have_value(form.question)
        page.get_by_role("button", name="Present").click()
        document = page.locator(".page-guess bdi").first
        expect(document).to_have_css("direction", "rtl")
        right, end = document.evaluate(RIGHT_ENDS)
        assert right - end < MAX_PADDING_PX
        turn_to(page, page.locator("#projector-bar span"), "Importance")
        for part in (".page-why-query", ".page-why-column > span"):
            for node in page.locator(part).all():
                assert node.evaluate("node => node.scrollWidth <= node.clientWidth")
        expect(page.locator(".page-why-column bdi").first).to_be_attached()
        turn_to(page, page.locator("#projector-bar span"), "Positions")
        expect(page.locator(".page-why-asked > span").first).to_have_attribute("dir", "auto")
        turn_to(page, page.locator("#projector-bar span"), "Your turn")
        expect(page.locator(".page-last-slide > p")).to_have_css("direction", "rtl")


def test_last_slide_links_to_what_was_shown(page: Page, slides: Locator, open_page: OpenPage) -> None:
    finding = page.locator(".page-order-head h2").inner_text()
    turn_to(page, slides, "Your turn")
    last = page.locator(".page-last-slide")
    expect(last.get_by_role("heading", level=2)).to_have_text(finding)
    expect(page.locator(TABLE)).to_be_hidden()
    link = last.locator("[data-link]")
    expect(link).to_have_text(re.compile("#session=[a-z0-9]{10}$"))
    code = last.get_by_role("img", name="QR code")
    assert code.evaluate(MODULES) >= MIN_MODULE_PX
    assert violations(page, ".page-last-slide") == []
    page.keyboard.press("PageDown")
    expect(last).to_be_visible()
    with open_page(link.inner_text()) as other:
        expect(other.locator("#example-note")).to_contain_text("Loaded from a link.")
        expect(other.locator("#question textarea")).to_have_value(DEFAULT.question)
    unknown = re.sub("=.*", "=aaaaaaaaaa", link.inner_text())
    with open_page(unknown, strict=False) as other:
        expect(other.locator("#share-message")).to_contain_text("expired")


@pytest.mark.slow
def test_own_question_is_the_first_slide(page: Page, open_page: OpenPage) -> None:
    wait_for_model(page)
    pick(page, SHORT)
    set_length(page, 8)
    text(page, 2).fill("The clock of Felden was built in 1999.")
    page.locator("#question textarea").fill("When was the clock built?")
    expect(page.locator("#start-all")).to_contain_text("Run 2 orders")
    page.locator("#start-all").click()
    expect(page.locator("#shuffle-status")).to_contain_text("Done:", timeout=RUN_MS)
    page.get_by_role("button", name="Present").click()
    place = page.locator("#projector-bar span")
    expect(place).to_have_text("1 of 6: Guess")
    expect(page.locator(".page-guess h2")).to_have_text("When was the clock built?")
    expect(page.locator(".page-guess li").last).to_contain_text("1999")
    turn_to(page, place, "Your turn")
    expect(page.locator(".page-last-slide p").first).to_have_text("When was the clock built?")
    link = page.locator(".page-last-slide [data-link]")
    expect(link).to_contain_text("#session=")
    with open_page(link.inner_text()) as other:
        expect(other.locator(".page-order-source")).to_contain_text("Computed by someone else")
        assert "The clock of Felden was built in 1999." in texts(other)
