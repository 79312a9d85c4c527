"""Select an example or a task: fill the form and rename its parts."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from pine_engine.prompts.tasks import TASKS
from viz.page.answers.recorded_answers import recorded_of
from viz.page.answers.workspace import Workspace, instruction_for, show
from viz.page.common.failures import notice
from viz.page.common.widgets import PRIVATE_EVENT
from viz.page.form.documents import entries_json
from viz.page.form.editor import documents_heading, pasted_words, question_words, words
from viz.page.form.examples import FormExample, load_examples
from viz.page.form.form import Form
from viz.page.form.options import DEFAULT_METHODS


def bind_choices(page: Workspace, examples: Sequence[FormExample]) -> None:
    """Connect the two dropdowns."""
    by_name = {example.name: example for example in examples}
    picked = gr.State(examples[0].name)

    def pick_example(name: str | None, task: str) -> dict[Any, Any]:
        if name not in by_name:
            return {picked: name}
        example = by_name[name]
        form, accepted = example.form(DEFAULT_METHODS), "\n".join(example.answers)
        return {picked: name} | filled(page, form, accepted=accepted, note=example.note, named=task)

    def pick_again(before: str | None, name: str | None, task: str) -> Any:
        return pick_example(name, task) if name == before else gr.skip()

    # The input event also fires when the list is left without a choice.
    inputs, outputs = [page.example, page.task], [picked, *filled_widgets(page)]
    page.example.change(pick_example, inputs, outputs, **PRIVATE_EVENT)
    page.example.select(pick_again, [picked, *inputs], outputs, **PRIVATE_EVENT)

    def pick_task(task: str, instruction: str) -> dict[Any, Any]:
        return renamed(page, task, {}) | {page.instruction: instruction_for(task, instruction)}

    page.task.input(
        pick_task,
        [page.task, page.instruction],
        [page.instruction, page.heading, page.question, page.editor.cards, page.editor.pasted],
        **PRIVATE_EVENT,
    )


def filled(
    page: Workspace, form: Form, *, accepted: str, note: str, named: str | None = None
) -> dict[Any, Any]:
    """Return updates that fill the form and the cards, with recorded answers and the labels of the task.

    Methods and length stay; `named` is the task whose labels are shown.
    """
    shown, origin = recorded_of(form)
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
        | {page.origin: origin, page.stale: ""}
        | show(page, shown, accepted)
    )


def filled_widgets(page: Workspace) -> list[Any]:
    """Return the widgets that `filled` may update."""
    return list(filled(page, load_examples()[0].form(DEFAULT_METHODS), accepted="", note=""))


def renamed(page: Workspace, task: str, values: dict[Any, Any]) -> dict[Any, Any]:
    """Return updates with the labels of the task and these new values; other values stay."""
    row = TASKS[task]
    called: dict[Any, dict[str, Any]] = {
        page.editor.cards: words(row.nouns),
        page.editor.pasted: pasted_words(row.nouns),
        page.heading: {"value": documents_heading(row.nouns)},
        page.question: {**question_words(row.nouns), "visible": row.needs_question},
    }
    new_values = {widget: {"value": value} for widget, value in values.items()}
    return {widget: gr.update(**called[widget] | new_values.get(widget, {})) for widget in called}
