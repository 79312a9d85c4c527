"""Figure of the most likely tokens at the first step at which two answers differ."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.text import format_percent, shorten
from viz.figures.answer_attention import NO_DIFFERENCE, add_bars, bars_height
from viz.figures.answer_tokens import (
    MAX_TOKEN_CHARACTERS,
    AnswerTokens,
    comparison_step,
    first_difference,
    likely_tokens,
    quoted,
)
from viz.figures.frame import escaped, new_figure


def plot_next_token_candidates(left: AnswerTokens, right: AnswerTokens) -> go.Figure:
    """Plot the probabilities of the most likely tokens where two answers differ, as bars side by side.

    For equal answers, the token whose probability differs most. x is float32 (R,) for each answer; NaN where
    the token was not among the most likely ones, so that only a bound is known, and where the answer had
    ended. A row is a token that was among the most likely ones of either answer, the likeliest first.

    Args:
        left: Answer, from `answer_tokens`.
        right: Answer that it is compared with.

    Returns:
        The figure.
    """
    answers, step = (left, right), comparison_step(left, right)
    candidates = [likely_tokens(answer, step) for answer in answers]
    tokens, values = _next_token_candidates_info(candidates)
    decoded = [answer.tokens[step : step + 1] for answer in answers]
    bar_texts = [
        [_chance(logprobs, token) + (" written" if token in chosen else "") for token in tokens]
        for logprobs, chosen in zip(candidates, decoded, strict=True)
    ]
    figure = new_figure(
        name="likely-tokens",
        title=f"What could have come at token {step + 1}",
        caption=" ".join([_reason(left, right), *_chances(answers, candidates, decoded)]),
        height=bars_height(len(tokens), 2),
    )
    rows = [escaped(shorten(token, MAX_TOKEN_CHARACTERS)) for token in tokens]
    add_bars(figure, answers, rows, values, bar_texts)
    figure.update_xaxes(title="probability")
    figure.update_yaxes(title="token")
    return figure


def _next_token_candidates_info(
    candidates: Sequence[Mapping[str, float]],
) -> tuple[list[str], NDArray[np.float64]]:
    """Return the tokens, the likeliest first, and their probabilities (answers, tokens)."""
    best: dict[str, float] = {}
    for logprobs in candidates:
        for token, logprob in logprobs.items():
            best[token] = max(logprob, best.get(token, -math.inf))
    tokens = sorted(best, key=lambda token: -best[token])
    return tokens, np.array(
        [[math.exp(logprobs.get(token, math.nan)) for token in tokens] for logprobs in candidates]
    )


def _reason(left: AnswerTokens, right: AnswerTokens) -> str:
    """Explain the choice of the step."""
    if first_difference(left, right) is not None:
        return "The first token in which the answers differ."
    if not left.tokens:
        return "Both answers are empty."
    if (left.logprobs, left.alternatives) == (right.logprobs, right.alternatives):
        return f"The answers are the same, and so is the probability of every token. {NO_DIFFERENCE}"
    return "The answers are the same; it is the token whose probability differs most."


def _chance(logprobs: Mapping[str, float], token: str) -> str:
    """Format the probability of a token, or its upper bound."""
    if not logprobs:
        return "ended"
    if token not in logprobs:
        return f"below {format_percent(math.exp(min(logprobs.values())))}"
    return format_percent(math.exp(logprobs[token]))


def _chances(
    answers: Sequence[AnswerTokens],
    candidates: Sequence[Mapping[str, float]],
    decoded: Sequence[Sequence[str]],
) -> list[str]:
    """Return a sentence per decoded token, with its probability under each answer."""
    return [
        f"{quoted(token)}: "
        + ", ".join(
            f"{_chance(logprobs, token)} under {answer.label}" if logprobs else f"{answer.label} had ended"
            for answer, logprobs in zip(answers, candidates, strict=True)
        )
        + "."
        for token in dict.fromkeys(token for tokens in decoded for token in tokens)
    ]
