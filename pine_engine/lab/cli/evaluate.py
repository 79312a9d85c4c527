"""Subcommand `evaluate`: measure a dataset under several methods and document orders. Resumable."""

import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.endpoint import EndpointOptions
from pine_engine.cli.options import Columns, Limit, ModelOptions, OutputDir, TemplateKwargs, split_names
from pine_engine.cli.output import CommandResult
from pine_engine.errors import Cancelled, EndpointError, InputError, WriteError
from pine_engine.file_locks import try_lock
from pine_engine.lab.cli.download_data import file_sha256
from pine_engine.lab.cli.evaluation_summary import summarize_records
from pine_engine.lab.cli.limits import LimitOptions
from pine_engine.lab.debias.measured import measured_methods
from pine_engine.lab.evaluation import run_files, shards
from pine_engine.lab.evaluation.document_orders import AS_IS, ORDERS
from pine_engine.lab.evaluation.paired import num_examples_sentence
from pine_engine.lab.evaluation.record import Record, describe_errors
from pine_engine.lab.evaluation.report.limits import ResultLimit, check_limits
from pine_engine.lab.evaluation.settings import RunInfo, Settings, check_outputs, choose, run_info
from pine_engine.methods.table import ALL, Output, default_methods
from pine_engine.models.load import resolve
from pine_engine.prompts.chat_templates import CLOCK, KWARGS, parse_kwargs
from pine_engine.prompts.examples import Example, read_examples
from pine_engine.prompts.prompt import segment_text
from pine_engine.prompts.scoring import Verdict
from pine_engine.prompts.tasks import TASKS
from pine_engine.prompts.thinking import find_markers
from pine_engine.rows.columns import parse_columns
from pine_engine.rows.files import STDIN
from pine_engine.scheduling.worker import raise_if_cancelled

if TYPE_CHECKING:  # these import torch
    from pine_engine.backend import Backend

METRICS: dict[str, Output | None] = {"generate": None, "logprob": "logprobs"}
"""Output that each metric needs from a backend in addition to answers; None if answers suffice."""

DEFAULT_METHODS = tuple(method.name for method in default_methods("passes"))

