"""The main job: documents and question on the left, one answer per method on the right."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

from pine_engine.methods import METHODS, get_methods
from pine_engine.tasks import TASKS, get_task
from viz.answers import answer_grid
from viz.page.cards import stopped_cards, waiting_cards
from viz.page.documents import Editor, build_editor, entries_from, read, wire_editor, write
from viz.page.examples import Example
from viz.page.failures import explain, notice
from viz.page.form import MAX_NEW_TOKENS, TokenCount, count_tokens, needs_question, read_form
from viz.page.running import MODEL_EVENT, PRIVATE_EVENT, StopFlag, run_with_engine
from viz.page.source import EngineSource

if TYPE_CHECKING:  # imports torch, which would keep the page waiting
    from pine_engine.engine import Engine
    from viz.page.answering import RunView

DEFAULT_LENGTH = 48


DEFAULT_METHODS = [row.name for row in get_methods()]


@dataclass(frozen=True)
class Workspace:
    """The widgets of the main job.

    stopping: state, whether Stop was pressed. finished: state, the last finished run or None.
    """

    example: gr.Dropdown
    note: gr.HTML
    task: gr.Dropdown
    question: gr.Textbox
    instruction: gr.Textbox
    editor: Editor
    total: gr.HTML
    methods: gr.CheckboxGroup
    length: gr.Slider
    run: gr.Button
    stop: gr.Button
    status: gr.HTML
    answers: gr.HTML
    stopping: gr.State
    finished: gr.State

    @property
    def inputs(self) -> list[Any]:
        """What read_form needs, in its order."""
        return [
            self.task,
            self.question,
            self.instruction,
            self.methods,
            self.length,
            *self.editor.inputs,
        ]


def instruction_for(task: str, current: str) -> str:
    """The instruction to show for a task: the task's own, unless the visitor has written another."""
    is_a_default = current in {row.instruction for row in TASKS.values()}
    return get_task(task).instruction if is_a_default or not current.strip() else current


def total_html(count: TokenCount, max_new_tokens: int) -> str:
    """HTML: the prompt's length against the model's context, in tokens."""
    needed = count.total + max_new_tokens
    sentence = f"{count.total:,} prompt tokens + {max_new_tokens} for the answer, of {count.max_context:,}"
    if needed > count.max_context:
        return notice(f"{sentence}: too long, shorten or remove documents", kind="error")
    return notice(sentence, kind="count")


def build_workspace(examples: Sequence[Example]) -> Workspace:
    """Makes the widgets, filled with the first example."""
    first = examples[0]
    with gr.Row(elem_id="workspace"):
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
            note = gr.HTML(notice(first.note, kind="note"), elem_id="example-note")
            question = gr.Textbox(
                first.question,
                label="Question",
                placeholder="What should the documents answer?",
                lines=1,
                max_lines=4,
                visible=needs_question(first.task),
                elem_id="question",
            )
            with gr.Row(elem_classes="page-row page-documents-head"):
                gr.HTML("<h3>Documents</h3>", min_width=80)
                total = gr.HTML("", elem_id="total", min_width=160)
            editor = build_editor(entries_from([(doc.title, doc.text) for doc in first.documents]))
            with gr.Accordion("Instruction to the model", open=False):
                instruction = gr.Textbox(
                    first.instruction or get_task(first.task).instruction,
                    label="Instruction",
                    info="Comes before the documents. Emptied, the usual instruction of the task is used.",
                    lines=3,
                    max_lines=10,
                    elem_id="instruction",
                )
        with gr.Column(elem_id="answer", scale=7, min_width=320):
            with gr.Row(elem_classes="page-row page-run-bar"):
                methods = gr.CheckboxGroup(
                    [(row.label, row.name) for row in METHODS.values() if row.role != "variant"],
                    value=DEFAULT_METHODS,
                    label="Methods",
                    elem_id="methods",
                    scale=3,
                    min_width=240,
                )
                length = gr.Slider(
                    8,
                    MAX_NEW_TOKENS,
                    value=DEFAULT_LENGTH,
                    step=8,
                    label="Answer length (tokens)",
                    elem_id="length",
                    scale=2,
                    min_width=250,
                )
            with gr.Row(elem_classes="page-row"):
                run = gr.Button("Run", variant="primary", elem_id="run", scale=3, min_width=120)
                stop = gr.Button("Stop", variant="stop", elem_id="stop", interactive=False, min_width=80)
            status = gr.HTML(notice("Press Run to get one answer per method."), elem_id="run-status")
            waiting = waiting_cards(DEFAULT_METHODS)
            answers = gr.HTML(answer_grid(waiting), elem_id="answers")
    return Workspace(
        example=example,
        note=note,
        task=task,
        question=question,
        instruction=instruction,
        editor=editor,
        total=total,
        methods=methods,
        length=length,
        run=run,
        stop=stop,
        status=status,
        answers=answers,
        stopping=gr.State(StopFlag()),
        finished=gr.State(None),
    )


