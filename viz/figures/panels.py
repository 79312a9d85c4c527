"""Panels: heatmaps over the tokens of a prompt, side by side, whose axes name the segments."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.identity import DECODED, PREFIX, SUFFIX, Segment
from viz.figures.frame import FloatArray, document_segments
from viz.theme import CHOSEN, MASKED

PromptPart = tuple[Segment, int, int]
"""Segment of a prompt or its answer, its first token, and the token after its last."""

MAX_BINS = 400
"""Maximum cells per side of one of at most two panels; in longer prompts one cell is several tokens."""

_BAND = 0.02  # width of the band of a segment, as a share of the tokens
_GAP = 0.05  # between panels, as a share of the figure
_MAX_TITLE_CHARACTERS = 72  # of the panel titles side by side, in a figure 600 pixels wide
_MAX_TITLE_LINE_CHARACTERS = 44  # of one panel title, on a phone
_TITLE_LINE_PX = 20
_TICKS_PX = 44  # height of the tick labels below a row of panels
_ROW_PX = 180  # height that each further row of panels adds, without its titles and ticks
_OUTSIDE_PX = 130  # largest height of title, caption and margins


def prompt_parts(
    layout: "pine.TokenLayout", num_tokens: int, order: Sequence[int] | None
) -> list[PromptPart]:
    """Return the parts that are not empty; tokens after those of the layout belong to the answer."""
    answer = num_tokens - layout.num_tokens
    lengths = [layout.prefix_length, *layout.lengths.tolist(), layout.suffix_length, answer]
    segments = [PREFIX, *document_segments(layout.num_documents, order), SUFFIX, DECODED]
    parts = zip(segments, lengths, np.cumsum(lengths).tolist(), strict=True)
    return [(segment, end - length, end) for segment, length, end in parts if length]


def binned(values: FloatArray, max_bins: int) -> tuple[FloatArray, int]:
    """Reduce a matrix to `max_bins` cells per side by their maximum; return it and the tokens per cell."""
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
    parts: Sequence[PromptPart],
    *,
    hover: str,
    query: int | None,
    columns: int,
) -> None:
    """Add a heatmap per matrix (N, N) over the parts of N tokens, queries in rows; all zoom together.

    Labels are escaped. `columns` panels are side by side, and the row of `query` is marked.
    """
    titles = [_title_lines(label, columns) for label in labels]
    title_px, lower_title_px = (
        _TITLE_LINE_PX * max(map(len, part), default=0) + 8 for part in (titles, titles[columns:])
    )
    rows = -(-len(matrices) // columns)
    row_gap_px = lower_title_px + _TICKS_PX
    figure_px = figure.layout.height + (rows - 1) * (_ROW_PX + row_gap_px)
    row_gap = row_gap_px / (figure_px - _OUTSIDE_PX)
    width, height = (1 - _GAP * (columns - 1)) / columns, (1 - row_gap * (rows - 1)) / rows
    max_bins = MAX_BINS if len(matrices) <= 2 else MAX_BINS // 2
    num_tokens = parts[-1][2]
    band = _BAND * num_tokens
    span = [-0.5 - band, num_tokens - 0.5]
    middles = [(first + stop - 1) / 2 for _, first, stop in parts]
    names = [segment.label for segment, *_ in parts]
    ticks = {"tickvals": middles, "ticktext": names, "tickangle": 0}
    # Words are below the letters, which narrow parts leave no room for.
    x_ticks = ticks | {"ticktext": [name if len(name) == 1 else f"<br>{name}" for name in names]}
    layout: dict[str, Any] = {"annotations": [], "shapes": []}  # set once: plotly checks all of it each time
    for index, (matrix, label, title) in enumerate(zip(matrices, labels, titles, strict=True)):
        number = str(index + 1) if index else ""
        x, y = f"x{number}", f"y{number}"
        z, step = binned(matrix, max_bins)
        places = {"x0": (step - 1) / 2, "y0": (step - 1) / 2, "dx": step, "dy": step}
        figure.add_heatmap(
            **{"z": z, "xaxis": x, "yaxis": y, **places},
            coloraxis="coloraxis",
            name=label,
            hovertemplate=f"{label}: {hover}<extra></extra>",
            meta={"y": {"token": "#"}},
        )
        left, top = index % columns * (width + _GAP), 1 - index // columns * (height + row_gap)
        x_axis = {
            **{"domain": [left, left + width], "anchor": y, "side": "bottom", "range": span},
            **{"constrain": "domain", "constraintoward": "left"},
            **({"matches": "x"} if index else {}),
        }
        y_axis = {
            **{"domain": [max(top - height, 0), top], "anchor": x, "range": span[::-1]},
            **{"constrain": "domain", "constraintoward": "top"},
            "showticklabels": not index % columns,
            **({"matches": "y"} if index else {"scaleanchor": "x"}),
        }
        layout |= {f"xaxis{number}": x_ticks | x_axis, f"yaxis{number}": ticks | y_axis}
        layout["annotations"].append(
            {
                "text": f"<span style='font-size: 0.9em'>{'<br>'.join(title)}</span>",
                **{"xref": f"{x} domain", "yref": f"{y} domain", "x": 0, "y": 1},
                **{"xanchor": "left", "yanchor": "bottom", "align": "left", "showarrow": False},
            }
        )
        layout["shapes"] += _panel_marks(parts, band, query, {"xref": x, "yref": y})
    figure.update_layout(
        layout,
        plot_bgcolor=MASKED,
        height=figure_px + title_px,
        margin={"t": title_px},
        title={"pad": {"b": title_px}},  # the title pushes the margin, which holds the panel titles
        meta={**figure.layout.meta, "panels": len(matrices), "columns": min(columns, len(matrices))},
    )


def _title_lines(label: str, columns: int) -> list[str]:
    """Break the title of a panel, after semicolons if it fits so into one of `columns` columns."""
    width = min(_MAX_TITLE_CHARACTERS // columns, _MAX_TITLE_LINE_CHARACTERS)
    # textwrap breaks at spaces, but not at no-break spaces.
    parts = [part if len(part) > width else part.replace(" ", "\u00a0") for part in label.split("; ")]
    return textwrap.wrap("; ".join(parts), width, break_long_words=False, break_on_hyphens=False)


def _panel_marks(
    parts: Sequence[PromptPart], band: float, query: int | None, axes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the colored bands of the segments, and the line through the selected query."""
    marks: list[dict[str, Any]] = []
    for segment, first, stop in parts:
        fill = {"type": "rect", "fillcolor": segment.color, "line": {"width": 0}, **axes}
        along, across = (first - 0.5, stop - 0.5), (-0.5 - band, -0.5)
        for (x0, x1), (y0, y1) in ((along, across), (across, along)):
            marks.append(fill | {"x0": x0, "x1": x1, "y0": y0, "y1": y1})
    if query is not None:
        line = {"type": "line", "line": {"color": CHOSEN, "width": 1.5}, **axes}
        marks.append(line | {"x0": -0.5, "x1": parts[-1][2] - 0.5, "y0": query, "y1": query})
    return marks
