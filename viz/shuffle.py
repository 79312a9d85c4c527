"""What changes when the documents are shuffled: a row per order tried, a column per method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
    max_abs_logit_diff: largest |difference| of the first generated token's logits to the first row.
    bitwise_equal: those logits are equal to the last bit.
    """

    text: str
    same: bool
    first_difference: FirstDifference | None
    max_abs_logit_diff: float
    bitwise_equal: bool


@dataclass(frozen=True)
class ShuffleRow:
    """One order tried: which document (index as entered) stands in each slot, and a cell per method name."""

    order: tuple[int, ...]
    cells: Mapping[str, ShuffleCell]


@dataclass(frozen=True)
class ShuffleColumn:
    """One method of the table: key of the cells, label, and whether it promises invariance."""

    method: str
    label: str
    promises_invariance: bool


def format_difference(value: float) -> str:
    """A logit difference as measured: "0.0" only for exactly zero, small ones in scientific notation."""
    raise NotImplementedError


def score_line(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow]) -> str:
    """One line: "PINE: 6 of 6 orders identical; vanilla: 3 of 6"; counts rows equal to the first, it included."""
    return ""


def shuffle_table(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow], *, caption: str = "") -> str:
    """HTML table of all orders tried, the first row being the reference, and the score line above.

    caption: what was run (model, dtype, decoding), shown under the table.
    """
    return ""
