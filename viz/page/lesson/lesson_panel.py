"""The lesson on the page: its steps, and a button that saves it as one file."""

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.processing_utils import save_bytes_to_cache

from viz.drawing.markup import empty_panel
from viz.page.answers.answering import FinishedRun
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.lesson.lessons import lesson_document

FILE_NAME = "pine-lesson.html"

CLICK_SAVE = "() => document.querySelector('#lesson-file').click()"
"""The file is made when it is asked for; a hidden button then hands it to the browser."""


@dataclass(frozen=True)
class LessonPanel:
    """The widgets of the lesson. file: hidden, holds the file that was made last."""

    lesson: gr.HTML
    download: gr.Button
    file: gr.DownloadButton


def build_lesson() -> LessonPanel:
    """Makes the widgets; the lesson itself is drawn when the page is opened."""
    with gr.Column(elem_id="lesson-section", elem_classes="page-section"):
        lesson = gr.HTML(empty_panel("Drawing the lesson."), elem_id="lesson")
        with gr.Row(elem_classes="page-row"):
            download = gr.Button("Download lesson", elem_id="download-lesson", size="sm", scale=0)
            gr.HTML(
                '<p class="page-caption">One HTML file that works offline. It shows your last run where it '
                "can, and the recorded one elsewhere. Nothing is uploaded.</p>",
            )
            file = gr.DownloadButton("Lesson", visible="hidden", elem_id="lesson-file")
    return LessonPanel(lesson, download, file)


def wire_lesson(panel: LessonPanel, finished: gr.State) -> None:
    """Connects the button. finished: state with the last finished run or None."""

    def make(run: FinishedRun | None) -> Any:
        return lesson_file(run, panel.file.GRADIO_CACHE)

    made = panel.download.click(make, finished, panel.file, **PRIVATE_EVENT)
    made.success(None, None, None, js=CLICK_SAVE, **PRIVATE_EVENT)


def lesson_file(run: FinishedRun | None, folder: str) -> str:
    """Path of the lesson as one HTML file in a folder that gradio serves from and empties by itself."""
    path: str = save_bytes_to_cache(lesson_document(run).encode("utf-8"), FILE_NAME, folder)
    return path
