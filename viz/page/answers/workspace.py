"""The main job: documents and question, and one answer per method."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from pine_engine.prompts.tasks import TASKS, get_task
from viz.cards.answers import AnswerCard
from viz.cards.shuffle import InOrders
from viz.page.answers.answering import RunView, answer, plan_answers
from viz.page.answers.cards import Shown, accepted_answers, shown_html, stopped_cards, waiting_cards
from viz.page.answers.outdated import Origin, Results, build_results, no_results
from viz.page.answers.recorded_answers import first_shown, recorded_for
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import notice
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.files.reading_files import FileReader
from viz.page.form.documents import entries_from
from viz.page.form.editor import Editor, build_cards, build_editor, wire_editor
from viz.page.form.examples import FormExample
from viz.page.form.form import MAX_NEW_TOKENS, MIN_NEW_TOKENS, read_form
from viz.page.form.method_boxes import DEFAULT_METHODS, build_method_boxes
from viz.page.form.splitting_panel import SplittingPanel, build_splitting, wire_splitting
from viz.page.form.upload import wire_upload
from viz.page.form.words import documents_heading, question_words
from viz.page.jobs.job_bar import Job, JobBar, Updates, build_bar, build_buttons, wire_job
from viz.page.jobs.model_pool import Choice
from viz.page.jobs.sources import Sources

DEFAULT_LENGTH = 48


@dataclass(frozen=True)
class Workspace:
    """The widgets of the main job."""

    example: gr.Dropdown
    note: gr.HTML
    task: gr.Dropdown
    question: gr.Textbox
    instruction: gr.Textbox
    accepted: gr.Textbox
    """The answers that are right, one a line."""

    splitting: SplittingPanel
    heading: gr.HTML
    editor: Editor
    total: gr.HTML
    methods: gr.CheckboxGroup
    length: gr.Slider
    bar: JobBar
    results: Results
    answers: gr.HTML
    finished: gr.State
    """The last finished run, or None."""

    shown: gr.State
    """The cards of the answers."""

    @property
    def inputs(self) -> list[Any]:
        """What read_form needs, in its order."""
        return [
            self.task,
            self.question,
            self.instruction,
            self.methods,
            self.length,
            self.editor.cards,
        ]


def place_answers(page: Workspace) -> None:
    """Puts the answers, and what is said of the example, where this is called."""
    page.note.render()
    page.results.note.render()
    page.answers.render()


def instruction_for(task: str, current: str) -> str:
    """The instruction to show for a task: the task's own, unless the visitor has written another."""
    is_a_default = current in {row.instruction for row in TASKS.values()}
    return get_task(task).instruction if is_a_default or not current.strip() else current


