"""The lesson on the page, the words, and the projector, in a browser."""

import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browser.driving import TABS, control, cut_off, open_tab, save


def test_the_lesson_leads_to_a_quiz_and_to_the_live_picture(drawn: Page) -> None:
    open_tab(drawn, "Lesson")
    lesson = drawn.locator("#lesson")
    lesson.get_by_role("button", name="Step 1", exact=False).first.click()
    for number in range(2, 9):
        lesson.get_by_role("button", name="Next").click()
        expect(lesson.locator(".pine-current .pine-lesson-count")).to_have_text(f"Step {number} of 8")
        expect(lesson.locator(".pine-lesson-step:visible")).to_have_count(1)
    expect(lesson.get_by_role("button", name="Next")).to_be_disabled()
    for entry in lesson.locator(".pine-quiz-entry").all():
        entry.get_by_role("button", name="keeps its answer").click()
    lesson.get_by_role("button", name="Reveal").click()
    expect(lesson.locator(".pine-quiz-score")).to_have_text(re.compile(r"^You guessed \d of 5\.$"))
    expect(lesson.locator(".pine-quiz-result").first).to_be_visible()
    lesson.get_by_role("button", name=re.compile("^Step 5")).click()
    lesson.locator(".pine-current").get_by_role("link", name="See it live").click()
    expect(drawn.get_by_role("tab", name="Importance")).to_have_attribute("aria-selected", "true")
    expect(drawn.locator("#importance .pine-picture").first).to_be_visible()


def test_the_lesson_is_saved_with_the_run_of_the_class(drawn: Page, browser: Browser, tmp_path: Path) -> None:
    open_tab(drawn, "Lesson")
    path = save(drawn, drawn.locator("#download-lesson"), tmp_path)
    assert path.suffix == ".html"
    asked: list[str] = []
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    expect(page.locator("main")).to_contain_text("With a run of your own: SmolLM2-135M-Instruct")
    page.get_by_role("button", name="Next").click()
    # The run had two documents, the recorded one has three.
    first = page.locator(".pine-current .pine-mask").first
    expect(first.locator("tbody td")).to_have_count(16)
    assert asked == [path.as_uri()]
    context.close()


def test_a_word_explains_itself_and_escape_ends_only_that(drawn: Page) -> None:
    query = control(drawn, "Query: whose view")
    drawn.locator("#masks .pine-mask").first.locator(".pine-row-pick").first.click()
    row = drawn.locator("#masks .pine-mask").first.locator("tbody tr").nth(1)
    row.locator(".pine-row-pick").click()
    expect(query).to_have_value(re.compile("^Document A"))
    drawn.locator("#inside-section .pine-term", has_text="mask").click()
    explanation = drawn.locator("#term-mask")
    expect(explanation).to_be_visible()
    expect(explanation).to_contain_text("Who may read whom")
    drawn.keyboard.press("Escape")
    expect(explanation).to_be_hidden()
    open_tab(drawn, "Positions")  # a clear would have been answered by now
    expect(query).to_have_value(re.compile("^Document A"))


def test_the_projector_shows_one_panel_at_a_time(drawn: Page) -> None:
    drawn.set_viewport_size({"width": 1280, "height": 720})
    drawn.get_by_role("button", name="Projector").click()
    sections = ["#workspace", *(section for section, _ in TABS)]
    tabs = [(section, tab) for section, labels in TABS for tab in labels]
    place = drawn.locator("#projector-bar span")
    expect(place).to_have_text(f"1 of {len(tabs) + 1}")
    for number, (section, tab) in enumerate([("#workspace", ""), *tabs], 1):
        expect(place).to_have_text(f"{number} of {len(tabs) + 1}")
        assert [name for name in sections if drawn.locator(name).is_visible()] == [section]
        if tab:
            expect(drawn.get_by_role("tab", name=tab, exact=True)).to_have_attribute("aria-selected", "true")
        assert cut_off(drawn) == 0, tab
        drawn.keyboard.press("ArrowRight")
    expect(place).to_have_text(f"1 of {len(tabs) + 1}")
    drawn.keyboard.press("ArrowLeft")
    expect(place).to_have_text(f"{len(tabs) + 1} of {len(tabs) + 1}")
    drawn.get_by_role("button", name="Leave").click()
    for name in sections:
        expect(drawn.locator(name)).to_be_visible()
    expect(drawn.locator("#projector-bar")).to_be_hidden()
