"""Internals of the last run: a shared selection, and a tab for each figure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import gradio as gr
from markupsafe import Markup
from pydantic import Field, TypeAdapter, ValidationError

from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from viz.drawing.markup import empty_panel
from viz.page.answers.answering import FinishedRun
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import first_problem
from viz.page.common.figure_box import build_figure, figure_value
from viz.page.inside.attending import Attended
from viz.page.inside.attention_panel import AttentionPanel, build_attention, wire_attention
from viz.page.inside.drawn import TabContent
from viz.page.inside.drawn_attention import draw_attention
from viz.page.inside.drawn_change import draw_change
from viz.page.inside.drawn_importance import draw_importance
from viz.page.inside.drawn_masks import draw_masks
from viz.page.inside.drawn_positions import draw_positions
from viz.page.inside.how_to_read import how_to_read
from viz.page.inside.reading import (
    bounds_of,
    first_selection,
    layers_and_heads,
    query_at,
    query_choices,
    summary_html,
    turned,
)
from viz.page.inside.selection import Query, Selection
from viz.page.jobs.sources import Sources

NO_RUN = (
    "Here will be pictures of the last finished run: who reads whom, at which positions, what is found "
    "important, and what changed between two answers."
)

TABS = (
    ("attention", "Attention"),
    ("masks", "Masks"),
    ("positions", "Positions"),
    ("importance", "Importance"),
    ("change", "What changed"),
)
"""Name and label of each tab; `DRAWING` maps names to functions, except for "Attention"."""

FIRST_TAB = "masks"
"""Initial tab, which needs no job."""

FIGURES: dict[str, tuple[tuple[str, ...], ...]] = {
    "attention": (("attention",),),
    "masks": (("token-masks",),),
    "positions": (("positions",), ("position-map", "method-positions")),
    "importance": (("decisive-heads", "importance"), ("answer-importance", "attention-shares")),
    "change": (("likely-tokens",), ("token-shares",), ("answer-shares",)),
}
"""Figures of each tab, in columns."""

MEAN = "mean"
"""Choice of layer or head that stands for the mean."""

MAX_SELECTIONS = 20
"""Maximum number of events handled at once."""

BRIDGE = f"""
window.pinePicks ??= [];
window.pinePick = (what) => {{
  const made = (window.pinePicks.at(-1)?.[0] ?? 0) + 1;
  window.pinePicks = [...window.pinePicks, [made, what]].slice(-{MAX_SELECTIONS});
  clearTimeout(window.pinePicking);
  window.pinePicking = setTimeout(() => {{
    props.value = JSON.stringify(window.pinePicks);
    trigger("select");
  }});
}};
"""
"""Script of the bridge; viz/drawing/pictures.js calls it with each selection.

