"""What changed: words, tokens, probabilities and attention against records worked by hand."""

import json
import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html, table_cells
from viz.cards.change_answers import TOKEN_LIMIT, answers_picture
from viz.drawing.identity import PREFIX, SUFFIX, document_segment
from viz.drawing.numbers import format_percent
from viz.figures.change import (
    AnswerTokens,
    attention_at,
    carried_by,
    first_difference,
    shares,
    word_diff,
)
from viz.figures.change_bars import carriers_picture, difference_picture, likely_tokens


def told(
    label: str,
    tokens: Sequence[str],
    *,
    probabilities: Sequence[float] | None = None,
    others: Sequence[Sequence[tuple[str, float]]] | None = None,
    attention: Sequence[Sequence[float]] | None = None,
    order: Sequence[int] = (0, 1),
) -> AnswerTokens:
    """An answer whose token ids are spelled by its tokens; probabilities, not logarithms, are given."""
    likely = list(probabilities or [0.5] * len(tokens))
    alternatives = others or [[(text, p)] for text, p in zip(tokens, likely, strict=True)]
    rows = attention or [[1 / (len(order) + 2)] * (len(order) + 2)] * len(tokens)
    return AnswerTokens(
        label=label,
        text="".join(tokens),
        token_ids=tuple(int.from_bytes(text.encode()) for text in tokens),
        tokens=tuple(tokens),
        logprobs=tuple(map(math.log, likely)),
        alternatives=tuple(tuple((text, math.log(p)) for text, p in step) for step in alternatives),
        attention=np.array(rows, np.float32).reshape(len(tokens), len(order) + 2),
        documents=tuple(document_segment(identity, slot) for slot, identity in enumerate(order)),
    )


LEFT = told(
    "Vanilla",
    ["It", " is", " red", "."],
    probabilities=[0.9, 0.8, 0.6, 0.99],
    others=[[("It", 0.9)], [(" is", 0.8)], [(" red", 0.6), (" green", 0.25), (" blue", 0.05)], [(".", 0.99)]],
    attention=[[0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.125, 0.125], [0.25, 0.5, 0.125, 0.125], [1, 0, 0, 0]],
)
RIGHT = told(
    "PINE",
    ["It", " is", " green"],
    probabilities=[0.7, 0.8, 0.5],
    others=[[("It", 0.7)], [(" is", 0.8)], [(" green", 0.5), (" red", 0.375), (" white", 0.0625)]],
    attention=[[0.5, 0.125, 0.25, 0.125], [0.5, 0.125, 0.25, 0.125], [0.25, 0.125, 0.5, 0.125]],
)
SAME = told("NIA", LEFT.tokens, probabilities=[0.9, 0.8, 0.7, 0.99])
EMPTY = told("PCW", [])
QUERIES = [f"suffix {6 + step}" for step in range(4)]


def numbers(html: str) -> list[list[object]]:
    """The rows behind a picture."""
    rows: list[list[object]] = json.loads(read_html(html).with_class("pine-numbers")[0].text)["rows"]
    return rows


def caption(html: str) -> str:
    return read_html(html).all("figcaption")[0].text


def differences(left: AnswerTokens, right: AnswerTokens, *, with_prefix: bool = True) -> Element:
    return read_html(difference_picture(left, right, dtype="float32", with_prefix=with_prefix))


def carriers(*answers: AnswerTokens, with_prefix: bool = True) -> str:
    return carriers_picture(answers, dtype="float32", with_prefix=with_prefix)


def answers(*sides: AnswerTokens, queries: Sequence[str] = QUERIES, chosen: int | None = None) -> str:
    return answers_picture(sides, dtype="float32", queries=queries, chosen=chosen)


# Words


def test_words_that_one_answer_lacks_are_marked_on_its_side() -> None:
    left, right = word_diff("The red  lighthouse.", "A red lighthouse, on Orm.")
    assert [(run.words, run.changed) for run in left] == [
        (("The ",), True), (("red  ", "lighthouse"), False), ((".",), False),
    ]  # fmt: skip
    assert [(run.words, run.changed) for run in right] == [
        (("A ",), True), (("red ", "lighthouse"), False), ((", ", "on ", "Orm"), True), ((".",), False),
    ]  # fmt: skip


