"""Cards of answers: status, measurements, parsed answers, two answers compared, the verdict of a shuffle."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pine_engine import METHODS, OrderComparison, PrefillProgress
from tests.support.figure_records import answer_with, cell, order_row
from tests.support.viz_reading import picture_numbers, read_html
from tests.viz.figures.test_answers import EMPTY, LEFT, RIGHT, SAME
from viz.cards import shuffle
from viz.cards.answers import AnswerCard, AnswerState, Reading, answer_grid
from viz.cards.compare import MAX_TOKENS, answers_picture, word_diff
from viz.figures.answer_tokens import AnswerTokens


def card(state: AnswerState = "waiting", **changes: Any) -> AnswerCard:
    return AnswerCard("pine", state, **changes)


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (card(), "Queued"),
        (card("reading", prefill=PrefillProgress("pine", 3, 30)), "Prefill: layer 4 of 30"),
        (
            card("reading", prefill=PrefillProgress("pine", 3, 30, 0.5, 2)),
            "Prefill: pass 2, layer 4 of 30, 50%",
        ),
        (card("reading"), "Prefill"),
        (card("writing", text="Par"), "Generating"),
        (card("finished", finish_reason="stop"), "Done"),
        (card("finished", finish_reason="length"), "Stopped at the token limit"),
        (
            card("finished", thinking="Hm", finish_reason="length", is_finished=False),
            "Stopped at the token limit, inside the thinking part",
        ),
    ],
)
def test_status_is_the_progress(shown: AnswerCard, status: str) -> None:
    root = read_html(answer_grid([shown]))
    (line,) = root.with_class("pine-status")
    assert (line.text, line.attributes["aria-live"]) == (status, "polite")
    busy = "true" if shown.state in ("reading", "writing") else "false"
    assert root.all("article")[0].attributes["aria-busy"] == busy
    layers = [(float(bar.attributes["value"]), bar.attributes["max"]) for bar in root.all("progress")]
    assert layers == [(one.layers_done + one.layer_share, "30") for one in [shown.prefill] if one]


def test_thinking_is_folded_beside_the_answer() -> None:
    (details,) = read_html(answer_grid([card("finished", thinking="<b>Hm", text="Par")])).all("details")
    assert "open" not in details.attributes and "<b>Hm" in details.text and "Par" not in details.text
    assert not read_html(answer_grid([card("finished", text="Par")])).all("details")
    unfinished = read_html(answer_grid([card("finished", thinking="Hm", is_finished=False)]))
    assert "unfinished" in unfinished.text and "empty" not in unfinished.text


def test_measurements_have_units() -> None:
    assert card(num_tokens=14, prefill_s=0.524, decode_s_per_token=0.08).figures == [
        ("tokens", "14"), ("prefill", "0.52 s"), ("decode", "12.5 tokens/s"),
    ]  # fmt: skip
    assert not card("finished", text="x", decode_s_per_token=0.0).figures


def test_grid_shows_answers_unchanged_and_in_order() -> None:
    text = "one\n\n  two"
    other = AnswerCard("vanilla", "finished", source="recorded")
    root = read_html(answer_grid([other, card("finished", text=text)]))
    assert [article.attributes["data-method"] for article in root.all("article")] == ["vanilla", "pine"]
    empty, answer = root.with_class("pine-answer-text")
    assert (empty.text, answer.text) == ("(empty answer)", text)
    assert [tag.text for tag in root.with_class("pine-tag")] == ["precomputed"]
    assert len(root.with_class("pine-invariance-yes")) == len(root.with_class("pine-invariance-no")) == 1


@pytest.mark.parametrize(
    ("text", "reading", "parts"),
    [
        ("B is wrong: [[A]]", Reading("A", "verdict"), ["A"]),
        ("Answer: 7", Reading("7", "number", 1.0), ["7", "✓"]),
        ("Answer: 7", Reading("7", "number", 0.0), ["7", "✗"]),
        ("Both.", Reading(None, "verdict", 0.5), ["No verdict", "0.5"]),
        ("Brenholt. ", Reading("Brenholt.", "answer"), []),
    ],
)
def test_finished_card_shows_parsed_value_and_score(text: str, reading: Reading, parts: list[str]) -> None:
    root = read_html(answer_grid([card("finished", text=text, reading=reading)]))
    shown = " ".join(part.text for part in root.with_class("pine-reading"))
    assert all(part in shown for part in parts) and bool(shown) == bool(parts)


METHODS_SHOWN = [METHODS["vanilla"], METHODS["pine"]]
PARIS, LYON, CLOSE = cell("Paris."), cell("Lyon.", 5.2341), cell("Paris.", 1e-9)
ROWS = [
    order_row([0, 1, 2], {"vanilla": PARIS, "pine": PARIS}),
    order_row([2, 0, 1], {"vanilla": LYON, "pine": PARIS}),
    order_row([1, 2, 0], {"vanilla": CLOSE}),
]


@pytest.mark.parametrize(
    ("cells", "parts"),
    [
        ({"vanilla": LYON, "pine": PARIS}, ("every order: PINE.", "changed as expected: Vanilla.")),
        ({"vanilla": CLOSE, "pine": PARIS}, ("every order: PINE.", "changed as expected: Vanilla.")),
        ({"vanilla": PARIS, "pine": PARIS}, ("every order: PINE.", "Inconclusive", "Vanilla")),
        ({"vanilla": LYON, "pine": CLOSE}, ("violated: PINE.", "changed as expected: Vanilla.")),
        ({"pine": PARIS}, ("every order: PINE.", "“Include control methods”")),
    ],
)
def test_verdict_names_methods_and_control(cells: dict[str, OrderComparison], parts: tuple[str, ...]) -> None:
    verdict = shuffle.verdict_sentence(METHODS_SHOWN, [ROWS[0], order_row([1, 0], cells)])
    assert all(part in verdict for part in parts), verdict
    assert ("Bitwise identical" in verdict) == cells["pine"].bitwise_identical


def test_one_row_has_no_verdict() -> None:
    assert shuffle.verdict_sentence(METHODS_SHOWN, ROWS[:1]) == ""
    assert "pine-verdict" not in shuffle.verdict_html(METHODS_SHOWN, ROWS[:1], caption="")
    assert "tiny, float32" in shuffle.verdict_html(METHODS_SHOWN, ROWS, caption="tiny, float32")


def test_score_counts_distinct_and_right_answers() -> None:
    written = shuffle.score_sentence(METHODS_SHOWN, ROWS)
    assert written == "PINE gave 1 answer in 2 orders. Vanilla gave 2 answers in 3 orders."
    right = shuffle.score_sentence(METHODS_SHOWN, ROWS, lambda text: text == "Paris.")
    pine, vanilla = "PINE gave 1 answer, correct in ", "Vanilla gave 2 answers, correct in "
    assert right == f"{pine}2 of 2 orders. {vanilla}2 of 3 orders."
    assert shuffle.score_sentence(METHODS_SHOWN, []) == ""


def test_answer_of_a_cell_is_beside_the_reference() -> None:
    different = replace(cell("Par", 5.2341), first_difference=1, reference_token_text="is")
    row = order_row([1, 0], {"vanilla": different, "pine": PARIS})
    vanilla, pine = METHODS_SHOWN
    root = read_html(shuffle.shuffle_answer(vanilla, row, ROWS[0]))
    assert [text.text for text in root.with_class("pine-answer-text")] == ["Paris.", "Par"]
    assert "token 2: end of answer instead of “is”" in root.text and "5.23" in root.text
    same = read_html(shuffle.shuffle_answer(pine, row, ROWS[0]))
    assert "same answer" in same.text and "bitwise identical" in same.text
    alone = read_html(shuffle.shuffle_answer(vanilla, ROWS[0], ROWS[0]))
    assert len(alone.with_class("pine-answer-text")) == 1 and not alone.with_class("pine-evidence")


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
    kept = [[word.strip() for words, changed in runs if not changed for word in words] for runs in sides]
    assert kept[0] == kept[1]


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
