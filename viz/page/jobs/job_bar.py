"""Job behind a button of the page: start button, Stop, status line, and the updates of its views."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gradio as gr

from pine_engine.errors import PineError
from pine_engine.scheduling.job import Job
from pine_engine.scheduling.run_state import RunState, StopFlag
from viz.page.common.failures import explain, notice
from viz.page.common.widgets import MODEL_EVENT, PRIVATE_EVENT, bind
from viz.page.jobs.connection_tracker import current_caller
from viz.page.jobs.sources import Choice, Sources

Updates = dict[Any, Any]  # updates of widgets

running = partial(notice, kind="running")
"""Render the status line of a run, to which assets/typing.js adds the seconds since its last change."""


class JobBar:
    """Start button and Stop of a job, with status and estimated time below them.

    Args:
        label: Label of the start button.
        run_id: Element id of the start button.
        stop_id: Element id of Stop.
        options: Further options of the start button.
    """

    def __init__(self, label: str, *, run_id: str, stop_id: str, **options: Any) -> None:
        self.run = gr.Button(
            label, elem_id=run_id, variant="primary", **{"scale": 0, "min_width": 260} | options
        )
        self.stop = gr.Button(
            "Stop",
            elem_id=stop_id,
            elem_classes="page-job-stop",
            variant="stop",
            interactive=False,
            scale=0,
            min_width=80,
        )
        self.stopping = gr.State(StopFlag())  # of the session
        self.stop.click(request_stop, self.stopping, self.stop, **PRIVATE_EVENT)

    def build_status(self, sentence: str, *, status_id: str) -> None:
        """Build the status lines."""
        with gr.Row(elem_classes="page-row page-status-row"):
            self.status = gr.HTML(
                notice(sentence), elem_id=status_id, elem_classes="page-job-status", min_width=0
            )
            self.estimate = gr.HTML("", elem_id=f"{status_id}-estimate", min_width=0)


@dataclass(frozen=True, kw_only=True)
class ButtonJob:
    """One press of the start button.

    A view of the job has `sentence` (progress in words), `done` (completed work), `is_complete` (True once
    all results are there) and results. Views with equal results are equal.

    Attributes:
        job: Job.
        show: Return the updates of a view with new content.
        task: Task whose model computes the job.
        cleared: Updates at the start.
        replaced: Updates with the first results, which belong to the form that was sent.
        kept: Sentence about the results that stay after Stop.
        end: Return the last updates for the last view, also after Stop and failures.
    """

    job: Job
    show: Callable[[Any], Updates]
    task: str
    cleared: Updates
    replaced: Updates = field(default_factory=dict)
    kept: str = ""
    end: Callable[[Any], Updates] = lambda last: {}


def request_stop(flag: StopFlag) -> Any:
    """Request the end of the run, and disable Stop."""
    flag.requested = True
    return gr.update(interactive=False)


def bind_job(
    bar: JobBar,
    begin: Callable[..., ButtonJob | str],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    sources: Sources,
    chosen: gr.State,
    key: gr.State | None = None,
    *,
    after: Sequence[Any] = (),
    js: str | None = None,
) -> Any:
    """Connect the start button; return its event.

    Args:
        bar: Widgets of the job.
        begin: Return the job for the values of `inputs`, or the status without one, or raise PineError.
        inputs: Widgets with the arguments of `begin`.
        outputs: All widgets that the job updates.
        sources: Models of the page.
        chosen: Selected model.
        key: Key of the browser whose last run is kept; None to keep no run.
        after: Events after whose success the job starts, too.
        js: Function of the scripts that takes and returns the values of the inputs on a press.
    """
    parts = {
        "fn": bind(run, bar, begin, sources),
        "inputs": [bar.stopping, chosen, key or gr.State(""), *inputs],
        "outputs": [bar.status, bar.stop, *outputs],
        "show_progress": "minimal",
        "show_progress_on": bar.status,
        "api_visibility": "private",
        **MODEL_EVENT,
    }
    for event in after:
        event.success(**parts)
    return bar.run.click(**parts, js=js)


def bind_resume(bars: Sequence[JobBar], outputs: Sequence[Any], sources: Sources, key: gr.State) -> Any:
    """Build the hidden button that shows the kept run of a browser; return its event."""
    button = gr.Button(visible="hidden", elem_id="resume-run")  # pressed by assets/drafts.js
    own = [widget for bar in bars for widget in (bar.status, bar.stop, bar.stopping)]
    options: dict[str, Any] = {**PRIVATE_EVENT, **MODEL_EVENT, "queue": True}
    return button.click(bind(resume, sources), key, [*own, *outputs], **options)


def run(
    bar: JobBar,
    begin: Callable[..., ButtonJob | str],
    sources: Sources,
    stop: StopFlag,
    choice: Choice | None,
    key: str,
    *values: Any,
) -> Generator[Updates, None, None]:
    """Run the job of these values, and yield the updates of its views."""
    try:
        press = begin(*values)
    except PineError as error:
        yield end_status(bar, notice(explain(error), kind="error"))
        return
    if isinstance(press, str):
        yield {bar.status: notice(press)}
        return
    submit = partial(sources.submit, press.job, press.task, choice, stop)
    current, steps = sources.kept.start(key, (bar, press), submit, current_caller())
    yield from show_steps(bar, press, current, steps)


def resume(sources: Sources, key: str) -> Generator[Updates, None, None]:
    """Show the kept run of a browser after a reload, from its newest view on."""
    if run := sources.kept.find(key):
        bar, press = run.press
        yield {bar.stopping: run.state.stop}
        yield from show_steps(bar, press, run.state, run.follow(current_caller()))


def show_steps(
    bar: JobBar, press: ButtonJob, current: RunState, steps: Generator[Any, None, None]
) -> Generator[Updates, None, None]:
    """Yield the updates of the steps of a run, and those of its end."""
    last: Any = None
    sentence = failure = ""
    has_results = False
    yield {bar.status: running("Starting…"), bar.stop: gr.update(interactive=True)} | press.cleared
    try:
        with closing(steps):
            for step in steps:
                if isinstance(step, str):
                    if step != sentence:
                        yield {bar.status: running(step)}
                    sentence = step
                else:
                    updates = press.show(step) if step != last else {}
                    updates |= press.replaced if updates and not has_results else {}
                    yield {bar.status: running(step.sentence)} | updates
                    last, has_results = step, has_results or bool(updates)
    except Exception as error:
        failure = explain(error)
    end = current.end
    if failure:
        yield end_status(bar, notice(failure, kind="error"))
    elif end and end.sentence:
        kept = f" {press.kept}" if has_results else ""
        yield end_status(bar, notice(f"{end.sentence}{kept}"))
    elif end and end.reason == "done":
        yield end_status(bar, notice(last.sentence))
    if last and (updates := press.end(last)):
        yield updates


def end_status(bar: JobBar, html: str) -> Updates:
    """Return the updates after a job: its last status, and Stop disabled."""
    return {bar.status: html, bar.stop: gr.update(interactive=False)}
