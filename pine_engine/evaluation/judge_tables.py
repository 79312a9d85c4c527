"""What a judge's verdicts say: accuracy by section, and what swapping the answers does to them."""

from collections.abc import Sequence

from pine_engine.evaluation.entries import HEADS, Entry, entries
from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.runs import Run
from pine_engine.evaluation.tables import NONE, Table, estimated
from pine_engine.tasks import get_task


def section_results(task: str, runs: Sequence[Run]) -> Table | None:
    """A judge's sections, and their plain mean; None if no data set has any."""
    found = [row for row in entries(task, runs) if row.measure.sections]
    if not found:
        return None
    names = list(dict.fromkeys(one.name for row in found for one in row.measure.sections))
    is_other = {
        name: any(
            _section(row, name) != _old_section(row, name) for row in found if row.measure.sections_v0_1_1
        )
        for name in names
    }
    old = [name for name in names if is_other[name]]
    rows = [
        (
            *row.heads,
            *(_counted(row, _section(row, name)) for name in names),
            row.written(row.measure.total),
            *(_counted(row, _old_section(row, name)) for name in old),
            *([row.written(row.measure.total_v0_1_1 or row.measure.total)] if old else []),
        )
        for row in found
    ]
    return Table(
        title="Sections",
        columns=(
            *(*HEADS, *names, "total"),
            *(f"{name}, weights of v0.1.1" for name in old),
            *(["total, weights of v0.1.1"] if old else []),
        ),
        rows=tuple(rows),
        heads=len(HEADS),
        note=(
            "Means over orders. A section is the mean of its subsets by their weights, the total the plain "
            "mean of the sections. Weights are those of RewardBench after v0.1.1 if nothing else is said."
        ),
    )


def position_bias(task: str, runs: Sequence[Run]) -> Table | None:
    """What each arrangement does to a judge's verdicts; None for a task without letters."""
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
            estimated(one.unread),
        )
        for row in entries(task, runs)
        if row.measure.kind != "logprob"
        for one in row.measure.arrangements
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
            "answers stand otherwise than in the data. segments-swapped moves the answers and leaves them "
            "their letters, labels-swapped the other way round, swapped does both, as a user would. A method "
            "without position bias has 0.0 under segments-swapped; under the others its documents have "
            "another text. “Names the first”: the answer that stands first, whatever its letter."
        ),
    )


def _counted(row: Entry, estimate: Estimate | None) -> str:
    """With n, where it is another in each column."""
    return NONE if estimate is None else f"{row.written(estimate)}, n = {estimate.n}"


def _section(row: Entry, name: str) -> Estimate | None:
    return next((one.value for one in row.measure.sections if one.name == name), None)


def _old_section(row: Entry, name: str) -> Estimate | None:
    sections = row.measure.sections_v0_1_1 or row.measure.sections
    return next((one.value for one in sections if one.name == name), None)
