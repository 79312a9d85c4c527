"""How much the order of the documents changes how likely an answer is: a dot per order, a row per method."""

from collections.abc import Sequence

from viz.drawing.identity import document_letter
from viz.drawing.numbers import format_difference
from viz.drawing.picture import Numbers, picture
from viz.figures.chart import Strip, strip_chart
from viz.figures.shuffle import ShuffleColumn, ShuffleRow, total_of

X_TITLE = "log-probability (nats)"


def spread_strips(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow]) -> list[Strip]:
    """A strip per method that has answered something in the first row, a value for each order tried."""
    strips = []
    for column in columns:
        tried = [row for row in rows if column.method in row.cells]
        if not tried or not tried[0].cells[column.method].text:
            continue
        strips.append(
            Strip(
                label=column.label,
                values=tuple(row.cells[column.method].logprob for row in tried),
                notes=tuple(_note(column, row) for row in tried),
                promise=column.promises_invariance,
            )
        )
    return strips


def spread_picture(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow], *, context: str = "") -> str:
    """HTML: the spread of the log-probability that each method gives to its own answer of the first row.

    context: what was run (model, dtype), part of the caption. "" if nothing has been tried.
    """
    if not rows:
        return ""
    return picture(
        strip_chart(spread_strips(columns, rows), x_title=X_TITLE),
        name="invariance",
        title="How likely the first row\u2019s answer is in every order",
        caption=_caption(columns, rows, context),
        readout="Each dot is an order of the documents; point at one to read it.",
        numbers=Numbers(
            ("order", "method", "log-probability (nats)", "max |Δ logit| to the first row"),
            tuple(
                (
                    _letters(row.order),
                    column.label,
                    row.cells[column.method].logprob,
                    row.cells[column.method].max_abs_logit_diff,
                )
                for row in rows
                for column in columns
                if column.method in row.cells
            ),
        ),
    )


def _caption(columns: Sequence[ShuffleColumn], rows: Sequence[ShuffleRow], context: str) -> str:
    shown = {strip.label for strip in spread_strips(columns, rows)}
    measured = []
    for column in columns:
        total = total_of(column.method, rows)
        if total is None or column.label not in shown:
            continue
        measured.append(
            f"{column.label} {total.spread}, max |Δ logit| {format_difference(total.max_abs_logit_diff)}"
        )
    count = "1 order" if len(rows) == 1 else f"{len(rows)} orders"
    empty = [column.label for column in columns if column.label not in shown]
    sentences = [
        f"{count} of the documents{f' ({context})' if context else ''}: how likely each method finds its own "
        "answer of the first row when the documents stand in another order.",
        f"Range, largest less smallest: {'; '.join(measured)}." if measured else "",
        f"Left out, because their first answer is empty: {', '.join(empty)}." if empty else "",
    ]
    return " ".join(filter(None, sentences))


def _note(column: ShuffleColumn, row: ShuffleRow) -> str:
    cell = row.cells[column.method]
    answer = "the same answer" if cell.same else "another answer"
    evidence = f"{cell.likelihood}, {answer}, max |Δ logit| {cell.difference}"
    return f"{column.label}, order {_letters(row.order)}: {evidence}"


def _letters(order: Sequence[int]) -> str:
    return " ".join(map(document_letter, order))
