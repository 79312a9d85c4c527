"""Tab "Importance": which documents each layer, head, document and answer token finds important."""

from typing import Literal

from pine_engine.methods import METHODS
from pine_engine.trace import Trace
from viz.importance import empty_panel, importance_caption, importance_table, select_importance
from viz.page.answering import FinishedRun
from viz.page.reading import ranked_trace, run_documents
from viz.page.selection import Selection


def draw_importance(run: FinishedRun, selection: Selection) -> str:
    """HTML: how important each document finds each other one."""
    trace = ranked_trace(run, selection.method)
    if trace is None or trace.document_importance is None:
        return empty_panel("No method of this run ranks the documents; tick PINE and run again.")
    values = select_importance(trace.document_importance, selection.layer, selection.head)
    return importance_table(
        values,
        run_documents(run),
        caption=_importance_caption(run, trace, selection, "document"),
        normalisation=selection.normalisation,
        selected=selection.query.index if selection.query.kind == "document" else None,
    )


def _importance_caption(
    run: FinishedRun, trace: Trace, selection: Selection, rows: Literal["document", "token"]
) -> str:
    return importance_caption(
        method=METHODS[trace.method].label,
        layer=selection.layer,
        head=selection.head,
        normalisation=selection.normalisation,
        dtype=run.dtype,
        rows=rows,
    )