LOGPROBS_OF_THINKING = (
    "log-probabilities are those directly after the prompt, before the model thinks: turn thinking off with "
    "--chat-template-kwargs, or give --metrics generate"
)
STOPPING = "stopping; press Ctrl-C again to stop at once"
NO_LOCKS = "is on a file system without locks; start no second run in it while this one writes"
BEAT_S = 0.5  # seconds after which Ctrl-C takes effect while nothing is reported


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation, without those of its model.

    Attributes:
        task: Prompt template. Overrides the task of each example.
        methods: Methods, and wrappers around methods such as permutation_full:vanilla, separated by commas;
            or all for every method that needs no scores of documents. Default: vanilla, nia, pcw and pine;
            vanilla and reorder_content on an endpoint, and for a model whose attention cannot be replaced.
        orders: Names of document orders.
        columns: Columns of the data, FIELD=COLUMN.
        limit: Maximum number of examples. Default: all.
        sample_seed: Seed of a random sample of examples. Default: the first examples.
        metrics: generate: generated answers are scored. logprob: log-probabilities of the accepted answer and
            of the choices. Default: both, separated by a comma; generate on an endpoint; logprob for the task
            options.
        max_new_tokens: Maximum length of an answer, in tokens. Default: that of the task.
        verdict: Verdict that counts in a text of a judge with several: last, first, or alphabetical, with A
            before B as in FastChat and RewardBench.
        recompute: Also compute records that cannot depend on the document order.
        retry_errors: Measure records with an error again, such as those of refused requests.
        chat_template_kwargs: Arguments of the chat template, as JSON.
        shard: Part of the examples, i/n, such as 0/4: every n-th example, beginning with example i. Default:
            that of this process under accelerate launch or torchrun, otherwise all examples.
    """

    task: str | None = None
    methods: str | None = None
    orders: Annotated[
        str, typer.Option(help=f"Document orders, separated by commas, of: {', '.join(ORDERS)}.")
    ] = AS_IS
    columns: Columns = None
    limit: Limit = None
    sample_seed: int | None = None
    metrics: str | None = None
    max_new_tokens: Limit = None
    verdict: Verdict = "last"
    recompute: bool = False
    retry_errors: bool = False
    chat_template_kwargs: TemplateKwargs = None
    shard: str | None = None


@dataclass(frozen=True)
class Plan:
    """Records to measure, known before the model is loaded."""

    data: Path
    data_sha256: str
    folder: Path  # of the records
    examples: Sequence[Example]  # of all shards
    part: shards.Shard  # of this process
    settings: Settings
    has_default_methods: bool  # True if the methods are those that fit the model, which is not known yet
    retry_errors: bool
    model: ModelOptions
    backend: "Backend | None"  # that needs no loading; None for the model
    limits: Sequence[ResultLimit]

    @property
    def share(self) -> list[Example]:
        """Examples of this shard."""
        return self.part.select(self.examples)

    def records(self, settings: Settings) -> tuple[list[Record], int]:
        """Return the existing records that this process reports, and the number of missing ones."""
        planned = settings.keys(self.examples if self.part.is_launched else self.share)
        records = [record for record in run_files.read_records(self.folder) if record.key in planned]
        return records, len(planned) - len(records)


@dataclass(frozen=True)
class Run:
    """A run of a folder."""

    plan: Plan
    info: RunInfo
    backend: "Backend | None" = None  # that measures the missing records; None if there are none


@dataclass(frozen=True)
class End:
    """End of the measurement: the reason if it ended early, the exit status, and its seconds."""

    reason: str = ""
    status: int = 0
    seconds: float = 0.0


def evaluate(
    data: Path,
    output_dir: OutputDir,
    options: EvaluationOptions = EvaluationOptions(),
    model: ModelOptions = ModelOptions(),
    server: EndpointOptions = EndpointOptions(),
    limits: LimitOptions = LimitOptions(),
) -> CommandResult:
    """Evaluate a dataset: one record per example, method and document order. Resumes an interrupted run.

    Args:
        data: JSONL, JSON, CSV, TSV or Parquet file, or a folder of Dataset.save_to_disk, one example per row.
        output_dir: Folder for the records. An interrupted run in this folder is resumed.
        options: Examples, methods, orders and metrics.
        model: Model to evaluate.
        server: Server that computes its answers.
        limits: Limits of its results.
    """
    try:
        plan = plan_evaluation(data, output_dir, options, model, server, limits)
    except InputError:
        if shards.is_main_process():
            raise
        raise typer.Exit(output.BAD_INPUT) from None  # the main process shows the same error
    with shards.lock_shard(output_dir, plan.part) as is_locked:
        if not is_locked:
            output.print_note(f"{output_dir} {NO_LOCKS}")
        output.stderr.quiet = not shards.is_main_process()
        run = open_run(plan)
        if run.backend:
            output.print_note(num_examples_sentence(len(plan.examples)))
        end = measure(run)
    return summarize(run, end)


def plan_evaluation(
    data: Path,
    folder: Path,
    options: EvaluationOptions,
    model: ModelOptions,
    server: EndpointOptions,
    limit_options: LimitOptions,
) -> Plan:
    """Read the examples, and check all options that need no model. Raises InputError for an invalid one."""
    limits = limit_options.parse()
    kwargs = parse_kwargs(options.chat_template_kwargs)
    backend = server.open(model, kwargs)
    if data == STDIN:
        raise InputError("evaluate reads its data again when it resumes; give a file instead of -")
    part = shards.parse_shard(options.shard)
    columns = parse_columns(options.columns)
    task = options.task or ""
    examples = read_examples(data, options.limit, options.sample_seed, task=task, columns=columns)
    tasks = dict.fromkeys(example.task for example in examples)
    if len(tasks) > 1:
        raise InputError(f"{data} has examples of {' and '.join(tasks)}; give --task, or a file for each")
    methods = split_names(options.methods)
    metrics = split_names(options.metrics)
    if metrics is None:
        metrics = [*TASKS[examples[0].task].metrics] or None
    if backend:  # it is known which methods and metrics fit, and the server renders its chat template
        methods = methods or [method.name for method in backend.select_methods(None)]
        metrics = metrics or [name for name, need in METRICS.items() if not (need and backend.misfit(need))]
        kwargs = {}
    if unknown := sorted(set(metrics or ()) - METRICS.keys()):
        raise InputError(f"unknown metric {unknown[0]!r}; choose from: {', '.join(METRICS)}")
    settings = choose(
        examples,
        methods=methods,
        order_names=split_names(options.orders) or [],
        generate=metrics is None or "generate" in metrics,
        logprobs=metrics is None or "logprob" in metrics,
        max_new_tokens=options.max_new_tokens,
        verdict=options.verdict,
        recompute=options.recompute,
        chat_template_kwargs=kwargs,
        sample=options.sample_seed,
        columns=columns,
    )
    if backend:
        check_outputs(backend, settings, examples)
    check_limits(limits, settings, max(len(example.documents) for example in examples))
    return Plan(
        data=data,
        data_sha256=file_sha256(data),
        folder=folder,
        examples=examples,
        part=part,
        settings=settings,
        has_default_methods=methods is None,
        retry_errors=options.retry_errors,
        model=dataclasses.replace(model, device=shards.device_of_shard(model.device, part)),
        backend=backend,
        limits=limits,
    )


def open_run(plan: Plan) -> Run:
    """Create or resume the run of a folder; load the model if records are missing.

    Raises PineError for options that are not those of the run, and for a method that does not fit the model.
    """
    begun = run_files.find_run(plan.folder)
    return Run(plan, begun) if begun and _is_complete(plan, begun) else _open_with_model(plan, begun)


def _is_complete(plan: Plan, begun: RunInfo) -> bool:
    """Check whether the run of a folder is that of the plan, as far as known without the model, and complete.

    The model is not loaded then. A backend that needs no loading checks the whole run.
    """
    if plan.backend or not _has_model(begun, plan.model):
        return False
    settings = _resume_date(plan.settings, begun)
    if plan.has_default_methods and begun.methods == DEFAULT_METHODS:
        settings = settings.model_copy(update={"methods": begun.methods})
    planned = {**settings.model_dump(), "data": plan.data.name, "data_sha256": plan.data_sha256}
    versions = {name: version(name) for name in ("torch", "transformers")}
    platform = {**versions, "pine_explorer": pine.__version__, "device": plan.model.device}
    platform |= {} if plan.model.dtype == "auto" else {"dtype": plan.model.dtype}
    planned["platform"] = begun.platform.model_copy(update=platform)
    if begun.differences(begun.model_copy(update=planned)):
        return False
    records, missing = plan.records(begun)
    return not missing and not (plan.retry_errors and describe_errors(records))


def _has_model(begun: RunInfo, model: ModelOptions) -> bool:
    """Check whether a run is that of a model, of any revision if none is given."""
    source = resolve(model.model)
    place, _, revision = begun.address.partition("@")
    is_on_hub = source.origin == "hub" and source.path_or_id == place and source.revision in (None, revision)
    return source.address == begun.address or is_on_hub


def _open_with_model(plan: Plan, begun: RunInfo | None) -> Run:
    """Create or resume a run, with the default methods that fit its model."""
    with ExitStack() as selecting:
        backend = plan.backend or _load(plan, begun, selecting)
        begun = begun or run_files.find_run(plan.folder)  # another process may have created it
        settings = _resume_date(plan.settings, begun)
        if plan.has_default_methods:
            selected = tuple(method.name for method in backend.select_methods(None))
            settings = settings.model_copy(update={"methods": selected})
        elif settings.measured != measured_methods(
            [ALL]
        ):  # of all methods, those that do not fit become errors
            backend.select_methods(dict.fromkeys(method.base for method in settings.measured))
        info = run_info(settings, backend, data=plan.data.name, data_sha256=plan.data_sha256)
        info = run_files.open_run(plan.folder, info)
    if info.logprobs and _thinks_first(backend, plan.examples[0], info):
        output.print_note(LOGPROBS_OF_THINKING)
    return Run(plan, info, backend)


def _resume_date(settings: Settings, begun: RunInfo | None) -> Settings:
    """Return settings with the date that the prompts of a run have, if there is one."""
    kwargs = begun.chat_template_kwargs if begun else {}
    date = {name: kwargs[name] for name in (CLOCK,) if name in kwargs}
    return settings.model_copy(update={KWARGS: date | settings.chat_template_kwargs})


def _load(plan: Plan, begun: RunInfo | None, selecting: ExitStack) -> "pine.Engine":
    """Load the model in the dtype of the run. One process selects that of a new run for all others.

    For a new run, `selecting` holds a lock until the run is there.
    """
    dtype = plan.model.dtype
    if dtype == "auto":
        if begun is None and (lock := try_lock(plan.folder / "run.lock", timeout_s=-1)):
            selecting.callback(lock.release)
            if begun := run_files.find_run(plan.folder):
                selecting.close()
        dtype = begun.platform.dtype if begun else dtype
    return dataclasses.replace(plan.model, dtype=dtype).load(needs_tokenizer=True)


def _thinks_first(backend: "Backend", example: Example, settings: Settings) -> bool:
    """Check whether the model may think after a prompt, because the chat template does not prevent it."""
    if (markers := find_markers(backend.tokenizer)) is None:
        return False
    prompt = example.comparison().with_kwargs(settings.chat_template_kwargs).prompt(backend)
    return not segment_text(prompt.suffix).rstrip().endswith(markers.end)


def measure(run: Run) -> End:
    """Measure the missing records of this shard. The end has a reason if some of them are missing."""
    if run.backend is None:
        return End()
    began, end = time.perf_counter(), End()
    try:
        _measure_missing(run, run.backend)
    except (Cancelled, KeyboardInterrupt, WriteError, EndpointError) as error:
        is_stopped = isinstance(error, Cancelled | KeyboardInterrupt)
        status = output.STOPPED if is_stopped else output.FAILED
        records, missing = run.plan.records(run.info)
        kept = f"{len(records)} of {len(records) + missing} records are in {run.plan.folder}"
        reason = f"stopped: {kept}" if is_stopped else f"{error}; {kept}"
        end = End(f"{reason}; run the same command again to resume", status)
        if not is_stopped:
            output.stderr.quiet = False  # only this process has the reason
            run_files.discard_empty_run(run.plan.folder)
    return dataclasses.replace(end, seconds=time.perf_counter() - began)


def _measure_missing(run: Run, backend: "Backend") -> None:
    """Write each record when it is there, and wait for the other processes of a launcher."""
    from pine_engine.lab.evaluation.measure import BEAT, stream_evaluation  # imports torch

    plan, info = run.plan, run.info
    with (
        shards.stop_on_signals(lambda: output.print_note(STOPPING)) as stopped,
        run_files.write_records(plan.folder, plan.part.index) as append,
    ):
        found = run_files.read_records(plan.folder)
        if plan.retry_errors:
            found = [record for record in found if not record.error]
        planned = info.keys(plan.share)
        num_done = len(planned.keys() & {record.key for record in found})
        events = stream_evaluation(
            backend, plan.share, info, found=found, dataset=plan.examples, beat=(BEAT_S, BEAT)
        )
        with output.progress(len(planned), num_done) as advance, closing(events):
            for event in events:
                if isinstance(event, Record):
                    append(event)
                    advance(f"{event.example}: {event.method}, {event.order_name}")
                elif isinstance(event, pine.RequestsPlanned):
                    output.print_note(event.sentence)
                elif text := output.event_text(event):
                    advance(text, 0)
                raise_if_cancelled(stopped)
        is_waiting = plan.part.is_launched and plan.part.index == 0
        while is_waiting and not stopped.is_set() and plan.records(info)[1]:
            stopped.wait(1)
            is_waiting = shards.is_running(plan.folder, plan.part)
        raise_if_cancelled(stopped)


def summarize(run: Run, end: End) -> CommandResult:
    """Return the summary of a run, or the reason of an early end; of several processes, the first has it."""
    part = run.plan.part
    result = CommandResult({}, [], [end.reason] if end.reason else [], end.status)
    if not end.reason and not (part.is_launched and part.index):
        records, missing = run.plan.records(run.info)
        result = summarize_records(run.plan.folder, run.info, records, missing, end.seconds, run.plan.limits)
    return result
