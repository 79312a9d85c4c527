"""The verb `evaluate`: measures a data set under several methods and orders, and goes on where it stopped."""

import hashlib
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pine_engine.console import terminal
from pine_engine.console.exit_status import BAD_INPUT, FAILED, STOPPED
from pine_engine.console.options import AsJson, Device, Dtype, MeasuredNames, ModelName, measured_names
from pine_engine.errors import Cancelled, InputError, WriteError
from pine_engine.evaluation.order_names import AS_IS, ORDERS
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

if TYPE_CHECKING:
    import threading

    from pine_engine.engine.engine import Engine
    from pine_engine.engine.events import Event
    from pine_engine.evaluation.examples import Example
    from pine_engine.evaluation.intervals import Estimate
    from pine_engine.evaluation.records import Record, RunInfo
    from pine_engine.evaluation.settings import Settings
    from pine_engine.evaluation.task_estimates import Row, TaskEstimates

KINDS = ("generate", "logprob")


def evaluate(
    data: Annotated[Path, typer.Argument(help="JSONL or CSV, one example a line.")],
    output_dir: Annotated[
        Path, typer.Option(help="Folder for the records; a run that was stopped goes on there.")
    ],
    task: Annotated[str | None, typer.Option(help="What the rows are asked as; else what they say.")] = None,
    methods: MeasuredNames = None,
    orders: Annotated[str, typer.Option(help=f"Separated by commas, of: {', '.join(ORDERS)}.")] = AS_IS,
    limit: Annotated[int | None, typer.Option(help="How many rows; all if not given.", min=1)] = None,
    sample_seed: Annotated[
        int | None, typer.Option(help="Seed to draw the rows with; the first ones if not given.")
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            help="generate: answers are written and scored; logprob: how likely given ones are; or both."
        ),
    ] = ",".join(KINDS),
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Longest answer, in tokens; the task's own if not given.", min=1)
    ] = None,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Also compute what cannot depend on the order, to compare.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Part of the rows, i/n, such as 0/4: every n-th row, beginning with row i. Default: that of "
            "this process under accelerate launch or torchrun, otherwise all rows."
        ),
    ] = None,
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Measure a data set: every example, method and order is a record; what is there is not done again."""
    try:
        part = parse_shard(shard)
        examples, settings = _planned(
            data,
            task=task,
            limit=limit,
            sample=sample_seed,
            metrics=metrics,
            methods=methods,
            orders=orders,
            max_new_tokens=max_new_tokens,
            recompute=recompute,
        )
        device = device_of_shard(device, part)
    except InputError:
        if is_main_process():
            raise
        raise typer.Exit(BAD_INPUT) from None  # the main process shows the same error

    from pine_engine.engine.model_worker import raise_if_cancelled

    own = part.select(examples)
    shown = examples if part.is_launched else own
    with ExitStack() as opened:
        if not opened.enter_context(lock_shard(output_dir, part)):
            terminal.say(
                f"{output_dir} is on a file system without locks; start no second run in it while this one "
                "writes"
            )
        terminal.stderr.quiet = not is_main_process()
        engine, info = _start(
            output_dir, settings, model, dtype, device, data=data, task=examples[0].task, sample=sample_seed
        )
        began = time.perf_counter()
        try:
            with stop_on_signals() as stopped:
                _measure(engine, examples, own, settings, output_dir, part, stopped)
                if part.is_launched and part.index == 0:
                    while _found(output_dir, examples, settings)[1]:
                        stopped.wait(1)
                        if stopped.is_set() or not is_running(output_dir, part):
                            break
                raise_if_cancelled(stopped)
        except (Cancelled, KeyboardInterrupt):
            _say_stopped(output_dir, shown, settings)
            raise typer.Exit(STOPPED) from None
        except WriteError as error:
            terminal.stderr.quiet = False  # only this process knows the reason
            _say_unwritten(output_dir, shown, settings, error)
            raise typer.Exit(FAILED) from None
    if part.index == 0 or not part.is_launched:
        _conclude(output_dir, info, shown, settings, seconds=time.perf_counter() - began, as_json=as_json)


def _start(
    output_dir: Path,
    settings: "Settings",
    model: str | None,
    dtype: str,
    device: str,
    *,
    data: Path,
    task: str,
    sample: int | None,
) -> "tuple[Engine, RunInfo]":
    """Load the model and open the run. One process selects the dtype of a new run for all others."""
    from pine_engine.evaluation.records import dtype_of_run, open_run

    with ExitStack() as first:
        run_dtype = dtype_of_run(output_dir) if dtype == "auto" else dtype
        if run_dtype is None and (lock := try_lock(output_dir / "run.lock", timeout_s=-1)):
            first.callback(lock.release)
            if run_dtype := dtype_of_run(output_dir):
                first.close()
        engine = terminal.load(model, run_dtype or "auto", device, reads_text=True)
        about = settings.run_info(engine, task=task, data=data.name, data_sha256=_sha256(data), sample=sample)
        return engine, open_run(output_dir, about)


def _planned(
    data: Path,
    *,
    task: str | None,
    limit: int | None,
    sample: int | None,
    metrics: str,
    methods: str | None,
    orders: str,
    max_new_tokens: int | None,
    recompute: bool,
) -> "tuple[list[Example], Settings]":
    """What the arguments ask for, checked before torch is imported. Raises InputError."""
    from pine_engine.evaluation.settings import choose

    examples = _read(data, task, limit, sample)
    asked = _listed(metrics)
    if unknown := sorted(set(asked) - set(KINDS)):
        raise InputError(f"unknown metric {unknown[0]!r}; choose from: {', '.join(KINDS)}")
    settings = choose(
        examples,
        methods=measured_names(methods),
        order_names=_listed(orders),
        generate="generate" in asked,
        logprobs="logprob" in asked,
        max_new_tokens=max_new_tokens,
        recompute=recompute,
    )
    return examples, settings


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _read(data: Path, task: str | None, limit: int | None, sample: int | None) -> "list[Example]":
    from pine_engine.evaluation.examples import read_examples

    examples = read_examples(data, limit, sample)
    if task is not None:
        return [example.asked_as(task) for example in examples]
    tasks = dict.fromkeys(example.task for example in examples)
    if len(tasks) > 1:
        raise InputError(f"{data} has rows of {' and '.join(tasks)}; give --task, or a file for each")
    return examples


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _measure(
    engine: "Engine",
    examples: Sequence["Example"],
    own: Sequence["Example"],
    settings: "Settings",
    output_dir: Path,
    shard: Shard,
    stopped: "threading.Event",
) -> None:
    """Measure the examples of this process, and append their records to its file."""
    from pine_engine.engine.model_worker import compute_on
    from pine_engine.evaluation.example_plan import planned_keys
    from pine_engine.evaluation.measure import Measurement
    from pine_engine.evaluation.priors import known_priors
    from pine_engine.evaluation.records import Record, Writer, read_records

    planned = planned_keys(own, settings.methods, settings.order_names)
    with Writer(output_dir, shard.index) as writer:
        found = read_records(output_dir)
        done = {record.key for record in found}
        with terminal.progress(len(planned), len(planned.keys() & done)) as advance:

            def keep(item: "Event | Record") -> None:
                if isinstance(item, Record):
                    writer.append(item)
                    advance(f"{item.example}: {item.method}, {item.order_name}")

            measurement = Measurement(engine, own, settings, done, examples, known_priors(found))
            compute_on(engine.device, lambda: measurement.work(keep, stopped))


def _found(
    output_dir: Path, examples: Sequence["Example"], settings: "Settings"
) -> "tuple[list[Record], int]":
    """The records of these examples that are there, and how many are not; the folder may hold others."""
    from pine_engine.evaluation.example_plan import planned_keys
    from pine_engine.evaluation.records import read_records

    planned = planned_keys(examples, settings.methods, settings.order_names)
    records = [record for record in read_records(output_dir) if record.key in planned]
    return records, len(planned) - len(records)


def _say_stopped(output_dir: Path, examples: Sequence["Example"], settings: "Settings") -> None:
    terminal.say(f"stopped: {_kept(output_dir, examples, settings)}; the same command goes on from there")


def _say_unwritten(
    output_dir: Path, examples: Sequence["Example"], settings: "Settings", error: WriteError
) -> None:
    kept = _kept(output_dir, examples, settings)
    terminal.say(f"{error}; {kept}, and the same command goes on from there once it can be written again")


def _kept(output_dir: Path, examples: Sequence["Example"], settings: "Settings") -> str:
    records, missing = _found(output_dir, examples, settings)
    return f"{len(records)} of {len(records) + missing} records are in {output_dir}"


def _conclude(
    output_dir: Path,
    info: "RunInfo",
    examples: Sequence["Example"],
    settings: "Settings",
    *,
    seconds: float,
    as_json: bool,
) -> None:
    """Prints the summary, and says what is not in it; exits with 1 if something is missing."""
    from pine_engine.evaluation.estimates import estimate_tasks
    from pine_engine.evaluation.task_estimates import nested

    records, missing = _found(output_dir, examples, settings)
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
        "computed": sum(record.computed for record in records),
        "errors": len(errors),
        "missing": missing,
        "wall_s": seconds,
        "seconds": sum(record.seconds for record in records),
        "summary": nested(tasks) if tasks else None,
    }
    if tasks or as_json:
        terminal.print_report(
            report,
            as_json,
            [
                _row(row)
                for task in tasks
                for method in task.grid.methods
                for row in task.rows()
                if row.method == method
            ],
        )
    if errors:
        terminal.say(f"{len(errors)} of {len(records)} records have an error, such as: {errors[0].error}")
    if missing:
        terminal.say(
            f"{missing} records are missing because a process died; run the same command again to make them"
        )
    if reason:
        terminal.say(reason)
    if missing or reason:
        raise typer.Exit(FAILED)


def _row(row: "Row") -> dict[str, Any]:
    """Return one line of the table: the mean over all orders, and the worst and best order."""
    from pine_engine.evaluation.report.tables import UNREAD

    mean, unparsed, changed = row.mean, row.get("unparsed"), row.get("changed")
    line: dict[str, Any] = {
        "method": row.method,
        "measure": row.metric,
        "examples": mean.num_examples,
        "mean [95 %]": _interval(mean) if mean.is_parsed else UNREAD,
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


def _interval(estimate: "Estimate") -> str:
    from pine_engine.evaluation.report.tables import TOO_FEW

    if estimate.interval is None:
        return f"{estimate.mean:.3f} [{TOO_FEW}]"
    low, high = estimate.interval
    return f"{estimate.mean:.3f} [{low:.3f}, {high:.3f}]"
