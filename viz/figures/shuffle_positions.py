"""The shuffle played: who moves when the documents change places."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.identity import document_letter, document_segment
from viz.figures.frame import named, new_figure
from viz.figures.importance import decisiveness, most_decisive
from viz.figures.position_bars import document_bar, stacked

if TYPE_CHECKING:
    from pine_engine.attention.trace import Trace
    from pine_engine.engine.orders import OrderResult

_MOVE = {
    "frame": {"duration": 700, "redraw": False},
    "transition": {"duration": 500},
    "mode": "immediate",
    "fromcurrent": True,
}


@dataclass(frozen=True)
class PlacedDocuments:
    """Where the last token of the question sees each document, in one order.

    order: which document, as entered, stands in each slot. lengths: int (D,), in tokens. starts: by method,
    int (D,), each by document as entered.
    """

    order: tuple[int, ...]
    lengths: NDArray[np.integer[Any]]
    starts: dict[str, NDArray[np.integer[Any]]]


def plot_positions_by_order(
    rows: "Sequence[OrderResult]",
    *,
    layer: int | None = None,
    head: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Bars that move, one frame an order: where the last token of the question sees each document under each
    method.

    rows: of a shuffle that was traced. layer, head: the most decisive of the first order if none is given.
    labels: of the methods.

    base and x of a bar are the document's first position and its length in tokens, one value a method; never
    NaN.
    """
    if layer is None or head is None:
        layer, head = shown_head(rows[0].result.traces.values())
    return plot_placed(
        [place_documents(row.order, row.result.traces, layer, head) for row in rows], labels=labels
    )


def shown_head(traces: "Iterable[Trace]") -> tuple[int, int]:
    """Layer and head that are drawn where none is chosen: the most decisive of the first trace that ranks."""
    ranked = next((trace for trace in traces if trace.suffix_importance is not None), None)
    if ranked is None or ranked.suffix_attention is None:
        return 0, 0
    return most_decisive(decisiveness(ranked))


def place_documents(
    order: Sequence[int], traces: "Mapping[str, Trace]", layer: int, head: int
) -> PlacedDocuments:
    """What is drawn of one order, from its traces. order: which document, as entered, stands in each slot."""
    layout = next(iter(traces.values())).layout
    slots = np.argsort(order)
    starts = {}
    for method, trace in traces.items():
        layers, heads = trace.suffix_starts.shape[:2]
        at = min(layer, layers - 1), min(head, heads - 1), layout.suffix_length - 1
        starts[method] = trace.suffix_starts[at][slots]
    return PlacedDocuments(tuple(order), layout.lengths[slots], starts)


def plot_placed(rows: Sequence[PlacedDocuments], *, labels: Mapping[str, str] | None = None) -> go.Figure:
    """What plot_positions_by_order draws, of what was kept of each order."""
    methods = list(rows[0].starts)
    names = named(methods, labels)
    end = max(int((starts + row.lengths).max()) for row in rows for starts in row.starts.values())
    first = min(int(starts.min()) for row in rows for starts in row.starts.values())
    figure = new_figure(
        name="shuffle-positions",
        title="Who moves when the documents are shuffled",
        caption="Where the question sees each document. Play goes through the orders.",
        height=150 + 38 * len(methods),
        barmode="overlay",
        bargap=0.25,
        showlegend=False,
        margin={"b": 84},
    )
    figure.add_traces(_bars(rows[0], methods, names))
    figure.frames = [
        go.Frame(data=_bars(row, methods, names), name=str(place)) for place, row in enumerate(rows)
    ]
    steps = [
        {
            "method": "animate",
            "label": " ".join(map(document_letter, row.order)),
            "args": [[str(place)], _MOVE],
        }
        for place, row in enumerate(rows)
    ]
    figure.update_layout(
        sliders=[
            {
                "steps": steps,
                "x": 0.22,
                "len": 0.76,
                "y": 0,
                "pad": {"t": 30, "b": 0},
                "currentvalue": {"prefix": "order "},
                "ticklen": 0,
                "minorticklen": 0,
                "font": {"color": "rgba(0,0,0,0)", "size": 1},
                "currentvalue_font": {"size": 13, "color": "#1f2937"},
            }
        ],
        updatemenus=[
            {
                "type": "buttons",
                "showactive": False,
                **{"x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "pad": {"t": 44}},
                "buttons": [{"label": "▶ Play", "method": "animate", "args": [None, _MOVE]}],
            }
        ],
    )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(range=[max(first - 5, 0), end + 5], title=None, showgrid=True)
    return figure


def _bars(row: PlacedDocuments, methods: Sequence[str], names: Sequence[str]) -> list[go.Bar]:
    """A bar for each document, in each method's row."""
    starts = np.stack([row.starts[method] for method in methods])
    heights, offsets = stacked(starts, row.lengths)
    bars = []
    for document, length in enumerate(row.lengths.tolist()):
        base = starts[:, document].astype(np.float32)
        lengths = np.full(len(methods), length, dtype=np.float32)
        bar = document_bar(document_segment(document), names, base, lengths)
        bars.append(go.Bar(**bar, width=heights, offset=offsets[:, document]))
    return bars
