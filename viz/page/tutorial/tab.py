"""Tab "Tutorial", of the recorded run; the texts are in viz/cards/tutorial.toml."""

from collections.abc import Callable
from functools import cache

import gradio as gr
from gradio.processing_utils import save_bytes_to_cache

from viz.cards import tutorial as cards
from viz.drawing.markup import empty_panel
from viz.page.answers.run import Run
from viz.page.answers.tutorial_recording import tutorial_recording
from viz.page.common.widgets import PRIVATE_EVENT, bind
from viz.page.tutorial.document import tutorial_document
from viz.page.tutorial.running_example import running_example_html
from viz.page.tutorial.steps import tutorial_steps
from viz.page.tutorial.worksheet import worksheet_html

FILE_NAME = "pine-tutorial.html"

CLICK_SAVE = "() => document.querySelector('#tutorial-file').click()"
"""Script: the file is created on click, then a hidden button saves it."""


def build_tutorial(finished: gr.State) -> dict[gr.HTML, Callable[[], str]]:
    """Build the tab and connect its events; return what draws its figures, by widget."""
    with gr.Column(elem_id="tutorial-section", elem_classes="page-section"):
        tutorial = gr.HTML(empty_panel("Loading tutorial…"), elem_id="tutorial")
        with gr.Row(elem_classes="page-row"):
            download = gr.Button("Download tutorial", elem_id="download-tutorial", size="sm", scale=0)
            gr.HTML(
                '<p class="page-caption">A single offline HTML file with your last run (or the precomputed '
                "one). Nothing is uploaded.</p>"
            )
            file = gr.DownloadButton("Tutorial", visible="hidden", elem_id="tutorial-file")
    with gr.Accordion("Worksheet for a class: four experiments", open=False):
        worksheet = gr.HTML(empty_panel("Loading…"), elem_id="worksheet")
    with gr.Accordion("Worked example: eight tokens", open=False):
        example = gr.HTML(empty_panel("Loading…"), elem_id="running-example")
    with gr.Accordion("Glossary and keyboard shortcuts", open=False):
        gr.HTML(cards.glossary_html(), elem_id="words")
        gr.HTML(f"<h3>Keyboard shortcuts</h3>{cards.keys_html()}", elem_id="keys")
    written = download.click(bind(write_file, file), finished, file, **PRIVATE_EVENT)
    written.success(None, None, None, js=CLICK_SAVE, **PRIVATE_EVENT)
    return {tutorial: tutorial_html, worksheet: worksheet_html, example: running_example_html}


def write_file(button: gr.DownloadButton, run: Run | None) -> str:
    """Write the tutorial into the folder that gradio serves and empties, and return the path of the file."""
    content = tutorial_document(run).encode("utf-8")
    path: str = save_bytes_to_cache(content, FILE_NAME, button.GRADIO_CACHE)
    return path


@cache
def tutorial_html() -> str:
    """Return the HTML of the tutorial for the page, of the recorded run."""
    return cards.tutorial(tutorial_steps(tutorial_recording()), is_live=True)
