"""What changed: words, tokens, probabilities and attention against records worked by hand."""

import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viz
from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from viz.cards.change_answers import TOKEN_LIMIT, answers_picture
from viz.drawing.identity import document_segment
from viz.drawing.numbers import format_percent
from viz.export.figure_numbers import figure_numbers
from viz.export.packed import packed_json
from viz.figures.change import (
    AnswerTokens,
    first_difference,
    likely_tokens,
    shares,
    telling_step,
    word_diff,
)


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


def rows_of(figure: go.Figure) -> list[str]:
    """What stands beside the bars, from the top."""
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]
    assert all(list(bars.y) == list(figure.layout.yaxis.tickvals) for bars in figure.data)
    return list(figure.layout.yaxis.ticktext)


def caption_of(figure: go.Figure) -> str:
    said: str = figure.layout.meta["caption"]
    return said


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


def test_words_that_one_answer_lacks_are_marked_and_none_is_struck_out() -> None:
    left, right = read_html(answers(LEFT, RIGHT)).with_class("pine-answer-text")
    assert [mark.text for mark in left.all("mark")] == ["red."]
    assert [mark.text for mark in right.all("mark")] == ["green"]
    key = read_html(answers(LEFT, RIGHT)).with_class("pine-key")[0].all("li")
    assert [entry.text for entry in key] == [
        "word only in Vanilla", "word only in PINE",
        "token the first token that differs",
    ]  # fmt: skip
    shorter = answers(LEFT, told("SP", LEFT.tokens[:3]))
    assert [entry.text for entry in read_html(shorter).with_class("pine-key")[0].all("li")] == [
        "word only in Vanilla", "token the first token that differs",
    ]  # fmt: skip
    assert left.text == "It is red." and right.text == "It is green"
    assert "2 of 4 words only under Vanilla and 1 of 3 words only under PINE" in caption(answers(LEFT, RIGHT))


def test_equal_answers_say_so_and_how_far_their_probabilities_differ() -> None:
    score = read_html(answers(LEFT, SAME)).with_class("pine-score")[0].text
    assert score.startswith("Both answers are the same, token by token.")
    assert f"at most {math.log(0.7 / 0.6):.3g} nats" in score
    assert not read_html(answers(LEFT, SAME)).with_class("pine-differs")
    assert not read_html(answers(LEFT, SAME)).with_class("pine-key")
    assert caption(answers(LEFT, SAME)).startswith("No word differs; ")
    assert "at most 0.0 nats" in answers(LEFT, LEFT)


def test_all_tokens_stand_in_the_table_unrounded() -> None:
    rows = numbers(answers(LEFT, RIGHT))
    assert [row[:3] for row in rows[:2]] == [["Vanilla", 1, "It"], ["Vanilla", 2, " is"]]
    assert [row[4] for row in rows] == [*LEFT.logprobs, *RIGHT.logprobs]
    assert [row[5] for row in rows[:4]] == pytest.approx([0.9, 0.8, 0.6, 0.99])


def test_a_single_answer_has_nothing_marked_and_asks_for_another() -> None:
    root = read_html(answers(LEFT))
    assert len(root.with_class("pine-card")) == 1 and not root.all("mark") and not root.with_class("pine-key")
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


# What could have come


def test_likely_tokens_of_both_answers_are_rows_with_their_probabilities() -> None:
    figure = viz.plot_next_token_candidates(LEFT, RIGHT)
    assert figure.layout.title.text == "What could have come at token 3"
    assert rows_of(figure) == ["␣red", "␣green", "␣white", "␣blue"]
    left, right = figure.data
    assert (left.name, right.name) == ("Vanilla", "PINE")
    np.testing.assert_array_equal(left.x, np.array([0.6, 0.25, np.nan, 0.05], np.float32))
    np.testing.assert_allclose(right.x, np.array([0.375, 0.5, 0.0625, np.nan], np.float32), rtol=1e-6)
    assert list(left.text) == ["60.0 % written", "25.0 %", "below 5.00 %", "5.00 %"]
    assert list(right.text) == ["37.5 %", "50.0 % written", "6.25 %", "below 6.25 %"]
    assert left.customdata[1] == "␣green: 25.0 %, 25.0 percentage points less than under PINE"
    assert right.customdata[1] == "␣green: 50.0 % written, 25.0 percentage points more than under Vanilla"


