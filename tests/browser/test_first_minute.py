"""A visitor who knows nothing: the first screen, a shuffle, a picture and a step of the lesson."""

import re

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.driving import DEFAULT, RUN_MS, cut_off, open_tab, plot, set_length, unfold, wait_for_model

SCREENS: dict[str, ViewportSize] = {
    "desktop": {"width": 1440, "height": 900},
    "projector": {"width": 1280, "height": 720},
    "phone": {"width": 390, "height": 844},
}


def bottom(page: Page, part: str) -> float:
    """Where it ends on the screen, in pixels from above."""
    box = page.locator(part).first.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


@pytest.mark.parametrize("screen", SCREENS)
def test_the_first_screen_shows_vanilla_change_and_pine_stay(page: Page, screen: str) -> None:
    page.set_viewport_size(SCREENS[screen])
    strip = page.locator("#answers .pine-strip")
    expect(strip.locator("tbody tr")).to_have_count(4)
    rows = strip.locator("tbody tr").all_inner_texts()
    said = {row.split()[0]: re.sub(r"\s+", " ", row) for row in rows}
    assert said["Vanilla"].endswith("3 answers, right in 3")
    assert said["PINE"].endswith("1 answer, right in 6")
    marks = strip.locator("td.pine-strip-letter > span[aria-hidden]")
    inks = (
        "marks => marks.flatMap((one) => [one, one.parentElement]).map((one) => getComputedStyle(one).color)"
    )
    colors = marks.evaluate_all(inks)
    assert len(colors) == 48 and colors[::2] == colors[1::2], "a mark is as readable as its letter"
    assert bottom(page, "#answers .pine-strip table") <= SCREENS[screen]["height"]
    if screen == "desktop":
        assert bottom(page, "#answers .pine-answers") <= SCREENS[screen]["height"]
    if screen != "phone":
        expect(page.locator("#question textarea")).to_have_value(DEFAULT.question)
        assert bottom(page, "#question") <= SCREENS[screen]["height"]
    assert cut_off(page) == 0


def test_a_minute_is_enough_for_a_shuffle_a_picture_and_a_step(page: Page) -> None:
    """On a phone, the narrowest; larger screens show the same without being too narrow for it."""
    page.set_viewport_size(SCREENS["phone"])
    wait_for_model(page)
    unfold(page)
    for name in ("NIA", "PCW"):
        page.get_by_role("checkbox", name=name, exact=True).uncheck()
    set_length(page, 8)
    open_tab(page, "Shuffle")
    page.get_by_label("with controls").uncheck()
    page.locator("#shuffle").click()
    expect(page.locator("#shuffle-status")).to_contain_text("Done: 6 orders", timeout=RUN_MS)
    expect(page.locator("#shuffle-verdict")).to_contain_text("In 6 orders PINE gives 1 answer, right in 6")
    for screen in reversed(SCREENS.values()):
        page.set_viewport_size(screen)
        open_tab(page, "Shuffle")
        expect(page.locator("#shuffle-matrix .pine-plot")).to_be_visible()
        open_tab(page, "Masks")
        expect(plot(page, "token-masks")).to_contain_text("PINE")
        open_tab(page, "Learn")
        assert cut_off(page) == 0
    page.set_viewport_size(SCREENS["phone"])
    open_tab(page, "Learn")
    step = page.locator("#lesson .pine-current")
    expect(step.locator("pine-figure")).to_be_hidden()
    step.get_by_role("button", name="Different").click()
    step.get_by_role("button", name="Reveal").click()
    expect(step.locator(".pine-quiz-score")).to_contain_text("1 of 1")
    expect(step.locator(".pine-plot .main-svg").first).to_be_visible()
    assert cut_off(page) == 0


@pytest.mark.slow
def test_on_a_phone_what_is_asked_is_folded_until_it_is_wanted(page: Page) -> None:
    page.set_viewport_size(SCREENS["phone"])
    expect(page.locator("#answers")).to_be_visible()
    expect(page.locator("#ask")).to_be_hidden()
    for is_open in (True, False):
        page.get_by_role("button", name="Question and documents").click()
        expect(page.locator("#ask")).to_be_visible(visible=is_open)
    open_tab(page, "Learn")
    page.locator("#lesson").get_by_role("link", name="Try it with your documents").first.click()
    expect(page.locator("#question")).to_be_visible()


def test_on_a_phone_run_leads_to_the_answers_below_it(page: Page) -> None:
    page.set_viewport_size(SCREENS["phone"])
    wait_for_model(page)
    unfold(page)
    set_length(page, 8)
    first = page.locator("#answers .pine-card").first
    page.locator("#run").scroll_into_view_if_needed()
    expect(first).not_to_be_in_viewport()
    page.locator("#run").click()
    expect(first).to_be_in_viewport()
    expect(page.locator("#run-status")).to_contain_text("Done:", timeout=RUN_MS)
