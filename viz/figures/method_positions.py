"""Figure of the position of each document for one query, one row per method."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.figures.frame import document_segments, method_labels, new_figure
from viz.figures.positions import add_document_bars, add_query_marks, query_positions


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

    Returns:
        The figure.
    """
    traces = list(traces.values() if isinstance(traces, Mapping) else traces)
    positions = [query_positions(trace, query, document) for trace in traces]
    rows = np.stack(
        [starts[min(layer, starts.shape[0] - 1), min(head, starts.shape[1] - 1)] for starts, _ in positions]
    )
    names = method_labels([trace.method for trace in traces], labels)
    figure = new_figure(
        name="method-positions",
        title=f"Where the query sees each document, layer {layer}, head {head}",
        caption="A row a method; the line is the query’s own position.",
        height=120 + 40 * len(rows),
        barmode="overlay",
    )
    picks = [{"method": trace.method} for trace in traces]
    segments = document_segments(rows.shape[-1], order)
    add_document_bars(figure, rows, traces[0].layout.lengths, segments, names, picks)
    add_query_marks(figure, names, [query_position for _, query_position in positions])
    return figure
