"""Token by token over a whole prompt: attention, the attention of one query, and masks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import viz
from pine_engine import METHODS, InputError, ShuffleResult, TokenLayout, build_plan
from viz.figures.attention import _attention_info
from viz.figures.masks import _masks_info
from viz.figures.panels import MAX_BINS

LAYOUT = TokenLayout((5, 9), ((11, 12, 13), (21, 22)), (51, 52))
COUNT = LAYOUT.num_tokens


def causal(count: int) -> NDArray[np.float32]:
    """Return distinct weights, NaN above the diagonal."""
    weights = np.random.default_rng(0).random((count, count)).astype(np.float32)
    return np.where(np.tri(count, dtype=bool), weights, np.float32(np.nan))


def test_attention_draws_each_weight_and_leaves_masked_blank() -> None:
    weights = {"vanilla": causal(COUNT), "pine": causal(COUNT)[::-1].copy()}
    figure = viz.plot_attention(weights, LAYOUT, with_sink=True)
    assert [trace.name for trace in figure.data] == list(weights)
    for trace, expected in zip(figure.data, weights.values(), strict=True):
        np.testing.assert_allclose(10.0**trace.z, expected, rtol=1e-5)
    layout = figure.layout
    assert (layout.xaxis2.matches, layout.yaxis2.matches, layout.yaxis.scaleanchor) == ("x", "y", "x")
    assert layout.xaxis.domain[1] < layout.xaxis2.domain[0] and layout.meta["columns"] == 2
    np.testing.assert_allclose(_attention_info(np.zeros((2, 2), np.float32), with_sink=True), -6)


def test_attention_without_sink_scales_to_the_other_keys() -> None:
    weights = np.where(np.tri(COUNT, dtype=bool), np.float32(1e-3), np.float32(np.nan))
    weights[:, 0] = 1
    figure = viz.plot_attention(weights, LAYOUT)
    np.testing.assert_array_equal(np.isnan(figure.data[0].z[:, 1:]), np.isnan(weights[:, 1:]))
    assert np.isnan(figure.data[0].z[:, 0]).all()
    assert figure.layout.coloraxis.cmax == pytest.approx(-3)
    assert viz.plot_attention(weights, LAYOUT, with_sink=True).layout.coloraxis.cmax > -1


def test_long_prompt_is_binned_by_maximum() -> None:
    count = 2 * MAX_BINS + 1
    weights = causal(count)
    figure = viz.plot_attention(weights, TokenLayout((1,), ((2,) * (count - 2),), (3,)), with_sink=True)
    (trace,) = figure.data
    assert trace.z.shape == (-(-count // 3),) * 2 and max(trace.z.shape) <= MAX_BINS
    np.testing.assert_allclose(10 ** trace.z[100, 50], np.nanmax(weights[300:303, 150:153]), rtol=1e-5)
    assert np.isnan(trace.z[50, 100]) and (trace.x0, trace.dx) == (1, 3)
    assert len(figure.to_json()) < MAX_BINS**2 * 4 * 4 / 3 + 20_000


def test_bands_mark_segments_and_line_the_query() -> None:
    figure = viz.plot_attention(causal(COUNT + 2), LAYOUT, order=[1, 0], query=4)
    assert list(figure.layout.xaxis.ticktext) == ["prefix", "B", "A", "question", "answer"]
    assert list(figure.layout.xaxis.tickvals) == [0.5, 3, 5.5, 7.5, 9.5]
    bands = [shape for shape in figure.layout.shapes if shape.type == "rect" and shape.y1 == -0.5]
    assert [(band.x0, band.x1) for band in bands] == [
        *((-0.5, 1.5), (1.5, 4.5), (4.5, 6.5), (6.5, 8.5), (8.5, 10.5))
    ]
    (line,) = [shape for shape in figure.layout.shapes if shape.type == "line"]
    assert (line.y0, line.y1, line.x1) == (4, 4, COUNT + 1.5)


def test_query_attention_is_a_row_of_the_weights() -> None:
    weights = causal(COUNT)
    figure = viz.plot_query_attention(weights, 5, tokens=list("abcdefghi"), with_sink=True, layout=LAYOUT)
    np.testing.assert_array_equal(figure.data[0].y, weights[5])
    assert [line.x0 for line in figure.layout.shapes] == [1.5, 4.5]
    (rest,) = viz.plot_query_attention(weights, -1).data
    np.testing.assert_array_equal(rest.y, weights[-1, 1:])
    assert rest.x[0] == 1


def test_masks_equal_the_plans_and_share_panels() -> None:
    plans = [build_plan(method, LAYOUT) for method in METHODS.values()]
    masks = _masks_info(plans)
    assert next(iter(masks)) == "Vanilla; Re-assignment only; No positions" and len(masks) == 3
    for plan in plans:
        expected = plan.attention_mask(np.arange(COUNT), np.arange(COUNT))
        (label,) = [label for label, z in masks.items() if np.array_equal(~np.isnan(z), expected)]
        assert plan.method.label in label.split("; ")


def test_masks_of_result_show_its_methods(tiny_shuffle: ShuffleResult) -> None:
    result = replace(tiny_shuffle.first, traces={})
    plans = [build_plan(METHODS[name], result.layout) for name in result.answers]
    for source in (result, plans, iter(plans)):
        assert [panel.name for panel in viz.plot_masks(source).data] == ["Vanilla", "PCW", "PINE"]
    assert len(viz.plot_masks(plans[2]).data) == 1 and len(viz.plot_masks(LAYOUT).data) == 3


OTHER_PROMPT = replace(LAYOUT, suffix=(51,))
PINES = [build_plan(METHODS["pine"], layout) for layout in (LAYOUT, OTHER_PROMPT)]


@pytest.mark.parametrize("source", [[], ["pine"], {}, causal(3), PINES])
def test_masks_without_common_prompt_raise(source: Any) -> None:
    with pytest.raises(InputError):
        viz.plot_masks(source)
