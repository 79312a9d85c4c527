"""The summary of a run: what each method scores, and what the order of the documents changes in it.

All numbers of a task are over the same examples, with 95 % intervals, see intervals.py. Every method is
reported in each order_name, and as the mean over them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from statistics import fmean

import numpy as np

from pine_engine.errors import InputError
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.summary.bootstrap import RESAMPLES, SEED, Resamples, draw, ratio
from pine_engine.evaluation.summary.grid import Column, Grid, Scores, make_grid, sure
from pine_engine.evaluation.summary.intervals import LEVEL, Estimate, Floats
from pine_engine.evaluation.summary.results import (
    ArrangementValue,
    Cost,
    Difference,
    Frozen,
    Measure,
    MethodSummary,
    ShuffleValue,
    SlotValue,
)
from pine_engine.evaluation.summary.scenarios import scenario_values
from pine_engine.evaluation.summary.sections import section_values
from pine_engine.evaluation.summary.slots import group_by_slot
from pine_engine.evaluation.summary.verdicts import (
    KINDS,
    differ,
    first_document,
    is_as_stored,
    named_document,
    said,
)
from pine_engine.prompts.tasks import get_task

BASELINE = "vanilla"
"""The method with which times are compared."""


class TaskSummary(Frozen):
    """One task. examples: that are complete under every method. left_out: that are not. failed: records."""

    task: str
    examples: int
    left_out: int
    failed: int
    num_documents: tuple[int, ...]
    order_names: tuple[str, ...]
    averaged: tuple[str, ...]
    methods: tuple[MethodSummary, ...]
    differences: tuple[Difference, ...]


class Summary(Frozen):
    """What the records of a run say. level, resamples, seed: of the intervals, where they are resampled."""

    level: float
    resamples: int
    seed: int
    tasks: tuple[TaskSummary, ...]


def summarize(records: Sequence[Record], *, resamples: int = RESAMPLES, seed: int = SEED) -> Summary:
    """The summary of records, task by task.

    Raises InputError if no example has been measured with all methods in all order_names.
    """
    by_task: dict[str, list[Record]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record)
    if not by_task:
        raise InputError("there are no records yet; run `evaluate` until the first example is done")
    tasks = [_summarize_task(of_task, resamples, seed) for of_task in by_task.values()]
    return Summary(level=LEVEL, resamples=resamples, seed=seed, tasks=tuple(tasks))


def _summarize_task(records: Sequence[Record], resamples: int, seed: int) -> TaskSummary:
    grid = make_grid(records)
    if not grid.examples:
        raise InputError(
            f"no example of {grid.task} has been measured with every method in every order_name; go on with "
            "`evaluate`, or look at the errors in its records"
        )
    some = grid.some_records()
    drawn = draw(len(grid.examples), resamples=resamples, seed=seed)
    every = [
        scores
        for method in grid.methods
        for kind in KINDS
        if np.isfinite((scores := Scores(grid, method, kind, drawn)).values).any()
    ]
    measures = [(scores.method, _measure(scores)) for scores in every]
    averaged = {name for names in grid.averaged for name in names}
    return TaskSummary(
        task=grid.task,
        examples=len(grid.examples),
        left_out=grid.left_out,
        failed=grid.failed,
        num_documents=tuple(sorted({record.num_documents for record in some})),
        order_names=grid.order_names,
        averaged=tuple(name for name in grid.order_names if name in averaged),
        methods=tuple(
            MethodSummary(
                method=name,
                measures=tuple(measure for method, measure in measures if method == name),
                cost=_cost(grid, name, drawn),
            )
            for name in grid.methods
        ),
        differences=tuple(_differences(every)),
    )


def _measure(scores: Scores) -> Measure:
    """Everything that the numbers say, of which there is at least one."""
    grid, values = scores.grid, scores.values
    found = {
        name: value
        for place, name in enumerate(grid.order_names)
        if (value := scores.mean(values[:, place], read=scores.read[:, place])) is not None
    }
    # Those that the mean is over; of the others, an order in which none can be read has no accuracy.
    averaged = [
        name
        for place, name in enumerate(grid.order_names)
        if name in found and scores.averaged[:, place].any()
    ]
    compared = [name for name in averaged if found[name].is_read] or averaged
    over_orders = partial(scores.mean, read=scores.read_in_orders)
    slots = group_by_slot(scores.columns, scores.kind)
    return Measure(
        kind=scores.kind,
        mean=sure(over_orders(scores.over_orders)),
        order_names=tuple(
            ArrangementValue(name=name, value=value, **_answers(scores, name))
            for name, value in found.items()
        ),
        worst=min(compared, key=lambda name: found[name].mean),
        best=max(compared, key=lambda name: found[name].mean),
        worst_case=sure(over_orders(min(row, default=None) for row in scores.in_orders)),
        best_case=sure(over_orders(max(row, default=None) for row in scores.in_orders)),
        changed=_changed(scores),
        unparsed=None if scores.kind == "logprob" else scores.mean(_over_averaged(scores, _is_unread)),
        read=None if scores.kind == "logprob" else scores.mean(_over_averaged(scores, _number_if_read)),
        slots=tuple(
            SlotValue(
                num_documents=one.num_documents,
                slot=slot,
                value=sure(scores.mean(one.values[:, place], read=one.read[:, place])),
            )
            for one in slots
            for place, slot in enumerate(one.slots)
        ),
        shuffles=tuple(
            ShuffleValue(num_documents=one.num_documents, value=value)
            for one in slots
            if (value := scores.mean(one.shuffled, read=one.shuffles_read)) is not None
        ),
        **section_values(scores, scores.over_orders, scores.read_in_orders),
        scenarios=scenario_values(scores),
    )


def _changed(scores: Scores) -> Estimate | None:
    """The share of examples without one answer in all orders; one that has a single order does not count."""
    if scores.kind == "logprob":
        return None
    return scores.mean(
        differ([column[name] for name in names], scores.kind) if len(names) > 1 else None
        for column, names in zip(scores.columns, scores.grid.distinct, strict=True)
    )


def _over_averaged(scores: Scores, value: Callable[[Scores, Record], float | None]) -> Iterator[float | None]:
    """Of each example, the mean of that value over the order_names that it is averaged over."""
    for column, names in zip(scores.columns, scores.grid.averaged, strict=True):
        values = [found for name in names if (found := value(scores, column[name])) is not None]
        yield fmean(values) if values else None


def _is_unread(scores: Scores, record: Record) -> float:
    return float(said(record, scores.kind) is None)


def _number_if_read(scores: Scores, record: Record) -> float | None:
    return scores.number(record) if scores.reads(record) else None


def _answers(scores: Scores, name: str) -> dict[str, Estimate | None]:
    """What the answers in one order_name say, apart from being right."""
    kind = scores.kind
    if kind == "logprob":
        return {}
    shares = {
        "changed": scores.mean(_changed_from_stored(scores, column, name) for column in scores.columns),
        "unparsed": scores.share(lambda record: said(record, kind) is None, name),
    }
    if get_task(scores.grid.task).has_letters:
        shares["says_a"] = scores.share(lambda record: said(record, kind) == "A", name)
        shares["says_first"] = scores.share(
            lambda record: named_document(record, said(record, kind)) == first_document(record), name
        )
    return shares


def _changed_from_stored(scores: Scores, column: Column, name: str) -> float | None:
    """1 if the example's answer is another than as stored, 0 if not; None if it is not to be compared."""
    stored = next((record for record in column.values() if is_as_stored(record)), None)
    if stored is None or name not in column or is_as_stored(column[name]):
        return None
    return differ([stored, column[name]], scores.kind)


