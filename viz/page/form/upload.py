"""Documents from uploaded files, appended to those of the form."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from pine_engine.errors import Cancelled, InputError
from pine_engine.prompts.document_files import read_documents
from pine_engine.prompts.prompt import Document
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.common.event_options import PRIVATE_EVENT, STATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.files.reading_files import FileReader
from viz.page.form.documents import Entries, Entry, read_entries, room_beside
from viz.page.form.editor import REPLACED, Editor, append_documents
from viz.page.form.examples import are_of_example
from viz.page.form.form import check_size


def check_room(entries: Entries, documents: Sequence[Document], most: int = MAX_DOCUMENTS) -> None:
    """Raise InputError if these documents exceed the number or length that the page allows."""
    room = room_beside(entries, most)
    if len(documents) > room:
        raise InputError(
            f"Too many documents in the files: {room} of {most} slots are free. Nothing was added. "
            "Upload fewer files or remove documents."
        )
    check_size((*entries, *(Entry(0, document.title, document.text) for document in documents)))


def bind_upload(editor: Editor, reader: FileReader) -> None:
    """Connect the upload button."""
    button = editor.files
    uploaded = gr.State(())  # documents of the uploaded files, and a sentence

    def upload(files: list[str] | None) -> Generator[dict[Any, Any], None, None]:
        paths = [Path(file) for file in files or ()]
        try:
            documents = yield from reader.read(
                read_documents,
                paths,
                editor.most + 1,  # one more than there is room for says enough
                what="read documents",
                files=paths,
                say=lambda sentence: {editor.message: notice(sentence)},
            )
        except Cancelled:
            return
        except Exception as error:
            yield {editor.message: notice(explain(error), kind="error"), button: None, uploaded: ()}
        else:
            yield {uploaded: (documents, added_sentence(len(documents), paths)), button: None}

    # The documents include edits that were made while the files were parsed.
    def put(added: tuple[Any, ...], documents: str) -> Any:
        if not added:
            return gr.skip()
        new, sentence = added
        entries = read_entries(documents)
        replaces = are_of_example(entries)
        try:
            check_room(() if replaces else entries, new, editor.most)
        except InputError as error:
            return {editor.message: notice(explain(error), kind="error"), uploaded: ()}
        message = notice(sentence + REPLACED * replaces)
        return {editor.cards: append_documents(new, replaces=replaces), editor.message: message, uploaded: ()}

    button.upload(
        upload, button, [button, uploaded, editor.message], trigger_mode="once", **STATE_EVENT
    ).then(put, [uploaded, editor.cards], [uploaded, editor.cards, editor.message], **PRIVATE_EVENT)


def added_sentence(count: int, paths: Sequence[Path]) -> str:
    """Describe the number and the source of the documents added."""
    source = paths[0].name if len(paths) == 1 else f"{len(paths)} files"
    return f"Added {count} document{'s' if count != 1 else ''} from {source}."
