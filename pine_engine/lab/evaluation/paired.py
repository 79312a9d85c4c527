"""Two runs of the same examples, such as with another prompt, model or day: paired test and changed answers.

An example is better in the run with the higher mean score over the orders that both have. For one order this
is McNemar's exact test, for several the sign test: under the hypothesis of no difference, each example that
differs is better in either run with probability 1/2. The orders of one example are no independent samples.

Source: McNemar 1947, "Note on the sampling error of the difference between correlated proportions".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pine_engine.lab.evaluation import intervals
from pine_engine.lab.evaluation.grid import Grid, Metric, combined, parsed_answer, score_of, stated_answers
from pine_engine.lab.evaluation.intervals import Estimate
from pine_engine.lab.evaluation.record import Record

ANSWERS: tuple[Metric, ...] = ("generated", "chosen")
"""Metrics whose scores are those of answers."""

DIFFERENCE = 0.05
"""Difference of two accuracies for which the number of examples is stated before a run."""

DIFFERENT = (0.1, 0.2)
"""Shares of the examples that are correct in one of two runs alone, for which it is stated."""


@dataclass(frozen=True)
class ChangedAnswer:
    """An example in one order whose answer differs between two runs; an answer is None if it has none."""

    example: str
    order: str
    before: str | None
    after: str | None
    score_before: float | None
    score_after: float | None


@dataclass(frozen=True)
class PairedComparison:
    """One method in two runs, over the examples and orders that both have."""

    method: str
    metric: Metric
    orders: tuple[str, ...]
    num_examples: int
    difference: Estimate | None  # accuracy, second run less first; None without accepted answers
    num_better: int  # examples that are better in the second run
    num_worse: int
    p_value: float  # of the exact test, two-sided
    changed: tuple[ChangedAnswer, ...]


def compare_runs(first: Grid, second: Grid) -> Iterator[PairedComparison]:
    """Yield the comparison of each method and metric that both runs have, none without common examples."""
    for method in (name for name in first.methods if name in second.methods):
        others = dict(zip(second.examples, second.columns[method], strict=True))
        pairs = [
            [
                (record, after)
                for name, record in column.items()
                if (after := others[example].get(name)) and _documents(record) == _documents(after)
            ]
            for example, column in zip(first.examples, first.columns[method], strict=True)
            if example in others
        ]
        for metric in ANSWERS:
            if found := [pair for pair in pairs if pair and all(_is_measured(*one, metric) for one in pair)]:
                yield _compare(method, metric, found)


def _documents(record: Record) -> tuple[object, ...]:
    """Return what two records of one example have in common, so that equal ids of other data do not match."""
    return record.num_documents, record.input_order, record.permutation, record.answers


def _is_measured(before: Record, after: Record, metric: Metric) -> bool:
    return all(
        parsed_answer(record, metric) is not None or score_of(record, metric) is not None
        for record in (before, after)
    )


def _compare(method: str, metric: Metric, pairs: list[list[tuple[Record, Record]]]) -> PairedComparison:
    scores = [
        combined(
            [[pair[run] for pair in of_example] for of_example in pairs], lambda one: score_of(one, metric)
        )
        for run in (0, 1)
    ]
    difference = scores[1] - scores[0]
    num_better, num_worse = int((difference > 0).sum()), int((difference < 0).sum())
    flat = [pair for of_example in pairs for pair in of_example]
    changed = [
        ChangedAnswer(
            before.example,
            before.order_name,
            parsed_answer(before, metric),
            parsed_answer(after, metric),
            score_of(before, metric),
            score_of(after, metric),
        )
        for before, after in flat
        if stated_answers([before], metric) != stated_answers([after], metric)
    ]
    return PairedComparison(
        method=method,
        metric=metric,
        orders=tuple(dict.fromkeys(before.order_name for before, _ in flat)),
        num_examples=len(pairs),
        difference=intervals.share(np.asarray(difference), minimum=-1.0),
        num_better=num_better,
        num_worse=num_worse,
        p_value=sign_test(num_better, num_worse),
        changed=tuple(changed),
    )


def sign_test(num_better: int, num_worse: int) -> float:
    """Return the two-sided p-value of the exact sign test, which is McNemar's exact test for pairs."""
    total = num_better + num_worse
    ways = tail = 1
    for count in range(min(num_better, num_worse)):
        ways = ways * (total - count) // (count + 1)  # binomial coefficient of count + 1
        tail += ways
    return min(1.0, 2 * tail / (1 << total))


def num_examples_to_see(difference: float, share_of_different: float) -> int:
    """Return the number of examples for which McNemar's test finds a difference with a power of 80 %.

    Source: Connor 1987, "Sample size for testing differences in proportions for the paired-sample design".
    The difference is that of the accuracies. An example is different if it is correct in one of both alone.
    """
    z_power = intervals.NORMAL.inv_cdf(0.8)
    spread = share_of_different**0.5 * intervals.Z + (share_of_different - difference**2) ** 0.5 * z_power
    return int(np.ceil((spread / difference) ** 2))


def num_examples_sentence(num_examples: int) -> str:
    """Return the number of examples, and the numbers that are needed to see a difference of 5 points."""
    fewer, more = (num_examples_to_see(DIFFERENCE, different) for different in DIFFERENT)
    low, high = (f"{100 * different:.0f} %" for different in DIFFERENT)
    noun = "example" if num_examples == 1 else "examples"
    return (
        f"{num_examples:,} {noun}; a difference of {100 * DIFFERENCE:.0f} points between two methods or "
        f"runs needs about {fewer:,} if {low} of the examples are correct in only one of them, "
        f"{more:,} if {high}"
    )
