"""Inside the last run: the widgets that choose a query, a layer and a head, and the pictures they draw."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gradio as gr
import plotly.graph_objects as go

from pine_engine.methods import METHODS
from viz.importance import empty_panel
from viz.page.failures import notice
from viz.page.plots import plot_value
from viz.page.running import PRIVATE_EVENT

if TYPE_CHECKING:  # importing these imports torch, which would keep the page waiting
    from viz.page.answering import FinishedRun
    from viz.page.inside import Selection

NO_RUN = "Press Run first. The pictures show the last finished run."


@dataclass(frozen=True)
class InsidePanel:
    """The widgets of the pictures."""

    summary: gr.HTML
    pictures: gr.Column
    query: gr.Dropdown
    layer: gr.Slider
    head: gr.Slider
    aggregation: gr.Radio
    normalisation: gr.Radio
    masks: gr.HTML
    token_method: gr.Dropdown
    draw_tokens: gr.Button
    token_table: gr.HTML
    token_plot: gr.Plot
    positions: gr.HTML
    importance: gr.HTML
    suffix_plot: gr.Plot
    suffix_caption: gr.HTML
    heads_plot: gr.Plot

    @property
    def selection(self) -> list[Any]:
        """The widgets that choose what is drawn, in the order of `_selection`."""
        return [self.query, self.layer, self.head, self.aggregation, self.normalisation]

    @property
    def selected_pictures(self) -> list[Any]:
        """The pictures that follow the selection."""
        return [self.positions, self.importance, self.suffix_plot, self.suffix_caption, self.heads_plot]

    @property
    def token_pictures(self) -> list[Any]:
        """The two forms of the token-level mask, of which one is shown."""
        return [self.token_table, self.token_plot]


def build_inside() -> InsidePanel:
    """Makes the widgets, empty."""
    with gr.Column(elem_id="inside-section", elem_classes="page-section"):
        gr.HTML(
            "<h2>Look inside</h2><p>Why the answers differ: who may read whom, where every query sees every "
            "document, and which documents it finds important.</p>"
        )
        summary = gr.HTML(empty_panel(NO_RUN), elem_id="inside-summary")
        with gr.Column(visible=False, elem_id="inside-pictures") as pictures:
            with gr.Row(elem_classes="page-row page-selection"):
                query = gr.Dropdown([], label="Query: whose view", elem_id="query", min_width=200, scale=2)
                layer = gr.Slider(0, 1, value=0, step=1, label="Layer", elem_id="layer", min_width=140)
                head = gr.Slider(0, 1, value=0, step=1, label="Head", elem_id="head", min_width=140)
            with gr.Tabs(elem_id="inside-tabs"):
                with gr.Tab("Masks", id="masks"):
                    masks = gr.HTML("", elem_id="masks")
                    with gr.Accordion("Show single tokens", open=False, elem_id="token-mask-panel"):
                        with gr.Row(elem_classes="page-row"):
                            token_method = gr.Dropdown(
                                [(row.label, row.name) for row in METHODS.values()],
                                value="pine",
                                label="Method",
                                elem_id="token-method",
                            )
                            draw_tokens = gr.Button("Draw the token mask", size="sm", elem_id="draw-tokens")
                        token_table = gr.HTML("", elem_id="token-mask-table")
                        token_plot = gr.Plot(
                            visible=False,
                            label="Token mask",
                            elem_id="token-mask-plot",
                            elem_classes="pine-plot",
                        )
                with gr.Tab("Positions", id="positions"):
                    positions = gr.HTML("", elem_id="positions")
                with gr.Tab("Importance", id="importance"):
                    with gr.Row(elem_classes="page-row"):
                        aggregation = gr.Radio(
                            [
                                ("this layer and head", "head"),
                                ("mean over heads", "layer"),
                                ("mean over all", "all"),
                            ],
                            value="head",
                            label="Importance of",
                            elem_id="aggregation",
                        )
                        normalisation = gr.Radio(
                            [("as computed", "raw"), ("share of the row", "share")],
                            value="share",
                            label="Values",
                            elem_id="normalisation",
                        )
                    gr.HTML("<h4>Document by document</h4>")
                    importance = gr.HTML("", elem_id="importance")
                    gr.HTML("<h4>Tokens of question and answer</h4>")
                    suffix_plot = gr.Plot(
                        show_label=False, elem_id="suffix-importance", elem_classes="pine-plot"
                    )
                    suffix_caption = gr.HTML("", elem_id="suffix-caption", elem_classes="page-caption")
                    with gr.Accordion("Which heads decide", open=False):
                        heads_plot = gr.Plot(show_label=False, elem_id="heads", elem_classes="pine-plot")
    return InsidePanel(
        summary=summary,
        pictures=pictures,
        query=query,
        layer=layer,
        head=head,
        aggregation=aggregation,
        normalisation=normalisation,
        masks=masks,
        token_method=token_method,
        draw_tokens=draw_tokens,
        token_table=token_table,
        token_plot=token_plot,
        positions=positions,
        importance=importance,
        suffix_plot=suffix_plot,
        suffix_caption=suffix_caption,
        heads_plot=heads_plot,
    )


def wire_inside(panel: InsidePanel, finished: gr.State, run_event: Any) -> None:
    """Connects the widgets. finished: state with the last finished run; run_event: what writes it."""

    def draw_run(run: "FinishedRun | None") -> Any:
        if run is None:
            return gr.skip()
        from viz.page import inside  # imports torch, which has made the run

        first = replace(inside.first_selection(run), normalisation="share")
        layers, heads = inside.layers_and_heads(run)
        return {
            panel.summary: inside.summary_html(run),
            panel.pictures: gr.update(visible=True),
            panel.query: gr.update(choices=inside.query_choices(run), value=str(first.query)),
            panel.layer: gr.update(maximum=max(layers - 1, 1), value=first.layer, interactive=layers > 1),
            panel.head: gr.update(maximum=max(heads - 1, 1), value=first.head, interactive=heads > 1),
            panel.aggregation: first.aggregation,
            panel.normalisation: first.normalisation,
            panel.masks: inside.masks_html(run),
            panel.token_table: "",
            panel.token_plot: gr.update(visible=False, value=None),
        } | _draw_selection(panel, run, first)

    run_event.then(
        draw_run,
        finished,
        [
            panel.summary,
            panel.pictures,
            panel.masks,
            *panel.selection,
            *panel.selected_pictures,
            *panel.token_pictures,
        ],
        **PRIVATE_EVENT,
    )

    def draw_selection(run: "FinishedRun | None", *chosen: Any) -> Any:
        return gr.skip() if run is None else _draw_selection(panel, run, _selection(run, *chosen))

    gr.on(
        [
            panel.query.input,
            panel.layer.input,
            panel.head.input,
            panel.aggregation.input,
            panel.normalisation.input,
        ],
        draw_selection,
        [finished, *panel.selection],
        panel.selected_pictures,
        trigger_mode="always_last",
        concurrency_limit=4,
        **PRIVATE_EVENT,
    )

    def draw_tokens(run: "FinishedRun | None", method: str, *chosen: Any) -> dict[Any, Any]:
        if run is None:
            return {panel.token_table: notice(NO_RUN)}
        from viz.page import inside  # imports torch, which has made the run

        if method not in run.result.traces:
            return {panel.token_table: notice("This method was not part of the last run.")}
        drawn = inside.token_mask(run, method, _selection(run, *chosen).query)
        if isinstance(drawn, go.Figure):
            plot = gr.update(visible=True, value=plot_value(drawn, f"mask-{method}"))
            return {panel.token_table: "", panel.token_plot: plot}
        return {panel.token_table: drawn, panel.token_plot: gr.update(visible=False)}

    panel.draw_tokens.click(
        draw_tokens,
        [finished, panel.token_method, *panel.selection],
        panel.token_pictures,
        **PRIVATE_EVENT,
    )


def _selection(
    run: "FinishedRun", query: str | None, layer: float, head: float, aggregation: Any, normalisation: Any
) -> "Selection":
    from viz.page import inside  # imports torch, which has made the run

    return inside.Selection(inside.Query.parse(query, run), int(layer), int(head), aggregation, normalisation)


def _draw_selection(panel: InsidePanel, run: "FinishedRun", selection: "Selection") -> dict[Any, Any]:
    from viz.page import inside  # imports torch, which has made the run

    suffix_figure, suffix_caption = inside.importance_plot(run, selection)
    return {
        panel.positions: inside.positions_html(run, selection),
        panel.importance: inside.importance_html(run, selection),
        panel.suffix_plot: plot_value(suffix_figure, "importance-tokens"),
        panel.suffix_caption: suffix_caption,
        panel.heads_plot: plot_value(inside.heads_plot(run, selection), "importance-heads"),
    }
