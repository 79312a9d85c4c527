"""The documents editor: one widget that edits all documents as one value, and what brings many at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import Nouns
from viz.drawing.identity import document_letter, document_segment, segment_badge
from viz.drawing.markup import render
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.files.file_button import build_files_button, limits_html
from viz.page.form.documents import Entries, entries_json, read_entries, room_beside
from viz.page.form.pasting import pasted_sentence, split_pasted
from viz.page.form.words import capital


@dataclass(frozen=True)
class Editor:
    """The widgets of the editor. most: documents that it takes."""

    cards: gr.HTML
    """Its value is all documents in the order of their slots, as `read_entries` takes them.

    assets/documents.js draws, moves, adds, removes and brings back cards in the browser, and asks no server
    for it. It tells of each such change, and of each value that the server sets, by the event `input`; of
    typing assets/typing.js tells. No class of ours: beside each component gradio writes a file.
    """

    files: gr.UploadButton
    pasted: gr.Textbox
    paste: gr.Button
    message: gr.HTML
    most: int


def words(nouns: Nouns) -> dict[str, Any]:
    """Property of the cards: what documents and their parts are called."""
    names = [capital(nouns.named(document_letter(letter))) for letter in range(MAX_DOCUMENTS)]
    return {
        "words": {
            "document": nouns.document,
            "documents": nouns.documents,
            "add": f"Add {nouns.a_document}",
            "title": capital(nouns.title),
            "names": names,
            "owned": bool(nouns.owner),
        }
    }


def pasted_words(nouns: Nouns) -> dict[str, Any]:
    """Properties of the field for many documents."""
    return {"label": f"Several {nouns.documents}"}


def bringing(documents: Sequence[Document]) -> Any:
    """Update of the cards that puts documents in place of empty ones and behind the filled ones.

    The browser does it, so that what is typed meanwhile stays.
    """
    brought = [{"title": document.title, "text": document.text} for document in documents]
    return gr.update(brought={"at": monotonic_ns(), "documents": brought})


def build_cards(entries: Entries, nouns: Nouns, most: int) -> gr.HTML:
    """Makes the cards of the given entries. nouns: what documents are called. most: that the host allows."""
    return gr.HTML(
        entries_json(entries),
        html_template=render("document_cards.html"),
        js_on_load="window.pineDocuments.mount({ element, trigger, props, watch });",
        apply_default_css=False,
        elem_id="documents",
        badges=[str(segment_badge(document_segment(letter))) for letter in range(MAX_DOCUMENTS)],
        counts=[],
        brought=None,
        most=most,
        locked=False,
        **words(nouns),
    )


def build_editor(cards: gr.HTML, nouns: Nouns, most: int) -> Editor:
    """Makes what brings many documents at once, and puts it together with the cards; see build_cards."""
    with gr.Row(elem_classes="page-row page-files"):
        files = build_files_button()
        gr.HTML(limits_html(most), elem_classes="page-limits")
    with gr.Accordion("Paste many at once", open=False, elem_id="paste-panel"):
        pasted = gr.Textbox(
            info="Put a blank line or a line of --- between two documents. A first line with # is a title.",
            placeholder="# Tides\nThe Moon pulls the sea ...\n---\n# Wind\nAir moves from high to low ...",
            lines=5,
            max_lines=12,
            elem_id="pasted",
            **pasted_words(nouns),
        )
        paste_button = gr.Button("Add these documents", size="sm", elem_id="paste-documents")
    message = gr.HTML("", elem_id="documents-message", elem_classes="page-message")
    return Editor(cards, files, pasted, paste_button, message, most)


def wire_editor(editor: Editor) -> None:
    """Connects the button that takes a pasted text apart."""

    def paste(text: str | None, documents: str) -> dict[Any, Any]:
        try:
            pasted = split_pasted(text or "")
        except InputError as error:
            return {editor.message: notice(explain(error), kind="error")}
        room = room_beside(read_entries(documents), editor.most)
        said = notice(pasted_sentence(len(pasted), room, editor.most))
        emptied = {editor.pasted: ""} if room else {}
        return {editor.cards: bringing(pasted[:room]), editor.message: said} | emptied

    editor.paste.click(
        paste,
        [editor.pasted, editor.cards],
        [editor.cards, editor.pasted, editor.message],
        trigger_mode="once",
        **PRIVATE_EVENT,
    )
