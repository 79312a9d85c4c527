"""Documents from the visitor's own files, put behind those that are there."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
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
from viz.page.form.editor import Editor, bringing
from viz.page.form.form import check_size


def check_room(entries: Entries, documents: Sequence[Document], most: int = MAX_DOCUMENTS) -> None:
    """Raises InputError with the numbers if these documents make more, or longer texts, than the page holds.

    How many documents the files have in all is not known then.
    """
    room = room_beside(entries, most)
    if len(documents) > room:
        there = f", and {most - room} are there already" if room < most else ""
        raise InputError(
            f"the files have more documents than fit: the page holds {most}{there}. "
            "Nothing was added; give a part of them, or remove some"
        )
    check_size((*entries, *(Entry(0, document.title, document.text) for document in documents)))


@dataclass(frozen=True)
class Brought:
    """The documents that were read of a visitor's files."""

    documents: tuple[Document, ...]
    paths: Sequence[Path]


def wire_upload(editor: Editor, reader: FileReader) -> None:
    """Connects the button for files."""
    button = editor.files

    brought = gr.State(None)

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
            yield {editor.message: notice(explain(error), kind="error"), button: None, brought: None}
        else:
            yield {brought: Brought(tuple(documents), paths), button: None}

    # What was typed while the files were read is there by now.
    def put(given: Brought | None, documents: str) -> Any:
        if given is None:
            return gr.skip()
        try:
            check_room(read_entries(documents), given.documents, editor.most)
        except InputError as error:
            return {editor.message: notice(explain(error), kind="error"), brought: None}
        said = added_sentence(len(given.documents), given.paths)
        return {editor.cards: bringing(given.documents), editor.message: said, brought: None}

    button.upload(upload, button, [button, brought, editor.message], trigger_mode="once", **STATE_EVENT).then(
        put, [brought, editor.cards], [brought, editor.cards, editor.message], **PRIVATE_EVENT
    )


def added_sentence(count: int, paths: Sequence[Path]) -> str:
    """HTML: how much was added, from where."""
    source = paths[0].name if len(paths) == 1 else f"{len(paths)} files"
    return notice(f"Added {count} document{'s' if count != 1 else ''} from {source}.")
