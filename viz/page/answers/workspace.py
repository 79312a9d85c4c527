"""Widgets of the tab "See it": question, documents, and the answers of all methods in all orders."""

from typing import Any

import gradio as gr

from pine_engine.prompts.tasks import TASKS
from viz.page.answers.answering import shown_html
from viz.page.answers.base_rate import base_rate_html
from viz.page.answers.order_table import build_order_table, challenges
from viz.page.answers.recordings import recorded_of
from viz.page.answers.start import build_start
from viz.page.common.failures import notice
from viz.page.common.widgets import PRIVATE_EVENT
from viz.page.form.documents import capital
from viz.page.form.editor import Editor, build_cards, question_words
from viz.page.form.examples import NO_EXAMPLE, FormExample, load_examples
from viz.page.form.form import MAX_NEW_TOKENS, MIN_NEW_TOKENS
from viz.page.form.options import DEFAULT_METHODS, build_method_boxes, build_template_kwargs
from viz.page.form.orders import DEFAULT_ORDERS, SAMPLED_AT_MOST, tries_all
from viz.page.gradio_patches.large_state import large_state
from viz.page.jobs.job_bar import JobBar

DEFAULT_LENGTH = 48


class Workspace:
    """Widgets of the tab, filled with the first example.

    `bar` runs the order of the form and `shuffle_bar` all orders; `start` has their visible buttons, and
    `sample` is visible where only some orders are run. `problem` is the reason why the form cannot be run,
    and `stale` the notice that the answers are out of date, below which the stylesheet shows them in gray.
    `without_bar` runs the answers without a document.
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
                self.without_bar = JobBar(
                    "", run_id="without", stop_id="stop-without", min_width=80, visible="hidden"
                )
                self.example = gr.Dropdown(
                    [NO_EXAMPLE, *(example.name for example in examples)],
                    value=first.name,
                    label="Example",
                    elem_id="example",
                    min_width=190,
                    scale=2,
                )
            cards = build_cards(form.entries, TASKS[first.task])
            with gr.Row(elem_classes="page-row page-run-bar"):
                self.shuffle_bar.build_status("", status_id="shuffle-status")
                self.bar.build_status("", status_id="run-status")
                self.without_bar.build_status("", status_id="without-status")
                self.problem = gr.HTML("", elem_id="form-problem", min_width=0)
            self.stale = gr.HTML("", elem_id="answers-stale")
            self.order_table = build_order_table(shown, first.answers)
            self.sharing = gr.Row(elem_classes="page-row page-share")
            self.note = gr.HTML(notice(first.note, kind="note"), elem_id="example-note")
            # The menu above the table presses these buttons: examples that test the first, and the way back.
            self.challenges = {
                examples[number].name: gr.Button(label, visible="hidden", elem_id=f"challenge-{number}")
                for number, label in challenges()
            }
            self.back = gr.Button(visible="hidden", elem_id="challenge-back")
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
        self.left_out = gr.Number(-1, visible="hidden")  # of the pressed eye, set by assets/documents.js
        self.finished, self.shown, self.origin = gr.State(None), large_state(shown), gr.State(shown.inputs)
        states = [self.shown, self.finished, self.origin]
        self.outputs: list[Any] = [self.answers, self.order_table, *states]
        self.outputs += [self.stale, self.example, self.accepted]
        self.inputs: list[Any] = [self.task, self.question, self.instruction, self.methods, self.length]
        self.inputs += [self.editor.cards, self.chat_template_kwargs]
        self.before = gr.State(())  # values of `kept` before each challenge
        self.edited = gr.State({})  # those of edited challenges that "Back" has left, by name
        self.kept: list[Any] = [*self.inputs, self.accepted, self.typed, self.example, self.note]
        self.kept += [self.shown, self.finished]

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
            self.typed = gr.Textbox("", visible=False)  # accepted answers that the visitor has typed
            self.accepted.input(None, self.accepted, self.typed, js="(accepted) => accepted", **PRIVATE_EVENT)
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
