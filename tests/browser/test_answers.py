"""The answers: in sight on a laptop, in full, and beside each other with the words that differ marked."""

import random

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.driving import (
    DEFAULT,
    SELECTION,
    control,
    cut_off,
    open_tab,
    unfold,
)
from tests.browser.test_accessibility import violations
from viz.cards.compare import word_diff

LAPTOPS: tuple[ViewportSize, ...] = ({"width": 1366, "height": 768}, {"width": 1280, "height": 800})
NARROW: ViewportSize = {"width": 320, "height": 640}
MAIN_JOB = ("#question", ".page-card:visible", "#add-document", "#run", "#shuffle", "#order-table table")


def texts(page: Page, inside: str) -> list[str]:
    return [text.strip() for text in page.locator(f"{inside} .pine-answer-text").all_inner_texts()]


def test_the_main_job_is_on_a_laptops_first_screen(page: Page) -> None:
    for size in LAPTOPS:
        page.set_viewport_size(size)
        expect(page.locator(".page-card:visible")).to_have_count(len(DEFAULT.documents))
        for part in MAIN_JOB:
            for box in page.locator(part).evaluate_all(
                "nodes => nodes.map(node => node.getBoundingClientRect())"
            ):
                assert box["top"] >= 0, (part, size)
                assert box["bottom"] <= size["height"], (part, size)


def test_two_answers_stand_beside_each_other_with_their_differences_marked(drawn: Page) -> None:
    drawn.set_viewport_size(NARROW)
    query = control(drawn, SELECTION[1])
    query.click()
    drawn.get_by_role("option").first.click()
    chosen = query.input_value()
    unfold(drawn, "#answers-in-full")
    answers = dict(zip(drawn.locator("#answers h3").all_inner_texts(), texts(drawn, "#answers"), strict=True))

    opener = drawn.locator("#answers [data-answer=vanilla][data-beside]")
    opener.press("Enter")
    dialog = drawn.get_by_role("dialog", name="Answer")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Compare with").select_option("PCW")
    assert texts(drawn, "dialog") == [answers["Vanilla"], answers["PCW"]]
    expected = [
        ["".join(words).strip() for words, is_changed in runs if is_changed]
        for runs in word_diff(answers["Vanilla"], answers["PCW"])
    ]
    shown = [
        [mark.strip() for mark in card.locator("mark").all_inner_texts()]
        for card in dialog.locator("article").all()
    ]
    assert shown == expected
    assert any(expected), "the answers of the example are alike; nothing was seen"
    expect(dialog.get_by_role("status")).to_contain_text("words differ (PCW)")
    first, second = (card.bounding_box() for card in dialog.locator("article").all())
    assert first and second and second["y"] > first["y"] + first["height"] - 1
    assert cut_off(drawn) == 0
    assert violations(drawn, "dialog") == []

    drawn.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()
    open_tab(drawn, "Attention masks")
    assert query.input_value() == chosen  # Escape was the dialog's alone


@pytest.mark.slow
def test_an_open_answer_follows_its_card_while_it_is_redrawn(drawn: Page) -> None:
    unfold(drawn, "#answers-in-full")
    card = drawn.locator("#answers [data-method=nia]")
    card.get_by_role("button", name="Expand").click()
    dialog = drawn.get_by_role("dialog")
    text = card.locator(".pine-answer-text")
    before = text.inner_text()
    expect(dialog.locator(".pine-answer-text")).to_have_text(before)
    text.evaluate("node => { node.textContent = 'One word more.'; }")
    expect(dialog.locator(".pine-answer-text")).to_have_text("One word more.")
    text.evaluate("(node, before) => { node.textContent = before; }", before)
    expect(dialog.locator(".pine-answer-text")).to_have_text(before)
    dialog.get_by_role("button", name="Close").click()
    expect(card.get_by_role("button", name="Expand")).to_be_focused()


def test_words_differ_where_the_picture_of_the_change_says_so(drawn: Page) -> None:
    draw = random.Random(7)
    words = ("the ", "key", " is", "Clara. ", "\n", "鑰匙", "it's ", "naïve", "_x1 ", "¿")
    pairs = [["".join(draw.choices(words, k=draw.randrange(12))) for _ in range(2)] for _ in range(200)]
    found = drawn.evaluate(
        "pairs => pairs.map(pair => pineAnswers.compare(pair)"
        ".map(own => own.map(({ word, isShared }) => [word, !isShared])))",
        pairs,
    )
    for pair, sides in zip(pairs, found, strict=True):
        expected = [
            [[word, changed] for words, changed in runs for word in words] for runs in word_diff(*pair)
        ]
        assert sides == expected, pair