def test_scripts_without_blanks_are_compared_sign_by_sign() -> None:
    left, right = word_diff("赤い灯台", "白い灯台")
    assert ["".join(run.words) for run in left if run.changed] == ["赤"]
    assert ["".join(run.words) for run in right if run.changed] == ["白"]


@given(st.text(alphabet="ab .,\n\u8d64\u0301\U0001f600"), st.text(alphabet="ab .,\n\u8d64\u0301\U0001f600"))
def test_runs_of_words_spell_the_answers_and_share_the_unchanged_ones(left: str, right: str) -> None:
    ours, theirs = word_diff(left, right)
    assert "".join(word for run in ours for word in run.words) == left
    assert "".join(word for run in theirs for word in run.words) == right
    kept, also_kept = (
        [word.strip() for run in side if not run.changed for word in run.words] for side in (ours, theirs)
    )
    assert kept == also_kept
    assert (left.split() == right.split()) <= (not any(run.changed and run.words[0].strip() for run in ours))


# Tokens


def test_the_first_difference_may_be_the_end_of_one() -> None:
    assert first_difference(LEFT, RIGHT) == first_difference(RIGHT, LEFT) == 2
    assert first_difference(LEFT, SAME) is None
    shorter = told("SP", LEFT.tokens[:3])
    assert first_difference(LEFT, shorter) == first_difference(shorter, LEFT) == 3
    assert first_difference(EMPTY, LEFT) == 0


def test_a_percentage_is_100_only_for_certainty() -> None:
    assert [format_percent(p) for p in (1, 0.99999, 0.621, 0.00012, 0)] == [
        "100 %", ">99.9 %", "62.1 %", "0.0120 %", "0 %",
    ]  # fmt: skip


def test_every_token_has_its_probability_and_the_left_ones_pick_their_query() -> None:
    html = answers(LEFT, RIGHT, chosen=1)
    left, right = read_html(html).with_class("pine-card")
    chips = left.with_class("pine-chip")
    assert [chip.all("bdi")[0].text for chip in chips] == ["It", "␣is", "␣red", "."]
    assert [chip.with_class("pine-digits")[0].text for chip in chips] == [
        "90.0 %", "80.0 %", "60.0 %", "99.0 %",
    ]  # fmt: skip
    assert [chip.with_class("pine-bar")[0].attributes["style"] for chip in chips][2] == "width:60.0%"
    assert [json.loads(chip.attributes["data-pick"]) for chip in chips] == [{"query": q} for q in QUERIES]
    assert [chip.attributes["aria-pressed"] for chip in chips] == ["false", "true", "false", "false"]
    assert [chip.attributes["tabindex"] for chip in chips] == ["-1", "0", "-1", "-1"]
    assert {chip.tag for chip in chips} == {"button"}
    assert not [chip for chip in right.with_class("pine-chip") if "data-pick" in chip.attributes]
    assert [len(side.with_class("pine-chosen")) for side in (left, right)] == [1, 0]
    assert [len(side.with_class("pine-differs")) for side in (left, right)] == [1, 1]
    assert right.with_class("pine-differs")[0].all("bdi")[0].text == "␣green"
    assert chips[2].attributes["data-readout"] == (
        "Token 3: Vanilla writes “␣red” (60.0 %); instead could have come “␣green” 25.0 %, “␣blue” 5.00 %."
    )


