"""The summary of a run: what each method scores, and what the order of the documents changes in it.

All numbers of a task are over the same examples, with 95 % intervals, see intervals.py. Every method is
reported in each arrangement, and as the mean over them.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from pine_engine.errors import InputError
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.summary.bootstrap import RESAMPLES, SEED, draw
from pine_engine.evaluation.summary.cost import cost_of
from pine_engine.evaluation.summary.grid import make_grid
from pine_engine.evaluation.summary.intervals import LEVEL
from pine_engine.evaluation.summary.outcome import measure_of
from pine_engine.evaluation.summary.results import Difference, Frozen, MethodSummary
from pine_engine.evaluation.summary.verdicts import Kind
from pine_engine.evaluation.summary.view import View
from pine_engine.prompts.tasks import get_task

KINDS: tuple[Kind, ...] = ("generated", "chosen", "logprob")


class TaskSummary(Frozen):
    """One task. examples: that are complete under every method. left_out: that are not. failed: records."""

    task: str
    examples: int
    left_out: int
    failed: int
    num_documents: tuple[int, ...]
    arrangements: tuple[str, ...]
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

    Raises InputError if no example has been measured with all methods in all arrangements.
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
            f"no example of {grid.task} has been measured with every method in every arrangement; go on with "
            "`evaluate`, or look at the errors in its records"
        )
    some = grid.some_records()
    drawn = draw(len(grid.examples), resamples=resamples, seed=seed)
    task = get_task(grid.task)
    views = [
        view
        for method in grid.methods
        for kind in KINDS
        if np.isfinite((view := View(grid, task, method, kind, drawn)).values).any()
    ]
    measures = [(view.method, measure_of(view)) for view in views]
    averaged = {name for names in grid.averaged for name in names}
    return TaskSummary(
        task=grid.task,
        examples=len(grid.examples),
        left_out=grid.left_out,
        failed=grid.failed,
        num_documents=tuple(sorted({record.num_documents for record in some})),
        arrangements=grid.arrangements,
        averaged=tuple(name for name in grid.arrangements if name in averaged),
        methods=tuple(
            MethodSummary(
                method=name,
                measures=tuple(measure for method, measure in measures if method == name),
                cost=cost_of(grid, name, drawn),
            )
            for name in grid.methods
        ),
        differences=tuple(_differences(views)),
    )


def _differences(views: Sequence[View]) -> Iterator[Difference]:
    """Of each pair of methods, the later in the table less the earlier, over the examples that both have."""
    for than, view in combinations(views, 2):
        if than.kind == view.kind:
            estimate = view.more_than(than)
            if estimate is not None:
                yield Difference(kind=view.kind, method=view.method, than=than.method, value=estimate)
