"""Button that exports the last run as one ZIP."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from viz.page.answers.answering import FinishedRun
from viz.page.common.disk import Disk, remove_folder
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import explain
from viz.page.selection import Selection, as_picks, first_selection
from viz.page.sharing.bundle import write_bundle

CLICK_FILE = "() => document.querySelector('#run-file').click()"
"""Script: the ZIP is created on click, then a hidden button downloads it."""


@dataclass(frozen=True)
class DownloadPanel:
    """Widgets of the export."""

    button: gr.Button
    file: gr.DownloadButton
    """Hidden download button of the last ZIP."""

    folder: gr.State
    """Path of the last ZIP, or None."""


def build_download() -> DownloadPanel:
    """Build the widgets."""
    return DownloadPanel(
        button=gr.Button(
            "Download run", size="sm", elem_id="download-run", scale=0, min_width=130, interactive=False
        ),
        file=gr.DownloadButton("Run", visible="hidden", elem_id="run-file"),
        folder=gr.State(None, delete_callback=remove_folder),
    )


def wire_download(
    panel: DownloadPanel,
    *,
    finished: gr.State,
    selection: gr.State,
    accepted: gr.Textbox,
    certificate: gr.State,
    run_events: Sequence[Any],
    disk: Disk,
) -> None:
    """Connect the button; the states are those of the last run."""

    def offer(run: FinishedRun | None) -> Any:
        return gr.update(interactive=run is not None and run.form is not None)

    for event in run_events:
        event.then(offer, finished, panel.button, **PRIVATE_EVENT)

    def make(
        run: FinishedRun | None,
        selection: Selection | None,
        accepted: str | None,
        certificate: Path | None,
        before: Path | None,
    ) -> tuple[str, Path]:
        if run is None or run.form is None:
            raise gr.Error("There is no run of your own to download; press Run.", print_exception=False)
        remove_folder(before)
        # A run that has just ended may not be the one that the selection is of.
        shown = first_selection(run).picked(as_picks(selection), run)
        try:
            file = write_bundle(
                run, shown, accepted=accepted or "", certificate=certificate, folder=disk.new_folder()
            )
        except Exception as error:
            raise gr.Error(explain(error), print_exception=False) from error
        return str(file), file.parent

    panel.button.click(
        make,
        [finished, selection, accepted, certificate, panel.folder],
        [panel.file, panel.folder],
        trigger_mode="once",
        **PRIVATE_EVENT,
    ).success(None, None, None, js=CLICK_FILE, **PRIVATE_EVENT)
