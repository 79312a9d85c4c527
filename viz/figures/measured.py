"""What has been measured so far: methods by orders as a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from viz.drawing.markup import render

MOST_ORDERS = 6
"""Orders that have a column each; of more the lowest and the highest are named."""


@dataclass(frozen=True)
class MeasuredRow:
    """One method by one kind of number.

    values: mean in each order, mean: over all records, None where there are none or none can be read; shares
    of 0 to 1, or nats. interval: ends of the mean's 95 % interval, None before the end and where there are
    too few rows. changed: of the examples `compared`, legible in several orders, those whose answer is not
    the same in all; None where nothing is answered. unread: of the `answered` records those of which nothing
    can be read.
    """

    label: str
    is_order_invariant: bool
    values: tuple[float | None, ...]
    mean: float | None
    interval: tuple[float, float] | None = None
    changed: int | None = None
    compared: int = 0
    unparsed: int = 0
    answered: int = 0


@dataclass(frozen=True)
class MeasuredTable:
    """All methods by one kind of number. title: what it is. is_share: percent, otherwise nats."""

    title: str
    is_share: bool
    orders: tuple[str, ...]
    rows: tuple[MeasuredRow, ...]

    def __post_init__(self) -> None:
        assert all(len(row.values) == len(self.orders) for row in self.rows)

    @property
    def has_column_per_order(self) -> bool:
        """False if there are so many orders that only the lowest and the highest are shown."""
        return len(self.orders) <= MOST_ORDERS

    def written(self, value: float | None) -> str:
        """A value with its unit."""
        if value is None:
            return "–"
        return f"{100 * value:.0f} %" if self.is_share else f"{value:.2f}"

    def cells(self, row: MeasuredRow) -> list[str]:
        """What stands in the columns of the orders."""
        if self.has_column_per_order:
            return [self.written(value) for value in row.values]
        known = [
            (value, name) for value, name in zip(row.values, self.orders, strict=True) if value is not None
        ]
        if not known:
            return ["–", "–"]
        return [f"{self.written(value)} ({name})" for value, name in (min(known), max(known))]

    def interval(self, row: MeasuredRow) -> str:
        """The ends of the mean's interval, "" before the end."""
        if row.interval is None:
            return ""
        low, high = map(self.written, row.interval)
        return f"{low} to {high}"

    @property
    def columns(self) -> list[str]:
        """Heads of the columns of the orders."""
        return list(self.orders) if self.has_column_per_order else ["lowest order", "highest order"]

    @property
    def has_changes(self) -> bool:
        """True if some answer could have changed with the order."""
        return any(row.changed is not None and row.compared for row in self.rows)

    @property
    def has_unread(self) -> bool:
        """True if some answer cannot be read."""
        return any(row.unparsed for row in self.rows)


def measured_tables(tables: Sequence[MeasuredTable], *, done: int, planned: int, note: str = "") -> str:
    """HTML of the tables, one below the other. done, planned: records. note: a sentence below them."""
    return render("measured.html", tables=tables, done=done, planned=planned, note=note)


def shorten(sentences: Sequence[str]) -> str:
    """HTML: what the numbers say, in sentences; "" if there are none."""
    return render("measured_findings.html", sentences=sentences) if sentences else ""
