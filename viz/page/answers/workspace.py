"""Tab "See it": question, documents, and the answers of all methods in all orders of the documents."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.runs import Job
from viz.page.answers.answering import accepted_answers, prepare_answers, shown_html, stopped_cards
from viz.page.answers.order_table import build_order_table, order_table_json
from viz.page.answers.recordings import base_rate_html, recorded_of
from viz.page.answers.run import Shown, keep_earlier
from viz.page.answers.start import build_start
from viz.page.common.failures import notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import PRIVATE_EVENT, bind
from viz.page.files.reading_files import FileReader
from viz.page.form.documents import capital, entries_json, read_entries
from viz.page.form.editor import Editor, bind_editor, build_cards, question_words, words
from viz.page.form.examples import NO_EXAMPLE, FormExample, accepted_for, example_of, load_examples
from viz.page.form.form import MAX_NEW_TOKENS, MIN_NEW_TOKENS, Form, read_form, shown_instruction
from viz.page.form.options import (
    DEFAULT_METHODS,
    DEFAULT_ORDERS,
    SAMPLED_AT_MOST,
    build_method_boxes,
    build_template_kwargs,
    tries_all,
)
from viz.page.jobs.job_bar import ButtonJob, JobBar, Updates, bind_job
from viz.page.jobs.sources import Choice, Sources

DEFAULT_LENGTH = 48

PLAY = "(table) => document.dispatchEvent(new CustomEvent('pine:play', { detail: table }))"
"""Script: play all orders of the answers in the table, which it may not have drawn yet."""


class Workspace:
    """Widgets of the tab, filled with the first example.

    `bar` runs the order of the form and `shuffle_bar` all orders; `start` has their visible buttons, and
    `sample` is visible where only some orders are run. `problem` is the reason why the form cannot be run,
    and `stale` the notice that the answers are out of date, below which the stylesheet shows them in gray.
    `picked` is the last example, `finished` the last run or None, `key` the secret of the browser that finds
    its last run, `shown` has the answers on the page, and `origin` their inputs, None before a run. `outputs`
    are what a run updates, and `inputs` those of `read_form`, in order.
    """

    def __init__(self) -> None:
        first, *_ = examples = load_examples()
        nouns = TASKS[first.task].nouns
        form = first.form(DEFAULT_METHODS)
        shown = recorded_of(form)
        with gr.Column(elem_id="request-form", min_width=320):
            with gr.Row(elem_classes="page-row page-question"):
                self.question = gr.Textbox(
                    first.question,
                    max_lines=4,
                    visible=TASKS[first.task].needs_question,
                    elem_id="question",
                    scale=5,
                    min_width=320,
                    **question_words(nouns),
                )
                self.start = build_start(shown)
                self.shuffle_bar = JobBar(
                    "", run_id="shuffle", stop_id="stop-shuffle", min_width=80, visible="hidden"
                )
                self.bar = JobBar("", run_id="run", stop_id="stop", min_width=80, visible="hidden")
                self.example = gr.Dropdown(
                    [NO_EXAMPLE, *(example.name for example in examples)],
                    value=first.name,
                    label="Example",
                    elem_id="example",
                    min_width=190,
                    scale=2,
                )
            cards = build_cards(form.entries, nouns)
            with gr.Row(elem_classes="page-row page-run-bar"):
                self.shuffle_bar.build_status("", status_id="shuffle-status")
                self.bar.build_status("", status_id="run-status")
                self.problem = gr.HTML("", elem_id="form-problem", min_width=0)
            self.stale = gr.HTML("", elem_id="answers-stale")
            self.order_table = build_order_table(shown, first.answers)
            self.sharing = gr.Row(elem_classes="page-row page-share")
            self.note = gr.HTML(notice(first.note, kind="note"), elem_id="example-note")
            with gr.Row(elem_id="challenges", elem_classes="page-row"):
                note = "<p><b>Try to break it:</b> a stable answer need not be correct.</p>"
                gr.HTML(note, min_width=260)
                self.challenges = {  # examples that test the first one, by name
                    example.name: gr.Button(example.challenge, size="sm", scale=0, min_width=190)
                    for example in examples
                    if example.challenge
                }
            with gr.Accordion("Paste, upload, settings", open=False, elem_id="settings"):
                with gr.Row(elem_classes="page-row page-documents-head"):
                    self.heading = gr.HTML(f"<h3>{capital(nouns.documents)}</h3>", min_width=80)
                    self.total = gr.HTML("", elem_id="total", min_width=160)
                self.editor = Editor(cards, first.task)
                self._build_settings(first)
                self._build_orders(len(form.entries))
            with gr.Accordion("Is PINE always right? Why not sort?", open=False, elem_id="base-rate"):
                gr.HTML(base_rate_html())
            with gr.Accordion("Full answers", open=False, elem_id="answers-in-full"):
                self.answers = gr.HTML(shown_html(shown, first.answers), elem_id="answers")
        self.picked = gr.State(first.name)
        self.key = gr.State("")
        self.finished, self.shown, self.origin = gr.State(None), gr.State(shown), gr.State(shown.inputs)
        states = [self.shown, self.finished, self.origin]
        self.outputs: list[Any] = [self.answers, self.order_table, *states]
        self.outputs += [self.stale, self.example, self.accepted]
        self.inputs: list[Any] = [self.task, self.question, self.instruction, self.methods, self.length]
        self.inputs += [self.editor.cards, self.chat_template_kwargs]

    def _build_settings(self, first: FormExample) -> None:
        with gr.Row(elem_classes="page-row"):
            self.task = gr.Dropdown(
                [(row.label, row.name) for row in TASKS.values()],
                value=first.task,
                label="Task",
                elem_id="task",
                min_width=190,
                scale=2,
            )
            self.methods = build_method_boxes("methods")
            self.length = gr.Slider(
                MIN_NEW_TOKENS,
                MAX_NEW_TOKENS,
                value=DEFAULT_LENGTH,
                step=8,
                label="Max new tokens",
                elem_id="length",
                scale=2,
                min_width=250,
            )
        with gr.Row(elem_classes="page-row"):
            self.instruction = gr.Textbox(
                first.instruction or TASKS[first.task].instruction,
                label="Instruction",
                info="Placed before the documents. Leave empty for the task’s default instruction.",
                lines=3,
                max_lines=10,
                elem_id="instruction",
            )
            self.accepted = gr.Textbox(
                "\n".join(first.answers),
                label="Accepted answers",
                info="One per line. A correct answer contains one as whole words, or has an equal verdict, "
                "number or label. Leave empty for no scoring.",
                lines=3,
                max_lines=8,
                elem_id="accepted",
            )
        self.chat_template_kwargs = build_template_kwargs("chat-template-kwargs")

    def _build_orders(self, num_documents: int) -> None:
        with gr.Row(elem_classes="page-row"):
            self.controls = gr.Checkbox(
                False,
                label="Include control methods",
                info="Also runs methods that are expected to change, to show that the test can fail.",
                elem_id="with-controls",
                container=False,
                min_width=220,
            )
            visible = not tries_all(num_documents)
            with gr.Row(visible=visible, elem_classes="page-row") as self.sample:
                self.num_orders = gr.Slider(
                    2,
                    SAMPLED_AT_MOST,
                    value=DEFAULT_ORDERS,
                    step=1,
                    label="Number of orders",
                    elem_id="orders",
                )
                self.seed = gr.Number(0, label="Seed", precision=0, elem_id="seed", min_width=120)


def bind_workspace(
    page: Workspace, sources: Sources, chosen: gr.State, settings: HostSettings, reader: FileReader
) -> Any:
    """Connect the widgets; return the event of a run."""
    scored, shown = [page.shown, page.accepted], [page.answers, page.order_table]
    page.accepted.change(bind(show_scores, page), scored, shown, **PRIVATE_EVENT)
    bind_editor(page.editor, reader, task=page.task, instruction=page.instruction)
    inputs = [page.shown, chosen, page.accepted, *page.inputs]
    outputs = [*page.outputs, page.shuffle_bar.status]
    return bind_job(page.bar, bind(begin_run, page, settings), inputs, outputs, sources, chosen, page.key)


# Answers


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
    typed: str  # accepted answers
    accepted: str  # those of this form

    def joined(self, view: Shown) -> Shown:
        """Return a view of the run beside the answers before it."""
        return keep_earlier(self.before, replace(view, form=self.form, model=self.model))


def start_run(shown: Shown, model: Choice | None, accepted: str | None, *values: Any) -> Started:
    """Return the inputs of a run; `values` are those of `Workspace.inputs`."""
    form, typed = read_form(*values), accepted or ""
    before = None if shown.changes((form, model)) else shown
    return Started(form, model, before, typed, accepted_for(form, typed))


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
    return show(page, view, started.accepted) | {page.origin: view.inputs, page.stale: ""}


def end_run(page: Workspace, started: Started, view: Shown) -> Updates:
    """Return the updates at the end of a run, with the accepted answers if they were of another form."""
    stopped = replace(view, cards=stopped_cards(view.cards))
    updates = {} if view.is_complete else show_view(page, started, stopped)
    if run := started.joined(view).run:
        updates[page.finished] = run
    if view.has_text and started.accepted != started.typed:
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
        kept="Partial answers are kept.",
        end=partial(end_run, page, started),
    )


# Examples and tasks


def bind_choices(page: Workspace) -> None:
    """Connect the two dropdowns."""
    # The input event also fires when the list is left without a choice.
    inputs, outputs = [page.example, page.task], [page.picked, *filled_widgets(page)]
    picked = [page.picked, *inputs]
    page.example.change(bind(pick, page, False), picked, outputs, **PRIVATE_EVENT)
    page.example.select(bind(pick, page, True), picked, outputs, **PRIVATE_EVENT)
    for name, button in page.challenges.items():
        button.click(
            bind(take_challenge, page, name), page.task, [page.example, *outputs], **PRIVATE_EVENT
        ).success(None, page.order_table, None, js=PLAY, **PRIVATE_EVENT)
    page.task.input(
        bind(pick_task, page),
        [page.task, page.instruction, page.editor.cards],
        [page.instruction, page.heading, page.question, page.editor.cards, page.editor.pasted],
        **PRIVATE_EVENT,
    )


def pick_example(page: Workspace, name: str | None, task: str) -> Updates:
    """Return the updates that fill the form with an example; `task` is the one whose labels are shown."""
    example = next((example for example in load_examples() if example.name == name), None)
    if example is None:
        return {page.picked: name}
    form, accepted = example.form(DEFAULT_METHODS), "\n".join(example.answers)
    return {page.picked: name} | filled(page, form, accepted=accepted, note=example.note, named=task)


def pick(page: Workspace, is_selected: bool, picked: str | None, name: str | None, task: str) -> Any:
    """Return the updates that fill the form after a change to another example, or a selection of the same."""
    return pick_example(page, name, task) if (name == picked) is is_selected else gr.skip()


def take_challenge(page: Workspace, name: str, task: str) -> Updates:
    """Return the updates that select an example and fill the form with it."""
    return {page.example: name} | pick_example(page, name, task)


def pick_task(page: Workspace, task: str, instruction: str, documents: str) -> Updates:
    """Return the updates with the labels and the instruction of a task."""
    sized = TASKS[task].sized(len(read_entries(documents)))
    return renamed(page, task, {}) | {page.instruction: shown_instruction(sized, instruction)}


def filled(
    page: Workspace,
    form: Form,
    *,
    accepted: str,
    note: str,
    named: str | None = None,
    shown: Shown | None = None,
) -> Updates:
    """Return updates that fill the form and the cards, with these or recorded answers.

    Methods and length stay; `named` is the task whose labels are shown.
    """
    shown = shown or recorded_of(form)
    values: dict[Any, Any] = {page.editor.cards: entries_json(form.entries), page.question: form.question}
    return (
        (values if form.task == named else renamed(page, form.task, values))
        | {
            page.task: form.task,
            page.note: notice(note, kind="note"),
            page.instruction: form.instruction or form.row.instruction,
            page.accepted: accepted,
            page.bar.status: notice(""),
            page.shuffle_bar.status: notice(""),
        }
        | {page.origin: shown.inputs, page.stale: ""}
        | show(page, shown, accepted)
    )


def filled_widgets(page: Workspace) -> list[Any]:
    """Return the widgets that `filled` may update."""
    return list(filled(page, load_examples()[0].form(DEFAULT_METHODS), accepted="", note=""))


def renamed(page: Workspace, task: str, values: dict[Any, Any]) -> Updates:
    """Return updates with the labels of the task and these new values; other values stay."""
    row = TASKS[task]
    called: dict[Any, dict[str, Any]] = {
        page.editor.cards: words(row.nouns),
        page.editor.pasted: {"label": f"Multiple {row.nouns.documents}"},
        page.heading: {"value": f"<h3>{capital(row.nouns.documents)}</h3>"},
        page.question: {**question_words(row.nouns), "visible": row.needs_question},
    }
    new_values = {widget: {"value": value} for widget, value in values.items()}
    return {widget: gr.update(**called[widget] | new_values.get(widget, {})) for widget in called}
