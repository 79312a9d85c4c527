"""What changes when the documents are shuffled: a row per order tried, a column per method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viz.drawing.identity import document_segment
from viz.drawing.markup import render
from viz.drawing.numbers import format_difference, format_value
from viz.drawing.tokens import shorten, visible_text

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
    logprob: log-probability, in nats, of the first row's answer in this order.
    """

    text: str
    same: bool
    first_difference: FirstDifference | None
    max_abs_logit_diff: float
    bitwise_equal: bool
    logprob: float

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
    def likelihood(self) -> str:
        """The log-probability in words."""
        return f"{format_value(self.logprob)} nats"

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


@dataclass(frozen=True)
class ShuffleTotal:
    """One method over the rows tried so far, the first among them; see ShuffleCell."""

    orders: int
    same: int
    max_abs_logit_diff: float
    bitwise_equal: bool
    lowest_logprob: float
    highest_logprob: float

    @property
    def difference(self) -> str:
        """The largest logit difference as measured, in words."""
        return format_difference(self.max_abs_logit_diff)

    @property
    def spread(self) -> str:
        """Largest less smallest log-probability as measured, in words."""
        return f"{format_difference(self.highest_logprob - self.lowest_logprob)} nats"


def total_of(method: str, rows: Sequence[ShuffleRow]) -> ShuffleTotal | None:
    """The method over all rows that have a cell of it; None if none has."""
    cells = [row.cells[method] for row in rows if method in row.cells]
    if not cells:
        return None
    logprobs = [cell.logprob for cell in cells]
    return ShuffleTotal(
        orders=len(cells),
        same=sum(cell.same for cell in cells),
        max_abs_logit_diff=max(cell.max_abs_logit_diff for cell in cells),
        bitwise_equal=all(cell.bitwise_equal for cell in cells),
        lowest_logprob=min(logprobs),
        highest_logprob=max(logprobs),
    )


def score_line(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow]) -> str:
    """One line: "PINE: 6 of 6 orders identical; Vanilla: 3 of 6".

    Counts the rows whose answer equals the first row's, which is among them.
    """
    parts: list[str] = []
    for column in columns:
        total = total_of(column.method, rows)
        same, orders = (total.same, total.orders) if total else (0, 0)
        parts.append(f"{column.label}: {same} of {orders}" + (" orders identical" if not parts else ""))
    return "; ".join(parts)


def verdict_line(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow]) -> str:
    """Who kept the promise of invariance, and whether the check could have seen it broken; "" of one row.

    Methods that promise nothing are the controls: if no logit of any of them has changed, logits that did not
    change prove nothing.
    """
    kept, broken, moved, still = list[str](), list[str](), list[str](), list[str]()
    for column in columns:
        total = total_of(column.method, rows)
        if total is None or total.orders < 2:
            continue
        if column.promises_invariance:
            (kept if total.bitwise_equal else broken).append(column.label)
        else:
            (still if total.bitwise_equal else moved).append(column.label)
    sentences = []
    if kept:
        sentences.append(f"Every logit equal to the last bit: {', '.join(kept)}.")
    if broken:
        sentences.append(f"Promised not to depend on the order, and did: {', '.join(broken)}.")
    if moved:
        sentences.append(f"The check can fail: the order changed logits of {', '.join(moved)}.")
    elif still:
        labels = ", ".join(still)
        sentences.append(
            f"The order has not changed {labels} either: this proves nothing, try other documents."
        )
    elif kept or broken:
        sentences.append("Tick \u201cwith controls\u201d to see that the check can fail.")
    return " ".join(sentences)


def shuffle_table(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow], *, caption: str = "") -> str:
    """HTML table of all orders tried, the first row being the reference, and the score line above.

    caption: what was run (model, dtype, decoding), shown under the table. A method without a cell in a
    row is shown as "running".
    """
    return render(
        "shuffle_table.html",
        columns=columns,
        rows=[([document_segment(index, slot) for slot, index in enumerate(row.order)], row) for row in rows],
        totals=[total_of(column.method, rows) for column in columns],
        score=score_line(columns, rows),
        verdict=verdict_line(columns, rows),
        caption=caption,
    )
