"""Matrices of single tokens side by side, which zoom together, with the parts of the prompt as bands."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.identity import DECODED, PREFIX, SUFFIX, Segment
from viz.figures.frame import documents_of
from viz.theme import CHOSEN, MASKED

if TYPE_CHECKING:
    from pine_engine.prompts.layout import TokenLayout

BINS = 400
"""Most cells a side; of longer prompts several tokens are one cell."""

_BAND = 0.02
"""Width of a band, as a part of the tokens."""

_GAP = 0.05

_TITLE_CHARACTERS = 72
"""Most characters of the panel titles side by side; they fit into a figure 600 pixels wide."""

_TITLE_LINE_CHARACTERS = 44
"""Most characters in a line of one panel title; they fit on a telephone."""

_TITLE_LINE_PX = 20
"""Height of a line of a panel title in pixels."""


@dataclass(frozen=True)
class Parts:
    """The parts of a prompt and its answer, and where each begins. bounds: P + 1 token indices for P
    parts."""

    segments: tuple[Segment, ...]
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, layout: "TokenLayout", total: int, order: Sequence[int] | None) -> "Parts":
        """total: tokens of the prompt, and of the answer as far as it was read. order: see documents_of."""
        lengths = [layout.prefix_length, *layout.lengths.tolist(), layout.suffix_length]
        segments = [PREFIX, *documents_of(layout.num_documents, order), SUFFIX]
        if total > layout.num_tokens:
            lengths.append(total - layout.num_tokens)
            segments.append(DECODED)
        there = [(segment, length) for segment, length in zip(segments, lengths, strict=True) if length]
        bounds = np.cumsum([0, *(length for _, length in there)])
        return cls(tuple(segment for segment, _ in there), tuple(bounds.tolist()))

    @property
    def total(self) -> int:
        """All tokens."""
        return self.bounds[-1]


def binned(values: NDArray[np.float32], most: int) -> tuple[NDArray[np.float32], int]:
    """A matrix of at most so many cells a side, and how many tokens one cell is.

    values: float32 (Q, K), NaN where masked. A cell is the largest of what it holds, NaN if all of it is.
    """
    step = -(-max(values.shape) // most)
    if step == 1:
        return values, 1
    padded = np.pad(values, [(0, -size % step) for size in values.shape], constant_values=np.nan)
    rows, columns = (size // step for size in padded.shape)
    return np.fmax.reduce(padded.reshape(rows, step, columns, step), axis=(1, 3)), step


def add_panels(
    figure: go.Figure,
    matrices: Sequence[NDArray[np.float32]],
    labels: Sequence[str],
    parts: Parts,
    *,
    hover: str,
    query: int | None,
    columns: int,
) -> None:
    """Draws a heatmap for each matrix, all over the same tokens, queries down and keys across.

    matrices: float32 (N, N) each, NaN where masked. labels: one for each, escaped; the title of the panel, in
    as many lines as its width needs. hover: what a cell says behind the label. query: the token whose row is
    marked. columns: panels in a row.
    """
    titles = [_title_lines(label, columns) for label in labels]
    title_px = _TITLE_LINE_PX * max(map(len, titles)) + 8
    rows = -(-len(matrices) // columns)
    wide, high = (1 - _GAP * (columns - 1)) / columns, (1 - 1.6 * _GAP * (rows - 1)) / rows
    most = BINS if len(matrices) <= 2 else BINS // 2
    band = _BAND * parts.total
    middles = [(first + stop - 1) / 2 for first, stop in zip(parts.bounds, parts.bounds[1:], strict=False)]
    ticks = {"tickvals": middles, "ticktext": [segment.label for segment in parts.segments], "tickangle": 0}
    for place, (matrix, label, title) in enumerate(zip(matrices, labels, titles, strict=True)):
        number = str(place + 1) if place else ""
        z, step = binned(matrix, most)
        figure.add_heatmap(
            z=z,
            **{axis + key: value for axis in "xy" for key, value in (("0", (step - 1) / 2),)},
            dx=step,
            dy=step,
            xaxis=f"x{number}",
            yaxis=f"y{number}",
            coloraxis="coloraxis",
            name=label,
            hovertemplate=f"{label}: {hover}<extra></extra>",
            meta={"y": {"token": "#"}},
        )
        left, top = place % columns * (wide + _GAP), 1 - place // columns * (high + 1.6 * _GAP)
        figure.update_layout(
            {
                f"xaxis{number}": {
                    **ticks,
                    "domain": [left, left + wide],
                    "anchor": f"y{number}",
                    "side": "bottom",
                    "range": [-0.5 - band, parts.total - 0.5],
                    "constrain": "domain",
                    "constraintoward": "left",
                    **({"matches": "x"} if place else {}),
                },
                f"yaxis{number}": {
                    **ticks,
                    "domain": [max(top - high, 0), top],
                    "anchor": f"x{number}",
                    "range": [parts.total - 0.5, -0.5 - band],
                    "constrain": "domain",
                    "constraintoward": "top",
                    "showticklabels": not place % columns,
                    **({"matches": "y"} if place else {"scaleanchor": "x"}),
                },
            }
        )
        figure.add_annotation(
            text=f"<span style='font-size: 0.9em'>{'<br>'.join(title)}</span>",
            **{"xref": f"x{number} domain", "yref": f"y{number} domain", "x": 0, "y": 1},
            **{"xanchor": "left", "yanchor": "bottom", "align": "left", "showarrow": False},
        )
        figure.update_layout(shapes=[*figure.layout.shapes, *_marks(parts, band, number, query)])
    figure.update_layout(
        plot_bgcolor=MASKED,
        height=figure.layout.height + title_px,
        margin={"t": title_px},
        title={"pad": {"b": title_px}},  # the title pushes the margin, which holds the panel titles
        meta={**figure.layout.meta, "panels": len(matrices), "columns": min(columns, len(matrices))},
    )


def _title_lines(label: str, columns: int) -> list[str]:
    """Break the title of a panel after semicolons, so that it fits into one of `columns` columns."""
    width = min(_TITLE_CHARACTERS // columns, _TITLE_LINE_CHARACTERS)
    # textwrap breaks at spaces, but not at no-break spaces.
    parts = label.replace(" ", "\u00a0").replace(";\u00a0", "; ")
    return textwrap.wrap(parts, width, break_long_words=False, break_on_hyphens=False)


def _marks(parts: Parts, band: float, number: str, query: int | None) -> list[dict[str, Any]]:
    """Bands in the colours of the parts above and beside a panel, and a line through the chosen query."""
    on = {"xref": f"x{number}", "yref": f"y{number}"}
    marks: list[dict[str, Any]] = []
    for segment, first, stop in zip(parts.segments, parts.bounds, parts.bounds[1:], strict=False):
        fill = {"type": "rect", "fillcolor": segment.color, "line": {"width": 0}, **on}
        inside, beside = (first - 0.5, stop - 0.5), (-0.5 - band, -0.5)
        for x, y in ((inside, beside), (beside, inside)):
            marks.append(fill | {"x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1]})
    if query is not None:
        line = {"type": "line", "line": {"color": CHOSEN, "width": 1.5}, **on}
        marks.append(line | {"x0": -0.5, "x1": parts.total - 0.5, "y0": query, "y1": query})
    return marks
