"""Ratings of the systems whose answers a judge compares, by the model of Bradley and Terry.

A verdict is a win over each other answer of the example, a tie half a win over each. The verdicts of an
example are averaged over its orders. Each pair that was compared gets one tie more, so that a system that
always wins has a finite rating. Ratings are Elo points with mean 0: 400 more win 10 of 11 comparisons.

Source: Hunter 2004, "MM algorithms for generalized Bradley-Terry models".
"""

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from pine_engine.evaluation.grid import Labeled, Scores, named_document, parsed_answer
from pine_engine.evaluation.intervals import MIN_EXAMPLES, Estimate, Floats
from pine_engine.evaluation.records import Record
from pine_engine.prompts.scoring import TIE

NUM_RESAMPLES = 200
"""Resamples of the examples for the intervals, which are percentiles."""

MAX_STEPS, TOLERANCE = 1000, 1e-6  # of the ratings, in Elo points


def rating_estimates(scores: Scores) -> Iterator[Labeled]:
    """Yield the rating of each system, nothing for fewer than two systems."""
    models = sorted({model for record in scores.grid.some_records for model in record.models})
    if len(models) < 2:
        return
    wins = np.stack([_wins(records, models, scores) for records in scores.averaged])  # (n, S, S)
    compared = wins + wins.transpose(0, 2, 1) > 0
    resamples = scores.grid.resamples[:NUM_RESAMPLES].astype(np.float64)
    drawn = np.tensordot(resamples, wins, 1)  # (B, S, S)
    found, samples = ratings(wins.sum(axis=0)[None])[0], ratings(drawn)
    for index, model in enumerate(models):
        count = int(compared[:, index].any(axis=1).sum())
        low, high = (float(end) for end in np.quantile(samples[:, index], [0.025, 0.975]))
        point = float(found[index])
        estimate = Estimate(point, min(low, point), max(high, point), count)
        if count:
            yield (
                "rating",
                (model,),
                estimate if count >= MIN_EXAMPLES else Estimate(point, None, None, count),
            )


def _wins(records: Sequence[Record], models: Sequence[str], scores: Scores) -> Floats:
    """Return the wins of each system (row) over each other one in an example, (S, S), mean over orders."""
    wins: Floats = np.zeros((len(models), len(models)))
    for record in records:
        places = [models.index(model) for model in record.models]
        winner = named_document(record, scores.metric)
        is_tie = parsed_answer(record, scores.metric) == TIE
        for one, other in permutations(range(len(places)), 2):
            if places[one] != places[other] and (is_tie or one == winner):
                wins[places[one], places[other]] += (0.5 if is_tie else 1.0) / len(records)
    return wins


def ratings(wins: Floats) -> Floats:
    """Return the ratings of S systems in Elo points with mean 0, (B, S).

    wins: of the system of the row over that of the column, (B, S, S).
    """
    played = wins + wins.transpose(0, 2, 1)
    wins = wins + (played > 0) / 2
    played = wins + wins.transpose(0, 2, 1)
    total = wins.sum(axis=2)
    strengths = np.ones(total.shape)
    found: Floats = np.zeros(total.shape)
    for _ in range(MAX_STEPS):
        pairs = played / (strengths[:, :, None] + strengths[:, None, :])
        expected = pairs.sum(axis=2)
        strengths = np.divide(total, expected, out=strengths, where=expected > 0)
        points = 400 * np.log10(strengths)
        former, found = found, points - points.mean(axis=1, keepdims=True)
        if np.abs(found - former).max() < TOLERANCE:
            break
    return found
