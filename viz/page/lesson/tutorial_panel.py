"""Tutorial tab: the steps, and a button that saves them as one file."""

from typing import Any

import gradio as gr
from gradio.processing_utils import save_bytes_to_cache

from viz.drawing.markup import empty_panel
from viz.page.answers.answering import FinishedRun
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.lesson.tutorial import tutorial_document

FILE_NAME = "pine-tutorial.html"

_CLICK_SAVE = "() => document.querySelector('#lesson-file').click()"


def build_tutorial(finished: gr.State) -> gr.HTML:
    """Build the tab, and return the place of the steps, which are drawn when the page is opened.

    A click on the button creates the file of the last run, which a hidden button saves.
    """
    with gr.Column(elem_id="lesson-section", elem_classes="page-section"):
        lesson = gr.HTML(empty_panel("Loading tutorial…"), elem_id="lesson")
        with gr.Row(elem_classes="page-row"):
            download = gr.Button("Download tutorial", elem_id="download-lesson", size="sm", scale=0)
            gr.HTML(
                '<p class="page-caption">A single offline HTML file with your last run (or the precomputed '
                "one). Nothing is uploaded.</p>",
            )
            file = gr.DownloadButton("Tutorial", visible="hidden", elem_id="lesson-file")

    def create(run: FinishedRun | None) -> Any:
        return tutorial_file(run, file.GRADIO_CACHE)

    created = download.click(create, finished, file, **PRIVATE_EVENT)
    created.success(None, None, None, js=_CLICK_SAVE, **PRIVATE_EVENT)
    return lesson


def tutorial_file(run: FinishedRun | None, folder: str) -> str:
    """Write the tutorial into a folder that gradio serves and empties, and return the path of the file."""
    path: str = save_bytes_to_cache(tutorial_document(run).encode("utf-8"), FILE_NAME, folder)
    return path
