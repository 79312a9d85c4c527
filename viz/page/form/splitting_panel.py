"""Split a math problem into instruction, conditions and question."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.prompts.math_premises import Premises, cut_sentences, split_problem, split_sentences
from pine_engine.prompts.tasks import TASKS
from viz.drawing.markup import render
from viz.drawing.text import shorten
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.form.documents import Entries, entries_from, entries_json, read_entries
from viz.page.form.editor import Editor

MAX_PROBLEM_CHARACTERS = 20_000
"""Maximum characters; a problem has a few hundred."""

SENTENCE_LENGTH = 60
"""Maximum characters of a sentence in a choice."""


@dataclass(frozen=True)
class Content:
    """Values of the form that a split replaces."""

    instruction: str
    question: str
    entries: Entries
    accepted: str = ""
    """Accepted answers, as typed."""


@dataclass(frozen=True)
class Replaced:
    """Values before and after a split."""

    before: Content
    after: Content


@dataclass(frozen=True)
class SplittingPanel:
    """Widgets of the panel."""

    accordion: gr.Accordion
    problem: gr.Textbox
    split: gr.Button
    undo: gr.Button
    message: gr.HTML
    preview: gr.HTML
    bounds: gr.Row
    first: gr.Dropdown
    last: gr.Dropdown
    sentences: gr.State
    """Sentences of the problem that was split."""

    cut: gr.State
    """Indices of the first and last condition in the form."""

    replaced: gr.State
    """Values for Undo."""


def build_splitting(task: str) -> SplittingPanel:
    """Build the widgets, visible for tasks that use them."""
    with gr.Accordion(
        "Split a math problem", open=False, visible=TASKS[task].splits, elem_id="splitting"
    ) as accordion:
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
            split = gr.Button("Split", size="sm", elem_id="split-problem")
            undo = gr.Button("Undo", size="sm", interactive=False, elem_id="undo-split")
        message = gr.HTML("", elem_id="splitting-message", elem_classes="page-message")
        preview = gr.HTML("", elem_id="split-preview")
        with gr.Row(visible=False, elem_classes="page-row") as bounds:
            first = gr.Dropdown([], label="First condition", elem_id="first-condition", min_width=140)
            last = gr.Dropdown([], label="Last condition", elem_id="last-condition", min_width=140)
    return SplittingPanel(
        accordion=accordion,
        problem=problem,
        split=split,
        undo=undo,
        message=message,
        preview=preview,
        bounds=bounds,
        first=first,
        last=last,
        sentences=gr.State(()),
        cut=gr.State(None),
        replaced=gr.State(None),
    )


def content_of(parts: Premises, most: int = MAX_DOCUMENTS) -> Content:
    """Return the values of the form for a split problem.

    Raises InputError if it has no conditions, too many of them, or no text after them.
    """
    row = parts.row("problem")
    if len(row.documents) > most:
        raise InputError(
            f"Too many conditions: {len(row.documents)} (limit: {most}). Select a smaller range."
        )
    if not row.question:
        raise InputError("No text left for the question. Select an earlier last condition.")
    documents = [(document.title, document.text) for document in row.documents]
    return Content(row.prefix, row.question, entries_from(documents))


def remember(replaced: Replaced | None, before: Content, after: Content) -> Replaced:
    """Return the values for Undo: those before the first of several splits without edits between."""
    if replaced is not None and replaced.after == before:
        return replace(replaced, after=after)
    return Replaced(before, after)


def replaced_sentence(replaced: Replaced) -> str:
    """Describe the new values of the form, and those that Undo restores."""
    count = _conditions(len(replaced.after.entries))
    return f"Filled the form with {count}. Your previous input was replaced; Undo restores it."


def preview_html(parts: Premises) -> str:
    """Render the problem with its parts marked."""
    return render("split_preview.html", parts=parts)


def sentence_choices(sentences: Sequence[str]) -> list[tuple[str, int]]:
    """Return label and index of each sentence except the last, which belongs to the question."""
    return [
        (f"{place + 1}: {shorten(' '.join(sentence.split()), SENTENCE_LENGTH)}", place)
        for place, sentence in enumerate(sentences[:-1])
    ]


def wire_splitting(
    panel: SplittingPanel,
    editor: Editor,
    *,
    task: gr.Dropdown,
    question: gr.Textbox,
    instruction: gr.Textbox,
    accepted: gr.Textbox,
) -> None:
    """Connect the widgets with those of the form."""
    task.change(lambda task: gr.update(visible=TASKS[task].splits), task, panel.accordion, **PRIVATE_EVENT)
    form = [instruction, question, accepted, editor.cards]

    def held(instruction: str, question: str, accepted: str, documents: str) -> Content:
        return Content(instruction or "", question or "", read_entries(documents), accepted or "")

    def fill(after: Content) -> dict[Any, Any]:
        return {
            instruction: after.instruction,
            question: after.question,
            accepted: after.accepted,
            editor.cards: entries_json(after.entries),
        }

    def put(parts: Premises, replaced: Replaced | None, before: Content) -> dict[Any, Any]:
        try:
            after = content_of(parts, editor.most)
        except InputError as error:
            return {panel.message: notice(explain(error), kind="error"), panel.preview: preview_html(parts)}
        replaced = remember(replaced, before, after)
        return fill(after) | {
            panel.preview: preview_html(parts),
            panel.replaced: replaced,
            panel.undo: gr.update(value="Undo", interactive=True),
            panel.message: notice(replaced_sentence(replaced)),
        }

    def split(problem: str, replaced: Replaced | None, *values: Any) -> dict[Any, Any]:
        if len(problem or "") > MAX_PROBLEM_CHARACTERS:
            length, limit = len(problem), MAX_PROBLEM_CHARACTERS
            sentence = f"Problem too long: {length:,} characters (limit: {limit:,}). Shorten it."
            return {panel.message: notice(sentence, kind="error")}
        sentences = split_sentences(problem or "")
        if len(sentences) < 2:
            sentence = "No problem text. Paste a problem of several sentences."
            return {panel.message: notice(sentence, kind="error")}
        parts = split_problem(problem)
        start = sum(len(text) <= len(parts.prefix) for text in accumulate(sentences))
        choices = sentence_choices(sentences)
        stop = max(start, start + len(parts.premises) - 1)
        return put(parts, replaced, held(*values)) | {
            panel.sentences: sentences,
            panel.cut: (start, stop),
            panel.bounds: gr.update(visible=True),
            panel.first: gr.update(choices=choices, value=start if parts.premises else None),
            panel.last: gr.update(choices=choices, value=stop if parts.premises else None),
        }

    outputs = [panel.message, panel.preview, panel.replaced, panel.undo, *form]
    panel.split.click(
        split,
        [panel.problem, panel.replaced, *form],
        [*outputs, panel.sentences, panel.cut, panel.bounds, panel.first, panel.last],
        trigger_mode="once",
        **PRIVATE_EVENT,
    )

    def cut(
        sentences: Sequence[str],
        first: int | None,
        last: int | None,
        there: tuple[int, int] | None,
        replaced: Replaced | None,
        *values: Any,
    ) -> Any:
        if first is None or last is None:
            return {panel.message: notice("Select the first and last condition.")}
        if (first, last) == there:
            return gr.skip()  # gradio tells some choices twice
        if last < first:
            return {
                panel.message: notice("Last condition precedes the first. Select a later one.", kind="error")
            }
        parts = cut_sentences(sentences, range(first, last + 1))
        return put(parts, replaced, held(*values)) | {panel.cut: (first, last)}

    gr.on(
        [panel.first.input, panel.last.input],
        cut,
        [panel.sentences, panel.first, panel.last, panel.cut, panel.replaced, *form],
        [*outputs, panel.cut],
        **PRIVATE_EVENT,
    )

    def undo(label: str, replaced: Replaced | None, *values: Any) -> Any:
        if replaced is None:
            return gr.skip()
        now = held(*values)
        other = "Redo" if label == "Undo" else "Undo"
        return fill(replaced.before) | {
            panel.replaced: Replaced(now, replaced.before),
            panel.undo: gr.update(value=other),
            panel.message: notice(f"Restored the other input; {other} switches back."),
        }

    panel.undo.click(
        undo,
        [panel.undo, panel.replaced, *form],
        [panel.message, panel.replaced, panel.undo, *form],
        trigger_mode="once",
        **PRIVATE_EVENT,
    )


def _conditions(count: int) -> str:
    return f"{count} condition{'s' if count != 1 else ''}"
