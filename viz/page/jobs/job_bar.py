"""A job of the page: a button that starts work on the model, Stop beside it, and how far it is."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import gradio as gr

from viz.page.common.event_options import MODEL_EVENT, PRIVATE_EVENT
from viz.page.common.failures import notice
from viz.page.jobs.cost import Work
from viz.page.jobs.run_log import StopFlag
from viz.page.jobs.runner import run_on_model
from viz.page.jobs.sources import Sources

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine
    from viz.page.jobs.model_pool import Choice

Updates = dict[Any, Any]
"""New values of widgets, as gradio takes them."""


class JobView(Protocol):
    """What a job tells: how far it is, in words, and whatever its panel shows."""

    @property
    def sentence(self) -> str:
        """How far it is."""

    @property
    def done(self) -> Work | None:
        """The work so far; None where that is not known."""


Views = Generator[JobView, None, None]


@dataclass(frozen=True)
class JobBar:
    """The widgets that every job has."""

    run: gr.Button
    stop: gr.Button
    estimate: gr.HTML
    """How long it takes."""

    status: gr.HTML
    stopping: gr.State
    """Whether Stop was told."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a press of the button asks for."""

    what: str
    """As the log has it."""

    methods: Sequence[str]
    """As the log has them."""

    work: Callable[["Engine"], Views]
    """Does it on an engine; closing it stops the model. It and its views can be pickled: a function of a
    module with plain data, see zerogpu.py.
    """

    plan: Callable[["Engine"], Work]
    """How much work that is."""

    show: Callable[[Any], Updates]
    """What a view of it changes on the page."""

    task: Callable[[], str]
    """Finds the name of the task whose model does it; what it raises is told like any failure."""

    cleared: Updates
    """Shown at once."""

    kept: str
    """A sentence on what stays when it is stopped."""

    keep: Callable[[Any], None] = lambda view: None
    """Called with a view once it is shown, which Stop may prevent."""

    after_stop: Callable[[], Updates] = dict
    """What else is shown when it is stopped."""

    end: Callable[[], Updates] = dict
    """What is shown last, also after Stop and after a failure."""


def build_buttons(
    label: str,
    *,
    run_id: str,
    stop_id: str,
    min_width: int = 200,
    variant: Literal["primary", "secondary"] = "primary",
) -> tuple[gr.Button, gr.Button]:
    """Makes the button that starts a job, and Stop; min_width: of the first, in pixels."""
    run = gr.Button(label, variant=variant, elem_id=run_id, scale=3, min_width=min_width)
    stop = gr.Button(
        "Stop", variant="stop", elem_id=stop_id, elem_classes="page-job-stop", interactive=False, min_width=80
    )
    return run, stop


def build_bar(buttons: tuple[gr.Button, gr.Button], sentence: str, *, status_id: str) -> JobBar:
    """Makes the two sentences below the buttons, and puts them together."""
    with gr.Row(elem_classes="page-row page-told"):
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
    """Connects the buttons; returns the event, so that others can follow it.

    begin: called with the values of inputs at each press. outputs: all widgets that its job updates. chosen:
    the Choice of a model, or None.
    """

    def idle(html: str) -> Updates:
        return {bar.status: html, bar.stop: gr.update(interactive=False)}

    def run(stop: StopFlag, choice: "Choice | None", *values: Any) -> Generator[Updates, None, None]:
        job = begin(*values)
        current = sources.runs.new(job.what, job.methods, stop)
        sentence = ""

        def show(view: JobView) -> Updates:
            nonlocal sentence
            sentence, current.done = view.sentence, view.done or current.done
            return {bar.status: notice(sentence)} | job.show(view)

        yield {bar.status: notice("Starting"), bar.stop: gr.update(interactive=True)} | job.cleared
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