def _cost(grid: Grid, method: str, drawn: Resamples) -> Cost:
    """Times and tokens of one method over the examples of a grid."""
    computed = grid.values(method, lambda record: 1.0 if record.computed else None)

    def per_record(value: Callable[[Record], float | None], kept: Floats) -> Estimate | None:
        values = grid.values(method, value) * kept
        return ratio(_totals(values), _totals(np.isfinite(values)), drawn)

    def to_baseline(value: Callable[[Record], float]) -> Estimate | None:
        if method == BASELINE or BASELINE not in grid.methods:
            return None
        both = computed * grid.values(BASELINE, lambda record: 1.0 if record.computed else None)
        ours, theirs = grid.values(method, value) * both, grid.values(BASELINE, value) * both
        return ratio(_totals(ours), _totals(theirs), drawn)

    def writes(name: str) -> bool:
        return bool(np.isfinite(grid.values(name, lambda record: record.answer_tokens)).any())

    is_flat = BASELINE in grid.methods and writes(method) == writes(BASELINE)
    every = np.ones_like(computed)
    return Cost(
        computed=int(np.isfinite(computed).sum()),
        seconds=per_record(lambda record: record.seconds, computed),
        prefill_s=per_record(lambda record: record.prefill_s, computed),
        decode_s=per_record(lambda record: record.decode_s, computed),
        ratio=to_baseline(lambda record: record.prefill_s + record.decode_s) if is_flat else None,
        prefill_ratio=to_baseline(lambda record: record.prefill_s),
        prompts=per_record(lambda record: record.prompts, every),
        prompt_tokens=per_record(lambda record: record.prompt_tokens, every),
        answer_tokens=per_record(lambda record: record.answer_tokens, every),
    )


def _totals(values: Floats) -> Floats:
    """(n,): of each example, over its order_names."""
    totals: Floats = np.nansum(values, axis=1)
    return totals


def _differences(every: Sequence[Scores]) -> Iterator[Difference]:
    """Of each pair of methods, the later in the table less the earlier, over the examples that both have."""
    for than, scores in combinations(every, 2):
        if than.kind == scores.kind:
            estimate = scores.more_than(than)
            if estimate is not None:
                yield Difference(kind=scores.kind, method=scores.method, than=than.method, value=estimate)
