"""The saved lesson in a browser, from the disk: steps by mouse and key, the quiz, no request to anyone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from viz.page.lesson.lesson_panel import lesson_file


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Path(lesson_file(None, str(tmp_path_factory.mktemp("lesson")))).as_uri()


@pytest.fixture(scope="module")
def kept_page(browser: Browser, address: str) -> Iterator[tuple[Page, list[str]]]:
    """A page for one test after the other, with its errors and its requests for anything but the lesson."""
    complaints: list[str] = []
    with browser.new_context(viewport={"width": 390, "height": 800}) as context, context.new_page() as page:
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
        page.on("request", lambda asked: complaints.append(asked.url) if asked.url != address else None)
        yield page, complaints


@pytest.fixture
def page(kept_page: tuple[Page, list[str]], address: str) -> Iterator[Page]:
    """A page that shows the saved lesson from its start; the test fails on all that it complains of."""
    page, complaints = kept_page
    page.mouse.move(0, 0)
    page.goto(address)
    yield page
    assert complaints == []


def shown(page: Page) -> list[str]:
    """The steps that are to be seen."""
    return [count.inner_text() for count in page.locator(".pine-lesson-count").all() if count.is_visible()]


def test_one_step_is_shown_and_buttons_dots_and_keys_turn(page: Page) -> None:
    assert shown(page) == ["Step 1 of 8"]
    back, following = page.get_by_role("button", name="Back"), page.get_by_role("button", name="Next")
    expect(back).to_be_disabled()
    following.click()
    assert shown(page) == ["Step 2 of 8"]
    page.keyboard.press("ArrowRight")
    assert shown(page) == ["Step 3 of 8"]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert shown(page) == ["Step 1 of 8"]
    page.get_by_role("button", name="Step 8").click()
    assert shown(page) == ["Step 8 of 8"]
    expect(following).to_be_disabled()
    expect(page.locator("[aria-current=step]")).to_have_text("8")
    expect(page.locator("[data-said]")).to_contain_text("Step 8 of 8: Guess first")


def test_the_focus_stays_on_a_button_that_turns(page: Page) -> None:
    page.get_by_role("button", name="Step 7").click()
    page.get_by_role("button", name="Next").press("Enter")
    expect(page.get_by_role("button", name="Back")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    assert shown(page) == ["Step 7 of 8"]


def test_arrows_inside_a_picture_do_not_turn(page: Page) -> None:
    page.get_by_role("button", name="Step 2").click()
    page.locator(".pine-current .pine-scroll").first.focus()
    page.keyboard.press("ArrowRight")
    assert shown(page) == ["Step 2 of 8"]


def test_no_step_is_wider_than_a_phone(page: Page) -> None:
    for number in range(1, 9):
        page.get_by_role("button", name=f"Step {number}").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_quiz_counts_right_guesses_and_tells_nothing_before(page: Page) -> None:
    page.get_by_role("button", name="Step 8").click()
    quiz = page.locator(".pine-current .pine-quiz")
    result, score = quiz.locator(".pine-quiz-result").first, quiz.locator(".pine-quiz-score")
    expect(result).not_to_be_visible()
    expect(quiz.locator(".pine-quiz-afterwards")).not_to_be_visible()
    quiz.get_by_role("button", name="Reveal").click()
    expect(score).to_have_text("Guess first: 5 are left.")
    entries = quiz.locator(".pine-quiz-entry").all()
    for entry in entries:
        entry.get_by_role("button", name="changes it").click()
        entry.get_by_role("button", name="keeps its answer").click()
    expect(quiz.locator("[data-guess][aria-pressed=true]")).to_have_count(len(entries))
    quiz.get_by_role("button", name="Reveal").click()
    kept = quiz.locator("[data-truth=keeps]").count()
    assert 0 < kept < len(entries)
    expect(score).to_have_text(f"You guessed {kept} of {len(entries)}.")
    expect(result).to_be_visible()
    expect(quiz.locator(".pine-quiz-afterwards")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    assert shown(page) == ["Step 7 of 8"]


def test_the_first_step_says_what_it_shows_only_with_the_results(page: Page) -> None:
    step = page.locator(".pine-current")
    takeaway = step.get_by_text("This is position bias")
    expect(takeaway).to_be_hidden()
    step.get_by_role("button", name="changes it").click()
    step.get_by_role("button", name="Reveal").click()
    expect(takeaway).to_be_visible()


def test_arrow_keys_turn_from_the_start(page: Page) -> None:
    page.keyboard.press("ArrowRight")
    assert shown(page) == ["Step 2 of 8"]


def test_a_guess_comes_before_the_first_result(page: Page) -> None:
    answers = page.locator(".pine-current .pine-orders-row")
    assert answers.count() == 3 and not any(answer.is_visible() for answer in answers.all())
    page.get_by_role("button", name="changes it").first.click()
    page.get_by_role("button", name="Reveal").first.click()
    expect(answers.first).to_be_visible()


POINTERS = """
() => [...document.querySelectorAll(".pine-pointer")].map((words) => [
  words.textContent,
  words.closest(".pine-lesson-part").querySelectorAll(words.dataset.shows).length,
])
"""


def test_all_words_that_show_something_find_it(page: Page) -> None:
    found = dict(page.evaluate(POINTERS))
    assert len(found) > 10
    assert [words for words, spots in found.items() if not spots] == []
    assert found["the first"] == found["the last document"] == 5  # a row of the mask
    assert found["also those that come later"] == 3  # of three documents


def test_words_show_what_they_say_and_are_shown_by_it(page: Page) -> None:
    page.get_by_role("button", name="Step 2").click()
    part = page.locator(".pine-current .pine-lesson-part")
    last, test = part.get_by_role("button", name="the last document"), part.get_by_text("NIA is a test")
    shown_cells = part.locator("td.pine-shown")
    test.hover()
    expect(shown_cells).to_have_count(25)
    last.press("Enter")  # stays
    part.locator(".pine-lesson-source").hover()
    expect(shown_cells).to_have_count(5)
    assert part.locator(".pine-mask").first.locator("tbody tr").nth(3).locator("td.pine-shown").count() == 5
    last.press("Enter")
    page.get_by_role("button", name="Step 2").focus()
    expect(shown_cells).to_have_count(0)
    part.locator(".pine-mask").nth(1).locator("tbody td").nth(6).hover()
    expect(test).to_have_class("pine-pointer pine-shown")
    expect(last).to_have_class("pine-pointer")


def test_a_document_is_followed_into_both_pictures_of_the_proof(page: Page) -> None:
    page.get_by_role("button", name="Step 7").click()
    _, importance, ruler = page.locator(".pine-current .pine-lesson-part").all()
    importance.get_by_role("button", name="document A").hover()
    numbers = [
        sorted(cell.inner_text() for cell in picture.locator("td.pine-shown").all())
        for picture in importance.locator(".pine-picture").all()
    ]
    assert numbers[0] == numbers[1] and len(numbers[0]) == 5  # a row and a column
    ruler.get_by_role("button", name="document A").hover()
    blocks = ruler.locator(".pine-block.pine-shown").all()
    assert [block.inner_text() for block in blocks] == ["A", "A"]
    assert blocks[0].get_attribute("title") == blocks[1].get_attribute("title")


def test_a_word_explains_itself(page: Page) -> None:
    page.get_by_role("button", name="Step 2").click()
    page.locator(".pine-current .pine-term").first.click()
    expect(page.locator("#term-token")).to_be_visible()


def test_without_a_script_everything_is_shown(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert shown(page) == [f"Step {number} of 8" for number in range(1, 9)]
    expect(page.locator(".pine-quiz-result").first).to_be_visible()
    expect(page.locator(".pine-lesson-bar")).not_to_be_visible()
    context.close()
