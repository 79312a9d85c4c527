"""Orders of documents: all, a sample, or one document moved. order[p] is the document in slot p."""

import itertools
import math
import random
from collections.abc import Iterable

from pine_engine.errors import InputError

Order = tuple[int, ...]

ALL_ORDERS_UP_TO = 4  # largest number of documents of which all orders are the default: 4! = 24

DEFAULT_SHUFFLES = 10


def sample_orders(num_documents: int, shuffles: int | None = None, seed: int = 0) -> list[Order]:
    """Return different document orders, the unchanged order first.

    Args:
        num_documents: Number of documents.
        shuffles: Number of other orders, at most all. Default: all orders of up to four documents, ten
            sampled ones of more.
        seed: Seed of the sampled orders.

    Raises:
        InputError: For a negative number of orders.
    """
    if shuffles is not None and shuffles < 0:
        raise InputError(f"invalid number of shuffles: got {shuffles}, expected 0 or more", field="shuffles")
    if num_documents <= ALL_ORDERS_UP_TO and shuffles is None:
        return all_orders(num_documents)
    count = 1 + (DEFAULT_SHUFFLES if shuffles is None else shuffles)
    if not has_more_orders(num_documents, count):
        return all_orders(num_documents)
    return distinct_orders(num_documents, count, random.Random(seed), first=[tuple(range(num_documents))])


def all_orders(num_documents: int) -> list[Order]:
    """Return all orders, in lexicographic order."""
    return list(itertools.permutations(range(num_documents)))


def has_more_orders(num_documents: int, limit: int) -> bool:
    """Check whether some documents have more orders than the limit."""
    return num_documents > limit or math.factorial(num_documents) > limit  # no factorial of thousands


def distinct_orders(
    num_documents: int, count: int, generator: random.Random, *, first: Iterable[Order] = ()
) -> list[Order]:
    """Return `count` different orders, of which there must be as many: those given, then random ones."""
    orders = dict.fromkeys(first)
    while len(orders) < count:
        orders[tuple(generator.sample(range(num_documents), num_documents))] = None
    return list(orders)


def moved_order(num_documents: int, document: int, slot: int) -> Order:
    """Return the order with one document in a slot, and the others in input order around it."""
    others = [index for index in range(num_documents) if index != document]
    return (*others[:slot], document, *others[slot:])
