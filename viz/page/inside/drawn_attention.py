"""Tab "Attention": who reads whom how much, token by token over the whole prompt."""

import numpy as np

from pine_engine.methods.table import METHODS
from viz.drawing.markup import empty_panel
from viz.drawing.picture import switch
from viz.figures.attention import plot_attention
from viz.page.answers.answering import FinishedRun
from viz.page.common.failures import notice
from viz.page.inside.attending import Attended, AttentionRequest
from viz.page.inside.drawn import TabContent
from viz.page.inside.drawn_positions import shown_place
from viz.page.inside.reading import token_of
from viz.page.inside.selection import Selection

NOT_COMPUTED = (
    "Here will be the attention of every token of the prompt on every other one, vanilla beside the chosen "
    "method."
)


def asked_attention(run: FinishedRun, selection: Selection) -> AttentionRequest:
    """Vanilla beside the chosen method, or beside PINE, in the chosen head; of a mean, see shown_place."""
    place = shown_place(run, selection)
    other = "pine" if selection.method == "vanilla" else selection.method
    return AttentionRequest(run.result.layout, run.model, ("vanilla", other), place.layer, place.head)


def draw_attention(run: FinishedRun, selection: Selection, attended: Attended | None) -> TabContent:
    """What was computed last, as far as it is of this run, or what the run brought along."""
    asked = asked_attention(run, selection)
    if attended is None or (attended.asked.layout, attended.asked.model) != (asked.layout, asked.model):
        attended = brought_along(run)
    if attended is None:
        return TabContent(empty_panel(NOT_COMPUTED))
    shown = attended.asked
    token = token_of(run, selection.query)
    figure = plot_attention(
        {method: weights.astype("float32") for method, weights in attended.weights.items()},
        asked.layout,
        with_sink=selection.with_sink,
        query=token if token < asked.layout.num_tokens else None,
        order=run.order,
        labels={method: METHODS[method].label for method in attended.weights},
    )
    figure.update_layout(title_text=f"Attention, token by token, layer {shown.layer}, head {shown.head}")
    sinks = [("left out", {"with_sink": False}), ("drawn", {"with_sink": True})]
    html = switch("First token, the sink", sinks, "drawn" if selection.with_sink else "left out")
    return TabContent(html + ("" if shown == asked else _other(asked)), {"attention": figure})


def brought_along(run: FinishedRun) -> Attended | None:
    """Weights that a run was recorded with; None for a run of one's own."""
    total = run.result.layout.num_tokens
    kept = {name: trace.token_weights[0] for name, trace in run.result.traces.items() if trace.token_weights}
    if not kept:
        return None
    of = next(iter(kept.values())).asked
    return Attended(
        AttentionRequest(run.result.layout, run.model, tuple(kept), of.layer, of.head),
        {name: one.weights[:, :total].astype(np.float16) for name, one in kept.items()},
    )


def _other(asked: AttentionRequest) -> str:
    """Says that what is chosen is not what is drawn."""
    label = METHODS[asked.methods[-1]].label
    return notice(f"Chosen are {label}, layer {asked.layer}, head {asked.head}: press Compute to draw them.")
