"""The paper's running example: eight tokens, the methods of the tutorial, no model.

One system token, three documents of two tokens, one answer token. Rankings as in the paper (specification
6.1). Positions start at 0.
"""

from functools import cache

import numpy as np

import pine_engine as pine
import viz
from pine_engine.methods.plan import starts_from_ranking
from pine_engine.methods.table import TUTORIAL_METHODS
from viz.cards.tutorial import CONTENT, figure_html
from viz.drawing.identity import document_letter
from viz.drawing.markup import render

LAYOUT = pine.TokenLayout(prefix=(0,), documents=((1, 2), (3, 4), (5, 6)), suffix=(7,))

# Documents by importance, the most important first. For a document the first is always itself.
DOCUMENT_RANKINGS = np.array(((0, 1, 2), (1, 2, 0), (2, 0, 1)))
DECODED_RANKING = np.array((1, 2, 0))


def example_trace(method: "pine.Method") -> "pine.Trace":
    """Return the positions of the documents for each document and the decoded token."""
    plan = pine.build_plan(method, LAYOUT)
    starts, decoded_starts = plan.document_starts, plan.suffix_document_starts
    if starts is None or decoded_starts is None:
        starts = starts_from_ranking(DOCUMENT_RANKINGS, LAYOUT.lengths, LAYOUT.documents_end)
        decoded_starts = starts_from_ranking(DECODED_RANKING, LAYOUT.lengths, LAYOUT.documents_end)
    starts = np.where(plan.visible, starts, -1)
    return pine.Trace(
        method.name,
        LAYOUT,
        document_starts=starts[None, None].astype(np.int32),
        suffix_starts=decoded_starts[None, None, None].astype(np.int32),
    )


@cache
def running_example_html() -> str:
    """Render the masks, and the positions for each document and the decoded token under each method."""
    traces = [example_trace(method) for method in TUTORIAL_METHODS]
    labels = {method.name: method.label for method in TUTORIAL_METHODS}
    figures = {}
    for slot in [*range(LAYOUT.num_documents), None]:
        name = "the decoded token" if slot is None else f"document {document_letter(slot)}"
        figure = viz.plot_method_positions(traces, document=slot, layer=0, head=0, labels=labels)
        figures[name] = figure.update_layout(title_text=f"Document positions for {name}")
    masks = viz.plot_masks([pine.build_plan(method, LAYOUT) for method in TUTORIAL_METHODS])
    return render(
        "running_example.html",
        text=CONTENT["example"],
        masks=figure_html({"": masks}),
        positions=figure_html(figures, label="Query"),
    )
