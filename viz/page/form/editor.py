"""Documents editor: one widget whose value is all documents, and ways to add several at once."""

from collections.abc import Generator, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gradio as gr

from pine_engine.errors import Cancelled, InputError
from pine_engine.prompts.tasks import TASKS, Nouns, Task
from pine_engine.rows.document_files import TEXT_KINDS, read_documents
from pine_engine.rows.documents import Document
from pine_engine.rows.files import guessed_encoding
from pine_engine.rows.office_files import SHEET, TEXTS
from viz.cards.tutorial import anchor
from viz.drawing.identity import document_letter, document_segment, segment_badge
from viz.drawing.markup import render
from viz.page.common.failures import explain, notice
from viz.page.common.limits import MAX_DOCUMENTS, MAX_UPLOAD_MB
from viz.page.common.widgets import PRIVATE_EVENT, STATE_EVENT, bind
from viz.page.files.reading_files import ROW_ENDINGS, FileReader, encoding_sentence
from viz.page.form.documents import Entries, Entry, capital, entries_json, read_entries, room_beside
from viz.page.form.examples import are_of_example, load_examples
from viz.page.form.form import check_size
from viz.page.form.pasted import pasted_sentence, split_pasted
from viz.page.jobs.job_bar import Updates

ENDINGS = (*TEXT_KINDS, *ROW_ENDINGS)
NEED_PACKAGE = () if find_spec("markitdown") else (SHEET, *TEXTS)
"""Endings that are refused with the name of a package, and that the page does not mention."""

REPLACED = " Removed those of the example. Undo restores them."


def words(task: Task) -> dict[str, Any]:
    """Return the property of the cards with the labels of documents and their parts in a task."""
    nouns = task.nouns
    names = [capital(nouns.named(document_letter(letter))) for letter in range(MAX_DOCUMENTS)]
    return {
        "words": {
            "document": nouns.document,
            "documents": nouns.documents,
            "add": f"Add {nouns.a_document}",
            "title": capital(nouns.title),
            "text": f"{capital(nouns.document)} text",
            "names": names,
            "owned": bool(nouns.owner),
            "hides": not task.has_letters,
        }
    }


def question_words(nouns: Nouns) -> dict[str, Any]:
    """Return the properties of the field for the question."""
    return {
        "label": capital(nouns.question),
        "placeholder": f"Enter the {nouns.question} for these {nouns.documents}",
    }


def append_documents(documents: Sequence[Document], *, replaces: bool) -> Any:
    """Return an update that appends documents, in the browser, so that concurrent typing is kept.

    They replace those of an example.
    """
    appended = [{"title": one.title, "text": one.text, "score": one.score} for one in documents]
    return gr.update(appended={"at": monotonic_ns(), "documents": appended, "replaces": replaces})


def build_cards(entries: Entries, task: Task) -> gr.HTML:
    """Build the cards of these entries."""
    return gr.HTML(
        entries_json(entries),
        html_template=render("document_cards.html", slot=anchor("slot")),
        js_on_load="pine.documents.mount({ element, trigger, props, watch });",
        apply_default_css=False,
        elem_id="documents",
        badges=[str(segment_badge(document_segment(letter))) for letter in range(MAX_DOCUMENTS)],
        counts=[],
        appended=None,
        most=MAX_DOCUMENTS,
        locked=False,
        **words(task),
    )


class Editor:
    """Widgets of the documents editor: the cards, and the ways to add several documents at once.

    The value of `cards`, of all documents in slot order, is parsed by `read_entries`. assets/documents.js
    edits them in the browser without requests to the server. The event `input` reports each edit and each
    value from the server. `apply` reports that the visitor has replaced all documents of the last such value,
    or restored one; assets/typing.js reports typing. The cards are no subclass of gr.HTML, because
    gradio writes a file for each component class.
    """

    def __init__(self, cards: gr.HTML, task: str) -> None:
        self.cards = cards
        with gr.Row(elem_classes="page-row page-files"):
            self.files = gr.UploadButton(
                "Upload files",
                file_count="multiple",
                file_types=list(ENDINGS),
                size="sm",
                min_width=90,
                elem_id="add-files",
            )
            kinds = ", ".join(ending[1:] for ending in ENDINGS if ending not in NEED_PACKAGE)
            limits = f"up to {MAX_UPLOAD_MB} MB each, {MAX_DOCUMENTS} documents in total"
            gr.HTML(f'<p class="page-caption">{kinds}, {limits}.</p>', elem_classes="page-limits")
        with gr.Accordion("Paste multiple documents", open=False, elem_id="paste-panel"):
            self.pasted = gr.Textbox(
                info="Separate documents with a blank line or ---. Start a title line with #.",
                placeholder="# Tides\nThe Moon pulls the sea ...\n---\n# Wind\nAir moves to low pressure ...",
                lines=5,
                max_lines=12,
                elem_id="pasted",
                label=f"Multiple {TASKS[task].nouns.documents}",
            )
            with gr.Row(elem_classes="page-row"):
                self.paste = gr.Button("Add documents", size="sm", elem_id="paste-documents")
        self.message = gr.HTML("", elem_id="documents-message", elem_classes="page-message")
        self.uploaded = gr.State(())  # documents of the uploaded files, and a sentence


