"""Estimates of a run as one flat list: every number of the report with its interval.

An estimate has a task, a method, a metric, a group and a name:

| metric | group | name |
| --- | --- | --- |
| a score | mean, worst case, best case, always correct, never correct, changed | |
| a score | flip rate, the share of pairs of orders with different answers | |
| a score | again changed, in the same order, measured once more | |
| a score | unparsed, several verdicts, parsed | |
| a score | unfinished, of texts that end before the answer | |
| a score | first slot, first slot excess, consistent, order gap, of judges (see position_bias.py) | |
| a score | cramers v, recall spread | number of documents |
| a score | recall, of the options with a letter | number of documents > letter |
| a score | kendall tau, order tau, first relevant, of rankings (see rankings.py) | |
| a score | rating, in Elo points (see bradley_terry.py) | system |
| a score | order, order changed, order unparsed, says A, says first | order |
| a score | slot | number of documents > slot from 0 |
| a score | shuffled | number of documents |
| a score | held, held changed, with the gold document in its slot | number of documents > slot from 0 |
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
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from pine_engine.errors import InputError
from pine_engine.lab.evaluation.bootstrap import ratio
from pine_engine.lab.evaluation.bradley_terry import rating_estimates
from pine_engine.lab.evaluation.document_orders import AGAIN
from pine_engine.lab.evaluation.grid import (
    BETWEEN,
    METRICS,
    Column,
    Grid,
    Labeled,
    Metric,
    Scores,
    Values,
    answers_differ,
    flip_rate,
    make_grid,
    named_document,
    parsed_answer,
)
from pine_engine.lab.evaluation.intervals import Estimate, Flags, Floats
from pine_engine.lab.evaluation.letter_recall import recall_estimates
from pine_engine.lab.evaluation.position_bias import bias_estimates
from pine_engine.lab.evaluation.rankings import ranking_estimates
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.slots import OVER_ORDERS, group_by_slot, held_by_slot, scenario_values
from pine_engine.lab.evaluation.task_estimates import TIMES, TOKENS
from pine_engine.prompts.ranking import first_name
from pine_engine.prompts.tasks import TASKS

BASELINE = "vanilla"  # method with which times are compared


def estimate_tasks(records: Sequence[Record]) -> tuple[Grid, ...]:
    """Return the grid of each task, with all estimates. Raises InputError for a task without an example."""
    by_task: dict[str, list[Record]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record)
    if not by_task:
        raise InputError("there are no records yet; run `evaluate` until the first example is done")
    return tuple(map(_estimate_task, by_task.values()))


def _estimate_task(records: Sequence[Record]) -> Grid:
    grid = make_grid(records)
    if not grid.examples:
        raise InputError(f"no example of {grid.task} has a result of every method in every order")
    every_scores = [Scores(grid, method, metric) for method in grid.methods for metric in METRICS]
    all_scores = [
        scores
        for scores in every_scores
        if any(scores.score(record) is not None for column in scores.columns for record in column.values())
    ]
    found: list[Estimate] = []

    def add(method: str, metric: str, labeled: Iterable[Labeled]) -> None:
        for group, names, estimate in labeled:
            if estimate is not None:
                found.append(Estimate(*estimate.value, grid.task, method, metric, group, BETWEEN.join(names)))

    for scores in all_scores:
        add(scores.method, scores.metric, _score_estimates(scores))
    for scores in every_scores:
        if scores not in all_scores and scores.metric != "logprob":  # answers without accepted ones
            add(scores.method, scores.metric, _change_estimates(scores))
            if TASKS[grid.task].has_letters:
                add(scores.method, scores.metric, bias_estimates(scores))
    for method in grid.methods:
        add(method, "cost", _cost_estimates(grid, method))
    for other, scores in combinations(all_scores, 2):
        if other.metric == scores.metric:
            add(scores.method, scores.metric, [("minus", (other.method,), scores.minus(other))])
    return replace(grid, estimates=tuple(found))


def _score_estimates(scores: Scores) -> Iterator[Labeled]:
    yield "mean", (), scores.mean(scores.over_orders)
    yield "worst case", (), scores.mean(scores.of(scores.averaged, min))
    yield "best case", (), scores.mean(scores.of(scores.averaged, max))
    for name in scores.grid.orders:
        yield "order", (name,), scores.mean(scores.of(scores.in_order(name)))
    if scores.metric != "logprob":
        yield from _answer_estimates(scores)
        if TASKS[scores.grid.task].has_letters:
            yield from bias_estimates(scores)
            yield from rating_estimates(scores)
            yield from recall_estimates(scores)
            yield from ranking_estimates(scores)
    for size, table in group_by_slot(scores.columns, scores.metric).items():
        for slot, groups in table.items():
            names = (str(size),) if slot is None else (str(size), str(slot))
            yield "shuffled" if slot is None else "slot", names, scores.mean(scores.of(groups))
    for size, slot, groups in held_by_slot(scores):
        yield "held", (str(size), str(slot)), scores.mean(scores.of(groups))
        if scores.metric != "logprob":
            changed = [answers_differ(records, scores.metric) for records in groups]
            yield "held changed", (str(size), str(slot)), scores.mean(_values(changed))
    yield from _section_estimates(scores, OVER_ORDERS, scores.over_orders)
    for scenario, values in scenario_values(scores):
        yield "scenario", (scenario,), scores.mean(values)
        yield from _section_estimates(scores, scenario, values)


def _change_estimates(scores: Scores) -> Iterator[Labeled]:
    """Yield how often answers change in any order, in a pair of orders, and in the same order again."""
    pairs = zip(scores.columns, scores.grid.distinct, strict=True)
    groups = [[column[name] for name in names] for column, names in pairs]
    yield "changed", (), scores.mean(_values([answers_differ(group, scores.metric) for group in groups]))
    yield "flip rate", (), scores.mean(_values([flip_rate(group, scores.metric) for group in groups]))
    again = [_changed_again(column, scores.metric) for column in scores.columns]
    yield "again changed", (), scores.mean(_values(again))


def _is_stored(record: Record) -> bool:
    """Return True if documents and letters are as in the data, under any name of that order."""
    return record.input_order == record.permutation == tuple(range(record.num_documents))


def _changed_again(column: Column, metric: Metric) -> bool | None:
    """Return True if the answer differs in the same order again, or else the text of a repeated request."""
    if AGAIN in column:
        return answers_differ(list(filter(_is_stored, column.values())), metric)
    repeats = [one.is_repeatable for one in column.values() if one.is_repeatable is not None]
    return not all(repeats) if repeats and metric == "generated" else None


def _answer_estimates(scores: Scores) -> Iterator[Labeled]:
    """Yield shares of answers that change, are always correct, are parsed, or name a letter or place."""
    grid, metric = scores.grid, scores.metric

    def says(answer: str | None) -> Callable[[Record], bool]:
        return lambda record: first_name(parsed_answer(record, metric)) == answer

    def says_first(record: Record) -> bool:
        return named_document(record, metric) == record.slots[0]

    yield from _change_estimates(scores)
    for name, combine, score in (("always correct", min, 1.0), ("never correct", max, 0.0)):
        values, is_parsed = scores.of(scores.averaged, combine)
        flags = np.where(np.isnan(values), np.nan, values == score)
        yield name, (), scores.mean((flags, is_parsed))
    yield "unparsed", (), scores.share(scores.averaged, says(None))
    if metric == "generated" and TASKS[grid.task].is_judge:
        yield "several verdicts", (), scores.share(scores.averaged, _has_several_choices)
    if metric == "generated" and any(one.thinking for records in scores.averaged for one in records):
        yield "unfinished", (), scores.share(scores.averaged, lambda record: not record.is_finished)
    parsed = [list(filter(scores.is_parsed, records)) for records in scores.averaged]
    yield "parsed", (), scores.share(parsed, scores.score)
    for name in grid.orders:
        changes = [_changed_from_stored(column, name, metric) for column in scores.columns]
        yield "order changed", (name,), scores.mean(_values(changes))
        yield "order unparsed", (name,), scores.share(scores.in_order(name), says(None))
        if TASKS[grid.task].has_letters:
            yield "says A", (name,), scores.share(scores.in_order(name), says("A"))
            yield "says first", (name,), scores.share(scores.in_order(name), says_first)


def _has_several_choices(record: Record) -> float | None:
    choices = TASKS[record.task].sized(record.num_documents).choices
    return None if record.text is None else float(sum(choice in record.text for choice in choices) > 1)


def _values(flags: Sequence[float | None]) -> Values:
    return np.array(flags, dtype=np.float64), None


def _changed_from_stored(column: Column, name: str, metric: Metric) -> bool | None:
    """Return True if the answer differs from that in the stored order; None without both."""
    stored = next(filter(_is_stored, column.values()), None)
    if stored is None or name not in column or _is_stored(column[name]):
        return None
    return answers_differ([stored, column[name]], metric)


def _section_estimates(scores: Scores, scenario: str, values: Values) -> Iterator[Labeled]:
    """Yield the subsets, the sections, and the plain mean of two or more sections (specification 9.1)."""

    numbers, parsed = values

    def mean(rows: list[int] | Flags, weights: Floats | None = None) -> Estimate | None:
        of_rows: Floats = np.full(len(numbers), np.nan)
        of_rows[rows] = numbers[rows]
        return scores.mean((of_rows, parsed), weights)

    rows_of: dict[tuple[str, str], list[int]] = {}
    for row, record in enumerate(scores.grid.some_records):
        if record.section is not None and np.isfinite(numbers[row]):
            rows_of.setdefault((record.section, record.subset or ""), []).append(row)
    for names, rows in rows_of.items():
        yield "subset", (scenario, *names), mean(rows)
    for version, weights in scores.grid.weights.items():
        found = {names: weight for names, weight in weights.items() if names in rows_of and weight}
        sections = list(dict.fromkeys(section for section, _ in found))
        total: Floats = np.zeros(len(numbers))
        for section in sections:
            subsets = {names: weight for names, weight in found.items() if names[0] == section}
            share: Floats = np.zeros(len(numbers))
            for names, weight in subsets.items():
                share[rows_of[names]] = weight / sum(subsets.values()) / len(rows_of[names])
            total += share
            yield f"section{version}", (scenario, section), mean(share > 0, share)
        if len(sections) > 1:
            yield f"total{version}", (scenario,), mean(total > 0, total)


def _cost_estimates(grid: Grid, method: str) -> Iterator[Labeled]:
    """Yield times and tokens per record, and ratios to the baseline as if no prefill had been shared."""

    def numbers(field: str, name: str) -> Floats:
        """Return a field of each record, (examples, orders); NaN for no record or None."""
        columns = grid.columns[name]
        rows = [[getattr(column.get(order), field, None) for order in grid.orders] for column in columns]
        return np.array(rows, dtype=np.float64)

    def computed(name: str) -> Floats:
        return np.where(numbers("was_computed", name) == 1, 1.0, np.nan)

    for field in TIMES + TOKENS:
        values = numbers(field, method) * (computed(method) if field in TIMES else 1.0)
        yield field, (), ratio(_totals(values), _totals(np.isfinite(values)), grid.resamples)
    if method == BASELINE or BASELINE not in grid.methods:
        return
    both, compared = computed(method) * computed(BASELINE), (method, BASELINE)
    prefills = [numbers("prefill_s", name) for name in compared]
    above, below = (_totals(seconds * both) for seconds in prefills)
    yield "prefill_ratio", (), ratio(above, below, grid.resamples)
    generates = [np.isfinite(numbers("answer_tokens", name)).any() for name in compared]
    if generates[0] == generates[1]:
        decodes = [numbers("decode_s", name) for name in compared]
        above, below = (_totals((prefills[one] + decodes[one]) * both) for one in (0, 1))
        yield "ratio", (), ratio(above, below, grid.resamples)


_totals: Callable[..., Floats] = partial(np.nansum, axis=1)
"""Sum of each example over its orders, (examples,)."""
