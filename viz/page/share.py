"""Sharing: a link, a file or a draft with all inputs and selections, and the ZIP of a run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from viz.page.answers.filling import filled, filled_widgets
from viz.page.answers.record import RunRecord, record_of
from viz.page.answers.run import Run
from viz.page.answers.shared import share_answers, shown_of
from viz.page.answers.shown import FREE_INPUTS, Shown, changes
from viz.page.answers.workspace import Workspace
from viz.page.bundle import NAME, bundle
from viz.page.common.disk import Disk, remove_folder
from viz.page.common.failures import explain, notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.limits import check_limit
from viz.page.common.widgets import PRIVATE_EVENT, bind
from viz.page.form.examples import NO_EXAMPLE, accepted_for
from viz.page.form.form import read_form
from viz.page.form.read_only import check_shipped
from viz.page.internals.tab import Internals
from viz.page.internals.tabs import TABS
from viz.page.internals.view import FIRST_TAB, View
from viz.page.jobs.connection_tracker import current_caller
from viz.page.jobs.job_bar import Updates
from viz.page.jobs.kept_runs import KeptRuns
from viz.page.links import MAX_QR_BYTES, link_code, linked_session, qr_rows
from viz.page.selection import as_picks, first_selection
from viz.page.session import MAX_LINK_CHARACTERS, from_draft, from_file, to_json
from viz.page.short_links import ShortLinks

PARAMETER = "session"  # of a link, as in assets/drafts.js
CLICK_FILE = "() => document.querySelector('#run-file').click()"
"""Script: the ZIP is created on click, then a hidden button downloads it."""


class ShareBar:
    """Widgets of sharing, and the parts of the page whose inputs and selections are shared."""

    def __init__(self, page: Workspace, internals: Internals) -> None:
        self.page, self.internals = page, internals
        self.draft_kept = gr.HTML("", elem_id="draft-kept")  # true if this browser stores a draft
        with page.sharing:  # the menu in viz/templates/order_table.html presses these buttons
            self.share = gr.Button(visible="hidden", elem_id="share")
            self.short = gr.Button(visible="hidden", elem_id="short-link")  # by assets/last_slide.js
            self.save = gr.Button(visible="hidden", elem_id="save-session")
            self.opening = gr.UploadButton(
                file_types=[".json", ".zip"], visible="hidden", elem_id="open-session"
            )
            self.download = gr.Button(visible="hidden", elem_id="download-run", interactive=False)
            self.run_file = gr.DownloadButton(visible="hidden", elem_id="run-file")
            self.message = gr.HTML("", elem_id="share-message")
            self.link = gr.Textbox(
                "", label="Link", visible=False, interactive=False, max_lines=1, elem_id="link"
            )
            self.handed = gr.Textbox("", visible=False)  # data for the browser
            self.resumes = gr.Checkbox(False, visible=False)  # true if the last run of the browser is kept
            # Address of the page, code of the session in it, draft as JSON and key of the browser, all set by
            # assets/drafts.js.
            self.address, self.linked = gr.Textbox("", visible=False), gr.Textbox("", visible=False)
            self.draft, self.key = gr.Textbox("", visible=False), gr.Textbox("", visible=False)
            self.keep = gr.Button(
                visible="hidden", elem_id="keep-draft"
            )  # by assets/typing.js, after a pause
        self.folder = gr.State(None, delete_callback=remove_folder)  # of the last ZIP


def calling(function: str) -> dict[str, Any]:
    """Return the options of an event that calls a function of the scripts with its inputs first."""
    return PRIVATE_EVENT | {"js": f"pine.{function}"}


def bind_share(
    bar: ShareBar,
    blocks: gr.Blocks,
    settings: HostSettings,
    disk: Disk,
    kept: KeptRuns,
    run_events: Sequence[Any],
) -> Any:
    """Connect the widgets; return the event after which an opened session is complete.

    `run_events` set `page.finished`; the load event of `blocks` opens a linked session or a draft.
    """
    page, view, links = bar.page, bar.internals.view, ShortLinks()
    # After a pause instead of after each change: an event per widget and key would delay typing.
    changes = [bar.keep.click, page.editor.cards.input, page.task.change]
    gr.on(changes, None, [page.accepted, *page.inputs], bar.draft_kept, **calling("drafts.keep"))
    scored = [page.accepted, page.typed]
    inputs, handed = [*scored, page.finished, view, *page.inputs], [bar.handed, bar.message]
    linked, shown = [bar.address, page.shown, *inputs], [bar.link, bar.message]
    link = bar.share.click(bind(create_link, bar), linked, [bar.handed, *shown], **calling("sharing.here"))
    link.success(None, handed, shown, **calling("sharing.share"))
    short = bar.short.click(
        bind(create_short_link, bar, links), linked, bar.handed, **calling("sharing.here")
    )
    short.success(None, bar.handed, None, **calling("last_slide.receive"))
    saved = bar.save.click(bind(save_session, bar), inputs, handed, **PRIVATE_EVENT)
    saved.success(None, bar.handed, None, **calling("sharing.save"))
    filling = [page.example, *filled_widgets(page), page.methods, page.length, page.chat_template_kwargs]
    filling += [bar.internals.wanted, bar.internals.tabs, bar.resumes, page.key, bar.message]
    stored, file = [bar.linked, bar.draft, bar.key, view], [*filling, bar.opening]
    loaded = blocks.load(
        bind(restore, bar, settings, kept, links), stored, filling, **calling("drafts.begin")
    )
    opened = bar.opening.upload(bind(open_file, bar, settings), [bar.opening, view], file, **PRIVATE_EVENT)
    for event in (loaded, opened):
        event.success(None, bar.resumes, bar.draft_kept, **calling("drafts.opened"))
    for event in run_events:
        event.then(
            lambda run: gr.update(interactive=run is not None and run.source == "own"),
            page.finished,
            bar.download,
            **PRIVATE_EVENT,
        )
    packed, files = [page.finished, view, *scored, bar.folder], [bar.run_file, bar.folder]
    written = bar.download.click(bind(write_results, disk), packed, files, **PRIVATE_EVENT)
    written.success(None, None, None, js=CLICK_FILE, **PRIVATE_EVENT)
    return loaded


def show_failure(bar: ShareBar, error: Exception) -> Updates:
    """Return the updates that show why sharing failed."""
    return {bar.message: notice(explain(error), kind="error")}


def page_session(
    accepted: str | None, typed: str | None, run: Run | None, view: View, *values: Any
) -> RunRecord:
    """Return the session of the page, without results. Raises InputError if it cannot be saved."""
    form = read_form(*values)
    own = run if run and run.source == "own" else None
    if own and changes((own.form, None), (form, None), ignored=FREE_INPUTS):
        own = None
    facts = {"model": own.model, "dtype": own.dtype, "revision": own.revision} if own else {}
    return record_of(
        form,
        accepted=accepted_for(form, accepted, typed),
        ran=own is not None,
        **facts,
        selection=as_picks(view.selection),
        tab=view.tab,
    )


def create_link(bar: ShareBar, address: str, shown: Shown, *values: Any) -> Updates:
    """Return the updates that hand a link with the answers, and its QR code, to the browser."""
    try:
        session = share_answers(page_session(*values), shown)
        code, note = checked_code(session)
    except Exception as error:
        return show_failure(bar, error) | {bar.handed: "", bar.link: gr.update(visible=False)}
    start = f"{address}#{PARAMETER}="
    unselected = session.model_copy(update={"selection": {}, "tab": ""})  # more documents have a code
    scanned, _ = link_code(unselected, limit=MAX_QR_BYTES - len(start.encode()))
    handed = json.dumps({"link": start + code, "note": note, "qr": qr_rows(start + scanned)})
    return {bar.handed: handed, bar.link: gr.update(visible=True)}


def checked_code(session: RunRecord) -> tuple[str, str]:
    """Return the code of a session and its contents. Raises InputError if the code is too long for a link."""
    code, note = link_code(session)
    advice = "Use “Save session” and share the file."
    check_limit("Link too long", len(code), MAX_LINK_CHARACTERS, advice, unit=" characters")
    return code, note


def create_short_link(
    bar: ShareBar, links: ShortLinks, address: str, shown: Shown, *values: Any
) -> dict[gr.Textbox, str]:
    """Return the update that hands a short link and its QR code to the browser, or why there is none."""
    try:
        code, _ = checked_code(share_answers(page_session(*values), shown))
        link = f"{address}#{PARAMETER}={links.keep(code, current_caller().client.address)}"
    except Exception as error:
        return {bar.handed: json.dumps({"note": explain(error)})}
    return {bar.handed: json.dumps({"link": link, "qr": qr_rows(link), "note": "The link works for a day."})}


def save_session(bar: ShareBar, *values: Any) -> Updates:
    """Return the updates that hand a session file to the browser."""
    try:
        return {bar.handed: to_json(page_session(*values)), bar.message: ""}
    except Exception as error:
        return show_failure(bar, error) | {bar.handed: ""}


def restore(
    bar: ShareBar,
    settings: HostSettings,
    kept: KeptRuns,
    links: ShortLinks,
    linked: str | None,
    draft: str | None,
    key: str | None,
    view: View,
) -> Updates:
    """Return the updates that open the session of a link, or else a draft and the last run."""
    is_kept = not linked and kept.find(key or "") is not None
    updates: Updates = {bar.resumes: is_kept, bar.page.key: key or ""}
    try:
        if linked:
            session = linked_session(links.find(linked))
            updates |= fill_page(bar, settings, session, opened_sentence("a link", session), view)
        elif draft:
            note = "Draft restored from this browser."
            session = from_draft(draft)
            kept_answers = {"accepted": accepted_for(session.form, session.accepted)}
            updates |= fill_page(bar, settings, session.model_copy(update=kept_answers), note, view)
    except Exception as error:
        updates |= show_failure(bar, error)
    return updates


def open_file(bar: ShareBar, settings: HostSettings, file: str | None, view: View) -> Updates:
    """Return the updates that open a saved file."""
    try:
        if file is None:
            raise InputError("No file selected. Select a session file.")
        session = from_file(Path(file))
        sentence = opened_sentence(Path(file).name, session)
        opened = fill_page(bar, settings, session, sentence, view) | {bar.message: ""}
    except Exception as error:
        opened = show_failure(bar, error)
    return opened | {bar.opening: None, bar.resumes: False}


def opened_sentence(where: str, session: RunRecord) -> str:
    """Describe an opened session; its model is named but not loaded, and nothing runs unasked."""
    sentence = f"Loaded from {where}."
    if not session.model or session.orders:
        return sentence
    return (
        f"{sentence} Its answers were generated with {session.named_model}. New runs use the current model."
    )


def fill_page(bar: ShareBar, settings: HostSettings, session: RunRecord, note: str, view: View) -> Updates:
    """Return the updates that fill the page. Raises InputError for texts that a read-only page refuses."""
    page = bar.page
    if settings.read_only:
        check_shipped(session.form)
    view.tab = session.tab if session.tab in dict(TABS) else FIRST_TAB
    shown = shown_of(session) if session.orders else None
    accepted = session.accepted  # a letter that seems to be that of an example was typed before sharing
    typed = "" if accepted_for(session.form, accepted) else accepted
    return filled(page, session.form, accepted=accepted, note=note, shown=shown) | {
        page.typed: typed,
        page.example: NO_EXAMPLE,
        page.methods: list(session.methods),
        page.length: session.max_new_tokens,
        page.chat_template_kwargs: session.chat_template_kwargs,
        bar.internals.wanted: session.selection,
        bar.internals.tabs: gr.update(selected=dict(TABS)[view.tab]),
    }


def write_results(
    disk: Disk, run: Run | None, view: View, accepted: str | None, typed: str | None, before: Path | None
) -> tuple[str, Path]:
    """Return the path of the ZIP of a run, and its folder, which replaces the one before."""
    if run is None or run.source != "own":
        raise gr.Error("No results yet. Click Run first.", print_exception=False)
    remove_folder(before)
    # A run that has just ended may not be the one that the selection is of.
    is_shown = run.has_internals
    selection = first_selection(run).picked(as_picks(view.selection), run) if is_shown else None
    try:
        folder = disk.new_folder()
        file = folder / NAME
        file.write_bytes(bundle(run, selection, accepted=accepted_for(run.form, accepted, typed)))
    except Exception as error:
        raise gr.Error(explain(error), print_exception=False) from error
    return str(file), folder
