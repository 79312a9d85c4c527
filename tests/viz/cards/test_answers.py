"""Answer cards: status, numbers with units, and text that stays text."""

from typing import Any

import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from viz.cards.answers import AnswerCard, AnswerState, Reading, answer_card, answer_grid, answer_status


def card(state: AnswerState = "waiting", **changes: Any) -> AnswerCard:
    values: dict[str, Any] = {"is_order_invariant": True, "state": state, **changes}
    return AnswerCard("pine", "PINE", "Documents see each other.", **values)


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (card(), "waiting"),
        (card("reading", layers_done=3, num_layers=30), "reading the prompt: layer 3 of 30"),
        (card("reading"), "reading the prompt"),
        (card("writing", text="Par"), "writing"),
        (card("finished", finish_reason="stop"), "finished"),
        (card("finished", finish_reason="length"), "finished at the token limit"),
        (card("stopped"), "stopped"),
        (card("failed", message="Shorten a document."), "failed"),
    ],
)
def test_the_status_says_how_far_the_answer_is(shown: AnswerCard, status: str) -> None:
    assert answer_status(shown) == status
    root = read_html(answer_card(shown))
    assert root.with_class("pine-status")[0].text == status
    assert root.with_class("pine-status")[0].attributes["aria-live"] == "polite"
    busy = "true" if shown.state in ("reading", "writing") else "false"
    assert root.all("article")[0].attributes["aria-busy"] == busy


def test_progress_has_the_layers() -> None:
    progress = read_html(answer_card(card("reading", layers_done=3, num_layers=30))).all("progress")[0]
    assert (progress.attributes["value"], progress.attributes["max"]) == ("3", "30")


def test_measured_numbers_have_units() -> None:
    shown = card("finished", text="x", num_tokens=14, prefill_s=0.524, decode_s_per_token=0.08)
    pairs = [
        (d.all("dt")[0].text, d.all("dd")[0].text)
        for d in read_html(answer_card(shown)).all("dl")[0].all("div")
    ]
    assert pairs == [("tokens", "14"), ("reading", "0.52 s"), ("writing", "12.5 tokens/s")]
    assert not read_html(answer_card(card("finished", text="x", decode_s_per_token=0.0))).all("dl")


def test_the_promise_is_in_words() -> None:
    assert "order-invariant" in answer_card(card())
    assert "depends on the order" in answer_card(card(is_order_invariant=False))


def test_a_failure_shows_its_sentence_and_a_recording_says_so() -> None:
    failed = read_html(answer_card(card("failed", message="Shorten a document.")))
    assert failed.with_class("pine-error")[0].text == "Shorten a document."
    assert "recorded" in answer_card(card(recorded=True)) and "recorded" not in answer_card(card())


def test_line_breaks_are_kept_and_an_empty_answer_is_said() -> None:
    text = "one\n\n  two"
    assert read_html(answer_card(card("finished", text=text))).with_class("pine-answer-text")[0].text == text
    assert "(empty answer)" in answer_card(card("finished"))


def test_the_grid_has_the_cards_in_order() -> None:
    other = AnswerCard("vanilla", "Vanilla", "The unmodified model.", False)
    articles = read_html(answer_grid([other, card()])).all("article")
    assert [article.attributes["data-method"] for article in articles] == ["vanilla", "pine"]
    assert answer_card(card()).strip() in answer_grid([other, card()])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_come_out_as_text(text: str) -> None:
    shown = card("finished", text=text)
    assert_harmless(answer_grid([shown, card("failed", message=text)]))
    assert read_html(answer_card(shown)).with_class("pine-answer-text")[0].text == text


# What a task reads in an answer


def reading_of(shown: AnswerCard) -> str:
    (paragraph,) = read_html(answer_card(shown)).with_class("pine-reading")
    return " ".join(paragraph.text.split())


@pytest.mark.parametrize(
    ("text", "reading", "said"),
    [
        ("B is wrong: [[A]]", Reading("A", "verdict"), "verdict reads as A"),
        ("B is wrong: [[A]]", Reading("A", "verdict", 1.0), "verdict reads as A ✓ right"),
        ("Answer: 7", Reading("7", "number", 0.0), "number reads as 7 ✗ wrong"),
        ("Both.", Reading(None, "verdict", 0.5), "no verdict found ◐ 0.5 points"),
        ("Both.", Reading(None, "verdict"), "no verdict found"),
        (" Brenholt. ", Reading("Brenholt.", "answer", 1.0), "✓ right"),
    ],
)
def test_a_finished_card_says_what_was_read_and_how_it_scores(text: str, reading: Reading, said: str) -> None:
    assert reading_of(card("finished", text=text, reading=reading)) == said


def test_an_answer_that_is_all_read_and_not_scored_needs_no_more_words() -> None:
    shown = card("finished", text="Brenholt. ", reading=Reading("Brenholt.", "answer"))
    assert not read_html(answer_card(shown)).with_class("pine-reading")
    assert not read_html(answer_card(card("finished", text="Brenholt."))).with_class("pine-reading")


def test_a_drawing_stands_on_the_card() -> None:
    shown = card("finished", text="CO", reading=Reading("CO", "molecule", drawing="<svg></svg>"))
    (drawing,) = read_html(answer_card(shown)).with_class("pine-sketch")
    assert [child.tag for child in drawing.children] == ["svg"]


def test_a_card_names_the_model_where_it_is_not_the_usual_one() -> None:
    assert "Answered by molecules." in answer_card(card(model="molecules"))
    assert "Answered by" not in answer_card(card())


@pytest.mark.parametrize("text", HOSTILE)
def test_what_was_read_in_a_hostile_answer_comes_out_as_text(text: str) -> None:
    shown = card("finished", text=f"Answer {text}", reading=Reading(text, "value", 0.0), model=text)
    assert_harmless(answer_grid([shown]))
    assert read_html(answer_card(shown)).with_class("pine-says")[0].text == text
