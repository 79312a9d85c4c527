"""Recall of each letter in multiple choice, and the spread of the recalls: the preference for letters.

The recall of a letter is the share of correct answers among the examples whose right option has it. An
example counts by the mean over the orders in which this is so. The spread is the standard deviation of the
recalls, RStd in the source. Without a preference it is 0, up to chance.

Source: Zheng et al. 2024, "Large Language Models Are Not Robust Multiple Choice Selectors".
"""

import string
from collections.abc import Iterator

import numpy as np

from pine_engine.lab.evaluation.bootstrap import Resamples, totals
from pine_engine.lab.evaluation.grid import Labeled, Scores
from pine_engine.lab.evaluation.intervals import LEVEL, MIN_EXAMPLES, Estimate, Floats
from pine_engine.prompts.tasks import TASKS


def recall_estimates(scores: Scores) -> Iterator[Labeled]:
    """Yield the recall of each letter, and their spread, by number of options; nothing for other tasks."""
    if TASKS[scores.grid.task].rule != "option":
        return
    for size in scores.grid.num_documents:
        groups = [[one for one in records if one.num_documents == size] for records in scores.averaged]
        recalls = []
        for letter in string.ascii_uppercase[:size]:
            of_letter = [[one for one in records if one.answers == (letter,)] for records in groups]
            recalls.append(scores.of(of_letter)[0])
            yield "recall", (str(size), letter), scores.mean(scores.of(of_letter))
        spread = _spread(np.stack(recalls, axis=1), scores.grid.resamples)
        yield "recall spread", (str(size),), spread


def _spread(recalls: Floats, resamples: Resamples) -> Estimate | None:
    """Return the standard deviation of the mean recalls, None for fewer than two letters.

    The interval has the percentiles of resampled examples. recalls: (n, letters), NaN where there is none.
    """
    known = np.isfinite(recalls)
    recalls, known = recalls[:, known.any(axis=0)], known[:, known.any(axis=0)]
    if recalls.shape[1] < 2:
        return None
    point = float(np.nanmean(recalls, axis=0).std())
    num_examples = int(known.any(axis=1).sum())
    if num_examples < MIN_EXAMPLES:
        return Estimate(point, None, None, num_examples)
    sums, counts = totals(resamples, np.nan_to_num(recalls)), totals(resamples, known.astype(np.float64))
    is_complete = counts.all(axis=1)
    if not is_complete.any():
        return Estimate(point, None, None, num_examples)
    spreads = (sums[is_complete] / counts[is_complete]).std(axis=1)
    low, high = np.quantile(spreads, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Estimate(point, min(float(low), point), max(float(high), point), num_examples)
