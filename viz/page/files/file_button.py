"""A visitor's own files: which kinds are taken, the button, and what they are called."""

from collections.abc import Sequence
from pathlib import Path

import gradio as gr

from viz.page.common.bounds import MOST_MB

ENDINGS = (".txt", ".md", ".pdf", ".csv", ".jsonl")


def limits_html(most: int) -> str:
    """HTML: what can be added. most: documents that the page holds."""
    kinds = ", ".join(ending[1:] for ending in ENDINGS)
    return f'<p class="page-caption">Files: {kinds}; {MOST_MB} MB each, {most} documents in all.</p>'


def build_files_button() -> gr.UploadButton:
    """Makes the button."""
    return gr.UploadButton(
        "Add from files",
        file_count="multiple",
        file_types=list(ENDINGS),
        size="sm",
        min_width=90,
        elem_id="add-files",
    )


def by_name(sentence: str, paths: Sequence[Path]) -> str:
    """The sentence with the uploaded files' own names, without the folders where they lie."""
    for path in paths:
        # A sentence begins with a capital, which a name may not have.
        if sentence.startswith(str(path)):
            sentence = f"the file {sentence}"
        sentence = sentence.replace(str(path), path.name)
    return sentence