def test_what_was_written_is_told_with_its_probability_under_each_answer() -> None:
    said = caption_of(viz.plot_next_token_candidates(LEFT, RIGHT))
    assert said == (
        "The first token in which the answers differ. “␣red”: 60.0 % under Vanilla, 37.5 % under PINE. "
        "“␣green”: 25.0 % under Vanilla, 50.0 % under PINE."
    )
    other = told("SP", ["It", " is", " white"])
    assert "“␣white”: below 5.00 % under Vanilla, 50.0 % under SP." in caption_of(
        viz.plot_next_token_candidates(LEFT, other)
    )


def test_of_equal_answers_it_is_the_token_whose_probability_differs_most() -> None:
    assert telling_step(LEFT, SAME) == 2
    figure = viz.plot_next_token_candidates(LEFT, SAME)
    assert caption_of(figure) == (
        "The answers are the same; it is the token whose probability differs most. "
        "“␣red”: 60.0 % under Vanilla, 70.0 % under NIA."
    )
    again = caption_of(viz.plot_next_token_candidates(LEFT, replace(LEFT, label="again")))
    assert "so is the probability of every token. Every difference is 0 exactly." in again
    # Of the same tokens one that was not written is less likely.
    less = replace(LEFT, alternatives=(*LEFT.alternatives[:3], ((".", LEFT.logprobs[3]), ("!", -9.0))))
    assert "0 exactly" not in caption_of(viz.plot_next_token_candidates(LEFT, less))


def test_a_difference_too_small_for_float32_is_none_of_zero() -> None:
    near = replace(LEFT, label="near", logprobs=tuple(value - 1e-12 for value in LEFT.logprobs))
    figure = viz.plot_next_token_candidates(LEFT, near)
    assert "e-11 percentage points less than under Vanilla" in figure.data[1].customdata[0]
    assert "0 exactly" not in caption_of(figure)


def test_where_a_token_is_not_among_the_likely_its_bound_stands_in_place_of_its_bar() -> None:
    figure = viz.plot_next_token_candidates(LEFT, RIGHT)
    (first, second), (left, right) = figure.layout.annotations, figure.data
    assert (first.text, first.x) == ("below 5.00 %", 0) and (second.text, second.x) == ("below 6.25 %", 0)
    for note, bars, row in ((first, left, 2), (second, right, 3)):
        assert row + bars.offset < note.y < row + bars.offset + bars.width


def test_an_answer_that_has_ended_says_so() -> None:
    shorter = told("SP", LEFT.tokens[:3])
    figure = viz.plot_next_token_candidates(LEFT, shorter)
    assert "“.”: 99.0 % under Vanilla, SP had ended." in caption_of(figure)
    assert list(figure.data[1].text) == ["ended"] and np.isnan(figure.data[1].x).all()
    for first, second in ((LEFT, shorter), (shorter, LEFT)):
        shares_then = viz.plot_answer_attention([first, second], step=3)
        ended = shares_then.data[(first, second).index(shorter)]
        assert list(ended.text) == ["ended"] * 4 and np.isnan(ended.x).all()
        assert [note.text for note in shares_then.layout.annotations] == ["ended"] * 4
        assert "difference" not in caption_of(shares_then)


def test_tokens_of_one_text_count_as_the_likelier() -> None:
    answer = told("PINE", ["\ufffd"], others=[[("\ufffd", 0.5), ("a", 0.25), ("\ufffd", 0.125)]])
    assert likely_tokens(answer, 0) == {"\ufffd": math.log(0.5), "a": math.log(0.25)}


def test_long_tokens_that_begin_alike_have_a_row_each() -> None:
    dashes = ["-" * count for count in (30, 40, 50)]
    answer = told("PINE", dashes[:1], others=[[(text, 0.5 / (n + 1)) for n, text in enumerate(dashes)]])
    figure = viz.plot_next_token_candidates(answer, told("SP", ["x"]))
    assert len(set(figure.data[0].y)) == len(rows_of(figure)) == 4
    assert rows_of(figure)[0] == "-" * 23 + "…"
    assert [row[2] for row in figure_numbers(figure).numbers.rows] == rows_of(figure) * 2


