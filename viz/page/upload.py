"""Documents from the visitor's own files, put behind those that are there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.prompt import Document
from pine_engine.tasks import get_task
from viz.page.documents import MAX_DOCUMENTS, Editor, Entries, Entry, read, without_empty, write
from viz.page.failures import explain, notice
from viz.page.files import read_files
from viz.page.form import check_size
from viz.page.running import STATE_EVENT


def add_documents(entries: Entries, documents: Sequence[Document], most: int = MAX_DOCUMENTS) -> Entries:
    """The entries with the documents in place of empty cards and after the filled ones.

    Raises InputError with the numbers if that makes more, or longer texts, than the page holds.
    """
    kept = without_empty(entries)
    if len(kept) + len(documents) > most:
        there = f", and {len(kept)} are there already" if kept else ""
        raise InputError(
            f"the files have {len(documents)} documents{there}; the page holds {most}. "
            "Nothing was added: give a part of them, or remove some"
        )
    first = len(kept)
    added = (Entry(first + index, document.title, document.text) for index, document in enumerate(documents))
    after = (*kept, *added)
    check_size(after)
    return after


def wire_upload(editor: Editor, task: gr.Dropdown) -> None:
    """Connects the button for files. task: says what documents are called."""
    button = editor.files

    def upload(files: list[str] | None, task: str, *values: Any) -> dict[Any, Any]:
        before, paths = read(*values), [Path(file) for file in files or ()]
        try:
            documents = read_files(paths)
            after = add_documents(before, documents, editor.most)
        except Exception as error:
            return {editor.message: notice(explain(error), kind="error"), button: None}
        updates = write(editor, before, after, get_task(task).nouns)
        return updates | {editor.message: added_sentence(len(documents), paths), button: None}

    button.upload(
        upload,
        [button, task, *editor.inputs],
        [button, *editor.outputs],
        trigger_mode="once",
        **STATE_EVENT,
    )


def added_sentence(count: int, paths: Sequence[Path]) -> str:
    """HTML: how much was added, from where."""
    source = paths[0].name if len(paths) == 1 else f"{len(paths)} files"
    return notice(f"Added {count} document{'s' if count != 1 else ''} from {source}.")
