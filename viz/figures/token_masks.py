"""Who may read whom, token by token: a window of a mask."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viz.drawing.markup import render
from viz.drawing.picture import Numbers, picture
from viz.drawing.tokens import Token, segment_runs
from viz.drawing.windows import window_moves
from viz.figures.masks import ALLOWED, CAUSAL, STATE_CLASSES

TOKEN_LIMIT = 40
"""Most tokens per side that are drawn one by one."""


@dataclass(frozen=True)
class TokenMask:
    """Some tokens of a prompt one by one: which query may read which key.

    method: label of the method. tokens: all of the prompt, and of the answer as far as it was read.
    queries, keys: which of them are drawn, at most TOKEN_LIMIT each. allowed: bool (Q, K), True means
    "may attend". picks: what a click on each of the Q rows selects, "" for nothing. selected: index of the
    chosen query among the tokens.
    """

    method: str
    tokens: Sequence[Token]
    queries: slice
    keys: slice
    allowed: NDArray[np.bool_]
    picks: Sequence[str] = ()
    selected: int | None = None

    def __post_init__(self) -> None:
        assert self.allowed.shape == (len(self.tokens[self.queries]), len(self.tokens[self.keys]))
        assert max(self.allowed.shape) <= TOKEN_LIMIT


def token_states(
    states: NDArray[np.uint8], segments: NDArray[np.integer[Any]], queries: slice, keys: slice
) -> NDArray[np.bool_]:
    """Which token may attend to which, in a window: the states of their segments, token by token.

    states: uint8 (R, R), as of mask_states. segments: int (n,), which of the R segments each token belongs
    to, in input order. Returns bool (Q, K).
    """
    cells = states[np.ix_(segments[queries], segments[keys])]
    index = np.arange(len(segments))
    is_earlier = index[keys] <= index[queries, None]
    allowed: NDArray[np.bool_] = (cells == ALLOWED) | ((cells == CAUSAL) & is_earlier)
    return allowed


def token_mask_picture(mask: TokenMask, *, follows: bool, is_open: bool, name: str = "token-mask") -> str:
    """HTML: the tokens of a window in a table, folded away unless is_open, with buttons that move the window.

    follows: whether the keys are those around the query, and not a window that was chosen.
    """
    queries, keys = mask.tokens[mask.queries], mask.tokens[mask.keys]
    caption = (
        f"{mask.method}, single tokens: which query token (down) may read which key token (across), "
        f"the same in every layer and head. {window_sentence(mask)}"
    )
    selected = None if mask.selected is None else mask.selected - mask.queries.start
    picks = mask.picks or [""] * len(queries)
    stops = [q for q, what in enumerate(picks) if what]
    parts = [(segment, start) for segment, start, _ in segment_runs(mask.tokens)]
    body = render(
        "token_mask.html",
        caption=caption,
        queries=queries,
        keys=keys,
        query_runs=segment_runs(queries),
        key_runs=segment_runs(keys),
        cells=[[STATE_CLASSES[int(cell)] for cell in row] for row in mask.allowed],
        picks=picks,
        selected=selected,
        entry=selected if selected in stops else next(iter(stops), None),
        says=json.dumps(
            {
                "pine-allowed": f"{mask.method}: query {{query}} may read key {{key}}.",
                "pine-masked": f"{mask.method}: query {{query}} may not read key {{key}}, it is masked.",
            },
            ensure_ascii=False,
        ),
        moves=window_moves(parts, mask.keys, len(mask.tokens), follows=follows),
    )
    drawn = picture(
        body,
        name=name,
        caption=caption,
        numbers=Numbers(
            ("query", "key", "allowed"),
            tuple(
                (_token_label(query), _token_label(key), bool(mask.allowed[q, k]))
                for q, query in enumerate(queries)
                for k, key in enumerate(keys)
            ),
        ),
        readout="Point at a cell and it names its query and its key.",
    )
    return render("folded.html", name=name, label="Show single tokens", body=drawn, is_open=is_open)


def window_sentence(mask: TokenMask) -> str:
    """One sentence: which tokens are drawn, and of how many."""
    total = f"{len(mask.tokens):,}"
    if mask.queries == mask.keys:
        everything = f"All {total} tokens are shown."
        return (
            everything
            if max(mask.allowed.shape) == len(mask.tokens)
            else (f"Shown are tokens {_span(mask.queries)} of {total}, as queries and as keys.")
        )
    return f"Shown are query tokens {_span(mask.queries)} and key tokens {_span(mask.keys)} of {total}."


def _span(window: slice) -> str:
    """Counted from 1."""
    return f"{window.start + 1:,}\u2013{window.stop:,}"


def _token_label(token: Token) -> str:
    """Short and unique: segment, place in it from 1, text."""
    return f"{token.segment.label} {token.offset + 1} {token.label}"
