"""Choosing an example, or a kind of question: what is in the form, and what its parts are called."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from pine_engine.prompts.tasks import get_task
from viz.page.answers.cards import Shown, accepted_answers, shown_html
from viz.page.answers.recorded_answers import first_shown
from viz.page.answers.workspace import Workspace, instruction_for
from viz.page.common.event_options import STATE_EVENT
from viz.page.common.failures import notice
from viz.page.form.documents import Entries, entries_from, nothing_removed, read, rename, write
from viz.page.form.examples import FormExample
from viz.page.form.method_boxes import DEFAULT_METHODS
from viz.page.form.words import documents_heading, question_words


def wire_choices(page: Workspace, examples: Sequence[FormExample]) -> None:
    """Connects the two dropdowns."""
    by_name = {example.name: example for example in examples}
    picked = gr.State(examples[0].name)

    def pick_example(name: str | None, task: str, *editor_values: Any) -> dict[Any, Any]:
        if name is None:
            return {picked: None}
        example = by_name[name]
        return {picked: name} | filled(
            page,
            read(*editor_values),
            entries_from([(document.title, document.text) for document in example.documents]),
            task=example.task,
            question=example.question,
            instruction=example.instruction,
            accepted="\n".join(example.answers),
            note=example.note,
            shown=first_shown(example, DEFAULT_METHODS),
            named=task,
        )

    def pick_again(before: str | None, name: str | None, *values: Any) -> Any:
        return pick_example(name, *values) if name == before else gr.skip()

    # Not at its input, of which gradio also tells when somebody merely leaves the list.
    inputs, outputs = [page.example, page.task, *page.editor.inputs], [picked, *filled_widgets(page)]
    page.example.change(pick_example, inputs, outputs, **STATE_EVENT)
    page.example.select(pick_again, [picked, *inputs], outputs, **STATE_EVENT)

    def pick_task(task: str, instruction: str, *editor_values: Any) -> dict[Any, Any]:
        updates = renamed(page, task, read(*editor_values), {})
        return updates | {page.instruction: instruction_for(task, instruction)}

    page.task.input(
        pick_task,
        [page.task, page.instruction, *page.editor.inputs],
        [page.instruction, page.heading, page.question, *page.editor.outputs],
        **STATE_EVENT,
    )


def filled(
    page: Workspace,
    before: Entries,
    after: Entries,
    *,
    task: str,
    question: str,
    instruction: str,
    accepted: str,
    note: str,
    shown: Shown,
    named: str | None = None,
) -> dict[Any, Any]:
    """Updates that put something else into the form, and these cards beside it.

    before, after: the documents. instruction: empty for the task's own. named: the task whose names the parts
    of the form have, if that is known.
    """
    row = get_task(task)
    values = write(page.editor, before, after, row.nouns) | {page.question: question}
    return (
        (values if task == named else renamed(page, task, after, values))
        | {
            page.task: task,
            page.note: notice(note, kind="note"),
            page.instruction: instruction or row.instruction,
            page.accepted: accepted,
            page.bar.status: notice("Press Run to get one answer per method."),
        }
        | nothing_removed(page.editor)
        | {page.answers: shown_html(shown, accepted_answers(accepted)), page.shown: shown}
    )


def filled_widgets(page: Workspace) -> list[Any]:
    """What `filled` may update."""
    return [
        page.task,
        page.note,
        page.instruction,
        page.accepted,
        page.bar.status,
        page.answers,
        page.shown,
        page.heading,
        page.question,
        *page.editor.outputs,
    ]


def renamed(page: Workspace, task: str, entries: Entries, values: dict[Any, Any]) -> dict[Any, Any]:
    """Updates that give the parts of the form the task's names for them, together with these new values.

    What was typed is untouched where `values` says nothing about it.
    """
    row = get_task(task)
    words: dict[Any, dict[str, Any]] = rename(page.editor, entries, row.nouns)
    words[page.heading] = {"value": documents_heading(row.nouns)}
    words[page.question] = {**question_words(row.nouns), "visible": row.needs_question}
    updates = {widget: gr.update(**properties) for widget, properties in words.items()}
    for widget, value in values.items():
        updates[widget] = gr.update(**words[widget] | {"value": value}) if widget in words else value
    return updates
