"""Tables of an evaluation so far: methods by document orders."""

from collections.abc import Sequence
from dataclasses import dataclass

from viz.drawing.markup import render

MAX_ORDERS = 6  # maximum orders that have a column each; of more, only the worst and the best are named


@dataclass(frozen=True)
class MeasuredRow:
    """Results of one method in one table; means are shares of 0 to 1, or nats."""

    label: str
    is_order_invariant: bool
    values: tuple[float | None, ...]  # mean in each order, None without parsed records
    mean: float | None
    interval: tuple[float, float] | None = None  # 95%; None before the end or with too few examples
    changed: int | None = None  # of the `compared` examples; None for log-probabilities
    compared: int = 0  # examples parsed in several orders
    unparsed: int = 0  # of the `answered` records
    answered: int = 0


@dataclass(frozen=True)
class MeasuredTable:
    """Results of all methods in one metric: a share in percent, or nats."""

    title: str
    is_share: bool
    orders: tuple[str, ...]
    rows: tuple[MeasuredRow, ...]

    def format(self, value: float | None) -> str:
        """Format a value with its unit."""
        if value is None:
            return "–"
        return f"{100 * value:.0f}%" if self.is_share else f"{value:.2f}"

    @property
    def columns(self) -> list[str]:
        """Headings of the columns of the orders."""
        return list(self.orders) if len(self.orders) <= MAX_ORDERS else ["worst order", "best order"]

    def cells(self, row: MeasuredRow) -> list[str]:
        """Return the texts in the columns of the orders."""
        if len(self.orders) <= MAX_ORDERS:
            return [self.format(value) for value in row.values]
        known = [pair for pair in zip(row.values, self.orders, strict=True) if pair[0] is not None]
        if not known:
            return ["–", "–"]
        return [f"{self.format(value)} ({name})" for value, name in (min(known), max(known))]


def measured_tables(tables: Sequence[MeasuredTable], *, done: int, planned: int, note: str = "") -> str:
    """Render the tables, the number of records done and planned, and a note below."""
    return render("measured.html", tables=tables, done=done, planned=planned, note=note)


def key_findings(sentences: Sequence[str]) -> str:
    """Render the findings in sentences; "" if there are none."""
    return render("measured_findings.html", sentences=sentences) if sentences else ""
