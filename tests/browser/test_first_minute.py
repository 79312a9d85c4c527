"""A stranger's first minute: the table of answers by order, its ticks, Play, and a run of all orders."""

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.driving import (
    DEFAULT,
    RUN_MS,
    SHORT,
    cut_off,
    open_tab,
    pick,
    set_length,
    text,
    wait_for_model,
)
from viz.page.answers.base_rate import base_rate

SCREENS: dict[str, ViewportSize] = {
    "desktop": {"width": 1440, "height": 900},
    "laptop": {"width": 1280, "height": 720},
    "phone": {"width": 390, "height": 844},
}
FAST_MS = 300
CONTROLS_IN_VIEW = """
[...document.querySelectorAll("button, input, textarea, select, a, summary")].filter((control) => {
  const { top, width } = control.getBoundingClientRect();
  const isVisible = control.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  return isVisible && top < innerHeight && width > 2;
}).length
"""


def bottom(page: Page, part: str) -> float:
    """Return where an element ends, in pixels from the top of the screen."""
    box = page.locator(part).first.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


def documents(page: Page) -> list[str]:
    return [field.input_value() for field in page.locator(".page-text:visible").all()]


def answer_of(page: Page, method: str) -> str:
    return page.locator(f"#order-table [data-method={method}] .page-order-answer").inner_text()


@pytest.mark.parametrize("screen", SCREENS)
def test_first_screen_shows_vanilla_change_and_pine_stay(page: Page, screen: str) -> None:
    page.set_viewport_size(SCREENS[screen])
    rows = page.locator("#order-table tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("4 of 6 correct · 3 answers")
    expect(rows.last).to_contain_text("6 of 6 correct · 1 answer")
    expect(page.locator("#order-table")).to_contain_text("PINE gave 1 answer, correct in 6 of 6 orders.")
    expect(page.locator("#question textarea")).to_have_value(DEFAULT.question)
    if screen != "phone":
        assert bottom(page, "#order-table .page-order-foot") <= SCREENS[screen]["height"]
    assert cut_off(page) == 0


def test_link_opens_the_base_rate(page: Page) -> None:
    page.get_by_role("button", name="Is PINE always right?", exact=True).click()
    rows = page.locator("#base-rate tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.first).to_be_in_viewport()
    for percentage in (row for method in base_rate().methods for row in (method.correct, method.never)):
        expect(page.locator("#base-rate")).to_contain_text(f"{percentage:.0f}%")


def test_first_screen_has_few_controls(page: Page) -> None:
    page.set_viewport_size(SCREENS["laptop"])
    expect(page.locator("#order-table tbody tr")).to_have_count(4)
    assert page.evaluate(CONTROLS_IN_VIEW) <= 20


def test_a_tick_selects_its_order_at_once_for_documents_bars_and_answers(page: Page) -> None:
    expect(page.locator(".page-text:visible")).to_have_count(len(DEFAULT.documents))
    entered = documents(page)
    bars = page.locator("#order-table [data-method=pine] .page-lane")
    before = bars.get_attribute("aria-label")
    pine = answer_of(page, "pine")
    ticks = page.locator("#order-table [data-method=vanilla] .page-ticks span")
    assert "1745" in answer_of(page, "vanilla")
    ticks.nth(2).click()
    expect(page.locator("#order-table [data-method=vanilla] .page-lane")).to_have_attribute(
        "aria-label", "From far to near: B A C", timeout=FAST_MS
    )
    expect(text(page, 1)).to_have_value(entered[1], timeout=FAST_MS)
    assert answer_of(page, "pine") == pine and bars.get_attribute("aria-label") == before
    assert "1913" in answer_of(page, "vanilla")
    slider = page.get_by_role("slider", name="Document order")
    slider.press("ArrowRight")
    expect(page.locator("#order-table [role=status]")).to_have_text("Order 4 of 6: B C A")
    expect(slider).to_have_attribute("aria-valuetext", "Order 4 of 6: B C A")
    expect(slider).to_be_focused()


def test_moving_a_document_selects_its_order_and_outdates_nothing(page: Page) -> None:
    text(page, 1).focus()
    page.keyboard.press("Alt+ArrowRight")
    expect(page.locator("#order-table [role=status]")).to_have_text("Order 3 of 6: B A C")
    expect(page.locator("#order-table [data-method=pine]")).to_contain_text("6 of 6 correct")
    page.locator("#save-session").focus()
    page.wait_for_timeout(1500)  # for what the server answers to a change of the form
    expect(page.locator(".page-outdated")).to_have_count(0)


def test_play_goes_through_all_orders_and_back(page: Page) -> None:
    status = page.locator("#order-table [role=status]")
    page.get_by_role("button", name="Play 6 orders").click()
    for order in ("2 of 6: A C B", "3 of 6: B A C", "4 of 6", "5 of 6", "6 of 6: C B A", "1 of 6: A B C"):
        expect(status).to_contain_text(order)
    expect(page.get_by_role("button", name="Play 6 orders")).to_be_visible()
    page.wait_for_timeout(1500)  # after which a draft is kept
    page.reload()
    expect(page.locator("#example-note")).to_contain_text("Draft restored")
    expect(page.locator("#order-table tbody tr").last).to_contain_text("6 of 6 correct")


def test_a_run_of_all_orders_fills_the_table_and_erases_nothing_before(page: Page) -> None:
    wait_for_model(page)
    pick(page, SHORT)
    set_length(page, 8)
    rows = page.locator("#order-table tbody tr")
    page.locator("#shuffle").click()
    expect(page.locator("#stop-shuffle")).to_be_enabled()
    expect(rows).to_have_count(4)
    expect(page.locator("#shuffle-status")).to_contain_text("Done: 2 orders", timeout=RUN_MS)
    expect(rows.last).to_contain_text("1 answer")
    expect(page.locator("#order-table [data-kind=open]")).to_have_count(0)
    page.locator("#question textarea").fill("")
    expect(page.locator("#form-problem")).to_contain_text("No question")
    expect(page.locator("#run")).to_be_disabled()
    expect(page.locator("#shuffle")).to_be_disabled()
    expect(rows.last).to_contain_text("1 answer")
    page.locator("#question textarea").fill("Another?")
    expect(page.locator(".page-outdated")).to_contain_text("You changed: question.")
    expect(page.locator("#run")).to_be_enabled()


def test_one_order_is_run_and_added_to_those_that_are_there(page: Page) -> None:
    wait_for_model(page)
    set_length(page, 8)
    for method in ("NIA", "PCW"):
        page.get_by_role("checkbox", name=method, exact=True).first.uncheck()
    page.locator("#run").click()
    expect(page.locator("#run-status")).to_contain_text("Done:", timeout=RUN_MS)
    ticks = page.locator("#order-table [data-method=pine] .page-ticks span")
    expect(ticks).to_have_count(1)
    text(page, 1).focus()
    page.keyboard.press("Alt+ArrowRight")
    expect(page.locator("#order-table [role=status]")).to_have_text("This order is not computed.")
    page.locator("#run").click()
    expect(ticks).to_have_count(2, timeout=RUN_MS)
    expect(page.locator("#order-table [data-method=pine]")).to_contain_text("1 answer")


def test_another_example_brings_its_own_answers(page: Page) -> None:
    for example in (SHORT, DEFAULT):
        pick(page, example)
        ticks = page.locator("#order-table [data-method=pine] .page-ticks span")
        expect(ticks).to_have_count(2 if example is SHORT else 6)
    open_tab(page, "Tutorial")
    assert cut_off(page) == 0
