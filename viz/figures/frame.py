"""Frame of all figures: name, caption, escaped text, selection marks, and token matrices side by side."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

import pine_engine as pine
from viz.drawing.identity import DECODED, PREFIX, SUFFIX, Segment, document_segment
from viz.drawing.text import visible_text
from viz.theme import CHOSEN, MASKED, TEMPLATE

FloatArray = NDArray[np.float32]

MAX_BINS = 400
"""Maximum cells per side of one of at most two panels; in longer prompts one cell is several tokens."""

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

_BAND = 0.02
"""Width of the band of a segment, as a share of the tokens."""

_GAP = 0.05
"""Gap between panels, as a share of the figure."""

_MAX_TITLE_CHARACTERS = 72
"""Characters of the panel titles side by side, which fit into a figure 600 pixels wide."""

_MAX_TITLE_LINE_CHARACTERS = 44
"""Characters in a line of one panel title, which fit on a phone."""

_TITLE_LINE_PX = 20


def new_figure(*, name: str, title: str, caption: str, height: int, **layout: Any) -> go.Figure:
    """Create an empty figure with the template of the project.

    Args:
        name: Stem of the files that it is saved as.
        title: Quantity shown; text from users must have gone through `plain`.
        caption: One line that explains the marks. It is always shown as text.
        height: Height in pixels.
        layout: Layout of plotly; `meta` is extended by name and caption.
    """
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


def method_labels(methods: Sequence[str], labels: Mapping[str, str] | None) -> list[str]:
    """Return escaped labels of methods, which default to their names."""
    return [plain((labels or {}).get(method, method)) for method in methods]


def outline(x: tuple[float, float], y: tuple[float, float]) -> dict[str, Any]:
    """Return the shape around selected cells of a matrix, from the first to the last column and row."""
    line = {"color": CHOSEN, "width": 3}
    return {
        "type": "rect",
        "x0": x[0] - 0.5,
        "x1": x[1] + 0.5,
        "y0": y[0] - 0.5,
        "y1": y[1] + 0.5,
        "line": line,
    }


def outlined_row(row: int, num_columns: int) -> dict[str, Any]:
    """Return the shape around a selected row of a matrix."""
    return outline((0, num_columns - 1), (row, row))


class PromptParts(NamedTuple):
    """Segments of a prompt and its answer, and the P + 1 token indices that bound them."""

    segments: tuple[Segment, ...]
    bounds: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the prompt and the answer."""
        return self.bounds[-1]


def prompt_parts(layout: "pine.TokenLayout", num_tokens: int, order: Sequence[int] | None) -> PromptParts:
    """Return the segments that are not empty; tokens after those of the layout belong to the answer."""
    lengths = [layout.prefix_length, *layout.lengths.tolist(), layout.suffix_length]
    segments = [PREFIX, *document_segments(layout.num_documents, order), SUFFIX]
    if num_tokens > layout.num_tokens:
        lengths.append(num_tokens - layout.num_tokens)
        segments.append(DECODED)
    parts = [(segment, length) for segment, length in zip(segments, lengths, strict=True) if length]
    bounds = np.cumsum([0, *(length for _, length in parts)])
    return PromptParts(tuple(segment for segment, _ in parts), tuple(bounds.tolist()))


