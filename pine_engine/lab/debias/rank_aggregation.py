"""One ranking from those of several runs: Borda counts, and the Kemeny rankings.

The scores of the documents have the sum 1. They depend neither on the order of the runs nor on that of the
documents: documents that nothing separates have equal scores.

Source: Tang et al. 2024, castorini/perm-sc, permutation self-consistency.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

Aggregation = Literal["borda", "kemeny"]


def borda(runs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the share of all won pairs that each document wins; an equal pair is half a win for both.

    Args:
        runs: Score of each document in each run, the larger the better its rank.
    """
    scores = np.asarray(runs)
    won = np.sign(scores[:, :, None] - scores[:, None, :]).sum(axis=(0, 2))
    num_runs, size = scores.shape
    points = (won + num_runs * (size - 1)) / 2
    return tuple((points / max(points.sum(), 1)).tolist())


def kemeny(runs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return scores by the mean rank of each document over all Kemeny rankings.

    These are the rankings without equal ranks that contradict the fewest pairs of the runs. They are found
    exactly, by dynamic programming over the sets of first documents: 2^k sets of k documents.

    Args:
        runs: Score of each document in each run, the larger the better its rank.
    """
    scores = np.asarray(runs)
    size = scores.shape[1]
    is_in = (np.arange(1 << size)[:, None] >> np.arange(size)) & 1
    # Contradicted pairs if a document follows a set: those in which it is better than one of the set.
    costs = is_in @ (scores[:, :, None] < scores[:, None, :]).sum(axis=0)
    full = (1 << size) - 1
    steps = [
        [(one, taken | 1 << one) for one in range(size) if not taken >> one & 1] for taken in range(full)
    ]
    before, after = [(0, 1)] + [(_MANY, 0)] * full, [(_MANY, 0)] * full + [(0, 1)]
    for taken in range(full):
        for one, more in steps[taken]:
            cost, ways = before[taken]
            before[more] = _add(before[more], (cost + int(costs[taken, one]), ways))
    for taken in reversed(range(full)):
        for one, more in steps[taken]:
            cost, ways = after[more]
            after[taken] = _add(after[taken], (cost + int(costs[taken, one]), ways))
    best, count = after[0]
    points = np.zeros(size)
    for taken in range(full):
        for one, more in steps[taken]:
            if before[taken][0] + int(costs[taken, one]) + after[more][0] == best:
                points[one] += before[taken][1] * after[more][1] * (size - 1 - taken.bit_count())
    return tuple((points / (count * max(size * (size - 1) / 2, 1))).tolist())


_MANY = 1 << 62


def _add(found: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return the smaller cost, and the number of ways that have it."""
    return (found[0], found[1] + other[1]) if found[0] == other[0] else min(found, other)


AGGREGATIONS: Mapping[Aggregation, Callable[[Sequence[Sequence[float]]], tuple[float, ...]]] = {
    "borda": borda,
    "kemeny": kemeny,
}
"""Aggregations by name."""
