"""Composition of the page: header, tabs, API and the events between tabs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from pine_engine.additions import find_addition
from viz.cards.tutorial import anchor, explanations_html
from viz.page.answers.filling import bind_choices
from viz.page.answers.form_run import bind_workspace
from viz.page.answers.run import Run
from viz.page.answers.shown import Shown
from viz.page.answers.tutorial_recording import tutorial_recording
from viz.page.answers.workspace import Workspace
from viz.page.api.arguments import Host
from viz.page.api.calls import add_api
from viz.page.common.disk import Disk
from viz.page.common.failures import notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import MODEL_EVENT, PRIVATE_EVENT, STATE_EVENT, bind
from viz.page.counting import Counting, bind_counting
from viz.page.files.reading_files import FileReader
from viz.page.form.fitting import bind_misfits
from viz.page.form.read_only import NO_FILES, NOTE
from viz.page.gradio_patches.blocks import GuardedBlocks
from viz.page.internals.tab import TAB_EVENT, Internals, bind_internals, follow, show_run
from viz.page.internals.view import LAB, TUTORIAL, View, opened_tab
from viz.page.jobs.loader import Status
from viz.page.jobs.sources import Choice, Sources
from viz.page.model_choice import OPEN, ModelPicker, bind_picker
from viz.page.position_sweep import SweepTab, bind_sweep
from viz.page.selection import first_selection
from viz.page.serving.sessions import release_results
from viz.page.share import ShareBar, bind_share
from viz.page.shuffle import shuffle_tab
from viz.page.tutorial.tab import build_tutorial
from viz.page.why import build_why, why_json
from viz.page.without import bind_without

TITLE = "PINE Explorer"
WHY = "Why"  # label of a tab
QUESTION = "Same documents, another order. Does the answer change?"

HIDDEN = {"add-files", "paste-panel", "open-session"}
"""Element ids of widgets for entering text, which a read-only page hides."""

HEADER_BUTTONS = '<button type="button" class="page-header-button" data-projector>Present</button>'
"""Turned on and off by assets/projector.js."""


def build_page(sources: Sources, settings: HostSettings) -> GuardedBlocks:
    """Build the Blocks of the page, ready to launch. An engine is loaded when it is first needed."""
    with GuardedBlocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        disk = Disk(Path(page.GRADIO_CACHE), settings.max_disk_mb * 1e6)
        page.disk = disk
        reader = FileReader(sources.runs)
        add_api(Host(sources, settings, reader))  # first, so that no private event takes one of their names
        with gr.Row(elem_id="header"):
            gr.HTML(f"<h1>{TITLE}</h1><h2>{QUESTION}</h2>", scale=3, min_width=300)
            model = gr.HTML(status_html(sources.main.status), elem_id="model-status", min_width=220)
            toggle = gr.Button(
                OPEN, visible=sources.is_selectable, size="sm", elem_id="choose-model", scale=0, min_width=130
            )
            gr.HTML(HEADER_BUTTONS, elem_id="header-buttons", min_width=0)
        ready = gr.State((None, sources.main.status.stage))
        picker = ModelPicker(toggle, sources)
        bind_picker(picker, sources, ready)
        chosen = picker.chosen
        if settings.read_only:
            gr.HTML(notice(NOTE, kind="note"), elem_id="read-only")
        with gr.Tabs(elem_id="tabs", overflow_behavior="wrap") as tabs:
            with gr.Tab("See it", id="See it") as see_it:
                workspace = Workspace()
                shuffle_event, resumed, drawn = shuffle_tab(workspace, sources, chosen, settings)
            with gr.Tab(WHY, id=WHY):
                notes = [gr.HTML("")]
                why = build_why()
            with gr.Tab(LAB, id=LAB), gr.Tabs(elem_id="lab-tabs", overflow_behavior="wrap"):
                with gr.Tab("Internals", id="Internals"):
                    stale = gr.HTML("", elem_id="internals-stale")
                    inside = Internals(workspace.finished)
                    bind_internals(inside, sources, chosen)
                with gr.Tab("Position sweep"):
                    notes.append(gr.HTML(""))
                    sweep = SweepTab()
                boxes = [workspace.methods]
                for label, add_tab in find_addition("viz.lab.page", "tabs", dict)().items():
                    with gr.Tab(label):
                        boxes += add_tab(page, sources, chosen, ready, settings, disk, reader)
            with gr.Tab(TUTORIAL):
                tutorial = build_tutorial(workspace.finished)
        gr.HTML(explanations_html())
        timer = gr.Timer(1.0)
        stream = gr.Button(visible="hidden", elem_id="open-stream")  # pressed by assets/events.js

        returned = bind_choices(workspace)
        triggers = [page.load, ready.change, workspace.task.change]
        bind_misfits(boxes, sources, chosen=chosen, task=workspace.task, triggers=triggers)
        run_event = bind_workspace(workspace, sources, chosen, settings, reader)
        counting = Counting(workspace, sweep, stale, sources, settings)
        runs = [run_event, shuffle_event, resumed]
        bind_without(workspace, sources, chosen, settings, runs)
        finishing = [*runs, returned]  # events that set the finished run
        events = [*runs, bind_sweep(sweep, workspace, sources, chosen, settings)]
        bind_counting(counting, chosen=chosen, ready=ready, runs=events)
        with see_it:
            opened = bind_share(ShareBar(workspace, inside), page, settings, disk, sources.kept, finishing)
        recorded = opened.then(  # the page may show the first example's recorded answers
            lambda shown: tutorial_recording().run if shown.recorded else gr.skip(),
            workspace.shown,
            workspace.finished,
            **PRIVATE_EVENT,
        )
        _bind_drawings(tabs, [recorded, *finishing], Drawings(why, tutorial, inside, workspace.shown))
        for trigger in (page.load, timer.tick, chosen.change):
            trigger(bind(look, sources), chosen, [model, ready, timer, *notes], **STATE_EVENT)
        stream.click(_open_stream, trigger_mode="multiple", **MODEL_EVENT, **PRIVATE_EVENT | {"queue": True})
        results = [workspace.finished, workspace.shown, workspace.before, workspace.edited, drawn]
        results += [inside.attention, inside.left_out]
        page.unload(bind(release_results, page, results))
        # A disconnect is not reported for calls outside of the queue.
        page.queue(api_open=False)
    assert isinstance(page, GuardedBlocks)
    if settings.read_only:
        freeze(page)
    return page


def status_html(status: Status) -> str:
    """Render the line with the progress of loading the model, with the explanation of its dtype."""
    html = notice(status.sentence, kind="error" if status.stage == "failed" else status.stage)
    return f'<div data-term="{anchor("4bit")}">{html}</div>' if "4bit" in status.sentence else html


@dataclass(frozen=True)
class Drawings:
    """Widgets that are drawn while their tab is open: Why and Internals after each run, the tutorial once."""

    why: gr.HTML
    tutorial: Mapping[gr.HTML, Callable[[], str]]
    inside: Internals
    shown: gr.State  # answers on the page


def _bind_drawings(tabs: gr.Tabs, runs: Sequence[Any], drawings: Drawings) -> None:
    """Draw after each of these runs, and when a tab is opened."""
    inside = drawings.inside
    inputs = [inside.finished, drawings.shown, inside.view]
    outputs = [drawings.why, *drawings.tutorial, *inside.outputs]
    for event in runs:
        run = event.then(bind(after_run, drawings), [*inputs, inside.wanted], outputs, **PRIVATE_EVENT)
        follow(inside, run)
    follow(inside, tabs.select(bind(open_page_tab, drawings), [*inputs, inside.clicks], outputs, **TAB_EVENT))


def show_open(drawings: Drawings, run: Run | None, shown: Shown, view: View) -> Any:
    """Return the updates of the open tab, if it shows nothing or an earlier run."""
    if view.page_tab == WHY:
        why = why_json(run, shown)
        is_new, view.why = view.why != hash(why), hash(why)
        return {drawings.why: why} if is_new else gr.skip()
    if view.page_tab not in view.stale:
        return gr.skip()
    view.stale.discard(view.page_tab)
    if view.page_tab == TUTORIAL:
        return {widget: draw() for widget, draw in drawings.tutorial.items()}
    return show_run(drawings.inside, run, view) or gr.skip()


def after_run(drawings: Drawings, run: Run | None, shown: Shown, view: View, wanted: dict[str, Any]) -> Any:
    """Select the first query of a new run, and show the run in the open tab."""
    view.stale.add(LAB)
    view.selection = first_selection(run).picked(wanted, run) if run and run.has_internals else None
    return show_open(drawings, run, shown, view)


def open_page_tab(
    drawings: Drawings, event: gr.EventData, run: Any, shown: Any, view: View, click: Any
) -> Any:
    """Note the opened tab of the page, unless a later click has arrived, and draw the open one."""
    label, number = opened_tab(event, click)
    if number > view.page_click:
        view.page_tab, view.page_click = label, number
    return show_open(drawings, run, shown, view)


def look(sources: Sources, choice: Choice | None) -> tuple[Any, ...]:
    """Return the line of the model, the state of its choice, and the timer, which ends with the loading.

    Then the note of each of two tabs that show internals, if the model returns none.
    """
    status = sources.status(choice)
    lacking = f"{status.no_internals} To see them, run PINE Explorer with a model that it loads."
    note = notice(lacking, kind="note") if status.no_internals else ""
    return status_html(status), (choice, status.stage), gr.Timer(active=status.stage == "loading"), note, note


def _open_stream() -> None:
    """Do nothing: an event in the queue opens a stream of answers."""


def freeze(page: GuardedBlocks) -> None:
    """Disable fields and uploads of a page that was built, and hide widgets for entering text."""
    page.no_files = NO_FILES
    for block in page.blocks.values():
        name = getattr(block, "elem_id", None)
        if isinstance(block, gr.Textbox) or (isinstance(block, gr.Dropdown) and name == "task"):
            block.interactive = False
        if isinstance(block, gr.HTML) and name == "documents":
            block.props["locked"] = True
        if name in HIDDEN:
            block.visible = False
