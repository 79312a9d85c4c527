"""The shuffle, seen from the page: a form goes in, a table that grows row by row comes out.

Nothing is remembered between orders: every row is computed anew. Imports torch, like answering.py.
"""

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from pine_engine.engine import Engine
from pine_engine.invariance import ALL_ORDERS_UP_TO, OrderCell, OrderRow, compare_orders, orders_to_try
from pine_engine.methods import get_methods
from viz.page.answering import REDRAW_S, progress_sentence
from viz.page.form import Form, form_layout
from viz.shuffle import FirstDifference, ShuffleCell, ShuffleColumn, ShuffleRow, shuffle_table


@dataclass(frozen=True)
class ShuffleView:
    """What the page shows of a shuffle. table: HTML, None where it has not changed."""

    table: str | None
    sentence: str


def orders_for(num_documents: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """The orders to try, the one as entered first: all of few documents, a seeded sample of many.

    Raises InputError if count is less than 1.
    """
    if num_documents <= ALL_ORDERS_UP_TO:
        return orders_to_try(num_documents)
    return orders_to_try(num_documents, count - 1, seed)


def shuffle(engine: Engine, form: Form, *, count: int, seed: int) -> Generator[ShuffleView, None, None]:
    """Runs the form under one order after the other; closing the generator stops the model.

    count, seed: how many orders and which, where there are too many documents for all of them.
    Raises InputError if the form cannot be run.
    """
    layout = form_layout(form, engine)
    orders = orders_for(layout.num_documents, count, seed)
    columns = [
        ShuffleColumn(row.name, row.label, row.promises_invariance) for row in get_methods(form.methods)
    ]
    caption = (
        f"{engine.model_name}, {engine.dtype} on {engine.device}, greedy decoding, at most "
        f"{form.max_new_tokens} tokens. Every row is computed anew and compared with the first; Δ logit is "
        "the largest over the question and the answer up to the first token that differs."
    )
    rows: list[ShuffleRow] = []
    reference: dict[str, OrderCell] = {}
    began = drawn = time.monotonic()
    results = compare_orders(
        engine, layout, methods=form.methods, orders=orders, max_new_tokens=form.max_new_tokens
    )
    yield ShuffleView(shuffle_table(columns, rows, caption=caption), f"Order 1 of {len(orders)}")
    with closing(results):
        for item in results:
            if isinstance(item, OrderRow):
                reference = reference or item.cells
                rows.append(_row(engine, form, item, reference))
                yield ShuffleView(shuffle_table(columns, rows, caption=caption), f"Order {len(rows)} done")
            elif time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                yield ShuffleView(None, f"Order {len(rows) + 1} of {len(orders)}: {progress_sentence(item)}")
    yield ShuffleView(None, f"Done: {len(rows)} orders in {time.monotonic() - began:.1f} s.")


def _row(engine: Engine, form: Form, row: OrderRow, reference: dict[str, OrderCell]) -> ShuffleRow:
    return ShuffleRow(
        order=tuple(form.order[place] for place in row.order),
        cells={
            method: ShuffleCell(
                text=cell.answer.text,
                same=cell.first_difference is None,
                first_difference=_first_difference(engine, cell, reference[method]),
                max_abs_logit_diff=cell.max_abs_logit_diff,
                bitwise_equal=cell.bitwise_equal,
            )
            for method, cell in row.cells.items()
        },
    )


def _first_difference(engine: Engine, cell: OrderCell, reference: OrderCell) -> FirstDifference | None:
    index = cell.first_difference
    if index is None:
        return None

    def token_at(ids: tuple[int, ...]) -> str | None:
        return engine.decode_tokens([ids[index]])[0] if index < len(ids) else None

    return FirstDifference(index, token_at(cell.answer.token_ids), token_at(reference.answer.token_ids))
