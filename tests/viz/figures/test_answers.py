"""Two answers: the step that is compared, likely tokens, and attention, against records worked by hand."""

import math
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viz
from pine_engine.engine.orders import ShuffleResult
from tests.support.figure_records import answer_with
from viz.export.numbers import figure_numbers
from viz.figures.answer_tokens import (
    AnswerTokens,
    answer_tokens,
    attention_by_part,
    comparison_step,
    first_difference,
)
from viz.figures.next_token_candidates import _likely_tokens, _next_token_candidates_info

LEFT = answer_with(
    "Vanilla",
    ["It", " is", " red", "."],
    probabilities=[0.9, 0.8, 0.6, 0.99],
    alternatives=[
        *([("It", 0.9)], [(" is", 0.8)], [(" red", 0.6), (" green", 0.25), (" blue", 0.05)], [(".", 0.99)])
    ],
    attention=[[0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.125, 0.125], [0.25, 0.5, 0.125, 0.125], [1, 0, 0, 0]],
)
RIGHT = answer_with(
    "PINE",
    ["It", " is", " green"],
    probabilities=[0.7, 0.8, 0.5],
    alternatives=[[("It", 0.7)], [(" is", 0.8)], [(" green", 0.5), (" red", 0.375), (" white", 0.0625)]],
    attention=[[0.5, 0.125, 0.25, 0.125], [0.5, 0.125, 0.25, 0.125], [0.25, 0.125, 0.5, 0.125]],
)
SAME = answer_with("NIA", LEFT.tokens, probabilities=[0.9, 0.8, 0.7, 0.99])
EMPTY = answer_with("PCW", [])


def row_names(figure: go.Figure) -> list[str]:
    """Return the names of the rows from the top."""
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


def test_first_difference_may_be_the_end_of_an_answer() -> None:
    assert first_difference(LEFT, RIGHT) == first_difference(RIGHT, LEFT) == 2
    assert first_difference(LEFT, SAME) is None
    shorter = answer_with("SP", LEFT.tokens[:3])
    assert first_difference(LEFT, shorter) == first_difference(shorter, LEFT) == 3
    assert first_difference(EMPTY, LEFT) == 0


def test_comparison_step_of_equal_answers_has_the_largest_gap() -> None:
    assert (comparison_step(LEFT, RIGHT), comparison_step(LEFT, SAME)) == (2, 2)
    assert comparison_step(EMPTY, EMPTY) == 0


def test_candidates_are_sorted_by_the_larger_probability() -> None:
    tokens, values = _next_token_candidates_info([_likely_tokens(one, 2) for one in (LEFT, RIGHT)])
    assert tokens == [" red", " green", " white", " blue"]
    expected = [[0.6, 0.25, math.nan, 0.05], [0.375, 0.5, 0.0625, math.nan]]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_candidates_are_labeled_with_probability_or_bound() -> None:
    figure = viz.plot_next_token_candidates(LEFT, RIGHT)
    assert row_names(figure) == ["␣red", "␣green", "␣white", "␣blue"]
    left, right = figure.data
    assert list(left.text) == ["60.0 % decoded", "25.0 %", "below 5.00 %", "5.00 %"]
    assert list(right.text) == ["37.5 %", "50.0 % decoded", "6.25 %", "below 6.25 %"]
    assert "“␣green”: 25.0 % under Vanilla, 50.0 % under PINE." in caption(figure)
    notes = {(note.y < 2.5, note.text) for note in figure.layout.annotations}
    assert notes == {(True, "below 5.00 %"), (False, "below 6.25 %")}


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (RIGHT, "first token"),
        (SAME, "differs most"),
        (LEFT, "0 exactly"),
        (answer_with("SP", LEFT.tokens[:3]), "SP had ended"),
    ],
)
def test_candidates_caption_explains_the_step(other: AnswerTokens, part: str) -> None:
    assert part in caption(viz.plot_next_token_candidates(LEFT, other))


def test_shortened_candidates_keep_a_row_each() -> None:
    dashes = ["-" * count for count in (30, 40, 50)]
    likely = [[(text, 0.5 / (n + 1)) for n, text in enumerate(dashes)]]
    answer = answer_with("PINE", dashes[:1], alternatives=likely)
    figure = viz.plot_next_token_candidates(answer, answer_with("SP", ["x"]))
    assert row_names(figure)[0] == "-" * 23 + "…" and len(set(figure.data[0].y)) == 4
    assert [row[2] for row in figure_numbers(figure).numbers.rows] == row_names(figure) * 2


def test_attention_at_a_step_is_that_of_its_query() -> None:
    figure = viz.plot_answer_attention([LEFT, RIGHT], step=2)
    assert row_names(figure) == ["SYS", "A", "B", "SUF"]
    for bars, answer in zip(figure.data, (LEFT, RIGHT), strict=True):
        np.testing.assert_array_equal(bars.x, answer.attention[2])


def test_attention_of_an_answer_is_the_mean_over_its_tokens() -> None:
    figure = viz.plot_answer_attention([LEFT, RIGHT])
    assert figure.data[0].x.tolist() == [0.5625, 0.25, 0.09375, 0.09375]
    assert "A (25.0 %) under Vanilla and B (33.3 %) under PINE." in caption(figure)
    rest = list(attention_by_part(LEFT, with_prefix=False).values())  # the last token attends to the prefix
    assert rest == pytest.approx(
        [(0.5 + 0.5 + 2 / 3) / 4, (0.25 + 0.25 + 1 / 6) / 4, (0.25 + 0.25 + 1 / 6) / 4]
    )


ATTENTION = st.lists(
    st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5]), min_size=5, max_size=5), min_size=1, max_size=3
)


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
        assert ["exactly" in hover for hover in bars.customdata] == (gains == 0).tolist()
        assert ["more than" in hover for hover in bars.customdata] == (gains > 0).tolist()
    assert ("Every difference is 0 exactly." in caption(figure)) == bool((x == y).all())
    if (x != y).any():
        row = int(np.abs(x - y).argmax())
        name = ("the prefix", "document A", "document B", "document C", "the suffix")[row]
        assert f"difference: {name}, " in caption(figure)
        assert f"more under {'left' if x[row] > y[row] else 'right'}." in caption(figure)


def test_document_is_compared_with_itself_in_another_slot() -> None:
    moved = answer_with("moved", ["x"], attention=[[0.25, 0.5, 0.125, 0.125]], order=(1, 0))
    figure = viz.plot_answer_attention([LEFT, moved])
    assert row_names(figure) == ["SYS", "A, slot 1 → 2", "B, slot 2 → 1", "SUF"]
    assert figure.data[1].x.tolist() == [0.25, 0.125, 0.5, 0.125]


def test_single_or_empty_answer_has_no_comparison() -> None:
    (bars,) = viz.plot_answer_attention([LEFT]).data
    assert list(bars.customdata) == ["SYS: 56.2 %", "A: 25.0 %", "B: 9.38 %", "SUF: 9.38 %"]
    figure = viz.plot_answer_attention([EMPTY, LEFT])
    assert list(figure.data[0].text) == ["no token"] * 4 and np.isnan(figure.data[0].x).all()
    assert "difference" not in caption(figure)
    assert row_names(viz.plot_next_token_candidates(EMPTY, replace(EMPTY, label="SP"))) == []


def test_bars_differ_without_color() -> None:
    left, right = viz.plot_answer_attention([LEFT, RIGHT]).data
    assert left.marker.pattern.shape != right.marker.pattern.shape
    assert left.offset + left.width == right.offset == 0
