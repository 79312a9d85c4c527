"""Attention masks of the prompt, token by token."""

import pine_engine as pine
import viz
from pine_engine.methods.table import TUTORIAL_METHODS
from viz.page.answers.run import Run
from viz.page.common.failures import notice
from viz.page.internals.content import TabContent
from viz.page.queries import token_of
from viz.page.selection import Selection
from viz.page.traced_run import has_attention, plan_of

SCALED = {"documents": "documents", "documents_and_prefix": "documents and prefix"}


def draw_masks(run: Run, selection: Selection) -> TabContent:
    """Draw the prompt token by token, with the methods of the tutorial, run or not: masks need no model.

    Those that do not fit a model which runs as it is are left out.
    """
    added = [row.name for row in TUTORIAL_METHODS] if has_attention(run) else ["vanilla"]
    drawn = (*added, *run.result.traces)
    shown = [row for row in pine.METHODS.values() if row.name in drawn and row.has_plan]
    token = token_of(run, selection.query)
    figure = viz.plot_masks(
        [plan_of(run, row.name) for row in shown],
        query=token if token < run.result.layout.num_tokens else None,
        order=run.order,
    )
    count = len(run.order)
    selected, html = pine.METHODS[selection.method], ""
    if selected.key_weighting in SCALED and count > 1:
        scaled = SCALED[selected.key_weighting]
        html = notice(f"{selected.label}: question attention to {scaled} is scaled by 1/{count}.")
    elif not selected.has_plan:
        html = notice(
            f"{selected.label} has no mask of its own: it reorders the documents, prefills each of them "
            "alone, or recomputes tokens."
        )
    return TabContent(html, {"token-masks": figure})
