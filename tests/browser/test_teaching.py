"""The lesson on the page, the words, and the projector, in a browser."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.driving import control, cut_off, open_tab, plot, save


def test_the_lesson_leads_to_a_quiz_and_to_the_live_picture(drawn: Page) -> None:
    open_tab(drawn, "Tutorial")
    lesson = drawn.locator("#lesson")
    lesson.get_by_role("button", name="Step 1", exact=False).first.click()
    for number in range(2, 10):
        lesson.get_by_role("button", name="Next").click()
        expect(lesson.locator(".pine-current .pine-lesson-count")).to_have_text(f"Step {number} of 9")
        expect(lesson.locator(".pine-lesson-step:visible")).to_have_count(1)
    expect(lesson.get_by_role("button", name="Next")).to_be_disabled()
    lesson.get_by_role("button", name="Back").click()
    quiz = lesson.locator(".pine-current .pine-quiz")
    for entry in quiz.locator(".pine-quiz-entry").all():
        entry.get_by_role("button", name="Same").click()
    quiz.get_by_role("button", name="Reveal").click()
    expect(quiz.locator(".pine-quiz-score")).to_contain_text("of 5")
    expect(quiz.locator(".pine-plot .main-svg").first).to_be_visible()
    lesson.get_by_role("button", name=re.compile("^Step 5")).click()
    lesson.locator(".pine-current").get_by_role("link", name="Open in Internals").click()
    expect(drawn.get_by_role("tab", name="Document importance")).to_have_attribute("aria-selected", "true")
    expect(plot(drawn, "importance")).to_be_visible()


@pytest.mark.slow
def test_the_lesson_is_saved_with_the_run_of_the_class(drawn: Page, browser: Browser, tmp_path: Path) -> None:
    open_tab(drawn, "Tutorial")
    path = save(drawn, drawn.locator("#download-lesson"), tmp_path)
    assert path.suffix == ".html"
    sent_request: list[str] = []
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.on("request", lambda request: sent_request.append(request.url))
    page.goto(path.as_uri())
    expect(page.locator("main")).to_contain_text("Your run: SmolLM2-135M-Instruct")
    page.get_by_role("button", name="Next").click()
    # The run had two documents, the recorded one has three.
    ticks = page.locator(".pine-current .pine-plot .ytick")
    expect(ticks).to_have_text(["prefix", "A", "B", "question"])
    assert sent_request == [path.as_uri()]
    context.close()


@pytest.mark.slow
def test_a_word_explains_itself_and_escape_ends_only_that(drawn: Page) -> None:
    query = control(drawn, "Query token")
    drawn.evaluate("pinePick({ query: 'document 0' })")
    expect(query).to_have_value(re.compile("^Document A"))
    drawn.locator("#masks-how summary").click()
    drawn.locator("#masks-how .pine-term", has_text="mask").click()
    explanation = drawn.locator("#term-mask")
    expect(explanation).to_be_visible()
    expect(explanation).to_contain_text("which keys a query can attend to")
    drawn.keyboard.press("Escape")
    expect(explanation).to_be_hidden()
    open_tab(drawn, "RoPE positions")  # a cleared query would show here
    expect(query).to_have_value(re.compile("^Document A"))


def test_presentation_leads_a_class_through_its_steps(drawn: Page) -> None:
    open_tab(drawn, "Tutorial")  # an earlier test may have left it at another step
    drawn.locator("#lesson").get_by_role("button", name="Step 1", exact=False).first.click()
    drawn.set_viewport_size({"width": 1280, "height": 720})
    drawn.get_by_role("button", name="Present").click()
    place = drawn.locator("#projector-bar span")
    expect(place).to_have_text("1 of 3: See it")
    expect(drawn.locator("#order-table table")).to_be_visible()
    expect(drawn.locator("#header")).to_be_hidden()
    play = drawn.locator("#order-table [name=play]")
    for label in ("Pause", "Play"):
        drawn.keyboard.press(" ")
        expect(play).to_contain_text(label)
    drawn.keyboard.press("ArrowRight")
    expect(place).to_have_text("2 of 3: Why")
    for number in range(1, 4):  # the arrows turn the three steps of Why first
        expect(drawn.locator("#why [data-step][aria-current]")).to_have_text(str(number))
        expect(drawn.locator("#why .pine-current .pine-plot .main-svg").first).to_be_visible()
        assert drawn.evaluate("document.documentElement.scrollHeight") <= 720, number
        assert cut_off(drawn) == 0
        drawn.keyboard.press("ArrowRight")
    # In the tutorial the arrows turn its steps, also at its ends.
    expect(place).to_have_text("3 of 3: Tutorial")
    count = drawn.locator("#lesson .pine-current .pine-lesson-count")
    expect(count).to_contain_text("Step 1")
    for key, step in (("ArrowRight", "Step 2"), ("ArrowLeft", "Step 1"), ("ArrowLeft", "Step 1")):
        drawn.keyboard.press(key)
        expect(count).to_contain_text(step)
    drawn.keyboard.press("PageUp")
    expect(place).to_have_text("2 of 3: Why")
    drawn.keyboard.press("Escape")
    expect(drawn.locator("#header")).to_be_visible()
    expect(drawn.locator("#projector-bar")).to_be_hidden()
