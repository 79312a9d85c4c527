"""Tab "Internals": a selection in the last run, and figures of that selection in five tabs."""

from dataclasses import replace
from functools import partial
from typing import Any

import gradio as gr
from markupsafe import Markup

from pine_engine.endpoint import NO_INTERNALS
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.scheduling.job import Job
from viz.drawing.identity import legend
from viz.drawing.markup import empty_panel
from viz.drawing.text import shorten
from viz.page.answers.run import Run
from viz.page.common.failures import notice
from viz.page.common.widgets import NEWEST_EVENT, PRIVATE_EVENT, bind, build_figure, figure_value
from viz.page.internals.attention import draw_attention
from viz.page.internals.attention_job import AttentionView, attention_request, prepare_attention
from viz.page.internals.content import how_to_read
from viz.page.internals.left_out_job import LeftOutView, left_out_request, prepare_left_out
from viz.page.internals.tabs import DRAWING, FIGURES, TABS
from viz.page.internals.view import (
    FIRST_TAB,
    LAB,
    MAX_SELECTIONS,
    MEAN,
    View,
    after_control,
    after_pick,
    new_picks,
    opened_tab,
)
from viz.page.jobs.job_bar import ButtonJob, JobBar, Updates, bind_job
from viz.page.jobs.sources import Sources
from viz.page.queries import query_choices
from viz.page.selection import Selection
from viz.page.traced_run import layers_and_heads, run_documents

NO_RUN = (
    "Run a question to see its attention masks, positions and document importance, and to compare answers."
)

JOBS = {
    "attention": ("Compute attention", "attend", "Runs two more prefills for the selected layer and head."),
    "importance": (
        "Leave one document out",
        "leave-out",
        "Scores the answer of the selected method without each document. It shows when attention misleads.",
    ),
}
"""Button, id and description of the job of a tab."""

SKELETON = '<p class="page-skeleton" role="status">Drawing…</p>'  # of a tab, until it is drawn


TAB_EVENT: dict[str, Any] = PRIVATE_EVENT | {"trigger_mode": "multiple", "js": "pine.bridge.countClick"}
"""Options of the event of a tab that is opened, whose last input is the number of clicks.

With another mode, a tab that is opened while one is drawn would be dropped, or taken for that one.
"""


def spoken(label: str) -> str:
    """Render the announcement of the selected query for screen readers."""
    return str(Markup('<p role="status" class="visually-hidden">{}</p>').format(label and f"Query: {label}"))


def summary_html(run: Run) -> str:
    """Render the run: its origin, and the documents in its order."""
    documents = run_documents(run)
    titles = [title or segment.name for segment, title in zip(documents, run.titles, strict=True)]
    tokens = f"{run.result.layout.num_tokens:,} prompt tokens"
    source = run.origin or f"Last run: {run.model}, {run.dtype}"
    question = shorten(run.form.question, 80)
    quoted = f"“\u2068{question}\u2069” " if question else ""  # isolated from the rest of the line
    sentence = f"{quoted}{source}: {tokens}."
    content = legend(documents, titles) + notice(sentence, kind="count")
    return f'<div class="page-summary">{content}</div>'


