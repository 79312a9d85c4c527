"""Inside the last run: the selection that all pictures share, and a tab for each picture."""

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
"""Name and label of each picture; `DRAWING` says who draws it, but for what has to be computed first."""

FIRST_TAB = "masks"
"""Shown first: it needs no computing."""

FIGURES: dict[str, tuple[tuple[str, ...], ...]] = {
    "attention": (("attention",),),
    "masks": (("token-masks",),),
    "positions": (("positions",), ("position-map", "method-positions")),
    "importance": (("decisive-heads", "importance"), ("answer-importance", "attention-shares")),
    "change": (("likely-tokens",), ("token-shares",), ("answer-shares",)),
}
"""Places of the figures of each tab, in columns; a place is called as the figure that stands in it."""

MEAN = "mean"
"""Choice of layer or head that stands for all of them."""

MOST_PICKS = 20
"""That can be made before the first of them is answered."""

BRIDGE = f"""
window.pinePicks ??= [];
window.pinePick = (what) => {{
  const made = (window.pinePicks.at(-1)?.[0] ?? 0) + 1;
  window.pinePicks = [...window.pinePicks, [made, what]].slice(-{MOST_PICKS});
  clearTimeout(window.pinePicking);
  window.pinePicking = setTimeout(() => {{
    props.value = JSON.stringify(window.pinePicks);
    trigger("select");
  }});
}};
"""
"""viz/drawing/pictures.js calls this with a pick. The last ones are the value of the bridge, numbered: of
events that wait for each other gradio (6.31) repeats the data of the first, and the second pick would be
lost. What is picked at one moment is one event: gradio would not see that the first is under way, make
several side by side, and show their answers in any order. The picks outlive the bridge, which is made anew
when its tab is opened again.
"""

_PICKS = TypeAdapter(Annotated[list[tuple[int, dict[str, Any]]], Field(max_length=MOST_PICKS)])


DRAWING: dict[str, Callable[[FinishedRun, Selection], TabContent]] = {
    "masks": draw_masks,
    "positions": draw_positions,
    "importance": draw_importance,
    "change": draw_change,
}
"""Who draws the picture of each name."""


@dataclass
class View:
    """What one session looks at. Events change it at once, and then draw all of it, several at the same time:
    an answer is shown only if no other event has begun since, which draws what is newer.
    """

    tab: str = FIRST_TAB
    selection: Selection | None = None
    """None before a run."""

    heard: int = 0
    """Number of the last pick that was taken."""

    begun: int = 0
    """How many events have begun to draw."""


@dataclass(frozen=True)
class InsidePanel:
    """The widgets of the pictures."""

    summary: gr.HTML
    body: gr.Column
    method: gr.Dropdown
    query: gr.Dropdown
    layer: gr.Dropdown
    head: gr.Dropdown
    bridge: gr.HTML
    """Hears picks."""

    view: gr.State
    """A View, which is changed in place."""

    said: gr.HTML
    """Never seen; tells a screen reader which query a key has chosen."""

    tabs: gr.Tabs
    pictures: dict[str, gr.HTML]
    """By tab."""

    figures: dict[str, gr.HTML]
    """By place."""

    attention: AttentionPanel

    selection: gr.State
    """That of the view, for others who follow it; None before a run."""

    wanted: gr.State
    """Picks for the next run, from a session that was opened."""

    @property
    def controls(self) -> list[Any]:
        """The widgets that choose what is drawn, in the order of `_chosen`."""
        return [self.method, self.query, self.layer, self.head]

    @property
    def drawings(self) -> list[gr.HTML]:
        """The widgets that are drawn in."""
        return [*self.pictures.values(), *self.figures.values()]

    def drawn(
        self, tab: str, run: FinishedRun, selection: Selection, attended: Attended | None
    ) -> dict[Any, str]:
        """What the widgets of a tab show of a run. attended: what was computed for the tab "Attention"."""
        is_computed = tab not in DRAWING
        made = draw_attention(run, selection, attended) if is_computed else DRAWING[tab](run, selection)
        places = [place for column in FIGURES.get(tab, ()) for place in column]
        return {self.pictures[tab]: made.html} | {
            self.figures[place]: figure_value(made.figures.get(place)) for place in places
        }


def new_picks(sent: str, heard: int) -> list[tuple[int, dict[str, Any]]]:
    """The picks after the one of a number, with their numbers. Raises InputError for what are no picks."""
    try:
        picks = _PICKS.validate_json(sent or "[]")
    except ValidationError as error:
        raise InputError(f"the picks cannot be read: {first_problem(error)}") from error
    return [(number, what) for number, what in picks if number > heard]


def after_pick(run: FinishedRun, selection: Selection, what: Mapping[str, Any]) -> tuple[Selection, str]:
    """The selection after a pick, and what is said of it, "" for nothing.

    what: comes from the browser and is not to be trusted.
    """
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
    """HTML that a screen reader says once it has changed: the query that is shown."""
    return str(Markup('<p role="status" class="pine-sr">{}</p>').format(label and f"Query: {label}"))


def build_inside() -> InsidePanel:
    """Makes the widgets, empty."""
    pictures: dict[str, gr.HTML] = {}
    figures: dict[str, gr.HTML] = {}
    with gr.Column(elem_id="inside-section", elem_classes="page-section"):
        bridge = gr.HTML(
            "", elem_id="pick-bridge", html_template="<span hidden>${value}</span>", js_on_load=BRIDGE
        )
        said = gr.HTML(spoken(""), elem_id="query-said")
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
                        if said_of := how_to_read(name):
                            gr.HTML(said_of)
    return InsidePanel(
        summary=summary,
        body=body,
        method=method,
        query=query,
        layer=layer,
        head=head,
        bridge=bridge,
        said=said,
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
    """Connects the widgets.

    finished: state with the last finished run; run_events: what writes it. chosen: see wire_job.
    """

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
        said: dict[Any, Any] = {}
        for _, what in picks:
            view.selection, label = after_pick(run, view.selection, what)
            said |= {panel.said: spoken(label)} if label else {}
        updates = draw(run, view, attended)
        return updates | said if isinstance(updates, dict) and panel.selection in updates else updates

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
    panel.bridge.select(take_picks, [panel.bridge, *read], [panel.said, *shown], **newest)
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
    """The selection that the widgets show; gradio has checked them against their choices."""
    return replace(
        selection,
        method=method,
        query=Query.parse(query) or selection.query,
        layer=None if layer == MEAN else int(layer),
        head=None if head == MEAN else int(head),
    )
