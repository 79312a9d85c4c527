"""Subcommand `evaluate`: measure a dataset under several methods and document orders. Resumable."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.endpoint import EndpointOptions
from pine_engine.cli.options import Limit, ModelOptions, OutputDir, TemplateKwargs, split_names
from pine_engine.cli.output import CommandResult
from pine_engine.endpoint import NOT_GREEDY
from pine_engine.engine.events import Event
from pine_engine.errors import Cancelled, EndpointError, InputError, WriteError
from pine_engine.file_locks import try_lock
from pine_engine.lab.cli.download_data import file_sha256
from pine_engine.lab.evaluation import run_files, shards
from pine_engine.lab.evaluation.cautions import cautions, scoring_sentence
from pine_engine.lab.evaluation.document_orders import AS_IS, ORDERS
from pine_engine.lab.evaluation.estimates import BASELINE, estimate_tasks
from pine_engine.lab.evaluation.record import Record, count_repeats, describe_errors
from pine_engine.lab.evaluation.report.key_findings import hard_to_detect
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.report.tables import estimated, metric_rows
from pine_engine.lab.evaluation.report.task_tables import main_results
from pine_engine.lab.evaluation.settings import RunInfo, Settings, choose, run_info
from pine_engine.lab.evaluation.task_estimates import method_rows, nested
from pine_engine.methods.table import ALL, default_methods
from pine_engine.models.load import resolve
from pine_engine.prompts.chat_templates import parse_kwargs
from pine_engine.prompts.examples import Example, read_examples
from pine_engine.prompts.prompt import segment_text
from pine_engine.prompts.scoring import Verdict
from pine_engine.prompts.thinking import find_markers
from pine_engine.rows.files import STDIN
from pine_engine.scheduling.worker import RunControl, raise_if_cancelled

if TYPE_CHECKING:  # imports torch
    from pine_engine.endpoint.client import Endpoint

METRICS = ("generate", "logprob")
LOGPROBS_OF_THINKING = (
    "log-probabilities are those directly after the prompt, before the model thinks: turn thinking off with "
    "--chat-template-kwargs, or give --metrics generate"
)
STOPPING = "stopping after this layer; press Ctrl-C again to stop at once"


def evaluate(
    data: Path,
    output_dir: OutputDir,
    task: str | None = None,
    methods: str | None = None,
    orders: Annotated[
        str, typer.Option(help=f"Document orders, separated by commas, of: {', '.join(ORDERS)}.")
    ] = AS_IS,
    limit: Limit = None,
    sample_seed: int | None = None,
    metrics: str | None = None,
    max_new_tokens: Limit = None,
    verdict: Verdict = "last",
    recompute: bool = False,
    retry_errors: bool = False,
    chat_template_kwargs: TemplateKwargs = None,
    shard: str | None = None,
    model: ModelOptions = ModelOptions(),
    server: EndpointOptions = EndpointOptions(),
) -> CommandResult:
    """Evaluate a dataset: one record per example, method and document order. Resumes an interrupted run.

    Args:
        data: JSONL, JSON, CSV, TSV or Parquet file, or a folder of Dataset.save_to_disk, one example per row.
        output_dir: Folder for the records. An interrupted run in this folder is resumed.
        task: Prompt template. Overrides the task of each example.
        methods: Methods, and wrappers around methods such as permutation_full:vanilla, separated by commas;
            or all for every method. Default: vanilla, nia, pcw and pine; vanilla and reorder_content on an
            endpoint, and for a model whose attention cannot be replaced.
        orders: Names of document orders.
        limit: Maximum number of examples. Default: all.
        sample_seed: Seed of a random sample of examples. Default: the first examples.
        metrics: generate: generated answers are scored. logprob: log-probabilities of the accepted answer and
            of the choices. Default: both, separated by a comma; generate on an endpoint.
        max_new_tokens: Maximum length of an answer, in tokens. Default: that of the task.
        verdict: Verdict that counts in a text of a judge with several: last, first, or alphabetical, with A
            before B as in FastChat and RewardBench.
        recompute: Also compute records that cannot depend on the document order.
        retry_errors: Measure records with an error again, such as those of refused requests.
        chat_template_kwargs: Arguments of the chat template, as JSON.
        shard: Part of the examples, i/n, such as 0/4: every n-th example, beginning with example i. Default:
            that of this process under accelerate launch or torchrun, otherwise all examples.
        model: Model to evaluate.
        server: Server that computes its answers.
    """
    try:
        kwargs = parse_kwargs(chat_template_kwargs)
        endpoint = server.open(model, kwargs)
        if data == STDIN:
            raise InputError("evaluate reads its data again when it resumes; give a file instead of -")
        part = shards.parse_shard(shard)
        examples = read_examples(data, limit, sample_seed, task=task or "")
        tasks = dict.fromkeys(example.task for example in examples)
        if len(tasks) > 1:
            raise InputError(f"{data} has examples of {' and '.join(tasks)}; give --task, or a file for each")
        metric_names = split_names(metrics) or []
        if metrics is None:
            metric_names = ["generate"] if endpoint else [*METRICS]
        if unknown := sorted(set(metric_names) - set(METRICS)):
            raise InputError(f"unknown metric {unknown[0]!r}; choose from: {', '.join(METRICS)}")
        names = split_names(methods)
        if endpoint and names is None:
            names = [method.name for method in endpoint.select_methods(None)]
        settings = choose(
            examples,
            methods=names,
            order_names=split_names(orders) or [],
            generate="generate" in metric_names,
            logprobs="logprob" in metric_names,
            max_new_tokens=max_new_tokens,
            verdict=verdict,
            recompute=recompute,
            chat_template_kwargs={} if endpoint else kwargs,
            sample=sample_seed,
        )
        if endpoint:
            from pine_engine.lab.evaluation.measure_endpoint import check_settings  # imports torch

            check_settings(settings, examples)
        model = dataclasses.replace(model, device=shards.device_of_shard(model.device, part))
    except InputError:
        if shards.is_main_process():
            raise
        return CommandResult({}, [], status=output.BAD_INPUT)  # the main process shows the same error

    share = part.select(examples)
    reported = examples if part.is_launched else share
    with shards.lock_shard(output_dir, part) as is_locked:
        if not is_locked:
            output.print_note(
                f"{output_dir} is on a file system without locks; start no second run in it while this one "
                "writes"
            )
        output.stderr.quiet = not shards.is_main_process()
        if names is None:
            settings = _with_methods_of_run(output_dir, settings)
        settings = run_files.resume_date(output_dir, settings)
        if not endpoint and (finished := _finished(output_dir, settings, model, data)):
            records, missing = _planned(output_dir, reported, settings)
            if not missing and not (retry_errors and describe_errors(records)):
                is_silent = part.is_launched and part.index
                return CommandResult({}, []) if is_silent else _summarize(output_dir, finished, records, 0, 0)
        from pine_engine.lab.evaluation.measure import run_evaluation
        from pine_engine.lab.evaluation.measure_endpoint import run_on_endpoint
        from pine_engine.scheduling.scheduler import run_shared  # only now: these import torch

        engine, settings, info = _open(output_dir, settings, endpoint or model, data, names)
        if isinstance(engine, pine.Engine) and settings.logprobs and _thinks_first(engine, examples[0], info):
            output.print_note(LOGPROBS_OF_THINKING)
        started = time.perf_counter()
        stopping = "stopping the requests" if endpoint else STOPPING
        try:
            with (
                shards.stop_on_signals(lambda: output.print_note(stopping)) as stopped,
                run_files.write_records(output_dir, part.index) as append,
            ):
                found = run_files.read_records(output_dir)
                if retry_errors:
                    found = [record for record in found if not record.error]
                planned = settings.keys(share)
                num_done = len(planned.keys() & {record.key for record in found})
                if not isinstance(engine, pine.Engine) and num_done < len(planned):
                    _print_estimate(engine, share, info, found)
                with output.progress(len(planned), num_done) as advance:

                    def keep(item: Event | Record) -> None:
                        if isinstance(item, Record):
                            append(item)
                            advance(f"{item.example}: {item.method}, {item.order_name}")
                        elif text := output.event_text(item):
                            advance(text, 0)

                    control = RunControl(keep, stopped)
                    if isinstance(engine, pine.Engine):
                        run = partial(run_evaluation, engine, share, info, found=found, dataset=examples)
                        run_shared(lambda _: run(control))
                    else:
                        run_on_endpoint(engine, share, info, control, found=found)
                is_waiting = part.is_launched and part.index == 0
                while is_waiting and not stopped.is_set() and _planned(output_dir, examples, settings)[1]:
                    stopped.wait(1)
                    is_waiting = shards.is_running(output_dir, part)
                raise_if_cancelled(stopped)
        except (Cancelled, KeyboardInterrupt, WriteError, EndpointError) as error:
            records, missing = _planned(output_dir, reported, settings)
            kept = f"{len(records)} of {len(records) + missing} records are in {output_dir}"
            if isinstance(error, EndpointError):
                run_files.discard_empty_run(output_dir)
            if isinstance(error, WriteError | EndpointError):
                output.stderr.quiet = False  # only this process has the reason
                note = f"{error}; {kept}; run the same command again to resume"
                return CommandResult({}, [], [note], output.FAILED)
            note = f"stopped: {kept}; run the same command again to resume"
            return CommandResult({}, [], [note], output.STOPPED)
    if part.is_launched and part.index:
        return CommandResult({}, [])
    seconds = time.perf_counter() - started
    return _summarize(output_dir, info, *_planned(output_dir, reported, settings), seconds)


def _thinks_first(engine: "pine.Engine", example: Example, settings: Settings) -> bool:
    """Check whether the model may think after a prompt, because the chat template does not prevent it."""
    if (markers := find_markers(engine.tokenizer)) is None:
        return False
    prompt = example.comparison().with_kwargs(settings.chat_template_kwargs).prompt(engine)
    return not segment_text(prompt.suffix).rstrip().endswith(markers.end)


def _with_methods_of_run(output_dir: Path, settings: Settings) -> Settings:
    """Return the settings with the default methods of an existing run, which depend on its model."""
    defaults = tuple(method.name for method in default_methods("passes"))
    is_resumed = (output_dir / run_files.RUN_FILE).exists()
    if is_resumed and run_files.read_run(output_dir).methods == defaults:
        return settings.model_copy(update={"methods": defaults})
    return settings


def _open(
    output_dir: Path,
    settings: Settings,
    model: "ModelOptions | Endpoint",
    data: Path,
    names: list[str] | None,
) -> "tuple[pine.Engine | Endpoint, Settings, RunInfo]":
    """Load the model and open the run, with the default methods that fit for no names.

    One process selects the dtype of a new run for all others. Raises ModelError for a named method that does
    not fit.
    """
    with ExitStack() as selecting:
        engine = _load(output_dir, model, selecting) if isinstance(model, ModelOptions) else model
        if names is None:
            selected = tuple(method.name for method in engine.select_methods(None))
            settings = settings.model_copy(update={"methods": selected})
        elif [name.lower() for name in names] != [ALL]:
            for method in settings.measured:
                engine.check_method(method.base)
        settings = run_files.resume_date(output_dir, settings)
        info = run_info(settings, engine, data=data.name, data_sha256=file_sha256(data))
        if not isinstance(engine, pine.Engine):
            info = info.model_copy(update={"extra_body": engine.extra_body})
        return engine, settings, run_files.open_run(output_dir, info)


def _load(output_dir: Path, model: ModelOptions, selecting: ExitStack) -> "pine.Engine":
    """Load the model in the dtype of the run. For a new run, `selecting` holds a lock until it is there."""
    dtype = run_files.dtype_of_run(output_dir) if model.dtype == "auto" else model.dtype
    if dtype is None and (lock := try_lock(output_dir / "run.lock", timeout_s=-1)):
        selecting.callback(lock.release)
        if dtype := run_files.dtype_of_run(output_dir):
            selecting.close()
    return dataclasses.replace(model, dtype=dtype or "auto").load(needs_tokenizer=True)


def _finished(output_dir: Path, settings: Settings, model: ModelOptions, data: Path) -> RunInfo | None:
    """Return the run of a folder if it is that of these options, as far as known without the model."""
    if not (output_dir / run_files.RUN_FILE).exists():
        return None
    info, source = run_files.read_run(output_dir), resolve(model.model)
    place, _, revision = info.address.partition("@")
    is_same = source.address == info.address or (
        source.origin == "hub" and source.path_or_id == place and source.revision in (None, revision)
    )
    platform = info.platform.model_copy(
        update={
            "dtype": info.platform.dtype if model.dtype == "auto" else model.dtype,
            "device": model.device,
            "torch": version("torch"),
            "transformers": version("transformers"),
            "pine_explorer": pine.__version__,
        }
    )
    update = {
        **settings.model_dump(),
        "data": data.name,
        "data_sha256": file_sha256(data),
        "platform": platform,
    }
    return info if is_same and not info.differences(info.model_copy(update=update)) else None


def _print_estimate(
    endpoint: "Endpoint", examples: Sequence[Example], settings: Settings, found: Sequence[Record]
) -> None:
    """Print the number of requests that are not answered yet, and of their tokens."""
    from pine_engine.endpoint.requests import describe_requests
    from pine_engine.lab.evaluation.measure_endpoint import planned_requests

    with output.progress(0) as advance:
        advance("counting requests", 0)
        sentence = describe_requests(planned_requests(endpoint, examples, settings, found=found))
    output.print_note(sentence)


def _planned(output_dir: Path, examples: Sequence[Example], settings: Settings) -> tuple[list[Record], int]:
    """Return the existing records of these examples and the number of missing ones."""
    planned = settings.keys(examples)
    records = [record for record in run_files.read_records(output_dir) if record.key in planned]
    return records, len(planned) - len(records)


def _summarize(
    output_dir: Path, info: RunInfo, records: list[Record], missing: int, seconds: float
) -> CommandResult:
    """Return the summary and notes on errors and on what is missing, which is a failure."""
    notes, reasons = [], []
    if errors := describe_errors(records):
        notes.append(f"{errors}; --retry-errors measures them again")
    if unfinished := sum(not record.is_finished for record in records):
        notes.append(output.unfinished_note(unfinished, len(records)))
    if missing:
        reasons.append(f"{missing} records are missing: a process died; run the same command again to resume")
    repeats = count_repeats(records)
    notes += repeats.notes()
    if not info.is_greedy:
        notes.append(NOT_GREEDY)
    if info.is_on_endpoint and info.logprobs:
        num_scored = sum(record.choice_logprobs is not None for record in records)
        scored = f"records with the log-probabilities of all choices: {num_scored} of {len(records)}"
        reason = "; in the others, a choice is none of the likely first tokens"
        notes.append(scored + reason * (num_scored < len(records)))
    try:
        tasks = estimate_tasks(records)
    except InputError as error:
        tasks = ()
        reasons.append(str(error))
    report = {
        "folder": str(output_dir),
        "model": info.platform.model,
        "dtype": info.platform.dtype,
        "run": info.model_dump(mode="json"),
        "records": len(records),
        "computed": sum(record.was_computed for record in records),
        "errors": sum(record.error is not None for record in records),
        "missing": missing,
        "repeated": dataclasses.asdict(repeats),
        "wall_s": seconds,
        "seconds": sum(record.seconds for record in records),
        "summary": nested(tasks) if tasks else None,
    }
    rows = [row for task in tasks for row in _rows(MeasuredRun(output_dir.name, info, (task,)))]
    if not rows and not reasons:
        notes.append(f"{output_dir} has records, but no metrics; add answers, or further --orders")
    baselines = [
        one for task in tasks for one in method_rows(task, ["generated", "chosen"]) if one.method == BASELINE
    ]
    notes += [sentence for one in baselines for sentence in hard_to_detect(one)]
    notes += [sentence for task in tasks for sentence in task.quoted_verdict_notes()]
    notes += [sentence for task in tasks for sentence in (*cautions(task), scoring_sentence(task))]
    return CommandResult(report, rows, notes + reasons, output.FAILED if reasons else 0)


def _rows(run: MeasuredRun) -> Iterator[dict[str, str]]:
    """Yield the main results of each method by metric, as in a report, and the time per record."""
    (grid,) = run.tasks
    table = main_results(grid.task, [run])
    for row, texts in zip(metric_rows(grid.task, [run]), table.rows, strict=True):
        cells = dict(zip(table.columns, texts, strict=True))
        time_per_record = estimated(grid.get(row.method, "cost", "seconds"))
        yield {"method": cells.pop("method"), **cells, "time": time_per_record}
