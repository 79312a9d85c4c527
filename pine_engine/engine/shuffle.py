"""What a shuffle leaves: the answers of each method in every order, and whether promises were kept."""

from dataclasses import dataclass
from functools import cached_property

from pine_engine.engine.events import RunResult
from pine_engine.engine.orders import OrderCell, OrderRow, OrderSummary, summarize
from pine_engine.methods.table import METHODS
from pine_engine.shown import html_table


@dataclass(frozen=True)
class ShuffleResult:
    """One prompt answered in several orders of its documents, each compared with the first.

    rows: one for each order. Their results hold logits only if these were asked for.
    """

    rows: tuple[OrderRow, ...]

    @property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """The orders tried, the first as entered; orders[i][p] is the document at place p."""
        return tuple(row.order for row in self.rows)

    @property
    def cells(self) -> list[dict[str, OrderCell]]:
        """For each order, what every method answered and how that compares with the first."""
        return [row.cells for row in self.rows]

    @property
    def answers(self) -> dict[str, list[str]]:
        """The text of each method's answer in every order."""
        return {method: [row.cells[method].answer.text for row in self.rows] for method in self.summary}

    @cached_property
    def summary(self) -> dict[str, OrderSummary]:
        """Each method over all orders."""
        return summarize(self.cells)

    @property
    def kept_promise(self) -> dict[str, bool | None]:
        """Whether no bit changed for each method that promises so; None for one that promises nothing."""
        return {
            method: found.bitwise_equal if METHODS[method].promises_invariance else None
            for method, found in self.summary.items()
        }

    @property
    def first(self) -> RunResult:
        """The run in the first order."""
        return self.rows[0].result

    def __repr__(self) -> str:
        found = "; ".join(
            f"{method}: {_count(one.distinct_texts, 'answer')}, {_logits(one)}"
            for method, one in self.summary.items()
        )
        return f"ShuffleResult({_count(len(self.rows), 'order')}; {found})"

    def _repr_html_(self) -> str:
        """A row for each order, a column for each method, and what was found in all."""
        rows = [
            (" ".join(map(str, row.order)), *(cell.answer.text for cell in row.cells.values()))
            for row in self.rows
        ]
        found = self.summary.values()
        rows.append(("different answers", *(str(one.distinct_texts) for one in found)))
        rows.append(("logits", *map(_logits, found)))
        rows.append(("promise", *(PROMISES[kept] for kept in self.kept_promise.values())))
        return html_table(("order", *self.summary), rows)


PROMISES = {True: "kept", False: "broken", None: "none"}
"""What became of a method's promise that the order changes nothing, in a word."""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _logits(found: OrderSummary) -> str:
    if found.bitwise_equal:
        return "equal to the last bit"
    return f"differ by up to {found.max_abs_logit_diff:.3g}"
