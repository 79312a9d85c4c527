"""Folders for files that one visitor alone fetches."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import gradio as gr


def remove_folder(folder: Path | None) -> None:
    """Removes such a folder: what a visitor has made is not kept longer than its page."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def folders_held(page: gr.Blocks) -> Iterator[Path]:
    """Those that a session of the page holds: a state is the folder, or has it as `folder`."""
    for session in list(page.state_holder.session_data.values()):
        for value in list(session.state_data.values()):
            folder = getattr(value, "folder", value)
            if isinstance(folder, Path):
                yield folder
