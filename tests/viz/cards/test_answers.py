"""Cards of answers: status, measurements, the parsed answer, and the verdict of a shuffle."""

from dataclasses import replace
from typing import Any

import pytest

from pine_engine import METHODS, OrderComparison
from tests.support.figure_records import cell, order_row
from tests.support.viz_reading import read_html
from viz.cards import shuffle
from viz.cards.answers import AnswerCard, AnswerState, Reading, answer_grid


def card(state: AnswerState = "waiting", **changes: Any) -> AnswerCard:
    values: dict[str, Any] = {"is_order_invariant": True, "state": state, **changes}
    return AnswerCard("pine", "PINE", "Documents see each other.", **values)


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (card(), "Queued"),
        (card("reading", layers_done=3, num_layers=30), "Prefill: layer 3 of 30"),
        (card("reading"), "Prefill"),
        (card("writing", text="Par"), "Generating"),
        (card("finished", finish_reason="stop"), "Done"),
        (card("finished", finish_reason="length"), "Stopped at the token limit"),
        (card("failed", message="Shorten a document."), "Failed"),
    ],
)
def test_status_is_the_progress(shown: AnswerCard, status: str) -> None:
    root = read_html(answer_grid([shown]))
    (line,) = root.with_class("pine-status")
    assert (line.text, line.attributes["aria-live"]) == (status, "polite")
    busy = "true" if shown.state in ("reading", "writing") else "false"
    assert root.all("article")[0].attributes["aria-busy"] == busy
    layers = [(bar.attributes["value"], bar.attributes["max"]) for bar in root.all("progress")]
    assert layers == ([("3", "30")] if shown.layers_done else [])
    assert [error.text for error in root.with_class("pine-error")] == [shown.message] * (status == "Failed")


def test_measurements_have_units() -> None:
    assert card(num_tokens=14, prefill_s=0.524, decode_s_per_token=0.08).figures == [
        ("tokens", "14"), ("prefill", "0.52 s"), ("decode", "12.5 tokens/s"),
    ]  # fmt: skip
    assert not card("finished", text="x", decode_s_per_token=0.0).figures


def test_grid_shows_answers_unchanged_and_in_order() -> None:
    text = "one\n\n  two"
    other = AnswerCard("vanilla", "Vanilla", "The unmodified model.", False, "finished", recorded=True)
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
    assert shuffle.score_sentence(METHODS_SHOWN, ROWS) == "In 2 orders PINE gives 1 answer; Vanilla 2."
    right = shuffle.score_sentence(METHODS_SHOWN, ROWS, lambda text: text == "Paris.")
    assert right == "In 2 orders PINE gives 1 answer (2 correct); Vanilla 2 (2 correct)."
    assert shuffle.score_sentence(METHODS_SHOWN, []) == ""


def test_answer_of_a_cell_is_beside_the_reference() -> None:
    different = replace(cell("Par", 5.2341), first_difference=1, reference_token_text="is")
    row = order_row([1, 0], {"vanilla": different, "pine": PARIS})
    vanilla, pine = METHODS_SHOWN
    root = read_html(shuffle.shuffle_answer(vanilla, row, ROWS[0]))
    assert [text.text for text in root.with_class("pine-answer-text")] == ["Paris.", "Par"]
    assert "token 2: end of answer (reference: “is”)" in root.text and "5.23" in root.text
    same = read_html(shuffle.shuffle_answer(pine, row, ROWS[0]))
    assert "same answer" in same.text and "bitwise identical" in same.text
    alone = read_html(shuffle.shuffle_answer(vanilla, ROWS[0], ROWS[0]))
    assert len(alone.with_class("pine-answer-text")) == 1 and not alone.with_class("pine-evidence")
