"""Importances as heatmaps, and which head is shown first."""

from dataclasses import replace

import numpy as np
import pytest

import viz
from pine_engine.attention.trace import Trace
from pine_engine.engine.orders import ShuffleResult
from viz.figures.importance import decisiveness, most_decisive


@pytest.fixture
def trace(tiny_shuffle: ShuffleResult) -> Trace:
    return tiny_shuffle.first.traces["pine"]


def test_importance_is_the_record_and_blank_on_the_diagonal(trace: Trace) -> None:
    assert trace.document_importance is not None
    (raw,) = viz.plot_importance(trace, layer=1, head=2, normalization="raw").data
    np.testing.assert_array_equal(raw.z, trace.document_importance[1, 2])
    assert np.isnan(raw.z).sum() == 3
    (share,) = viz.plot_importance(trace, layer=1, head=2).data
    np.testing.assert_allclose(np.nansum(share.z, axis=1), 1, rtol=1e-6)
    (log,) = viz.plot_importance(trace, layer=1, head=2, normalization="log").data
    np.testing.assert_allclose(10**log.z, raw.z, rtol=1e-5)
    (mean,) = viz.plot_importance(trace, normalization="raw").data
    np.testing.assert_allclose(mean.z, trace.document_importance.mean((0, 1)), rtol=1e-6)


def test_the_answer_is_drawn_from_the_query_that_writes_its_first_token(trace: Trace) -> None:
    assert trace.suffix_importance is not None
    (heat,) = viz.plot_answer_importance(trace, ["x", "y"], layer=0, head=1, normalization="raw").data
    np.testing.assert_array_equal(heat.z, trace.suffix_importance[0, 1, 2:4])
    assert list(heat.meta["y"]) == [{"query": "suffix 2"}, {"query": "suffix 3"}]


def test_a_method_that_does_not_rank_shows_its_attention(tiny_shuffle: ShuffleResult) -> None:
    vanilla = tiny_shuffle.first.traces["vanilla"]
    assert vanilla.suffix_attention is not None
    (heat,) = viz.plot_answer_importance(vanilla, ["x", "y"], layer=0, head=1, normalization="raw").data
    np.testing.assert_array_equal(heat.z, vanilla.suffix_attention[0, 1, 2:4, 1:-1])


def test_a_head_that_does_not_read_documents_is_not_the_most_decisive(trace: Trace) -> None:
    """However unevenly it spreads what it does not give."""
    assert trace.suffix_importance is not None and trace.suffix_attention is not None
    importance = np.ones_like(trace.suffix_importance)
    importance[0, 1, :, 0] = 1e6  # all of nothing
    importance[1, 2, :, 0] = 3
    attention = np.zeros_like(trace.suffix_attention)
    attention[..., 1:-1] = 0.2
    attention[0, 1] = 1e-9
    record = replace(trace, suffix_importance=importance, suffix_attention=attention)
    everywhere = np.full_like(attention, 0.2)
    assert most_decisive(decisiveness(replace(record, suffix_attention=everywhere))) == (0, 1)
    assert most_decisive(decisiveness(record)) == (1, 2)
    assert decisiveness(record)[1, 2] == pytest.approx((3 / 5 - 1 / 5) * 0.6, rel=1e-5)


def test_the_heads_are_drawn_as_they_are_chosen(trace: Trace) -> None:
    figure = viz.plot_head_decisiveness(trace, layer=1, head=3)
    (heat,) = figure.data
    np.testing.assert_array_equal(heat.z, decisiveness(trace).T)
    assert heat.meta["x"][1] == {"layer": 1} and heat.meta["y"][3] == {"head": 3}
    (chosen,) = figure.layout.shapes
    assert (chosen.x0 + chosen.x1, chosen.y0 + chosen.y1) == (2, 6)
