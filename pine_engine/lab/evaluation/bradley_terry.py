"""Ratings of the systems whose answers a judge compares, by the model of Bradley and Terry.

A verdict is a win over each other answer of the example, a tie half a win over each. The verdicts of an
example are averaged over its orders. Each pair that was compared gets one tie more, so that a system that
always wins has a finite rating. Ratings are Elo points with mean 0: 400 more win 10 of 11 comparisons.

The likelihood is concave; Newton's method finds its maximum. Without the additional ties, a finite maximum
needs a chain of wins from each system to each other one.

Sources: Ford 1957, "Solution of a ranking problem from binary comparisons", for this condition; Hunter 2004,
"MM algorithms for generalized Bradley-Terry models", for the likelihood.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from pine_engine.lab.evaluation.grid import Labeled, Scores, named_document, parsed_answer
from pine_engine.lab.evaluation.intervals import MIN_EXAMPLES, Estimate, Flags, Floats
from pine_engine.lab.evaluation.record import Record
from pine_engine.prompts.scoring import TIE

NUM_RESAMPLES = 200
"""Resamples of the examples for the intervals, which are percentiles."""

ELO_POINTS = 400 / np.log(10)  # of a rating of 1 in natural logarithms of odds

MAX_GROUPS = 6  # of systems that a note lists

MAX_STEPS, TOLERANCE = 100, 1e-6  # steps of Newton's method, and the largest last one in Elo points


def comparisons(scores: Scores) -> tuple[list[str], Floats] | None:
    """Return the systems, and the wins in each example of that of the row, (n, S, S); None for one system."""
    models = sorted({model for record in scores.grid.some_records for model in record.models})
    if len(models) < 2:
        return None
    return models, np.stack([_wins(records, models, scores) for records in scores.averaged])


def rating_estimates(scores: Scores) -> Iterator[Labeled]:
    """Yield the rating of each system, nothing for fewer than two systems."""
    found = comparisons(scores)
    if found is None:
        return
    models, wins = found
    compared = wins + wins.transpose(0, 2, 1) > 0
    resamples = scores.grid.resamples[:NUM_RESAMPLES].astype(np.float64)
    drawn = np.tensordot(resamples, wins, 1)  # (B, S, S)
    points, samples = ratings(wins.sum(axis=0)[None])[0], ratings(drawn)
    for index, model in enumerate(models):
        count = int(compared[:, index].any(axis=1).sum())
        low, high = (float(end) for end in np.quantile(samples[:, index], [0.025, 0.975]))
        point = float(points[index])
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


def rating_notes(scores: Scores) -> Iterator[str]:
    """Yield which ratings cannot be compared, and which are finite by the additional ties alone."""
    found = comparisons(scores)
    if found is None:
        return
    systems, wins = found
    total = wins.sum(axis=0)
    compared = np.flatnonzero((total + total.T).any(axis=1))
    total = total[np.ix_(compared, compared)]
    models = [systems[index] for index in compared]
    linked, reach = (_reach(edges[None])[0] for edges in (total + total.T > 0, total > 0))
    if len(groups := _groups(linked)) > 1:
        yield f"{_listed(groups, models)}: no verdict compares these groups, nor do their ratings"
    classes = sorted(_groups(reach & reach.T), key=lambda indices: -reach[indices[0]].sum())
    for group in groups:
        parts = [indices for indices in classes if indices[0] in group]
        if len(parts) > 1:
            cause = "no system has a win over one of a group before its own"
            yield f"{_listed(parts, models)}: {cause}, so the additional ties alone make their ratings finite"


def ratings(wins: Floats) -> Floats:
    """Return the ratings of S systems in Elo points with mean 0, (B, S).

    Groups that no comparison connects have mean 0 each.

    wins: of the system of the row over that of the column, (B, S, S).
    """
    wins = wins + (wins + wins.transpose(0, 2, 1) > 0) / 2
    played = wins + wins.transpose(0, 2, 1)
    connected = _reach(played > 0).astype(np.float64)
    fixed = connected / connected.sum(axis=2, keepdims=True)  # the mean of each group stays 0
    found: Floats = np.zeros(wins.shape[:2])
    for _ in range(MAX_STEPS):
        win_rates = 0.5 + 0.5 * np.tanh((found[:, :, None] - found[:, None, :]) / 2)  # of the row, (B, S, S)
        gradient = wins.sum(axis=2) - (played * win_rates).sum(axis=2)
        information = -played * win_rates * (1 - win_rates)  # negative second derivatives of the likelihood
        diagonal = np.arange(information.shape[1])
        information[:, diagonal, diagonal] = -information.sum(axis=2)
        step = np.linalg.solve(information + fixed, gradient[:, :, None])[:, :, 0]
        found = found + _damping(found, step, gradient, wins)[:, None] * step
        if np.abs(step).max(initial=0.0) * ELO_POINTS < TOLERANCE:
            break
    else:
        raise ArithmeticError(f"ratings have not converged after {MAX_STEPS} steps")
    points: Floats = ELO_POINTS * (found - found.mean(axis=1, keepdims=True))
    return points


def _log_likelihood(logits: Floats, wins: Floats) -> Floats:
    """Return the logarithm of the likelihood, (B,)."""
    found: Floats = -(wins * np.logaddexp(0, logits[:, None, :] - logits[:, :, None])).sum(axis=(1, 2))
    return found


def _damping(logits: Floats, step: Floats, gradient: Floats, wins: Floats) -> Floats:
    """Return the largest power of 1/2 that raises the likelihood as expected, (B,) (Armijo)."""
    before = _log_likelihood(logits, wins)
    expected = (step * gradient).sum(axis=1)
    rounding = 1e-12 * (1 + np.abs(before))
    size: Floats = np.ones(len(logits))
    for _ in range(MAX_STEPS):
        after = _log_likelihood(logits + size[:, None] * step, wins)
        is_lower = after < before + 1e-4 * size * expected - rounding
        if not is_lower.any():
            break
        size[is_lower] /= 2
    return size


def _reach(edges: Flags) -> Flags:
    """Return which systems each system reaches by edges, itself included, (B, S, S)."""
    found = edges | np.eye(edges.shape[1], dtype=bool)
    for _ in range(edges.shape[1].bit_length()):
        numbers = found.astype(np.float32)
        found = numbers @ numbers > 0
    return found


def _groups(is_same: Flags) -> list[tuple[int, ...]]:
    """Return the systems of each class. is_same: (S, S), an equivalence relation."""
    return list(dict.fromkeys(tuple(map(int, np.flatnonzero(row))) for row in is_same))


def _listed(groups: Sequence[Sequence[int]], models: Sequence[str]) -> str:
    shown = [", ".join(models[index] for index in group) for group in groups[:MAX_GROUPS]]
    return " | ".join(shown + [f"{len(groups) - MAX_GROUPS} more"] * (len(groups) > MAX_GROUPS))
