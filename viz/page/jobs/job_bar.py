"""Job of the page or the API: start button, Stop, and the run: queue -> engine -> work -> views."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import gradio as gr

import pine_engine as pine
from pine_engine.errors import Cancelled
from viz.page.common.event_options import MODEL_EVENT, PRIVATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.jobs.connection_tracker import current_client, listener_check, stop_if_disconnected
from viz.page.jobs.cost import Work
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.model_pool import Choice
from viz.page.jobs.run_log import LoggedRun, StopFlag
from viz.page.jobs.sources import Sources
from viz.page.jobs.zerogpu import compute

View = TypeVar("View")
Shown = TypeVar("Shown")

WAIT_S = 0.8
"""Seconds between two messages to a waiting client, which cost the server some milliseconds each."""

Updates = dict[Any, Any]
"""Updates of widgets."""


class JobView(Protocol):
    """Progress of a job, with the content of its panel."""

    @property
    def sentence(self) -> str:
        """Return the progress in words."""

    @property
    def done(self) -> Work | None:
        """Return the work so far; None if unknown."""


Views = Generator[JobView, None, None]


@dataclass(frozen=True)
class JobBar:
    """Widgets of every job."""

    run: gr.Button
    stop: gr.Button
    estimate: gr.HTML
    """Estimated time."""

    status: gr.HTML
    stopping: gr.State
    """Stop flag of the session."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One press of the start button."""

    what: str
    """Operation in the log."""

    methods: Sequence[str]
    """Methods in the log."""

    work: "Callable[[pine.Engine], Views]"
    """Generator on an engine; closing it stops the model. It and its views can be pickled, see zerogpu.py."""

    plan: "Callable[[pine.Engine], Work]"
    """Return the planned work."""

    show: Callable[[Any], Updates]
    """Return the updates of a view."""

    task: Callable[[], str]
    """Return the task whose model runs the job; its errors are errors of the job."""

    cleared: Updates
    """Updates at the start."""

    kept: str
    """Sentence about results that stay after Stop."""

    keep: Callable[[Any], None] = lambda view: None
    """Called with each view that was shown."""

    after_stop: Callable[[], Updates] = dict
    """Return the updates after Stop."""

    end: Callable[[], Updates] = dict
    """Return the last updates, also after Stop and failures."""


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
    """Build the status lines below the buttons."""
    with gr.Row(elem_classes="page-row page-status-row"):
        status = gr.HTML(notice(sentence), elem_id=status_id, elem_classes="page-job-status", min_width=0)
        estimate = gr.HTML("", elem_id=f"{status_id}-estimate", min_width=0)
    return JobBar(*buttons, estimate, status, gr.State(StopFlag()))


def wire_job(
    bar: JobBar,
    begin: Callable[..., Job],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    sources: Sources,
    chosen: gr.State,
) -> Any:
    """Connect the buttons; return the event, so that others can follow it.

    `begin` returns the job for the values of `inputs`; `outputs` are all widgets that the job updates.
    """

    def idle(html: str) -> Updates:
        return {bar.status: html, bar.stop: gr.update(interactive=False)}

    def run(stop: StopFlag, choice: Choice | None, *values: Any) -> Generator[Updates, None, None]:
        job = begin(*values)
        current = sources.runs.new(job.what, job.methods, stop)
        sentence = ""

        def show(view: JobView) -> Updates:
            nonlocal sentence
            sentence, current.done = view.sentence, view.done or current.done
            return {bar.status: notice(sentence)} | job.show(view)

        yield {bar.status: notice("Starting…"), bar.stop: gr.update(interactive=True)} | job.cleared
        yield from run_on_model(
            sources,
            current,
            lambda: sources.lease(job.task(), choice),
            job.work,
            plan=job.plan,
            say=lambda sentence: {bar.status: notice(sentence)},
            show=show,
            keep=job.keep,
        )
        if current.failure:
            yield idle(notice(current.failure, kind="error"))
        elif current.why:
            yield idle(notice(f"{current.why} {job.kept}")) | job.after_stop()
        elif current.outcome == "done":
            yield idle(notice(sentence))
        if last := job.end():
            yield last

    def stop(flag: StopFlag) -> Any:
        flag.requested = True
        return gr.update(interactive=False)

    bar.stop.click(stop, bar.stopping, bar.stop, **PRIVATE_EVENT)
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
    lease: Callable[[], AbstractContextManager[EngineSource]],
    work: "Callable[[pine.Engine], Generator[View, None, None]]",
    *,
    plan: "Callable[[pine.Engine], Work]",
    say: Callable[[str], Shown],
    show: Callable[[View], Shown],
    keep: Callable[[View], None] = lambda view: None,
) -> Generator[Shown, None, None]:
    """Yield say(sentence) while the run waits, then show(view) of each view.

    `failure` or `why` of the run tell its outcome; without both it is done or has no client. Closing the
    generator leaves the queue and stops the model.
    """
    try:
        with sources.runs.watched(run), lease() as source:
            if not source.for_all:
                yield from _until_loaded(
                    source, run, say
                )  # before the queue, so that later runs do not wait for it
            with sources.queue.join(current_client(), listener_check()) as ticket:
                while not run.over() and (ahead := ticket.wait(WAIT_S)):
                    stop_if_disconnected()
                    yield say(ticket.sentence(ahead))
                yield from _until_loaded(source, run, say)
                engine = None if run.over() else source.wait(0)
                if engine is None:
                    return
                run.start(engine)
                with closing(compute(engine, work, plan=plan)) as views:
                    for view in views:
                        shown = show(view)
                        stop_if_disconnected()
                        if run.over():
                            return
                        yield shown
                        keep(view)
    except Cancelled:
        return
    except Exception as error:
        run.failure = explain(error)


def _until_loaded(
    source: EngineSource, run: LoggedRun, say: Callable[[str], Shown]
) -> Generator[Shown, None, None]:
    while not run.over() and source.wait(WAIT_S) is None:
        stop_if_disconnected()
        yield say(source.status.sentence)
