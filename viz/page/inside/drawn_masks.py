"""Tab "Masks": which tokens may attend to which under each method."""

from pine_engine.methods.table import METHODS
from viz.drawing.text import join_words
from viz.figures.masks import plot_masks
from viz.page.answers.answering import FinishedRun
from viz.page.common.failures import notice
from viz.page.inside.drawn import TabContent
from viz.page.inside.reading import plan_of, token_of
from viz.page.inside.selection import Selection

_SCALED = {"documents": "documents", "documents_and_prefix": "documents and prefix"}


def draw_masks(run: FinishedRun, selection: Selection) -> TabContent:
    """Draw the prompt token by token, with the methods of the tutorial, run or not: masks need no model."""
    shown = [name for name, row in METHODS.items() if row.in_tutorial or name in run.result.traces]
    token = token_of(run, selection.query)
    figure = plot_masks(
        [plan_of(run, name) for name in shown],
        query=token if token < run.result.layout.num_tokens else None,
        order=run.order,
    )
    return TabContent("".join(map(notice, _remarks(run, shown))), {"token-masks": figure})


def _remarks(run: FinishedRun, methods: list[str]) -> list[str]:
    """Name the methods that scale attention, and those that were not run."""
    remarks = [
        f"{METHODS[name].label} scales the attention of the suffix to {_SCALED[METHODS[name].key_weighting]} "
        f"by 1/{len(run.order)}."
        for name in methods
        if METHODS[name].key_weighting in _SCALED and len(run.order) > 1
    ]
    if not_run := [METHODS[name].label for name in methods if name not in run.result.traces]:
        remarks.append(f"Not run: {join_words(not_run)}. A mask needs no run.")
    return remarks
