"""What changes when the documents are shuffled: a row per order tried, a column per method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viz.identity import document_segment
from viz.markup import render
from viz.numbers import format_difference
from viz.tokens import shorten, visible_text

_SHORT_TEXT = 90
"""Longest answer, in characters, that a cell shows unfolded."""


@dataclass(frozen=True)
class FirstDifference:
    """The first token at which an answer leaves that of the first row.

    index: from 0, in answer tokens. here, reference: the two token texts; None where an answer has ended.
    """

    index: int
    here: str | None
    reference: str | None


@dataclass(frozen=True)
class ShuffleCell:
    """One method's answer for one order, compared with the first row's.

    same: the answers have the same tokens. first_difference: None if they do.
    max_abs_logit_diff: largest |difference| to the first row, up to the first token that differs.
    bitwise_equal: those logits are equal to the last bit.
    """

    text: str
    same: bool
    first_difference: FirstDifference | None
    max_abs_logit_diff: float
    bitwise_equal: bool

    def __post_init__(self) -> None:
        assert self.same == (self.first_difference is None)

    @property
    def is_long(self) -> bool:
        """True if the text is folded."""
        return len(self.text) > _SHORT_TEXT

    @property
    def short_text(self) -> str:
        """The text as the cell shows it unfolded."""
        return shorten(" ".join(self.text.split()) or "(empty answer)", _SHORT_TEXT)

    @property
    def difference(self) -> str:
        """The logit difference as measured, in words."""
        return format_difference(self.max_abs_logit_diff)

    @property
    def first_token(self) -> str:
        """The first differing token in words; "" if the answers are the same."""
        if self.first_difference is None:
            return ""
        here, reference = (
            "the end" if text is None else f"\u201c{visible_text(text)}\u201d"
            for text in (self.first_difference.here, self.first_difference.reference)
        )
        return f"token {self.first_difference.index + 1}: {here} instead of {reference}"


@dataclass(frozen=True)
class ShuffleRow:
    """One order tried: which document (index as entered) stands in each slot, and a cell per method name.

    label: how the order was made ("as entered", "reversed", "seed 3"); may be empty.
    """

    order: tuple[int, ...]
    cells: Mapping[str, ShuffleCell]
    label: str = ""


@dataclass(frozen=True)
class ShuffleColumn:
    """One method of the table: key of the cells, label, and whether it promises invariance."""

    method: str
    label: str
    promises_invariance: bool


def score_line(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow]) -> str:
    """One line: "PINE: 6 of 6 orders identical; Vanilla: 3 of 6".

    Counts the rows whose answer equals the first row's, which is among them.
    """
    parts: list[str] = []
    for column in columns:
        count = sum(row.cells[column.method].same for row in rows if column.method in row.cells)
        tried = sum(column.method in row.cells for row in rows)
        parts.append(f"{column.label}: {count} of {tried}" + (" orders identical" if not parts else ""))
    return "; ".join(parts)


def shuffle_table(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow], *, caption: str = "") -> str:
    """HTML table of all orders tried, the first row being the reference, and the score line above.

    caption: what was run (model, dtype, decoding), shown under the table. A method without a cell in a
    row is shown as "running".
    """
    return render(
        "shuffle_table.html",
        columns=columns,
        rows=[([document_segment(index, slot) for slot, index in enumerate(row.order)], row) for row in rows],
        score=score_line(columns, rows),
        caption=caption,
    )
