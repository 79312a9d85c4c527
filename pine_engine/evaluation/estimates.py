"""Estimates of a run as one flat list: every number of the report with its interval.

An estimate has a task, a method, a metric, a group and a name:

| metric | group | name |
| --- | --- | --- |
| a score | mean, worst case, best case, changed, unparsed, parsed | |
| a score | order, order changed, order unparsed, says A, says first | order |
| a score | slot | number of documents > slot from 0 |
| a score | shuffled | number of documents |
| a score | scenario, total | scenario |
| a score | section | scenario > section |
| a score | subset | scenario > section > subset |
| a score | minus | other method |
| cost | seconds, prefill_s, decode_s, ratio, prefill_ratio | |
| cost | prompts, prompt_tokens, answer_tokens | |

A score is one of METRICS. "section" and "total" are also there as "section v0.1.1" and "total v0.1.1".
All estimates of a task are over the same examples, see grid.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations
from operator import attrgetter
from statistics import fmean

import numpy as np

from pine_engine.errors import InputError
from pine_engine.evaluation.answers import (
    METRICS,
    Metric,
    differ,
    first_document,
    is_as_stored,
    named_document,
    parsed_answer,
)
from pine_engine.evaluation.bootstrap import ratio
from pine_engine.evaluation.grid import Column, Grid, Scores, make_grid
from pine_engine.evaluation.intervals import Estimate, Floats
from pine_engine.evaluation.judge_scenarios import OVER_ORDERS, scenario_scores, section_estimates
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.slots import group_by_slot
from pine_engine.evaluation.task_estimates import BETWEEN, TaskEstimates
from pine_engine.prompts.tasks import get_task

BASELINE = "vanilla"
"""Method with which times are compared."""

Labeled = tuple[str, tuple[str, ...], Estimate | None]
"""Group, parts of the name, and the estimate, None if nothing was measured."""


def estimate_tasks(records: Sequence[Record]) -> tuple[TaskEstimates, ...]:
    """Return the estimates of each task.

    Raises:
        InputError: No example of a task has been measured with all methods in all orders.
    """
    by_task: dict[str, list[Record]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record)
    if not by_task:
        raise InputError("there are no records yet; run `evaluate` until the first example is done")
    return tuple(map(_estimate_task, by_task.values()))


def _estimate_task(records: Sequence[Record]) -> TaskEstimates:
    grid = make_grid(records)
    if not grid.examples:
        raise InputError(
            f"no example of {grid.task} has been measured with every method in every order; go on with "
            "`evaluate`, or look at the errors in its records"
        )
    all_scores = [
        scores
        for method in grid.methods
        for metric in METRICS
        if np.isfinite((scores := Scores(grid, method, metric)).values).any()
    ]
    found: list[Estimate] = []

    def add(method: str, metric: str, labeled: Iterable[Labeled]) -> None:
        for group, names, estimate in labeled:
            if estimate is not None:
                found.append(Estimate(*estimate.value, grid.task, method, metric, group, BETWEEN.join(names)))

    for scores in all_scores:
        add(scores.method, scores.metric, _score_estimates(scores))
    for method in grid.methods:
        add(method, "cost", _cost_estimates(grid, method))
    for other, scores in combinations(all_scores, 2):
        if other.metric == scores.metric:
            add(scores.method, scores.metric, [("minus", (other.method,), scores.minus(other))])
    return TaskEstimates(grid, tuple(found))


def _score_estimates(scores: Scores) -> Iterator[Labeled]:
    over_orders = partial(scores.mean, parsed=scores.parsed_in_orders)
    yield "mean", (), over_orders(scores.over_orders)
    yield "worst case", (), over_orders(min(row, default=None) for row in scores.in_orders)
    yield "best case", (), over_orders(max(row, default=None) for row in scores.in_orders)
    for place, name in enumerate(scores.grid.orders):
        yield "order", (name,), scores.mean(scores.values[:, place], parsed=scores.parsed[:, place])
    if scores.metric != "logprob":
        yield from _answer_estimates(scores)
    for size, table in group_by_slot(scores.columns, scores.metric).items():
        for slot, found in table.items():
            flags = np.array([is_parsed for _, is_parsed in found])
            estimate = scores.mean((score for score, _ in found), parsed=flags)
            if slot is None:
                yield "shuffled", (str(size),), estimate
            else:
                yield "slot", (str(size), str(slot)), estimate
    yield from section_estimates(scores, OVER_ORDERS, scores.over_orders, scores.parsed_in_orders)
    for scenario, values, parsed in scenario_scores(scores):
        yield "scenario", (scenario,), scores.mean(values, parsed=parsed)
        yield from section_estimates(scores, scenario, values, parsed)


def _answer_estimates(scores: Scores) -> Iterator[Labeled]:
    """Yield how often answers change and are parsed, and which letter and document they name."""
    grid, metric = scores.grid, scores.metric

    def answer(record: Record) -> str | None:
        return parsed_answer(record, metric)

    def is_unparsed(record: Record) -> bool:
        return answer(record) is None

    changed = (
        differ([column[name] for name in names], metric)
        for column, names in zip(scores.columns, grid.distinct, strict=True)
    )
    parsed = _over_averaged(scores, lambda one: scores.score(one) if scores.is_parsed(one) else None)
    yield "changed", (), scores.mean(changed)
    yield "unparsed", (), scores.mean(_over_averaged(scores, is_unparsed))
    yield "parsed", (), scores.mean(parsed)
    for name in grid.orders:
        changes = (_changed_from_stored(column, name, metric) for column in scores.columns)
        yield "order changed", (name,), scores.mean(changes)
        yield "order unparsed", (name,), scores.share(is_unparsed, name)
        if get_task(grid.task).has_letters:
            yield "says A", (name,), scores.share(lambda one: answer(one) == "A", name)
            first = scores.share(lambda one: named_document(one, answer(one)) == first_document(one), name)
            yield "says first", (name,), first


def _over_averaged(scores: Scores, value: Callable[[Record], float | None]) -> Iterator[float | None]:
    """Yield for each example the mean of a value over the orders that it is averaged over."""
    for column, names in zip(scores.columns, scores.grid.averaged, strict=True):
        values = [float(found) for name in names if (found := value(column[name])) is not None]
        yield fmean(values) if values else None


def _changed_from_stored(column: Column, name: str, metric: Metric) -> float | None:
    """Return 1 if the answer differs from that in the stored order, 0 if not; None without both."""
    stored = next((record for record in column.values() if is_as_stored(record)), None)
    if stored is None or name not in column or is_as_stored(column[name]):
        return None
    return differ([stored, column[name]], metric)


def _cost_estimates(grid: Grid, method: str) -> Iterator[Labeled]:
    """Yield times and tokens per record, and ratios to the baseline as if no prefill had been shared."""
    all_records = np.ones((len(grid.examples), len(grid.orders)))
    computed = grid.values(method, lambda record: 1.0 if record.was_computed else None)

    def per_record(field: str, kept: Floats) -> Estimate | None:
        values = grid.values(method, attrgetter(field)) * kept
        return ratio(_totals(values), _totals(np.isfinite(values)), grid.resamples)

    for field in ("seconds", "prefill_s", "decode_s"):
        yield field, (), per_record(field, computed)
    for field in ("prompts", "prompt_tokens", "answer_tokens"):
        yield field, (), per_record(field, all_records)
    if method == BASELINE or BASELINE not in grid.methods:
        return
    both = computed * grid.values(BASELINE, lambda record: 1.0 if record.was_computed else None)

    def to_baseline(value: Callable[[Record], float]) -> Estimate | None:
        above, below = (_totals(grid.values(name, value) * both) for name in (method, BASELINE))
        return ratio(above, below, grid.resamples)

    def has_answers(name: str) -> bool:
        return bool(np.isfinite(grid.values(name, lambda record: record.answer_tokens)).any())

    yield "prefill_ratio", (), to_baseline(lambda record: record.prefill_s)
    if has_answers(method) == has_answers(BASELINE):
        yield "ratio", (), to_baseline(lambda record: record.prefill_s + record.decode_s)


def _totals(values: Floats) -> Floats:
    """Return the sum of each example over its orders, (examples,)."""
    totals: Floats = np.nansum(values, axis=1)
    return totals
