"""Picture of two answers: words that only one has, tokens that select their query, and numbers."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.figure_records import answer_with
from tests.support.viz_reading import read_html
from tests.viz.figures.test_answers import EMPTY, LEFT, RIGHT, SAME
from viz.cards.compare import MAX_TOKENS, answers_picture, word_diff
from viz.export.numbers import picture_numbers
from viz.figures.answer_tokens import AnswerTokens

WORDS = st.text(alphabet="ab .,\n\u8d64\u0301\U0001f600")


def picture(*answers: AnswerTokens, chosen: int | None = None) -> str:
    queries = [f"suffix {6 + step}" for step in range(len(answers[0].tokens))]
    return answers_picture(answers, dtype="float32", queries=queries, chosen=chosen)


def test_words_that_one_answer_lacks_are_marked() -> None:
    left, right = word_diff("The red  lighthouse.", "A red lighthouse, on Orm.")
    assert left == [(["The "], True), (["red  ", "lighthouse"], False), (["."], False)]
    assert right == [
        (["A "], True), (["red ", "lighthouse"], False), ([", ", "on ", "Orm"], True), (["."], False),
    ]  # fmt: skip
    left, right = word_diff("赤い灯台", "白い灯台")
    changed = ["".join(words) for side in (left, right) for words, is_changed in side if is_changed]
    assert changed == ["赤", "白"]


@given(WORDS, WORDS)
def test_word_runs_spell_the_answers(left: str, right: str) -> None:
    sides = word_diff(left, right)
    assert ["".join(word for words, _ in runs for word in words) for runs in sides] == [left, right]
    left_kept, right_kept = (
        [w.strip() for words, changed in runs if not changed for w in words] for runs in sides
    )
    assert left_kept == right_kept


def test_tokens_of_the_first_answer_select_their_query() -> None:
    left, right = read_html(picture(LEFT, RIGHT, chosen=1)).with_class("pine-card")
    chips = left.with_class("pine-chip")
    assert [chip.all("bdi")[0].text for chip in chips] == ["It", "␣is", "␣red", "."]
    assert json.loads(chips[3].attributes["data-pick"]) == {"query": "suffix 9"}
    assert [chip.attributes["aria-pressed"] for chip in chips] == ["false", "true", "false", "false"]
    assert not [chip for chip in right.with_class("pine-chip") if "data-pick" in chip.attributes]
    assert [len(side.with_class("pine-differs")) for side in (left, right)] == [1, 1]
    assert "“␣green” 25%, “␣blue” 5.0%" in chips[2].attributes["data-readout"]


@pytest.mark.parametrize(
    ("answers", "marks", "part"),
    [
        ((LEFT, RIGHT), ["red.", "green"], "token 3"),
        ((LEFT, SAME), [], f"{math.log(0.7 / 0.6):.3g} nats"),
        ((LEFT, LEFT), [], "0.0 nats"),
        ((LEFT,), [], ""),
        ((EMPTY, EMPTY), [], ""),
    ],
)
def test_comparison_marks_other_words(answers: tuple[AnswerTokens, ...], marks: list[str], part: str) -> None:
    root = read_html(picture(*answers))
    texts = root.with_class("pine-answer-text")
    assert [mark.text for text in texts for mark in text.all("mark")] == marks
    assert part in root.with_class("pine-score")[0].text


def test_numbers_have_all_tokens_unrounded() -> None:
    (named,) = picture_numbers(picture(LEFT, RIGHT))
    assert [row[:3] for row in named.rows[:2]] == [("Vanilla", 1, "It"), ("Vanilla", 2, " is")]
    assert [row[4] for row in named.rows] == [*LEFT.logprobs, *RIGHT.logprobs]
    for part in ("2 of 4 words only in Vanilla", "1 of 3 words only in PINE"):
        assert part in named.caption


def test_long_answers_are_drawn_around_the_difference() -> None:
    long = answer_with("Vanilla", [f" w{n}" for n in range(600)])
    other = answer_with("PINE", [*long.tokens[:500], " x"])
    html = picture(long, other)
    left, right = read_html(html).with_class("pine-card")
    for side in (left, right):
        assert len(side.with_class("pine-chip")) == MAX_TOKENS and len(side.with_class("pine-differs")) == 1
    assert len(picture_numbers(html)[0].rows) == 600 + 501


def test_orders_are_shown_where_they_differ() -> None:
    moved = answer_with("moved", ["x"], order=(1, 0))
    orders = read_html(picture(LEFT, moved)).with_class("pine-order")
    assert [[badge.text for badge in order.with_class("pine-badge")] for order in orders] == [
        ["A", "B"], ["B", "A"],
    ]  # fmt: skip
    assert not read_html(picture(LEFT, RIGHT)).with_class("pine-order")
