"""Where documents stand: a row a layer, a head or a method, and all queries of one head."""

import numpy as np
import pytest

import viz
from pine_engine.engine.orders import ShuffleResult
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import METHODS


@pytest.mark.parametrize("method", ["vanilla", "pcw", "pine"])
def test_bars_begin_where_the_trace_says_and_are_as_long_as_their_documents(
    tiny_shuffle: ShuffleResult, method: str
) -> None:
    trace = tiny_shuffle.first.traces[method]
    layers, heads = trace.suffix_starts.shape[:2]
    by_layer = viz.plot_positions(trace, query=2, head=1)
    by_head = viz.plot_positions(trace, query=2, by="head", layer=1)
    for document, length in enumerate(trace.layout.lengths):
        bars = by_layer.data[document]
        np.testing.assert_array_equal(bars.base, trace.suffix_starts[:, min(1, heads - 1), 2, document])
        np.testing.assert_array_equal(bars.x, [length] * layers)
        bars = by_head.data[document]
        np.testing.assert_array_equal(bars.base, trace.suffix_starts[min(1, layers - 1), :, 2, document])


@pytest.mark.parametrize("method", ["vanilla", "pcw", "pine"])
def test_the_query_stands_where_the_plan_places_it(tiny_shuffle: ShuffleResult, method: str) -> None:
    """Of every method, from the record alone."""
    layout = tiny_shuffle.first.layout
    plan = build_plan(METHODS[method], layout)
    placed = tiny_shuffle.first.traces[method]
    expected = plan.query_positions(2)
    for query in range(-1, layout.suffix_length + 2):
        marker = viz.plot_positions(placed, query=query).data[-1]
        token = layout.documents_end + query if query >= 0 else -1  # two tokens of the answer were fed back
        assert set(marker.x) == {expected[token]}
    for slot in range(layout.num_documents):
        marker = viz.plot_positions(placed, document=slot).data[-1]
        last = layout.document_starts[slot] + layout.lengths[slot] - 1
        assert set(marker.x) == {expected[last]}


def test_a_document_that_is_not_seen_has_no_bar(tiny_shuffle: ShuffleResult) -> None:
    trace = tiny_shuffle.first.traces["vanilla"]
    first, second, third, _ = viz.plot_positions(trace, document=1).data
    blank = [np.isnan(np.asarray(bars.base, dtype=float)).all() for bars in (first, second, third)]
    assert blank == [False, False, True] and np.isnan(third.x).all()


def test_methods_are_rows_of_the_same_query(tiny_shuffle: ShuffleResult) -> None:
    traces = tiny_shuffle.first.traces
    figure = viz.plot_method_positions(traces, query=2, layer=1, head=3)
    assert list(figure.data[0].y) == list(traces)
    for document in range(3):
        expected = [
            trace.suffix_starts[min(1, len(trace.suffix_starts) - 1), 3 % trace.suffix_starts.shape[1], 2]
            for trace in traces.values()
        ]
        np.testing.assert_array_equal(figure.data[document].base, [row[document] for row in expected])


def test_the_map_has_all_queries_and_is_blank_where_masked(tiny_shuffle: ShuffleResult) -> None:
    for trace in tiny_shuffle.first.traces.values():
        (heat,) = viz.plot_position_map(trace, layer=1, head=2, order=[2, 0, 1]).data
        at = (min(1, len(trace.suffix_starts) - 1), 2 % trace.suffix_starts.shape[1])
        starts = np.vstack([trace.document_starts[at], trace.suffix_starts[(*at, 2)]])
        np.testing.assert_array_equal(heat.z, np.where(starts == -1, np.nan, starts))
        assert list(heat.x) == ["C", "A", "B"]
        assert heat.meta["y"][3] == {"query": "suffix 2"}
