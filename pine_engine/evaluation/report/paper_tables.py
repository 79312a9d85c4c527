"""The paper's published numbers as tables: beside ours where the model is the same, else apart."""

from collections.abc import Sequence

from pine_engine.evaluation.report.findings import SUBJECT
from pine_engine.evaluation.report.judge_tables import scenario_rows, section_value
from pine_engine.evaluation.report.method_rows import method_rows, summaries
from pine_engine.evaluation.report.published import (
    PAPER,
    SECTIONS,
    SectionScores,
    gains,
    published,
    published_model,
)
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import NONE, Part, Table, measured, task_label
from pine_engine.evaluation.rewardbench import SUBSETS
from pine_engine.evaluation.summary.method_names import method_label
from pine_engine.evaluation.summary.scenarios import CHANGED, FIRST, SECOND

THEIRS = "the paper"


def same_model(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Ours and the paper's on RewardBench for each model that both have; None if there is none."""
    rows = []
    for run, model in _shared(task, runs):
        for row in scenario_rows(task, [run]):
            if row.method_row.measure.kind == "generated":
                cells = [row.method_row.written(section_value(row.old_sections, name)) for name in SECTIONS]
                total = row.method_row.written(row.old_total)
                rows.append((f"ours, {run.label}", row.method_row.heads[-1], row.name, *cells, total, NONE))
        theirs = [
            *((row.method, row.setting, row, row.where) for row in published().judge_scores),
            *(("vanilla", CHANGED, row, "Table 4") for row in published().changed_verdicts),
        ]
        rows += [
            (f"{THEIRS}, {model}", method_label(method), setting, *_percents(row), where)
            for method, setting, row, where in theirs
            if row.model == model
        ]
    if not rows:
        return None
    return Table(
        title="Ours beside the paper's, same model",
        columns=("whose", "method", "scenario", *SECTIONS, "total", "where in the paper"),
        rows=tuple(dict.fromkeys(rows)),
        heads=3,
        note=(
            "Accuracy in %, or the share of verdicts that change, with the weights of RewardBench v0.1.1. "
            f"Rows that begin with “{THEIRS}” are published, without intervals: {PAPER}."
        ),
    )


def _percents(row: SectionScores) -> tuple[str, ...]:
    """Its sections and their average."""
    return *(f"{value:.1f}" for value in row.sections), f"{row.average:.1f}"


def same_subsets(task: str, runs: Sequence[MeasuredRun]) -> tuple[Table, ...]:
    """Ours and the paper's by subset, a table for each run of a model that both have."""
    return tuple(_subsets_beside(task, run, model) for run, model in _shared(task, runs))


def _shared(task: str, runs: Sequence[MeasuredRun]) -> list[tuple[MeasuredRun, str]]:
    """The runs that have sections of this task, of models that the paper has, with its name of them."""
    return [
        (run, model)
        for run, _ in summaries(task, runs)
        if (model := published_model(run.info.platform.model)) is not None
        and any(method_row.measure.sections for method_row in method_rows(task, [run]))
    ]


def _subsets_beside(task: str, run: MeasuredRun, model: str) -> Table:
    ours = [
        row
        for row in scenario_rows(task, [run])
        if row.method_row.measure.kind == "generated" and row.name not in (FIRST, SECOND, CHANGED)
    ]
    theirs = [row for row in published().subset_scores if row.model == model]
    rows = []
    for subset in SUBSETS:
        values = [
            next(
                (part.value for one in row.sections for part in one.subsets if part.name == subset.name), None
            )
            for row in ours
        ]
        if any(value is not None for value in values):
            printed = (row.by_subset[subset.name] for row in theirs)
            cells = [row.method_row.written(value) for row, value in zip(ours, values, strict=True)]
            rows.append((subset.section, subset.name, *cells, *(f"{value:.1f}" for value in printed)))
    return Table(
        title=f"Ours beside the paper's by subset: {run.label}",
        columns=(
            *("section", "subset"),
            *(f"ours, {row.method_row.heads[-1]}, {row.name}" for row in ours),
            *(f"{THEIRS}, {method_label(row.method)}, {row.setting}" for row in theirs),
        ),
        rows=tuple(rows),
        heads=2,
        note=f"Accuracy in %. {THEIRS.capitalize()}’s: {PAPER}, {theirs[0].where}.",
    )


def shuffle_and_mean() -> Table:
    """What the paper's gain is on a single shuffle, and on the mean of the two orders it is drawn from."""
    return Table(
        title="The paper's gain: on one shuffle, and on the mean of both orders",
        columns=(
            *("model", "RewardBench", "better answer is A", "is B", "mean of both", "one shuffle", "PINE"),
            *("PINE less shuffle", "PINE less mean", "shuffle below both"),
        ),
        rows=tuple(
            (
                one.model,
                one.part,
                *(f"{value:.1f}" for value in (one.first, one.second)),
                f"{one.mean:.2f}",
                f"{one.shuffled:.1f}",
                f"{one.pine:.1f}",
                f"{one.on_shuffle:+.1f}",
                f"{one.on_mean:+.2f}",
                "yes" if one.is_below_both else "no",
            )
            for one in gains()
        ),
        heads=2,
        note=(
            f"{PAPER}, Tables 1 and 5, in %; the mean and the last three columns are computed from them. A "
            "shuffle draws one of the two orders for each pair, so that it is expected at their mean. Where "
            "it lies below both of them, most of the gain on it is not PINE's."
        ),
    )


def paper_part(runs: Sequence[MeasuredRun]) -> Part:
    """All numbers of the paper whose model none of these runs has, and those that need none."""
    ours = {published_model(run.info.platform.model) for run in runs}
    source = f"Source: {PAPER}"
    scores = Table(
        title="RewardBench",
        columns=("model", "method", "order", *SECTIONS, "average", "where"),
        rows=tuple(
            (row.model, method_label(row.method), row.setting, *_percents(row), row.where)
            for row in published().judge_scores
            if row.model not in ours
        ),
        heads=3,
        note=f"Accuracy in %, with the subset weights of RewardBench v0.1.1. {source}.",
    )
    changed = Table(
        title="Verdicts that change when the answers are swapped, vanilla",
        columns=("model", *SECTIONS, "average"),
        rows=tuple((row.model, *_percents(row)) for row in published().changed_verdicts),
        note=(
            f"In % of RewardBench. {source}, Table 4. Its row of Qwen1.5-1.8B-Chat is left out: as it was "
            "transcribed, its average is not the mean of its sections."
        ),
    )
    molecules = Table(
        title="Molecules: mean absolute errors",
        columns=("method", "alpha", "HOMO", "LUMO", "gap", "mu", "Cv"),
        rows=tuple(
            (
                method_label(one.method),
                *(f"{value:g}" for value in (one.alpha, one.homo, one.lumo, one.gap, one.mu, one.cv)),
            )
            for one in published().molecule_errors
        ),
        note=f"Of a model of their own, as printed. {source}, Table 3.",
    )
    remarks = Table(
        title="In words",
        columns=("task", "model", "what it says", "where"),
        rows=(
            *((task_label(one.task), one.model, one.text, one.where) for one in published().remarks),
            *(
                (
                    task_label(one.task),
                    NONE,
                    f"PINE takes about {one.ratio:g}x vanilla's time with {one.documents} documents",
                    "section 4.5",
                )
                for one in published().overheads
            ),
        ),
        heads=2,
        note=f"{source}.",
    )
    return Part(
        heading="The paper's own numbers (other models)",
        sentences=(
            "None of these was measured here, and none has an interval. They were read in a public "
            "transcription of the paper, and checked for agreement with themselves.",
        ),
        tables=(shuffle_and_mean(), scores, changed, molecules, remarks),
    )


def overhead_beside(runs: Sequence[MeasuredRun]) -> Table | None:
    """PINE's time over vanilla's, ours beside the paper's for the tasks where it gives one."""
    rows = []
    for one in published().overheads:
        for run, summary in summaries(one.task, runs):
            for method in summary.methods:
                if method.method == SUBJECT and method.cost.ratio is not None:
                    documents = ", ".join(map(str, summary.num_documents))
                    ratio = measured(method.cost.ratio, "x")
                    prefill = measured(method.cost.prefill_ratio, "x")
                    rows.append((f"ours, {run.label}", task_label(one.task), documents, ratio, prefill))
        if rows and rows[-1][1] == task_label(one.task):
            rows.append(
                (
                    f"{THEIRS}, its models",
                    task_label(one.task),
                    str(one.documents),
                    f"about {one.ratio:g}x",
                    NONE,
                )
            )
    if not rows:
        return None
    return Table(
        title="PINE's time over vanilla's, beside the paper's",
        columns=("whose", "task", "documents", "all", "prefill"),
        rows=tuple(rows),
        heads=2,
        note=f"The paper's: wall time of the authors' code on their models and GPUs. {PAPER}, section 4.5.",
    )
