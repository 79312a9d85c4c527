"""Who may read whom: one small document-level mask per method, and token level on demand."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.identity import Segment
from viz.markup import render
from viz.plot_style import base_figure, color_bar, plotly_text
from viz.tokens import Token, segment_runs, token_window

MASKED = 0
ALLOWED = 1
CAUSAL = 2
"""States of a cell: may not read, may read all of it, reads it from left to right (itself)."""

TABLE_LIMIT = 40
"""Most tokens per side for an HTML table; more are drawn by plotly."""
FIGURE_LIMIT = 256
"""Most tokens per side that are drawn at all; more are cut to a window."""

_STATE_WORDS = {MASKED: "no \u2013 masked", ALLOWED: "yes", CAUSAL: "yes \u2013 itself, from left to right"}
_STATE_CLASSES = {MASKED: "pine-masked", ALLOWED: "pine-allowed", CAUSAL: "pine-causal"}


@dataclass(frozen=True)
class SegmentMask:
    """Which segment's tokens may read which segment's, for one method.

    method: label of the method. segments: R segments in input order.
    states: uint8 (R, R) of MASKED, ALLOWED, CAUSAL; query segments down, key segments across.
    scale: what suffix weights on documents are multiplied by, such as "×1/3"; "" for 1.
    """

    method: str
    segments: tuple[Segment, ...]
    states: NDArray[np.uint8]
    scale: str = ""


@dataclass(frozen=True)
class _Cell:
    css_class: str
    title: str
    word: str
    note: str = ""


def mask_states(visible: NDArray[np.bool_], *, has_prefix: bool = True) -> NDArray[np.uint8]:
    """Segment states of a prompt from its document mask.

    visible: bool (D, D), may tokens of document a read document b; the diagonal does not matter.
    Returns uint8 (R, R), R = D + 2 with a prefix and D + 1 without: every row reads the prefix, the
    suffix reads everything, nothing reads the suffix but itself, and each segment itself is CAUSAL.
    """
    count = len(visible)
    first = int(has_prefix)
    states = np.full((first + count + 1, first + count + 1), MASKED, dtype=np.uint8)
    states[first : first + count, first : first + count] = np.where(visible, ALLOWED, MASKED)
    states[:, :first] = ALLOWED
    states[-1, :] = ALLOWED
    np.fill_diagonal(states, CAUSAL)
    return states


def mask_sentence(mask: SegmentMask) -> str:
    """One sentence that says what the mask shows, worked out from its states."""
    documents = [i for i, segment in enumerate(mask.segments) if segment.role == "document"]
    states = mask.states[np.ix_(documents, documents)]
    reads = states[~np.eye(len(documents), dtype=bool)] != MASKED
    earlier = (states != MASKED)[np.tril_indices(len(documents), -1)]
    if len(documents) < 2:
        sentence = "There is one document; it reads itself from left to right."
    elif reads.all():
        sentence = "Every document reads all the others, in both directions."
    elif not reads.any():
        sentence = "No document reads another."
    elif earlier.all() and reads.sum() == len(earlier):
        sentence = "Each document reads only those before it in the input."
    else:
        sentence = f"{int(reads.sum())} of {len(reads)} pairs of documents may be read."
    if mask.scale:
        sentence += f" What the suffix takes from documents is weighted {mask.scale}."
    return sentence


def mask_cards(masks: Sequence[SegmentMask], *, reference: SegmentMask | None = None) -> str:
    """HTML: one card per method with its mask as a table, all on one scale, a sentence under each.

    reference: cells that differ from this mask (same segments) are outlined.
    """
    return render(
        "mask_cards.html",
        cards=[(mask, _segment_cells(mask, reference), mask_sentence(mask)) for mask in masks],
        reference=reference,
        size=max((len(mask.segments) for mask in masks), default=0),
    )


def _segment_cells(mask: SegmentMask, reference: SegmentMask | None) -> list[list[_Cell]]:
    """Cells of one card, rows of R."""
    assert reference is None or reference.states.shape == mask.states.shape
    rows = []
    for q, query in enumerate(mask.segments):
        row = []
        for k, key in enumerate(mask.segments):
            state = int(mask.states[q, k])
            word = _STATE_WORDS[state]
            css_class = _STATE_CLASSES[state]
            if reference is not None and reference.states[q, k] != state:
                css_class += " pine-differs"
                word += f" (differs from {reference.method})"
            is_scaled = bool(mask.scale) and query.role in ("suffix", "decoded") and key.role == "document"
            note = mask.scale if is_scaled and state != MASKED else ""
            if note:
                word += f", weight {note}"
            title = f"tokens of {query.label} may read {key.label}: {word}"
            row.append(_Cell(css_class, title, word, note))
        rows.append(row)
    return rows


def token_mask(
    allowed: NDArray[np.bool_],
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    method: str,
    center: int | None = None,
) -> str | go.Figure:
    """Token-level mask: an HTML table up to TABLE_LIMIT tokens per side, a plotly Figure above.

    allowed: bool (Q, K), True means "may attend". center: the query (and key) index to keep in
    sight when more than FIGURE_LIMIT tokens must be cut; the last query by default.
    """
    if fits_table(len(queries), len(keys)):
        return token_mask_table(allowed, queries, keys, method=method)
    return token_mask_figure(allowed, queries, keys, method=method, center=center)


def fits_table(num_queries: int, num_keys: int) -> bool:
    """True if token_mask returns HTML for so many tokens, False if it returns a Figure."""
    return max(num_queries, num_keys) <= TABLE_LIMIT


def token_mask_table(
    allowed: NDArray[np.bool_], queries: Sequence[Token], keys: Sequence[Token], *, method: str
) -> str:
    """HTML table of a token-level mask, up to TABLE_LIMIT tokens per side."""
    assert allowed.shape == (len(queries), len(keys)) and fits_table(*allowed.shape)
    cells = [
        [
            _Cell(
                _STATE_CLASSES[int(allowed[q, k])],
                f"query {query.name} may read key {key.name}: {_STATE_WORDS[int(allowed[q, k])]}",
                "yes" if allowed[q, k] else "masked",
            )
            for k, key in enumerate(keys)
        ]
        for q, query in enumerate(queries)
    ]
    return render(
        "token_mask.html",
        caption=token_mask_caption(len(queries), len(keys), method=method),
        queries=queries,
        keys=keys,
        query_runs=segment_runs(queries),
        key_runs=segment_runs(keys),
        cells=cells,
        selected=None,
    )


def token_mask_figure(
    allowed: NDArray[np.bool_],
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    method: str,
    center: int | None = None,
) -> go.Figure:
    """Heatmap of a token-level mask, at most FIGURE_LIMIT tokens per side around `center`.

    The trace is uint8, 1 where allowed and 0 where masked; masked is drawn blank.
    """
    assert allowed.shape == (len(queries), len(keys))
    rows, columns = _windows(len(queries), len(keys), center)
    cells = np.ascontiguousarray(allowed[rows, columns], dtype=np.uint8)
    shown_queries, shown_keys = queries[rows], keys[columns]
    heatmap = go.Heatmap(
        z=cells,
        x=[_axis_label(token) for token in shown_keys],
        y=[_axis_label(token) for token in shown_queries],
        zmin=0,
        zmax=1,
        colorscale=[
            [0, "rgba(128,128,128,0.10)"],
            [0.5, "rgba(128,128,128,0.10)"],
            [0.5, "#2F78B7"],
            [1, "#2F78B7"],
        ],
        colorbar={**color_bar(""), "tickvals": [0.25, 0.75], "ticktext": ["masked", "allowed"]},
        xgap=1 if max(cells.shape) <= 64 else 0,
        ygap=1 if max(cells.shape) <= 64 else 0,
        zsmooth=False,
        hovertemplate="query %{y}<br>key %{x}<br>%{z:d} (1 allowed, 0 masked)<extra>"
        + plotly_text(method)
        + "</extra>",
    )
    figure = base_figure(heatmap, height=640, x_title="key token", y_title="query token")
    for axis, tokens in ((figure.layout.xaxis, shown_keys), (figure.layout.yaxis, shown_queries)):
        runs = segment_runs(tokens)
        axis.tickmode = "array"
        axis.tickvals = [start + (count - 1) / 2 for _, start, count in runs]
        axis.ticktext = [segment.label for segment, _, _ in runs]
    for _, start, _ in segment_runs(shown_queries)[1:]:
        figure.add_hline(y=start - 0.5, line={"width": 1, "color": "rgba(128,128,128,0.8)"})
    for _, start, _ in segment_runs(shown_keys)[1:]:
        figure.add_vline(x=start - 0.5, line={"width": 1, "color": "rgba(128,128,128,0.8)"})
    return figure


def token_mask_caption(num_queries: int, num_keys: int, *, method: str, center: int | None = None) -> str:
    """One sentence: what token_mask draws of so many tokens, and what was cut."""
    sentence = f"{method}: which query token (down) may read which key token (across)."
    if max(num_queries, num_keys) <= FIGURE_LIMIT:
        return sentence
    rows, columns = _windows(num_queries, num_keys, center)
    return (
        f"{sentence} Cut to query tokens {rows.start + 1}\u2013{rows.stop} of {num_queries} and key tokens "
        f"{columns.start + 1}\u2013{columns.stop} of {num_keys}."
    )


def _windows(num_queries: int, num_keys: int, center: int | None) -> tuple[slice, slice]:
    """Rows and columns that are drawn."""
    middle = num_queries - 1 if center is None else center
    return token_window(num_queries, FIGURE_LIMIT, middle), token_window(num_keys, FIGURE_LIMIT, middle)


def _axis_label(token: Token) -> str:
    """Unique label of a token on a plotly axis."""
    return plotly_text(f"{token.segment.label} {token.offset + 1} \u00b7 {token.label}")
