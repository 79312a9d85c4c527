"""The numbers of figures: what is drawn, by the names on the axes."""

import numpy as np

import viz
from pine_engine.engine.orders import ShuffleResult
from viz.export.figure_numbers import figure_numbers


def test_a_matrix_has_its_rows_and_none_where_it_is_masked(tiny_shuffle: ShuffleResult) -> None:
    trace = tiny_shuffle.first.traces["pine"]
    figure = viz.plot_importance(trace, layer=1, head=2, order=[2, 0, 1])
    told = figure_numbers(figure)
    assert (told.name, told.caption) == ("importance", figure.layout.meta["caption"])
    assert told.numbers.columns == ("", "row", "C", "A", "B")
    assert [row[1] for row in told.numbers.rows] == ["C", "A", "B"]
    values = np.array([row[2:] for row in told.numbers.rows], dtype=np.float32)
    np.testing.assert_array_equal(values, figure.data[0].z)
    assert told.numbers.rows[0][2] is None


def test_rows_are_named_as_the_axis_names_them(tiny_shuffle: ShuffleResult) -> None:
    figure = viz.plot_answer_importance(tiny_shuffle.first.traces["pine"], ["<b>", "&amp;"])
    assert [row[1] for row in figure_numbers(figure).numbers.rows] == ["1 <b>", "2 &amp;"]


def test_bars_say_where_they_begin(tiny_shuffle: ShuffleResult) -> None:
    trace = tiny_shuffle.first.traces["vanilla"]
    told = figure_numbers(viz.plot_positions(trace, document=1)).numbers
    assert told.columns == ("", "length", "y", "begins at")
    name, length, row, start = told.rows[0]
    assert (name, length, row) == ("document A", int(trace.layout.lengths[0]), "all layers and heads")
    assert start == trace.document_starts[0, 0, 1, 0]
    assert told.rows[2][1] is None and told.rows[2][3] is None  # vanilla does not see what comes later
