"""Where the lesson's pictures show what its words say, as CSS selectors within one part of a step.

Rows and columns are counted from 0, without headings; which of several pictures or masks, from 1.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from viz.cards.rulers import capital
from viz.drawing.identity import document_segment

Spots = Iterable[str]


def mask_row(which: int, row: int) -> str:
    """A row of a mask: what a segment may read."""
    return f".pine-mask:nth-child({which}) tbody tr:nth-child({row + 1}) td"


def mask_cells(which: int, css_class: str) -> str:
    """All cells of a kind in a mask, such as pine-differs."""
    return f".pine-mask:nth-child({which}) td.{css_class}"


def whole_mask(which: int) -> str:
    """A whole mask."""
    return f".pine-mask:nth-child({which}) tbody td"


def importance_cell(row: int, column: int) -> str:
    """How important the document of a column is to that of a row."""
    return f".pine-importance tbody tr:nth-child({row + 1}) td:nth-child({column + 2})"


def importance_row(row: int) -> str:
    """How important all others are to a document."""
    return f".pine-importance tbody tr:nth-child({row + 1}) td"


def importance_column(column: int) -> str:
    """How important a document is to all others."""
    return f".pine-importance tbody td:nth-child({column + 2})"


def most_important(importance: NDArray[np.float32]) -> Spots:
    """The largest cell of each row of float32 (D, D), whose diagonal is NaN."""
    return (importance_cell(row, int(np.nanargmax(values))) for row, values in enumerate(importance))


def on_the_axis(document: int) -> str:
    """A document on a position axis."""
    return f".pine-block[title^='{capital(document_segment(document).name)}:']"


def example_cells(query: int, key: int) -> str:
    """What the tokens of one document see of another's in the running example, or of their own."""
    return f"tbody:nth-of-type({query + 2}) td:is(:nth-child({2 * key + 3}), :nth-child({2 * key + 4}))"


def in_picture(which: int, spot: str) -> str:
    """The same in one of several pictures beside each other."""
    return f".pine-beside > div:nth-child({which}) {spot}"
