"""Position bias of a judge in one run: the slot that wins, consistency, and the difference between orders.

Slots are counted for examples in whose orders each document was in each slot equally often, such as `as-is`
with `swapped`, or `all`. There a judge without a preference names each of k slots with a share of 1/k,
whichever document is better. A tie and a text without a verdict name no slot and count as 1/k for each.

Cramér's V compares these shares with 1/k, over examples with all k! orders: 0 for no preference, 1 for the
same slot always (definition of this project). Its interval follows from those of the shares, so it is wide.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from pine_engine.lab.evaluation import intervals
from pine_engine.lab.evaluation.grid import Labeled, Metric, Scores, answers_differ, named_document
from pine_engine.lab.evaluation.intervals import Estimate, Floats
from pine_engine.lab.evaluation.record import Record


def bias_estimates(scores: Scores) -> Iterator[Labeled]:
    """Yield how often the first slot wins, consistency, the difference between orders, and Cramér's V."""
    pairs = zip(scores.columns, scores.grid.distinct, strict=True)
    groups = [[column[name] for name in names] for column, names in pairs]
    shares = [_slot_shares(records, scores.metric) for records in groups]
    first = np.array([np.nan if one is None else one[0] for one in shares])
    chance = np.array([1 / len(one) if one is not None else np.nan for one in shares])
    yield "first slot", (), intervals.share(first)
    yield "first slot excess", (), intervals.share(first - chance, minimum=-1.0)
    changed = np.array([answers_differ(records, scores.metric) for records in groups], dtype=np.float64)
    yield "consistent", (), intervals.share(1 - changed)
    yield "order gap", (), intervals.share(_gaps(scores, groups), minimum=-1.0)
    for size in scores.grid.num_documents:
        complete: Floats = np.full((len(shares), size), np.nan)
        for row, (one, records) in enumerate(zip(shares, groups, strict=True)):
            num_orders = len({record.slots for record in records})
            if one is not None and len(one) == size and num_orders == math.factorial(size):
                complete[row] = one
        yield "cramers v", (str(size),), _cramers_v(complete)


def _slot_shares(records: Sequence[Record], metric: Metric) -> Floats | None:
    """Return the share of verdicts for each slot, (k,); None for orders without balance or no verdict."""
    placed = Counter((slot, document) for record in records for slot, document in enumerate(record.slots))
    size = records[0].num_documents
    named = [named_document(record, metric) for record in records]
    if len(placed) < size**2 or len(set(placed.values())) > 1 or set(named) == {None}:
        return None
    shares = np.full((len(records), size), 1 / size)
    for row, (record, document) in enumerate(zip(records, named, strict=True)):
        if document is not None:
            shares[row] = np.arange(size) == record.slots.index(document)
    mean: Floats = shares.mean(axis=0)
    return mean


def _gaps(scores: Scores, groups: Sequence[Sequence[Record]]) -> Floats:
    """Return the score with the gold document first less the score with it last, of each example."""
    first = [[record for record in records if record.gold_slot == 0] for records in groups]
    last = [
        [record for record in records if record.gold_slot == record.num_documents - 1] for records in groups
    ]
    gaps: Floats = scores.of(first)[0] - scores.of(last)[0]
    return gaps


def _cramers_v(shares: Floats) -> Estimate | None:
    """Return Cramér's V of the mean shares against 1/k. shares: (n, k), NaN where an example has none."""
    slots = [one for one in map(intervals.share, shares.T) if one is not None]
    if len(slots) < 2:
        return None
    chance = 1 / len(slots)

    def value(distances: list[float]) -> float:
        return min(1.0, math.hypot(*distances) * math.sqrt(len(slots) / (len(slots) - 1)))

    point = value([one.mean - chance for one in slots])
    # The closest and the farthest shares from chance in their intervals.
    ends = [(low - chance, high - chance) for low, high in (one.interval or (0.0, 1.0) for one in slots)]
    nearest = [0.0 if low <= 0 <= high else min(abs(low), abs(high)) for low, high in ends]
    farthest = [max(abs(low), abs(high)) for low, high in ends]
    return Estimate(point, min(value(nearest), point), max(value(farthest), point), slots[0].num_examples)