def wire_workspace(
    page: Workspace, source: EngineSource, examples: Sequence[Example], ready: gr.State
) -> Any:
    """Connects the widgets; returns the event of a run, so that others can follow it.

    ready: state that changes when the model has been loaded.
    """
    wire_editor(page.editor)
    _wire_choices(page, examples)
    _wire_token_count(page, source, ready)
    return _wire_run(page, source)


def _wire_choices(page: Workspace, examples: Sequence[Example]) -> None:
    by_name = {example.name: example for example in examples}

    def pick_example(name: str, *editor_values: Any) -> dict[Any, Any]:
        example = by_name[name]
        waiting = waiting_cards(DEFAULT_METHODS)
        after = entries_from([(document.title, document.text) for document in example.documents])
        return {
            page.task: example.task,
            page.note: notice(example.note, kind="note"),
            page.question: gr.update(value=example.question, visible=needs_question(example.task)),
            page.instruction: example.instruction or get_task(example.task).instruction,
            page.status: notice("Press Run to get one answer per method."),
            page.answers: answer_grid(waiting),
        } | write(page.editor, read(*editor_values), after)

    page.example.input(
        pick_example,
        [page.example, *page.editor.inputs],
        [
            page.task,
            page.note,
            page.question,
            page.instruction,
            page.status,
            page.answers,
            *page.editor.outputs,
        ],
        **PRIVATE_EVENT,
    )

    def pick_task(task: str, instruction: str) -> tuple[Any, str]:
        return gr.update(visible=needs_question(task)), instruction_for(task, instruction)

    page.task.input(
        pick_task, [page.task, page.instruction], [page.question, page.instruction], **PRIVATE_EVENT
    )


def _wire_token_count(page: Workspace, source: EngineSource, ready: gr.State) -> None:
    def count(*values: Any) -> Any:
        try:
            engine = source.wait(0)
            if engine is None:
                return gr.skip()
            form = read_form(*values)
            counted = count_tokens(form, engine)
        except Exception as error:
            return {page.total: notice(explain(error), kind="error")}
        counts = ["" if length is None else f"{length:,} tokens" for length in counted.documents]
        cards = page.editor.cards[: len(counts)]
        shown = {card.count: text for card, text in zip(cards, counts, strict=True)}
        return {page.total: total_html(counted, form.max_new_tokens), **shown}

    # A change event answers the newest value last and drops those between, which is all the
    # debouncing that a few milliseconds of tokenizing need.
    typed = [*page.editor.inputs[1:], page.question, page.instruction, page.task, page.length]
    gr.on(
        [widget.change for widget in (*typed, page.editor.identities, ready)],
        count,
        page.inputs,
        [page.total, *(card.count for card in page.editor.cards)],
        trigger_mode="always_last",
        concurrency_limit=4,
        **PRIVATE_EVENT,
    )


def _wire_run(page: Workspace, source: EngineSource) -> Any:
    def idle(html: str) -> dict[Any, Any]:
        return {page.status: html, page.stop: gr.update(interactive=False)}

    def run(stop: StopFlag, *values: Any) -> Generator[dict[Any, Any], None, None]:
        form = read_form(*values)
        cards = waiting_cards(form.methods)

        def work(engine: "Engine") -> Generator[dict[Any, Any], None, None]:
            from viz.page.answering import answer  # imports torch, which is there by now

            nonlocal cards
            for view in answer(engine, form):
                cards = view.cards
                yield _show_run(page, view)

        def stopped() -> dict[Any, Any]:
            sentence = "Stopped. What was written so far is kept."
            return {page.answers: answer_grid(stopped_cards(cards)), **idle(notice(sentence))}

        yield {
            page.status: notice("Starting"),
            page.stop: gr.update(interactive=True),
            page.answers: answer_grid(cards),
        }
        yield from run_with_engine(
            source,
            work,
            stop=stop,
            say=lambda sentence: {page.status: notice(sentence)},
            fail=lambda sentence: idle(notice(sentence, kind="error")),
            stopped=stopped,
        )

    event = page.run.click(
        run,
        [page.stopping, *page.inputs],
        [page.status, page.stop, page.answers, page.finished],
        show_progress="minimal",
        show_progress_on=page.status,
        api_visibility="private",
        **MODEL_EVENT,
    )
    wire_stop(page.stop, page.stopping)
    return event


def wire_stop(button: gr.Button, stopping: gr.State) -> None:
    """Lets a Stop button end the run that reads this flag; the run itself says when it has stopped."""

    def stop(flag: StopFlag) -> Any:
        flag.requested = True
        return gr.update(interactive=False)

    button.click(stop, stopping, button, queue=False, **PRIVATE_EVENT)


def _show_run(page: Workspace, view: "RunView") -> dict[Any, Any]:
    updates = {
        page.status: notice(view.sentence),
        page.answers: answer_grid(view.cards),
    }
    if view.finished is None:
        return updates
    return updates | {page.finished: view.finished, page.stop: gr.update(interactive=False)}
