"""Upload button: accepted file types, button and file names."""

from collections.abc import Sequence
from pathlib import Path

import gradio as gr

from viz.page.common.bounds import MAX_UPLOAD_MB

ENDINGS = (".txt", ".md", ".pdf", ".csv", ".jsonl")


def limits_html(most: int) -> str:
    """Render the accepted types and limits."""
    kinds = ", ".join(ending[1:] for ending in ENDINGS)
    return f'<p class="page-caption">{kinds}, up to {MAX_UPLOAD_MB} MB each, {most} documents in total.</p>'


def build_files_button() -> gr.UploadButton:
    """Build the button."""
    return gr.UploadButton(
        "Upload files",
        file_count="multiple",
        file_types=list(ENDINGS),
        size="sm",
        min_width=90,
        elem_id="add-files",
    )


def by_name(sentence: str, paths: Sequence[Path]) -> str:
    """Replace paths of uploaded files in the sentence by their names."""
    for path in paths:
        # A sentence begins with a capital, which a name may not have.
        if sentence.startswith(str(path)):
            sentence = f"File {sentence}"
        sentence = sentence.replace(str(path), path.name)
    return sentence
