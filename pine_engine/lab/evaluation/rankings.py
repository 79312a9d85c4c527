"""Agreement of rankings with the relevance of the documents, and of the rankings in different orders.

The score of a ranking, nDCG, has the estimates of all scores (estimates.py). An example counts by the mean
over its orders.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import fmean

import numpy as np

from pine_engine.lab.evaluation import intervals
from pine_engine.lab.evaluation.grid import Labeled, Metric, Scores, combined, rank_scores
from pine_engine.lab.evaluation.record import Record
from pine_engine.prompts.ranking import kendall_tau
from pine_engine.prompts.tasks import TASKS


def ranking_estimates(scores: Scores) -> Iterator[Labeled]:
    """Yield Kendall's tau, and how often the first document is relevant; nothing for other tasks.

    Tau-b is that of ranking and relevance (`kendall tau`), and of the rankings in each pair of orders
    (`order tau`).
    """
    if not TASKS[scores.grid.task].ranks:
        return
    metric = scores.metric
    gold = combined(scores.averaged, lambda record: _tau_of_gold(record, metric))
    yield "kendall tau", (), intervals.share(gold, minimum=-1.0)
    between = [_tau_of_orders(records, metric) for records in scores.averaged]
    yield "order tau", (), intervals.share(np.array(between, dtype=np.float64), minimum=-1.0)
    yield "first relevant", (), scores.share(scores.averaged, lambda record: _first_relevant(record, metric))


def _relevance(record: Record) -> list[float]:
    """Return the relevance of each stored document."""
    return [grade for _, grade in sorted(zip(record.input_order, record.relevance, strict=True))]


def _tau_of_gold(record: Record, metric: Metric) -> float | None:
    found = rank_scores(record, metric)
    return kendall_tau(_relevance(record), found) if found and record.relevance else None


def _tau_of_orders(records: Sequence[Record], metric: Metric) -> float | None:
    """Return the mean tau-b of the rankings in each pair of orders, None for fewer than two rankings."""
    rankings = [found for record in records if (found := rank_scores(record, metric))]
    taus = [tau for pair in combinations(rankings, 2) if (tau := kendall_tau(*pair)) is not None]
    return fmean(taus) if taus else None


def _first_relevant(record: Record, metric: Metric) -> float | None:
    """Return the share of relevant documents among those on the first rank."""
    found = rank_scores(record, metric)
    if not found or not any(grade > 0 for grade in record.relevance):
        return None
    grades = zip(_relevance(record), found, strict=True)
    return fmean(grade > 0 for grade, score in grades if score == max(found))
