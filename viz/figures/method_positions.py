"""Figure of the position of each document for one query, one row per method."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.figures.frame import document_segments, method_labels, new_figure
from viz.figures.positions import add_query_marks, at_place, document_bars, query_positions


def plot_method_positions(
    traces: "Iterable[pine.Trace] | Mapping[str, pine.Trace]",
    *,
    query: int = -1,
    document: int | None = None,
    layer: int,
    head: int,
    order: Sequence[int] | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Plot the position of each document for one query as bars, one row per method.

    base and x of each bar are as in `plot_positions`.

    Args:
        traces: Traces of one prompt.
        query: Index of a suffix token or answer token, from 0 or from the end.
        document: Slot of a document, whose last token is the query instead.
        layer: Layer, for methods whose positions depend on it.
        head: Head, for methods whose positions depend on it.
        order: Document, as entered, in each slot.
        labels: Labels of the methods.
    """
    traces = list(traces.values() if isinstance(traces, Mapping) else traces)
    positions = [query_positions(trace, query, document) for trace in traces]
    rows = np.stack([at_place(starts, layer, head) for starts, _ in positions])
    names = method_labels([trace.method for trace in traces], labels)
    figure = new_figure(
        name="method-positions",
        title=f"Document positions for the query by method, layer {layer}, head {head}",
        caption="One row per method. Line: position of the query. Look for methods in which documents share "
        "positions: they treat all slots equally.",
        height=120 + 40 * len(rows),
        barmode="overlay",
    )
    picks = [{"method": trace.method} for trace in traces]
    segments = document_segments(rows.shape[-1], order)
    figure.add_traces(list(document_bars(rows, traces[0].layout.lengths, segments, names, picks)))
    add_query_marks(figure, names, [query_position for _, query_position in positions])
    return figure
