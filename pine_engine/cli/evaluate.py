"""Subcommand `evaluate`: measure a dataset under several methods and document orders. Resumable."""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pine_engine.cli import output
from pine_engine.cli.download_data import file_sha256
from pine_engine.cli.options import (
    AsJson,
    Device,
    Dtype,
    Limit,
    MeasuredNames,
    ModelName,
    measured_names,
    split_names,
)
from pine_engine.engine.events import Event
from pine_engine.engine.model_worker import compute_on, raise_if_cancelled
from pine_engine.errors import Cancelled, InputError, WriteError
from pine_engine.evaluation.document_orders import AS_IS, ORDERS
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.examples import Example, read_examples
from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.records import (
    Record,
    RunInfo,
    Writer,
    dtype_of_run,
    open_run,
    read_records,
    run_info,
)
from pine_engine.evaluation.report.tables import TOO_FEW, UNPARSED
from pine_engine.evaluation.settings import Settings, choose
from pine_engine.evaluation.shards import (
    Shard,
    device_of_shard,
    is_main_process,
    is_running,
    lock_shard,
    parse_shard,
    stop_on_signals,
    try_lock,
)
from pine_engine.evaluation.task_estimates import Row, TaskEstimates, nested

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine

METRICS = ("generate", "logprob")


