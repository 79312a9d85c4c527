"""Sharing: a link, a session file or a draft with all inputs and selections, and the ZIP of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from viz.page.answers.answering import FinishedRun
from viz.page.answers.choosing import filled, filled_widgets
from viz.page.answers.workspace import Workspace
from viz.page.bundle import NAME, bundle
from viz.page.common.disk import Disk, remove_folder
from viz.page.common.failures import check_limit, explain, notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import PRIVATE_EVENT
from viz.page.form.checks import check_shipped
from viz.page.form.examples import NO_EXAMPLE
from viz.page.form.form import read_form
from viz.page.internals import FIRST_TAB, Internals, View
from viz.page.internals_figures import TABS
from viz.page.jobs.job_bar import Updates
from viz.page.selection import as_picks, first_selection
from viz.page.session import MAX_LINK_CHARACTERS, Session, from_code, from_file, session_of, to_code, to_json

CALL = "(...values) => window.pineSharing.{}(...values)"  # script that calls a function of assets/sharing.js
CLICK_FILE = "() => document.querySelector('#run-file').click()"
"""Script: the ZIP is created on click, then a hidden button downloads it."""


def own_draft(code: object) -> Session:
    """Decode a draft. Raises InputError for another version."""
    try:
        return from_code(str(code))
    except InputError as error:
        raise InputError("The saved draft is from another version and cannot be restored.") from error


def opened_sentence(where: str, session: Session) -> str:
    """Describe an opened session; its model is named but not loaded."""
    sentence = f"Loaded from {where}."
    if not session.model:
        return sentence
    return f"{sentence} Its answers were generated with {session.model}. New runs use the current model."


def share_tab(
    page: Workspace,
    internals: Internals,
    blocks: gr.Blocks,
    settings: HostSettings,
    disk: Disk,
    certificate: gr.State,
    run_events: Sequence[Any],
) -> Any:
    """Build the widgets and connect them; return the event after which an opened session is complete.

    Args:
        page: Form and answers to share.
        internals: Selection to share.
        blocks: Page, whose load event opens a linked session or a draft.
        settings: Limits of the host.
        disk: Disk for ZIP files.
        certificate: State with the folder of the certificate of the last shuffle test, or None.
        run_events: Events that set `page.finished`.
    """
    with gr.Row(elem_classes="page-row page-share"):
        copy = gr.Button("Copy link", size="sm", elem_id="copy-link", scale=0, min_width=110)
        save = gr.Button("Save session", size="sm", elem_id="save-session", scale=0, min_width=120)
        opening = gr.UploadButton(
            "Open session", file_types=[".json"], size="sm", elem_id="open-session", scale=0, min_width=120
        )
        download = gr.Button(
            "Download results", size="sm", elem_id="download-run", scale=0, min_width=130, interactive=False
        )
        run_file = gr.DownloadButton("Run", visible="hidden", elem_id="run-file")
        with gr.Column(elem_classes="page-status-row", min_width=200):
            message = gr.HTML(
                '<p class="page-caption">Links and session files contain everything you typed. After a run, '
                "use “Download results” for a ZIP.</p>",
                elem_id="share-message",
            )
            kept = gr.HTML("", elem_id="draft-kept")  # true if this browser stores a draft
    link = gr.Textbox("", label="Link", visible=False, interactive=False, max_lines=1, elem_id="link")
    handed = gr.Textbox("", visible=False)  # data for the browser
    again = gr.Checkbox(False, visible=False)  # true if the opened session had answers
    linked = gr.Textbox("", visible=False)  # code of the session in the URL, set by assets/sharing.js
    draft = gr.Textbox("", visible=False)  # code of the draft, set by assets/sharing.js
    keep = gr.Button(visible="hidden", elem_id="keep-draft")  # clicked by assets/typing.js after a pause
    folder = gr.State(None, delete_callback=remove_folder)  # of the last ZIP

    # Drafts

    def keep_draft(accepted: str | None, *values: Any) -> str:
        try:
            return to_code(session_of(read_form(*values), accepted=accepted or ""))
        except InputError:
            return ""  # the draft before it stays, which is better than none; Save says what is wrong

    # After a pause instead of after each change: an event per widget and key would delay typing.
    gr.on(
        [keep.click, page.editor.cards.input, page.task.change],
        keep_draft,
        [page.accepted, *page.inputs],
        draft,
        trigger_mode="always_last",
        **PRIVATE_EVENT,
    ).success(None, draft, kept, js=CALL.format("keep"), **PRIVATE_EVENT)

    # Links and files

    def session(accepted: str | None, run: Any, view: View, *values: Any) -> Session:
        is_own = run is not None and not run.recorded
        return session_of(
            read_form(*values),
            accepted=accepted or "",
            ran=is_own,
            model=f"{run.model} in {run.dtype}" if is_own else "",
            selection=as_picks(view.selection),
            tab=view.tab,
        )

    def failed(error: Exception) -> Updates:
        return {message: notice(explain(error), kind="error")}

    def copy_link(*values: Any) -> Updates:
        try:
            code = to_code(session(*values))
            advice = "Use “Save session” and share the file."
            check_limit("Link too long", len(code), MAX_LINK_CHARACTERS, advice, unit=" characters")
        except Exception as error:
            return failed(error) | {handed: "", link: gr.update(visible=False)}
        return {handed: code, link: gr.update(visible=True)}

    def save_file(*values: Any) -> Updates:
        try:
            return {handed: to_json(session(*values)), message: ""}
        except Exception as error:
            return failed(error) | {handed: ""}

    inputs = [page.accepted, page.finished, internals.view, *page.inputs]
    copy.click(copy_link, inputs, [handed, link, message], **PRIVATE_EVENT).success(
        None, [handed, message], [link, message], js=CALL.format("copy"), **PRIVATE_EVENT
    )
    save.click(save_file, inputs, [handed, message], **PRIVATE_EVENT).success(
        None, handed, None, js=CALL.format("save"), **PRIVATE_EVENT
    )

    # Opening

    def fill(session: Session, note: str, view: View) -> Updates:
        if settings.read_only:
            check_shipped(session.form)
        view.tab = session.tab if session.tab in dict(TABS) else FIRST_TAB
        length = min(session.max_new_tokens, settings.max_new_tokens)
        if length < session.max_new_tokens:
            note += f" Max new tokens was reduced from {session.max_new_tokens} to {length}."
        return filled(page, session.form, accepted=session.accepted, note=note) | {
            page.example: NO_EXAMPLE,
            page.methods: list(session.methods),
            page.length: length,
            internals.wanted: session.selection,
            internals.tabs: gr.update(selected=view.tab),
            again: session.ran,
        }

    def restore(linked: str | None, draft: str | None, view: View) -> Updates:
        try:
            if linked:
                session = from_code(linked)
                return fill(session, opened_sentence("a link", session), view)
            if draft:
                return fill(own_draft(draft), "Draft restored from this browser.", view)
        except Exception as error:
            return failed(error) | {again: False}
        return {again: False}

    def open_file(file: str | None, view: View) -> Updates:
        try:
            if file is None:
                raise InputError("No file selected. Select a session file.")
            session = from_file(Path(file))
            opened = fill(session, opened_sentence(Path(file).name, session), view) | {message: ""}
        except Exception as error:
            opened = failed(error) | {again: False}
        return opened | {opening: None}

    widgets = [page.example, *filled_widgets(page), page.methods, page.length]
    widgets += [internals.wanted, internals.tabs, again, message]
    loaded = blocks.load(
        restore, [linked, draft, internals.view], widgets, js=CALL.format("begin"), **PRIVATE_EVENT
    )
    uploaded = opening.upload(open_file, [opening, internals.view], [*widgets, opening], **PRIVATE_EVENT)
    for event in (loaded, uploaded):
        event.success(None, again, kept, js=CALL.format("opened"), **PRIVATE_EVENT)

    # The ZIP of a run

    def offer(run: FinishedRun | None) -> Any:
        return gr.update(interactive=run is not None and run.form is not None)

    for event in run_events:
        event.then(offer, page.finished, download, **PRIVATE_EVENT)

    def make(
        run: FinishedRun | None,
        view: View,
        accepted: str | None,
        certificate: Path | None,
        before: Path | None,
    ) -> tuple[str, Path]:
        if run is None or run.form is None:
            raise gr.Error("No results yet. Click Run first.", print_exception=False)
        remove_folder(before)
        # A run that has just ended may not be the one that the selection is of.
        shown = first_selection(run).picked(as_picks(view.selection), run)
        try:
            new = disk.new_folder()
            file = new / NAME
            file.write_bytes(bundle(run, shown, accepted=accepted or "", certificate=certificate))
        except Exception as error:
            raise gr.Error(explain(error), print_exception=False) from error
        return str(file), new

    download.click(
        make,
        [page.finished, internals.view, page.accepted, certificate, folder],
        [run_file, folder],
        trigger_mode="once",
        **PRIVATE_EVENT,
    ).success(None, None, None, js=CLICK_FILE, **PRIVATE_EVENT)
    return loaded
