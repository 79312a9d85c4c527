"""Document orders of a shuffle test, and its control methods."""

import math
from collections.abc import Iterable, Sequence

from pine_engine.methods.table import METHODS, Method
from pine_engine.prompts.orders import ALL_ORDERS_UP_TO

SAMPLED_AT_MOST = 24
DEFAULT_ORDERS = 6


def tries_all(num_documents: int) -> bool:
    """Check whether all orders are run."""
    return num_documents <= ALL_ORDERS_UP_TO


def number_of_orders(num_documents: int, count: int) -> int:
    """Return the number of orders to run, for a sample of `count`."""
    return math.factorial(num_documents) if tries_all(num_documents) else count


def with_controls(methods: Sequence[str], fitting: Iterable[Method] = ()) -> tuple[str, ...]:
    """Return the methods and the missing controls: those of the table, and order-dependent defaults.

    Of the controls, only those among the `fitting` methods, if these are known.
    """
    controls = [
        row.name
        for row in tuple(fitting) or METHODS.values()
        if not row.is_order_invariant and (row.is_default or row.role == "control")
    ]
    return (*methods, *(name for name in controls if name not in methods))
