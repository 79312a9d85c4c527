"""Figure of the positions of the documents in one order after the other, as an animation."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.identity import order_name
from viz.figures.frame import document_segments, method_labels, new_figure
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.figures.positions import MASKED, IntArray, at_place, document_bars, query_positions
from viz.theme import INK

_FRAME = {"frame": {"duration": 700, "redraw": False}, "transition": {"duration": 500}}
_MOVE = {**_FRAME, "mode": "immediate", "fromcurrent": True}


class DocumentPositions(NamedTuple):
    """Positions of the documents for one query of each method, in one order."""

    order: tuple[int, ...]  # document, as entered, in each slot
    lengths: IntArray  # (D,), in tokens, by document as entered
    starts: dict[str, IntArray]  # by method, like lengths
    queries: dict[str, int]  # position of the query by method; empty if unknown


def plot_positions_by_order(
    rows: "Sequence[pine.OrderResult]",
    *,
    layer: int | None = None,
    head: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Plot the position of each document for the last token of the question, one frame per order.

    base and x of a bar are the first position of the document and its length in tokens, one value per method;
    NaN for methods without positions.

    Args:
        rows: Orders of a traced shuffle.
        layer: Layer; default the most decisive of the first order.
        head: Head; default the most decisive of the first order.
        labels: Labels of the methods.
    """
    if not all(row.result.traces for row in rows):
        raise pine.InputError("orders have no traces: pass trace=True to Engine.shuffle", field="rows")
    if layer is None or head is None:
        layer, head = default_head(rows[0].result.traces.values())
    positions = [document_positions(row.order, row.result.traces, layer, head) for row in rows]
    return plot_document_positions(positions, labels=labels)


def default_head(traces: "Iterable[pine.Trace]") -> tuple[int, int]:
    """Return the most decisive layer and head of the first trace that ranks, or (0, 0)."""
    ranked = next((trace for trace in traces if trace.suffix_importance is not None), None)
    if ranked is None or ranked.suffix_attention is None:
        return 0, 0
    return most_decisive(decisiveness(ranked))


def document_positions(
    order: Sequence[int],
    traces: "Mapping[str, pine.Trace]",
    layer: int,
    head: int,
    queries: Mapping[str, tuple[int, int, int]] | None = None,
) -> DocumentPositions:
    """Return the positions in one order, from its traces.

    `order` has the document, as entered, in each slot. `queries` have layer, head and suffix token by method,
    by default the last token of the question; layer and head are those of methods without a query.
    """
    layout = next(iter(traces.values())).layout
    slots = np.argsort(order)
    usual = layer, head, layout.suffix_length - 1
    starts, own = {}, {}
    for name, trace in traces.items():
        layer, head, query = (queries or {}).get(name, usual)
        found, own[name] = query_positions(trace, query, None)
        starts[name] = at_place(found, layer, head)[slots]
    return DocumentPositions(tuple(order), layout.lengths[slots], starts, own)


def plot_document_positions(
    orders: Sequence[DocumentPositions],
    *,
    query: str = "the last token of the question",
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Plot the figure of `plot_positions_by_order` from positions, which need less memory than traces."""
    methods = list(orders[0].starts)
    names = method_labels(methods, labels)
    end = max(int((starts + one.lengths).max()) for one in orders for starts in one.starts.values())
    placed = [starts for one in orders for starts in one.starts.values() if (starts != MASKED).all()]
    first = min((int(starts.min()) for starts in placed), default=0)
    figure = new_figure(
        name="shuffle-positions",
        title="Document positions across orders",
        caption=f"Positions for {query}. Press Play to step through the orders.",
        height=150 + 38 * len(methods),
        barmode="overlay",
        bargap=0.25,
        showlegend=False,
        margin={"b": 84},
    )
    figure.add_traces(_bars(orders[0], names))
    figure.frames = [go.Frame(data=_bars(one, names), name=str(index)) for index, one in enumerate(orders)]
    letters = [order_name(one.order) for one in orders]
    steps = [
        {"method": "animate", "label": label, "args": [[str(index)], _MOVE]}
        for index, label in enumerate(letters)
    ]
    slider = {
        "steps": steps,
        **{"x": 0.22, "len": 0.76, "y": 0, "pad": {"t": 30, "b": 0}, "ticklen": 0, "minorticklen": 0},
        "currentvalue": {"prefix": "order "},
        "font": {"color": "rgba(0,0,0,0)", "size": 1},
        "currentvalue_font": {"size": 13, "color": INK},
    }
    play = {
        "type": "buttons",
        "showactive": False,
        **{"x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "pad": {"t": 44}},
        "buttons": [{"label": "▶ Play", "method": "animate", "args": [None, _MOVE]}],
    }
    figure.update_layout(sliders=[slider], updatemenus=[play])
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(range=[max(first - 5, 0), end + 5], title=None, showgrid=True)
    return figure


def _bars(positions: DocumentPositions, names: Sequence[str]) -> list[go.Bar]:
    """Return a bar per document, with one value per method."""
    starts = np.stack(list(positions.starts.values()))
    segments = document_segments(len(positions.lengths), None)
    return list(document_bars(starts, positions.lengths, segments, names))
