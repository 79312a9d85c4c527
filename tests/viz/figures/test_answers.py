"""Two answers: the step that is compared, likely tokens, and attention, against records worked by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, strategies as st

import viz
from pine_engine import ShuffleResult, Trace
from tests.support.figure_records import LAYOUT, answer_with
from viz.figures.answer_attention import _answer_attention_info
from viz.figures.answer_origin import AnswerOrigin, answer_origin
from viz.figures.answer_tokens import AnswerTokens, answer_tokens, comparison_step, first_difference, quoted
from viz.figures.next_token_candidates import _likely_tokens, _next_token_candidates_info

LEFT = answer_with(
    "Vanilla", ["It", " is", " red", "."], probabilities=[0.9, 0.8, 0.6, 0.99],
    alternatives=[
        *([("It", 0.9)], [(" is", 0.8)], [(" red", 0.6), (" green", 0.25), (" blue", 0.05)], [(".", 0.99)])
    ],
    attention=[[0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.125, 0.125], [0.25, 0.5, 0.125, 0.125], [1, 0, 0, 0]],
)  # fmt: skip
RIGHT = answer_with(
    "PINE", ["It", " is", " green"], probabilities=[0.7, 0.8, 0.5],
    alternatives=[[("It", 0.7)], [(" is", 0.8)], [(" green", 0.5), (" red", 0.375), (" white", 0.0625)]],
    attention=[[0.5, 0.125, 0.25, 0.125], [0.5, 0.125, 0.25, 0.125], [0.25, 0.125, 0.5, 0.125]],
)  # fmt: skip
SAME = answer_with("NIA", LEFT.tokens, probabilities=[0.9, 0.8, 0.7, 0.99])
SHORTER = answer_with("SP", LEFT.tokens[:3])
EMPTY = answer_with("PCW", [])


def origin_of(
    tokens: Sequence[str], shares: Sequence[Any], documents: Sequence[str], text: str | None = None
) -> AnswerOrigin | None:
    """Return the origin of an answer with the documents C, A, B in this order; head 0 sees none of them."""
    answer = answer_with("PINE", tokens)
    if text is not None:
        answer = replace(answer, text=text)
    attention = np.zeros((1, 2, LAYOUT.suffix_length - 1 + len(tokens), 5), np.float32)
    attention[0, 1, LAYOUT.suffix_length - 1 :, 1:-1] = np.reshape(shares, (-1, 3))
    starts = np.zeros((1, 1, 3, 3), np.int32)
    trace = Trace("pine", LAYOUT, starts, starts, suffix_attention=attention)
    return answer_origin(
        answer, trace, order=(2, 0, 1), head=(0, 0), question="When was it built?", documents=documents
    )


def row_names(figure: go.Figure) -> list[str]:
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]
    assert all(list(bars.y) == list(figure.layout.yaxis.tickvals) for bars in figure.data)
    return list(figure.layout.yaxis.ticktext)


def caption(figure: go.Figure) -> str:
    text: str = figure.layout.meta["caption"]
    return text


def test_answer_tokens_are_those_of_the_run(tiny_shuffle: ShuffleResult) -> None:
    run = tiny_shuffle.first
    record = answer_tokens(lambda ids: [f"<{token}>" for token in ids], run, "pine", (2, 0, 1), "PINE")
    assert record.tokens == tuple(f"<{token}>" for token in run.answers["pine"].token_ids)
    assert record.logprobs == run.answers["pine"].logprobs
    assert [segment.label for segment in record.documents] == ["C", "A", "B"]
    attention = run.traces["pine"].suffix_attention
    assert attention is not None
    np.testing.assert_allclose(record.attention[0], attention[:, :, 2].mean((0, 1)), rtol=1e-5)
    assert record.alternatives[1][0][0] == f"<{run.traces['pine'].alternatives[1][0].token_id}>"


def test_decisive_token_is_the_first_that_tells_documents_apart() -> None:
    tokens = [" It", " was", " built", " in ", "1", "9", "13", ".", " 1745"]
    shares = [[0, 0, 0]] * 5 + [[0, 0.125, 0.75], [0.9, 0, 0], [0, 0, 0], [1, 0, 0]]
    origin = origin_of(tokens, shares, ["It: 1745", "It, in 1913", "Not in 1724"])
    assert origin == AnswerOrigin("9", 5, 17, 21, 1, (0.125, 0.75, 0.0), layer=0, head=1)
    assert "".join(tokens)[origin.start : origin.stop] == "1913"
    in_one = origin_of(tokens, shares, ["It: 745", "It, in 1913", "Not in 724"])
    assert in_one and in_one.token == "1"


def test_decisive_token_without_a_telling_word_has_the_largest_share() -> None:
    shares = [[0, 0.5, 0], [0.9, 0, 0], [0, 0, 0]]
    found = origin_of([" It", " was", " it"], shares, ["nothing"] * 3)
    assert found and (found.token, found.document) == (" was", 2)


@pytest.mark.parametrize("before", [[], ["<think>", "\\xc3", "\\xa9t\u00e9", " 7", "</think>"]])
def test_decisive_word_of_parted_characters_is_in_the_text_of_the_answer(before: list[str]) -> None:
    tokens = [*before, " ", "\\xc3", "\\xa9t", "\u00e9", " 7"]
    shares = [[0.0, 0.0, 0.0]] * (len(tokens) - 1) + [[0.0, 0.5, 0.0]]
    origin = origin_of(tokens, shares, ["7", "8", "9"], text="\u00e9t\u00e9 7")
    assert origin and (origin.start, origin.stop, origin.step) == (4, 5, len(tokens) - 1)


def test_answer_without_words_has_no_origin() -> None:
    assert origin_of(["...", "!"], [[1, 0, 0], [0, 0, 1]], ["7", "8", "9"]) is None
    assert origin_of([], [], ["7", "8", "9"]) is None


@pytest.mark.parametrize(
    ("other", "difference", "step"),
    [(RIGHT, 2, 2), (SAME, None, 2), (SHORTER, 3, 3), (EMPTY, 0, 0), (LEFT, None, 0)],
)
def test_step_is_first_difference_or_gap(other: AnswerTokens, difference: int | None, step: int) -> None:
    assert first_difference(LEFT, other) == first_difference(other, LEFT) == difference
    assert comparison_step(LEFT, other) == comparison_step(other, LEFT) == step
    assert comparison_step(EMPTY, EMPTY) == 0


def test_quoted_isolates_a_token_from_right_to_left() -> None:
    assert quoted("\u0645") == "\u201c\u2068\u0645\u2069\u201d" and "\u2068" not in quoted(" to")


def test_candidates_are_sorted_by_the_larger_probability() -> None:
    tokens, values = _next_token_candidates_info([_likely_tokens(one, 2) for one in (LEFT, RIGHT)])
    assert tokens == [" red", " green", " white", " blue"]
    expected = [[0.6, 0.25, math.nan, 0.05], [0.375, 0.5, 0.0625, math.nan]]
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert _likely_tokens(RIGHT, 3) == {}


def test_candidates_are_labeled_with_probability_or_bound() -> None:
    figure = viz.plot_next_token_candidates(LEFT, RIGHT)
    assert row_names(figure) == ["␣red", "␣green", "␣white", "␣blue"]
    left, right = figure.data
    assert [text.split()[-1] for text in left.text] == ["decoded", "25%", "5.0%", "5.0%"]
    assert [text.startswith("below") for text in right.text] == [False, False, False, True]
    assert "“␣green”: 25% under Vanilla, 50% under PINE." in caption(figure)
    assert [note.y < 2.5 for note in figure.layout.annotations] == [True, False]
    assert (left.marker.pattern.shape, left.offset + left.width) != (right.marker.pattern.shape, right.offset)
    captions = [caption(viz.plot_next_token_candidates(LEFT, one)) for one in (RIGHT, SAME, LEFT, SHORTER)]
    assert len({text.partition(".")[0] for text in captions}) == 3 and "ended under SP" in captions[-1]


def test_shortened_candidates_keep_a_row_each() -> None:
    dashes = ["-" * count for count in (30, 40, 50)]
    likely = [[(text, 0.5 / (n + 1)) for n, text in enumerate(dashes)]]
    answer = answer_with("PINE", dashes[:1], alternatives=likely)
    figure = viz.plot_next_token_candidates(answer, answer_with("SP", ["x"]))
    assert row_names(figure)[0] == "-" * 23 + "…" and len(set(figure.data[0].y)) == 4


@pytest.mark.parametrize("with_prefix", [True, False])
def test_attention_is_of_a_step_or_mean(with_prefix: bool) -> None:
    skipped = 0 if with_prefix else 1
    rows = LEFT.attention[:, skipped:] / LEFT.attention[:, skipped:].sum(1, keepdims=True).clip(1e-9)
    for step, expected in ((2, rows[2]), (None, rows.mean(0))):
        parts, values = _answer_attention_info([LEFT, EMPTY], step, with_prefix=with_prefix)
        assert [part.label for part in parts] == ["prefix", "A", "B", "question"][skipped:]
        np.testing.assert_allclose(values[0], expected, rtol=1e-6)
        assert np.isnan(values[1]).all()


ATTENTION = st.lists(st.tuples(*[st.sampled_from([0.0, 0.125, 0.25, 0.5])] * 5), min_size=1, max_size=3)


@given(ATTENTION, ATTENTION, st.permutations(range(3)))
def test_bars_and_texts_of_any_two_answers_agree(
    first: list[list[float]], second: list[list[float]], order: list[int]
) -> None:
    left = answer_with("left", ["x"] * len(first), attention=first, order=range(3))
    right = answer_with("right", ["x"] * len(second), attention=second, order=order)
    figure = viz.plot_answer_attention([left, right])
    x, y = (np.asarray(bars.x, dtype=np.float64) for bars in figure.data)
    np.testing.assert_allclose(x, np.mean(first, axis=0), rtol=1e-6)
    columns = [0, *(1 + order.index(document) for document in range(3)), 4]
    np.testing.assert_allclose(y, np.mean(second, axis=0)[columns], rtol=1e-6)
    for bars, gains in zip(figure.data, (x - y, y - x), strict=True):
        assert [", +" in text for text in bars.text] == (gains > 0).tolist()
        assert ["same as" in hover for hover in bars.customdata] == (gains == 0).tolist()
        assert [", +" in hover for hover in bars.customdata] == (gains > 0).tolist()
    text = caption(figure)
    most = [f"{'ABC'[int(np.argmax(shares[1:4]))]} (" for shares in (x, y)]
    assert text.index(most[0]) <= text.rindex(most[1])
    if (x != y).any():
        row = int(np.abs(x - y).argmax())
        name = ("prefix", "document A", "document B", "document C", "question")[row]
        assert f"difference: {name}, " in text
        assert f"pp for {'left' if x[row] > y[row] else 'right'}." in text


def test_document_is_compared_with_itself_in_another_slot() -> None:
    moved = answer_with("moved", ["x"], attention=[[0.25, 0.5, 0.125, 0.125]], order=(1, 0))
    figure = viz.plot_answer_attention([LEFT, moved])
    assert row_names(figure) == ["prefix", "A, slot 1 → 2", "B, slot 2 → 1", "question"]
    assert figure.data[1].x.tolist() == [0.25, 0.125, 0.5, 0.125]


def test_single_or_empty_answer_has_no_comparison() -> None:
    (bars,) = viz.plot_answer_attention([LEFT]).data
    assert list(bars.customdata) == ["56%", "25%", "9.4%", "9.4%"]
    assert "difference" not in caption(viz.plot_answer_attention([EMPTY, LEFT]))
    assert row_names(viz.plot_next_token_candidates(EMPTY, replace(EMPTY, label="SP"))) == []
