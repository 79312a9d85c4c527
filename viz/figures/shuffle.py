"""What changes when the documents are shuffled: a row per order tried, a column per method."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from viz.drawing.identity import document_letter, ink_on
from viz.drawing.markup import render
from viz.drawing.numbers import format_difference, format_value
from viz.drawing.tokens import visible_text

_COLORS = ("#0072B2", "#E69F00", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999", "#009E73")


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
    bitwise_identical: those logits are equal to the last bit.
    reference_logprob: log-probability, in nats, of the first row's answer in this order.
    """

    text: str
    same: bool
    first_difference: FirstDifference | None
    max_abs_logit_diff: float
    bitwise_identical: bool
    reference_logprob: float

    def __post_init__(self) -> None:
        assert self.same == (self.first_difference is None)

    @property
    def difference(self) -> str:
        """The logit difference as measured, in words."""
        return format_difference(self.max_abs_logit_diff)

    @property
    def likelihood(self) -> str:
        """The log-probability in words."""
        return f"{format_value(self.reference_logprob)} nats"

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
class Letter:
    """A different answer. is_right: None where that is not known."""

    letter: str
    color: str
    ink: str
    text: str
    is_right: bool | None


@dataclass(frozen=True)
class ShuffleColumn:
    """One method of the table: key of the cells, label, and whether it promises invariance."""

    method: str
    label: str
    is_order_invariant: bool


def answer_numbers(texts: Iterable[str]) -> dict[str, int]:
    """A number for each different answer, from 0, as they come."""
    return {text: number for number, text in enumerate(dict.fromkeys(texts))}


def answer_letter(number: int) -> str:
    """Letter of an answer: a .. z, aa, ab, ..."""
    return document_letter(number).lower()


def answer_color(number: int) -> str:
    """Colour of an answer, #RRGGBB; the letter tells equal ones apart."""
    return _COLORS[number % len(_COLORS)]


def answer_letters(texts: Iterable[str], is_right: Callable[[str], bool] | None = None) -> dict[str, Letter]:
    """The different answers by their texts, as they come."""
    return {
        text: Letter(
            answer_letter(number),
            answer_color(number),
            ink_on(answer_color(number)),
            " ".join(text.split()) or "(empty answer)",
            None if is_right is None else is_right(text),
        )
        for text, number in answer_numbers(texts).items()
    }


def answers_line(
    columns: Sequence[ShuffleColumn],
    rows: Sequence[ShuffleRow],
    is_right: Callable[[str], bool] | None = None,
) -> str:
    """One sentence: "In 6 orders PINE gives 1 answer, right in 6; Vanilla 3, right in 3."

    is_right: whether an answer is right, where that is known. Those that promise not to change come first,
    and of them the more often right. "" where there is no answer yet.
    """
    given = []
    for column in columns:
        texts = [row.cells[column.method].text for row in rows if column.method in row.cells]
        right = sum(map(is_right, texts)) if is_right else 0
        if texts:
            given.append((not column.is_order_invariant, -right, column.label, texts))
    parts: list[str] = []
    for _, right, label, texts in sorted(given, key=lambda each: each[:2]):
        kinds, tried = len(set(texts)), len(texts)
        orders = f"In {tried} order{'s' * (tried != 1)} "
        part = f"{label} {kinds}" if parts else f"{orders}{label} gives {kinds} answer{'s' * (kinds != 1)}"
        parts.append(part + (f", right in {-right}" if is_right else ""))
    return "; ".join(parts) + "." if parts else ""


def verdict_html(
    columns: Sequence[ShuffleColumn],
    rows: Sequence[ShuffleRow],
    *,
    caption: str,
    is_right: Callable[[str], bool] | None = None,
) -> str:
    """HTML of what a shuffle has shown, in sentences, and which letter is which answer.

    caption: what was run (model, dtype, decoding).
    """
    texts = [cell.text for row in rows for cell in row.cells.values()]
    return render(
        "shuffle_verdict.html",
        score=answers_line(columns, rows, is_right) or "The first order is computed.",
        verdict=verdict_line(columns, rows),
        letters=list(answer_letters(texts, is_right).values()),
        caption=caption,
    )


def verdict_line(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow]) -> str:
    """Who kept the promise of invariance, and whether the check could have seen it broken; "" of one row.

    Methods that promise nothing are the controls: if no logit of any of them has changed, logits that did not
    change prove nothing.
    """
    kept, broken, moved, still = list[str](), list[str](), list[str](), list[str]()
    for column in columns:
        others = [row.cells[column.method] for row in rows[1:] if column.method in row.cells]
        if not others:
            continue
        is_equal = all(cell.bitwise_identical for cell in others)
        if column.is_order_invariant:
            (kept if is_equal else broken).append(column.label)
        else:
            (still if is_equal else moved).append(column.label)
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