def build_workspace(examples: Sequence[FormExample], settings: HostSettings = DEFAULTS) -> Workspace:
    """Makes the widgets, filled with the first example; `place_answers` puts the answers somewhere.

    settings: what the host allows.
    """
    longest = min(MAX_NEW_TOKENS, settings.max_new_tokens)
    first = examples[0]
    task_row = get_task(first.task)
    nouns = task_row.nouns
    with gr.Column(elem_id="ask", scale=5, min_width=320):
        with gr.Row(elem_classes="page-row"):
            example = gr.Dropdown(
                [example.name for example in examples],
                value=first.name,
                label="Example",
                elem_id="example",
                min_width=190,
                scale=3,
            )
            task = gr.Dropdown(
                [(row.label, row.name) for row in TASKS.values()],
                value=first.task,
                label="Kind of question",
                elem_id="task",
                min_width=190,
                scale=2,
            )
        splitting = build_splitting(first.task)
        question = gr.Textbox(
            first.question,
            lines=1,
            max_lines=4,
            visible=task_row.needs_question,
            elem_id="question",
            **question_words(nouns),
        )
        with gr.Row(elem_classes="page-row page-documents-head"):
            heading = gr.HTML(documents_heading(nouns), min_width=80)
            total = gr.HTML("", elem_id="total", min_width=160)
        entries = entries_from([(document.title, document.text) for document in first.documents])
        cards = build_cards(entries, nouns, settings.max_documents)
        methods = build_method_boxes("methods")
        with gr.Row(elem_classes="page-row page-run-bar"):
            length = gr.Slider(
                MIN_NEW_TOKENS,
                longest,
                value=min(DEFAULT_LENGTH, longest),
                step=8,
                label="Answer length (tokens)",
                elem_id="length",
                scale=2,
                min_width=250,
            )
            buttons = build_buttons("Run", run_id="run", stop_id="stop", min_width=100)
        bar = build_bar(buttons, "", status_id="run-status")
        editor = build_editor(cards, nouns, settings.max_documents)
        with gr.Accordion("Instruction to the model", open=False):
            instruction = gr.Textbox(
                first.instruction or task_row.instruction,
                label="Instruction",
                info="Comes before the documents. Emptied, the usual instruction of the task is used.",
                lines=3,
                max_lines=10,
                elem_id="instruction",
            )
        with gr.Accordion("Score the answers", open=False):
            accepted = gr.Textbox(
                "\n".join(first.answers),
                label="Accepted answers",
                info="One a line. Finished answers are scored by the rule of the task, also after the "
                "run. Emptied, nothing is scored.",
                lines=2,
                max_lines=8,
                elem_id="accepted",
            )
    shown = first_shown(first, DEFAULT_METHODS)
    return Workspace(
        example=example,
        note=gr.HTML(notice(first.note, kind="note"), elem_id="example-note", render=False),
        task=task,
        question=question,
        instruction=instruction,
        accepted=accepted,
        splitting=splitting,
        heading=heading,
        editor=editor,
        total=total,
        methods=methods,
        length=length,
        bar=bar,
        results=build_results(recorded_for(first, shown), elem_id="answers-outdated", render=False),
        answers=gr.HTML(shown_html(shown, first.answers), elem_id="answers", render=False),
        finished=gr.State(None),
        shown=gr.State(shown),
    )


def wire_workspace(
    page: Workspace, sources: Sources, chosen: gr.State, settings: HostSettings, reader: FileReader
) -> Any:
    """Connects the widgets; returns the event of a run, so that others can follow it.

    chosen: see wire_job. reader: of the visitors' files.
    """
    wire_editor(page.editor)
    if not settings.read_only:
        wire_upload(page.editor, reader)
        wire_splitting(
            page.splitting,
            page.editor,
            task=page.task,
            question=page.question,
            instruction=page.instruction,
            accepted=page.accepted,
        )
    return _wire_run(page, sources, chosen, settings)


def show(
    page: Workspace, cards: tuple[AnswerCard, ...], task: str, in_orders: InOrders | None = None
) -> dict[Any, Any]:
    """Updates that show these cards of a task's answers, not scored yet. in_orders: see Shown."""
    shown = Shown(cards, task, in_orders=in_orders)
    return {page.answers: shown_html(shown), page.shown: shown}


def wire_scores(page: Workspace, runs: Sequence[Any]) -> None:
    """Scores the answers whenever the accepted ones change, and after each of the events of a run."""

    def score(shown: Shown, accepted: str | None) -> str:
        return shown_html(shown, accepted_answers(accepted))

    inputs = [page.shown, page.accepted]
    page.accepted.change(score, inputs, page.answers, trigger_mode="always_last", **PRIVATE_EVENT)
    for event in runs:
        event.then(score, inputs, page.answers, **PRIVATE_EVENT)


def _wire_run(page: Workspace, sources: Sources, chosen: gr.State, settings: HostSettings) -> Any:
    def begin(choice: Choice | None, *values: Any) -> Job:
        form = read_form(*values)
        cards = waiting_cards(form.methods)

        def show_view(view: RunView) -> Updates:
            nonlocal cards
            cards = view.cards
            finished = {} if view.finished is None else {page.finished: view.finished}
            return show(page, cards, form.task) | {page.results.origin: Origin(form, choice)} | finished

        return Job(
            what="compare",
            methods=form.methods,
            work=partial(answer, form=form, settings=settings),
            plan=partial(plan_answers, form=form, settings=settings),
            show=show_view,
            task=lambda: form.task,
            cleared=show(page, cards, form.task) | no_results(page.results),
            kept="What was written so far is kept.",
            after_stop=lambda: show(page, stopped_cards(cards), form.task),
        )

    outputs = [page.answers, page.shown, page.finished, page.results.origin, page.results.note]
    return wire_job(page.bar, begin, [chosen, *page.inputs], outputs, sources, chosen)
