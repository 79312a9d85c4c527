"""Tab "Positions": where the queries of a run see every document, in numbers, on a ruler and by head."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.attention.trace import Trace
from pine_engine.methods.plan import AttentionPlan
from pine_engine.methods.positions import position_matrix
from pine_engine.methods.table import METHODS
from viz.drawing.identity import DECODED, PREFIX, SUFFIX, Segment, document_segment
from viz.drawing.markup import empty_panel, render
from viz.drawing.picture import beside, pick, picture
from viz.drawing.tokens import Token, shorten, token_window
from viz.drawing.windows import window_moves
from viz.figures.head_orders import distinct_orders, order_numbers, order_strip
from viz.figures.importance import most_decisive
from viz.figures.positions import (
    View,
    capital,
    document_grid,
    grid_numbers,
    position_table,
    table_numbers,
    view_text,
)
from viz.figures.rulers import MethodView, method_numbers, method_rulers, position_ruler, ruler_numbers
from viz.page.answers.answering import FinishedRun
from viz.page.inside.reading import head_spreads, plan_of, ranked_trace, run_documents
from viz.page.inside.selection import Query, Selection

IntArray = NDArray[np.integer[Any]]

MOST_QUERIES, MOST_KEYS = 24, 40
"""Most tokens down and across in the table of tokens."""

_OVER = "This answer was over before that token. Choose another query or method."


@dataclass(frozen=True)
class Place:
    """The layer and head whose positions are drawn. is_chosen: False if it stands for a mean."""

    layer: int
    head: int
    is_chosen: bool = True


def draw_positions(run: FinishedRun, selection: Selection) -> str:
    """HTML: the grid of documents beside the ruler of one query, all methods, all heads, and the tokens."""
    place = shown_place(run, selection)
    return render(
        "positions_tab.html",
        parts=[
            beside(
                _grid_picture(run, selection, place),
                _ruler_picture(run, selection, place),
                columns=len(run.order),
            ),
            _methods_picture(run, selection, place),
            _heads_picture(run, selection, place),
            render(
                "folded.html",
                name="position-tokens",
                label="Show single tokens",
                body=_tokens_picture(run, selection, place),
                is_open=selection.window is not None,
            ),
        ],
    )


# What is drawn -----------------------------------------------------------------------------------------


def shown_place(run: FinishedRun, selection: Selection) -> Place:
    """The selected layer and head; where a mean is selected, the most decisive of them, for all methods."""
    if selection.layer is not None and selection.head is not None:
        return Place(selection.layer, selection.head)
    trace = ranked_trace(run, selection.method)
    if trace is None:
        return Place(selection.layer or 0, selection.head or 0, is_chosen=False)
    spreads = head_spreads(trace)
    if selection.layer is not None:
        spreads = spreads[selection.layer : selection.layer + 1]
    if selection.head is not None:
        spreads = spreads[:, selection.head : selection.head + 1]
    layer, head = most_decisive(spreads)
    # What was selected has been cut down to one, so its index there is 0.
    return Place(layer + (selection.layer or 0), head + (selection.head or 0), is_chosen=False)


def shown_queries(run: FinishedRun, selection: Selection) -> list[Query]:
    """The rows of the grid: each document's last token, the question's, and the selected query."""
    documents = [Query("document", slot) for slot in range(len(run.order))]
    suffix = {run.result.layout.suffix_length - 1}
    if selection.query.kind == "suffix":
        suffix.add(selection.query.index)
    return documents + [Query("suffix", index) for index in sorted(suffix)]


def view_of(run: FinishedRun, plan: AttentionPlan, query: Query, place: Place) -> View | None:
    """What a query sees under the plan of a method; None if the answer was over before that token."""
    method, layout = plan.method.name, run.result.layout
    trace = run.result.traces[method]
    starts = starts_of(trace, query)
    if starts is None:
        return None
    documents = run_documents(run)
    if query.kind == "document":
        segment = documents[query.index]
        name = f"the last token of {segment.name}"
        label = shorten(run.titles[query.index], 18) or "last token"
        importance = trace.document_importance
        position = int(plan.query_starts[query.index] + layout.lengths[query.index]) - 1
    else:
        token = token_at(run, method, layout.documents_end + query.index)
        segment, name, label = token.segment, token.name, f"\u201c{token.label}\u201d"
        importance = trace.suffix_importance
        position = plan.suffix_start + query.index
    return View(
        query=name,
        segment=segment,
        label=label,
        query_position=position,
        prefix_length=layout.prefix_length,
        documents=documents,
        lengths=layout.lengths,
        starts=_at(starts, place),
        importance=None if importance is None else _at(importance[:, :, query.index], place),
        own_document=query.index if query.kind == "document" else None,
        selects=str(query),
    )


def starts_of(trace: Trace, query: Query) -> IntArray | None:
    """Where each document starts as the query sees it, by layer and head, int64 (A, H, D); None if over."""
    starts = trace.document_starts if query.kind == "document" else trace.suffix_starts
    return starts[:, :, query.index].astype(np.int64) if query.index < starts.shape[2] else None


def token_at(run: FinishedRun, method: str, index: int) -> Token:
    """The token at a physical index, those of the method's answer counted on after the prompt."""
    layout = run.result.layout
    if index >= layout.num_tokens:
        offset = index - layout.num_tokens
        return Token(run.answer_tokens[method][offset], DECODED, offset)
    text = run.prompt_tokens[index]
    if index < layout.prefix_length:
        return Token(text, PREFIX, index)
    if index >= layout.documents_end:
        return Token(text, SUFFIX, index - layout.documents_end)
    slot = int(_documents_at(run, index))
    return Token(text, document_segment(run.order[slot], slot), index - int(layout.document_starts[slot]))


