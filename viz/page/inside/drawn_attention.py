"""Tab "Attention": token-level attention over the whole prompt."""

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


def attention_request(run: FinishedRun, selection: Selection) -> AttentionRequest:
    """Return vanilla and the selected method (or PINE) in the selected head; for a mean see shown_place."""
    place = shown_place(run, selection)
    other = "pine" if selection.method == "vanilla" else selection.method
    return AttentionRequest(run.result.layout, run.model, ("vanilla", other), place.layer, place.head)


def draw_attention(run: FinishedRun, selection: Selection, attended: Attended | None) -> TabContent:
    """Draw the last result if it belongs to this run, else the weights recorded with the run."""
    request = attention_request(run, selection)
    if attended is None or (attended.request.layout, attended.request.model) != (
        request.layout,
        request.model,
    ):
        attended = brought_along(run)
    if attended is None:
        return TabContent(empty_panel(NOT_COMPUTED))
    shown = attended.request
    token = token_of(run, selection.query)
    figure = plot_attention(
        {method: weights.astype("float32") for method, weights in attended.weights.items()},
        request.layout,
        with_sink=selection.with_sink,
        query=token if token < request.layout.num_tokens else None,
        order=run.order,
        labels={method: METHODS[method].label for method in attended.weights},
    )
    figure.update_layout(title_text=f"Attention, token by token, layer {shown.layer}, head {shown.head}")
    sinks = [("left out", {"with_sink": False}), ("drawn", {"with_sink": True})]
    html = switch("First token, the sink", sinks, "drawn" if selection.with_sink else "left out")
    return TabContent(html + ("" if shown == request else _selection_notice(request)), {"attention": figure})


def brought_along(run: FinishedRun) -> Attended | None:
    """Return the weights recorded with the run; None for a run of this session."""
    total = run.result.layout.num_tokens
    kept = {name: trace.token_weights[0] for name, trace in run.result.traces.items() if trace.token_weights}
    if not kept:
        return None
    of = next(iter(kept.values())).asked
    return Attended(
        AttentionRequest(run.result.layout, run.model, tuple(kept), of.layer, of.head),
        {name: one.weights[:, :total].astype(np.float16) for name, one in kept.items()},
    )


def _selection_notice(request: AttentionRequest) -> str:
    """Render the notice that the selection differs from the figure."""
    label = METHODS[request.methods[-1]].label
    return notice(
        f"Chosen are {label}, layer {request.layer}, head {request.head}: press Compute to draw them."
    )