def evaluate(
    data: Path,
    output_dir: Annotated[Path, typer.Option()],
    task: str | None = None,
    methods: MeasuredNames = None,
    orders: Annotated[
        str, typer.Option(help=f"Document orders, separated by commas, of: {', '.join(ORDERS)}.")
    ] = AS_IS,
    limit: Limit = None,
    sample_seed: int | None = None,
    metrics: str = ",".join(METRICS),
    max_new_tokens: Limit = None,
    recompute: bool = False,
    shard: str | None = None,
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Evaluate a dataset: one record per example, method and document order. Resumes an interrupted run.

    Args:
        data: JSONL or CSV file, one example per line.
        output_dir: Folder for the records. An interrupted run in this folder is resumed.
        task: Prompt template. Overrides the task of each example.
        methods: Names of methods and wrapped methods.
        orders: Names of document orders.
        limit: Maximum number of examples. Default: all.
        sample_seed: Seed of a random sample of examples. Default: the first examples.
        metrics: generate: generated answers are scored. logprob: log-probabilities of the accepted answer and
            of the choices. Or both, separated by a comma.
        max_new_tokens: Maximum length of an answer, in tokens. Default: that of the task.
        recompute: Also compute records that cannot depend on the document order.
        shard: Part of the examples, i/n, such as 0/4: every n-th example, beginning with example i. Default:
            that of this process under accelerate launch or torchrun, otherwise all examples.
        model: Model to evaluate.
        dtype: Dtype of the model.
        device: Device of the model.
        as_json: Print JSON.
    """
    try:
        part = parse_shard(shard)
        examples = _read(data, task, limit, sample_seed)
        chosen = split_names(metrics) or []
        if unknown := sorted(set(chosen) - set(METRICS)):
            raise InputError(f"unknown metric {unknown[0]!r}; choose from: {', '.join(METRICS)}")
        settings = choose(
            examples,
            methods=measured_names(methods),
            order_names=split_names(orders) or [],
            generate="generate" in chosen,
            logprobs="logprob" in chosen,
            max_new_tokens=max_new_tokens,
            recompute=recompute,
            sample=sample_seed,
        )
        device = device_of_shard(device, part)
    except InputError:
        if is_main_process():
            raise
        raise typer.Exit(output.BAD_INPUT) from None  # the main process shows the same error

    share = part.select(examples)
    shown = examples if part.is_launched else share
    with ExitStack() as opened:
        if not opened.enter_context(lock_shard(output_dir, part)):
            output.print_note(
                f"{output_dir} is on a file system without locks; start no second run in it while this one "
                "writes"
            )
        output.stderr.quiet = not is_main_process()
        with ExitStack() as first:  # one process selects the dtype of a new run for all others
            run_dtype = dtype_of_run(output_dir) if dtype == "auto" else dtype
            if run_dtype is None and (lock := try_lock(output_dir / "run.lock", timeout_s=-1)):
                first.callback(lock.release)
                if run_dtype := dtype_of_run(output_dir):
                    first.close()
            engine = output.load(model, run_dtype or "auto", device, needs_tokenizer=True)
            about = run_info(settings, engine, data=data.name, data_sha256=file_sha256(data))
            info = open_run(output_dir, about)
        started = time.perf_counter()
        try:
            with stop_on_signals() as stopped:
                _measure(engine, examples, share, settings, output_dir, part, stopped)
                if part.is_launched and part.index == 0:
                    while _read_planned(output_dir, examples, settings)[1]:
                        stopped.wait(1)
                        if stopped.is_set() or not is_running(output_dir, part):
                            break
                raise_if_cancelled(stopped)
        except (Cancelled, KeyboardInterrupt):
            kept = _count_kept(output_dir, shown, settings)
            output.print_note(f"stopped: {kept}; run the same command again to resume")
            raise typer.Exit(output.STOPPED) from None
        except WriteError as error:
            output.stderr.quiet = False  # only this process knows the reason
            kept = _count_kept(output_dir, shown, settings)
            output.print_note(f"{error}; {kept}; run the same command again when it can be written")
            raise typer.Exit(output.FAILED) from None
    if part.index == 0 or not part.is_launched:
        seconds = time.perf_counter() - started
        _print_summary(output_dir, info, shown, settings, seconds=seconds, as_json=as_json)


def _read(data: Path, task: str | None, limit: int | None, sample_seed: int | None) -> list[Example]:
    examples = read_examples(data, limit, sample_seed)
    if task is not None:
        return [example.with_task(task) for example in examples]
    tasks = dict.fromkeys(example.task for example in examples)
    if len(tasks) > 1:
        raise InputError(f"{data} has examples of {' and '.join(tasks)}; give --task, or a file for each")
    return examples


def _measure(
    engine: "Engine",
    examples: Sequence[Example],
    share: Sequence[Example],
    settings: Settings,
    output_dir: Path,
    shard: Shard,
    stopped: threading.Event,
) -> None:
    """Measure the examples of this process, and append their records to its file."""
    from pine_engine.evaluation.measure import Measurement

    planned = settings.keys(share)
    with Writer(output_dir, shard.index) as writer:
        found = read_records(output_dir)
        done = {record.key for record in found}
        with output.progress(len(planned), len(planned.keys() & done)) as advance:

            def keep(item: Event | Record) -> None:
                if isinstance(item, Record):
                    writer.append(item)
                    advance(f"{item.example}: {item.method}, {item.order_name}")

            measurement = Measurement(engine, share, settings, found, examples)
            compute_on(engine.device, lambda: measurement.work(keep, stopped))


def _read_planned(
    output_dir: Path, examples: Sequence[Example], settings: Settings
) -> tuple[list[Record], int]:
    """Return the existing records of these examples and the number of missing ones."""
    planned = settings.keys(examples)
    records = [record for record in read_records(output_dir) if record.key in planned]
    return records, len(planned) - len(records)


def _count_kept(output_dir: Path, examples: Sequence[Example], settings: Settings) -> str:
    records, missing = _read_planned(output_dir, examples, settings)
    return f"{len(records)} of {len(records) + missing} records are in {output_dir}"


def _print_summary(
    output_dir: Path,
    info: RunInfo,
    examples: Sequence[Example],
    settings: Settings,
    *,
    seconds: float,
    as_json: bool,
) -> None:
    """Print the summary and what is missing; exit with status 1 if records are missing."""
    records, missing = _read_planned(output_dir, examples, settings)
    errors = [record for record in records if record.error]
    tasks: tuple[TaskEstimates, ...] = ()
    reason = None
    try:
        tasks = estimate_tasks(records)
    except InputError as error:
        reason = str(error)
    report = {
        "folder": str(output_dir),
        "dtype": info.platform.dtype,
        "run": info.model_dump(mode="json"),
        "records": len(records),
        "computed": sum(record.was_computed for record in records),
        "errors": len(errors),
        "missing": missing,
        "wall_s": seconds,
        "seconds": sum(record.seconds for record in records),
        "summary": nested(tasks) if tasks else None,
    }
    if tasks or as_json:
        rows = [
            _row(row)
            for task in tasks
            for method in task.grid.methods
            for row in task.rows()
            if row.method == method
        ]
        output.print_report(report, as_json, rows)
    if errors:
        output.print_note(
            f"{len(errors)} of {len(records)} records have an error, such as: {errors[0].error}"
        )
    if missing:
        output.print_note(
            f"{missing} records are missing because a process died; run the same command again to resume"
        )
    if reason:
        output.print_note(reason)
    if missing or reason:
        raise typer.Exit(output.FAILED)


def _row(row: Row) -> dict[str, Any]:
    """Return the mean of a metric over all orders, and in the worst and best order."""
    mean, unparsed, changed = row.mean, row.get("unparsed"), row.get("changed")
    line: dict[str, Any] = {
        "method": row.method,
        "metric": row.metric,
        "examples": mean.num_examples,
        "mean [95 %]": _interval(mean) if mean.is_parsed else UNPARSED,
    }
    if unparsed and unparsed.mean:
        line["unparsed"] = unparsed.mean
    orders = row.means("order", row.task.grid.orders)
    if len(orders) > 1:
        for key, name in zip(("worst", "best"), row.extreme_orders(), strict=True):
            line[key] = f"{orders[name].mean:.3f} {name}" if mean.is_parsed else None
        line["changes"] = changed and changed.mean
    seconds = row.task.get(row.method, "cost", "seconds")
    return line | {"time, s": seconds and seconds.mean}


def _interval(estimate: Estimate) -> str:
    if estimate.interval is None:
        return f"{estimate.mean:.3f} [{TOO_FEW}]"
    low, high = estimate.interval
    return f"{estimate.mean:.3f} [{low:.3f}, {high:.3f}]"
