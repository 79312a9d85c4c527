"""Evaluation: examples, methods and orders go in, tables after each record come out. Imports torch."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event
from pine_engine.engine.model_worker import stream_from_worker
from pine_engine.errors import InputError
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.example_runs import ExamplePlan, distinct_parts
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.intervals import MIN_EXAMPLES
from pine_engine.evaluation.measure import Emit, run_evaluation
from pine_engine.evaluation.records import Record, RunInfo, run_info
from pine_engine.evaluation.report.key_findings import key_findings as find_key_findings
from pine_engine.evaluation.report.runs import MeasuredRun, run_labels
from pine_engine.evaluation.report.tables import Curve
from pine_engine.evaluation.settings import Key, Settings, choose, max_visited
from pine_engine.prompts.tasks import get_task
from viz.cards.measured import key_findings, measured_tables
from viz.page.answers.answering import progress_sentence
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.files.data_sets import DataSet
from viz.page.form.limits import check_answer_length, check_orders, check_rows, too_long
from viz.page.form.read_only import check_rows_shipped
from viz.page.jobs.cost import Work, format_seconds, planned
from viz.page.measure.tabulating import of_whole_examples, slot_curves, tabulate

BEAT_S = 0.5
"""Seconds between two views, so that Stop takes effect during batched decoding."""


SAMPLED = 4
"""Number of examples whose tokens are counted for an estimate."""


@dataclass(frozen=True)
class Heartbeat:
    """Tick between two events."""


@dataclass(frozen=True)
class MeasureRequest:
    """Request of an evaluation."""

    rows: DataSet
    limit: int
    """Number of examples, from the first."""

    methods: tuple[str, ...]
    orders: tuple[str, ...]
    generate: bool
    logprobs: bool
    max_new_tokens: int
    """Maximum number of new tokens."""

    @property
    def examples(self) -> tuple[Example, ...]:
        """Return the examples to evaluate."""
        return self.rows.examples[: self.limit]

    def settings(self, host: HostSettings = DEFAULTS) -> Settings:
        """Return the validated settings. Raises InputError for the first invalid value."""
        if not self.methods:
            raise InputError("No method is chosen; tick at least one.")
        check_rows(len(self.examples), host)
        if host.read_only:
            check_rows_shipped(self.examples)
        check_answer_length(self.max_new_tokens, host)
        chosen = choose(
            self.examples,
            methods=self.methods,
            order_names=self.orders,
            generate=self.generate,
            logprobs=self.logprobs,
            max_new_tokens=self.max_new_tokens,
        )
        keys = chosen.keys(self.examples, chosen.measured[:1])
        check_orders(max(Counter(example for example, _, _ in keys).values(), default=0), host)
        for method in chosen.measured:
            check_orders(max_visited(method, self.examples), host)
        return chosen

    def num_records(self, host: HostSettings) -> int:
        """Return the planned number of records. Raises InputError as `settings` does."""
        settings = self.settings(host)
        return len(settings.keys(self.examples))


@dataclass(frozen=True)
class MeasuredRecords:
    """Records so far, and their settings."""

    info: RunInfo
    records: tuple[Record, ...]
    planned: frozenset[Key]
    """Keys of all planned records."""

    @property
    def run(self) -> MeasuredRun | None:
        """Return the complete examples (every method and order) as a run; None if there are none."""
        try:
            tasks = estimate_tasks(of_whole_examples(self.records, self.planned))
        except InputError:
            return None
        (label,) = run_labels([self.info])
        return MeasuredRun(label, self.info, tasks)


@dataclass(frozen=True)
class MeasureView:
    """State of the page; None for unchanged parts."""

    sentence: str
    tables: str | None = None
    """HTML, like the next field."""

    findings: str | None = None
    curves: tuple[Curve, ...] | None = None
    """Curves over the slots of the gold document, one for each number of documents."""

    measured: MeasuredRecords | None = None
    done: Work | None = None
    """Work so far."""


def work_sentence(request: MeasureRequest, host: HostSettings = DEFAULTS) -> str:
    """Describe the planned records. Raises InputError as `settings` does."""
    settings = request.settings(host)
    planned = settings.keys(request.examples)
    count = len(request.examples)
    orders = {name for _, _, name in planned}
    parts = ((count, "row"), (len(settings.methods), "method"), (len(orders), "order"))
    product = " × ".join(f"{number} {noun}{'s' if number != 1 else ''}" for number, noun in parts)
    return f"{product}: {len(planned)} record{'s' if len(planned) != 1 else ''}."


def planned_work(engine: Engine, request: MeasureRequest, host: HostSettings = DEFAULTS) -> Work:
    """Estimate the work from the first examples. Raises InputError as `settings` does."""
    settings = request.settings(host)
    sample = request.examples[:SAMPLED]
    return plan_measurement(engine, sample, settings).times(len(request.examples) / max(1, len(sample)))


def measure_rows(
    engine: Engine, request: MeasureRequest, host: HostSettings = DEFAULTS
) -> Generator[MeasureView, None, None]:
    """Evaluate the examples; closing the generator stops the model.

    Raises InputError for an invalid request.
    """
    settings = request.settings(host)
    rows = request.rows
    info = run_info(settings, engine, data=rows.name, data_sha256=rows.sha256)
    planned = settings.keys(request.examples)
    setting = f"{engine.model_name}, {engine.dtype}, {request.rows.name}"
    records: list[Record] = []
    began = heard = time.monotonic()
    drawn = began - BEAT_S  # so that the first of all is shown at once
    yield MeasureView(_counted(0, len(planned), began), measured_tables([], done=0, planned=len(planned)))
    with closing(measured_events(engine, request, host)) as events:
        for event in events:
            now = time.monotonic()
            counted = _counted(len(records), len(planned), began)
            if isinstance(event, Record):
                records.append(event)
                tables = tabulate(records, planned)
                yield MeasureView(
                    _counted(len(records), len(planned), began),
                    measured_tables(tables, done=len(records), planned=len(planned), note=_errors(records)),
                    curves=tuple(slot_curves(records, planned, setting)),
                    measured=MeasuredRecords(info, tuple(records), frozenset(planned)),
                    done=work_of(records),
                )
            elif isinstance(event, Heartbeat):
                yield MeasureView(f"{counted} · writing the answers" if now - heard > 2 * BEAT_S else counted)
            elif now - drawn >= BEAT_S:
                drawn = now
                yield MeasureView(f"{counted} · {progress_sentence(event)}")
            if not isinstance(event, Heartbeat):
                heard = now
    run = MeasuredRecords(info, tuple(records), frozenset(planned)).run
    note = " ".join(filter(None, (_INTERVALS if run else "", _errors(records))))
    tables = tabulate(records, planned, run.tasks if run else ())
    yield MeasureView(
        f"Done: {len(records)} records in {time.monotonic() - began:.1f} s.",
        measured_tables(tables, done=len(records), planned=len(planned), note=note),
        key_findings(find_key_findings(info.task, run) if run else []),
        tuple(slot_curves(records, planned, setting)),
    )


_INTERVALS = (
    "Below each mean stands its 95 % interval: other rows of the same kind might move it so far. "
    f"Log-probabilities have one from {MIN_EXAMPLES} rows on. The report has the intervals of all numbers."
)


def measured_events(
    engine: Engine, request: MeasureRequest, host: HostSettings
) -> Generator[Event | Record | Heartbeat, None, None]:
    """Yield records, events and heartbeats; closing the generator stops the model.

    Raises InputError for an invalid request.
    """
    settings = request.settings(host)
    check_prompts(engine, request.examples, host)
    return _events(partial(run_evaluation, engine, request.examples, settings))


def check_prompts(engine: Engine, examples: Sequence[Example], host: HostSettings) -> None:
    """Raise InputError that names the first example whose prompt is longer than the host allows."""
    if host.max_prompt_tokens is None:
        return  # the engine itself says of each row whether it can be read
    for example in examples:
        if why := too_long(example.comparison().tokenize(engine).num_tokens, host):
            raise InputError(f"Row {example.id}: {why}")


def work_of(records: Sequence[Record]) -> Work:
    """Return the work of these records; reused results count as none, shared prefills are split."""
    computed = [(record, _own_part(record)) for record in records if record.was_computed]
    return Work(
        prompts=len(computed),
        prompt_tokens=round(sum(part * record.prompt_tokens for record, part in computed)),
        new_tokens=round(sum(part * (record.answer_tokens or 0) for record, part in computed)),
        orders=len({record.order_name for record in records}),
        read_s=sum(part * record.prefill_s for record, part in computed),
        write_s=sum(part * record.decode_s for record, part in computed),
    )


def _own_part(record: Record) -> float:
    """Return the fraction of the standalone time of a record that was attributed to it."""
    alone = record.prefill_s + record.decode_s
    return min(1.0, record.seconds / alone) if alone else 1.0


def _counted(done: int, planned: int, began: float) -> str:
    """Describe the progress: "12 of 48 records, about 30 s left"."""
    counted = f"{done} of {planned} records"
    if not 0 < done < planned:
        return counted
    return f"{counted}, about {format_seconds((time.monotonic() - began) / done * (planned - done))} left"


def _errors(records: list[Record]) -> str:
    """Describe the number of failed records and the first error; "" if there is none."""
    errors = [record.error for record in records if record.error]
    return f"{len(errors)} records could not be measured: {errors[0]}." if errors else ""


def _events(
    run: Callable[[Emit, threading.Event], None],
) -> Generator[Event | Record | Heartbeat, None, None]:
    """Yield the events of the evaluation, and a heartbeat every BEAT_S seconds."""

    def work(emit: Callable[[Event | Record | Heartbeat], None], cancelled: threading.Event) -> None:
        with _beating(lambda: emit(Heartbeat())):
            run(emit, cancelled)

    return stream_from_worker(work)


@contextmanager
def _beating(beat: Callable[[], None]) -> Iterator[None]:
    """Call `beat` in a background thread every BEAT_S seconds until the block ends."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(BEAT_S):
            beat()

    thread = threading.Thread(target=go_on, name="measure-beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def plan_measurement(engine: Engine, examples: Sequence[Example], settings: Settings) -> Work:
    """Plan the work of an evaluation; results shared by several records count once."""
    work = Work()
    for example in examples:
        longest = settings.max_new_tokens or get_task(example.task).max_new_tokens
        prefills, generations = distinct_parts(ExamplePlan(engine, example, settings).results)
        for prefill in prefills:
            work += planned(tokens=prefill.layout.num_tokens, methods=1)
        for generation in generations:
            work += Work(new_tokens=generation.num_rows * longest)
    return work
