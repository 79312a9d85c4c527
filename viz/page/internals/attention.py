"""Token-level attention of vanilla and the selected method in one head."""

import pine_engine as pine
import viz
from viz.drawing.markup import empty_panel
from viz.page.answers.run import Run
from viz.page.common.failures import notice
from viz.page.internals.attention_job import AttentionView, attention_request, recorded_attention
from viz.page.internals.content import NO_ATTENTION, TabContent, field_switch
from viz.page.queries import token_of
from viz.page.selection import Selection
from viz.page.traced_run import has_attention

NOT_COMPUTED = (
    "Click “Compute attention” to compare token-level attention of vanilla and the selected method."
)


def draw_attention(run: Run, selection: Selection, attention: AttentionView | None) -> TabContent:
    """Draw the last result if it belongs to this run, else the weights recorded with the run."""
    request = attention_request(run, selection)
    is_of_run = (
        attention and attention.request.layout == request.layout and attention.request.model == run.model
    )
    if not is_of_run:
        attention = recorded_attention(run)
    if attention is None:
        return TabContent(empty_panel(NOT_COMPUTED if has_attention(run) else NO_ATTENTION))
    shown = attention.request
    token = token_of(run, selection.query)
    figure = viz.plot_attention(
        {method: weights.astype("float32") for method, weights in attention.weights.items()},
        request.layout,
        with_sink=selection.with_sink,
        query=token if token < request.layout.num_tokens else None,
        order=run.order,
        labels={method: pine.METHODS[method].label for method in attention.weights},
    )
    figure.update_layout(title_text=f"Token-level attention, layer {shown.layer}, head {shown.head}")
    html = field_switch(
        "First token (attention sink)", "with_sink", {False: "hidden", True: "shown"}, selection.with_sink
    )
    if shown != request:
        label = pine.METHODS[request.methods[-1]].label
        html += notice(
            f"Selected: {label}, layer {request.layer}, head {request.head}. Click “Compute attention”."
        )
    return TabContent(html, {"attention": figure})
