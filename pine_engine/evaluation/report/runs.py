"""Runs of a report: settings, estimates, and a short name of each run."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pine_engine.errors import InputError
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.records import RunInfo, read_records, read_run
from pine_engine.evaluation.task_estimates import TaskEstimates


@dataclass(frozen=True)
class MeasuredRun:
    """One folder of records. label: unique among the runs of a report."""

    label: str
    info: RunInfo
    tasks: tuple[TaskEstimates, ...]


def read_runs(folders: Sequence[Path]) -> list[MeasuredRun]:
    """Return the runs in these folders.

    Raises:
        InputError: A folder has no run, or no finished example.
    """
    infos = [read_run(folder) for folder in folders]
    return [
        MeasuredRun(label, info, _estimates_of(folder))
        for folder, info, label in zip(folders, infos, run_labels(infos), strict=True)
    ]


def _estimates_of(folder: Path) -> tuple[TaskEstimates, ...]:
    try:
        return estimate_tasks(read_records(folder))
    except InputError as error:
        raise InputError(f"{folder} cannot be reported: {error}") from error


def run_labels(infos: Sequence[RunInfo]) -> list[str]:
    """Return a short name for each run: model and data, with more settings where they are not unique."""
    settings: tuple[Callable[[RunInfo], str], ...] = (
        lambda info: info.platform.model.rstrip("/").rsplit("/", 1)[-1],
        lambda info: info.data.removesuffix(".jsonl"),
        lambda info: info.task,
        lambda info: info.platform.dtype,
        lambda info: info.platform.device,
        lambda info: info.started,
    )
    for count in range(2, len(settings) + 1):
        labels = [", ".join(setting(info) for setting in settings[:count]) for info in infos]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({number})" for number, label in enumerate(labels, start=1)]


def repeat_command(run: MeasuredRun) -> str:
    """Return the shell command that measures the run again into FOLDER, in the folder of the data file."""
    info = run.info
    measured = [name for name, is_on in (("generate", info.generate), ("logprob", info.logprobs)) if is_on]
    options = {
        "task": info.task,
        "sample-seed": info.sample,
        "limit": sum(len(task.grid.examples) + task.grid.left_out for task in run.tasks),
        "methods": ",".join(info.methods),
        "orders": ",".join(info.order_names),
        "metrics": ",".join(measured),
        "max-new-tokens": info.max_new_tokens,
        "model": info.address,
        "dtype": info.platform.dtype,
        "device": info.platform.device,
    }
    words = ["python", "-m", "pine_engine", "evaluate", info.data]
    for name, value in options.items():
        words += [] if value is None else [f"--{name}", str(value)]
    words += ["--recompute"] if info.recompute else []
    return shlex.join([*words, "--output-dir", "FOLDER"])