def test_words_are_struck_out_on_the_left_and_underlined_on_the_right() -> None:
    left, right = read_html(answers(LEFT, RIGHT)).with_class("pine-answer-text")
    assert [mark.text for mark in left.all("del")] == ["red."] and not left.all("ins")
    assert [mark.text for mark in right.all("ins")] == ["green"] and not right.all("del")
    key = read_html(answers(LEFT, RIGHT)).with_class("pine-key")[0].all("li")
    assert [entry.text for entry in key] == [
        "−word only in Vanilla", "+word only in PINE", "token the first token that differs",
    ]  # fmt: skip
    shorter = answers(LEFT, told("SP", LEFT.tokens[:3]))
    assert [entry.text for entry in read_html(shorter).with_class("pine-key")[0].all("li")] == [
        "−word only in Vanilla", "token the first token that differs",
    ]  # fmt: skip
    assert left.text == "It is −red." and right.text == "It is +green"
    assert "2 of 4 words only under Vanilla and 1 of 3 words only under PINE" in caption(answers(LEFT, RIGHT))


def test_equal_answers_say_so_and_how_far_their_probabilities_differ() -> None:
    score = read_html(answers(LEFT, SAME)).with_class("pine-score")[0].text
    assert score.startswith("Both answers are the same, token by token.")
    assert f"at most {math.log(0.7 / 0.6):.3g} nats" in score
    assert not read_html(answers(LEFT, SAME)).with_class("pine-differs")
    assert not read_html(answers(LEFT, SAME)).with_class("pine-key")
    assert caption(answers(LEFT, SAME)).startswith("No word differs; ")
    assert "at most 0.0 nats" in answers(LEFT, LEFT)
    # What is drawn of them is the token whose probabilities differ most.
    drawn = differences(LEFT, SAME)
    assert drawn.all("h3")[0].text == "The largest difference of a probability: token 3"
    assert [line.text for line in drawn.with_class("pine-score")] == [
        "“␣red”: 60.0 % under Vanilla, 70.0 % under NIA."
    ]


def test_all_tokens_stand_in_the_table_unrounded() -> None:
    rows = numbers(answers(LEFT, RIGHT))
    assert [row[:3] for row in rows[:2]] == [["Vanilla", 1, "It"], ["Vanilla", 2, " is"]]
    assert [row[4] for row in rows] == [*LEFT.logprobs, *RIGHT.logprobs]
    assert [row[5] for row in rows[:4]] == pytest.approx([0.9, 0.8, 0.6, 0.99])


def test_a_single_answer_has_nothing_marked_and_asks_for_another() -> None:
    root = read_html(answers(LEFT))
    assert len(root.with_class("pine-card")) == 1 and not root.all("del") and not root.with_class("pine-key")
    assert root.with_class("pine-score")[0].text.startswith("There is one answer only.")


def test_long_answers_are_drawn_around_the_difference_and_all_are_in_the_table() -> None:
    long = told("Vanilla", [f" w{n}" for n in range(600)])
    other = told("PINE", [*long.tokens[:500], " x"])
    root = read_html(answers(long, other, queries=[f"suffix {n}" for n in range(600)]))
    left, right = root.with_class("pine-card")
    drawn = [chip.all("bdi")[0].text for chip in left.with_class("pine-chip")]
    assert drawn == [f"␣w{n}" for n in range(600 - TOKEN_LIMIT, 600)]
    assert f"Tokens {601 - TOKEN_LIMIT} to 600 of 600 are drawn" in left.text
    assert len(left.with_class("pine-differs")) == len(right.with_class("pine-differs")) == 1
    assert [chip.attributes["tabindex"] for chip in left.with_class("pine-chip")].count("0") == 1
    assert len(numbers(answers(long, other, queries=QUERIES * 150))) == 600 + 501


# The first difference


def test_the_tokens_that_differ_have_their_probability_under_each_side() -> None:
    drawn = differences(LEFT, RIGHT)
    assert drawn.all("h3")[0].text == "The first difference: token 3"
    assert [line.text for line in drawn.with_class("pine-score")] == [
        "“␣red”: 60.0 % under Vanilla, 37.5 % under PINE.",
        "“␣green”: 25.0 % under Vanilla, 50.0 % under PINE.",
    ]
    other = told("SP", ["It", " is", " white"])
    assert differences(LEFT, other).with_class("pine-score")[1].text == (
        "“␣white”: below 5.00 % under Vanilla, 50.0 % under SP."
    )


