"""What a wrapper runs: the orders of the documents, and the samples that PriDe learns from.

In an order, order[p] is the document at place p.
"""

import itertools
import math
import random
from decimal import Decimal

from pine_engine.debias.table import OrderKind
from pine_engine.errors import InputError

Order = tuple[int, ...]

MAX_ORDERS = 720
"""Orders that `full` runs unless asked to run more: those of six documents."""

PRIOR_FRACTION = 0.05
"""Share of the samples on which PriDe runs all orders."""


def document_orders(
    num_documents: int,
    kind: OrderKind = "full",
    *,
    samples: int = 10,
    seed: int = 0,
    max_orders: int = MAX_ORDERS,
) -> list[Order]:
    """Orders to run: all in lexicographic order, the rotations, or a random sample without repetition.

    samples: how many `sampled` draws with the seed; all orders if there are no more than that.
    Raises InputError if `full` means more than max_orders, or if samples is below 1.
    """
    places = tuple(range(num_documents))
    count = math.factorial(num_documents)
    if kind == "cyclic":
        return [places[start:] + places[:start] for start in places]
    if kind == "sampled":
        if samples < 1:
            raise InputError(f"the number of sampled orders is {samples}; give 1 or more")
        if samples < count:
            return _draw(places, samples, random.Random(seed))
    elif count > max_orders:
        raise InputError(
            f"all orders of {num_documents} documents are {num_documents}! = {Decimal(count):.4g} runs, more "
            f"than the limit of {max_orders}; run the {num_documents} cyclic orders or sampled ones"
        )
    return list(itertools.permutations(places))


def _draw(places: Order, samples: int, generator: random.Random) -> list[Order]:
    orders: dict[Order, None] = {}
    while len(orders) < samples:
        orders[tuple(generator.sample(places, len(places)))] = None
    return list(orders)


def pride_samples(count: int, fraction: float = PRIOR_FRACTION, seed: int = 0) -> tuple[int, ...]:
    """Indices of the samples that PriDe learns from: a random fraction, rounded down, at least one.

    Raises InputError without samples and for a fraction outside 0 to 1.
    """
    if not count:
        raise InputError("there are no samples; give at least one prompt")
    if not 0 <= fraction <= 1:
        raise InputError(f"the fraction of the samples to learn from is {fraction}; give 0 to 1")
    chosen = random.Random(seed).sample(range(count), max(1, int(count * fraction)))
    return tuple(sorted(chosen))