def binned(values: FloatArray, max_bins: int) -> tuple[FloatArray, int]:
    """Reduce a matrix to at most `max_bins` cells per side; return it and the tokens per cell.

    A cell is the maximum of its values (Q, K), NaN if all of them are.
    """
    step = -(-max(values.shape) // max_bins)
    if step == 1:
        return values, 1
    padded = np.pad(values, [(0, -size % step) for size in values.shape], constant_values=np.nan)
    rows, columns = (size // step for size in padded.shape)
    return np.fmax.reduce(padded.reshape(rows, step, columns, step), axis=(1, 3)), step


def add_panels(
    figure: go.Figure,
    matrices: Sequence[FloatArray],
    labels: Sequence[str],
    parts: PromptParts,
    *,
    hover: str,
    query: int | None,
    columns: int,
) -> None:
    """Add a heatmap per matrix over the same tokens, queries in rows, keys in columns; all zoom together.

    Args:
        figure: Figure without traces.
        matrices: float32 (N, N) each, NaN where masked.
        labels: Escaped title of each panel.
        parts: Segments of the N tokens.
        hover: Hover text of a cell, after the label.
        query: Token whose row is marked.
        columns: Panels side by side.
    """
    titles = [_title_lines(label, columns) for label in labels]
    title_px = _TITLE_LINE_PX * max(map(len, titles)) + 8
    rows = -(-len(matrices) // columns)
    width, height = (1 - _GAP * (columns - 1)) / columns, (1 - 1.6 * _GAP * (rows - 1)) / rows
    max_bins = MAX_BINS if len(matrices) <= 2 else MAX_BINS // 2
    num_tokens = parts.num_tokens
    band = _BAND * num_tokens
    middles = [(first + stop - 1) / 2 for first, stop in zip(parts.bounds, parts.bounds[1:], strict=False)]
    ticks = {"tickvals": middles, "ticktext": [segment.label for segment in parts.segments], "tickangle": 0}
    for index, (matrix, label, title) in enumerate(zip(matrices, labels, titles, strict=True)):
        number = str(index + 1) if index else ""
        z, step = binned(matrix, max_bins)
        figure.add_heatmap(
            z=z,
            x0=(step - 1) / 2,
            y0=(step - 1) / 2,
            dx=step,
            dy=step,
            xaxis=f"x{number}",
            yaxis=f"y{number}",
            coloraxis="coloraxis",
            name=label,
            hovertemplate=f"{label}: {hover}<extra></extra>",
            meta={"y": {"token": "#"}},
        )
        left, top = index % columns * (width + _GAP), 1 - index // columns * (height + 1.6 * _GAP)
        figure.update_layout(
            {
                f"xaxis{number}": {
                    **ticks,
                    "domain": [left, left + width],
                    "anchor": f"y{number}",
                    "side": "bottom",
                    "range": [-0.5 - band, num_tokens - 0.5],
                    "constrain": "domain",
                    "constraintoward": "left",
                    **({"matches": "x"} if index else {}),
                },
                f"yaxis{number}": {
                    **ticks,
                    "domain": [max(top - height, 0), top],
                    "anchor": f"x{number}",
                    "range": [num_tokens - 0.5, -0.5 - band],
                    "constrain": "domain",
                    "constraintoward": "top",
                    "showticklabels": not index % columns,
                    **({"matches": "y"} if index else {"scaleanchor": "x"}),
                },
            }
        )
        figure.add_annotation(
            text=f"<span style='font-size: 0.9em'>{'<br>'.join(title)}</span>",
            **{"xref": f"x{number} domain", "yref": f"y{number} domain", "x": 0, "y": 1},
            **{"xanchor": "left", "yanchor": "bottom", "align": "left", "showarrow": False},
        )
        figure.update_layout(shapes=[*figure.layout.shapes, *_panel_marks(parts, band, number, query)])
    figure.update_layout(
        plot_bgcolor=MASKED,
        height=figure.layout.height + title_px,
        margin={"t": title_px},
        title={"pad": {"b": title_px}},  # the title pushes the margin, which holds the panel titles
        meta={**figure.layout.meta, "panels": len(matrices), "columns": min(columns, len(matrices))},
    )


def _title_lines(label: str, columns: int) -> list[str]:
    """Break the title of a panel after semicolons, so that it fits into one of `columns` columns."""
    width = min(_MAX_TITLE_CHARACTERS // columns, _MAX_TITLE_LINE_CHARACTERS)
    # textwrap breaks at spaces, but not at no-break spaces.
    parts = label.replace(" ", "\u00a0").replace(";\u00a0", "; ")
    return textwrap.wrap(parts, width, break_long_words=False, break_on_hyphens=False)


def _panel_marks(parts: PromptParts, band: float, number: str, query: int | None) -> list[dict[str, Any]]:
    """Return the colored bands of the segments, and the line through the selected query."""
    axes = {"xref": f"x{number}", "yref": f"y{number}"}
    marks: list[dict[str, Any]] = []
    for segment, first, stop in zip(parts.segments, parts.bounds, parts.bounds[1:], strict=False):
        fill = {"type": "rect", "fillcolor": segment.color, "line": {"width": 0}, **axes}
        along, across = (first - 0.5, stop - 0.5), (-0.5 - band, -0.5)
        for x, y in ((along, across), (across, along)):
            marks.append(fill | {"x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1]})
    if query is not None:
        line = {"type": "line", "line": {"color": CHOSEN, "width": 1.5}, **axes}
        marks.append(line | {"x0": -0.5, "x1": parts.num_tokens - 0.5, "y0": query, "y1": query})
    return marks
