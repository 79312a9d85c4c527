"""Token by token over a whole prompt: attention, what one query reads, and masks."""

import numpy as np
import pytest
from numpy.typing import NDArray

import viz
from pine_engine.engine.shuffle import ShuffleResult
from pine_engine.methods.plan import build_plan
from pine_engine.methods.positions import who_sees_whom
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from viz.figures.panels import BINS

LAYOUT = TokenLayout((5, 9), ((11, 12, 13), (21, 22)), (51, 52))
COUNT = LAYOUT.num_tokens


def causal(count: int) -> NDArray[np.float32]:
    """Weights of which no two are alike, NaN above the diagonal."""
    weights = np.random.default_rng(0).random((count, count)).astype(np.float32)
    return np.where(np.tri(count, dtype=bool), weights, np.float32(np.nan))


def test_every_weight_is_drawn_and_nothing_where_it_is_masked() -> None:
    weights = {"vanilla": causal(COUNT), "pine": causal(COUNT)[::-1].copy()}
    figure = viz.plot_attention(weights, LAYOUT, with_sink=True)
    assert [trace.name for trace in figure.data] == list(weights)
    for trace, expected in zip(figure.data, weights.values(), strict=True):
        np.testing.assert_array_equal(np.isnan(trace.z), np.isnan(expected))
        np.testing.assert_allclose(10.0**trace.z, expected, rtol=1e-5)


def test_without_the_sink_the_first_key_is_left_out_and_the_scale_is_of_the_rest() -> None:
    weights = np.where(np.tri(COUNT, dtype=bool), np.float32(1e-3), np.float32(np.nan))
    weights[:, 0] = 1
    figure = viz.plot_attention(weights, LAYOUT)
    (trace,) = figure.data
    assert np.isnan(trace.z[:, 0]).all()
    np.testing.assert_array_equal(np.isnan(trace.z[:, 1:]), np.isnan(weights[:, 1:]))
    assert figure.layout.coloraxis.cmax == pytest.approx(-3)
    assert viz.plot_attention(weights, LAYOUT, with_sink=True).layout.coloraxis.cmax > -1


def test_of_a_long_prompt_a_cell_is_the_largest_weight_of_its_tokens_and_stands_over_them() -> None:
    count = 2 * BINS + 1
    layout = TokenLayout((1,), ((2,) * (count - 2),), (3,))
    weights = causal(count)
    (trace,) = viz.plot_attention(weights, layout, with_sink=True).data
    assert trace.z.shape == (-(-count // 3),) * 2 and max(trace.z.shape) <= BINS
    np.testing.assert_allclose(10 ** trace.z[100, 50], np.nanmax(weights[300:303, 150:153]), rtol=1e-5)
    assert np.isnan(trace.z[50, 100]) and not np.isnan(trace.z[50, 50])
    assert (trace.x0, trace.dx) == (1, 3)


def test_bands_and_names_say_where_each_part_of_the_prompt_stands() -> None:
    figure = viz.plot_attention(causal(COUNT + 2), LAYOUT, order=[1, 0])
    assert list(figure.layout.xaxis.ticktext) == ["SYS", "B", "A", "SUF", "OUT"]
    bands = [shape for shape in figure.layout.shapes if shape.type == "rect" and shape.y1 == -0.5]
    assert [(band.x0, band.x1) for band in bands] == [
        *((-0.5, 1.5), (1.5, 4.5), (4.5, 6.5), (6.5, 8.5), (8.5, 10.5))
    ]


def test_panels_zoom_together() -> None:
    layout = viz.plot_attention({"a": causal(COUNT), "b": causal(COUNT)}, LAYOUT).layout
    assert (layout.xaxis2.matches, layout.yaxis2.matches) == ("x", "y")
    assert layout.yaxis.scaleanchor == "x"


def test_what_a_query_reads_is_its_row() -> None:
    weights = causal(COUNT)
    (bars,) = viz.plot_read(weights, 5, tokens=list("abcdefghi"), with_sink=True, layout=LAYOUT).data
    np.testing.assert_array_equal(bars.y, weights[5])
    (rest,) = viz.plot_read(weights, 5).data
    np.testing.assert_array_equal(rest.y, weights[5, 1:])
    assert rest.x[0] == 1


def test_masks_of_all_methods_are_those_of_their_plans(tiny_shuffle: ShuffleResult) -> None:
    layout = tiny_shuffle.first.layout
    plans = [build_plan(method, layout) for method in METHODS.values()]
    figure = viz.plot_masks(plans, query=4)
    every = np.arange(layout.num_tokens)
    drawn = {trace.name: trace.z for trace in figure.data}
    assert next(iter(drawn)) == "Vanilla, Re-assignment only" and len(drawn) == 3
    for plan in plans:
        expected = who_sees_whom(plan, every, every)
        assert sum(np.array_equal(~np.isnan(z), expected) for z in drawn.values()) == 1
    assert all(set(z[~np.isnan(z)]) == {1.0} for z in drawn.values())