def _at(values: NDArray[Any], place: Place) -> NDArray[Any]:
    """What an array by layer and head, which has one of each where they are all alike, has at the place."""
    layers, heads = values.shape[:2]
    at_place: NDArray[Any] = values[min(place.layer, layers - 1), min(place.head, heads - 1)]
    return at_place


def _documents_at(run: FinishedRun, index: int) -> int:
    return int(np.searchsorted(run.result.layout.document_starts, index, side="right")) - 1


def _physical(run: FinishedRun, query: Query) -> int:
    """Index of the query's token in the prompt and the answer after it."""
    layout = run.result.layout
    if query.kind == "suffix":
        return layout.documents_end + query.index
    return int(layout.document_starts[query.index] + layout.lengths[query.index]) - 1


def _query_at(run: FinishedRun, index: int) -> Query | None:
    """The query that stands for a token: its document's, or itself; None for the prefix."""
    layout = run.result.layout
    if index >= layout.documents_end:
        return Query("suffix", index - layout.documents_end)
    return Query("document", _documents_at(run, index)) if index >= layout.prefix_length else None


# In words ----------------------------------------------------------------------------------------------


def _is_ranked(trace: Trace) -> bool:
    return trace.suffix_importance is not None


def _where(run: FinishedRun, method: str, place: Place) -> str:
    """Which layer and head, and why that one."""
    if not _is_ranked(run.result.traces[method]):
        return "the same in every layer and head"
    words = f"layer {place.layer}, head {place.head}, {run.dtype}"
    return (
        words if place.is_chosen else f"{words}; positions have no mean, so the most decisive head is shown"
    )


# The pictures ------------------------------------------------------------------------------------------


def _grid_picture(run: FinishedRun, selection: Selection, place: Place) -> str:
    method = selection.method
    plan = plan_of(run, method)
    seen = [view_of(run, plan, query, place) for query in shown_queries(run, selection)]
    views = [view for view in seen if view is not None]
    label = METHODS[method].label
    prefix = run.result.layout.prefix_length
    alike = f"; the prefix is at 0\u2013{prefix - 1} for all of them" if prefix else ""
    return picture(
        document_grid(
            views, label=f"{label}: positions of each document by query", selected=str(selection.query)
        ),
        name="position-grid",
        title=f"{label}: the positions each document takes, by query",
        caption=f"First and last position, in tokens, of every document as seen from each document\u2019s "
        f"last token and from the question ({_where(run, method, place)}){alike}.",
        numbers=grid_numbers(views),
        readout="Point at a cell to read it; click a row to see the documents from there.",
    )


def _ruler_picture(run: FinishedRun, selection: Selection, place: Place) -> str:
    method = selection.method
    view = view_of(run, plan_of(run, method), selection.query, place)
    if view is None:
        return empty_panel(_OVER)
    where = _where(run, method, place)
    return picture(
        position_ruler(view),
        name="position-ruler",
        title=f"{METHODS[method].label}: what {view.query} sees",
        caption=f"{capital(where)}. {view_text(view)}",
        numbers=ruler_numbers(view),
        readout="Point at a document to read its positions.",
    )


