"""Job that computes token-level attention for the tab "Attention"."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from pine_engine.prompts.tasks import USUAL_TASK
from viz.page.answers.answering import FinishedRun
from viz.page.inside.attending import AttendedView, AttentionRequest, attend, plan_attention
from viz.page.inside.drawn_attention import attention_request
from viz.page.inside.selection import Selection
from viz.page.jobs.cost import Work
from viz.page.jobs.job_bar import Job, JobBar, Updates, Views, build_bar, build_buttons, wire_job
from viz.page.jobs.sources import Sources

if TYPE_CHECKING:  # imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine


@dataclass(frozen=True)
class AttentionPanel:
    """Widgets of the job."""

    bar: JobBar
    attended: gr.State
    """Result of the last job, or None."""


def build_attention() -> AttentionPanel:
    """Build the widgets; the result is drawn in the tab."""
    with gr.Row(elem_classes="page-row page-shuffle-bar"):
        buttons = build_buttons("Compute", run_id="attend", stop_id="stop-attend", min_width=120)
    bar = build_bar(
        buttons,
        "Reads the prompt again, under two methods, in the layer and head above.",
        status_id="attend-status",
    )
    return AttentionPanel(bar, gr.State(None))


def wire_attention(
    panel: AttentionPanel, finished: gr.State, selection: gr.State, sources: Sources, chosen: gr.State
) -> Any:
    """Connect the buttons; return the event after which `attended` can be drawn."""

    # gradio reads the hints of functions that take an event, so these name no type that is not imported.
    def begin(run: FinishedRun | None, selected: Selection | None) -> Job:
        if run is None or selected is None:
            raise gr.Error("There is no run to look into; press Run.", print_exception=False)
        request = attention_request(run, selected)

        def show_view(view: AttendedView) -> Updates:
            return {} if view.attended is None else {panel.attended: view.attended}

        return Job(
            what="attention",
            methods=request.methods,
            work=partial(_attend, request=request),
            plan=partial(_plan, request=request),
            show=show_view,
            task=lambda: run.form.task if run.form else USUAL_TASK,
            cleared={},
            kept="What was drawn before stays.",
        )

    return wire_job(panel.bar, begin, [finished, selection], [panel.attended], sources, chosen)


def _attend(engine: "Engine", request: AttentionRequest) -> Views:
    return attend(engine, request)


def _plan(engine: "Engine", request: AttentionRequest) -> Work:
    return plan_attention(request)