class Internals:
    """Widgets and states of the tab, empty; `finished` has the last run."""

    def __init__(self, finished: gr.State) -> None:
        self.finished = finished
        self.bars: dict[str, JobBar] = {}  # by tab, see JOBS
        self.pictures: dict[str, gr.HTML] = {}  # by tab
        self.figures: dict[str, gr.HTML] = {}  # by place, see FIGURES
        with gr.Column(elem_id="internals-section", elem_classes="page-section"):
            self.bridge = gr.HTML(
                "",
                elem_id="pick-bridge",
                html_template="<span hidden>${value}</span>",
                js_on_load=f"pine.bridge.mount({{ props, trigger, most: {MAX_SELECTIONS} }});",
            )
            self.announcement = gr.HTML(spoken(""), elem_id="query-announcement")
            self.summary = gr.HTML(SKELETON, elem_id="internals-summary")
            with gr.Column(visible=False, elem_id="internals-pictures") as self.body:
                with gr.Row(elem_classes="page-row page-selection"):
                    self.controls = {  # by field of the selection
                        "method": gr.Dropdown([], label="Method", elem_id="selected-method", min_width=140),
                        "query": gr.Dropdown(
                            [], label="Query token", elem_id="query", scale=2, min_width=200
                        ),
                        "layer": gr.Dropdown([], label="Layer", elem_id="layer", min_width=130),
                        "head": gr.Dropdown([], label="Head", elem_id="head", min_width=130),
                    }
                first = dict(TABS)[FIRST_TAB]
                with gr.Tabs(elem_id="internals-tabs", selected=first, overflow_behavior="wrap") as self.tabs:
                    for name, label in TABS:
                        with gr.Tab(label, id=label), gr.Column(elem_id=name):
                            self._build_tab(name)
        self.view = gr.State(View())  # mutated in place
        self.clicks = gr.Number(0, visible=False)  # number of clicks on tabs, set by assets/bridge.js
        self.attention = gr.State(None)  # attention per token; None before
        self.left_out = gr.State(None)  # scores without each document; None before
        self.wanted = gr.State({})  # selection of an opened session, for the next run
        # What a drawing depends on, what `draw` updates, and what `show_run` updates.
        self.read = [finished, self.view, self.attention]
        self.shown: list[Any] = [*self.controls.values(), *self.pictures.values(), *self.figures.values()]
        self.outputs: list[Any] = [self.summary, self.body, self.wanted, *self.shown]

    def _build_tab(self, name: str) -> None:
        if name in JOBS:
            button, job, about = JOBS[name]
            with gr.Row(elem_classes="page-row"):
                self.bars[name] = JobBar(button, run_id=job, stop_id=f"stop-{job}")
            self.bars[name].build_status(about, status_id=f"{job}-status")
        self.pictures[name] = gr.HTML("", elem_id=f"{name}-html")
        with gr.Row(elem_classes="page-row"):
            for column in FIGURES[name]:
                with gr.Column(min_width=320):
                    self.figures |= {place: build_figure(f"figure-{place}") for place in column}
        gr.HTML(how_to_read(name))


def bind_internals(tab: Internals, sources: Sources, chosen: gr.State) -> None:
    """Connect the events of the tab."""
    controls, picked = [*tab.controls.values()], [tab.announcement, *tab.shown]
    tab.bridge.select(bind(take_picks, tab), [tab.bridge, *tab.read], picked, **NEWEST_EVENT)
    changes = [widget.input for widget in controls]
    gr.on(changes, bind(take_controls, tab), [*tab.read, *controls], tab.shown, **NEWEST_EVENT)
    tab.tabs.select(bind(open_tab, tab), [*tab.read, tab.clicks], tab.shown, **TAB_EVENT)
    inputs, bars = [tab.finished, tab.view], tab.bars
    attend, leave_out = partial(begin_attention, tab), partial(begin_left_out, tab)
    attended = bind_job(bars["attention"], attend, inputs, [tab.attention], sources, chosen)
    scored = bind_job(bars["importance"], leave_out, inputs, [tab.left_out], sources, chosen)
    kept = scored.then(keep_left_out, [tab.finished, tab.left_out], tab.finished, **PRIVATE_EVENT)
    for computed in (attended, kept):
        computed.then(bind(draw, tab), tab.read, tab.shown, **PRIVATE_EVENT)


def follow(tab: Internals, event: Any) -> None:
    """Draw the open tab of figures after an event that shows another run.

    Drawn once the old pictures are away: a tab that was opened in between would be emptied and stay so.
    """
    event.then(bind(draw_if_open, tab), tab.read, tab.shown, **PRIVATE_EVENT)


def show_selection(tab: Internals, run: Run, selection: Selection) -> Updates:
    """Return the updates of the dropdowns."""
    num_layers, num_heads = layers_and_heads(run)
    choices = {
        "method": (selection.method, [(METHODS[name].label, name) for name in run.result.traces]),
        "query": (str(selection.query), query_choices(run, selection.method)),
        "layer": (_shown(selection.layer), _numbered("layer", num_layers)),
        "head": (_shown(selection.head), _numbered("head", num_heads)),
    }
    return {
        tab.controls[name]: gr.update(choices=offered, value=value)
        for name, (value, offered) in choices.items()
    }


def show_run(tab: Internals, run: Run | None, view: View) -> Updates:
    """Return the updates that show a run, without drawings."""
    if run is None:
        return {tab.summary: empty_panel(NO_RUN, press="run", label="Run")}
    if view.selection is None:
        panel = empty_panel(f"{run.model}: {NO_INTERNALS}")
        return {tab.summary: panel, tab.body: gr.update(visible=False), tab.wanted: {}}
    view.begun += 1
    shown: Updates = {tab.summary: summary_html(run), tab.body: gr.update(visible=True), tab.wanted: {}}
    emptied = dict.fromkeys(tab.figures.values(), "") | dict.fromkeys(tab.pictures.values(), SKELETON)
    return show_selection(tab, run, view.selection) | shown | emptied


