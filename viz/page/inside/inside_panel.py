"""Inside the last run: the selection that all pictures share, and a tab for each picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
from markupsafe import Markup

from pine_engine.methods.table import METHODS
from viz.cards.glossary import term
from viz.drawing.markup import empty_panel
from viz.page.answers.answering import FinishedRun
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.inside.drawn_change import draw_change
from viz.page.inside.drawn_importance import draw_importance
from viz.page.inside.drawn_masks import draw_masks
from viz.page.inside.drawn_positions import draw_positions
from viz.page.inside.reading import (
    bounds_of,
    first_selection,
    layers_and_heads,
    query_choices,
    summary_html,
    turned,
)
from viz.page.inside.selection import Query, Selection

NO_RUN = (
    "Here will be four pictures of the last finished run: who reads whom, at which positions, what is found "
    "important, and what changed between two answers."
)

TABS = (
    ("masks", "Masks"),
    ("positions", "Positions"),
    ("importance", "Importance"),
    ("change", "What changed"),
)
"""Name and label of each picture; `DRAWING` says who draws it."""

MEAN = "mean"
"""Choice of layer or head that stands for all of them."""

BRIDGE = "window.pinePick = (what) => trigger('select', what);"
"""What assets/pictures.js calls with a pick; it reaches the server as the event data of `select`."""


DRAWING: dict[str, Callable[[FinishedRun, Selection], str]] = {
    "masks": draw_masks,
    "positions": draw_positions,
    "importance": draw_importance,
    "change": draw_change,
}
"""Who draws the picture of each name."""


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

    said: gr.HTML
    """Never seen; tells a screen reader which query a key has chosen."""

    tabs: gr.Tabs
    pictures: dict[str, gr.HTML]
    """By tab."""

    selection: gr.State
    """None before a run."""

    wanted: gr.State
    """Picks for the next run, from a session that was opened."""

    tab: gr.State
    """Name of the tab that is shown."""

    @property
    def controls(self) -> list[Any]:
        """The widgets that choose what is drawn, in the order of `_chosen`."""
        return [self.method, self.query, self.layer, self.head]


def spoken(label: str) -> str:
    """HTML that a screen reader says once it has changed: the query that is shown."""
    return str(Markup('<p role="status" class="pine-sr">{}</p>').format(label and f"Query: {label}"))


def called(name: str) -> Markup:
    """HTML: a word of the glossary in parentheses, which stay with it where a line ends."""
    return Markup('<span class="page-together">({})</span>').format(term(name))


def build_inside() -> InsidePanel:
    """Makes the widgets, empty."""
    pictures = {}
    with gr.Column(elem_id="inside-section", elem_classes="page-section"):
        gr.HTML(
            f"<h2>Look inside</h2><p>Why the answers differ: who may read whom {called('mask')}, where every "
            f"{term('query')} sees every document {called('position')}, and which documents it finds "
            f"important {called('importance')}. Click in a picture to select there, here and in all others; "
            "Escape goes back.</p>"
        )
        bridge = gr.HTML("", elem_id="pick-bridge", js_on_load=BRIDGE)
        said = gr.HTML(spoken(""), elem_id="query-said")
        summary = gr.HTML(empty_panel(NO_RUN, press="run", label="Run"), elem_id="inside-summary")
        with gr.Column(visible=False, elem_id="inside-pictures") as body:
            with gr.Row(elem_classes="page-row page-selection"):
                method = gr.Dropdown([], label="Method", elem_id="selected-method", min_width=140)
                query = gr.Dropdown([], label="Query: whose view", elem_id="query", min_width=200, scale=2)
                layer = gr.Dropdown([], label="Layer", elem_id="layer", min_width=130)
                head = gr.Dropdown([], label="Head", elem_id="head", min_width=130)
            with gr.Tabs(elem_id="inside-tabs", selected=TABS[0][0], overflow_behavior="wrap") as tabs:
                for name, label in TABS:
                    with gr.Tab(label, id=name):
                        pictures[name] = gr.HTML("", elem_id=name)
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
        selection=gr.State(None),
        wanted=gr.State({}),
        tab=gr.State(TABS[0][0]),
    )


def wire_inside(panel: InsidePanel, finished: gr.State, run_events: Sequence[Any]) -> None:
    """Connects the widgets. finished: state with the last finished run; run_events: what writes it."""
    pictures = list(panel.pictures.values())

    def show_run(run: FinishedRun | None, wanted: dict[str, Any]) -> Any:
        if run is None:
            return gr.skip()
        first = first_selection(run).picked(wanted, bounds_of(run))
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
            **dict.fromkeys(pictures, ""),
        }

    def draw_tab(run: FinishedRun | None, selection: Selection | None, tab: str) -> Any:
        if run is None or selection is None:
            return gr.skip()
        return {panel.pictures[tab]: DRAWING[tab](run, selection)}

    # Drawn once the old pictures are away: a tab that was opened in between would be emptied and stay so.
    for event in run_events:
        event.then(
            show_run,
            [finished, panel.wanted],
            [panel.summary, panel.body, panel.selection, panel.wanted, *panel.controls, *pictures],
            **PRIVATE_EVENT,
        ).then(draw_tab, [finished, panel.selection, panel.tab], pictures, **PRIVATE_EVENT)

    def show(run: FinishedRun, selection: Selection, tab: str) -> dict[Any, Any]:
        return {
            panel.selection: selection,
            panel.method: selection.method,
            panel.query: str(selection.query),
            panel.layer: _shown(selection.layer),
            panel.head: _shown(selection.head),
            panel.pictures[tab]: DRAWING[tab](run, selection),
        }

    # gradio reads the hints of functions that take an event, so these name no type that is not imported.
    def take_pick(event: gr.EventData, run: Any, selection: Selection | None, tab: str) -> Any:
        if run is None or selection is None:
            return gr.skip()
        what = event._data if isinstance(event._data, dict) else {}
        if what.get("clear"):
            return show(run, first_selection(run), tab)
        step = what.get("turn")
        if isinstance(step, int) and abs(step) == 1:
            label, query = turned(run, selection.query, step)
            return show(run, replace(selection, query=query), tab) | {panel.said: spoken(label)}
        return show(run, selection.picked(what, bounds_of(run)), tab)

    def take_controls(run: FinishedRun | None, selection: Selection | None, tab: str, *values: Any) -> Any:
        if run is None or selection is None or None in values:
            return gr.skip()
        return show(run, _chosen(selection, *values), tab)

    def open_tab(event: gr.EventData, run: Any, selection: Selection | None) -> Any:
        what = event._data if isinstance(event._data, dict) else {}
        tab = next((name for name, label in TABS if label == what.get("value")), None)
        if tab is None:
            return gr.skip()
        if run is None or selection is None:
            return {panel.tab: tab}
        return {panel.tab: tab, panel.pictures[tab]: DRAWING[tab](run, selection)}

    shown = [panel.selection, *panel.controls, *pictures]
    newest = {"trigger_mode": "always_last", **PRIVATE_EVENT}
    panel.bridge.select(take_pick, [finished, panel.selection, panel.tab], [panel.said, *shown], **newest)
    gr.on(
        [widget.input for widget in panel.controls],
        take_controls,
        [finished, panel.selection, panel.tab, *panel.controls],
        shown,
        **newest,
    )
    panel.tabs.select(open_tab, [finished, panel.selection], [panel.tab, *pictures], **PRIVATE_EVENT)


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
