"""Importances of documents, and the attention on segments: the numbers are those of the trace."""

from dataclasses import replace

import numpy as np
import pytest

import viz
from pine_engine import ShuffleResult, Trace
from viz.figures.answer_importance import _answer_importance_info
from viz.figures.attention_shares import _attention_shares_info
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.figures.importance import Normalization, _importance_info, normalize, place_name, select_importance

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
