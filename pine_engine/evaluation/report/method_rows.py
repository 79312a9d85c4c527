"""The rows that a task's tables have: a method of a run by one kind of number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import KIND_LABELS, estimated
from pine_engine.evaluation.summary.intervals import Estimate
from pine_engine.evaluation.summary.method_names import method_label
from pine_engine.evaluation.summary.results import Measure, MethodSummary
from pine_engine.evaluation.summary.summarize import TaskSummary
from pine_engine.evaluation.summary.verdicts import KINDS

HEADS = ("run", "by", "method")


@dataclass(frozen=True)
class MethodRow:
    """One method of one run by one kind of number."""

    run: MeasuredRun
    task: TaskSummary
    method: MethodSummary
    measure: Measure

    @property
    def heads(self) -> tuple[str, str, str]:
        """What names its row, under HEADS."""
        return self.run.label, KIND_LABELS[self.measure.kind], method_label(self.method.method)

    def written(self, estimate: Estimate | None) -> str:
        """An estimate in the unit of the measure."""
        return estimated(estimate, self.measure.kind)

    def order_name(self, name: str) -> Estimate | None:
        """The value in that order_name, None if it was not measured."""
        return next((one.value for one in self.measure.order_names if one.name == name), None)


def method_rows(task: str, runs: Sequence[MeasuredRun]) -> Iterator[MethodRow]:
    """Run by run, and in each all methods by one kind of number, then by the next."""
    for run, summary in summaries(task, runs):
        for kind in KINDS:
            for method in summary.methods:
                measure = method.measure(kind)
                if measure is not None:
                    yield MethodRow(run, summary, method, measure)


def not_drawn(rows: Sequence[MethodRow]) -> list[str]:
    """A sentence that names the methods of which a figure has nothing; with runs if there are several."""
    has_runs = len({row.run.label for row in rows}) > 1
    unparsed = [(method_label(row.method.method), row.run.label) for row in rows if not row.measure.is_read]
    names = [f"{method} ({run})" if has_runs else method for method, run in unparsed]
    return [f"No answer can be read, and none is drawn, of: {'; '.join(names)}."] if names else []


def summaries(task: str, runs: Sequence[MeasuredRun]) -> Iterator[tuple[MeasuredRun, TaskSummary]]:
    """The runs that have this task, with what they say of it."""
    for run in runs:
        yield from ((run, summary) for summary in run.summary.tasks if summary.task == task)


def from_to(numbers: Sequence[int]) -> str:
    """The least and the largest: "2", "10 to 20"."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
