"""Sharing: a link or a file with all inputs and selections, and a draft that survives a reload."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from viz.page.answers.choosing import filled, filled_widgets
from viz.page.answers.recorded_answers import recorded_of
from viz.page.answers.workspace import Workspace
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.common.host_settings import HostSettings
from viz.page.form.form import read_form
from viz.page.form.read_only import check_shipped
from viz.page.internals import FIRST_TAB, Internals, View
from viz.page.internals_figures import TABS
from viz.page.selection import Selection, as_picks
from viz.page.sharing.download_panel import DownloadPanel, build_download
from viz.page.sharing.session import (
    MAX_LINK_CHARACTERS,
    Session,
    from_code,
    from_file,
    session_of,
    to_code,
    to_json,
)

ASK = "(...values) => window.pineSharing.{}(...values)"
"""Script that calls a function of assets/sharing.js."""


@dataclass(frozen=True)
class SharePanel:
    """Widgets of the panel."""

    copy: gr.Button
    save: gr.Button
    open: gr.UploadButton
    link: gr.Textbox
    message: gr.HTML
    handed: gr.Textbox
    """Hidden; data for the browser."""

    again: gr.Checkbox
    """True if the opened session had answers."""

    keep: gr.Button
    """Hidden; clicked by assets/typing.js when a user pauses."""

    linked: gr.Textbox
    """Hidden; code of the session in the URL, set by assets/sharing.js."""

    draft: gr.Textbox
    """Hidden; code of the draft, set by assets/sharing.js."""

    kept: gr.HTML
    """True if this browser stores a draft."""

    download: DownloadPanel


def build_share() -> SharePanel:
    """Build the widgets."""
    with gr.Row(elem_classes="page-row page-share"):
        copy = gr.Button("Copy link", size="sm", elem_id="copy-link", scale=0, min_width=110)
        save = gr.Button("Save session", size="sm", elem_id="save-session", scale=0, min_width=120)
        opening = gr.UploadButton(
            "Open session",
            file_types=[".json"],
            size="sm",
            elem_id="open-session",
            scale=0,
            min_width=120,
        )
        download = build_download()
        with gr.Column(elem_classes="page-told", min_width=200):
            message = gr.HTML(
                '<p class="page-caption">The link and the files hold all that you typed. After a run, '
                "“Download run” gives everything of it as one ZIP.</p>",
                elem_id="share-message",
            )
            kept = gr.HTML("", elem_id="draft-kept")
    link = gr.Textbox("", label="Link", visible=False, interactive=False, max_lines=1, elem_id="link")
    return SharePanel(
        copy=copy,
        save=save,
        open=opening,
        link=link,
        message=message,
        handed=gr.Textbox("", visible=False),
        again=gr.Checkbox(False, visible=False),
        keep=gr.Button(visible="hidden", elem_id="keep-draft"),
        linked=gr.Textbox("", visible=False),
        draft=gr.Textbox("", visible=False),
        kept=kept,
        download=download,
    )


def own_draft(code: object) -> Session:
    """Decode a draft. Raises InputError for another version."""
    try:
        return from_code(str(code))
    except InputError as error:
        raise InputError("Your draft is of another version of this page, and cannot be opened.") from error


def opened_sentence(where: str, session: Session) -> str:
    """Describe an opened session; its model is named but not loaded."""
    sentence = f"Opened from {where}."
    if not session.model:
        return sentence
    return f"{sentence} Its answers were by {session.model}; yours are by the model named at the top."


def wire_share(
    panel: SharePanel, page: Workspace, inside: Internals, blocks: gr.Blocks, settings: HostSettings
) -> Any:
    """Connect the widgets; return the event after which the opened session is complete."""
    _wire_handing_out(panel, page, inside)
    opened = _wire_opening(panel, page, inside, blocks, settings)

    def keep(accepted: str | None, *values: Any) -> str:
        try:
            return to_code(session_of(read_form(*values), accepted=accepted or ""))
        except InputError:
            return ""  # the draft before it stays, which is better than none; Save says what is wrong

    # Not at each change of each widget: with so many, typing would wait for it.
    gr.on(
        [panel.keep.click, page.editor.cards.input, page.task.change],
        keep,
        [page.accepted, *page.inputs],
        panel.draft,
        trigger_mode="always_last",
        **PRIVATE_EVENT,
    ).success(None, panel.draft, panel.kept, js=ASK.format("keep"), **PRIVATE_EVENT)
    return opened


def _wire_handing_out(panel: SharePanel, page: Workspace, inside: Internals) -> None:
    inputs = [page.accepted, page.finished, inside.selection, inside.view, *page.inputs]

    def session(
        accepted: str | None, run: Any, selection: Selection | None, view: View, *values: Any
    ) -> Session:
        is_own = run is not None and not run.recorded
        return session_of(
            read_form(*values),
            accepted=accepted or "",
            ran=is_own,
            model=f"{run.model} in {run.dtype}" if is_own else "",
            selection=as_picks(selection),
            tab=view.tab,
        )

    def link(*values: Any) -> dict[Any, Any]:
        try:
            code = to_code(session(*values))
            if len(code) > MAX_LINK_CHARACTERS:
                raise InputError(
                    f"Link too long: {len(code):,} characters, at most {MAX_LINK_CHARACTERS:,}. "
                    "Click “Save session” and share the file."
                )
        except Exception as error:
            message = notice(explain(error), kind="error")
            return {panel.handed: "", panel.link: gr.update(visible=False), panel.message: message}
        return {panel.handed: code, panel.link: gr.update(visible=True)}

    panel.copy.click(link, inputs, [panel.handed, panel.link, panel.message], **PRIVATE_EVENT).success(
        None,
        [panel.handed, panel.message],
        [panel.link, panel.message],
        js=ASK.format("copy"),
        **PRIVATE_EVENT,
    )

    def file(*values: Any) -> dict[Any, Any]:
        try:
            return {panel.handed: to_json(session(*values)), panel.message: ""}
        except Exception as error:
            return {panel.handed: "", panel.message: notice(explain(error), kind="error")}

    panel.save.click(file, inputs, [panel.handed, panel.message], **PRIVATE_EVENT).success(
        None, panel.handed, None, js=ASK.format("save"), **PRIVATE_EVENT
    )


def _wire_opening(
    panel: SharePanel, page: Workspace, inside: Internals, blocks: gr.Blocks, settings: HostSettings
) -> Any:
    def fill(session: Session, note: str, view: View) -> dict[Any, Any]:
        if settings.read_only:
            check_shipped(session.form)
        tab = session.tab if session.tab in dict(TABS) else FIRST_TAB
        view.tab = tab
        length = min(session.max_new_tokens, settings.max_new_tokens)
        if length < session.max_new_tokens:
            note += f" Answers have {length} tokens here at most, not {session.max_new_tokens}."
        shown, origin = recorded_of(session.form)
        return filled(
            page,
            session.entries,
            task=session.task,
            question=session.question,
            instruction=session.instruction,
            accepted=session.accepted,
            note=note,
            shown=shown,
            origin=origin,
        ) | {
            page.example: None,
            page.methods: list(session.methods),
            page.length: length,
            inside.wanted: session.selection,
            inside.tabs: gr.update(selected=tab),
            panel.again: session.ran,
        }

    def failed(error: Exception) -> dict[Any, Any]:
        return {panel.message: notice(explain(error), kind="error"), panel.again: False}

    def restore(linked: str | None, draft: str | None, view: View) -> Any:
        try:
            if linked:
                session = from_code(linked)
                return fill(session, opened_sentence("a link", session), view)
            if draft:
                return fill(own_draft(draft), "Your draft, as you left it in this browser.", view)
        except Exception as error:
            return failed(error)
        return {panel.again: False}

    def open_file(file: str | None, view: View) -> dict[Any, Any]:
        if file is None:
            return failed(InputError("no file was given; choose a saved session")) | {panel.open: None}
        try:
            session = from_file(Path(file))
            opened = fill(session, opened_sentence(Path(file).name, session), view)
        except Exception as error:
            return failed(error) | {panel.open: None}
        return opened | {panel.open: None, panel.message: ""}

    widgets = [
        page.example,
        *filled_widgets(page),
        page.methods,
        page.length,
        inside.wanted,
        inside.tabs,
        panel.again,
        panel.message,
    ]
    loaded = blocks.load(
        restore,
        [panel.linked, panel.draft, inside.view],
        widgets,
        js=ASK.format("begin"),
        **PRIVATE_EVENT,
    )
    uploaded = panel.open.upload(
        open_file, [panel.open, inside.view], [*widgets, panel.open], **PRIVATE_EVENT
    )
    for event in (loaded, uploaded):
        event.success(None, panel.again, panel.kept, js=ASK.format("opened"), **PRIVATE_EVENT)
    return loaded