# What was read


def test_what_was_read_at_a_token_is_the_attention_of_its_query() -> None:
    figure = viz.plot_answer_attention([LEFT, RIGHT], step=2)
    assert figure.layout.title.text == "What was read to write token 3"
    assert rows_of(figure) == ["SYS", "A", "B", "SUF"]
    for bars, answer in zip(figure.data, (LEFT, RIGHT), strict=True):
        np.testing.assert_array_equal(bars.x, answer.attention[2])


def test_what_carried_an_answer_is_the_mean_over_its_tokens() -> None:
    figure = viz.plot_answer_attention([LEFT, RIGHT])
    assert figure.layout.title.text == "Which documents carried the answer"
    assert figure.data[0].x.tolist() == [0.5625, 0.25, 0.09375, 0.09375]
    assert "The document read most is A (25.0 %) under Vanilla and B (33.3 %) under PINE." in caption_of(
        figure
    )
    (rest,) = viz.plot_answer_attention([LEFT], with_prefix=False).data
    # The last token reads nothing but the prefix.
    assert rest.x.tolist() == pytest.approx(
        [(0.5 + 0.5 + 2 / 3) / 4, (0.25 + 0.25 + 1 / 6) / 4, (0.25 + 0.25 + 1 / 6) / 4]
    )


def test_without_the_prefix_shares_are_of_what_remains() -> None:
    figure = viz.plot_answer_attention([LEFT, RIGHT], step=2, with_prefix=False)
    assert rows_of(figure) == ["A", "B", "SUF"]
    assert list(figure.data[0].text) == ["66.7 %, +50.0", "16.7 %", "16.7 %"]
    assert shares(LEFT.attention[3], with_prefix=False).tolist() == [0, 0, 0]
    assert "the prefix left out" in caption_of(figure)
    assert "the prefix left out" not in caption_of(viz.plot_answer_attention([LEFT, RIGHT], step=2))


def test_a_difference_is_said_behind_the_longer_bar_and_in_words() -> None:
    figure = viz.plot_answer_attention([LEFT, RIGHT], step=2)
    left, right = figure.data
    assert list(left.text) == ["25.0 %", "50.0 %, +37.5", "12.5 %", "12.5 %"]
    assert list(right.text) == ["25.0 %", "12.5 %", "50.0 %, +37.5", "12.5 %"]
    assert left.customdata[2] == "B: 12.5 %, 37.5 percentage points less than under PINE"
    assert right.customdata[2] == "B: 50.0 %, 37.5 percentage points more than under Vanilla"
    assert left.customdata[0] == "SYS: 25.0 %, exactly as under PINE"
    assert "The largest difference: document A, 37.5 percentage points more under Vanilla." in caption_of(
        figure
    )
    turned = viz.plot_answer_attention([RIGHT, LEFT], step=2)
    assert "document A, 37.5 percentage points more under Vanilla." in caption_of(turned)


attentions = st.lists(
    st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5]), min_size=5, max_size=5), min_size=1, max_size=3
)


@given(attentions, attentions, st.permutations(range(3)))
def test_what_is_drawn_and_said_of_any_two_answers_agrees(
    ours: list[list[float]], theirs: list[list[float]], order: list[int]
) -> None:
    left = told("left", ["x"] * len(ours), attention=ours, order=range(3))
    right = told("right", ["x"] * len(theirs), attention=theirs, order=order)
    figure = viz.plot_answer_attention([left, right])
    first, second = (np.asarray(bars.x, dtype=np.float64) for bars in figure.data)
    np.testing.assert_allclose(first, np.mean(ours, axis=0), rtol=1e-6)
    columns = [0, *(1 + order.index(document) for document in range(3)), 4]
    np.testing.assert_allclose(second, np.mean(theirs, axis=0)[columns], rtol=1e-6)
    for bars, gains in zip(figure.data, (first - second, second - first), strict=True):
        assert [", +" in text for text in bars.text] == (gains > 0).tolist()
        assert ["exactly" in hover for hover in bars.customdata] == (gains == 0).tolist()
        assert ["more than" in hover for hover in bars.customdata] == (gains > 0).tolist()
    said = caption_of(figure)
    assert ("Every difference is 0 exactly." in said) == bool((first == second).all())
    if (first != second).any():
        gaps = first - second
        row = int(np.abs(gaps).argmax())
        name = ("the prefix", "document A", "document B", "document C", "the suffix")[row]
        assert re.search(
            rf"difference: {name}, \S+ percentage points more under {'left' if gaps[row] > 0 else 'right'}\.",
            said,
        )


