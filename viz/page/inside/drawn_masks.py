"""Tab "Masks": who may read whom under each method, by document and token by token."""

import numpy as np

from pine_engine.methods.table import METHODS, KeyWeighting
from viz.drawing.identity import Role, prompt_segments
from viz.drawing.picture import pick
from viz.drawing.tokens import token_window
from viz.figures.masks import SegmentMask, mask_picture, mask_states
from viz.figures.token_masks import TOKEN_LIMIT, TokenMask, token_mask_picture, token_states
from viz.page.answers.answering import FinishedRun
from viz.page.inside.reading import plan_of, prompt_tokens, query_of_step, suffix_tokens
from viz.page.inside.selection import Query, Selection

_SCALED: dict[KeyWeighting, tuple[Role, ...]] = {
    "nothing": (),
    "documents": ("document",),
    "documents_and_prefix": ("document", "prefix"),
}


def draw_masks(run: FinishedRun, selection: Selection) -> str:
    """HTML: one document-level mask per method, and under them single tokens of the chosen one."""
    # What is taught, run or not, so that every class sees the same: masks need no model.
    masks = {
        name: segment_mask(run, name)
        for name, row in METHODS.items()
        if row.is_taught or name in run.result.traces
    }
    cards = mask_picture(
        list(masks.values()),
        reference=masks["vanilla"],
        picks=_row_picks(run),
        selected=_row_of(run, selection.query),
    )
    tokens = token_mask_picture(
        token_mask(run, selection),
        follows=selection.window is None,
        is_open=selection.window is not None,
    )
    return cards + tokens


def segment_mask(run: FinishedRun, method: str) -> SegmentMask:
    """The document-level mask of any method for the run's prompt."""
    has_prefix = run.result.layout.prefix_length > 0
    count = len(run.order)
    scaled = _SCALED[METHODS[method].key_weighting]
    return SegmentMask(
        METHODS[method].label,
        prompt_segments(run.order, has_prefix=has_prefix),
        mask_states(plan_of(run, method).visible, has_prefix=has_prefix),
        scale=f"\u00d71/{count}" if scaled and count > 1 else "",
        scaled=scaled,
        note="" if method in run.result.traces else "not run",
    )


def token_mask(run: FinishedRun, selection: Selection) -> TokenMask:
    """The tokens around the selected query, and the keys of the window or around the query too."""
    method, layout = selection.method, run.result.layout
    tokens = prompt_tokens(run)[: layout.documents_end] + suffix_tokens(run, method)
    query = _token_of(run, selection.query, len(tokens))
    queries = token_window(len(tokens), TOKEN_LIMIT, query)
    keys = queries
    if selection.window is not None:
        keys = token_window(len(tokens), TOKEN_LIMIT, selection.window + TOKEN_LIMIT // 2)
    mask = segment_mask(run, method)
    lengths = [layout.prefix_length, *layout.lengths.tolist(), len(tokens) - layout.documents_end]
    segments = np.repeat(np.arange(len(mask.segments)), lengths[-len(mask.segments) :])
    return TokenMask(
        mask.method,
        tokens,
        queries,
        keys,
        token_states(mask.states, segments, queries, keys),
        [_token_pick(run, index) for index in range(queries.start, queries.stop)],
        query,
    )


def _row_picks(run: FinishedRun) -> list[str]:
    """What each row of a document-level mask selects; the prefix is no query."""
    queries = [Query("document", slot) for slot in range(len(run.order))] + [query_of_step(run, 0)]
    prefix = [""] if run.result.layout.prefix_length else []
    return prefix + [pick(query=str(query)) for query in queries]


def _row_of(run: FinishedRun, query: Query) -> int:
    """Row of a document-level mask that shows what this query may read."""
    first = int(run.result.layout.prefix_length > 0)
    return first + (query.index if query.kind == "document" else len(run.order))


def _token_of(run: FinishedRun, query: Query, count: int) -> int:
    """Index of the query's token among `count`; the last one for a token that the method never read."""
    layout = run.result.layout
    if query.kind == "document":
        return int(layout.document_starts[query.index] + layout.lengths[query.index]) - 1
    return min(layout.documents_end + query.index, count - 1)


def _token_pick(run: FinishedRun, token: int) -> str:
    """What a token's row selects: its own view, if it is the last token of a document or in the suffix."""
    layout = run.result.layout
    if token >= layout.documents_end:
        return pick(query=str(Query("suffix", token - layout.documents_end)))
    ends = (layout.document_starts + layout.lengths - 1).tolist()
    return pick(query=str(Query("document", ends.index(token)))) if token in ends else ""
