"""Tab "Positions": where the selected query sees every document."""

import numpy as np

from pine_engine.methods import METHODS
from viz.importance import empty_panel
from viz.page.answering import FinishedRun
from viz.page.reading import plan_of, run_documents, suffix_tokens
from viz.page.selection import Selection
from viz.positions import Ruler, position_ruler


def draw_positions(run: FinishedRun, selection: Selection) -> str:
    """HTML: for each method, the documents on the position axis as the selected query sees them."""
    cells = [_ruler_html(run, method, selection) for method in run.result.traces]
    return f'<div class="page-rulers">{"".join(cells)}</div>'


def ruler(run: FinishedRun, method: str, selection: Selection) -> Ruler | None:
    """What the selected query sees under one method; None if the answer was over before that token."""
    trace, plan, layout = run.result.traces[method], plan_of(run, method), run.result.layout
    query = selection.query
    num_layers, num_heads, num_rows = trace.suffix_starts.shape[:3]
    place = (min(selection.layer or 0, num_layers - 1), min(selection.head or 0, num_heads - 1), query.index)
    documents = run_documents(run)
    if query.kind == "document":
        length = int(layout.lengths[query.index])
        position = int(plan.query_starts[query.index]) + length - 1
        starts, importance = trace.document_starts, trace.document_importance
        name = f"the last token of document {documents[query.index].label}"
    elif query.index < num_rows:
        position = plan.suffix_start + query.index
        starts, importance = trace.suffix_starts, trace.suffix_importance
        name = suffix_tokens(run, method)[query.index].name
    else:
        return None
    return Ruler(
        query=name,
        query_position=position,
        prefix_length=layout.prefix_length,
        documents=documents,
        lengths=layout.lengths,
        starts=starts[place].astype(np.int64),
        importance=None if importance is None else importance[place],
        own_document=query.index if query.kind == "document" else None,
    )


def _ruler_html(run: FinishedRun, method: str, selection: Selection) -> str:
    seen = ruler(run, method, selection)
    row, trace = METHODS[method], run.result.traces[method]
    where = (
        "the same in every layer and head"
        if trace.suffix_starts.shape[:2] == (1, 1)
        else f"layer {selection.layer}, head {selection.head}, from {run.dtype} weights"
    )
    body = empty_panel("This answer was over before that token.") if seen is None else position_ruler(seen)
    heading = f'<h4>{row.label} <span class="pine-quiet">{where}</span></h4>'
    return f'<section class="page-panel">{heading}{body}</section>'