def test_likely_tokens_of_both_sides_stand_in_one_table() -> None:
    tokens, _ = differences(LEFT, RIGHT).all("table")
    heads = [row.all("th")[0].text for row in tokens.all("tbody")[0].all("tr")]
    assert heads == ["␣red", "␣green", "␣white", "␣blue"]
    assert [[cell.text for cell in row] for row in table_cells(tokens)] == [
        ["60.0 % written", "37.5 %"],
        ["25.0 %", "50.0 % written"],
        ["below 5.00 %", "6.25 %"],
        ["5.00 %", "below 6.25 %"],
    ]
    widths = [bar.attributes["style"] for bar in tokens.with_class("pine-bar")]
    assert widths == [f"width:{w}%" for w in ("60.0", "37.5", "25.0", "50.0", "6.2", "5.0")]


def test_attention_at_the_difference_is_that_of_its_query() -> None:
    parts = (PREFIX, *LEFT.documents, SUFFIX)
    assert attention_at(LEFT, 2, with_prefix=True) == dict(zip(parts, (0.25, 0.5, 0.125, 0.125), strict=True))
    _, table = differences(LEFT, RIGHT).all("table")
    assert [row.all("th")[0].text for row in table.all("tbody")[0].all("tr")] == ["SYS", "A", "B", "SUF"]
    assert [[cell.text for cell in row] for row in table_cells(table)] == [
        ["25.0 %", "25.0 %", "0"],
        ["50.0 %", "12.5 %", "−37.5"],
        ["12.5 %", "50.0 %", "+37.5"],
        ["12.5 %", "12.5 %", "0"],
    ]
    longest = [bar.attributes["style"] for bar in table.with_class("pine-bar")][2:4]
    assert longest == ["width:100.0%", "width:25.0%"]


def test_without_the_prefix_shares_are_of_what_remains() -> None:
    _, table = differences(LEFT, RIGHT, with_prefix=False).all("table")
    assert [row.all("th")[0].text for row in table.all("tbody")[0].all("tr")] == ["A", "B", "SUF"]
    assert [row[0].text for row in table_cells(table)] == ["66.7 %", "16.7 %", "16.7 %"]
    assert shares(LEFT.attention[3], with_prefix=False).tolist() == [0, 0, 0]
    assert "the prefix left out" in differences(LEFT, RIGHT, with_prefix=False).text
    assert "the prefix left out" not in differences(LEFT, RIGHT).text


def test_an_answer_that_has_ended_says_so() -> None:
    drawn = differences(LEFT, told("SP", LEFT.tokens[:3]))
    assert [line.text for line in drawn.with_class("pine-score")] == [
        "“.”: 99.0 % under Vanilla, SP had ended."
    ]
    tokens, parts = drawn.all("table")
    assert [cell.text for cell in table_cells(tokens)[0]] == ["99.0 % written", "ended"]
    assert [[cell.text for cell in row[1:]] for row in table_cells(parts)] == [["ended", "–"]] * 4
    # The left one may end first: the right one's order of documents is shown.
    _, parts = differences(EMPTY, LEFT).all("table")
    assert [[cell.text for cell in row] for row in table_cells(parts)][1] == ["ended", "25.0 %", "–"]


def test_the_numbers_of_the_difference_are_the_records() -> None:
    rows = numbers(difference_picture(LEFT, RIGHT, dtype="bfloat16", with_prefix=True))
    values = {(who, measure, what): value for who, measure, what, value in rows}
    assert values["PINE", "probability", " green"] == pytest.approx(0.5)
    assert values["Vanilla", "share of attention", "document A"] == 0.5
    assert "bfloat16" in caption(difference_picture(LEFT, RIGHT, dtype="bfloat16", with_prefix=True))


def test_tokens_of_one_text_count_as_the_likelier() -> None:
    answer = told("PINE", ["\ufffd"], others=[[("\ufffd", 0.5), ("a", 0.25), ("\ufffd", 0.125)]])
    assert likely_tokens(answer, 0) == {"\ufffd": math.log(0.5), "a": math.log(0.25)}


