"""Attention and masks token by token, importances and attention by segment, and positions of documents."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import viz
from pine_engine import METHODS, InputError, ShuffleResult, TokenLayout, Trace, build_plan
from tests.support.errors import has_field
from viz.drawing.identity import relative_luminance
from viz.figures.answer_importance import _answer_importance_info
from viz.figures.attention import _attention_info
from viz.figures.attention_shares import _attention_shares_info
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.figures.importance import Normalization, _importance_info, normalize, place_name, select_importance
from viz.figures.masks import _masks_info
from viz.figures.panels import MAX_BINS
from viz.figures.positions import MASKED, at_place, document_lanes
from viz.figures.positions_by_order import default_head, document_positions

LAYOUT = TokenLayout((5, 9), ((11, 12, 13), (21, 22)), (51, 52))
COUNT = LAYOUT.num_tokens


def causal(count: int) -> NDArray[np.float32]:
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
    assert list(figure.layout.xaxis.ticktext) == ["<br>prefix", "B", "A", "<br>question", "<br>answer"]
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
    plans = [build_plan(method, LAYOUT) for method in METHODS.values() if method.has_plan]
    masks = _masks_info(plans)
    causal = [plan.method.label for plan in plans if plan.method.mask == "causal"]
    assert next(iter(masks)) == "; ".join(causal) and len(masks) == 4
    for plan in plans:
        expected = plan.attention_mask(np.arange(COUNT), np.arange(COUNT))
        (label,) = [label for label, z in masks.items() if np.array_equal(~np.isnan(z), expected)]
        assert plan.method.label in label.split("; ")


def test_masks_of_result_show_its_methods(tiny_shuffle: ShuffleResult) -> None:
    result = replace(tiny_shuffle.first, traces={})
    plans = [build_plan(METHODS[name], result.layout) for name in result.answers]
    for source in (result, plans, iter(plans)):
        assert [panel.name for panel in viz.plot_masks(source).data] == ["Vanilla", "PCW", "PINE"]
    assert len(viz.plot_masks(plans[2]).data) == 1 and len(viz.plot_masks(LAYOUT).data) == 4


OTHER_PROMPT = replace(LAYOUT, suffix=(51,))
PINES = [build_plan(METHODS["pine"], layout) for layout in (LAYOUT, OTHER_PROMPT)]


@pytest.mark.parametrize("source", [[], ["pine"], {}, causal(3), PINES])
def test_masks_without_common_prompt_raise(source: Any) -> None:
    with pytest.raises(InputError):
        viz.plot_masks(source)


METHOD_NAMES = pytest.mark.parametrize("method", ["vanilla", "pcw", "pine"])


@METHOD_NAMES
def test_bars_begin_at_the_traced_positions(tiny_shuffle: ShuffleResult, method: str) -> None:
    trace = tiny_shuffle.first.traces[method]
    layers, heads = trace.suffix_starts.shape[:2]
    by_layer = viz.plot_positions(trace, query=2, head=1).data
    by_head = viz.plot_positions(trace, query=2, by="head", layer=1).data
    for document, length in enumerate(trace.layout.lengths):
        starts = trace.suffix_starts[:, :, 2, document]
        np.testing.assert_array_equal(by_layer[document].base, starts[:, min(1, heads - 1)])
        np.testing.assert_array_equal(by_layer[document].x, [length] * layers)
        np.testing.assert_array_equal(by_layer[document].customdata, by_layer[document].base + length - 1)
        np.testing.assert_array_equal(by_head[document].base, starts[min(1, layers - 1)])


@METHOD_NAMES
def test_query_is_at_the_position_of_the_plan(tiny_shuffle: ShuffleResult, method: str) -> None:
    layout = tiny_shuffle.first.layout
    trace = tiny_shuffle.first.traces[method]
    expected = build_plan(METHODS[method], layout).query_positions(2)
    for query in range(-1, layout.suffix_length + 2):
        marker = viz.plot_positions(trace, query=query).data[-1]
        token = layout.documents_end + query if query >= 0 else -1  # the trace has two answer tokens
        assert set(marker.x) == {expected[token]}
    for slot in range(layout.num_documents):
        marker = viz.plot_positions(trace, document=slot).data[-1]
        assert set(marker.x) == {expected[layout.document_starts[slot] + layout.lengths[slot] - 1]}


def test_masked_document_has_no_bar(tiny_shuffle: ShuffleResult) -> None:
    bars = viz.plot_positions(tiny_shuffle.first.traces["vanilla"], document=1).data[:3]
    assert [np.isnan(np.asarray(one.base, dtype=float)).all() for one in bars] == [False, False, True]
    assert np.isnan(bars[2].x).all()
    trace = tiny_shuffle.first.traces["pine"]
    (mark,) = viz.plot_positions(trace, layer=1).layout.shapes
    assert (mark.y0, mark.y1) == (0.5, 1.5)
    assert not viz.plot_positions(trace, layer=99).layout.shapes


@pytest.mark.parametrize(
    ("starts", "lengths", "lanes"),
    [
        ([22, 81, 67, 42], [20, 18, 14, 25], [0, 0, 0, 0]),
        ([2, 2, 2], [3, 1, 2], [0, 1, 2]),
        ([0, 2, 4, MASKED], [3, 3, 2, 9], [0, 1, 0, MASKED]),
    ],
)
def test_lanes_separate_overlapping_bars(starts: list[int], lengths: list[int], lanes: list[int]) -> None:
    assert document_lanes(np.array(starts), np.array(lengths)).tolist() == lanes


def test_methods_are_rows_of_one_query(tiny_shuffle: ShuffleResult) -> None:
    traces = tiny_shuffle.first.traces
    figure = viz.plot_method_positions(traces, query=2, layer=1, head=3)
    assert list(figure.data[0].y) == list(traces)
    rows = [at_place(trace.suffix_starts, 1, 3)[2] for trace in traces.values()]
    for document in range(3):
        np.testing.assert_array_equal(figure.data[document].base, [row[document] for row in rows])


@METHOD_NAMES
def test_position_map_is_blank_where_masked(tiny_shuffle: ShuffleResult, method: str) -> None:
    trace = tiny_shuffle.first.traces[method]
    figure = viz.plot_position_map(trace, layer=1, head=2, order=[2, 0, 1], query=3)
    (heat,) = figure.data
    index = (min(1, len(trace.suffix_starts) - 1), 2 % trace.suffix_starts.shape[1])
    starts = np.vstack([trace.document_starts[index], trace.suffix_starts[index][2:4]])
    np.testing.assert_array_equal(heat.z, np.where(starts == MASKED, np.nan, starts))
    assert list(heat.x) == ["C", "A", "B"] and list(heat.y) == ["C", "A", "B", "answer 1", "answer 2"]
    assert heat.text[0][0] == f"{starts[0, 0]}–{starts[0, 0] + trace.layout.lengths[0] - 1}"
    assert list(heat.meta["y"][3:]) == [{"query": "suffix 2"}, {"query": "suffix 3"}]
    assert figure.layout.shapes[0].y0 == 3.5
    assert viz.plot_position_map(trace, layer=1, head=2, document=1).layout.shapes[0].y0 == 0.5


def test_invariant_methods_move_no_document(tiny_shuffle: ShuffleResult) -> None:
    figure = viz.plot_positions_by_order(tiny_shuffle.results, layer=1, head=2)
    bases = {
        method: np.array([[bar.base[index] for bar in frame.data] for frame in figure.frames])
        for index, method in enumerate(figure.data[0].y)
    }
    assert (bases["pine"] == bases["pine"][0]).all() and (bases["pcw"] == bases["pcw"][0]).all()
    assert len(np.unique(bases["vanilla"], axis=0)) > 3
    first, end = figure.layout.xaxis.range
    assert first <= bases["pine"].min() and bases["pine"].max() < end
    for frame in figure.frames:
        assert [bar.x[0] for bar in frame.data] == tiny_shuffle.first.layout.lengths.tolist()
        spans = sorted((bar.offset[1], bar.width[1]) for bar in frame.data)  # of PCW, stacked
        assert spans[0][0] == pytest.approx(-sum(spans[-1]))
        assert all(above >= below + width - 1e-9 for (below, width), (above, _) in pairwise(spans))


@pytest.mark.parametrize("method", ["vanilla", "pine"])
def test_positions_of_an_order_are_by_document(tiny_shuffle: ShuffleResult, method: str) -> None:
    row = tiny_shuffle.results[4]
    kept = document_positions(row.order, row.result.traces, 1, 2)
    starts = at_place(row.result.traces[method].suffix_starts, 1, 2)[2]
    for slot, document in enumerate(row.order):
        assert kept.starts[method][document] == starts[slot]
        assert kept.lengths[document] == row.result.layout.lengths[slot]
    assert default_head([row.result.traces["vanilla"]]) == (0, 0)


NAN = np.nan
MATRIX = np.array([[NAN, 0.5, 1.5], [0.0, NAN, 0.25], [3.0, 1.0, NAN]], dtype=np.float32)


@pytest.fixture
def trace(tiny_shuffle: ShuffleResult) -> Trace:
    return tiny_shuffle.first.traces["pine"]


def test_normalize_keeps_nan_and_zero_rows() -> None:
    shares = np.array([[NAN, 0.25, 0.75], [0, NAN, 1], [0.75, 0.25, NAN]], np.float32)
    np.testing.assert_array_equal(normalize(MATRIX, "share"), shares)
    assert normalize(np.zeros((1, 3), np.float32), "share").tolist() == [[0, 0, 0]]
    np.testing.assert_array_equal(normalize(MATRIX, "raw"), MATRIX)
    np.testing.assert_allclose(normalize(np.array([[100, 0]], np.float32), "log"), [[2, NAN]], rtol=1e-6)


def test_selection_averages_unselected_layers_and_heads() -> None:
    values = np.arange(2 * 3 * 1 * 2, dtype=np.float32).reshape(2, 3, 1, 2)
    assert select_importance(values, 1, 2).tolist() == [[10, 11]]
    assert select_importance(values, 0, None).tolist() == [[2, 3]]
    assert select_importance(values, None, 1).tolist() == [[5, 6]]
    assert place_name(3, None) == "layer 3, mean over heads"


def test_importance_is_the_trace_without_diagonal(trace: Trace) -> None:
    assert trace.document_importance is not None
    raw = _importance_info(trace, 1, 2, "raw")
    np.testing.assert_array_equal(raw, trace.document_importance[1, 2])
    assert np.isnan(raw).sum() == 3
    figure = viz.plot_importance(trace, layer=1, head=2, normalization="log", document=1)
    (heat,) = figure.data
    np.testing.assert_allclose(10**heat.z, raw, rtol=1e-5)
    assert heat.text[0][0] == "" and float(heat.text[0][1]) == pytest.approx(heat.z[0, 1], rel=0.05)
    (outline,) = figure.layout.shapes
    assert (outline.x0, outline.x1, outline.y0, outline.y1) == (-0.5, 2.5, 0.5, 1.5)
    cells = [relative_luminance(color) for _, color in figure.layout.coloraxis.colorscale]
    assert heat.textfont.color == "#000" and (min(cells) + 0.05) / 0.05 >= 4.5


@pytest.mark.parametrize(("normalization", "is_zero"), [("raw", True), ("share", True), ("log", False)])
def test_scale_begins_at_zero_except_log(trace: Trace, normalization: Normalization, is_zero: bool) -> None:
    figure = viz.plot_importance(trace, normalization=normalization)
    known = figure.data[0].z[~np.isnan(figure.data[0].z)]
    scale = figure.layout.coloraxis
    assert (scale.cmin, scale.cmax) == (0 if is_zero else known.min(), known.max())


@pytest.mark.parametrize(("method", "is_ranking"), [("pine", True), ("vanilla", False)])
def test_answer_begins_at_last_query(tiny_shuffle: ShuffleResult, method: str, is_ranking: bool) -> None:
    trace = tiny_shuffle.first.traces[method]
    assert trace.suffix_attention is not None
    expected = trace.suffix_importance if is_ranking else trace.suffix_attention[..., 1:-1]
    assert expected is not None
    values, is_ranked = _answer_importance_info(trace, 2, 0, 1, "raw")
    np.testing.assert_array_equal(values, expected[0, 1, 2:4])
    figure = viz.plot_answer_importance(trace, ["x", "y"], layer=0, head=1, step=1)
    assert list(figure.data[0].meta["y"]) == [{"query": "suffix 2"}, {"query": "suffix 3"}]
    assert is_ranked == is_ranking and figure.layout.shapes[0].y0 == 0.5
    assert list(figure.layout.yaxis.ticktext) == ["1: x", "2: y"]
    assert figure.layout.meta["verbatim"] == ["ticktext"]  # texts of the model


@pytest.mark.parametrize("step", [None, 1])
def test_attention_shares_are_the_trace(trace: Trace, step: int | None) -> None:
    assert trace.suffix_attention is not None
    rows = trace.suffix_attention[1, 2, 2:4] if step is None else trace.suffix_attention[1, 2, 3:4]
    shares = _attention_shares_info(trace, 2, step, 1, 2, with_rest=True)
    np.testing.assert_allclose(shares, rows.mean(0), rtol=1e-5)
    documents = _attention_shares_info(trace, 2, step, 1, 2, with_rest=False)
    expected = (rows[:, 1:-1] / rows[:, 1:-1].sum(1, keepdims=True)).mean(0)
    np.testing.assert_allclose(documents, expected, rtol=1e-5)


@pytest.mark.parametrize(("with_rest", "labels"), [(True, "prefix A B C question"), (False, "A B C")])
def test_attention_shares_have_a_bar_per_segment(trace: Trace, with_rest: bool, labels: str) -> None:
    bare = replace(trace, layout=replace(trace.layout, prefix=()))
    for record, expected in ((trace, labels), (bare, labels.removeprefix("prefix "))):
        (bars,) = viz.plot_attention_shares(record, steps=2, with_rest=with_rest).data
        assert list(bars.x) == expected.split() and len(bars.y) == len(bars.x)


@pytest.mark.parametrize(("steps", "step"), [(0, None), (2, 99)])
def test_attention_shares_without_a_traced_token_raise(trace: Trace, steps: int, step: int | None) -> None:
    with pytest.raises(InputError, check=has_field("steps")):
        viz.plot_attention_shares(trace, steps=steps, step=step)


def test_decisiveness_is_spread_times_attention(trace: Trace) -> None:
    assert trace.suffix_importance is not None and trace.suffix_attention is not None
    importance = np.ones_like(trace.suffix_importance)
    importance[0, 1, :, 0] = 1e6
    importance[1, 2, :, 0] = 3
    attention = np.full_like(trace.suffix_attention, 0.2)
    record = replace(trace, suffix_importance=importance, suffix_attention=attention)
    assert most_decisive(decisiveness(record)) == (0, 1)
    attention[0, 1] = 1e-9  # a head without attention on documents is not decisive
    assert most_decisive(decisiveness(record)) == (1, 2)
    assert decisiveness(record)[1, 2] == pytest.approx((3 / 5 - 1 / 5) * 0.6, rel=1e-5)
    assert decisiveness(record)[0, 0] == 0
    assert not decisiveness(replace(record, suffix_importance=np.full_like(importance, NAN))).any()


def test_head_decisiveness_outlines_the_selected_head(trace: Trace) -> None:
    figure = viz.plot_head_decisiveness(trace, layer=1, head=3)
    (heat,) = figure.data
    np.testing.assert_array_equal(heat.z, decisiveness(trace).T)
    assert heat.meta["x"][1] == {"layer": 1} and heat.meta["y"][3] == {"head": 3}
    (outline,) = figure.layout.shapes
    assert (outline.x0 + outline.x1, outline.y0 + outline.y1) == (2, 6)


@pytest.mark.parametrize("plot", [viz.plot_importance, viz.plot_head_decisiveness])
def test_trace_without_importance_raises(tiny_shuffle: ShuffleResult, plot: Any) -> None:
    with pytest.raises(InputError, check=has_field("trace")):
        plot(tiny_shuffle.first.traces["vanilla"])


def test_orders_without_traces_raise(tiny_shuffle: ShuffleResult) -> None:
    bare = replace(tiny_shuffle.results[0], result=replace(tiny_shuffle.first, traces={}))
    with pytest.raises(InputError, check=has_field("rows")):
        viz.plot_positions_by_order([bare])


@pytest.mark.parametrize("plot", [viz.plot_importance, viz.plot_position_map])
def test_layer_and_head_of_no_model_raise(trace: Trace, plot: Any) -> None:
    for place in ({"layer": 99, "head": 0}, {"layer": 0, "head": 99}):
        with pytest.raises(IndexError):
            plot(trace, **place)
