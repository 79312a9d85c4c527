"""Which orders a shuffle tries, and under which methods."""

import math
from collections.abc import Sequence

from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import Nouns
from viz.page.form.documents import DOCUMENTS

ALL_ORDERS_UP_TO = 4
"""With so many documents or fewer every order is tried; with more, a seeded sample.

Controls run by default up to there too: the proof is complete only with them, and all of it takes minutes at
most. Two of them read as much as PINE does, so with more documents a visitor decides about the wait.
"""

SAMPLED_AT_MOST = 24
DEFAULT_ORDERS = 6


def tries_all(num_documents: int, most: int) -> bool:
    """Whether every order is tried. most: orders that the host allows."""
    return num_documents <= ALL_ORDERS_UP_TO and math.factorial(num_documents) <= most


def number_of_orders(num_documents: int, count: int, most: int) -> int:
    """How many orders are tried, where a visitor asks for so many of a sample."""
    return math.factorial(num_documents) if tries_all(num_documents, most) else count


def orders_sentence(num_documents: int, count: int, seed: int, most: int, nouns: Nouns = DOCUMENTS) -> str:
    """Which orders Shuffle will try, in words."""
    if num_documents < 2:
        return f"There is one order only; add {nouns.a_document}."
    counted = f"{num_documents} {nouns.documents}"
    if tries_all(num_documents, most):
        return f"{counted}: all {math.factorial(num_documents)} orders will be tried."
    return f"{counted}: the order as entered and {count - 1} random ones, seed {seed}."


def with_controls(methods: Sequence[str]) -> tuple[str, ...]:
    """The methods, and after them those that must be able to change, as far as they are not among them.

    These are the controls of the table of methods, and the default methods that promise nothing.
    """
    controls = [
        row.name
        for row in METHODS.values()
        if not row.is_order_invariant and (row.is_default or row.role == "control")
    ]
    return (*methods, *(name for name in controls if name not in methods))
