"""Split a math problem into instruction, conditions and question."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.prompts.math_premises import Premises, cut_sentences, split_problem, split_sentences
from pine_engine.prompts.tasks import TASKS
from viz.drawing.markup import render
from viz.drawing.text import shorten
from viz.page.common.bounds import MAX_DOCUMENTS, check_limit
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.form.documents import entries_from, entries_json, read_entries
from viz.page.form.editor import Editor
from viz.page.jobs.job_bar import Updates

MAX_PROBLEM_CHARACTERS = 20_000  # maximum characters; a problem has a few hundred
SENTENCE_LENGTH = 60  # maximum characters of a sentence in a choice


class Content(NamedTuple):
    """Values of the form that a split replaces."""

    instruction: str
    question: str
    documents: str  # JSON of the entries
    accepted: str = ""  # accepted answers, as typed


class Replaced(NamedTuple):
    """Values before and after a split."""

    before: Content
    after: Content


def content_of(parts: Premises, most: int = MAX_DOCUMENTS) -> Content:
    """Return the values of the form for a split problem.

    Raises InputError if it has no conditions, too many of them, or no text after them.
    """
    row = parts.row("problem")
    check_limit("Too many conditions", len(row.documents), most, "Select a smaller range.")
    if not row.question:
        raise InputError("No text left for the question. Select an earlier last condition.")
    entries = entries_from([(document.title, document.text) for document in row.documents])
    return Content(row.prefix, row.question, entries_json(entries))


def read_problem(text: str) -> tuple[Sequence[str], Premises]:
    """Return the sentences and the parts of a problem. Raises InputError if it is too long or has no text."""
    check_limit("Problem too long", len(text), MAX_PROBLEM_CHARACTERS, "Shorten it.", unit=" characters")
    sentences = split_sentences(text)
    if len(sentences) < 2:
        raise InputError("No problem text. Paste a problem of several sentences.")
    return sentences, split_problem(text)


def remember(replaced: Replaced | None, before: Content, after: Content) -> Replaced:
    """Return the values for Undo: those before the first of several splits without edits between."""
    is_unedited = replaced is not None and replaced.after == before
    return Replaced(replaced.before if replaced and is_unedited else before, after)


def preview_html(parts: Premises) -> str:
    """Render the problem with its parts marked."""
    return render("split_preview.html", parts=parts)


def sentence_choices(sentences: Sequence[str]) -> list[tuple[str, int]]:
    """Return label and index of each sentence except the last, which belongs to the question."""
    return [
        (f"{place + 1}: {shorten(' '.join(sentence.split()), SENTENCE_LENGTH)}", place)
        for place, sentence in enumerate(sentences[:-1])
    ]


def splitting_panel(
    accordion: gr.Accordion,
    editor: Editor,
    *,
    task: gr.Dropdown,
    question: gr.Textbox,
    instruction: gr.Textbox,
    accepted: gr.Textbox,
) -> None:
    """Fill the accordion, which is visible for tasks that split, and connect it with the form."""
    with accordion:
        problem = gr.Textbox(
            label="Problem",
            info="Sentences that contain numbers become reorderable conditions; text before them becomes the "
            "instruction. Adjust the split below or edit the form.",
            placeholder="Ana runs a stall. She sells 12 loaves at 3 euros. ... How much does she earn?",
            lines=4,
            max_lines=12,
            elem_id="problem",
        )
        with gr.Row(elem_classes="page-row"):
            split_button = gr.Button("Split", size="sm", elem_id="split-problem")
            undo_button = gr.Button("Undo", size="sm", interactive=False, elem_id="undo-split")
        message = gr.HTML("", elem_id="splitting-message", elem_classes="page-message")
        preview = gr.HTML("", elem_id="split-preview")
        with gr.Row(visible=False, elem_classes="page-row") as bounds:
            first = gr.Dropdown([], label="First condition", elem_id="first-condition", min_width=140)
            last = gr.Dropdown([], label="Last condition", elem_id="last-condition", min_width=140)
    sentences, cut, replaced = gr.State(()), gr.State(None), gr.State(None)
    form = [instruction, question, editor.cards, accepted]
    task.change(lambda task: gr.update(visible=TASKS[task].splits), task, accordion, **PRIVATE_EVENT)

    def held(instruction: str, question: str, documents: str, accepted: str) -> Content:
        as_written = entries_json(read_entries(documents))
        return Content(instruction or "", question or "", as_written, accepted or "")

    def failed(sentence: str) -> Updates:
        return {message: notice(sentence, kind="error")}

    def put(parts: Premises, earlier: Replaced | None, before: Content) -> Updates:
        shown = {preview: preview_html(parts)}
        try:
            now = remember(earlier, before, content_of(parts, editor.most))
        except InputError as error:
            return shown | failed(explain(error))
        count = len(parts.premises)
        return (
            shown
            | dict(zip(form, now.after, strict=True))
            | {
                replaced: now,
                undo_button: gr.update(value="Undo", interactive=True),
                message: notice(
                    f"Filled the form with {count} condition{'s' if count != 1 else ''}. Your previous input "
                    "was replaced; Undo restores it."
                ),
            }
        )

    def split(text: str, earlier: Replaced | None, *values: Any) -> Updates:
        try:
            found, parts = read_problem(text or "")
        except InputError as error:
            return failed(explain(error))
        start = sum(len(one) <= len(parts.prefix) for one in accumulate(found))
        stop = max(start, start + len(parts.premises) - 1)
        choices = sentence_choices(found)
        return put(parts, earlier, held(*values)) | {
            sentences: found,
            cut: (start, stop),
            bounds: gr.update(visible=True),
            first: gr.update(choices=choices, value=start if parts.premises else None),
            last: gr.update(choices=choices, value=stop if parts.premises else None),
        }

    outputs: list[Any] = [message, preview, replaced, undo_button, *form]
    split_button.click(
        split,
        [problem, replaced, *form],
        [*outputs, sentences, cut, bounds, first, last],
        trigger_mode="once",
        **PRIVATE_EVENT,
    )

    def cut_again(
        found: Sequence[str],
        start: int | None,
        stop: int | None,
        there: tuple[int, int] | None,
        earlier: Replaced | None,
        *values: Any,
    ) -> Any:
        if start is None or stop is None:
            return {message: notice("Select the first and last condition.")}
        if (start, stop) == there:
            return gr.skip()  # gradio tells some choices twice
        if stop < start:
            return failed("Last condition precedes the first. Select a later one.")
        parts = cut_sentences(found, range(start, stop + 1))
        return put(parts, earlier, held(*values)) | {cut: (start, stop)}

    gr.on(
        [first.input, last.input],
        cut_again,
        [sentences, first, last, cut, replaced, *form],
        [*outputs, cut],
        **PRIVATE_EVENT,
    )

    def undo(label: str, earlier: Replaced | None, *values: Any) -> Any:
        if earlier is None:
            return gr.skip()
        other = "Redo" if label == "Undo" else "Undo"
        return dict(zip(form, earlier.before, strict=True)) | {
            replaced: Replaced(held(*values), earlier.before),
            undo_button: gr.update(value=other),
            message: notice(f"Restored the other input; {other} switches back."),
        }

    undo_button.click(
        undo,
        [undo_button, replaced, *form],
        [message, replaced, undo_button, *form],
        trigger_mode="once",
        **PRIVATE_EVENT,
    )
