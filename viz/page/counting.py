"""Event of a change of the form: each tab updates lengths, estimated times and notices of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from viz.page.answers.form_state import inspect_form
from viz.page.answers.form_updates import follow_answers
from viz.page.answers.shown import Inputs, Shown
from viz.page.answers.workspace import Workspace
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import NEWEST_EVENT, PRIVATE_EVENT, bind
from viz.page.form.form import read_form
from viz.page.jobs.job_bar import Updates
from viz.page.jobs.sources import Choice, Sources
from viz.page.position_sweep import SweepTab, follow_sweep


@dataclass(frozen=True)
class Counting:
    """Parts of the page that follow the form; `stale` is the notice of Internals."""

    page: Workspace
    sweep: SweepTab
    stale: gr.HTML
    sources: Sources
    settings: HostSettings


def bind_counting(counting: Counting, *, chosen: gr.State, ready: gr.State, runs: Sequence[Any]) -> None:
    """Connect the updates to each change and to the events of a run, with one listener for each field."""
    page, sweep = counting.page, counting.sweep
    paused = gr.Button(visible="hidden", elem_id="count-form")  # pressed by assets/typing.js
    picked: list[Any] = [page.task, page.instruction, page.methods, page.length, page.chat_template_kwargs]
    picked += [page.num_orders, page.controls, ready, page.origin, sweep.origin]
    inputs = [chosen, page.num_orders, page.controls, page.shown, sweep.origin, *page.inputs]
    outputs = [page.total, page.editor.cards, page.instruction, page.problem, page.start, page.sample]
    outputs += [page.note, page.stale, page.bar.estimate, page.shuffle_bar.estimate]
    outputs += [sweep.stale, sweep.bar.estimate, counting.stale]
    follow = bind(follow_form, counting)
    changes = [paused.click, page.editor.cards.input, *(widget.change for widget in picked)]
    gr.on(changes, follow, inputs, outputs, **NEWEST_EVENT)
    for event in runs:
        event.then(follow, inputs, outputs, **PRIVATE_EVENT)


def follow_form(
    counting: Counting,
    model: Choice | None,
    orders: float,
    controls: bool,
    shown: Shown,
    swept: Inputs | None,
    *values: Any,
) -> Updates:
    """Return the updates of all tabs after a change of the form."""
    state = inspect_form(read_form(*values), model, counting.sources, counting.settings)
    answers = follow_answers(counting.page, state, shown, int(orders), controls=controls)
    stale = {counting.stale: answers[counting.page.stale]}
    return answers | stale | follow_sweep(counting.sweep, state, swept)
