"""The tutorial: on the page, where it leads to the live figures, and saved, where it needs no network."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.driving import control, open_tab, plot, save
from viz.cards.tutorial import CONTENT

NUM_STEPS = len(CONTENT["steps"])


@pytest.mark.slow
def test_tutorial_explains_steps_on_the_page_and_offline(
    browser: Browser, page: Page, offline: Page, tmp_path: Path
) -> None:
    assert_tutorial_of_the_page_leads_to_live_figures(page)
    open_tab(page, "Tutorial")
    address = save(page, page.locator("#download-tutorial"), tmp_path).as_uri()
    offline.set_viewport_size({"width": 1280, "height": 720})
    offline.goto(address)
    assert_steps_are_turned_and_fit_the_screen(offline)
    offline.reload()
    offline.set_viewport_size({"width": 1280, "height": 720})
    assert_figures_respond_to_guesses_words_and_switches(offline)
    with browser.new_context(java_script_enabled=False) as context, context.new_page() as scriptless:
        scriptless.goto(address)
        expect(scriptless.locator(".pine-tutorial-count:visible")).to_have_count(NUM_STEPS)
        expect(scriptless.locator(".pine-quiz-result").first).to_be_visible()
        expect(scriptless.locator(".pine-tutorial-bar")).to_be_hidden()


def assert_tutorial_of_the_page_leads_to_live_figures(page: Page) -> None:
    open_tab(page, "Tutorial")
    tutorial = page.locator("#tutorial")
    tutorial.get_by_role("button", name=re.compile("^Step 1")).first.click()
    count = tutorial.locator(".pine-current .pine-tutorial-count")
    tutorial.locator("[data-turn='1']").focus()
    for key, step in (("Alt+Period", 2), ("Alt+Comma", 1)):
        page.keyboard.press(key)
        expect(count).to_have_text(f"Step {step} of {NUM_STEPS}")
    page.get_by_role("button", name="Worked example: eight tokens").click()
    positions = page.locator("#running-example pine-figure").last
    positions.get_by_role("button", name="the decoded token").click()
    expect(positions.locator(".pine-figure-title")).to_contain_text("the decoded token")
    expect(positions.locator(".ytick")).to_have_text(["PINE", "SP", "PCW", "NIA", "Vanilla"])
    page.get_by_role("button", name="Glossary and keyboard shortcuts").click()
    expect(page.locator("#keys kbd").first).to_have_text("Ctrl+Enter")

    tutorial.get_by_role("button", name=re.compile("^Step 5")).click()
    tutorial.locator(".pine-current").get_by_role("link", name="Open in Internals").click()
    expect(page.get_by_role("tab", name="Document importance")).to_have_attribute("aria-selected", "true")
    expect(plot(page, "importance")).to_be_visible()
    query = control(page, "Query token")
    page.evaluate("pine.pictures.select({ query: 'document 0' })")
    expect(query).to_have_value(re.compile("^Document A"))
    open_tab(page, "Attention masks")
    page.locator("#masks-how summary").click()
    page.locator("#masks-how .pine-term", has_text="mask").click()
    explanation = page.locator("#term-mask")
    expect(explanation).to_contain_text("which keys a query can attend to")
    page.keyboard.press("Escape")  # ends only the explanation
    expect(explanation).to_be_hidden()
    open_tab(page, "RoPE positions")  # a cleared query would show here
    expect(query).to_have_value(re.compile("^Document A"))


def open_step(page: Page, number: int) -> None:
    page.locator(f"[data-step='{number - 1}']").click()
    expect(page.locator(".pine-current .pine-tutorial-count")).to_have_text(f"Step {number} of {NUM_STEPS}")


def shown_step(page: Page) -> int:
    """Return the number of the only visible step."""
    (count,) = [count for count in page.locator(".pine-tutorial-count").all() if count.is_visible()]
    return int(count.inner_text().split()[1])


def guess(page: Page) -> None:
    """Guess "Same" for each method of the current step, and reveal the results."""
    for entry in page.locator(".pine-current .pine-quiz-entry").all():
        entry.get_by_role("button", name="Same").click()
    page.locator(".pine-current [data-reveal]").click()


def assert_steps_are_turned_and_fit_the_screen(page: Page) -> None:
    explanation = page.locator(".pine-current").get_by_text("This is position bias")
    expect(explanation).to_be_hidden()
    guess(page)
    expect(explanation).to_be_visible()
    page.keyboard.press("ArrowRight")
    assert shown_step(page) == 2
    page.get_by_role("button", name="Next").click()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert shown_step(page) == 1
    open_step(page, NUM_STEPS - 1)
    page.get_by_role("button", name="Next").press("Enter")
    expect(page.get_by_role("button", name="Back")).to_be_focused()  # Next is disabled
    page.keyboard.press("ArrowRight")
    assert shown_step(page) == NUM_STEPS
    expect(page.locator("[data-status]")).to_contain_text(f"Step {NUM_STEPS} of {NUM_STEPS}")
    open_step(page, 5)
    page.locator(".pine-current .pine-plot").focus()
    page.keyboard.press("ArrowRight")  # in a figure it turns no step
    assert shown_step(page) == 5

    for width, height in ((1280, 720), (390, 10_000)):
        page.set_viewport_size({"width": width, "height": min(height, 800)})
        for number in range(1, NUM_STEPS + 1):
            open_step(page, number)
            if page.locator(".pine-current .pine-quiz-entry button:enabled").count():
                guess(page)
            if page.locator(".pine-current pine-figure").count():
                expect(page.locator(".pine-current .pine-plot .main-svg").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("document.querySelector('.pine-tutorial').offsetHeight") <= height, number


def assert_figures_respond_to_guesses_words_and_switches(page: Page) -> None:
    open_step(page, NUM_STEPS - 1)
    quiz = page.locator(".pine-current .pine-quiz")
    entries, score = quiz.locator(".pine-quiz-entry").all(), quiz.locator(".pine-quiz-score")
    quiz.get_by_role("button", name="Reveal").click()
    expect(score).to_contain_text(f"{len(entries)} guesses left")
    expect(quiz.locator("pine-figure")).to_be_hidden()
    expect(quiz.locator(".pine-quiz-result").first).to_be_hidden()
    entries[0].get_by_role("button", name="Different").click()
    guess(page)
    num_same = quiz.locator("[data-truth=same]").count()
    assert 0 < num_same < len(entries)
    expect(score).to_contain_text(f"{num_same} of {len(entries)}")
    expect(quiz.locator("pine-figure .main-svg").first).to_be_visible()

    open_step(page, 2)
    page.locator(".pine-current .pine-term").first.click()
    expect(page.locator("#term-token")).to_be_visible()
    page.keyboard.press("Escape")
    for number in range(2, 8):
        open_step(page, number)
        step = page.locator(".pine-current")
        shapes = step.locator(".pine-plot .shapelayer path")
        expect(step.locator(".pine-plot .main-svg").first).to_be_visible()
        before = shapes.count()
        for words in step.locator(".pine-pointer").all():
            words.hover()
            assert shapes.count() > before
            page.mouse.move(0, 0)
            expect(shapes).to_have_count(before)
    figure = step.locator("pine-figure")
    expect(figure.get_by_role("status").first).to_contain_text("0 cells differ")
    ticks = figure.locator(".ytick")
    expect(ticks).to_have_text(["C", "B", "A"])  # from below
    figure.get_by_role("button", name="C B A").click()
    expect(ticks).to_have_text(["A", "B", "C"])
    words.click()  # stays, which a finger needs
    page.mouse.move(0, 0)
    expect(words).to_have_attribute("aria-pressed", "true")

    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".pine-tutorial-step:visible")).to_have_count(NUM_STEPS)
    for name in ("mask", "proof"):
        expect(page.locator(f"#tutorial-{name} .main-svg").first).to_be_visible()
