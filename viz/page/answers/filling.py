"""Fill the form: with an example, the labels of a task, or a session."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from pine_engine.prompts.tasks import TASKS
from viz.page.answers.form_run import show
from viz.page.answers.recordings import recorded_of
from viz.page.answers.shown import Shown
from viz.page.answers.workspace import Workspace
from viz.page.common.failures import notice
from viz.page.common.widgets import PRIVATE_EVENT, bind
from viz.page.form.documents import capital, entries_json, read_entries
from viz.page.form.editor import question_words, words
from viz.page.form.examples import example_of, load_examples
from viz.page.form.form import Form, read_form, shown_instruction
from viz.page.form.options import DEFAULT_METHODS
from viz.page.jobs.job_bar import Updates

MAX_BEFORE = 3  # restorable states of the page before challenges, each with its results
KEPT = "Choose the same entry of “Try to break it” to restore your changes."
PLAY = "(table) => document.dispatchEvent(new CustomEvent('pine:play', { detail: table }))"
"""Script: play all orders of the answers in the table, which it may not have drawn yet."""


def bind_choices(page: Workspace) -> Any:
    """Connect the two dropdowns and the challenges; return the event of their way back."""
    # The input event also fires when the list is left without a choice.
    inputs, outputs = [page.example, page.task], [page.picked, *filled_widgets(page)]
    picked = [page.picked, *inputs]
    page.example.change(bind(pick, page, False), picked, outputs, **PRIVATE_EVENT)
    page.example.select(bind(pick, page, True), picked, outputs, **PRIVATE_EVENT)
    left = [page.before, page.edited]
    before, restored = [*left, *page.kept], [*left, *dict.fromkeys([*page.kept, *outputs])]
    for name, button in page.challenges.items():
        taken = button.click(bind(take_challenge, page, name), before, restored, **PRIVATE_EVENT)
        taken.success(None, page.order_table, None, js=PLAY, **PRIVATE_EVENT)
    page.task.input(
        bind(pick_task, page),
        [page.task, page.instruction, page.editor.cards],
        [page.instruction, page.heading, page.question, page.editor.cards, page.editor.pasted],
        **PRIVATE_EVENT,
    )
    return page.back.click(bind(go_back, page), [page.picked, *before], restored, **PRIVATE_EVENT)


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


def take_challenge(
    page: Workspace, name: str, before: tuple[Any, ...], edited: dict[str, Any], *values: Any
) -> Updates:
    """Return the updates that select a challenge, fill the form with it, and keep the values it replaces.

    An unchanged challenge is not kept. A challenge that was edited before "Back" has its edited texts.
    """
    form = read_form(*values[: len(page.inputs)])
    replaced = example_of(form)
    if not (replaced and replaced.challenge):
        before = (*before, values)[-MAX_BEFORE:]
    if name not in edited:
        return {page.before: before, page.example: name} | pick_example(page, name, form.task)
    others = {other: kept for other, kept in edited.items() if other != name}
    return restored(page, edited[name], form.task) | {page.before: before, page.edited: others}


def go_back(
    page: Workspace, picked: str, before: tuple[Any, ...], edited: dict[str, Any], *values: Any
) -> Updates:
    """Return the updates that restore the page before a challenge, or fill in the first example.

    An edited challenge is kept until it is chosen again.
    """
    form = read_form(*values[: len(page.inputs)])
    note: Updates = {}
    if picked in page.challenges and not example_of(form):
        note = {page.edited: {**edited, picked: values}, page.bar.status: notice(KEPT, kind="note")}
    if not before:
        name = load_examples()[0].name
        return {page.example: name} | pick_example(page, name, form.task) | note
    *earlier, last = before
    return restored(page, last, form.task) | {page.before: tuple(earlier)} | note


def restored(page: Workspace, values: Sequence[Any], task: str) -> Updates:
    """Return the updates that restore values of `page.kept`; `task` is the one whose labels are shown."""
    kept, form = dict(zip(page.kept, values, strict=True)), read_form(*values[: len(page.inputs)])
    updates = filled(page, form, accepted=kept[page.accepted], note="", named=task, shown=kept[page.shown])
    unchanged = {widget: kept[widget] for widget in (page.typed, page.note)}
    return kept | updates | unchanged | {page.picked: kept[page.example]}


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
            page.typed: "",
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
        page.editor.cards: words(row),
        page.editor.pasted: {"label": f"Multiple {row.nouns.documents}"},
        page.heading: {"value": f"<h3>{capital(row.nouns.documents)}</h3>"},
        page.question: {**question_words(row.nouns), "visible": row.needs_question},
    }
    new_values = {widget: {"value": value} for widget, value in values.items()}
    return {widget: gr.update(**called[widget] | new_values.get(widget, {})) for widget in called}
