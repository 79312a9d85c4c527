"""Position matrices of tests/golden/worked_matrices.txt, computed by hand."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pine_engine import TokenLayout
from pine_engine.methods.plan import MASKED
from pine_engine.prompts.layout import IntArray

FILE = Path(__file__).parents[1] / "golden" / "worked_matrices.txt"


@dataclass(frozen=True)
class Example:
    """A layout, and its rankings of documents, most important first."""

    first_position: int
    layout: TokenLayout
    document_ranking: IntArray
    suffix_ranking: IntArray


EXAMPLES = {
    "6.1": Example(
        1, TokenLayout((0,), ((1, 2), (3, 4), (5, 6)), (7,)), np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]]),
        np.array([[1, 2, 0]]),
    ),
    "6.2": Example(
        0, TokenLayout((0, 1), ((2, 3, 4), (5,), (6, 7)), (8, 9)),
        np.array([[0, 2, 1], [1, 0, 2], [2, 1, 0]]), np.array([[2, 0, 1], [0, 1, 2]]),
    ),
}  # fmt: skip


def read_matrix(section: str, title: str) -> tuple[IntArray, IntArray]:
    """Return positions (n, n) and query positions (n,), from 0, of one matrix in the file."""
    _, _, rest = FILE.read_text().partition(f"## {section} {title}\n")
    lines = rest.partition("\n\n")[0].splitlines()[1:]
    first = EXAMPLES[section].first_position
    rows, queries = [], []
    for line in lines:
        cells, _, query = line.partition("|")
        rows.append([MASKED if cell == "." else int(cell) - first for cell in cells.split()[1:]])
        queries.append(int(query) - first)
    return np.array(rows), np.array(queries)
