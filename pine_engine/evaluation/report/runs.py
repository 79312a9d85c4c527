"""Runs side by side: what was measured with what, its summary, and a short name for each."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pine_engine.errors import InputError
from pine_engine.evaluation.records import RunInfo, read_records, read_run
from pine_engine.evaluation.summary.summarize import Summary, summarize


@dataclass(frozen=True)
class MeasuredRun:
    """One folder of records. label: unlike that of any other run beside it."""

    label: str
    info: RunInfo
    summary: Summary


def read_runs(folders: Sequence[Path]) -> list[MeasuredRun]:
    """The runs in these folders. Raises InputError for one without a run, or without a finished example."""
    infos = [read_run(folder) for folder in folders]
    labels = run_labels(infos)
    return [
        MeasuredRun(label, info, _summary_of(folder))
        for folder, info, label in zip(folders, infos, labels, strict=True)
    ]


def _summary_of(folder: Path) -> Summary:
    try:
        return summarize(read_records(folder))
    except InputError as error:
        raise InputError(f"{folder} cannot be reported: {error}") from error


def run_labels(infos: Sequence[RunInfo]) -> list[str]:
    """A short name for each run: model and data, with more where those are not enough."""
    more: tuple[Callable[[RunInfo], str], ...] = (
        lambda info: info.platform.model.rstrip("/").rsplit("/", 1)[-1],
        lambda info: info.data.removesuffix(".jsonl"),
        lambda info: info.task,
        lambda info: info.platform.dtype,
        lambda info: info.platform.device,
        lambda info: info.started,
    )
    parts = [[part(info) for part in more] for info in infos]
    for used in range(2, len(more) + 1):
        labels = [", ".join(words[:used]) for words in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({number})" for number, label in enumerate(labels, start=1)]


def repeat_command(run: MeasuredRun) -> str:
    """What measures the same again, for a shell, where the data file is at hand; FOLDER is any new one."""
    info = run.info
    measured = [name for name, is_on in (("generate", info.generate), ("logprob", info.logprobs)) if is_on]
    options = {
        "task": info.task,
        "sample-seed": info.sample,
        "limit": sum(task.examples + task.left_out for task in run.summary.tasks),
        "methods": ",".join(info.methods),
        "orders": ",".join(info.order_names),
        "metrics": ",".join(measured),
        "max-new-tokens": info.max_new_tokens,
        "model": info.address,
        "dtype": info.platform.dtype,
        "device": info.platform.device,
    }
    given = [
        part for name, value in options.items() if value is not None for part in (f"--{name}", str(value))
    ]
    flags = ["--recompute"] if info.recompute else []
    return shlex.join(
        ["python", "-m", "pine_engine", "evaluate", info.data, *given, *flags, "--output-dir", "FOLDER"]
    )
