"""Pictures of importance as tables: a query a row, a document a column, a colour and a number a cell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viz.drawing.identity import Segment
from viz.drawing.levels import TOP_LEVEL, Scale
from viz.drawing.markup import empty_panel, render
from viz.drawing.numbers import format_value, plain_values
from viz.drawing.picture import Numbers, pick, picture
from viz.drawing.tokens import Token, token_window
from viz.figures.importance import Normalisation, normalise

FloatArray = NDArray[np.float32]

NUMBERED_COLUMNS = 24
"""Most columns whose cells have room for their number and a sentence; of more only the colour is drawn."""
ROW_LIMIT = 64
"""Most answer tokens that are drawn as rows."""
_MEASURES = {"raw": "{}", "share": "{}, share of the row", "log": "{}"}


@dataclass(frozen=True)
class _Row:
    """A query: a document or a token, what its row picks, what is said of it, and (class, text, title)."""

    segment: Segment | None
    token: Token | None
    pick: str
    sentence: str
    cells: list[tuple[str, str, str]]


def importance_picture(
    importance: FloatArray,
    documents: Sequence[Segment],
    *,
    queries: Sequence[str],
    caption: str,
    normalisation: Normalisation,
    selected: int | None,
) -> str:
    """Picture: how important query document a (down) finds key document b (across); a row picks its query.

    importance: float32 (D, D), diagonal NaN, drawn hatched and left out of the scale. documents: D segments
    in input order. queries: what each row picks. selected: the chosen query document.
    """
    if len(documents) < 2:
        return empty_panel("There is one document, so there is nothing to rank.")
    assert importance.shape == (len(documents), len(documents))
    title = "Which document finds which important"
    return picture(
        _matrix(
            importance,
            documents,
            documents,
            queries=queries,
            normalisation=normalisation,
            selected=selected,
            corner="query \u2193 key \u2192",
            measure="importance",
            title=title,
        ),
        name="importance-of-documents",
        title=title,
        caption=caption,
        numbers=_numbers(importance, documents, documents, normalisation),
        readout="Point at a cell for its number; a click on a row selects that document as the query.",
    )


def written_picture(
    values: FloatArray,
    tokens: Sequence[Token],
    keys: Sequence[Segment],
    *,
    queries: Sequence[str],
    caption: str,
    normalisation: Normalisation,
    selected: int | None,
    measure: str,
) -> str:
    """Picture: the answer as buttons, and which document (across) mattered while writing each token (down).

    values: float32 (S, C), a row for each of S answer tokens, a column for each of the keys. queries: what
    each row and button picks. selected: the chosen answer token. Of more than ROW_LIMIT tokens, those around
    the chosen one are drawn, and the caption says so.
    """
    if not tokens:
        return empty_panel("No token of the answer was written.")
    assert values.shape == (len(tokens), len(keys))
    title = "While writing each word: which documents mattered"
    window = token_window(len(tokens), ROW_LIMIT, selected or 0)
    if len(tokens) > ROW_LIMIT:
        caption = (
            f"Answer tokens {window.start + 1} to {window.stop} of {len(tokens)} are drawn"
            f"{', around the chosen one' if selected is not None else ''}. {caption}"
        )
    body = render(
        "importance_tokens.html",
        tokens=[
            (token.label, token.name, pick(query=query)) for token, query in zip(tokens, queries, strict=True)
        ],
        selected=selected,
        focus=selected or 0,
    ) + _matrix(
        values[window],
        tokens[window],
        keys,
        queries=queries[window],
        normalisation=normalisation,
        selected=None if selected is None else selected - window.start,
        corner="written \u2193 read \u2192",
        measure=measure,
        title=title,
    )
    return picture(
        body,
        name="importance-while-writing",
        title=title,
        caption=caption,
        numbers=_numbers(values[window], tokens[window], keys, normalisation),
        readout="Point at a cell for its number; a click on a row or a word selects that step.",
    )


def attention_picture(shares: FloatArray, keys: Sequence[Segment], *, caption: str, when: str) -> str:
    """Picture: a bar for each key, how much of the attention went there. shares: float32 (C,)."""
    assert shares.shape == (len(keys),)
    title = f"Where attention went {when}"
    largest = float(shares.max()) or 1.0
    return picture(
        render(
            "importance_attention.html",
            bars=[
                (key, 100 * share / largest, format_value(share))
                for key, share in zip(keys, shares.tolist(), strict=True)
            ],
            measure="share of attention",
            title=title,
        ),
        name="attention-by-document",
        title=title,
        caption=caption,
        numbers=Numbers(
            ("read", "share of attention"),
            tuple((key.label, value) for key, value in zip(keys, plain_values(shares), strict=True)),
        ),
    )


def _matrix(
    values: FloatArray,
    rows: Sequence[Segment | Token],
    keys: Sequence[Segment],
    *,
    queries: Sequence[str],
    normalisation: Normalisation,
    selected: int | None,
    corner: str,
    measure: str,
    title: str,
) -> str:
    shown = normalise(values, normalisation)
    scale = Scale.of(shown, is_log=normalisation == "log")
    levels = scale.levels(shown).tolist()
    is_narrow = len(keys) > NUMBERED_COLUMNS
    written = [
        _row(who, query, keys, numbers, row_levels, is_narrow=is_narrow)
        for who, query, numbers, row_levels in zip(rows, queries, shown.tolist(), levels, strict=True)
    ]
    return render(
        "importance_table.html",
        rows=written,
        keys=keys,
        is_narrow=is_narrow,
        selected=selected,
        focus=selected or 0,
        corner=corner,
        measure=_MEASURES[normalisation].format(measure),
        scale=scale,
        top=TOP_LEVEL,
        title=title,
    )


def _row(
    who: Segment | Token,
    query: str,
    keys: Sequence[Segment],
    values: Sequence[float],
    levels: Sequence[int],
    *,
    is_narrow: bool,
) -> _Row:
    segment, token = (who, None) if isinstance(who, Segment) else (None, who)
    cells = []
    name = who.name
    for key, value, level in zip(keys, values, levels, strict=True):
        css_class = "pine-masked" if level < 0 else f"l{level}"
        if is_narrow:
            cells.append((css_class, "", ""))
            continue
        text = _reason(who, key) if level < 0 else format_value(value)
        cells.append((css_class, "" if level < 0 else text, f"{name}, {key.name}: {text}"))
    return _Row(segment, token, pick(query=query), _row_sentence(who, keys, values), cells)


def _reason(who: Segment | Token, key: Segment) -> str:
    return "a document is not ranked against itself" if who == key else "masked"


def _row_sentence(who: Segment | Token, keys: Sequence[Segment], values: Sequence[float]) -> str:
    """The row in words: the three largest of its values."""
    pairs = [(value, key) for key, value in zip(keys, values, strict=True) if not math.isnan(value)]
    # Sorted by the value alone, so that equals stay in input order.
    first = sorted(pairs, key=lambda pair: -pair[0])[:3]
    largest = ", ".join(f"{key.label} {format_value(value)}" for value, key in first)
    return f"{who.name}: most to {largest}" if first else f"{who.name}: nothing is ranked"


def _numbers(
    values: FloatArray,
    rows: Sequence[Segment | Token],
    keys: Sequence[Segment],
    normalisation: Normalisation,
) -> Numbers:
    """The table as it is drawn, unrounded."""
    shown = normalise(values, normalisation)
    names = [(who.label,) if isinstance(who, Segment) else (who.offset + 1, who.text) for who in rows]
    heads = ("query",) if len(rows) and isinstance(rows[0], Segment) else ("step", "token")
    return Numbers(
        (*heads, *(key.label for key in keys)),
        tuple((*name, *plain_values(row)) for name, row in zip(names, shown, strict=True)),
    )
