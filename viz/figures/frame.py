"""Parts of all figures: name, caption, escaped text, selection marks and cells."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

import pine_engine as pine
from viz.drawing.identity import Segment, document_segment
from viz.drawing.text import visible_text
from viz.theme import BLUES, CHOSEN, TEMPLATE

FloatArray = NDArray[np.float32]

MAX_NUMBERED = 16  # maximum columns of a heatmap whose cells have space for text

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def new_figure(*, name: str, title: str, caption: str, height: int, **layout: Any) -> go.Figure:
    """Create an empty figure; `name` is the stem of its files, and text of users in the title is escaped."""
    meta = {"name": name, "caption": caption, **layout.pop("meta", {})}
    return go.Figure(layout={"template": TEMPLATE, "title": title, "height": height, "meta": meta, **layout})


def escaped(text: str) -> str:
    """Escape the HTML that plotly interprets, and make blanks and line ends visible."""
    return visible_text(text).translate(_MARKUP)


def plain(text: str) -> str:
    """Escape the HTML that plotly interprets, with blanks unchanged."""
    return escaped(text).replace("␣", " ") if text else ""


def document_segments(count: int, order: Sequence[int] | None) -> tuple[Segment, ...]:
    """Return the documents in input order; `order` has the document, as entered, in each slot."""
    return tuple(document_segment(index, slot) for slot, index in enumerate(order or range(count)))


def document_labels(count: int, order: Sequence[int] | None) -> list[str]:
    """Return the letters of the documents in input order."""
    return [segment.label for segment in document_segments(count, order)]


def method_labels(methods: Sequence[str], labels: Mapping[str, str] | None) -> list[str]:
    """Return escaped labels of methods, which default to their names."""
    return [plain((labels or {}).get(method, method)) for method in methods]


def answer_queries(layout: "pine.TokenLayout", steps: int, step: int | None = None) -> slice:
    """Return the suffix queries that decode the answer tokens, or the one that decodes the token `step`.

    A token is decoded by the token before it, the first one by the last token of the prompt.
    """
    first = layout.suffix_length - 1
    return slice(first, first + steps) if step is None else slice(first + step, first + step + 1)


def require_attention(trace: "pine.Trace") -> FloatArray:
    """Return the attention of the suffix. Raises InputError for a trace that has none."""
    if trace.suffix_attention is None:
        message = f"the trace of {trace.method} has no attention: got None, expected one of a finished run."
        advice = "Run Engine.run(..., trace=True); a model that runs as it is records none."
        raise pine.InputError(f"{message} {advice}", field="trace")
    return trace.suffix_attention


def outline(columns: tuple[int, int], rows: tuple[int, int]) -> dict[str, Any]:
    """Return the shape around selected cells of a matrix, from the first to the last column and row."""
    (left, right), (top, bottom) = columns, rows
    corners = {"x0": left - 0.5, "x1": right + 0.5, "y0": top - 0.5, "y1": bottom + 0.5}
    return {"type": "rect", **corners, "line": {"color": CHOSEN, "width": 3}}


def add_cells(
    figure: go.Figure,
    values: FloatArray,
    x: list[str] | NDArray[np.int16],
    *,
    hover: str,
    meta: Mapping[str, Any],
    titles: tuple[str | None, str | None] = (None, None),
    texts: Sequence[Sequence[str]] | None = None,
    selected_row: int | None = None,
    gap: int = 2,
    **options: Any,
) -> None:
    """Add a heatmap with its columns named on top, and texts in the cells where there is space."""
    if texts is not None:
        figure.update_layout(coloraxis_colorscale=list(BLUES))
        if len(x) <= MAX_NUMBERED:
            options |= {"text": texts, "texttemplate": "%{text}", "textfont": {"color": "#000"}}
    style = {"coloraxis": "coloraxis", "xgap": gap, "ygap": gap, "hovertemplate": f"{hover}<extra></extra>"}
    figure.add_heatmap(z=values, x=x, meta=meta, **style, **options)
    x_title, y_title = ({"title": title} if title else {} for title in titles)
    figure.update_xaxes(x_title, side="top", type="category" if isinstance(x, list) else None)
    figure.update_yaxes(y_title, autorange="reversed")
    if selected_row is not None:
        figure.add_shape(outline((0, len(x) - 1), (selected_row, selected_row)))
