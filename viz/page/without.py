"""Answers without each document: after a run, and by the eye of a document (assets/documents.js)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.scheduling.job import Job
from pine_engine.scheduling.runs import Runs
from viz.page.answers.form_run import show
from viz.page.answers.shown import Shown
from viz.page.answers.workspace import Workspace
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import PRIVATE_EVENT, bind
from viz.page.form.form import Form, read_form
from viz.page.jobs import zerogpu
from viz.page.jobs.job_bar import ButtonJob, Updates, bind_job, request_stop
from viz.page.jobs.sources import Choice, Sources
from viz.page.without_job import WithoutView, can_leave_out, falls_of, prepare_without

MAX_AUTOMATIC = 5  # documents, for all of which answers follow a run
PRESS_EYE = "To see which document each word needs, press the eye of a document."


def bind_without(
    page: Workspace, sources: Sources, chosen: gr.State, settings: HostSettings, runs: Sequence[Any]
) -> None:
    """Connect the hidden button of the eyes, and the end of these runs.

    Another run stops the job, and so do an example, a challenge and the way back, which replace the answers.
    """
    bar = page.without_bar
    bind_job(
        bar,
        bind(begin_without, page, settings, sources.runs),
        [page.left_out, page.shown, chosen, page.accepted, *page.inputs],
        [*page.outputs, page.finished],
        sources,
        chosen,
        after=runs,
        js="pine.documents.withLeftOut",
    )
    buttons = page.bar.run, page.shuffle_bar.run, page.back, *page.challenges.values()
    for event in (page.example.select, *(button.click for button in buttons)):
        event(request_stop, bar.stopping, bar.stop, **PRIVATE_EVENT)


def letters_to_run(form: Form, shown: Shown, left_out: int) -> list[int]:
    """Return the documents without which answers are missing, the one of the pressed eye first.

    A pressed eye of many documents needs the answers without its document alone. `left_out` is the letter
    of that document, or -1 after a run.
    """
    known = shown.orders[form.order].texts_without
    missing = [
        letter
        for letter in sorted(form.order)
        if any(known.get(method, (None,) * len(form.entries))[letter] is None for method in form.methods)
    ]
    if left_out >= 0 and len(form.entries) > MAX_AUTOMATIC:
        return [letter for letter in missing if letter == left_out]
    return sorted(missing, key=lambda letter: letter != left_out)


def begin_without(
    page: Workspace,
    settings: HostSettings,
    runs: Runs,
    left_out: float | None,
    shown: Shown,
    model: Choice | None,
    accepted: str | None,
    *values: Any,
) -> ButtonJob | str:
    """Return the job of the missing answers, or "" if there are none.

    After a run, many answers are not computed, nor those that have a price: the requests of an endpoint, the
    visitor's quota of ZeroGPU, or the time of other visitors. Then the sentence says how to get them.

    Raises InputError if an eye is pressed without answers to these inputs.
    """
    form = read_form(*values)
    letter = int(left_out) if left_out in form.order else -1  # not NaN, or a removed document
    if not shown.finished_orders((form, model), form.methods) or form.order not in shown.orders:
        if letter < 0:
            return ""
        raise InputError("No answers in this order. Run the order, then hide a document.")
    has_price = zerogpu.IS_ZEROGPU or runs.num_open or shown.run is None or not shown.run.has_internals
    letters = letters_to_run(form, shown, letter)
    if not letters or (letter < 0 and not can_leave_out(form)):
        return ""
    if letter < 0 and (has_price or len(form.entries) > MAX_AUTOMATIC):
        return PRESS_EYE
    arguments = {"form": form, "letters": tuple(letters), "settings": settings}
    if shown.run and shown.run.order == form.order and len(letters) > 1:
        arguments["result"] = replace(shown.run.result, traces={})
    return ButtonJob(
        job=Job("leave-one-out", form.methods, prepare_without, arguments),
        show=partial(show_without, page, shown, form, accepted),
        task=form.task,
        cleared={},
    )


def show_without(
    page: Workspace, shown: Shown, form: Form, accepted: str | None, view: WithoutView
) -> Updates:
    """Return the updates of a view: the answers on the page, with those without a document.

    The scores are also those of the Lab.
    """
    shown = shown.with_texts_without(form.order, view.texts, falls_of(view.scores, form.order))
    if shown.run:
        shown = replace(shown, run=replace(shown.run, left_out={**shown.run.left_out, **view.scores}))
    updates = show(page, shown, accepted)
    return updates | {page.finished: shown.run} if view.is_complete and shown.run else updates
