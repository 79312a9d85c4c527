"""The paper's published numbers as tables: beside ours where the model is the same, else apart."""

from collections.abc import Sequence

from pine_engine.evaluation.entries import entries, summaries
from pine_engine.evaluation.findings import SUBJECT
from pine_engine.evaluation.method_names import method_label
from pine_engine.evaluation.published import (
    CHANGED_VERDICTS,
    JUDGE_SCORES,
    MOLECULE_ERRORS,
    OVERHEADS,
    PAPER,
    REMARKS,
    gains,
    judge_scores,
    published_model,
)
from pine_engine.evaluation.runs import Run
from pine_engine.evaluation.tables import NONE, Part, Table, measured, task_label

THEIRS = "the paper"

_SECTIONS = ("Chat", "Chat Hard", "Safety", "Reasoning")


def same_model(task: str, runs: Sequence[Run]) -> Table | None:
    """Ours and the paper's on RewardBench for each model that both have; None if there is none."""
    rows = []
    for run, _ in summaries(task, runs):
        model = published_model(run.info.platform.model)
        if model is None or not any(entry.measure.sections for entry in entries(task, [run])):
            continue
        for entry in entries(task, [run]):
            measure = entry.measure
            values = {one.name: one.value for one in measure.sections_v0_1_1 or measure.sections}
            if measure.kind == "generated":
                cells = [entry.written(values.get(name)) for name in _SECTIONS]
                total = entry.written(measure.total_v0_1_1 or measure.total)
                rows.append((f"ours, {run.label}", entry.heads[-1], "mean over orders", *cells, total, NONE))
        for row in judge_scores(model):
            cells = [f"{row.sections[name]:.1f}" for name in _SECTIONS]
            average = f"{row.average:.1f}"
            rows.append(
                (f"{THEIRS}, {model}", method_label(row.method), row.setting, *cells, average, row.where)
            )
    if not rows:
        return None
    return Table(
        title="Ours beside the paper's, same model",
        columns=("whose", "method", "order", *_SECTIONS, "total", "where in the paper"),
        rows=tuple(dict.fromkeys(rows)),
        heads=3,
        note=(
            f"Accuracy in %, with the subset weights of RewardBench v0.1.1. Rows that begin with “{THEIRS}” "
            f"are published, without intervals: {PAPER}."
        ),
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


def paper_part(runs: Sequence[Run]) -> Part:
    """All numbers of the paper whose model none of these runs has, and those that need none."""
    ours = {published_model(run.info.platform.model) for run in runs}
    source = f"Source: {PAPER}"
    scores = Table(
        title="RewardBench",
        columns=("model", "method", "order", *_SECTIONS, "average", "where"),
        rows=tuple(
            (
                row.model,
                method_label(row.method),
                row.setting,
                *(f"{row.sections[name]:.1f}" for name in _SECTIONS),
                f"{row.average:.1f}",
                row.where,
            )
            for row in JUDGE_SCORES
            if row.model not in ours
        ),
        heads=3,
        note=f"Accuracy in %, with the subset weights of RewardBench v0.1.1. {source}.",
    )
    changed = Table(
        title="Verdicts that change when the answers are swapped, vanilla",
        columns=("model", *_SECTIONS, "average"),
        rows=tuple(
            (
                one.model,
                *(f"{value:.1f}" for value in (one.chat, one.chat_hard, one.safety, one.reasoning)),
                f"{one.average:.1f}",
            )
            for one in CHANGED_VERDICTS
        ),
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
            for one in MOLECULE_ERRORS
        ),
        note=f"Of a model of their own, as printed. {source}, Table 3.",
    )
    remarks = Table(
        title="In words",
        columns=("task", "model", "what it says", "where"),
        rows=(
            *((task_label(one.task), one.model, one.text, one.where) for one in REMARKS),
            *(
                (
                    task_label(one.task),
                    NONE,
                    f"PINE takes about {one.ratio:g}x vanilla's time with {one.documents} documents",
                    "section 4.5",
                )
                for one in OVERHEADS
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


def overhead_beside(runs: Sequence[Run]) -> Table | None:
    """PINE's time over vanilla's, ours beside the paper's for the tasks where it gives one."""
    rows = []
    for one in OVERHEADS:
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
