"""Two answers in bars: what could have come where they part, and what was read to write them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.identity import Segment
from viz.drawing.numbers import format_percent, format_value
from viz.drawing.tokens import shorten
from viz.figures.change import (
    TOKEN_WIDTH,
    AnswerTokens,
    attention_by_part,
    first_difference,
    is_reordered,
    likely_tokens,
    parts_of,
    quoted,
    telling_step,
)
from viz.figures.frame import escaped, new_figure, plain
from viz.theme import INK, LINES

_BAR, _GAP = 20, 8
"""Height of a bar, and between two rows, in pixels."""

_THICK = 0.84
"""Of the bars of a row together, as a part of the row."""

_ROOM = 1.7
"""Length of the axis in that of the longest bar: what stands behind it has room on a phone."""

_PATTERNS = ("", "/")
"""Of the bars of each answer: they are told by it as well as by their colour."""

_EQUAL = "Every difference is 0 exactly."

NOTHING_READ = "No token was written, so no document carried an answer."


def plot_next_token_candidates(left: AnswerTokens, right: AnswerTokens) -> go.Figure:
    """Bars side by side: what could have come at the first token in which two answers differ.

    Of equal answers it is the token whose probability differs most. A row is a token that was among the most
    likely ones under either answer, the likeliest first.

    x is the probability, float32 (R,) for each answer; NaN where the token was not among the most likely
    ones, so that only a bound is known, and where the answer had ended.
    """
    answers, step = (left, right), telling_step(left, right)
    likely = [likely_tokens(answer, step) for answer in answers]
    best: dict[str, float] = {}
    for tokens in likely:
        for text, logprob in tokens.items():
            best[text] = max(logprob, best.get(text, -math.inf))
    texts = sorted(best, key=lambda text: -best[text])
    values = np.array([[math.exp(tokens.get(text, math.nan)) for text in texts] for tokens in likely])
    written = [answer.tokens[step : step + 1] for answer in answers]
    said = [
        [_chance(tokens, text) + (" written" if text in own else "") for text in texts]
        for tokens, own in zip(likely, written, strict=True)
    ]
    figure = new_figure(
        name="likely-tokens",
        title=f"What could have come at token {step + 1}",
        caption=" ".join([_why(left, right), *_chances(answers, likely, written)]),
        height=_height(len(texts), 2),
    )
    _add_bars(figure, answers, [escaped(shorten(text, TOKEN_WIDTH)) for text in texts], values, said)
    figure.update_xaxes(title="probability")
    figure.update_yaxes(title="token")
    return figure


def plot_answer_attention(
    answers: Sequence[AnswerTokens], *, step: int | None = None, with_prefix: bool = True
) -> go.Figure:
    """Bars side by side: the share of attention that each part of the prompt got from one or two answers.

    step: the token, from 0, that was being written; None for the mean over all tokens of an answer.
    with_prefix: whether the prefix is drawn; without it, shares are of what remains. A row is a part of the
    prompt in the order of the first answer; a document is compared with itself, whatever its slot.

    x is float32 (1 + D + 1,) for each answer, (D + 1,) without the prefix; NaN where it has no such token.
    """
    read = [attention_by_part(answer, step, with_prefix=with_prefix) for answer in answers]
    parts = parts_of(answers[0], with_prefix=with_prefix)
    values = np.array([[shares.get(part, math.nan) for part in parts] for shares in read])
    over = "the tokens of an answer, layers and heads" if step is None else "layers and heads"
    rest = "" if with_prefix else ", the prefix left out"
    told = [f"A bar is a share of attention{rest}, mean over {over}.", _most_read(answers, read)]
    missing = "no token" if step is None else "ended"
    said = [[missing if np.isnan(share) else format_percent(float(share)) for share in own] for own in values]
    figure = new_figure(
        name="answer-shares" if step is None else "token-shares",
        title="Which documents carried the answer"
        if step is None
        else f"What was read to write token {step + 1}",
        caption=" ".join(filter(None, [*told, _largest(answers, parts, values)])),
        height=_height(len(parts), len(answers)),
    )
    rows = [part.label + _slots(part, answers) for part in parts]
    _add_bars(figure, answers, rows, values, said, with_gains=True)
    figure.update_xaxes(title="share of attention")
    figure.update_yaxes(title="read")
    return figure


def _height(rows: int, bars: int) -> int:
    return 120 + rows * (bars * _BAR + _GAP)


def _add_bars(
    figure: go.Figure,
    answers: Sequence[AnswerTokens],
    rows: Sequence[str],
    values: NDArray[np.float64],
    said: Sequence[Sequence[str]],
    *,
    with_gains: bool = False,
) -> None:
    """Draws a bar for each row and answer, the first row on top.

    rows: names of the R rows, escaped. values: (A, R), NaN for no bar; not rounded, so that nothing is called
    equal that is not. said: A lists of R texts that stand behind the bars, or in their place. with_gains:
    whether it is also said there by how much a bar is longer.
    """
    width = _THICK / len(answers)
    notes: list[dict[str, Any]] = []
    for index, (answer, own, texts) in enumerate(zip(answers, values, said, strict=True)):
        # Fixed, so that bars and notes stay where they are when the other answer is switched off.
        offset = index * width - _THICK / 2
        gains = own - values[1 - index] if len(answers) == 2 else np.full(len(own), np.nan)
        figure.add_bar(
            x=own.astype(np.float32),
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
                for text, gain in zip(texts, gains, strict=True)
            ],
            textposition="outside",
            constraintext="none",
            textangle=0,
            cliponaxis=False,
            customdata=[
                f"{row}: {text}" + ("" if np.isnan(gain) else _compared(gain, answers[1 - index]))
                for row, text, gain in zip(rows, texts, gains, strict=True)
            ],
            hovertemplate="%{fullData.name}, %{customdata}<extra></extra>",
        )
        notes += [
            {"x": 0, "y": row + offset + width / 2, "text": texts[row], "xanchor": "left", "showarrow": False}
            for row in np.flatnonzero(np.isnan(own)).tolist()
        ]
    longest = np.nanmax(values, initial=0) or 1
    figure.update_layout(annotations=notes)
    figure.update_xaxes(
        range=[0, _ROOM * float(longest)],
        tickformat=".0%",
        nticks=5,
        labelalias={"150%": ""},  # room, and no share
        showgrid=True,
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=list(rows),
        ticklabelstandoff=6,
        range=[max(len(rows), 1) - 0.5, -0.5],
    )


def _compared(gain: float, other: AnswerTokens) -> str:
    """How much longer a bar is than that of the other answer, in words."""
    under = f"under {plain(other.label)}"
    if gain == 0:
        return f", exactly as {under}"
    return f", {_points(gain)} percentage points {'more' if gain > 0 else 'less'} than {under}"


def _points(difference: float) -> str:
    """The size of a difference of shares, in percentage points."""
    return format_value(abs(100 * float(difference)))


def _why(left: AnswerTokens, right: AnswerTokens) -> str:
    """Why this token is drawn."""
    if first_difference(left, right) is not None:
        return "The first token in which the answers differ."
    if not left.tokens:
        return "Both answers are empty."
    if (left.logprobs, left.alternatives) == (right.logprobs, right.alternatives):
        return f"The answers are the same, and so is the probability of every token. {_EQUAL}"
    return "The answers are the same; it is the token whose probability differs most."


def _chance(tokens: Mapping[str, float], text: str) -> str:
    """Probability of a text among the likely tokens of a step, or what it must be below."""
    if not tokens:
        return "ended"
    if text not in tokens:
        return f"below {format_percent(math.exp(min(tokens.values())))}"
    return format_percent(math.exp(tokens[text]))


def _chances(
    answers: Sequence[AnswerTokens],
    likely: Sequence[Mapping[str, float]],
    written: Sequence[Sequence[str]],
) -> list[str]:
    """A sentence for each token that was written: its probability under each answer."""
    return [
        f"{quoted(text)}: "
        + ", ".join(
            f"{_chance(tokens, text)} under {answer.label}" if tokens else f"{answer.label} had ended"
            for answer, tokens in zip(answers, likely, strict=True)
        )
        + "."
        for text in dict.fromkeys(text for own in written for text in own)
    ]


def _slots(part: Segment, answers: Sequence[AnswerTokens]) -> str:
    """Where a document stands for each of two answers, if they had the documents in different orders."""
    if part.document is None or not is_reordered(answers):
        return ""
    slots = [
        found.slot + 1
        for answer in answers
        for found in answer.documents
        if found.document == part.document and found.slot is not None
    ]
    return f", slot {' → '.join(str(slot) for slot in dict.fromkeys(slots))}"


def _most_read(answers: Sequence[AnswerTokens], read: Sequence[Mapping[Segment, float]]) -> str:
    """The document with the largest share of each answer; the first of equals."""
    most = []
    for answer, shares in zip(answers, read, strict=True):
        documents = {part: share for part, share in shares.items() if part.role == "document"}
        if documents:
            part = max(documents, key=lambda part: documents[part])
            most.append(f"{part.label} ({format_percent(documents[part])}) under {answer.label}")
    if not most:
        return NOTHING_READ
    return f"The document read most is {' and '.join(most)}."


def _largest(answers: Sequence[AnswerTokens], parts: Sequence[Segment], values: NDArray[np.float64]) -> str:
    """Where two answers differ most, and which of them read more there; "" where one has no bars."""
    if len(answers) < 2 or np.isnan(values).any():
        return ""
    gains = values[1] - values[0]
    if not gains.any():
        return _EQUAL
    row = int(np.abs(gains).argmax())
    return (
        f"The largest difference: {parts[row].name}, {_points(gains[row])} percentage points more under "
        f"{answers[int(gains[row] > 0)].label}. A + is by how many points a bar is longer."
    )