def draw(tab: Internals, run: Run | None, view: View, attention: AttentionView | None) -> Any:
    """Return the updates that draw the open tab of figures; none if a newer event has started."""
    if run is None or view.selection is None:
        return gr.skip()
    view.begun += 1
    begun, selection, name = view.begun, view.selection, view.tab
    drawing = DRAWING.get(name)
    content = drawing(run, selection) if drawing else draw_attention(run, selection, attention)
    updates = show_selection(tab, run, selection) | {tab.pictures[name]: content.html}
    for place in (place for column in FIGURES[name] for place in column):
        updates[tab.figures[place]] = figure_value(content.figures.get(place))
    return updates if view.begun == begun else gr.skip()


def draw_if_open(tab: Internals, run: Run | None, view: View, attention: AttentionView | None) -> Any:
    """Return the updates of `draw` while the tab of the page is open."""
    return draw(tab, run, view, attention) if view.page_tab == LAB else gr.skip()


def take_picks(
    tab: Internals, sent: str, run: Run | None, view: View, attention: AttentionView | None
) -> Any:
    """Apply new selections of the browser, and draw."""
    picks = new_picks(sent, view.heard)
    if not picks:
        return gr.skip()
    view.heard = picks[-1][0]
    if run is None or view.selection is None:
        return gr.skip()
    announced: Updates = {}
    for _, what in picks:
        view.selection, label = after_pick(run, view.selection, what)
        announced |= {tab.announcement: spoken(label)} if label else {}
    updates = draw(tab, run, view, attention)
    return updates | announced if isinstance(updates, dict) and tab.controls["method"] in updates else updates


def take_controls(
    tab: Internals, run: Run | None, view: View, attention: AttentionView | None, *values: Any
) -> Any:
    """Apply a change of a dropdown, and draw."""
    if run is None or view.selection is None or None in values:
        return gr.skip()
    view.selection = after_control(run, view.selection, *values)
    return draw(tab, run, view, attention)


def open_tab(tab: Internals, event: gr.EventData, run: Any, view: View, attention: Any, click: Any) -> Any:
    """Note the opened tab of figures, unless a later click has arrived, and draw the open one."""
    label, number = opened_tab(event, click)
    if number > view.click:
        view.tab, view.click = next((name for name, known in TABS if known == label), view.tab), number
    return draw(tab, run, view, attention)


def begin_attention(tab: Internals, run: Run | None, view: View) -> ButtonJob:
    """Return the job that computes token-level attention. Raises InputError before the first run."""
    if run is None or view.selection is None:
        raise InputError("No run yet. Click Run first.")
    request = attention_request(run, view.selection)
    return ButtonJob(
        job=Job("attention", request.methods, prepare_attention, {"request": request}),
        show=lambda view: {tab.attention: view} if view.weights else {},
        task=run.form.task,
        cleared={},
    )


def begin_left_out(tab: Internals, run: Run | None, view: View) -> ButtonJob:
    """Return the job that scores the selected method. Raises InputError before the first run."""
    if run is None or view.selection is None:
        raise InputError("No run yet. Click Run first.")
    method = view.selection.method
    arguments = {"result": left_out_request(run, method), "model": run.model}
    return ButtonJob(
        job=Job("leave one out", (method,), prepare_left_out, arguments),
        show=lambda view: {tab.left_out: view} if view.scores else {},
        task=run.form.task,
        cleared={},
        kept="Completed scores are kept.",
    )


def keep_left_out(run: Run | None, view: LeftOutView | None) -> Any:
    """Return the run with the scores of its answer; unchanged if they are of another run."""
    if run is None or view is None or view.result is None:
        return gr.skip()
    (method,) = view.scores
    if method not in run.result.answers or view.result != left_out_request(run, method):
        return gr.skip()
    return replace(run, left_out={**run.left_out, **view.scores})


def _numbered(word: str, count: int) -> list[tuple[str, str]]:
    return [(f"mean over {word}s", MEAN), *((f"{word} {index}", str(index)) for index in range(count))]


def _shown(index: int | None) -> str:
    return MEAN if index is None else str(index)
