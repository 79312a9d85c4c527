"""What a judge's verdicts say: accuracy by scenario, section and subset, and what each swap does to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pine_engine.evaluation.report.method_rows import HEADS, MethodRow, method_rows
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import Table, estimated
from pine_engine.evaluation.summary.intervals import Estimate
from pine_engine.evaluation.summary.results import SectionValue
from pine_engine.prompts.tasks import get_task

OVER_ORDERS = "mean over orders"

SCENARIOS_NOTE = (
    "“Better answer is A”: it stands first and bears that letter. A verdict changes if it names the other "
    "answer once both are swapped, with their letters; that row has the share of such pairs, of those "
    "of which both verdicts can be read."
)


@dataclass(frozen=True)
class ScenarioRow:
    """A method of a run in one scenario, or over all orders. old_sections, old_total: weights of v0.1.1."""

    method_row: MethodRow
    name: str
    value: Estimate
    sections: tuple[SectionValue, ...]
    total: Estimate | None
    old_sections: tuple[SectionValue, ...]
    old_total: Estimate | None

    @property
    def heads(self) -> tuple[str, ...]:
        """What names its row."""
        return *self.method_row.heads, self.name

    def counted(self, estimate: Estimate | None) -> str:
        """With n, where it is another in each column."""
        written = self.method_row.written(estimate)
        if estimate is None or not estimate.is_read:
            return written
        return f"{written}, n = {estimate.n}"


def scenario_rows(task: str, runs: Sequence[MeasuredRun]) -> Iterator[ScenarioRow]:
    """Every method in each scenario; first over all orders, unless those are the two of the scenarios."""
    for method_row in method_rows(task, runs):
        measure = method_row.measure
        if measure.mean not in [one.value for one in measure.scenarios]:
            yield ScenarioRow(
                method_row,
                OVER_ORDERS,
                measure.mean,
                measure.sections,
                measure.total,
                measure.sections_v0_1_1 or measure.sections,
                measure.total_v0_1_1 or measure.total,
            )
        for one in measure.scenarios:
            yield ScenarioRow(
                method_row,
                one.name,
                one.value,
                one.sections,
                one.total,
                one.sections_v0_1_1 or one.sections,
                one.total_v0_1_1 or one.total,
            )


def scenario_results(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """A judge's scenarios by section, as the paper's Tables 1, 2, 4, 5 and 6; None if it has neither.

    Data without sections have a column for all pairs.
    """
    rows = list(scenario_rows(task, runs))
    names = list(dict.fromkeys(one.name for row in rows for one in row.sections))
    has_scenarios = any(row.name != OVER_ORDERS for row in rows)
    if not names and not has_scenarios:
        return None
    old = [name for name in names if any(_weighs_otherwise(row, name) for row in rows)]
    note = (
        "A section is the mean of its subsets by their weights, the total the plain mean of the sections. "
        "Weights are those of RewardBench after v0.1.1 if nothing else is said."
    )
    return Table(
        title="Scenarios by section" if names else "Scenarios",
        columns=(
            *(*HEADS, "scenario", *(names or ["all pairs"]), *(["total"] if names else [])),
            *(f"{name}, weights of v0.1.1" for name in old),
            *(["total, weights of v0.1.1"] if old else []),
        ),
        rows=tuple(
            (
                *row.heads,
                *(row.counted(section_value(row.sections, name)) for name in names),
                row.method_row.written(row.total) if names else row.counted(row.value),
                *(row.counted(section_value(row.old_sections, name)) for name in old),
                *([row.method_row.written(row.old_total)] if old else []),
            )
            for row in rows
        ),
        heads=len(HEADS) + 1,
        note=" ".join(([SCENARIOS_NOTE] if has_scenarios else []) + ([note] if names else [])),
    )


def subset_results(task: str, runs: Sequence[MeasuredRun]) -> tuple[Table, ...]:
    """For each section the accuracy by subset in each scenario, as the paper's Tables 7 to 15."""
    rows = [row for row in scenario_rows(task, runs) if row.method_row.measure.kind != "logprob"]
    names = dict.fromkeys(one.name for row in rows for one in row.sections)
    return tuple(_subsets_of(name, rows) for name in names)


def _subsets_of(section: str, rows: Sequence[ScenarioRow]) -> Table:
    found = [
        (row, {subset.name: subset for one in row.sections if one.name == section for subset in one.subsets})
        for row in rows
    ]
    weights = {subset.name: subset.weight for _, subsets in found for subset in subsets.values()}
    return Table(
        title=f"{section}: its subsets",
        columns=(*HEADS, "scenario", *weights),
        rows=tuple(
            (
                *row.heads,
                *(row.counted(subsets[name].value if name in subsets else None) for name in weights),
            )
            for row, subsets in found
            if subsets
        ),
        heads=len(HEADS) + 1,
        note=f"Weights: {', '.join(f'{name} {weight:g}' for name, weight in weights.items())}.",
    )


def section_value(sections: Sequence[SectionValue], name: str) -> Estimate | None:
    """What a section of that name has, None if there is none."""
    return next((one.value for one in sections if one.name == name), None)


def _weighs_otherwise(row: ScenarioRow, name: str) -> bool:
    return section_value(row.sections, name) != section_value(row.old_sections, name)


def position_bias(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """What each order_name does to a judge's verdicts; None for a task without letters."""
    if not get_task(task).has_letters:
        return None
    rows = [
        (
            *row.heads,
            one.name,
            str(one.value.n),
            row.written(one.value),
            estimated(one.changed),
            estimated(one.says_a),
            estimated(one.says_first),
            estimated(one.unparsed),
        )
        for row in method_rows(task, runs)
        if row.measure.kind != "logprob"
        for one in row.measure.order_names
    ]
    return Table(
        title="Position bias",
        columns=(
            *HEADS,
            "order",
            "n",
            "accuracy",
            "other verdict than as stored, %",
            "says A, %",
            "names the first, %",
            "no verdict, %",
        ),
        rows=tuple(rows),
        heads=len(HEADS) + 1,
        note=(
            "A verdict is the answer that it names, whatever letter that bears. It is compared where the "
            "answers stand otherwise than in the data, and both verdicts can be read. segments-swapped moves "
            "the answers and leaves them their letters, labels-swapped the other way round, swapped does "
            "both, as a user would. A method without position bias has 0.0 under segments-swapped; under the "
            "others its documents have another text. “Names the first”: the answer that stands first, "
            "whatever its letter."
        ),
    )
