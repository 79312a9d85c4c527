"""What all figures are made with: a name, a caption, text that stays text, and what is chosen."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.identity import document_segment
from viz.drawing.tokens import visible_text
from viz.theme import CHOSEN, TEMPLATE

if TYPE_CHECKING:
    from viz.drawing.identity import Segment

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def new_figure(*, name: str, title: str, caption: str, height: int, **layout: Any) -> go.Figure:
    """An empty figure in the one look.

    name: stem of the files it is saved as. title: what it shows. caption: one line that says how to read it.
    height: in pixels. layout: of plotly; its `meta` is added to name and caption. The title is ours, or went
    through `plain`; the caption is no markup anywhere.
    """
    meta = {"name": name, "caption": caption, **layout.pop("meta", {})}
    return go.Figure(layout={"template": TEMPLATE, "title": title, "height": height, "meta": meta, **layout})


def escaped(text: str) -> str:
    """A text that plotly draws as it is, which otherwise understands some HTML; blanks and line ends are made
    visible."""
    return visible_text(text).translate(_MARKUP)


def plain(text: str) -> str:
    """The same with blanks as they are."""
    return escaped(text).replace("␣", " ") if text else ""


def documents_of(count: int, order: Sequence[int] | None) -> tuple["Segment", ...]:
    """The documents in input order. order: which document, as entered, stands in each slot; None for 0, 1,
    .."""
    return tuple(document_segment(index, slot) for slot, index in enumerate(order or range(count)))


def named(methods: Sequence[str], labels: Mapping[str, str] | None) -> list[str]:
    """The methods as a figure writes them: by their labels, or else by their names."""
    return [plain((labels or {}).get(method, method)) for method in methods]


def outline(x: tuple[float, float], y: tuple[float, float]) -> dict[str, Any]:
    """The shape around chosen cells of a matrix, from the first to the last column and row."""
    line = {"color": CHOSEN, "width": 3}
    return {
        "type": "rect",
        "x0": x[0] - 0.5,
        "x1": x[1] + 0.5,
        "y0": y[0] - 0.5,
        "y1": y[1] + 0.5,
        "line": line,
    }


def outlined_row(row: int, columns: int) -> dict[str, Any]:
    """The shape around a chosen row of a matrix of so many columns."""
    return outline((0, columns - 1), (row, row))


def cells_text(values: NDArray[np.floating[Any]], digits: int = 2) -> NDArray[np.str_]:
    """What is written in the cells of a matrix, "" where it is NaN. values: (R, C)."""
    written = ["" if np.isnan(value) else f"{value:.{digits}g}" for value in values.ravel()]
    return np.array(written, dtype=np.str_).reshape(values.shape)
