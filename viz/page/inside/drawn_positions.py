"""Tab "Positions": document positions of each query, by layer, head and method."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.attention.trace import Trace
from pine_engine.methods.table import METHODS
from viz.drawing.markup import empty_panel
from viz.drawing.picture import switch
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.figures.method_positions import plot_method_positions
from viz.figures.position_map import plot_position_map
from viz.figures.positions import plot_positions
from viz.page.answers.answering import FinishedRun
from viz.page.common.failures import notice
from viz.page.inside.drawn import TabContent, of_method
from viz.page.inside.reading import ranked_trace
from viz.page.inside.selection import Query, Selection

IntArray = NDArray[np.integer[Any]]

_OVER = "This answer was over before that token. Choose another query or method."


@dataclass(frozen=True)
class Place:
    """Layer and head of the positions; `is_chosen` is False if the selection is a mean."""

    layer: int
    head: int
    is_chosen: bool = True


def draw_positions(run: FinishedRun, selection: Selection) -> TabContent:
    """Draw the documents for one query by layer or head and by method, and for all documents."""
    place, query, label = shown_place(run, selection), selection.query, METHODS[selection.method].label
    seen: dict[str, Any] = {"document" if query.kind == "document" else "query": query.index}
    at: dict[str, Any] = {"layer": place.layer, "head": place.head, "order": run.order}
    traces = [trace for trace in run.result.traces.values() if starts_of(trace, query) is not None]
    labels = {trace.method: METHODS[trace.method].label for trace in traces}
    figures = {}
    if traces:
        figures["method-positions"] = plot_method_positions(traces, **seen, **at, labels=labels)
    if selection.method in labels:
        trace = run.result.traces[selection.method]
        figures["positions"] = of_method(plot_positions(trace, by=selection.rows, **seen, **at), label)
        figures["position-map"] = of_method(plot_position_map(trace, **seen, **at), label)
        remarks = "".join(map(notice, _remarks(run, trace, place)))
    else:
        remarks = empty_panel(_OVER)
    rows = [("a layer", {"rows": "layer"}), ("a head", {"rows": "head"})]
    return TabContent(switch("A row is", rows, f"a {selection.rows}") + remarks, figures)


def _remarks(run: FinishedRun, trace: Trace, place: Place) -> list[str]:
    """Explain why there is one row, or why this layer and head is shown."""
    if trace.suffix_importance is not None:
        here = f"layer {place.layer}, head {place.head}"
        return [] if place.is_chosen else [f"Positions have no mean; shown is {here}, which decides most."]
    ranked = ranked_trace(run)
    other = f" Choose {METHODS[ranked.method].label} to see how its heads differ." if ranked else ""
    return [f"{METHODS[trace.method].label} places the documents alike in every layer and head.{other}"]


def shown_place(run: FinishedRun, selection: Selection) -> Place:
    """Return the selected layer and head; for a mean, the most decisive ones, for all methods."""
    if selection.layer is not None and selection.head is not None:
        return Place(selection.layer, selection.head)
    trace = ranked_trace(run, selection.method)
    if trace is None:
        return Place(selection.layer or 0, selection.head or 0, is_chosen=False)
    spreads = decisiveness(trace)
    if selection.layer is not None:
        spreads = spreads[selection.layer : selection.layer + 1]
    if selection.head is not None:
        spreads = spreads[:, selection.head : selection.head + 1]
    layer, head = most_decisive(spreads)
    # What was selected has been cut down to one, so its index there is 0.
    return Place(layer + (selection.layer or 0), head + (selection.head or 0), is_chosen=False)


def starts_of(trace: Trace, query: Query) -> IntArray | None:
    """Return the start of each document for the query, int64 (A, H, D); None after the end of the answer."""
    starts = trace.document_starts if query.kind == "document" else trace.suffix_starts
    return starts[:, :, query.index].astype(np.int64) if query.index < starts.shape[2] else None
