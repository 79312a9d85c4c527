"""Positions of documents: by layer, head, method and order, for one query and for all."""

from itertools import pairwise

import numpy as np
import pytest

import viz
from pine_engine import METHODS, ShuffleResult, build_plan
from viz.figures.positions import MASKED, at_place, document_lanes
from viz.figures.positions_by_order import default_head, document_positions

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
