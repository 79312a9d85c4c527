"""Figures of the tutorial, with the marks that words of its text highlight."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

import viz
from viz.drawing.identity import document_letter
from viz.page.answers.run import Run
from viz.page.internals.content import of_method
from viz.page.selection import first_selection, shown_place
from viz.page.traced_run import plan_of
from viz.theme import CHOSEN

Shapes = list[dict[str, Any]]


def _mark(x: tuple[float, float], y: tuple[float, float], panel: str = "") -> dict[str, Any]:
    """Return the shape of a mark between two values on each axis."""
    ends = {"x0": x[0] - 0.5, "x1": x[1] - 0.5, "y0": y[0] - 0.5, "y1": y[1] - 0.5}
    line = {"color": CHOSEN, "width": 3}
    return {"type": "rect", "xref": f"x{panel}", "yref": f"y{panel}", "line": line, **ends}


def _cell(column: int, row: int) -> dict[str, Any]:
    return _mark((column, column + 1), (row, row + 1))


def _with_marks(figure: go.Figure, marks: dict[str, Shapes]) -> go.Figure:
    return figure.update_layout(meta={**figure.layout.meta, "marks": marks})


def mask_figure(run: Run, *methods: str) -> go.Figure:
    """Plot the masks of two methods for the prompt of the run."""
    figure = viz.plot_masks([plan_of(run, method) for method in methods], order=run.order)
    figure.update_layout(height=355, title_text="Attention masks by token")
    layout = run.result.layout
    bounds = [
        (start, start + length)
        for start, length in zip(layout.document_starts.tolist(), layout.lengths.tolist(), strict=True)
    ]
    whole, second = (0, layout.num_tokens), "2" if len(figure.data) > 1 else ""
    marks = {
        "last": [_mark(whole, bounds[-1])],
        "first": [_mark(whole, bounds[0])],
        "nia": [_mark(whole, whole, second)],
        "later": [
            _mark(later, earlier, second) for slot, later in enumerate(bounds) for earlier in bounds[:slot]
        ],
        "inside": [_mark(document, document, second) for document in bounds],
    }
    return _with_marks(figure, marks)


def position_figure(run: Run) -> go.Figure:
    """Plot the positions of the documents for the last token of the question under vanilla."""
    trace, query = run.result.traces["vanilla"], run.result.layout.suffix_length - 1
    figure = viz.plot_method_positions(
        [trace], query=query, layer=0, head=0, order=run.order, labels={"vanilla": "Vanilla"}
    )
    figure.update_layout(title_text="Document positions for the last token of the question")
    starts, lengths = trace.suffix_starts[0, 0, query].tolist(), trace.layout.lengths.tolist()
    bars = [
        _mark((start + 0.5, start + length + 0.5), (0, 1))
        for start, length in zip(starts, lengths, strict=True)
    ]
    return _with_marks(figure, {"near": bars[-1:], "far": bars[:1]})


def importance_figure(run: Run, selected_in: Run) -> go.Figure:
    """Plot the importance of the documents under PINE, in the most decisive head of another run."""
    trace, place = run.result.traces["pine"], shown_place(selected_in, first_selection(selected_in))
    assert trace.document_importance is not None
    values = trace.document_importance[place.layer, place.head]
    figure = viz.plot_importance(trace, layer=place.layer, head=place.head, order=run.order)
    count = len(run.order)
    marks = {
        "pair": [_cell(1, 0)],
        "most": [_cell(int(np.nanargmax(row)), index) for index, row in enumerate(values)],
    } | {
        document_letter(document): [_mark((0, count), (slot, slot + 1)), _mark((slot, slot + 1), (0, count))]
        for slot, document in enumerate(run.order)
    }
    return _with_marks(of_method(figure, "PINE"), marks)


def map_figure(run: Run) -> go.Figure:
    """Plot the positions of the documents for all documents and the question under PINE."""
    place, count = shown_place(run, first_selection(run)), len(run.order)
    figure = viz.plot_position_map(
        run.result.traces["pine"], layer=place.layer, head=place.head, order=run.order
    )
    own = [_cell(slot, slot) for slot in range(count)]
    return _with_marks(of_method(figure, "PINE"), {"own": own, "column": [_mark((1, 2), (0, count + 1))]})
