"""A shuffle as letters and as log-probabilities."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import viz
from tests.support.figure_records import cell, order_row
from viz.figures.logprob_by_order import _logprob_by_order_info
from viz.figures.shuffle import _shuffle_info, answer_color, answer_letter

ROWS = [
    order_row([0, 1], {"vanilla": cell("Paris."), "pine": cell("Lyon.")}),
    order_row([1, 0], {"vanilla": cell("Lyon.", 2.5, -3.5), "pine": cell("Lyon.")}),
]
TEXTS = st.sampled_from(["Paris.", "Lyon.", "paris.", "", " Paris.", "<b>Lyon.</b>"])


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30))
def test_numbers_are_equal_exactly_where_answers_are(answers: list[tuple[str, str]]) -> None:
    z, numbers = _shuffle_info(answers, 2)
    assert [[numbers[text] for text in pair] for pair in answers] == z.tolist()
    assert len({answer_letter(number) for number in numbers.values()}) == len(set(sum(answers, ())))


def test_distinct_answers_have_distinct_colors() -> None:
    assert len({answer_color(number) for number in range(60)}) == 60


def test_missing_answers_are_blank() -> None:
    rows = [*ROWS, order_row([0, 1], {"vanilla": cell("Rome.")}), order_row([1, 0], {})]
    (heat,) = viz.plot_shuffle(rows).data
    np.testing.assert_array_equal(heat.z, [[0, 1], [1, 1], [2, np.nan], [np.nan, np.nan]])
    assert list(heat.text[3]) == ["", ""] and viz.plot_shuffle([]).data[0].z.size == 0
    assert _logprob_by_order_info(rows, "pine")[0] == [0, 1]


def test_cell_selects_its_order_and_method() -> None:
    figure = viz.plot_shuffle(ROWS, labels={"pine": "PINE"}, is_right=lambda text: text == "Lyon.")
    (heat,) = figure.data
    assert list(heat.meta["x"]) == [{"method": "vanilla"}, {"method": "pine"}]
    assert heat.meta["y"][1] == {"tried": 1} and heat.meta["cells"][0][1] == "b: Lyon."
    assert list(heat.x) == ["vanilla<br>2 answers", "PINE<br>1 answer"]
    assert list(figure.layout.yaxis.ticktext) == ["A B", "B A"]
    assert "2.5" in heat.customdata[1][0] and "0.0" not in heat.customdata[1][1]
    assert ["✗" in heat.text[0][0], "✓" in heat.text[0][1]] == [True, True]
    assert not set("✓✗") & set(str(viz.plot_shuffle(ROWS).data[0].text))
    assert viz.plot_logprob_by_order(ROWS).data[0].meta["x"][1] == {"tried": 1, "method": "vanilla"}


def test_logprobs_are_of_the_first_answer() -> None:
    numbers, logprobs = _logprob_by_order_info(ROWS, "vanilla")
    assert (numbers, logprobs.tolist()) == ([0, 1], [-1, -3.5])
    rows = [order_row([0], {"pine": cell("")}), order_row([1], {"pine": cell("x")})]
    assert np.isnan(_logprob_by_order_info(rows, "pine")[1]).all()