The value of the bridge is the last selections, numbered: of queued events gradio (6.31) repeats the data of
the first, which would lose the second. Selections of one moment are sent as one event, because gradio would
run several at once and show them in any order. They persist when the bridge is recreated with its tab.
"""

_PICKS = TypeAdapter(Annotated[list[tuple[int, dict[str, Any]]], Field(max_length=MAX_SELECTIONS)])


DRAWING: dict[str, Callable[[FinishedRun, Selection], TabContent]] = {
    "masks": draw_masks,
    "positions": draw_positions,
    "importance": draw_importance,
    "change": draw_change,
}
"""Drawing function of each tab."""


@dataclass
class View:
    """Selection of a session. Events update it at once; a drawing is dropped if a newer event has started."""

    tab: str = FIRST_TAB
    selection: Selection | None = None
    """Last finished run, or None."""

    heard: int = 0
    """Number of the last selection handled."""

    begun: int = 0
    """Number of events that have started to draw."""


@dataclass(frozen=True)
class InsidePanel:
    """Widgets of the tab."""

    summary: gr.HTML
    body: gr.Column
    method: gr.Dropdown
    query: gr.Dropdown
    layer: gr.Dropdown
    head: gr.Dropdown
    bridge: gr.HTML
    """Receives selections from the browser."""

    view: gr.State
    """View, mutated in place."""

    announcement: gr.HTML
    """Visually hidden; announces the query selected by a key to screen readers."""

    tabs: gr.Tabs
    pictures: dict[str, gr.HTML]
    """HTML of each tab."""

    figures: dict[str, gr.HTML]
    """Figure of each place."""

    attention: AttentionPanel

    selection: gr.State
    """Selection of the view for other panels; None before a run."""

    wanted: gr.State
    """Selection of an opened session, for the next run."""

    @property
    def controls(self) -> list[Any]:
        """Return the selection widgets, in the order of `_chosen`."""
        return [self.method, self.query, self.layer, self.head]

    @property
    def drawings(self) -> list[gr.HTML]:
        """Return the widgets with HTML and figures."""
        return [*self.pictures.values(), *self.figures.values()]

    def drawn(
        self, tab: str, run: FinishedRun, selection: Selection, attended: Attended | None
    ) -> dict[Any, str]:
        """Return the values of the widgets of a tab."""
        is_computed = tab not in DRAWING
        made = draw_attention(run, selection, attended) if is_computed else DRAWING[tab](run, selection)
        places = [place for column in FIGURES.get(tab, ()) for place in column]
        return {self.pictures[tab]: made.html} | {
            self.figures[place]: figure_value(made.figures.get(place)) for place in places
        }


def new_picks(sent: str, heard: int) -> list[tuple[int, dict[str, Any]]]:
    """Return the selections after number `heard`, numbered. Raises InputError if they are invalid."""
    try:
        picks = _PICKS.validate_json(sent or "[]")
    except ValidationError as error:
        raise InputError(f"the picks cannot be read: {first_problem(error)}") from error
    return [(number, what) for number, what in picks if number > heard]


def after_pick(run: FinishedRun, selection: Selection, what: Mapping[str, Any]) -> tuple[Selection, str]:
    """Return the selection after a change from the browser (untrusted), and its announcement or ""."""
    if what.get("clear"):
        return first_selection(run), ""
    token = what.get("token")
    if isinstance(token, int | float) and math.isfinite(token):
        query = query_at(run, int(token))
        return (selection if query is None else replace(selection, query=query)), ""
    step = what.get("turn")
    if isinstance(step, int) and abs(step) == 1:
        label, query = turned(run, selection.query, step)
        return replace(selection, query=query), label
    return selection.picked(what, bounds_of(run)), ""


def spoken(label: str) -> str:
    """Render the announcement of the selected query for screen readers."""
    return str(Markup('<p role="status" class="pine-sr">{}</p>').format(label and f"Query: {label}"))


def build_inside() -> InsidePanel:
    """Build the widgets, empty."""
    pictures: dict[str, gr.HTML] = {}
    figures: dict[str, gr.HTML] = {}
    with gr.Column(elem_id="inside-section", elem_classes="page-section"):
        bridge = gr.HTML(
            "", elem_id="pick-bridge", html_template="<span hidden>${value}</span>", js_on_load=BRIDGE
        )
        announcement = gr.HTML(spoken(""), elem_id="query-said")
        summary = gr.HTML(empty_panel(NO_RUN, press="run", label="Run"), elem_id="inside-summary")
        with gr.Column(visible=False, elem_id="inside-pictures") as body:
            with gr.Row(elem_classes="page-row page-selection"):
                method = gr.Dropdown([], label="Method", elem_id="selected-method", min_width=140)
                query = gr.Dropdown([], label="Query: whose view", elem_id="query", min_width=200, scale=2)
                layer = gr.Dropdown([], label="Layer", elem_id="layer", min_width=130)
                head = gr.Dropdown([], label="Head", elem_id="head", min_width=130)
            with gr.Tabs(elem_id="inside-tabs", selected=FIRST_TAB, overflow_behavior="wrap") as tabs:
                for name, label in TABS:
                    with gr.Tab(label, id=name), gr.Column(elem_id=name):
                        if name not in DRAWING:
                            attention = build_attention()
                        pictures[name] = gr.HTML("", elem_id=f"{name}-html")
                        with gr.Row(elem_classes="page-row"):
                            for column in FIGURES.get(name, ()):
                                with gr.Column(min_width=320):
                                    figures |= {place: build_figure(f"figure-{place}") for place in column}
                        if explanation := how_to_read(name):
                            gr.HTML(explanation)
    return InsidePanel(
        summary=summary,
        body=body,
        method=method,
        query=query,
        layer=layer,
        head=head,
        bridge=bridge,
        announcement=announcement,
        tabs=tabs,
        pictures=pictures,
        figures=figures,
        attention=attention,
        view=gr.State(View()),
        selection=gr.State(None),
        wanted=gr.State({}),
    )


def wire_inside(
    panel: InsidePanel, finished: gr.State, run_events: Sequence[Any], sources: Sources, chosen: gr.State
) -> None:
    """Connect the widgets; `finished` is the state with the last run, which `run_events` write."""

    def show_run(run: FinishedRun | None, view: View, wanted: dict[str, Any]) -> Any:
        if run is None:
            return gr.skip()
        first = first_selection(run).picked(wanted, bounds_of(run))
        view.selection, view.begun = first, view.begun + 1
        layers, heads = layers_and_heads(run)
        return {
            panel.summary: summary_html(run),
            panel.body: gr.update(visible=True),
            panel.selection: first,
            panel.wanted: {},
            panel.method: gr.update(
                choices=[(METHODS[name].label, name) for name in run.result.traces], value=first.method
            ),
            panel.query: gr.update(choices=query_choices(run), value=str(first.query)),
            panel.layer: gr.update(choices=_numbered("layer", layers), value=_shown(first.layer)),
            panel.head: gr.update(choices=_numbered("head", heads), value=_shown(first.head)),
            **dict.fromkeys(panel.drawings, ""),
        }

    def draw(run: FinishedRun | None, view: View, attended: Attended | None) -> Any:
        if run is None or view.selection is None:
            return gr.skip()
        view.begun += 1
        begun, selection = view.begun, view.selection
        updates = {
            panel.selection: selection,
            panel.method: selection.method,
            panel.query: str(selection.query),
            panel.layer: _shown(selection.layer),
            panel.head: _shown(selection.head),
        } | panel.drawn(view.tab, run, selection, attended)
        return updates if view.begun == begun else gr.skip()

    read = [finished, panel.view, panel.attention.attended]
    shown = [panel.selection, *panel.controls, *panel.drawings]

    # Drawn once the old pictures are away: a tab that was opened in between would be emptied and stay so.
    for event in run_events:
        event.then(
            show_run,
            [finished, panel.view, panel.wanted],
            [panel.summary, panel.body, panel.selection, panel.wanted, *panel.controls, *panel.drawings],
            **PRIVATE_EVENT,
        ).then(draw, read, shown, **PRIVATE_EVENT)
    computed = wire_attention(panel.attention, finished, panel.selection, sources, chosen)
    computed.then(draw, read, shown, **PRIVATE_EVENT)

    def take_picks(sent: str, run: FinishedRun | None, view: View, attended: Attended | None) -> Any:
        picks = new_picks(sent, view.heard)
        if not picks:
            return gr.skip()
        view.heard = picks[-1][0]
        if run is None or view.selection is None:
            return gr.skip()
        announcement: dict[Any, Any] = {}
        for _, what in picks:
            view.selection, label = after_pick(run, view.selection, what)
            announcement |= {panel.announcement: spoken(label)} if label else {}
        updates = draw(run, view, attended)
        return updates | announcement if isinstance(updates, dict) and panel.selection in updates else updates

    def take_controls(run: FinishedRun | None, view: View, attended: Attended | None, *values: Any) -> Any:
        if run is None or view.selection is None or None in values:
            return gr.skip()
        view.selection = _chosen(view.selection, *values)
        return draw(run, view, attended)

    # gradio reads the hints of functions that take an event, so these name no type that is not imported.
    def open_tab(event: gr.EventData, run: Any, view: View, attended: Any) -> Any:
        what = event._data if isinstance(event._data, dict) else {}
        view.tab = next((name for name, label in TABS if label == what.get("value")), view.tab)
        return draw(run, view, attended)

    newest = {"trigger_mode": "always_last", **PRIVATE_EVENT}
    panel.bridge.select(take_picks, [panel.bridge, *read], [panel.announcement, *shown], **newest)
    gr.on(
        [widget.input for widget in panel.controls],
        take_controls,
        [*read, *panel.controls],
        shown,
        **newest,
    )
    panel.tabs.select(open_tab, read, shown, trigger_mode="multiple", **PRIVATE_EVENT)


def _numbered(word: str, count: int) -> list[tuple[str, str]]:
    return [(f"mean over {word}s", MEAN), *((f"{word} {index}", str(index)) for index in range(count))]


def _shown(index: int | None) -> str:
    return MEAN if index is None else str(index)


def _chosen(selection: Selection, method: str, query: str, layer: str, head: str) -> Selection:
    """Return the selection of the widgets, whose values gradio has validated."""
    return replace(
        selection,
        method=method,
        query=Query.parse(query) or selection.query,
        layer=None if layer == MEAN else int(layer),
        head=None if head == MEAN else int(head),
    )
