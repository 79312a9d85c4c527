"""Folders for files that one visitor alone fetches."""

import secrets
import shutil
from pathlib import Path


def private_folder(cache: str) -> Path:
    """A new folder whose name, of 128 random bits, nobody can guess.

    cache: the folder that gradio serves files from, to whoever knows their path.
    """
    folder = Path(cache, secrets.token_hex(16))
    folder.mkdir(parents=True)
    return folder


def remove_folder(folder: Path | None) -> None:
    """Removes such a folder: what a visitor has made is not kept longer than its page."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
