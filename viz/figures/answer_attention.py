"""Figure of the attention of one or two answers on each segment of the prompt, and bars side by side."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.identity import Segment
from viz.drawing.text import format_percent, format_value
from viz.figures.answer_tokens import AnswerTokens, attention_by_part, is_reordered, parts_of
from viz.figures.frame import new_figure, plain
from viz.theme import INK, LINES

_BAR_PX, _GAP_PX = 20, 8

_ROW_HEIGHT = 0.84
"""Height of the bars of a row together, as a share of the row."""

_AXIS_LENGTH = 1.7
"""Length of the axis relative to the longest bar, with space for its text on a phone."""

_PATTERNS = ("", "/")
"""Fill of the bars of each answer, which identifies it without color."""

NO_DIFFERENCE = "Every difference is 0 exactly."

NOTHING_READ = "No token was written, so no document carried an answer."


def plot_answer_attention(
    answers: Sequence[AnswerTokens], *, step: int | None = None, with_prefix: bool = True
) -> go.Figure:
    """Plot the share of attention of one or two answers on each segment of the prompt, as bars side by side.

    x is float32 (1 + D + 1,) for each answer, (D + 1,) without the prefix; NaN where it has no such token. A
    row is a segment in the order of the first answer; both bars of a row are of the same document.

    Args:
        answers: One or two answers, from `answer_tokens`.
        step: Token of the answer that is decoded, from 0; None for the mean over all of them.
        with_prefix: Include the prefix. Without it, shares are of the rest.

    Returns:
        The figure.
    """
    shares = [attention_by_part(answer, step, with_prefix=with_prefix) for answer in answers]
    parts = parts_of(answers[0], with_prefix=with_prefix)
    values = _answer_attention_info(shares, parts)
    over = "the tokens of an answer, layers and heads" if step is None else "layers and heads"
    rest = "" if with_prefix else ", the prefix left out"
    caption = [
        f"A bar is a share of attention{rest}, mean over {over}.",
        _most_attended(answers, shares),
        _largest_difference(answers, parts, values),
    ]
    missing = "no token" if step is None else "ended"
    texts = [
        [missing if np.isnan(share) else format_percent(float(share)) for share in row] for row in values
    ]
    figure = new_figure(
        name="answer-shares" if step is None else "token-shares",
        title="Which documents carried the answer"
        if step is None
        else f"What was read to write token {step + 1}",
        caption=" ".join(filter(None, caption)),
        height=bars_height(len(parts), len(answers)),
    )
    rows = [part.label + _slots(part, answers) for part in parts]
    add_bars(figure, answers, rows, values, texts, with_gains=True)
    figure.update_xaxes(title="share of attention")
    figure.update_yaxes(title="read")
    return figure


def _answer_attention_info(
    shares: Sequence[Mapping[Segment, float]], parts: Sequence[Segment]
) -> NDArray[np.float64]:
    """Return the shares (A, P) of the parts, NaN where an answer has none."""
    return np.array([[by_part.get(part, math.nan) for part in parts] for by_part in shares])


def bars_height(num_rows: int, num_bars: int) -> int:
    """Return the height of a figure of bars side by side, in pixels."""
    return 120 + num_rows * (num_bars * _BAR_PX + _GAP_PX)


def add_bars(
    figure: go.Figure,
    answers: Sequence[AnswerTokens],
    rows: Sequence[str],
    values: NDArray[np.float64],
    texts: Sequence[Sequence[str]],
    *,
    with_gains: bool = False,
) -> None:
    """Add a bar per row and answer, the first row on top.

    Args:
        figure: Figure without traces.
        answers: A answers, one or two.
        rows: Escaped names of the R rows.
        values: (A, R), NaN for no bar; not rounded, so that only equal values are called equal.
        texts: Texts (A, R) after the bars, or in place of them.
        with_gains: Add to the text of the longer bar by how much it is longer.
    """
    width = _ROW_HEIGHT / len(answers)
    notes: list[dict[str, Any]] = []
    for index, (answer, lengths, row_texts) in enumerate(zip(answers, values, texts, strict=True)):
        # Fixed, so that bars and notes do not move when the other answer is hidden.
        offset = index * width - _ROW_HEIGHT / 2
        gains = lengths - values[1 - index] if len(answers) == 2 else np.full(len(lengths), np.nan)
        figure.add_bar(
            x=lengths.astype(np.float32),
            y=np.arange(len(rows), dtype=np.int16),
            orientation="h",
            name=plain(answer.label),
            offset=offset,
            width=width,
            marker={
                "color": LINES[index],
                "line": {"color": INK, "width": 1},
                "pattern": {"shape": _PATTERNS[index], "fillmode": "overlay", "size": 8, "solidity": 0.2},
            },
            text=[
                text + (f", +{_points(gain)}" if with_gains and gain > 0 else "")
                for text, gain in zip(row_texts, gains, strict=True)
            ],
            textposition="outside",
            constraintext="none",
            textangle=0,
            cliponaxis=False,
            customdata=[
                f"{row}: {text}" + ("" if np.isnan(gain) else _comparison(gain, answers[1 - index]))
                for row, text, gain in zip(rows, row_texts, gains, strict=True)
            ],
            hovertemplate="%{fullData.name}, %{customdata}<extra></extra>",
        )
        notes += [
            {
                "x": 0,
                "y": row + offset + width / 2,
                "text": row_texts[row],
                "xanchor": "left",
                "showarrow": False,
            }
            for row in np.flatnonzero(np.isnan(lengths)).tolist()
        ]
    longest = np.nanmax(values, initial=0) or 1
    figure.update_layout(annotations=notes)
    figure.update_xaxes(
        range=[0, _AXIS_LENGTH * float(longest)],
        tickformat=".0%",
        nticks=5,
        labelalias={"150%": ""},  # space for text, not a share
        showgrid=True,
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=list(rows),
        ticklabelstandoff=6,
        range=[max(len(rows), 1) - 0.5, -0.5],
    )


def _comparison(gain: float, other: AnswerTokens) -> str:
    under = f"under {plain(other.label)}"
    if gain == 0:
        return f", exactly as {under}"
    return f", {_points(gain)} percentage points {'more' if gain > 0 else 'less'} than {under}"


def _points(difference: float) -> str:
    """Format the size of a difference of shares, in percentage points."""
    return format_value(abs(100 * float(difference)))


def _slots(part: Segment, answers: Sequence[AnswerTokens]) -> str:
    """Name the slots of a document, if the answers had the documents in different orders."""
    if part.document is None or not is_reordered(answers):
        return ""
    slots = [
        segment.slot + 1
        for answer in answers
        for segment in answer.documents
        if segment.document == part.document and segment.slot is not None
    ]
    return f", slot {' → '.join(str(slot) for slot in dict.fromkeys(slots))}"


def _most_attended(answers: Sequence[AnswerTokens], shares: Sequence[Mapping[Segment, float]]) -> str:
    """Name the document with the largest share of each answer, the first of equal ones."""
    most = []
    for answer, by_part in zip(answers, shares, strict=True):
        documents = {part: share for part, share in by_part.items() if part.role == "document"}
        if documents:
            part = max(documents, key=lambda part: documents[part])
            most.append(f"{part.label} ({format_percent(documents[part])}) under {answer.label}")
    return f"The document read most is {' and '.join(most)}." if most else NOTHING_READ


def _largest_difference(
    answers: Sequence[AnswerTokens], parts: Sequence[Segment], values: NDArray[np.float64]
) -> str:
    """Name the part at which two answers differ most; "" if one answer has no bars."""
    if len(answers) < 2 or np.isnan(values).any():
        return ""
    gains = values[1] - values[0]
    if not gains.any():
        return NO_DIFFERENCE
    row = int(np.abs(gains).argmax())
    return (
        f"The largest difference: {parts[row].name}, {_points(gains[row])} percentage points more under "
        f"{answers[int(gains[row] > 0)].label}. A + is by how many points a bar is longer."
    )
