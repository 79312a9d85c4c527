"""Published numbers of the paper as tables: next to local numbers of the same model, or else alone."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pine_engine.lab.debias.measured import method_label
from pine_engine.lab.evaluation.report.key_findings import SUBJECT
from pine_engine.lab.evaluation.report.published import PAPER, gains, published, published_model
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.report.tables import Part, Table, estimated, runs_of, table, task_label, text
from pine_engine.lab.evaluation.report.task_tables import old_weights, scenario_rows
from pine_engine.lab.evaluation.rewardbench import SECTION_OF, SECTIONS
from pine_engine.lab.evaluation.slots import CHANGED, FIRST, SECOND
from pine_engine.lab.evaluation.task_estimates import Row


def same_model(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield local and published RewardBench scores of each model that both have, then scores by subset."""
    lines: list[dict[str, str]] = []
    by_subset = []
    for run, _ in runs_of(task, runs):
        model = published_model(run.info.platform.model)
        rows = [row for row in scenario_rows(task, [run]) if row.metric == "generated"]
        if model is None or not any(row.subsets() for row in rows):
            continue
        for row in rows:
            scores = {name: estimated(old_weights(row, "section", name)) for name in SECTIONS}
            heads = {"whose": f"ours, {run.label}", "method": method_label(row.method), "scenario": row.part}
            lines.append({**heads, **scores, "total": estimated(old_weights(row, "total"))})
        changed = {"method": "vanilla", "setting": CHANGED, "where": "Table 4"}
        for theirs in chain(
            published("judge_scores"), ({**changed, **row} for row in published("changed_verdicts"))
        ):
            label = method_label(theirs["method"])
            line = {"whose": f"the paper, {model}", "method": label, "scenario": theirs["setting"],
                    **_sections(theirs, "total"), "where in the paper": theirs["where"]}  # fmt: skip
            if theirs["model"] == model and line not in lines:
                lines.append(line)
        by_subset.append(_same_subsets(run, model, rows))
    if lines:
        yield table("same_model", lines, 3, paper=PAPER)
    yield from by_subset


def _same_subsets(run: MeasuredRun, model: str, rows: Sequence[Row]) -> Table:
    theirs = [row for row in published("subset_scores") if row["model"] == model]
    ours = [row for row in rows if row.part not in (FIRST, SECOND, CHANGED)]
    lines = []
    for (subset, section), *scores in zip(
        SECTION_OF.items(), *(chain(*row["sections"]) for row in theirs), strict=True
    ):
        line = {"section": section, "subset": subset}
        for row in ours:
            if subset in row.subsets().get(section, ()):
                estimate = row.get("subset", section, subset)
                line[f"ours, {method_label(row.method)}, {row.part}"] = estimated(estimate)
        if len(line) > 2:
            for printed, score in zip(theirs, scores, strict=True):
                line[f"the paper, {method_label(printed['method'])}, {printed['setting']}"] = f"{score:.1f}"
            lines.append(line)
    return table("same_subsets", lines, 2, label=run.label, paper=PAPER, where=theirs[0]["where"])


def _sections(row: Mapping[str, Any], total: str = "average") -> dict[str, str]:
    """Return the published scores by section and in total."""
    values = (*row["sections"], row["average"])
    return {name: f"{value:.1f}" for name, value in zip((*SECTIONS, total), values, strict=True)}


def paper_part(tasks: Sequence[str], runs: Sequence[MeasuredRun]) -> Iterator[Part]:
    """Yield the numbers of the paper for these tasks: of models without a run, and those that need none."""
    tables: list[Table] = []
    sentences = [text("paper")]
    if "judge" in tasks:
        sentences.append(_shuffled_pairs())
        tables += _judge_tables(runs)
    if "molecule_generation" in tasks:
        tables.append(_molecule_table())
    remarks = [
        {"task": task_label(row["task"]), "model": row["model"], "result": row["text"],
         "where": row["where"]}
        for row in published("remarks")
        if row["task"] in tasks
    ]  # fmt: skip
    if remarks:
        tables.append(table("paper_remarks", remarks, 2, paper=PAPER))
    if tables:
        yield Part("The paper's own numbers (other models)", tuple(sentences), tuple(tables))


def _shuffled_pairs() -> str:
    reasoning = gains("Reasoning")
    below = [one for one in reasoning if one["is_below_both"]]
    shown = "{model} {on_shuffle:+.1f} on the shuffle, {on_mean:+.2f} on the mean"
    examples = "; ".join(shown.format(**one) for one in below[:2])
    counts = {"num_below": len(below), "num_models": len(reasoning)}
    return text("shuffled_pairs", paper=PAPER, examples=examples, **counts)


def _judge_tables(runs: Sequence[MeasuredRun]) -> list[Table]:
    ours = {published_model(run.info.platform.model) for run in runs}
    columns = {
        "model": "{model}",
        "RewardBench": "{part}",
        "better answer is A": "{first:.1f}",
        "is B": "{second:.1f}",
        "mean of both": "{mean:.2f}",
        "one shuffle": "{shuffled:.1f}",
        "PINE": "{pine:.1f}",
        "PINE less shuffle": "{on_shuffle:+.1f}",
        "PINE less mean": "{on_mean:+.2f}",
    }
    gain_lines = [
        {title: cell.format(**one) for title, cell in columns.items()}
        | {"shuffle below both": "yes" if one["is_below_both"] else "no"}
        for one in (*gains("Reasoning"), *gains("all sections"))
    ]
    scores = [
        {"model": row["model"], "method": method_label(row["method"]), "order": row["setting"],
         **_sections(row), "where": row["where"]}
        for row in published("judge_scores")
        if row["model"] not in ours
    ]  # fmt: skip
    changed = [{"model": row["model"], **_sections(row)} for row in published("changed_verdicts")]
    return [
        table("shuffle_and_mean", gain_lines, 2, paper=PAPER),
        table("paper_scores", scores, 3, paper=PAPER),
        table("paper_changed", changed, paper=PAPER),
    ]


def _molecule_table() -> Table:
    titles = {"alpha": "alpha", "homo": "HOMO", "lumo": "LUMO", "gap": "gap", "mu": "mu", "cv": "Cv"}
    lines = [
        {"method": method_label(row["method"]), **{titles[name]: f"{row[name]:g}" for name in titles}}
        for row in published("molecule_errors")
    ]
    return table("paper_molecules", lines, paper=PAPER)


def overhead_beside(runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield PINE's time over vanilla's for the tasks of the paper, nothing for no run of them."""
    lines = []
    for theirs in published("overheads"):
        label = task_label(theirs["task"])
        ours = [
            {"whose": f"ours, {run.label}", "task": label,
             "documents": ", ".join(map(str, found.num_documents)), "all": estimated(times),
             "prefill": estimated(found.get(SUBJECT, "cost", "prefill_ratio"))}
            for run, found in runs_of(theirs["task"], runs)
            if (times := found.get(SUBJECT, "cost", "ratio"))
        ]  # fmt: skip
        if ours:
            size, ratio = str(theirs["documents"]), f"about {theirs['ratio']:g}x"
            lines += [
                *ours,
                {"whose": "the paper, its models", "task": label, "documents": size, "all": ratio},
            ]
    if lines:
        yield table("paper_overhead", lines, 2, paper=PAPER)
