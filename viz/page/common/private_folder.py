"""Folders with files of one session."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import gradio as gr


def remove_folder(folder: Path | None) -> None:
    """Remove such a folder when its page is closed."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def folders_held(page: gr.Blocks) -> Iterator[Path]:
    """Iterate over the folders that a session holds: states that are a folder or have a `folder`."""
    for session in list(page.state_holder.session_data.values()):
        for value in list(session.state_data.values()):
            folder = getattr(value, "folder", value)
            if isinstance(folder, Path):
                yield folder
