"""Figure of the attention of one or two answers on each segment of the prompt, and bars side by side."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.identity import PREFIX, SUFFIX, Segment
from viz.drawing.text import format_percent, format_short
from viz.figures.answer_tokens import AnswerTokens, is_reordered
from viz.figures.frame import new_figure, plain
from viz.figures.importance import normalize
from viz.theme import INK, PATTERNS, line_color, method_number

_BAR_PX, _GAP_PX = 20, 8
_ROW_HEIGHT = 0.84  # of the bars of a row together, as a share of the row
_AXIS_LENGTH = 1.7  # relative to the longest bar, with space for its text on a phone

NO_DIFFERENCE = "All differences are exactly 0."

NO_TOKENS = "The answers have no tokens, so no attention was recorded."


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
    """
    parts, values = _answer_attention_info(answers, step, with_prefix=with_prefix)
    name, tokens = "answer-shares", "mean over the answer"
    mean, missing = "answer tokens, ", "no token"
    if step is not None:
        name, tokens, mean, missing = "token-shares", f"answer token {step + 1}", "", "ended"
    rest = "" if with_prefix else " (prefix excluded)"
    caption = [
        f"Share of attention{rest}, mean over {mean}layers and heads.",
        _most_attended(answers, parts, values),
        _largest_difference(answers, parts, values),
    ]
    texts = [[missing if np.isnan(share) else format_percent(share) for share in row] for row in values]
    figure = new_figure(
        name=name,
        title=f"Attention on each segment of the prompt, {tokens}",
        caption=" ".join(filter(None, caption)),
        height=bars_height(len(parts), len(answers)),
    )
    rows = [part.label + _slots(part, answers) for part in parts]
    add_bars(figure, answers, rows, values, texts, with_gains=True)
    figure.update_xaxes(title="share of attention")
    figure.update_yaxes(title="segment of the prompt")
    return figure


def _answer_attention_info(
    answers: Sequence[AnswerTokens], step: int | None, *, with_prefix: bool
) -> tuple[list[Segment], NDArray[np.float64]]:
    """Return the P segments of the first answer, and their shares (A, P), NaN where an answer has none."""
    first = 0 if with_prefix else 1
    parts = [PREFIX, *answers[0].documents, SUFFIX][first:]
    values = np.full((len(answers), len(parts)), np.nan)
    for row, answer in zip(values, answers, strict=True):
        shares = answer.attention if step is None else answer.attention[step : step + 1]
        if not with_prefix:
            shares = normalize(shares[:, 1:], "share")
        if len(shares):
            mean = shares.mean(axis=0, dtype=np.float64).astype(np.float32)
            by_part = dict(zip([PREFIX, *answer.documents, SUFFIX][first:], mean.tolist(), strict=True))
            row[:] = [by_part.get(part, np.nan) for part in parts]
    return parts, values


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
    """Add a bar per escaped row name and answer, the first row on top; values and texts are (A, R).

    Texts are after the bars, or in place of them for NaN; with_gains adds by how much a bar is longer.
    """
    width = _ROW_HEIGHT / len(answers)
    for index, (answer, lengths, row_texts) in enumerate(zip(answers, values, texts, strict=True)):
        # Fixed, so that bars and notes do not move when the other answer is hidden.
        offset = index * width - _ROW_HEIGHT / 2
        gains = lengths - values[1 - index] if len(answers) == 2 else np.full(len(lengths), np.nan)
        additions = [f", +{_points(gain)}" if with_gains and gain > 0 else "" for gain in gains]
        hovers = [
            text + ("" if np.isnan(gain) else _comparison(gain, answers[1 - index]))
            for text, gain in zip(row_texts, gains, strict=True)
        ]
        pattern = {"shape": PATTERNS[index], "fillmode": "overlay", "size": 8, "solidity": 0.2}
        figure.add_bar(
            x=lengths.astype(np.float32),
            y=np.arange(len(rows), dtype=np.int16),
            orientation="h",
            name=plain(answer.label),
            offset=offset,
            width=width,
            marker={
                "color": line_color(method_number(answer.label)),
                "line": {"color": INK, "width": 1},
                "pattern": pattern,
            },
            text=[text + addition for text, addition in zip(row_texts, additions, strict=True)],
            **{"textposition": "outside", "constraintext": "none", "textangle": 0, "cliponaxis": False},
            customdata=hovers,
            hovertemplate="%{fullData.name}, %{y}: %{customdata}<extra></extra>",
        )
        for row in np.flatnonzero(np.isnan(lengths)).tolist():
            y = row + offset + width / 2
            figure.add_annotation(x=0, y=y, text=row_texts[row], xanchor="left", showarrow=False)
    longest = float(np.nanmax(values, initial=0)) or 1
    x_axis = {"range": [0, _AXIS_LENGTH * longest], "tickformat": ".0%", "nticks": 5}
    figure.update_xaxes(**x_axis, labelalias={"150%": ""}, showgrid=True)  # at 150% is text, not a share
    bottom = max(len(rows), 1) - 0.5
    ticks = {"tickvals": list(range(len(rows))), "ticktext": list(rows)}
    figure.update_yaxes(**ticks, ticklabelstandoff=6, range=[bottom, -0.5])


def _comparison(gain: float, other: AnswerTokens) -> str:
    if gain == 0:
        return f", same as {plain(other.label)}"
    return f", {'+' if gain > 0 else '−'}{_points(gain)} pp vs. {plain(other.label)}"


def _points(difference: float) -> str:
    """Format the size of a difference of shares, in percentage points."""
    return format_short(abs(100 * float(difference)))


def _slots(part: Segment, answers: Sequence[AnswerTokens]) -> str:
    """Name the slots of a document, if the answers had the documents in different orders."""
    if part.document is None or not is_reordered(answers):
        return ""
    slots = [answer.documents.index(part) + 1 for answer in answers if part in answer.documents]
    return f", slot {' → '.join(map(str, dict.fromkeys(slots)))}"


def _most_attended(
    answers: Sequence[AnswerTokens], parts: Sequence[Segment], values: NDArray[np.float64]
) -> str:
    """Name the document with the largest share of each answer, the first of equal ones."""
    documents = [row for row, part in enumerate(parts) if part.document is not None]
    most = []
    for answer, shares in zip(answers, values, strict=True):
        if documents and not np.isnan(shares).any():
            row = max(documents, key=lambda row: shares[row])
            most.append(f"{parts[row].label} ({format_percent(shares[row])}) under {answer.label}")
    return f"Most attended document: {' and '.join(most)}." if most else NO_TOKENS


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
        f"Largest difference: {parts[row].name}, +{_points(gains[row])} pp for "
        f"{answers[int(gains[row] > 0)].label}. “+” marks the difference in percentage points."
    )