def _methods_picture(run: FinishedRun, selection: Selection, place: Place) -> str:
    rows = [
        MethodView(METHODS[method].label, view_of(run, plan_of(run, method), selection.query, place), method)
        for method in run.result.traces
    ]
    names = [row.view.query for row in rows if row.view is not None]
    if not names:
        return empty_panel(_OVER)
    ranked = [method for method in run.result.traces if _is_ranked(run.result.traces[method])]
    note = f" Methods that rank are shown at {_where(run, ranked[0], place)}." if ranked else ""
    return picture(
        method_rulers(rows, chosen=selection.method),
        name="position-methods",
        title=f"Every method: where {_common_name(names)} sees the documents",
        caption="The documents on one position axis, in tokens, a row per method; documents stacked above "
        f"each other share positions.{note}",
        numbers=method_numbers(rows),
        readout="Point at a document to read its positions; click a row to choose that method.",
    )


def _common_name(names: Iterable[str]) -> str:
    """The query's name; methods may have written different words there."""
    distinct = list(dict.fromkeys(names))
    return distinct[0] if len(distinct) == 1 else "the same answer token"


def _heads_picture(run: FinishedRun, selection: Selection, place: Place) -> str:
    trace = run.result.traces[selection.method]
    label = METHODS[selection.method].label
    if not _is_ranked(trace):
        ranked = ranked_trace(run)
        other = f" Choose {METHODS[ranked.method].label} to see how its heads differ." if ranked else ""
        return empty_panel(f"{label} places the documents alike in every layer and head.{other}")
    starts = starts_of(trace, selection.query)
    view = view_of(run, plan_of(run, selection.method), selection.query, place)
    if starts is None or view is None:
        return empty_panel(_OVER)
    fewest, most = (int(bound(distinct_orders(starts))) for bound in (np.min, np.max))
    orders = "1 order" if most == 1 else f"{most} orders" if fewest == most else f"{fewest} to {most} orders"
    return picture(
        order_strip(starts, view.documents, layer=place.layer, head=place.head),
        name="head-orders",
        title=f"{label}: how many orders the heads of each layer use",
        caption=f"For {view.query}, {run.dtype}: the {starts.shape[1]} heads of a layer place the "
        f"{starts.shape[2]} documents in {orders}; below, the heads of layer {place.layer} by order, the "
        "nearest document first.",
        numbers=order_numbers(starts, view.documents),
        readout="Point at a layer or a head to read it; click to choose it.",
    )


def _tokens_picture(run: FinishedRun, selection: Selection, place: Place) -> str:
    method, trace = selection.method, run.result.traces[selection.method]
    center = _physical(run, selection.query)
    total = run.result.layout.documents_end + trace.suffix_starts.shape[2]
    if center >= total:
        return empty_panel(_OVER)
    rows = token_window(total, MOST_QUERIES, center)
    # A window that was chosen begins with its first key, if it can.
    middle = center if selection.window is None else selection.window + MOST_KEYS // 2
    columns = token_window(total, MOST_KEYS, middle)
    queries, keys = np.arange(total)[rows], np.arange(total)[columns]
    plan = plan_of(run, method)
    positions = position_matrix(
        plan, _at(trace.document_starts, place), _at(trace.suffix_starts, place), queries, keys
    )
    places = plan.query_positions(total - run.result.layout.num_tokens)[rows]
    query_tokens = [token_at(run, method, index) for index in queries.tolist()]
    key_tokens = [token_at(run, method, index) for index in keys.tolist()]
    selects = [_query_at(run, index) for index in queries.tolist()]
    label = METHODS[method].label
    table = position_table(
        positions,
        places,
        query_tokens,
        key_tokens,
        label=f"{label}: the position each query token gives each key token.",
        picks=["" if query is None else pick(query=str(query)) for query in selects],
        selected=center - rows.start,
    )
    return picture(
        window_moves(_parts(run), columns, total, follows=selection.window is None) + table,
        name="position-tokens",
        title=f"{label}: the position each query token gives each key token",
        caption=f"{capital(_where(run, method, place))}. {_cut(rows, columns, total)} Hatched is masked.",
        numbers=table_numbers(positions, places, query_tokens, key_tokens),
        readout="Point at a cell to read it; click a row to select that query.",
    )


def _parts(run: FinishedRun) -> list[tuple[Segment, int]]:
    """Every part of the prompt with the index of its first token."""
    layout = run.result.layout
    prefix = [(PREFIX, 0)] if layout.prefix_length else []
    documents = zip(run_documents(run), layout.document_starts.tolist(), strict=True)
    return [*prefix, *documents, (SUFFIX, layout.documents_end)]


def _cut(rows: slice, columns: slice, total: int) -> str:
    """What of so many tokens is drawn."""
    if rows.stop - rows.start == columns.stop - columns.start == total:
        return f"All {total} tokens are shown."
    return (
        f"Shown are query tokens {rows.start + 1:,}\u2013{rows.stop:,} and key tokens "
        f"{columns.start + 1:,}\u2013{columns.stop:,} of {total:,}; the others are left out."
    )
