"""Run of the form: from its widgets to a job, and from the views of the job to the answers on the page."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from pine_engine.scheduling.job import Job
from viz.page.answers.answering import accepted_answers, prepare_answers, shown_html, stopped_cards
from viz.page.answers.order_table import order_table_json
from viz.page.answers.shown import Shown, keep_earlier
from viz.page.answers.workspace import Workspace
from viz.page.common.failures import notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import PRIVATE_EVENT, bind
from viz.page.files.reading_files import FileReader
from viz.page.form.editor import bind_editor
from viz.page.form.examples import NO_EXAMPLE, accepted_for, example_of
from viz.page.form.form import Form, read_form
from viz.page.jobs.job_bar import ButtonJob, JobBar, Updates, bind_job
from viz.page.jobs.sources import Choice, Sources


def bind_workspace(
    page: Workspace, sources: Sources, chosen: gr.State, settings: HostSettings, reader: FileReader
) -> Any:
    """Connect the widgets; return the event of a run."""
    scored, shown = [page.shown, page.accepted], [page.answers, page.order_table]
    page.accepted.change(bind(show_scores, page), scored, shown, **PRIVATE_EVENT)
    bind_editor(page.editor, reader, task=page.task, instruction=page.instruction)
    inputs = [page.shown, chosen, page.accepted, page.typed, *page.inputs]
    outputs = [*page.outputs, page.shuffle_bar.status]
    return bind_job(page.bar, bind(begin_run, page, settings), inputs, outputs, sources, chosen, page.key)


def show(page: Workspace, shown: Shown, accepted: str | None) -> Updates:
    """Return the updates that show these answers, scored by the accepted ones."""
    return show_scores(page, shown, accepted) | {page.shown: shown}


def show_scores(page: Workspace, shown: Shown, accepted: str | None) -> Updates:
    """Return the updates of the answers on the page, scored by the accepted ones."""
    scored_by = accepted_answers(accepted)
    return {page.answers: shown_html(shown, scored_by), page.order_table: order_table_json(shown, scored_by)}


@dataclass(frozen=True)
class Started:
    """Inputs of a run that was started, and the answers on the page that it adds to."""

    form: Form
    model: Choice | None
    before: Shown | None
    given: str  # accepted answers on the page
    accepted: str  # those of this form

    def joined(self, view: Shown) -> Shown:
        """Return a view of the run beside the answers before it."""
        return keep_earlier(self.before, replace(view, form=self.form, model=self.model))


def start_run(
    shown: Shown, model: Choice | None, accepted: str | None, typed: str | None, *values: Any
) -> Started:
    """Return the inputs of a run; `values` are those of `Workspace.inputs`."""
    form = read_form(*values)
    before = None if shown.changes((form, model)) else shown
    return Started(form, model, before, accepted or "", accepted_for(form, accepted, typed))


def clear_before(page: Workspace, started: Started, other: JobBar) -> Updates:
    """Return the updates at the start of a run: no example is named beside answers to own documents.

    Answers to other inputs stay marked as such until the first new one.
    """
    cleared: Updates = {other.status: notice("")}
    return cleared if example_of(started.form) else cleared | {page.example: NO_EXAMPLE}


def show_view(page: Workspace, started: Started, view: Shown) -> Updates:
    """Return the updates of a view, beside the answers before it."""
    if not view.has_text:
        return {}
    view = started.joined(view)
    return show(page, view, started.accepted) | {page.origin: view.inputs}


def end_run(page: Workspace, started: Started, view: Shown) -> Updates:
    """Return the updates at the end of a run, with the accepted answers if they were of another form."""
    stopped = replace(view, cards=stopped_cards(view.cards))
    updates = {} if view.is_complete else show_view(page, started, stopped)
    if run := started.joined(view).run:
        updates[page.finished] = run
    if view.has_text and started.accepted != started.given:
        updates[page.accepted] = started.accepted
    return updates


def begin_run(page: Workspace, settings: HostSettings, *values: Any) -> ButtonJob:
    """Return the job that runs the order of the form; see `start_run` for the values."""
    started = start_run(*values)
    form = started.form
    return ButtonJob(
        job=Job("compare", form.methods, prepare_answers, {"form": form, "settings": settings}),
        show=partial(show_view, page, started),
        task=form.task,
        cleared=clear_before(page, started, page.shuffle_bar),
        replaced={page.stale: ""},
        kept="Partial answers are kept.",
        end=partial(end_run, page, started),
    )
