"""Job of the page or the API: start button, Stop, and the run: queue -> engine -> work -> views."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import gradio as gr

import pine_engine as pine
from pine_engine.errors import Cancelled, PineError
from viz.page.common.event_options import MODEL_EVENT, PRIVATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.jobs.connection_tracker import current_client, listener_check, stop_if_disconnected
from viz.page.jobs.cost import Work
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.model_pool import Choice
from viz.page.jobs.run_log import LoggedRun, StopFlag
from viz.page.jobs.shared_runs import SharedRun
from viz.page.jobs.sources import Sources
from viz.page.jobs.zerogpu import compute

View = TypeVar("View")

WAIT_S = 0.8  # seconds between two checks whether a waiting run can start or has been stopped
Updates = dict[Any, Any]  # updates of widgets

running = partial(notice, kind="running")
"""Render the status line of a run, to which assets/typing.js adds the seconds since its last change."""


class JobView(Protocol):
    """Progress of a job, with the results so far; views with the same results are equal."""

    @property
    def sentence(self) -> str:
        """Return the progress in words."""

    @property
    def is_complete(self) -> bool:
        """Return True if all results are there."""

    @property
    def done(self) -> Work:
        """Return the work so far."""


@dataclass(frozen=True)
class JobBar:
    """Widgets of every job."""

    run: gr.Button
    stop: gr.Button
    estimate: gr.HTML  # estimated time
    status: gr.HTML
    stopping: gr.State  # stop flag of the session


@dataclass(frozen=True, kw_only=True)
class Job:
    """One press of the start button."""

    what: str  # operation in the log
    methods: Sequence[str]  # methods in the log
    work: Callable[..., Generator[Any, None, None]]
    """Generator of views on an engine; closing it stops the model. Can be pickled, see zerogpu.py."""

    plan: Callable[..., Work]  # return the planned work on an engine
    arguments: Mapping[str, Any]  # further arguments of `work` and `plan`
    show: Callable[[Any], Updates]  # return the updates of a view with new content
    task: str  # task whose model runs the job
    cleared: Updates  # updates at the start
    kept: str = ""  # sentence about the results of the run that stay after Stop
    after_stop: Callable[[Any], Updates] = lambda last: {}
    """Return the updates after Stop, from the last view."""

    end: Callable[[Any], Updates] = lambda last: {}
    """Return the last updates, also after Stop and failures, from the last view."""


def build_buttons(
    label: str,
    *,
    run_id: str,
    stop_id: str,
    min_width: int = 200,
    variant: Literal["primary", "secondary"] = "primary",
) -> tuple[gr.Button, gr.Button]:
    """Build the start button and Stop."""
    run = gr.Button(label, variant=variant, elem_id=run_id, scale=3, min_width=min_width)
    stop = gr.Button(
        "Stop", variant="stop", elem_id=stop_id, elem_classes="page-job-stop", interactive=False, min_width=80
    )
    return run, stop


def build_bar(buttons: tuple[gr.Button, gr.Button], sentence: str, *, status_id: str) -> JobBar:
    """Build the status lines below the buttons, and connect Stop."""
    with gr.Row(elem_classes="page-row page-status-row"):
        status = gr.HTML(notice(sentence), elem_id=status_id, elem_classes="page-job-status", min_width=0)
        estimate = gr.HTML("", elem_id=f"{status_id}-estimate", min_width=0)
    run, stop = buttons
    stopping = gr.State(StopFlag())

    def request_stop(flag: StopFlag) -> Any:
        flag.requested = True
        return gr.update(interactive=False)

    stop.click(request_stop, stopping, stop, **PRIVATE_EVENT)
    return JobBar(run, stop, estimate, status, stopping)


def bind_job(
    bar: JobBar,
    begin: Callable[..., Job],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    sources: Sources,
    chosen: gr.State,
) -> Any:
    """Connect the start button; return the event, so that others can follow it.

    `begin` returns the job for the values of `inputs`, or raises PineError; `outputs` are all widgets that
    the job updates.
    """

    def idle(html: str) -> Updates:
        return {bar.status: html, bar.stop: gr.update(interactive=False)}

    def run(stop: StopFlag, choice: Choice | None, *values: Any) -> Generator[Updates, None, None]:
        try:
            job = begin(*values)
        except PineError as error:
            yield idle(notice(explain(error), kind="error"))
            return
        current = sources.runs.new(job.what, job.methods, stop)
        last: Any = None
        sentence = ""
        has_results = False
        yield {bar.status: running("Starting…"), bar.stop: gr.update(interactive=True)} | job.cleared
        lease = sources.lease(job.task, choice)
        steps: Generator[str | JobView, None, None] = run_on_model(
            sources, current, lease, job.work, job.plan, job.arguments
        )
        with closing(steps):
            for step in steps:
                if isinstance(step, str):
                    if step != sentence:
                        yield {bar.status: running(step)}
                    sentence = step
                else:
                    updates = job.show(step) if step != last else {}
                    yield {bar.status: running(step.sentence)} | updates
                    last, current.done, has_results = step, step.done, has_results or bool(updates)
        if current.failure:
            yield idle(notice(current.failure, kind="error"))
        elif current.why:
            kept = f" {job.kept}" if has_results else ""
            yield idle(notice(f"{current.why}{kept}")) | (job.after_stop(last) if last else {})
        elif current.outcome == "done":
            yield idle(notice(last.sentence))
        if last and (updates := job.end(last)):
            yield updates

    return bar.run.click(
        run,
        [bar.stopping, chosen, *inputs],
        [bar.status, bar.stop, *outputs],
        show_progress="minimal",
        show_progress_on=bar.status,
        api_visibility="private",
        **MODEL_EVENT,
    )


def run_on_model(
    sources: Sources,
    run: LoggedRun,
    lease: AbstractContextManager[EngineSource],
    work: Callable[..., Generator[View, None, None]],
    plan: Callable[..., Work],
    arguments: Mapping[str, Any],
) -> Generator[str | View, None, None]:
    """Yield sentences while the run waits for the model, then the views of its work.

    While an equal request is computed, its views are yielded; some may be skipped, but not the last one.
    `failure` or `why` of the run states its end; without both it is done or has no client. Closing the
    generator leaves the queue and stops the model.
    """
    try:
        with sources.runs.watched(run), lease as source:
            if not source.for_all:  # before the queue, so that later runs do not wait for it
                yield from _until_loaded(source, run)
            request, leaving = (source, work, arguments), ExitStack()
            plan = partial(plan, **arguments)

            def follow() -> SharedRun[Any] | None:
                if found := sources.shared_runs.find(request):
                    leaving.callback(found.leave)
                return found

            measure = partial(_num_bytes, source, plan)
            joined = sources.queue.join(current_client(), listener_check(), follow, measure)
            with joined as ticket, leaving:
                while not run.over() and (ahead := ticket.wait(WAIT_S)):
                    stop_if_disconnected()
                    yield ticket.sentence(ahead)
                yield from _until_loaded(source, run)
                engine = None if run.over() else source.wait(0)
                if engine is None:
                    return
                ticket.update_size()
                shared = ticket.computation
                if not isinstance(shared, SharedRun):
                    views = compute(engine, partial(work, **arguments), plan=plan)
                    ticket.computation = shared = sources.shared_runs.start(request, views)
                    leaving.callback(shared.leave)
                run.is_follower = ticket.is_follower
                run.start(engine, shared.began)
                if not run.is_follower and sources.runs.open - sources.queue.waiting > 1:
                    yield "Started. The prefill takes turns with those of other runs."
                for view in shared.views():
                    run.complete = getattr(view, "is_complete", False)
                    yield view
                    stop_if_disconnected()
                    if run.over():
                        return
    except Cancelled:
        return
    except Exception as error:
        run.failure = explain(error)


def _num_bytes(source: EngineSource, plan: "Callable[[pine.Engine], Work]") -> float:
    """Return the memory that a run takes; infinity while the model is not loaded, or for an unknown one."""
    engine = source.wait(0)
    if engine is None or not engine.shares_steps:
        return math.inf
    return plan(engine).bytes_at_once or math.inf


def _until_loaded(source: EngineSource, run: LoggedRun) -> Generator[str, None, None]:
    while not run.over() and source.wait(WAIT_S) is None:
        stop_if_disconnected()
        yield source.status.sentence
