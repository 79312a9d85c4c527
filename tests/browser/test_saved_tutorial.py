"""The saved tutorial in a browser, from the disk: steps, guesses, marks, switches, and no requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from viz.cards.tutorial import CONTENT
from viz.page.tutorial import tutorial_file

pytestmark = pytest.mark.slow

NUM_STEPS = len(CONTENT["steps"])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Path(tutorial_file(None, str(tmp_path_factory.mktemp("tutorial")))).as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The saved tutorial; the test fails on errors, and on requests for anything but the file."""
    problems: list[str] = []
    with browser.new_context(viewport={"width": 1280, "height": 720}) as context, context.new_page() as page:
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.on("request", lambda request: problems.append(request.url) if request.url != address else None)
        page.goto(address)
        yield page
    assert problems == []


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


def test_buttons_dots_and_keys_turn_steps_that_fit_the_screen(page: Page) -> None:
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


def test_figures_answer_to_guesses_words_and_switches(page: Page) -> None:
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


def test_texts_are_shown_without_a_script(browser: Browser, address: str) -> None:
    with browser.new_context(java_script_enabled=False) as context, context.new_page() as page:
        page.goto(address)
        expect(page.locator(".pine-tutorial-count:visible")).to_have_count(NUM_STEPS)
        expect(page.locator(".pine-quiz-result").first).to_be_visible()
        expect(page.locator(".pine-tutorial-bar")).to_be_hidden()
