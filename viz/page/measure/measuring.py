"""Measuring, seen from the page: rows, methods and orders go in, tables that grow record by record come out.

Imports torch.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event
from pine_engine.engine.model_worker import stream_from_worker
from pine_engine.errors import InputError
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.example_runs import ExamplePlan, distinct_parts
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.intervals import MIN_EXAMPLES
from pine_engine.evaluation.measure import Measurement
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
from viz.page.jobs.cost import Work, in_words, planned
from viz.page.measure.tabulating import of_whole_examples, slot_curves, tabulate

BEAT_S = 0.5
"""Seconds after which the page hears something, not more often and not less: answers of several prompts are
written together without a word, and Stop is only heard between two views."""


SAMPLED = 4
"""Rows whose tokens are counted before a measurement: all of them would keep a visitor waiting."""


@dataclass(frozen=True)
class Heartbeat:
    """Time has passed."""


@dataclass(frozen=True)
class MeasureRequest:
    """What is to be measured."""

    rows: DataSet
    limit: int
    """Rows, from the first."""

    methods: tuple[str, ...]
    orders: tuple[str, ...]
    generate: bool
    logprobs: bool
    max_new_tokens: int
    """Longest answer, in tokens."""

    @property
    def examples(self) -> tuple[Example, ...]:
        """The rows that are measured."""
        return self.rows.examples[: self.limit]

    def settings(self, host: HostSettings = DEFAULTS) -> Settings:
        """The settings, checked. Raises InputError for the first thing that cannot be measured, or not here.

        host: what the host allows.
        """
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
        """How many records there will be. Raises InputError as settings does."""
        settings = self.settings(host)
        return len(settings.keys(self.examples))


@dataclass(frozen=True)
class MeasuredRecords:
    """What was measured so far, and with what."""

    info: RunInfo
    records: tuple[Record, ...]
    planned: frozenset[Key]
    """The keys of all records that there will be."""

    @property
    def run(self) -> MeasuredRun | None:
        """The rows that are done with every method in every order, as a run; None if there are none."""
        try:
            tasks = estimate_tasks(of_whole_examples(self.records, self.planned))
        except InputError:
            return None
        (label,) = run_labels([self.info])
        return MeasuredRun(label, self.info, tasks)


@dataclass(frozen=True)
class MeasureView:
    """What the page shows; None where it has not changed."""

    sentence: str
    tables: str | None = None
    """HTML, as the next one."""

    findings: str | None = None
    curves: tuple[Curve, ...] | None = None
    """Over the slots of the answer, one for each number of documents."""

    measured: MeasuredRecords | None = None
    done: Work | None = None
    """The work so far."""


def work_sentence(asked: MeasureRequest, host: HostSettings = DEFAULTS) -> str:
    """What will be computed, in words. Raises InputError as `settings` does."""
    settings = asked.settings(host)
    planned = settings.keys(asked.examples)
    count = len(asked.examples)
    orders = {name for _, _, name in planned}
    parts = ((count, "row"), (len(settings.methods), "method"), (len(orders), "order"))
    product = " × ".join(f"{number} {noun}{'s' if number != 1 else ''}" for number, noun in parts)
    return f"{product}: {len(planned)} record{'s' if len(planned) != 1 else ''}."


def planned_work(engine: Engine, asked: MeasureRequest, host: HostSettings = DEFAULTS) -> Work:
    """About how much work it is, from the first rows alone. Raises InputError as `settings` does."""
    settings = asked.settings(host)
    sample = asked.examples[:SAMPLED]
    return plan_measurement(engine, sample, settings).times(len(asked.examples) / max(1, len(sample)))


def measure_rows(
    engine: Engine, asked: MeasureRequest, host: HostSettings = DEFAULTS
) -> Generator[MeasureView, None, None]:
    """Measures the rows; closing the generator stops the model.

    host: what it allows. Raises InputError if what is asked cannot be measured, or not here.
    """
    settings = asked.settings(host)
    rows = asked.rows
    info = run_info(settings, engine, data=rows.name, data_sha256=rows.sha256)
    planned = settings.keys(asked.examples)
    setting = f"{engine.model_name}, {engine.dtype}, {asked.rows.name}"
    records: list[Record] = []
    began = heard = time.monotonic()
    drawn = began - BEAT_S  # so that the first of all is shown at once
    yield MeasureView(_counted(0, len(planned), began), measured_tables([], done=0, planned=len(planned)))
    with closing(measured_events(engine, asked, host)) as events:
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
    engine: Engine, asked: MeasureRequest, host: HostSettings
) -> Generator[Event | Record | Heartbeat, None, None]:
    """Every record as soon as it is there, and what is told meanwhile; closing it stops the model.

    Raises InputError if what is asked cannot be measured, or not here.
    """
    settings = asked.settings(host)
    check_prompts(engine, asked.examples, host)
    return _events(Measurement(engine, asked.examples, settings))


def check_prompts(engine: Engine, examples: Sequence[Example], host: HostSettings) -> None:
    """Raises InputError that names the first row whose prompt is longer than the host allows."""
    if host.max_prompt_tokens is None:
        return  # the engine itself says of each row whether it can be read
    for example in examples:
        if why := too_long(example.comparison().tokenize(engine).num_tokens, host):
            raise InputError(f"Row {example.id}: {why}")


def work_of(records: Sequence[Record]) -> Work:
    """The work behind these records; what was not computed anew was none, and what was lent is shared."""
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
    """How much of what a record would take alone was spent on it; others answer for the rest."""
    alone = record.prefill_s + record.decode_s
    return min(1.0, record.seconds / alone) if alone else 1.0


def _counted(done: int, planned: int, began: float) -> str:
    """How far it is: "12 of 48 records, about 30 s left"."""
    counted = f"{done} of {planned} records"
    if not 0 < done < planned:
        return counted
    return f"{counted}, about {in_words((time.monotonic() - began) / done * (planned - done))} left"


def _errors(records: list[Record]) -> str:
    """How many records have an error, and the first one; "" if none has."""
    errors = [record.error for record in records if record.error]
    return f"{len(errors)} records could not be measured: {errors[0]}." if errors else ""


def _events(measurement: Measurement) -> Generator[Event | Record | Heartbeat, None, None]:
    """What the measurement emits, and a beat every BEAT_S seconds."""

    def work(emit: Callable[[Event | Record | Heartbeat], None], cancelled: threading.Event) -> None:
        with _beating(lambda: emit(Heartbeat())):
            measurement.work(emit, cancelled)

    return stream_from_worker(work)


@contextmanager
def _beating(beat: Callable[[], None]) -> Iterator[None]:
    """Calls beat in a thread of its own every BEAT_S seconds until the block is left."""
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
    """The work of a measurement; what is computed once for several records counts once."""
    work = Work()
    for example in examples:
        longest = settings.max_new_tokens or get_task(example.task).max_new_tokens
        prefills, generations = distinct_parts(ExamplePlan(engine, example, settings).results)
        for prefill in prefills:
            work += planned(tokens=prefill.layout.num_tokens, methods=1)
        for generation in generations:
            work += Work(new_tokens=generation.num_rows * longest)
    return work
