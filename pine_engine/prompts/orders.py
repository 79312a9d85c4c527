"""Orders of documents: all, rotations, samples, or one document moved; order[p] is the document in slot p."""

import itertools
import math
import random
from collections.abc import Iterable
from typing import Literal

from pine_engine.errors import InputError

Order = tuple[int, ...]

OrderKind = Literal["full", "cyclic", "sampled", "full_or_sampled"]
"""Orders of k documents that are run: all k!, the k rotations, a random sample, or all of up to four and a
sample of more documents."""

ALL_ORDERS_UP_TO = 4  # largest number of documents of which all orders are the default: 4! = 24

DEFAULT_SHUFFLES = 10

MAX_ORDERS = 720  # default limit of the orders of full permutation: those of six documents


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
    if not _has_more_orders(num_documents, count):
        return all_orders(num_documents)
    return distinct_orders(num_documents, count, random.Random(seed), first=[tuple(range(num_documents))])


def num_orders(
    num_documents: int, kind: OrderKind | None = "full", *, samples: int = 10, max_orders: int = MAX_ORDERS
) -> int:
    """Return the number of orders of `document_orders`, without them.

    Raises InputError for too many orders.
    """
    kind = _resolved(kind, num_documents)
    if kind is None:
        return 1
    if kind == "cyclic":
        return num_documents
    if kind == "sampled":
        if samples < 1:
            raise InputError(f"samples is invalid: got {samples}, expected 1 or more", field="samples")
        return samples if _has_more_orders(num_documents, samples) else math.factorial(num_documents)
    if _has_more_orders(num_documents, max_orders):
        got = f"got {num_documents}!, expected at most {max_orders}"
        raise InputError(f"too many orders: {got}; use cyclic or sampled orders", field="max_orders")
    return math.factorial(num_documents)


def _resolved(kind: OrderKind | None, num_documents: int) -> OrderKind | None:
    if kind == "full_or_sampled":
        return "full" if num_documents <= ALL_ORDERS_UP_TO else "sampled"
    return kind


def document_orders(
    num_documents: int,
    kind: OrderKind | None = "full",
    *,
    samples: int = 10,
    seed: int = 0,
    max_orders: int = MAX_ORDERS,
) -> list[Order]:
    """Return the orders of a kind: all in lexicographic order, the rotations, a sample, or the input order.

    Raises InputError for too many orders.
    """
    kind = _resolved(kind, num_documents)
    count = num_orders(num_documents, kind, samples=samples, max_orders=max_orders)
    places = tuple(range(num_documents))
    if kind is None:
        return [places]
    if kind == "cyclic":
        return [places[start:] + places[:start] for start in places]
    if kind == "sampled" and _has_more_orders(num_documents, samples):
        return distinct_orders(num_documents, count, random.Random(seed))
    return all_orders(num_documents)


def all_orders(num_documents: int) -> list[Order]:
    """Return all orders, in lexicographic order."""
    return list(itertools.permutations(range(num_documents)))


def _has_more_orders(num_documents: int, limit: int) -> bool:
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
