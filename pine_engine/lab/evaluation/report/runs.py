"""Runs of a report: settings, estimates, a short name of each run, and the command that repeats it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pine_engine.errors import InputError
from pine_engine.lab.evaluation.cautions import scoring_rules
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.run_files import read_records, read_run
from pine_engine.lab.evaluation.settings import RunInfo
from pine_engine.prompts.tasks import TASKS

NONE = "–"  # cell of a value that was not measured


@dataclass(frozen=True)
class MeasuredRun:
    """One folder of records. label: unique among the runs of a report."""

    label: str
    info: RunInfo
    tasks: tuple[Grid, ...]


def read_runs(folders: Sequence[Path]) -> list[MeasuredRun]:
    """Return the runs in these folders. Raises InputError for a folder without a finished example."""
    infos = [read_run(folder) for folder in folders]
    runs = []
    for folder, info, label in zip(folders, infos, run_labels(infos), strict=True):
        try:
            runs.append(MeasuredRun(label, info, estimate_tasks(read_records(folder))))
        except InputError as error:
            raise InputError(f"{folder} cannot be reported: {error}") from error
    return runs


def run_labels(infos: Sequence[RunInfo]) -> list[str]:
    """Return a short name for each run: model and data, with more settings where they are not unique."""
    settings = [
        (
            info.platform.model.rstrip("/").rsplit("/", 1)[-1],
            info.data.removesuffix(".jsonl"),
            info.task,
            info.platform.dtype,
            info.platform.device,
            info.started,
        )
        for info in infos
    ]
    for count in range(2, 7):
        labels = [", ".join(setting[:count]) for setting in settings]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({number})" for number, label in enumerate(labels, start=1)]


def settings_of(run: MeasuredRun) -> dict[str, str]:
    """Return the settings of a run by name, as in the table of runs."""
    info, platform, grids = run.info, run.info.platform, run.tasks
    max_new_tokens = info.max_new_tokens or TASKS[info.task].max_new_tokens
    return {
        "model": platform.model,
        "revision": platform.revision or NONE,
        "dtype": platform.dtype,
        "device": info.model.place,
        "data": info.data,
        "SHA-256 of the data": info.data_sha256,
        "rows": "the first" if info.sample is None else f"drawn with seed {info.sample}",
        "task": info.task,
        "examples": ", ".join(str(len(grid.examples)) for grid in grids),
        "documents": ", ".join(from_to(grid.num_documents) for grid in grids),
        "left out": ", ".join(f"{grid.left_out} examples, {grid.failed} failed records" for grid in grids),
        "methods": ", ".join(info.methods),
        "orders": ", ".join(info.order_names),
        "verdict": info.verdict if TASKS[info.task].choice else NONE,
        "scoring": ", ".join(dict.fromkeys(rule for grid in grids for rule in scoring_rules(grid))),
        "longest answer": f"{max_new_tokens} tokens" if info.generate else NONE,
        "started": info.started,
        "versions": f"PINE Explorer {platform.pine_explorer}, torch {platform.torch}, "
        f"transformers {platform.transformers}, Python {platform.python}",
    }


def from_to(numbers: Sequence[int]) -> str:
    """Return the range of numbers: "2", "10 to 20"."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def repeat_command(run: MeasuredRun) -> str:
    """Return the shell command that measures the run again into FOLDER, in the folder of the data file."""
    info = run.info
    metrics = [name for name, is_on in (("generate", info.generate), ("logprob", info.logprobs)) if is_on]
    options = {
        "task": info.task,
        "sample-seed": info.sample,
        "limit": sum(len(task.examples) + task.left_out for task in run.tasks),
        "methods": ",".join(info.methods),
        "orders": ",".join(info.order_names),
        "metrics": ",".join(metrics),
        "max-new-tokens": info.max_new_tokens,
        "verdict": None if info.verdict == "last" else info.verdict,
        **info.model.options,
    }
    words = ["python", "-m", "pine_engine", "evaluate", info.data]
    for name, value in options.items():
        words += [] if value is None else [f"--{name}", str(value)]
    words += ["--recompute"] if info.recompute else []
    return shlex.join([*words, "--output-dir", "FOLDER"])
