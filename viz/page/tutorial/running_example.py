"""The running example of the paper: one system token, three documents of two tokens, one answer token."""

from functools import cache

import numpy as np

import pine_engine as pine
import viz
from pine_engine.methods.plan import starts_from_ranking
from pine_engine.methods.table import TUTORIAL_METHODS
from viz.cards import tutorial as cards
from viz.drawing.identity import document_letter
from viz.drawing.markup import render

EXAMPLE = pine.TokenLayout(prefix=(0,), documents=((1, 2), (3, 4), (5, 6)), suffix=(7,))

# Documents by importance, the most important first (specification 6.1); for a document, first itself.
DOCUMENT_RANKINGS = np.array(((0, 1, 2), (1, 2, 0), (2, 0, 1)))

DECODED_RANKING = np.array((1, 2, 0))


def example_trace(method: "pine.Method") -> "pine.Trace":
    """Return the positions of the documents for each document and the decoded token."""
    plan = pine.build_plan(method, EXAMPLE)
    starts, decoded_starts = plan.document_starts, plan.suffix_document_starts
    if starts is None or decoded_starts is None:
        starts = starts_from_ranking(DOCUMENT_RANKINGS, EXAMPLE.lengths, EXAMPLE.documents_end)
        decoded_starts = starts_from_ranking(DECODED_RANKING, EXAMPLE.lengths, EXAMPLE.documents_end)
    starts = np.where(plan.visible, starts, -1)
    return pine.Trace(
        method.name,
        EXAMPLE,
        document_starts=starts[None, None].astype(np.int32),
        suffix_starts=decoded_starts[None, None, None].astype(np.int32),
    )


@cache
def running_example_html() -> str:
    """Render the masks, and the positions for each document and the decoded token under each method."""
    traces = [example_trace(method) for method in TUTORIAL_METHODS]
    labels = {method.name: method.label for method in TUTORIAL_METHODS}
    figures = {}
    for slot in [*range(EXAMPLE.num_documents), None]:
        name = "the decoded token" if slot is None else f"document {document_letter(slot)}"
        figure = viz.plot_method_positions(traces, document=slot, layer=0, head=0, labels=labels)
        figures[name] = figure.update_layout(title_text=f"Document positions for {name}")
    masks = viz.plot_masks([pine.build_plan(method, EXAMPLE) for method in TUTORIAL_METHODS])
    return render(
        "running_example.html",
        text=cards.CONTENT["example"],
        masks=cards.figure_html({"": masks}),
        positions=cards.figure_html(figures, label="Query"),
    )
