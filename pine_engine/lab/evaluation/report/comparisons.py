"""Part of a report that compares runs of the same examples."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from pine_engine.lab.debias.measured import method_label
from pine_engine.lab.evaluation.intervals import LEVEL
from pine_engine.lab.evaluation.paired import PairedComparison, compare_runs
from pine_engine.lab.evaluation.report.key_findings import HIGHER, LOWER, NO_DIFFERENCE, difference_text
from pine_engine.lab.evaluation.report.runs import NONE, MeasuredRun
from pine_engine.lab.evaluation.report.tables import METRIC_LABELS, Part, Table, table
from pine_engine.lab.evaluation.task_estimates import estimate_json

MAX_ROWS = 200  # changed answers in a table; --json has all
MAX_CHARACTERS = 200  # of an answer in a table


@dataclass(frozen=True)
class ComparedRuns:
    """A comparison, and the labels of its two runs."""

    before: str
    after: str
    comparison: PairedComparison
    is_same_data: bool

    @property
    def sentence(self) -> str:
        """The result in a sentence."""
        one = self.comparison
        num_changed, total = len({answer.example for answer in one.changed}), one.num_examples
        start = f"{self.after} against {self.before}, {method_label(one.method)}, {METRIC_LABELS[one.metric]}"
        text = f"{start}: the answer to {num_changed} of {total} examples differs"
        if one.difference is None:
            return f"{text}; without accepted answers, none of both is better."
        found = f"accuracy is {HIGHER if one.difference.mean > 0 else LOWER}"
        found = found if one.p_value < 1 - LEVEL else f"{NO_DIFFERENCE} in accuracy"
        text += f"; {one.num_better} are better, {one.num_worse} worse; {found}:"
        data = "" if self.is_same_data else " The files of the data differ; examples are compared by id."
        return f"{text} {difference_text(one.difference)}, p = {one.p_value:.2g} (exact test).{data}"

    def json(self) -> dict[str, Any]:
        """Return the comparison with all changed answers."""
        labels = {"before": self.before, "after": self.after, "is_same_data": self.is_same_data}
        numbers = estimate_json(self.comparison.difference)
        return labels | asdict(self.comparison) | {"difference": numbers, "sentence": self.sentence}


def compared_runs(runs: Sequence[MeasuredRun]) -> list[ComparedRuns]:
    """Return the comparisons of each run with the first one that has common examples."""
    found: list[ComparedRuns] = []
    for number, run in enumerate(runs):
        earlier = (compared for before in runs[:number] if (compared := _compare(before, run)))
        found += next(earlier, [])
    return found


def _compare(before: MeasuredRun, after: MeasuredRun) -> list[ComparedRuns]:
    is_same_data = before.info.data_sha256 == after.info.data_sha256
    return [
        ComparedRuns(before.label, after.label, one, is_same_data)
        for first, second in product(before.tasks, after.tasks)
        for one in compare_runs(first, second)
    ]


def comparison_part(compared: Sequence[ComparedRuns]) -> Part:
    """Return the comparisons: their sentences, and a table of the answers that differ for each."""
    tables = [found for one in compared for found in _changed_answers(one)]
    return Part("Comparison of runs", tuple(one.sentence for one in compared), tuple(tables))


def _changed_answers(compared: ComparedRuns) -> Iterator[Table]:
    one = compared.comparison
    rows = [
        {
            "example": answer.example,
            "order": answer.order,
            "before": _shortened(answer.before),
            "after": _shortened(answer.after),
            "score": " to ".join(
                NONE if score is None else f"{score:.2g}"
                for score in (answer.score_before, answer.score_after)
            ),
        }
        for answer in one.changed[:MAX_ROWS]
    ]
    if rows:
        names = {"after": compared.after, "before": compared.before, "method": method_label(one.method)}
        counts = {"shown": len(rows), "total": len(one.changed)}
        yield table("changed_answers", rows, 2, metric=METRIC_LABELS[one.metric], **names, **counts)


def _shortened(answer: str | None) -> str:
    if answer is None:
        return "none parsed"
    text = " ".join(answer.split())
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