def test_a_document_is_compared_with_itself_wherever_it_stands() -> None:
    moved = told("Vanilla, order 1: B A", ["x"], attention=[[0.25, 0.5, 0.125, 0.125]], order=(1, 0))
    figure = viz.plot_answer_attention([LEFT, moved])
    assert rows_of(figure) == ["SYS", "A, slot 1 → 2", "B, slot 2 → 1", "SUF"]
    assert figure.data[1].x.tolist() == [0.25, 0.125, 0.5, 0.125]
    assert [row[2] for row in figure_numbers(figure).numbers.rows] == rows_of(figure) * 2
    fixed = told("other", ["x"], attention=[[0.2] * 5], order=(0, 2, 1))
    three = told("three", ["x"], attention=[[0.2] * 5], order=range(3))
    assert rows_of(viz.plot_answer_attention([three, fixed]))[1:3] == ["A, slot 1", "B, slot 2 → 3"]
    orders = read_html(answers(LEFT, moved)).with_class("pine-order")
    assert [[badge.text for badge in order.with_class("pine-badge")] for order in orders] == [
        ["A", "B"], ["B", "A"],
    ]  # fmt: skip
    assert not read_html(answers(LEFT, RIGHT)).with_class("pine-order")


def test_a_single_answer_is_compared_with_none() -> None:
    figure = viz.plot_answer_attention([LEFT])
    (bars,) = figure.data
    assert list(bars.text) == ["56.2 %", "25.0 %", "9.38 %", "9.38 %"]
    assert list(bars.customdata) == ["SYS: 56.2 %", "A: 25.0 %", "B: 9.38 %", "SUF: 9.38 %"]
    assert "difference" not in caption_of(figure)


def test_an_empty_answer_was_carried_by_none() -> None:
    beside = viz.plot_answer_attention([EMPTY, LEFT])
    assert list(beside.data[0].text) == ["no token"] * 4 and np.isnan(beside.data[0].x).all()
    assert "read most is A (25.0 %) under Vanilla." in caption_of(beside)
    alone = caption_of(viz.plot_answer_attention([EMPTY, EMPTY]))
    assert "No token was written, so no document carried an answer." in alone and "exactly" not in alone
    nothing = viz.plot_next_token_candidates(EMPTY, replace(EMPTY, label="SP"))
    assert caption_of(nothing) == "Both answers are empty." and rows_of(nothing) == []
    root = read_html(answers(EMPTY, EMPTY, queries=()))
    assert root.with_class("pine-score")[0].text == "Both answers are empty."
    assert [text.text for text in root.with_class("pine-answer-text")] == ["(empty answer)"] * 2


def test_the_room_behind_a_bar_of_nearly_all_is_no_share() -> None:
    axis = viz.plot_next_token_candidates(LEFT, LEFT).layout.xaxis
    assert axis.range[1] > 1.5 and axis.labelalias == {"150%": ""} and axis.tickformat == ".0%"


def test_bars_are_told_without_colour_and_stay_when_the_other_answer_is_hidden() -> None:
    left, right = viz.plot_answer_attention([LEFT, RIGHT]).data
    assert left.marker.pattern.shape != right.marker.pattern.shape
    assert left.offset + left.width == right.offset == 0
    assert right.width == pytest.approx(left.width)


# Anything


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(text: str) -> None:
    left = told(text, ["a ", text], others=[[("a ", 0.5), (text, 0.25)], [(text, 0.5)]])
    right = told("PINE", ["b ", text])
    html = answers(left, right)
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
    html = answers(*sides, queries=[f"suffix {n}" for n in range(256)])
    figures = [viz.plot_next_token_candidates(*sides), viz.plot_answer_attention(sides)]
    assert time.process_time() - began < 0.3
    assert len(html.encode()) < 1_000_000 and sum(len(packed_json(figure)) for figure in figures) < 40_000