def test_two_empty_answers_have_no_difference_and_nothing_carried_them() -> None:
    assert difference_picture(EMPTY, EMPTY, dtype="float32", with_prefix=True) == ""
    assert "No token was written, so no document carried an answer." in carriers(EMPTY, EMPTY)
    root = read_html(answers(EMPTY, EMPTY, queries=()))
    assert root.with_class("pine-score")[0].text == "Both answers are empty."
    assert [text.text for text in root.with_class("pine-answer-text")] == ["(empty answer)"] * 2


# Documents that carried the answer


def test_what_carried_an_answer_is_the_mean_over_its_tokens() -> None:
    carried = carried_by(LEFT, with_prefix=True)
    assert carried is not None
    assert list(carried.values()) == [0.5625, 0.25, 0.09375, 0.09375]
    rest = carried_by(LEFT, with_prefix=False)
    assert rest is not None
    # The last token reads nothing but the prefix.
    assert list(rest.values()) == pytest.approx(
        [(0.5 + 0.5 + 2 / 3) / 4, (0.25 + 0.25 + 1 / 6) / 4, (0.25 + 0.25 + 1 / 6) / 4]
    )
    assert [row[3] for row in numbers(carriers(LEFT))] == list(carried.values())
    assert "The document read most is A (25.0 %) under Vanilla and B (33.3 %) under PINE." in caption(
        carriers(LEFT, RIGHT)
    )


def test_a_document_is_compared_with_itself_wherever_it_stands() -> None:
    moved = told("Vanilla, order 1: B A", ["x"], attention=[[0.25, 0.5, 0.125, 0.125]], order=(1, 0))
    table = read_html(carriers(LEFT, moved)).all("table")[0]
    assert [[cell.text for cell in row[:2]] for row in table_cells(table)][1:3] == [
        ["25.0 % slot 1", "12.5 % slot 2"], ["9.38 % slot 2", "50.0 % slot 1"],
    ]  # fmt: skip
    orders = read_html(answers(LEFT, moved)).with_class("pine-order")
    assert [[badge.text for badge in order.with_class("pine-badge")] for order in orders] == [
        ["A", "B"], ["B", "A"],
    ]  # fmt: skip
    assert "slot" not in read_html(carriers(LEFT, RIGHT)).all("tbody")[0].text
    assert not read_html(answers(LEFT, RIGHT)).with_class("pine-order")
    assert [row[2] for row in numbers(carriers(LEFT, moved))] == [None, 1, 2, None] * 2


def test_an_empty_answer_beside_another_was_carried_by_none() -> None:
    table = read_html(carriers(EMPTY, LEFT)).all("table")[0]
    assert [cell.text for cell in table_cells(table)[1]] == ["no token", "25.0 %", "–"]
    assert "read most is A (25.0 %) under Vanilla. " in caption(carriers(EMPTY, LEFT))


# Anything


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(text: str) -> None:
    left = told(text, ["a ", text], others=[[("a ", 0.5), (text, 0.25)], [(text, 0.5)]])
    right = told("PINE", ["b ", text])
    html = answers(left, right) + carriers(left, right)
    html += difference_picture(left, right, dtype="float32", with_prefix=True)
    assert_harmless(html)
    assert text in read_html(html).with_class("pine-answer-text")[0].text.replace("−", "")
    assert text in read_html(html).all("h4")[0].text


def test_256_tokens_and_50_documents_are_drawn_fast_and_small() -> None:
    rng = np.random.default_rng(0)
    sides = [
        told(
            label,
            [f" {word}{n % 40}" for n in range(256)],
            others=[[(f"t{rank}", 0.5 / (rank + 1)) for rank in range(5)]] * 256,
            attention=rng.dirichlet([1] * 52, 256).tolist(),
            order=range(50),
        )
        for label, word in (("Vanilla", "a"), ("PINE", "b"))
    ]
    began = time.process_time()
    html = answers(*sides, queries=[f"suffix {n}" for n in range(256)]) + carriers(*sides)
    html += difference_picture(*sides, dtype="float32", with_prefix=True)
    assert time.process_time() - began < 0.3
    assert len(html.encode()) < 1_000_000