def bind_editor(editor: Editor, reader: FileReader, *, task: gr.Dropdown, instruction: gr.Textbox) -> None:
    """Connect the buttons; the instruction follows the documents."""
    cards, shown = editor.cards, [editor.cards, editor.message]
    cards.apply(fit_instruction, [task, instruction, cards], instruction, **PRIVATE_EVENT)
    pasted, added = [*shown, editor.pasted], [*shown, editor.uploaded]
    editor.paste.click(bind(paste, editor), [editor.pasted, cards], pasted, **PRIVATE_EVENT)
    read = [editor.files, editor.uploaded, editor.message]
    uploaded = editor.files.upload(bind(upload, editor, reader), editor.files, read, **STATE_EVENT)
    uploaded.then(bind(put, editor), [editor.uploaded, cards], added, **PRIVATE_EVENT)


def fit_instruction(task: str, instruction: str | None, documents: str) -> Any:
    """Return the instruction of an example beside its documents, and that of the task beside others.

    An instruction of the visitor stays.
    """
    texts = {entry.text for entry in read_entries(documents)}
    examples = [example for example in load_examples() if example.task == task]
    shown = [example for example in examples if texts & {document.text for document in example.documents}]
    usual = TASKS[task].instruction
    if (instruction or "").strip() not in {usual, *(example.instruction for example in load_examples())}:
        return gr.skip()
    return (shown[0].instruction if shown else "") or usual


def paste(editor: Editor, text: str | None, documents: str) -> Updates:
    """Add the documents of the pasted text for which there is room."""
    try:
        pasted = split_pasted(text or "")
    except InputError as error:
        return {editor.message: notice(explain(error), kind="error")}
    entries = read_entries(documents)
    replaces = are_of_example(entries)
    room = room_beside(() if replaces else entries)
    sentence = pasted_sentence(len(pasted), room) + REPLACED * replaces
    emptied = {editor.pasted: ""} if room else {}
    appended = append_documents(pasted[:room], replaces=replaces)
    return {editor.cards: appended, editor.message: notice(sentence)} | emptied


def upload(editor: Editor, reader: FileReader, files: list[str] | None) -> Generator[Updates, None, None]:
    """Parse the uploaded files."""
    paths = [Path(file) for file in files or ()]
    try:
        documents, encodings = yield from reader.read(
            read_files,
            paths,
            MAX_DOCUMENTS + 1,  # one more than there is room for says enough
            what="read documents",
            files=paths,
            say=lambda sentence: {editor.message: notice(sentence)},
        )
    except Cancelled:
        return
    except Exception as error:
        yield {editor.message: notice(explain(error), kind="error"), editor.files: None, editor.uploaded: ()}
    else:
        count, source = len(documents), paths[0].name if len(paths) == 1 else f"{len(paths)} files"
        sentence = f"Added {count} document{'s' if count != 1 else ''} from {source}."
        sentence += encoding_sentence(encodings)
        yield {editor.uploaded: (documents, sentence), editor.files: None}


def read_files(paths: Sequence[Path], limit: int) -> tuple[list[Document], list[str]]:
    """Return the documents of files, and the encodings that are a guess. Raises InputError."""
    return read_documents(paths, limit), list(map(guessed_encoding, paths))


def put(editor: Editor, added: tuple[Any, ...], documents: str) -> Any:
    """Add the uploaded documents to those of the form, with edits made while the files were parsed."""
    if not added:
        return gr.skip()
    new, sentence = added
    entries = read_entries(documents)
    replaces = are_of_example(entries)
    try:
        check_room(() if replaces else entries, new)
    except InputError as error:
        return {editor.message: notice(explain(error), kind="error"), editor.uploaded: ()}
    return {
        editor.cards: append_documents(new, replaces=replaces),
        editor.message: notice(sentence + REPLACED * replaces),
        editor.uploaded: (),
    }


def check_room(entries: Entries, documents: Sequence[Document]) -> None:
    """Raise InputError if these documents exceed the number or length that the page allows."""
    room = room_beside(entries)
    if len(documents) > room:
        raise InputError(
            f"Too many documents in the files: {room} of {MAX_DOCUMENTS} slots are free. Nothing was added. "
            "Upload fewer files or remove documents."
        )
    check_size((*entries, *(Entry(0, document.title, document.text) for document in documents)))
