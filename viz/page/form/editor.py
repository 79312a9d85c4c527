"""Documents editor: one widget whose value is all documents, and ways to add several at once."""

from collections.abc import Sequence
from time import monotonic_ns
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import Nouns
from viz.drawing.identity import document_letter, document_segment, segment_badge
from viz.drawing.markup import render
from viz.page.common.bounds import MAX_DOCUMENTS, MAX_UPLOAD_MB
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.form.documents import Entries, capital, entries_json, read_entries, room_beside
from viz.page.form.examples import are_of_example
from viz.page.form.pasting import pasted_sentence, split_pasted

ENDINGS = (".txt", ".md", ".pdf", ".csv", ".jsonl")
REPLACED = " Removed those of the example. Undo restores them."


def words(nouns: Nouns) -> dict[str, Any]:
    """Return the property of the cards with the labels of documents and their parts."""
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
    """Return the properties of the field for several documents."""
    return {"label": f"Multiple {nouns.documents}"}


def documents_heading(nouns: Nouns) -> str:
    """Render the heading above the documents."""
    return f"<h3>{capital(nouns.documents)}</h3>"


def question_words(nouns: Nouns) -> dict[str, Any]:
    """Return the properties of the field for the question."""
    return {
        "label": capital(nouns.question),
        "placeholder": f"Enter the {nouns.question} for these {nouns.documents}",
    }


def limits_html(most: int) -> str:
    """Render the accepted types and limits."""
    kinds = ", ".join(ending[1:] for ending in ENDINGS)
    return f'<p class="page-caption">{kinds}, up to {MAX_UPLOAD_MB} MB each, {most} documents in total.</p>'


def append_documents(documents: Sequence[Document], *, replaces: bool) -> Any:
    """Return an update that appends documents, in the browser, so that concurrent typing is kept.

    They replace those of an example.
    """
    appended = [{"title": document.title, "text": document.text} for document in documents]
    return gr.update(appended={"at": monotonic_ns(), "documents": appended, "replaces": replaces})


def build_cards(entries: Entries, nouns: Nouns, most: int) -> gr.HTML:
    """Build the cards of these entries."""
    return gr.HTML(
        entries_json(entries),
        html_template=render("document_cards.html"),
        js_on_load="window.pineDocuments.mount({ element, trigger, props, watch });",
        apply_default_css=False,
        elem_id="documents",
        badges=[str(segment_badge(document_segment(letter))) for letter in range(MAX_DOCUMENTS)],
        counts=[],
        appended=None,
        most=most,
        locked=False,
        **words(nouns),
    )


class Editor:
    """Cards of the documents, ways to add several at once, and the maximum number of documents.

    The value of the cards, of all documents in slot order, is parsed by `read_entries`. assets/documents.js
    edits them in the browser without requests to the server. The event `input` reports each edit and each
    value from the server; assets/typing.js reports typing. The cards are no subclass of gr.HTML, because
    gradio writes a file for each component class.
    """

    def __init__(self, cards: gr.HTML, nouns: Nouns, most: int) -> None:
        self.cards, self.most = cards, most
        with gr.Row(elem_classes="page-row page-files"):
            self.files = gr.UploadButton(
                "Upload files",
                file_count="multiple",
                file_types=list(ENDINGS),
                size="sm",
                min_width=90,
                elem_id="add-files",
            )
            gr.HTML(limits_html(most), elem_classes="page-limits")
        with gr.Accordion("Paste multiple documents", open=False, elem_id="paste-panel"):
            self.pasted = gr.Textbox(
                info="Separate documents with a blank line or ---. Start a title line with #.",
                placeholder="# Tides\nThe Moon pulls the sea ...\n---\n# Wind\nAir moves to low pressure ...",
                lines=5,
                max_lines=12,
                elem_id="pasted",
                **pasted_words(nouns),
            )
            self.paste = gr.Button("Add documents", size="sm", elem_id="paste-documents")
        self.message = gr.HTML("", elem_id="documents-message", elem_classes="page-message")


def bind_editor(editor: Editor) -> None:
    """Connect the button that splits a pasted text."""

    def paste(text: str | None, documents: str) -> dict[Any, Any]:
        try:
            pasted = split_pasted(text or "")
        except InputError as error:
            return {editor.message: notice(explain(error), kind="error")}
        entries = read_entries(documents)
        replaces = are_of_example(entries)
        room = room_beside(() if replaces else entries, editor.most)
        sentence = pasted_sentence(len(pasted), room, editor.most) + REPLACED * replaces
        emptied = {editor.pasted: ""} if room else {}
        appended = append_documents(pasted[:room], replaces=replaces)
        return {editor.cards: appended, editor.message: notice(sentence)} | emptied

    editor.paste.click(
        paste,
        [editor.pasted, editor.cards],
        [editor.cards, editor.pasted, editor.message],
        trigger_mode="once",
        **PRIVATE_EVENT,
    )
