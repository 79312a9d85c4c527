"""Token by token over a whole prompt: attention, what one query reads, and masks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import viz
from pine_engine.engine.orders import ShuffleResult
from pine_engine.errors import InputError
from pine_engine.methods.plan import build_plan
from pine_engine.methods.positions import who_sees_whom
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from viz import theme
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
    (bars,) = viz.plot_query_attention(
        weights, 5, tokens=list("abcdefghi"), with_sink=True, layout=LAYOUT
    ).data
    np.testing.assert_array_equal(bars.y, weights[5])
    (rest,) = viz.plot_query_attention(weights, 5).data
    np.testing.assert_array_equal(rest.y, weights[5, 1:])
    assert rest.x[0] == 1


def test_masks_of_all_methods_are_those_of_their_plans(tiny_shuffle: ShuffleResult) -> None:
    layout = tiny_shuffle.first.layout
    figure = viz.plot_masks(layout, query=4)
    every = np.arange(layout.num_tokens)
    drawn = {trace.name: trace.z for trace in figure.data}
    assert next(iter(drawn)) == "Vanilla; Re-assignment only" and len(drawn) == 3
    for method in METHODS.values():
        expected = who_sees_whom(build_plan(method, layout), every, every)
        (label,) = [label for label, z in drawn.items() if np.array_equal(~np.isnan(z), expected)]
        assert method.label in label.split("; ")
    assert all(set(z[~np.isnan(z)]) == {1.0} for z in drawn.values())


def test_plot_masks_of_a_result_shows_its_methods(tiny_shuffle: ShuffleResult) -> None:
    result = tiny_shuffle.first
    plans = [build_plan(METHODS[name], result.layout) for name in result.answers]
    assert viz.plot_masks(result) == viz.plot_masks(plans) == viz.plot_masks(iter(plans))
    assert viz.plot_masks(replace(result, traces={})) == viz.plot_masks(plans)


def test_plot_masks_of_one_plan_shows_its_method() -> None:
    (panel,) = viz.plot_masks(build_plan(METHODS["pine"], LAYOUT)).data
    assert panel.name == "PINE"


@pytest.mark.parametrize("source", [None, [], "pine", ["pine"], {}, causal(3)])
def test_plot_masks_without_plans_raises_input_error(source: Any) -> None:
    with pytest.raises(InputError, match="RunResult.*TokenLayout.*AttentionPlan"):
        viz.plot_masks(source)


def test_plot_masks_of_different_prompts_raises_input_error() -> None:
    layouts = (LAYOUT, replace(LAYOUT, suffix=(51,)))
    with pytest.raises(InputError):
        viz.plot_masks(build_plan(METHODS["pine"], layout) for layout in layouts)


def test_plot_masks_color_key_names_both_colors() -> None:
    coloraxis = viz.plot_masks(LAYOUT).layout.coloraxis
    ends = [color for _, color in coloraxis.colorscale]
    assert list(coloraxis.colorbar.ticktext) == ["masked", "may attend"]
    assert ends == [theme.MASKED, theme.MASKED, theme.ALLOWED, theme.ALLOWED]
    assert coloraxis.showscale is not False
