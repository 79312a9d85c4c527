"""Jobs of the API endpoints: generators that yield progress, and plans of their work.

All functions can be pickled, see zerogpu.compute. Torch is imported inside them, once the engine is loaded.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pine_engine.engine.events import PrefillDone, RunFinished, RunResult, answers_report, trace_report
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.task_estimates import nested
from pine_engine.methods.table import METHODS
from viz.page.answers.answering import plan_answers
from viz.page.api.reports import as_json, is_correct, shuffled_result, traced_result
from viz.page.api.results import ApiResult, Compared, Measured, Traced
from viz.page.common.host_settings import HostSettings
from viz.page.files.data_sets import DataSet
from viz.page.form.checks import form_layout
from viz.page.form.form import Form
from viz.page.jobs.cost import Meter, Work

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine
    from viz.page.evaluate_job import MeasureRequest


@dataclass(frozen=True)
class CallView:
    """Progress of a job."""

    done: Work
    """Work so far."""

    answer: Callable[[], dict[str, Any]] | None = None
    """Create the result so far; None before the first."""

    is_last: bool = False
    """True for the last view."""

    progress: tuple[int, int] | None = None
    """Completed and total steps; None if unknown."""

    sentence: str = ""
    """Progress in words."""


def compare(
    engine: "Engine", form: Form, accepted: Sequence[str], settings: HostSettings
) -> Generator[CallView, None, None]:
    """Yield the answers of all methods."""

    def report(result: RunResult) -> Compared:
        report = {"model": engine.model_name, "dtype": engine.dtype, **answers_report(result)}
        for answer in report["results"]:
            answer["is_correct"] = is_correct(answer["text"], accepted)
        return Compared.model_validate(report)

    return _answers(engine, form, settings, report)


def trace(
    engine: "Engine", form: Form, arrays: bool, settings: HostSettings
) -> Generator[CallView, None, None]:
    """Yield positions, importance and attention of all methods."""

    def report(result: RunResult) -> Traced:
        report = {"model": engine.model_name, "dtype": engine.dtype, **trace_report(result)}
        return traced_result(report, arrays=arrays)

    return _answers(engine, form, settings, report, trace=True)


def _answers(
    engine: "Engine",
    form: Form,
    settings: HostSettings,
    report: Callable[[RunResult], ApiResult],
    *,
    trace: bool = False,
) -> Generator[CallView, None, None]:
    layout = form_layout(form, engine, settings)
    meter = Meter(layout.num_tokens)
    events = engine.generate(layout, methods=form.methods, max_new_tokens=form.max_new_tokens, trace=trace)
    with closing(events):
        for event in events:
            meter.see(event)
            if isinstance(event, RunFinished):
                meter.finish(event.result)
                yield CallView(meter.work, partial(as_json, report(event.result)), is_last=True)
            elif isinstance(event, PrefillDone):
                read = meter.work.prompts
                sentence = f"{METHODS[event.method].label} has read the prompt"
                yield CallView(meter.work, progress=(read, len(form.methods)), sentence=sentence)
            else:
                yield CallView(meter.work)


def shuffle(
    engine: "Engine", form: Form, count: int, seed: int, accepted: Sequence[str], settings: HostSettings
) -> Generator[CallView, None, None]:
    """Yield the answers under several orders, with a report after each."""
    from pine_engine.engine.orders import OrderResult, compare_orders
    from viz.page.shuffle_job import orders_for

    layout = form_layout(form, engine, settings)
    orders = orders_for(layout.num_documents, count, seed, settings)
    meter = Meter(layout.num_tokens)
    rows: list[OrderResult] = []
    events = compare_orders(
        engine, layout, methods=form.methods, orders=orders, max_new_tokens=form.max_new_tokens
    )
    read = 0
    with closing(events):
        for event in events:
            if isinstance(event, OrderResult):
                meter.finish(event.result)
                rows.append(event.without_logits())
                report = shuffled_result(engine.model_name, engine.dtype, rows, accepted)
                yield CallView(
                    meter.work,
                    partial(as_json, report),
                    is_last=len(rows) == len(orders),
                    progress=(len(rows), len(orders)),
                    sentence=f"Order {len(rows)} of {len(orders)} is answered",
                )
                continue
            meter.see(event)
            if meter.work.prompts // len(form.methods) > read:
                read += 1
                sentence = f"Order {read} of {len(orders)} is read"
                yield CallView(meter.work, progress=(0, len(orders)), sentence=sentence)
            else:
                yield CallView(meter.work)


def measure(
    engine: "Engine",
    rows: DataSet,
    methods: tuple[str, ...],
    orders: tuple[str, ...],
    max_new_tokens: int,
    settings: HostSettings,
) -> Generator[CallView, None, None]:
    """Yield every record of these examples, with a summary so far."""
    from viz.page.evaluate_job import measure_rows

    request = _measure_request(rows, methods, orders, max_new_tokens, settings)
    with closing(measure_rows(engine, request, settings)) as views:
        for view in views:
            answer = partial(_measured, engine.model_name, engine.dtype, view.records)
            yield CallView(view.done, answer if view.records else None, is_last=view.is_complete)


def _measured(model: str, dtype: str, records: Sequence[Record]) -> dict[str, Any]:
    return as_json(
        Measured(model=model, dtype=dtype, summary=nested(estimate_tasks(records)), records=list(records))
    )


def _measure_request(
    rows: DataSet,
    methods: tuple[str, ...],
    orders: tuple[str, ...],
    max_new_tokens: int,
    settings: HostSettings,
) -> "MeasureRequest":
    from viz.page.evaluate_job import MeasureRequest

    return MeasureRequest(
        rows=rows,
        limit=len(rows.examples),
        methods=methods,
        orders=orders,
        generate=True,
        logprobs=True,
        max_new_tokens=max_new_tokens,
    )


def plan_run(engine: "Engine", form: Form, settings: HostSettings, **_: Any) -> Work:
    """Plan the work of one run."""
    return plan_answers(engine, form, settings=settings)


def plan_shuffle(
    engine: "Engine", form: Form, count: int, seed: int, settings: HostSettings, **_: Any
) -> Work:
    """Plan the work of several orders."""
    from viz.page.shuffle_job import plan_shuffle

    return plan_shuffle(engine, form, count=count, seed=seed, controls=False, settings=settings)


def plan_measurement(engine: "Engine", settings: HostSettings, **rows: Any) -> Work:
    """Plan the work of all records of these examples."""
    from viz.page.evaluate_job import plan_measurement

    request = _measure_request(**rows, settings=settings)
    return plan_measurement(engine, request, settings)
